"""GPU kernels of rows in numba's simulator, beside NumPy in float64.

Run by `NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim`, a process apart. A simulated thread is a Python
thread, so arrays are small; tiles are 4 by 4, so shapes of 5 and 6 have ragged tiles.
"""

import os
from types import SimpleNamespace

import numpy as np
import pytest

import odyssey as od
from odyssey import linalg, nn, ops
from odyssey.devices import backends
from odyssey.errors import OdysseyError, OutOfRangeError
from odyssey.kernels import attention, cuda, matrix_product, pooling, softmax
from odyssey.kernels.cuda_scatter import cuda_scatter_add
from odyssey.nn.attention.scaled_dot_product import attention_pullback
from odyssey.nn.embedding_layers import embedding_pullback
from odyssey.nn.pooling.average_pooling import avg_pool_pullback
from odyssey.nn.pooling.max_pooling import max_pool_pullback
from odyssey.ops.structure.gathering import add_taken
from odyssey.spec import Spec
from odyssey.tape import rounding

pytestmark = [
    pytest.mark.cudasim,
    pytest.mark.skipif(
        os.environ.get("NUMBA_ENABLE_CUDASIM") != "1",
        reason="needs the CUDA simulator: NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim",
    ),
]
by_dtype = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])


def normal(shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def assert_near(actual, expected, dtype, factor=16):
    """Compare with a result in float64, by the rounding of the dtype at its largest element."""
    assert actual.dtype == dtype
    known = np.abs(expected[np.isfinite(expected)])
    size = max(1.0, known.max(initial=0.0))
    atol = factor * np.finfo(dtype).eps * size
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=atol)


def in_double(*arrays):
    return [x if x is None or x.dtype.kind != "f" else x.astype(np.float64) for x in arrays]


@pytest.fixture
def blocks_in_reverse(monkeypatch):
    """Let the simulator run the blocks of a launch from the last one to the first."""
    from numba.cuda.simulator import kernel

    launched = []

    def reversed_points(*shape):
        launched.append(shape)
        return reversed(list(np.ndindex(*shape)))

    monkeypatch.setattr(kernel, "np", SimpleNamespace(**vars(np) | {"ndindex": reversed_points}))
    return launched


# ------------------------------------------------------------------ matrix product


@by_dtype
@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 6), (6, 3)), ((1, 1), (1, 1)), ((2, 3, 4), (4, 5)), ((2, 1, 2, 3), (3, 3, 2))],
    ids=str,
)
def test_product_in_tiles_is_numpys(left, right, dtype):
    x, y = normal(left, dtype), normal(right, dtype, 1)
    assert_near(matrix_product.cuda_matmul(x, y), np.matmul(*in_double(x, y)), dtype)


def test_product_of_transposed_matrices_and_views_is_numpys():
    x, y = normal((6, 5)).T, normal((7, 12), seed=1)[:6, ::3]
    np.testing.assert_allclose(matrix_product.cuda_matmul(x, y), x @ y, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("left", "right"), [((2, 0), (0, 3)), ((0, 2), (2, 3))], ids=str)
def test_product_without_elements_is_zeros(left, right):
    found = matrix_product.cuda_matmul(np.ones(left), np.ones(right))
    np.testing.assert_array_equal(found, np.zeros((left[0], right[1])))


def test_product_has_the_special_values_of_numpy():
    x = np.array([[np.inf, 1.0], [np.nan, 1.0], [1.0, 2.0]])
    y = np.array([[1.0, 0.0], [2.0, -np.inf]])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(matrix_product.cuda_matmul(x, y), x @ y)


# ------------------------------------------------------------------ scatter-add


def added(x, indices, shape):
    out = np.zeros(shape)
    for h in range(shape[0]):
        np.add.at(out[h], indices, x[h].astype(np.float64))
    return out


