"""Attention: queries without keys, tiles, groups of heads, what it keeps and how much."""

import tracemalloc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.nn.attention import scaled_dot_product
from support.cases import CASES, derive_sample, draw, random_like, walk

attend = ops.scaled_dot_product_attention
SAMPLES = {
    name: case
    for name, case in CASES.items()
    if case[0].name in ("scaled_dot_product_attention", "attention_pullback")
}


def formula(q, k, v, mask=None, causal=False):
    """In long double, all scores at once."""
    q, k, v = (np.asarray(x, np.longdouble) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(np.longdouble(q.shape[-1]))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def drawn(*shapes, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def gradients(operands, cotangent, **options):
    leaves = [Variable(x, requires_grad=True) for x in operands]
    with GradientTape() as tape:
        out = attend(*leaves, **options)
    return tape.gradient(out, leaves, cotangent)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float16", 2e-3), ("float32", 1e-6), ("float64", 2e-15)]
)
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_values_are_those_of_the_formula_in_every_precision(dtype, bound, causal):
    q, k, v = drawn((2, 3, 40, 8), (2, 3, 40, 8), (2, 3, 40, 5), dtype=dtype)
    out = attend(q, k, v, causal=causal)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, formula(q, k, v, causal=causal), rtol=0, atol=bound * 4)


AXES = {
    "of a mask": ((7, 8), (9, 8), (9, 5), (4, 3, 7, 9)),
    "of a batch of masks": ((3, 7, 8), (3, 9, 8), (3, 9, 5), (4, 1, 7, 9)),
    "of masks of one query": ((3, 7, 8), (9, 8), (9, 5), (4, 1, 1, 9)),
    "of keys": ((7, 8), (4, 3, 9, 8), (4, 3, 9, 5), None),
    "of keys in one head": ((1, 3, 7, 8), (4, 1, 9, 8), (4, 1, 9, 5), (7, 9)),
}


@pytest.mark.parametrize("device", ["numpy", "cpu"])
@pytest.mark.parametrize("shapes", AXES.values(), ids=list(AXES))
def test_queries_may_lack_axes_wherever_others_have_them_in_memory(shapes, device):
    # Of what has four axes the second comes first in memory.
    laid = [x if x.ndim < 4 else x.swapaxes(0, 1).copy().swapaxes(0, 1) for x in drawn(*shapes[:3])]
    masks = [None] if shapes[3] is None else drawn(shapes[3], seed=1)
    if shapes[3] is not None:
        masks.append(masks[0] + np.eye(7, 9)[: shapes[3][-2]] > 0)
    for mask in masks:
        with ops.use_kernels(device):
            got = attend(*laid, mask)
            with GradientTape() as tape:
                taped = attend(Variable(laid[0], requires_grad=True), *laid[1:], mask)
        np.testing.assert_allclose(got, formula(*laid, mask), rtol=0, atol=1e-14)
        np.testing.assert_array_equal(taped.detach().numpy(), got)
        tape.clear()


def test_large_scores_overflow_nowhere():
    q, k, v = drawn((5, 4), (6, 4), (6, 3))
    out = attend(q * 1e200, k, v)
    best = (q @ k.T).argmax(-1)
    np.testing.assert_array_equal(out, v[best])


