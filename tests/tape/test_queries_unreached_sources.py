"""A source on which the output does not depend is named before anything is swept."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable
from odyssey.errors import TapeError


def test_a_leaf_beside_a_watched_value_that_was_dropped_is_not_reached():
    x = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        other = tape.watch(3.0) * 2.0
        own = x * 5.0
    with pytest.raises(TapeError, match="does not depend"):
        tape.gradient(other, x)
    assert tape.gradient(own, x) == 5.0


def test_the_first_of_several_sources_without_a_path_is_named():
    x, y, z = (Variable(float(k), requires_grad=True, name=n) for k, n in enumerate("xyz"))
    with GradientTape() as tape:
        out = x * z
        y * z  # recorded, and no part of the output
    with pytest.raises(TapeError, match=r"does not depend on .*'y'"):
        tape.gradient(out, [x, y, z])
    assert tape.gradient(out, [x, z]) == [2.0, 0.0]


def test_one_output_of_a_tree_that_depends_on_a_source_is_enough():
    x = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        a, b = x * 3.0, tape.watch(1.0) * 4.0
    assert tape.gradient([a, b], x) == 3.0


def test_a_source_in_no_container_and_sources_in_an_empty_one_come_back_as_they_were_asked():
    x = Variable(np.array([1.0, 2.0]), requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = (x * x).sum()
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    assert tape.gradient(y, []) == []
    assert list(tape.gradient(y, {"x": x})) == ["x"]
