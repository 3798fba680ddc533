"""Training on a device: losses, gradients and states equal those of the host, bit for bit."""

import weakref

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import MissingGradientError
from support.on_device import (
    DEVICE,
    assert_equal_bits,
    assert_same_on_both,
    constant,
    decoder_loss,
    decoder_weights,
    host,
    is_on_device,
    leaf,
    on_both,
    train,
)
from support.optimizers import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("standin")

WORKLOADS = ["W1", "W2", "W3", "W4", "W4m", "W6", "W7", "digits"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_losses_gradients_and_states_of_a_workload_equal_the_hosts(name):
    found = assert_same_on_both(lambda device: train(name, device, steps=2 if name == "W7" else 3))
    assert all(map(is_on_device, found["losses"]))
    assert all(is_on_device(g) for step in found["gradients"] for g in step)
    assert all(map(is_on_device, found["parameters"]))


def test_a_decoder_with_dropout_trains_as_on_the_host():
    tokens = np.random.RandomState(5).randint(0, 11, (2, 6))

    def program(device):
        weights = od.tree.map_tree(lambda a: leaf(a, device), decoder_weights())
        x = constant(tokens[:, :-1], device)
        y = constant(tokens[:, 1:].reshape(-1), device)
        optimizer = od.optim.AdamW(weights, 0.01)
        rng, losses = od.Generator(7), []
        for _ in range(2):
            with GradientTape() as tape:
                loss = decoder_loss(weights, x, y, rng)
            tape.backward(loss)
            od.optim.clip_grad_global_norm(weights, 0.1)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return losses, weights, optimizer.state_dict()["state"]

    assert_same_on_both(program)


# ------------------------------------------------------------------ tapes


def test_backward_gradient_and_jvp_stay_on_the_device():
    def program(device):
        x = leaf([1.0, 2.0, 3.0], device)
        with GradientTape(persistent=True) as tape:
            y = ops.sin(x) * x
            loss = y.sum()
        tape.backward(loss)
        ones = np.ones(3)  # numbers of the host come to the device of their value
        return [
            x.grad,
            tape.gradient(loss, x),
            tape.gradient(y, x, ones),
            tape.gradient([y, loss], [x, y], [ones, 1.0]),
            tape.jvp(y, x, ones),
            tape.gradient(loss, [x, leaf([4.0], device)], unused="zero"),
        ]

    assert all(map(is_on_device, od.tree.leaves(assert_same_on_both(program))))


def test_gradients_add_up_on_the_device():
    def program(device):
        x = leaf([1.0, 2.0], device)
        for _ in range(3):
            with GradientTape() as tape:
                y = (x * x).sum()
            tape.backward(y)
        return x.grad

    np.testing.assert_array_equal(host(assert_same_on_both(program)), [6.0, 12.0])


def test_a_recorded_sweep_is_differentiated_on_the_device():
    def program(device):
        x = leaf([0.5, 2.0], device)
        with GradientTape(persistent=True) as tape:
            y = (ops.exp(x) * x).sum()
        slope = tape.gradient(y, x, create_graph=True)
        return slope.detach(), tape.gradient(slope, x, constant(np.ones(2), device))

    assert_same_on_both(program)


def test_hooks_get_arrays_of_the_device_and_may_answer_with_numbers_of_the_host():
    shown = []

    def hook(g):
        shown.append(g)
        return [10.0, 20.0]

    x = leaf([1.0, 2.0], DEVICE)
    with GradientTape() as tape:
        y = x * 3.0
        z = y.sum()
    tape.on_gradient(y, hook)
    tape.backward(z)
    assert is_on_device(shown[0])
    np.testing.assert_array_equal(host(x.grad), [30.0, 60.0])


def test_intermediates_die_with_their_last_name_and_leaves_live():
    x = leaf([1.0, 2.0], DEVICE)
    with GradientTape() as tape:
        y = ops.exp(x)
        kept = ops.sin(y)
        dropped = ops.sin(x)
        dead = weakref.ref(dropped)
        array = weakref.ref(dropped._array)
        del dropped
        assert dead() is None
        assert array() is None
        loss = kept.sum()
    tape.backward(loss)
    del tape, y, kept, loss
    assert x.grad is not None


def test_a_consumed_tape_holds_no_array_of_the_device():
    x = leaf(np.ones(1000), DEVICE)
    with GradientTape() as tape:
        y = ops.exp(ops.sin(x))
        loss = y.sum()
    inner = weakref.ref(y._array)
    del y
    assert tape.memory().total >= 8000
    tape.backward(loss)
    assert inner() is None


def test_reports_and_checks_of_a_tape_work_on_the_device():
    x = leaf([1.0, 0.0], DEVICE, name="x")
    with np.errstate(all="ignore"):
        with GradientTape(check=True) as tape:
            y = ops.log(x).sum()
        with pytest.raises(od.errors.NonFiniteError, match=r"log .*-inf, log of 0.0 at \[1\]"):
            tape.backward(y)
    assert [node.op for node in tape.nodes] == ["log", "sum"]
    assert "x" in str(tape.explain(y, x))


@pytest.mark.parametrize("saved", ["bfloat16", "float16"])
def test_a_tape_that_saves_halves_gives_the_hosts_gradients(saved):
    data = np.linspace(-1.0, 1.0, 2000, dtype=np.float32)

    def program(device):
        x = leaf(data, device)
        with GradientTape(saved=saved) as tape:
            y = (ops.exp(x) * ops.sin(x)).sum()
        size = tape.memory().total
        tape.backward(y)
        return x.grad, np.int64(size)

    assert_same_on_both(program)


def test_a_gradient_flows_through_host_and_device_to_where_each_leaf_lies():
    def program(device):
        w, v = leaf([1.0, 2.0], device), leaf([3.0, 4.0], "cpu")
        with GradientTape() as tape:
            z = (ops.exp(w) * w).to("cpu") * v
            loss = (z * z).sum()
        tape.backward(loss)
        assert not is_on_device(v.grad)
        return w.grad, v.grad

    assert is_on_device(assert_same_on_both(program)[0])


def test_all_that_training_makes_lies_on_the_device_of_that_number():
    w = leaf([1.0, 2.0], "cuda:1", name="w")
    optimizer = od.optim.Adam([w], 0.1)
    with GradientTape() as tape:
        noise = ops.random_normal((2,), mean=w.detach(), rng=od.Generator(7))
        loss = (ops.maximum(w, 1.0) * noise).sum()
    tape.backward(loss)
    optimizer.step()
    mean = optimizer._state[0]["mean"]
    hessian = Variable(od.hessian(lambda x: (x**3).sum())(w.data))
    assert {str(v.device) for v in (w, noise, mean, hessian)} == {"cuda:1"}
    assert str(Variable(w.grad).device) == "cuda:1"
    assert "device='cuda:1'" in repr(w)


# ------------------------------------------------------------------ transforms


def _point(device, data=((0.5, 1.5), (-1.0, 2.0))):
    array = np.array(data)
    return array if device == "cpu" else Variable(array, device=device).data


def _f(x):
    return (ops.exp(x) * ops.sin(x) @ x).sum()


TRANSFORMS = {
    "grad": lambda x: od.grad(_f)(x),
    "value_and_grad": lambda x: od.value_and_grad(_f)(x),
    "jvp": lambda x: od.jvp(_f, (x,), (x,)),
    "vjp": lambda x: od.vjp(ops.sin, x)[1](x),
    "hvp": lambda x: od.hvp(_f, (x,), (x,)),
    "jacobian": lambda x: od.jacobian(lambda x: ops.sin(x) @ x)(x),
    "jacobian to fewer": lambda x: od.jacobian(lambda x: ops.sin(x).sum(0))(x),
    "hessian": lambda x: od.hessian(_f)(x),
    "vmap": lambda x: od.vmap(lambda row: ops.softmax(row) * row.sum())(x),
    "gradients of examples": lambda x: od.vmap(od.grad(lambda row: ops.exp(row).sum()))(x),
    "checkpoint": lambda x: od.grad(
        lambda x: od.checkpoint(lambda x: ops.matmul(ops.sin(x), x))(x).sum()
    )(x),
    "gradient of grad": lambda x: od.grad(lambda x: (od.grad(_f)(x) ** 2).sum())(x),
    "zero": lambda x: od.grad(lambda x, y: (x * x).sum(), argnums=(0, 1))(x, x),
    "scan": lambda x: od.scan(
        lambda c, row: (ops.add(c, ops.sin(row)), ops.multiply(c, row)), x[0], x
    ),
    "scan from a number": lambda x: od.scan(lambda c, row: (ops.add(c, row), c), 0.0, x[0]),
    "custom_vjp": lambda x: od.grad(lambda x: _cube(x).sum())(x),
    "ravel": lambda x: od.tree.ravel({"a": x, "b": x[0]})[0],
}


@od.custom_vjp
def _cube(x):
    return ops.power(x, 3)


_cube.defvjp(lambda x: (ops.power(x, 3), x), lambda x, g: (ops.multiply(ops.power(x, 2), 3.0 * g),))


@pytest.mark.filterwarnings("ignore::odyssey.errors.IndependentWarning")
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))
def test_a_transform_of_arrays_of_the_device_gives_arrays_of_the_device(transform):
    found = assert_same_on_both(lambda device: transform(_point(device)))
    assert all(map(is_on_device, od.tree.leaves(found)))


