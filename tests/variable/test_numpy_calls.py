"""NumPy's functions take Variables in NumPy's own signatures, and mean the same."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, ShapeError, TapeError
from odyssey.variable import numpy_calls

X = np.random.default_rng(0).normal(size=(3, 4)) + 2.0
MASK = np.array([True, False, True, True])
DTYPES = ["float32", "float64", "int32", "int64", "bool", "complex64", "complex128"]

CALLS = {
    "sum by position": lambda x: np.sum(x, 0, None, None, True),
    "sum of a=": lambda x: np.sum(a=x, axis=1),
    "sum dtype": lambda x: np.sum(x, axis=1, dtype=np.float32),
    "sum where": lambda x: np.sum(x, 1, where=MASK),
    "sum initial": lambda x: np.sum(x, 1, initial=5.0, where=MASK),
    "prod where initial": lambda x: np.prod(x, 0, initial=2.0, where=MASK),
    "mean where": lambda x: np.mean(x, 1, where=MASK),
    "mean where all": lambda x: np.mean(x, where=MASK, keepdims=True),
    "mean dtype": lambda x: np.mean(x, dtype=np.float32),
    "max initial": lambda x: np.max(x, 1, initial=2.5),
    "max where": lambda x: np.max(x, axis=1, initial=0.0, where=MASK),
    "min initial": lambda x: np.min(x, 1, None, False, 1.5),
    "var by position": lambda x: np.var(x, 1, None, None, 1, True),
    "std ddof": lambda x: np.std(x, axis=0, ddof=1),
    "var where": lambda x: np.var(x, 1, where=MASK),
    "var where keepdims": lambda x: np.var(x, 1, ddof=1, keepdims=True, where=MASK),
    "var about a mean": lambda x: np.var(x, 1, mean=np.full((3, 1), 1.5)),
    "std where": lambda x: np.std(x, where=MASK, correction=1),
    "std where dtype": lambda x: np.std(x, 1, np.float32, where=MASK),
    "ufunc dtype": lambda x: np.exp(x, dtype=np.float32),
    "ufunc dtype of None": lambda x: np.add(x, 1, dtype=None),
    "ufunc of two, dtype": lambda x: np.multiply(x, 2, dtype=np.float32),
    "cumsum dtype": lambda x: np.cumsum(x, 1, np.float32),
    "any where": lambda x: np.any(x > 2.0, 1, where=MASK),
    "all by position": lambda x: np.all(x > 0.0, 1, None, True),
    "sum method, dtype": lambda x: x.sum(0, dtype=np.float32, out=None),
    "astype method, copy": lambda x: x.astype(np.float32, copy=False),
    "nothing said": lambda x: np.sum(x, axis=None, dtype=None, out=None, where=True),
}


# Calls of other functions, of one matrix or two.
OTHERS = {
    "concatenate by position": lambda x, y: np.concatenate((x, y), 1, None),
    "concatenate of all": lambda x, y: np.concatenate((x, y), None, out=None),
    "concatenate said in full": lambda x, y: np.concatenate(
        (x, y), axis=1, out=None, dtype=None, casting="same_kind"
    ),
    "stack, out": lambda x, y: np.stack([x, y], 1, None),
    "vstack, dtype": lambda x, y: np.vstack([x, y], dtype=None),
    "clip, out": lambda x, y: np.clip(x, 1.0, 2.0, None) + y,
    "take, out and mode": lambda x, y: np.take(x, [0, 7], 1, None, "wrap") + np.sum(y, out=None),
    "trace, out": lambda x, y: np.trace(x, 0, 0, 1, None, None) + y,
    "around, out": lambda x, y: np.around(x, 1, out=None) + y,
    "argmax, out": lambda x, y: x[:, np.argmax(y, 0, None)],
    "dot, out": lambda x, y: np.dot(x, y.T, None),
    "outer, out": lambda x, y: np.outer(x, y, out=None),
    "einsum, all": lambda x, y: np.einsum("ij,kj", x, y, out=None, dtype=None, order="K"),
    "broadcast_to, subok": lambda x, y: np.broadcast_to(x, (2, 3, 4), subok=False) + y,
    "full_like by position": lambda x, y: np.full_like(x, 2.0, None, "K", True, None) * y,
    "quantile, weights": lambda x, y: np.quantile(x, 0.3, weights=None, overwrite_input=True) + y,
    "median, overwritten": lambda x, y: np.median(x, 0, None, True) + y,
    "ones_like, order": lambda x, y: np.ones_like(x, order="C") * y + x,
    "clip method, out": lambda x, y: x.clip(1.0, 2.0, out=None) + y,
    "dot and round methods, out": lambda x, y: x.dot(y.T, out=None).round(1, out=None),
    "mean method, where": lambda x, y: x.mean(1, where=MASK, keepdims=True) + y,
    "max method, initial": lambda x, y: x.max(1, initial=2.5, where=MASK, keepdims=True) * y,
    "std method, where": lambda x, y: x.std(1, where=MASK, ddof=1, keepdims=True) + y,
    "cumsum method, dtype": lambda x, y: x.cumsum(1, dtype=float) * y,
    "take and trace methods, out": lambda x, y: x.take([1], 1, out=None) * y.trace(out=None),
    "linspace, device": lambda x, y: np.linspace(x, y, 3, device=None),
    "ufunc, where and more": lambda x, y: np.add(
        x, y, None, where=True, casting="same_kind", order="K", subok=True
    ),
    "positive": lambda x, y: np.positive(x) * y,
    "divmod": lambda x, y: np.divmod(x, y)[1] * np.divmod(x, y)[0],
    "divmod of numbers": lambda x, y: divmod(np.full((3, 4), 7.0), x)[1] * y,
    "linalg.matmul": lambda x, y: np.linalg.matmul(x, y.T),
    "linalg.tensordot": lambda x, y: np.linalg.tensordot(x, y, axes=((0,), (0,))),
    "linalg.matrix_transpose": lambda x, y: np.linalg.matrix_transpose(np.stack([x, y])),
    "linalg.cross": lambda x, y: np.linalg.cross(x, y, axis=0),
    "linalg.outer": lambda x, y: np.linalg.outer(x[0], y[1]),
    "linalg.trace": lambda x, y: np.linalg.trace(np.stack([x, y]), offset=1),
    "linalg.diagonal": lambda x, y: np.linalg.diagonal(np.stack([x, y]), offset=-1),
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=list(OTHERS))
def test_options_that_say_nothing_and_other_names_change_nothing(call):
    y = np.random.default_rng(1).normal(size=X.shape)
    wanted = np.asarray(call(X, y))
    constant = call(Variable(X), Variable(y)).numpy()
    np.testing.assert_allclose(constant, wanted, rtol=1e-13)
    x, other = Variable(X, requires_grad=True), Variable(y, requires_grad=True)
    with GradientTape() as tape:
        got = call(x, other)
        total = (got * np.cos(np.arange(wanted.size)).reshape(wanted.shape)).sum()
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got.detach().numpy(), wanted, rtol=1e-13)
    gradients = tape.gradient(total, [x, other], unused="zero")
    for k, gradient in enumerate(gradients):
        direction = np.random.default_rng(2 + k).normal(size=X.shape)
        both = [
            call(*(v + h * direction if n == k else v for n, v in enumerate((X, y))))
            for h in (1e-6, -1e-6)
        ]
        slope = (both[0] - both[1]) / 2e-6
        expected = (slope * np.cos(np.arange(wanted.size)).reshape(wanted.shape)).sum()
        np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_fold_takes_numpys_arguments_and_gives_numpys_value(call):
    wanted = np.asarray(call(X))
    got = call(Variable(X, requires_grad=True)).numpy()
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    rtol = 1e-6 if wanted.dtype == np.float32 else 1e-15
    np.testing.assert_allclose(got, wanted, rtol=rtol)


@pytest.mark.parametrize("fold", [np.sum, np.prod, np.cumsum, np.cumprod], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float32"])
def test_a_fold_in_a_dtype_has_a_result_of_that_dtype(fold, dtype):
    for x in (np.array([100, 100, 3]), np.array([True, True, False]), np.array([7.9, -2.5])):
        wanted = np.asarray(fold(x, dtype=dtype))
        step = od.compile(lambda v: fold(v, dtype=dtype))
        for got in (fold(Variable(x), dtype=dtype), step(Variable(x)), step(Variable(x))):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got.numpy(), wanted)


def test_a_sum_in_a_small_dtype_begins_with_a_number_of_it():
    x = Variable(np.array([100, 100]))
    wanted = np.sum(x.numpy(), dtype=np.int8, initial=5)
    got = np.sum(x, dtype=np.int8, initial=5).numpy()
    assert (got.dtype, got[()]) == (np.int8, wanted)
    with pytest.raises(DTypeError, match="initial=300 came for a reduction of int8"):
        np.sum(x, dtype=np.int8, initial=300)


def test_a_variance_in_a_complex_dtype_is_complex():
    for where in (True, MASK):
        wanted = np.var(X, 1, np.complex64, where=where)
        got = np.var(Variable(X), 1, np.complex64, where=where).numpy()
        assert got.dtype == wanted.dtype == np.complex64
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_what_where_leaves_out_has_no_gradient():
    w = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = np.mean(w, 1, where=MASK).sum()
    np.testing.assert_allclose(tape.gradient(y, w), np.broadcast_to(MASK / 3.0, X.shape))


@pytest.mark.parametrize("fold", [np.var, np.std])
def test_masked_moments_have_the_derivatives_of_the_elements_that_are_left(fold):
    keep = X[:, MASK]
    w, v = (Variable(x, requires_grad=True) for x in (X, keep))
    with GradientTape() as tape:
        y = (fold(w, 1, ddof=1, where=MASK) * np.arange(3.0)).sum()
        z = (fold(v, 1, ddof=1) * np.arange(3.0)).sum()
        total = y + z
    whole, part = tape.gradient(total, [w, v])
    np.testing.assert_allclose(whole[:, MASK], part, rtol=1e-13)
    assert not whole[:, ~MASK].any()
    od.testing.check_gradients(lambda a: fold(a, 1, where=MASK), X, order=2)
    assert not np.asarray(
        od.grad(lambda a: fold(a, where=[True, False]))(np.array([2.0, 5.0]))
    ).any()


@pytest.mark.parametrize(
    "fold", [np.sum, np.prod, np.mean, np.var, np.std], ids=lambda f: f.__name__
)
def test_a_mask_may_be_an_argument_of_a_compiled_function(fold):
    step = od.compile(od.value_and_grad(lambda x, mask: fold(x, 1, where=mask).sum()))
    for mask in (MASK, MASK[::-1], X.mean(1, keepdims=True) - 0.5 < X):
        w = Variable(X, requires_grad=True)
        with GradientTape() as tape:
            y = fold(w, 1, where=mask).sum()
        slope = tape.gradient(y, w)
        for given in (mask, Variable(mask)):
            for _ in range(3):
                value, gradient = step(X, given)
                np.testing.assert_allclose(value, y.detach().numpy(), rtol=1e-13)
                np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-14)


def test_a_variance_about_a_variable_mean_has_its_derivative():
    m = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = np.var([1.0, 2.0, 6.0], mean=m)
    # mean((x - m)**2) falls by 2 mean(x - m) per unit of m.
    assert (float(y), float(tape.gradient(y, m))) == (17.0 / 3.0, -2.0)


def test_a_masked_moment_of_complex_numbers_is_real():
    x = X + 1j * X[::-1]
    got = np.var(Variable(x), 1, where=MASK).numpy()
    np.testing.assert_allclose(got, np.var(x, 1, where=MASK), rtol=1e-14)
    assert got.dtype == np.float64


def test_an_initial_value_that_wins_takes_the_gradient():
    w = Variable([1.0, 4.0], requires_grad=True)
    with GradientTape() as tape:
        y = np.max(w, initial=9.0)
    assert tape.gradient(y, w).tolist() == [0.0, 0.0]


REFUSED = {
    "out": (lambda x: np.sum(x, out=np.empty(())), r"np\.sum: out= is refused"),
    "max where alone": (lambda x: np.max(x, where=MASK, initial=None), "where= needs initial="),
    "var of two ddofs": (
        lambda x: np.var(x, ddof=1, correction=1, where=MASK),
        "two names of one number",
    ),
    "std of two ddofs": (lambda x: np.std(x, ddof=1, correction=0), "two names of one number"),
    "cov of parts of observations": (
        lambda x: np.cov(x, fweights=Variable([1.5, 2.0, 1.0, 1.0])),
        "cov: fweights=.* are not whole numbers; pass them as aweights",
    ),
    "no such dtype": (lambda x: np.exp(x, dtype="nonsense"), "'nonsense'"),
    "comparison dtype": (lambda x: np.equal(x, x, dtype=bool), "dtype= has no meaning"),
    "ufunc dtype": (lambda x: np.exp(x, dtype=np.int64), "does not cast"),
    "dtype of no result": (
        lambda x: np.sin(x > 2.0, dtype=np.int8),
        "dtype=int8, which would give float16",
    ),
    "division in integers": (
        lambda x: np.divide(x > 2.0, 1, dtype=int),
        "which would give float64",
    ),
    "absolute in complex": (lambda x: np.abs(x, dtype=complex), "which would give float64; pass"),
    "mean in integers": (lambda x: np.mean(x, dtype=int), "dtype=int64 holds no fractions"),
    "std in truths": (lambda x: np.std(x, 1, bool, where=MASK), "dtype=bool holds no fractions"),
    "real var of complex": (
        lambda x: np.var(x * 1j, dtype=float),
        r"np\.var: dtype=float64 loses the imaginary parts of complex128",
    ),
    "ufunc where": (lambda x: np.exp(x, where=MASK), r"np\.exp with where="),
    "concatenate dtype": (
        lambda x: np.concatenate([x, x], 0, None, dtype=np.float32),
        r"np\.concatenate: got an unexpected keyword argument 'dtype'",
    ),
    "ufunc safe dtype": (
        lambda x: np.exp(x, dtype=np.float32, casting="safe"),
        r"np\.exp with dtype, casting=",
    ),
    "unknown": (lambda x: np.trim_zeros(x), r"np\.trim_zeros is not in"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_not_offered_is_refused_by_name(call, message):
    with pytest.raises(DTypeError, match=message):
        call(Variable(X, requires_grad=True))


@pytest.mark.skipif(not hasattr(np, "astype"), reason="older NumPys have none")
def test_numpys_function_astype_casts_with_its_gradient():
    w = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = np.astype(w, np.float32, copy=False)
        total = y.sum()
    assert y.dtype == np.float32
    assert tape.gradient(total, w).tolist() == np.ones_like(X).tolist()


def test_an_element_is_an_item_as_numpys_method_has_it():
    v = Variable(X, requires_grad=True)
    for index in ((3,), (-1,), (1, 2), ((0, -1),)):
        assert v.item(*index) == X.item(*index)
        assert type(v.item(*index)) is float
    for index, error in (((99,), IndexError), ((0, 0, 0), ValueError), (("x",), TypeError)):
        with pytest.raises(error, match=r"item\(.*\) of a Variable of shape \(3, 4\): ") as caught:
            v.item(*index)
        assert isinstance(caught.value, OdysseyError)
    with pytest.raises(TapeError, match="asks for the value"):
        od.compile(lambda v: v * v.item(1))(v)


@pytest.mark.parametrize("name", ["aweights", "fweights"])
def test_a_weight_of_an_observation_is_not_negative(name):
    for weights in (np.array([1, -1, 1, 1]), Variable(np.array([1, -1, 1, 1]))):
        with pytest.raises(ValueError, match=f"cov: {name}=.*; a weight is 0 or more"):
            np.cov(Variable(X), **{name: weights})


def test_the_outer_product_of_linear_algebra_takes_vectors_alone():
    with pytest.raises(ShapeError, match="pass two vectors"):
        np.linalg.outer(Variable(X), X)


def test_an_initial_number_leaves_integers_what_they_are():
    for fold in (np.sum, np.prod, np.max):
        wanted = fold(np.array([1, 2]), initial=2.5)
        got = fold(Variable(np.array([1, 2])), initial=2.5).numpy()
        assert (got.dtype, got[()]) == (wanted.dtype, wanted)


def test_the_size_over_several_axes_is_their_product():
    v = Variable(np.zeros((2, 3, 4)))
    assert (np.size(v), np.size(v, 1), np.size(v, (0, -1)), np.size(v, ())) == (24, 3, 8, 1)


@pytest.mark.parametrize("initial", [np.float64(2.5), np.array(2.5), 2.5, 3, True], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("fold", [np.sum, np.prod, np.max, np.min])
def test_an_initial_value_takes_on_the_dtype_of_the_fold(fold, dtype, initial):
    x, mask = np.array([[1, 2], [3, 4]], dtype), np.array([True, False])
    for options in ({}, {"where": mask}):
        wanted = fold(x, axis=1, initial=initial, **options)
        got = fold(Variable(x), axis=1, initial=initial, **options).numpy()
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    wide = Variable(2.5, requires_grad=x.dtype.kind == "f")
    assert fold(Variable(x), initial=wide).dtype == fold(x, initial=2.5).dtype


def test_an_initial_variable_of_another_dtype_has_a_gradient_of_its_own():
    w = Variable(2.5, requires_grad=True)
    with GradientTape() as tape:
        y = np.prod(Variable(np.array([2.0, 3.0], np.float32)), initial=w)
    gradient = tape.gradient(y, w)
    assert (gradient.dtype, float(gradient)) == (np.float64, 6.0)


@pytest.mark.parametrize(
    ("initial", "error", "text"),
    [
        (1j, DTypeError, "initial=1j came for a reduction of float64"),
        (Variable(1j), DTypeError, "complex in a reduction of float64"),
        ("a", DTypeError, "initial='a' came for a reduction of float64"),
        ([1.0, 2.0], ShapeError, r"initial= has shape \(2,\); pass one number"),
        (Variable([1.0]), ShapeError, r"initial= has shape \(1,\); pass one number"),
    ],
    ids=["complex", "complex Variable", "text", "list", "axis"],
)
def test_an_initial_value_that_is_no_such_number_is_refused(initial, error, text):
    with pytest.raises(error, match=text):
        np.sum(Variable(X), initial=initial)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_real_numbers_keep_their_dtype(dtype):
    x = np.array([1, 0], dtype)
    for part in (np.real, np.imag):
        wanted, got = part(x), part(Variable(x)).numpy()
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


def test_bins_that_a_tape_follows_are_refused():
    edges = Variable([0.0, 2.0, 4.0], requires_grad=True)
    for record in (False, True):
        with GradientTape() if record else od.no_grad():
            for bins in (edges, edges * 1.0):
                if record:
                    with pytest.raises(DTypeError, match=r"bins are constants; pass bins\.detach"):
                        np.histogram(X, bins, density=True)
                else:
                    assert np.histogram(X, bins).hist.sum() == X.size


@pytest.mark.parametrize("fold", [np.sum, np.mean, np.var, np.std, np.any])
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4)], ids=["other", "larger"])
def test_a_mask_that_does_not_broadcast_to_its_operand_is_refused(fold, shape):
    with pytest.raises(ShapeError, match=r"where= has shape .* does not broadcast to \(3, 4\)"):
        fold(Variable(X), where=np.ones(shape, bool))


def test_a_variance_over_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ShapeError, match=r"np\.var: axis 5 does not fit"):
        np.var(Variable(X), 5, where=True, mean=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_likes_are_constants_of_the_operands_dtype(dtype):
    x = np.ones((2, 3), dtype)
    v = Variable(x, requires_grad=x.dtype.kind in "fc")
    with GradientTape() as tape:
        for like in (np.zeros_like, np.ones_like):
            made = like(v)
            assert (made.dtype, made.requires_grad) == (x.dtype, False)
            np.testing.assert_array_equal(made.numpy(), like(x))
    assert len(tape) == 0


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_integers_and_booleans_can_require_no_gradient(dtype):
    x = np.ones(2, dtype)
    with pytest.raises(DTypeError, match=dtype):
        Variable(x, requires_grad=True)
    with GradientTape() as tape, pytest.raises(DTypeError, match=dtype):
        tape.watch(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, v: np.sum(a, initial=v),
        lambda a, v: a.sum(initial=v),
        lambda a, v: np.max(a, initial=v),
        lambda a, v: a.prod(initial=v),
    ],
    ids=["np.sum", "array.sum", "np.max", "array.prod"],
)
def test_numpy_does_not_take_a_recorded_initial_value_for_a_number(call):
    w = Variable(3.0, requires_grad=True)
    with GradientTape():
        for recorded in (w, w * 2.0):
            # The error is NumPy's own, and ours its cause.
            with pytest.raises(ValueError, match="array element") as raised:
                call(np.ones(3), recorded)
            assert type(raised.value.__cause__) is TapeError
            assert "would carry no gradient" in str(raised.value.__cause__)
    assert call(np.ones(3), w) == call(np.ones(3), 3.0)  # nothing records
    assert call(np.ones(3), w.detach()) == call(np.ones(3), 3.0)


def test_the_method_of_an_array_gives_a_variable_for_a_bound_its_gradient_as_numpys_function_does():
    w, x = Variable([0.0, 2.0, 2.0], requires_grad=True), np.ones(3)
    for clip in (lambda: x.clip(w, 5.0), lambda: np.clip(x, w, 5.0), lambda: x.clip(w)):
        with GradientTape() as tape:
            out = clip()
        assert out.numpy().tolist() == [1.0, 2.0, 2.0]
        assert tape.gradient(out, w, np.array([1.0, 10.0, 100.0])).tolist() == [0.0, 10.0, 100.0]


MASKS = {
    "whole numbers": np.array([[1], [0], [1]]),
    "floats": np.array([1.0, 0.0, 1.0, 1.0]),
    "a 0-d array": np.array(1),
    "a Variable": Variable(np.array([1, 0, 1, 1])),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=list(MASKS))
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all", "max", "min"])
def test_an_array_that_is_not_of_truths_is_refused_as_where_as_numpy_refuses_it(name, mask):
    call, named = getattr(np, name), {"initial": 0.0} if name in ("max", "min") else {}
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        call(X, where=mask.numpy() if isinstance(mask, Variable) else mask, **named)
    words = rf"np\.{name}: where= is a.* of (int|float)64; pass booleans, where=mask != 0"
    with pytest.raises(DTypeError, match=words):
        call(Variable(X), where=mask, **named)
    with pytest.raises(DTypeError, match=words):
        od.grad(lambda x: call(x, where=mask, **named) * 1.0)(X)


def test_a_list_of_ones_and_zeros_is_a_where_as_in_numpy():
    x = np.arange(12.0).reshape(3, 4)  # whole numbers, whose sums are exact in any order
    got = np.sum(Variable(x), 1, where=[1, 0, 1, 1])
    np.testing.assert_array_equal(got, [5, 17, 29])


def test_every_function_of_numpy_that_has_the_name_of_an_op_means_it():
    apart = {
        "array",
        "identity",
        "put",
        "put_along_axis",
    }  # of lists and sizes, or written in place
    meant = {known for known in numpy_calls.OP_NAMES if "." not in known}
    for name in {n for n in dir(ops) if n.islower() and n[0] != "_"} - apart:
        theirs = getattr(np, name, None)
        if callable(theirs) and not isinstance(theirs, (type, np.ufunc)) and hasattr(ops, name):
            told = theirs in numpy_calls._WITHOUT_GRADIENT or theirs in numpy_calls._CALLS
            assert name in meant or told, name


def test_the_bessel_function_of_numpy_is_that_of_the_table():
    v = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = np.i0(v)
    np.testing.assert_allclose(y.detach().numpy(), np.i0(X), rtol=1e-14)
    slope = tape.gradient(y, v, np.ones_like(X))
    np.testing.assert_array_equal(slope, ops.i1(X))


def test_an_inner_ufunc_of_a_function_of_scipy_names_our_function():
    special = pytest.importorskip("scipy.special")
    with pytest.raises(DTypeError, match=r"od\.ops\.zeta is what scipy\.special\.zeta is on"):
        special.zeta(3.0, Variable(X, requires_grad=True))
