"""Where nobody else has the memory of a view that a rule gave, its owner is handed out."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.tape import queries


def leaf(*shape):
    return Variable(np.arange(1.0, np.prod(shape) + 1).reshape(shape), requires_grad=True)


def test_one_view_of_all_memory_counts_and_parts_and_shared_ones_do_not():
    fresh = np.zeros(6).reshape(2, 3)
    assert queries._is_sole_full_view(fresh)
    owner = np.zeros(6)
    assert not queries._is_sole_full_view(owner.reshape(2, 3))  # the owner has a name
    other = fresh[:1]
    assert not queries._is_sole_full_view(fresh)
    del other
    assert queries._is_sole_full_view(fresh)
    for part in (np.zeros(6)[:3], np.zeros((2, 3)).T, np.broadcast_to(np.zeros(1), 3)):
        assert not queries._is_sole_full_view(part)
    assert not queries._is_sole_full_view(np.zeros(3, complex).view(float))
    closed = np.zeros(6).reshape(2, 3)
    closed.base.flags.writeable = False
    assert not queries._is_sole_full_view(closed)


def test_in_doubt_about_references_every_view_is_copied(monkeypatch):
    monkeypatch.setattr(queries, "_ONE_VIEW", 0)
    assert not queries._is_sole_full_view(np.zeros(6).reshape(2, 3))


@pytest.mark.parametrize("persistent", [False, True])
def test_no_two_gradients_and_no_cotangent_share_memory(persistent):
    x, y = leaf(2, 3), leaf(6)
    g = np.arange(6.0)
    with GradientTape(persistent=persistent) as tape:
        out = x.reshape(6) + y
    found = tape.gradient(out, [x, y], g)
    for one in found:
        one += 100.0
    assert g.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert found[0].reshape(6).tolist() == found[1].tolist() == [100.0 + k for k in range(6)]
    if persistent:
        again = tape.gradient(out, [x, y], g)
        assert again[0].reshape(6).tolist() == again[1].tolist() == g.tolist()


def test_what_a_mapping_of_a_sweep_shows_is_apart_from_the_gradients_of_leaves():
    x = leaf(2, 3)
    with GradientTape() as tape:
        flat = ops.reshape(x, (6,))
        out = (flat * flat).sum()
    shown = tape.backward(out)
    x.grad[...] = 0.0
    assert shown[flat].tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert shown[x].reshape(6).tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_the_gradient_of_a_diagonal_is_its_own_array_to_write_to():
    x = leaf(4, 4)
    with GradientTape() as tape:
        out = ops.sum(ops.einsum("ii->i", x))
    found = tape.gradient(out, x)
    found *= 2.0
    assert found.flags.owndata
    assert np.array_equal(found, 2 * np.eye(4))
    assert np.array_equal(x.data, np.arange(1.0, 17).reshape(4, 4))
