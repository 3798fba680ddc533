"""Memory that a step frees is there for the next one."""

import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
import numpy as np
import odyssey as od

x = od.Variable(np.ones((256, 1024)), requires_grad=True)

def step():
    with od.GradientTape() as tape:
        y = od.ops.sum(od.ops.tanh(od.ops.sin(x)))
    tape.backward(y)
    x.grad = None

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries of C do not learn")
def test_steps_on_arrays_of_some_megabytes_take_no_pages_anew():
    kept = {name: v for name, v in os.environ.items() if not name.startswith("MALLOC_")}
    for name in ("LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONMALLOC"):
        kept.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", STEPS], env=kept, capture_output=True, text=True, check=True
    )
    # Each array has 512 pages.
    assert int(done.stdout) < 256
