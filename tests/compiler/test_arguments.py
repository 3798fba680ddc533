"""Arguments of compiled functions in any memory layout, and the results that they give."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.compiled_rows import check, outcome, plain, same_bits

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

SHAPE = (3, 5)


def unaligned(x):
    bytes_ = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:]
    return bytes_.view(x.dtype).reshape(x.shape)


def frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "as NumPy makes it": lambda x: x.copy(),
    "by columns": np.asfortranarray,
    "every other element": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "backwards": lambda x: np.flip(np.flip(x).copy()),
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "read-only": frozen,
    "broadcast": lambda x: np.broadcast_to(x[:1, :1], x.shape),
    "the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": unaligned,
    "in a record": lambda x: x.view([("a", x.dtype)])["a"],
    "part of a larger one": lambda x: np.pad(x, 2, constant_values=np.nan)[2:-2, 2:-2],
    "a subclass": lambda x: x.view(type("Mine", (np.ndarray,), {})),
    "half precision": lambda x: x.astype(np.float16),
    "double": lambda x: x.astype(np.float64),
    "single": lambda x: x.astype(np.float32),
    "long double": lambda x: x.astype(np.longdouble),
    "integers": lambda x: (x * 10).astype(np.int16),
    "truth values": lambda x: x > 0,
    "complex": lambda x: x + 1j,
    "empty": lambda x: x[:0],
    "of no axes": lambda x: np.asarray(x[0, 0]),
    "a NumPy number": lambda x: x[0, 0],
    "a Python number": lambda x: float(x[0, 0]),
    "an int": lambda x: int(10 * x[0, 0]),
    "a truth value": lambda x: bool(x[0, 0] > 0),
    "a constant Variable": Variable,
    "a leaf": lambda x: Variable(x, requires_grad=True),
    "a list": lambda x: x.tolist(),
    "objects": lambda x: x.astype(object),
    "text": lambda x: x.astype(str),
    "nothing": lambda x: None,
}
W = Variable(np.linspace(0.5, 1.5, 5), name="W")
FUNCTIONS = {
    "elementwise": lambda x: ops.maximum(ops.multiply(x, 2.0), -0.5),
    "a sum": lambda x: ops.sum(ops.tanh(x)),
    "sums along rows": lambda x: ops.sum(x, axis=-1),
    "a view": lambda x: ops.transpose(x),
    "a product": lambda x: ops.matmul(ops.transpose(x), x),
    "picked": lambda x: ops.take(x, np.array([1, 0, -1]), axis=0),
    "itself": lambda x: x,
    "beside a state": lambda x: ops.add(x, W) * 0.5,
    "two uses": lambda x: (ops.sort(x, axis=-1), ops.square(x) + x),
}


@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_an_argument_may_lie_in_any_way_and_be_of_any_kind(fn, lay):
    rng = np.random.default_rng(0)
    check(fn, [(lay(rng.normal(size=SHAPE)),) for _ in range(4)])


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_layouts_and_dtypes_may_change_from_call_to_call(fn):
    rng = np.random.default_rng(1)
    ways = [lay for name, lay in LAYOUTS.items() if name not in ("objects", "text", "nothing")]
    compiled = od.compile(fn)
    for k in rng.permutation(2 * len(ways)):
        x = rng.normal(size=SHAPE)
        args = (ways[k % len(ways)](x),)
        check(fn, [args, args], compiled=compiled, what=list(LAYOUTS)[k % len(ways)])


@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (0, 4), (4, 0), (1, 1, 1), (3,), (67, 3)], ids=str
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "complex64", "bool"])
def test_shapes_without_elements_and_without_axes_are_no_exception(shape, dtype):
    rng = np.random.default_rng(2)
    calls = [(rng.uniform(-3, 3, shape).astype(dtype),) for _ in range(3)]
    check(lambda x: (ops.add(x, 1), ops.sum(x), ops.reshape(x, -1), ops.expand_dims(x, 0)), calls)
    check(lambda x: (ops.max(x), ops.argmax(x)), calls)  # of no elements it is refused
    check(lambda x: ops.mean(ops.multiply(x, x)), calls)


# ------------------------------------------------------------------ arrays that share memory


def leaf(name="w"):
    return Variable(np.linspace(-1.0, 1.0, 15).reshape(SHAPE), requires_grad=True, name=name)


def worlds(make):
    """An eager and a compiled step, each with a leaf of its own, from one ``make(w)``."""
    one, two = leaf(), leaf()
    return (one, make(one)), (two, od.compile(make(two)))


def descending(w):
    optimizer = od.optim.SGD([w], 0.1, momentum=0.9)

    def step(x):
        with GradientTape() as tape:
            loss = ops.sum(ops.square(w * x)) + ops.sum(w[:, ::-1] * x)
        tape.backward(loss)
        optimizer.step()
        return loss, w * 1.0

    return step


def assigning(w):
    def step(x):
        w.assign(x[::-1] + w * 0.5)
        w[0] = x[1] * 2.0
        w[:, 1:] = w[:, :-1]
        return w * 1.0, x * 1.0

    return step


OVERLAPPING = {
    "the state's own array": lambda w: w.numpy(),
    "part of it backwards": lambda w: w.numpy()[::-1, ::-1],
    "its rows shifted": lambda w: np.concatenate([w.numpy()[1:], w.numpy()[:1]]),
    "its first row for all": lambda w: np.broadcast_to(w.numpy()[0], SHAPE),
    "its data": lambda w: w.data,
    "itself": lambda w: w,
    "itself detached": lambda w: w.detach(),
    "its gradient": lambda w: np.ones(SHAPE) if w.grad is None else w.grad,
}


@pytest.mark.parametrize("given", OVERLAPPING.values(), ids=OVERLAPPING)
@pytest.mark.parametrize("make", [descending, assigning], ids=["descending", "assigning"])
def test_an_argument_may_be_the_memory_of_a_state(make, given):
    (w, eager), (v, compiled) = worlds(make)
    for k in range(5):
        wanted, error = outcome(eager, (given(w),))
        got, other = outcome(compiled, (given(v),))
        assert error == other, k
        for a, b in zip(got or (), wanted or (), strict=True):
            np.testing.assert_allclose(plain(a), plain(b), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=1e-13, atol=1e-15)
        assert (v.grad is None) == (w.grad is None)
        if w.grad is not None:
            np.testing.assert_allclose(v.grad, w.grad, rtol=1e-13, atol=1e-15)


def test_one_array_may_come_twice_and_beside_a_part_of_itself():
    def fn(x, y, z):
        return x + y[:, ::-1], ops.multiply(y, z), ops.sum(x * z)

    rng = np.random.default_rng(3)
    calls = []
    for _ in range(4):
        x = rng.normal(size=(4, 4))
        calls.append((x, x, x.T))
    check(fn, calls)


# ------------------------------------------------------------------ what comes back

RESULTS = {
    "an argument": lambda x, w, k: x,
    "a view of an argument": lambda x, w, k: ops.transpose(x),
    "a part of an argument": lambda x, w, k: x[1:],
    "an argument twice": lambda x, w, k: [x, x],
    "a state": lambda x, w, k: w,
    "a view of a state": lambda x, w, k: ops.reshape(w, -1),
    "a captured array": lambda x, w, k: k,
    "a view of a captured array": lambda x, w, k: ops.transpose(k),
    "an array of one number": lambda x, w, k: np.ones(3),
    "numbers and words": lambda x, w, k: {"a": 2.5, "b": "word", "c": None, "d": True, "e": (x,)},
    "the same result twice": lambda x, w, k: [y := x * 2.0, y],
    "a number of no axes": lambda x, w, k: ops.sum(x),
    "a result of a state alone": lambda x, w, k: w * 2.0,
    "nothing": lambda x, w, k: None,
    "no arrays": lambda x, w, k: [],
}


@pytest.mark.parametrize("what", RESULTS.values(), ids=RESULTS)
def test_what_comes_back_is_shared_as_the_function_shares_it(what):
    w, k = leaf(), np.arange(15.0).reshape(SHAPE)
    arguments = [np.full(SHAPE, float(n)) for n in range(4)]
    fn = lambda x: what(x, w, k)  # noqa: E731
    compiled = od.compile(fn)
    kept = []
    for x in arguments:
        wanted, got = fn(x), compiled(x)
        assert type(got) is type(wanted)
        assert [path for path, _ in od.tree.paths(got)] == [p for p, _ in od.tree.paths(wanted)]
        pairs = list(zip(od.tree.leaves(got), od.tree.leaves(wanted), strict=True))
        for a, b in pairs:
            assert type(a) is type(b)
            if isinstance(b, (np.ndarray, np.generic, Variable)):
                assert same_bits(a, b)
            else:
                assert a == b
            for owner in (x, w, k):
                assert (a is owner) == (b is owner)
        arrays = [a for a, _ in pairs if isinstance(a, np.ndarray)]
        wants = [b for _, b in pairs if isinstance(b, np.ndarray)]
        for a, b in zip(arrays, wants, strict=True):
            assert a.flags.writeable == b.flags.writeable
            assert np.shares_memory(a, x) == np.shares_memory(b, x)
            assert np.shares_memory(a, k) == np.shares_memory(b, k)
        assert [a is arrays[0] for a in arrays] == [b is wants[0] for b in wants]
        kept.append([(a, np.array(a)) for a in arrays])
        for a in arrays:
            for others in kept[:-1]:  # no call writes to what another gave
                for b, as_it_was in others:
                    assert not np.shares_memory(a, b) or np.shares_memory(a, k)
                    np.testing.assert_array_equal(b, as_it_was)


def test_gradients_and_results_of_a_call_stay_as_they_are_at_later_calls():
    (w, eager), (v, compiled) = worlds(descending)
    rng = np.random.default_rng(4)
    kept = []
    for _ in range(4):
        x = rng.normal(size=SHAPE)
        for leaf_, step in ((w, eager), (v, compiled)):
            leaf_.grad = None
            found = [*map(plain, step(x)), leaf_.grad]
            kept.append((found, [np.array(a) for a in found]))
    for found, as_they_were in kept:
        for a, b in zip(found, as_they_were, strict=True):
            np.testing.assert_array_equal(a, b)


def test_writing_to_a_gradient_that_a_call_left_is_seen_by_the_next():
    (w, eager), (v, compiled) = worlds(descending)
    x = np.linspace(0.5, 1.5, 15).reshape(SHAPE)
    for k in range(5):
        for leaf_, step in ((w, eager), (v, compiled)):
            step(x)
            leaf_.grad[k % 3] = 7.0
            assert leaf_.grad.flags.writeable
    np.testing.assert_allclose(v.grad, w.grad, rtol=1e-13)
    np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=1e-13)


@pytest.mark.parametrize("count", [10, 21, 130])
def test_a_function_takes_any_number_of_arrays(count):
    given = [np.full(3, float(k)) for k in range(count)]
    total = od.compile(lambda *arrays: sum(arrays) * 1.0, check=True)
    assert [total(*given)[0] for _ in range(3)] == [count * (count - 1) / 2] * 3
    assert total.statistics().native == 2
