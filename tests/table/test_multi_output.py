"""Ops of several results: every row that has some is walked, and a few of our own are tried."""

import gc
import weakref
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import (
    DTypeError,
    NotDifferentiableError,
    OdysseyError,
    ShapeError,
    TapeError,
    UntrackedError,
)
from odyssey.ops import OPS, Symbol
from odyssey.spec import spec_of
from odyssey.table.multi_output import MultiOutput, MultiOutputSpec
from odyssey.table.result_checks import check_rule
from support.cases import (
    SEVERAL,
    Graph,
    assert_same,
    draw,
    random_like,
    tracked,
    walk,
)

every_sample = walk(SEVERAL)
every_row = pytest.mark.parametrize(
    "row", [row for row in OPS.values() if row.pack_results], ids=lambda row: row.name
)
X = np.array([0.3, -0.7, 1.1])
EIGH = type(np.linalg.eigh(np.eye(2)))


def leaf(value):
    return Variable(value, requires_grad=True)


def hermitian(n, complex_=False, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    if complex_:
        a = a + 1j * rng.normal(size=(n, n))
    return (a + a.conj().T) / 2


class Pair(NamedTuple):
    sine: object
    cosine: object


def sine_and_cosine(results=("sine", "cosine"), **extra):
    """Two functions of one array, each the other's derivative."""

    @od.op(
        results=results,
        infer=lambda x: (x, x),
        vjp={"x": lambda g_sine, g_cosine, sine, cosine: g_sine * cosine - g_cosine * sine},
        jvp={"x": lambda t, sine, cosine: (t * cosine, -t * sine)},
        **extra,
    )
    def turn(x, /):
        return np.sin(x), np.cos(x)

    return turn


# ------------------------------------------------------------------ every row


@every_sample
def test_a_call_gives_what_the_reference_gives_and_variables_of_it(row, sample):
    operands = draw(sample)
    options = row.bind_arguments(operands, sample.options)[1]
    wanted = row.reference(*operands, *options)
    plain = row.call(*operands, **sample.options)
    with GradientTape():
        recorded = row.call(*map(leaf, operands), **sample.options)
    assert type(plain) is type(wanted) is type(recorded)
    for name, a, b, c in zip(row.results, plain, wanted, recorded, strict=True):
        assert_same(a, b)
        assert_same(c.numpy(), b)
        assert getattr(recorded, name, c) is c


@every_sample
def test_a_call_on_symbols_is_one_instruction_of_several_results(row, sample):
    operands = draw(sample)
    graph = Graph()
    symbols = [graph.symbol(spec_of(x)) for x in operands]
    results = row.call(*symbols, **sample.options)
    assert [instruction[0] for instruction in graph.instructions] == [row]
    known = {s.id: x for s, x in zip(symbols, operands, strict=True)}
    for symbol, wanted in zip(results, row.call(*operands, **sample.options), strict=True):
        assert isinstance(symbol, Symbol)
        assert_same(graph.run(symbol, known), wanted)


@every_sample
def test_every_rule_runs_on_symbols_and_means_the_same_there(row, sample):
    operands = draw(sample)
    options = row.bind_arguments(operands, sample.options)[1]
    values = [*operands, *row.call(*operands, **sample.options)]
    specs = [spec_of(v) for v in values]
    count = len(operands)
    wire = (*specs[:count], MultiOutputSpec(tuple(specs[count:])))
    for k in tracked(row, sample):
        # Checked as those of rows from outside are, which says whose rule gave what.
        pull = check_rule(row.layout, k, row.pullbacks[k])
        push = check_rule(row.layout, k, row.pushforwards[k], forward=True)
        for mode in ("reverse", "forward"):
            graph = Graph()
            symbols = [graph.symbol(spec) for spec in specs]
            moving = [
                graph.symbol(s) for s in (specs[count:] if mode == "reverse" else specs[k : k + 1])
            ]
            numbers = [random_like(m, seed=3) for m in moving]
            known = {s.id: v for s, v in zip((*symbols, *moving), (*values, *numbers), strict=True)}
            if mode == "reverse":
                traced = [
                    row.pullbacks[k](
                        MultiOutput(dict(enumerate(moving))), (*symbols, *options), wire
                    )
                ]
                eager = [pull(MultiOutput(dict(enumerate(numbers))), (*values, *options), wire)]
            else:
                traced = row.pushforwards[k](moving[0], (*symbols, *options), wire).parts.values()
                eager = push(numbers[0], (*values, *options), wire).parts.values()
            for a, b in zip(traced, eager, strict=True):
                assert_same(graph.run(a, known), b)


@every_sample
def test_gradients_to_second_order_agree_with_differences_of_all_and_of_each_result(row, sample):
    operands = draw(sample)
    positions = tracked(row, sample)

    def call(*moving):
        given = list(operands)
        for k, value in zip(positions, moving, strict=True):
            given[k] = value
        return row.call(*given, **sample.options)

    at = [operands[k] for k in positions]
    od.testing.check_gradients(call, *at, tolerance=1e-6)
    for j in range(len(row.results)):
        od.testing.check_gradients(lambda *x, j=j: call(*x)[j], *at, tolerance=1e-6)


@every_sample
def test_forward_and_reverse_mode_are_transposes_and_the_backward_function_agrees(row, sample):
    operands = draw(sample)
    leaves = [leaf(x) for x in operands]
    with GradientTape(persistent=True) as tape:
        made = row.call(*leaves, **sample.options)
    cotangents = [random_like(v, seed=5 + j) for j, v in enumerate(made)]
    directions = [random_like(x, seed=9 + k) for k, x in enumerate(operands)]
    gradients = tape.gradient(list(made), leaves, cotangents)
    tangents = tape.jvp(list(made), leaves, directions)
    forward = sum(np.vdot(c, t).real for c, t in zip(cotangents, tangents, strict=True))
    reverse = sum(np.vdot(g, v).real for g, v in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-12)
    values = dict(zip(row.arrays, operands, strict=True))
    values |= dict(zip(row.results, [v.numpy() for v in made], strict=True)) | sample.options
    by_hand = getattr(od.backward, row.name)(*cotangents, **values)
    by_hand = by_hand if isinstance(by_hand, tuple) else (by_hand,)
    for a, b in zip(by_hand, gradients, strict=True):
        assert_same(a, b)


@every_row
def test_rules_begin_with_cotangents_and_the_row_has_a_part_for_each_result(row):
    assert row.cotangents == tuple(f"g_{result}" for result in row.results)
    assert [part.name for part in row.result_rows] == [f"{row.name}.{r}" for r in row.results]
    for name, rule in row.vjp.items():
        assert rule is None or row.layout.names_after_cotangents(rule) is not None
        assert row.jvp[name] is not None


# ------------------------------------------------------------------ eigenvalues and eigenvectors


def gauge_free(a, UPLO="L"):
    """What does not depend on the factors of eigenvectors."""
    w, v = ops.eigh(a, UPLO)
    weighted = ops.matmul(v * ops.expand_dims(ops.exp(w), -2), ops.conj(ops.matrix_transpose(v)))
    return weighted, ops.absolute(v) ** 2, w


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_complex_hermitian_matrices_to_second_order_where_the_phase_does_not_count(batch, uplo):
    a = np.broadcast_to(hermitian(3, complex_=True), (*batch, 3, 3)).copy()
    a[..., 0, 0] += np.arange(len(a))[0 if not batch else slice(None)]
    od.testing.check_gradients(lambda a: gauge_free(a, uplo), a, tolerance=1e-6)
    od.testing.check_gradients(lambda a: ops.eigvalsh(a, uplo), a, tolerance=1e-6)


@pytest.mark.parametrize("complex_", [False, True])
def test_the_exponential_of_a_matrix_has_the_gradient_of_its_series(complex_):
    a = hermitian(3, complex_) / 4
    d = hermitian(3, complex_, seed=1)

    def by_series(t):  # d/dt of tr(d expm(a + t d)), to machine precision for such small matrices
        total, term = np.zeros_like(a), np.eye(3, dtype=a.dtype)
        for k in range(1, 30):
            total = total + term
            term = term @ (a + t * d) / k
        return np.vdot(d, total).real

    v = leaf(a)
    with GradientTape() as tape:
        loss = ops.real(ops.sum(ops.multiply(np.conj(d), gauge_free(v)[0])))
    h = 1e-3
    slope = (8 * (by_series(h) - by_series(-h)) - by_series(2 * h) + by_series(-2 * h)) / (12 * h)
    np.testing.assert_allclose(np.vdot(d, tape.gradient(loss, v)).real, slope, rtol=1e-10)


def test_only_the_triangle_that_is_read_has_a_gradient():
    a = hermitian(3)
    for uplo, other in (("L", np.triu), ("U", np.tril)):
        v = leaf(a)
        with GradientTape() as tape:
            w, u = ops.eigh(v, uplo)
            loss = ops.sum(w**3) + ops.sum(u**2 * X)
        g = tape.gradient(loss, v)
        np.testing.assert_array_equal(other(g, 1 if uplo == "L" else -1), 0)


def test_numpy_on_variables_is_the_row_with_its_options():
    a = hermitian(3)
    with GradientTape() as tape:
        v = leaf(a)
        one, two = np.linalg.eigh(v, UPLO="U"), np.linalg.eigvalsh(v)
    assert type(one) is EIGH
    assert_same(one.eigenvectors.numpy(), np.linalg.eigh(a, UPLO="U")[1])
    assert_same(two.numpy(), np.linalg.eigvalsh(a))
    assert [node.op for node in tape.nodes] == [
        "eigh",
        "eigh.eigenvalues",
        "eigh.eigenvectors",
        "eigvalsh",
    ]


@pytest.mark.parametrize("values_only", [False, True])
def test_values_that_are_equal_have_finite_and_right_gradients(values_only):
    d = np.array([1.0, 1.0, 3.0])
    q = np.linalg.qr(hermitian(3))[0]
    for a in (np.diag(d), np.eye(3), np.zeros((3, 3)), q * d @ q.T):
        v = leaf(a)
        with GradientTape() as tape:
            w = ops.eigvalsh(v) if values_only else ops.eigh(v)[0]
            loss = ops.sum(w**2)  # the trace of a @ a
        lower = np.tril(2 * 2 * a, -1) + np.diag(np.diag(2 * a))
        np.testing.assert_allclose(tape.gradient(loss, v), lower, atol=1e-12)


def test_vectors_of_equal_values_have_no_derivative_and_that_shows():
    v = leaf(np.eye(2))
    with GradientTape() as tape:
        loss = ops.sum(ops.eigh(v)[1] * np.arange(4.0).reshape(2, 2))
    with np.errstate(all="ignore"):
        assert not np.isfinite(tape.gradient(loss, v)).all()


@pytest.mark.parametrize("power", [-900, -300, 300, 900])
def test_the_size_of_the_matrix_leaves_gradients_as_they_are(power):
    scale = 2.0**power  # so that nothing is rounded in scaling
    for make in (lambda a: ops.eigh(a)[0], ops.eigvalsh):
        usual = od.grad(lambda a, f=make: ops.sum(f(a) * X))(hermitian(3))
        scaled = od.grad(lambda a, f=make: ops.sum(f(a) * X))(hermitian(3) * scale)
        np.testing.assert_allclose(scaled, usual, rtol=1e-12)
    turned = od.grad(lambda a: ops.sum(ops.eigh(a)[1] ** 2 * X))
    np.testing.assert_allclose(
        turned(hermitian(3) * 2.0**300) * 2.0**300, turned(hermitian(3)), rtol=1e-10
    )


@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf])
def test_matrices_that_are_not_finite_have_no_made_up_derivative(corner):
    a = hermitian(3)
    a[1, 0] = corner
    for make in (lambda a: ops.eigh(a)[0], ops.eigvalsh):
        with np.errstate(all="ignore"), suppress(OdysseyError):  # LAPACK may give up, or NaN
            assert np.isnan(od.grad(lambda a, f=make: ops.sum(f(a) * X))(a)).any()


