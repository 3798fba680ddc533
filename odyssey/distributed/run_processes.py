"""Processes of a run: the supervisor of a rank, the guardian of a launcher, and how all are ended.

Run as a script without the package (``python -I -S run_processes.py``), so that both start in 20
milliseconds: ``supervise`` starts one rank and reports how it ended; ``guard`` waits until the
launcher is gone, and then ends what it left behind.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

__all__ = [
    "end_processes",
    "end_ranks",
    "environment_rank",
    "guard",
    "list_folder",
    "rank_processes",
    "remove_run_folder",
    "supervise",
]

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
LINGER = 10.0  # seconds that a supervisor waits for the launcher to end all ranks


def environment_rank() -> int | None:
    """Return the rank that an MPI launcher has put into the environment, or None."""
    for name in RANK_VARIABLES:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


# ------------------------------------------------------------------ the supervisor of a rank


def supervise() -> int:
    """Run one rank, and write how it ended to ``ended.R`` in the run folder.

    The command lies in the run folder, since mpiexec gives a meaning to some arguments, such as
    ``:``. A rank that failed is not reported to mpiexec at once, which would kill the other ranks
    before they could say what they saw; the launcher ends all.

    Returns:
        The exit status of the rank; 128 + number if a signal ended it.
    """
    folder, ranks = os.environ["ODYSSEY_RUN"], int(os.environ["ODYSSEY_SIZE"])
    rank = environment_rank() if ranks > 1 else 0
    if rank is None:
        print(f"this mpiexec sets none of {', '.join(RANK_VARIABLES)}", file=sys.stderr)
        return 70
    with open(os.path.join(folder, "command"), "rb") as file:
        command = file.read().split(b"\0")
    _redirect_output(folder, rank)
    # Python ignores these two, and a process inherits that.
    child = os.posix_spawn(
        command[0], command, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
    )
    _write_mark(folder, f"pid.{rank}", f"{child} {os.getpgrp()}")
    _, wait_status = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(wait_status)
    if status == 0 and os.path.exists(os.path.join(folder, f"done.{rank}")):
        return 0
    if _write_mark(folder, f"ended.{rank}", f"{time.monotonic()} {status}"):
        time.sleep(LINGER)
    return 128 - status if status < 0 else status


def _redirect_output(folder: str, rank: int) -> None:
    """Connect standard output and error with the launcher's named pipes, if it has made some."""
    for descriptor, name in ((1, "out"), (2, "err")):
        path = os.path.join(folder, f"{name}.{rank}")
        if os.path.exists(path):
            pipe = os.open(path, os.O_WRONLY)
            os.dup2(pipe, descriptor)
            os.close(pipe)


def _write_mark(folder: str, name: str, text: str) -> bool:
    """Write a small file under its final name only when it is complete."""
    path = os.path.join(folder, name)
    try:
        with open(path + "~", "w") as file:
            file.write(text)
        os.replace(path + "~", path)
    except OSError:
        return False
    return True


# ------------------------------------------------------------------ the end of a run


def rank_processes(folder: str) -> tuple[set[int], set[int]]:
    """Return the processes of ranks and their process groups, as ``pid.R`` in the folder says."""
    pids, groups = set(), set()
    for name in list_folder(folder):
        if name.startswith("pid.") and not name.endswith("~"):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
                pid, group = map(int, file.read().split())
                pids.add(pid)
                groups.add(group)
    found = _pids_by_environment(folder)
    if found is not None:  # a number may have been given to another process
        pids &= found
    return pids, groups - {os.getpgrp(), 0, 1}


def end_ranks(folder: str, spared: int) -> None:
    """Kill ranks, stopped ones too, with their process groups.

    Args:
        folder: The run folder.
        spared: The process group of mpiexec, which is not killed.
    """
    pids, groups = rank_processes(folder)
    _kill(groups - {spared}, pids)


def end_processes(folder: str, group: int | None = None) -> int:
    """Kill ranks, mpiexec and what they started.

    Found by ``pid.R`` in the run folder, and on Linux by the environment variable ``ODYSSEY_RUN``
    too, which processes inherit.

    Args:
        folder: The run folder.
        group: The process group of mpiexec, if it runs.

    Returns:
        The number of processes that were alive, as far as the system tells.
    """
    pids, groups = rank_processes(folder)
    pids |= _pids_by_environment(folder) or set()
    _kill(groups | ({group} if group is not None else set()), pids)
    return len(pids)


def _kill(groups: set[int], pids: set[int]) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _pids_by_environment(folder: str) -> set[int] | None:
    """Return the processes with this run folder in their environment; None without /proc."""
    if not os.path.exists("/proc/self/environ"):
        return None
    wanted, found = os.fsencode(f"ODYSSEY_RUN={folder}"), set()
    for name in list_folder("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.add(int(name))
    return found


def remove_run_folder(folder: str) -> None:
    """Remove the run folder, and the shared memory that killed ranks have left behind."""
    for name in list_folder(folder):
        if name.startswith("shared."):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
                for path in file.read().splitlines():
                    if os.path.dirname(path) == "/dev/shm":
                        with contextlib.suppress(OSError):
                            os.unlink(path)
    shutil.rmtree(folder, ignore_errors=True)


def list_folder(folder: str) -> list[str]:
    """Return the names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


# ------------------------------------------------------------------ the guardian of a launcher


def guard() -> None:
    """Read the launcher's lines until it is gone; then end the run that it has left, if any.

    Lines are ``run FOLDER``, ``group NUMBER`` (of mpiexec) and ``over``.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, group = None, None
    for line in sys.stdin.buffer:
        word, _, rest = os.fsdecode(line).rstrip("\n").partition(" ")
        if word == "run":
            folder, group = rest, None
        elif word == "group":
            group = int(rest)
        else:
            folder = group = None
    if folder is None:
        return
    quiet, latest = 0, time.monotonic() + 5
    while quiet < 5 and time.monotonic() < latest:  # a process may have been about to start
        quiet = 0 if end_processes(folder, group) else quiet + 1
        group = None
        time.sleep(0.05)
    remove_run_folder(folder)


if __name__ == "__main__":
    if sys.argv[1] == "guard":
        guard()
    else:
        os._exit(supervise())
