"""What a tape tells: why a gradient flows or not, memory, pictures; and its careful mode."""

import re
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import MutationError, NonFiniteError, TapeError


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ explain


def test_explain_names_the_ops_of_the_path():
    w, b = wide(2.0, name="w"), wide(1.0, name="b")
    with GradientTape() as tape:
        y = ops.exp(w * 3.0 + b).sum()
    path = tape.explain(y, w)
    assert path.startswith("w -> multiply -> add -> exp -> sum -> ")
    assert tape.explain(y, b).startswith("b -> add -> exp -> sum -> ")


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda tape, v: v.detach(), r"broken at detach\(\)"),
        (
            lambda tape, v: paused(od.no_grad(), v),
            "broken at exp, computed while recording was paused",
        ),
        (
            lambda tape, v: paused(tape.no_recording(), v),
            "broken at exp, computed while recording was paused",
        ),
    ],
    ids=["detach", "no_grad", "no_recording"],
)
def test_explain_names_what_broke_the_path(cut, words):
    w, other = wide(2.0, name="w"), wide(3.0)
    with GradientTape() as tape:
        middle = w * 2.0
        y = cut(tape, middle) * other
    assert re.search(words, tape.explain(y, w))


def paused(pause, v):
    with pause:
        return ops.exp(v)


def test_explain_says_that_a_source_was_never_used():
    w, other = wide(2.0), wide(1.0, name="other")
    with GradientTape() as tape:
        y = w * w
    assert "other was never used on this tape" in tape.explain(y, other)


def test_explain_says_that_no_op_leads_there():
    w, other = wide(2.0, name="w"), wide(1.0, name="other")
    with GradientTape() as tape:
        y = w * w
        _ = other * 2.0
    assert "no op leads from other" in tape.explain(y, other)


def test_explain_says_that_an_output_is_a_constant_or_untracked():
    w = wide(2.0, name="w")
    lost = w * 2.0
    with GradientTape() as tape:
        _ = w * w
    assert "is a constant" in tape.explain(Variable(1.0), w)
    assert "computed while nothing recorded" in tape.explain(lost, w)


def test_explain_knows_a_value_that_is_asked_about_itself():
    w = wide([1.0, 2.0], name="w")
    with GradientTape(persistent=True) as tape:
        y = w * 2.0
    assert tape.explain(w, w) == "w is asked about itself: the gradient is 1"
    assert "asked about itself" in tape.explain(y, y)


def test_explain_says_that_whole_numbers_carry_no_gradient_whatever_else_was_cut():
    w = wide([1.0, 2.0], name="w")
    with GradientTape() as tape:
        cut = w.detach() * w
        place = ops.argmax(w)
    assert tape.explain(place, w).endswith("int64 numbers carry no gradient")
    assert tape.explain(cut, w).startswith("w -> multiply -> ")


def test_explain_of_a_consumed_tape_says_so():
    w = wide(2.0)
    with GradientTape() as tape:
        y = w * w
    tape.backward(y)
    assert "consumed" in tape.explain(y, w)


# ------------------------------------------------------------------ memory


def test_memory_counts_each_saved_array_once():
    w, x = wide(np.ones(1000)), np.ones(1000)
    with GradientTape() as tape:
        a = w * x
        b = w * x
        c = a * b
        y = (ops.exp(c) + a).sum()
    report = tape.memory()
    # x is locked and shared by two nodes; a and b are saved by c, and exp saves its result
    assert report.total == 4 * 8000
    assert report.locked == 8000
    assert [name for name, _ in report.nodes] == ["multiply"] * 3 + ["exp", "add", "sum"]
    assert [size for _, size in report.nodes] == [8000, 0, 16000, 8000, 0, 0]
    assert "32,000 bytes" in str(report)
    tape.backward(y)
    assert tape.memory().total == tape.memory().locked == 0


def test_memory_is_freed_by_clear():
    w = wide(np.ones(1000))
    with GradientTape() as tape:
        _ = w * w
    assert tape.memory().total == 8000
    tape.clear()
    assert tape.memory().total == 0


# ------------------------------------------------------------------ pictures


