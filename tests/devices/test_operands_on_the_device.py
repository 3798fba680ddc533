"""Operands, numbers and index keys beside arrays of a device: what passes, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DeviceError, OutOfRangeError, TapeError
from support.mapped import second_order
from support.on_device import DEVICE, assert_same_on_both, constant, host, is_on_device, leaf

pytestmark = pytest.mark.usefixtures("standin")

DATA = np.arange(12.0).reshape(4, 3)

# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    "number", [2, 2.0, True, np.float32(2), np.int64(2), np.array(2.0)], ids=repr
)
@pytest.mark.parametrize("op", ["multiply", "equal", "maximum", "power"])
def test_numbers_of_python_and_numpy_pass_on_either_side(op, number):
    def program(device):
        x = leaf([1.0, 2.0, 3.0], device)
        op_of = getattr(ops, op)
        return [op_of(x, number), op_of(number, x), getattr(np, op)(number, x)]

    assert all(map(is_on_device, assert_same_on_both(program)))


def test_numpys_numbers_keep_their_dtype_and_gradients_flow_beside_them():
    def program(device):
        x = leaf(np.float32([1.0, 2.0]), device)
        with GradientTape() as tape:
            y = (x * np.float64(3.0) / np.array(2.0) == x) * x + np.float64(2.0) * x
        tape.backward(y, grad=np.ones(2))
        return y, x.grad

    assert_same_on_both(program)


SCALARS = {
    "of a number": lambda: Variable(2.0),
    "of a sum": lambda: Variable([1.0, 1.0], requires_grad=True).sum(),
    "of an element": lambda: Variable([1.0, 2.0])[1],
}


@pytest.mark.parametrize("scalar", SCALARS.values(), ids=list(SCALARS))
def test_a_variable_of_the_host_is_refused_beside_a_device_also_without_axes(scalar):
    x, s = leaf([1.0, 2.0], DEVICE), scalar()
    for apply in (
        lambda: x * s,
        lambda: s * x,
        lambda: x == s,
        lambda: ops.where(x > 0.0, x, s),
        lambda: ops.stack([x[0], s]),
        lambda: ops.linear(x, Variable(np.ones((2, 3)), device=DEVICE), s),
        lambda: np.add(s, x),
    ):
        with pytest.raises(DeviceError, match="on one device") as caught:
            apply()
        assert DEVICE in str(caught.value)
        assert "cpu" in str(caught.value)


def test_a_composite_names_itself_where_operands_lie_on_two_devices():
    x = leaf([1.0, 2.0], DEVICE)
    with pytest.raises(DeviceError, match=r"^interp: .* is on cuda:1 and .* on cuda:0"):
        ops.interp(x, leaf([0.0, 3.0], "cuda:0"), leaf([1.0, 2.0], "cuda:0"))


# ------------------------------------------------------------------ index keys

KEYS = {
    "integers": np.array([0, 2, 2, -1]),
    "along the second axis": (slice(None), np.array([2, 0])),
    "pairs": (np.array([0, 3, 3]), np.array([1, -1, -1])),
    "with a slice": (np.array([3, 3]), slice(0, 2)),
    "of two axes": np.array([[0, 1], [1, 3]]),
    "small unsigned": np.array([1, 3], np.uint8),
    "a mask": np.array([True, False, True, True]),
    "a mask of all axes": DATA % 2 == 0,
    "a mask and integers": (np.array([True, False, False, True]), np.array([0, 2])),
    "one place": np.array(2),
    "none": np.array([], np.intp),
}


def _place(key, place):
    if isinstance(key, tuple):
        return tuple(_place(part, place) for part in key)
    return place(key) if isinstance(key, np.ndarray) else key


PLACES = {
    "a Variable": lambda key: Variable(key, device="cuda:1"),
    "an array of the device": lambda key: Variable(key, device="cuda:1").data,
    "an array of the host": lambda key: key,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_key_on_the_device_reads_and_writes_what_numpys_does(key, place):
    x = leaf(DATA, "cuda:1")
    with GradientTape(persistent=True) as tape:
        y = x[_place(key, place)]
        loss = (y * y * y).sum()
        slope = tape.gradient(loss, x, create_graph=True)
        total = slope.sum()
    expected = np.zeros_like(DATA)
    np.add.at(expected, key, 3 * DATA[key] ** 2)
    second = np.zeros_like(DATA)
    np.add.at(second, key, np.ones(DATA[key].shape))
    np.testing.assert_array_equal(y.numpy(), DATA[key])
    np.testing.assert_array_equal(slope.numpy(), expected)
    # The slope is 3 n x**2 where an element was read n times.
    np.testing.assert_array_equal(host(tape.gradient(total, x)), 6 * DATA * second)
    written, zeros = DATA.copy(), ops.setitem(x, 0.0, _place(key, place))
    written[key] = 0.0
    np.testing.assert_array_equal(zeros.numpy(), written)
    assert str(y.device) == str(slope.device) == str(zeros.device) == "cuda:1"


OUTSIDE = {
    "too large": (np.array([0, 4]), 4, 0),
    "too small": (np.array([-5, 0]), -5, 0),
    "second axis": ((slice(None), np.array([3])), 3, 1),
    "behind dots": ((..., np.array([-4])), -4, 1),
    "pairs": ((np.array([0, 1]), np.array([0, 3])), 3, 1),
    "behind a mask": ((np.array([True, False, False, False]), np.array([7])), 7, 1),
    "one place": (np.array(4), 4, 0),
}


@pytest.mark.parametrize(("key", "index", "axis"), OUTSIDE.values(), ids=list(OUTSIDE))
@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_an_index_out_of_range_raises_on_the_device_where_cupy_wraps(key, index, axis, place):
    x = Variable(DATA, device="cuda:1")
    size = DATA.shape[axis]
    text = f"index {index} is out of bounds for axis {axis} with size {size}"
    part = np.zeros(DATA[_place(key, np.zeros_like)].shape)
    for apply in (
        lambda key: x[key],
        lambda key: ops.setitem(x, 0.0, key),
        lambda key: od.vmap(lambda row: row[key])(ops.stack([x, x])),
        lambda key: ops.add_at(Variable(part, device="cuda:1"), key, od.Spec((4, 3), np.float64)),
    ):
        with pytest.raises(OutOfRangeError, match=r"out of bounds") as caught:
            apply(_place(key, place))
    with pytest.raises(OutOfRangeError, match=text):
        x[_place(key, place)]
    assert caught.value is not None


@pytest.mark.parametrize("index", [3, -4])
def test_indices_that_are_operands_are_checked_on_the_device(index):
    x = Variable(DATA, device=DEVICE)
    places = Variable(np.array([[index]] * 4), device=DEVICE)
    text = f"index {index} is out of bounds for axis 1 with size 3"
    for apply in (
        lambda: ops.take(x, places, axis=1),
        lambda: ops.take_along_axis(x, places, axis=1),
        lambda: ops.put_along_axis(x, places, 0.0, axis=1),
    ):
        with pytest.raises(OutOfRangeError, match=text):
            apply()


def test_a_key_on_another_device_than_the_array_is_refused():
    key = np.array([0, 1])
    for x, place in ((leaf(DATA, DEVICE), "cuda:0"), (leaf(DATA, "cpu"), "cuda:1")):
        for placed in (constant(key, place), (constant(key, place), slice(0, 1))):
            with pytest.raises(DeviceError, match=f"getitem: x is on c.* and key on {place}"):
                x[placed]
            with pytest.raises(DeviceError, match=f"setitem: x is on c.* and key on {place}"):
                ops.setitem(x, 0.0, placed)


def test_a_list_of_positions_on_any_device_is_a_key_of_the_host():
    x = leaf(DATA, DEVICE)
    positions = [Variable(2, device="cuda:0"), Variable(0, device=DEVICE), 1]
    np.testing.assert_array_equal(x[positions].numpy(), DATA[[2, 0, 1]])


# ------------------------------------------------------------------ what is imported

UNUSED = (
    *("odyssey.table.device_rows", "odyssey.devices.device_cache", "odyssey.devices.namespace"),
    *("odyssey.devices.cupy_backend", "odyssey.kernels.cuda", "odyssey.optim.device_parameters"),
)


def test_what_serves_devices_alone_is_imported_at_the_first_use_of_one():
    script = f"""
