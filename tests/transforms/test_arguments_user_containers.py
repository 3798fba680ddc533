"""Dictionaries and lists of users' classes, whose own code does something with their items."""

import numpy as np
import pytest

import odyssey as od
from odyssey.tree import leaves, map_tree

A = np.array([1.0, 2.0, 3.0])


class ItsOwnRoom(dict):
    """Whose items are its attributes."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.__dict__ = self


class Both(dict):
    """Whose items are written to attributes as well."""

    def __init__(self, **items):
        for name, item in items.items():
            self[name] = item

    def __setitem__(self, name, item):
        object.__setattr__(self, name, item)
        super().__setitem__(name, item)


class Doubling(dict):
    """Converts what is written to it."""

    def __setitem__(self, name, item):
        super().__setitem__(name, item * 2.0)


class DoublingList(list):
    """Converts what is written to it."""

    def __setitem__(self, place, item):
        super().__setitem__(place, [one * 2.0 for one in item])


CASES = {
    "its own room": (lambda p: (p.w * p.w).sum(), lambda x: ItsOwnRoom(w=x)),
    "both": (lambda p: (p.w * p["w"]).sum(), lambda x: Both(w=x)),
    "a dictionary that converts": (lambda p: (p["w"] * p["w"]).sum(), lambda x: Doubling(w=x)),
    "a list that converts": (lambda p: (p[0] * p[0]).sum(), lambda x: DoublingList([x])),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_of_the_items_as_they_are(name, compiled):
    fn, make = CASES[name]
    transformed = od.value_and_grad(fn)
    transformed = od.compile(transformed) if compiled else transformed
    for x in (A, A[:2]):
        for k in range(1, 6):
            value, gradient = transformed(make(x * k))
            np.testing.assert_array_equal(value, (x * x).sum() * k * k)
            np.testing.assert_array_equal(leaves(gradient)[0], 2.0 * x * k)
            assert type(gradient) is type(make(x))


def test_items_that_are_attributes_are_so_in_what_is_made():
    for kind in (ItsOwnRoom, Both):
        made = map_tree(lambda leaf: -leaf, kind(w=A))
        assert made.w is made["w"]
        np.testing.assert_array_equal(made.w, -A)
