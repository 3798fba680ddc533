"""Folding, linear layers and constants: values and derivatives from analysis."""

import itertools
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError
from odyssey.ops import OPS, Symbol
from odyssey.spec import Spec
from support.cases import Graph, assert_same

INF = np.inf


def gradient_of(call, x, grad=None):
    """The gradient of ``call`` at the values of ``x``."""
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = call(leaf)
    return tape.gradient(out, leaf, np.ones(out.shape, out.dtype) if grad is None else grad)


def hessian_of(call, x):
    """The second derivatives of a number in the elements of a vector."""
    leaf = Variable(x, requires_grad=True)
    rows = []
    for unit in np.eye(len(x)):
        with GradientTape() as outer:
            with GradientTape() as inner:
                out = call(leaf)
            g = ops.sum(inner.gradient(out, leaf) * unit)
        rows.append(outer.gradient(g, leaf))
    return np.stack(rows)


# ------------------------------------------------------------------ product


def product_of_others(x, *places):
    return np.prod(np.delete(x, places))


@pytest.mark.parametrize(
    "x",
    [[0, 2, 3], [0, 2, 0], [0, 0, 0, 4], [5], [0], [2, 3], [-1, 0, 2, 3, 5, 7, 11], [1, -2, 3, 4]],
    ids=str,
)
def test_the_product_is_exact_with_zeros_to_second_order(x):
    x = np.array(x, float)
    n = len(x)
    wanted = np.array([product_of_others(x, k) for k in range(n)])
    assert_same(gradient_of(ops.prod, x), wanted)
    if n > 1:
        second = [
            [product_of_others(x, i, j) if i != j else 0.0 for j in range(n)] for i in range(n)
        ]
        assert_same(hessian_of(ops.prod, x), np.array(second))


def test_the_gradient_of_a_product_with_a_zero_is_the_product_of_the_others():
    assert gradient_of(ops.prod, [0.0, 2.0, 3.0]).tolist() == [6.0, 0.0, 0.0]


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 1), ()], ids=str)
@pytest.mark.parametrize("keepdims", [False, True], ids=["folded", "kept"])
def test_products_over_axes_have_the_products_of_the_others_as_gradient(axis, keepdims):
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (3, 2, 3)).astype(float)  # one in five is 0
    axes = range(3) if axis is None else [a % 3 for a in np.atleast_1d(axis).astype(int)]
    wanted = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        line = x.copy()
        line[place] = 1.0
        key = tuple(slice(None) if k in axes else place[k] for k in range(3))
        wanted[place] = np.prod(line[key])
    gradient = gradient_of(lambda v: ops.prod(v, axis, keepdims=keepdims), x)
    np.testing.assert_array_equal(gradient, wanted)