def test_to_dot_draws_every_node_and_edge_and_quotes_names():
    w, b = wide(2.0, name='the "w"'), wide(1.0, name="b\\")
    with GradientTape() as tape:
        middle = w * b
        y = middle + 1.0
    text = tape.to_dot()
    assert text.startswith("digraph")
    assert text.rstrip().endswith("}")
    assert r'n1 [label="the \"w\": float64[]", shape=box];' in text
    assert r'n2 [label="b\\: float64[]", shape=box];' in text
    assert [(node.output, node.name) for node in tape.nodes] == [(middle.id, "#3"), (y.id, "#4")]
    for edge in ["n1 -> n3;", "n2 -> n3;", "n3 -> n4;"]:
        assert text.count(edge) == 1
    assert text.count("->") == 3


def test_to_mermaid_draws_every_node_and_edge():
    w = wide(2.0, name='the "w"')
    with GradientTape() as tape:
        y = w * w
    text = tape.to_mermaid()
    assert text.startswith("graph LR")
    assert [(node.inputs, node.output, node.name) for node in tape.nodes] == [
        ((w.id, w.id), y.id, "#2")
    ]
    assert 'n1["the #quot;w#quot;: float64[]"]' in text
    assert text.count("n1 --> n2") == text.count("-->") == 2


def test_a_notebook_shows_the_nodes_escaped():
    w = wide(2.0)
    with GradientTape() as tape:
        _ = w * w
    text = tape._repr_html_()
    assert "<td>multiply</td>" in text
    assert "<tape" not in text


@pytest.mark.parametrize("state", ["empty", "recording", "left", "consumed", "cleared"])
def test_a_tape_can_be_drawn_and_printed_in_every_state(state):
    w = wide(2.0)
    tape = GradientTape()
    if state != "empty":
        with tape:
            y = w * w
            if state == "recording":
                assert "recording" in repr(tape)
        if state == "consumed":
            tape.backward(y)
            assert "consumed" in repr(tape)
        if state == "cleared":
            tape.clear()
    assert f"{len(tape)} nodes" in repr(tape)
    for text in (tape.to_dot(), tape.to_mermaid(), tape._repr_html_(), str(tape.memory())):
        assert isinstance(text, str)


# ------------------------------------------------------------------ the careful mode


def here():
    return re.escape(__file__)


def test_a_careful_tape_gives_the_same_gradients():
    rng = np.random.default_rng(0)
    x, data = rng.normal(size=(4, 3)), rng.normal(size=(3, 2))
    results = []
    for check in (False, True):
        w = wide(data)
        with GradientTape(check=check) as tape:
            y = (ops.tanh(x @ w) ** 2).mean()
        results.append(tape.gradient(y, w))
    np.testing.assert_array_equal(*results)


def swept_carefully(fn, w):
    """Sweep ``fn(w)`` on a careful tape, from a cotangent of ones."""
    with np.errstate(all="ignore"):
        with GradientTape(check=True) as tape:
            y = fn(w)
        return tape.gradient(y, w, np.ones(y.shape), unused="zero")


def test_a_careful_tape_reports_the_first_value_that_is_not_finite_with_op_and_line():
    with pytest.raises(NonFiniteError, match=rf"^log at {here()}:\d+ gave -inf, log of 0.0 at"):
        swept_carefully(lambda w: ops.log(w) * 2.0 + 1.0, wide([0.0, 1.0]))


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (lambda w: ops.log(w), "log .* finite; its operands are finite$"),
        (lambda w: ops.transpose(w / w), "divide .*; its operands are finite$"),
        (lambda w: w * np.array([1.0, np.inf]), "multiply .*; its operand y was not finite before"),
        (lambda w: w - float("nan"), "subtract .*; its operand y was not finite before"),
        (lambda w: ops.reshape(wide([[np.nan]]), (1,)), "reshape .*; its operand x was not"),
        (lambda w: wide(np.inf) * wide(np.inf), "multiply .*; its operands x, y were not finite"),
        (lambda w: ops.concatenate([w, wide([np.inf])]), "concatenate .*; its operand .* was not"),
        (lambda w: ops.clip(wide([np.inf]), 0.0, None), "clip .*; its operand x was not finite"),
    ],
)
def test_a_careful_tape_tells_whether_operands_were_finite_before(fn, told):
    with np.errstate(all="ignore"):
        with GradientTape(check=True) as tape:
            y = fn(wide([0.0, 1.0]))
        with pytest.raises(NonFiniteError, match=told):
            tape.backward(y, np.ones(y.shape))


