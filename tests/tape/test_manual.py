"""What is put on a tape by hand: watched values, variables, constants, manual records."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError, TapeError


class Pair(NamedTuple):
    w: Any
    b: Any


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


def enabled():
    tape = GradientTape()
    tape.enable()
    return tape


# ------------------------------------------------------------------ watch, variable, constant


def test_watched_arrays_have_gradients():
    x = np.array([1.0, 2.0])
    with GradientTape() as tape:
        v = tape.watch(x)
        y = (v * v).sum()
    np.testing.assert_array_equal(tape.gradient(y, v), [2.0, 4.0])


def test_watch_returns_the_same_tree_and_leaves_the_originals_alone():
    tree = {"a": [1.0, np.ones(2)], "b": Pair(Variable(3.0), wide(4.0))}
    with GradientTape() as tape:
        watched = tape.watch(tree)
        assert isinstance(watched["b"], Pair)
        parts = [*watched["a"], *watched["b"]]
        assert all(isinstance(v, Variable) and v.tape is tape for v in parts)
        y = parts[0] * parts[2] * parts[3] * parts[1].sum()
    assert type(tree["a"][0]) is float
    assert tree["b"].w.tape is None
    assert not tree["b"].w.requires_grad
    g = tape.gradient(y, watched)
    assert (float(g["a"][0]), float(g["b"].w), float(g["b"].b)) == (24.0, 8.0, 6.0)
    np.testing.assert_array_equal(g["a"][1], [12.0, 12.0])


def test_the_gradient_of_a_watched_leaf_reaches_the_leaf_too():
    w = wide(3.0)
    with GradientTape() as tape:
        v = tape.watch(w)
        y = v * v + w
    gradients = tape.backward(y)
    assert float(gradients[v]) == 6.0
    assert float(gradients[w]) == float(w.grad) == 7.0
    assert set(gradients) == {v, w}


def test_a_watched_intermediate_has_its_own_gradient():
    w = wide(3.0)
    with GradientTape() as tape:
        middle = w * 2.0
        v = tape.watch(middle)
        y = v * v + middle
    through, total = tape.gradient(y, (v, middle))
    assert (float(through), float(total)) == (12.0, 13.0)


def test_variable_makes_a_leaf_that_records_without_an_entered_tape():
    tape = enabled()
    w = tape.variable([1.0, 2.0], name="w")
    y = (w * w).sum()
    assert (w.name, w.is_leaf, w.requires_grad, w.tape) == ("w", True, True, None)
    assert w.id in tape.ids
    tape.backward(y)
    np.testing.assert_array_equal(w.grad, [2.0, 4.0])


def test_constant_makes_a_constant_whose_id_the_tape_knows():
    tape = enabled()
    c = tape.constant([1.0, 2.0])
    assert not c.requires_grad
    assert c.id in tape.ids


def test_ids_are_unique_and_never_used_again():
    seen = set()
    for _ in range(5):
        w = wide(1.0)
        with GradientTape() as tape:
            values = [w * k for k in range(3000)]
        ids = {v.id for v in values} | {w.id, Variable(0.0).id}
        assert len(ids) == 3002
        assert not ids & seen
        seen |= ids
        del values, w, tape


def test_nodes_list_the_ops_in_order_with_what_they_save():
    w, x = wide([1.0, 2.0]), np.array([3.0, 4.0])
    with GradientTape() as tape:
        y = w * x
        z = y.sum()
    first, second = tape.nodes
    assert (first.op, first.inputs, first.output) == ("multiply", (w.id, None), y.id)
    assert set(first.saved) == {"y"}
    np.testing.assert_array_equal(first.saved["y"], x)
    assert (second.op, second.inputs, second.output) == ("sum", (y.id,), z.id)
    assert {w.id, y.id, z.id} <= tape.ids


# ------------------------------------------------------------------ recording by hand


def test_record_add_and_record_mean_equal_the_automatic_record():
    x0, y0 = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    tape = enabled()
    x, y = tape.variable(x0), tape.variable(y0)
    z = tape.constant(x0 + y0)
    tape.record_add(x.id, y.id, z.id)
    loss = tape.constant((x0 + y0).mean())
    tape.record_mean(z.id, loss.id)
    tape.backward(loss)
    a, b = wide(x0), wide(y0)
    with GradientTape() as auto:
        automatic = (a + b).mean()
    auto.backward(automatic)
    np.testing.assert_array_equal(x.grad, a.grad)
    np.testing.assert_array_equal(y.grad, b.grad)


def test_manual_records_of_zeros_are_known_by_their_ids():
    tape = enabled()
    x, y, z = tape.variable(0.0), tape.variable(0.0), tape.constant(0.0)
    tape.record_multiply(x.id, y.id, z.id, x=np.array(0.0), y=np.array(0.0))
    tape.backward(z)
    assert (float(x.grad), float(y.grad)) == (0.0, 0.0)


def test_record_takes_variables_and_saves_what_the_rules_ask_for():
    tape = enabled()
    x, y = tape.variable([2.0, 3.0]), tape.variable([5.0, 7.0])
    z = tape.constant(x.numpy() * y.numpy())
    tape.record(ops.multiply, [x, y], z)
    assert z.requires_grad
    assert z.tape is tape
    gx, gy = tape.gradient(z, (x, y), np.ones(2))
    np.testing.assert_array_equal(gx, [5.0, 7.0])
    np.testing.assert_array_equal(gy, [2.0, 3.0])


def test_record_takes_a_new_id_as_output_and_saved_arrays_by_name():
    tape = enabled()
    x = tape.variable([1.0, 2.0])
    tape.record("exp", [x.id], 10**15, out=np.exp([1.0, 2.0]))
    tape.record("sum", [10**15], 10**15 + 1, x_spec=x._spec)
    tape.backward(10**15 + 1)
    np.testing.assert_array_equal(x.grad, np.exp([1.0, 2.0]))


def test_a_new_id_is_swept_after_the_tape_was_left():
    with GradientTape(persistent=True) as tape:
        x = tape.variable([1.0, 2.0])
        tape.record("square", [x], 10**15)
    np.testing.assert_array_equal(tape.gradient(10**15, x, np.ones(2)), [2.0, 4.0])
    tape.backward(10**15, np.ones(2))
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])


def test_a_leaf_that_has_the_id_of_a_manual_output_is_refused():
    tape = enabled()
    x = tape.variable([1.0, 2.0])
    tape.record("square", [x], x.id + 1)
    w = next(w for w in (wide([1.0, 2.0]) for _ in range(100)) if w.id >= x.id + 1)
    assert w.id == x.id + 1
    with pytest.raises(TapeError, match="multiply: a manual record on this tape has the id"):
        _ = ops.multiply(w, 3.0, tape=tape)
    assert len(tape) == 1


def test_manual_and_automatic_records_mix():
    tape = enabled()
    x = tape.variable(3.0)
    square = x * x
    cube = tape.constant(27.0)
    tape.record_multiply(square, x, cube)
    y = cube * 2.0
    assert float(tape.gradient(y, x)) == 54.0


def test_record_exists_for_every_op_of_the_table_and_its_short_names():
    tape = GradientTape()
    for row in ops.OPS.values():
        for name in (row.name, *row.aliases):
            assert callable(getattr(tape, f"record_{name}"))
    with pytest.raises(AttributeError, match="no attribute 'record_nonsense'"):
        _ = tape.record_nonsense


def test_constants_among_the_inputs_of_a_manual_record_get_no_gradient():
    tape = enabled()
    x, c = tape.variable(3.0), tape.constant(5.0)
    z = tape.constant(15.0)
    tape.record_multiply(x.id, c.id, z.id)
    assert tape.nodes[0].inputs == (x.id, None)
    assert float(tape.backward(z)[x]) == 5.0


# ------------------------------------------------------------------ outputs that cannot be one

USES = {
    "times": lambda c, w: w * c,
    "constant times": lambda c, w: c * 2.0,
    "named op": lambda c, w: ops.sum(c, axis=0),
    "comparison": lambda c, w: c > 0,
    "operand of where": lambda c, w: ops.where(w.data > 0, c, w),
    "written into": lambda c, w: ops.setitem(w * 1.0, c, slice(None)),
    "numpy": lambda c, w: np.exp(c),
    "joined": lambda c, w: ops.stack([c, w]),
}


@pytest.mark.parametrize("by_id", [False, True], ids=["Variable", "id"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_constant_that_an_op_used_is_no_output_any_more(use, by_id):
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        c = tape.constant(np.array([1.0, 4.0]))
        use(c, w)
        with pytest.raises(TapeError, match=r"an op used the output .* before, as a constant"):
            tape.record("multiply", [w, w], c.id if by_id else c)
        fresh = tape.constant(np.array([1.0, 4.0]))
        tape.record("multiply", [w, w], fresh)
        y = fresh.sum()
    assert tape.gradient(y, w).tolist() == [2.0, 4.0]


def test_a_constant_that_was_the_input_of_a_refused_record_may_still_be_an_output():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        c = tape.constant(np.array([1.0, 4.0]))
        with pytest.raises(TapeError, match="would make a cycle"):
            tape.record("multiply", [w, c], c)
        tape.record("multiply", [w, w], c)
        y = c.sum()
    assert tape.gradient(y, w).tolist() == [2.0, 4.0]


def test_a_constant_that_several_tapes_used_is_no_output():
    c, w = Variable([1.0, 4.0]), Variable([1.0, 2.0], requires_grad=True)
    first, second = GradientTape(), GradientTape()
    for tape in (first, second):
        with tape:
            w * c
    for tape in (first, second):
        with tape, pytest.raises(TapeError, match="an op used the output"):
            tape.record("multiply", [w, w], c)


def test_a_constant_that_another_tape_used_may_be_an_output_here():
    c, w = Variable([1.0, 4.0]), Variable([1.0, 2.0], requires_grad=True)
    with GradientTape():
        w * c
    with GradientTape() as tape:
        tape.record("multiply", [w, w], c)
        y = c.sum()
    assert tape.gradient(y, w).tolist() == [2.0, 4.0]


def test_a_constant_that_was_used_and_is_thawed_has_its_gradient():
    c, w = Variable([1.0, 4.0]), Variable([1.0, 2.0], requires_grad=True)
    with GradientTape(persistent=True) as tape:
        w * c
        c.requires_grad = True
        y = (w * c).sum()
    assert tape.gradient(y, c).tolist() == [1.0, 2.0]
    tape.backward(y)
    assert c.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("op", "inputs", "output", "options", "error", "words"),
    [
        ("add", [(2,), (2,)], np.zeros(3), {}, ShapeError, r"\(3,\); these inputs give \(2,\)"),
        ("add", [(2,), (2, 1)], np.zeros(2), {}, ShapeError, r"these inputs give \(2, 2\)"),
        ("add", [(2,), (3,)], np.zeros(2), {}, ShapeError, "add"),
        ("exp", [(2,)], np.float64(1.0), {}, ShapeError, r"\(\); these inputs give \(2,\)"),
        ("sum", [(2, 3)], np.zeros(2), {"axis": 0}, ShapeError, r"these inputs give \(3,\)"),
        ("sum", [(2, 3)], np.zeros(2), {"axis": 2}, ShapeError, "does not fit"),
        ("matmul", [(2, 3), (3, 4)], np.zeros((2, 3)), {}, ShapeError, r"give \(2, 4\)"),
        ("exp", [(2,)], np.ones(2, np.float32), {}, DTypeError, "float32; these inputs give float"),
        ("exp", [(2,)], np.ones(2, complex), {}, DTypeError, "complex128; these inputs give"),
    ],
    ids=[
        "longer",
        "broadcast",
        "apart",
        "number",
        "axis",
        "no axis",
        "matrix",
        "float32",
        "complex",
    ],
)
def test_an_output_of_the_wrong_shape_or_dtype_is_refused(
    op, inputs, output, options, error, words, check
):
    leaves = [Variable(np.ones(shape), requires_grad=True) for shape in inputs]
    with GradientTape(check=check) as tape:
        c = tape.constant(output)
        for given in (leaves, [leaf.id for leaf in leaves if leaf * 1.0 is not None]):
            with pytest.raises(error, match=words):
                tape.record(op, given, c, **options)
        assert all(node.op != op for node in tape.nodes)


def test_saved_arrays_must_have_the_shape_of_what_they_stand_for():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        c = tape.constant(np.array([1.0, 4.0]))
        with pytest.raises(ShapeError, match=r"x= of multiply has shape \(3,\); .* \(2,\)"):
            tape.record("multiply", [w, w], c, x=np.ones(3))
        with pytest.raises(ShapeError, match=r"out= of exp has shape \(1,\); .* \(2,\)"):
            tape.record("exp", [w], c, out=np.ones(1))
        assert len(tape) == 0