@walk(SAMPLES)
@pytest.mark.parametrize("most", [1, 7])
def test_small_tiles_give_what_one_gives(row, sample, most, monkeypatch):
    wanted = row.call(*draw(sample), **sample.options)
    slopes = derive_sample(row, sample).flat() if row.vjp else []
    monkeypatch.setattr(scaled_dot_product, "_MOST", most)
    monkeypatch.setattr(scaled_dot_product, "_CAUSAL_ROWS", 1)
    np.testing.assert_allclose(row.call(*draw(sample), **sample.options), wanted, atol=1e-14)
    for got, want in zip(derive_sample(row, sample).flat(), slopes, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


def test_heads_in_groups_are_heads_repeated_one_after_another():
    q, k, v = drawn((2, 6, 4, 3), (2, 2, 5, 3), (2, 2, 5, 3))
    repeated = [np.repeat(x, 3, axis=1) for x in (k, v)]
    np.testing.assert_allclose(attend(q, k, v), formula(q, *repeated), rtol=0, atol=1e-14)
    g = random_like(q, seed=1)
    _, *shared = gradients((q, k, v), g)
    _, *alone = gradients((q, *repeated), g)
    for got, parts in zip(shared, alone, strict=True):
        np.testing.assert_allclose(got, parts.reshape(2, 2, 3, 5, 3).sum(2), rtol=0, atol=1e-14)


# ------------------------------------------------------------------ masks


LEAST = np.float64(-np.inf)


@pytest.mark.parametrize("numbers", [False, True], ids=["truth values", "numbers"])
def test_a_query_without_keys_gives_0_and_moves_nothing(numbers):
    q, k, v = drawn((3, 4), (5, 4), (5, 2))
    allowed = np.array([[1, 0, 1, 1, 0], [0] * 5, [0, 1, 1, 0, 0]], bool)
    mask = np.where(allowed, 0.0, LEAST) if numbers else allowed
    leaves = [Variable(x, requires_grad=True) for x in (q, k, v)]
    with GradientTape(persistent=True) as tape:
        out = attend(*leaves, mask)
        (slope,) = tape.gradient(out, [leaves[0]], np.ones((3, 2)), create_graph=True)
    assert not out.numpy()[1].any()
    wanted = formula(q[::2], k, v, allowed[::2])
    np.testing.assert_allclose(out.numpy()[::2], wanted, rtol=0, atol=1e-14)
    g = random_like(out, seed=0)
    found = tape.gradient(out, leaves, g)
    assert not found[0][1].any()
    assert all(np.isfinite(x).all() for x in found)
    assert not np.isnan(tape.gradient(slope, leaves, np.ones((3, 4)))[1]).any()
    left = [Variable(x, requires_grad=True) for x in (q[::2], k, v)]
    with GradientTape() as other:
        rest = attend(*left, mask[::2])
    without = other.gradient(rest, left, g[::2])
    for got, want in zip((found[0][::2], *found[1:]), without, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-15)


def test_causal_is_the_mask_of_a_lower_triangle_and_goes_with_another():
    q, k, v = drawn((2, 300, 4), (2, 280, 4), (2, 280, 3))
    lower = np.tri(300, 280, dtype=bool)
    other = np.random.default_rng(1).random((2, 1, 280)) < 0.7
    for mask, both in ((None, lower), (other, lower & other)):
        got = attend(q, k, v, mask, causal=True)
        np.testing.assert_allclose(got, attend(q, k, v, both), rtol=0, atol=1e-14)


def test_a_mask_of_numbers_gets_a_gradient_of_its_own_shape():
    q, k, v, mask = drawn((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), (3, 1, 6))
    od.testing.check_gradients(lambda m: attend(q, k, v, m), mask, tolerance=1e-6)


# ------------------------------------------------------------------ what the rules share


def test_sweeps_with_other_cotangents_get_other_answers():
    operands = drawn((4, 3), (5, 3), (5, 2))
    leaves = [Variable(x, requires_grad=True) for x in operands]
    with GradientTape(persistent=True) as tape:
        out = attend(*leaves)
    for seed in range(3):
        g = random_like(out, seed)
        one_by_one = [tape.gradient(out, [leaf], g)[0] for leaf in leaves]
        for got, want in zip(one_by_one, gradients(operands, g), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_cotangent_that_a_hook_hands_out_again_and_changes_is_read_anew():
    operands = drawn((4, 3), (5, 3), (5, 2))
    leaves = [Variable(x, requires_grad=True) for x in operands]
    g = np.ones((4, 2))
    with GradientTape(persistent=True) as tape:
        out = attend(*leaves)
    tape.on_gradient(out, lambda given: g)
    tape.gradient(out, [leaves[0]], np.ones((4, 2)))
    g[...] = 2.0
    tape.on_gradient(out, lambda given: g)
    (found,) = tape.gradient(out, [leaves[1]], np.ones((4, 2)))
    np.testing.assert_allclose(found, gradients(operands, g)[1], rtol=0, atol=1e-15)


def test_what_is_written_to_an_operand_afterwards_changes_no_gradient():
    q, k, v = drawn((4, 3), (5, 3), (5, 2))
    wanted = gradients((q, k, v), np.ones((4, 2)))[0]
    leaf, theirs = Variable(q, requires_grad=True), k.copy()
    with GradientTape() as tape:
        out = attend(leaf, theirs, v)
    theirs[...] = 0  # small arrays of others are copied
    np.testing.assert_array_equal(tape.gradient(out, [leaf], np.ones((4, 2)))[0], wanted)


# ------------------------------------------------------------------ memory


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_memory_grows_with_length_in_both_directions(causal):
    n = 4096
    operands = drawn((n, 8), (n, 8), (n, 8), dtype=np.float32)
    g = np.ones((n, 8), np.float32)
    gradients(operands, g, causal=causal)  # compiles the loops, which takes memory of its own
    tracemalloc.start()
    try:
        gradients(operands, g, causal=causal)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6e6 < 4 * n * n / 10


def test_weights_are_kept_only_where_they_take_no_more_than_the_operands():
    def held(length, dim):
        leaves = [Variable(np.ones((length, dim)), requires_grad=True) for _ in range(3)]
        with GradientTape() as tape:
            out = attend(*leaves)
            return tape.memory().total, out.data.nbytes

    total, size = held(8, 4)
    assert 3 * size < total <= 8 * size
    total, size = held(64, 4)
    assert total == 3 * size


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("masked", [False, True])
def test_keys_behind_the_last_query_may_be_of_any_value_compiled_too(bad, masked):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, n, 4)) for n in (3, 7, 7))
    mask = rng.normal(size=(3, 7)) if masked else np.zeros((1, 1))

    def both(q, k, v, mask):
        def call(*given):
            return ops.scaled_dot_product_attention(*given, causal=True)

        slopes = od.grad(lambda *given: (call(*given) ** 2).sum(), argnums=(0, 1, 2, 3))
        return call(q, k, v, mask), *slopes(q, k, v, mask)

    wanted = both(q, k, v, mask)
    k[:, 3:] = v[:, 3:] = bad
    compiled = od.compile(both)
    for found in (both(q, k, v, mask), *[compiled(q, k, v, mask) for _ in range(3)]):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    assert compiled.statistics().native
