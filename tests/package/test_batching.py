"""Batches: every example once an epoch, orders by the generator, saved in the middle, refusals."""

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import DTypeError, OdysseyError, SettingError, ShapeError

DATA = {"x": np.arange(20.0).reshape(10, 2), "y": np.arange(10)}


def epoch_of(data):
    return [batch["y"].tolist() for batch in data]


def test_every_example_comes_once_in_an_epoch_with_its_partners():
    data = od.batches(DATA, 4, rng=od.Generator(1))
    assert len(data) == 3
    orders = []
    for epoch in range(3):
        assert data.epoch == epoch
        found = list(data)
        assert [len(batch["y"]) for batch in found] == [4, 4, 2]
        for batch in found:
            np.testing.assert_array_equal(batch["x"][:, 0], 2.0 * batch["y"])
        orders.append(np.concatenate([batch["y"] for batch in found]).tolist())
        assert sorted(orders[-1]) == list(range(10))
    assert orders[0] != orders[1] != orders[2] != orders[0]
    again = od.batches(DATA, 4, rng=od.Generator(1))
    assert np.concatenate(epoch_of(again)).tolist() == orders[0]


def test_without_shuffling_batches_are_slices_in_order_and_no_generator_moves():
    rng = od.Generator(1)
    data = od.batches(DATA, 4, rng=rng, shuffle=False)
    assert epoch_of(data) == epoch_of(data) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert rng.state == od.Generator(1).state
    short = od.batches((DATA["y"],), 4, shuffle=False, drop_last=True)
    assert len(short) == 2
    assert [batch[0].tolist() for batch in short] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (short.epoch, short.position) == (1, 0)


def test_all_orders_of_three_are_equally_frequent():
    data = od.batches(np.array([9, 3, 1]), 3, rng=od.Generator(2))
    counts = np.bincount([int(next(data) @ [0, 1, 2]) for _ in range(600)])
    counts = counts[counts > 0]
    assert len(counts) == 6
    # Of a chi-squared variable of 5 degrees the 0.9999 quantile is 25.7.
    assert ((counts - 100) ** 2 / 100).sum() < 25.7


@pytest.mark.parametrize("drawn", [0, 1, 3, 5])
def test_saved_in_the_middle_they_go_on_with_the_batches_to_come(tmp_path, drawn):
    data, other = (od.batches(DATA, 4, rng=od.Generator(seed)) for seed in (1, 2))
    for _ in range(drawn):
        next(data)
    next(other)
    od.save(tmp_path / "data.npz", {"data": data})
    loaded = od.load(tmp_path / "data.npz", like={"data": other})
    assert loaded["data"] is other
    assert epoch_of(other) == epoch_of(data)
    assert epoch_of(other) == epoch_of(data)


def test_a_loop_that_was_left_goes_on_in_its_epoch():
    data = od.batches(DATA, 4, rng=od.Generator(1))
    whole = epoch_of(od.batches(DATA, 4, rng=od.Generator(1)))
    for _ in data:
        break
    assert epoch_of(data) == whole[1:]
    assert data.epoch == 1
    assert repr(data) == "Batches(2 arrays of 10 examples, size=4, epoch=1, position=0)"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: od.batches({"x": np.ones(3), "y": np.ones(4)}, 2), ShapeError, "equally many"),
        (lambda: od.batches(np.array(1.0), 2), ShapeError, "equally many"),
        (lambda: od.batches([], 2), ShapeError, "equally many"),
        (lambda: od.batches(np.ones((0, 2)), 2), ShapeError, "fewer than one batch"),
        (lambda: od.batches(np.ones(3), 4, drop_last=True), ShapeError, "fewer than one batch"),
        (lambda: od.batches(np.ones(3), 0), SettingError, "size=0"),
        (lambda: od.batches(np.ones(3), 1, rng=np.random.default_rng(0)), DTypeError, "Generator"),
        (lambda: od.batches(DATA, 4).load_state_dict({}), OdysseyError, "state_dict"),
    ],
)
def test_what_makes_no_batches_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_state_of_other_data_is_refused_and_changes_nothing():
    data, other = od.batches(DATA, 4), od.batches(np.arange(11), 4)
    before = data.state_dict()
    with pytest.raises(ShapeError, match="of 11 examples, not of 10"):
        data.load_state_dict(other.state_dict())
    assert data.state_dict() == before
