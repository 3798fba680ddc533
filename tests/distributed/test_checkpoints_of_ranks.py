"""Checkpoints of several ranks: errors on all of them, and equal bits after a kill."""

import random
import re
from functools import cache
from pathlib import Path

import pytest

from support.ranks import run_ranks
from support.seeds import SEED

TRAINING = Path(__file__).parents[1] / "support" / "checkpointed_training.py"
STEPS = 24


PATIENT = {"timeout": 40, "limit": 150}  # soaks also run on busy machines


def bits_of(result):
    assert result.status == 0, f"{result.stdout}\n{result.stderr}"
    return re.search(r"^bits (\w+)$", result.stdout, re.MULTILINE)[1]


@cache
def bits_without_a_stop(rule, compiled, layers):
    """Return the bits that one process ends with that writes no checkpoint."""
    options = ["--every", 0, "--steps", STEPS, "--rule", rule, "--layers", layers]
    options += ["--compiled"] * compiled
    return bits_of(run_ranks(1, TRAINING, "none.npz", *options, **PATIENT))


KILLED_WHILE_WRITING = (
    "before the data is on the disk",
    "before the file is renamed",
    "after the file is renamed",
)


def kill_and_resume(seed, folder, mpi="mpich"):
    """Kill a random rank at a random moment; go on with other numbers of ranks."""
    settings = PATIENT | {"mpi": mpi}
    dice = random.Random(seed)
    rule = ("sgd", "adam", "adamw")[seed % 3]
    compiled = dice.random() < 0.5
    large = seed % 4 == 3  # a file of 3 MB, so that it takes a while to write
    layers = "12,400,400,5" if large else "12,20,16,5"
    ranks = (2, 4, 2, 2)[seed % 4]
    options = [folder / "run.npz", "--steps", STEPS, "--rule", rule, "--layers", layers]
    options += ["--compiled"] * compiled
    die = ["--die", dice.randrange(1, STEPS - 7)]
    if large:
        die += ["--after", dice.uniform(0, 0.2)]
    elif seed % 2:
        die += ["--writing", dice.choice(KILLED_WHILE_WRITING)]
    else:
        die += ["--rank", dice.randrange(ranks)]
    expected = bits_without_a_stop(rule, compiled, layers)
    killed = run_ranks(ranks, TRAINING, *options, *die, **settings)
    if not large:  # there the training may have ended before
        assert killed.status != 0, f"{killed.stdout}\n{killed.stderr}"
    started = (folder / "run.npz").exists()
    for other in (ranks, ranks // 2, 2 * ranks):
        copy = folder / f"of {other}.npz"
        if started:
            copy.write_bytes((folder / "run.npz").read_bytes())
        again = [copy, *options[1:], "--every", 0]
        result = run_ranks(other, TRAINING, *again, options=["--resume", "auto"], **settings)
        assert bits_of(result) == expected, f"{other} ranks, {die}"
        assert ("goes on from step" in result.stdout) == started
    assert len(list(folder.glob(".odyssey-*.tmp"))) <= 1


@pytest.mark.slow
def test_a_killed_run_that_goes_on_ends_with_the_bits_of_one_without_a_stop(tmp_path):
    kill_and_resume(0, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_runs_killed_at_random_end_with_the_bits_of_one_without_a_stop(seed, tmp_path):
    kill_and_resume(seed + 1000 * (SEED or 0), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1])
def test_runs_killed_under_open_mpi_end_with_the_same_bits(seed, tmp_path):
    kill_and_resume(seed, tmp_path, "openmpi")


@pytest.mark.slow
def test_the_launcher_starts_again_from_a_file_whose_successor_was_half_written(tmp_path):
    path, options = tmp_path / "run.npz", ["--steps", STEPS]
    die = ["--die", 8, "--writing", KILLED_WHILE_WRITING[1]]
    result = run_ranks(2, TRAINING, path, *options, *die, options=["--restarts", "1"])
    assert bits_of(result) == bits_without_a_stop("adam", False, "12,20,16,5")
    assert "goes on from step 7" in result.stdout
    assert len(list(tmp_path.glob(".odyssey-*.tmp"))) == 1


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_is_loaded_by_one_process_without_any(tmp_path):
    result = run_ranks(2, TRAINING, tmp_path / "run.npz", "--steps", 14, "--rule", "adamw")
    assert result.status == 0, result.stderr
    import numpy as np

    import odyssey as od

    saved = od.load(tmp_path / "run.npz")
    sizes = [(12, 20), (20,), (20, 16), (16,), (16, 5), (5,)]
    params = [od.Variable(np.zeros(size, np.float32), requires_grad=True) for size in sizes]
    optimizer = od.optim.AdamW(params)
    like = {"parameters": params, "optimizer": optimizer, "more": {"step": 0}}
    assert od.load(tmp_path / "run.npz", like, missing="keep")["more"]["step"] == 14
    state = optimizer.state_dict()["state"]
    for k, (p, size) in enumerate(zip(params, sizes, strict=True)):
        assert (p.numpy() == saved[f"['parameters'][{k}]"]).all()
        assert state[k]["steps"] == 14
        assert state[k]["mean"].shape == state[k]["square"].shape == size
        assert np.count_nonzero(state[k]["square"]) > 0.8 * p.size


REFUSED = """
import errno, os, sys
import numpy as np
import odyssey as od
from odyssey import errors
from odyssey.distributed import world

world, folder = world(), sys.argv[1]
path = f"{folder}/run.npz"


def make(shards=4, shape=(3, 2), rule=od.optim.Adam):
    w = od.Variable(np.ones(shape), requires_grad=True, name="w")
    return od.distributed.DataParallel(rule([w], learning_rate=0.1), shards=shards)


def expect(kind, text, call, *args, **named):
    before = [p.numpy().tobytes() for p in parallel.optimizer.params]
    try:
        call(*args, **named)
    except kind as error:
        print(f"rank {world.rank}: {type(error).__name__}: {error}", file=sys.stderr)
        assert text in str(error), error
    else:
        raise AssertionError(f"{text}: nothing was raised")
    assert [p.numpy().tobytes() for p in parallel.optimizer.params] == before
    world.barrier()  # the group is not broken


parallel = make()
expect(errors.MissingFileError, "No such file", parallel.load, path)
expect(errors.MissingFileError, "make its folder", parallel.save, f"{folder}/none/run.npz")
expect(errors.SettingError, "does not end", parallel.save, f"{folder}/run.zip")
expect(errors.DTypeError, "is not a path", parallel.save, 3 if world.rank else path)
expect(errors.DTypeError, "may hold", parallel.save, path, step=print if world.rank else 3)
expect(errors.DistributedError, "['step']", parallel.save, path, step=world.rank)
noise = np.random.default_rng(world.rank)
expect(errors.DistributedError, "['noise']", parallel.save, path, noise=noise)
assert not os.path.exists(path)
parallel.save(path, step=1)
old = open(path, "rb").read()

fsync = os.fsync
if world.rank == 0:
    def os_fsync(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync = os_fsync
expect(errors.FileError, "make room on the disk", parallel.save, path, step=2)
try:
    parallel.save(path, step=2)
except OSError as error:
    assert error.errno == errno.ENOSPC
if world.rank == 0:
    def os_fsync(file):
        raise MemoryError("no memory")
    os.fsync = os_fsync
expect((MemoryError, errors.OdysseyError), "no memory", parallel.save, path, step=2)
os.fsync = fsync
assert open(path, "rb").read() == old
assert os.listdir(folder) == ["run.npz"]

parallel = make(shards=2)
expect(errors.SettingError, "shards: 4, not 2", parallel.load, path)
parallel = make(shape=(3, 3))
expect(errors.ShapeError, "w is of shape (3, 2), not (3, 3)", parallel.load, path)
parallel = make(rule=od.optim.SGD)
expect(errors.DTypeError, "its optimizer is Adam, not SGD", parallel.load, path)
parallel = make()
expect(errors.ShapeError, "has no data", parallel.load, path, data=3)
expect(errors.ShapeError, "has no data", parallel.load, path, **({"data": 3} if world.rank else {}))

if world.rank == 0:
    open(path, "wb").write(old[:-20])
expect(errors.FormatError, "was cut off", parallel.load, path)
if world.rank == 0:
    np.savez(path, w=np.ones(3))
expect(errors.FormatError, "was not written by od.save", parallel.load, path)
if world.rank == 0:
    open(path, "wb").write(old)
assert parallel.load(path if world.rank == 0 else "elsewhere.npz") == {"step": 1}
os.environ["ODYSSEY_RESUME"] = "auto" if world.rank == 0 else ""
assert parallel.resume(path) == {"step": 1}
assert parallel.resume(f"{folder}/none.npz") is None

# A file of one process without DataParallel.
w = od.Variable(np.full((3, 2), 5.0), requires_grad=True, name="w")
w.grad = np.ones((3, 2))
alone = od.optim.Adam([w], learning_rate=0.25)
alone.step()
if world.rank == 0:
    more = {"step": 9, "rng": od.Generator(3)}
    od.save(path, {"parameters": [w], "optimizer": alone, "more": more})
rng = od.Generator(world.rank)
assert parallel.load(path, rng=rng)["step"] == 9
assert repr(rng) == repr(od.Generator(3))
assert (parallel.optimizer.params[0].numpy() == w.numpy()).all()
assert repr(parallel.state_dict()) == repr(alone.state_dict())
world.print("all were refused")
"""


@pytest.mark.slow
def test_each_rank_gets_each_error_by_name_and_the_training_may_go_on(tmp_path):
    result = run_ranks(2, REFUSED, tmp_path)
    assert result.status == 0, f"{result.stdout}\n{result.stderr}"
    assert "all were refused" in result.stdout
    texts = {rank: re.findall(rf"rank {rank}: (\w+: .*)", result.stderr) for rank in (0, 1)}
    assert len(texts[0]) == len(texts[1]) > 15
    for one, other in zip(texts[0], texts[1], strict=True):
        plain = [re.sub(r" \(rank \d\)$|MemoryError: |OdysseyError: ", "", t) for t in (one, other)]
        assert plain[0] == plain[1]


@pytest.mark.slow
def test_a_rank_that_does_not_come_to_save_is_missed_by_name():
    script = """
import numpy as np
import odyssey as od
w = od.Variable(np.ones(3), requires_grad=True)
parallel = od.distributed.DataParallel(od.optim.SGD([w], 0.1))
if parallel.group.rank == 0:
    parallel.save("run.npz")
else:
    parallel.step()
"""
    result = run_ranks(2, script, timeout=5)
    assert result.status == 75, result.stderr
    assert "save(" in result.stderr
    assert "DataParallel.step" in result.stderr


EACH_OPTIMIZER = """
import hashlib, sys
import ml_dtypes
import numpy as np
import odyssey as od

world, folder, first = od.distributed.world(), sys.argv[1], int(sys.argv[2])
NAMES = "SGD Adam AdamW AdaGrad RMSprop Adamax RAdam NAdam Adadelta Adafactor Lion LARS Muon"
KINDS = {name: getattr(od.optim, name) for name in NAMES.split()}
SETTINGS = {"SGD": {"momentum": 0.9}}
for name, kind in KINDS.items():
    rng = np.random.default_rng(first)
    shapes = [((7, 5), "f4"), ((400,), "f4"), ((30, 30), "f4"), ((), "f4"), ((9, 2), "f8")]
    shapes += [((40, 3), "f2"), ((0, 2), "f4"), ((5,), ml_dtypes.bfloat16)]
    params = [
        od.Variable(rng.normal(size=shape).astype(dtype), requires_grad=True)
        for shape, dtype in shapes
        if name != "Muon" or (len(shape) == 2 and shape[0])
    ]
    groups = [{"params": params[:2]}, {"params": params[2:], "learning_rate": 0.02}]
    optimizer = kind(groups, learning_rate=0.01, **SETTINGS.get(name, {}))
    params[1].requires_grad = False  # frozen
    parallel = od.distributed.DataParallel(optimizer, world, shards=4)
    path = f"{folder}/{name}.npz"
    if first:
        assert parallel.load(path) == {"step": 2}
    for step in range(2 if first else 0, 5):
        for part in parallel.shards(np.arange(8)):
            dice = np.random.default_rng([step, int(part[0])])
            parallel.add([dice.normal(size=p.shape).astype(p.dtype) for p in params])
        parallel.step(clip_norm=3.0)
        if step == 1:
            parallel.save(path, step=2)
    state = parallel.state_dict()["state"]
    arrays = [p.numpy() for p in params] + [s[key] for s in state for key in sorted(s)]
    world.agree(arrays)
    text = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    world.print(name, hashlib.sha256(text).hexdigest())
"""


@pytest.mark.soak
def test_each_optimizer_goes_on_with_its_bits_on_other_numbers_of_ranks(tmp_path):
    pytest.importorskip("ml_dtypes")
    printed = {}
    for ranks, first in ((2, 0), (1, 0), (1, 2), (4, 2), (2, 2)):
        result = run_ranks(ranks, EACH_OPTIMIZER, tmp_path, first, **PATIENT)
        assert result.status == 0, result.stderr
        printed[ranks, first] = result.stdout
    assert printed[2, 0].count("\n") == 13
    assert len(set(printed.values())) == 1, printed