def test_what_no_matrix_is_is_refused_in_words():
    with pytest.raises(DTypeError, match=r"^eigh: a is of float16; wanted are single or double"):
        ops.eigh(np.eye(2, dtype=np.float16))
    with pytest.raises(ShapeError, match=r"^eigvalsh: a has shape \(2, 3\)"):
        ops.eigvalsh(np.zeros((2, 3)))


# ------------------------------------------------------------------ on the tape


def test_what_a_tape_says_of_such_a_call():
    with GradientTape() as tape:
        a = Variable(hermitian(2), requires_grad=True, name="a")
        w, _ = np.linalg.eigh(a)
        y = w.sum()
    call, first = tape.nodes[:2]
    assert repr(call) == (
        "TapeNode(#2: (float64[2], float64[2, 2]) = eigh(a); saved a: float64[2, 2], "
        "eigenvalues: float64[2], eigenvectors: float64[2, 2])"
    )
    assert repr(first) == "TapeNode(#3: float64[2] = eigh.eigenvalues(#2))"
    assert tape.explain(y, a) == "a -> eigh -> eigh.eigenvalues -> sum -> #5"
    assert "eigh.eigenvectors(#2)" in tape.to_dot()
    assert "eigh.eigenvectors(#35;2)" in tape.to_mermaid()
    saved = (a, *np.linalg.eigh(a))
    assert tape.memory().total == sum(x.numpy().nbytes for x in saved)


