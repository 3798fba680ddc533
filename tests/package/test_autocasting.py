"""``od.autocast``: which ops cast, to what, where the block holds, and what gradients are."""

import asyncio
import importlib.util
import itertools
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.autocasting import autocast_mode
from odyssey.errors import DTypeError, OdysseyError
from odyssey.ops import OPS
from odyssey.table.scope import scopes
from support.cases import SEVERAL, SMOOTH, derive, draw, tracked, walk

HALVES = ("float16", "bfloat16")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
W = np.array([[0.5, -1.25], [1.1, 0.3], [-0.7, 2.2]], np.float32)

# The lists of PyTorch 2.13, macros of its header ATen/autocast_mode.h: each op with the row or
# function of odyssey that does the same, or None.
TORCH = {
    "AT_FORALL_LOWER_PRECISION_FP": {
        **{name: name for name in ("conv1d", "conv2d", "conv3d", "matmul", "linear", "einsum")},
        **{f"conv_transpose{k}d": "convolution_input" for k in (1, 2, 3)},
        **dict.fromkeys(("_convolution", "convolution"), "conv2d"),
        **dict.fromkeys(("mm", "mv", "bmm"), "matmul"),
        "linalg_vecdot": "vecdot",
        "linalg_multi_dot": "multi_dot",
        **dict.fromkeys(("lstm_cell", "gru_cell"), "recurrent_states"),
        **dict.fromkeys(("rnn_tanh_cell", "rnn_relu_cell"), "recurrent_states"),
        "scaled_dot_product_attention": "scaled_dot_product_attention",
        "prelu": "prelu",
        **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm", "chain_matmul"), None),
        **dict.fromkeys(("conv_tbc", "_scaled_dot_product_flash_attention"), None),
        **dict.fromkeys(("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), None),
    },
    "AT_FORALL_FP32": {
        **{name: name for name in ("cosh", "erfinv", "exp", "expm1", "log", "log10", "log2")},
        **{name: name for name in ("log1p", "reciprocal", "rsqrt", "sinh", "tan", "softplus")},
        **{name: name for name in ("layer_norm", "rms_norm", "logsumexp", "kl_div")},
        **{"acos": "arccos", "asin": "arcsin", "pow": "power", "native_layer_norm": "layer_norm"},
        **{name: name for name in ("group_norm", "cosine_similarity", "pdist", "cdist")},
        **{"frobenius_norm": "matrix_norm", "nuclear_norm": "matrix_norm"},
        "dist": "pairwise_distance",
        "nll_loss": "softmax_cross_entropy",
        "mse_loss": "squared_error_mean",
        "binary_cross_entropy_with_logits": "binary_entropy_with_logits",
        **{
            f"{name}_loss": name
            for name in (
                *("poisson_nll", "cosine_embedding", "hinge_embedding", "smooth_l1", "huber"),
                *("margin_ranking", "multilabel_margin", "soft_margin", "triplet_margin"),
                "multi_margin",
            )
        },
        "l1_loss": "mean_absolute_error",
        **{
            f"{prefix}_{name}": "interpolate"
            for prefix, names in {
                "upsample": (
                    *("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d"),
                    *("trilinear3d", "bicubic2d"),
                ),
                "_upsample": ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d"),
            }.items()
            for name in names
        },
        **dict.fromkeys(("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"), None),
        **dict.fromkeys(("renorm", "nll_loss2d"), None),
    },
    "AT_FORALL_FP32_SET_OPT_DTYPE": {
        **{name: name for name in ("prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum")},
        "linalg_vector_norm": "vector_norm",
        "linalg_matrix_norm": "matrix_norm",
    },
    "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE": {"norm": "norm"},
    "AT_FORALL_PROMOTE": {
        **{"atan2": "arctan2", "cross": "cross", "grid_sampler": "grid_sample"},
        **{"index_put": "setitem", "scatter_add": "add_along_axis"},
        **{name: name for name in ("bilinear", "dot", "vdot", "tensordot")},
        **{"addcdiv": None, "addcmul": None},
    },
}


def torch_ops(*macros):
    return {ours for macro in macros for ours in TORCH[macro].values() if ours is not None}


TORCH_LOW = torch_ops("AT_FORALL_LOWER_PRECISION_FP")
TORCH_WIDE = torch_ops(*[m for m in TORCH if "FP32" in m or "SIGNATURE" in m])
TORCH_PROMOTED = torch_ops("AT_FORALL_PROMOTE")
# ``prelu`` is of PyTorch's list of half precision, since its own op takes one dtype only.
FOLLOWS_HERE = {"prelu"}
# Products like others, made of ``matmul`` and ``contract``; PyTorch leaves their operands alone.
LOW_HERE = {"bilinear", "dot", "vdot", "tensordot"}
# Products that PyTorch has no op of, or makes of those above, and derivatives of products.
OTHER_LOW = {
    *("contract", "convolution_weight", "convolve", "depthwise_conv2d"),
    *("depthwise_separable_conv2d", "attention_pullback", "recurrent_pullback"),
}
# Sums, logarithms and exponentials, and functions of matrices, sorted numbers and spectra, of which
# PyTorch has most in its list for the CPU, ATen/autocast_mode.cpp.
OTHER_WIDE = {
    *("binary_entropy", "entr", "erfcinv", "exp2", "log_sigmoid", "logaddexp", "logaddexp2"),
    *("logcumsumexp", "mean", "rel_entr", "segment_softmax", "std", "var", "xlog1py", "xlogy"),
    *("cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "euclidean_norm", "expm", "inv"),
    *("least_squares", "lu", "matrix_rank", "pinv", "qr_factors", "slogdet", "solve", "sqrtm"),
    *("svd_factors", "svdvals", "triangular_solve"),
    *("percentile", "quantile", "dft", "inverse_real_dft", "real_dft"),
}

ROWS = {kind: {n for n, r in OPS.items() if r.precision == kind} for kind in ("low", "wide")}
LOW = {name: case for name, case in SMOOTH.items() if case[0].name in ROWS["low"]}
WIDE = {name: case for name, case in SMOOTH.items() if case[0].name in ROWS["wide"]}


def leaf(data=W):
    return od.Variable(data.copy(), requires_grad=True)


def product(w):
    return (X @ w).dtype


def test_classes_of_rows_are_those_of_pytorch_and_of_like_ops():
    rows = set(OPS)
    assert ROWS["low"] == TORCH_LOW & rows - FOLLOWS_HERE | OTHER_LOW
    assert ROWS["wide"] == TORCH_WIDE & rows | OTHER_WIDE
    assert all(OPS[name].precision == "follow" for name in TORCH_PROMOTED & rows | FOLLOWS_HERE)
    assert {row.precision for row in OPS.values()} == {"low", "wide", "follow"}


def test_the_lists_are_those_of_the_header_of_pytorch():
    spec = importlib.util.find_spec("torch")
    if spec is None:
        pytest.skip("PyTorch is not installed")
    header = Path(spec.origin).parent / "include/ATen/autocast_mode.h"
    text = header.read_text()
    for macro, ops_of_it in TORCH.items():
        body = text.split(f"#define {macro}(_)")[1].split("\n\n")[0]
        assert set(re.findall(r"_\((?:ADD_NS\()?(\w+)", body)) == set(ops_of_it)


HALF = np.sin(np.arange(1.0, 13.0) ** 2).reshape(4, 3)
# Functions of the lists of float32 that are no rows.
FUNCTIONS = {
    "cdist": lambda x: od.nn.cdist(x, x[::-1]),
    "cosine_embedding": lambda x: od.losses.cosine_embedding(x, x[::-1], np.array([1, -1, 1, 1])),
    "cosine_similarity": lambda x: od.nn.cosine_similarity(x, x[::-1]),
    "group_norm": lambda x: od.nn.group_norm(x, groups=1),
    "hinge_embedding": lambda x: od.losses.hinge_embedding(x, np.sign(HALF)),
    "huber": lambda x: od.losses.huber(x, HALF[::-1]),
    "interpolate": lambda x: od.nn.interpolate(x[None], size=5, mode="linear"),
    "margin_ranking": lambda x: od.losses.margin_ranking(x, x[::-1], np.sign(HALF)),
    "matrix_norm": lambda x: od.linalg.matrix_norm(x, ord="nuc"),
    "mean_absolute_error": lambda x: od.losses.mean_absolute_error(x, HALF[::-1]),
    "multi_margin": lambda x: od.losses.multi_margin(x, np.array([0, 1, 2, 0])),
    "multilabel_margin": lambda x: od.losses.multilabel_margin(x, np.array([[0, -1, -1]] * 4)),
    "norm": od.linalg.norm,
    "pairwise_distance": lambda x: od.nn.pairwise_distance(x, x[::-1]),
    "pdist": od.nn.pdist,
    "poisson_nll": lambda x: od.losses.poisson_nll(x, np.abs(HALF)),
    "smooth_l1": lambda x: od.losses.smooth_l1(x, HALF[::-1]),
    "soft_margin": lambda x: od.losses.soft_margin(x, np.sign(HALF)),
    "triplet_margin": lambda x: od.losses.triplet_margin(x, x[::-1], x[[1, 0, 3, 2]]),
    "vector_norm": od.linalg.vector_norm,
    "normalize": od.nn.normalize,  # of no list, but a norm
}


def test_all_functions_of_the_lists_of_float32_are_called():
    assert TORCH_WIDE - set(OPS) == FUNCTIONS.keys() - {"normalize"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_halves_compute_in_float32(name):
    fn, half = FUNCTIONS[name], ops.astype(HALF, "float16")
    wide = ops.astype(half, "float32")
    with od.autocast("bfloat16"):
        found = fn(od.Variable(half))
    expected = fn(wide)
    assert found.dtype == expected.dtype != np.float16
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    slope = od.grad(lambda x: ops.sum(fn(x)))
    with od.autocast("bfloat16"):
        inside = slope(half)
    assert inside.dtype == np.float16
    # Cotangents of uses of one operand are rounded one by one.
    np.testing.assert_allclose(inside, slope(wide), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("name", sorted(LOW_HERE | {"einsum", "multi_dot", "vecdot"}))
def test_products_that_are_no_rows_are_cast_too(name):
    x, w = leaf(X), leaf(np.ones((2, 3, 3), np.float32))
    calls = {
        "bilinear": lambda: od.nn.bilinear(x, X, w),
        "einsum": lambda: od.linalg.einsum("ij,kj", x, X),
        "multi_dot": lambda: od.linalg.multi_dot([x, X.T]),
        "tensordot": lambda: od.linalg.tensordot(x, X, 2),
    }
    call = calls.get(name, lambda: getattr(od.linalg, name)(x[0], X[0]))
    with od.autocast("bfloat16"):
        assert call().dtype.name == "bfloat16"


def cast_floats(operands, dtype):
    kinds = np.float32, np.float16
    return [ops.astype(v, dtype) if getattr(v, "dtype", None) in kinds else v for v in operands]


@walk(LOW)
@pytest.mark.parametrize("mode", HALVES)
def test_a_product_in_the_block_equals_the_product_of_cast_operands(row, sample, mode):
    operands, places = draw(sample, np.float32), tracked(row, sample)

    def in_block(*given):
        with od.autocast(mode):
            return row.call(*given, **sample.options)

    def by_hand(*given):
        return row.call(*cast_floats(given, mode), **sample.options)

    found, expected = derive(in_block, operands, places), derive(by_hand, operands, places)
    assert found.value.dtype.name == mode
    assert [g.dtype for g in found.gradients] == [np.float32] * len(places)
    for one, other in zip(found.flat(), expected.flat(), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@walk(WIDE)
@pytest.mark.parametrize("mode", HALVES)
def test_wide_ops_of_halves_equal_those_of_float32(row, sample, mode):
    operands, places = draw(sample, np.float32), tracked(row, sample)
    halves = cast_floats(operands, mode)
    wide = [ops.astype(v, "float32") if k in places else v for k, v in enumerate(halves)]

    def in_block(*given):
        with od.autocast(mode):
            return row.call(*given, **sample.options)

    found = derive(in_block, halves, places)
    expected = derive(lambda *given: row.call(*given, **sample.options), wide, places)
    assert found.value.dtype == expected.value.dtype
    np.testing.assert_array_equal(found.value, expected.value)
    for k, g in zip(places, found.gradients, strict=True):
        assert g.dtype == halves[k].dtype
    for g, h in zip(found.gradients, expected.gradients, strict=True):
        np.testing.assert_array_equal(
            np.asarray(g), np.asarray(ops.astype(h, mode)) if h.size else np.asarray(g)
        )


@walk({name: case for name, case in SEVERAL.items() if case[0].name in ROWS["wide"]})
def test_factorizations_of_halves_are_those_of_float32(row, sample):
    operands = cast_floats(draw(sample, np.float32), "float16")
    expected = row.call(*[ops.astype(v, "float32") for v in operands], **sample.options)
    with od.autocast("float16"):
        found = row.call(*map(od.Variable, operands), **sample.options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


def test_a_block_holds_where_it_is_entered_and_ends_with_it():
    w = leaf()
    with od.autocast("float16"):
        with od.autocast("bfloat16"):
            assert product(w).name == "bfloat16"
            with od.autocast(None):
                assert product(w) == np.float32
                with od.autocast("float16"):
                    assert product(w) == np.float16
            assert product(w).name == "bfloat16"
            with od.autocast("float16", enabled=False):
                assert product(w) == np.float32
        assert product(w) == np.float16
    assert product(w) == np.float32
    with pytest.raises(ZeroDivisionError), od.autocast("float16"):
        raise ZeroDivisionError
    assert product(w) == np.float32
    assert od.autocast("float16")(product)(w) == np.float16  # as a decorator
    with od.autocast(None), od.autocast("float16", enabled=False):
        assert product(w) == np.float32


def test_blocks_and_tapes_nest_in_any_order():
    w = leaf()
    with od.autocast("float16"), od.GradientTape() as tape:
        with od.autocast("bfloat16"), od.GradientTape():
            a = X @ w
        b = X @ w
        with od.no_grad():
            c = X @ w
    assert (a.dtype.name, b.dtype, c.dtype) == ("bfloat16", np.float16, np.float16)
    assert not c.requires_grad
    tape.backward([a, b], [np.ones((4, 2)), np.ones((4, 2))])
    assert w.grad.dtype == np.float32
    block, tape = od.autocast("float16"), od.GradientTape()
    tape.__enter__()
    block.__enter__()
    tape.__exit__(None, None, None)  # the tape ends first
    assert product(w) == np.float16
    block.__exit__(None, None, None)
    assert product(w) == np.float32


def test_a_tape_that_saw_the_block_records_fast_again_after_it():
    w = leaf()
    with od.GradientTape() as tape:
        with od.autocast("float16"):
            X @ w
        assert next(tape._recording.block, None) is not None
        assert (X @ w).dtype == np.float32


def test_blocks_that_cast_nothing_leave_the_fast_paths_open():
    w = leaf()

    def is_fast(tape):
        return scopes()[0] is tape._recording

    for mode in ("tf32", None):
        with od.autocast("float16"), od.autocast(mode), od.GradientTape() as inner:
            assert is_fast(inner)
            assert product(w) == np.float32
            with od.autocast("bfloat16"):
                assert not is_fast(inner)
                assert product(w).name == "bfloat16"
            assert is_fast(inner)
    with od.GradientTape() as tape, od.autocast("tf32"):
        assert is_fast(tape)
        assert autocast_mode() == "tf32"
        with od.no_grad():
            assert autocast_mode() == "tf32"
            assert not (X @ w).requires_grad
        with od.autocast(None):
            assert autocast_mode() is None
            assert is_fast(tape)
        with od.autocast("float16"), od.GradientTape() as within:
            assert not is_fast(within)
            assert product(w) == np.float16
        assert autocast_mode() == "tf32"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
@pytest.mark.parametrize("first", [None, "tf32", "float16"])
def test_scopes_end_in_any_order(first, order):
    w, modes = leaf(), [first, "bfloat16", "tf32", "float16"]
    blocks = [od.autocast(mode) for mode in modes]
    entered = []
    with od.GradientTape():
        for block in blocks:
            block.__enter__()
            tape = od.GradientTape()
            tape.__enter__()
            entered.append(tape)
        left = list(range(4))
        for k in order:
            blocks[k].__exit__(None, None, None)
            left.remove(k)
            mode = modes[left[-1]] if left else None
            assert autocast_mode() == mode
            expected = mode if mode in HALVES else "float32"
            assert product(w).name == expected
            if k % 2:
                entered.pop().__exit__(None, None, None)
                assert autocast_mode() == mode
                assert product(w).name == expected
        for tape in reversed(entered):
            tape.__exit__(None, None, None)
    assert scopes() == (None,)


def test_other_threads_and_their_copies_of_a_context_are_outside():
    w, found = leaf(), []

    async def main():
        with od.autocast("float16"):
            found.append(await asyncio.to_thread(product, w))
            found.append(product(w))

    with od.autocast("float16"):
        thread = threading.Thread(target=lambda: found.append(product(w)))
        thread.start()
        thread.join()
    asyncio.run(main())
    assert found == [np.float32, np.float32, np.float16]


@pytest.mark.parametrize(
    "scope", [od.autocast("float16"), od.no_grad()], ids=["autocast", "no_grad"]
)
def test_one_block_is_entered_by_several_threads_and_tasks(scope):
    w, found = leaf(), {}
    steps = [threading.Event() for _ in range(2)]

    def state():
        with od.GradientTape():
            y = X @ w
        return y.dtype.name, y.requires_grad

    def first():
        with scope:
            steps[0].set()
            steps[1].wait(10)
        found["first"] = state()

    def second():
        steps[0].wait(10)
        with scope:
            steps[1].set()
            thread.join(10)
            found["inside"] = state()
        found["second"] = state()

    async def task(name, mine, other):
        with scope:
            mine.set()
            await other.wait()
            found[f"{name} inside"] = state()
        found[name] = state()

    async def tasks():
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(task("one", *events), task("other", *events[::-1]))

    outside = state()
    with scope:
        inside = state()
    thread = threading.Thread(target=first)
    threads = [thread, threading.Thread(target=second)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    asyncio.run(tasks())
    for name, one in found.items():
        assert one == (inside if "inside" in name else outside), name
    assert len(found) == 7
    assert outside == state()


def test_a_block_of_a_generator_ends_where_the_generator_is_closed():
    w = leaf()

    def generate():
        with od.autocast("float16"):
            yield product(w)
            yield product(w)

    generator = generate()
    assert next(generator) == product(w) == np.float16
    generator.close()
    assert product(w) == np.float32
    generator = generate()
    next(generator)
    thread = threading.Thread(target=generator.close)
    thread.start()
    thread.join()
    assert product(w) == np.float32
    step = od.compile(product, fullgraph=True)
    assert step.lower(w).graph.instructions[-1].specs[0].dtype == np.float32


@pytest.mark.parametrize("name", ["autocast", "no_grad"])
def test_generator_and_coroutine_functions_are_not_decorated(name):
    def generator():
        yield

    async def coroutine():
        pass

    async def both():
        yield

    for function in (generator, coroutine, both):
        block = od.autocast("float16") if name == "autocast" else od.no_grad()
        with pytest.raises(DTypeError, match=f"{name}: {function.__name__} is a generator or"):
            block(function)


def test_tf32_changes_nothing_on_the_cpu():
    w = leaf()
    results = []
    for mode in ("tf32", None):
        with od.autocast(mode), od.GradientTape() as tape:
            assert autocast_mode() == mode
            loss = ops.exp(X @ w).mean()
            results.append((loss.item(), tape.gradient(loss, w).tobytes()))
    assert results[0] == results[1]


def test_calls_with_float64_complex_or_whole_numbers_are_left_as_they_are():
    w = leaf()
    with od.autocast("float16"):
        assert (X.astype(np.float64) @ w).dtype == np.float64
        assert (X.astype(np.complex64) @ w).dtype == np.complex64
        assert ([[1.0, 2.0, 3.0]] @ w).dtype == np.float64
        assert (np.ones((4, 3), int) @ w).dtype == np.float64
        assert ops.matmul(X, W).dtype == np.float32  # of arrays alone
        assert (w * 2.0).dtype == (w + w).dtype == np.float32
        assert ops.exp(w).dtype == np.float32
    assert ops.exp(X.astype(np.float64) @ w).dtype == np.float64


@pytest.mark.parametrize("mode", HALVES)
def test_losses_compute_in_float32(mode):
    half, target = od.Variable(X, dtype=mode), X[::-1] * 1.001
    for loss in (od.losses.mean_squared_error, od.losses.mean_absolute_error, od.losses.huber):
        with od.autocast(mode):
            found = loss(half, target)
        expected = loss(np.asarray(ops.astype(half.numpy(), "float32")), target)
        assert found.dtype == np.float32
        assert found.item() == expected.item()
    with od.autocast(mode):
        assert od.losses.cross_entropy(half, np.array([0, 2, 1, 1])).dtype == np.float32


def test_a_sweep_gives_one_gradient_inside_and_outside_of_the_block():
    results = []
    for inside in (True, False):
        w = leaf()
        with od.GradientTape(persistent=True) as tape:
            with od.autocast("float16"):
                loss = (ops.tanh(X @ w) @ W.T).sum()
                if inside:
                    slope = tape.gradient(loss, w, create_graph=True)
                    tangent = tape.jvp(loss, w, np.ones_like(W))
            if not inside:
                slope = tape.gradient(loss, w, create_graph=True)
                tangent = tape.jvp(loss, w, np.ones_like(W))
            total = (slope * slope).sum()
        results.append([slope.numpy(), tape.gradient(total, w), np.asarray(tangent)])
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_second_derivatives_are_those_of_casts_by_hand():
    def by_hand(w):
        h = ops.astype(X, "float16") @ ops.astype(w, "float16")
        return ops.astype(ops.tanh(h), "float32").sum()

    @od.autocast("float16")
    def in_block(w):
        return ops.tanh(X @ w).sum()

    v = np.ones_like(W)
    for order in (
        od.grad,
        lambda f: lambda w: od.hvp(f, w, v),
        lambda f: lambda w: od.jvp(f, (w,), (v,)),
    ):
        np.testing.assert_array_equal(np.asarray(order(in_block)(W)), np.asarray(order(by_hand)(W)))


def test_vmap_casts_in_the_function_and_not_in_its_rules():
    w = leaf()

    def one(x):
        return ops.softmax(w.T @ x)

    with od.autocast("float16"):
        with od.GradientTape() as tape:
            found = od.vmap(one)(X)
            loss = found.sum()
        rows = np.stack([one(x).numpy() for x in X])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.numpy(), rows, rtol=1e-3)
    assert tape.gradient(loss, w).dtype == np.float32
    with od.autocast("float16"):
        per_example = od.vmap(od.grad(lambda w, x: (x @ w).sum()), (None, 0))(W, X)
    assert per_example.dtype == np.float32
    np.testing.assert_allclose(per_example, np.repeat(X[:, :, None], 2, 2), rtol=1e-3)
    with od.autocast(None):
        assert od.vmap(one)(X).dtype == np.float32
    mapped = od.vmap(od.autocast("float16")(lambda x: w.T @ x))
    assert mapped(X).dtype == np.float16


def test_functions_that_run_again_in_a_sweep_run_in_the_mode_of_their_first_run():
    @od.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))
    rerun = []

    def layer(x):
        rerun.append(autocast_mode())
        return ops.tanh(x @ leaf_w)

    leaf_w = leaf(np.eye(3, dtype=np.float32))
    with od.GradientTape() as tape:
        with od.autocast("float16"):
            h = od.checkpoint(layer)(leaf_w)
        loss = square(ops.astype(h, np.float32)).sum()
    assert h.dtype == np.float16
    with od.autocast("bfloat16"):
        tape.backward(loss)
    assert rerun == ["float16", "float16"]
    assert leaf_w.grad.dtype == np.float32

    @od.autocast("float16")
    def steps(w):
        def step(h, x):
            h = ops.astype(ops.tanh(h @ w), np.float32)
            return h, h

        return od.scan(step, np.ones(3, np.float32), np.zeros(4))[1].sum()

    @od.autocast("float16")
    def unrolled(w):
        h, total = np.ones(3, np.float32), 0
        for _ in range(4):
            h = ops.astype(ops.tanh(h @ w), np.float32)
            total = total + h.sum()
        return total

    w = np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(od.grad(steps)(w), od.grad(unrolled)(w), rtol=2e-3)
    assert od.grad(steps)(w).dtype == np.float32


def test_a_passed_tape_and_composites_record_in_the_block():
    tape = od.GradientTape()
    w = leaf()
    with tape:
        pass
    tape.enable()
    with od.autocast("float16"):
        y = ops.matmul(X, w, tape=tape)
        z = od.linalg.multi_dot([X, w], tape=tape)
    assert y.dtype == z.dtype == np.float16
    gradient = tape.gradient([y, z], w, [np.ones((4, 2)), np.ones((4, 2))])
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, 2 * np.repeat(X.sum(0)[:, None], 2, 1), atol=4e-3)


def test_ops_of_users_have_a_class_too():
    @od.op(vjp={"x": lambda g, y: ops.matmul(g, y.T)}, precision="low")
    def times(x, y, /):
        """Matrix product."""
        return x @ y

    w = leaf()
    with od.autocast("float16"):
        assert times(w, W.T).dtype == np.float16
    with pytest.raises(OdysseyError, match="precision='half'; choose one of 'low', 'wide'"):
        od.op(precision="half")(lambda x, /: x)


@pytest.mark.parametrize("mode", ["float32", "half", 3, object(), [], np.float64, ("float16",)])
def test_other_modes_are_refused_before_anything_changes(mode):
    with pytest.raises(DTypeError, match=r"autocast: mode is .*; pass 'float16', 'bfloat16'"):
        od.autocast(mode)
    with pytest.raises(DTypeError, match="enabled"):
        od.autocast("float16", enabled="yes")
    assert product(leaf()) == np.float32


def test_modes_may_be_dtypes():
    w = leaf()
    for mode in (np.float16, np.dtype("float16"), ops.astype(X, "bfloat16").dtype):
        with od.autocast(mode):
            assert product(w) == np.dtype(mode)
