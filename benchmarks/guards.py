"""Nanoseconds to ask whether all that a training step reads of Python is as it was.

    python benchmarks/guards.py [--rounds 9]

First by a function of Python, then by native code, which asks Python only about what no word in
memory says, such as elements of arrays; and a whole call of the compiled step. Processor time,
medians of interleaved rounds, against an empty function of Python in the same run.
"""

import argparse

import numpy as np

import odyssey as od
from harness.machine import pin_to_one_cpu
from harness.sampling import interleaved
from odyssey.compiler.guards.guards import discover_guards

CALLS = 50_000


class Network:
    """Two layers, with the optimizer and a number beside them."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.w1, self.b1, self.w2, self.b2 = (
            od.Variable(rng.normal(size=shape), requires_grad=True)
            for shape in [(2, 16), (16,), (16, 1), (1,)]
        )
        self.params = [self.w1, self.b1, self.w2, self.b2]
        self.optimizer = od.optim.SGD(self.params, 0.1, momentum=0.9)
        self.scale = 0.5

    def forward(self, x):
        return od.ops.tanh(x @ self.w1 + self.b1) @ self.w2 + self.b2

    def loss(self, x, y):
        return ((self.forward(x) - y) ** 2).mean() * self.scale

    def step(self, x, y):
        with od.GradientTape() as tape:
            loss = self.loss(x, y)
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def of_functions(net):
    """The same step, of functions that close over what they use."""
    w1, b1, w2, b2 = net.params
    optimizer, scale = net.optimizer, net.scale

    def forward(x):
        return od.ops.tanh(x @ w1 + b1) @ w2 + b2

    def loss_of(x, y):
        return ((forward(x) - y) ** 2).mean() * scale

    def step(x, y):
        with od.GradientTape() as tape:
            loss = loss_of(x, y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def with_table(net):
    """A function that reads an array of a kilobyte besides."""
    table, w = np.ones(128), net.w1
    return lambda x: (w * x).sum() * table


def natively(program, *args):
    """What looks at the guards of a compiled program, and a call of it."""
    compiled = od.compile(program)
    for _ in range(4):
        compiled(*args)
    ((case),) = compiled._known.values()
    return case.programs[0][1].native._predicate, lambda: compiled(*args)


def nothing():
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    pin_to_one_cpu()
    net = Network()
    net.step(np.ones((4, 2)), np.ones((4, 1)))
    programs = {"functions": of_functions(net), "object": net.step, "table": with_table(net)}
    guards = {name: discover_guards(program) for name, program in programs.items()}
    calls = {"nothing": nothing} | {name: one.holds for name, one in guards.items()}
    assert all(call() for call in calls.values())
    batch = np.ones((4, 2)), np.ones((4, 1))
    for name in ("functions", "object"):
        looks, whole = natively(programs[name], *batch)
        calls |= {f"{name}, natively": looks, f"{name}, a call": whole}
    samples = interleaved(calls, rounds, repeats=CALLS)
    for name in calls:
        places = f", {len(guards[name])} places" if name in guards else ""
        print(f"{name:20} {1e9 * samples.median(name):6.0f} ns{places}")
    looking = interleaved({"": lambda: discover_guards(programs["object"])}, 1, repeats=100)
    print(f"to look for them: {1e3 * looking.median(''):.2f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
