"""Rows that a program could compute, and leaves to kernels where these save time or memory."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.nn.attention import scaled_dot_product
from odyssey.ops import OPS
from support.cases import draw

RNG = np.random.default_rng(31)
LONG = 40


def of_length(*lengths, dtype=np.float64, heads=2):
    return [RNG.normal(size=(heads, length, 8)).astype(dtype) for length in lengths]


def gradients(q, k, v, wanted=(0, 1, 2), **options):
    """The cotangents of attention's operands, of a tape."""
    given = [Variable(x, requires_grad=place in wanted) for place, x in enumerate((q, k, v))]
    with GradientTape() as tape:
        out = ops.scaled_dot_product_attention(*given, **options)
        loss = ops.sum(out * out)
    return out.detach(), *tape.gradient(loss, [given[place] for place in wanted])


def assert_near(made, wanted):
    """Up to the order of sums: products of matrices take rows that lie otherwise in another."""
    for found, right in zip(made, wanted, strict=True):
        found, right = np.asarray(found), np.asarray(right)
        bound = 64 * np.finfo(right.dtype).eps * np.abs(right).max(initial=0)
        assert found.dtype == right.dtype
        np.testing.assert_allclose(found, right, rtol=0, atol=bound)


def compiled(fn, *args):
    fn = od.compile(fn)
    for _ in range(3):
        made = fn(*args)
    return fn, made


@pytest.fixture
def left(monkeypatch):
    """All calls of attention are so large that programs leave them to its kernel."""
    monkeypatch.setattr(scaled_dot_product, "_LARGE", 0)


@pytest.fixture
def passes(monkeypatch, left):
    """What attention's backward passes were asked for, one after another."""
    asked, backward = [], scaled_dot_product.TiledAttention.backward

    def noting(self, g, wanted, kept=()):
        asked.append(wanted)
        return backward(self, g, wanted, kept)

    monkeypatch.setattr(scaled_dot_product.TiledAttention, "backward", noting)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all keys"])
def test_large_attention_is_what_it_is_eagerly(dtype, causal, left):
    q, k, v = of_length(LONG, LONG, LONG, dtype=dtype)
    fn, made = compiled(lambda q, k, v: gradients(q, k, v, causal=causal), q, k, v)
    assert_near(made, gradients(q, k, v, causal=causal))
    assert made[0].dtype == dtype
    said = fn.explain(q, k, v)
    assert said.count("NumPy's kernel takes less time, or less memory") == 2


@pytest.mark.slow
def test_one_pass_gives_the_cotangents_of_all_operands(passes):
    args = of_length(LONG, LONG, LONG)
    fn, _ = compiled(lambda q, k, v: gradients(q, k, v, causal=True), *args)
    passes.clear()
    for _ in range(2):
        fn(*args)
    assert [sorted(wanted) for wanted in passes] == [["k", "q", "v"]] * 2


@pytest.mark.parametrize("wanted", [(0,), (1, 2), (2,)])
def test_only_what_is_asked_for_is_computed(passes, wanted):
    args = of_length(LONG, LONG, LONG)
    fn, made = compiled(lambda *args: gradients(*args, wanted, causal=True), *args)
    passes.clear()
    made = fn(*args)
    assert [sorted(one) for one in passes] == [sorted("qkv"[place] for place in wanted)]
    assert_near(made, gradients(*args, wanted, causal=True))


def test_two_calls_of_attention_do_not_share_their_passes(passes):
    q, k, v = of_length(LONG, LONG, LONG)

    def both(q, k, v):
        return *gradients(q, k, v, causal=True), *gradients(k, q, v, causal=True)

    fn, _ = compiled(both, q, k, v)
    passes.clear()
    assert_near(fn(q, k, v), both(q, k, v))
    assert len(passes) == 4  # two of them eager


def test_an_operand_in_three_places_gets_the_sum(left):
    (x,) = of_length(LONG)
    _, made = compiled(lambda x: self_attention(x), x)
    assert_near([made], [self_attention(x)])


