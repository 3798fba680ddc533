"""Three kinds of test, the folder of their machine code, and what no test may leave behind.

Ordinary tests have no mark and take less than ``LIMIT`` CPU seconds each. ``slow`` tests take
longer; ``.ci/run`` runs them. ``soak`` tests are long loops and full walks; ``.ci/soak`` runs them.
Tests that need a library that is missing are skipped, and say what they need.
"""

import gc
import importlib.util
import os
import signal
import sys
import tempfile
from zlib import crc32

import numpy as np
import pytest
from _pytest.mark.expression import Expression

from support.seeds import SEED

SCIPY_MISSING = importlib.util.find_spec("scipy") is None
PEERS_MISSING = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
WARNINGS = np.geterr()
LOCKS = [
    ("odyssey.devices.write_guard", "GUARD"),
    ("odyssey.compiler.tracing.attempt", "_TRACE_LOCK"),
]
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


# Where SIGINT is ignored, as in a job in the background, processes that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Keep machine code in the folder ODYSSEY_TEST_CACHE, or for the length of a run.

    The folder serves all processes of a run, so equal programs are compiled once. The user's own
    cache is neither read nor written. (numba keeps its code beside the sources.)
    """
    if hasattr(config, "workerinput"):
        return  # of xdist: the process that started it has chosen the folder
    environment = pytest.MonkeyPatch()
    folder = os.environ.get("ODYSSEY_TEST_CACHE")
    if not folder:
        temporary = tempfile.TemporaryDirectory(prefix="odyssey-tests-")
        config.add_cleanup(temporary.cleanup)
        folder = temporary.name
    environment.setenv("ODYSSEY_CACHE", os.path.abspath(folder))
    config.add_cleanup(environment.undo)


def pytest_report_header():
    return f"random soaks: ODYSSEY_TEST_SEED={SEED}"


def pytest_collection_finish():
    """Keep the collector from going through all tests each time that one of them calls it."""
    gc.collect()
    gc.freeze()


def _let_go(module, name):
    """Release a lock; tell whether it was held here."""
    lock, held = getattr(sys.modules[module], name), False
    while lock._is_owned():
        lock.release()
        held = True
    return held


# ------------------------------------------------------------------ the time of ordinary tests

LIMIT, LIMIT_OF_CHILDREN = 0.3, 3.0  # CPU seconds; children import the library anew
# The bars of all runs but those of ``tools.check``: CPU seconds double on a slow or busy machine.
BAR, BAR_OF_CHILDREN = 1.5, 8.0
STRICT = os.environ.get("ODYSSEY_TEST_STRICT") == "1"
MARKED = {"slow", "soak", "peers", "cudasim"}

NUMBA = {"listeners": [], "compiled": 0}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Find an ordinary test that takes too long: report it, and fail it over the bar.

    CPU time is measured, because wall clock tells how busy a machine is. CPU time too grows on a
    busy machine, whose cores share caches; only ``tools.check``, which authors of a test run, fails
    a test over the limit itself. A test that is the first to import a module or to compile a
    program pays for others, and is let off.
    """
    first_uses, before = _first_uses(), os.times()
    result = yield
    after = os.times()
    own = after.user - before.user + after.system - before.system
    of_children = sum(after[2:4]) - sum(before[2:4])
    long = own > LIMIT or of_children > LIMIT_OF_CHILDREN
    if long and MARKED.isdisjoint(item.keywords) and first_uses == _first_uses():
        taken = f"took {own:.2f} CPU seconds, and its children {of_children:.2f}"
        item.user_properties.append(("too long", taken))
        if STRICT or own > BAR or of_children > BAR_OF_CHILDREN:
            pytest.fail(
                f"{taken}; an ordinary test may take {LIMIT}. Make it lighter, or mark it slow or "
                "soak and leave a light case of its kind among the ordinary ones",
                pytrace=False,
            )
    return result


def pytest_terminal_summary(terminalreporter):
    """Print the ordinary tests that took too long."""
    reports = [r for r in terminalreporter.getreports("passed") if r.when == "call"]
    long = [
        (taken, r.nodeid) for r in reports for key, taken in r.user_properties if key == "too long"
    ]
    if long:
        terminalreporter.section(f"{len(long)} ordinary tests over {LIMIT} CPU seconds")
        for taken, name in sorted(long, reverse=True):
            terminalreporter.line(f"{name} {taken}")