@by_dtype
@pytest.mark.parametrize("count", [1, 2, 7, 33])
def test_scatter_adds_repeated_and_negative_indices(count, dtype):
    x = normal((2, count, 3), dtype)
    indices = np.random.default_rng(1).integers(-5, 5, count)
    found = cuda_scatter_add(x, indices, (2, 5, 3))
    assert_near(found, added(x, indices, (2, 5, 3)), dtype)


def test_scatter_adds_in_the_order_of_elements():
    # Any other order gives another sum: 1 is lost beside 1e17, unless it comes after the pair.
    x = np.array([1e17, 3.0, -1e17, 1.0, 5.0]).reshape(1, 5, 1)
    found = cuda_scatter_add(x, np.array([2, 0, 2, 2, 0]), (1, 3, 1))
    np.testing.assert_array_equal(found.ravel(), [8.0, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32], ids=str)
def test_scatter_takes_other_integers(dtype):
    x, indices = normal((1, 4, 2)), np.array([[3, 0], [3, 1]], dtype)
    found = cuda_scatter_add(x, indices, (1, 4, 2))
    np.testing.assert_array_equal(found, added(x, indices.ravel(), (1, 4, 2)))


def test_scatter_of_nothing_is_zeros():
    for shape, count in (((1, 3, 2), 0), ((0, 3, 2), 0), ((1, 3, 0), 2)):
        x = np.ones((shape[0], count, shape[2]))
        indices = np.zeros(count, np.int64)
        np.testing.assert_array_equal(cuda_scatter_add(x, indices, shape), np.zeros(shape))


def test_scatter_refuses_an_index_that_is_out_of_range():
    for bad in (3, -4):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for 3"):
            cuda_scatter_add(np.ones((1, 2, 1)), np.array([0, bad]), (1, 3, 1))


def test_embedding_gradient_skips_the_padding_row_and_refuses_rows_that_are_not_there():
    g, indices = normal((5, 3)), np.array([3, 1, 3, 0, 1])
    spec = Spec((4, 3), np.dtype(np.float64))
    expected = added(g[None], indices, (1, 4, 3))[0]
    expected[1] = 0
    with ops.use_kernels("cuda"):
        found = embedding_pullback(g, indices, padding_index=1, spec=spec)
        np.testing.assert_allclose(found, expected, rtol=1e-15)
        with pytest.raises(OutOfRangeError, match="index -1 is out of"):
            embedding_pullback(g[:2], np.array([0, -1]), padding_index=None, spec=spec)


# ------------------------------------------------------------------ pooling