def test_gradients_are_checked_on_the_device():
    x = Variable([0.5, 1.5], device=DEVICE)
    assert od.testing.check_gradients(lambda x: ops.exp(x) * ops.sin(x), x, order=2) < 1e-6


HALF_LOSSES = {
    "cross entropy": lambda x, y: od.losses.cross_entropy(x, y),
    "cross entropy of shares": lambda x, y: od.losses.cross_entropy(x, x.detach() * 0.25),
    "squared error": lambda x, y: od.losses.mean_squared_error(x, x.detach() * 0.5),
    "absolute error": lambda x, y: od.losses.mean_absolute_error(x, x.detach() * 0.5),
}


@pytest.mark.parametrize("loss", HALF_LOSSES.values(), ids=list(HALF_LOSSES))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_losses_of_half_precision_are_those_of_the_host(loss, dtype):
    def program(device):
        x = leaf(np.array([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]], np.float32), device)
        classes = constant(np.array([0, 2]), device)
        with GradientTape() as tape:
            value = loss(ops.astype(x, dtype), classes)
        tape.backward(value)
        return ops.astype(value.detach(), np.float32), x.grad

    assert_same_on_both(program)


# ------------------------------------------------------------------ optimizers


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_an_optimizer_steps_on_the_device_as_on_the_host(case):
    make, _, _, settings = OPTIMIZERS[case]
    shapes = [(3, 2), (4, 4)]

    def program(device):
        rng = np.random.RandomState(2)
        params = [leaf(rng.standard_normal(shape), device) for shape in shapes]
        optimizer = make(params, **settings)
        for _ in range(3):
            for p in params:
                p.grad = rng.standard_normal(p.shape)
            optimizer.step()
        states = [{n: s[n] for n in sorted(s)} for s in optimizer.state_dict()["state"]]
        return params, states

    params, _ = assert_same_on_both(program)
    assert all(map(is_on_device, params))


