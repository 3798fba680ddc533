"""Two worlds that differ in one thing: in one of them the functions are compiled.

A ``World`` is a network with its optimizer and some functions on them. ``ACTIONS`` are what
somebody might do to it, each drawn from a generator of its own, so that both worlds do the same.
Nothing here knows how a compiled function runs.
"""

import math
import re

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.array_locks import locked_bytes
from odyssey.optim import (
    SGD,
    AdaGrad,
    Adam,
    AdamW,
    ExponentialLR,
    Lion,
    RMSprop,
    StepLR,
    clip_grad_global_norm,
    clip_grad_norm,
    clip_grad_value,
)
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store

OPTIMIZERS = [
    lambda p: SGD(p, 0.1),
    lambda p: SGD(p, 0.1, momentum=0.9),
    lambda p: SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
    lambda p: Adam(p, 0.01),
    lambda p: Adam(p, 0.01, amsgrad=True),
    lambda p: AdamW(p, 0.01),
    lambda p: Lion(p, 0.01),
    lambda p: RMSprop(p, 0.01, momentum=0.5),
    lambda p: AdaGrad(p, 0.1),
    lambda p: SGD([{"params": p[:2], "learning_rate": 0.2}, {"params": p[2:]}], 0.1),
]
SCHEDULES = [lambda o: StepLR(o, 2, 0.5), lambda o: ExponentialLR(o, 0.9)]
CLIPS = [
    lambda p: clip_grad_global_norm(p, 0.1),
    lambda p: clip_grad_norm(p, 0.1),
    lambda p: clip_grad_value(p, 0.01),
]


class World:
    """A network, its optimizer, and functions that are compiled or not."""

    def __init__(self, seed, compiled):
        rng = np.random.default_rng(seed)
        self.dtype = rng.choice([np.float64, np.float32])
        shapes = {"w1": (3, 4), "b1": (4,), "w2": (4, 3), "b2": (3,)}
        self.params = [
            Variable(rng.normal(0, 0.5, shape).astype(self.dtype), True, name=name)
            for name, shape in shapes.items()
        ]
        self.running = Variable(np.zeros(4, self.dtype), name="running")
        self.scale = np.linspace(0.5, 1.5, 3).astype(self.dtype)
        self.clip = CLIPS[rng.integers(len(CLIPS))]
        self.optimizer = OPTIMIZERS[rng.integers(len(OPTIMIZERS))](self.params)
        self.schedule = SCHEDULES[rng.integers(len(SCHEDULES))](self.optimizer)
        self.kept, self.saved, self.history, self.calls = [], [], [], 0
        self.plain = {name: getattr(self, name) for name in FUNCTIONS}
        self.use = {n: od.compile(f) if compiled else f for n, f in self.plain.items()}

    def forward(self, x):
        w1, b1, w2, b2 = self.params
        return ops.tanh(x @ w1 + b1) @ w2 * self.scale + b2

    def backward(self, x, y, **settings):
        with GradientTape(**settings) as tape:
            loss = od.losses.cross_entropy(self.forward(x), y)
        tape.backward(loss)
        return loss

    # -------------------------------------------------------------- what is compiled

    def step(self, x, y):
        self.calls += 1
        loss = self.backward(x, y)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def step_zeroing_first(self, x, y):
        self.optimizer.zero_grad()
        loss = self.backward(x, y)
        self.optimizer.step(allow_missing=True)
        self.history.append(loss)
        return {"loss": loss, "batch": x}

    def accumulate(self, x, y):
        return self.backward(x, y)

    def apply(self):
        self.optimizer.step()

    def clipped(self, x, y):
        loss = self.backward(x, y)
        norm = self.clip(self.params)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, norm

    def checkpointed(self, x, y):
        with GradientTape() as tape:
            logits = od.checkpoint(self.forward)(tape.watch(x))
            loss = od.losses.cross_entropy(logits, y)
        return loss, tape.gradient(loss, self.params, unused="zero")

    def careful(self, x, y):
        return self.backward(x, y, check=True)

    def hooked(self, x, y, factor):
        with GradientTape() as tape:
            logits = self.forward(x)
            loss = od.losses.cross_entropy(logits, y)
        tape.on_gradient(logits, lambda g: g * factor)
        tape.on_gradient(self.params[0], lambda g: g + 1.0)
        tape.backward(loss)
        return loss

    def predict(self, x):
        return self.forward(x)

    def penalty(self, x, rate):
        return [(x * x).sum() * rate, x * rate + self.scale.sum(), self.scale, np.ones(2)]

    def remember(self, x):
        self.running.assign(self.running * 0.9 + ops.mean(x, 0)[:1] * 0.1)
        self.running[0] = self.running[1] + 1.0
        return self.running

    def decay(self, rate):
        for p in self.params:
            p.assign(p.detach() * (1.0 - rate))
        self.params[1].grad = self.params[1].detach() * rate
        self.params[3].zero_grad()

    def curved(self, x, y):
        def loss(w):
            return od.losses.cross_entropy(ops.tanh(x @ w + self.params[1]) @ self.params[2], y)

        return od.grad(lambda w: (od.grad(loss)(w) ** 2).sum())(self.params[0].detach())

    # -------------------------------------------------------------- what can be seen

    def look(self):
        """All that can be seen of this world, as bytes and plain values."""
        state = self.optimizer.state_dict()
        return {
            "params": [(Near(p.numpy()), str(p.dtype), p.requires_grad) for p in self.params],
            "grads": [seen(p.grad) for p in self.params],
            "versions": [p._info.version if p._info else None for p in self.params],
            "state": [{k: seen(v) for k, v in s.items()} for s in state["state"]],
            "settings": repr((state["settings"], state["groups"])),
            "running": seen(self.running),
            "scale": (seen(self.scale), self.scale.flags.writeable),
            "python": (self.calls, [seen(loss) for loss in self.history]),
            "kept": [seen(value) for value in self.kept],
        }


