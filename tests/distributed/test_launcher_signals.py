"""Signals to the launcher, and its death: nothing goes on without it."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.ranks import MARKER, processes_marked, started_ranks

# Two ranks that compute, collect, and never end by themselves; one of them has started a process.
ENDLESS = """
import subprocess, sys, time
import numpy as np
import odyssey as od

group = od.distributed.world()
if group.rank == group.size - 1:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
group.barrier()
if group.rank == 0:
    print("started", flush=True)
while True:
    group.all_reduce(np.ones(1000))
    time.sleep(0.01)
"""


def wait_for_start(process):
    ready, _, _ = select.select([process.stdout], [], [], 50)
    assert ready, "not started"
    assert "started" in process.stdout.readline()


def end_by(ranks, number, mpi="mpich", repeat=1):
    with started_ranks(ranks, ENDLESS, mpi=mpi) as process:
        wait_for_start(process)
        begin = time.monotonic()
        for _ in range(repeat):
            process.send_signal(number)
            time.sleep(0.1)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number, stderr
    name = signal.Signals(number).name
    assert f"odyssey launch: ended by signal {number} ({name})" in stderr
    assert time.monotonic() - begin < 9  # or what is left would be killed
    return stderr


@pytest.mark.slow
def test_an_interrupt_ends_all_ranks_and_says_where_they_were():
    stderr = end_by(2, signal.SIGINT)
    assert re.search(r"^rank [01]: interrupted in .*, line \d+$", stderr, re.MULTILINE)
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_signal_ends_a_group_of_one_too():
    end_by(1, signal.SIGTERM)


@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ranks", [2, 4])
def test_each_signal_ends_all_ranks(ranks, number, mpi):
    end_by(ranks, number, mpi)


HANDLED = """
import signal, sys, time
import odyssey as od

caught = []
signal.signal(signal.SIGTERM, lambda *_: caught.append(1))
if sys.argv[1] == "ignores":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
group = od.distributed.world()
group.barrier()
if group.rank == 0:
    print("started", flush=True)
while not caught:
    time.sleep(0.01)
print("saved", flush=True)
"""


@pytest.mark.slow
def test_a_script_may_handle_the_signal_and_reach_its_end():
    with started_ranks(2, HANDLED, "handles") as process:
        wait_for_start(process)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, "")
    assert sorted(stdout.splitlines()) == ["rank 1: saved", "saved"]


@pytest.mark.soak
def test_a_second_signal_ends_a_script_that_ignores_the_first():
    with started_ranks(2, HANDLED, "ignores") as process:
        wait_for_start(process)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - begin < 9  # or what is left would be killed


def kill_launcher(ranks, mpi="mpich", stopped=False):
    """The check that nothing is left comes right after; the guardian gets three seconds."""
    with started_ranks(ranks, ENDLESS, mpi=mpi, leaving=10.0) as process:
        wait_for_start(process)
        if stopped:
            process.send_signal(signal.SIGSTOP)
        process.kill()
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_nothing_goes_on_when_the_launcher_is_killed():
    kill_launcher(2)


@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_nothing_goes_on_when_the_launcher_is_killed_on_any_number_of_ranks(ranks, mpi):
    kill_launcher(ranks, mpi, stopped=True)


@pytest.mark.soak
@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_launcher_can_be_ended_at_any_moment(seconds, number):
    with started_ranks(2, ENDLESS, leaving=10.0) as process:
        time.sleep(seconds)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode in (-number, 128 + number)


@pytest.mark.slow
def test_ranks_end_when_nobody_reads_their_output():
    script = """
import odyssey as od
group = od.distributed.world()
while True:
    print("line" * 100)
    group.barrier()
"""
    with started_ranks(2, script) as process:
        ready, _, _ = select.select([process.stdout], [], [], 50)
        assert ready
        process.stdout.close()
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGPIPE, stderr


@pytest.mark.slow
def test_a_full_disk_below_the_output_is_named():
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with (
        open("/dev/full", "w") as full,
        started_ranks(2, "print('x')\nwhile True: pass", stdout=full) as process,
    ):
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 74
    assert "the output of ranks cannot be written: [Errno 28]" in stderr


def child_that_is_not_the_guardian(parent):
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and b"guard" not in (path / "cmdline").read_bytes():
                return int(path.name)
    raise AssertionError("the launcher has no child")


@pytest.mark.parametrize(
    "mpi",
    [
        pytest.param("mpich", marks=pytest.mark.slow),
        pytest.param("openmpi", marks=pytest.mark.soak),
    ],
)
def test_nothing_goes_on_when_mpiexec_is_killed(mpi):
    with started_ranks(2, ENDLESS, mpi=mpi) as process:
        wait_for_start(process)
        os.kill(child_that_is_not_the_guardian(process.pid), signal.SIGKILL)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 70
    assert "odyssey launch: mpiexec ended with status -9" in stderr


def test_the_marker_of_a_run_finds_its_processes():
    with subprocess.Popen(["sleep", "100"], env={MARKER: "this test"}) as process:
        while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        assert list(processes_marked("this test")) == [process.pid]
        process.kill()
