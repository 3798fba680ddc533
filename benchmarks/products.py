"""Compiled matrix products beside NumPy's, and beside the memory's bandwidth.

    python benchmarks/products.py
    python benchmarks/products.py --only rows,halves --rounds 15
    python benchmarks/products.py --beside FOLDER    # ratios to another checkout as well

Products of few rows read a matrix from memory, so what counts is gigabytes a second, beside
`np.sum` over as many bytes in the same turns (its share is above 1 where the product reads faster).
Each call takes another copy of the matrix, so that none is found in a cache. Processor time of one
thread, medians of rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from harness.machine import ONE_THREAD, set_blas_choices_aside
from harness.sampling import interleaved

os.environ.update(ONE_THREAD)
set_blas_choices_aside()

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from odyssey import ops  # noqa: E402

# Bytes of all copies of a matrix, more than a last cache has.
_BYTES = 96 << 20


class Case(NamedTuple):
    """A product (m, k) @ (k, n).

    Attributes:
        group: Name by which ``--only`` selects it.
        m: Rows.
        k: Length of the sums.
        n: Columns.
        turned: Whether the matrix is stored (n, k), and its transpose multiplied.
        dtype: Dtype of the rows.
        half: Dtype of the matrix, if it is of half precision.
        batch: Number of products.
    """

    group: str
    m: int
    k: int
    n: int
    turned: bool
    dtype: str = "float32"
    half: str = ""
    batch: int = 1

    def __str__(self) -> str:
        many = f"{self.batch} times " if self.batch > 1 else ""
        matrix = f"({self.n}, {self.k}).T" if self.turned else f"({self.k}, {self.n})"
        return f"{many}({self.m}, {self.k}) @ {matrix} {self.half or self.dtype}"


# A layer of GPT-2, its table of words, and the shape of an earlier measurement.
_SHAPES = ((768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50257), (768, 8192))


def cases() -> Iterator[Case]:
    """Every case."""
    for k, n in _SHAPES:
        for turned in (False, True):
            yield Case("row", 1, k, n, turned)
    for turned in (False, True):
        yield Case("row", 1, 768, 3072, turned, "float64")
        for m in range(1, 9):
            yield Case("rows", m, 768, 3072, turned)
        for half in ("float16", "bfloat16"):
            for k, n in _SHAPES[:5]:
                yield Case("halves", 1, k, n, turned, half=half)
            for m in (2, 4, 8, 256):
                yield Case("halves", m, 768, 3072, turned, half=half)
    yield Case("column", 8192, 768, 1, False)
    for m, k, n in ((4096, 4, 16), (10000, 8, 16), (10000, 8, 4)):
        for turned in (True, False):
            yield Case("thin", m, k, n, turned)
    for batch, m, k, n in ((4, 1, 24, 64), (12, 1, 64, 64), (12, 1, 256, 64), (12, 4, 64, 256)):
        for turned in (True, False):
            yield Case("batch", m, k, n, turned, batch=batch)


def arrays(case: Case) -> tuple[Any, list[Any]]:
    """Return the rows, and copies of the matrix as it is stored."""
    rng = np.random.default_rng(0)
    batch = (case.batch,) if case.batch > 1 else ()
    rows = rng.standard_normal((*batch, case.m, case.k)).astype(case.dtype)
    shape = (case.n, case.k) if case.turned else (case.k, case.n)
    matrix = rng.standard_normal((*batch, *shape)).astype(case.dtype)
    if case.half:
        matrix = ops.astype(matrix, case.half)
    is_thin = case.group in ("thin", "batch", "column")  # in a cache, as in a loop that trains
    copies = 1 if is_thin else max(1, _BYTES // matrix.nbytes)
    return rows, [matrix.copy() for _ in range(copies)]


def product(case: Case) -> Callable[[Any, Any], Any]:
    """Return the function of a case."""

    def call(rows: Any, matrix: Any) -> Any:
        wide = ops.astype(matrix, case.dtype) if case.half else matrix
        return rows @ (ops.matrix_transpose(wide) if case.turned else wide)

    return call


def measure(case: Case, rounds: int) -> tuple[str, float]:
    """Return the line of a case, and its seconds."""
    rows, copies = arrays(case)
    compiled = od.compile(product(case), fullgraph=True)
    for _ in range(3):
        compiled(rows, copies[0])
    # Bits of halves are no floats: their sums would warn.
    flat = [np.ones(c.nbytes // 4, np.float32) for c in copies]
    matrix, numbers = cycle(copies), cycle(flat)
    calls: dict[str, Callable[[], Any]] = {
        "odyssey": lambda: compiled(rows, next(matrix)),
        "sum": lambda: next(numbers).sum(),
    }
    if not case.half:
        views = cycle([c.swapaxes(-1, -2) if case.turned else c for c in copies])
        calls["numpy"] = lambda: np.matmul(rows, next(views))
    work = case.batch * case.m * case.k * case.n
    repeats = max(len(copies), 1 + 20_000_000 // work)
    samples = interleaved(calls, rounds, repeats=repeats, clock=time.thread_time)
    seconds = samples.median("odyssey")
    gigabytes = (copies[0].nbytes + (rows.nbytes if case.n == 1 else 0)) / seconds / 1e9
    text = f"{case!s:44}{seconds * 1e6:10.1f} us"
    if case.group in ("row", "rows", "halves"):
        text += f"{gigabytes:8.1f} GB/s, share {samples.ratio('sum', 'odyssey'):.2f}"
    if "numpy" in calls:
        text += f"{samples.ratio('odyssey', 'numpy'):8.2f} of NumPy's"
    return text, seconds


def seconds_of(folder: str, name: str, rounds: int) -> float:
    """Return the seconds of a case in another checkout, in a process of its own."""
    command = [sys.executable, __file__, "--seconds", name, "--rounds", str(rounds)]
    environment = {**os.environ, "PYTHONPATH": folder}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(found.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="groups, such as rows,thin")
    parser.add_argument("--beside", default="", help="the folder of another checkout")
    parser.add_argument("--seconds", default="", help="print the seconds of one case alone")
    settings = parser.parse_args()
    for case in cases():
        if settings.seconds:
            if str(case) == settings.seconds:
                print(measure(case, settings.rounds)[1])
                return
            continue
        if settings.only and case.group not in settings.only.split(","):
            continue
        text, _ = measure(case, settings.rounds)
        if settings.beside:
            # Process by process in turns: own, other, own, other, own, other.
            here = str(Path(od.__file__).parents[1])
            pairs = [
                [seconds_of(f, str(case), settings.rounds) for f in (here, settings.beside)]
                for _ in range(3)
            ]
            text += f"{statistics.median(a / b for a, b in pairs):8.2f} of the other checkout"
        print(text, flush=True)


if __name__ == "__main__":
    main()
