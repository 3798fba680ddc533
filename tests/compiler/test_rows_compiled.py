"""Every row compiled is the row: values and two derivatives, on samples, large arrays and corners.

An ordinary run takes one sample of each row in one dtype or two, and derivatives of one row in
four; a soak takes all of them in all dtypes.
"""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError
from odyssey.ops import OPS
from support import scalar_cases
from support.cases import EVERY, draw, every_row, tracked
from support.chosen import (
    BY_ROW,
    DERIVED,
    FLOATS,
    ONE,
    ONE_DERIVED,
    OTHERS,
    drawn,
    picked,
    some_rows,
)
from support.compiled_corners import DTYPES as CORNER_DTYPES
from support.compiled_corners import check_corners
from support.compiled_rows import (
    EXACT,
    MOVED,
    ROUNDED,
    SUMMED,
    Way,
    assert_within,
    check,
    derivatives,
    forward,
    outcome,
    ways_to_outputs,
)
from support.executables import check_program

every_scalar = pytest.mark.parametrize("case", scalar_cases.CASES, ids=list(scalar_cases.CASES))


def walk_forward(name, dtypes):
    for dtype in dtypes:
        fn, calls = forward(*EVERY[name], dtype)
        assert dtype not in FLOATS or outcome(fn, calls[0])[1] is None
        check_compiled(fn, calls, (name, dtype))


def check_compiled(fn, calls, what):
    """Check what is compiled, its plan, and, where it runs as written, its program beside it."""
    compiled = od.compile(fn, check=True)
    check(fn, calls, compiled=compiled, what=what)
    if not compiled.statistics().native:
        check_program(fn, calls[0], what)


def walk_derivatives(name, dtypes):
    for dtype in dtypes:
        fn, calls = forward(*EVERY[name], dtype)
        if dtype in FLOATS or outcome(fn, calls[0])[1] is None:
            fn, calls = derivatives(*EVERY[name], dtype)
            assert dtype not in FLOATS or outcome(fn, calls[0])[1] is None
            check_compiled(fn, calls, (name, dtype))


# ------------------------------------------------------------------ samples


@pytest.mark.share(14)
@every_row
def test_a_compiled_row_is_the_row(row):
    name = ONE[row.name]
    walk_forward(name, [picked(name, FLOATS)])
    if drawn(name, 4):
        walk_forward(name, [picked(name, OTHERS)])


@pytest.mark.slow
@some_rows
def test_compiled_derivatives_of_a_row_are_its_derivatives_to_second_order(row):
    name = ONE_DERIVED[row.name]
    walk_derivatives(name, [picked(name, FLOATS)])


@pytest.mark.soak
@every_row
def test_every_sample_compiled_is_the_row_in_three_dtypes(row):
    for name in BY_ROW[row.name]:
        walk_forward(name, (*FLOATS, picked(name, OTHERS)))


@pytest.mark.soak
@every_row
def test_every_sample_compiled_has_the_derivatives_of_the_row_in_three_dtypes(row):
    others = "float16", "complex64", "complex128"
    for name in DERIVED[row.name]:
        walk_derivatives(name, (*FLOATS, picked(name, others)))


@every_row
def test_what_a_row_refuses_it_refuses_compiled_in_the_same_words(row):
    for k, case in enumerate(row.rejects):
        operands = [np.zeros(o) if isinstance(o, tuple) else o for o in case.operands]
        fn = lambda *given, case=case: row.call(*given, **case.options)  # noqa: E731
        check(fn, [operands] * 3, what=(row.name, k))


# ------------------------------------------------------------------ large arrays


def enlarged(sample):
    """A sample whose axes are 17 times as long, so that loops have blocks and ends of blocks."""

    def grown(shape):
        return tuple(n * 17 if n > 1 else n for n in shape)

    operands = tuple(grown(o) if isinstance(o, tuple) else o for o in sample.operands)
    size = max([np.prod(o, dtype=float) for o in operands if isinstance(o, tuple)], default=0)
    return sample._replace(operands=operands) if size <= 40_000 else None


