"""What a compiled function may differ by from the eager one: nothing, but where its graph rounds.

Each result of a graph is of the kind of the worst row that it comes from. What only moves, chooses
and calculates as IEEE says is the same bit for bit. A function of ``math`` may be rounded
differently, what a row equals may take other steps than its kernel, and a sum may be taken in
another order: then the bound is so many units of rounding of the largest number on the way.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, OdysseyError
from odyssey.graph.graph import Ref, Splat
from odyssey.kernels.scalars import program
from odyssey.spec import spec_of
from support.cases import Graph, draw, random_like, tracked

MOVED, EXACT, ROUNDED, SUMMED = range(4)
# Units of rounding, of the largest number on the way.
BOUNDS = {MOVED: 0, EXACT: 0, ROUNDED: 16, SUMMED: 64}
# Steps of scalars that do not round, and those whose one rounding is IEEE's.
CHOOSING = {"neg", "abs", "and", "or", "xor", "invert", "T", "select", "lt", "le", "gt", "ge", "eq"}
CHOOSING |= {"ne", "math.fabs", "math.copysign"}
IEEE = {"add", "sub", "mul", "truediv", "math.sqrt"}
# Of numbers of two parts, those that treat each part alone.
OF_PARTS = {"add", "sub", "neg", "T", "select", "and", "or", "eq", "ne", "invert"}
# Rows that add or multiply elements, or say nothing of the order in which they add them.
SUMMING = {"sum", "prod", "fold", "cumsum", "reverse_cumsum", "cumprod", "logcumsumexp"}
SUMMING |= {"linear_recurrence", "add_at", "add_taken", "add_along_axis", "embedding_pullback"}
# Rows whose kernel takes other steps than their scalar.
UNLIKE = {"direction", "rad2deg"}
UNLIKE_IN_HALVES = {"deg2rad"}


# ------------------------------------------------------------------ what a row may do


def kind_of(row, specs, options):
    """What a row does to numbers of such specs: MOVED, EXACT, ROUNDED or SUMMED."""
    made = row.infer(*specs, *options)
    found = [*specs, *(made if row.pack_results else (made,))]
    dtypes = [
        s.dtype if hasattr(s, "dtype") else np.asarray(s).dtype for s in found if s is not None
    ]
    if all(dtype.kind in "biu" for dtype in dtypes):
        return MOVED
    if row.scalar:
        parts = any(dtype.kind == "c" for dtype in dtypes)
        half = any(dtype == np.float16 for dtype in dtypes)
        return _of_scalar(row, repr(options), parts, half, _Held(options))
    if row.primitive == "product" or row.name in SUMMING:
        return SUMMED
    if row.primitive:
        return MOVED  # a library is called with the same numbers, or elements are
    return _of_composition(row, specs, options)


class _Held(NamedTuple):
    """Options that are told apart by their text alone."""

    options: tuple

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


@cache
def _of_scalar(row, text, parts, half, held):
    try:
        steps = [n for n, _ in program(row.scalar, len(row.arrays), held.options).steps]
    except (DTypeError, TypeError):  # of options that are arrays
        return ROUNDED
    if CHOOSING.issuperset(steps) and not (parts and "math.fabs" in steps):
        return MOVED
    if parts:
        return EXACT if OF_PARTS.issuperset(steps) else ROUNDED
    # Half precision is computed in single: whether each step is rounded is the compiler's choice.
    several = half and sum(step in IEEE for step in steps) > 1
    unlike = UNLIKE | UNLIKE_IN_HALVES if half else UNLIKE
    known = (CHOOSING | IEEE).issuperset(steps) and row.name not in unlike
    return EXACT if known and not several else ROUNDED


def _of_composition(row, specs, options):
    graph = Graph()
    try:
        row.decomposition(*[graph.symbol(s) if hasattr(s, "dtype") else s for s in specs], *options)
    except OdysseyError:  # it has no meaning for such a dtype, and the row alone is called
        return MOVED
    kinds = [MOVED]
    for inner, values, more, _ in graph.instructions:
        kind = kind_of(inner, [_spec(v) for v in values], more)
        if inner.primitive in ("decompose", "scatter", "call"):
            kind = SUMMED  # the row's kernel calls another function, or adds in another order
        kinds.append(ROUNDED if kind == EXACT else kind)
    return max(kinds)


def _spec(value):
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    return value.spec if hasattr(value, "spec") else spec_of(np.asarray(value))


# ------------------------------------------------------------------ what a result may differ by


class Way(NamedTuple):
    """What lies on the way to a value.

    Attributes:
        kind: The worst kind.
        largest: The largest number.
        unit: The coarsest unit of rounding.
        left_out: Whether something is left out by choice. That is 0 in a graph; an eager sweep,
            which sees the numbers, may leave a product with 0 as it is, and its zero negative.
    """

    kind: int = MOVED
    largest: float = 1.0
    unit: float = 0.0
    left_out: bool = False

    @property
    def bound(self):
        return BOUNDS[self.kind] * self.unit * self.largest


def way_of(value):
    """The way to a value that is given."""
    value = np.asarray(value)
    if value.dtype.kind not in "fc":
        return Way()
    wide = np.abs(value.astype(np.result_type(value, np.float64)))
    largest = wide[np.isfinite(wide)].max(initial=1.0)
    return Way(MOVED, float(largest), float(np.finfo(value.dtype).eps))


def joined(ways):
    return Way(*(max(parts) for parts in zip(Way(), *ways, strict=True)))


def ways_to_outputs(graph, arrays, states=None):
    """The way to each output of a graph, and by label to what it would leave in its states."""
    values: dict[int, Any] = dict(graph.constants)
    values |= {id: array for (id, _), array in zip(graph.inputs, arrays, strict=True)}
    for state in graph.states:
        if state.id >= 0:
            held = state.variable
            values[state.id] = np.asarray(held.numpy() if state.field == "data" else held.grad)
    values |= states or {}
    ways = {id: way_of(value) for id, value in values.items()}

    def read(operand, known):
        if isinstance(operand, Ref):
            return known[operand.id]
        operand = operand.array() if isinstance(operand, Splat) else operand
        return operand if known is values else way_of(0.0 if operand is None else operand)

    for row, operands, options, ids, _ in graph.instructions:
        given = [read(o, values) for o in operands]
        with np.errstate(all="ignore"):
            made = row.kernel(*given, *options)
        kind = kind_of(row, [_spec(v) for v in given], options)
        before = joined([read(o, ways) for o in operands if o is not None])
        for id, value in zip(ids, made if row.pack_results else (made,), strict=True):
            values[id] = value
            here = way_of(value)._replace(kind=kind, left_out=row.name == "keep_where")
            ways[id] = joined([before, here])
    outputs = [read(o, ways) for o in graph.outputs]
    left = {s.label: read(s.update, ways) for s in graph.states if s.update is not None}
    return outputs, left


# ------------------------------------------------------------------ comparing


def plain(value):
    """The array of a result."""
    return np.asarray(value.detach().numpy() if isinstance(value, Variable) else value)


def same_bits(got, wanted):
    """Equal in kind, dtype, shape and every bit, but for what a NaN carries."""
    a, b = plain(got), plain(wanted)
    if (type(got), a.dtype, a.shape) != (type(wanted), b.dtype, b.shape):
        return False
    if a.dtype.kind not in "fc":
        return a.tobytes() == b.tobytes()
    parts = [(x.real, x.imag) if x.dtype.kind == "c" else (x,) for x in (a, b)]
    return all(
        np.array_equal(p, q, equal_nan=True)
        and bool((np.isnan(p) | (np.signbit(p) == np.signbit(q))).all())
        for p, q in zip(*parts, strict=True)
    )


def assert_within(got, wanted, way, what=""):
    """Raise AssertionError unless two results are alike but for what ``way`` allows."""
    a, b = plain(got), plain(wanted)
    assert (type(got), a.dtype, a.shape) == (type(wanted), b.dtype, b.shape), what
    if way.left_out and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return
    assert way.kind > EXACT, (what, "differs in its bits", got, wanted)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=str(what))
    special = ~np.isfinite(b)
    np.testing.assert_array_equal(a[special], b[special], err_msg=str(what))
    wide = np.result_type(a, np.float64)
    far = np.abs(a[~special].astype(wide) - b[~special].astype(wide)).max(initial=0.0)
    assert far <= way.bound, (what, "differs by", float(far), "of", way.bound, way, got, wanted)


def outcome(fn, args):
    """What a function gives, as a list of leaves; or its error, by type and message."""
    with np.errstate(all="ignore"):
        try:
            return od.tree.leaves(fn(*args)), None
        except Exception as error:
            return None, (type(error).__name__, str(error))


def copied(args):
    """Arguments with a copy in the place of each array."""
    return od.tree.map_tree(lambda a: a.copy() if isinstance(a, np.ndarray) else a, args)


def check(fn, calls, compiled=None, what=""):
    """Raise AssertionError unless a function is the same compiled, on each of ``calls``.

    The first call of a compiled function may run as the function was written, so there should be
    three. Arguments are neither written to nor kept.
    """
    compiled = compiled or od.compile(fn)
    for k, args in enumerate(calls):
        before = copied(args)  # not handed over: a copy lies otherwise
        wanted, error = outcome(fn, args)
        got, other = outcome(compiled, args)
        assert other == error, (what, k)
        for a, b in zip(od.tree.leaves(args), od.tree.leaves(before), strict=True):
            assert not isinstance(a, np.ndarray) or same_values(a, b), (what, k, "argument changed")
        if error is None:
            compare(fn, args, got, wanted, (what, k))


def same_values(a, b):
    return a.tobytes() == b.tobytes()


def is_input(a):
    """Whether an argument is an input of a graph, and not a state or fixed in it."""
    return isinstance(a, (np.ndarray, np.generic)) or (
        isinstance(a, Variable) and not a.requires_grad
    )


def compare(fn, args, got, wanted, what):
    """Raise AssertionError where results differ by more than the graph of ``fn`` lets them."""
    pairs = list(zip(got, wanted, strict=True))
    if all(same_bits(a, b) for a, b in pairs):
        return
    graph = od.compile(fn).lower(*args).graph
    arrays = [plain(a) for a in od.tree.leaves(args) if is_input(a)]
    ways, _ = ways_to_outputs(graph, arrays)
    for (a, b), way in zip(pairs, ways, strict=True):
        if not same_bits(a, b):
            assert_within(a, b, way, what)


# ------------------------------------------------------------------ what is walked


def forward(row, sample, dtype):
    """A call of a row as a function of its arrays, and three sets of them.

    The function holds what a compiled one can watch: the op, and options of plain kinds.
    """
    op, options = row.call, dict(sample.options)

    def call(*given):
        return op(*given, **options)

    return call, [draw(sample, dtype, seed) for seed in range(3)]


def derivatives(row, sample, dtype):
    """Both derivatives of a row in both modes as a function of arrays, and three sets of them."""
    positions = tracked(row, sample)
    kept = draw(sample, dtype)
    op, options, several = row.call, dict(sample.options), bool(row.pack_results)

    def call(moving, cotangents, directions):
        leaves = [Variable(x, requires_grad=True) for x in moving]
        given = list(kept)
        for k, leaf in zip(positions, leaves, strict=True):
            given[k] = leaf
        with GradientTape(persistent=True) as outer:
            with GradientTape(persistent=True) as inner:
                out = op(*given, **options)
            outs = list(out) if several else [out]
            first = inner.gradient(outs, leaves, cotangents, unused="zero")
            # Adding the leaf times 0 makes a result of what would be a constant.
            slopes = [g + 0.0 * x for g, x in zip(first, leaves, strict=True)]
        over_reverse = outer.gradient(slopes, leaves, directions, unused="zero")
        over_forward = outer.jvp(slopes, leaves, directions)
        tangent = inner.jvp(outs, leaves, directions)
        found = od.tree.leaves([*outs, *first, tangent, over_reverse, over_forward])
        return [x * 2.0 for x in found]  # apart: no program has results that share memory

    made = op(*kept, **options)
    outs = list(made) if several else [made]
    calls = []
    for seed in range(3):
        operands = draw(sample, dtype, seed)
        moving = [operands[k] for k in positions]
        cotangents = [random_like(out, seed=10 + seed) for out in outs]
        calls.append((moving, cotangents, [random_like(x, seed=20 + seed) for x in moving]))
    return call, calls
