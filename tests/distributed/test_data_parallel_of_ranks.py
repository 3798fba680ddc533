"""DataParallel on several ranks: equal bits, and what all ranks say of bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from support.parallel_runs import DIGITS
from support.ranks import run_ranks

RUNS = Path(__file__).parents[1] / "support" / "parallel_runs.py"


def results_of(ranks, *names, mpi="mpich", **options):
    result = run_ranks(ranks, RUNS, *names, mpi=mpi, **options)
    assert result.status == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_two_ranks_end_with_the_bits_of_one():
    """Optimizers, compiled, uneven, accumulated, clipped, frozen, halves, complex, scaled, …"""
    alone = results_of(1)
    assert len(alone) > 20
    assert len(set(alone.values())) == len(alone) - SAME_TWICE
    assert results_of(2) == alone


SAME_TWICE = 0
"""Runs that end with the bits of another one."""


@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_any_number_of_ranks_and_any_library_end_with_the_bits_of_one(mpi):
    alone = results_of(1)
    for ranks in (2, 4, 8):
        names = [name for name in alone if ranks < 8 or name not in FOUR_SHARDS]
        found = results_of(ranks, *names, mpi=mpi, limit=600.0)
        assert found == {name: alone[name] for name in names}, ranks


FOUR_SHARDS = ("scaled", "reloaded", "weighted")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_digits_end_with_equal_bits_on_any_number_of_ranks(mpi, tmp_path):
    """200 steps of SGD, Adam and AdamW, eager and compiled, in slices and by a plain loop."""
    data = pytest.importorskip("sklearn.datasets").load_digits()
    file = tmp_path / "digits.npz"
    np.savez(file, inputs=(data.data / 16).astype(np.float32), targets=data.target)
    env = {"ODYSSEY_TEST_DIGITS": str(file)}
    alone = results_of(1, *DIGITS, env=env, limit=600.0)
    for name in DIGITS:
        assert alone[name] == alone[name.replace("dense", "sharded")], name
    for ranks in (2, 4, 8):
        found = results_of(ranks, *DIGITS, mpi=mpi, timeout=120, env=env, limit=1200.0)
        assert found == alone, ranks


# ------------------------------------------------------------------ bad input


REFUSALS = """
import json
import numpy as np
import odyssey as od
from odyssey.distributed import DataParallel

world = od.distributed.world()
rank = world.rank
found = {}


def model(seed=0):
    rng = np.random.default_rng(seed)
    arrays = {"w": rng.normal(size=(4, 3)), "b": np.zeros(3)}
    return {n: od.Variable(a, requires_grad=True, name=n) for n, a in arrays.items()}


def attempt(name, work):
    try:
        work()
        found[name] = "no error"
    except od.errors.OdysseyError as error:
        found[name] = f"{type(error).__name__}: {error}"


def make(params=None, **options):
    return DataParallel(od.optim.SGD(params or model(), 0.1, momentum=0.9), **options)


attempt("shards=3 on all", lambda: make(shards=3))
attempt("shards=1 on all", lambda: make(shards=1))
attempt("shards=6 on all", lambda: make(shards=6))
attempt("shards on one", lambda: make(shards=4 if rank else 2))
attempt("none on one", lambda: DataParallel(None if rank else od.optim.SGD(model(), 0.1)))
attempt("word on one", lambda: make(reduction="slow" if rank else "fast"))
attempt("seed", lambda: make(model(rank)))


def other_shape():
    params = model()
    if rank:
        params["b"] = od.Variable(np.zeros(4), requires_grad=True, name="b")
    make(params)


def other_number():
    params = model()
    if rank:
        params["c"] = od.Variable(np.zeros(4), requires_grad=True, name="c")
    make(params)


attempt("shape", other_shape)
attempt("number", other_number)
attempt("settings", lambda: DataParallel(od.optim.SGD(model(), 0.1 + rank)))

params = model()
parallel = make(params, shards=4, check_every=3)
optimizer = parallel.optimizer
rng = np.random.default_rng(5)
x, y = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))


def gradients(a, b):
    return od.grad(lambda p: od.losses.mean_squared_error(a @ p["w"] + p["b"], b))(params)


def parts(batch=(x, y), weight=None):
    for k, part in enumerate(parallel.shards(batch)):
        parallel.add(gradients(*part), weight=weight)


def step(batch=(x, y), weight=None, **options):
    parts(batch, weight)
    parallel.step(**options)


def refused(name, work):
    before = {n: p.numpy() for n, p in params.items()}
    attempt(name, work)
    same = all(np.array_equal(p.numpy(), before[n]) for n, p in params.items())
    found[name] += "" if same else ", AND PARAMETERS CHANGED"
    parallel.zero_grad()


refused("numbers of the batch", lambda: step((x + rank, y)))
step()
refused("length", lambda: step((x[: 8 - rank], y[: 8 - rank])))
refused("dtype", lambda: step((x.astype(np.float32) if rank else x, y)))
refused("part missing", lambda: [parallel.add(gradients(*p)) for p in
                                 list(parallel.shards((x, y)))[: 2 - rank]] and parallel.step())
