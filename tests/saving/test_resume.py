"""Training that was saved and loaded goes on to the bit as if it had not been stopped."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops, optim
from support.optimizers import OPTIMIZERS, SHAPES, draw, shapes_for

SCHEDULES = {
    "StepLR": lambda o: optim.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: optim.MultiStepLR(o, [1, 3, 3, 6], 0.5),
    "ExponentialLR": lambda o: optim.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: optim.CosineAnnealingLR(o, 7, 1e-4),
    "WarmupLR": lambda o: optim.WarmupLR(o, 5),
    "WarmupCosineLR": lambda o: optim.WarmupCosineLR(o, 2, 9),
    "ReduceLROnPlateau": lambda o: optim.ReduceLROnPlateau(o, patience=0, cooldown=1),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "training.npz"


class Training:
    """Parameters that are trained on random gradients, of which one may be frozen or missing."""

    def __init__(self, seed, make, shapes, schedules=(), frozen=None, dtype=np.float64):
        rng = np.random.default_rng(seed)
        self.params = {f"p{k}": Variable(draw(rng, s, dtype), True) for k, s in enumerate(shapes)}
        self.optimizer = make(self.params)
        self.schedules = [SCHEDULES[name](self.optimizer) for name in schedules]
        self.rng = np.random.default_rng(seed)
        self.losses = []
        if frozen is not None:
            self.params[frozen].requires_grad = False

    def tree(self):
        return {
            "params": self.params,
            "optimizer": self.optimizer,
            "schedules": self.schedules,
            "rng": self.rng,
            "losses": len(self.losses),
        }

    def train(self, steps):
        for _ in range(steps):
            for p in self.params.values():
                p.grad = draw(self.rng, p.shape, p.dtype)
            if self.rng.random() < 0.3:
                self.params["p0"].grad = None
            self.optimizer.step(allow_missing=True)
            for schedule in self.schedules:
                if isinstance(schedule, optim.ReduceLROnPlateau):
                    schedule.step(self.rng.random())
                else:
                    schedule.step()

    def look(self):
        found = {name: (p.numpy().tobytes(), p.requires_grad) for name, p in self.params.items()}
        found["rng"] = repr(self.rng.bit_generator.state)
        saved = self.optimizer.state_dict()
        found["settings"] = repr((saved["settings"], saved["groups"]))
        found["state"] = [
            {name: np.asarray(v).tobytes() for name, v in state.items()} for state in saved["state"]
        ]
        found["schedules"] = [repr(schedule.state_dict()) for schedule in self.schedules]
        return found


def assert_resumes(path, make_training, before, trained_before_loading):
    one, other = make_training(0), make_training(1)
    one.train(before)
    od.save(path, one.tree())
    other.train(trained_before_loading)
    od.load(path, other.tree())
    for _ in range(3):
        # Exact, but for state that a step of no effect would have begun.
        assert {**one.look(), "state": 0} == {**other.look(), "state": 0}
        one.train(1)
        other.train(1)
    assert one.look() == other.look()


@pytest.mark.parametrize("trained", [0, 2])
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_every_optimizer_goes_on_exactly(path, case, before, trained):
    kind, _, _, settings = OPTIMIZERS[case]

    def make(seed):
        own = settings if seed == 0 else {"learning_rate": 9.0}
        shapes = shapes_for(kind, SHAPES["mixed"])
        return Training(seed, lambda params: kind(params, **own), shapes)

    assert_resumes(path, make, before, trained)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_goes_on_exactly(path, name):
    def make(seed):
        def groups(params):
            first, *others = params.values()
            own = {"params": others, "learning_rate": 0.3 + seed, "momentum": 0.5}
            return optim.SGD([{"params": first}, own], learning_rate=0.1 + seed, momentum=0.9)

        return Training(seed, groups, SHAPES["small"], [name])

    assert_resumes(path, make, 4, 3)


def test_schedules_of_one_optimizer_go_on_together(path):
    def make(seed):
        adam = lambda params: optim.Adam(params, learning_rate=0.1 / (seed + 1))  # noqa: E731
        return Training(seed, adam, SHAPES["small"], ["WarmupLR", "ExponentialLR", "StepLR"])

    assert_resumes(path, make, 4, 1)


def test_a_schedule_alone_sets_the_rates_and_nothing_else_of_its_optimizer(path):
    one = optim.SGD(Variable(1.0, True), 1.0, momentum=0.5)
    schedule = optim.ExponentialLR(one, 0.5)
    schedule.step()
    od.save(path, schedule)
    two = optim.SGD(Variable(1.0, True), 9.0, momentum=0.25)
    od.load(path, optim.ExponentialLR(two, 0.9))
    assert (two.learning_rate, two.momentum) == (0.5, 0.25)


@pytest.mark.parametrize("amsgrad", [(True, False), (False, True)], ids=["kept", "dropped"])
def test_state_of_settings_from_before_is_neither_lost_nor_left(path, amsgrad):
    def make(seed):
        return Training(seed, lambda ps: optim.Adam(ps, 0.1), SHAPES["small"])

    trainings = [make(0), make(1)]
    for training, on in zip(trainings, amsgrad, strict=True):
        training.optimizer.amsgrad = on
        training.train(2)
        training.optimizer.amsgrad = False
        training.train(1)
    one, other = trainings
    od.save(path, one.tree())
    od.load(path, other.tree())
    assert one.look() == other.look()
    for training in trainings:
        training.optimizer.amsgrad = True
        training.train(2)
    assert one.look() == other.look()


class Sawtooth(optim.Schedule):
    """A schedule of a user, with an attribute of its own."""

    def __init__(self, optimizer, teeth):
        super().__init__(optimizer)
        self.teeth = teeth
        self.note = np.arange(3)

    def _next(self, rate, base):
        return base * (1 + self.steps % self.teeth)


def test_a_schedule_of_a_user_goes_on_exactly(path):
    schedules = [Sawtooth(optim.SGD(Variable(1.0, True), 0.5), teeth) for teeth in (3, 5)]
    schedules[0].step()
    od.save(path, schedules[0])
    od.load(path, schedules[1])
    for _ in range(4):
        for schedule in schedules:
            schedule.step()
        assert repr(schedules[0].state_dict()) == repr(schedules[1].state_dict())


@pytest.mark.parametrize("frozen", ["p1", "p2"])
@pytest.mark.parametrize("case", ["sgd", "amsgrad", "lars"])
def test_frozen_parameters_go_on_exactly_and_stay_frozen(path, case, frozen):
    kind, _, _, settings = OPTIMIZERS[case]

    def make(seed):
        return Training(seed, lambda ps: kind(ps, **settings), SHAPES["mixed"], frozen=frozen)

    assert_resumes(path, make, 3, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.float16])
def test_parameters_of_other_dtypes_go_on_exactly(path, dtype):
    def make(seed):
        adam = lambda params: optim.Adam(params, learning_rate=0.01)  # noqa: E731
        return Training(seed, adam, SHAPES["small"], dtype=dtype)

    assert_resumes(path, make, 3, 1)


def test_a_network_goes_on_exactly_also_where_its_step_is_compiled(path):
    def make(seed, compiled):
        rng = np.random.default_rng(seed)
        w = {"a": Variable(rng.normal(size=(5, 8)), True), "b": Variable(rng.normal(size=8), True)}
        optimizer = optim.Adam(w, learning_rate=0.05)

        def step(x, y):
            with GradientTape() as tape:
                loss = ((ops.tanh(x @ w["a"] + w["b"]).sum(axis=1) - y) ** 2).mean()
            optimizer.zero_grad()
            tape.backward(loss)
            optimizer.step()
            return loss

        run = od.compile(step) if compiled else step
        data = np.random.default_rng(seed + 100)

        def train(count):
            found = []
            for _ in range(count):
                x = data.normal(size=(16, 5))
                found.append(run(x, x.sum(axis=1)).item())
            return found

        return train, {"w": w, "optimizer": optimizer, "data": data}

    for compiled in (False, True):
        train, tree = make(0, compiled)
        train(4)
        od.save(path, tree)
        other, like = make(1, compiled)
        other(2)
        od.load(path, like)
        assert other(5) == train(5)


def test_a_file_goes_on_in_another_process(path, tmp_path):
    import subprocess
    import sys

    program = tmp_path / "program.py"
    program.write_text(
        """
import sys
import numpy as np
import odyssey as od

w = od.Variable(np.zeros(3), requires_grad=True)
optimizer = od.optim.Adam([w], learning_rate=0.1)
rng = np.random.default_rng()
tree = {"w": w, "optimizer": optimizer, "rng": rng, "epoch": 0}
tree["epoch"] = od.load(sys.argv[1], like=tree)["epoch"]
w.grad = rng.normal(size=3)
optimizer.step()
print(w.numpy().tobytes().hex(), tree["epoch"])
""",
        encoding="utf-8",
    )
    w = Variable(np.zeros(3), True)
    optimizer = optim.Adam([w], learning_rate=0.1)
    rng = np.random.default_rng(7)
    for epoch in range(3):
        if epoch == 2:
            od.save(path, {"w": w, "optimizer": optimizer, "rng": rng, "epoch": epoch})
        w.grad = rng.normal(size=3)
        optimizer.step()
    done = subprocess.run(
        [sys.executable, str(program), str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [w.numpy().tobytes().hex(), "2"], done.stderr
