"""Which results are alive is measured at import, and never too high: a tracer may be running."""

import subprocess
import sys
import textwrap

import pytest

from odyssey.tape import liveness, sweep
from odyssey.tape.recording import _UNHELD_REFERENCES

# A long recording, so that branches are pruned, whose one living branch forks early.
PROGRAM = """
import sys
import numpy as np

def run(od):
    from odyssey.tape import sweep
    from odyssey.tape.recording import _UNHELD_REFERENCES
    x = od.Variable(3.0, requires_grad=True)
    with od.GradientTape() as tape:
        early = x * x
        late = early * 2.0
        for _ in range(3000):
            x * 2.0
        nodes = len(tape)
        y = early * late
    found = tape.backward(y)
    assert float(found[late]) == 9.0 and float(found[early]) == 36.0, dict(found)
    assert float(x.grad) == 8.0 * 27.0, x.grad
    print(sweep.OWN_REFERENCES, _UNHELD_REFERENCES, nodes < 2000)
"""


def imported(before="", after=""):
    """What a new process prints that runs PROGRAM, with odyssey imported between two texts."""
    source = f"{PROGRAM}\n{textwrap.dedent(before)}\nimport odyssey as od\n"
    source += f"{textwrap.dedent(after)}\nrun(od)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


READER = """
def read(frame, event=None, argument=None):
    frame.f_locals
    return read
"""
TRACERS = {
    "sys.settrace": ("sys.settrace(read)", "assert sys.gettrace() is read; sys.settrace(None)"),
    "sys.setprofile": ("sys.setprofile(read)", "sys.setprofile(None)"),
    "a tracer that stays": ("sys.settrace(read)", ""),
    "threading.settrace": ("import threading; threading.settrace(read); sys.settrace(read)", ""),
}


@pytest.fixture(scope="module")
def undisturbed():
    found = imported()
    assert found[2] == "True"
    return found


@pytest.mark.share(4, rest="slow")
@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="CPython 3.12 loses a module's names in comprehensions where a tracer reads f_locals",
)
@pytest.mark.parametrize(("begin", "end"), TRACERS.values(), ids=TRACERS)
def test_a_tracer_that_reads_locals_while_odyssey_is_imported_changes_no_count(
    begin, end, undisturbed
):
    assert imported(READER + begin, end)[:2] == undisturbed[:2]


def test_a_sampler_in_another_thread_lets_counts_only_fall(undisturbed):
    sampler = """
    import _thread
    main = _thread.get_ident()
    def sample():
        while True:
            frame = sys._current_frames().get(main)
            while frame is not None:
                frame.f_locals
                frame = frame.f_back
    sys.setswitchinterval(1e-6)
    _thread.start_new_thread(sample, ())
    """
    found = imported(sampler, "sys.setswitchinterval(0.005)")
    assert all(int(n) <= int(limit) for n, limit in zip(found[:2], undisturbed[:2], strict=True))


def test_where_references_are_not_counted_every_result_passes_for_living():
    assert imported("del sys.getrefcount") == ["0", "0", "False"]


def test_where_the_interpreter_has_no_global_lock_every_result_passes_for_living():
    assert imported("sys._is_gil_enabled = lambda: False") == ["0", "0", "False"]


def test_a_count_above_what_the_code_itself_holds_is_not_believed():
    most = liveness.refcount(object()) + 2
    assert liveness.measured_refcount(lambda: most, places=2) == most
    assert liveness.measured_refcount(lambda: most + 1, places=2) == liveness.EVERYTHING_LIVES


def test_a_measurement_that_fails_beside_a_tracer_lets_every_result_live():
    def fail():
        raise KeyError

    reported = []
    hook, sys.unraisablehook = sys.unraisablehook, reported.append
    sys.setprofile(lambda *event: None)
    try:
        assert liveness.measured_refcount(fail, places=9) == liveness.EVERYTHING_LIVES
    finally:
        sys.setprofile(None)
        sys.unraisablehook = hook


def test_what_only_its_node_holds_is_told_from_what_one_more_holds():
    held = object()
    assert liveness.result_refcount((None, object())) == _UNHELD_REFERENCES
    assert liveness.result_refcount((None, held)) == _UNHELD_REFERENCES + 1
    again = liveness.unheld_refcount_in_sweep(sweep.backward_sweep, sweep.pop_nodes, sweep.PASS)
    assert again == sweep.OWN_REFERENCES
