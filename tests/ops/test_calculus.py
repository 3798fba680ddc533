"""NumPy's differences, integrals, interpolation and sequences on Variables, with gradients."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, SettingError, ShapeError
from odyssey.spec import Spec
from support.cases import Graph, assert_same

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5))
PLACES = np.array([0.0, 1.0, 3.0, 4.5])
INTO = np.array([-1.0, -0.2, 0.5, 1.0])
HEIGHTS = X[:, 0].copy()
ENDS = X[0].copy(), X[1].copy()

# A call of NumPy's function or of ours, and the arrays that get a gradient.
CALLS = {
    "diff": (lambda m, x: m.diff(x), X),
    "diff, twice, by axis": (lambda m, x: m.diff(x, 2, 0), X),
    "diff, ends": (lambda m, x, y: m.diff(x, prepend=0.5, append=y), X, X[:, :2].copy()),
    "diff, more than there are": (lambda m, x: m.diff(x, 6), X),
    "diff, never": (lambda m, x: m.diff(x, n=0), X),
    "trapezoid": (lambda m, x: m.trapezoid(x), X),
    "trapezoid, dx": (lambda m, x: m.trapezoid(x, dx=0.25, axis=0), X),
    "trapezoid, dx too": (lambda m, x, d: m.trapezoid(x, dx=d), X, np.array(0.25)),
    "trapezoid, places": (lambda m, x, p: m.trapezoid(x, p, axis=0), X, PLACES),
    "trapezoid, places for all": (lambda m, x, p: m.trapezoid(x, p, axis=0), X, X.cumsum(0)),
    "trapezoid, one value": (lambda m, x: m.trapezoid(x), X[:, :1].copy()),
    "gradient": (lambda m, x: m.gradient(x), X),
    "gradient, one axis": (lambda m, x: m.gradient(x, 0.5, axis=-1), X),
    "gradient, axes in turn": (lambda m, x: m.gradient(x, 0.5, 2.0, axis=(1, 0)), X),
    "gradient, second order": (lambda m, x: m.gradient(x, 0.5, edge_order=2), X),
    "gradient, step": (lambda m, x, d: m.gradient(x, d, edge_order=2), X, np.array(0.5)),
    "gradient, places": (lambda m, x, p: m.gradient(x, p, 2.0), X, PLACES),
    "gradient, places, second": (
        lambda m, x, p: m.gradient(x, p, axis=0, edge_order=2),
        X,
        PLACES,
    ),
    "gradient, fixed places": (lambda m, x: m.gradient(x, PLACES, axis=0, edge_order=2), X),
    "gradient, even places": (lambda m, x: m.gradient(x, np.arange(4), axis=0), X),
    "gradient of two": (lambda m, x: m.gradient(x, axis=0), X[:2].copy()),
    "linspace": (lambda m, a, b: m.linspace(a, b, 7), *ENDS),
    "linspace, open": (lambda m, a, b: m.linspace(a, b, 7, endpoint=False, axis=-1), *ENDS),
    "linspace, step": (lambda m, a, b: m.linspace(a, b, 3, retstep=True), *ENDS),
    "linspace of numbers": (lambda m, a: m.linspace(a, 2), np.array(0.25)),
    "linspace of one": (lambda m, a, b: m.linspace(a, b, 1), *ENDS),
    "linspace of none": (lambda m, a, b: m.linspace(a, b, 0), *ENDS),
    "interp": (lambda m, x, p, f: m.interp(x, p, f), X, INTO, HEIGHTS),
    "interp, beyond": (
        lambda m, x, p, f: m.interp(x, p, f, left=0.5, right=3),
        X,
        INTO,
        HEIGHTS,
    ),
    "interp, periodic": (
        lambda m, x, p, f: m.interp(x, p, f, period=1.5),
        X,
        np.array([0.3, -0.2, 2.1, 0.5]),
        HEIGHTS,
    ),
    "interp of one point": (
        lambda m, x, p, f: m.interp(x, p, f, right=0.0),
        X,
        INTO[:1].copy(),
        HEIGHTS[:1].copy(),
    ),
    "interp, one number": (lambda m, x, f: m.interp(x, INTO, f), np.array(0.1), HEIGHTS),
}
every_call = pytest.mark.parametrize("case", CALLS.values(), ids=list(CALLS))


def parts(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


@every_call
def test_a_call_on_variables_has_numpys_value_to_the_last_bit(case):
    call, *arrays = case
    wanted = call(np, *arrays)
    leaves = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape():
        theirs, ours = call(np, *leaves), call(ops, *leaves)
    for found in (theirs, ours, call(ops, *arrays)):
        assert isinstance(found, tuple) == isinstance(wanted, tuple)
        for got, want in zip(parts(found), parts(wanted), strict=True):
            got = got.numpy() if isinstance(got, Variable) else np.asarray(got)
            assert (got.dtype, got.shape) == (np.asarray(want).dtype, np.shape(want))
            np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)


@every_call
def test_a_call_has_its_gradients_in_all_its_arrays_to_second_order(case):
    call, *arrays = case

    def squares(*moving):
        return sum(ops.sum(part * part) for part in parts(call(ops, *moving)))

    if all(part.size for part in parts(call(np, *arrays)) if isinstance(part, np.ndarray)):
        od.testing.check_gradients(squares, *arrays, order=2, tolerance=1e-5)


@every_call
def test_a_call_is_traced_into_a_graph_of_the_same_value(case):
    call, *arrays = case
    graph = Graph()
    symbols = [graph.symbol(Spec(x.shape, x.dtype)) for x in arrays]
    traced = parts(call(ops, *symbols))
    known = dict(zip((s.id for s in symbols), arrays, strict=True))
    for symbol, want in zip(traced, parts(call(ops, *arrays)), strict=True):
        got = graph.run(symbol, known) if hasattr(symbol, "spec") else symbol
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)


DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.complex128])
KEPT = {
    "diff": lambda x: np.diff(x),
    "gradient": lambda x: np.gradient(x),
    "trapezoid": lambda x: np.trapezoid(x),
    "linspace": lambda x: np.linspace(x, 3, 4),
    "interp": lambda x: np.interp([0.5, 1.5], [0.0, 1.0, 2.0, 3.0], x),
}


@DTYPES
@pytest.mark.parametrize("name", KEPT)
def test_results_have_the_dtype_of_numpys(name, dtype):
    x = np.array([0, 1, 1, 0], dtype)
    if dtype is np.bool_ and name == "gradient":  # which NumPy cannot subtract
        return
    wanted = KEPT[name](x)
    got = KEPT[name](Variable(x, requires_grad=x.dtype.kind in "fc")).numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_whole_sequences_are_constants():
    w = Variable(0.5, requires_grad=True)
    with GradientTape():
        found = np.linspace(w, 9.75, 4, dtype=int)
    assert_same(found.numpy(), np.linspace(0.5, 9.75, 4, dtype=int))
    assert not found.requires_grad


def test_interpolation_with_complex_values_has_complex_gradients():
    f = np.array([1 + 1j, 2 - 1j, 0.5j])
    places = np.array([0.0, 1.0, 2.0])
    x = Variable([0.25, 1.5], requires_grad=True)
    w = Variable(f, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        out = np.interp(x, places, w)
    assert_same(out.numpy(), np.interp(x.numpy(), places, f))
    cotangent = np.array([1j, 2.0])
    # The real part of the slope times the conjugate of the cotangent.
    wanted = (np.array([f[1] - f[0], f[2] - f[1]]).conj() * cotangent).real
    np.testing.assert_allclose(tape.gradient(out, x, cotangent), wanted)
    np.testing.assert_allclose(tape.gradient(out, w, cotangent), [0.75j, 0.25j + 1.0, 1.0])


def test_of_two_last_points_at_one_place_the_last_has_the_value_and_the_gradient():
    places, f = np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 5.0])
    w = Variable(f, requires_grad=True)
    x = np.array([0.5, 1.0, 2.0])
    compiled = od.compile(lambda w: np.interp(x, places, w))
    with GradientTape(persistent=True) as tape:
        out = np.interp(x, places, w)
        again = [compiled(w) for _ in range(3)]
    for value in (out, *again):
        assert_same(value.numpy(), np.interp(x, places, f))
        assert tape.gradient(value, w, np.array([2.0, 10.0, 100.0])).tolist() == [1.0, 1.0, 110.0]


def test_numbers_of_numpys_are_settings_of_an_interpolation_too():
    w = Variable(np.array([-5.0, 0.4, 5.0], np.float32), requires_grad=True)
    x = w.numpy()
    with GradientTape():
        ends = np.interp(w, PLACES, HEIGHTS, left=np.float32(0.25), right=np.array(2))
        turns = np.interp(w, PLACES, HEIGHTS, period=np.float64(6.0))
    assert_same(ends.numpy(), np.interp(x, PLACES, HEIGHTS, left=0.25, right=2))
    assert_same(turns.numpy(), np.interp(x, PLACES, HEIGHTS, period=6.0))


def test_places_that_move_evenly_spaced_points_have_a_gradient_each():
    # NumPy takes one distance for all, by which the first two places alone would matter.
    x = np.array([1.0, 2.0, 4.0, 7.0])
    p = np.arange(4.0)
    slope = od.grad(lambda v: np.gradient(x, v)[2])(p)
    # (x3 - x1) / (p3 - p1), since the parabola's slope at even places is the secant's; it moves
    # with the middle place by the second derivative.
    np.testing.assert_allclose(slope, od.grad(lambda v: _parabola(x, v))(p), rtol=1e-12)
    assert np.count_nonzero(slope) == 3


def _parabola(x, v):
    a, b = v[2] - v[1], v[3] - v[2]
    rise, more = (x[2] - x[1]) / a, (x[3] - x[2]) / b
    return (rise * b + more * a) / (a + b)


REFUSED = {
    "diff of a number": (lambda: np.diff(Variable(1.0)), ShapeError, "diff"),
    "diff, negative": (lambda: np.diff(Variable(X), -1), SettingError, "must not be negative"),
    "diff, half": (lambda: np.diff(Variable(X), 0.5), OdysseyError, "diff"),
    "trapezoid, no axis": (lambda: np.trapezoid(Variable(X), axis=2), ShapeError, "does not fit"),
    "trapezoid, places": (
        lambda: np.trapezoid(Variable(X), np.arange(3.0)),
        ShapeError,
        "do not broadcast",
    ),
    "gradient, short": (lambda: np.gradient(Variable(X[:1])), ShapeError, "too short"),
    "gradient, order": (lambda: np.gradient(Variable(X), edge_order=3), SettingError, "1 or 2"),
    "gradient, spacings": (
        lambda: np.gradient(Variable(X), 1.0, 2.0, 3.0),
        DTypeError,
        "3 spacings came for 2 axes",
    ),
    "gradient, places": (
        lambda: np.gradient(Variable(X), np.arange(3.0), axis=0),
        ShapeError,
        "pass 4 of them",
    ),
    "linspace, negative": (
        lambda: np.linspace(Variable(0.0), 1, -1),
        ShapeError,
        "it must not be negative",
    ),
    "interp, unlike": (
        lambda: np.interp(Variable(X), PLACES, PLACES[:2]),
        ShapeError,
        "as many values as positions",
    ),
    "interp, complex": (
        lambda: np.interp(Variable(X + 0j), PLACES, PLACES),
        DTypeError,
        "places are real",
    ),
    "interp, period": (
        lambda: np.interp(Variable(X), PLACES, PLACES, period=0),
        ShapeError,
        "period is 0",
    ),
    "interp, left": (
        lambda: np.interp(Variable(X), PLACES, PLACES, left=Variable(1.0)),
        DTypeError,
        "static",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_has_no_meaning_is_refused_in_words(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_a_period_of_places_that_are_known_is_traced():
    graph = Graph()
    symbol = graph.symbol(Spec(X.shape, X.dtype))
    found = ops.interp(symbol, INTO, HEIGHTS, period=1.5)
    wanted = np.interp(X, INTO, HEIGHTS, period=1.5)
    np.testing.assert_allclose(graph.run(found, {symbol.id: X}), wanted)


def test_places_among_sorted_numbers_are_traced():
    graph = Graph()
    symbol = graph.symbol(Spec((4,), np.dtype(float)))
    found = ops.searchsorted(PLACES, symbol)
    np.testing.assert_array_equal(
        graph.run(found, {symbol.id: INTO}), np.searchsorted(PLACES, INTO)
    )
