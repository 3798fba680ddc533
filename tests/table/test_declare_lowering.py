"""What a row says for compilers: refused where it cannot be, kept where it is."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DTypeError, OdysseyError
from odyssey.ops import OPS, Kernel
from odyssey.table.declare import PRIMITIVES


def tripled(x, /, by=3.0):
    """``x * by``."""
    return x * by


REFUSED = {
    "a decomposition without the option": (
        {"decomposition": lambda x: ops.mul(x, 3.0)},
        "decomposition takes .x.; it",
    ),
    "a decomposition of other names": (
        {"decomposition": lambda y, by: ops.mul(y, by)},
        "must take .* .x, by.",
    ),
    "a decomposition in another order": (
        {"decomposition": lambda by, x: ops.mul(x, by)},
        "decomposition takes .by, x.",
    ),
    "a decomposition that is no function": (
        {"decomposition": 3},
        "decomposition: 3 cannot be called",
    ),
    "scalar without the option": ({"scalar": lambda x: x}, "scalar takes .x.; it must"),
    "an unknown kind": ({"primitive": "map"}, "primitive='map'; choose one of reduce, product"),
    "a kind that is no word": ({"primitive": 1}, "primitive=1; pass a str"),
    "a kind beside a decomposition": (
        {"primitive": "view", "decomposition": lambda x, by: ops.mul(x, by)},
        "with decomposition is not a primitive",
    ),
    "a kind beside a scalar": (
        {"primitive": "view", "scalar": lambda x, by: x},
        "with scalar is not a primitive",
    ),
    "an order that is no flag": ({"has_side_effect": "yes"}, "has_side_effect='yes'"),
    "kernels that are functions": ({"kernels": [tripled]}, r"pass a list of Kernel\(name, run"),
}


@pytest.mark.parametrize(("given", "match"), REFUSED.values(), ids=list(REFUSED))
def test_a_meaning_that_does_not_fit_the_row_is_refused_where_it_is_declared(given, match):
    with pytest.raises((OdysseyError, DTypeError), match=f"^op tripled: .*{match}"):
        od.op(elementwise=True, **given)(tripled)


def test_a_row_hands_on_what_was_declared():
    kernel = Kernel("by two sums", lambda x, by: x + x + x, when=lambda x, by: by == 3.0)
    made = od.op(
        elementwise=True,
        scalar=lambda x, by: by * x,
        decomposition=lambda x, by: ops.mul(x, by),
        kernels=[kernel],
    )(tripled)
    row = made.row
    assert row.decomposition(2.0, 4.0) == row.scalar(2.0, 4.0) == 8.0
    assert row.kernels == (kernel,)
    assert (row.primitive, row.has_side_effect) == (None, False)
    assert kernel.takes(None, 3.0)
    assert not kernel.takes(None, 2.0)


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_kind_of_primitive_can_be_declared(primitive):
    def same(x, /):
        """``x``."""
        return np.array(x)

    assert od.op(primitive=primitive, infer=lambda x: x)(same).row.primitive == primitive


# ------------------------------------------------------------------ effects

told = []


@od.op(elementwise=True, has_side_effect=True, vjp={"x": lambda g: g})
def telling(x, /):
    """``x``, which is noted down."""
    told.append(float(np.sum(x)))
    return x + 0.0


def test_a_trace_keeps_an_ordered_call_whose_result_is_unused_and_runs_it_in_its_place():
    def program(x):
        telling(x)
        y = x * 2.0
        telling(y)
        return y + 1.0

    lowered = od.compile(program).lower(np.ones(3))
    rows = [instruction.row.name for instruction in lowered.graph.instructions]
    assert rows == ["telling", "multiply", "telling", "add"]
    marked = [
        line for line in str(lowered.graph).splitlines() if line.endswith("; has side effect")
    ]
    assert ["telling" in line for line in marked] == [True, True]
    told.clear()
    lowered.evaluate(np.ones(3))
    assert told == [3.0, 6.0]


def test_no_row_of_the_table_is_ordered():
    assert [name for name, row in OPS.items() if row.has_side_effect] == []


# ------------------------------------------------------------------ the table


def test_a_row_with_a_scalar_works_by_element():
    # A cast is one too, whose derivatives and shape are those of a linear row.
    others = [row.name for row in OPS.values() if row.scalar and not row.elementwise]
    assert others == ["astype"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("mean", ["decomposition", "div(sum(x, axis, keepdims=keepdims)"]),
        ("relu", ["on numbers", "select(x <= T(0), T(0), x)"]),
        ("matmul", ["primitive", "product"]),
    ],
)
def test_the_text_of_an_op_says_what_a_compiler_may_read(name, lines):
    from odyssey.describe import entry_text, find

    text = entry_text(find(name))
    assert all(line in text for line in lines)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("exp", "in vmap           derived: elementwise, with the batch as a leading axis"),
        ("median", "in vmap           derived: the decomposition"),
        ("sum", "in vmap           the op itself, along the axis behind the batch"),
        ("identity", "in vmap           the op itself, with the batch as a leading axis"),
        ("reshape", "in vmap           def _reshape_batch(batch: Batch, x: Any, shape: Any"),
    ],
)
def test_the_text_of_an_op_says_how_vmap_runs_it(name, line):
    from odyssey.describe import entry_text, find

    assert line in entry_text(find(name))