ON_BATCHES = ["step", "step_zeroing_first", "accumulate", "clipped", "checkpointed", "careful"]
ON_BATCHES += ["curved"]
FUNCTIONS = [*ON_BATCHES, "apply", "hooked", "predict", "penalty", "remember", "decay"]


def seen(value):
    """A value as bytes, with its kind: whether it is an array, a constant, untracked, ..."""
    if isinstance(value, (dict, list, tuple)):
        return od.tree.map_tree(seen, value)
    if isinstance(value, Variable):
        data = value.detach().numpy()
        kind = "untracked" if "untracked" in repr(value) else value.requires_grad
        return "Variable", kind, str(data.dtype), Near(data)
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, str(value.dtype), Near(value)
    return ("float", Near(value)) if type(value) is float else repr(value)


class Near:
    """Numbers that equal others but for the order of sums, over all steps of a world.

    Attributes:
        computed: The dtype of the parameters of the world.
    """

    computed = np.float64

    def __init__(self, array):
        self.array = np.array(array)

    def __eq__(self, other):
        a, b = self.array, other.array
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind not in "fc":
            return a.tobytes() == b.tobytes()
        finite = np.abs(a[np.isfinite(a)])
        bound = 1e4 * np.finfo(Near.computed).eps * max(finite.max(initial=0), 1e-3)
        return np.allclose(a, b, rtol=0, atol=float(bound), equal_nan=True)

    __hash__ = None

    def __repr__(self):
        return repr(self.array)


def told(error):
    """An error by its type and message, without what differs from object to object."""
    text = re.sub(r"<tape [0-9a-f]+", "<tape", str(error))
    # Numbers are the same up to the order of sums.
    text = re.sub(r"Variable\(.*?, shape", "Variable(some, shape", text, flags=re.DOTALL)
    text = re.sub(r"-?\d+\.\d*(e[+-]?\d+)?", "a number", text)
    return type(error).__name__, re.sub(r"\b(variable|id )\d+", r"\1", text)