import sys
import odyssey as od
w = od.Variable([1.0], requires_grad=True)
with od.GradientTape() as tape:
    loss = (w * w).sum()
tape.backward(loss)
od.optim.SGD([w], 0.1).step()
print([name for name in {UNUSED} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


PADDINGS = {
    "one": ("constant", lambda device: {"constant_values": constant(np.array(3.0), device)}),
    "a pair": ("constant", lambda device: {"constant_values": constant(np.array([3, 4]), device)}),
    "of the host": ("constant", lambda _: {"constant_values": np.array([[1, 2], [3, 4]])}),
    "ramps": ("linear_ramp", lambda device: {"end_values": constant(np.array([1, 2]), device)}),
}


@pytest.mark.parametrize(("mode", "options"), PADDINGS.values(), ids=list(PADDINGS))
def test_values_around_a_padded_array_may_be_variables(mode, options):
    def program(device):
        x = leaf(np.arange(6.0).reshape(2, 3), device)
        twice = second_order(lambda x: ops.pad(x, ((1, 0), (2, 1)), mode, **options(device)), (0,))
        rows = od.vmap(lambda row: ops.pad(row, 1, "constant", constant_values=row.dtype.type(2)))
        return ops.pad(x, 1, mode, **options(device)), rows(x), *twice(x)

    assert_same_on_both(program)


def test_values_around_a_padded_array_lie_on_its_device_and_carry_no_gradient():
    x = constant(np.ones(2), DEVICE)
    with pytest.raises(DeviceError, match="pad: constant_values is on cuda:0, and must be on cuda"):
        ops.pad(x, 1, constant_values=constant(np.array(3.0), "cuda:0"))
    w = leaf(np.array(3.0), DEVICE)
    with od.GradientTape(), pytest.raises(TapeError, match="the array would carry no gradient"):
        ops.pad(x, 1, constant_values=w * 2.0)


def test_sparse_rows_are_made_of_variables():
    def program(device):
        given = leaf(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), device)
        rows = od.SparseRows(constant(np.array([2, 0, -2]), device), given, (4, 2))
        empty = od.SparseRows(constant(np.zeros(0, int), device), given[:0], (4, 2))
        given.assign(np.zeros((3, 2)))  # the rows have numbers of their own
        return rows, rows.coalesce(), empty, (rows + rows) * 0.5

    made = assert_same_on_both(program)
    assert is_on_device(made[0].values)
    assert is_on_device(made[0].indices)


def test_sparse_rows_of_variables_refuse_what_those_of_the_cpu_refuse():
    rows = constant(np.ones((2, 2)), DEVICE)
    with pytest.raises(OutOfRangeError, match="index 4 is out of range for 4 rows"):
        od.SparseRows(constant(np.array([0, 4]), DEVICE), rows, (4, 2))
    with pytest.raises(DeviceError, match="the array of indices is on cuda:0, and must be on cuda"):
        od.SparseRows(constant(np.array([0, 1]), "cuda:0"), rows, (4, 2))
    with od.GradientTape(), pytest.raises(TapeError, match="the array would carry no gradient"):
        od.SparseRows([0, 1], leaf(np.ones((2, 2)), DEVICE) * 2.0, (4, 2))