@pytest.mark.parametrize("dtype", [np.float16, np.complex64])
def test_half_and_complex_parameters_step_as_on_the_host(dtype):
    def program(device):
        p = leaf(np.array([1.0, -2.0], dtype), device)
        optimizer = od.optim.Adam([p], 0.1)
        for _ in range(3):
            p.grad = np.array([0.5, 3.0], dtype)
            optimizer.step()
        state = optimizer.state_dict()["state"][0]
        return p, {name: state[name] for name in sorted(state)}

    assert_same_on_both(program)


def test_a_step_without_a_gradient_changes_nothing():
    p, q = leaf([1.0], DEVICE), leaf([2.0], DEVICE)
    optimizer = od.optim.Adam([p, q], 0.1)
    p.grad = [1.0]
    with pytest.raises(MissingGradientError, match="has no gradient"):
        optimizer.step()
    np.testing.assert_array_equal(host(p), [1.0])
    optimizer.step(allow_missing=True)
    assert host(p)[0] < 1.0
    np.testing.assert_array_equal(host(q), [2.0])


def test_a_step_that_fails_leaves_all_parameters_and_states():
    calls = []

    def step(g, state, p):
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("no memory left")
        return ops.subtract(p, g), state

    p, q = leaf([1.0], DEVICE), leaf([2.0], DEVICE)
    p.grad = q.grad = [0.5]
    optimizer = od.optim.Optimizer([p, q], lambda: od.optim.Rule((), step))
    with pytest.raises(MemoryError):
        optimizer.step()
    assert [host(v)[0] for v in (p, q)] == [1.0, 2.0]


