"""Doors to loops and branches that are functions."""

import odyssey as od
from odyssey import ops
from support.doors import either, simple, swept
from support.hostile import hostile


def step(rng):
    """A step of a scan, mostly one that does as it should."""
    if rng.random() < 0.7:
        return lambda c, x=0.0: (ops.multiply(c, 0.5), ops.add(c, x))
    value = hostile(rng)
    return lambda c, x=0.0: (value, c) if rng.random() < 0.5 else value


def few(body, start):
    """A ``while_loop`` that ends, whatever its body returns."""
    left = [3]

    def more(value):
        left[0] -= 1
        return ops.sum(value) < 9.0 if left[0] == 2 else left[0] > 0

    return od.while_loop(more, body, start)


def theirs(loop):
    """A loop whose functions are the user's own, so that what they raise is."""

    def wrapped(f):
        return (lambda *args: f(*args)) if callable(f) else f

    return lambda *args, **named: loop(*map(wrapped, args), **named)


def loop_doors(fn):
    """By name; ``fn`` gives functions of a user."""
    axis = lambda rng: rng.normal(size=(2, 3)) if rng.random() < 0.7 else hostile(rng)  # noqa: E731
    swept_scan = lambda f, c, x: swept(lambda c: od.scan(f, c, x))(c)  # noqa: E731
    return {
        "scan": simple(
            theirs(od.scan), step, lambda rng: rng.normal(size=3), axis,
            writes=True, extra=["length", "reverse"],
        ),
        "scan gradient": simple(theirs(swept_scan), step, either, axis, writes=True),
        "while_loop": simple(theirs(few), fn, either),
        "cond of functions": simple(theirs(od.cond), either, fn, fn, either),
    }  # fmt: skip
