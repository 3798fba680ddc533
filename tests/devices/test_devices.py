"""What an array is, whose it is and how it lies is asked in ``devices/``: few others look."""

import ast
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, NUMPY_SCALARS
from odyssey.devices.ownership import (
    address_of,
    has_overlapping_writes,
    is_uniform,
    memory_span,
    overlaps,
    owner_of,
    owns_memory,
)

PACKAGE = Path(od.__file__).parent

LAYOUT = {"base", "copyto", "setflags", "writeable", "c_contiguous", "f_contiguous", "aligned"}


def looks(file):
    """How often a file asks whether something is NumPy's array, or how one lies in memory."""
    tree = ast.parse(file.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    typed = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}
    return sum(
        (isinstance(node, ast.Attribute) and node.attr in LAYOUT)
        or (getattr(node, "attr", getattr(node, "id", "")) == "ndarray" and id(node) not in typed)
        for node in nodes
    )


# The kernels, the rows and programs, which are written for NumPy's arrays.
KERNELS = (
    "compiler",
    "kernels",
    "table/kernel_overrides.py",
    "table/half_kernels.py",
    "ops",
    "fft",
    "linalg",
    "special",
    "nn",
    "losses",
)

# How often the others look, and why.
ELSEWHERE = {
    "checks.py": 1,  # below devices; for messages
    "tree_objects.py": 3,  # below devices; the commonest leaves, and what makes an object a tree
    "distributed/data_parallel.py": 1,  # a shortcut, for every gradient of a part
    "distributed/group.py": 7,  # what travels lies in the host's memory, in one piece
    "graph/batch_trace.py": 1,  # the class of an example, for who asks
    "graph/trace.py": 2,  # what an array of a run would be, and where it lies, for who asks
    "optim/fused_step.py": 2,  # a gradient that a loop reads
    "optim/flat_parameters.py": 2,  # how a gradient came, and what memory is packed
    "saving/node_format.py": 3,  # files hold arrays of the host
    "saving/restoring.py": 1,  # files hold arrays of the host
    "saving/tensor_files.py": 2,  # maps of files are arrays of the host
    "saving/tensor_loading.py": 1,  # arrays of the host, made by the user's function
    "table/device_rows.py": 6,  # which values of a module are tables, which operands are numbers
    "table/kernel_selection.py": 1,  # which operands are arrays, where rows have other kernels
    "table/fused_rules.py": 1,  # which operands a loop reads, where rules have one
    "table/row.py": 1,  # forward rules of linear rows, which run the kernel on plain arrays
    "table/store.py": 3,  # the store of the host's memory
    "tape/queries.py": 18,  # shortcuts, for every leaf of a sweep; whose the memory of a view is
    "tape/gradient_tape.py": 1,  # shortcuts, for every leaf that a transform watches
    "tape/rounding.py": 3,  # shortcuts, for every array that a node keeps
    "tape/recording.py": 4,  # shortcuts, for every array that a node keeps
    "transforms/arguments.py": 3,  # shortcuts, for every argument of a call
    "variable/variable.py": 7,  # shortcuts: what lies on the host needs no question of devices
}


@pytest.mark.slow
def test_few_files_outside_of_the_devices_look_at_how_an_array_lies():
    found = {}
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        if name.startswith(("devices", *KERNELS)):
            continue
        if count := looks(file):
            found[name] = count
    more = {name: count for name, count in found.items() if count > ELSEWHERE.get(name, 0)}
    assert not more, f"use ARRAYS, ARRAY_LIKE or a question of devices.ownership in {more}"
    assert found.keys() == ELSEWHERE.keys()


def test_arrays_are_what_has_elements_in_memory_and_numbers_of_numpy_are_like_them():
    assert isinstance(np.ones(2), ARRAYS)
    assert not isinstance(np.float64(1.0), ARRAYS)
    assert isinstance(np.float64(1.0), ARRAY_LIKE)
    assert not isinstance([1.0], ARRAY_LIKE)
    assert {np.float64, np.bool_, np.int8, np.complex64} <= NUMPY_SCALARS
    assert not {np.timedelta64, np.datetime64, np.str_, np.object_} & NUMPY_SCALARS


def test_an_array_owns_its_memory_unless_it_is_a_view_or_locked():
    x = np.zeros((3, 4))
    locked = np.zeros(3)
    locked.flags.writeable = False
    assert owns_memory(x)
    assert not any(map(owns_memory, (x[:], x.T, x[0], locked)))
    assert owner_of(x[1:].T[0]) is x
    assert owner_of([1.0]) is None


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "float64", "complex64"])
def test_an_array_is_uniform_if_all_its_elements_have_the_same_bits(dtype):
    x = np.full((3, 5), 1, dtype)
    assert is_uniform(x)
    assert is_uniform(x[:0])
    assert is_uniform(np.broadcast_to(x[0, 0], (7, 2)))
    assert not is_uniform(np.broadcast_to(x[0], (7, 5)))  # which it does not look into
    for k in range(x.size):
        other = x.copy()
        other.flat[k] = 0
        assert not is_uniform(other)


def test_uniform_goes_by_bits_and_not_by_value():
    assert is_uniform(np.full(4, np.nan))
    assert not is_uniform(np.array([np.nan, -np.nan]))
    assert not is_uniform(np.array([0.0, -0.0]))
    assert not is_uniform(np.array([complex(0.0, 0.0), complex(0.0, -0.0)]))


def test_memory_spans_are_the_bounds_of_all_elements():
    rng = np.random.default_rng(3)
    base = np.zeros((6, 7, 8))
    for _ in range(50):
        steps = [int(s) for s in rng.choice([-3, -2, -1, 1, 2], 3)]
        view = base[tuple(slice(None, None, step) for step in steps)].transpose(rng.permutation(3))
        offsets = [np.dot(index, view.strides) for index in np.ndindex(view.shape)]
        first = address_of(view)
        assert memory_span(view) == (first + min(offsets), first + max(offsets) + 8)
    assert memory_span(base[:, :0]) == (address_of(base),) * 2


def test_writes_overlap_if_one_of_two_spans_that_overlap_is_written():
    rng = np.random.default_rng(4)
    outcomes = []
    for _ in range(300):
        starts = rng.integers(0, 30, 4)
        spans = [(int(s), int(s + rng.integers(1, 9)), bool(rng.integers(2))) for s in starts]
        expected = any(
            (one[2] or other[2]) and overlaps(one[:2], [other[:2]])
            for one, other in combinations(spans, 2)
        )
        assert has_overlapping_writes(spans) == expected
        outcomes.append(expected)
    assert set(outcomes) == {True, False}
