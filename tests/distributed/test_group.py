"""Groups of processes: collectives on arrays, their errors, and the group of one."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey.distributed.board import WAITING, Board
from odyssey.distributed.group import make_world
from odyssey.distributed.ordered_sums import add_in_tree_order, slices_of
from odyssey.errors import DistributedError, DTypeError, SettingError, ShapeError
from support.ranks import needs_mpi, run_ranks

# ------------------------------------------------------------------ one process


def test_the_world_without_a_launcher_is_a_group_of_one_and_always_the_same():
    group = od.distributed.world()
    assert (group.rank, group.size, group.waited) == (0, 1, 0.0)
    assert od.distributed.world() is group
    group.barrier()
    group.agree(np.ones(3), {"a": 1})
    assert group.split(3).size == 1


@pytest.mark.slow
def test_neither_importing_odyssey_nor_a_group_of_one_loads_mpi():
    code = (
        "import sys, odyssey as od; assert 'odyssey.distributed' not in sys.modules;"
        "od.distributed.world().all_reduce([1.0]); assert 'mpi4py' not in sys.modules"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI"))}
    subprocess.run([sys.executable, "-c", code], check=True, env=clean)


def test_a_launched_process_without_mpi4py_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DistributedError, match=r"one of 4, .* pip install 'odyssey\[dist\]'"):
        make_world({"PMI_SIZE": "4"})
    with pytest.raises(DistributedError, match="one of several"):
        make_world({"PMIX_RANK": "0"})
    assert make_world({"OMPI_COMM_WORLD_SIZE": "1"}).size == 1


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan", ""])
def test_a_timeout_is_seconds_above_0(text):
    with pytest.raises(SettingError, match=r"ODYSSEY_TIMEOUT is .*seconds above 0"):
        make_world({"ODYSSEY_TIMEOUT": text})


def test_the_timeout_is_that_of_the_environment_and_can_be_set():
    group = make_world({"ODYSSEY_TIMEOUT": "2.5"})
    assert group.timeout == 2.5
    assert group.split(0).timeout == 2.5
    group.timeout = 3
    assert group.timeout == 3.0
    for wrong in (0, -1.0, np.inf, np.nan, "1", None):
        with pytest.raises((SettingError, DTypeError), match="timeout"):
            group.timeout = wrong
    assert group.timeout == 3.0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
def test_slices_cover_a_flat_array_in_order_and_begin_at_cache_lines(size):
    for length in (0, 1, 5, 16, 100, 1000, 4096, 12345):
        slices = slices_of(length, size)
        assert len(slices) == size
        assert np.concatenate([np.arange(length)[s] for s in slices]).tolist() == [*range(length)]
        if length >= 16 * size:
            assert all(s.start % 16 == 0 or s.start == length for s in slices)
            longest = max(s.stop - s.start for s in slices)
            assert longest <= length / size + 16


def test_sums_are_balanced_trees_over_ranks():
    # Of numbers whose sum depends on the order: 1e16 + 1 rounds to 1e16.
    a, b, c, d = np.array([1e16]), np.array([1.0]), np.array([1.0]), np.array([-1e16])
    assert add_in_tree_order([x.copy() for x in (a, b, c, d)])[0] == (1e16 + 1.0) + (1.0 - 1e16)
    assert add_in_tree_order([x.copy() for x in (a, d, b)])[0] == 1.0
    own = b.copy()
    out = np.zeros(1)
    assert add_in_tree_order([a.copy(), own, c.copy()], 1, out) is out
    assert own[0] == 1.0


def test_a_group_of_one_returns_copies():
    group = od.distributed.world()
    x = np.arange(6.0).reshape(2, 3)[:, ::-1]
    for name in ("all_reduce", "broadcast", "shift"):
        y = getattr(group, name)(x)
        assert y.tolist() == x.tolist()
        assert not np.may_share_memory(x, y)
    assert group.all_gather(x).shape == (1, 2, 3)
    assert group.reduce_scatter(x[None]).tolist() == x.tolist()
    assert group.all_reduce([True, False]).dtype == np.int64


def test_a_group_of_one_is_differentiated_and_compiled():
    group = od.distributed.world()

    def loss(x):
        y = group.shift(group.broadcast(group.all_reduce(x * x)))
        return (group.reduce_scatter(group.all_gather(y)) * (group.rank + group.size)).sum()

    x = np.array([1.0, 2.0, 3.0])
    assert od.grad(loss)(x).tolist() == [2.0, 4.0, 6.0]
    step = od.compile(od.grad(loss), fullgraph=True)
    for _ in range(3):
        assert step(x).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.broadcast([1.0], 1), SettingError, "root is 1, in a group of 1"),
        (lambda g: g.broadcast([1.0], -1), SettingError, "root"),
        (lambda g: g.broadcast([1.0], 0.0), DTypeError, "root"),
        (lambda g: g.shift([1.0], "1"), DTypeError, "by"),
        (lambda g: g.all_reduce([1.0], "slow"), SettingError, "'ordered' or 'fast'"),
        (lambda g: g.all_reduce("a"), DTypeError, "all_reduce"),
        (lambda g: g.all_reduce(np.array([None])), DTypeError, "all_reduce"),
        (lambda g: g.all_gather(np.ma.array([1.0], mask=[True])), DTypeError, "masked"),
        (lambda g: g.reduce_scatter([1.0, 2.0]), ShapeError, "one row for each rank, 1"),
        (lambda g: g.reduce_scatter(1.0), ShapeError, r"shape \(\)"),
        (lambda g: g.split(-1), SettingError, "color"),
        (lambda g: g.split("red"), DTypeError, "color"),
        (lambda g: g.slices(-1), SettingError, "length"),
        (lambda g: g.sum_slices([1.0]), DTypeError, "expected an array of NumPy"),
        (lambda g: g.sum_slices(np.ones((2, 2))), ShapeError, "contiguous"),
        (lambda g: g.sum_slices(np.ones(4)[::2]), ShapeError, "strides"),
        (lambda g: g.sum_slices(np.ones(2, np.float16)), DTypeError, "float32"),
        (lambda g: g.sum_slices(np.ones(2, bool)), DTypeError, "int64"),
        (lambda g: g.sum_slices(np.ones(2, ">f8")), DTypeError, ">f8"),
        (lambda g: g.gather_slices(np.broadcast_to(1.0, 1)), SettingError, "read-only"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(od.distributed.world())


@pytest.mark.parametrize("door", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_group_is_not_copied_or_pickled(door):
    with pytest.raises(DistributedError, match="not copied or saved"):
        door(od.distributed.world())


def test_a_board_has_a_line_for_each_rank_and_is_done_without_where_there_is_no_folder(tmp_path):
    first, second = (Board(str(tmp_path), 2, rank) for rank in range(2))
    assert first.read(1) is None  # which has not written yet
    first.post(7, 3, WAITING, 1.5, b"all_reduce(float64 (3,))")
    line = second.read(0)
    assert (line.group, line.number, line.state, line.waited) == (7, 3, WAITING, 1.5)
    assert line.call == "all_reduce(float64 (3,))"
    assert (tmp_path / "board").stat().st_blocks * 512 >= (tmp_path / "board").stat().st_size
    for folder in (None, str(tmp_path / "missing")):
        board = Board(folder, 2, 0)
        board.post(0, 1, WAITING, 0.0, b"barrier()")
        assert board.read(0) is None


# ------------------------------------------------------------------ several processes

COLLECTIVES = """
import sys
import numpy as np
import odyssey as od
from odyssey.distributed import transport

