"""L-BFGS: against torch, at minima that are known, with compiled closures, saved, interrupted."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, MissingGradientError, OdysseyError, SettingError
from odyssey.optim import LBFGS

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 5)), (RNG.random(40) < 0.5).astype(float)
START = {"w": RNG.normal(size=5), "b": np.array(0.3)}


def logistic(w, b, x=X, y=Y, log1p=np.log1p, exp=np.exp, absolute=abs):
    z = (x @ w + b) * (1 - 2 * y)
    stable = log1p(exp(-absolute(z))) + (z + absolute(z)) / 2
    return stable.mean() + 0.05 * (w * w).sum()


def rosenbrock(w, b):
    return (100.0 * (w[1:] - w[:-1] ** 2) ** 2 + (1.0 - w[:-1]) ** 2).sum() + b**2


def quartic(w, b):
    return ((w - 1.5) ** 4).sum() + (b * w.sum()) ** 2 + b**2


FUNCTIONS = {"logistic": logistic, "rosenbrock": rosenbrock, "quartic": quartic}


def leaves(dtype=np.float64):
    return {name: Variable(value.astype(dtype), True, name=name) for name, value in START.items()}


def closure_of(name, params):
    named = {}
    if name == "logistic":
        named = {"log1p": od.ops.log1p, "exp": od.ops.exp, "absolute": od.ops.absolute}

    def closure():
        with GradientTape() as tape:
            loss = FUNCTIONS[name](params["w"], params["b"], **named)
        tape.backward(loss)
        return loss

    return closure


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_minimum_is_found(name, compiled):
    params = leaves()
    closure = closure_of(name, params)
    optimizer = LBFGS(params, max_iter=100, tolerance_grad=1e-9, tolerance_change=0.0)
    loss = optimizer.step(od.compile(closure) if compiled else closure)
    assert float(loss) == pytest.approx(FUNCTIONS[name](**START), rel=1e-13)
    closure()
    assert max(abs(p.grad).max() for p in params.values()) < 1e-6
    if name == "rosenbrock":
        np.testing.assert_allclose(params["w"].numpy(), np.ones(5), atol=1e-6)


def test_the_direction_of_a_quadratic_ends_at_the_solution():
    a = np.diag([1.0, 10.0, 100.0])
    w = Variable(np.ones(3), True)

    def closure():
        with GradientTape() as tape:
            loss = 0.5 * (w @ a @ w) - w.sum()
        tape.backward(loss)
        return loss

    LBFGS(w, max_iter=60, tolerance_grad=1e-12, tolerance_change=0.0).step(closure)
    np.testing.assert_allclose(w.numpy(), [1.0, 0.1, 0.01], rtol=1e-9)


def test_complex_and_float32_parameters_move():
    z, w = Variable(np.array([1 + 2j, -1j]), True), Variable(np.float32([3.0, -2.0]), True)
    target = np.array([2 - 1j, 0.5])

    def closure():
        with GradientTape() as tape:
            loss = (abs(z - target) ** 2).sum() + ((w - 1.0) ** 2).sum()
        tape.backward(loss)
        return loss

    LBFGS([z, w], max_iter=30).step(closure)
    np.testing.assert_allclose(z.numpy(), target, atol=1e-6)
    np.testing.assert_allclose(w.numpy(), [1.0, 1.0], atol=1e-6)
    assert w.dtype == np.float32


def test_saved_in_the_middle_it_goes_on_exactly(tmp_path):
    def run(steps, params, optimizer):
        for _ in range(steps):
            optimizer.step(closure_of("rosenbrock", params))

    params = leaves()
    optimizer = LBFGS(params, max_iter=3)
    run(3, params, optimizer)
    path = tmp_path / "lbfgs.npz"
    od.save(path, {"params": params, "optimizer": optimizer})
    run(3, params, optimizer)
    others = leaves()
    again = LBFGS(others, max_iter=3)
    od.load(path, like={"params": others, "optimizer": again})
    run(3, others, again)
    for name, p in params.items():
        np.testing.assert_array_equal(others[name].numpy(), p.numpy())
    for wrong in ({}, again.state_dict() | {"iterations": -1}, again.state_dict() | {"steps": []}):
        with pytest.raises(OdysseyError):
            again.load_state_dict(wrong)
    with pytest.raises(OdysseyError, match="has shape"):
        LBFGS(Variable(np.ones(2), True)).load_state_dict(again.state_dict())


@pytest.mark.parametrize("failing", range(1, 8))
def test_whatever_a_closure_raises_the_parameters_are_those_before_the_step(failing):
    params = leaves()
    optimizer, calls = LBFGS(params), []

    def closure():
        calls.append(1)
        if len(calls) == failing:
            raise KeyboardInterrupt
        return closure_of("rosenbrock", params)()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    for name, p in params.items():
        np.testing.assert_array_equal(p.numpy(), START[name])
    assert optimizer.state_dict()["iterations"] == 0


def test_what_cannot_be_stepped_is_refused():
    params = leaves()
    with pytest.raises(MissingGradientError, match="parameter w has no gradient"):
        LBFGS(params).step(lambda: 1.0)

    def nothing():
        closure_of("quartic", params)()

    with pytest.raises(DTypeError, match="the closure returned None; return the loss"):
        LBFGS(params).step(nothing)
    for named, error in (
        ({"max_iter": 0}, SettingError),
        ({"line_search_fn": "armijo"}, OdysseyError),
        ({"learning_rate": -1.0}, SettingError),
    ):
        with pytest.raises(error, match=next(iter(named))):
            LBFGS(params, **named)
    with pytest.raises(DTypeError, match=r"\[0\] is .*pass trainable Variables"):
        LBFGS([np.ones(2)])


@pytest.mark.peers
@pytest.mark.parametrize("search", ["strong_wolfe", None])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_steps_equal_those_of_torch(name, search):
    torch = pytest.importorskip("torch")
    options = {"line_search_fn": search, "max_iter": 4, "history_size": 3}
    if search is None:
        options["learning_rate"] = 1e-3 if name == "rosenbrock" else 0.1
    tensors = {n: torch.tensor(v, requires_grad=True) for n, v in START.items()}
    lr = options.get("learning_rate", 1.0)
    named = {n: v for n, v in options.items() if n != "learning_rate"}
    theirs = torch.optim.LBFGS(list(tensors.values()), lr=lr, **named)
    more = {}
    if name == "logistic":
        more = {"x": torch.tensor(X), "y": torch.tensor(Y), "log1p": torch.log1p}
        more |= {"exp": torch.exp, "absolute": torch.abs}

    def closure():
        theirs.zero_grad()
        loss = FUNCTIONS[name](**tensors, **more)
        loss.backward()
        return loss

    params = leaves()
    ours = LBFGS(params, **options)
    for _ in range(5):
        got, wanted = ours.step(closure_of(name, params)), theirs.step(closure)
        assert float(got) == pytest.approx(wanted.item(), rel=1e-10)
        for n, p in params.items():
            np.testing.assert_allclose(p.numpy(), tensors[n].detach().numpy(), rtol=1e-9, atol=1e-9)
