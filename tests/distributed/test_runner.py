"""``python -m odyssey.distributed``: a script runs as Python runs it, and its failures end all."""

import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from support.ranks import CHECKOUT, needs_mpi, run_ranks

RUNNER = (sys.executable, "-m", "odyssey.distributed")
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH", "")))),
}


def run(*command, cwd, **env):
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT | env, capture_output=True, text=True, timeout=50
    )
    return done.returncode, done.stdout, done.stderr


SCRIPT = """
import atexit, inspect, pickle, sys, threading, time, __main__

class Kept:
    pass

def later():
    time.sleep(0.05)
    print("thread")

print(__name__, __file__, sys.argv, sys.path[0], __doc__, __spec__, __package__)
print(__main__.Kept is Kept, type(pickle.loads(pickle.dumps(Kept()))) is Kept)
print(inspect.getsource(later))
print(sorted(globals()))
atexit.register(print, "first handler")
atexit.register(print, "second handler")
threading.Thread(target=later).start()
threading.Thread(target=lambda: 1 / 0, name="worker").start()
print("end")
if len(sys.argv) > 1:
    sys.exit(None if sys.argv[1] == "None" else 0)
"""


def test_a_script_runs_as_python_runs_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "script.py").write_text(SCRIPT)
    arguments = ("sub/script.py", "0", "--timeout", "")
    plain = run(sys.executable, *arguments, cwd=tmp_path)
    assert plain[0] == 0
    assert plain[1].endswith("end\nthread\nsecond handler\nfirst handler\n")
    assert "in thread worker" in plain[2]  # and the script goes on
    assert run(*RUNNER, *arguments, cwd=tmp_path) == plain


COVER = {"cause", "syntax", "text"}
FAILURES = {
    "cause": """
def inner():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("a text\\nof two lines") from error

inner()
""",
    "group": "raise ExceptionGroup('two', [ValueError(1), OSError(2, 'three', 'file')])\n",
    "text": "import sys\nsys.exit('a text')\n",
    "number": "import sys\nprint('x')\nsys.exit(7)\n",
    "negative": "import sys\nsys.exit(-1)\n",
    "syntax": "print('not run')\nx = = 1\n",
    "indentation": "if 1:\nx = 1\n",
    "import": "from json import missing_name\n",
    "unprintable": "class E(Exception):\n    def __str__(self): 1 / 0\n\nraise E\n",
    "exit in a handler": "import atexit, os\natexit.register(os._exit, 5)\n",
}


@pytest.mark.parametrize(
    "kind",
    [
        "cause",
        pytest.param("syntax", marks=pytest.mark.slow),
        pytest.param("text", marks=pytest.mark.slow),
        *(pytest.param(k, marks=pytest.mark.soak) for k in FAILURES if k not in COVER),
    ],
)
def test_a_failure_is_printed_as_python_prints_it(kind, tmp_path):
    (tmp_path / "script.py").write_text(FAILURES[kind])
    plain = run(sys.executable, "script.py", cwd=tmp_path)
    ours = run(*RUNNER, "script.py", cwd=tmp_path)
    assert plain[0] != 0
    assert ours == plain


