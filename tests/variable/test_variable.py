"""Variable: what it holds, what it says of itself, and its gradient."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ properties


def test_a_leaf_tells_what_it_is():
    w = Variable([[1, 2, 3], [4, 5, 6]], requires_grad=True, name="w", dtype=np.float32)
    assert (w.shape, w.ndim, w.size, len(w)) == ((2, 3), 2, 6, 2)
    assert (w.dtype, w.name, w.device) == (np.float32, "w", "cpu")
    assert w.requires_grad
    assert w.is_leaf
    assert w.tape is None
    assert w.grad is None
    assert type(w.id) is int
    np.testing.assert_array_equal(w.data, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(w.numpy(), w.data)
    np.testing.assert_array_equal(w.T.detach().numpy(), w.data.T)


def test_a_constant_is_the_default_and_refers_to_its_array():
    data = np.ones(3)
    c = Variable(data)
    assert not c.requires_grad
    assert c.is_leaf
    assert c.name is None
    assert np.shares_memory(c.data, data)


def test_an_intermediate_knows_its_tape_and_is_no_leaf():
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        y = w * 2.0
    assert y.tape is tape
    assert not y.is_leaf
    assert y.requires_grad
    assert y.grad is None


def test_a_trainable_variable_owns_a_copy_of_its_data():
    data = np.ones(3)
    w = Variable(data, requires_grad=True)
    data[0] = 9.0
    np.testing.assert_array_equal(w.data, [1.0, 1.0, 1.0])


def test_a_variable_made_from_a_variable_owns_a_copy():
    first = wide([1.0, 2.0])
    second = Variable(first, requires_grad=True)
    first.assign(0.0)
    np.testing.assert_array_equal(second.data, [1.0, 2.0])
    assert second.id != first.id


@pytest.mark.parametrize("kind", ["leaf", "intermediate"])
def test_data_is_read_only(kind):
    w = wide(np.ones(3))
    with GradientTape():
        v = w if kind == "leaf" else w * 2.0
    with pytest.raises(ValueError, match="read-only"):
        v.data[0] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        v.numpy()[0] = 9.0


def test_names_can_be_given_later():
    w = wide(1.0)
    w.name = "late"
    assert w.name == "late"
    c = Variable(1.0)
    c.name = "constant"
    assert "constant" in repr(c)


@pytest.mark.parametrize("tape_given", [False, True], ids=["no_tape", "tape"])
def test_the_tape_argument_binds_a_leaf(tape_given):
    tape = GradientTape()
    tape.enable()
    w = Variable(2.0, requires_grad=True, tape=tape if tape_given else None)
    assert (w.id in tape.ids) == tape_given
    assert ((w * w).tape is tape) == tape_given


def test_iteration_and_len_go_over_the_first_axis():
    w = wide([[1.0, 2.0], [3.0, 4.0]])
    with GradientTape() as tape:
        rows = list(w)
        first, second = w
        y = (first * rows[1]).sum() + second.sum()
    assert len(w) == len(rows) == 2
    np.testing.assert_array_equal(tape.gradient(y, w), [[3.0, 4.0], [2.0, 3.0]])


def test_item_and_conversions_give_python_numbers():
    w = wide([[2.5]])
    assert (w.item(), float(w), int(w), complex(w), bool(w)) == (2.5, 2.5, 2, 2.5 + 0j, True)
    assert type(w.item()) is float
    assert not Variable(0.0)
    assert [10, 20, 30][Variable(np.array(1))] == 20


def test_formats_are_those_of_the_single_number():
    w = wide([[2.5]])
    assert f"{w:.3f} {w * 2:g}" == "2.500 5"
    assert f"{w}" == str(w)
    assert f"{Variable(np.array(7)):03d}" == "007"
    with pytest.raises(od.errors.ShapeError, match="needs one element"):
        f"{wide([1.0, 2.0]):.3f}"


def test_comparisons_are_elementwise_constants_and_hashing_is_by_object():
    v, w = wide([1.0, 2.0]), wide([1.0, 3.0])
    with GradientTape():
        pairs = {
            "==": (v == w, [True, False]),
            "!=": (v != w, [False, True]),
            "<": (v < w, [False, True]),
            "<=": (v <= 1.0, [True, False]),
            ">": (np.array(2.0) > v, [True, False]),
            ">=": (v >= np.array([1.0, 9.0]), [True, False]),
        }
    for result, expected in pairs.values():
        assert not result.requires_grad
        assert result.dtype == np.bool_
        np.testing.assert_array_equal(result.numpy(), expected)
    names = {v: "v", w: "w"}
    assert (names[v], names[w]) == ("v", "w")
    assert v in names
    assert wide([1.0, 2.0]) not in names
    assert hash(v) == hash(v)


# ------------------------------------------------------------------ repr


def kinds_of_variable():
    w = wide(np.arange(6.0).reshape(2, 3), name="w")
    with GradientTape(persistent=True) as tape:
        y = ops.exp(w)
        watched = tape.watch(np.ones(2))
        with od.no_grad():
            paused = w * 2.0
    spent = wide(1.0)
    with GradientTape() as short:
        z = spent * spent
    short.backward(z)
    frozen = wide(1.0)
    frozen.requires_grad = False
    kinds = {
        "leaf": (w, ["name='w'", "requires_grad=True", "shape=(2, 3)", "dtype=float64"]),
        "recorded": (y, ["op=exp", "shape=(2, 3)"]),
        "watched": (watched, ["op=identity"]),
        "paused": (paused, ["shape=(2, 3)"]),
        "spent": (z, ["1."]),
        "untracked": (w * 2.0, ["untracked"]),
        "detached": (y.detach(), ["shape=(2, 3)"]),
        "constant": (Variable([1, 2]), ["[1, 2]", "dtype=int64"]),
        "boolean": (w > 1.0, ["True", "dtype=bool"]),
        "complex": (Variable(1j), ["1.j", "dtype=complex128"]),
        "empty": (Variable(np.ones((0, 3))), ["shape=(0, 3)"]),
        "large": (Variable(np.zeros((1000, 1000))), ["...", "shape=(1000, 1000)"]),
        "not_finite": (Variable([np.nan, np.inf]), ["nan", "inf"]),
        "frozen": (frozen, ["1."]),
    }
    return kinds, tape


@pytest.mark.parametrize("kind", kinds_of_variable()[0])
def test_repr_never_raises_and_tells_the_facts(kind):
    kinds, tape = kinds_of_variable()
    variable, facts = kinds[kind]
    text = repr(variable)
    assert not tape.consumed
    assert text.startswith("Variable(")
    assert all(fact in text for fact in facts), text
    assert len(text) < 1000
    assert variable._repr_html_().startswith("<pre>Variable(")


@pytest.mark.parametrize("transform", [od.grad, od.jacobian, od.hessian])
def test_what_a_transform_gives_its_function_is_not_called_spent(transform):
    texts = []
    transform(lambda v: (texts.append(repr(v)), v * v)[1])(np.array(2.0))
    assert texts == ["Variable(2., shape=(), dtype=float64, op=identity)"]


def test_the_notebook_form_is_escaped():
    w = wide(1.0, name="<b>")
    assert "<b>" not in w._repr_html_()
    assert "&lt;b&gt;" in w._repr_html_()


# ------------------------------------------------------------------ gradient slot


def test_a_detached_value_contributes_no_gradient():
    w = wide(3.0)
    with GradientTape() as tape:
        y = w * (w * w).detach()
    assert float(tape.gradient(y, w)) == 9.0


def test_backward_of_a_variable_takes_a_cotangent():
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        y = w * w
    y.backward([1.0, 10.0])
    assert tape.consumed
    np.testing.assert_array_equal(w.grad, [2.0, 40.0])


def test_grad_can_be_set_and_is_copied():
    w, g = Variable(np.ones(2, np.float32), requires_grad=True), np.array([1.0, 2.0])
    w.grad = g
    assert w.grad.dtype == np.float32
    g[0] = 9.0
    np.testing.assert_array_equal(w.grad, [1.0, 2.0])
    w.grad = None
    assert w.grad is None


def test_a_gradient_that_is_set_has_the_dtype_of_its_leaf_also_compiled():
    w, x = Variable(np.ones(2, np.float32), requires_grad=True), np.array([1.0, 2.0])
    w.grad = wide([1.0, 2.0]) * 2.0
    assert w.grad.dtype == np.float32
    w.grad = None

    @od.compile
    def put(x):
        w.grad = w.detach() * x
        return x * 1.0

    for _ in range(3):
        put(x)
        assert type(w.grad) is np.ndarray
        assert w.grad.dtype == np.float32
        np.testing.assert_array_equal(w.grad, x)
    assert put.statistics().native == 2


def test_freezing_stops_the_gradient_and_thawing_lets_it_flow():
    w, x = wide(3.0), wide(2.0)
    slopes = []
    for flag in (True, False, True):
        w.requires_grad = flag
        with GradientTape() as tape:
            y = w * x
        tape.backward(y)
        slopes.append(None if w.grad is None else float(w.grad))
        w.zero_grad()
    assert slopes == [2.0, None, 2.0]


def test_a_constant_can_be_made_trainable_and_then_owns_its_data():
    data = np.ones(2)
    c = Variable(data)
    c.requires_grad = True
    data[0] = 9.0
    with GradientTape() as tape:
        y = (c * c).sum()
    np.testing.assert_array_equal(tape.gradient(y, c), [2.0, 2.0])
