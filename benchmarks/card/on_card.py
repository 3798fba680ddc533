"""Runs prepared programs on a CUDA device, with NumPy and CuPy alone: python on_card.py DIR.

Each part is a process of its own with a limit, which prints JSON, a line a figure.
It was written without a device: nothing of it but ``ProgramRun`` has run.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

# Seconds; ten minutes in all.
LIMITS = {
    "versions": 30,
    "machine": 60,
    "rows": 120,
    "launches": 100,
    "graphs": 80,
    "torch": 120,
    "memcheck": 45,
    "racecheck": 45,
}
SANITIZED = ("W1", "digits", "W4")
# Workloads whose peers in PyTorch are timed; W4 and W4m take the same functions.
PEERS = ("W1", "W2", "W3", "W4", "W6", "W7", "digits")


# ------------------------------------------------------------------ programs as files


def write_programs(path: Any, programs: list[dict[str, Any]]) -> None:
    """Write programs to an .npz file: their text as JSON, and their arrays."""
    arrays: list[Any] = []

    def taken(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {"array": len(arrays) - 1}
        if isinstance(value, dict):
            return {k: taken(v) for k, v in value.items()}
        return [*map(taken, value)] if isinstance(value, (list, tuple)) else value

    text = json.dumps([taken(one) for one in programs]).encode()
    named = {f"a{k}": array for k, array in enumerate(arrays)}
    np.savez_compressed(path, text=np.frombuffer(text, np.uint8), **named)


def read_programs(path: Any) -> list[dict[str, Any]]:
    """Read what ``write_programs`` wrote."""
    with np.load(path, allow_pickle=False) as file:

        def filled(value: Any) -> Any:
            if isinstance(value, dict):
                if value.keys() == {"array"}:
                    return file[f"a{value['array']}"]
                return {k: filled(v) for k, v in value.items()}
            return [*map(filled, value)] if isinstance(value, list) else value

        programs: list[dict[str, Any]] = filled(json.loads(file["text"].tobytes()))
        return programs


# ------------------------------------------------------------------ a program


class ProgramRun:
    """A program with memory of its own. Subclasses launch its kernels.

    Args:
        data: The program.
        xp: NumPy, or CuPy.
    """

    def __init__(self, data: dict[str, Any], xp: Any) -> None:
        self.data, self.xp = data, xp
        self._memory = {
            tuple(key): xp.zeros(max(known, 1) + 64, np.uint8)
            if isinstance(known, int)
            else xp.array(known)
            for key, known in data["memory"]
        }

    def launch(self, name: str, grid: int, block: int, addresses: list[int]) -> None:
        """Launch a kernel."""
        raise NotImplementedError

    def _bytes(self, address: Any) -> Any:
        kind, index, offset = address
        return self._memory[kind, index].reshape(-1).view(np.uint8)[offset:]

    def _pointer(self, address: Any) -> int:
        kind, index, offset = address
        array = self._memory[kind, index]
        start = array.ctypes.data if self.xp is np else array.data.ptr
        return int(start) + int(offset)

    def elements(self, view: Any) -> Any:
        """The elements of a value where they lie."""
        address, shape, strides, dtype = view
        memory = self._bytes(address)
        flat = memory[: memory.size - memory.size % np.dtype(dtype).itemsize].view(dtype)
        return self.xp.lib.stride_tricks.as_strided(flat, shape, strides)

    def once(self) -> None:
        """Run all steps in order."""
        for kind, *rest in self.data["steps"]:
            if kind == "launch":
                name, grid, block, arguments = rest
                self.launch(name, grid, block, [*map(self._pointer, arguments)])
            elif kind == "gemm":
                call, places = rest
                self.gemm(call, [*map(self._pointer, places)])
            elif kind == "copy":
                target, source, size = rest
                self._bytes(target)[:size] = self._bytes(source)[:size]
            elif kind == "zero":
                self._bytes(rest[0])[: rest[1]] = 0

    def gemm(self, call: dict[str, Any], addresses: list[int]) -> None:
        """Compute a product as cuBLAS does, of two operands and a result."""
        raise NotImplementedError

    def differences(self) -> list[str]:
        """What differs from expected results, in words."""
        found = []
        values = [
            (f"result {k}", self.elements(v), x) for k, (v, x) in enumerate(self.data["results"])
        ]
        values += [
            (f"{key[0]} {key[1]}", self._memory[tuple(key)], x) for key, x in self.data["left"]
        ]
        for kind, *rest in self.data["steps"]:
            if kind == "check" and not int(self._bytes(rest[0])[0]):
                found.append(f"{self.data['name']}: a check failed")
        for what, got, wanted in values:
            got = got.copy() if self.xp is np else got.get()
            finite = np.abs(wanted[np.isfinite(wanted)]) if wanted.dtype.kind in "fc" else wanted
            scale = float(finite.max(initial=1)) if wanted.dtype.kind in "fc" else 0.0
            bound = self.data["tolerance"]
            if got.shape != wanted.shape or not np.allclose(
                got, wanted, rtol=bound, atol=bound * scale, equal_nan=True
            ):
                found.append(f"{self.data['name']}: {what} differs")
        return found


# ------------------------------------------------------------------ on the device


class Cublas:
    """cuBLAS by ctypes, in one stream with a workspace of its own: CuPy refuses it in a graph."""

    def __init__(self, cupy: Any, stream: Any) -> None:
        cupy.matmul(cupy.ones((2, 2), "f4"), cupy.ones((2, 2), "f4"))  # loads the library
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "libcublas.so" in line}
        self._library = ctypes.CDLL(min(paths))
        self._handle = ctypes.c_void_p()
        self._workspace = cupy.empty(32 << 20, np.uint8)
        pointer = ctypes.c_void_p
        self._check(self._library.cublasCreate_v2(ctypes.byref(self._handle)))
        self._check(self._library.cublasSetStream_v2(self._handle, pointer(stream.ptr)))
        room = pointer(self._workspace.data.ptr), ctypes.c_size_t(self._workspace.nbytes)
        self._check(self._library.cublasSetWorkspace_v2(self._handle, *room))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"cuBLAS: status {status}")

    def gemm(self, call: dict[str, Any], addresses: list[int]) -> None:
        """Call ``cublasGemmStridedBatchedEx``."""
        number: Any = (ctypes.c_double if call["double"] else ctypes.c_float) * 2
        one, beta = number(1.0, 0.0), number(call["beta"], 0.0)
        first, second, out = map(ctypes.c_void_p, addresses)
        (lda, ldb, ldc), steps = call["leading"], map(ctypes.c_longlong, call["steps"])
        sa, sb, sc = steps
        kind, result = call["types"]
        self._check(
            self._library.cublasGemmStridedBatchedEx(
                *(self._handle, *call["transposes"], *call["sizes"], ctypes.byref(one)),
                *(first, kind, lda, sa, second, kind, ldb, sb, ctypes.byref(beta)),
                *(out, result, ldc, sc, call["batch"], call["compute"], -1),
            )
        )


def _device_run(data: dict[str, Any], cupy: Any, cublas: Any) -> ProgramRun:
    """Return a run on the device of this process."""
    functions: dict[str, Any] = {}

    class DeviceRun(ProgramRun):
        def gemm(self, call: dict[str, Any], addresses: list[int]) -> None:
            cublas.gemm(call, addresses)

        def launch(self, name: str, grid: int, block: int, addresses: list[int]) -> None:
            functions[name]((grid,), (block,), tuple(map(np.uint64, addresses)))

    if data["ptx"]:
        path = Path(os.environ["CARD_SCRATCH"]) / f"{abs(hash(data['ptx'])):x}.ptx"
        path.write_text(data["ptx"])
        module = cupy.RawModule(path=str(path))
        functions |= {name: module.get_function(name) for name, *_ in data["kernels"]}
    return DeviceRun(data, cupy)


def _say(part: str, **facts: Any) -> None:
    print(json.dumps({"part": part, **facts}), flush=True)


def _timed(cupy: Any, stream: Any, call: Any, count: int) -> dict[str, float]:
    """Return microseconds a call by the device's clock and by the host's, after one warm-up."""
    call()
    stream.synchronize()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    start = time.perf_counter()
    for _ in range(count):
        call()
    host = 1e6 * (time.perf_counter() - start) / count
    end.record(stream)
    end.synchronize()
    return {"us": 1e3 * cupy.cuda.get_elapsed_time(begin, end) / count, "host_us": host}


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise SystemExit(
            f"on_card: CuPy cannot be imported ({error}); pip install cupy-cuda13x"
        ) from None
    try:
        cupy.cuda.runtime.getDeviceProperties(0)
    except Exception as error:  # of the runtime: no driver, one too old, or no card
        raise SystemExit(
            f"on_card: CuPy finds no card ({error}); run it on a machine with an NVIDIA card and "
            "driver 580 or later, where nvidia-smi lists the card"
        ) from None
    return cupy


def _run_cupy_part(part: str, folder: Path) -> None:
    cupy = _import_cupy()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        if part == "versions":
            card = cupy.cuda.runtime.getDeviceProperties(0)
            _say(
                part,
                card=card["name"].decode(),
                driver=cupy.cuda.runtime.driverGetVersion(),
                runtime=cupy.cuda.runtime.runtimeGetVersion(),
                multiprocessors=card["multiProcessorCount"],
                cupy=cupy.__version__,
                numpy=np.__version__,
                python=sys.version.split()[0],
            )
        elif part == "machine":
            x = cupy.zeros(1 << 28, np.float32)
            y = cupy.empty_like(x)
            found = _timed(cupy, stream, lambda: cupy.copyto(y, x), 20)
            _say(part, what="copy", gb_s=2 * x.nbytes / found["us"] / 1e3, **found)
            tiny = cupy.RawKernel('extern "C" __global__ void nothing(float* x) {}', "nothing")

            def launch() -> None:
                tiny((1,), (32,), (x,))

            _say(part, what="launch", **_timed(cupy, stream, launch, 2000))
            stream.begin_capture()
            launch()
            graph = stream.end_capture()
            _say(part, what="replay", **_timed(cupy, stream, lambda: graph.launch(stream), 2000))
        elif part == "rows":
            data = read_programs(folder / "rows.npz")
            wrong: list[str] = []
            cublas = Cublas(cupy, stream)
            for one in data:
                run = _device_run(one, cupy, cublas)
                run.once()
                stream.synchronize()
                wrong += run.differences()
            _say(part, calls=len(data), wrong=wrong)
        else:
            _run_programs(part, folder, cupy, stream)


def _run_programs(part: str, folder: Path, cupy: Any, stream: Any) -> None:
    """Time programs by launches, or by replay of one graph; or run a few once."""
    cublas = Cublas(cupy, stream)
    for data in read_programs(folder / "programs.npz"):
        if part == "sanitized" and data["name"] not in SANITIZED:
            continue
        run = _device_run(data, cupy, cublas)
        run.once()
        stream.synchronize()
        facts = {"case": data["name"], "steps": len(data["steps"]), "wrong": run.differences()}
        if part == "launches":
            facts |= _timed(cupy, stream, run.once, 20)
        elif part == "graphs":
            stream.begin_capture()
            run.once()
            graph = stream.end_capture()
            facts |= _timed(cupy, stream, lambda g=graph: g.launch(stream), 200)
        _say(part, **facts)


def _run_torch(folder: Path) -> None:
    """Time the same training steps in PyTorch on the same device."""
    try:
        import torch
    except ImportError:
        _say("torch", skipped="torch is not installed")
        return
    sys.path.insert(0, str(folder))
    from harness import compiled_cases
    from peers import compiled_torch

    torch.set_default_device("cuda")
    for name in PEERS:
        batch = compiled_cases.batches_of(name)[0]
        for kind in ("torch eager", "torch.compile"):
            try:
                step = compiled_torch.build(name, kind, compiled_cases.parameters_of(name), 1)
                for _ in range(5):
                    step(*batch)
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(50):
                    step(*batch)
                torch.cuda.synchronize()
                us = 1e6 * (time.perf_counter() - start) / 50
                _say(
                    "torch", case=name, kind=kind, us=us, tf32=torch.backends.cuda.matmul.allow_tf32
                )
            except Exception as error:  # one that fails leaves the others
                _say("torch", case=name, kind=kind, failed=f"{type(error).__name__}: {error}"[:300])


def run_all(folder: Path) -> int:
    """Run each part in a process of its own; return the number of parts that failed."""
    import tempfile

    failed = 0
    sanitizer = shutil.which("compute-sanitizer")
    with tempfile.TemporaryDirectory() as scratch:
        for part, limit in LIMITS.items():
            command = [sys.executable, str(Path(__file__).resolve()), str(folder), part]
            if part in ("memcheck", "racecheck"):
                if sanitizer is None:
                    _say(part, skipped="compute-sanitizer is not found")
                    continue
                command = [sanitizer, "--tool", part, *command[:-1], "sanitized"]
            start = time.monotonic()
            try:
                environment = {**os.environ, "CARD_SCRATCH": scratch}
                code: Any = subprocess.run(command, timeout=limit, env=environment).returncode
            except subprocess.TimeoutExpired:
                code = f"over its limit of {limit} s"
            failed += code != 0
            _say(part, ended=code, seconds=round(time.monotonic() - start, 1))
            if part == "versions" and failed:
                break  # without CuPy or a card the other parts fail likewise
    return failed


def main() -> int:
    """Run all parts on a folder, or one of them."""
    if len(sys.argv) not in (2, 3) or not (Path(sys.argv[1]) / "programs.npz").is_file():
        raise SystemExit("usage: python on_card.py DIR, where DIR was made by `card prepare`")
    folder = Path(sys.argv[1]).resolve()
    if len(sys.argv) == 2:
        return int(run_all(folder) > 0)
    part = sys.argv[2]
    _run_torch(folder) if part == "torch" else _run_cupy_part(part, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
