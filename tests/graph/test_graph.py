"""A graph holds what it needs once, and calls it as the function does."""

from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.graph.graph import Splat

X = np.array([3.0, 4.0])


def lowered(fn, *args):
    return od.compile(fn).lower(*args)


def leaf(value=(1.0, 2.0), name=None):
    return Variable(np.array(value), requires_grad=True, name=name)


# ------------------------------------------------------------------ constants


def test_a_captured_array_is_stored_once_however_often_it_is_used():
    k = np.array([1.0, 2.0])
    graph = lowered(lambda x: (x * k + k) / k - k, X).graph
    assert len(graph.constants) == 1
    other = lowered(lambda x: x * k + k[::-1] + k.astype("float32") + k.reshape(1, 2), X).graph
    assert len(other.constants) == 4


def test_an_array_that_the_function_writes_to_is_stored_as_it_was_at_each_use():
    total = np.array([1.0, 2.0])

    def fn(x):
        y = x * total
        total[1] = 7.0
        y = y + total
        total[1] = 2.0
        return y

    graph = lowered(fn, X)
    assert len(graph.graph.constants) == 2
    assert graph.evaluate(X)[0].tolist() == [4.0, 15.0]
    total[...] = 100.0  # the graph has copies
    assert graph.evaluate(X)[0].tolist() == [4.0, 15.0]


def test_arrays_that_come_and_go_in_one_place_are_told_apart():
    def fn(x):
        for k in range(50):
            x = x + np.array([float(k), -1.0])  # each may lie where the last one lay
        return x

    assert lowered(fn, X).evaluate(X)[0].tolist() == [3.0 + 49 * 25, 4.0 - 50.0]


UNIFORM = {
    "ones": np.ones((2, 3)),
    "negative zeros": np.full((2, 3), -0.0),
    "nan with its sign": np.full(3, -np.nan),
    "infinity": np.full((1, 1), np.inf),
    "nothing": np.zeros((0, 3)),
    "a number": np.float32(0.1),
    "half precision": np.full(3, 0.1, "float16"),
    "complex": np.full((2, 3), 1 - 2j),
    "integers": np.full(3, 7, "int16"),
    "truth values": np.ones((2, 1), bool),
    "broadcast": np.broadcast_to(np.float64(0.3), (2, 3)),
}


@pytest.mark.parametrize("value", UNIFORM.values(), ids=UNIFORM)
def test_an_array_of_one_number_is_that_number_in_the_graph(value):
    w = Variable(np.zeros(np.shape(value), np.asarray(value).dtype), name="w")

    def fn(x):
        w.assign(value)
        return value, ops.reshape(value + x[0] * 0, (-1,))

    x = np.zeros(1, np.asarray(value).dtype)
    graph = lowered(fn, x)
    assert not graph.graph.constants
    (given, moved), left = graph.evaluate(x)
    for found in (given, left["w"]):
        assert found.dtype == np.asarray(value).dtype
        assert found.tobytes() == np.asarray(value).tobytes()
    assert moved.tobytes() == fn(x)[1].tobytes()


@pytest.mark.parametrize(
    "value",
    [np.array([0.0, -0.0]), np.ones((2, 3)).T, np.array([1.0, 1.0, 2.0])[::2], np.array([1, 2])],
    ids=["two zeros", "by columns", "every other", "two numbers"],
)
def test_any_other_array_is_stored_as_it_lies(value):
    (stored,) = lowered(lambda x: x + value, value).graph.constants.values()
    assert stored.strides == value.copy("K").strides
    assert stored.tobytes() == value.tobytes()


def test_what_a_sweep_begins_with_and_what_is_missing_are_numbers():
    w, v, b = leaf(), leaf((3.0, 4.0)), leaf((0.5, 0.25))

    def fn(x):
        with GradientTape(persistent=True) as tape:
            loss = ((w * x).mean() + ops.floor(b).sum() + (v * x).sum()).sum(keepdims=True)
        tape.backward(loss)
        return tape.gradient(loss, [w, leaf()], unused="zero"), b.grad, loss

    graph = lowered(fn, X)
    assert not graph.graph.constants
    assert "multiply(0.5: float64[2], %" in str(graph.graph)
    assert "0.0: float64[2]" in str(graph.graph)
    (grads, of_steps, loss), left = graph.evaluate(X)
    (eager, *_), steps, value = fn(X)
    assert np.asarray(grads[0]).tobytes() == eager.tobytes()
    assert of_steps.tobytes() == steps.tobytes()
    assert np.asarray(loss).tobytes() == value.numpy().tobytes()
    assert left["v.grad"].tolist() == v.grad.tolist() == [3.0, 4.0]


def test_a_number_in_a_graph_prints_with_its_type():
    assert repr(Splat(np.float32(1.0), (2, 3))) == "1.0: float32[2, 3]"
    assert str(lowered(lambda x: x * np.ones(2), X).graph) == (
        "graph(%0: float64[2]):\n  %1: float64[2] = multiply(%0, 1.0: float64[2])\n  return %1"
    )


# ------------------------------------------------------------------ names

everywhere = leaf()


