"""Random steps that read and write Variables which lie in memory in any way, as source text."""

import random

import numpy as np

from odyssey import Variable, ops

__all__ = ["StatedStep"]

SHAPES = [(3, 5), (7, 1), (1, 7), (9, 9), (2, 3, 4), (6, 6), (3, 17), (2, 1, 5)]

# Of values x, y and z, which have the shape of all; a is an axis, S the shape.
VALUES = (
    *("{x} + {y}", "{x} * {y}", "0.5 * {x} - {y}", "ops.tanh({x})", "ops.exp(-{x} * {x})"),
    *("{x} - ops.mean({x}, axis={a}, keepdims=True)", "ops.softmax({x}, axis={a})"),
    *("ops.cumsum({x}, axis={a}) * 0.2", "ops.cumprod({x}, axis={a})", "ops.flip({x}, axis={a})"),
    *("ops.roll({x}, 1, axis={a})", "({x} @ ops.swapaxes({y}, -1, -2)) @ {z} * 0.1", "{x} @ W"),
    *("ops.where(M, {x}, {y})", "ops.take({x}, I[{a}], axis={a})", "ops.sort({x}, axis={a})"),
    "ops.setitem({x}, {y}[..., :1, :], key=(..., slice(-1, None), slice(None)))",
    "ops.setitem({x}, {x}, key=slice(None, None, -1))",
    "ops.concatenate([{x}[..., 1:], {y}[..., :1]], axis=-1)",
    "{x} * ops.reshape({y}, (-1,))[-1]",
    "ops.index_add({x} * 0.5, I[{a}], {y}, axis={a})",
    "ops.reshape(ops.swapaxes({x}, -1, -2), S) * {y}",
    "ops.max({x}, axis={a}, keepdims=True) * 0.3 + {y}",
    "ops.swapaxes(ops.swapaxes(W, 0, 1) @ ops.swapaxes({x}, -1, -2), -1, -2)",
    "{x} * ops.sum({z} * (q := ops.tanh({y}[..., :1]))) * ops.sum(q)",
    "ops.put_along_axis({x}, ops.argsort({y}, axis={a}), {x}, axis={a})",
)
WRITES = (
    *("{v}.assign(ops.clip({e}, -2, 2))", "{v}.assign(ops.clip({e}, -2, 2))", "{v}[I[0]] = {e}"),
    *("{v}[...] += 0.1 * {x}", "{v}[::-1] = {x}", "{v}[..., -1] = 0.25", "{v}[:1] = {x}[-1:]"),
)
LAYOUTS = {
    "plain": lambda n: (n, lambda m: m),
    "turned": lambda n: (n[::-1], lambda m: m.T),
    "reversed": lambda n: (n, lambda m: m[tuple(slice(None, None, -1) for _ in n)]),
    "every other": lambda n: ([2 * k for k in n], lambda m: m[tuple(slice(0, None, 2) for _ in n)]),
    "a part": lambda n: ((*n[:-1], n[-1] + 3), lambda m: m[..., 2:-1]),
    "last first": lambda n: ((n[-1], *n[:-1]), lambda m: np.moveaxis(m, 0, -1)),
}


class StatedStep:
    """A step and its Variables, made of a seed: equal seeds give equal worlds.

    Attributes:
        memories: What the Variables lie in.
        variables: What the step reads and writes.
        step: The function, of two arrays.
    """

    def __init__(self, seed, dtype):
        choose, self._rng = random.Random(seed), np.random.default_rng(seed)
        self.shape, self._dtype = choose.choice(SHAPES), dtype
        made = [self._array(choose.choice([*LAYOUTS])) for _ in range(choose.randint(1, 3))]
        self.memories = [memory for memory, _ in made]
        self.variables = [Variable(shown) for _, shown in made]
        self.source = _source(choose, len(made), len(self.shape))
        width = self.shape[-1]
        names = {"ops": ops, "S": self.shape, "M": self._rng.random(self.shape) < 0.5}
        names["W"] = self._rng.uniform(-0.3, 0.3, (width, width)).astype(dtype)
        names["I"] = [self._rng.integers(0, n, n) for n in self.shape]
        names |= {f"v{k}": v for k, v in enumerate(self.variables)}
        exec(self.source, names)
        self.step = names["step"]

    def _array(self, layout):
        shape, show = LAYOUTS[layout](self.shape)
        memory = self._rng.uniform(-1.0, 1.0, shape).astype(self._dtype)
        return memory, show(memory)

    def arguments(self, seed):
        """Fresh arguments."""
        self._rng = np.random.default_rng(seed)
        layouts = ["plain", [*LAYOUTS][seed % len(LAYOUTS)]]
        return [self._array(layout)[1] for layout in layouts]


def _source(choose, count, ndim):
    """What a step does, written out."""
    states, values = [f"v{k}" for k in range(count)], ["a", "b"]
    lines = ["def step(a, b):"]

    def value():
        x, y, z = (choose.choice([*states, *values[-6:]]) for _ in range(3))
        return choose.choice(VALUES).format(x=x, y=y, z=z, a=choose.randrange(ndim))

    for k in range(choose.randint(3, 14)):
        if choose.random() < 0.6:
            lines.append(f"    t{k} = {value()}")
            values.append(f"t{k}")
        else:
            x = choose.choice(values[-6:])
            write = choose.choice(WRITES).format(v=choose.choice(states), e=value(), x=x)
            lines.append(f"    {write}")
    ends = ", ".join(f"{name} * 1.0" for name in (*values[-2:], states[0]))
    return "\n".join([*lines, f"    return {ends}"])
