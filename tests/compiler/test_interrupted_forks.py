"""Ctrl-C in the midst of a fork leaves no lock held, and the pool of threads open."""

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# The signal is raised by C, and so is handled at the first line of Python's that runs then: of the
# function that is called next at a fork.
PROGRAM = """
import ctypes, os, signal, sys, threading
from functools import partial

def stop(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGUSR1, stop)
send = partial(ctypes.CDLL(None)["raise"], int(signal.SIGUSR1))
where, compiled = sys.argv[1], sys.argv[2] == "compiled"
if where == "after":  # before those of the package
    os.register_at_fork(after_in_parent=send)
import numpy as np
import odyssey as od
from odyssey.devices.write_guard import GUARD
if where == "before":
    os.register_at_fork(before=send)
stopped = []
sys.unraisablehook = lambda report: stopped.append(report.exc_type)

x = np.ones(300_000)
f = od.compile(lambda x: (od.ops.exp(x) * x).sum(), threads=2) if compiled else od.ops.sum
for _ in range(3):
    f(x)

def train():
    w = od.Variable(np.ones(3), requires_grad=True)
    optimizer = od.optim.SGD([w], learning_rate=0.1)
    with od.GradientTape() as tape:
        loss = (w * w).sum()
    tape.backward(loss)
    optimizer.step()
    f(x)
    done.append(True)

for k in range(1, 5):
    done = []
    try:
        child = os.fork()
        if not child:
            signal.alarm(30)
            train()
            os._exit(0)
    except KeyboardInterrupt:
        stopped.append(KeyboardInterrupt)
    assert os.wait()[1] == 0
    assert stopped == [KeyboardInterrupt] * k, stopped
    assert not GUARD._is_owned()
    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join(30)
    if not done:
        print("hangs", flush=True)
        os._exit(1)
if compiled:
    from odyssey.compiler.runtime import thread_pool
    assert not thread_pool._LOCK._is_owned()
    f(x)
    started = ctypes.c_int64.from_address(thread_pool._Pool.loaded.address("ody_started")).value
    assert started == 1, started
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["eager", "compiled"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_ctrl_c_in_a_fork_leaves_parent_and_child_that_work_on(where, what):
    if what == "compiled" and importlib.util.find_spec("llvmlite") is None:
        pytest.skip("llvmlite, which makes machine code, is missing")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, where, what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"it hangs: {error.stdout} {error.stderr}")
    assert done.stdout == "done\n", done.stderr + done.stdout