# ------------------------------------------------------------------ what is done


def batch(world, rng):
    n = int(rng.integers(1, 5))
    x = rng.normal(size=(n, 3))
    kind = rng.integers(8)
    x = x.astype(world.dtype) if kind else x.astype(rng.choice([np.float16, np.float64]))
    x = np.round(x).astype(np.int64) if kind == 1 else x
    x = np.asfortranarray(x) if kind == 2 else x
    y = rng.integers(0, 3, n)
    return (Variable(x, name="x") if kind == 3 else x), y


def compiled_call(world, rng):
    return world.use[ON_BATCHES[rng.integers(len(ON_BATCHES))]](*batch(world, rng))


def eager_call(world, rng):
    return world.plain[ON_BATCHES[rng.integers(len(ON_BATCHES))]](*batch(world, rng))


def steps(world, rng):
    return [world.use["step"](*batch(world, rng)) for _ in range(3)]


def accumulation(world, rng):
    losses = [world.use["accumulate"](*batch(world, rng)) for _ in range(2)]
    world.use["apply"]()
    return losses


def hook(world, rng):
    return world.use["hooked"](*batch(world, rng), float(rng.choice([0.0, -0.0, 2.0])))


def bad_batch(world, rng):
    x, y = batch(world, rng)
    x = np.array(x.numpy() if isinstance(x, Variable) else x, world.dtype)
    name = ON_BATCHES[rng.integers(len(ON_BATCHES))]
    bad = [
        lambda: (x[:, :2], y),
        lambda: (x, np.append(y, 0)),
        lambda: (x, y + 3),
        lambda: (np.full_like(x, math.nan), y),
        lambda: (x, y * 0.5),
        lambda: (x.tolist(), y),
        lambda: (x.astype(object), y),
        lambda: (None, y),
        lambda: (x * 1e30, y),
        lambda: (x[:0], y[:0]),
        lambda: (x,),
    ]
    return world.use[name](*bad[rng.integers(len(bad))]())


def freeze_or_thaw(world, rng):
    p = world.params[rng.integers(4)]
    p.requires_grad = not p.requires_grad


def assign(world, rng):
    p = world.params[rng.integers(4)]
    p.assign(rng.normal(0, 0.5, p.shape))


def set_gradient(world, rng):
    p = world.params[rng.integers(4)]
    p.grad = None if rng.integers(2) else rng.normal(size=p.shape)
    if not rng.integers(4):
        world.params[1].grad = rng.normal(size=(3, 4))


def zero_gradients(world, rng):
    world.optimizer.zero_grad()


def change_rate(world, rng):
    if rng.integers(2):
        world.schedule.step()
    else:
        world.optimizer.learning_rate = float(rng.choice([0.0, 0.05, 0.1]))


def save(world, rng):
    copies = [np.array(p.numpy()) for p in world.params]
    world.saved.append((copies, world.optimizer.state_dict()))


def load(world, rng):
    if world.saved:
        values, state = world.saved[rng.integers(len(world.saved))]
        for p, value in zip(world.params, values, strict=True):
            p.assign(value)
        world.optimizer.load_state_dict(state)


def load_what_does_not_fit(world, rng):
    world.optimizer.load_state_dict({"settings": {}, "groups": [], "state": [{}]})


def eager_optimizer_step(world, rng):
    world.optimizer.step(allow_missing=bool(rng.integers(2)))


def predict(world, rng):
    result = world.use["predict"](batch(world, rng)[0])
    world.kept.append(result)
    return result


def use_what_was_kept(world, rng):
    if world.kept:
        value = world.kept[rng.integers(len(world.kept))]
        with GradientTape() as tape:
            loss = ops.sum(world.params[1] * 2.0) + ops.sum(value)
        tape.backward(loss)
        return loss.detach()