group = od.distributed.world()
rank, size = group.rank, group.size
assert od.distributed.world() is group and repr(group) == f"<Group: rank {rank} of {size}>"
DTYPES = "float16 float32 float64 complex64 complex128 int8 int32 int64 uint16 bool".split()
if "few" in sys.argv:
    DTYPES = ["float16", "float32", "bool"]
if "cut" in sys.argv:
    DTYPES = ["complex64"]
    transport.PIECE = 40  # bytes, of messages that are cut at 2**30 bytes otherwise
LAYOUTS = [
    lambda a: a,
    lambda a: a[..., ::-1],
    np.asfortranarray,
    lambda a: a[..., 1::2],
    lambda a: a[..., :0],
    lambda a: a[:, 0, 0],
]

def tree_sum(parts):
    while len(parts) > 1:
        pairs = [a + b for a, b in zip(parts[::2], parts[1::2])]
        parts = pairs + parts[2 * len(pairs):]
    return parts[0]

def of_rank(r, dtype, shape):
    x = np.random.default_rng(r).normal(size=shape) * 50
    return (x.astype(np.int8) if dtype in ("int8", "uint16", "bool") else x).astype(dtype)

for dtype in DTYPES:
    for shape in ((size, 3, 4), (size, 30, 50)):
        for layout in LAYOUTS[:: 1 if shape[1] == 3 else 5]:
            xs = [layout(of_rank(r, dtype, shape)) for r in range(size)]
            mine, before = xs[rank], xs[rank].copy()
            wide = {"float16": np.float32, "bool": np.int64}.get(dtype, dtype)
            total = tree_sum([x.astype(wide) for x in xs])
            total = total.astype(dtype) if dtype == "float16" else total
            assert np.array_equal(group.all_reduce(mine), total)
            assert np.allclose(
                group.all_reduce(mine, "fast").astype(complex), total.astype(complex),
                rtol=1e-2 if dtype == "float16" else 1e-5, atol=1e-4,
            )
            assert np.array_equal(group.all_gather(mine), np.stack(xs))
            assert np.array_equal(group.reduce_scatter(mine), total[rank])
            for root in range(size):
                assert np.array_equal(group.broadcast(mine, root), xs[root])
            for by in (1, -1, size, 2 * size + 1):
                assert np.array_equal(group.shift(mine, by), xs[(rank - by) % size])
            for made in (group.all_reduce(mine), group.reduce_scatter(mine)):
                assert type(made) is np.ndarray and made.dtype == total.dtype
            assert np.array_equal(mine, before)
    if dtype not in ("float16", "bool"):
        for length in (0, 1, size, 100, 5001):
            flats = [of_rank(r, dtype, length) for r in range(size)]
            total = tree_sum(list(flats))
            own = group.slices(length)[rank]
            flat = flats[rank].copy()
            parts = np.empty((size, own.stop - own.start), dtype)
            for memory in (None, parts):
                mine = group.sum_slices(flat, memory)
                assert np.array_equal(mine, total[own]) and np.array_equal(flat, flats[rank])
            assert np.may_share_memory(mine, parts) or not mine.size
            flat[own] = mine
            group.gather_slices(flat)
            assert np.array_equal(flat, total)
