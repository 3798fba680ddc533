"""The launcher: the number of ranks, their output and environment, and statuses."""

import os
import select
import subprocess
import sys

import pytest

from odyssey import cli
from odyssey.distributed.launcher import choose_rank_count, find_mpiexec
from odyssey.errors import DistributedError
from support.ranks import CHECKOUT, needs_mpi, run_ranks, started_ranks

HELLO = """
import os, sys
import odyssey as od
group = od.distributed.world()
print("out", group.rank, group.size, sys.argv[1:])
print("err", group.rank, file=sys.stderr)
"""


@pytest.mark.slow
def test_lines_of_ranks_are_tagged_but_those_of_rank_0():
    result = run_ranks(2, HELLO, "--flag", "a b", "--", "", "--timeout")
    assert result.status == 0, result.stderr
    arguments = "['--flag', 'a b', '--', '', '--timeout']"
    assert sorted(result.stdout.splitlines()) == [
        f"out 0 2 {arguments}",
        f"rank 1: out 1 2 {arguments}",
    ]
    assert sorted(line for line in result.stderr.splitlines() if "err" in line) == [
        "err 0",
        "rank 1: err 1",
    ]


@pytest.mark.parametrize(
    ("low", "high", "cores", "left", "wanted"),
    [
        (4, 4, 2, 4, 4),
        (1, 8, 2, 8, 2),
        (1, 8, 6, 8, 4),
        (1, 8, 64, 8, 8),
        (1, 8, 64, 7, 4),
        (2, 8, 64, 1, 2),
        (5, 7, 64, 7, 7),
        (3, 3, 1, 2, 3),
        (1, 1, 1, 0, 1),
    ],
)
def test_a_range_gives_the_largest_power_of_two_for_which_there_are_cores(
    low, high, cores, left, wanted
):
    assert choose_rank_count(low, high, cores, left) == wanted


# ------------------------------------------------------------------ command lines


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "the following arguments are required: -n, SCRIPT"),
        (["-n", "2"], "the following arguments are required: SCRIPT"),
        (["-n", "0", "x.py"], "argument -n: '0': at least 1 rank"),
        (["-n", "x", "x.py"], "argument -n: 'x' is not a number such as 4, or a range, 1:8"),
        (["-n", "-2", "x.py"], "argument -n: '-2' is not a number"),
        (["-n", "2.0", "x.py"], "argument -n: '2.0' is not a number"),
        (["-n", "1:", "x.py"], "argument -n: '1:' is not a number"),
        (["-n", "4:2", "x.py"], "the smaller number of a range first"),
        (["-n", "1:2:3", "x.py"], "argument -n: '1:2:3' is not a number"),
        (["-n", "2", "--timeout", "0", "x.py"], "'0' is not a number of seconds above 0"),
        (["-n", "2", "--timeout", "nan", "x.py"], "'nan' is not a number of seconds above 0"),
        (["-n", "2", "--timeout", "inf", "x.py"], "'inf' is not a number of seconds above 0"),
        (["-n", "2", "--restarts", "-1", "x.py"], "'-1' is not a whole number from 0 on"),
        (["-n", "2", "--restarts", "1.5", "x.py"], "'1.5' is not a whole number from 0 on"),
        (["-n", "2", "--resume", "yes", "x.py"], "argument --resume: invalid choice: 'yes'"),
        (["-n", "2", "--blas-threads", "0", "x.py"], "'0' is not a positive whole number"),
        (["-n", "2", "missing.py"], "python -m odyssey launch: no such script: 'missing.py'"),
        (["-n", "2", "."], "python -m odyssey launch: no such script: '.'"),
    ],
)
def test_a_bad_command_line_is_refused_by_name(arguments, text, capsys):
    try:
        status = cli.main(["launch", *arguments])
    except SystemExit as error:
        status = error.code
    assert status == 2
    assert text in capsys.readouterr().err


def test_a_machine_without_mpiexec_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DistributedError, match=r"mpiexec.*pip install 'odyssey\[dist\]'"):
        find_mpiexec()


