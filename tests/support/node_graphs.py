"""Graphs of nodes at random, each node with what it must be, computed by NumPy beside it."""

import numpy as np
from hypothesis import HealthCheck
from hypothesis import strategies as st

from odyssey.compiler.ir.nodes import IRBuilder, scalar_program
from odyssey.compiler.lowering import Lowered
from odyssey.compiler.ways.choices import Choices
from odyssey.kernels import T, select
from support.node_values import dtype_of
from support.seeds import DERANDOMIZE

# A scalar for nodes, and the same for arrays.
ONE = {
    "negative": (lambda x: -x, np.negative),
    "size": (lambda x: abs(x), np.abs),
    "times one": (lambda x: x * T(1), lambda x: x * 1.0),
    "plus zero": (lambda x: x + T(0), lambda x: x + 0.0),
    "minus zero": (lambda x: x - T(0), lambda x: x - 0.0),
    "half": (lambda x: x * T(0.5), lambda x: x * 0.5),
    "itself": (lambda x: x, lambda x: x),
    "positive part": (lambda x: select(x > T(0), x, T(0)), lambda x: np.where(x > 0, x, 0.0)),
    "less itself": (lambda x: x - x, lambda x: x - x),
}
TWO = {
    "sum": (lambda x, y: x + y, np.add),
    "difference": (lambda x, y: x - y, np.subtract),
    "product": (lambda x, y: x * y, np.multiply),
    "larger": (lambda x, y: select(x > y, x, y), lambda x, y: np.where(x > y, x, y)),
    "where positive": (lambda x, y: select(x > T(0), y, T(0)), lambda x, y: np.where(x > 0, y, 0)),
}
SPECIAL = [0.0, -0.0, 1.0, -2.0, 0.5, np.inf, -np.inf, np.nan]
WHOLE = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
SHAPES = [(), (1,), (3,), (4,), (2, 3), (3, 4), (4, 4), (1, 4), (2, 3, 4), (2, 1, 4), (2, 4, 3)]
# Beyond these, sums of whole numbers may be rounded.
LARGEST = 2.0**24


class Graph:
    """Nodes, and beside them arrays.

    Args:
        choose: Picks one of some options.
        whole: Whether elements are small whole numbers, of which all sums are exact; else there are
            infinities, NaN and zeros of both signs among them, and no sums.

    Attributes:
        pairs: Nodes with their arrays.
        leaves: By ``detail`` of a leaf, its array.
    """

    def __init__(self, choose, whole):
        self.choose, self.whole = choose, whole
        self.nodes = IRBuilder()
        self.pairs = []
        self.leaves = {}
        self.rng = np.random.default_rng(choose(range(1 << 10)))
        for k in range(3):
            self.leaf("input", k, choose(SHAPES[2:7] if k == 0 else SHAPES))
        for k in range(2):
            self.leaf("state", k, choose(SHAPES))

    def leaf(self, role, index, shape):
        array = self.rng.choice(WHOLE if self.whole else SPECIAL, size=shape)
        node = self.nodes.leaf(role, index, shape, "f8")
        self.leaves[role, index] = np.asarray(array)
        self.pairs.append((node, np.asarray(array)))

    def pick(self, fits=lambda array: True):
        """A pair that is there, the latest ones more often; None where none fits."""
        found = [pair for pair in self.pairs if fits(pair[1])]
        return self.choose([*found, *found[-3:], *found[-2:]]) if found else None

    def write(self, count):
        """Make so many nodes; some choices give none."""
        kinds = [one, two, two, reshape, transpose, broadcast, part, join, gather, index, extreme]
        if self.whole:
            kinds += [total, total, matmul, matmul, batch, scan, scatter, parts_summed]
        for _ in range(count):
            made = self.choose(kinds)(self)
            if made is not None:
                node, array = made
                with np.errstate(all="ignore"):
                    array = np.asarray(array).astype(dtype_of(node))
                assert node.shape == array.shape, (node, array.shape)
                if not self.whole or np.abs(array).max(initial=0) < LARGEST:
                    self.pairs.append((node, array))
        return self

    def lowered(self, outputs, updates):
        """What a lowering would give."""
        return Lowered(self.nodes, list(outputs), dict(updates), [], [], {}, {}, [], Choices())


def one(g):
    x, a = g.pick()
    scalar, function = ONE[g.choose(list(ONE))]
    with np.errstate(all="ignore"):
        return g.nodes.map(scalar_program(scalar, 1, (), "f8"), [x], x.shape, "f8"), function(a)


