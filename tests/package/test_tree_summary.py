"""``od.summary``: one row for each array, and totals that count shared arrays once."""

import numpy as np

import odyssey as od


def test_a_summary_has_the_arrays_of_a_tree_in_order():
    w = od.Variable(np.zeros((3, 2), np.float32), requires_grad=True, name="weight")
    tree = {"w": w, "again": [w, np.zeros(4)], "steps": 7, "c": od.Variable(1 + 2j)}
    found = od.summary(tree)
    assert [row.path for row in found] == ["['w']", "['again'][0]", "['again'][1]", "['c']"]
    assert [row.shape for row in found] == [(3, 2), (3, 2), (4,), ()]
    assert [row.dtype for row in found] == ["float32", "float32", "float64", "complex128"]
    assert [row.bytes for row in found] == [24, 24, 32, 16]
    assert [row.trainable for row in found] == [True, True, False, False]
    assert (found.size, found.bytes, found.trainable) == (11, 72, 6)
    lines = repr(found).splitlines()
    assert len(lines) == 7
    assert len({line.index("float") for line in lines[1:4]}) == 1
    assert "weight" in lines[1]


def test_a_summary_of_nothing_and_of_one_array():
    assert od.summary({}).bytes == 0
    assert [row.path for row in od.summary(np.zeros(2))] == ["tree"]