def test_a_result_that_nothing_depends_on_counts_as_zeros():
    turn = sine_and_cosine()
    for pick, wanted in ((0, np.cos(X)), (1, -np.sin(X))):
        x = leaf(X)
        with GradientTape() as tape:
            y = turn(x)[pick].sum()
        tape.backward(y)
        np.testing.assert_array_equal(x.grad, wanted)


def test_a_result_may_be_used_often_and_be_a_source():
    turn = sine_and_cosine()
    x = leaf(X)
    with GradientTape(persistent=True) as tape:
        s, c = turn(x)
        y = (s * c + s).sum()
    g_s, g_c, g_x = tape.gradient(y, (s, c, x))
    np.testing.assert_array_equal(g_s, np.cos(X) + 1)
    np.testing.assert_array_equal(g_c, np.sin(X))
    np.testing.assert_allclose(g_x, np.cos(2 * X) + np.cos(X), rtol=1e-14)
    gradients = tape.backward(y)
    np.testing.assert_array_equal(gradients[c], np.sin(X))
    np.testing.assert_array_equal(tape.jvp((s, c), x, np.ones(3))[1], -np.sin(X))


def test_hooks_see_the_cotangent_of_one_result():
    seen = []
    x = leaf(X)
    with GradientTape() as tape:
        s, c = sine_and_cosine()(x)
        y = (2.0 * s + c).sum()
    tape.on_gradient(s, lambda g: seen.append(g) or 0 * g)
    np.testing.assert_array_equal(tape.gradient(y, x), -np.sin(X))
    np.testing.assert_array_equal(seen[0], [2.0, 2.0, 2.0])