def test_a_snapshot_keeps_its_numbers_when_an_optimizer_steps():
    p = leaf([1.0], DEVICE)
    before = p.detach()
    p.grad = [1.0]
    od.optim.SGD([p], 0.5).step()
    np.testing.assert_array_equal([host(before)[0], host(p)[0]], [1.0, 0.5])


def test_parameters_of_host_and_device_share_an_optimizer():
    p, q = leaf([1.0], "cpu"), leaf([1.0], DEVICE)
    optimizer = od.optim.Adam([p, q], 0.1)
    p.grad = q.grad = [0.25]
    optimizer.step()
    assert not is_on_device(p)
    assert is_on_device(q)
    assert_equal_bits(q, p)


@pytest.mark.parametrize("make", [od.optim.SGD, od.optim.AdaGrad, od.optim.Adam])
def test_sparse_gradients_update_as_on_the_host(make):
    def program(device):
        table = leaf(np.arange(12.0).reshape(6, 2), device, sparse_grad=True)
        optimizer = make([table], 0.1)
        for rows in ([1, 4, 1], [0, 5, 4]):
            with GradientTape() as tape:
                y = (ops.embedding(constant(np.array(rows), device), table) ** 2).sum()
            tape.backward(y)
            optimizer.step()
        return table, table.grad

    assert_same_on_both(program)


def test_averages_scaler_and_clipping_work_as_on_the_host():
    def program(device):
        p = leaf(np.array([1.0, 2.0], np.float16), device)
        optimizer, scaler = od.optim.SGD([p], 0.1), od.optim.LossScaler(8.0)
        ema = od.optim.EMA([p], 0.5)
        for _ in range(2):
            with GradientTape() as tape:
                loss = scaler.scale((p * p).sum())
            tape.backward(loss)
            scaler.unscale(optimizer)
            od.optim.clip_grad_norm([p], 1.0)
            od.optim.clip_grad_value([p], 0.75)
            scaler.step(optimizer)
            ema.update()
        ema.swap()
        return p, ema.averages[0], np.float64(scaler.value)

    assert_same_on_both(program)


def test_a_scaler_skips_a_step_whose_gradients_are_infinite():
    p = leaf(np.array([1.0], np.float32), DEVICE)
    optimizer, scaler = od.optim.SGD([p], 0.1), od.optim.LossScaler(8.0)
    p.grad = [np.inf]
    scaler.step(optimizer)
    assert (host(p)[0], scaler.value) == (1.0, 4.0)


def test_lbfgs_minimizes_on_the_device():
    w = leaf([-1.0, 2.0], DEVICE)

    def rosenbrock():
        with GradientTape() as tape:
            loss = (1.0 - w[0]) ** 2 + 100.0 * (w[1] - w[0] ** 2) ** 2
        tape.backward(loss)
        return loss

    od.optim.LBFGS([w], max_iter=60).step(rosenbrock)
    np.testing.assert_allclose(host(w), [1.0, 1.0], rtol=1e-6)


# ------------------------------------------------------------------ random numbers


def test_philox_on_arrays_gives_numpys_bits():
    from odyssey.ops.random.generator import random_bits
    from odyssey.ops.random.philox_on_arrays import philox_bits

    for words in ([1, 2, 3], [2**64 - 1, 5, 2**64 - 2]):
        state = np.array(words, np.uint64)
        for purpose, trial, count in ((0, 0, 11), (1, 3, 4), (0, 0, 0)):
            np.testing.assert_array_equal(
                philox_bits(np, state, count, purpose, trial),
                random_bits(state, count, purpose, trial),
            )


def test_random_numbers_of_one_seed_are_those_of_the_host():
    def program(device):
        rng = od.Generator(7)
        one, logits = constant(np.array(1.0), device), constant(np.eye(3), device)
        return [
            ops.random_normal((5,), mean=one, rng=rng),
            ops.random_uniform((2, 3), high=one, rng=rng),
            ops.random_exponential((3,), scale=one, rng=rng),
            ops.random_bernoulli((9,), p=one * 0.5, rng=rng),
            ops.random_categorical(logits, shape=(4, 3), rng=rng),
            ops.random_permutation(logits, rng=rng),
            ops.dropout(logits, rate=0.5, rng=rng),
        ]

    assert all(map(is_on_device, assert_same_on_both(program)))