@pytest.mark.slow
def test_a_module_runs_as_python_runs_it(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("print('package', __name__)\n")
    (package / "other.py").write_text("text = 'other'\n")
    text = """
import sys
from .other import text
print(__name__, __package__, __spec__.name, __file__, sys.argv, sys.path[0], text)
"""
    (package / "__main__.py").write_text(text)
    (package / "single.py").write_text(text)
    for name in ("pack", "pack.single"):
        plain = run(sys.executable, "-m", name, "-n", cwd=tmp_path)
        assert plain[0] == 0
        assert run(*RUNNER, "-m", name, "-n", cwd=tmp_path) == plain


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(
            ["missing.py"],
            "the script 'missing.py' cannot be read: No such file or directory",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["."], "the script '.' cannot be read: Is a directory", marks=pytest.mark.soak
        ),
        pytest.param(
            ["-m", "missing"],
            "no module 'missing' can be run",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["-m", "os.missing"],
            "no module 'os.missing' can be run",
            marks=pytest.mark.soak,
        ),
        pytest.param(["-m", "json"], "no module 'json' can be run", marks=pytest.mark.soak),
        pytest.param(
            [],
            "usage: python -m odyssey.distributed [-m] SCRIPT [ARGUMENT ...]",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_script_that_is_not_there_is_named(arguments, text, tmp_path):
    status, stdout, stderr = run(*RUNNER, *arguments, cwd=tmp_path)
    assert (status, stdout) == (2, "")
    assert text in stderr
    assert len(stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_runner_shows_its_usage(option, tmp_path):
    usage = "usage: python -m odyssey.distributed [-m] SCRIPT [ARGUMENT ...]\n"
    assert run(*RUNNER, option, cwd=tmp_path) == (0, usage, "")


@pytest.mark.slow
def test_an_exit_handler_that_raises_is_a_failure(tmp_path):
    (tmp_path / "script.py").write_text("import atexit\natexit.register(lambda: 1 / 0)\nprint(1)\n")
    status, stdout, stderr = run(*RUNNER, "script.py", cwd=tmp_path)
    assert (status, stdout) == (1, "1\n")  # Python itself ends with status 0
    assert "Exception ignored in atexit callback" in stderr
    assert "ZeroDivisionError: division by zero" in stderr


@pytest.mark.slow
def test_a_fork_of_a_rank_ends_alone():
    script = """
import os, sys
import odyssey as od
group = od.distributed.world()
statuses = []
for end in (lambda: sys.exit(0), lambda: sys.exit(4), lambda: 1 / 0):
    if (child := os.fork()) == 0:
        end()
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
group.barrier()
print(statuses)
"""
    result = run_ranks(2, script, env={"PYTHONWARNINGS": "ignore"})
    assert result.status == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0, 4, 1]", "rank 1: [0, 4, 1]"]
    assert result.stderr.count("ZeroDivisionError") == 2


# ------------------------------------------------------------------ failures elsewhere


@pytest.mark.slow
def test_failures_of_two_ranks_at_once_are_both_told():
    script = """
import odyssey as od
group = od.distributed.world()
group.barrier()
raise (KeyError if group.rank else ValueError)(f"of {group.rank}")
"""
    result = run_ranks(2, script)
    assert result.status == 1
    assert "rank 0: ValueError: of 0\n" in result.stderr
    assert "rank 1: KeyError: 'of 1'\n" in result.stderr
    assert "odyssey launch: rank 0 ended with status 1: ValueError: of 0\n" in result.stderr
    assert "odyssey launch: rank 1 ended with status 1: KeyError: 'of 1'\n" in result.stderr


PLACES = {
    "import": """
import os
if os.environ.get("PMI_RANK", os.environ.get("PMIX_RANK")) == "1":
    import a_module_that_is_missing
import odyssey as od
od.distributed.world().barrier()
""",
    "hook": """
import numpy as np
import odyssey as od
group = od.distributed.world()
w = od.Variable(np.ones(3), requires_grad=True)
def hook(g):
    if group.rank == 1:
        raise ValueError("in a hook")
with od.GradientTape() as tape:
    loss = (w * w).sum()
    tape.on_gradient(w, hook)
tape.backward(loss)
group.all_reduce(w.grad)
""",
    "checkpoint": """
import os
import numpy as np
import odyssey as od
group = od.distributed.world()
if group.rank == 1:
    od.save(os.path.join("missing_folder", "file.npz"), {"w": np.ones(3)})
group.barrier()
""",
    "disk": """
import resource
import numpy as np
import odyssey as od
group = od.distributed.world()
if group.rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    od.save("file.npz", {"w": np.ones(3000)})
group.barrier()
""",
    "thread": """
import threading
import odyssey as od
group = od.distributed.world()
if group.rank == 1:
    group = None
    thread = threading.Thread(target=lambda: group.barrier())
    thread.start()
    thread.join()
    raise SystemExit("the thread failed")
group.barrier()
""",
    "handler": """
import atexit
import odyssey as od
group = od.distributed.world()
if group.rank == 1:
    atexit.register(lambda: 1 / 0)
""",
}
TEXTS = {
    "import": "ModuleNotFoundError: No module named 'a_module_that_is_missing'",
    "hook": "ValueError: in a hook",
    "checkpoint": "odyssey.errors.",
    "disk": "odyssey.errors.FileError: ",
    "thread": "sys.exit: the thread failed",
    "handler": "an exit handler raised ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.slow if slow else pytest.mark.soak)
        for place, slow in zip(PLACES, (True, True, False, True, False, False), strict=True)
    ],
)
def test_a_failure_anywhere_in_a_script_ends_all_ranks(place):
    result = run_ranks(2, PLACES[place], timeout=50)
    assert result.status == 1, result.stderr
    assert f"odyssey launch: rank 1 ended with status 1: {TEXTS[place]}" in result.stderr
    assert "odyssey launch: rank 0 was ended, since another rank failed" in result.stderr
    assert result.seconds < 50  # the deadline of rank 0


@pytest.mark.soak
def test_an_exit_handler_that_hangs_ends_at_the_deadline():
    script = """
import atexit, time
import odyssey as od
group = od.distributed.world()
if group.rank == 1:
    atexit.register(time.sleep, 100)
"""
    result = run_ranks(2, script, timeout=3)
    assert result.status == 75
    assert re.search(
        r"rank 0: At the end of the script:\nrank 0: DistributedError: finish\(\)", result.stderr
    )
    assert "odyssey launch: rank 1 was ended" in result.stderr


@pytest.mark.soak
def test_a_thread_that_goes_on_is_waited_for():
    script = """
import threading, time
import odyssey as od
group = od.distributed.world()
def work():
    time.sleep(1.0)
    print("worked", flush=True)
if group.rank == 1:
    threading.Thread(target=work).start()
"""
    result = run_ranks(2, script)
    assert (result.status, result.stdout) == (0, "rank 1: worked\n"), result.stderr


# ------------------------------------------------------------------ under another launcher


UNDER_MPIEXEC = """
import sys, time
import odyssey as od
group = od.distributed.world()
group.barrier()
if group.rank == 1 and sys.argv[1] == "raises":
    raise ValueError("of one rank")
group.barrier()
"""


@pytest.mark.slow
def test_without_odyssey_launch_a_failure_ends_all_ranks_too(tmp_path):
    needs_mpi()
    (tmp_path / "script.py").write_text(UNDER_MPIEXEC)
    mpiexec = shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    for kind, wanted in (("ends", 0), ("raises", 1)):
        begin = time.monotonic()
        status, _, stderr = run(mpiexec, "-n", "2", *RUNNER, "script.py", kind, cwd=tmp_path)
        assert (status == 0) == (wanted == 0), stderr
        assert time.monotonic() - begin < 50
        if kind == "raises":
            assert "rank 1: Traceback (most recent call last):\nrank 1:   File" in stderr
            assert "rank 1: ValueError: of one rank\n" in stderr