def test_a_product_that_underflows_among_others_keeps_its_gradient():
    # Dividing the product, which is 0 here, by an element would lose all of these.
    x = np.array([1e-200, 1e-200, 1e10])
    np.testing.assert_allclose(gradient_of(ops.prod, x), [1e-190, 1e-190, 0.0], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_the_gradient_of_a_product_has_its_dtype(dtype):
    x = np.array([2, 0, 3], dtype)
    assert_same(gradient_of(ops.prod, x), np.array([0, 6, 0], dtype))


# ------------------------------------------------------------------ variance and deviation


@pytest.mark.parametrize("options", [{}, {"ddof": 1}, {"correction": 1}, {"ddof": 0.5}], ids=str)
def test_variance_and_its_gradient_are_the_formulas(options):
    x = np.random.default_rng(0).normal(size=(3, 4))
    left = 4 - options.get("ddof", options.get("correction", 0))
    away = x - x.mean(1, keepdims=True)
    assert_same(ops.var(x, 1, **options), np.var(x, 1, **options))
    np.testing.assert_allclose(
        gradient_of(lambda v: np.var(v, axis=1, **options), x), 2 * away / left, rtol=1e-13
    )
    deviation = np.sqrt((away**2).sum(1, keepdims=True) / left)
    np.testing.assert_allclose(
        gradient_of(lambda v: np.std(v, axis=1, **options), x), away / left / deviation, rtol=1e-13
    )


def test_the_gradient_of_a_complex_variance_is_steepest_ascent():
    z = np.array([1 + 2j, -1j, 3.0])
    wanted = 2 * (z - z.mean()) / 3
    np.testing.assert_allclose(gradient_of(ops.var, z), wanted, rtol=1e-15)
    np.testing.assert_allclose(gradient_of(ops.std, z), wanted / 2 / np.std(z), rtol=1e-15)
    od.testing.check_gradients(ops.std, z)


def test_the_variance_of_large_numbers_keeps_its_digits():
    x = 1e9 + np.array([0.0, 1.0, 2.0, 3.0])
    assert float(ops.var(x)) == 1.25
    assert gradient_of(ops.var, x).tolist() == [-0.75, -0.25, 0.25, 0.75]


def test_without_a_degree_of_freedom_numpy_warns_and_neither_value_nor_slope_is_a_number():
    leaf = Variable([3.0], requires_grad=True)
    warned = pytest.warns(RuntimeWarning, match="Degrees of freedom")
    with GradientTape() as tape, np.errstate(invalid="ignore"), warned:
        out = ops.var(leaf, ddof=1)
    assert np.isnan(out.numpy())
    assert np.isnan(tape.gradient(out, leaf)).all()


LARGE = {
    "of one sign": [1.0, 0.5, 0.25, 0.75, 0.9],
    "far from their mean": [1.0, 1.0, 1.0, -1.0, 1.0],
    "of both signs": [1.0, -1.0, 0.5, -0.25, 0.125],
    "almost equal": [1.0, 1.0, 1.0, 1.0, 0.999],
}


@pytest.mark.parametrize("shares", LARGE.values(), ids=list(LARGE))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_deviations_of_numbers_near_the_largest_are_those_of_smaller_ones(shares, dtype):
    def both(x):
        return ops.std(x, 0), od.grad(lambda v: ops.sum(ops.std(v, 0)))(x)

    x = np.stack([np.array(shares) * np.finfo(dtype).max, shares], 1).astype(dtype)
    power = np.array([2.0 ** (2 - np.finfo(dtype).maxexp), 1.0], dtype)
    deviation, slopes = both(x * power)
    wanted = deviation / power.real, slopes
    compiled = od.compile(both)
    with np.errstate(all="ignore"):
        for found in (both(x), *[compiled(x) for _ in range(3)]):
            for got, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=16 * np.finfo(dtype).eps, atol=1e-7)
    assert compiled.statistics().native


@pytest.mark.parametrize("ddof", [3, 3.5, 7])
@pytest.mark.parametrize("fold", [np.var, np.std])
def test_what_has_no_degree_of_freedom_is_numpys_compiled_too(fold, ddof):
    step = od.compile(lambda v: fold(v, 1, ddof=ddof))
    for dtype in (np.float64, np.float32, np.complex128, np.int64):
        x = np.array([[1, 2, 4], [3, 3, 3]]).astype(dtype)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = fold(x, 1, ddof=ddof)
            assert str(wanted) == "[inf nan]"
            for got in (fold(Variable(x), 1, ddof=ddof), step(Variable(x)), step(Variable(x))):
                assert_same(got.numpy(), wanted)


# ------------------------------------------------------------------ logsumexp


@pytest.mark.parametrize(
    ("x", "value", "slopes"),
    [
        ([1000.0, 1000.0], 1000.0 + np.log(2.0), [0.5, 0.5]),
        ([-1000.0, -1000.0], -1000.0 + np.log(2.0), [0.5, 0.5]),
        ([-INF, 3.0], 3.0, [0.0, 1.0]),
        ([-INF, -INF], -INF, [0.0, 0.0]),
        ([2.0], 2.0, [1.0]),
        ([0.0, -800.0], 0.0, [1.0, 0.0]),
        ([-1e308, 1e308], 1e308, [0.0, 1.0]),
    ],
    ids=["large", "small", "one -inf", "all -inf", "one", "far apart", "as far as can be"],
)
def test_logsumexp_neither_overflows_nor_warns(x, value, slopes):
    assert float(ops.logsumexp(np.array(x))) == value
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(gradient_of(ops.logsumexp, x), slopes, rtol=1e-12, atol=0)


def test_logsumexp_passes_infinity_and_nan_on_and_is_minus_infinity_of_nothing():
    x = np.array([[INF, 1.0], [np.nan, 1.0], [INF, -INF]])
    assert_same(ops.logsumexp(x, axis=1), np.array([INF, np.nan, INF]))
    assert_same(ops.logsumexp(np.zeros((2, 0)), 1), np.array([-INF, -INF]))
    assert ops.logsumexp(np.float32(2.0)).dtype == np.float32
    assert_same(ops.logsumexp(np.array([0, 0])), np.log(2.0))


