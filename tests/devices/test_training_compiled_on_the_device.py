"""Training by compiled functions on a device: what a step leaves is what an eager step leaves.

The stand-in runs the kernels of CUDA programs on the CPU, and products in float64. Values of
float32 are within 3e-7 of those of eager calls with such products, relative to the largest one of
an array, or within 3e-7 of those of float64, from which NumPy's are up to 1e-6 away.
"""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, ops
from odyssey.compiler.cuda.host_launcher import HostLauncher
from support.on_device import (
    DEVICE,
    assert_equal_bits,
    batch_of,
    constant,
    decoder_loss,
    decoder_weights,
    host,
    is_on_device,
    leaf,
    loss_of,
    parameters_of,
)
from support.optimizers import OPTIMIZERS, shapes_for
from support.standin import CUPY, DeviceArray

pytestmark = [
    pytest.mark.usefixtures("standin"),
    pytest.mark.filterwarnings("error::odyssey.errors.CompileWarning"),
]


class Training:
    """Parameters on a device, their optimizer, and a step that leaves its gradients.

    Args:
        name: A workload of ``support.on_device``, or "decoder".
        device: The device.
        dtype: The dtype of parameters and floating arguments.
        compiled: Whether the step is compiled.
    """

    def __init__(self, name, device, dtype="f4", compiled=False):
        self.device = device
        starts = decoder_weights(layers=1) if name == "decoder" else parameters_of(name)
        parameters = od.tree.map_tree(lambda a: leaf(a.astype(dtype), device), starts)
        self.leaves = od.tree.leaves(parameters)
        self.batch = batch_of_decoder() if name == "decoder" else batch_of(name)
        self.batch = [a.astype(dtype) if a.dtype == np.float32 else a for a in self.batch]
        self.batch = [constant(a, device) for a in self.batch]
        rate = 1e-4 if name in ("W4", "W4m") else 0.01
        adam = name in ("digits", "decoder")
        self.optimizer = (
            od.optim.AdamW(parameters, rate)
            if adam
            else od.optim.SGD(parameters, rate, momentum=0.9)
        )

        def step(*batch):
            self.optimizer.zero_grad()
            with GradientTape() as tape:
                if name == "decoder":
                    loss = decoder_loss(parameters, *batch)
                else:
                    loss = loss_of(name, parameters, *batch)
            tape.backward(loss)
            self.optimizer.step()
            return loss

        self.step = od.compile(step, fullgraph=True) if compiled else step

    def run(self):
        """Make one step; return the loss, the parameters, their gradients and states."""
        loss = self.step(*self.batch)
        states = [{n: s[n] for n in sorted(s)} for s in self.optimizer.state_dict()["state"]]
        assert all(is_on_device(p) == is_on_device(p.grad) for p in self.leaves)
        found = [loss, *self.leaves, *[p.grad for p in self.leaves], *od.tree.leaves(states)]
        return [np.array(host(one)) for one in found]

    def take_over(self, other):
        """Take over the parameters and the states of another one."""

        def moved(a):
            return constant(host(a), self.device) if is_on_device(a) else a

        for own, its in zip(self.leaves, other.leaves, strict=True):
            own.assign(constant(host(its).astype(own.dtype), self.device))
        self.optimizer.load_state_dict(od.tree.map_tree(moved, other.state()))

    def state(self):
        return self.optimizer.state_dict()


def batch_of_decoder():
    tokens = np.random.RandomState(5).randint(0, 11, (2, 6))
    return tokens[:, :-1], tokens[:, 1:].reshape(-1)


def product(a, b, out=None):
    """Return a product that is summed in float64 and rounded once.

    In float32 its bits would depend on the processor, for which NumPy's library chooses a kernel.
    """
    made = np.matmul(a.astype("f8"), b.astype("f8")).astype(np.result_type(a, b))
    if out is None:
        return made
    out[...] = made
    return out


