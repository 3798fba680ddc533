"""Variable: how it is written and copied, and what it refuses."""

import copy
import pickle
import re

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DeviceError, DTypeError, MutationError, ShapeError, TapeError


class Tagged(Variable):
    """A parameter that a user's class says more of."""

    def __init__(self, data, tag):
        super().__init__(data, requires_grad=True, name="w")
        self.tag = tag


class Slotted(Variable):
    """The same in slots, one of which is never filled."""

    __slots__ = ("__own", "never", "tag")

    def __init__(self, data, tag):
        super().__init__(data, requires_grad=True, name="w")
        self.tag = tag
        self.__own = self

    @property
    def own(self):
        """What lies in the slot of a mangled name."""
        return self.__own


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ writing


def test_assign_returns_the_variable_and_leaves_earlier_snapshots_alone():
    w = wide([1.0, 2.0])
    snapshot = w.data
    assert w.assign([3.0, 4.0]) is w
    np.testing.assert_array_equal(w.data, [3.0, 4.0])
    np.testing.assert_array_equal(snapshot, [1.0, 2.0])
    w.assign(0)
    np.testing.assert_array_equal(w.data, [0.0, 0.0])
    w.data = Variable([5.0, 6.0])
    np.testing.assert_array_equal(w.data, [5.0, 6.0])


def test_assigning_to_a_leaf_that_a_tape_still_needs_is_found_by_the_sweep():
    w = wide([1.0, 2.0], name="w")
    with GradientTape(persistent=True) as tape:
        y = (w * w).sum()
    w.assign(9.0)
    for sweep in (lambda: tape.backward(y), lambda: tape.gradient(y, w)):
        with pytest.raises(MutationError, match=r"name='w'.*assigned after this tape recorded"):
            sweep()
    assert w.grad is None


def test_a_constant_that_a_tape_holds_cannot_be_assigned():
    w, c = wide(np.ones(1000)), Variable(np.ones(1000))
    with GradientTape() as tape:
        y = (w * c).sum()
    with pytest.raises(MutationError, match="sweep or clear"):
        c.assign(2.0)
    np.testing.assert_array_equal(tape.gradient(y, w), np.ones(1000))
    c.assign(2.0)
    np.testing.assert_array_equal(c.data, np.full(1000, 2.0))


def test_item_assignment_rebinds_and_earlier_uses_keep_the_old_value():
    w = wide([1.0, 2.0, 3.0])
    with GradientTape() as tape:
        x = w * 1.0
        before = x * x
        x[1] = 10.0
        after = x * x
        y = (before + 100.0 * after).sum()
    np.testing.assert_array_equal(x.numpy(), [1.0, 10.0, 3.0])
    np.testing.assert_array_equal(before.numpy(), [1.0, 4.0, 9.0])
    assert x.tape is tape
    np.testing.assert_array_equal(tape.gradient(y, w), [202.0, 4.0, 606.0])


def test_a_result_that_became_a_constant_by_writing_can_be_trained():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape():
        y = (w * 2.0) * 1.0
    with od.no_grad():
        y[0] = 5.0
    y.requires_grad = True
    with GradientTape() as tape:
        z = (y * 3.0).sum()
    assert tape.gradient(z, y).tolist() == [3.0, 3.0]


def test_the_written_value_has_a_gradient():
    w, v = wide([1.0, 2.0, 3.0]), wide([5.0, 6.0])
    with GradientTape() as tape:
        x = w * 2.0
        x[1:] = v
        y = (x * np.array([1.0, 10.0, 100.0])).sum()
    gw, gv = tape.gradient(y, (w, v))
    np.testing.assert_array_equal(gw, [2.0, 0.0, 0.0])
    np.testing.assert_array_equal(gv, [10.0, 100.0])


def test_item_assignment_to_a_constant_leaves_the_users_array_alone():
    data, w = np.zeros(3), wide(7.0)
    with GradientTape() as tape:
        c = Variable(data)
        c[1] = w
        y = (c * c).sum()
    np.testing.assert_array_equal(data, np.zeros(3))
    assert float(tape.gradient(y, w)) == 14.0


def test_item_assignment_to_a_leaf_off_the_tape_assigns():
    w = wide([1.0, 2.0])
    w[0] = 5.0
    np.testing.assert_array_equal(w.data, [5.0, 2.0])
    assert w.is_leaf
    assert w.requires_grad


