"""Compiled functions of arrays on a device run as CUDA programs there.

The stand-in runs the text of the kernels on the CPU. Sums have another order than NumPy's, so
results are compared within a few roundings.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import odyssey as od

pytestmark = [
    pytest.mark.usefixtures("standin"),
    pytest.mark.filterwarnings("error::odyssey.errors.CompileWarning"),
]

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 6)).astype("f4"), RNG.integers(0, 3, 8)
START = [RNG.standard_normal(s).astype("f4") for s in ((6, 5), (5,), (5, 3), (3,))]


def classifier(device, optimizer=od.optim.Adam):
    """A step of a small classifier, its parameters and its optimizer."""
    p = [od.Variable(a, requires_grad=True, device=device) for a in START]
    update = optimizer(p, 0.1)

    def step(x, y):
        with od.GradientTape() as tape:
            loss = od.losses.cross_entropy(od.ops.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y)
        tape.backward(loss)
        update.step()
        update.zero_grad()
        return loss

    return step, p, update


def on(device, *arrays):
    return [od.Variable(a, device=device) for a in arrays]


@pytest.mark.parametrize("optimizer", [od.optim.SGD, od.optim.Adam])
def test_a_compiled_step_leaves_what_the_eager_step_leaves(optimizer):
    found, parameters = {}, {}
    for device, compiled in (("cpu", False), ("cuda", False), ("cuda", True)):
        step, p, _ = classifier(device, optimizer)
        step = od.compile(step, fullgraph=True) if compiled else step
        batch = on(device, X, Y)
        found[device, compiled] = [step(*batch).item() for _ in range(6)]
        parameters[device, compiled] = [one.numpy() for one in p]
    assert step.statistics() == (1, 5, 1)
    assert found["cpu", False] == found["cuda", False]
    np.testing.assert_allclose(found["cuda", True], found["cpu", False], rtol=2e-6)
    for one, other in zip(parameters["cuda", True], parameters["cpu", False], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_results_and_states_stay_on_the_device():
    step, p, _ = classifier("cuda")
    step = od.compile(step)
    losses = [step(*on("cuda", X, Y)) for _ in range(3)]
    assert {str(one.device) for one in (*losses, *p)} == {"cuda:0"}
    assert len({loss.item() for loss in losses}) == 3  # each has memory of its own


def test_a_failed_check_raises_what_the_function_raises_and_changes_nothing():
    step, p, update = classifier("cuda")
    compiled = od.compile(step, fullgraph=True)
    batch = on("cuda", X, Y)
    for _ in range(4):
        compiled(*batch)
    before = [one.numpy() for one in p], od.tree.leaves(update.state_dict())
    wrong = Y.copy()
    wrong[3] = 7
    for _ in range(2):
        with pytest.raises(od.errors.ShapeError, match=r"class numbers lie in \[0, 7\]"):
            compiled(*on("cuda", X, wrong))
    after = [one.numpy() for one in p], od.tree.leaves(update.state_dict())
    for one, other in zip(od.tree.leaves(before), od.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(one, other)
    runs = compiled.statistics().native
    compiled(*batch)
    assert compiled.statistics().native == runs + 1


def test_a_learning_rate_that_is_assigned_is_sent_to_the_next_run():
    losses = {}
    for device in ("cpu", "cuda"):
        step, _, update = classifier(device, od.optim.SGD)
        step = od.compile(step)
        batch = on(device, X, Y)
        found = [step(*batch).item() for _ in range(3)]
        update.learning_rate = 0.01
        losses[device] = [*found, *[step(*batch).item() for _ in range(3)]]
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=2e-6)
    assert step.statistics().programs == 1


def test_a_state_that_somebody_else_holds_is_copied_before_it_is_written():
    w = od.Variable(np.ones(3), requires_grad=True, device="cuda")
    step = od.compile(lambda g: w.assign(w - g), fullgraph=True)
    g = od.Variable(np.full(3, 0.25), device="cuda")
    step(g), step(g)
    held = w.detach()
    step(g)
    step(g)
    np.testing.assert_array_equal(held.numpy(), np.full(3, 0.5))
    np.testing.assert_array_equal(w.numpy(), np.zeros(3))


def test_explain_names_the_device_and_what_it_is_given():
    step, _, _ = classifier("cuda")
    step = od.compile(step)
    batch = on("cuda", X, Y)
    for _ in range(3):
        step(*batch)
    said = str(step.explain(*batch))
    assert "on cuda:0: " in said
    assert "launched as one CUDA graph" in said
    assert "waits for 1 checks" in said


def test_a_device_that_an_object_holds_is_guarded():
    model = SimpleNamespace(device=od.devices.cuda(), scale=2.0)

    @od.compile(fullgraph=True)
    def step(x):
        return x * (model.scale if model.device == "cuda:0" else -model.scale)

    (x,) = on("cuda", np.ones(3))
    found = [step(x).numpy()[0] for _ in range(3)]
    model.device = od.devices.cpu
    found += [step(x).numpy()[0] for _ in range(3)]
    assert found == [2.0, 2.0, 2.0, -2.0, -2.0, -2.0]
    assert step.statistics() == (2, 4, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda device: device.memory_stats()["in_use"],
        lambda device: device.memory_limit,
        lambda device: device.cache_stats()["hits"],
        lambda device: device.synchronize(),
        lambda device: od.devices.cpu.reset_peak(),
        lambda device: od.devices.cuda(1).clear_cache(),
    ],
    ids=[
        *("memory_stats", "memory_limit", "cache_stats", "synchronize", "reset_peak"),
        "clear_cache",
    ],
)
def test_what_a_device_counts_or_does_is_no_constant_of_a_program(ask, request):
    device = od.devices.cuda()
    step = od.compile(lambda x: (x * 2.0, ask(device)), fullgraph=True)
    name = request.node.callspec.id
    with pytest.raises(od.errors.CompileError, match=f"uses {name} of .*Device, which may behave"):
        step(*on("cuda", np.ones(3)))


count = od.devices.cpu.memory_stats


@pytest.mark.parametrize(
    "step",
    [
        lambda x: (x * 2.0, x.device.memory_stats()["in_use"]),
        lambda x: (x * 2.0, (x * 2.0).device.memory_stats()["in_use"]),
        lambda x: (x * 2.0, count()["in_use"]),
    ],
    ids=["of an argument", "of a result", "a method"],
)
def test_what_a_device_counts_is_no_constant_however_it_is_reached(step):
    message = "uses memory_stats of .*, which may behave"
    with pytest.raises(od.errors.CompileError, match=message):
        od.compile(step, fullgraph=True)(*on("cuda", np.ones(3)))


def test_programs_of_a_card_are_not_tuned_or_profiled_and_keep_their_states():
    step, p, _ = classifier("cuda")
    step = od.compile(step)
    batch = on("cuda", X, Y)
    step.precompile(*batch)
    with pytest.raises(od.errors.SettingError, match=r"tune: .* on cuda:0, and ways are measured"):
        od.tune(step, *batch)
    with pytest.raises(od.errors.SettingError, match=r"profile: .* on cuda:0, whose kernels have"):
        step.profile(*batch)
    for one, start in zip(p, START, strict=True):
        np.testing.assert_array_equal(one.numpy(), start)


def test_the_memory_limit_is_checked_before_anything_runs(standin):
    w = od.Variable(np.ones((8, 8), "f4"), requires_grad=True, device="cuda")
    x = od.Variable(np.ones((8, 8), "f4"), device="cuda")
    runs = []

    def step(x):
        runs.append(1)
        return od.ops.tanh(x @ w) @ od.ops.exp(x @ w)

    with pytest.raises(od.errors.DeviceMemoryError, match="compile: a program needs"):
        od.compile(step, memory_limit=100)(x)
    assert od.compile(lambda x: od.ops.tanh(x @ w) @ w, memory_limit=10_000)(x).shape == (8, 8)


def test_arrays_on_two_devices_have_no_program():
    w = od.Variable(np.ones(3), device="cuda:1")
    step = od.compile(lambda x: (x * 2.0, w * 3.0), warn=False)
    x = od.Variable(np.ones(3), device="cuda:0")
    for _ in range(3):
        one, other = step(x)
    assert (str(one.device), str(other.device)) == ("cuda:0", "cuda:1")
    assert "lie on cuda:0 and cuda:1" in str(step.explain(x))


def test_programs_of_the_cpu_and_of_each_device_are_apart():
    double = od.compile(lambda x: od.ops.tanh(x) * 2.0)
    for _ in range(3):
        for device in ("cpu", "cuda:0", "cuda:1"):
            out = double(od.Variable(np.ones(3), device=device))
            assert str(out.device) == device
    assert double.statistics() == (3, 6, 3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_scaler_reads_its_new_scale_from_the_device():
    found = {}
    for compiled in (False, True):
        p = [od.Variable(a, requires_grad=True, device="cuda") for a in START]
        update, scaler = od.optim.SGD(p, 0.01), od.optim.LossScaler(interval=2)

        def step(x, y, p=p, update=update, scaler=scaler):
            with od.autocast("float16"), od.GradientTape() as tape:
                loss = od.losses.cross_entropy(od.ops.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y)
                scaled = scaler.scale(loss)
            tape.backward(scaled)
            scaler.step(update)
            update.zero_grad()
            return loss

        step = od.compile(step, fullgraph=True) if compiled else step
        batch, wrong = on("cuda", X, Y), on("cuda", X * np.float32(1e30), Y)
        scales = []
        for given in (batch, batch, wrong, batch):
            step(*given)
            scales.append(scaler.value)
        found[compiled] = scales, [one.numpy() for one in p]
    assert found[True][0] == found[False][0] == [2.0**15, 2.0**16, 2.0**15, 2.0**15]
    for one, other in zip(found[True][1], found[False][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)
    assert "waits for new values of states that lie on the CPU: scaler.scale" in str(
        step.explain(*batch)
    )
