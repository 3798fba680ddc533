"""Random programs as training steps, with state; and the two worlds in which they run."""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.compiled_rows import assert_within, plain, same_bits, ways_to_outputs

PLACES = ("trained", "frozen", "argument", "captured")


def spelled(program, place=lambda array: array):
    """A program as a function that is written out, since what looks ops up by text is not traced.

    What Python cannot spell stands in the function's globals. ``place`` moves arrays that are
    operands to a device.
    """
    names = {"ops": ops}

    def told(value):
        if type(value) in (int, float, bool, str, type(None)):
            return repr(value)
        if type(value) is tuple:
            return f"({''.join(told(part) + ', ' for part in value)})"
        names[f"c{len(names)}"] = value
        return f"c{len(names) - 1}"

    def operand(value):
        if type(value) is list:
            return f"[{', '.join(map(operand, value))}]"
        value = place(value) if isinstance(value, np.ndarray) else value
        return f"v{value}" if type(value) is int else told(value)

    given = ", ".join(f"v{k}" for k in range(len(program.leaves)))
    lines = [f"def run({given}):"]
    for k, step in enumerate(program.steps, len(program.leaves)):
        options = [f"{name}={told(value)}" for name, value in step.options.items()]
        call = f"ops.{step.op}({', '.join([*map(operand, step.operands), *options])})"
        lines.append(f"    v{k} = {call}{'' if step.part is None else f'[{step.part}]'}")
    lines.append(f"    return [{', '.join(f'v{k}' for k in program.outputs)}]")
    exec("\n".join(lines), names)
    return names["run"]


class Stepped:
    """A program whose leaves are parameters, constants, arguments and captured arrays.

    A step runs it under a tape, adds gradients up or not, moves the parameters a little, and
    writes into a memory by indices.
    """

    def __init__(self, program, seed, dtype=np.float64):
        rng = np.random.default_rng(seed)
        self.program, self.run = program, spelled(program)
        self.places = [PLACES[k] for k in rng.integers(len(PLACES), size=len(program.leaves))]
        self.places[rng.integers(len(program.leaves))] = "trained"
        self.leaves = [
            Variable(x.astype(dtype), place == "trained", name=f"v{k}")
            if place in ("trained", "frozen")
            else x.astype(dtype)
            for k, (x, place) in enumerate(zip(program.leaves, self.places, strict=True))
        ]
        self.memory = Variable(np.zeros((2, 3), dtype), name="memory")
        self.zeroing = bool(rng.integers(2))
        self.rows = rng.integers(0, 2, 2)
        self.weights = [rng.uniform(-1.0, 1.0, np.shape(y)).astype(dtype) for y in self.outputs()]

    def outputs(self):
        return self.run(*[plain(x) for x in self.leaves])

    @property
    def trained(self):
        return [x for x, p in zip(self.leaves, self.places, strict=True) if p == "trained"]

    @property
    def states(self):
        return [x for x in self.leaves if isinstance(x, Variable)] + [self.memory]

    def step(self, given, rate):
        turn = iter(given)
        values = [
            next(turn) if place == "argument" else x
            for x, place in zip(self.leaves, self.places, strict=True)
        ]
        with GradientTape() as tape:
            outputs = self.run(*values)
            terms = [ops.sum(y * w) for y, w in zip(outputs, self.weights, strict=True)]
            # Each parameter takes part, so that each gets a gradient.
            loss = sum(terms, start=sum(ops.sum(p) * 0.01 for p in self.trained))
        tape.backward(loss)
        for p in self.trained:
            p.assign(p.detach() - rate * ops.tanh(p.grad))
        self.memory[self.rows[0]] = self.memory[self.rows[1], ::-1] * 0.5 + loss.detach()
        self.memory[:, 1] = rate
        self.memory.assign(self.memory + 0.25)
        if self.zeroing:
            for p in self.trained:
                p.zero_grad()
        return outputs, loss

    def arguments(self, seed):
        """Fresh arrays for the leaves that are arguments, near those of the program."""
        rng = np.random.default_rng(seed)
        given = [x for x, p in zip(self.leaves, self.places, strict=True) if p == "argument"]
        return [(x + rng.uniform(-0.1, 0.1, x.shape)).astype(x.dtype) for x in given]

    def seen(self):
        """What a step may change, by label."""
        found = {v.name: v.numpy().copy() for v in self.states}
        grads = {f"{p.name}.grad": p.grad for p in self.trained}
        return found | {name: None if g is None else np.array(g) for name, g in grads.items()}

    def versions(self):
        return [v._info.version if v._info else None for v in self.states]


def take_over(world, seen):
    """Assign to a world what was seen in another."""
    for v in world.states:
        v.assign(seen[v.name])
    for p in world.trained:
        p.grad = seen[f"{p.name}.grad"]


def run(program, seed, steps=4, dtype=np.float64, compiling=od.compile):
    """Step a program eagerly and compiled, from the same numbers, and compare all that is left.

    Each step is held to what its graph allows; where bits differ, the worlds are made equal.
    """
    eager, other = Stepped(program, seed, dtype), Stepped(program, seed, dtype)
    compiled = compiling(other.step)
    rates = [0.01, 0.01, 0.02, 0.03, 0.01]
    for k in range(steps):
        args = (eager.arguments(100 * seed + k), rates[k % 5])
        graph = od.compile(eager.step).lower(*args).graph
        ways, left = ways_to_outputs(graph, args[0])
        versions = eager.versions(), other.versions()
        outputs, loss = eager.step(*args)
        found, its_loss = compiled(*args)
        what = (seed, k)
        for got, wanted, way in zip((*found, its_loss), (*outputs, loss), ways, strict=True):
            meet(got, wanted, way, what)
        one, two = eager.seen(), other.seen()
        for name, wanted in one.items():
            if wanted is None or two[name] is None:
                assert wanted is two[name], (what, name)
            else:
                meet(two[name], wanted, left.get(name), (*what, name))
        # A program notes the writes to a leaf as one.
        moved = [a != b for a, b in zip(eager.versions(), versions[0], strict=True)]
        assert moved == [a != b for a, b in zip(other.versions(), versions[1], strict=True)], what
        if any(v is not None and not same_bits(two[name], v) for name, v in one.items()):
            take_over(eager, one)
            take_over(other, one)


def meet(got, wanted, way, what):
    """Raise AssertionError where two values differ by more than the way to one of them allows."""
    if same_bits(got, wanted):
        return
    assert way is not None, (what, "should not have changed", got, wanted)
    assert_within(got, wanted, way, what)