@pytest.mark.parametrize("order", [2, 3])
def test_nested_tapes_differentiate_through_it(order):
    turn = sine_and_cosine()

    def f(x):
        return turn(x)[0]

    for _ in range(order):
        f = lambda x, g=f: od.grad(lambda x: g(x).sum())(x)  # noqa: E731
    wanted = {2: -np.sin(X), 3: -np.cos(X)}[order]
    np.testing.assert_allclose(f(X), wanted, rtol=1e-14)


def test_the_second_derivative_counts_results_that_a_long_recording_dropped():
    turn = sine_and_cosine()
    x = leaf(X)
    with GradientTape(persistent=True) as tape:
        s = turn(x)[0]  # the cosine is held by nobody but the call
        y = s
        for _ in range(3000):
            y = y + 0.0
        assert not any(node.op == "turn.cosine" for node in tape.nodes)
        (g,) = tape.gradient(y, [x], np.ones(3), create_graph=True)
    np.testing.assert_allclose(tape.gradient(g, x, np.ones(3)), -np.sin(X), rtol=1e-14)


def test_the_derivative_of_a_gradient_in_a_result_is_that_of_its_rule():
    x = leaf(X)
    with GradientTape(persistent=True) as tape:
        s, c = sine_and_cosine()(x)
        g = tape.gradient(s, x, np.ones(3), create_graph=True)  # is c
    np.testing.assert_array_equal(tape.gradient(g, c, np.ones(3)), np.ones(3))
    assert s is not c


