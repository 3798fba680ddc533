"""Steps of optimizers in one launch, in numba's simulator, beside the pure rule on the same device.

Run by `NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim`, a process apart.
"""

import os

import numpy as np
import pytest

import odyssey as od
from odyssey import ops, optim
from odyssey.errors import DeviceMemoryError
from odyssey.kernels import cuda, optimizer_step

pytestmark = [
    pytest.mark.cudasim,
    pytest.mark.skipif(
        os.environ.get("NUMBA_ENABLE_CUDASIM") != "1",
        reason="needs the CUDA simulator: NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim",
    ),
    pytest.mark.usefixtures("standin"),
]

OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, 0.1),
    "SGD with momentum": lambda params: optim.SGD(
        params, 0.1, momentum=0.9, dampening=0.3, weight_decay=0.01
    ),
    "SGD with Nesterov's": lambda params: optim.SGD(params, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda params: optim.Adam(params, 0.1),
    "Adam with amsgrad": lambda params: optim.Adam(params, 0.1, weight_decay=0.01, amsgrad=True),
    "AdamW": lambda params: optim.AdamW(params, 0.1),
    "RMSprop": lambda params: optim.RMSprop(params, 0.1, momentum=0.9, centered=True),
    "AdaGrad": lambda params: optim.AdaGrad(params, 0.1),
    "Adadelta": lambda params: optim.Adadelta(params, 0.1),
    "Adamax": lambda params: optim.Adamax(params, 0.1),
    "NAdam": lambda params: optim.NAdam(params, 0.1),
    "RAdam": lambda params: optim.RAdam(params, 0.1),
    "Lion": lambda params: optim.Lion(params, 0.1),
}
SHAPES = [(3,), (), (0, 2), (7, 5), (70,)]


@pytest.fixture
def launches(monkeypatch):
    """The names of the kernels that were launched."""
    names, usual = [], cuda.launch
    monkeypatch.setattr(
        cuda, "launch", lambda kernel, *work: (names.append(kernel.__name__), usual(kernel, *work))
    )
    return names


def arrays(dtype, seed):
    rng = np.random.default_rng(seed)
    found = [rng.normal(size=shape).astype(dtype) for shape in SHAPES]
    found[0][:] = [np.nan, np.inf, -0.0] if seed else [1.0, 0.0, -0.0]
    found[3] = np.asfortranarray(found[3])
    return found


def parameters(dtype, device="cuda"):
    return [od.Variable(x, requires_grad=True, device=device) for x in arrays(dtype, 0)]


def trained(make, dtype, device="cuda"):
    """The parameters and states after three steps, the second without one of the gradients."""
    params = parameters(dtype, device)
    optimizer = make(params)
    for step in (1, 2, 3):
        for k, (p, g) in enumerate(zip(params, arrays(dtype, step), strict=True)):
            p.grad = None if (k, step) == (4, 2) else od.Variable(g, device=device)
        with np.errstate(all="ignore"):
            optimizer.step(allow_missing=True)
    states = [state[name] for state in optimizer.state_dict()["state"] for name in sorted(state)]
    return [p.numpy() for p in params] + list(map(np.asarray, states))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_in_one_launch_has_the_bits_of_the_pure_rule(name, dtype, launches):
    expected = trained(OPTIMIZERS[name], dtype)
    assert launches == []
    with ops.use_kernels("cuda"):
        found = trained(OPTIMIZERS[name], dtype)
    assert launches == ["update"] * 3
    for there, here in zip(found, expected, strict=True):
        assert there.dtype == here.dtype
        assert there.tobytes() == here.tobytes()


def test_arrays_of_more_chunks_than_blocks_are_updated_whole(launches):
    sizes = [1, 700, 32, 33, 500]
    params = [
        od.Variable(np.arange(n, dtype="f"), requires_grad=True, device="cuda") for n in sizes
    ]
    for p in params:
        p.grad = p.detach() / 2
    with ops.use_kernels("cuda"):
        optim.SGD(params, 1.0).step()
    assert launches == ["update"]
    assert sum(sizes) > cuda.max_blocks() * optimizer_step.SIMULATED_CHUNK
    for n, p in zip(sizes, params, strict=True):
        np.testing.assert_array_equal(p.numpy(), np.arange(n) / 2)