refused("nothing added", lambda: (None if rank else parts(), parallel.step()))
refused("weights on one", lambda: step(weight=1.0 if rank else None))
refused("weights of 0", lambda: step(weight=0.0))
refused("clip on one", lambda: step(clip_norm=1.0 if rank else None))
refused("bad clip on one", lambda: step(clip_norm="much" if rank else 1.0))


def other_rate():
    optimizer.learning_rate = 0.1 + 0.1 * rank
    step()


refused("rate", other_rate)
optimizer.learning_rate = 0.1


def frozen():
    params["b"].requires_grad = not rank
    step()


refused("frozen", frozen)
params["b"].requires_grad = True
refused("missing on all", lambda: [parallel.add({"w": np.ones((4, 3)), "b": None})
                                   for _ in range(2)] and parallel.step())


def assigned():
    params["b"].data = np.full(3, 1.0 + rank)
    parts()
    parallel.step()


def assign_back():
    params["b"].data = np.zeros(3)


attempt("assigned", assigned)
parallel.zero_grad()
assign_back()
step()
step()


def flipped_bit():
    if rank:
        params["w"]._array[2, 1] += 1.0  # as memory of a card without ECC may do
    step()


attempt("flipped", flipped_bit)
parallel.zero_grad()
if rank:
    params["w"].data = np.array(world.broadcast(params["w"].numpy()))
else:
    params["w"].data = np.array(world.broadcast(params["w"].numpy()))
step()
attempt("optimizer.step", lambda: (setattr(params["w"], "grad", np.ones((4, 3))),
                                   optimizer.step(allow_missing=True)))
attempt("optimizer.state_dict", lambda: optimizer.state_dict())
attempt("optimizer.load_state_dict", lambda: optimizer.load_state_dict({}))
attempt("twice", lambda: DataParallel(optimizer))
attempt("load on one", lambda: parallel.load_state_dict({} if rank else parallel_state))\
    if (parallel_state := parallel.state_dict()) else None


def other_state():
    state = parallel.state_dict()
    state["state"][0]["velocity"] += rank
    parallel.load_state_dict(state)


attempt("other state", other_state)
step()
world.agree(params["w"].numpy(), params["b"].numpy())
print(json.dumps(found))
"""

EXPECTED = {
    "shards=3 on all": "SettingError: DataParallel: shards=3, and there are 2 ranks; pass a multi",
    "shards=1 on all": "SettingError: DataParallel: shards=1, and there are 2 ranks",
    "shards=6 on all": "SettingError: DataParallel: shards=6; pass a power of two",
    "shards on one": "SettingError: DataParallel: shards, reduction or check_every differ between "
    "ranks: on rank 0 2, ordered, 100; on rank 1 4, ordered, 100",
    "none on one": "DTypeError: DataParallel: None came; pass an optimizer",
    "word on one": "SettingError: DataParallel: reduction='slow'; choose",
    "seed": "SettingError: DataParallel: parameter w has other numbers on rank 1 than on rank 0; "
    "seed generators equally on all ranks",
    "shape": "SettingError: DataParallel: parameter number 1 is b of (3,) float64 on rank 0, and b "
    "of (4,) float64 on rank 1",
    "number": "SettingError: DataParallel: the optimizer differs between ranks",
    "settings": "SettingError: DataParallel: the optimizer differs between ranks",
    "numbers of the batch": "SettingError: DataParallel.step: the order of the batch, or its "
    "numbers, differ between ranks",
    "length": "ShapeError: DataParallel.step: the batch differs between ranks: on rank 0 8 rows of "
    "[0] float64 (4,), [1] float64 (3,); on rank 1 7 rows",
    "dtype": "ShapeError: DataParallel.step: the batch differs between ranks: on rank 0 8 rows of "
    "[0] float64 (4,), [1] float64 (3,); on rank 1 8 rows of [0] float32",
    "part missing": "SettingError: DataParallel.step: gradients of 1 of 2 parts came",
    "nothing added": "SettingError: DataParallel.step: no gradients came since the last step",
    "weights on one": "SettingError: DataParallel.step: some ranks passed weight= to add",
    "weights of 0": "SettingError: DataParallel.step: the weights of all parts are 0",
    "clip on one": "SettingError: DataParallel.step: the options of step differ between "
    "ranks: on rank 0 allow_missing=False; on rank 1 clip_norm=1.0",
    "bad clip on one": "DTypeError: DataParallel.step: clip_norm='much'",
    "rate": "SettingError: DataParallel.step: the optimizer's settings differ between ranks: "
    "on rank 0 (learning_rate=0.1,",
    "frozen": "SettingError: DataParallel.step: what is frozen differs between ranks: on rank 0 "
    "nothing; on rank 1 b",
    "missing on all": "MissingGradientError: DataParallel.step: parameter b has no gradient",
    "assigned": "SettingError: DataParallel.step: parameter b has other numbers on rank 1",
    "flipped": "SettingError: DataParallel.step: parameter w has other numbers on rank 1",
    "optimizer.step": "OdysseyError: SGD.step: its state lies in slices on the 2 ranks of a "
    "DataParallel; call step, state_dict and load_state_dict of that",
    "optimizer.state_dict": "OdysseyError: SGD.state_dict: its state lies in slices",
    "optimizer.load_state_dict": "OdysseyError: SGD.load_state_dict: its state lies in slices",
    "twice": "OdysseyError: SGD.DataParallel: its state lies in slices",
    "load on one": "OdysseyError: load_state_dict: {} came; pass what state_dict() returned",
    "other state": "SettingError: DataParallel.load_state_dict: the state differs between ranks",
}


@pytest.mark.slow
def test_bad_input_of_one_rank_is_named_on_all_and_nothing_changes():
    result = run_ranks(2, REFUSALS)
    assert result.status == 0, result.stderr
    lines = [line.removeprefix("rank 1: ") for line in result.stdout.splitlines()]
    assert len(lines) == 2, result.stdout
    for found in map(json.loads, lines):
        assert found.keys() == EXPECTED.keys()
        for name, text in EXPECTED.items():
            assert found[name].startswith(text), (name, found[name])
            assert "CHANGED" not in found[name], name


# ------------------------------------------------------------------ failures in the middle


FAILING = """
import sys
import numpy as np
import odyssey as od

