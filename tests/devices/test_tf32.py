"""``od.autocast("tf32")`` on a device: which calls run in TF32, and how CuPy is told."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import odyssey as od
from odyssey import nn, ops
from odyssey.compiler.cuda import lower_for_device
from odyssey.devices.cupy_backend import CupyBackend
from odyssey.errors import ShapeError
from odyssey.ops import OPS

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def calls(standin, monkeypatch):
    """Pairs of what the device computed, and whether products could use TF32.

    What a rule calls is part of its call.
    """
    found, entered, around = [], [], []
    call = standin.call

    @contextmanager
    def tf32(index):
        entered.append(index)
        try:
            yield
        finally:
            entered.remove(index)

    def noted(who, index, *rest, **options):
        assert set(entered) <= {index}
        if not around:
            found.append((who.removeprefix("gradient of "), bool(entered)))
        around.append(who)
        try:
            return call(who, index, *rest, **options)
        finally:
            around.pop()

    monkeypatch.setattr(standin, "tf32", tf32)
    monkeypatch.setattr(standin, "call", noted)
    yield found
    assert entered == []


def leaf(*shape, dtype="float32", device="cuda"):
    data = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)
    return od.Variable(data, dtype=dtype, requires_grad=True, device=device)


def network(x, w, kernel):
    h = ops.tanh(ops.linear(x, w)) + ops.exp(x @ w.T)
    h = h + nn.scaled_dot_product_attention(h, h, h)
    h = nn.conv1d(h[None], kernel)
    return (h * h).mean() + ops.softmax(h).sum()


def values(device):
    return leaf(4, 4, device=device), leaf(4, 4, device=device), leaf(2, 4, 3, device=device)


def test_products_and_their_gradients_run_in_tf32_and_nothing_else(calls):
    given = values("cuda")
    with od.autocast("tf32"), od.GradientTape() as tape:
        found = tape.gradient(network(*given), given)
    rows = {who: allowed for who, allowed in calls if who in OPS}
    assert {"linear", "matmul", "scaled_dot_product_attention", "conv1d"} < rows.keys()
    assert {"tanh", "exp", "softmax", "mean", "multiply"} < rows.keys()
    for who, allowed in calls:
        assert allowed == (who in OPS and OPS[who].precision == "low"), who
    calls.clear()
    with od.GradientTape() as tape:
        expected = tape.gradient(network(*given), given)
    assert not any(allowed for _, allowed in calls)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.get(), other.get())  # the stand-in has no TF32


def test_the_block_of_the_sweep_counts_for_the_sweep(calls):
    w = leaf(3, 2)
    with od.GradientTape(persistent=True) as tape, od.autocast("tf32"):
        loss = (od.Variable(X, device="cuda") @ w).sum()
    calls.clear()
    tape.gradient(loss, w)
    assert ("matmul", False) in calls
    calls.clear()
    with od.autocast("tf32"):
        tape.gradient(loss, w)
    assert ("matmul", True) in calls
    assert ("matmul", False) not in calls


@pytest.mark.parametrize("mode", [None, "off"])
def test_without_a_mode_and_in_an_inner_block_nothing_is_in_tf32(calls, mode):
    w = leaf(3, 3)
    with od.autocast(None if mode is None else "tf32"), od.autocast(None):
        w @ w
    assert [pair for pair in calls if pair[0] == "matmul"] == [("matmul", False)]


@pytest.mark.parametrize("mode", ["float16", "bfloat16"])
def test_products_of_halves_which_tf32_holds_are_in_tf32(calls, mode):
    given = values("cuda")
    with od.autocast(mode), od.GradientTape() as tape:
        loss = network(*given)
    tape.gradient(loss, given)
    exact = {"matmul", "linear", "conv1d"}
    assert {who for who, allowed in calls if allowed} == exact
    assert {who for who, allowed in calls if not allowed and who in exact} == set()
    calls.clear()
    w, h, k = leaf(3, 3), leaf(3, 3, dtype=mode), od.Variable(np.eye(3, dtype=int), device="cuda")
    for one, other in ((w, h), (h, w), (k, k), (w, w), (h, k)):
        one @ other
    assert ("matmul", True) not in calls


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_tf32_holds_all_halves(dtype):
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = ops.astype(bits.view(od.Variable(0.0, dtype=dtype).dtype), "float32")
    # float32 has 13 bits of mantissa more than TF32, and as many of the exponent.
    assert not (wide[np.isfinite(wide)].view(np.uint32) & 0x1FFF).any()


def test_complex_products_arrays_alone_examples_and_other_threads(calls):
    w, z = leaf(3, 3), leaf(3, 3, dtype="complex64")
    with od.autocast("tf32"):
        z @ z
        w @ z
        assert ("matmul", True) not in calls
        ops.matmul(w.data, w.data)
        assert calls.pop() == ("matmul", True)
        od.vmap(lambda row: row @ w)(w)
        assert ("matmul", True) in calls
        calls.clear()
        thread = threading.Thread(target=lambda: w @ w)
        thread.start()
        thread.join()
        assert ("matmul", True) not in calls
    calls.clear()
    od.vmap(od.autocast("tf32")(lambda row: row @ w))(w)
    assert ("matmul", True) in calls
    calls.clear()
    with od.autocast("tf32"):
        od.vmap(od.autocast(None)(lambda row: row @ w))(w)
    assert ("matmul", True) not in calls


def test_an_error_of_a_product_ends_its_block(calls):
    with od.autocast("tf32"), pytest.raises(ShapeError):
        leaf(3, 2) @ leaf(3, 2)
    calls.clear()
    leaf(3, 3) @ leaf(3, 3)
    assert ("matmul", True) not in calls


def test_programs_of_a_device_are_in_tf32_in_the_block_alone(standin, monkeypatch):
    found = []
    gemm_calls = lower_for_device.gemm_calls

    def noted(plan, node, tf32):
        found.extend(call.tf32 for call in gemm_calls(plan, node, tf32))
        return gemm_calls(plan, node, tf32)

    monkeypatch.setattr(lower_for_device, "gemm_calls", noted)
    w, x = leaf(3, 3), od.Variable(X, device="cuda")
    optimizer = od.optim.SGD([w], 0.1)  # whose learning rate lies on the host

    @od.compile(fullgraph=True)
    def step(x):
        with od.GradientTape() as tape:
            loss = (ops.tanh(x @ w) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for mode, expected in (("tf32", True), (None, False), ("tf32", None), ("bfloat16", False)):
        for _ in range(3):
            with od.autocast(mode):
                step(x)
        assert set(found) == ({expected} - {None}), mode
        found.clear()


class FakeCupy:
    """What ``CupyBackend.tf32`` uses of CuPy: math modes by handle, and a handle by device."""

    ndarray = np.ndarray

    def __init__(self, mode=0):
        self.current, self.modes = 0, {10: mode, 11: mode}
        self.cuda = SimpleNamespace(
            cublas=SimpleNamespace(
                getMathMode=self.modes.__getitem__, setMathMode=self.modes.__setitem__
            ),
            device=SimpleNamespace(get_cublas_handle=lambda: 10 + self.current),
            Device=self.device,
        )

    @contextmanager
    def device(self, index):
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before


@pytest.mark.parametrize("mode", [0, 1])
def test_cupy_sets_the_math_mode_of_the_handle_of_the_device(mode):
    cupy = FakeCupy(mode)
    backend = CupyBackend(cupy)
    for index in (0, 1):
        with backend.tf32(index):
            assert cupy.modes == {10: mode, 11: mode} | {10 + index: 3}
            assert cupy.current == 0
        with pytest.raises(ZeroDivisionError), backend.tf32(index):
            raise ZeroDivisionError
        assert cupy.modes == {10: mode, 11: mode}