def large_cases():
    """Of each row, the samples that may be enlarged."""
    found = {}
    for name, (row, sample) in EVERY.items():
        larger = enlarged(sample)
        if larger is None or larger.operands == sample.operands:
            continue
        if row.primitive == "decompose" or row.module.startswith("odyssey.linalg"):
            continue  # matrices of a certain form, and slow
        try:
            with np.errstate(all="ignore"):
                row.call(*draw(larger), **sample.options)
        except (OdysseyError, ValueError):
            continue
        found[name] = (row, larger)
    return found


# Many steps of these magnify each rounding, unless their weights are a contraction: smaller ones.
MAGNIFYING = ("recurrent_states", "recurrent_pullback")


def walk_large(names):
    for name, (row, sample) in names.items():
        dtype = picked(name, FLOATS)
        scale = 0.1 if row.name in MAGNIFYING else 1.0
        check(*scaled(forward(row, sample, dtype), scale), what=(name, dtype))
        size = max(np.prod(o) for o in sample.operands if isinstance(o, tuple))
        if tracked(row, sample) and size <= 4_000:
            check(*scaled(derivatives(row, sample, dtype), scale), what=(name, dtype))


def scaled(walk, scale):
    """A function and its calls, whose arrays of floats are so much larger."""
    fn, calls = walk
    floats = {np.dtype(dtype) for dtype in FLOATS}

    def larger(a):
        return np.asarray(a * scale, a.dtype) if getattr(a, "dtype", None) in floats else a

    return fn, calls if scale == 1.0 else od.tree.map_tree(larger, calls)


@pytest.mark.slow
def test_rows_of_arrays_longer_than_a_vector_are_the_rows():
    cases = large_cases()
    assert len(cases) > 600
    walk_large({name: case for name, case in cases.items() if drawn(name + "l", 50)})


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_all_rows_of_arrays_longer_than_a_vector_are_the_rows(part):
    walk_large(dict(list(large_cases().items())[part::10]))


# ------------------------------------------------------------------ special numbers


@pytest.mark.parametrize("case", [case for case in scalar_cases.CASES if drawn(case, 3)])
def test_scalars_at_special_numbers_are_the_same_compiled(case):
    check_corners(case, picked(case, CORNER_DTYPES))


@pytest.mark.soak
@pytest.mark.parametrize("dtype", CORNER_DTYPES)
@every_scalar
def test_scalars_at_special_numbers_are_the_same_compiled_in_every_dtype(case, dtype):
    check_corners(case, dtype)


MIXED = [("float32", "float64"), ("int32", "float32"), ("bool", "float64"), ("int64", "int32")]
MIXED += [("float16", "float32"), ("uint8", "int8"), ("complex64", "float64"), ("bool", "bool")]
BINARY = [row for row in OPS.values() if row.elementwise and len(row.arrays) == 2 and row.scalar]


NUMBERS = (2, 0.5, True, np.float64(0.5), np.int32(3), 1e300)
every_binary = pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)


def walk_mixed(row, chosen):
    """Check a row on operands of two dtypes, and on an array beside a number, on either side."""
    rng, op = np.random.default_rng(0), row.call
    for one, other in MIXED:
        x = [rng.uniform(1, 9, (4, 5)).astype(one) for _ in range(3)]
        y = [rng.uniform(1, 9, (4, 1)).astype(other) for _ in range(3)]
        for k, pairs in enumerate((zip(x, y, strict=True), zip(y, x, strict=True))):
            if chosen(f"{row.name}{one}{other}{k}"):
                check(row.call, list(pairs), what=(one, other))
    for number in NUMBERS:
        for dtype in ("float32", "int64", "float16"):
            z = [rng.uniform(1, 9, 5).astype(dtype) for _ in range(3)]
            if chosen(f"{row.name}{dtype}{number!r}"):
                check(lambda v, n=number: op(v, n), [(v,) for v in z], what=(dtype, number))
            if chosen(f"{row.name}{number!r}{dtype}"):
                check(row.call, [(number, v) for v in z], what=(number, dtype))


@every_binary
def test_operands_of_two_dtypes_and_pythons_numbers_meet_as_in_eager_calls(row):
    walk_mixed(row, lambda name: drawn(name, 40))


