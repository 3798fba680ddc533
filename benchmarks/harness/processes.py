"""Worker processes: one per peer, each in an interpreter that has the peer."""

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.machine import ONE_THREAD, resident_bytes

BENCHMARKS = Path(__file__).resolve().parent.parent
PEER_PYTHON_VARIABLE = "ODYSSEY_PEER_PYTHON"
WATCH_SECONDS = 0.05
"""How often the memory of a worker is looked at while it works."""


class WorkerError(RuntimeError):
    """A worker process ended before it answered."""


class Interpreters:
    """Which Python runs which peer.

    Args:
        choices: `NAME=PATH` for one peer, or `PATH` for every peer; the last one said wins.
            Those of the environment variable, separated by commas, come first.
    """

    def __init__(self, choices: Iterable[str] = ()) -> None:
        from_environment = os.environ.get(PEER_PYTHON_VARIABLE, "").split(",")
        self._by_peer: dict[str, str] = {}
        self._default = sys.executable
        for choice in [*filter(None, from_environment), *choices]:
            name, equals, path = choice.partition("=")
            if equals:
                self._by_peer[name] = path
            else:
                self._default = name

    def of(self, peer: str) -> str:
        """The path of the interpreter for `peer`; odyssey's is the runner's own."""
        default = sys.executable if peer == "odyssey" else self._default
        return self._by_peer.get(peer, default)


def measured_environment() -> dict[str, str]:
    """One thread, this checkout importable, no warnings in the middle of a measurement."""
    environment = {**os.environ, **ONE_THREAD, "JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    paths = [os.environ.get("PYTHONPATH", ""), str(BENCHMARKS.parent)]
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment


class WorkerTimeout(WorkerError):
    """A worker did not answer in time; it was ended."""


class WorkerOutOfMemory(WorkerError):
    """A worker had more resident memory than it may; it was ended."""


class Worker:
    """A running `worker.py`, or other script; `hello` is what it said when it had warmed up.

    Args:
        python: The interpreter.
        peer: Named in errors, and told to the script by `--peer`.
        arguments: Other arguments of the script.
        script: Path below the folder of the benchmarks.
        environment: Variables beside those that all have.
        timeout: Seconds for each answer, the first one too; None for any time.
        memory: Bytes of resident memory above which the process is ended; None for any.

    Raises:
        WorkerError: The process could not start, import its library or run its workload.
    """

    def __init__(
        self,
        python: str,
        peer: str,
        *arguments: str,
        script: str = "worker.py",
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        memory: int | None = None,
    ) -> None:
        # A file: nobody reads while the worker runs, and a pipe would fill.
        self._stderr = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 - close()
        command = [python, str(BENCHMARKS / script), "--peer", peer, *arguments]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**measured_environment(), **(environment or {})},
                start_new_session=True,  # so that what it starts can be ended with it
            )
        except OSError as error:
            self._stderr.close()
            raise WorkerError(f"{peer}: cannot start {python}: {error}") from error
        self._peer, self._timeout, self._memory = peer, timeout, memory
        try:
            self.hello = self._read()
        except BaseException:
            self.kill()
            raise

    def sample(self, request: str = "sample") -> dict[str, Any]:
        """Ask for one sample and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a worker that has died: reading tells why
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._read_line()
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self._process.wait()
        self._stderr.seek(0)
        message = self._stderr.read().strip().splitlines() or ["no message"]
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        raise WorkerError(f"{self._peer}: {message[-1]} ({ended})")

    def _read_line(self) -> bytes:
        """Return a line, or what came of one before the process ended."""
        assert self._process.stdout is not None
        if self._timeout is None and self._memory is None:
            return self._process.stdout.readline()
        deadline = time.monotonic() + (math.inf if self._timeout is None else self._timeout)
        stream, line = self._process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if selector.select(min(WATCH_SECONDS, max(0.0, deadline - time.monotonic()))):
                    came = os.read(stream, 1 << 16)
                    if not came:
                        break
                    line += came
                elif time.monotonic() >= deadline:
                    self.kill()
                    raise WorkerTimeout(f"{self._peer}: no answer in {self._timeout:g} s")
                else:
                    self._check_memory()
        return line

    def _check_memory(self) -> None:
        if self._memory is None:
            return
        resident = resident_bytes(self._process.pid)
        if resident is not None and resident > self._memory:
            self.kill()
            raise WorkerOutOfMemory(
                f"{self._peer}: {resident / 2**20:.0f} MB are resident, of at most "
                f"{self._memory / 2**20:.0f}"
            )

    def kill(self) -> None:
        """End the process at once, and what it has started."""
        if self._process.returncode is None:  # its number is not another's by now
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._stderr.close()

    def close(self) -> None:
        """End the process: its standard input closes, and it leaves its loop."""
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.kill()