world = od.distributed.world()
where = sys.argv[1]
steps = 0


def move(g, state, p):
    global steps
    steps += 1
    if world.rank == 1 and steps == 2:
        if where == "exits":
            import os
            os._exit(5)
        if where == "raises":
            raise ValueError("the rule of rank 1")
        if where == "interrupted":
            raise KeyboardInterrupt
        import time
        time.sleep(60)
    return p - 0.5 * g, state


w = od.Variable(np.arange(600.0), requires_grad=True, name="w")
rule = od.optim.Rule((), move)
parallel = od.distributed.DataParallel(od.optim.Optimizer([w], lambda **s: rule))
for step in range(2):
    parallel.add([np.ones(600)])
    before = w.numpy()
    try:
        parallel.step()
    except od.errors.DistributedError as error:
        whole = np.array_equal(w.numpy(), before) or np.array_equal(w.numpy(), before - 0.5)
        print("whole:", whole, "|", error)
        try:
            parallel.state_dict()
        except od.errors.DistributedError as again:
            print("again:", again)
        raise
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["raises", "sleeps"])
def test_a_rank_that_fails_in_its_update_leaves_the_others_whole(where):
    result = run_ranks(2, FAILING, where, timeout=2)
    assert result.status not in (0, None)
    assert "whole: False" not in result.stdout
    if where == "raises":
        assert "ValueError: the rule of rank 1" in result.stderr
    else:
        assert "whole: True | gather_slices" in result.stdout
        assert "again: DataParallel.state_dict: an earlier step was interrupted" in result.stdout
        assert "rank 1" in result.stderr


@pytest.mark.soak
@pytest.mark.parametrize("where", ["exits", "interrupted"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ways_to_fail_in_an_update_end_the_run(where, ranks):
    result = run_ranks(ranks, FAILING, where, timeout=3)
    assert result.status not in (0, None)
    assert "whole: False" not in result.stdout


# ------------------------------------------------------------------ what bits depend on


@pytest.mark.slow
def test_without_care_bits_depend_on_ranks_and_threads():
    """Rows of the page: BLAS threads, and programs that are made after the first part."""
    alone, two = (results_of(n, "large", "without programs") for n in (1, 2))
    assert alone["large"] == two["large"]
    assert alone["without programs"] != two["without programs"]
    other = results_of(1, "large", options=("--blas-threads", "2"))
    assert other["large"] != alone["large"]


ANY_ORDER = """
import numpy as np
import odyssey as od

world = od.distributed.world()
rng = np.random.default_rng(0)
start = rng.normal(size=(9, 4))
x, y = rng.normal(size=(31, 9)), rng.normal(size=(31, 4))


def gradients(w, x, y):
    return od.grad(lambda w: od.losses.mean_squared_error(od.ops.tanh(x @ w), y))(w)


plain = od.Variable(start, requires_grad=True)
optimizer = od.optim.Adam([plain], 0.05)
for _ in range(3):
    plain.grad = gradients(plain, x, y)
    optimizer.step()
for shards, reduction in ((None, "ordered"), (None, "fast"), (6, "fast")):
    w = od.Variable(start, requires_grad=True)
    parallel = od.distributed.DataParallel(od.optim.Adam([w], 0.05), None, shards, reduction)
    for _ in range(3):
        for part in parallel.shards((x, y)):
            parallel.add([gradients(w, *part)])
        parallel.step()
    world.agree(w.numpy())
    world.print(float(abs(w.numpy() - plain.numpy()).max()))
"""


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_steps_on_the_mean_of_the_batch(ranks):
    result = run_ranks(ranks, ANY_ORDER)
    assert result.status == 0, result.stderr
    differences = list(map(float, result.stdout.split()))
    assert len(differences) == 3
    assert max(differences) < 1e-13