def self_attention(x):
    x = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        loss = ops.sum(ops.scaled_dot_product_attention(x, x, x, causal=True) ** 2)
    return tape.gradient(loss, x)


def test_memory_of_a_program_grows_with_length_where_scores_would_be_too_many(monkeypatch):
    monkeypatch.setattr(scaled_dot_product, "_LARGE", 1 << 22)
    args = of_length(2048, 2048, 2048, dtype=np.float32)
    scores = 2 * 2048 * 2048 * 4
    fn = od.compile(lambda *args: gradients(*args))
    assert sum(fn.estimate_memory_requirements(*args).values()) < scores / 8


@pytest.mark.slow
def test_smaller_ones_and_those_of_all_sizes_are_computed_natively(monkeypatch):
    short = of_length(64, 64, 64)
    fn, _ = compiled(lambda *args: gradients(*args, causal=True), *short)
    assert "its kernel" not in fn.explain(*short)
    monkeypatch.setattr(scaled_dot_product, "_LARGE", 1 << 21)
    fn = od.compile(self_attention, dynamic={"x": {1: od.Dim("rows", 2, 4096)}})
    for length in (30, 340, 400, 350):
        (x,) = of_length(length)
        np.testing.assert_allclose(fn(x), np.asarray(self_attention(x)), rtol=0, atol=1e-10)
    assert "its kernel" not in fn.explain(x)
    assert fn.statistics().native


def test_an_error_in_a_shared_pass_is_the_eager_one_and_the_next_call_is_right(monkeypatch, left):
    args = of_length(LONG, LONG, LONG)
    fn, _ = compiled(lambda *args: gradients(*args, causal=True), *args)
    backward, fail = scaled_dot_product.TiledAttention.backward, [True]

    def failing(self, *given):
        if fail.pop() if fail else False:
            raise MemoryError("no room")
        return backward(self, *given)

    monkeypatch.setattr(scaled_dot_product.TiledAttention, "backward", failing)
    made = fn(*args)  # run as it was written, which does not fail any more
    assert not fail
    for _ in range(2):
        assert_near(made, gradients(*args, causal=True))
        made = fn(*args)


# ------------------------------------------------------------------ what kernels say of it

TOGETHER = [
    (row, kernel) for row in OPS.values() for kernel in row.kernels if kernel.together is not None
]


def test_there_are_kernels_whose_calls_share_work():
    assert TOGETHER


@pytest.mark.parametrize(("row", "kernel"), TOGETHER, ids=[row.name for row, _ in TOGETHER])
def test_calls_that_share_work_give_what_each_gives(row, kernel):
    name, answer_all = kernel.together
    place = row.options.index(name)
    for sample in row.samples:
        arrays = draw(sample)
        options = list(row.bind_arguments(arrays, sample.options)[1])
        own = options.pop(place)
        found = answer_all((own,), *arrays, *options)
        options.insert(place, own)
        assert list(found) == [own]
        assert_near([found[own]], [row.reference(*arrays, *options)])


@pytest.mark.parametrize(
    ("queries", "keys", "dtype", "guess"),
    [
        (8192, 8192, "f", "called"),
        (512, 512, "f", "compiled"),  # its scores are small
        (8192, 16384, np.float16, "compiled"),  # no kernel takes halves
        (1, 1 << 27, "f", "compiled"),  # or a single query
    ],
)
def test_only_what_a_kernel_can_run_is_left_to_it(queries, keys, dtype, guess):
    q, k, v = (od.Spec((2, n, 8), dtype) for n in (queries, keys, keys))
    assert OPS["scaled_dot_product_attention"].guess(q, k, v, None, False, None) == guess
    cotangent = od.Spec((2, queries, 8), dtype)
    given = cotangent, q, k, v, None, False, None, "q"
    assert OPS["attention_pullback"].guess(*given) == guess