for number in (2.5, np.float32(2), np.ones(()), [1, 2], True):
    assert np.array_equal(group.all_reduce(number), np.asarray(number) * size)

group.agree(np.ones(3), {"a": [1, "b", None]}, od.Variable(np.zeros(2)))
for wrong, name in [
    ([np.ones(3), np.full(2, float(rank))], r"value[0][1]"),
    ([{"x": rank * 1.0}], r"value[0][0]['x']"),
    ([np.float32(1) if rank else np.float64(1)], r"value[0][0]"),
]:
    try:
        group.agree(wrong)
        raise AssertionError("they differ")
    except od.errors.DistributedError as error:
        ranks = ", ".join(map(str, range(1, size)))
        assert name in str(error) and f"on rank {ranks} " in str(error)

halves = group.split(rank % 2)
assert halves.size == len(range(rank % 2, size, 2)) and halves.rank == rank // 2
assert halves.all_reduce(rank) == sum(range(rank % 2, size, 2))
reverse = group.split(0, key=-rank)
assert (reverse.rank, reverse.size) == (size - 1 - rank, size)
assert reverse.all_gather(rank).tolist() == list(range(size))[::-1]
group.barrier()
group.print("from", rank, sep="-")
assert group.waited > 0
"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "options"), [(2, ()), (2, ["cut"]), (4, ["few"])], ids=str)
def test_collectives_equal_numpy_for_all_dtypes_and_layouts(size, options):
    result = run_ranks(size, COLLECTIVES, *options)
    assert result.status == 0, result.stderr
    assert result.stdout == "from-0\n"


@pytest.mark.slow
def test_collectives_are_those_of_open_mpi_too():
    result = run_ranks(2, COLLECTIVES, "few", mpi="openmpi")
    assert result.status == 0, result.stderr


