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

__all__ = ["OPEN_MPI", "RunResult", "needs_mpi", "processes_marked", "run_ranks"]

MARKER = "ODYSSEY_TEST_RUN"
CHECKOUT = Path(__file__).parents[2]
OPEN_MPI = os.environ.get("ODYSSEY_TEST_OPENMPI", "")
"""An interpreter with NumPy, mpi4py and Open MPI; tests of Open MPI are skipped without it."""

LIMIT = 55.0
"""Seconds after which a run is killed, and its test fails."""


@dataclass(frozen=True)
class RunResult:
    """What came of a run: exit status, output, and seconds from start to end."""

    status: int
    stdout: str
    stderr: str
    seconds: float


def needs_mpi(mpi="mpich"):
    """Skip a test where this MPI is not installed."""
    if mpi == "openmpi":
        if not OPEN_MPI:
            pytest.skip("ODYSSEY_TEST_OPENMPI names no interpreter with Open MPI")
    elif importlib.util.find_spec("mpi4py") is None or not (
        shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    ):
        pytest.skip("mpi4py and mpich are missing")


def launch_command(n, script, *args, timeout=20, mpi="mpich", options=()):
    """Return the command of ``run_ranks``."""
    python = OPEN_MPI if mpi == "openmpi" else sys.executable
    launch = [python, "-m", "odyssey", "launch", "-n", str(n), "--timeout", str(timeout)]
    return [*launch, *options, str(script), *map(str, args)]


def rank_environment(marker, temporary, env=None):
    """Return the environment of a run: the checkout, a marker, and a folder of its own."""
    paths = [str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(temporary),
        MARKER: marker,
        **(env or {}),
    }


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
        command = launch_command(n, script, *args, timeout=timeout, mpi=mpi, options=options)
        start = time.monotonic()
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=temporary,
            env=rank_environment(marker, runs, env),
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.terminate()  # the launcher ends its ranks
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=20)
                process.kill()
                stdout, stderr = process.communicate()
                pytest.fail(f"not ended after {limit} s:\n{stdout}\n{stderr}")
        seconds = time.monotonic() - start
        check_nothing_left(marker, runs, f"{stdout}\n{stderr}")
    return RunResult(process.returncode, stdout, stderr, seconds)


def check_nothing_left(marker, runs, text=""):
    """Fail if a run has left a process or a run folder behind."""
    left = processes_marked(marker)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes are left: {left}\n{text}"
    folders = [path.name for path in runs.glob("odyssey-run-*")]
    assert not folders, f"run folders are left: {folders}\n{text}"


def processes_marked(marker):
    """Return the command lines of processes whose environment has the marker, by their number."""
    found, wanted = {}, f"{MARKER}={marker}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace")
    return found
