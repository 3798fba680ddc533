"""Worker processes: one per peer, each in an interpreter that has the peer."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.machine import ONE_THREAD

BENCHMARKS = Path(__file__).resolve().parent.parent
PEER_PYTHON_VARIABLE = "ODYSSEY_PEER_PYTHON"


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


class Worker:
    """A running `worker.py`, or other script; `hello` is what it said when it had warmed up.

    `environment` holds what it is told beside what all are told.

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
    ) -> None:
        # A file: nobody reads while the worker runs, and a pipe would fill.
        self._stderr = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed by close()
        command = [python, str(BENCHMARKS / script), "--peer", peer, *arguments]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**measured_environment(), **(environment or {})},
                text=True,
            )
        except OSError as error:
            self._stderr.close()
            raise WorkerError(f"{peer}: cannot start {python}: {error}") from error
        self._peer = peer
        try:
            self.hello = self._read()
        except WorkerError:
            self.close()
            raise

    def sample(self, request: str = "sample") -> dict[str, Any]:
        """Ask for one sample and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a worker that has died: reading tells why
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self._process.wait()
        self._stderr.seek(0)
        message = self._stderr.read().strip().splitlines() or [f"exit status {code}, no message"]
        raise WorkerError(f"{self._peer}: {message[-1]}")

    def close(self) -> None:
        """End the process: its standard input closes, and it leaves its loop."""
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