@pytest.mark.parametrize(
    ("fn", "data", "message"),
    [
        pytest.param(ops.log, [np.inf, 0.0, 1.0], r"log of 0\.0 at \[1\] .* at this", id="inf"),
        pytest.param(ops.log, [np.nan, 0.0], r"-inf, log of 0\.0 at \[1\] .* at this", id="nan"),
        pytest.param(
            lambda w: (ops.log(w) * 2.0).sum(), [np.nan, 0.0], r"log of 0\.0 at \[1\]", id="later"
        ),
        pytest.param(
            lambda w: w / np.array([1.0, np.inf, 0.0]),
            [np.nan, np.inf, 1.0],
            r"1\.0 and 0\.0 at \[2\] .* at this element, other elements of x and y are not$",
            id="both",
        ),
        pytest.param(
            lambda w: ops.log(np.ones((2, 2)) * w),
            [np.inf, 0.0],
            r"^multiply .* inf, multiply of 1\.0 and inf at \[0, 0\].*operand y was not finite",
            id="op",
        ),
        pytest.param(ops.exp, [1.0, np.nan], r"nan at \[1\], .*; its operand x was not", id="none"),
        pytest.param(
            lambda w: w * np.array([1.0, np.inf]),
            [np.nan, 1.0],
            r"nan, multiply of nan and 1\.0 at \[0\] .*; its operand x was not finite before$",
            id="the operand of that element",
        ),
    ],
)
def test_a_careful_tape_names_an_element_of_finite_operands_before_others(fn, data, message):
    with pytest.raises(NonFiniteError, match=message):
        swept_carefully(fn, wide(data))


def test_a_careful_tape_does_not_call_operands_finite_that_it_has_not_seen():
    double = od.custom_vjp(lambda x: x * 2.0)
    double.defvjp(lambda x: (x * 2.0, None), lambda kept, g: (g * 2.0,))
    with pytest.raises(NonFiniteError, match=r"the first value that is not finite$"):
        swept_carefully(double, wide([np.inf]))


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (lambda w: ops.log(w), r"gave -inf, log of 0\.0 at \[1, 0\], the first"),
        (lambda w: ops.log(w).sum(), r"gave -inf, log of 0\.0 at \[1, 0\], the first"),
        (lambda w: ops.log(w[1, 0]) * 2.0, r"log .* gave -inf, log of 0\.0, the first"),
        (lambda w: ops.log(w - 2.0), r"gave nan, log of -1\.0 at \[0, 0\] \(one of 3 elements\)"),
        (lambda w: (w - 1.0) / w, r"gave -inf, divide of -1\.0 and 0\.0 at \[1, 0\]"),
        (lambda w: np.ones((3, 2, 2)) * ops.log(w) - 3.0, r"log of 0\.0 at \[1, 0\]"),
        (lambda w: (ops.log(w) @ np.ones((2, 2))) * 2.0, r"^log .* log of 0\.0 at \[1, 0\]"),
        (lambda w: w @ np.full((2, 1), np.inf), r"^matmul .* gave nan at \[1, 0\] \(one of 2"),
        (lambda w: ops.exp(w.astype("float32") * 40.0), r"gave inf, exp of 120\.0 at \[1, 1\]"),
    ],
)
def test_a_careful_tape_tells_the_index_and_the_operands_of_that_element(fn, told):
    with pytest.raises(NonFiniteError, match=told):
        swept_carefully(fn, wide([[1.0, 2.0], [0.0, 3.0]]))


def test_a_careful_tape_blames_the_op_whose_element_the_gradient_uses():
    """The mask is infinite elsewhere, on purpose."""

    def fn(w):
        masked = ops.where(np.array([True, False, True]), w, -np.inf)
        return od.nn.softmax(masked + 0.0 * ops.where(np.arange(3) == 2, ops.log(w), 0.0))

    with pytest.raises(NonFiniteError, match=r"^log .* log of 0\.0 at \[2\] "):
        swept_carefully(lambda w: fn(w) * 1.0, wide([1.0, -1.0, 0.0]))