def _first_uses():
    """Return what changes when a module is imported or code is compiled for the first time."""
    events, folder = sys.modules.get("numba.core.event"), os.environ.get("ODYSSEY_CACHE", "")
    if events is not None and not NUMBA["listeners"]:
        NUMBA["listeners"].append(events.RecordingListener())
        events.register("numba:compile", NUMBA["listeners"][0])
    for listener in NUMBA["listeners"]:
        NUMBA["compiled"] += len(listener.buffer)
        listener.buffer.clear()
    native = os.path.join(folder, "native")
    # Other processes of this run write to the folder too, which lets a test off too often.
    written = os.stat(native).st_mtime_ns if os.path.isdir(native) else None
    return len(sys.modules), written, NUMBA["compiled"]


NUMBA = {"listeners": [], "compiled": 0}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Let no test leave what later ones would see: an exception being handled, locks, warnings."""
    yield
    held = [lock for module, lock in LOCKS if module in sys.modules and _let_go(module, lock)]
    told = np.seterr(**WARNINGS)
    assert (sys.exception(), held, told) == (None, [], WARNINGS)


# ------------------------------------------------------------------ the cases of a run

MANY = 12


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Make the cases that this run asks for, by its marks and its shard.

    Of tests marked ``share(n)`` all but one case in n are soaks, or slow with ``rest="slow"``. Of
    other tests with many cases one in six is ordinary, one in six slow, and the rest are soaks; of
    tests that are slow or compare with peers one in three runs, and the rest are soaks. Asked for
    by name, all cases run.
    """
    yield
    cases, config = metafunc._calls, metafunc.config  # pytest has no public list of the cases
    if not cases:
        return
    marks = {mark.name: mark for mark in metafunc.definition.iter_markers()}
    if not _asked_by_name(config) and KINDS.isdisjoint(marks):
        in_order = sorted(cases, key=lambda case: crc32(case.id.encode()))
        one_in = marks["share"].args[0] if "share" in marks else 3 if len(cases) >= MANY else 1
        few = -(-len(cases) // one_in)
        rest = marks["share"].kwargs.get("rest", "soak") if "share" in marks else "soak"
        for case in in_order[few:]:
            case.marks.append(getattr(pytest.mark, rest).mark)
        if one_in == 3 and marks.keys().isdisjoint({"share", "slow", "peers"}):
            for case in in_order[-(-few // 2) : few]:
                case.marks.append(pytest.mark.slow.mark)
    asked = Expression.compile(config.option.markexpr or "not nothing")

    def wanted(case):
        names = marks.keys() | {mark.name for mark in case.marks}
        in_shard = _in_shard(f"{metafunc.definition.nodeid}[{case.id}]")
        return in_shard and asked.evaluate(lambda name, **named: name in names)

    # One is left in any case, as pytest would make a test without arguments. It is deselected.
    cases[:] = [case for case in cases if wanted(case)] or cases[:1]


KINDS = {"soak", "cudasim", "cudacompile"}
SHARD, _, SHARDS = os.environ.get("ODYSSEY_TEST_SHARD", "1/1").partition("/")


def _asked_by_name(config):
    if os.environ.get("ODYSSEY_TEST_SHARES") == "1":  # set by tools.check, for a whole room's names
        return False
    return config.option.keyword or any("::" in name for name in config.args)


def _in_shard(name):
    return crc32(name.encode()) % int(SHARDS) == int(SHARD) - 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if SHARDS != "1":
        others = [item for item in items if not _in_shard(item.nodeid)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _in_shard(item.nodeid)]
    peers = pytest.mark.skip(reason=f"peers missing: {', '.join(PEERS_MISSING)}")
    cudasim = pytest.mark.skip(reason="needs NUMBA_ENABLE_CUDASIM=1")
    scipy = pytest.mark.skip(reason="SciPy, which computes it, is missing")
    for item in items:
        if SCIPY_MISSING and by_scipy(item):
            item.add_marker(scipy)
        if PEERS_MISSING and "peers" in item.keywords:
            item.add_marker(peers)
        if not SIMULATED and "cudasim" in item.keywords:
            item.add_marker(cudasim)


def by_scipy(item):
    """Whether a test is of a row that calls SciPy."""
    given = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    given += [part for value in given if type(value) is dict for c in value.values() for part in c]
    return any(getattr(value, "primitive", None) == "call" for value in given)


@pytest.fixture
def standin():
    """A backend of devices "cuda:0" and "cuda:1" in host memory, see ``support.standin``."""
    from support.standin import StandIn, installed

    with installed(StandIn()) as backend:
        yield backend
