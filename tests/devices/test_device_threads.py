"""Threads with tapes of their own, on one device and on two."""

import sys
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier
from types import FunctionType

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.table import device_rows
from support.on_device import assert_equal_bits, constant, leaf

pytestmark = pytest.mark.usefixtures("standin")


@pytest.fixture
def hasty():
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def trained(device, seed=0):
    """Parameters after some steps of a network whose ops need tables, closures and classes."""
    rng = np.random.RandomState(seed)
    w, v = (leaf(rng.standard_normal(shape), device) for shape in ((4, 6), (6, 3)))
    x = constant(rng.standard_normal((5, 4)), device)
    classes = constant(np.array([0, 2, 1, 1, 0]), device)
    optimizer = od.optim.Adam([w, v], 0.1)
    for _ in range(3):
        with od.GradientTape() as tape:
            h = ops.gelu(x @ w)
            loss = od.losses.cross_entropy(ops.layer_norm(h) @ v, classes)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return w.numpy(), v.numpy()


def in_threads(calls):
    """The results of calls that begin at one time in threads of their own."""
    barrier = Barrier(len(calls))

    def run(call):
        barrier.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.parametrize(
    "places", [("cuda:0",) * 4, ("cuda:0", "cuda:1") * 2, ("cuda:1", "cpu") * 2], ids="-".join
)
def test_threads_train_as_each_would_alone(hasty, places):
    device_rows._CODES.clear()  # each thread may be the first to translate a row
    calls = [
        lambda place=place, seed=seed: trained(place, seed) for seed, place in enumerate(places)
    ]
    with od.ops.use_kernels("numpy"):
        found = in_threads(calls)
        assert_equal_bits(found, [trained("cpu", seed) for seed in range(len(places))])


def test_a_function_is_no_other_threads_before_its_closure_is_filled(standin, monkeypatch):
    table = (np.ones(2),)

    def read():
        return table

    room = vars(sys.modules["odyssey.ops.elementwise.signs"])
    function = FunctionType(read.__code__, room, "read", None, read.__closure__)
    code, others = device_rows.code_of(standin, 0), []
    to_device = standin.to_device

    def asked_meanwhile(array, index=0):
        if not others:
            others.append(pool.submit(code.translate, function))
            assert not wait(others, 0.05).done
        return to_device(array, index)

    monkeypatch.setattr(standin, "to_device", asked_meanwhile)
    with ThreadPoolExecutor(1) as pool:
        made = code.translate(function)
        assert others[0].result(30) is made
    assert type(made()[0]) is standin.array_type
