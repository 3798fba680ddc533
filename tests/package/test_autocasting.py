"""``od.autocast``: which ops cast, to what, where the block holds, and what gradients are."""

import asyncio
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.autocasting import autocast_mode
from odyssey.errors import DTypeError, OdysseyError
from odyssey.ops import OPS
from support.cases import SEVERAL, SMOOTH, derive, draw, tracked, walk

HALVES = ("float16", "bfloat16")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
W = np.array([[0.5, -1.25], [1.1, 0.3], [-0.7, 2.2]], np.float32)

# Ops of PyTorch's autocast documentation (docs.pytorch.org/docs/stable/amp.html, 2.9) that have a
# row here, by their names here. A composite, such as ``dot``, is cast by the rows that it calls.
TORCH_LOW = {
    *("matmul", "linear", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention"),
    *("convolution_input", "recurrent_states"),  # conv_transpose, and RNN, LSTM and GRU cells
}
TORCH_WIDE = {
    *("power", "arccos", "arcsin", "binary_entropy_with_logits", "cosh", "softmax_cross_entropy"),
    *("cumprod", "cumsum", "erfinv", "exp", "expm1", "kl_div", "layer_norm", "log", "log10"),
    *("log_softmax", "log1p", "log2", "squared_error_mean", "euclidean_norm", "prod", "reciprocal"),
    *("rms_norm", "rsqrt", "sinh", "softmax", "softplus", "sum", "tan"),
    # Of its list for the CPU.
    *("binary_entropy", "cholesky", "det", "dft", "eig", "eigh", "eigvals", "eigvalsh", "inv"),
    *("inverse_real_dft", "least_squares", "lu", "matrix_rank", "pinv", "qr_factors", "quantile"),
    *("real_dft", "slogdet", "solve", "svd_factors", "svdvals", "triangular_solve"),
}
# Products that PyTorch has no op of, or makes of those above.
OTHER_LOW = {
    *("contract", "convolution_weight", "convolve", "depthwise_conv2d"),
    "depthwise_separable_conv2d",
}
# Sums, logarithms, exponentials and functions of matrices likewise.
OTHER_WIDE = {
    *("entr", "erfcinv", "exp2", "expm", "log_sigmoid", "logaddexp", "logaddexp2", "logcumsumexp"),
    *("logsumexp", "mean", "percentile", "rel_entr", "segment_softmax", "sqrtm", "std", "var"),
    *("xlog1py", "xlogy"),
}
# ``prelu`` is of PyTorch's list of half precision, since its own op takes one dtype only.

ROWS = {kind: {n for n, r in OPS.items() if r.precision == kind} for kind in ("low", "wide")}
LOW = {name: case for name, case in SMOOTH.items() if case[0].name in ROWS["low"]}
WIDE = {name: case for name, case in SMOOTH.items() if case[0].name in ROWS["wide"]}


def leaf(data=W):
    return od.Variable(data.copy(), requires_grad=True)


def product(w):
    return (X @ w).dtype


def test_classes_of_rows_are_those_of_pytorch_and_of_like_ops():
    assert ROWS["low"] == TORCH_LOW | OTHER_LOW
    assert ROWS["wide"] == TORCH_WIDE | OTHER_WIDE
    assert {row.precision for row in OPS.values()} == {"low", "wide", "follow"}


def cast_floats(operands, dtype):
    return [
        ops.astype(v, dtype) if getattr(v, "dtype", None) == np.float32 else v for v in operands
    ]


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
