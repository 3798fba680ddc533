"""Generators: known blocks, states, splitting, copies, threads, forks; what is replayed."""

import copy
import os
import pickle
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest

import odyssey as od
from odyssey import Generator, GradientTape, Variable, ops
from odyssey.errors import DTypeError, SettingError, TapeError

# The first block of key 0, as Random123 lists it in its kat_vectors: philox4x64 of 10 rounds.
KNOWN = "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"
TO_POINT = 2.0**-53


def uniform_by_numpy(key, count, counter=0):
    """By NumPy's own generator, whose counter steps before each block."""
    bits = np.random.Philox(key=key, counter=(counter - 1) % 2**256)
    return np.random.Generator(bits).random(count)


def test_the_first_block_of_a_key_is_the_one_that_its_authors_list():
    wanted = [(int(word, 16) >> 11) * TO_POINT for word in KNOWN.split()]
    np.testing.assert_array_equal(ops.random_uniform(4, rng=Generator(0)), wanted)


@pytest.mark.parametrize("key", [0, 7, 2**64 + 5, 2**128 - 1])
def test_uniform_numbers_are_those_of_numpys_philox(key):
    rng = Generator(key)
    np.testing.assert_array_equal(
        ops.random_uniform((3, 5), rng=rng).ravel(), uniform_by_numpy(key, 15)
    )
    np.testing.assert_array_equal(ops.random_uniform(2, rng=rng), uniform_by_numpy(key, 2, 4))
    assert rng.state["state"] == {"key": key, "counter": 5}


def test_an_element_depends_on_its_place_and_not_on_the_size_of_the_draw():
    whole = ops.random_uniform(16, rng=Generator(1))
    rng = Generator(1)
    parts = [ops.random_uniform(n, rng=rng) for n in (4, 8, 4)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    np.testing.assert_array_equal(
        ops.random_normal(16, rng=Generator(1))[:7], ops.random_normal(7, rng=Generator(1))
    )


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 24), ("float16", 11)])
def test_shorter_numbers_are_the_long_ones_rounded_down(dtype, digits):
    long = ops.random_uniform(1000, rng=Generator(3))
    short = ops.random_uniform(1000, dtype=dtype, rng=Generator(3))
    assert short.dtype == dtype
    np.testing.assert_array_equal(short, np.floor(long * 2.0**digits) / 2.0**digits)


