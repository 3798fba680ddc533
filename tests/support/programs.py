"""Random programs over the table's ops, whose values stay in a range where all are smooth enough.

A program is data: leaves, and steps that each name an op, the values it takes and its options.
So the same program runs on any library that has the ops. What it takes for a choice is passed
in: hypothesis draws it, or a seeded generator.

Each move below appends one op to a program, applied to value ``k``, or none where none fits.
"""

import numpy as np

from support.writing import LARGEST, Program, Step, Writer

__all__ = ["Program", "Step", "seeded", "write"]

LONGEST = 60  # steps of a program
ROOM = 6  # steps that one move may take

# ------------------------------------------------------------------ element by element

SMOOTH = "negative square exp tanh sigmoid sin cos sinh cosh arctan arcsinh expm1 exp2 softplus "
SMOOTH += "log_sigmoid gelu silu mish softsign erf erfc identity conj real"
KINKED = "relu absolute sign relu6 leaky_relu elu selu hard_sigmoid hard_swish hard_tanh clip"
OF_POSITIVE = "log sqrt divide power log2 log10 log1p rsqrt reciprocal cbrt hypot arctan2 mod fmod"
OF_INSIDE = "arcsin arccos arctanh tan"
OPTIONS = {
    "softplus": [{}, {"beta": 2.5}],
    "gelu": [{}, {"approximate": "tanh"}],
    "leaky_relu": [{}, {"negative_slope": 0.3}],
    "elu": [{}, {"alpha": 0.7}],
    "hard_tanh": [{}, {"min_val": -0.4, "max_val": 1.5}],
    "clip": [{"a_min": -1.0, "a_max": 0.5}, {"a_min": -0.25, "a_max": None}],
}


def unary(w, k):
    op = w.choose(SMOOTH.split() + KINKED.split())
    w.call(op, k, **w.choose(OPTIONS.get(op, [{}])))


def of_a_range(w, k):
    op = w.choose([*OF_POSITIVE.split(), *OF_INSIDE.split(), "arccosh"])
    if op in OF_INSIDE.split():
        w.call(op, w.inside(k))
    elif op == "arccosh":
        w.call(op, w.step("add", w.positive(k), 1.0))
    elif op in ("divide", "mod", "fmod", "hypot", "arctan2"):
        w.call(op, k, w.positive(k))
    elif op == "power":
        w.call(op, w.positive(k), w.choose([k, 2.0, 0.5, -1.0]))
    else:
        w.call(op, w.positive(k))


def binary(w, k):
    kind = w.choose(["value", "number", "array"])
    if kind == "value":
        other = w.choose(w.alike(lambda shape: broadcasts(shape, w.shape(k))))
    else:
        other = 0.75 if kind == "number" else w.constant(w.shape(k))
    op = w.choose(["add", "subtract", "multiply", "maximum", "minimum"])
    w.call(op, *((k, other) if w.choose([True, False]) else (other, k)))


def broadcasts(*shapes):
    try:
        return np.prod(np.broadcast_shapes(*shapes)) <= LARGEST
    except ValueError:
        return False


def where(w, k):
    shape = w.shape(k)
    other = w.choose(w.alike(lambda theirs: theirs == shape))
    w.call("where", np.asarray(w.rng.random(shape) < 0.5), k, other)


def prelu(w, k):
    shape = w.shape(k)
    channels = [(), (1,), shape[1:2] or (1,)]
    w.call("prelu", k, w.choose(w.alike(lambda theirs: theirs in channels) or [0.3]))


# ------------------------------------------------------------------ folds


def any_axis(w, shape):
    return w.choose(list(range(-len(shape), len(shape))))


def reduction(w, k):
    shape = w.shape(k)
    axis = w.choose([None, *range(-len(shape), len(shape))])
    options = {"axis": axis, "keepdims": w.choose([False, True])}
    if 0 in shape:
        w.call(w.choose(["sum", "prod"]), k, **options)
        return
    op = w.choose(["sum", "mean", "max", "min", "prod", "var", "std", "logsumexp"])
    if op in ("var", "std"):
        count = np.prod(shape) if axis is None else shape[axis]
        options["ddof"] = w.choose([0, 1]) if count > 1 else 0
    if op == "std":
        if count < 2:
            return
        k = w.spread(k)
    w.call(op, k, **options)