def test_a_launch_is_for_one_device_and_one_dtype(launches):
    kinds = [("float32", "cuda:0"), ("float64", "cuda:1"), ("float32", "cuda:1")]
    params = [od.Variable(np.ones(3, d), requires_grad=True, device=at) for d, at in kinds * 2]
    for p in params:
        p.grad = p.detach()
    with ops.use_kernels("cuda"):
        optim.SGD(params, 0.25).step()
    assert launches == ["update"] * 3
    assert [(p.dtype.name, str(p.device)) for p in params] == kinds * 2
    for p in params:
        np.testing.assert_array_equal(p.numpy(), np.full(3, 0.75))


def test_what_the_kernel_does_not_take_is_left_to_the_rule(launches):
    table = od.Variable(np.ones((4, 2)), True, sparse_grad=True, device="cuda")
    phase = od.Variable(np.ones(3, complex), requires_grad=True, device="cuda")
    dense = od.Variable(np.ones(3), requires_grad=True, device="cuda")
    at = od.Variable(np.array([1, 1]), device="cuda")
    with od.GradientTape() as tape:
        loss = ops.sum(od.nn.embedding(at, table)) + ops.sum(dense)
        loss = loss + ops.sum(ops.real(phase))
    tape.backward(loss)
    assert isinstance(table.grad, od.SparseRows)
    with ops.use_kernels("cuda"):
        optim.SGD([table, phase, dense], 0.25).step()
    assert launches.count("update") == 1
    np.testing.assert_array_equal(table.numpy(), [[1, 1], [0.5, 0.5], [1, 1], [1, 1]])
    np.testing.assert_array_equal(phase.numpy(), np.full(3, 0.75))
    np.testing.assert_array_equal(dense.numpy(), np.full(3, 0.75))


def test_a_rule_of_a_user_runs_in_one_launch_too(launches):
    class Halving(optim.Optimizer):
        def __init__(self, params, learning_rate=0.5):
            optim.Optimizer.__init__(**locals())

    @optim.rule_of(Halving)
    def halving(s):
        def step(g, state, p):
            seen = ops.maximum(state["seen"], ops.absolute(g))
            return ops.subtract(p, ops.multiply(s.learning_rate, seen)), state | {"seen": seen}

        return optim.Rule(("seen",), step)

    p = od.Variable(np.array([3.0, 1.0]), requires_grad=True, device="cuda")
    optimizer = Halving([p])
    for g in ([2.0, -4.0], [1.0, 6.0]):
        p.grad = od.Variable(np.array(g), device="cuda")
        with ops.use_kernels("cuda"):
            optimizer.step()
    assert launches == ["update"] * 2
    np.testing.assert_array_equal(p.numpy(), [1.0, -4.0])


def test_a_step_without_memory_changes_nothing(standin, launches):
    params = parameters("float64")
    before = [p.numpy() for p in params]
    optimizer = optim.Adam(params, 0.1)
    for p, g in zip(params, arrays("float64", 0), strict=True):
        p.grad = od.Variable(g, device="cuda")
    device = od.devices.cuda(0)
    optimizer.step()
    after = [p.numpy() for p in params]
    device.memory_limit = device.memory_stats()["in_use"] + 600
    with (
        ops.use_kernels("cuda"),
        pytest.raises(DeviceMemoryError, match="Out of memory"),
    ):
        optimizer.step()
    device.memory_limit = None
    assert launches == []
    for p, old, new in zip(params, before, after, strict=True):
        assert p.numpy().tobytes() == new.tobytes()
        assert p.size == 0 or new.tobytes() != old.tobytes()
    with ops.use_kernels("cuda"):
        optimizer.step()
    assert launches == ["update"]
