"""What reports call the values of a tape: small numbers, names, shapes, constants."""

import gc
import re

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, TapeNode, Variable, ops
from odyssey.tape.names import brief


def leaf(*shape, name=None):
    return Variable(np.ones(shape), True, name=name)


def lines(tape):
    return [repr(node) for node in tape.nodes]


def network():
    """A tape of a small network with a named and a nameless leaf, and what it computed."""
    w, b, x = leaf(3, 4, name="w"), leaf(4), np.ones((5, 3))
    with GradientTape(persistent=True) as tape:
        h = ops.relu(x @ w + b)
        y = ops.sum(h * 0.5, axis=1)
    return tape, w, b, y


# ------------------------------------------------------------------ nodes


def test_nodes_print_small_numbers_names_shapes_and_what_they_save_by_spec():
    tape, *_ = network()
    assert lines(tape) == [
        "TapeNode(#2: float64[5, 4] = matmul(float64[5, 3], w); saved x: float64[5, 3])",
        "TapeNode(#4: float64[5, 4] = add(#2, #3))",
        "TapeNode(#5: float64[5, 4] = relu(#4); saved out: float64[5, 4])",
        "TapeNode(#6: float64[5, 4] = multiply(#5, 0.5))",
        "TapeNode(#7: float64[5] = sum(#6, axis=1))",
    ]


def test_the_fields_of_nodes_and_the_ids_of_variables_are_the_real_ones():
    tape, w, b, y = network()
    first, second, *_, last = tape.nodes
    assert first.inputs == (None, w.id)
    assert second.inputs == (first.output, b.id)
    assert last.output == y.id
    np.testing.assert_array_equal(tape.gradient(y, last.output, np.ones(5)), np.ones(5))
    assert (last.name, last.given, last.spec) == ("#7", ("#6", "axis=1"), od.spec.spec_of(y))


def test_numbers_stay_while_a_tape_goes_on_recording():
    w, late = leaf(2), leaf(2)
    with GradientTape() as tape:
        y = w * w
        before = lines(tape), tape.to_dot().splitlines()[2:-1]
        _ = ops.exp(y) * late
        assert lines(tape)[:1] == before[0]
        assert set(before[1]) <= set(tape.to_dot().splitlines())
    assert [node.name for node in tape.nodes] == ["#2", "#3", "#5"]


def test_numbers_begin_with_one_on_every_tape_however_many_were_recorded_before():
    for _ in range(3):
        w = leaf(2)
        with GradientTape() as tape:
            _ = w * w
        assert lines(tape) == [
            "TapeNode(#2: float64[2] = multiply(#1, #1); saved x: float64[2], y: float64[2])"
        ]


def test_leaves_of_one_name_are_told_apart_by_their_numbers():
    first, second, third = leaf(2, name="w"), leaf(2, name="w"), leaf(2, name="v")
    with GradientTape() as tape:
        y = first * second * third
    assert [node.given for node in tape.nodes] == [("w #1", "w #2"), ("#3", "v")]
    assert tape.explain(y, second) == "w #2 -> multiply -> multiply -> #5"
    assert 'label="w #2: float64[2]"' in tape.to_dot()


def test_a_leaf_that_is_called_like_a_number_is_told_apart_from_it():
    a, b = (Variable([1.0], requires_grad=True, name=name) for name in ("a", "#3"))
    with GradientTape() as tape:
        y = a * 2.0 * b
    assert [node.given for node in tape.nodes] == [("a", "2.0"), ("#2", "#3 #3")]
    assert tape.explain(y, b) == "#3 #3 -> multiply -> #4"


def test_a_name_of_many_lines_is_shown_on_one():
    w = leaf(2, name="a\nb\x00")
    with GradientTape() as tape:
        y = w * w
    for text in (*lines(tape), tape.explain(y, w)):
        assert "a b " in text
        assert text.isprintable()


def test_a_watched_value_has_its_shape_and_is_asked_by_its_own_number():
    with GradientTape() as tape:
        v = tape.watch(np.ones((2, 3)))
        y = v * v
    assert [node.name for node in tape.nodes] == ["#2", "#3"]
    assert tape.nodes[0].given == ("#1",)
    assert "#1: float64[2, 3]" in tape.to_dot()
    assert tape.explain(y, v) == "#2 -> multiply -> #3"