def scan(w, k):
    w.call("cumsum", k, axis=w.choose([None, *range(-len(w.shape(k)), len(w.shape(k)))]))


def softmax(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    op = w.choose(["softmax", "log_softmax"])
    w.call(op, k, axis=any_axis(w, shape))


def loss(w, k):
    shape = w.shape(k)
    if 0 in shape:
        return
    kind = w.choose(["squared error", "probabilities", "logits", "classes"])
    targets = np.abs(w.constant(shape)) / 1.5
    if kind == "squared error":
        w.call("squared_error_mean", k, w.choose(w.alike(lambda theirs: theirs == shape)))
    elif kind == "probabilities":
        w.call("binary_entropy", w.step("sigmoid", k), targets)
    elif kind == "logits":
        w.call("binary_entropy_with_logits", k, targets)
    elif shape:
        classes = w.rng.integers(0, shape[-1], shape[:-1])
        w.call("softmax_cross_entropy", k, np.asarray(classes))


# ------------------------------------------------------------------ arrangement


def reshaping(w, k):
    shape = w.shape(k)
    op = w.choose(["reshape", "ravel", "squeeze", "expand_dims", "broadcast_to"])
    if op == "reshape":
        flat = (int(np.prod(shape, dtype=int)),)
        w.call(op, k, shape=w.choose([flat, (1, *shape), (*shape, 1), shape[::-1]]))
    elif op == "expand_dims":
        w.call(op, k, axis=w.choose([0, -1]))
    elif op == "broadcast_to":
        w.call(op, k, shape=(2, *shape))
    else:
        w.call(op, k)


def moving(w, k):
    shape = w.shape(k)
    if not shape:
        return
    op = w.choose(["transpose", "matrix_transpose", "swapaxes", "moveaxis", "flip", "roll"])
    a, b = any_axis(w, shape), any_axis(w, shape)
    if op == "transpose":
        w.call(op, k, axes=tuple(w.rng.permutation(len(shape)).tolist()))
    elif op == "matrix_transpose":
        if len(shape) > 1:
            w.call(op, k)
    elif op == "swapaxes":
        w.call(op, k, axis1=a, axis2=b)
    elif op == "moveaxis":
        w.call(op, k, source=a, destination=b)
    elif op == "flip":
        w.call(op, k, axis=w.choose([None, a]))
    else:
        w.call(op, k, shift=w.choose([1, -2, 5]), axis=w.choose([None, a]))


def joining(w, k):
    shape = w.shape(k)
    if not shape:
        return
    op = w.choose(["concatenate", "stack", "hstack", "vstack"])
    partners = w.alike(lambda theirs: theirs == shape)
    parts = [k, *(w.choose([*partners, k]) for _ in range(w.choose([0, 1, 2])))]
    parts += w.choose([[], [w.constant(shape)]])
    options = {} if op in ("hstack", "vstack") else {"axis": any_axis(w, shape)}
    w.call(op, parts, **options)


def parting(w, k):
    shape = w.shape(k)
    if not shape:
        return
    op, axis = w.choose(["split", "array_split", "unstack"]), any_axis(w, shape)
    if op == "unstack":
        if shape[axis]:
            w.call(op, k, axis=axis, part=w.choose([0, -1]))
        return
    sections = [1, [1]] if shape[axis] else [1]
    if op == "array_split" or shape[axis] % 2 == 0:
        sections.append(2)
    part, sections = w.choose([0, -1]), w.choose(sections)
    w.call(op, k, indices_or_sections=sections, axis=axis, part=part)


def repeating(w, k):
    shape = w.shape(k)
    op = w.choose(["tile", "repeat", "pad"])
    if op == "tile":
        w.call(op, k, reps=w.choose([2, (2, 1), (1, 2)]))
    elif op == "repeat":
        w.call(op, k, repeats=2, axis=w.choose([None, *range(-len(shape), len(shape))]))
    elif shape and 0 not in shape:
        mode = w.choose(["constant", "edge", "symmetric", "wrap"])
        w.call(op, k, pad_width=w.choose([1, (0, 1), (1, 0)]), mode=mode)


# ------------------------------------------------------------------ indexing


def indexing(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        keys = [..., (..., None)]
    else:
        last = shape[0] - 1
        repeated = np.array([0, last, 0])
        keys = [0, -1, slice(None, None, -1), slice(1, None), (..., 0), repeated, (None, last)]
        keys.append(np.arange(shape[0]) % 2 == 0)
    key = w.choose(keys)
    if w.choose([True, False]):
        w.call("getitem", k, key=key)
        return
    part = np.ones(shape)[key].shape
    fitting = {(), part}
    if part and not isinstance(key, np.ndarray):
        fitting.add((1, *part))  # NumPy drops leading axes of length 1
    w.call("setitem", k, w.choose([0.25, *w.alike(lambda s: s in fitting)]), key=key)


def gathering(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    axis = any_axis(w, shape)
    if w.choose([True, False]):
        axis = w.choose([None, axis])
        length = np.prod(shape) if axis is None else shape[axis]
        w.call("take", k, w.rng.integers(-length, length, w.choose([(), (2,), (2, 2)])), axis=axis)
    else:
        lines = list(shape)
        lines[axis] = w.choose([1, 2])
        w.call("take_along_axis", k, w.rng.integers(0, shape[axis], lines), axis=axis)


# ------------------------------------------------------------------ products


def matmul(w, k):
    shape = w.shape(k)
    if not shape:
        return
    n = shape[-1]

    def contracts(theirs):
        if not theirs or theirs[-2 if len(theirs) > 1 else -1] != n:
            return False
        return broadcasts(shape[:-2], theirs[:-2])

    w.call("matmul", k, w.choose([*w.alike(contracts), w.constant((n, 2))]))


def product(w, k):
    shape = w.shape(k)
    if not shape:
        return
    n = shape[-1]
    op = w.choose(["dot", "inner", "outer", "vdot", "tensordot", "linear"])
    if op == "dot":
        w.call(op, k, w.choose([*w.alike(lambda s: s in [(), (n,)]), w.constant((n, 2))]))
    elif op == "inner":
        w.call(op, k, w.choose(w.alike(lambda s: s[-1:] in [(n,), ()])))
    elif op == "outer":
        w.call(op, k, w.choose(w.calm))
    elif op == "vdot":
        w.call(op, k, w.choose(w.alike(lambda s: np.prod(s) == np.prod(shape))))
    elif op == "tensordot":
        axes, at, length = w.choose([(1, 0, n), (([0], [-1]), -1, shape[0])])
        partners = w.alike(lambda s: s and s[at] == length)
        if partners:
            w.call(op, k, w.choose(partners), axes=axes)
    else:
        weight = w.choose([*w.alike(lambda s: len(s) == 2 and s[1] == n), w.constant((2, n))])
        rows = np.shape(weight)[0] if type(weight) is not int else w.shape(weight)[0]
        w.call(op, k, weight, w.choose([None, *w.alike(lambda s: s == (rows,))]))


MOVES = (unary, unary, unary, of_a_range, of_a_range, binary, binary, where, prelu, scan)
MOVES += (reduction, reduction, softmax, loss, reshaping, moving, joining, parting, repeating)
MOVES += (indexing, gathering, matmul, product)


def write(choose, seed, longest=LONGEST):
    """A program of 1 to 3 leaves and 1 to ``longest`` steps."""
    writer = Writer(choose, seed)
    for _ in range(choose([1, 2, 3])):
        writer.leaf()
    length = choose(list(range(1, longest - ROOM + 1)))
    for _ in range(length):
        if len(writer.steps) < length:
            move = choose(MOVES)
            move(writer, choose(writer.calm))
    leaves = len(writer.leaves)
    if writer.calm[-1] < leaves:
        writer.call("tanh", 0)
    last = writer.calm[-1]
    other = choose([k for k in writer.calm if k >= leaves])
    return Program(writer.leaves, writer.steps, [last] if other == last else [other, last])


def seeded(seed, longest=LONGEST):
    """The program of a seed."""
    rng = np.random.default_rng(seed)
    return write(lambda options: options[rng.integers(len(options))], seed, longest)