@pytest.fixture
def exact_products(monkeypatch):
    """Let eager calls on the device round a product once, as its programs do."""
    monkeypatch.setattr(CUPY.matmul, "own", product)
    monkeypatch.setattr(DeviceArray, "__matmul__", lambda a, b: CUPY.matmul(a, b))
    monkeypatch.setattr(DeviceArray, "__rmatmul__", lambda b, a: CUPY.matmul(a, b))


LIMITS = {"W7": 3.5e-7}
"""Workloads with a value that is further away: a gradient of W7 is 3.3e-7 from the eager one."""


def assert_near(found, wanted, exact, limit):
    for one, other, true in zip(found, wanted, exact, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        scale = max(float(np.abs(true).max(initial=0)), 1e-30)
        apart = [float(np.abs(one.astype("f8") - a).max(initial=0)) / scale for a in (other, true)]
        assert min(apart) <= limit, apart


WORKLOADS = ["W1", "W4m", "W2", "W3", "W4", "W6", "W7", "digits", "decoder"]
QUICK = ("W1", "W4m")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in WORKLOADS]
)
def test_each_step_leaves_what_an_eager_step_leaves(name, exact_products):
    compiled = Training(name, DEVICE, compiled=True)
    eager, exact = Training(name, DEVICE), Training(name, "cpu", "f8")
    calls = 3 if name in QUICK else 4
    for k in range(calls):
        if k:
            eager.take_over(compiled)
            exact.take_over(compiled)
        found = compiled.run()
        assert_near(found, eager.run(), exact.run(), LIMITS.get(name, 3e-7))
    assert compiled.step.statistics() == (1, calls - 1, 1)
    assert "launched as one CUDA graph" in str(compiled.step.explain(*compiled.batch))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "W4m" else pytest.mark.slow) for n in WORKLOADS]
)
def test_the_order_of_threads_changes_no_bit(name, standin, monkeypatch):
    found = []
    for backward in (False, True):
        made = HostLauncher(backward=backward, has_graphs=True)
        monkeypatch.setattr(standin, "launcher", lambda index, made=made: made)
        training = Training(name, DEVICE, compiled=True)
        found.append([training.run() for _ in range(3)])
        assert training.step.statistics().native == 2
    assert_equal_bits(found[1], found[0])


# ------------------------------------------------------------------ what a step may do besides

W, X = (np.random.default_rng(k).standard_normal(shape) for k, shape in enumerate(((3, 2), (4, 3))))


class Small:
    """Two parameters of float64 with an optimizer."""

    def __init__(self, device, make=lambda p: od.optim.SGD(p, 0.1, momentum=0.9)):
        self.w, self.b = leaf(W, device, name="w"), leaf(np.zeros(2), device, name="b")
        self.optimizer = make([self.w, self.b])
        self.kept = None

    def backward(self, x):
        with GradientTape() as tape:
            loss = (ops.tanh(x @ self.w + self.b) ** 2).mean()
        tape.backward(loss)
        return loss

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def clip_by_norm(s, x):
    loss = s.backward(x)
    norm = od.optim.clip_grad_norm([s.w, s.b], 0.01)
    s.update()
    return loss, norm


def clip_by_global_norm(s, x):
    loss = s.backward(x)
    od.optim.clip_grad_global_norm([s.w, s.b], 0.01)
    s.update()
    return loss


def clip_by_value(s, x):
    loss = s.backward(x)
    od.optim.clip_grad_value([s.w, s.b], 0.01)
    s.optimizer.step()
    return loss


def accumulate(s, x):
    return s.backward(x)


def accumulate_and_step(s, x):
    loss = s.backward(x)
    s.optimizer.step()
    return loss


def two_sweeps(s, x):
    loss = s.backward(x) + s.backward(x * 2.0)
    s.update()
    return loss


def two_steps(s, x):
    first = s.backward(x)
    s.update()
    second = s.backward(x)
    s.update()
    return first, second


def return_gradients(s, x):
    loss = s.backward(x)
    return loss, s.w.grad, s.b.grad