def test_uniform_and_normal_numbers_have_their_moments():
    u = ops.random_uniform(100_000, low=-1.0, high=3.0, rng=Generator(5))
    z = ops.random_normal(100_001, mean=2.0, std=3.0, rng=Generator(5))
    assert u.min() >= -1.0
    assert u.max() < 3.0
    # Four standard errors.
    assert abs(u.mean() - 1.0) < 4 * np.sqrt(16 / 12 / u.size)
    assert abs(z.mean() - 2.0) < 4 * 3.0 / np.sqrt(z.size)
    assert abs(z.std() - 3.0) < 4 * 3.0 / np.sqrt(2 * z.size)
    for limit, share in ((1.0, 0.682689), (2.0, 0.954500), (3.0, 0.997300)):
        found = np.mean(np.abs(z - 2.0) < 3.0 * limit)
        assert abs(found - share) < 4 * np.sqrt(share * (1 - share) / z.size)
    halves = z[: z.size // 2 * 2].reshape(-1, 2)
    assert abs(np.corrcoef(halves.T)[0, 1]) < 4 / np.sqrt(len(halves))


def test_numbers_stay_below_high_where_they_would_round_to_it():
    low, high = np.float32(1.0), np.nextafter(np.float32(1), np.float32(2))
    got = ops.random_uniform(1000, low=low, high=high, dtype=np.float32, rng=Generator(0))
    np.testing.assert_array_equal(got, low)


def test_parameters_that_are_variables_have_gradients():
    mean, std = Variable(np.zeros(3), requires_grad=True), Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        z = ops.random_normal((4, 3), mean=mean, std=std, rng=Generator(1))
        u = ops.random_uniform((4, 3), low=mean, high=std, rng=Generator(2))
        y = z.sum() + u.sum()
    of_mean, of_std = tape.gradient(y, (mean, std))
    unit, share = (
        ops.random_normal((4, 3), rng=Generator(1)),
        ops.random_uniform((4, 3), rng=Generator(2)),
    )
    np.testing.assert_allclose(of_mean, 4 + (1 - share).sum(0), rtol=1e-13)
    np.testing.assert_allclose(of_std, unit.sum() + share.sum(), rtol=1e-12)


# ------------------------------------------------------------------ states


def test_a_state_that_is_set_goes_on_from_there():
    rng = Generator(4)
    ops.random_uniform(9, rng=rng)
    state = rng.state
    after = ops.random_uniform(5, rng=rng)
    rng.state = state
    np.testing.assert_array_equal(ops.random_uniform(5, rng=rng), after)
    other = Generator()
    other.state = state
    np.testing.assert_array_equal(ops.random_uniform(5, rng=other), after)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda rng: pickle.loads(pickle.dumps(rng))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_go_on_by_themselves(copied):
    rng = Generator(4)
    ops.random_uniform(9, rng=rng)
    other = copied(rng)
    first = ops.random_uniform(5, rng=other)
    np.testing.assert_array_equal(ops.random_uniform(5, rng=rng), first)
    assert repr(other) == repr(rng) == "Generator(key=4, counter=5)"


def test_saved_generators_go_on_where_they_stood(tmp_path):
    path, rng = tmp_path / "state.npz", Generator(2**100 + 1)
    rng.state = {**rng.state, "state": {"key": 2**100 + 1, "counter": 2**63 + 5}}
    od.save(path, {"rng": rng, "again": [rng]})
    wanted = ops.random_uniform(5, rng=rng)
    found = Generator(0)
    loaded = od.load(path, like={"rng": found, "again": [found]})
    assert loaded["rng"] is found
    np.testing.assert_array_equal(ops.random_uniform(5, rng=found), wanted)


@pytest.mark.parametrize(
    "state",
    [None, 3, {}, {"bit_generator": "PCG64", "state": {"key": 0, "counter": 0}}],
    ids=["nothing", "number", "empty", "another kind"],
)
def test_what_is_no_state_is_refused_and_changes_nothing(state):
    rng = Generator(4)
    with pytest.raises(DTypeError, match="is not a state"):
        rng.state = state
    assert rng.state == Generator(4).state


def test_states_and_seeds_out_of_range_are_refused():
    rng = Generator(4)
    for key, counter in ((2**128, 0), (0, 2**64), (-1, 0)):
        with pytest.raises(SettingError):
            rng.state = {**rng.state, "state": {"key": key, "counter": counter}}
    for seed, error in (
        (-1, SettingError),
        (2**128, SettingError),
        (0.5, DTypeError),
        ("a", DTypeError),
    ):
        with pytest.raises(error, match=r"^Generator: seed="):
            Generator(seed)


def test_generators_without_a_seed_differ():
    assert len({Generator().state["state"]["key"] for _ in range(10)}) == 10


def test_split_ones_differ_from_one_another_and_from_the_first_which_goes_on():
    rng, same = Generator(4), Generator(4)
    first, second = rng.split(3), rng.split(3)
    keys = {g.state["state"]["key"] for g in [rng, *first, *second]}
    assert len(keys) == 7
    assert [g.state for g in same.split(3)] == [g.state for g in first]
    assert rng.split(0) == []
    drawn = [ops.random_uniform(1000, rng=g) for g in (rng, *first)]
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 4 / np.sqrt(1000)


# ------------------------------------------------------------------ threads, interrupts, forks


def test_draws_of_many_threads_take_blocks_of_their_own():
    rng, found = Generator(4), []

    def draw():
        found.extend(ops.random_uniform(4, rng=rng)[0] for _ in range(200))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.sort(found), np.sort(uniform_by_numpy(4, 3200)[::4]))


