"""Checkpoints of DataParallel restore everything to the bit, or nothing, and name what differs."""

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import (
    CompileError,
    DTypeError,
    FileError,
    FormatError,
    MissingFileError,
    MutationError,
    OdysseyError,
    SettingError,
    ShapeError,
)
from odyssey.kernels.machine_facts import blas_thread_count

RULES = {
    "SGD": lambda params: od.optim.SGD(params, 0.1, momentum=0.9),
    "Adam": lambda params: od.optim.Adam(params, 0.1),
    "AdamW": lambda params: od.optim.AdamW(params, 0.1, weight_decay=0.1),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


class Training:
    """A linear model and all that changes while it learns."""

    def __init__(self, seed=0, rule="Adam", shards=2, shape=(3, 2), dtype="float64", **settings):
        rng = np.random.default_rng(seed)
        self.w = od.Variable(rng.normal(size=shape).astype(dtype), requires_grad=True, name="w")
        self.b = od.Variable(np.zeros(shape[-1], dtype), requires_grad=True, name="b")
        self.optimizer = RULES[rule]({"w": self.w, "b": self.b})
        generator = od.Generator(seed)
        self.more = {
            "schedule": od.optim.CosineAnnealingLR(self.optimizer, 20),
            "data": od.batches(np.arange(30.0).reshape(10, 3).astype(dtype), 4, rng=generator),
            "noise": rng,
            "generator": generator,
            "ema": od.optim.EMA([self.w, self.b], 0.9),
        }
        self.parallel = od.distributed.DataParallel(self.optimizer, shards=shards, **settings)

    def run(self, steps):
        for _ in range(steps):
            for x in self.parallel.shards(next(self.more["data"])):
                with od.GradientTape() as tape:
                    loss = ((np.tanh(x @ self.w + self.b) - 0.5) ** 2).mean()
                self.parallel.backward(tape, loss)
            self.parallel.step()
            self.more["schedule"].step()
            self.more["ema"].update()

    def save(self, path, **more):
        self.parallel.save(path, **self.more, **more)

    def load(self, path, **more):
        return self.parallel.load(path, **self.more, **more)

    def bits(self):
        state = self.parallel.state_dict()
        arrays = [value for entry in state["state"] for value in entry.values()]
        return [
            *(np.asarray(a).tobytes() for a in [self.w.numpy(), self.b.numpy(), *arrays]),
            *(a.numpy().tobytes() for a in self.more["ema"].averages),
            repr(state["settings"]),
            repr(self.more["data"].state_dict()),
            repr(self.more["noise"].bit_generator.state),
            repr(self.more["generator"]),
            self.more["schedule"].steps,
        ]


@pytest.mark.parametrize("rule", RULES)
def test_a_training_that_goes_on_from_a_file_has_the_bits_of_one_without_a_stop(rule, path):
    through = Training(rule=rule)
    through.run(3)
    through.save(path, step=3, losses=[1.5, 2.5])
    middle = through.bits()
    through.run(4)
    other = Training(seed=5, rule=rule)
    saved = other.load(path)
    assert saved["step"] == 3
    assert saved["losses"] == [1.5, 2.5]
    assert saved["data"] is other.more["data"]
    assert other.bits() == middle
    other.run(4)
    assert other.bits() == through.bits()


def test_one_process_without_data_parallel_loads_a_checkpoint_and_saves_one(path):
    training = Training()
    training.run(3)
    training.save(path, step=3)
    w, b = (od.Variable(np.ones(shape), requires_grad=True) for shape in ((3, 2), (2,)))
    alone = od.optim.Adam({"w": w, "b": b}, 0.5)
    like = {"parameters": alone.params, "optimizer": alone, "more": {"step": 0}}
    assert od.load(path, like, missing="keep")["more"] == {"step": 3}
    assert w.numpy().tobytes() == training.w.numpy().tobytes()
    assert repr(alone.state_dict()) == repr(training.parallel.state_dict())
    alone.learning_rate = 0.25
    w.assign(np.full((3, 2), 7.0))
    od.save(path, {"parameters": alone.params, "optimizer": alone, "more": {"step": 9}})
    other = Training(seed=1)
    assert other.parallel.load(path) == {"step": 9}
    assert other.w.numpy().tolist() == [[7.0, 7.0]] * 3
    assert other.optimizer.learning_rate == 0.25
    assert repr(other.parallel.state_dict()["state"]) == repr(alone.state_dict()["state"])


def test_a_file_says_what_run_wrote_it(path):
    training = Training()
    training.save(path)
    run = od.load(path, {"run": ...}, missing="keep")["run"]
    assert run == {
        "odyssey": od.__version__,
        "ranks": 1,
        "names": ["w", "b"],
        "shards": 2,
        "reduction": "ordered",
        "blas_threads": blas_thread_count(),
    }


REFUSALS = {
    "optimizer": ({"rule": "SGD"}, DTypeError, "its optimizer is Adam, not SGD"),
    "shape": ({"shape": (3, 3)}, ShapeError, r"w is of shape \(3, 2\), not \(3, 3\)"),
    "dtype": ({"dtype": "float32"}, DTypeError, "w is of float64, not float32"),
    "shards": ({"shards": 4}, SettingError, r"shards: 2, not 4 \(pass shards=2\)"),
    "reduction": ({"reduction": "fast"}, SettingError, "reduction: ordered, not fast"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_file_of_another_training_is_refused_with_what_differs(name, path):
    training = Training()
    training.run(1)
    training.save(path, step=1)
    options, error, message = REFUSALS[name]
    other = Training(seed=3, **options)
    before = other.bits()
    with pytest.raises(error, match=message):
        other.load(path)
    assert other.bits() == before


def test_all_differences_are_in_one_message(path):
    Training().save(path)
    other = Training(rule="SGD", shards=8, dtype="float32")
    with pytest.raises(OdysseyError, match=r"Adam.*w is of float64.*b is of float64.*shards: 2"):
        other.load(path)


def test_parameters_in_another_order_or_number_are_refused(path):
    Training().save(path)
    w, b = (od.Variable(np.ones(2), requires_grad=True, name=name) for name in "bw")
    swapped = od.distributed.DataParallel(od.optim.Adam([w, b]), shards=2)
    with pytest.raises(OdysseyError, match="parameter 0 is w, not b"):
        swapped.load(path)
    single = od.distributed.DataParallel(od.optim.Adam([w]), shards=2)
    with pytest.raises(ShapeError, match="it has 2 parameters, not 1"):
        single.load(path)


def rewritten(path, **changes):
    """Write a file again, as by a run with other facts."""
    training = Training()
    run = od.load(path, {"run": ...}, missing="keep")["run"] | changes
    like = {"parameters": training.optimizer.params, "optimizer": training.optimizer}
    od.load(path, like, missing="keep")
    od.save(path, like | {"run": run})


def test_another_number_of_threads_of_blas_is_refused_with_the_way_to_start(path):
    training = Training()
    training.parallel.save(path)
    here = blas_thread_count()
    assert here > 0, "NumPy's wheels have OpenBLAS"
    rewritten(path, blas_threads=here + 1)
    with pytest.raises(SettingError, match=rf"BLAS threads: {here + 1}, not {here} \(start with"):
        training.parallel.load(path)
    rewritten(path, blas_threads=0)  # of a library that does not say
    training.parallel.load(path)


@pytest.mark.parametrize(
    "changes",
    [{"names": 3}, {"names": [1, None]}, {"shards": "many"}, {"shards": None}, {"reduction": [1]}],
    ids=str,
)
def test_facts_that_somebody_edited_are_refused_or_taken_for_what_they_are(changes, path):
    training = Training()
    training.parallel.save(path)
    rewritten(path, **changes)
    if changes == {"names": 3}:
        training.parallel.load(path)
        return
    with pytest.raises(SettingError, match="was saved by another training"):
        training.parallel.load(path)


def test_a_file_that_is_torn_missing_or_foreign_is_refused_by_name(path, tmp_path):
    training = Training()
    training.run(1)
    with pytest.raises(MissingFileError, match=r"run\.npz"):
        training.load(path)
    training.save(path)
    data = path.read_bytes()
    before = training.bits()
    for length in (0, 1, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(FormatError, match=r"run\.npz"):
            training.load(path)
    np.savez(path, w=np.ones(3))
    with pytest.raises(FormatError, match=r"was not written by od\.save"):
        training.load(path)
    od.save(path, {"w": np.ones(3)})
    with pytest.raises(FormatError, match="lacks the entries 'parameters' and 'optimizer'"):
        training.load(path)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(FileError, match="Is a directory"):
        training.load(tmp_path / "folder.npz")
    assert training.bits() == before


def test_what_was_saved_with_a_state_must_be_passed_to_load(path):
    training = Training()
    training.save(path, step=3, table={"a": np.arange(3), "b": [1, None]})
    for name in training.more:
        more = {n: v for n, v in training.more.items() if n != name}
        with pytest.raises(ShapeError, match=rf"no object came that takes it; pass {name}="):
            training.parallel.load(path, **more)
    with pytest.raises(ShapeError, match="has no epoch; it has schedule, data"):
        training.load(path, epoch=0)
    saved = training.load(path)
    assert saved["table"]["a"].tolist() == [0, 1, 2]
    assert saved["table"]["b"] == [1, None]
    assert training.load(path, step=0)["step"] == 3
    with pytest.raises(DTypeError, match="step"):
        training.load(path, step="three")


def test_an_object_of_another_class_changes_nothing(path):
    training = Training()
    training.run(2)
    training.save(path)
    before = training.bits()
    wrong = training.more | {"schedule": od.optim.ExponentialLR(training.optimizer, 0.9)}
    with pytest.raises(DTypeError, match="of class CosineAnnealingLR when it was saved"):
        training.parallel.load(path, **wrong)
    assert training.bits() == before


def test_settings_of_groups_and_rates_of_schedules_come_from_the_file(path):
    first = Training()
    first.optimizer.weight_decay = 0.5
    first.run(3)
    first.save(path)
    other = Training(seed=2)
    other.load(path)
    assert other.optimizer.weight_decay == 0.5
    assert other.optimizer.learning_rate == first.optimizer.learning_rate < 0.1


def test_a_name_may_be_called_as_the_path_is(path):
    training = Training()
    training.parallel.save(path, path=3, parallel=4)
    assert training.parallel.load(path) == {"path": 3, "parallel": 4}


def test_writing_that_fails_leaves_the_old_file_and_the_training_goes_on(path, monkeypatch):
    training = Training()
    training.save(path, step=0)
    old = path.read_bytes()
    with pytest.raises(MissingFileError, match="make its folder first"):
        training.save(path.parent / "none" / "run.npz")
    with pytest.raises(SettingError, match=r"does not end in \.npz"):
        training.save(path.with_suffix(".safetensors"))
    with pytest.raises(DTypeError, match="path=3 is not a path"):
        training.save(3)
    with pytest.raises(DTypeError, match="a tree may hold Variables"):
        training.save(path, callback=print)
    assert path.read_bytes() == old
    training.run(1)
    training.save(path, step=1)
    assert training.load(path)["step"] == 1
    assert [file.name for file in path.parent.iterdir()] == ["run.npz"]


def test_resume_loads_if_the_launcher_says_so_and_there_is_a_file(path, monkeypatch):
    training = Training()
    training.run(1)
    monkeypatch.delenv("ODYSSEY_RESUME", raising=False)
    training.save(path, step=1)
    middle = training.bits()
    training.run(1)
    later = training.bits()
    assert training.parallel.resume(path, **training.more) is None
    assert training.bits() == later
    monkeypatch.setenv("ODYSSEY_RESUME", "auto")
    none = path.with_name("none.npz")
    assert training.parallel.resume(none, **training.more) is None
    assert training.bits() == later
    assert training.parallel.resume(path, **training.more)["step"] == 1
    assert training.bits() == middle
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(FormatError, match="was cut off"):
        training.parallel.resume(path, **training.more)
    monkeypatch.setenv("ODYSSEY_RESUME", "always")
    with pytest.raises(SettingError, match="ODYSSEY_RESUME='always'"):
        training.parallel.resume(path)


def test_a_traced_function_cannot_save_or_load(path):
    training = Training()

    @od.compile(fullgraph=True)
    def save(x):
        training.parallel.save(path)
        return x

    @od.compile(fullgraph=True)
    def load(x):
        training.parallel.load(path)
        return x

    for fn in (save, load):
        with pytest.raises(CompileError, match=r"distributed|outside of the compiled"):
            fn.precompile(np.ones(2))
    assert not path.exists()


def test_gradients_of_an_open_step_are_not_lost_by_saving_and_forgotten_by_loading(path):
    training = Training()
    training.run(1)
    training.save(path)
    middle = training.bits()
    batch = next(training.more["data"])
    for x in training.parallel.shards(batch):
        training.parallel.add([np.full((3, 2), x.sum()), np.ones(2)])
    with pytest.raises(SettingError, match="gradients were added since the last step"):
        training.save(path)
    training.load(path)
    training.save(path)
    assert training.bits() == middle
    training.run(1)


def test_a_tape_that_needs_the_old_parameters_notices_the_loading(path):
    training = Training()
    training.save(path)
    with od.GradientTape() as tape:
        loss = ((np.ones((1, 3)) @ training.w) ** 2).sum()
        training.load(path)
        loss = (loss * training.w).sum()
    with pytest.raises(MutationError):
        tape.gradient(loss, training.w)
