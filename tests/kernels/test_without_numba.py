"""Where numba cannot be imported, everything but kernels works, and they say what is missing."""

import importlib.util
import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["numba"] = None  # an import of it fails now
import numpy as np
import odyssey as od
from odyssey.errors import DeviceError
from odyssey.kernels import cpu_loop, cpu_softmax, cuda_loop, cuda_softmax

w = od.Variable(np.ones((3, 2)), requires_grad=True)
optimizer = od.optim.Adam([w], learning_rate=0.1)
for _ in range(3):
    with od.GradientTape() as tape:
        loss = od.losses.cross_entropy(np.eye(3) @ w, np.array([0, 1, 0]))
    tape.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
assert od.hessian(lambda x: (x * x).sum())(np.ones(2)).shape == (2, 2)
x = np.ones((2, 3))
calls = {
    "cpu_loop": lambda: cpu_loop(lambda x: x, np.float64),
    "cpu_softmax": lambda: cpu_softmax(x, x.copy()),
    "cuda_loop": lambda: cuda_loop(lambda x: x, np.float64),
    "cuda_softmax": lambda: cuda_softmax(x, x.copy()),
}
for name, call in calls.items():
    try:
        call()
    except DeviceError as error:
        assert "numba cannot be imported" in str(error), (name, error)
    else:
        raise AssertionError(name)
print("done")
"""


@pytest.mark.slow
def test_everything_but_kernels_works_without_numba_and_kernels_say_what_is_missing():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


INTERRUPTED = """
import sys
import numpy as np
import odyssey as od
from odyssey.errors import DeviceError
from odyssey.kernels import numba_module

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

x = np.linspace(-1, 1, 1_000_000)
sys.meta_path.insert(0, stop := Stop())
try:
    od.nn.gelu(x)
except KeyboardInterrupt:
    sys.meta_path.remove(stop)
for _ in range(2):
    for call in (od.nn.gelu, od.nn.sigmoid):
        with od.ops.use_kernels("numpy"):
            expected = call(x)
        assert (call(x) == expected).all()
w = od.Variable(x, requires_grad=True)
with od.GradientTape() as tape:
    loss = od.nn.gelu(w).sum()
assert tape.gradient(loss, w).shape == x.shape
try:
    numba_module()
except DeviceError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba is missing")
@pytest.mark.parametrize(
    "module", ["numba.core.types", "numba.np.ufunc", "numba.experimental", "numba.typed"]
)
def test_ops_on_large_arrays_work_on_after_an_interrupt_of_the_first_import_of_numba(module):
    command = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "numba cannot be imported" in done.stdout, done.stderr
    assert "interrupted" in done.stdout