@pytest.mark.parametrize(
    ("sign", "expected", "slope"),
    [("+=", 7.0, 1.0), ("-=", 3.0, 1.0), ("*=", 10.0, 2.0), ("/=", 2.5, 0.5), ("**=", 25.0, 10.0)],
    ids=["add", "subtract", "multiply", "divide", "power"],
)
def test_in_place_operators_rebind_an_intermediate(sign, expected, slope):
    w = wide(5.0)
    with GradientTape() as tape:
        x = w * 1.0
        old = x
        scope = {"x": x}
        exec(f"x {sign} 2.0", scope)
        x = scope["x"]
    assert float(x) == expected
    assert float(old) == 5.0
    assert float(tape.gradient(x, w)) == slope


def test_in_place_operators_on_a_leaf_off_the_tape_write_to_it():
    w = wide([4.0, 6.0])
    same = w
    w += 2.0
    w -= np.array([1.0, 2.0])
    w *= 2
    w /= 5.0
    w **= 2
    np.testing.assert_allclose(w.data, [4.0, 5.76], rtol=1e-15)
    w //= 0.5
    w %= 5
    assert w is same
    assert w.is_leaf
    np.testing.assert_array_equal(w.data, [3.0, 1.0])


def test_in_place_operators_on_a_leaf_in_a_pause_write_to_it():
    w = wide(4.0)
    same = w
    with GradientTape(), od.no_grad():
        w -= 1.0
    assert w is same
    assert float(w) == 3.0


@pytest.mark.parametrize("strides", [(8, 8), (0, 8), (4, 16), (-8, 8)], ids=repr)
def test_a_constant_whose_elements_lie_on_one_another_is_assigned_elements_of_its_own(strides):
    line = np.arange(8.0)
    v = Variable(np.lib.stride_tricks.as_strided(line[2:], (2, 2), strides))
    v.assign([[10.0, 11.0], [12.0, 13.0]])
    assert v.numpy().tolist() == [[10.0, 11.0], [12.0, 13.0]]
    assert line.tolist() == np.arange(8.0).tolist()


@pytest.mark.parametrize("strides", [(8, 16), (24, 16), (-16, 8), (16, -8)], ids=repr)
def test_a_constant_whose_elements_lie_between_one_another_is_assigned_to(strides):
    line = np.arange(8.0)
    v = Variable(np.lib.stride_tricks.as_strided(line[2:], (2, 2), strides))
    v.assign([[10.0, 11.0], [12.0, 13.0]])
    assert v.numpy().tolist() == [[10.0, 11.0], [12.0, 13.0]]
    assert line.tolist() == np.arange(8.0).tolist()


# ------------------------------------------------------------------ copies


@pytest.mark.parametrize("trainable", [True, False], ids=["trainable", "constant"])
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_leaves_are_leaves_of_their_own(duplicate, trainable):
    w = Variable(np.ones((2, 3), np.float32), requires_grad=trainable, name="w")
    twin = duplicate(w)
    assert (twin.name, twin.dtype, twin.requires_grad) == ("w", np.float32, trainable)
    assert twin.id != w.id
    assert not np.shares_memory(twin.data, w.data)
    np.testing.assert_array_equal(twin.data, w.data)


@pytest.mark.parametrize("kind", [Tagged, Slotted])
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_of_the_class_of_a_user_and_have_what_it_adds(duplicate, kind):
    w = kind([1.0, 2.0], tag=["first"])
    w.grad = np.array([3.0, 4.0])
    twin = duplicate(w)
    assert (type(twin), twin.name, twin.requires_grad) == (kind, "w", True)
    assert twin.data.tolist() == [1.0, 2.0]
    assert twin.grad.tolist() == [3.0, 4.0]
    assert twin.tag == ["first"]
    assert (twin.tag is w.tag) == (duplicate is copy.copy)
    if kind is Slotted:
        assert twin.own is (w if duplicate is copy.copy else twin)
        assert not hasattr(twin, "never")


def result_of(kind):
    """Return a result of 4.0: one of a tape that was left, or one that nothing recorded."""
    w = wide(2.0)
    if kind == "untracked":
        return w * w
    with GradientTape():
        return w * w


