"""Tests that need what is not here are skipped, and say what they need.

Machine code is kept for the length of a run, for all of its processes: equal programs are compiled
once, and neither is the user's own cache read nor anything left there.
"""

import gc
import importlib.util
import os
import sys
import tempfile
from zlib import crc32

import numpy as np
import pytest

SCIPY_MISSING = importlib.util.find_spec("scipy") is None
PEERS_MISSING = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
WARNINGS = np.geterr()
LOCKS = [("odyssey.devices.guard", "GUARD"), ("odyssey.compiler.tracing.attempt", "_TRIALS")]
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return  # of xdist: the process that started it has chosen the folder
    folder = tempfile.TemporaryDirectory(prefix="odyssey-tests-")
    environment = pytest.MonkeyPatch()
    environment.setenv("ODYSSEY_CACHE", folder.name)
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(environment.undo)


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Let no test leave what later ones would see: an exception being handled, locks, warnings."""
    yield
    held = [lock for module, lock in LOCKS if module in sys.modules and _let_go(module, lock)]
    told = np.seterr(**WARNINGS)
    assert (sys.exception(), held, told) == (None, [], WARNINGS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not (config.option.keyword or any("::" in name for name in config.args)):
        leave_to_soaks(items)  # who asks for tests by name gets all of them
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


MANY = 12


def leave_to_soaks(items):
    """Of tests that are marked ``share(n)``, leave all but one case in n to soaks.

    Of others with many cases, all but one in three.
    """
    cases = {}
    for item in items:
        if hasattr(item, "callspec") and not {"peers", "cudasim"}.intersection(item.keywords):
            mark = item.get_closest_marker("share")
            one_in = None if mark is None else mark.args[0]
            cases.setdefault((item.path, item.originalname, one_in), []).append(item)
    for (*_, one_in), several in cases.items():
        one_in = one_in or (3 if len(several) >= MANY else 1)
        several.sort(key=lambda item: crc32(item.name.encode()))
        for item in several[-(-len(several) // one_in) :]:
            item.add_marker(pytest.mark.soak)


def by_scipy(item):
    """Whether a test is of a row that calls SciPy."""
    given = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    given += [part for value in given if type(value) is dict for c in value.values() for part in c]
    return any(getattr(value, "primitive", None) == "call" for value in given)