UNUSED = {
    "not chosen": (lambda w: ops.where(w.numpy() > 0, ops.log(w), 0.0), [0.0, 1.0]),
    "clipped": (lambda w: ops.maximum(ops.log(w), -1.0), [0.0, 1.0]),
    "beside the path": (lambda w: (ops.log(w), w * 2.0)[1], [2.0, 2.0]),
    "detached": (lambda w: (ops.log(w).detach() > 0) * w, [0.0, 0.0]),
    "a mask of a softmax": (
        lambda w: od.nn.softmax(ops.where(np.array([True, False]), w, -np.inf)),
        [0.0, 0.0],
    ),
}


@pytest.mark.parametrize(("fn", "expected"), UNUSED.values(), ids=UNUSED)
def test_a_careful_tape_does_not_stop_at_a_value_that_no_gradient_uses(fn, expected):
    np.testing.assert_allclose(swept_carefully(fn, wide([0.0, 1.0])), expected, atol=1e-15)


def test_a_careful_tape_that_is_not_swept_says_nothing():
    with np.errstate(all="ignore"), GradientTape(check=True) as tape:
        y = ops.log(wide([0.0]))
    assert y.item() == -np.inf
    assert len(tape) == 1


def test_a_careful_tape_reports_values_in_forward_mode_too():
    w = wide([0.0, 1.0])
    with np.errstate(all="ignore"), GradientTape(check=True) as tape:
        bad, good = ops.log(w).sum(), ops.where(w.numpy() > 0, ops.log(w), 0.0).sum()
    with pytest.raises(NonFiniteError, match=r"log of 0\.0 at \[0\]"):
        tape.jvp(bad, w, np.ones(2))
    with np.errstate(all="ignore"):
        assert tape.jvp(good, w, np.ones(2)) == 1.0


def test_a_careful_tape_reports_values_of_a_recorded_sweep():
    w = wide([0.0, 1.0])
    with np.errstate(all="ignore"), GradientTape(), GradientTape(check=True) as tape:
        y = ops.log(w)
        with pytest.raises(NonFiniteError, match=r"log of 0\.0 at \[0\]"):
            tape.gradient(y, w, np.ones(2), create_graph=True)


WARNINGS = {
    "divide": (lambda w: ops.log(w), "divide by zero encountered in log"),
    "invalid": (lambda w: ops.sqrt(w - 1.0), "invalid value encountered in sqrt"),
    "overflow": (lambda w: ops.exp(w * 1e4), "overflow encountered in exp"),
    "operator": (lambda w: 1.0 / w, "divide by zero encountered in divide"),
    "composite": (lambda w: ops.reciprocal(w), "divide by zero encountered in"),
}


@pytest.mark.parametrize(("fn", "told"), WARNINGS.values(), ids=WARNINGS)
def test_warnings_of_numpy_point_to_the_users_line_on_a_careful_tape(fn, told):
    w = wide([0.0, 1.0])
    before = np.geterr()
    with GradientTape(check=True), pytest.warns(RuntimeWarning, match=told) as caught:
        fn(w)
    assert {warning.filename for warning in caught} == {__file__}
    assert caught[0].lineno == fn.__code__.co_firstlineno
    assert np.geterr() == before
    assert np.geterrcall() is None


def test_warnings_of_a_sweep_point_to_the_line_of_the_sweep():
    w = wide([0.0, 1.0])
    with GradientTape(check=True, persistent=True) as tape:
        y = ops.sqrt(w).sum()
    for sweep in (
        lambda: tape.gradient(y, w),
        lambda: tape.backward(y),
        lambda: tape.gradient(y, w, create_graph=True),
    ):
        with (
            pytest.warns(RuntimeWarning, match="divide by zero encountered in") as caught,
            pytest.raises(NonFiniteError),
        ):
            sweep()
        assert (caught[0].filename, caught[0].lineno) == (__file__, sweep.__code__.co_firstlineno)
    with pytest.warns(RuntimeWarning, match="divide by zero") as caught:
        tape.jvp(y, w, np.ones(2))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("mode", ["ignore", "raise", "call"])
def test_other_modes_of_numpy_hold_on_a_careful_tape(mode):
    w, calls = wide([0.0, 1.0]), []
    with np.errstate(divide=mode, call=lambda *told: calls.append(told)), GradientTape(check=True):
        if mode == "raise":
            with pytest.raises(FloatingPointError, match="divide by zero encountered in log"):
                ops.log(w)
        else:
            ops.log(w)
    assert len(calls) == (mode == "call")