FAILURES = r"""
import os, re, signal, sys, threading, time
import numpy as np
import odyssey as od
from odyssey import ops
from odyssey.errors import DistributedError

world = od.distributed.world()
rank, size = world.rank, world.size
last = size - 1

def expect(name, call, pattern, group=None, broken=True, error_class=DistributedError):
    try:
        result = call(group)
    except error_class as error:
        message = str(error)
        assert re.search(pattern, message, re.S), f"{name}: {message}"
    else:
        raise AssertionError(f"{name}: returned {result!r}"[:200])
    if broken:  # and stays so
        begin = time.monotonic()
        for again in (group.barrier, lambda: group.all_reduce(1.0), group._finish):
            try:
                again()
                raise AssertionError(f"{name}: the group is not broken")
            except DistributedError as another:
                text = str(another)
                assert error_class is not DistributedError or text == message, text
        assert time.monotonic() - begin < 0.5

def on(numbers, wanted, other):
    return lambda g: (wanted if rank in numbers else other)(g)

def both(first, second):
    # This rank and the other ones are named, each with its call.
    return (
        "differs between ranks: .*"
        + re.escape(f"rank 0{' (this one)' if rank == 0 else ''} calls {first}")
        + ".*" + re.escape(f"rank {last}{' (this one)' if rank == last else ''} calls {second}")
    )

x = np.ones(1000)
for name, first, second, texts in [
    ("sizes", lambda g: g.all_reduce(x), lambda g: g.all_reduce(x[1:]),
        ("all_reduce(float64 (1000,))", "all_reduce(float64 (999,))")),
    ("shapes", lambda g: g.all_reduce(x), lambda g: g.all_reduce(x.reshape(10, 100)),
        ("all_reduce(float64 (1000,))", "all_reduce(float64 (10, 100))")),
    ("dtypes", lambda g: g.all_gather(x), lambda g: g.all_gather(x.astype(np.float32)),
        ("all_gather(float64 (1000,))", "all_gather(float32 (1000,))")),
    ("kinds", lambda g: g.all_gather(x), lambda g: g.broadcast(x),
        ("all_gather(float64 (1000,))", "broadcast(float64 (1000,), root 0)")),
    ("roots", lambda g: g.broadcast(x, 0), lambda g: g.broadcast(x, 1),
        ("broadcast(float64 (1000,), root 0)", "broadcast(float64 (1000,), root 1)")),
    ("orders", lambda g: g.all_reduce(x), lambda g: g.all_reduce(x, "fast"),
        ("all_reduce(float64 (1000,))", "all_reduce(float64 (1000,), fast)")),
    ("shifts", lambda g: g.shift(x), lambda g: g.shift(x, 2),
        ("shift(float64 (1000,), by 1)", "shift(float64 (1000,), by 2)")),
    ("ends", lambda g: g.barrier(), lambda g: g.sum_slices(x),
        ("barrier()", "sum_slices(float64 (1000,))")),
    ("splits", lambda g: g.barrier(), lambda g: g.split(0), ("barrier()", "Group.split()")),
    ("agreements", lambda g: g.agree(x), lambda g: g.agree(x, x),
        ("agree(uint8 (8,))", "agree(uint8 (16,))")),
]:
    group = world.split(0)
    expect(name, on([last], second, first), both(*texts), group)

# A rank that does not come.
group = world.split(0)
group.timeout = 0.5
begin = time.monotonic()
if rank != last:
    expect("late", lambda g: g.all_reduce(x),
        rf"all_reduce\(float64 \(1000,\)\): rank {rank} waited \d\.\d s in collective 1; .*"
        rf"rank {last} computes since \d\.\d s, after Group\.split\(\), collective \d+ of another",
        group)
    assert time.monotonic() - begin < 4
else:
    time.sleep(3)
world.barrier()

# A rank whose loss does not depend on the result of a collective.
group = world.split(0)
w = od.Variable(np.ones(3), requires_grad=True)
with od.GradientTape() as tape:
    shared = group.all_gather(w)
    loss = ops.sum(shared * shared) if rank == 0 else ops.sum(w)
group.timeout = 0.5
if rank == 0:
    expect("dead branch", lambda g: tape.backward(loss),
        r"gradient of all_gather\(.* rank 0 waited .* add 0 \* result\.sum\(\) to its loss", group)
    assert w.grad is None
else:
    tape.backward(loss)
world.barrier()
group = world.split(0)
with od.GradientTape() as tape:  # as the message says
    shared = group.all_gather(w)
    loss = ops.sum(shared * shared) if rank == 0 else ops.sum(w) + 0 * ops.sum(shared)
assert tape.gradient(loss, w).tolist() == ([2.0] * 3 if rank == 0 else [3.0] * 3)

# Another group's collective instead.
group, other = world.split(0), world.split(0)
group.timeout = other.timeout = 0.5
expect("other group", lambda g: g.barrier(), "of another group",
    other if rank == last else group)
world.barrier()

# An interruption: messages may be under way.
group = world.split(0)
group.timeout = 0.5
def interrupt(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
if rank == 0:
    group.timeout = 20
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    expect("interrupt", lambda g: g.all_reduce(x), "", group, error_class=KeyboardInterrupt)
    try:
        group.barrier()
    except DistributedError as error:
        assert re.search(r"left collective 1 by KeyboardInterrupt; .*can only end", str(error))
    time.sleep(2.5)
else:
    time.sleep(1.2)
    expect("interrupted", lambda g: g.all_reduce(x), r"rank 0 left .* by an exception", group)
world.barrier()

# Two threads, and what a signal calls.
group = world.split(0)
seen = []
def call_now(*_):
    try:
        group.barrier()
    except DistributedError as error:
        seen.append(str(error))
if rank == 0:
    thread = threading.Timer(0.6, call_now)
    thread.start()
    signal.signal(signal.SIGALRM, call_now)
    signal.setitimer(signal.ITIMER_REAL, 0.9)
else:
    time.sleep(1.6)
assert np.array_equal(group.all_reduce(x), x * size)
if rank == 0:
    thread.join()
    assert len(seen) == 2, seen
    assert all("is still in all_reduce(float64 (1000,))" in text for text in seen), seen
group.barrier()  # not broken

# A child of a fork.
if rank == 0:
    import warnings
    warnings.simplefilter("ignore")
    child = os.fork()
    if not child:
        try:
            world.barrier()
        except DistributedError as error:
            os._exit(0 if "fork of rank 0" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
# A process that a rank starts.
if rank == 0 and size == 2:
    import subprocess
    code = "import odyssey as od; od.distributed.world()"
    child = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert re.search("rank 0, process .* which is not a rank", child.stderr), child.stderr
world.barrier()
world.print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_errors_name_ranks_and_calls_and_break_the_group(size):
    result = run_ranks(size, FAILURES)
    assert result.status == 0, result.stderr
    assert result.stdout == "done\n"


BARE = """
import sys
import numpy as np
import odyssey as od
group = od.distributed.world()
group.all_reduce(np.ones(3))
group.timeout = 1.0
if group.rank == 1:
    import time
    time.sleep(8)
