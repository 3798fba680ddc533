"""Long random programs over as much of the table as JAX has too, all of whose values come out.

The moves of ``programs`` and those below: special functions, running folds and order statistics,
products of many kinds, decompositions, Fourier transforms, windows and norms of networks. Each
appends an op, or a few, to a program, applied to value ``k``, or none where none fits.
"""

import numpy as np

from odyssey import ops
from support.programs import MOVES, any_axis
from support.writing import Program, Step, Writer, distances, taken

__all__ = ["SHAPES", "WIDE", "long_program"]

SHAPES = [(), (1,), (3,), (2, 3), (2, 2), (2, 1, 2), (0,), (2, 0)]

# ------------------------------------------------------------------ element by element

SMOOTH = "i0e i1e ndtr log_ndtr tanh_shrink deg2rad rad2deg nan_to_num copy"
KINKED = "celu hard_shrink soft_shrink fabs"
OF_POSITIVE = "sinc gammaln digamma entr rsqrt cbrt i0 i1 gamma"


def special(w, k):
    op = w.choose([*SMOOTH.split(), *KINKED.split()])
    w.call("identity" if op == "copy" else op, k)


def special_of_a_range(w, k):
    op = w.choose([*OF_POSITIVE.split(), "erfinv", "logit", "ndtri", "xlogy", "xlog1py", "betaln"])
    if op in ("logit", "ndtri"):  # which are of probabilities
        w.call(op, w.step("sigmoid", k))
    elif op == "erfinv":
        w.call(op, w.inside(k))
    elif op in ("xlogy", "xlog1py"):
        w.call(op, k, w.positive(k))
    elif op == "betaln":
        w.call(op, w.positive(k), 1.5)
    else:
        w.call(op, w.positive(w.step("tanh", k)))


def incomplete(w, k):
    x = w.positive(w.step("tanh", k))
    op = w.choose(["gammainc", "gammaincc", "betainc", "zeta", "polygamma"])
    if op == "betainc":
        w.call(op, 1.25, 0.75, w.step("sigmoid", k))
    elif op == "zeta":
        w.call(op, 2.5, x)
    elif op == "polygamma":
        w.call(op, np.int64(w.choose([1, 2])), x)
    else:
        w.call(op, 0.75, x)


def pairs(w, k):
    shape = w.shape(k)
    other = w.choose(w.alike(lambda theirs: theirs == shape))
    op = w.choose(["logaddexp", "logaddexp2", "fmax", "fmin", "copysign", "heaviside"])
    if op in ("fmax", "fmin"):
        other = w.constant(shape)
    if op == "heaviside":
        w.call("multiply", w.step(op, w.step("add", k, 7.0), 0.5), other)
        return
    # A sign of a number near 0 may be another in another library.
    w.call(op, k, w.step("add", w.spread(other), 9.0) if op == "copysign" else other)


# ------------------------------------------------------------------ folds


