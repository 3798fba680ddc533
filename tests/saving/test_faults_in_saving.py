"""Stopped at any place, a save leaves the old file or the new one, and a load all or nothing."""

import errno
import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, atomic_replace, optim
from odyssey.devices.write_guard import GUARD
from odyssey.errors import FileError
from odyssey.table.scope import scopes
from support.faults import FAULTS, RAISED

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.npz"


@pytest.fixture(autouse=True)
def _files_that_a_tracer_left_open(monkeypatch):
    """It can raise between the body of a ``with`` and its end, where no signal is handled."""
    monkeypatch.setattr(sys, "unraisablehook", lambda report: None)


class World:
    """A tree of everything that is filled."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.w = Variable(rng.normal(size=(4, 3)), True)
        self.big = Variable(rng.normal(size=20_000), True)
        self.constant = Variable(rng.normal(size=2))
        self.optimizer = optim.Adam([self.w, self.big], learning_rate=0.1 * (seed + 1))
        self.schedule = optim.ExponentialLR(self.optimizer, 0.5)
        self.rng = rng
        self.legacy = np.random.RandomState(seed)
        for p in (self.w, self.big):
            p.grad = np.ones(p.shape)
        self.optimizer.step()
        self.schedule.step()
        self.number = seed

    def tree(self):
        return {
            "params": [self.w, self.big, self.constant],
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "rng": (self.rng, self.legacy),
            "number": self.number,
        }

    def look(self):
        saved = self.optimizer.state_dict()
        found = [v.numpy().tobytes() for v in (self.w, self.big, self.constant)]
        found += [v.tobytes() for state in saved["state"] for v in state.values()]
        states = (self.rng.bit_generator.state, self.legacy.get_state(), self.schedule.state_dict())
        return [*found, repr(saved["settings"]), *map(repr, states)]


def assert_nothing_left(path):
    assert os.listdir(path.parent) == [path.name]
    assert scopes() == (None,)
    assert not GUARD._is_owned()


def handles():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


# ------------------------------------------------------------------ faults within


def save_whole(path, fault, n, old, new, world):
    """Save with the ``n``-th fault; return whether it came."""
    path.write_bytes(old)
    with FAULTS[fault](n) as fired:
        try:
            od.save(path, world.tree())
        except RAISED:
            assert fired
    assert path.read_bytes() in ((old, new) if fired else (new,)), fired
    assert_nothing_left(path)
    return bool(fired)


def load_whole(path, fault, n, before, after):
    """Load with the ``n``-th fault; return whether it came."""
    world = World(1)
    with FAULTS[fault](n) as fired:
        try:
            od.load(path, world.tree())
        except RAISED:
            assert fired
    assert world.look() in ((before, after) if fired else (after,)), fired
    assert_nothing_left(path)
    od.load(path, world.tree())
    assert world.look() == after
    return bool(fired)


def counted(outcomes):
    return sum(1 for _ in itertools.takewhile(bool, outcomes))


def loop(act, path, fault, start=1, step=1):
    od.save(path, World(1).tree())
    old = path.read_bytes()
    world = World(0)
    od.save(path, world.tree())
    new = path.read_bytes()
    open_before = handles()
    places = itertools.count(start, step)
    if act == "save":
        found = counted(save_whole(path, fault, n, old, new, world) for n in places)
    else:
        before, after = World(1).look(), world.look()
        found = counted(load_whole(path, fault, n, before, after) for n in places)
    gc.collect()
    # Those of the folder, where the interrupt came right before each of the two lines of its end.
    assert handles() <= open_before + 2
    return found


@pytest.mark.slow
@pytest.mark.parametrize("act", ["save", "load"])
def test_an_error_in_any_allocation_leaves_all_or_nothing(path, act):
    assert loop(act, path, "allocation") > 5


@pytest.mark.slow
@pytest.mark.parametrize("act", ["save", "load"])
def test_an_interrupt_at_many_lines_leaves_all_or_nothing(path, act):
    assert loop(act, path, "line", start=3, step=13) > 20


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["line", "opcode"])
@pytest.mark.parametrize("act", ["save", "load"])
def test_an_interrupt_at_any_line_and_opcode_leaves_all_or_nothing(path, act, fault):
    assert loop(act, path, fault, step={"line": 1, "opcode": 7}[fault]) > 200


@pytest.mark.parametrize("where", ["replace", "fsync", "chmod", "open"])
def test_a_refusal_of_the_system_is_told_with_its_reason(path, monkeypatch, where):
    od.save(path, 1)
    before = path.read_bytes()

    def refuse(*args, **named):
        raise PermissionError(errno.EACCES, "Permission denied")

    if where == "open":
        monkeypatch.setattr(atomic_replace, "open", refuse, raising=False)
    else:
        monkeypatch.setattr(os, where, refuse)
    with pytest.raises(
        FileError, match=r"Permission denied; choose .*an existing file is unchanged"
    ):
        od.save(path, 2)
    assert path.read_bytes() == before
    assert_nothing_left(path)


class StopError(Exception):
    """What the handler of a signal raises."""


def under_signals(path, count):
    """Save and load until so many signals came, at random moments; each leaves what was, or is."""
    rng, worlds, armed, came, done = random.Random(5), [World(0), World(1)], [], 0, 0
    looks = [world.look() for world in worlds]
    od.save(path, worlds[0].tree())
    files_of = []
    for world in worlds:
        od.save(path, world.tree())
        files_of.append(path.read_bytes())
    inside, on_disk = 0, 1

    def stop(number, frame):
        if armed:
            armed.clear()
            raise StopError

    filled = World(2)
    start = time.perf_counter()
    od.save(path, worlds[1].tree())
    od.load(path, filled.tree())
    longest = 2 * (time.perf_counter() - start)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        while came < count:
            try:
                armed.append(True)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, longest))
                od.save(path, worlds[1 - on_disk].tree())
                od.load(path, filled.tree())
                armed.clear()
                done += 1
            except StopError:
                came += 1
            found = path.read_bytes()
            assert found in files_of, came
            on_disk = files_of.index(found)
            assert filled.look() in looks, came
            inside += filled.look() == looks[on_disk]
            assert_nothing_left(path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return done, inside


no_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")


@pytest.mark.slow
@no_timers
def test_signals_at_random_moments_leave_all_or_nothing(path):
    assert min(under_signals(path, 150)) > 0


@no_timers
@pytest.mark.soak
def test_five_thousand_signals_leave_all_or_nothing(path):
    assert min(under_signals(path, 5000)) > 0


# ------------------------------------------------------------------ the disk


class Disk:
    """Writes of a file, of which the ``n``-th and those after it do not happen."""

    def __init__(self, n, fail):
        self.left = n
        self.fail = fail

    def open(self, name, mode):
        return Handle(open(name, mode, buffering=0), self)

    def count(self):
        self.left -= 1
        if self.left < 0:
            self.fail()


class Handle:
    """A file whose writes are counted, and go to the system at once."""

    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def write(self, data):
        self.disk.count()
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_at_any_write_leaves_the_old_file(path, monkeypatch):
    od.save(path, World(1).tree())
    old, world = path.read_bytes(), World(0)
    for n in itertools.count():
        disk = Disk(n, full)
        monkeypatch.setattr(atomic_replace, "open", disk.open, raising=False)
        said = None
        try:
            od.save(path, world.tree())
        except FileError as error:
            said = (error.errno, str(error))
        assert_nothing_left(path)
        if said is None:
            assert n > 20
            assert path.read_bytes() != old
            return
        assert path.read_bytes() == old
        assert said[0] == errno.ENOSPC
        assert "make room on the disk" in said[1]


def test_a_limit_on_the_size_of_files_leaves_the_old_file(path):
    program = """