@pytest.mark.soak
@every_binary
def test_all_pairs_of_dtypes_and_numbers_meet_as_in_eager_calls(row):
    walk_mixed(row, lambda name: True)


# ------------------------------------------------------------------ data that eager calls refuse

INDEXED = {
    "take": lambda x, k: ops.take(x, k, axis=0),
    "take_along_axis": lambda x, k: ops.take_along_axis(x, k[:, None], axis=0),
    "embedding": lambda x, k: od.nn.embedding(k, x),
    "cross entropy": lambda x, k: od.losses.cross_entropy(x[:2], k),
    "getitem": lambda x, k: x * ops.take(x, k, axis=1).sum(),
}


@pytest.mark.parametrize("fn", INDEXED.values(), ids=INDEXED)
@pytest.mark.parametrize("bad", [[0, 3], [-4, 1], [2**40, 0], [0, -(2**40)]], ids=str)
def test_an_index_out_of_range_is_refused_at_any_call_in_the_same_words(fn, bad):
    x, good = np.arange(9.0).reshape(3, 3), np.array([2, 0])
    calls = [(x, good), (x + 1.0, good), (x, np.array(bad)), (x, good), (x, np.array([1, 0]))]
    assert [outcome(fn, call)[1] is None for call in calls] == [True, True, False, True, True]
    check(fn, calls)
    check(fn, calls[2:])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200, -0.0, 5e-324])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: ops.softmax(x, axis=0),
        lambda x: ops.logsumexp(x),
        lambda x: ops.max(x, axis=1),
        lambda x: ops.argmax(x, axis=0),
        lambda x: ops.sum(ops.relu(x), axis=0),
        lambda x: ops.var(x, axis=1),
        lambda x: ops.matmul(x, ops.transpose(x)),
        lambda x: od.grad(lambda y: ops.sum(ops.abs(y) * ops.maximum(y, 0.0)))(x),
        lambda x: od.grad(lambda y: ops.max(ops.where(y > 0.0, y, 0.0)))(x),
        lambda x: ops.sort(x, axis=-1),
        lambda x: ops.cumsum(x, axis=0) * ops.cumprod(x, axis=0),
        lambda x: ops.std(x, axis=0),
        lambda x: ops.std(x * (1.0 + 1.0j), axis=1, keepdims=True),
        lambda x: od.grad(lambda y: ops.sum(ops.std(y, axis=0)))(x),
        lambda x: ops.quantile(x, (0.0, 0.25, 0.3, 1.0), axis=0),
        lambda x: ops.percentile(x, 40.0, axis=1),
        lambda x: ops.prelu(x, x[0]),
        lambda x: ops.interp(np.arange(-0.5, 19.0, 0.25), np.arange(19.0), x[2]),
        lambda x: ops.interp(np.arange(6.0), np.array([0.0, 1.0, 1.0, 4.0, 4.0]), x[:, 3]),
    ],
)
def test_folds_of_special_numbers_are_those_of_the_row(fn, bad):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 19))
    y = x.copy()
    y[2, 18] = bad
    y[4, 3] = bad
    assert outcome(fn, (y,))[1] is None
    check(fn, [(x,), (y,), (y * -1.0,), (x,)])


# ------------------------------------------------------------------ the walk finds what is wrong

PROGRAMS = pytest.mark.skipif(
    not hasattr(od.compile(np.exp), "statistics"), reason="compile runs functions as written"
)


@pytest.mark.slow
@PROGRAMS
@pytest.mark.parametrize("walked", [forward, derivatives])
def test_what_the_walks_call_is_watched_and_runs_as_programs(walked):
    native = total = 0
    for name in ONE_DERIVED.values():
        fn, calls = walked(*EVERY[name], picked(name, FLOATS))
        compiled = od.compile(fn)
        check(fn, calls, compiled=compiled, what=name)
        native += compiled.statistics().native > 0
        total += 1
    assert total > 25
    assert native > 0.8 * total