group.all_gather(np.ones(3))
"""


@pytest.mark.slow
def test_ranks_without_the_launcher_end_at_the_deadline_and_say_who_is_missing(tmp_path):
    needs_mpi()
    script = tmp_path / "bare.py"
    script.write_text(BARE)
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    result = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 75, result.stderr
    assert "rank 1 does not answer, since collective 1, which it completed" in result.stderr
    assert "rank 2 waits in all_gather(float64 (3,)), collective 2" in result.stderr


CHILDREN = """
import subprocess, sys
import odyssey as od
group = od.distributed.world()
code = "import odyssey as od; print(od.distributed.world().size)"
if group.rank == 0:
    def run(*command):
        return subprocess.run([sys.executable, *command], capture_output=True, text=True)
    child = run("-c", code)
    assert child.returncode == 1, child
    assert "rank 0, process" in child.stderr and "which is not a rank" in child.stderr, child.stderr
    with open("child.py", "w") as file:
        file.write(code)
    launched = run("-m", "odyssey", "launch", "-n", "2", "child.py")
    assert launched.stdout.count("2\\n") == 2, launched
group.barrier()
"""


@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_a_process_that_a_rank_starts_is_no_rank_but_may_launch_some(mpi):
    result = run_ranks(2, CHILDREN, mpi=mpi, timeout=40)
    assert result.status == 0, result.stderr


INTERRUPTS = """
import random, signal, time
import numpy as np
import odyssey as od
from odyssey.errors import DistributedError

world = od.distributed.world()
random.seed(world.rank)
x = np.ones(3000)

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for turn in range(200):
    group = world.split(0)
    group.timeout = 0.3
    try:
        if world.rank == 0:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 5e-3))
        for _ in range(1000):
            assert np.array_equal(group.all_reduce(x), world.size * x)
    except KeyboardInterrupt:
        try:
            group.barrier()
            raise AssertionError("nobody meets this rank")
        except DistributedError as error:  # no lock is left
            words = ("left collective", "waited", "differs")
            assert any(word in str(error) for word in words), error
    except DistributedError as error:
        assert world.rank != 0 and "rank 0" in str(error), error
    world.barrier()
for _ in range(2000):  # MPICH has 2,048 communicators
    world.split(0)
world.print("done")
"""


@pytest.mark.soak
def test_an_interrupt_anywhere_breaks_a_group_and_hangs_nobody():
    result = run_ranks(2, INTERRUPTS, limit=300)
    assert result.status == 0, result.stderr
    assert result.stdout == "done\n"