def test_a_gradient_that_is_not_finite_is_told_with_index_cotangent_and_operand():
    with pytest.raises(
        NonFiniteError, match=r"nan at \[1\], where the cotangent is 0.0 and x is 0"
    ):
        swept_carefully(lambda w: ops.exp(2.0 * ops.log(w)), wide([1.0, 0.0]))
    with pytest.raises(
        NonFiniteError, match=r"inf at \[1\], where the cotangent is 2.0 and out is 0"
    ):
        swept_carefully(lambda w: ops.sqrt(w) * 2.0, wide([1.0, 0.0]))


def test_a_careful_tape_reports_the_first_gradient_that_is_not_finite_with_op_and_line():
    w = wide([0.0, 1.0])
    with GradientTape(check=True) as tape:
        y = (ops.sqrt(w) * 2.0).sum()
    with (
        np.errstate(divide="ignore"),
        pytest.raises(NonFiniteError, match=rf"gradient of sqrt at {here()}:\d+.*x is the first"),
    ):
        tape.backward(y)
    assert w.grad is None
    assert len(tape) == 3


def test_a_careful_tape_finds_a_write_through_an_earlier_view_with_op_and_line():
    w, x = wide(np.ones(1000)), np.ones(1000)
    view = x[:10]
    with GradientTape(check=True) as tape:
        y = (w * x).sum()
    view[0] = 99.0
    with pytest.raises(MutationError, match=rf"multiply at {here()}:\d+ saved y.*written to"):
        tape.backward(y)
    assert w.grad is None
    view[0] = 1.0
    tape.backward(y)
    np.testing.assert_array_equal(w.grad, np.ones(1000))


def test_a_careful_tape_verifies_manual_records():
    tape = GradientTape(check=True)
    tape.enable()
    x, y = tape.variable([1.0, 2.0]), tape.variable([3.0, 4.0])
    wrong = tape.constant([4.0, 7.0])
    with pytest.raises(TapeError, match=r"record: add of these inputs gives"):
        tape.record_add(x, y, wrong)
    assert len(tape) == 0
    assert not wrong.requires_grad
    tape.record_add(x, y, tape.constant([4.0, 6.0]))
    assert len(tape) == 1


def test_a_careful_tape_verifies_manual_records_made_by_id():
    tape = GradientTape(check=True)
    tape.enable()
    x, y = tape.variable([1.0, 2.0]), tape.variable([3.0, 4.0])
    wrong = tape.constant([4.0, 7.0])
    with pytest.raises(TapeError, match=r"record: add of these inputs gives"):
        tape.record_add(x.id, y.id, wrong.id)
    assert len(tape) == 0


def test_a_careful_tape_verifies_saved_arrays_of_manual_records():
    tape = GradientTape(check=True)
    tape.enable()
    x, z = tape.variable([0.0, 1.0]), tape.constant(np.exp([0.0, 1.0]))
    with pytest.raises(TapeError, match=r"record: exp"):
        tape.record_exp(x, z, out=np.array([5.0, 5.0]))
    assert len(tape) == 0


def test_a_careful_tape_names_the_very_line_of_each_node():
    w = wide([0.0, 1.0])
    first = sys._getframe().f_lineno
    with GradientTape(check=True, persistent=True) as tape:
        root = ops.sqrt(w)
        y = root * 1.0
        other = ops.sqrt(w)
    for output, line in ((y, first + 2), (other, first + 4)):
        with (
            np.errstate(divide="ignore"),
            pytest.raises(NonFiniteError, match=rf"sqrt at {here()}:{line} "),
        ):
            tape.backward(output, np.ones(2))


def test_a_careful_tape_inside_another_is_careful_too():
    w = wide([0.0, 1.0])
    with (
        np.errstate(divide="ignore"),
        GradientTape(),
        GradientTape(check=True) as tape,
    ):
        y = ops.log(w)
        with pytest.raises(NonFiniteError, match="log"):
            tape.gradient(y, w, np.ones(2))


def test_carefulness_lasts_after_clear_and_consumption():
    w = wide([1.0, 2.0])
    tape = GradientTape(check=True)
    with tape:
        tape.backward((w * w).sum())
    tape.clear()
    with np.errstate(divide="ignore"), tape:
        y = ops.log(w - w)
    with pytest.raises(NonFiniteError, match="log"):
        tape.backward(y, np.ones(2))