def test_logsumexp_of_complex_numbers_is_the_logarithm_of_the_sum():
    z = np.array([1 + 1j, -0.5j, 0.3])
    np.testing.assert_allclose(ops.logsumexp(z), np.log(np.exp(z).sum()), rtol=1e-15)
    np.testing.assert_allclose(
        gradient_of(ops.logsumexp, z, np.array(1.0 + 0j)),
        np.conj(np.exp(z) / np.exp(z).sum()),
        rtol=1e-14,
    )


# ------------------------------------------------------------------ constants


@pytest.mark.parametrize("name", ["any", "all", "argmin", "argmax"])
@pytest.mark.parametrize("axis", [None, 0, -1], ids=str)
@pytest.mark.parametrize("keepdims", [False, True], ids=["folded", "kept"])
def test_questions_about_elements_are_answered_by_constants(name, axis, keepdims):
    x = np.array([[0.0, 2.0, 2.0], [0.0, -1.0, np.nan]])
    with GradientTape() as tape:
        v = Variable(x, requires_grad=True)
        out = getattr(np, name)(v, axis=axis, keepdims=keepdims)
    assert not out.requires_grad
    assert len(tape) == 0
    assert_same(out.numpy(), getattr(np, name)(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("name", ["zeros_like", "ones_like"])
def test_constants_like_something_have_its_shape_and_dtype(name):
    ours, numpys = getattr(ops, name), getattr(np, name)
    for x in (np.ones((2, 3), np.float32), np.zeros((), complex), np.ones((0, 2), int), [1.0, 2.0]):
        assert_same(ours(x), numpys(x))
        assert_same(ours(x, np.int8), numpys(x, np.int8))
        assert_same(ours(x, shape=(2,)), numpys(x, shape=(2,)))
    leaf = Variable(np.ones((2, 3), np.float32), requires_grad=True)
    with GradientTape() as tape:
        for out in (ours(leaf), numpys(leaf * 2)):
            assert isinstance(out, Variable)
            assert not out.requires_grad
            assert_same(out.numpy(), numpys(leaf.numpy()))
    assert len(tape) == 1
    assert_same(ours(Symbol(Spec((2,), np.dtype("f4")), Graph(), 0)), numpys(np.zeros(2, "f4")))


def test_full_like_repeats_a_number_and_passes_the_gradient_of_a_variable_one():
    x = np.zeros((2, 3), np.float32)
    assert_same(np.full_like(Variable(x), 7).numpy(), np.full_like(x, 7))
    assert_same(ops.full_like(x, [1, 2, 3]), np.full_like(x, [1, 2, 3]))
    assert float(gradient_of(lambda v: ops.full_like(x, v), 2.0)) == 6.0


def test_one_hot_marks_the_class_and_nothing_for_what_is_none():
    wanted = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]], np.float32)
    indices = np.array([2, 0, 3])
    assert_same(ops.one_hot(indices, 3, dtype=np.float32), wanted)
    assert_same(ops.one_hot(indices, 3, dtype=np.float32, axis=0), wanted.T.copy())
    assert_same(ops.one_hot(1, 2), np.array([0.0, 1.0]))
    assert ops.one_hot(np.zeros((2, 0), int), 4).shape == (2, 0, 4)
    out = ops.one_hot(Variable(indices), 3)
    assert isinstance(out, Variable)
    assert not out.requires_grad


# ------------------------------------------------------------------ linear layers

LAYERS = {
    "vector": ((3,), (2, 3)),
    "matrix": ((4, 3), (2, 3)),
    "leading axes": ((2, 5, 3), (4, 3)),
    "no rows": ((0, 3), (2, 3)),
    "no columns": ((2, 0), (3, 0)),
    "nothing": ((2, 0, 3), (2, 3)),
}


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("x", "weight"), LAYERS.values(), ids=list(LAYERS))
def test_a_linear_layer_is_the_product_with_the_transposed_weight_plus_the_bias(x, weight, biased):
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.integers(-5, 5, s).astype(float) for s in (x, weight, weight[:1]))
    operands = [x, weight, bias] if biased else [x, weight]
    g = rng.integers(-5, 5, (*x.shape[:-1], len(bias))).astype(float)
    leaves = [Variable(v, requires_grad=True) for v in operands]
    with GradientTape() as tape, od.testing.count_kernels() as counts:
        out = ops.linear(*leaves)
    assert counts == {"linear": 1}
    assert_same(out.numpy(), x @ weight.T + (bias if biased else 0.0))
    got = tape.gradient(out, leaves, g)
    flat = g.reshape(int(np.prod(x.shape[:-1])), len(bias))
    wanted = [g @ weight, flat.T @ x.reshape(len(flat), x.shape[-1]), flat.sum(0)]
    for gradient, expected in zip(got, wanted, strict=False):
        assert_same(gradient, expected)
    od.testing.check_gradients(ops.linear, *operands)
    assert ops.linear(*[v.astype(np.float32) for v in operands]).dtype == np.float32