def test_initial_values_come_to_the_device_as_they_were_drawn():
    drawn = od.init.he_normal(od.Generator(7), (4, 3))
    assert_equal_bits(leaf(drawn, DEVICE), drawn)


# ------------------------------------------------------------------ NumPy's functions


NUMPY = {
    "sin": lambda x: np.sin(x),
    "add": lambda x: np.add(x, x),
    "concatenate": lambda x: np.concatenate([x, x]),
    "stack": lambda x: np.stack([x, x]),
    "where": lambda x: np.where(x > 0, x, 0.0),
    "sum": lambda x: np.sum(x, axis=0),
    "mean": lambda x: np.mean(x),
    "matmul": lambda x: x @ np.transpose(x),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "argmax": lambda x: np.argmax(x, axis=1),
    "isfinite": lambda x: np.isfinite(x),
}


@pytest.mark.parametrize("call", NUMPY.values(), ids=list(NUMPY))
def test_numpys_functions_take_variables_of_the_device(call):
    data = np.array([[1.0, -2.0], [0.25, 4.0]])
    found = assert_same_on_both(lambda device: call(leaf(data, device)))
    assert is_on_device(found)


# ------------------------------------------------------------------ saving and the rest


@pytest.mark.parametrize("target", ["cpu", DEVICE])
@pytest.mark.parametrize("source", ["cpu", DEVICE])
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_what_was_saved_is_loaded_to_the_device_of_the_target(tmp_path, source, target, ending):
    path = str(tmp_path / f"model.{ending}")
    data = np.array([[1.0, -0.0], [np.inf, 2.5]], np.float32)
    od.save(path, {"w": leaf(data, source)})
    model = {"w": leaf(np.zeros((2, 2), np.float32), target)}
    od.load(path, model)
    assert is_on_device(model["w"]) == (target == DEVICE)
    assert_equal_bits(model["w"], data)


def test_training_goes_on_from_a_file_as_it_would_have(tmp_path):
    path = str(tmp_path / "run.npz")

    def trained(p, optimizer, steps):
        for k in range(steps):
            p.grad = np.array([0.5, -1.0]) * (k + 1)
            optimizer.step()

    def new():
        p = leaf([1.0, 2.0], DEVICE)
        return p, od.optim.Adam([p], 0.1)

    p, optimizer = new()
    trained(p, optimizer, 2)
    od.save(path, {"p": p, "optimizer": optimizer})
    q, other = new()
    od.load(path, {"p": q, "optimizer": other})
    trained(p, optimizer, 2)
    trained(q, other, 2)
    assert_equal_bits(q, p)
    assert is_on_device(q)


def test_a_cache_on_the_device_gives_the_hosts_rows():
    rng = np.random.RandomState(0)
    rows = [rng.standard_normal((2, n, 4)).astype(np.float32) for n in (3, 1, 2)]

    def program(device):
        cache = od.Cache({"k": (2, 4)}, capacity=8, device=device)
        found = []
        for one in rows:
            found += [host(v) for v in cache[0].put(k=constant(one, device))]
            cache.advance(one.shape[1])
        cache.truncate(4)
        return [*found, cache.state_dict()["rows"]["k"][0]]

    assert_same_on_both(program)


def test_a_metric_log_takes_losses_of_the_device(tmp_path):
    path = str(tmp_path / "log.jsonl")
    with od.MetricLog(path) as log:
        log.log(1, loss=Variable(0.5, device=DEVICE))
    assert "0.5" in (tmp_path / "log.jsonl").read_text()


def test_an_objective_of_scipy_computes_on_the_device():
    wanted, got = on_both(
        lambda device: od.optim.scipy_objective(
            lambda p: (ops.exp(p["w"]) * p["w"]).sum(), {"w": leaf([0.5, 1.0], device)}
        )(np.array([0.25, -1.0]))
    )
    assert_equal_bits(got, wanted)