def gradient_penalty(s, x):
    with GradientTape() as outer:
        with GradientTape(persistent=True) as tape:
            y = ops.tanh(x @ s.w).sum()
        slope = tape.gradient(y, s.w, create_graph=True)
        loss = (slope**2).sum() + y
    outer.backward(loss)
    s.b.grad = None
    s.optimizer.step(allow_missing=True)
    s.optimizer.zero_grad()
    return loss


STEPS = [clip_by_norm, clip_by_global_norm, clip_by_value, accumulate, accumulate_and_step]
STEPS += [two_sweeps, two_steps, return_gradients, gradient_penalty]


def assert_as_eager(make, step, calls=4):
    """What calls return and leave is the same on the host eagerly, and compiled on the device."""
    found = {}
    for device in ("cpu", DEVICE):
        world = make(device)
        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        seen = []
        for k in range(calls):
            result = run(world, constant(X + 0.1 * k, device))
            grads = [world.w.grad, world.b.grad]
            grads = [None if g is None else host(g) for g in grads]
            states = [{n: s[n] for n in sorted(s)} for s in world.optimizer.state_dict()["state"]]
            seen.append([result, world.w.detach(), world.b.detach(), grads, states])
        found[device] = [np.asarray(host(one)) for one in od.tree.leaves(seen) if one is not None]
    assert run.statistics() == (1, calls - 1, 1)
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14 * np.abs(other).max(initial=1.0))


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_another_form_leaves_what_it_leaves_on_the_host(step):
    assert_as_eager(Small, step)


SCHEDULES = {
    "step": lambda o: od.optim.StepLR(o, 2, 0.5),
    "exponential": lambda o: od.optim.ExponentialLR(o, 0.8),
    "warmup and cosine": lambda o: od.optim.WarmupCosineLR(o, 3, 8),
    "one cycle": lambda o: od.optim.OneCycleLR(o, 0.5, 9),
    "function": lambda o: od.optim.LambdaLR(o, lambda k: 0.9**k),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=list(SCHEDULES))
def test_a_schedule_steps_behind_each_run(schedule):
    def make(device):
        world = Small(device)
        world.kept = schedule(world.optimizer)
        return world

    def step(world, x):
        loss = world.backward(x)
        world.optimizer.step()
        world.kept.step()
        world.optimizer.zero_grad()
        return loss

    assert_as_eager(make, step, calls=5)


def test_groups_of_parameters_have_their_own_settings():
    def make(device):
        def groups(parameters):
            w, b = parameters
            return od.optim.Adam([{"params": [w], "learning_rate": 0.3}, {"params": [b]}], 0.1)

        return Small(device, groups)

    def step(world, x):
        loss = world.backward(x)
        world.update()
        return loss

    assert_as_eager(make, step)


@pytest.mark.share(8, rest="slow")
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_an_optimizer_steps_as_on_the_host(case):
    make, _, _, settings = OPTIMIZERS[case]
    shapes = shapes_for(make, [(2, 3), (3,), ()])
    found = {}
    for device in ("cpu", DEVICE):
        rng = np.random.default_rng(0)
        leaves = [leaf(rng.normal(0, 0.5, s), device) for s in shapes]
        optimizer = make(leaves, **settings)

        def step(x, leaves=leaves, optimizer=optimizer):
            with GradientTape() as tape:
                loss = sum((ops.tanh(p) * x).sum() for p in leaves)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        losses = [host(run(constant(np.array(1.0 + k), device))) for k in range(4)]
        states = [{n: s[n] for n in sorted(s)} for s in optimizer.state_dict()["state"]]
        found[device] = [*losses, *map(host, leaves), *map(host, od.tree.leaves(states))]
    assert run.statistics() == (1, 3, 1)
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * np.abs(other).max(initial=1.0))