def test_what_no_rule_asks_for_is_freed_with_its_variable():
    @od.op(
        results=("double", "triple"),
        infer=lambda x: (x, x),
        vjp={"x": lambda g_double, g_triple: 2.0 * g_double + 3.0 * g_triple},
    )
    def several(x, /):
        return 2.0 * x, 3.0 * x

    x = leaf(np.ones(1000))
    with GradientTape() as tape:
        d, t = several(x)
        freed = weakref.ref(t._array)
        del t
        gc.collect()
        assert freed() is None
        for _ in range(2000):  # calls whose results are dropped are dropped
            several(x)
        assert len(tape) < 1500
        y = d.sum()
    np.testing.assert_array_equal(tape.gradient(y, x), np.full(1000, 2.0))


def test_integers_among_the_results_are_constants():
    @od.op(
        results=("values", "places"),
        infer=lambda x: (x, od.spec.Spec(x.shape, np.dtype(np.int64))),
        vjp={"x": lambda g_values, places: ops.take(g_values, np.argsort(places))},
        jvp={"x": lambda t, places: (ops.take(t, places), None)},
    )
    def ordered(x, /):
        places = np.argsort(x)
        return x[places], places

    x = leaf(X)
    with GradientTape(persistent=True) as tape:
        values, places = ordered(x)
        y = (values * np.array([1.0, 10.0, 100.0])).sum()
    assert not places.requires_grad
    assert places.dtype == np.int64
    np.testing.assert_array_equal(tape.gradient(y, x), [10.0, 1.0, 100.0])
    np.testing.assert_array_equal(tape.jvp(values, x, X), np.sort(X))


def test_outside_of_a_tape_and_in_pauses_results_are_untracked_or_constant():
    turn = sine_and_cosine()
    x = leaf(X)
    for loose in turn(x):
        with GradientTape(), pytest.raises(UntrackedError, match="while nothing recorded"):
            ops.exp(loose)
    with GradientTape() as tape:
        with od.no_grad():
            s, _ = turn(x)
        y = (s * x).sum()
    np.testing.assert_array_equal(tape.gradient(y, x), np.sin(X))


def test_checkpoints_watch_and_careful_tapes_go_through_it():
    turn = sine_and_cosine()

    def f(x):
        s, c = turn(x)
        return (s * s * c).sum()

    wanted = 2 * np.sin(X) * np.cos(X) ** 2 - np.sin(X) ** 3
    x = leaf(X)
    for make in (lambda: f(x), lambda: od.checkpoint(f)(x)):
        for settings in ({}, {"check": True}, {"persistent": True}):
            with GradientTape(**settings) as tape:
                y = make()
            np.testing.assert_allclose(tape.gradient(y, x), wanted, rtol=1e-14)
    np.testing.assert_allclose(
        od.grad(lambda x: od.grad(od.checkpoint(f))(x).sum())(X),
        od.grad(lambda x: od.grad(f)(x).sum())(X),
        rtol=1e-13,
    )


# ------------------------------------------------------------------ traced and compiled


def test_a_traced_call_prints_its_results_and_its_graph_computes_the_same():
    a = hermitian(2)
    lowered = od.compile(lambda a: ops.eigh(a)).lower(a)
    assert "%1: float64[2], %2: float64[2, 2] = eigh(%0, UPLO='L')" in str(lowered.graph)
    out, _ = lowered.evaluate(a)
    assert type(out) is EIGH
    for x, wanted in zip(out, np.linalg.eigh(a), strict=True):
        assert_same(x, wanted)