def running(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    op = w.choose(["cumprod", "logcumsumexp", "cummax", "cummin", "diff", "trapezoid", "gradient"])
    axis = any_axis(w, shape)
    if op == "gradient":
        if shape[axis] > 1:
            w.call(op, k, axis=axis)
    elif op in ("cummax", "cummin"):
        w.call(op, w.spread(k), axis=axis, part=0)
    else:
        w.call(op, k, axis=axis)


def ordered(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    axis, k = any_axis(w, shape), w.spread(k)
    if k is None:
        return
    op = w.choose(["sort", "median", "quantile", "percentile", "ptp", "topk"])
    if op == "topk":
        w.call(op, k, k=1, part=0)
    elif op == "quantile":
        w.call(op, k, w.choose([0.3, np.array([0.1, 0.75])]), axis=axis)
    elif op == "percentile":
        w.call(op, k, w.choose([35.0, 80.0]), axis=axis)
    else:
        w.call(op, k, axis=axis)


def without_nan(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    op = w.choose(["nansum", "nanprod", "nanmean", "nanvar", "nancumsum", "nancumprod", "average"])
    w.call(op, k, axis=any_axis(w, shape))


def distance(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    k = w.spread(k)
    if k is None:
        return
    order = w.choose([None, 1, 2, 3, np.inf, -np.inf])
    w.call("norm", w.step("add", k, 5.0), ord=order, axis=any_axis(w, shape))


# ------------------------------------------------------------------ arrangement


def placing(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    op = w.choose(
        ["flipud", "append", "insert", "delete", "compress", "select", "choose", "meshgrid"]
    )
    axis = any_axis(w, shape)
    if op == "append":
        w.call(op, k, w.choose(w.alike(lambda theirs: theirs == shape)), axis=axis)
    elif op == "insert":
        w.call(op, k, np.int64(0), w.choose([0.5, *w.alike(lambda s: s == ())]), axis=axis)
    elif op == "delete":
        w.call(op, k, np.int64(shape[axis] - 1), axis=axis)
    elif op == "compress":
        w.call(op, np.arange(shape[axis]) % 2 == 0, k, axis=axis)
    elif op == "select":
        other = w.choose(w.alike(lambda theirs: theirs == shape))
        w.call(op, [w.rng.random(shape) < 0.4, w.rng.random(shape) < 0.5], [k, other], 0.25)
    elif op == "choose":
        other = w.choose(w.alike(lambda theirs: theirs == shape))
        w.call(op, w.rng.integers(0, 2, shape), [k, other], mode="clip")
    elif op == "meshgrid":
        vectors = w.alike(lambda s: len(s) == 1)
        if vectors:
            part = w.choose([0, 1])
            w.call(op, w.choose(vectors), w.choose(vectors), part=part)
    else:
        w.call(op, k)


def of_matrices(w, k):
    shape = w.shape(k)
    if len(shape) < 2:
        op = w.choose(["diag", "atleast_1d", "atleast_2d", "atleast_3d", "column_stack", "dstack"])
        if op in ("column_stack", "dstack"):
            w.call(op, [k, w.choose(w.alike(lambda theirs: theirs == shape))])
        elif op != "diag" or len(shape) == 1:
            w.call(op, k)
        return
    op = w.choose(["tril", "triu", "trace", "diagonal", "rot90", "fliplr", "flipud"])
    if op in ("tril", "triu"):
        w.call(op, k, k=w.choose([0, 1, -1]))
    elif op == "rot90":
        w.call(op, k, k=w.choose([1, 2, -1]))
    else:
        w.call(op, k)


def adding_up(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    op = w.choose(["segment_sum", "index_add"])
    rows = w.rng.integers(0, 2, shape[0])
    if op == "segment_sum":
        w.call(op, k, rows, num_segments=2)
    else:
        w.call("index_add", w.constant((2, *shape[1:])), rows, k, axis=0)


def slices(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    starts = np.array([w.rng.integers(0, n) for n in shape])
    sizes = tuple(w.choose([1, n]) for n in shape)
    if w.choose([True, False]):
        w.call("dynamic_slice", k, starts, slice_sizes=sizes)
    else:
        part = w.step("dynamic_slice", k, 0 * starts, slice_sizes=sizes)
        w.call("dynamic_update_slice", k, part, starts)


# ------------------------------------------------------------------ products


def more_products(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    alike = w.choose(w.alike(lambda theirs: theirs == shape))
    op = w.choose(["kron", "einsum", "vecdot", "multi_dot", "polyval", "cross"])
    if op == "kron":
        w.call(op, k, w.choose(w.alike(lambda s: len(s) == len(shape))))
    elif op == "einsum":
        w.call(op, w.choose(["...i,...i->...", "...i,...i->...i", "...i,...j->...ij"]), k, alike)
    elif op == "vecdot":
        w.call(op, k, alike)
    elif op == "polyval":
        w.call(op, np.array([0.5, -1.0, 0.25]), k)
    elif op == "cross":
        if shape[-1] == 3:
            w.call(op, k, alike)
    elif len(shape) == 2:
        w.call(op, [k, w.constant((shape[1], 3)), w.constant((3, 2))])


def signals(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    line = k if len(shape) == 1 else w.step("ravel", k)
    other = w.choose([w.constant((2,)), *w.alike(lambda s: len(s) == 1 and s[0] > 0)])
    w.call(w.choose(["convolve", "correlate"]), line, other, w.choose(["full", "same"]))


def fourier(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    axis = any_axis(w, shape)
    op = w.choose(["fft", "rfft", "ifft", "ihfft", "round trip", "fft2", "fftshift"])
    if op == "fftshift":
        w.call(op, k, axes=axis)
    elif op == "round trip":
        n = shape[axis]
        turned = w.step("multiply", w.step("rfft", k, axis=axis), np.exp(0.5j))
        w.call("irfft", turned, n=n, axis=axis)
    elif op == "fft2":
        if len(shape) > 1:
            w.call(w.choose(["real", "imag"]), w.step(op, k))
    else:
        w.call(w.choose(["real", "imag"]), w.step(op, k, axis=axis))


# ------------------------------------------------------------------ decompositions


def of_squares(w, k):
    """Rows of a symmetric matrix of positive eigenvalues that lie apart, as of any value."""
    shape = w.shape(k)
    n = w.choose([2, 3])
    if np.prod(shape, dtype=int) < n:
        return
    flat = w.step("tanh", w.step("getitem", w.step("ravel", k), key=slice(0, n)))
    matrix = w.step("add", w.step("outer", flat, flat), np.diag(np.arange(2.0, 2 + n)))
    op = w.choose(OF_SQUARES.split())
    right = w.constant((n, 2))
    if op == "slogdet":
        w.call(op, matrix, part=1)
    elif op == "solve":
        w.call(op, matrix, right)
    elif op == "triangular_solve":
        w.call(op, matrix, right, lower=True)
    elif op == "cho_solve":
        w.call(op, [w.step("cholesky", matrix), True], right)
    elif op == "matrix_power":
        w.call(op, matrix, n=w.choose([2, 3, -1]))
    elif op in ("fro", "nuc"):
        w.call("norm", matrix, ord=op)
    elif op == "qr":
        w.call(op, matrix, part=w.choose([0, 1]))
    elif op == "eigh":
        w.call(op, matrix, part=0)
    elif op == "svd":
        w.call(op, matrix, full_matrices=False, part=1)
    else:
        w.call(op, matrix)


OF_SQUARES = "det slogdet inv solve cholesky eigvalsh matrix_power expm triangular_solve cho_solve "
OF_SQUARES += "fro nuc qr eigh svd svdvals pinv"

# ------------------------------------------------------------------ of networks


def windows(w, k):
    shape = w.shape(k)
    size = int(np.prod(shape, dtype=int))
    if size < 2:
        return
    line = w.step("reshape", k, shape=(1, 1, size))
    op = w.choose(["conv1d", "conv2d", "max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"])
    if op in ("conv2d", "max_pool2d", "avg_pool2d"):
        line = w.step("expand_dims", line, axis=2)
    if op == "conv1d":
        w.call(op, line, w.constant((2, 1, 2)), padding=w.choose([0, 1]), dilation=1)
    elif op == "conv2d":
        w.call(op, line, w.constant((2, 1, 1, 2)), stride=w.choose([1, 2]))
    elif op == "max_pool1d":
        w.call(op, w.spread(line), window=2, stride=w.choose([1, 2]))
    elif op == "avg_pool1d":
        w.call(op, line, window=2, stride=w.choose([1, 2]))
    else:
        w.call(op, w.spread(line) if op == "max_pool2d" else line, window=(1, 2))


def normed(w, k):
    shape = w.shape(k)
    if not shape or 0 in shape:
        return
    op = w.choose(["layer_norm", "rms_norm", "glu", "softmin", "attention", "cosine"])
    if op in ("layer_norm", "rms_norm"):
        w.call(op, w.spread(k))
    elif op == "glu":
        axis = any_axis(w, shape)
        if shape[axis] % 2 == 0:
            w.call(op, k, axis=axis)
    elif op == "softmin":
        w.call(op, k, axis=any_axis(w, shape))
    elif op == "cosine":
        w.call("normalize", w.step("add", w.spread(k), 5.0), axis=any_axis(w, shape))
    elif len(shape) > 1:
        w.call("scaled_dot_product_attention", k, k, w.choose(w.alike(lambda s: s == shape)))


MORE = (special, special, special_of_a_range, special_of_a_range, incomplete, pairs, running)
MORE += (ordered, without_nan, distance, placing, of_matrices, adding_up, slices, more_products)
MORE += (signals, fourier, of_squares, windows, normed)
WIDE = tuple(dict.fromkeys((*MOVES, *MORE)))


class Narrow(Writer):
    """Writes values of few shapes only, so that what JAX compiled for one call serves others."""

    def call(self, op, /, *operands, **options):
        part = options.get("part")
        named = {key: option for key, option in options.items() if key != "part"}
        step = Step(op, operands, named, part)
        if np.shape(step.run(ops, self.values)) in SHAPES:
            super().call(op, *operands, **options)

    def step(self, op, /, *operands, part=None, **options):
        """None also where a value lies on a kink, where JAX may take the slope of another side."""
        step = Step(op, operands, options, part)
        if any((d == 0).any() for d in distances(step, [taken(o, self.values) for o in operands])):
            return None
        return super().step(op, *operands, part=part, **options)


def long_program(moves, leaves, seed, length):
    """A program of ``length`` steps by some of the moves, from leaves of the given shapes.

    All values that no step takes come out, so that no step is for nothing.
    """
    rng = np.random.default_rng(seed)

    def choose(options):
        return options[rng.integers(len(options))]

    writer = Narrow(choose, seed)
    for shape in leaves:
        writer.leaf(shape)
    for _ in range(50 * length):
        if len(writer.steps) >= length:
            break
        choose(moves)(writer, choose(writer.calm))
    while len(writer.steps) < length:  # of empty leaves few moves make anything
        writer.call("tanh", choose(writer.calm))
    used = {k for step in writer.steps for k in step.uses()}
    last = [k for k in range(len(leaves), len(writer.values)) if k not in used]
    return Program(writer.leaves, writer.steps, last)