@pytest.mark.parametrize("kind", ["recorded", "untracked"])
def test_results_are_not_pickled(kind):
    v = result_of(kind)
    with pytest.raises(TapeError, match=r"detach\(\) it first"):
        pickle.dumps(v)
    assert float(pickle.loads(pickle.dumps(v.detach()))) == 4.0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", ["recorded", "untracked"])
def test_copies_of_results_that_no_tape_follows_are_untracked(duplicate, kind):
    twin = duplicate(result_of(kind))
    assert float(twin) == 4.0
    assert "untracked" in repr(twin)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_results_that_a_tape_follows_are_not_copied(duplicate):
    w = wide(2.0)
    with GradientTape():
        v = w * w
        with pytest.raises(TapeError, match=r"detach\(\) it first"):
            duplicate(v)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integers_and_booleans_cannot_require_gradients(dtype):
    with pytest.raises(DTypeError, match=rf"{dtype} data cannot require gradients.*float64"):
        Variable(np.ones(2, dtype), requires_grad=True)
    c = Variable(np.ones(2, dtype))
    with pytest.raises(DTypeError, match=rf"{dtype} data cannot require gradients"):
        c.requires_grad = True
    assert not c.requires_grad
    with GradientTape() as tape, pytest.raises(DTypeError, match="cannot require gradients"):
        tape.watch(np.ones(2, dtype))


@pytest.mark.parametrize(
    "data",
    ["text", [None], [[1.0], [1.0, 2.0]], object()],
    ids=["text", "none", "ragged", "object"],
)
def test_what_is_no_array_of_numbers_is_refused(data):
    with pytest.raises(DTypeError, match=r"Variable: .*numbers"):
        Variable(data)


def test_unknown_devices_are_refused():
    with pytest.raises(DeviceError, match=r"'tpu' is not available.*'cpu'"):
        Variable(1.0, device="tpu")
    with pytest.raises(DeviceError, match="'tpu' is not available"):
        Variable(1.0).to("tpu")
    w = wide(1.0)
    assert w.to("cpu") is w


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda w: w.item(), ShapeError, r"item: needs one element.*\(2,\)"),
        (float, ShapeError, r"shape \(2,\) is not a single number"),
        (bool, ShapeError, r"is not a single number.*\.any\(\), \.all\(\)"),
        (lambda w: [1, 2, 3][w[0]], DTypeError, "is not an integer"),
        (lambda w: len(w[0]), TypeError, "without axes"),
        (lambda w: iter(w[0]), TypeError, "without axes"),
        (lambda w: w.assign(np.ones(3)), ShapeError, r"shape \(3,\) does not fit"),
        (lambda w: w.assign(1j), DTypeError, "complex128 does not cast to float64"),
        (lambda w: setattr(w, "grad", np.ones(3)), ShapeError, r"gradient of shape \(3,\)"),
        (lambda w: w.backward(), TapeError, r"is not on a tape.*with GradientTape\(\)"),
    ],
    ids=[
        "item",
        "float",
        "bool",
        "index",
        "len",
        "iter",
        "assign_shape",
        "assign_dtype",
        "grad_shape",
        "backward",
    ],
)
def test_misuse_of_a_variable_is_named(use, error, words):
    w = wide([1.0, 2.0])
    with pytest.raises(error, match=words):
        use(w)
    np.testing.assert_array_equal(w.data, [1.0, 2.0])


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "//", "%", "**"])
def test_in_place_operators_on_a_trainable_leaf_under_a_tape_raise(sign):
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        with pytest.raises(TapeError, match=rf"{re.escape(sign)}=: .*trainable leaf under a tape"):
            exec(f"w {sign}= 2.0", {"w": w})
        assert len(tape) == 0
    np.testing.assert_array_equal(w.data, [1.0, 2.0])


def test_item_assignment_to_a_trainable_leaf_under_a_tape_raises():
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        with pytest.raises(TapeError, match=r"item assignment.*trainable leaf under a tape"):
            w[0] = 5.0
        assert len(tape) == 0
    np.testing.assert_array_equal(w.data, [1.0, 2.0])


def test_intermediates_can_be_neither_assigned_nor_frozen():
    w = wide([1.0, 2.0])
    with GradientTape():
        y = w * 2.0
    with pytest.raises(TapeError, match=r"assign: .*is not a leaf"):
        y.assign(0.0)
    with pytest.raises(TapeError, match=r"requires_grad: .*is not a leaf.*detach\(\)"):
        y.requires_grad = False