WINDOWS = [
    ((2, 4, 6), {"window": 2}),
    ((2, 5, 7), {"window": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
    ((1, 6, 5), {"window": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
]


def pool_options(options):
    names = {"window": 2, "stride": None, "padding": 0} | options
    pairs = {k: (v, v) if isinstance(v, int) else v for k, v in names.items() if k != "ceil_mode"}
    stride = pairs["stride"] or pairs["window"]
    return pairs["window"], stride, pairs["padding"], options.get("ceil_mode", False)


@by_dtype
@pytest.mark.parametrize(("shape", "options"), WINDOWS, ids=str)
def test_max_pooling_and_its_gradient_share_ties(shape, options, dtype):
    x = np.random.default_rng(0).integers(0, 4, shape).astype(dtype)
    window, stride, padding, ceil = pool_options(options)
    expected = nn.max_pool2d(x.astype(np.float64), **options)
    g = normal(expected.shape, dtype, 1)
    rest = (window, stride, padding, (1, 1), ceil)
    gradient = max_pool_pullback(*in_double(g, x), *rest)
    with ops.use_kernels("cuda"):
        assert_near(nn.max_pool2d(x, **options), expected, dtype)
        assert_near(max_pool_pullback(g, x, *rest), gradient, dtype)


def test_max_pooling_with_dilation_and_along_one_axis():
    x = normal((2, 7))
    options = {"window": 2, "stride": 1, "dilation": 3}
    expected = nn.max_pool1d(x, **options)
    with ops.use_kernels("cuda"):
        np.testing.assert_array_equal(nn.max_pool1d(x, **options), expected)


def test_max_pooling_of_nan_and_infinity_has_numpys_values():
    x = np.array([[1.0, np.nan, 2.0, -np.inf, np.nan, np.nan, np.inf, 3.0]])
    g = np.array([[4.0, 5.0, 6.0, 7.0]])
    found = pooling.cuda_max_pool(x, (1, 4), (2,), (2,), (0,), (1,))
    np.testing.assert_array_equal(found, [[np.nan, 2.0, np.nan, np.inf]])
    shares = pooling.cuda_max_pullback(g, x, (2,), (2,), (0,), (1,))
    np.testing.assert_array_equal(shares, [[0.0, 4.0, 5.0, 0.0, 3.0, 3.0, 7.0, 0.0]])


@by_dtype
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("shape", "options"), WINDOWS, ids=str)
def test_average_pooling_and_its_gradient_divide_by_the_elements(shape, options, counted, dtype):
    x = normal(shape, dtype)
    window, stride, padding, ceil = pool_options(options)
    options = options | {"count_include_pad": counted}
    expected = nn.avg_pool2d(x.astype(np.float64), **options)
    g = normal(expected.shape, dtype, 1)
    settings = {"window": window, "stride": stride, "padding": padding}
    settings |= {"count_include_pad": counted, "ceil_mode": ceil}
    spec = Spec(shape, np.dtype(np.float64))
    gradient = avg_pool_pullback(g.astype(np.float64), **settings, spec=spec)
    with ops.use_kernels("cuda"):
        assert_near(nn.avg_pool2d(x, **options), expected, dtype)
        found = avg_pool_pullback(g, **settings, spec=Spec(shape, np.dtype(dtype)))
    assert_near(found, gradient, dtype)


# ------------------------------------------------------------------ attention

BOOL = np.random.default_rng(5).random((5, 6)) < 0.6
BOOL[2] = False  # a query that may attend to no key

CALLS = {
    "plain": ((2, 5, 3), (2, 6, 3), (2, 6, 2), None, False),
    "causal": ((6, 3), (6, 3), (6, 2), None, True),
    "causal with more queries": ((6, 2), (3, 2), (3, 2), None, True),
    "shared heads": ((4, 5, 3), (2, 5, 3), (2, 5, 1), None, True),
    "truth values": ((2, 5, 3), (2, 6, 3), (2, 6, 2), BOOL, False),
    "numbers for a row": ((2, 5, 3), (2, 6, 3), (2, 6, 2), normal((2, 1, 6)), False),
    "one key": ((1, 3), (1, 3), (1, 2), None, False),
    "one query": ((1, 2), (5, 2), (5, 5), None, True),
    "one beyond two tiles": ((9, 5), (9, 5), (9, 1), None, True),
}
by_call = pytest.mark.parametrize("name", CALLS)


def attention_case(name, dtype):
    *shapes, mask, causal = CALLS[name]
    q, k, v = [normal(shape, dtype, n) for n, shape in enumerate(shapes)]
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(dtype)
    return q, k, v, mask, causal


def plain_attention(q, k, v, mask, causal, scale):
    """Scaled dot-product attention by its formula, in float64."""
    q, k, v, mask = in_double(q, k, v, mask)
    return plain_weights(q, k, mask, causal, scale) @ repeated(v, q)


def repeated(x, q):
    return np.repeat(x, len(q) // len(x), axis=0) if q.ndim > 2 else x


def plain_weights(q, k, mask, causal, scale):
    k = repeated(k, q)
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def plain_gradients(g, q, k, v, mask, causal, scale):
    """The cotangents of queries, keys and values by their formulas, in float64."""
    g, q, k, v, mask = in_double(g, q, k, v, mask)
    weights = plain_weights(q, k, mask, causal, scale)
    moved = g @ repeated(v, q).swapaxes(-1, -2)
    slopes = weights * (moved - (weights * moved).sum(-1, keepdims=True)) * scale
    found = {
        "q": slopes @ repeated(k, q),
        "k": slopes.swapaxes(-1, -2) @ q,
        "v": weights.swapaxes(-1, -2) @ g,
    }
    if q.ndim > 2:  # the query heads of a key head are side by side
        found |= {
            n: x.reshape(len(k), -1, *x.shape[1:]).sum(1) for n, x in found.items() if n != "q"
        }
    return found


@by_call
@by_dtype
def test_attention_in_tiles_is_its_formula(name, dtype):
    q, k, v, mask, causal = attention_case(name, dtype)
    assert attention.fits_cuda_attention(q, k, v, mask)
    found = attention.cuda_attention(q, k, v, mask, causal, 0.7)
    assert_near(found, plain_attention(q, k, v, mask, causal, 0.7), dtype)


@by_call
@pytest.mark.parametrize("operand", ["q", "k", "v"])
def test_gradient_of_attention_is_the_rows(name, operand):
    q, k, v, mask, causal = attention_case(name, "float64")
    g = normal((*q.shape[:-1], v.shape[-1]), seed=9)
    options = {"causal": causal, "scale": 0.7, "operand": operand}
    expected = attention_pullback(g, q, k, v, mask, **options)
    with ops.use_kernels("cuda"):
        found = attention_pullback(g, q, k, v, mask, **options)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * np.abs(expected).max() + 1e-15)


@by_call
@by_dtype
def test_joint_gradients_of_attention_are_their_formulas(name, dtype):
    q, k, v, mask, causal = attention_case(name, dtype)
    g = normal((*q.shape[:-1], v.shape[-1]), dtype, 9)
    expected = plain_gradients(g, q, k, v, mask, causal, 0.7)
    results = attention.cuda_attention_with_logs(q, k, v, mask, causal, 0.7)
    found = attention.cuda_attention_pullback(g, q, k, v, mask, causal, 0.7, "qkv", results)
    for operand in "qkv":
        assert_near(found[operand], expected[operand], dtype)


@pytest.mark.parametrize("name", ["shared heads", "truth values"])
def test_joint_gradients_of_attention_have_the_bits_of_single_ones(name, monkeypatch):
    call = attention_case(name, "float32")
    g = normal((*call[0].shape[:-1], call[2].shape[-1]), "float32", 9)
    joint = attention.cuda_attention_pullback(g, *call, 0.7, "qkv")
    single = {o: attention.cuda_attention_pullback(g, *call, 0.7, [o])[o] for o in "qkv"}
    # So little memory that the sums of keys and those of values do not fit together.
    dim, values = call[0].shape[-1], call[2].shape[-1]
    monkeypatch.setattr(cuda, "_SHARED_BYTES", 4 * 4 * (2 * (dim + values) + dim + 16))
    launched, usual = [], cuda.launch
    monkeypatch.setattr(
        cuda, "launch", lambda kernel, *work: (launched.append(kernel), usual(kernel, *work))
    )
    apart = attention.cuda_attention_pullback(g, *call, 0.7, "qkv")
    assert [kernel.__name__ for kernel in launched].count("_attention_kv") == 2
    for operand in "qkv":
        assert joint[operand].tobytes() == single[operand].tobytes() == apart[operand].tobytes()


STEP = ["_attention_forward", "_attention_dots", "_attention_q", "_attention_kv"]


def attention_loss(arrays, device, mask=None):
    """Variables on a device, and the loss of attention to the mask."""
    xs = [od.Variable(x, requires_grad=True, device=device) for x in arrays]
    mask = None if mask is None else od.Variable(mask, device=device)
    return xs, ops.sum(ops.sin(nn.scaled_dot_product_attention(*xs, mask, scale=0.7)))


def kernels_of_launches(monkeypatch, fail=None):
    """The names of kernels to come; the launch of the kernel ``fail`` raises, once."""
    launched, failing, usual = [], [fail], cuda.launch

    def launch(kernel, *work):
        launched.append(kernel.__name__)
        if failing == [kernel.__name__]:
            failing.clear()
            raise ArithmeticError("the launch")
        usual(kernel, *work)

    monkeypatch.setattr(cuda, "launch", launch)
    return launched


@by_dtype
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_step_of_attention_launches_each_kernel_once(device, dtype, standin, monkeypatch):
    q, k, v, mask, _ = attention_case("truth values", dtype)
    launched = kernels_of_launches(monkeypatch)
    with ops.use_kernels("cuda"), od.GradientTape() as tape:
        xs, loss = attention_loss((q, k, v), device, mask)
    with ops.use_kernels("cuda"):
        found = tape.gradient(loss, xs)
    assert launched == STEP
    g = np.cos(plain_attention(q, k, v, mask, False, 0.7))
    expected = plain_gradients(g, q, k, v, mask, False, 0.7)
    for x, operand in zip(found, "qkv", strict=True):
        array = x.numpy() if isinstance(x, od.Variable) else x
        array = array if device == "cpu" else standin.to_host(array)
        assert_near(array, expected[operand], dtype)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kernel", STEP)
def test_attention_is_right_after_a_launch_that_failed(kernel, device, standin, monkeypatch):
    arrays = attention_case("plain", "float64")[:3]
    g = np.cos(plain_attention(*arrays, None, False, 0.7))
    expected = plain_gradients(g, *arrays, None, False, 0.7)
    launched = kernels_of_launches(monkeypatch, kernel)
    failures = 0
    with ops.use_kernels("cuda"), od.GradientTape(persistent=True) as tape:
        try:
            xs, loss = attention_loss(arrays, device)
        except OdysseyError:
            failures += 1
            xs, loss = attention_loss(arrays, device)
        try:
            tape.gradient(loss, xs)
        except ArithmeticError:
            failures += 1
        found = tape.gradient(loss, xs)
    assert failures == 1
    assert launched[-3:] == STEP[1:]
    for x, operand in zip(found, "qkv", strict=True):
        array = x if device == "cpu" else standin.to_host(x)
        np.testing.assert_allclose(array, expected[operand], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "shapes", [((0, 2), (3, 2), (3, 2)), ((3, 2), (0, 2), (0, 2)), ((0, 3, 2),) * 3], ids=str
)
def test_attention_to_nothing_is_the_rows(shapes, monkeypatch):
    arrays = [normal(shape, seed=n) for n, shape in enumerate(shapes)]
    assert not attention.fits_cuda_attention(*arrays, None)
    launched = kernels_of_launches(monkeypatch)
    with ops.use_kernels("cuda"), od.GradientTape() as tape:
        xs, loss = attention_loss(arrays, "cpu")
    for x, found in zip(arrays, tape.gradient(loss, xs), strict=True):
        np.testing.assert_array_equal(found, np.zeros(x.shape))
    assert not launched


def test_a_tape_of_saved_halves_keeps_the_logarithms_of_attention(monkeypatch):
    # Leaves are not rounded. Logarithms near 60 would be off by up to an eighth in bfloat16, and
    # weights by as much of themselves. Scores near 60 have errors of some 60 roundings of float32.
    monkeypatch.setattr(rounding, "SMALL", 0)
    q, k, v, _, _ = attention_case("plain", "float32")
    q, k = q + np.float32(5.0), k + np.float32(5.0)
    g = normal((2, 5, 2), "float32", 9)
    with ops.use_kernels("cuda"), od.GradientTape(saved="bfloat16") as tape:
        xs = [od.Variable(x, requires_grad=True) for x in (q, k, v)]
        loss = ops.sum(nn.scaled_dot_product_attention(*xs, scale=0.7) * g)
    found = tape.gradient(loss, xs[2])
    expected = plain_gradients(g, q, k, v, None, False, 0.7)["v"]
    assert_near(np.asarray(found), expected, "float32", factor=240)


def test_gradients_of_attention_have_the_special_values_of_the_row():
    q, k, v = normal((5, 2)), normal((5, 2), seed=1), normal((5, 2), seed=2)
    g, mask = normal((5, 2), seed=3), np.ones((5, 5), bool)
    q[1], k[3, 0], v[2, 1], g[0, 1] = np.nan, 1e200, np.inf, -np.inf
    mask[2] = mask[:, 3] = False  # no key for a query, and none attends to the large one
    with np.errstate(all="ignore"):
        options = {"causal": False, "scale": 0.7}
        expected = [attention_pullback(g, q, k, v, mask, **options, operand=o) for o in "qkv"]
    found = attention.cuda_attention_pullback(g, q, k, v, mask, False, 0.7, "qkv")
    for operand, there in zip("qkv", expected, strict=True):
        assert not np.isfinite(there).all()
        np.testing.assert_allclose(found[operand], there, rtol=1e-13, atol=1e-15)


def test_attention_with_infinite_scores_has_the_special_values_of_the_row():
    q, k, v = normal((5, 2)), normal((5, 2), seed=1), normal((5, 2), seed=2)
    q[1], k[3, 0], q[4, 1] = 1e200, 1e200, np.nan  # an overflow, large scores, NaN
    with np.errstate(all="ignore"):
        expected = nn.scaled_dot_product_attention(q, k, v, None)
    found = attention.cuda_attention(q, k, v, None, False, 1 / np.sqrt(2))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(found).any()
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_attention_leaves_calls_with_leading_axes_that_broadcast_to_the_row():
    q, k, v = normal((2, 3, 2)), normal((3, 2), seed=1), normal((3, 2), seed=2)
    assert not attention.fits_cuda_attention(q, k, v, None)
    expected = nn.scaled_dot_product_attention(q, k, v, None)
    with ops.use_kernels("cuda"):
        np.testing.assert_array_equal(nn.scaled_dot_product_attention(q, k, v, None), expected)


# ------------------------------------------------------------------ order of blocks


def all_kernels():
    q, k, v, mask, _ = attention_case("truth values", "float32")
    g = normal((2, 5, 2), "float32", 9)
    x = normal((2, 5, 7), "float32")
    indices = np.random.default_rng(1).integers(0, 5, 70)
    options = ((3, 2), (2, 1), (1, 0), (1, 1))
    pooled = normal((2, 3, 6), "float32", 3)
    shares = np.empty((2, 40), "float32")
    softmax.cuda_softmax(normal((2, 40), "float32"), shares)
    return [
        shares,
        attention.cuda_attention(q, k, v, mask, False, 0.5),
        *attention.cuda_attention_pullback(g, q, k, v, mask, False, 0.5, "qkv").values(),
        matrix_product.cuda_matmul(x[0], x[1].T),
        cuda_scatter_add(normal((1, 70, 2), "float32"), indices, (1, 40, 2)),
        pooling.cuda_max_pullback(pooled, x, *options),
        pooling.cuda_mean_pullback(pooled, x.shape, 6.0, *options),
    ]


def test_blocks_in_reverse_give_equal_bits(monkeypatch, request):
    monkeypatch.setattr(cuda, "_SIMULATED_THREADS", 16)  # several blocks for small arrays
    monkeypatch.setattr(softmax, "_PART_ROUNDS", 1)  # and for a row
    usual = [x.tobytes() for x in all_kernels()]
    launched = request.getfixturevalue("blocks_in_reverse")
    assert [x.tobytes() for x in all_kernels()] == usual
    assert max(shape[0] for shape in launched) > 2


# ------------------------------------------------------------------ arrays of a device


class OnDevice(np.ndarray):
    """An array that stands for one on a device."""


class OwnMemory(backends.Backend):
    """Host memory as a device, which counts what comes back to the host."""

    platform, name, array_type, namespace = "cuda", "test", OnDevice, None

    def __init__(self):
        self.copies = 0
        names = ("empty", "ascontiguousarray", "broadcast_to", "remainder", "clip", "zeros")
        self.namespace = SimpleNamespace(**{name: self._wrap(name) for name in names})

    def _wrap(self, name):
        def call(*args, **options):
            plain = [x.view(np.ndarray) if isinstance(x, OnDevice) else x for x in args]
            options.pop("subok", None)
            return np.asarray(getattr(np, name)(*plain, **options)).view(OnDevice)

        return call

    def device_index(self, array):
        return 0

    def to_device(self, array, index=0):
        return np.array(array).view(OnDevice)

    def to_host(self, array):
        self.copies += 1
        return np.array(array)

    def pointer(self, array):
        return array.ctypes.data

    def synchronize(self, index):
        pass


@pytest.fixture
def own_memory():
    backend = OwnMemory()
    backends.install(backend)
    yield backend
    backends.uninstall(backend)


def test_kernels_take_arrays_of_a_device_and_leave_results_there(own_memory):
    there = own_memory.to_device
    x, y = normal((5, 6)), normal((6, 3), seed=1)
    q, k, v, mask, _ = attention_case("truth values", "float64")
    g, indices = normal((1, 4, 2)), np.array([1, 0, 1, 1])
    image = normal((1, 4, 4))
    found = {
        "product": matrix_product.cuda_matmul(there(x), there(y)),
        "attention": attention.cuda_attention(*map(there, (q, k, v, mask)), False, 0.7),
        "scatter": cuda_scatter_add(there(g), there(indices), (1, 3, 2)),
        "mean": pooling.cuda_mean_pool(
            there(image), (1, 2, 2), 4.0, (2, 2), (2, 2), (0, 0), (1, 1)
        ),
    }
    expected = {
        "product": x @ y,
        "attention": plain_attention(q, k, v, mask, False, 0.7),
        "scatter": added(g, indices, (1, 3, 2)),
        "mean": image.reshape(1, 2, 2, 2, 2).mean((2, 4)),
    }
    assert own_memory.copies == 0
    for name, array in found.items():
        assert type(array) is OnDevice, name
        np.testing.assert_allclose(array.view(np.ndarray), expected[name], rtol=1e-13, atol=1e-14)


# ------------------------------------------------------------------ rows


def test_rows_with_a_gpu_kernel_are_those_named_here():
    named = {row.name for row in ops.OPS.values() for k in row.kernels if k.device == "cuda"}
    assert named == {
        "add_taken",
        "attention_pullback",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool_pullback",
        "embedding_pullback",
        "matmul",
        "max_pool1d",
        "max_pool2d",
        "max_pool_pullback",
        "scaled_dot_product_attention",
        "softmax",
    }


def test_rows_run_their_gpu_kernels_in_a_block(monkeypatch):
    launches = []
    usual = cuda.launch
    monkeypatch.setattr(cuda, "launch", lambda *args: (launches.append(1), usual(*args))[1])
    x, y, indices = normal((3, 4)), normal((4, 2), seed=1), np.array([[1, -1], [0, 1]])
    spec = Spec((3, 2), np.dtype(np.float64))
    g = normal((2, 2, 2))
    calls = [
        lambda: linalg.matmul(x, y),
        lambda: add_taken(g, indices, axis=0, spec=spec),
        lambda: add_taken(g, indices + 7, axis=0, mode="wrap", spec=spec),
        lambda: add_taken(g, indices + 7, axis=0, mode="clip", spec=spec),
        lambda: nn.avg_pool1d(x, window=2),
    ]
    for call in calls:
        expected = call()
        launches.clear()
        with ops.use_kernels("cuda"):
            np.testing.assert_allclose(call(), expected, rtol=1e-14)
        assert launches


# ------------------------------------------------------------------ public ops on a device

INDICES = np.array([1, 0, 1])

# A function of Variables and of its indices there, shapes, and the kernels of a step.
ON_DEVICE = {
    "attention": (
        lambda at, q, k, v: nn.scaled_dot_product_attention(q, k, v, causal=True),
        ((3, 2), (3, 2), (3, 2)),
        {"_attention_forward", "_attention_dots", "_attention_q", "_attention_kv", "_matmul_tiles"},
    ),
    "matmul": (lambda at, x, y: x @ y, ((5, 6), (6, 3)), {"_matmul_tiles"}),
    "take": (
        lambda at, x: ops.take(x, at, axis=0),
        ((3, 2),),
        {"_normalize_keys", "_merge_runs", "_fold_segments"},
    ),
    "embedding": (
        lambda at, weight: nn.embedding(at, weight),
        ((3, 2),),
        {"_normalize_keys", "_merge_runs", "_fold_segments"},
    ),
    "avg_pool2d": (
        lambda at, x: nn.avg_pool2d(x, window=2),
        ((2, 4, 4),),
        {"_cuda_windows", "_cuda_shares"},
    ),
    "max_pool1d": (
        lambda at, x: nn.max_pool1d(x, window=3, stride=1, padding=1),
        ((2, 5),),
        {"_cuda_windows", "_cuda_shares"},
    ),
    "softmax": (lambda at, x: nn.softmax(x), ((3, 5),), {"_cuda_rows_kernel"}),
}


def derivatives(function, arrays, device):
    """The result, the gradients, and those of their squares, as arrays of the device."""
    at = od.Variable(INDICES, device=device)
    xs = [od.Variable(x, requires_grad=True, device=device) for x in arrays]
    with od.GradientTape() as outer:
        with od.GradientTape() as inner:
            out = function(at, *xs)
            loss = ops.sum(ops.sin(out))
        gradients = inner.gradient(loss, xs)
        squares = sum(ops.sum(g * g) for g in gradients)
    return [out, *gradients, *outer.gradient(squares, xs)]


@pytest.mark.parametrize("name", ON_DEVICE)
def test_ops_and_their_gradients_run_kernels_on_arrays_of_a_device(name, standin, monkeypatch):
    function, shapes, kernels = ON_DEVICE[name]
    arrays = [normal(shape, seed=n) for n, shape in enumerate(shapes)]
    expected = derivatives(function, arrays, "cpu")
    launched, copied, usual = set(), [], cuda.launch
    monkeypatch.setattr(
        cuda, "launch", lambda kernel, *work: (launched.add(kernel.__name__), usual(kernel, *work))
    )
    with monkeypatch.context() as counted, ops.use_kernels("cuda"):
        counted.setattr(standin, "to_host", copied.append)
        found = derivatives(function, arrays, "cuda")
    assert launched == kernels
    assert not copied
    for there, here in zip(found, expected, strict=True):
        there = there.numpy() if isinstance(there, od.Variable) else standin.to_host(there)
        here = here.numpy() if isinstance(here, od.Variable) else here
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-14 * max(1, np.abs(here).max()))


def test_training_with_kernels_on_a_device_is_that_of_the_cpu(standin):
    shapes = ((5, 4), (4, 3), (4, 3), (4, 3))
    losses = []
    for device in ("cpu", "cuda"):
        parameters = [
            od.Variable(normal(shape, seed=n), requires_grad=True, device=device)
            for n, shape in enumerate(shapes)
        ]
        tokens = od.Variable(np.array([[1, 2, 1], [0, 4, 4]]), device=device)
        optimizer = od.optim.Adam(parameters, 0.1)
        for _ in range(2):
            with ops.use_kernels("numpy" if device == "cpu" else device), od.GradientTape() as tape:
                table, *weights = parameters
                x = nn.embedding(tokens, table)
                q, k, v = [x @ weight for weight in weights]
                loss = ops.mean(nn.scaled_dot_product_attention(q, k, v, causal=True) ** 2)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[2:], losses[:2], rtol=1e-13)
    assert losses[1] < losses[0]
