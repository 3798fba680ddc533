"""Doors to data-parallel training in a group of one, and to collectives."""

import numpy as np

import odyssey as od
from odyssey.distributed import DataParallel, world
from support.doors import leaf, optimizer, simple

__all__ = ["parallel_doors"]


def made(rng, shards=2):
    return DataParallel(optimizer(rng), shards=shards)


def added(gradients, weight, shards):
    parallel = made(np.random.default_rng(0), shards)
    parallel.add(gradients, weight)
    return parallel


def two_gradients(rng):
    found = [rng.normal(size=(2, 3)), rng.normal(size=(2, 3))]
    return found if rng.random() < 0.7 else dict(zip("ab", found, strict=True))


def stepped(**options):
    parallel = made(np.random.default_rng(1))
    for _ in range(2):
        parallel.add([np.ones((2, 3)), np.ones((2, 3))])
    parallel.step(**options)


def swept_by(tape, loss, weight):
    made(np.random.default_rng(2)).backward(tape, loss, weight)


def recorded(rng):
    tape = od.GradientTape()
    with tape:
        leaf(rng) * 2.0
    return tape


def state(rng):
    return made(rng).state_dict()


def batch(rng):
    return {"x": rng.normal(size=(5, 2)), "y": rng.integers(0, 3, 5)}


def parallel_doors():
    rng = np.random.default_rng(3)
    collectives = {
        f"distributed.{name}": simple(getattr(world(), name), leaf)
        for name in ("all_reduce", "all_gather", "broadcast", "shift", "agree")
    }
    return collectives | {
        "distributed.DataParallel": simple(
            DataParallel, optimizer, lambda rng: world(), 2, "ordered", extra=["check_every"]
        ),
        "parallel.shards": simple(lambda b: list(made(rng).shards(b)), batch),
        "parallel.add": simple(added, two_gradients, None, 2),
        "parallel.backward": simple(swept_by, recorded, leaf, None),
        "parallel.step": simple(
            stepped, extra=["clip_norm", "clip_value", "allow_missing", "where", "scaler"]
        ),
        "parallel.precompile": simple(
            lambda f, b: made(rng).precompile(f, b), lambda rng: od.compile(lambda *a: None), batch
        ),
        "parallel.load_state_dict": simple(lambda s: made(rng).load_state_dict(s), state),
    }
