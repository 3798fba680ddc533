"""Long causal attention in parts of its queries: what its rows equal, without most zeros."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.nn.attention import scaled_dot_product
from odyssey.nn.attention.scaled_dot_product import (
    attention_decomposition,
    attention_pullback_decomposition,
)

RNG = np.random.default_rng(8)
NUMBERS = RNG.normal(size=(13, 13))
NUMBERS[3, :2] = -np.inf
CASES = {
    "alone": ((13, 4), (13, 4), (13, 5), None),
    "heads": ((3, 16, 4), (3, 16, 4), (3, 16, 4), None),
    "heads in groups": ((4, 9, 4), (2, 9, 4), (2, 9, 4), None),
    "one head of keys": ((2, 4, 9, 4), (2, 1, 9, 4), (1, 1, 9, 4), None),
    "fewer keys": ((13, 4), (6, 4), (6, 5), None),
    "one key": ((13, 4), (1, 4), (1, 5), None),
    "no key": ((13, 4), (0, 4), (0, 5), None),
    "more keys": ((9, 4), (13, 4), (13, 5), None),
    "more heads of values": ((13, 4), (13, 4), (3, 13, 5), None),
    "as many queries as parts": ((4, 4), (4, 4), (4, 4), None),
    "truths": ((13, 4), (13, 4), (13, 5), RNG.random((13, 13)) < 0.5),
    "truths for each query": ((13, 4), (13, 4), (13, 5), RNG.random((13, 1)) < 0.5),
    "truths for each key": ((2, 13, 4), (2, 13, 4), (2, 13, 5), RNG.random(13) < 0.5),
    "numbers": ((13, 4), (13, 4), (13, 5), NUMBERS),
    "numbers for heads": ((2, 13, 4), (2, 13, 4), (2, 13, 5), RNG.normal(size=(2, 1, 13))),
    "fewer keys and numbers": ((13, 4), (6, 4), (6, 5), NUMBERS[:, :6]),
}


@pytest.fixture
def parts(monkeypatch):
    """Let calls of any length be in four parts; returns what says in how many the next are."""

    def set_to(number):
        monkeypatch.setattr(scaled_dot_product, "_PARTS", {0: number})

    set_to(4)
    return set_to


def operands(shapes):
    *arrays, mask = shapes
    return *[RNG.normal(size=shape) for shape in arrays], mask


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_values_and_cotangents_are_those_of_one_part(case, parts):
    q, k, v, mask = operands(case)
    row = ops.scaled_dot_product_attention
    wanted = row(q, k, v, mask, causal=True, scale=0.7)
    np.testing.assert_allclose(
        attention_decomposition(q, k, v, mask, True, 0.7), wanted, rtol=0, atol=1e-13
    )
    g = RNG.normal(size=wanted.shape)
    names = ["q", "k", "v"] + ["mask"] * (mask is not None and mask.dtype.kind == "f")
    for name in names:
        made = attention_pullback_decomposition(g, q, k, v, mask, True, 0.7, name)
        parts(1)
        whole = attention_pullback_decomposition(g, q, k, v, mask, True, 0.7, name)
        parts(4)
        assert made.shape == whole.shape
        np.testing.assert_allclose(made, whole, rtol=0, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_a_query_may_not_attend_to_may_be_of_any_value(bad, parts):
    q, k, v = (RNG.normal(size=(12, 4)) for _ in range(3))
    wanted = attention_decomposition(q, k, v, None, True, None)[:6]
    k[6:] = v[6:] = bad
    with np.errstate(invalid="ignore"):  # of the queries that do attend to it
        found = attention_decomposition(q, k, v, None, True, None)[:6]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_second_derivatives_go_through_parts(parts):
    q, k, v = (RNG.normal(size=(8, 3)) for _ in range(3))

    def moved(q):
        q = Variable(q, requires_grad=True)
        with GradientTape() as outer:
            with GradientTape() as tape:
                loss = ops.sum(ops.scaled_dot_product_attention(q, k, v, causal=True) ** 2)
            (g,) = tape.gradient(loss, [q], create_graph=True)
            total = ops.sum(g * g)
        return outer.gradient(total, q)

    found = moved(q)
    parts(1)
    np.testing.assert_allclose(found, np.asarray(moved(q)), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_compiled_functions_make_fewer_scores():
    q, k, v = (RNG.normal(size=(2, 512, 8)) for _ in range(3))

    def gradients(q, k, v, causal):
        given = [Variable(x, requires_grad=True) for x in (q, k, v)]
        with GradientTape() as tape:
            loss = ops.sum(ops.scaled_dot_product_attention(*given, causal=causal) ** 2)
        return tape.gradient(loss, given)

    causal = od.compile(lambda *args: gradients(*args, True))
    for _ in range(2):
        made = causal(q, k, v)
    assert causal.statistics().native
    for found, wanted in zip(made, gradients(q, k, v, True), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=0, atol=1e-12)
    whole = od.compile(lambda *args: gradients(*args, False))
    pairs = [fn.estimate_memory_requirements(q, k, v) for fn in (causal, whole)]
    assert pairs[0]["cpu"] < 0.75 * pairs[1]["cpu"]