@pytest.mark.parametrize("dtype", ["f2", "f4", "c8", "c16"])
def test_parameters_of_other_dtypes_step_as_on_the_host(dtype):
    found = {}
    for device in ("cpu", DEVICE):
        start = (W + 1j * W[::-1] if dtype[0] == "c" else W).astype(dtype)
        w, x = (
            leaf(start, device),
            constant((X * (1 + 0.5j if dtype[0] == "c" else 1)).astype(dtype), device),
        )
        optimizer = od.optim.Adam([w], 0.01)

        def step(x, w=w, optimizer=optimizer):
            with GradientTape() as tape:
                loss = (ops.absolute(x @ w) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        found[device] = [*[host(run(x)) for _ in range(3)], host(w)]
    assert run.statistics().native == 2
    bound = {"f2": 1e-3, "f4": 1e-6, "c8": 1e-6, "c16": 1e-13}[dtype]
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound * np.abs(other).max())


# ------------------------------------------------------------------ states that lie on the host


def test_a_loss_scaler_skips_steps_and_adapts_its_scale_as_on_the_host():
    found = {}
    for device in ("cpu", DEVICE):
        w = leaf(W, device)
        optimizer, scaler = od.optim.Adam([w], 0.1), od.optim.LossScaler(8.0, interval=2)

        def step(x, w=w, optimizer=optimizer, scaler=scaler):
            with GradientTape() as tape:
                loss = scaler.scale(((x @ w) ** 2).mean())
            tape.backward(loss)
            scaler.step(optimizer)
            optimizer.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        seen = []
        for k in range(7):
            x = X * np.array([np.inf if k in (2, 3, 5) else 1.0, 1.0, 1.0])
            with np.errstate(all="ignore"):
                loss = host(run(constant(x, device)))
            seen += [loss, host(w).copy(), np.float64(scaler.value)]
        found[device] = seen
    assert run.statistics() == (1, 6, 1)
    assert "waits for new values of states that lie on the CPU: scaler.scale" in str(
        run.explain(constant(X, DEVICE))
    )
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_dropout_draws_the_hosts_numbers_and_leaves_its_generator_where_it_is_there():
    found = {}
    for device in ("cpu", DEVICE):
        w, rng = leaf(W, device), od.Generator(7)
        optimizer = od.optim.SGD([w], 0.1)

        def step(x, w=w, rng=rng, optimizer=optimizer):
            with GradientTape() as tape:
                loss = (ops.dropout(x @ w, rate=0.5, rng=rng) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        losses = [host(run(constant(X, device))) for _ in range(4)]
        found[device] = [*losses, host(w)], rng.state
    assert run.statistics() == (1, 3, 1)
    assert found[DEVICE][1] == found["cpu"][1]
    for one, other in zip(found[DEVICE][0], found["cpu"][0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_a_state_on_the_host_is_copied_before_it_is_written_if_somebody_holds_it():
    count = od.Variable(np.zeros(3))

    @od.compile(fullgraph=True)
    def step(x):
        count.assign(count + 1.0)
        return x * 2.0

    held = []
    for _ in range(5):
        step(constant(X, DEVICE))
        held.append((count.detach(), count.numpy()))
    assert [(float(one.numpy()[0]), float(other[0])) for one, other in held] == [
        (k, k) for k in (1.0, 2.0, 3.0, 4.0, 5.0)
    ]
    assert step.statistics().native == 4


@pytest.mark.parametrize("make", [od.optim.SGD, od.optim.AdaGrad, od.optim.Adam])
def test_rows_of_a_table_step_as_on_the_host(make):
    found = {}
    for device in ("cpu", DEVICE):
        table = leaf(np.arange(12.0).reshape(6, 2), device, sparse_grad=True)
        optimizer = make([table], 0.1)

        def step(rows, table=table, optimizer=optimizer):
            with GradientTape() as tape:
                loss = (ops.embedding(rows, table) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        batches = [np.array(rows) for rows in ([1, 4, 1], [0, 5, 4], [2, 2, 2], [3, 0, 3])]
        found[device] = [*[host(run(constant(rows, device))) for rows in batches], host(table)]
    assert run.statistics() == (1, 3, 1)
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


# ------------------------------------------------------------------ generation with a cache

HEADS, DIM = 2, 4


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("dynamic", [None, {"tokens": {0: od.Dim("n")}}], ids=["each", "all"])
def test_a_decoder_with_a_cache_generates_the_hosts_tokens(window, dynamic):
    found = {}
    for device in ("cpu", DEVICE):
        rng = np.random.default_rng(0)
        width = HEADS * DIM
        weights = [od.Variable(rng.normal(size=(width, width)) / 3, device=device) for _ in "qkv"]
        table = od.Variable(rng.normal(size=(11, width)), device=device)
        shapes = {"k": (HEADS, DIM), "v": (HEADS, DIM)}
        cache = od.Cache(shapes, capacity=32, dtype="float64", window=window, device=device)

        def forward(tokens, weights=weights, table=table, cache=cache):
            n, x = tokens.shape[0], ops.embedding(tokens, table)
            q, k, v = (
                ops.transpose(ops.reshape(x @ w, (n, HEADS, DIM)), (1, 0, 2)) for w in weights
            )
            keys, values, seen = cache[0].put(k=k, v=v)
            scores = ops.where(seen, q @ ops.matrix_transpose(keys) / 2.0, -np.inf)
            mixed = ops.softmax(scores, axis=-1) @ values
            x = x + ops.reshape(ops.transpose(mixed, (1, 0, 2)), x.shape)
            cache.advance(n)
            return ops.argmax(x[-1] @ ops.transpose(table))

        run = forward if device == "cpu" else od.compile(forward, fullgraph=True, dynamic=dynamic)
        prompts = [[1, 2, 3, 4, 5], *[None] * 6, [7, 8, 9], [1, 2, 3], None]
        told = []
        for prompt in prompts:
            tokens = np.array([told[-1]] if prompt is None else prompt)
            told.append(int(run(od.Variable(tokens, device=device)).item()))
        found[device] = told, len(cache)
    assert found[DEVICE] == found["cpu"]
    assert len(set(found["cpu"][0])) > 1
    # A program for each of two sizes that come again, and none for the prompt.
    assert run.statistics().native == 7 or dynamic
    assert run.statistics().native >= 6


def test_states_that_are_not_contiguous_are_read_and_written_where_they_lie():
    found = {}
    for device in ("cpu", DEVICE):
        v, held = leaf(np.zeros((3, 4)), device), constant(X, device)
        frozen = ops.transpose(od.Variable(X, device=device)).detach()
        v.assign(ops.transpose(od.Variable(X, device=device)))
        optimizer = od.optim.SGD([v], 0.1, momentum=0.9)

        def step(x, v=v, frozen=frozen, optimizer=optimizer):
            with GradientTape() as tape:
                loss = ((x @ v) ** 2).sum() + (v * frozen).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        found[device] = [*[host(run(held)) for _ in range(4)], host(v)]
    assert run.statistics() == (1, 3, 1)
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_elements_of_a_state_are_assigned_values_of_the_program():
    found = {}
    for device in ("cpu", DEVICE):
        memory = od.Variable(np.zeros((2, 3)), device=device)

        def step(x, memory=memory):
            memory[0] = memory[1, ::-1] * 0.5 + x.sum()
            memory[:, 1] = x[0]
            memory[1] = 2.0
            return memory.detach() * 2.0

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        found[device] = [host(run(constant(X[0] + k, device))) for k in range(3)] + [host(memory)]
    assert run.statistics() == (1, 2, 1)
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


@pytest.mark.parametrize("trains", [True, False], ids=["leaf", "constant"])
def test_elements_of_a_state_are_assigned_gradients_that_a_transform_returns(trains):
    found = {}
    for device in ("cpu", DEVICE):
        memory = od.Variable(np.zeros((2, 3)), requires_grad=trains, device=device)

        def step(x, memory=memory):
            slope = od.grad(lambda v: ops.sum(ops.tanh(v * v)))(x)  # no Variable
            memory[0] = slope
            memory[1, ::-1] = slope * x
            memory[1, 0] = slope[1]
            return memory.detach() * 2.0

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        found[device] = [host(run(constant(X[0] + k, device))) for k in range(3)] + [host(memory)]
    assert run.statistics() == (1, 2, 1)
    for one, other in zip(found[DEVICE], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