def test_a_linear_layer_leaves_its_operands_alone_and_takes_mixed_dtypes():
    x, weight, bias = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32), np.ones(4)
    before = [v.copy() for v in (x, weight, bias)]
    assert_same(ops.linear(x, weight, bias), np.full((2, 4), 4.0))
    assert_same(ops.linear(x, weight, None), np.full((2, 4), 3.0, np.float32))
    for value, kept in zip((x, weight, bias), before, strict=True):
        assert_same(value, kept)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(range(1, 4), repeat=2)), ids=str)
def test_products_differentiate_to_second_order_for_all_numbers_of_axes(left, right):
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (2, 2, 3)[3 - left :]).astype(float)
    b = rng.integers(-4, 5, (2, 3, 2)[3 - right :] if right > 1 else (3,)).astype(float)
    for product in (ops.dot, ops.matmul, ops.outer):
        reference = getattr(np, product.__name__)
        assert_same(np.asarray(product(a, b)), np.asarray(reference(a, b)))
        od.testing.check_gradients(product, a, b)


def test_vdot_conjugates_its_first_operand():
    a, b = np.array([1j, 2.0]), np.array([3.0, 1 - 1j])
    assert_same(ops.vdot(a, b), np.vdot(a, b))
    od.testing.check_gradients(ops.vdot, a, b)


def test_a_cross_product_is_numpys_bit_for_bit_whatever_the_axes():
    rng = np.random.default_rng(0)
    for shapes, options in (
        ([(3,), (3,)], {}),
        ([(2, 1, 3), (4, 3)], {}),
        ([(3, 4), (3, 4)], {"axis": 0}),
        ([(3, 5), (4, 5, 3)], {"axisa": 0, "axisb": 2, "axisc": 1}),
    ):
        x, y = (rng.normal(size=shape) for shape in shapes)
        assert_same(ops.cross(x, y, **options), np.cross(x, y, **options))
        assert_same(ops.cross(x + 1j * x, y, **options), np.cross(x + 1j * x, y, **options))


# ------------------------------------------------------------------ numbers without axes


AXIS_OPS = [row.name for row in OPS.values() if "axis" in row.options and len(row.arrays) == 1]


@pytest.mark.parametrize("keepdims", [{}, {"keepdims": True}], ids=["", "keepdims"])
@pytest.mark.parametrize("axis", [None, 0, -1, 1, (), (0,), (-1,)], ids=str)
@pytest.mark.parametrize("name", AXIS_OPS)
def test_what_takes_a_number_without_axes_also_has_its_derivative(name, axis, keepdims):
    call, row = getattr(ops, name), OPS[name]
    options = {"axis": axis} | (keepdims if "keepdims" in row.options else {})
    w = Variable(3.0, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        try:
            y = call(w, **options)
        except OdysseyError as error:
            assert name in str(error)  # noqa: PT017
            return
    assert row.infer(w._spec, *row.bind_arguments((w,), options)[1]) == y._spec
    np.testing.assert_array_equal(y.numpy(), call(np.array(3.0), **options))
    if y.requires_grad:
        slope = tape.gradient(y, w, np.ones(y.shape))
        moved = tape.jvp(y, w, 1.0)
        assert (slope.shape, moved.shape) == ((), y.shape)
        assert float(slope) == float(moved.sum())


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "cumsum"])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_axis_of_a_number_may_be_named_as_numpy_lets_it(name, axis):
    assert getattr(ops, name)(3.0, axis=axis) == getattr(np, name)(np.float64(3.0), axis=axis)
    w = Variable(3.0, requires_grad=True)
    with GradientTape() as tape:
        y = getattr(ops, name)(w, axis=axis)
    assert float(tape.gradient(y, w)) == 1.0
