"""Complex numbers in compiled functions: computed natively, and what eager calls give."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError
from odyssey.ops import OPS
from support.compiled_rows import check
from support.half_programs import is_native

pytestmark = pytest.mark.share(14)

DTYPES = ["complex64", "complex128"]
by_dtype = pytest.mark.parametrize("dtype", DTYPES)
# Where parts vanish, are infinite, NaN or as small and as large as can be.
VALUES = [0.0, -0.0, 1.0, -1.0, 2.5, -3.5, np.inf, -np.inf, np.nan, 1e-310, 1e300, 709.5, -745.2]
GRID = np.array([complex(a, b) for a, b in itertools.product(VALUES, VALUES)])
# No multiple of a vector's length, and so with a rest.
FEW = np.array([complex(a, b) for a, b in itertools.product(VALUES[:9], VALUES[:9])])

NATIVE = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "equal": lambda x, y: ops.equal(x, y),
    "not_equal": lambda x, y: ops.not_equal(x, y),
    "where": lambda x, y: ops.where(ops.real(x) > ops.imag(y), x, y),
    "logical_and": lambda x, y: ops.logical_and(x, y),
    "negative": lambda x, y: -x,
    "square": lambda x, y: ops.square(x),
    "the power 2": lambda x, y: x**2,
    "by 1": lambda x, y: x * 1,
    "conj": lambda x, y: ops.conj(x) + 0,
    "real": lambda x, y: ops.real(x) * 1,
    "imag": lambda x, y: ops.imag(x) * 1,
    "absolute": lambda x, y: ops.abs(x),
    "sign": lambda x, y: ops.sign(x),
    "angle": lambda x, y: ops.angle(x),
    "angle in degrees": lambda x, y: ops.angle(y, deg=True),
    "isfinite": lambda x, y: ops.isfinite(x),
    "isinf": lambda x, y: ops.isinf(x),
    "isnan": lambda x, y: ops.isnan(x),
    "exp": lambda x, y: ops.exp(x),
    "of a real": lambda x, y: ops.real(x) * y,
    "by a number": lambda x, y: 2.5j * x - 1,
}
# How many roundings a function may be off those of NumPy; of others each bit is the same.
PLACES = {"exp": 8, "absolute": 2, "sign": 3, "angle": 4, "angle in degrees": 4}


def normal(*shape, dtype="complex128", seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def same_parts(got, wanted, places):
    """Equal in each part, its sign and NaN included, up to so many roundings."""
    for a, b in zip((got.real, got.imag), (wanted.real, wanted.imag), strict=True):
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        known = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])
        eps = np.finfo(a.dtype).eps
        np.testing.assert_allclose(a[known], b[known], rtol=places * eps, atol=0)


@by_dtype
@pytest.mark.parametrize("name", NATIVE)
def test_arithmetic_at_special_numbers_is_that_of_eager_calls(name, dtype):
    fn = NATIVE[name]
    with np.errstate(all="ignore"):
        x, y = (np.ascontiguousarray(a).astype(dtype) for a in np.meshgrid(FEW, FEW))
        compiled = od.compile(fn)
        for _ in range(3):
            got = compiled(x, y)
        wanted = fn(x, y)
        assert is_native(compiled, x, y)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    same_parts(got, wanted, PLACES.get(name, 0))


@by_dtype
def test_the_exponential_of_large_and_lost_numbers_is_that_of_eager_calls(dtype):
    with np.errstate(all="ignore"):
        x = GRID.astype(dtype)
        compiled = od.compile(lambda x: ops.exp(x))
        for _ in range(3):
            got = compiled(x)
        same_parts(got, np.exp(x), 8)


def test_the_exponential_is_right_to_a_few_places():
    mpmath = pytest.importorskip("mpmath")
    x = normal(400) * 40
    compiled = od.compile(lambda x: ops.exp(x))
    for _ in range(3):
        got = compiled(x)
    with mpmath.workdps(40):
        wanted = [mpmath.exp(mpmath.mpc(z.real, z.imag)) for z in x]
        for part in ("real", "imag"):
            far = [
                abs(getattr(g, part) - getattr(w, part)) for g, w in zip(got, wanted, strict=True)
            ]
            one = [abs(getattr(w, part)) for w in wanted]
            worst = max(float(f / o) for f, o in zip(far, one, strict=True))
            assert worst < 5 * np.finfo(float).eps


@pytest.mark.slow
def test_no_row_takes_a_meaning_of_real_numbers_for_complex_ones():
    """Each elementwise row on special numbers: what runs natively gives what an eager call does."""
    tried = 0
    for row in OPS.values():
        if not row.elementwise or row.required or len(row.arrays) > 2:
            continue
        args = [FEW] if len(row.arrays) == 1 else list(np.meshgrid(FEW[::7], FEW[::5]))
        args = [np.ascontiguousarray(a) for a in args]
        with np.errstate(all="ignore"):
            try:
                wanted = row.call(*args)
            except Exception:  # it has no meaning for them
                continue
            compiled = od.compile(row.call)
            for _ in range(3):
                got = compiled(*args)
        tried += 1
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), row.name
        same_parts(got, wanted, 8)
    assert tried > 40


CALLS = {
    "sums": lambda x, y: (ops.sum(x * y), ops.sum(x, axis=0), ops.mean(y, axis=1), ops.var(x)),
    "cumulative": lambda x, y: (ops.cumsum(x, axis=0), ops.cumprod(y, axis=1)),
    "places": lambda x, y: (ops.take(x, np.array([2, 0, 2]), axis=0), x[::2, 1] * 1, y[-1] * 1),
    "other orders": lambda x, y: (ops.transpose(x) * 1, ops.reshape(y, (-1,)) + 1, x[::-1] * y),
    "joined": lambda x, y: (ops.concatenate([x, y]), ops.stack([x, y], axis=1)),
    "contracted": lambda x, y: (ops.einsum("ij,ij->i", x, y), ops.einsum("ij,j->i", x, y[0])),
    "called between": lambda x, y: od.fft.ifft(od.fft.fft(x * y) * y) + x @ y[:6, :5].T,
    "cast": lambda x, y: (ops.astype(x, "complex64") * 2, ops.real(y) + 1j),
    "a number alone": lambda x, y: (x[0, 0] * y[1, 1] / 3.0, ops.abs(x[1, 1]) * 2),
}


@by_dtype
@pytest.mark.parametrize("name", CALLS)
def test_arrays_of_complex_numbers_are_moved_and_summed_as_in_eager_calls(name, dtype):
    calls = [
        (normal(7, 5, dtype=dtype, seed=k), normal(7, 5, dtype=dtype, seed=9 - k))
        for k in (0, 1, 2)
    ]
    check(CALLS[name], calls)
    turned = [(np.asfortranarray(x)[::-1], y[:, ::-1]) for x, y in calls]
    check(CALLS[name], turned)


SHAPES = [
    *(((2, 2), (2, 2)), ((60, 2, 2), (60, 2, 2)), ((40, 50), (50, 30)), ((3, 20, 30), (30, 40))),
    *(((200,), (200,)), ((70, 90), (90,)), ((90,), (90, 70)), ((4, 1, 90), (4, 90, 70))),
    *(((0, 3), (3, 2)), ((2, 0), (0, 3))),
]


@by_dtype
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_of_complex_matrices_and_their_gradients_are_native(shapes, dtype):
    def loss(x, y):
        product = x @ y
        return ops.sum(ops.real(product * ops.conj(product)))

    def both(x, y):
        return (x @ y) * 2j, od.grad(loss, argnums=(0, 1))(x, y)

    compiled = od.compile(both)
    for seed in range(3):
        x, y = (normal(*shape, dtype=dtype, seed=seed + k) for k, shape in enumerate(shapes))
        product, gradients = compiled(x, y)
        wide = x.astype("complex128"), y.astype("complex128")
        wanted = both(*wide)
        for got, like in zip((product, *gradients), (wanted[0], *wanted[1]), strict=True):
            assert got.dtype == dtype
            # Sums of up to 200 terms, twice.
            error = 200 * np.finfo(dtype).eps * np.abs(like).max(initial=0.0)
            np.testing.assert_allclose(got, like, rtol=0, atol=error)
    assert is_native(compiled, x, y)


STRANGE = [complex(np.inf, 0), complex(np.inf, -np.inf), complex(0, np.nan), 1e200 - 1e200j]


@pytest.mark.parametrize("value", STRANGE, ids=str)
def test_products_of_infinite_complex_matrices_are_as_strange_as_those_of_numpy(value):
    compiled = od.compile(lambda x, y: (x @ y, x @ y[0], x[0] @ y))
    for copies in (1, 1, 10):  # in loops, and by the library
        x = np.tile(np.array([[value, 1], [0, 1j]]), (copies, copies))
        y = np.tile(np.array([[1 + 1j, 2], [1e200, 0]]), (copies, copies))
        with np.errstate(all="ignore"):
            for _ in range(2):
                for got, wanted in zip(compiled(x, y), (x @ y, x @ y[0], x[0] @ y), strict=True):
                    for part in (np.real, np.imag):
                        np.testing.assert_allclose(part(got), part(wanted), rtol=1e-14)


def test_a_complex_momentum_to_which_a_product_is_added_is_that_of_eager_steps():
    def step(v, x, y):
        v.assign(v * (0.5 + 0.25j) + x @ y)

    x, y, start = normal(20, 30), normal(30, 25), normal(20, 25)
    eager, native = Variable(start.copy()), Variable(start.copy())
    compiled = od.compile(step)
    for _ in range(4):
        step(eager, x, y)
        compiled(native, x, y)
    np.testing.assert_allclose(native.numpy(), eager.numpy(), rtol=1e-13)


def training(dtype):
    """A step that fits a complex filter, with a tape, a sweep and an optimizer."""
    w = Variable(normal(3, dtype=dtype), requires_grad=True)
    optimizer = od.optim.SGD([w], 0.05, momentum=0.9)

    def step(x, y):
        with GradientTape() as tape:
            error = x * w[:1] + ops.conj(x) * w[1:2] + w[2:] - y
            loss = ops.mean(ops.real(error * ops.conj(error)))
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return w, step


@by_dtype
def test_training_of_complex_parameters_is_one_program_and_takes_the_eager_way(dtype):
    (w, eager), (v, step) = training(dtype), training(dtype)
    step = od.compile(step)
    for k in range(20):
        x, y = (normal(64, dtype=dtype, seed=2 * k + j) for j in (0, 1))
        got, wanted = (run(x, y).detach().numpy() for run in (step, eager))
        np.testing.assert_allclose(got, wanted, rtol=1e-5 if dtype == "complex64" else 1e-12)
    assert is_native(step, x, y)
    np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=1e-4 if dtype == "complex64" else 1e-11)


def test_a_number_of_each_call_meets_complex_arrays():
    compiled = od.compile(lambda x, rate: x * rate + rate)
    x = normal(5)
    for rate in (0.5, 1.5, 2.5, 3.5, -1.0):
        np.testing.assert_array_equal(compiled(x, rate), x * rate + rate)
    assert is_native(compiled, x, 0.5)


def test_complex_states_are_written_in_place():
    w = Variable(normal(6))
    before = w.numpy().copy()

    @od.compile
    def rotate(angle):
        w.assign(w * ops.exp(1j * angle))

    for _ in range(4):
        rotate(np.array(0.25))
    np.testing.assert_allclose(w.numpy(), before * np.exp(1j), rtol=1e-14)


def test_words_refuse_what_has_no_code_for_complex_numbers():
    from odyssey.compiler.llvm.builder import FunctionBuilder

    x = FunctionBuilder().const("c16", 1 + 2j)
    for call in (
        lambda: x < x,
        lambda: x // x,
        lambda: x % 2.0,
        lambda: x**3,
        lambda: abs(x),
        lambda: x & x,
        lambda: x << 1,
        lambda: ~x,
    ):
        with pytest.raises(DTypeError, match=r"complex|bits|shift"):
            call()


@by_dtype
def test_parts_that_lie_apart_are_added_as_in_eager_calls(dtype):
    """A sum with 0 elsewhere takes the sign of a negative zero, in each part."""

    def halves(x):
        v = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            parts = v[:2], v[2:]
        return tape.gradient(parts, v, (-x[:2], x[2:]))

    compiled, x = od.compile(halves), np.array([0, 0, complex(-0.0, -0.0), -0.0], dtype)
    for _ in range(3):
        got = compiled(x)
    same_parts(got, halves(x), 0)


def test_the_conjugates_of_truths_are_truths():
    compiled = od.compile(lambda x: (x == x[0]).conj())
    for _ in range(3):
        assert compiled(normal(3)).dtype == bool
    assert Variable(np.array([True])).conj().dtype == bool