def test_ctrl_c_leaves_whole_draws():
    rng = Generator(4)

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for k in range(60):
            counter = rng.state["state"]["counter"]
            with suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (k + 1))
                    ops.random_uniform(8, rng=rng)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert rng.state["state"]["counter"] - counter in (0, 2)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_draws_other_numbers_by_default_and_the_same_from_a_generator():
    rng = Generator(4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        drawn = [ops.random_uniform(2), ops.random_uniform(2, rng=rng)]
        os.write(write, np.concatenate(drawn).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32))
    os.close(read)
    os.close(write)
    assert (theirs[:2] != ops.random_uniform(2)).all()
    np.testing.assert_array_equal(theirs[2:], ops.random_uniform(2, rng=rng))


# ------------------------------------------------------------------ replayed


def noisy(rng):
    def layer(x, w):
        x = ops.dropout(x * w, rate=0.3, rng=rng)
        x = x + ops.random_normal(x.shape, std=w.sum(), rng=rng)
        return (x * ops.random_uniform(x.shape, rng=rng)).sum()

    return layer


X, W = np.random.default_rng(0).normal(size=(4, 6)), np.linspace(0.5, 2.0, 6)


@pytest.mark.parametrize("own", [False, True], ids=["given", "the process's own"])
def test_a_checkpoint_draws_the_same_numbers_again_and_the_generator_goes_on(own):
    rng = None if own else Generator(4)
    plain = Generator(4)
    hidden = [rng]  # what is drawn from tells of itself, wherever it is
    v, w = (Variable(a, requires_grad=True) for a in (X, W))
    with GradientTape() as tape:
        y = od.checkpoint(lambda x, w: noisy(hidden[0])(x, w))(v, w)
        between = ops.random_uniform(3, rng=rng)
    found = tape.gradient(y, (v, w))
    after = ops.random_uniform(3, rng=rng)
    assert (between != after).all()
    if own:
        return
    with GradientTape() as tape:
        z = noisy(plain)(v, w)
    assert float(z) == float(y)
    for got, wanted in zip(found, tape.gradient(z, (v, w)), strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(between, ops.random_uniform(3, rng=plain))
    np.testing.assert_array_equal(after, ops.random_uniform(3, rng=plain))


def test_second_derivatives_through_nested_checkpoints_draw_the_same():
    def bent(layer):
        def slope(w):
            return ops.sum(od.grad(lambda w: layer(X, ops.sin(w)) ** 2)(w) ** 2)

        return od.grad(slope)(W)

    def nested(rng):
        inner = od.checkpoint(noisy(rng))
        return od.checkpoint(lambda x, w: inner(x, w) * ops.random_uniform((), rng=rng))

    def plain(rng):
        inner = noisy(rng)
        return lambda x, w: inner(x, w) * ops.random_uniform((), rng=rng)

    rngs = Generator(4), Generator(4)
    np.testing.assert_allclose(bent(nested(rngs[0])), bent(plain(rngs[1])), rtol=1e-12)
    assert rngs[0].state == rngs[1].state


@pytest.mark.slow
def test_compiled_functions_and_their_graphs_draw_what_eager_ones_do():
    eager, compiled, graph, checked = (Generator(4) for _ in range(4))
    step = od.value_and_grad(noisy(eager), argnums=1)
    quick = od.compile(od.value_and_grad(noisy(compiled), argnums=1))
    under = od.compile(od.value_and_grad(od.checkpoint(noisy(checked)), argnums=1))
    lowered = od.compile(od.value_and_grad(noisy(graph), argnums=1)).lower(X, W)
    assert graph.state == Generator(4).state
    (value, slope), left = lowered.evaluate(X, W)
    for k in range(3):
        wanted = step(X, W)
        for got in (quick(X, W), under(X, W)):
            # But for the order of sums of few numbers.
            np.testing.assert_allclose(got[0], wanted[0], rtol=1e-14)
            np.testing.assert_allclose(got[1], wanted[1], rtol=1e-14)
        assert compiled.state == eager.state == checked.state
        if k == 0:
            np.testing.assert_allclose(value, wanted[0], rtol=1e-13)
            np.testing.assert_allclose(slope, wanted[1], rtol=1e-12)
            (words,) = left.values()
            assert words.tolist() == [4, 0, eager.state["state"]["counter"]]
    assert quick.statistics().native == under.statistics().native == 2


def test_the_process_s_own_generator_is_a_state_of_graphs():
    drawn = od.compile(lambda x: x + ops.random_uniform(x.shape))
    first, second = drawn(X), drawn(X)
    assert (first != second).all()
    assert (drawn(X) != second).all()
    assert drawn.statistics().native == 2
    assert len(drawn.lower(X).evaluate(X)[1]) == 1


DRAWS = {
    "dropout": lambda x, rng: od.nn.dropout(x, rng=rng),
    "after dropout": lambda x, rng: od.nn.dropout(od.nn.dropout(x, rng=rng), rng=rng),
    "uniform": lambda x, rng: x * ops.random_uniform(x.shape, rng=rng),
    "normal": lambda x, rng: (x, x * ops.random_normal(x.shape, rng=rng, dtype="float32")),
    "checkpoint": lambda x, rng: od.checkpoint(lambda h: od.nn.dropout(h, rng=rng))(x),
}


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_are_native_beside_eager_ones_and_states_that_are_set(draw):
    rng, other = Generator(2**64 + 3), Generator(2**64 + 3)
    compiled = od.compile(lambda x: draw(x, rng))
    start = rng.state
    for k in range(6):
        found, wanted = compiled(X), draw(X, other)
        np.testing.assert_array_equal(found[-1], wanted[-1])
        if k == 2:
            np.testing.assert_array_equal(draw(X, rng)[-1], draw(X, other)[-1])
        if k == 4:
            rng.state, other.state = start, start
        assert rng.state == other.state
    assert compiled.statistics().native == 5


def test_what_a_graph_cannot_repeat_is_refused():
    def seeded(x):
        return x + ops.random_uniform(x.shape, rng=Generator())

    def split(x):
        return x + ops.random_uniform(x.shape, rng=Generator(1).split(1)[0])

    rng = Generator(3)

    def asked(x):
        return x * rng.state["state"]["counter"]

    for function in (seeded, split, asked):
        with pytest.raises(TapeError, match="while a graph is traced"):
            od.compile(function)(X)


def test_a_custom_rule_that_draws_is_differentiated_twice_on_the_same_numbers():
    rng = Generator(4)

    @od.custom_vjp
    def scaled(x):
        return x * ops.random_uniform(x.shape, rng=rng)

    def forward(x):
        u = ops.random_uniform(x.shape, rng=rng)
        return x**2 * u, (x, u)

    scaled.defvjp(forward, lambda kept, g: (ops.mul(g, ops.mul(2.0, kept[0] * kept[1])),))
    bend = od.grad(lambda x: ops.sum(od.grad(lambda x: ops.sum(scaled(x)))(x)))(X)
    np.testing.assert_allclose(bend, 2 * ops.random_uniform(X.shape, rng=Generator(4)), rtol=1e-14)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_several_states_draw_the_numbers_of_each_generator(compiled):
    children = od.Generator(3).split(3)
    states = np.stack([np.asarray(child._state.numpy()) for child in children])

    def draws(state):
        return (
            ops.philox_uniform(state, shape=(5,)),
            ops.philox_integers(state, shape=(2, 3), low=0, high=9),
            ops.philox_normal(state, shape=(3,)),
            ops.philox_gamma(state, np.array([0.5, 4.0]), shape=(2,)),
        )

    mapped = od.vmap(draws)
    if compiled:
        mapped = od.compile(mapped)
        mapped(states)
    got = mapped(states)
    for k, child in enumerate(children):
        wanted = child.uniform(size=5)
        np.testing.assert_array_equal(got[0][k], wanted)
        for many, one in zip(got, draws(states[k]), strict=True):
            np.testing.assert_allclose(many[k], one, rtol=1e-15)