def test_a_watched_value_that_is_gone_still_shows_its_shape_where_a_node_tells_it():
    with GradientTape() as tape:
        y = ops.exp(tape.watch(np.ones((2, 3))))
    gc.collect()
    assert "#1: float64[2, 3]" in tape.to_dot()
    assert y.shape == (2, 3)


def test_nodes_recorded_by_hand_print_like_others():
    tape = GradientTape()
    tape.enable()
    x, c = tape.variable([1.0, 2.0], "x"), tape.constant([3.0, 4.0])
    tape.record_multiply(x, c, tape.constant([3.0, 8.0]))
    tape.record_exp(x.id, 7, out=np.ones(2))
    assert lines(tape) == [
        "TapeNode(#2: float64[2] = multiply(x, float64[2]); saved y: float64[2])",
        "TapeNode(#3: float64[2] = exp(x); saved out: float64[2])",
    ]


def test_a_node_built_by_hand_prints_too():
    assert repr(TapeNode("exp", (1,), 2, {"out": np.ones(3)})) == (
        "TapeNode(? = exp(); saved out: float64[3])"
    )


def test_a_called_function_shows_its_name():
    w = leaf(2, name="w")
    with GradientTape() as tape:
        _ = od.checkpoint(ops.sin)(w)
    assert [node.op for node in tape.nodes] == ["checkpoint(sin).call", "checkpoint(sin)"]
    assert lines(tape) == [
        "TapeNode(#2: results = checkpoint(sin).call(w); saved x0: float64[2])",
        "TapeNode(#3: float64[2] = checkpoint(sin)(#2))",
    ]


def test_many_operands_do_not_make_a_long_line():
    w = leaf(2, 1, name="w")
    with GradientTape() as tape:
        _ = ops.concatenate([w] * 30, axis=1)
    assert lines(tape) == [
        "TapeNode(#2: float64[2, 30] = concatenate(w, w, w, w, w, w, ... 24 more, axis=1))"
    ]
    assert tape.nodes[0].given == (*["w"] * 30, "axis=1")
    assert tape.to_dot().count("n1 -> n2") == 30


# ------------------------------------------------------------------ constants and options

CONSTANTS = {
    "number": (lambda w: w * 3.0, "3.0"),
    "number of many digits": (lambda w: w * (1 / 3), "0.333333"),
    "scalar of NumPy": (lambda w: w * np.float32(0.5), "0.5"),
    "array without axes": (lambda w: w * np.array(2.0), "2.0"),
    "array": (lambda w: np.ones((5, 2)) * w, "float64[5, 2]"),
    "integers": (lambda w: ops.take(w, np.array([0, 1, 1])), "int64[3]"),
    "constant Variable": (lambda w: w * Variable(np.ones((3, 2))), "float64[3, 2]"),
    "frozen leaf": (lambda w: w * frozen(np.ones((3, 2))), "float64[3, 2]"),
    "complex": (lambda w: w * 2j, "2j"),
    "number that the tape does not keep": (lambda w: w + 3.0, "constant"),
    "array that the tape does not keep": (lambda w: w + np.ones((5, 2)), "constant"),
}


def frozen(data):
    w = Variable(data, True)
    w.requires_grad = False
    return w


@pytest.mark.parametrize(("call", "word"), CONSTANTS.values(), ids=list(CONSTANTS))
def test_constants_appear_with_their_value_or_shape_wherever_a_tape_is_shown(call, word):
    w = leaf(2, name="w")
    with GradientTape() as tape:
        _ = call(w)
    (node,) = tape.nodes
    assert sorted(node.given) == sorted(["w", word])
    call_of_it = f"{node.op}({', '.join(node.given)})"
    assert call_of_it in repr(node)
    assert call_of_it in tape.to_dot()
    assert call_of_it in tape.to_mermaid()
    assert f"<td>{', '.join(node.given)}</td>" in tape._repr_html_()


