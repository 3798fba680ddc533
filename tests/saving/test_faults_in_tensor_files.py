"""Stopped at any place, a tensor file is the old one or the new one, and a load all or nothing."""

import errno
import itertools
import os
import signal
import sys
import time

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, atomic_replace
from odyssey.devices.write_guard import GUARD
from odyssey.errors import FileError
from odyssey.table.scope import scopes
from support.faults import FAULTS, RAISED


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(autouse=True)
def _files_that_a_tracer_left_open(monkeypatch):
    """It can raise between the body of a ``with`` and its end, where no signal is handled."""
    monkeypatch.setattr(sys, "unraisablehook", lambda report: None)


def tree(value):
    return {
        "w": Variable(np.full((3, 4), value), requires_grad=True),
        "t": np.full((5, 6), value).T,
        "h": [Variable([value], dtype="float32"), np.array([True, value > 1])],
    }


def look(found):
    return [np.asarray(getattr(leaf, "data", leaf)).tolist() for leaf in od.tree.leaves(found)]


def assert_nothing_left(path):
    assert os.listdir(path.parent) == [path.name]
    assert scopes() == (None,)
    assert not GUARD._is_owned()


def save_with_fault(path, fault, n, old, new):
    path.write_bytes(old)
    with FAULTS[fault](n) as fired:
        try:
            od.save(path, tree(1.0))
        except RAISED:
            assert fired
    assert path.read_bytes() in ((old, new) if fired else (new,)), fired
    assert_nothing_left(path)
    return bool(fired)


def load_with_fault(path, fault, n):
    like = tree(2.0)
    before, after = look(like), look(tree(1.0))
    with FAULTS[fault](n) as fired:
        try:
            od.load(path, like)
        except RAISED:
            assert fired
    found = [v.numpy().tolist() for v in (like["w"], like["h"][0])]
    assert found in ([before[0], before[2]], [after[0], after[2]]), fired
    assert_nothing_left(path)
    return bool(fired)


def read_with_fault(path, fault, n):
    with FAULTS[fault](n) as fired:
        try:
            names = {"w": od.TensorSource("w", transpose=True), "h": ["h.{k}"], "rest": ...}
            od.load_tensors(path, names=names, dtype="float16", mmap=bool(n % 2))
            od.list_tensors(path)
        except RAISED:
            assert fired
    assert_nothing_left(path)
    return bool(fired)


def count_faults(path, act, fault, step):
    od.save(path, tree(2.0))
    old = path.read_bytes()
    od.save(path, tree(1.0))
    new = path.read_bytes()
    places = itertools.count(1, step)
    act_at = {
        "save": lambda n: save_with_fault(path, fault, n, old, new),
        "load": lambda n: load_with_fault(path, fault, n),
        "read": lambda n: read_with_fault(path, fault, n),
    }[act]
    return sum(1 for _ in itertools.takewhile(bool, map(act_at, places)))


@pytest.mark.slow
@pytest.mark.parametrize("act", ["save", "load", "read"])
def test_an_interrupt_at_many_lines_leaves_all_or_nothing(path, act):
    assert count_faults(path, act, "line", 11) > 20


@pytest.mark.soak
@pytest.mark.parametrize("act", ["save", "load", "read"])
def test_an_interrupt_at_any_line_leaves_all_or_nothing(path, act):
    assert count_faults(path, act, "line", 1) > 200


@pytest.mark.slow
@pytest.mark.parametrize("act", ["save", "load", "read"])
def test_an_error_in_any_allocation_leaves_all_or_nothing(path, act):
    assert count_faults(path, act, "allocation", 1) > 1


def test_a_full_disk_at_any_write_leaves_the_old_file(path, monkeypatch):
    od.save(path, tree(2.0))
    old = path.read_bytes()

    class Handle:
        def __init__(self, file, left):
            self.file, self.left = file, left

        def write(self, data):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

    for n in range(5):

        def open_disk(name, mode, left=n):
            return Handle(open(name, mode, buffering=0), left)

        monkeypatch.setattr(atomic_replace, "open", open_disk, raising=False)
        with pytest.raises(FileError, match=r"save: .*make room on the disk.*file is unchanged"):
            od.save(path, tree(1.0))
        with pytest.raises(FileError, match=r"save_tensors: .*make room on the disk"):
            od.save_tensors(path, tree(1.0))
        assert path.read_bytes() == old
        assert_nothing_left(path)
    monkeypatch.undo()
    od.save(path, tree(1.0))
    assert path.read_bytes() != old


def save_until_killed(path, told):
    """Save the numbers 1, 2 and so on, and tell each when its file is complete."""
    try:
        for n in itertools.count(1):
            arrays = {"a": np.full(200_000, n), "b": np.full((300, 400), n).T}
            od.save_tensors(path, arrays)
            os.write(told, n.to_bytes(4, "little"))
    finally:
        os._exit(1)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_kills_at_random_moments_leave_complete_files(path):
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(30):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            save_until_killed(path, write)
        os.close(write)
        first = os.read(read, 4)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = int.from_bytes((first + os.read(read, 1 << 20))[-4:], "little")
        os.close(read)
        found = od.load_tensors(path)
        n = int(found["a"][0])
        assert n in (told, told + 1)
        assert (found["a"] == n).all()
        assert (found["b"] == n).all()
        left = [name for name in os.listdir(path.parent) if name != path.name]
        assert all(name.endswith(".tmp") for name in left)
        outcomes.add((n - told, bool(left)))
        for name in left:
            (path.parent / name).unlink()
    assert any(left for _, left in outcomes)  # some were killed in the middle of a file