def write_to_what_came_back(world, rng):
    results = world.use["penalty"](batch(world, rng)[0], float(rng.choice([0.0, -0.0, 1.0])))
    for value in results:
        if isinstance(value, np.ndarray):
            value[...] = value * 2.0 + 1.0
    return results, world.use["penalty"](batch(world, rng)[0], rng.choice([1, True, 2.0]).item())


def write_to_what_is_captured(world, rng):
    world.scale[rng.integers(3)] = rng.normal()


def call_in_a_tape(world, rng):
    x, y = batch(world, rng)
    with GradientTape() as tape:
        loss = od.losses.cross_entropy(world.use["predict"](x), y)
    tape.backward(loss)
    return loss.detach()


def step_between_recording_and_sweep(world, rng):
    with GradientTape() as tape:
        loss = ops.sum(world.params[rng.integers(4)] ** 2)
        if rng.integers(2):
            world.use["decay"](0.1)
    if rng.integers(2):
        world.use["step"](*batch(world, rng))
    tape.backward(loss)


def call_in_a_pause(world, rng):
    with od.no_grad():
        return world.use[["predict", "remember"][rng.integers(2)]](batch(world, rng)[0])


def step_in_a_pause(world, rng):
    with od.no_grad():
        return world.use["step"](*batch(world, rng))


def call_on_an_enabled_tape(world, rng):
    tape = GradientTape()
    tape.enable()
    x = tape.variable(rng.normal(size=(2, 3)))
    out = world.use["predict"](x)
    return out.tape is tape, len(tape), tape.gradient(out, x, np.ones((2, 3)))


def differentiate(world, rng):
    x = rng.normal(size=(2, 3))
    return od.grad(lambda x: world.use["predict"](x).sum())(x)


def remember(world, rng):
    return world.use["remember"](batch(world, rng)[0]).detach()


def decay(world, rng):
    world.use["decay"](float(rng.choice([0.0, 0.1])))


def failing_sum(world, rng):
    with np.errstate(all="raise"):
        return world.use["accumulate"](
            np.full((2, 3), np.finfo(world.dtype).max), rng.integers(0, 3, 2)
        )


ACTIONS = [
    *[compiled_call] * 6,
    *[steps, eager_call, bad_batch, freeze_or_thaw] * 2,
    *[accumulation, hook, assign, set_gradient, zero_gradients, change_rate, save, load],
    *[load_what_does_not_fit, eager_optimizer_step, predict, use_what_was_kept, remember, decay],
    *[write_to_what_came_back, write_to_what_is_captured, call_in_a_tape, call_in_a_pause],
    *[step_between_recording_and_sweep, step_in_a_pause, call_on_an_enabled_tape, differentiate],
    failing_sum,
]


def done(world, action, seed):
    """Do one action; return its result, or its error."""
    try:
        with np.errstate(all="ignore"):
            result = seen(action(world, np.random.default_rng(seed)))
    except Exception as error:
        result = told(error)
    assert store() is MEMORY, action
    assert scopes() == (None,), action
    assert locked_bytes() == 0, action
    return result


def run(seed, actions):
    """Send both worlds through the same random actions; return how many ended in an error."""
    eager, compiled = World(seed, False), World(seed, True)
    Near.computed = eager.dtype
    rng = np.random.default_rng([seed, 1])
    errors, way = 0, []
    for _ in range(actions):
        action = ACTIONS[rng.integers(len(ACTIONS))]
        draw = int(rng.integers(1 << 30))
        way.append(action.__name__)
        results = [done(world, action, draw) for world in (eager, compiled)]
        assert results[0] == results[1], (seed, way)
        one, other = eager.look(), compiled.look()
        for what in one:
            assert one[what] == other[what], (seed, what, way)
        errors += isinstance(results[0], tuple) and str(results[0][0]).endswith("Error")
    return errors