def test_an_absent_operand_is_shown_as_none():
    w = leaf(4, 3, name="w")
    with GradientTape() as tape:
        _ = ops.linear(np.ones((2, 3)), w)
        _ = ops.linear(np.ones((2, 3)), w, np.ones(4))
    assert [node.given for node in tape.nodes] == [
        ("float64[2, 3]", "w", "None"),
        ("float64[2, 3]", "w", "float64[4]"),
    ]


def test_options_are_shown_where_they_are_not_at_their_default():
    w = leaf(3, 4, name="w")
    with GradientTape() as tape:
        _ = ops.sum(w), ops.sum(w, axis=(0, 1), keepdims=True), w[1:, ::2], ops.leaky_relu(w)
        _ = w[np.array([0, 1])]
    assert [node.given for node in tape.nodes] == [
        ("w",),
        ("w", "axis=(0, 1)", "keepdims=True"),
        ("w", "key=(1:, ::2)"),
        ("w",),
        ("w", "key=int64[2]"),
    ]


class Strange:
    """An option whose repr fails."""

    __name__ = property(lambda self: 1 / 0)

    def __call__(self):
        pass

    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (np.float64(1 / 3), "0.333333"),
        (10**5000, "an int"),
        (slice(None), ":"),
        ((1,), "(1,)"),
        ([np.ones(2), ...], "[float64[2], Ellipsis]"),
        (tuple(range(100)), "(0, 1, 2, 3, 4, 5, 6, 7, ...)"),
        (np.add, "add"),
        (float, "float"),
        (brief, "brief"),
        (Strange(), "a Strange"),
        ("a" * 100, "'" + "a" * 37 + ".."),
        (np.array("text"), "'text'"),
        (np.ones(2, object), "object[2]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_options_of_any_kind_take_few_words(value, text):
    assert brief(value) == text


# ------------------------------------------------------------------ all reports agree


def test_nodes_pictures_the_notebook_and_explain_call_a_value_the_same():
    tape, w, b, y = network()
    calls = {node.name: f"{node.op}({', '.join(node.given)})" for node in tape.nodes}
    for name, call in calls.items():
        number = name.removeprefix("#")
        assert re.search(rf'n{number} \[label="{name}: \S+.* = {re.escape(call)}"', tape.to_dot())
        assert f'  n{number}["#35;{number}: ' in tape.to_mermaid()
        assert f"<td>{name}</td>" in tape._repr_html_()
    assert tape.explain(y, w) == "w -> matmul -> add -> relu -> multiply -> sum -> #7"
    assert tape.explain(y, b) == "#3 -> add -> relu -> multiply -> sum -> #7"
    assert 'n3 [label="#3: float64[4]", shape=box]' in tape.to_dot()
    y.name = "loss"
    assert tape.explain(y, b).endswith("-> loss #7")


def test_no_report_shows_an_id_of_the_process():
    tape, w, b, y = network()
    shown = "".join([*lines(tape), tape.to_dot(), tape.to_mermaid(), tape.explain(y, b)])
    shown += tape._repr_html_() + tape.explain(y, leaf(2)) + tape.explain(leaf(2), w)
    assert not re.search(rf"\b({w.id}|{b.id}|{y.id})\b", shown) or max(w.id, b.id) < 100
    assert not re.search(r"(?<![0-9a-f])[0-9]{5,}(?![0-9a-f])", shown.replace(repr(tape), ""))


def test_explain_describes_a_nameless_variable_that_is_not_on_the_tape():
    tape, _, _, y = network()
    assert tape.explain(y, leaf(2)) == "a Variable of float64[2] was never used on this tape"


def test_reports_of_a_nested_tape_number_what_both_recorded():
    w = leaf(2, name="w")
    with GradientTape(persistent=True) as outer:
        a = w * 2.0
        with GradientTape(persistent=True) as inner:
            b = a * 3.0
        assert lines(inner) == lines(outer)
    assert inner.explain(b, w) == outer.explain(b, w) == "w -> multiply -> multiply -> #3"


def test_reports_of_a_pruned_tape_show_what_is_left():
    w = leaf(2, name="w")
    with GradientTape() as tape:
        for _ in range(3000):
            y = w * 2.0
    assert len(tape) < 3000
    assert len(tape.nodes) == len(tape)
    assert tape.nodes[-1].name == f"#{len(tape) + 1}"
    assert y.id == tape.nodes[-1].output
