"""States not in the order of C: what a program leaves in them, and in the caller's array."""

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.devices.copy_on_write import StateMemory, packed_view

pytestmark = pytest.mark.share(14)

SHAPE = (3, 4)
# By name, where elements lie in a larger array, and how that is ordered.
LAYOUTS = {
    "C": ((3, 4), "C", np.s_[:]),
    "Fortran": ((3, 4), "F", np.s_[:]),
    "every second column": ((3, 8), "C", np.s_[:, ::2]),
    "every second row": ((7, 4), "C", np.s_[1::2]),
    "backward": ((5, 9), "C", np.s_[3:0:-1, 7::-2]),
}
UPDATES = {
    "elementwise": lambda r, x: r * 0.5 + x,
    "never read": lambda r, x: ops.broadcast_to(x, SHAPE) * 1.0,
    "an element": lambda r, x: ops.setitem(r, x.sum(), (0, 1)),
    "a column": lambda r, x: ops.setitem(r, x[:3], (slice(None), 1)),
    "at other places": lambda r, x: r[::-1] + x,
    "of another order": lambda r, x: ops.reshape(ops.transpose(r), SHAPE) + x,
    "a product": lambda r, x: r @ ops.outer(x, x) * 0.1,
    "a scan": lambda r, x: ops.cumsum(r, 0) + x,
    "joined": lambda r, x: ops.concatenate([r[:, 1:], r[:, :1]], 1),
    "sorted": lambda r, x: ops.sort(r + x, axis=0),
    "behind a check": lambda r, x: r + ops.take(x, ops.astype(ops.absolute(x), np.int64) % 4),
    "of itself": lambda r, x: ops.where(r > 1.0, ops.roll(r, 1, 1), x),
}


def made(layout):
    """An array, and what it is a part of."""
    shape, order, key = LAYOUTS[layout]
    whole = np.full(shape, 99.0, order=order)
    part = whole[key]
    part[...] = np.random.default_rng(3).integers(-9, 9, SHAPE)
    return part, whole


def left(layout, update, written, compiled):
    """What a Variable, and what lies around its array, are after each of some calls."""
    array, whole = made(layout)
    r = Variable(array, requires_grad=written == "trained")
    if written == "pinned":  # as the state of an optimizer, which is written in place
        r._array = packed_view(whole.view(StateMemory)[LAYOUTS[layout][2]])

    def fn(x):
        if written == "bound anew":
            r[...] = UPDATES[update](r, x)
        else:
            r.assign(UPDATES[update](r.detach(), x))
        return x.sum()

    use, found = od.compile(fn, check=True) if compiled else fn, []
    for k in range(4):
        use(np.arange(4.0) - k)
        found.append((r.numpy().tolist(), whole.tolist()))
    return found, use


@pytest.mark.parametrize("written", ["assigned", "bound anew", "trained"])
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_state_is_written_as_in_eager_code_and_its_caller_keeps_the_array(
    layout, update, written
):
    eager, _ = left(layout, update, written, False)
    compiled, use = left(layout, update, written, True)
    np.testing.assert_allclose([one for one, _ in compiled], [one for one, _ in eager], rtol=1e-13)
    for one, other in zip(compiled, eager, strict=True):
        assert one[1] == other[1] == made(layout)[1].tolist()
    assert use.statistics().native == 3


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pinned_state_is_written_where_its_elements_lie(layout, update):
    eager, _ = left(layout, update, "pinned", False)
    compiled, use = left(layout, update, "pinned", True)
    for one, other in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-13)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-13)
    key = LAYOUTS[layout][2]
    np.testing.assert_array_equal(np.array(compiled[-1][1])[key], compiled[-1][0])
    assert use.statistics().native == 3


def test_states_that_lie_otherwise_may_change_places():
    def world(compiled):
        one = Variable(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
        other = Variable(np.arange(12.0).reshape(2, 6)[:, ::-2])

        def swap(x):
            before = one * 1.0
            one.assign(other[::-1])
            other.assign(before + x)

        use = od.compile(swap) if compiled else swap
        for k in range(5):
            use(np.full(3, k))
        return one.numpy(), other.numpy()

    np.testing.assert_array_equal(world(True), world(False))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
def test_a_state_whose_elements_share_memory_is_read_as_it_lies_and_written_in_its_own(compiled):
    line = np.arange(1.0, 6.0)
    r = Variable(np.lib.stride_tricks.as_strided(line, (4, 2), (8, 8)))
    mean = od.compile(lambda x: (r * x).mean()) if compiled else lambda x: (r * x).mean()

    def fn(x):
        r.assign(r * 0.5 + x)

    use = od.compile(fn) if compiled else fn
    for _ in range(4):
        assert mean(np.ones(2)).item() == 3.0
    expected = np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [4.0, 5.0]])
    for k in range(4):
        use(np.full(2, k))
        expected = expected * 0.5 + k
        np.testing.assert_array_equal(r.numpy(), expected)
        assert mean(np.ones(2)).item() == expected.mean()
    assert line.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("limits", [{}, {"memory_limit": 9999}, {"memory_budget": 9999}], ids=repr)
def test_a_state_that_is_not_aligned_is_written_in_memory_of_its_own(limits):
    records = np.zeros(4, [("byte", "i1"), ("number", "f8")])
    r = Variable(records["number"])

    @od.compile(**limits)
    def fn(x):
        r.assign(r + x)

    for _ in range(3):
        fn(np.ones(4))
    assert r.numpy().tolist() == [3.0] * 4
    assert records["number"].tolist() == [0.0] * 4