def two(g):
    x, a = g.pick()
    found = g.pick(lambda other: _fits(a.shape, other.shape))
    if g.choose([0, 0, 0, 0, 1]):
        number = g.choose([0.0, -0.0, 1.0, 2.0])
        found = g.nodes.literal(number, "f8"), np.asarray(number)
    y, b = found
    if g.choose([False, True]):
        x, a, y, b = y, b, x, a
    scalar, function = TWO[g.choose(list(TWO))]
    shape = np.broadcast_shapes(a.shape, b.shape)
    with np.errstate(all="ignore"):
        made = np.broadcast_to(function(a, b), shape)
    return g.nodes.map(scalar_program(scalar, 2, (), "f8"), [x, y], shape, "f8"), made


def _fits(a, b):
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def reshape(g):
    x, a = g.pick()
    n = a.size
    shapes = [(n,), (1, n), (n, 1), (*a.shape, 1), (1, *a.shape)]
    shapes += [(k, n // k) for k in (2, 3, 4) if n and n % k == 0]
    shape = g.choose([s for s in shapes if len(s) < 5])
    return g.nodes.reshape(x, shape), a.reshape(shape)


def transpose(g):
    x, a = g.pick()
    axes = list(range(a.ndim))
    turned = g.choose([axes[::-1], axes[1:] + axes[:1], axes])
    return g.nodes.transpose(x, turned), a.transpose(turned)


def broadcast(g):
    x, a = g.pick(lambda a: a.ndim < 3)
    shape = tuple(g.choose([2, 3, 1]) if n == 1 else n for n in a.shape)
    shape = g.choose([(), (2,), (1,)]) + shape
    return g.nodes.broadcast(x, shape), np.broadcast_to(a, shape)


def part(g):
    x, a = g.pick(lambda a: a.ndim > 0)
    keys = [slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2), 0, -1, None]
    key = tuple(g.choose(keys) for _ in range(g.choose(range(1, a.ndim + 1))))
    key = (*key, Ellipsis)
    try:
        made = a[key]
    except IndexError:
        return None
    return (g.nodes.slice(x, key), made) if made.size and made.ndim < 5 else None


def _whole_of(g, shape):
    """A whole of this shape, of parts that are there or leave holes."""
    n = shape[0]
    cut = g.choose(range(1, n))
    keys = [(slice(0, cut),), (slice(cut, n),)]
    if g.choose([False, True]):
        keys = keys[: g.choose([1, 2])]
    pairs, made = [], np.zeros(shape)
    for key in keys:
        found = g.pick(lambda a, key=key: a.shape == made[key].shape)
        if found is None:
            array = g.rng.choice(WHOLE if g.whole else SPECIAL, size=made[key].shape)
            number = g.nodes.literal(float(array.flat[0]), "f8")
            found = g.nodes.broadcast(number, array.shape), np.full(array.shape, array.flat[0])
        pairs.append((found[0], key))
        made[key] = found[1]
    return g.nodes.join(pairs, shape, "f8"), made


def join(g):
    shape = g.choose([(3,), (4, 4), (3, 4), (2, 3, 4)])
    return _whole_of(g, shape)


def parts_summed(g):
    """What gradients of parts add up to: wholes of which each has a part, and 0 elsewhere."""
    shape = g.choose([(4,), (4, 4), (3, 4)])
    n = shape[0]
    cut = g.choose(range(1, n))
    total, made = None, np.zeros(shape)
    for key in ((slice(0, cut),), (slice(cut, n),)):
        wanted = made[key].shape
        found = g.pick(lambda a, wanted=wanted: a.shape == wanted)
        if found is None:
            return None
        whole = np.zeros(shape)
        whole[key] = found[1]
        node = g.nodes.join([(found[0], key)], shape, "f8")
        if total is None:
            total, made = node, whole
        else:
            means = scalar_program(TWO["sum"][0], 2, (), "f8")
            total, made = g.nodes.map(means, [total, node], shape, "f8"), made + whole
    return total, made


def gather(g):
    x, a = g.pick(lambda a: a.ndim in (1, 2) and a.size > 1)
    places = [g.rng.integers(0, n, g.choose([(3,), (2, 3)])) for n in a.shape]
    shape = np.broadcast_shapes(*[p.shape for p in places])
    places = [np.broadcast_to(p, shape) if g.choose([0, 1]) else p for p in places]
    try:
        made = a[tuple(np.broadcast_arrays(*places))]
    except ValueError:
        return None
    return g.nodes.gather(x, [_places(g, p) for p in places]), made


def scatter(g):
    base, a = g.pick(lambda a: a.ndim in (1, 2) and a.size > 1)
    found = g.pick(lambda x: x.ndim == 1 and x.size > 1)
    if found is None:
        return None
    x, b = found
    how = g.choose(["sum", "set", "max"])
    places = [g.rng.integers(0, n, b.shape) for n in a.shape]
    made = a.copy()
    for k in range(b.size):
        at = tuple(int(p[k]) for p in places)
        made[at] = {"sum": made[at] + b[k], "set": b[k], "max": max(made[at], b[k])}[how]
    return g.nodes.scatter(how, base, x, [_places(g, p) for p in places]), made


def _places(g, array):
    index = len(g.leaves)
    g.leaves["constant", index] = array
    return g.nodes.leaf("constant", index, array.shape, "i8", array)


def index(g):
    shape = g.choose([(3,), (3, 4), (2, 3, 4)])
    axis = g.choose(range(len(shape)))
    column = tuple(n if k == axis else 1 for k, n in enumerate(shape))
    array = np.broadcast_to(np.arange(shape[axis]).reshape(column), shape)
    return g.nodes.convert(g.nodes.index(shape, axis), "f8"), array.astype(float)


def _axes(g, a):
    return g.choose([(0,), (a.ndim - 1,), tuple(range(a.ndim))])


def total(g):
    x, a = g.pick(lambda a: a.ndim > 0)
    axes = _axes(g, a)
    return g.nodes.reduce("sum", x, axes), a.sum(axis=axes, keepdims=True)


def extreme(g):
    x, a = g.pick(lambda a: a.ndim > 0)
    axes = _axes(g, a)
    how = g.choose(["max", "min"])
    made = getattr(np, how)(a, axis=axes, keepdims=True)
    return g.nodes.reduce(how, x, axes), made


def matmul(g):
    found = g.pick(lambda a: a.ndim >= 2)
    if found is None:
        return None
    x, a = found
    other = g.pick(
        lambda b: b.ndim >= 2 and b.shape[-2] == a.shape[-1] and _fits(a.shape[:-2], b.shape[:-2])
    )
    return None if other is None else (g.nodes.matmul(x, other[0]), a @ other[1])


def batch(g):
    """A sum over a batch of products, as gradients of shared weights are."""
    found = g.pick(lambda a: a.ndim == 3 and a.shape[0] > 1)
    if found is None:
        return None
    x, a = found
    other = g.pick(lambda b: b.ndim == 3 and b.shape[0] == a.shape[0] and b.shape[1] == a.shape[1])
    if other is None:
        return None
    turned = g.nodes.transpose(x, (0, 2, 1))
    product = g.nodes.matmul(turned, other[0])
    made = a.transpose(0, 2, 1) @ other[1]
    return g.nodes.reduce("sum", product, (0,)), made.sum(axis=0, keepdims=True)


def scan(g):
    x, a = g.pick(lambda a: a.ndim > 0)
    axis = g.choose(range(a.ndim))
    means = scalar_program(TWO["sum"][0], 2, (), "f8")
    return g.nodes.scan(means, [x], axis), np.cumsum(a, axis=axis)


# ------------------------------------------------------------------ for hypothesis

CALM = {
    "deadline": None,
    "derandomize": DERANDOMIZE,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@st.composite
def graphs(draw, whole=True, most=25):
    """A graph, some nodes that are wanted of it, and some that become states."""
    choose = lambda options: draw(st.sampled_from(list(options)))  # noqa: E731
    graph = Graph(choose, whole)
    graph.write(draw(st.integers(1, most)))
    roots = [choose(range(len(graph.pairs))) for _ in range(draw(st.integers(1, 4)))]
    updates = {}
    for k in range(2):
        like = graph.leaves["state", k]
        found = [n for n, a in graph.pairs if a.shape == like.shape]
        if draw(st.booleans()):
            updates[k] = choose(found)
    return graph, [graph.pairs[k] for k in [*roots, -1]], updates


# ------------------------------------------------------------------ comparing


def same(got, wanted):
    """Bit for bit, but for what a NaN carries."""
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)
        where = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a)[where], np.signbit(b)[where])


def alike(got, wanted):
    """The same numbers; a zero may have either sign."""
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def arrays(found):
    return [array for _, array in found]


def nodes_of(found):
    return [node for node, _ in found]