def test_the_mpiexec_beside_the_interpreter_comes_before_that_of_path(monkeypatch, tmp_path):
    for name in ("beside", "path"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mpiexec").write_text("#!/bin/sh\n")
        (tmp_path / name / "mpiexec").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_mpiexec() == str(tmp_path / "beside" / "mpiexec")
    (tmp_path / "beside" / "mpiexec").unlink()
    assert find_mpiexec() == str(tmp_path / "path" / "mpiexec")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "text"),
    [
        # Space for the file by which Python tests a temporary folder, but for no board; then none.
        (100, "[Errno 27] File too large; the run folder is made in {0}, and TMPDIR names another"),
        (0, "No usable temporary directory found in ['{0}', "),
    ],
)
def test_a_full_disk_below_the_run_folder_is_named_before_ranks_start(limit, text, tmp_path):
    needs_mpi()
    program = """
import resource, sys
from odyssey import cli
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(cli.main(["launch", "-n", "2", sys.argv[0]]))
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py", str(limit)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("python -m odyssey launch: the ranks cannot be started: ")
    assert text.format(tmp_path) in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


# ------------------------------------------------------------------ environment and restarts

TELLING = """
import os, sys
import odyssey as od
group = od.distributed.world()
names = ("ATTEMPT", "RESUME", "BLAS_THREADS", "TIMEOUT")
threads = {os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")}
group.print(group.size, *(os.environ[f"ODYSSEY_{name}"] for name in names), *threads)
attempt, fails_until = int(os.environ["ODYSSEY_ATTEMPT"]), int(sys.argv[1])
if attempt < fails_until and group.rank == group.size - 1:
    os.kill(os.getpid(), 9) if sys.argv[2] == "killed" else sys.exit(3)
group.barrier()
group.print("end", "mpi4py" in sys.modules)
"""


@pytest.mark.slow
def test_a_failed_run_starts_again_and_resumes():
    result = run_ranks(2, TELLING, "3", "exits", options=["--restarts", "2", "--blas-threads", "3"])
    assert result.status == 0, result.stderr
    assert result.stdout.splitlines() == [
        "2 1  3 20.0 3",
        "2 2 auto 3 20.0 3",
        "2 3 auto 3 20.0 3",
        "end True",
    ]
    assert "odyssey launch: start 3 of 3, with -n 2" in result.stderr


@pytest.mark.slow
def test_a_run_is_started_again_at_most_k_times():
    result = run_ranks(1, TELLING, "9", "exits", options=["--restarts", "1", "--resume", "auto"])
    assert result.status == 3
    assert result.stdout.splitlines() == ["1 1 auto 1 20.0 1", "1 2 auto 1 20.0 1"]


@pytest.mark.slow
def test_a_range_starts_again_without_the_ranks_that_were_lost():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core")
    result = run_ranks("1:2", TELLING, "2", "killed", options=["--restarts", "1"])
    assert result.status == 0, result.stderr
    # A group of one does not load MPI.
    assert result.stdout.splitlines() == ["2 1  1 20.0 1", "1 2 auto 1 20.0 1", "end False"]
    assert "odyssey launch: start 2 of 2, with -n 1" in result.stderr


@pytest.mark.slow
def test_one_rank_runs_without_mpi_and_fails_alike():
    script = """
import sys
print(sys.stdin.read(), "mpi4py" in sys.modules)
1 / 0
"""
    result = run_ranks(1, script)
    assert (result.status, result.stdout) == (1, " False\n")
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert "odyssey launch: rank 0 ended with status 1: ZeroDivisionError" in result.stderr


@pytest.mark.parametrize(
    "mpi",
    [
        pytest.param("mpich", marks=pytest.mark.slow),
        pytest.param("openmpi", marks=pytest.mark.soak),
    ],
)
def test_arguments_that_mean_something_to_mpiexec_reach_the_script(mpi):
    arguments = [":", "-n", "3", "--oversubscribe", "", "a b", "-x", "--", "é\t$HOME"]
    script = (
        "\nimport sys\nimport odyssey as od\nod.distributed.world().print(ascii(sys.argv[1:]))\n"
    )
    result = run_ranks(2, script, *arguments, mpi=mpi)
    assert (result.status, result.stdout) == (0, f"{arguments!a}\n"), result.stderr


SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "a-machine-that-is-missing",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NODELIST": "a-machine-that-is-missing",
    "SLURM_NNODES": "1",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "4",
}


@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_ranks_stay_on_this_machine_in_a_job_of_a_scheduler(mpi):
    result = run_ranks(2, HELLO, mpi=mpi, env=SLURM)
    assert result.status == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["out 0 2 []", "rank 1: out 1 2 []"]


@pytest.mark.soak
def test_more_ranks_than_cores_get_a_note():
    cores = len(os.sched_getaffinity(0))
    if cores > 3:
        pytest.skip("there are many cores")
    result = run_ranks(cores + 1, "import odyssey as od\nod.distributed.world().barrier()\n")
    assert result.status == 0
    assert result.stderr.startswith(f"odyssey launch: note: {cores + 1} ranks share {cores} core")


# ------------------------------------------------------------------ output


@pytest.mark.slow
def test_output_arrives_complete_and_line_by_line(tmp_path):
    script = """
import os, sys
import odyssey as od
group = od.distributed.world()
for number in range(2000):
    print(f"line {number} of {group.rank}", "x" * (number % 100))
group.barrier()
os.write(1, bytes(range(256)) if group.rank else b"")
print("y" * 200_000)
group.barrier()
os.write(2, b"no end of line")
"""
    with (
        open(tmp_path / "output", "wb") as file,
        started_ranks(2, script, stdout=file) as process,
    ):
        _, stderr = process.communicate(timeout=50)
    assert process.returncode == 0
    output = (tmp_path / "output").read_bytes()
    lines = output.split(b"\n")
    for rank, tag in ((0, ""), (1, "rank 1: ")):
        own = [line.decode() for line in lines if f"of {rank} ".encode() in line]
        assert own == [f"{tag}line {n} of {rank} {'x' * (n % 100)}" for n in range(2000)]
    assert b"y" * 200_000 in lines
    assert b"rank 1: " + bytes(range(10)) in lines
    assert b"rank 1: " + bytes(range(11, 256)) + b"y" * 200_000 in lines
    assert sorted(stderr.splitlines()) == ["no end of line", "rank 1: no end of line"]


@pytest.mark.soak
def test_an_unfinished_line_of_rank_0_is_seen_at_once():
    script = """
import os, time
import odyssey as od
od.distributed.world().print("10 %", end="")
time.sleep(60)
"""
    with started_ranks(2, script) as process:
        assert select.select([process.stdout], [], [], 50)[0]
        assert os.read(process.stdout.fileno(), 100) == b"10 %"
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_a_rank_may_launch_a_run_of_its_own(mpi):
    script = """
import subprocess, sys
import odyssey as od
group = od.distributed.world()
if len(sys.argv) == 1:
    inner = subprocess.run(
        [sys.executable, "-m", "odyssey", "launch", "-n", "2", sys.argv[0], "inner"],
        capture_output=True, text=True,
    )
    print(inner.returncode, sorted(inner.stdout.splitlines()), inner.stderr)
group.barrier()
print("of", group.size)
"""
    result = run_ranks(2, script, mpi=mpi)
    assert result.status == 0, result.stderr
    assert result.stdout.count("0 ['of 2', 'rank 1: of 2'] \n") == 2, result.stdout