import os, resource, sys
import numpy as np
import odyssey as od

od.save(sys.argv[1], np.zeros(10))
before = open(sys.argv[1], "rb").read()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    od.save(sys.argv[1], [np.zeros(10), np.zeros(100_000)])
except od.errors.FileError as error:
    print(error.errno)
assert open(sys.argv[1], "rb").read() == before
print(os.listdir(os.path.dirname(sys.argv[1])))
"""
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(errno.EFBIG), f"['{path.name}']"], done.stderr


# ------------------------------------------------------------------ kills


def die():
    os._exit(9)


def killed_at(n, path, world):
    """Save in a child that dies at its ``n``-th call of the system; return whether it died."""
    child = os.fork()
    if not child:
        try:
            disk = Disk(n, die)
            atomic_replace.open = disk.open
            for name in ("chmod", "fsync", "replace", "unlink"):
                setattr(os, name, _counted(getattr(os, name), disk))
            od.save(path, world.tree())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def _counted(call, disk):
    def counting(*args):
        disk.count()
        return call(*args)

    return counting


@pytest.mark.slow
@needs_fork
def test_a_kill_at_any_write_leaves_the_old_file_or_the_new_one(path):
    world = World(0)
    od.save(path, world.tree())
    new = path.read_bytes()
    od.save(path, World(1).tree())
    old = path.read_bytes()
    seen = set()
    for n in itertools.count():
        path.write_bytes(old)
        died = killed_at(n, path, world)
        found = path.read_bytes()
        assert found in (old, new)
        seen.add(found)
        for name in os.listdir(path.parent):
            assert name == path.name or name.endswith(".tmp")
            if name != path.name:
                (path.parent / name).unlink()
        if not died:
            assert found == new
            assert n > 25
            assert len(seen) == 2
            return


@pytest.mark.soak
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL here")
def test_kills_at_random_moments_leave_a_file_that_can_be_loaded(path):
    program = """
import sys, itertools
import numpy as np
import odyssey as od
for n in itertools.count():
    od.save(sys.argv[1], [np.full(200_000, n), n])
    print(n, flush=True)
"""
    rng = np.random.default_rng(0)
    for _ in range(40):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
        )
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        child.kill()
        told = [0, *map(int, child.stdout.read().split())]
        child.wait()
        array, n = od.load(path, [np.zeros(200_000, int), 0])
        assert n in (told[-1], told[-1] + 1)
        assert (array == n).all()
