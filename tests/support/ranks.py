"""Ranks of tests: scripts run by ``python -m odyssey launch``, after which no process is left."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

__all__ = ["OPEN_MPI", "RunResult", "needs_mpi", "processes_marked", "run_ranks", "started_ranks"]

MARKER = "ODYSSEY_TEST_RUN"
CHECKOUT = Path(__file__).parents[2]
OPEN_MPI = os.environ.get("ODYSSEY_TEST_OPENMPI", "")
"""An interpreter with NumPy, mpi4py and Open MPI; tests of Open MPI are skipped without it."""

LIMIT = 55.0
"""Seconds after which a run is killed, and its test fails."""


@dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Args:
        status: Exit status of the launcher.
        stdout: Its output.
        stderr: Its error output.
        seconds: From start to end.
        ended: ``time.monotonic()`` at the end, which scripts on this machine can compare with.
    """

    status: int
    stdout: str
    stderr: str
    seconds: float
    ended: float


def needs_mpi(mpi="mpich"):
    """Skip a test where this MPI is not installed."""
    if mpi == "openmpi":
        if not OPEN_MPI:
            pytest.skip("ODYSSEY_TEST_OPENMPI names no interpreter with Open MPI")
    elif importlib.util.find_spec("mpi4py") is None or not (
        shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    ):
        pytest.skip("mpi4py and mpich are missing")


def run_ranks(n, script, *args, timeout=20, mpi="mpich", options=(), env=None, limit=LIMIT):
    """Run a script on ``n`` ranks by ``python -m odyssey launch``, and check that nothing is left.

    Args:
        n: Number of ranks, or a range such as "1:4".
        script: A path, or the text of a script (with a line break).
        args: Arguments of the script.
        timeout: Seconds that a collective waits.
        mpi: "mpich" of this environment, or "openmpi"; the test is skipped where it is missing.
        options: Further options of ``launch``, such as ("--restarts", "1").
        env: Further environment variables.
        limit: Seconds after which the run is killed.
    """
    start = time.monotonic()
    options = ["--timeout", str(timeout), *options]
    with started_ranks(n, script, *args, mpi=mpi, options=options, env=env) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=20)
            process.kill()
            stdout, stderr = process.communicate()
            pytest.fail(f"not ended after {limit} s:\n{stdout}\n{stderr}")
        ended = time.monotonic()
    return RunResult(process.returncode, stdout, stderr, ended - start, ended)


@contextlib.contextmanager
def started_ranks(
    n, script, *args, mpi="mpich", options=(), env=None, stdout=subprocess.PIPE, leaving=0.0
):
    """Start a run, give the launcher's process, and check in the end that nothing is left.

    What is left may end in ``leaving`` seconds after the launcher.
    """
    if n != 1:
        needs_mpi(mpi)
    marker = f"{os.getpid()}-{uuid4().hex}"
    # A short path, since sockets of MPI lie below it.
    with tempfile.TemporaryDirectory(prefix="od-", dir="/tmp") as temporary:
        if "\n" in str(script):
            path = Path(temporary, "script.py")
            path.write_text(script)
            script = path
        runs = Path(temporary, "tmp")
        runs.mkdir()
        paths = [str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
        python = OPEN_MPI if mpi == "openmpi" else sys.executable
        with subprocess.Popen(
            [
                *(python, "-m", "odyssey", "launch", "-n", str(n)),
                *options,
                str(script),
                *map(str, args),
            ],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=temporary,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "TMPDIR": str(runs),
                MARKER: marker,
                **(env or {}),
            },
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise
        check_nothing_left(marker, runs, leaving)


def check_nothing_left(marker, runs, wait=0.0):
    """Fail if a run has left a process or a run folder behind, ``wait`` seconds later."""
    latest = time.monotonic() + wait
    while True:
        left = processes_marked(marker)
        folders = [path.name for path in runs.glob("odyssey-run-*")]
        if not (left or folders) or time.monotonic() > latest:
            break
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes are left: {left}"
    assert not folders, f"run folders are left: {folders}"


def processes_marked(marker):
    """Return the command lines of processes whose environment has the marker, by their number."""
    found, wanted = {}, f"{MARKER}={marker}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace")
    return found
