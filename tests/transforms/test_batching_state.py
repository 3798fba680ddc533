"""Tapes, writes and random numbers in a function that vmap runs."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, SettingError, ShapeError, TapeError
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store

RNG = np.random.default_rng(11)
W = RNG.normal(size=(3, 3))
X = RNG.normal(size=(4, 3))


def of_each(fn, xs=X):
    return np.stack([np.asarray(fn(x)) for x in xs])


def assert_equal(found, wanted):
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-11, atol=1e-11)


def compiled(fn, *args):
    program = od.compile(fn)
    program(*args)
    found = program(*args)
    assert program.explain(*args).startswith("a program")
    return found


def assert_nothing_is_left():
    assert store() is MEMORY
    assert scopes() == (None,)


# ------------------------------------------------------------------ tapes in the mapped function


def swept(kind):
    def fn(w, x):
        with GradientTape(persistent=kind == "persistent", check=kind == "check") as tape:
            v = tape.watch(w)
            y = (ops.sin(x @ v) ** 2).sum()
            if kind == "hook":
                tape.on_gradient(v, lambda g: g * 2)
        if kind == "jvp":
            return tape.jvp(y, [v], [np.ones((3, 3))])
        found = tape.gradient(y, v)
        return found + tape.gradient(y, v) if kind == "persistent" else found

    return fn


@pytest.mark.parametrize("kind", ["plain", "persistent", "check", "hook", "jvp"])
def test_a_tape_in_the_function_sweeps_each_example(kind):
    fn = swept(kind)
    wanted = of_each(lambda x: fn(W, x))
    assert_equal(od.vmap(fn, (None, 0))(W, X), wanted)
    program = od.compile(od.vmap(fn, (None, 0)))
    for _ in range(2):
        assert_equal(program(W, X), wanted)


def test_a_variable_of_a_tape_outside_is_watched_inside():
    def fn(w, x):
        with GradientTape() as tape:
            v = tape.watch(w)
            y = (ops.sin(x @ v) ** 2).sum()
        return (tape.gradient(y, v) ** 2).sum()

    wanted = of_each(lambda x: od.grad(fn)(W, x)).sum(0)
    assert_equal(od.grad(lambda w: od.vmap(lambda x: fn(w, x))(X).sum())(W), wanted)
    assert_equal(od.grad(lambda w: od.vmap(fn, (None, 0))(w, X).sum())(W), wanted)


def stopped(w, x):
    return (od.stop_gradient(x @ w) * (x @ w)).sum()


def paused(w, x):
    with od.no_grad():
        held = x @ w
    return (held * (x @ w)).sum()


@pytest.mark.parametrize("fn", [stopped, paused])
def test_a_gradient_is_stopped_for_tapes_inside_and_outside(fn):
    wanted = np.stack([np.outer(x, x @ W) for x in X])
    assert_equal(od.vmap(od.grad(fn), (None, 0))(W, X), wanted)
    total = lambda w: od.vmap(fn, (None, 0))(w, X).sum()  # noqa: E731
    assert_equal(od.grad(total)(W), wanted.sum(0))
    assert_equal(compiled(od.grad(total), W), wanted.sum(0))


LAYER = od.checkpoint(lambda w, x: ops.sin(ops.tanh(x @ w) * 2))


def two_layers(w, x):
    return (LAYER(w, LAYER(w, x)) ** 2).sum()


def squared_slope(w, x):
    return (od.grad(two_layers)(w, x) ** 2).sum()


@pytest.mark.parametrize("fn", [two_layers, squared_slope])
def test_checkpoints_are_run_again_inside_and_outside(fn):
    wanted = of_each(lambda x: od.grad(fn)(W, x))
    assert_equal(od.vmap(od.grad(fn), (None, 0))(W, X), wanted)
    total = lambda w: od.vmap(fn, (None, 0))(w, X).sum()  # noqa: E731
    assert_equal(od.grad(total)(W), wanted.sum(0))
    assert_equal(compiled(od.grad(total), W), wanted.sum(0))


def test_a_tape_outside_keeps_no_results_from_within_a_checkpoint():
    def chain(tree, *, times):
        x = tree["x"]
        for _ in range(times):
            x = ops.sin(x * shift)
        return {"y": x, "name": tree["name"], "shift": shift}

    x, shift = np.full((50, 40), 0.5), Variable(np.ones(40), requires_grad=True)
    total, found = [], []
    for fn in (chain, od.checkpoint(chain)):
        with GradientTape() as tape:
            v = tape.watch(x)
            y = od.vmap(lambda x, fn=fn: fn({"x": x, "name": "x"}, times=10)["y"].sum())(v).sum()
        total.append(tape.memory().total)
        found.append(tape.gradient(y, [v, shift]))
    assert total[1] < 0.2 * total[0]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_variables_and_optimizers_of_the_function_are_written_to():
    def fn(x):
        v = Variable(W, requires_grad=True)
        optimizer = od.optim.Adam([v], 0.1)
        for _ in range(3):
            with GradientTape() as tape:
                loss = ((x @ v) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        u = Variable(x * 1.0)
        u[1] = 5.0
        return v * 1.0 + u

    wanted = of_each(fn)
    assert_equal(od.vmap(fn)(X), wanted)
    assert_equal(compiled(od.vmap(fn), X), wanted)


# ------------------------------------------------------------------ writes to what is outside


class Outside:
    """Objects that a mapped function finds, and all that may change of them."""

    def __init__(self):
        self.w = Variable(W.copy(), requires_grad=True)
        self.w.grad = np.ones((3, 3))
        self.constant = Variable(np.ones(3))
        self.optimizer = od.optim.Adam([self.w], 0.1)
        self.average = od.optim.EMA([self.w], 0.9)
        self.w.assign(2 * W)
        self.mean, self.var = Variable(np.zeros(3)), Variable(np.ones(3))
        self.rng = od.Generator(3)

    def state(self):
        variables = self.w, self.constant, self.mean, self.var
        return repr(
            [
                [v.numpy() for v in variables],
                [v.requires_grad for v in variables],
                [self.w.grad, self.constant.grad],
                self.optimizer.state_dict(),
                self.average.state_dict(),
                self.rng.state,
            ]
        )

    def sweep(self, x):
        with GradientTape() as tape:
            loss = ((x @ self.w) ** 2).sum()
        tape.backward(loss)

    def normalize(self, x):
        rows = ops.stack([x, 2 * x])
        od.nn.batch_norm(rows, self.mean, self.var, training=True)

    def add_in_place(self, x):
        self.w += x


DOORS = {
    "assign": (lambda o, x: o.w.assign(x @ o.w), "assign: "),
    "assign shared": (lambda o, x: o.w.assign(W), "assign: "),
    "assign a constant": (lambda o, x: o.constant.assign(x), "assign: "),
    "item of a constant": (lambda o, x: o.constant.__setitem__(0, x.sum()), "item assignment: "),
    "item of a leaf": (lambda o, x: o.w.__setitem__(0, x), "assign: "),
    "data": (lambda o, x: setattr(o.w, "data", o.w * x), "assign: "),
    "grad": (lambda o, x: setattr(o.w, "grad", o.w * x), "gradient: "),
    "no grad": (lambda o, x: setattr(o.w, "grad", None), "gradient: "),
    "zero_grad": (lambda o, x: o.w.zero_grad(), "gradient: "),
    "requires_grad": (lambda o, x: setattr(o.w, "requires_grad", False), "requires_grad: "),
    "backward": (lambda o, x: o.sweep(x), "gradient: "),
    "step": (lambda o, x: o.optimizer.step(), "gradient: "),
    "zero_grad of all": (lambda o, x: o.optimizer.zero_grad(), "gradient: "),
    "clip": (lambda o, x: od.optim.clip_grad_norm([o.w], 1.0), "gradient: "),
    "rate": (lambda o, x: setattr(o.optimizer, "learning_rate", 0.5), "learning_rate: "),
    "schedule": (lambda o, x: od.optim.StepLR(o.optimizer, 3).step(), "learning_rate: "),
    "load_state_dict": (
        lambda o, x: o.optimizer.load_state_dict(od.optim.Adam([o.w], 0.5).state_dict()),
        "learning_rate",
    ),
    "average": (lambda o, x: o.average.update(), "assign: "),
    "swap": (lambda o, x: o.average.swap(), "EMA.swap: "),
    "L-BFGS": (lambda o, x: od.optim.LBFGS([o.w]).step(lambda: 1.0), "LBFGS.step: "),
    "running statistics": (lambda o, x: o.normalize(x), "assign: "),
    "state of a generator": (
        lambda o, x: setattr(o.rng, "state", od.Generator(8).state),
        "Generator.state: ",
    ),
    "seed": (lambda o, x: od.seed(3), "Generator.state: "),
    "save": (lambda o, x: od.save("never-written.npz", {"w": o.w}), "save: "),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_write_to_what_is_outside_is_refused_and_changes_nothing(door):
    write, who = DOORS[door]
    outside = Outside()
    before = outside.state()

    def fn(x):
        write(outside, x)
        return x * 1.0

    with pytest.raises(TapeError, match=rf"(?s)^{who}.*vmap"):
        od.vmap(fn)(X)
    assert outside.state() == before
    assert_nothing_is_left()


# ------------------------------------------------------------------ random numbers


def generators(seed=7):
    return od.Generator(seed).split(4)


def states(rngs):
    return [rng.state for rng in rngs]


DRAWS = {
    "uniform": lambda rng, x: x * rng.uniform(size=3),
    "an odd number of normals": lambda rng, x: rng.normal(size=(3,)) * rng.uniform(size=5)[0],
    "integers": lambda rng, x: rng.integers(5, size=4),
    "bernoulli": lambda rng, x: rng.bernoulli(0.4, size=7),
    "categorical": lambda rng, x: rng.categorical(x, size=(6,)),
    "permutation": lambda rng, x: rng.permutation(x),
    "gamma": lambda rng, x: rng.gamma(2.0, size=3),
    "dropout": lambda rng, x: ops.dropout(x, rate=0.5, rng=rng),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_a_list_of_generators_gives_each_example_the_draws_of_its_own(draw):
    fn = DRAWS[draw]
    one, all_at_once, in_programs = generators(), generators(), generators()
    program = od.compile(od.vmap(fn))
    for _ in range(3):
        wanted = np.stack([np.asarray(fn(rng, x)) for rng, x in zip(one, X, strict=True)])
        np.testing.assert_array_equal(od.vmap(fn)(all_at_once, X), wanted)
        assert_equal(program(in_programs, X), wanted)
    assert program.explain(in_programs, X).startswith("a program")
    assert states(one) == states(all_at_once) == states(in_programs)


def test_generators_may_stand_in_trees_and_chunks_and_be_shared():
    fn = lambda tree, x: tree["r"].uniform(size=3) * x + tree["shared"].uniform()  # noqa: E731
    one, rngs = generators(), generators()
    shared = od.Generator(3).uniform()
    wanted = np.stack([rng.uniform(size=3) * x + shared for rng, x in zip(one, X, strict=True)])
    tree = {"r": tuple(rngs), "shared": od.Generator(3)}
    axes = {"r": 0, "shared": None}
    np.testing.assert_array_equal(od.vmap(fn, (axes, 0))(tree, X), wanted)
    assert states(one) == states(rngs)
    draw = lambda rng: rng.normal(size=2)  # noqa: E731
    for chunk in (None, 3):
        wanted = np.stack([draw(rng) for rng in one])
        np.testing.assert_array_equal(od.vmap(draw, chunk=chunk)(rngs), wanted)
    assert states(one) == states(rngs)
    unmapped = od.vmap(lambda rngs, x: x + rngs[2].uniform(), (None, 0))
    np.testing.assert_array_equal(unmapped(rngs, X), X + one[2].uniform())


def test_a_generator_of_an_example_draws_once_for_an_inner_batch():
    one, rngs = generators(), generators()
    fn = lambda rng, x: od.vmap(lambda y: y * rng.uniform())(x)  # noqa: E731
    wanted = np.stack([x * rng.uniform() for rng, x in zip(one, X, strict=True)])
    np.testing.assert_array_equal(od.vmap(fn)(rngs, X), wanted)
    assert states(one) == states(rngs)


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_checkpoint_repeats_the_draws_of_each_example(where):
    layer = od.checkpoint(lambda x, rng: ops.sin(x * rng.uniform(size=3)).sum())
    one, rngs = generators(), generators()
    wanted = np.stack([od.grad(layer)(x, rng) for x, rng in zip(X, one, strict=True)])
    if where == "inside":
        found = od.vmap(od.grad(layer))(X, rngs)
    else:
        found = od.grad(lambda xs: od.vmap(layer)(xs, rngs).sum())(X)
    assert_equal(found, wanted)
    assert states(one) == states(rngs)


def test_a_generator_that_examples_share_draws_once():
    rng, other = od.Generator(5), od.Generator(5)
    found = od.vmap(lambda x: x * rng.uniform(size=3))(X)
    np.testing.assert_array_equal(found, X * other.uniform(size=3))
    assert rng.state == other.state


def test_generators_of_examples_stay_where_they_are_if_the_function_raises():
    rngs = generators()

    def fn(rng, x):
        rng.uniform()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        od.vmap(fn)(rngs, X)
    assert states(rngs) == states(generators())
    assert_nothing_is_left()


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (lambda f: od.vmap(f)([od.Generator(1)] * 4, X), SettingError, "at 0 and 1.*split"),
        (lambda f: od.vmap(f)(generators()[:3], X), ShapeError, "argument 0 has 3, argument 1"),
        (lambda f: od.vmap(f, (1, 0))(generators(), X), ShapeError, "has no axis 1"),
        (lambda f: od.vmap(f)(od.Generator(1), X), DTypeError, "argument 0 is a Generator"),
        (lambda f: od.vmap(lambda r: r.state["state"]["key"])(generators()), TapeError, "state of"),
        (lambda f: od.vmap(lambda r: r.split(2)[0].uniform())(generators()), TapeError, "vmap"),
    ],
    ids=["twice", "sizes", "axis", "single", "state", "split"],
)
def test_lists_of_generators_that_fit_no_batch_are_refused(call, kind, match):
    with pytest.raises(kind, match=match):
        call(lambda rng, x: x * rng.uniform())
    assert_nothing_is_left()
