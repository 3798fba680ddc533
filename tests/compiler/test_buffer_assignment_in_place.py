"""Results are written over operands that nobody reads later, and over no others."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.lowering import lower
from odyssey.compiler.pipeline import plan
from odyssey.compiler.schedule.buffer_assignment import Allocation
from odyssey.compiler.schedule.verify import verify

N = 64
X = np.random.default_rng(0).normal(size=(N, N))


def plan_of(fn, *args):
    made = plan(lower(od.compile(fn).lower(*args).graph), {})
    verify(made)
    return made


def is_right(fn, *args):
    compiled = od.compile(fn)
    for _ in range(3):
        np.testing.assert_allclose(compiled(*args), fn(*args), rtol=1e-12, atol=1e-12)
    assert compiled.statistics().native > 0


def through(x, fn):
    """Two products with something between them, which lies in memory by itself."""
    return ops.matmul(fn(ops.matmul(x, x)), x)


ALONG = {
    "a map": lambda y: ops.tanh(y),
    "a map of it twice": lambda y: y * ops.exp(-y * y),
    "a normalized row": lambda y: ops.softmax(y, axis=-1),
    "with an operand of rows": lambda y: y + ops.sum(X, axis=0),
}
ASTRAY = {
    "turned": lambda y: ops.tanh(y) + ops.transpose(y),
    "from behind": lambda y: ops.flip(y, 0) * 2.0 + y,
    "one element of it": lambda y: y * y[0, 0],
    "a row of it": lambda y: y + y[0],
    "looked up": lambda y: y + ops.take(y, np.arange(N)[::-1], axis=0),
}


@pytest.mark.parametrize("fn", ALONG.values(), ids=list(ALONG))
def test_a_result_takes_the_place_of_an_operand_that_is_read_along_with_it(fn):
    made = plan_of(lambda x: through(x, fn), X)
    assert made.arena == X.nbytes
    is_right(lambda x: through(x, fn), X)


@pytest.mark.parametrize("fn", ASTRAY.values(), ids=list(ASTRAY))
def test_no_result_takes_the_place_of_an_operand_that_is_read_at_another_index(fn):
    made = plan_of(lambda x: through(x, fn), X)
    assert made.arena >= 2 * X.nbytes
    is_right(lambda x: through(x, fn), X)


def test_what_is_read_later_keeps_its_place():
    def fn(x):
        y = ops.matmul(x, x)
        return ops.matmul(ops.tanh(y), y)

    assert plan_of(fn, X).arena == 2 * X.nbytes
    is_right(fn, X)


def test_a_result_of_another_size_takes_a_place_of_its_own():
    fn = lambda y: ops.astype(ops.astype(y, np.float32) * np.float32(2.0), np.float64)  # noqa: E731
    is_right(lambda x: through(x, fn), X)

    def narrow(x):
        y = ops.astype(ops.matmul(x, x), np.float32)
        return ops.matmul(y, y)

    assert plan_of(narrow, X).arena == X.nbytes * 3 // 2
    is_right(lambda x: ops.astype(narrow(x), np.float64) * 0.0, X)


def test_a_chain_of_products_and_maps_needs_two_places():
    def fn(x):
        for _ in range(6):
            x = ops.tanh(ops.matmul(x, x))
        return ops.sum(x)

    assert plan_of(fn, X).arena <= 2 * X.nbytes + 64
    is_right(fn, X)


def test_the_verifier_notices_a_result_that_is_written_over_what_is_read_later():
    def fn(x):
        y = ops.matmul(x, x)
        return ops.matmul(ops.tanh(y), y)

    made = plan_of(fn, X)
    product, tanh = (node_of(made, kind) for kind in ("product", "map"))
    home = made.allocations[product.id]
    made.allocations[tanh.id] = Allocation(home.buffer, made.allocations[tanh.id].view)
    with pytest.raises(AssertionError, match="read"):
        verify(made)


def test_the_verifier_notices_a_result_that_is_written_over_what_is_read_elsewhere():
    made = plan_of(lambda x: through(x, ASTRAY["turned"]), X)
    product = next(k.nodes[0] for k in made.fused.kernels if k.kind == "product")
    last = [n for k in made.fused.kernels if k.kind == "loops" for n in k.nodes][-1]
    made.allocations[last.id] = Allocation(
        made.allocations[product.id].buffer, made.allocations[last.id].view
    )
    with pytest.raises(AssertionError, match="other places"):
        verify(made)


def node_of(made, kind) -> Node:
    return next(n for k in made.fused.kernels for n in k.nodes if n.kind == kind)
