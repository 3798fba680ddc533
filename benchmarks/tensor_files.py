"""Processor time of reading and writing a file of tensors, beside the package safetensors.

    python benchmarks/tensor_files.py
    python benchmarks/tensor_files.py --megabytes 64 --rounds 9

A file of 64 float32 tensors. The calls take turns; the table has the medians in milliseconds, and
in GB of the file each second, with ``np.sum`` over as many bytes. The system caches the file.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402

COUNT = 64


def calls(folder: str, arrays: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the calls by the name of their row."""
    path, copy = f"{folder}/model.safetensors", f"{folder}/copy.safetensors"
    od.save_tensors(path, arrays)
    dense = np.concatenate([array.ravel() for array in arrays.values()])
    names = {"layers": [od.TensorSource("h.{layer}.w", transpose=True)]}
    return {
        "np.sum": dense.sum,
        "list_tensors": lambda: od.list_tensors(path),
        "load_tensors(mmap=True)": lambda: od.load_tensors(path, mmap=True),
        "load_tensors(mmap=True, names=, transpose)": lambda: od.load_tensors(
            path, mmap=True, names=names
        ),
        "load_tensors": lambda: od.load_tensors(path),
        "safetensors load_file": lambda: safetensors.numpy.load_file(path),
        "load_tensors(dtype='float16')": lambda: od.load_tensors(path, dtype="float16"),
        "load_tensors(dtype='bfloat16')": lambda: od.load_tensors(path, dtype="bfloat16"),
        "save_tensors": lambda: od.save_tensors(copy, arrays),
        "safetensors save_file": lambda: safetensors.numpy.save_file(arrays, copy),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    rows = options.megabytes * (1 << 20) // (COUNT * 4 * 1024)
    rng = np.random.default_rng(0)
    arrays = {f"h.{k}.w": rng.random((rows, 1024), np.float32) for k in range(COUNT)}
    size = sum(array.nbytes for array in arrays.values())
    with tempfile.TemporaryDirectory() as folder:
        found = interleaved(calls(folder, arrays), options.rounds, repeats=1)
    print(f"{size / 1e6:.0f} MB".ljust(44), "ms".rjust(8), "GB/s".rjust(8))
    for name in found:
        seconds = found.median(name)
        print(name.ljust(44), f"{1e3 * seconds:8.2f}", f"{size / 1e9 / seconds:8.1f}")


if __name__ == "__main__":
    main()