def test_kinds_and_bounds_are_those_of_the_rows_on_the_way():
    x = np.array([[0.3, -0.7], [1.1, 30.0]])

    def fn(x):
        moved = ops.transpose(ops.maximum(x, 0.5))
        exact = moved * 2.0 + x / 3.0
        rounded = ops.exp(exact)
        return moved, exact, rounded, ops.sum(rounded), ops.argmax(x, axis=0), ops.gelu(x)

    ways, _ = ways_to_outputs(od.compile(fn).lower(x).graph, [x])
    assert [way.kind for way in ways] == [MOVED, EXACT, ROUNDED, SUMMED, MOVED, ROUNDED]
    assert ways[0].bound == ways[1].bound == 0.0
    assert ways[2].largest == pytest.approx(np.exp(70.0))
    assert ways[3].bound == pytest.approx(64 * 2.0**-52 * np.exp(fn(x)[1]).sum())
    (half,), _ = ways_to_outputs(od.compile(ops.relu6).lower(x[0].astype("f2")).graph, [x[0]])
    assert half.kind == MOVED


def later(fn, wrong, call=2):
    """A compiled function that is wrong from a certain call on."""
    count = [0]

    def run(*args):
        count[0] += 1
        return wrong(fn(*args)) if count[0] > call else fn(*args)

    return run


X = [(np.linspace(0.3, 2.0, 7) + k,) for k in range(3)]
WRONG = {
    "one place": lambda y: np.nextafter(y, 9.0),
    "a dtype": lambda y: y.astype(np.float32),
    "a shape": lambda y: y[None],
    "the sign of a zero": lambda y: y * -0.0,
    "one element": lambda y: np.append(y[:-1], y[-1] * (1 + 1e-12)),
    "an array for a Variable": lambda y: Variable(y),
    "not a number": lambda y: np.append(y[:-1], np.nan),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_third_call_that_is_wrong_is_noticed(wrong):
    fn = (lambda x: x * 0.0) if wrong is WRONG["the sign of a zero"] else (lambda x: x * 3.0)
    check(fn, X, compiled=fn)
    with pytest.raises(AssertionError):
        check(fn, X, compiled=later(fn, wrong))


def test_a_transcendental_may_differ_in_its_last_places_and_not_by_more():
    check(np.exp, X, compiled=later(np.exp, lambda y: np.nextafter(y, 9.0)))
    with pytest.raises(AssertionError, match="differs by"):
        check(np.exp, X, compiled=later(np.exp, lambda y: y * (1 + 1e-13)))
    with pytest.raises(AssertionError):
        assert_within(np.array([1.0, np.inf]), np.array([1.0, 2.0]), Way(SUMMED, 2.0, 1e-16))


def test_an_argument_that_is_written_to_and_an_error_that_is_missing_are_noticed():
    def careless(x):
        y = x * 2.0
        x[0] = 0.0
        return y

    with pytest.raises(AssertionError, match="argument changed"):
        check(lambda x: x * 2.0, X, compiled=careless)
    fn = lambda x: ops.take(x, np.array([9]))  # noqa: E731
    with pytest.raises(AssertionError):
        check(fn, X, compiled=lambda x: x[:1])


def test_a_gradient_that_is_wrong_in_one_place_is_noticed():
    row, sample = EVERY["multiply-0"]
    fn, calls = derivatives(row, sample, "float64")

    def wrong(*args):
        out, *others = fn(*args)
        first = others[0]
        first[0, 0] = np.nextafter(first[0, 0], 9.0)
        return [out, *others]

    check(fn, calls, compiled=fn)
    with pytest.raises(AssertionError):
        check(fn, calls, compiled=wrong)


def test_gradients_of_captured_leaves_are_those_of_eager_calls_as_the_leaves_move():
    w = Variable(np.linspace(-1.0, 1.0, 12).reshape(3, 4), requires_grad=True)

    def slopes(x):
        with GradientTape() as tape:
            loss = ops.sum(ops.tanh(x @ w) ** 2)
        return loss, tape.gradient(loss, w)

    compiled = od.compile(slopes)
    rng = np.random.default_rng(0)
    for _ in range(4):
        check(slopes, [(rng.normal(size=(2, 3)),)] * 3, compiled=compiled)
        w.assign(rng.normal(size=(3, 4)))