def test_gradients_through_it_are_traced_and_compiled():
    a = hermitian(3)

    def loss(a):
        w, v = ops.eigh(a)
        return ops.sum(w**3) + ops.sum(v**2 * X)

    compiled = od.compile(od.grad(loss))
    np.testing.assert_array_equal(compiled(a), od.grad(loss)(a))
    out, _ = compiled.lower(a).evaluate(a)
    np.testing.assert_allclose(out, od.grad(loss)(a), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ by hand


@pytest.mark.parametrize("check", [False, True])
def test_a_call_recorded_by_hand_has_the_gradient_of_the_op(check):
    a = hermitian(2)
    w, v = np.linalg.eigh(a)
    for named in (False, True):
        tape = GradientTape(check=check)
        tape.enable()
        x, values, vectors = tape.variable(a), tape.constant(w), tape.constant(v)
        if named:
            tape.record_eigh(x, values, vectors)
        else:
            tape.record("eigh", [x], (values, vectors))
        loss = (values * vectors[0]).sum()
        got = tape.gradient(loss, x)
        wanted = od.grad(lambda a: (ops.eigh(a)[0] * ops.eigh(a)[1][0]).sum())(a)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_records_by_hand_that_do_not_fit_are_refused():
    a = hermitian(2)
    w, v = np.linalg.eigh(a)
    tape = GradientTape(check=True)
    tape.enable()
    x = tape.variable(a)
    for outputs, error, match in (
        (tape.constant(w), TapeError, "has the outputs eigenvalues, eigenvectors; .*pass a tuple"),
        ((tape.constant(v), tape.constant(w)), ShapeError, "has shape"),
        ((tape.constant(w + 1), tape.constant(v)), TapeError, "the output holds"),
    ):
        with pytest.raises(error, match=match):
            tape.record("eigh", [x], outputs)
    one = tape.constant(w)
    with pytest.raises(TapeError, match="its input and its output"):
        tape.record("eigh", [x], (one, one))
    with pytest.raises(TapeError, match="pass the inputs and then its 2 outputs"):
        tape.record_eigh(x)
    assert len(tape) == 0


def test_a_backward_function_takes_a_cotangent_for_each_result_and_none_for_zeros():
    a = hermitian(2)
    w, v = np.linalg.eigh(a)
    np.testing.assert_array_equal(
        od.backward.eigh(np.ones(2), None, a, w, v),
        od.backward.eigh(np.ones(2), np.zeros((2, 2)), a, w, v),
    )
    with pytest.raises(DTypeError, match=r"^backward.eigh: needs eigenvectors; the signature is"):
        od.backward.eigh(np.ones(2), None, a, w)
    with pytest.raises(DTypeError, match=r"the signature is \(g_eigenvalues, g_eigenvectors, "):
        od.backward.eigh(1, 2, a, w, v, "L", 6)


# ------------------------------------------------------------------ rows from outside


def test_an_op_of_ones_own_returns_what_it_declares():
    for results, kind in ((("sine", "cosine"), tuple), (Pair, Pair)):
        turn = sine_and_cosine(results)
        x = leaf(X)
        with GradientTape() as tape:
            made = turn(x)
            y = made[0].sum()
        assert type(made) is type(turn(X)) is type(turn(1.0)) is kind
        tape.backward(y)
        np.testing.assert_array_equal(x.grad, np.cos(X))
        g = od.backward.turn(np.ones(3), None, np.sin(X), np.cos(X))
        np.testing.assert_array_equal(g, np.cos(X))
        od.testing.check_gradients(turn, X)


def declared(reference, **extra):
    return od.op(
        results=("first", "second"),
        infer=lambda x: (x, x),
        vjp={"x": lambda g_first, g_second: g_first + g_second},
        **extra,
    )(reference)


def test_results_from_outside_share_memory_with_nothing():
    def same(x, /):
        return x, x[:]

    x = leaf(X.copy())
    with GradientTape() as tape:
        made = declared(same)(x)
        y = (made[0] + made[1]).sum()
    arrays = [x._array, *[v._array for v in made]]
    for k, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[k + 1 :])
    tape.backward(y)
    np.testing.assert_array_equal(x.grad, [2.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("made", "error", "match"),
    [
        (lambda x: x, OdysseyError, "op bad: the reference gave ndarray; wanted is a tuple of 2"),
        (lambda x: None, OdysseyError, "op bad: the reference gave NoneType; wanted is a tuple"),
        (
            lambda x: (x,),
            OdysseyError,
            "op bad: the reference gave 1; wanted is a tuple of 2: first",
        ),
        (lambda x: (x, x, x), OdysseyError, "op bad: the reference gave 3; wanted is a tuple of 2"),
        (lambda x: (x, None), DTypeError, "bad: second"),
        (lambda x: (x, "text"), DTypeError, "bad: second"),
    ],
    ids=["array", "None", "one", "three", "None inside", "text inside"],
)
def test_a_reference_that_gives_something_else_is_told_so(made, error, match):
    def bad(x, /):
        return made(x)

    op = declared(bad)
    for operand in (X, leaf(X)):
        with GradientTape() as tape, pytest.raises(error, match=match):
            op(operand)
        assert len(tape) == 0


def test_rules_that_give_something_else_are_told_so():
    def both(x, /):
        return x + 1.0, x + 2.0

    for forward, match in (
        (lambda t: t, "op both: a forward rule returned ndarray; wanted is a tuple of 2 tangents"),
        (lambda t: (t,), "op both: a forward rule returned 1; wanted is a tuple of 2 tangents"),
        (lambda t: (t, np.ones(7)), r"both: the forward rule of x gave something of shape \(7,\)"),
        (lambda t: (t, "text"), "both: the forward rule of x"),
    ):
        x = leaf(X)
        with GradientTape() as tape:
            y = declared(both, jvp={"x": forward})(x)
        with pytest.raises(OdysseyError, match=match):
            tape.jvp(y[1], x, np.ones(3))
    x = leaf(X)
    with GradientTape() as tape:
        y = declared(both)(x)
    with pytest.raises(NotDifferentiableError, match="both: not differentiable"):
        tape.jvp(y[1], x, np.ones(3))


def test_a_shape_rule_that_gives_something_else_is_told_so():
    @od.op(results=("first", "second"), infer=lambda x: x)
    def bad(x, /):
        return x, x

    with pytest.raises(OdysseyError, match="op bad: infer gave Spec; wanted is a tuple of 2"):
        bad(Graph().symbol(spec_of(X)))


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"results": ("one",)}, OdysseyError, r"results= has one name; leave it out"),
        ({"results": ("a", "a")}, OdysseyError, "results= has 'a', which names something else"),
        ({"results": ("x", "y")}, OdysseyError, "results= has 'x', which names something else"),
        ({"results": ("k", "y")}, OdysseyError, "results= has 'k', which names something else"),
        ({"results": ("out", "y")}, OdysseyError, "results= has 'out'"),
        ({"results": "wv"}, DTypeError, "op several: results='wv'; pass the names of the results"),
        ({"results": 2}, DTypeError, "op several: results=2; pass the names"),
        ({"results": ("a b", "c")}, DTypeError, "pass the names of the results"),
        ({"elementwise": True}, OdysseyError, "results= and elementwise= do not go together"),
        ({"linear": True}, OdysseyError, "results= and linear= do not go together"),
        ({"selects": True}, OdysseyError, "results= and selects= do not go together"),
        ({"ufunc": np.exp}, OdysseyError, "results= and ufunc= do not go together"),
        ({"vjp": {"x": od.ops.PASS}}, OdysseyError, "PASS is the rule of an op of one result"),
        ({"vjp": {"x": lambda g: g}}, OdysseyError, "begins with g; it must begin .* g_w, g_v"),
        ({"vjp": {"x": lambda w: w}}, OdysseyError, "begins with w; it must begin with"),
        ({"vjp": {"x": lambda g_w, z: z}}, OdysseyError, "the rule of 'x' names z; known are"),
        ({"vjp": {"x": lambda g_w, w, g_v: w}}, OdysseyError, "the rule of 'x' names g_v"),
        ({"vjp": {"x": lambda g_w, out: out}}, OdysseyError, "the rule of 'x' names out"),
        (
            {"vjp": {"x": lambda g_w: g_w}, "jvp": {"x": lambda t, v: (t, v)}},
            OdysseyError,
            "forward rule of 'x' asks for v, which",
        ),
    ],
)
def test_declarations_that_cannot_be_meant_are_refused(given, error, match):
    with pytest.raises(error, match=match):

        @od.op(**{"results": ("w", "v"), **given})
        def several(x, /, k=1):
            return x, x