class Net:
    def __init__(self):
        self.layers = [{"weight": leaf(((1.0, 2.0), (3.0, 4.0)))}, {"weight": leaf(name="top")}]
        self.optimizer = od.optim.SGD(self.layers, learning_rate=0.1, momentum=0.9)

    def step(self, x):
        with GradientTape() as tape:
            loss = (x @ self.layers[0]["weight"] * self.layers[1]["weight"]).sum()
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def test_a_variable_without_a_name_is_called_as_the_function_spells_it():
    w, net, params = leaf(), Net(), {"b": [leaf()]}

    def helper(x):
        return x * params["b"][0]

    def fn(x):
        return helper(x) * w * everywhere * net.layers[1]["weight"] * net.layers[0]["weight"][0]

    text = str(lowered(fn, X).graph)
    for name in ("w", "everywhere", "params['b'][0]", "net.layers[0]['weight']", "top"):
        assert f"= {name}\n" in text
    assert "params['b'][0]" in str(lowered(od.grad(lambda x: helper(x).sum()), X).graph)


def test_what_a_step_leaves_is_called_as_its_method_spells_it():
    net = Net()
    _, left = lowered(net.step, X).evaluate(X)
    assert {name for name in left if "steps" not in name} == {
        "self.layers[0]['weight']",
        "top",
        "[0]['weight'].velocity",
        "top.velocity",
        "self.layers[0]['weight'].grad",
        "top.grad",
    }
    assert left["top.grad"] is None


def test_a_partial_call_and_a_transform_are_looked_into_for_names():
    w = leaf()

    def scaled(x, factor):
        return (x * factor * w).sum()

    text = str(lowered(od.value_and_grad(partial(scaled, factor=leaf())), X).graph)
    assert "= w\n" in text
    assert "= factor\n" in text


def test_two_variables_of_one_name_are_told_apart():
    a, b, unseen = leaf(name="w"), leaf(name="w"), [None]

    class Hidden:
        __slots__ = ("v",)

    hidden = Hidden()
    hidden.v = leaf()

    def fn(x):
        a.assign(x)
        b.assign(x * 2.0)
        hidden.v.assign(x * 3.0)
        return unseen[0]

    left = lowered(fn, X).evaluate(X)[1]
    assert {name: value.tolist() for name, value in left.items()} == {
        "w": [3.0, 4.0],
        "w#2": [6.0, 8.0],
        "unnamed": [9.0, 12.0],
    }


def test_a_gradient_and_a_variable_that_bears_its_name_are_told_apart():
    w, other = leaf(name="w"), leaf(name="w.grad")

    def fn(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        other.assign(x * 2.0)

    left = lowered(fn, X).evaluate(X)[1]
    assert {name: value.tolist() for name, value in left.items()} == {
        "w.grad": [3.0, 4.0],
        "w.grad#2": [6.0, 8.0],
    }


def test_names_are_no_obstacle_where_a_function_reaches_something_strange():
    class Key:
        def __repr__(self):
            raise RuntimeError("no name")

    ring, w = [], leaf()
    ring.append(ring)
    table = {Key(): w}
    graph = lowered(lambda x: next(table[key] for key in table) * x if ring else x, X).graph
    assert [state.label for state in graph.states] == ["unnamed"]


def test_a_graph_is_drawn_with_its_states_and_what_becomes_of_them():
    w = Variable(np.ones(2), name='the "weights"')
    graph = od.compile(lambda x: w.assign(w + x).sum()).lower(np.ones(2)).graph
    text = graph.to_dot()
    assert text.startswith("digraph graph_ {")
    assert text.endswith("}")
    assert 'label="the \\"weights\\"\\nfloat64[2]", shape=box' in text
    assert 'label="the \\"weights\\" <-", shape=box' in text
    arrows = [line for line in text.splitlines() if "->" in line]
    assert len(arrows) == 5  # two operands, the sum, the result, the state


def test_a_graph_that_was_lowered_is_not_changed_nor_what_is_in_it():
    w, k = leaf(), np.arange(2.0)

    def fn(x):
        total, _ = od.scan(lambda c, a: (c + a * k, None), w * 1.0, x)
        w.zero_grad()
        return total.sum() * k

    low = lowered(fn, np.ones((3, 2)))
    graph, before = low.graph, str(low.graph)
    (loop,) = [one.row.loop for one in graph.instructions if hasattr(one.row, "loop")]
    for one in (graph, *loop.subgraphs):
        for name in ("inputs", "states", "instructions", "outputs", "made", "eager"):
            with pytest.raises(AttributeError, match=f"{name}: a graph .* is not changed"):
                setattr(one, name, [])
        for held in (one.inputs, one.states, one.instructions, one.outputs, one.cleared_labels):
            assert type(held) is tuple
        with pytest.raises(TypeError, match="mappingproxy"):
            one.constants[99] = k
        for array in one.constants.values():
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 5.0
    with pytest.raises(AttributeError, match="update: a graph"):
        graph.states[0].update = None
    assert str(graph) == before
    assert k.flags.writeable
    k[0] = 7.0  # the graph has the numbers that were there
    assert low.evaluate(np.ones((3, 2)))[0].tolist() == [0.0, 6.0]
