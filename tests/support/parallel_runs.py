"""Runs of DataParallel that must end with equal bits on any number of ranks; also a script of them.

    python -m odyssey launch -n 2 tests/support/parallel_runs.py SGD halves

prints on rank 0 a JSON object: the name of each run, and a hash of its parameters and state.
"""

import hashlib
import json
import os
import sys
from itertools import pairwise

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops
from odyssey.distributed import DataParallel

__all__ = ["DIGITS", "RUNS"]

SIZES = (64, 32, 10)


def mlp(dtype=np.float32, sizes=SIZES):
    """Parameters of a network, equal in each call."""
    rng = np.random.RandomState(0)
    params = []
    for k, (i, o) in enumerate(pairwise(sizes)):
        weight = (rng.standard_normal((i, o)) * i**-0.5).astype(dtype)
        params.append(Variable(weight, requires_grad=True, name=f"w{k}"))
        params.append(Variable(np.zeros(o, dtype), requires_grad=True, name=f"b{k}"))
    return params


def loss_of(params, x, y):
    h = x
    for k in range(0, len(params), 2):
        h = h @ params[k] + params[k + 1]
        if k + 2 < len(params):
            h = ops.relu(h)
    return losses.cross_entropy(h, y)


def batch_of(step, rows, sizes=SIZES, dtype=np.float32):
    rng = np.random.RandomState(1000 + step)
    return rng.standard_normal((rows, sizes[0])).astype(dtype), rng.randint(0, sizes[-1], rows)


def hash_of_run(params, state):
    """Return a hash of the bits of parameters and state."""
    digest = hashlib.blake2b(digest_size=8)
    for p in params:
        digest.update(p.numpy().tobytes())
    for entry in state["state"]:
        for name in sorted(entry):
            digest.update(name.encode())
            digest.update(np.asarray(entry[name]).tobytes())
    return digest.hexdigest()


def train(
    optimizer,
    params,
    *,
    steps=6,
    rows=32,
    shards=8,
    compiled=False,
    batches=1,
    change=None,
    batch=batch_of,
    precompiled=True,
    loss=loss_of,
    reduction="ordered",
    **options,
):
    """Train, and return the hash of what is reached.

    Args:
        optimizer: Makes the optimizer from the parameters.
        params: A list of Variables.
        change: Called with the number of the step, the parameters and the optimizer.
        options: Of ``DataParallel.step``.
    """
    owner = optimizer(params)
    parallel = DataParallel(owner, shards=shards, reduction=reduction)
    gradients = None
    if compiled:
        gradients = od.compile(lambda x, y: od.grad(lambda p: loss(p, x, y))(params))
        if precompiled:
            parallel.precompile(gradients, batch(0, rows))
    for step in range(steps):
        if change is not None:
            change(step, params, owner)
        for k in range(batches):
            for part in parallel.shards(batch(step * batches + k, rows)):
                if compiled:
                    parallel.add(gradients(*part))
                else:
                    with GradientTape() as tape:
                        value = loss(params, *part)
                    parallel.backward(tape, value)
        parallel.step(**options)
    return hash_of_run(params, parallel.state_dict())


def tree_of_parts(optimizer, params, *, steps, rows, compiled, batch, shards=8):
    """Train by a loop that adds the gradients of parts as a tree, without slices of the state.

    On several ranks each adds its parts, and ``all_reduce`` the sums of ranks; a rank steps all
    parameters by the optimizer itself.
    """
    world, owner, per = od.distributed.world(), optimizer(params), rows // shards

    def gradients(x, y):
        return od.grad(lambda p: loss_of(p, x, y))(params)

    if compiled:
        gradients = od.compile(gradients)
        x, y = batch(0, rows)
        gradients.precompile(x[:per], y[:per])

    def tree_sum(parts):
        if len(parts) == 1:
            return parts[0]
        middle = len(parts) // 2
        left, right = tree_sum(parts[:middle]), tree_sum(parts[middle:])
        return [a + b for a, b in zip(left, right, strict=True)]

    own = shards // world.size
    for step in range(steps):
        x, y = batch(step, rows)
        found = []
        for k in range(world.rank * own, (world.rank + 1) * own):
            found.append(list(gradients(x[k * per : (k + 1) * per], y[k * per : (k + 1) * per])))
        for p, g in zip(params, tree_sum(found), strict=True):
            p.grad = world.all_reduce(g) / np.float32(shards)
        owner.step()
        owner.zero_grad()
    return hash_of_run(params, owner.state_dict())


OPTIMIZERS = {
    "SGD": lambda params: od.optim.SGD(params, 0.1, momentum=0.9),
    "Adam": lambda params: od.optim.Adam(params, 0.01),
    "AdamW": lambda params: od.optim.AdamW(params, 0.01),
    "LARS": lambda params: od.optim.LARS(params, 0.1),
    "Adafactor": lambda params: od.optim.Adafactor(params, 0.05),
    "Lion": lambda params: od.optim.Lion(params, 0.01),
}


def two_groups(params):
    groups = [{"params": params[:2], "learning_rate": 0.5}, {"params": params[2:]}]
    return od.optim.SGD(groups, 0.1, momentum=0.5)


def change_settings(step, params, optimizer):
    optimizer.learning_rate = 0.1 / (1 + step)
    if step == 3:
        optimizer.momentum = 0.5


def freeze_and_thaw(step, params, optimizer):
    params[1].requires_grad = step not in (2, 3)
    params[2].requires_grad = step != 0


def assign_some(step, params, optimizer):
    if step == 3:
        params[0].data = params[0].numpy() * np.float32(0.5)
        params[3].data = np.ones(params[3].shape, params[3].dtype)


def complex_params():
    rng = np.random.RandomState(2)
    values = [rng.standard_normal((40, 17)) + 1j * rng.standard_normal((40, 17)), np.zeros((0, 2))]
    values += [np.float64(0.5), rng.standard_normal(700)]
    return [Variable(v, requires_grad=True, name=f"p{k}") for k, v in enumerate(values)]


def complex_loss(params, x, y):
    z, _, scale, v = params
    out = ops.absolute(ops.matmul(x.astype(complex), z)) * scale
    return ops.mean(out * out) + ops.mean(ops.sin(v)) * ops.mean(out)


def complex_batch(step, rows):
    rng = np.random.RandomState(step)
    return rng.standard_normal((rows, 40)), np.zeros(rows)


def branching_loss(params, x, y):
    """Uses the last layer only where the first row says so, as a mixture of experts does."""
    h = ops.relu(x @ params[0] + params[1])
    return losses.cross_entropy(h @ params[2] + params[3], y) if x[0, 0] > 0 else ops.mean(h * h)


def scaled_run():
    params, scaler = mlp(np.float16), od.optim.LossScaler(2.0**12, interval=2)
    parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=4)
    for step in range(6):
        x, y = batch_of(step, 16, dtype=np.float16)
        if step == 3:
            x[9, 0] = np.inf  # in a part of one rank
        with np.errstate(all="ignore"):
            for part in parallel.shards((x, y)):
                with GradientTape() as tape:
                    loss = scaler.scale(loss_of(params, *part))
                parallel.backward(tape, loss)
            parallel.step(scaler=scaler, clip_norm=0.5)
    return f"{hash_of_run(params, parallel.state_dict())} {scaler.value}"


def reloaded_run():
    """A state goes through a plain optimizer and back in the middle."""
    params = mlp()
    parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=4)
    for step in range(4):
        if step == 2:
            saved = parallel.state_dict()
            plain = OPTIMIZERS["Adam"]([Variable(p.numpy(), requires_grad=True) for p in params])
            plain.load_state_dict(saved)
            parallel.load_state_dict(plain.state_dict())
        for part in parallel.shards(batch_of(step, 16)):
            parallel.add(od.grad(lambda p, part=part: loss_of(p, *part))(params))
        parallel.step()
    return hash_of_run(params, parallel.state_dict())


def weighted_run():
    params = mlp()
    parallel = DataParallel(OPTIMIZERS["SGD"](params), shards=4)
    for step in range(3):
        for x, y in parallel.shards(batch_of(step, 18)):
            grads = od.grad(lambda p, x=x, y=y: loss_of(p, x, y))(params)
            parallel.add(grads, weight=0.0 if x[0, 0] > 1 else float(x[0, 0] ** 2))
        parallel.step()
    return hash_of_run(params, parallel.state_dict())


RUNS = {
    **{name: lambda make=make: train(make, mlp()) for name, make in OPTIMIZERS.items()},
    "compiled": lambda: train(OPTIMIZERS["Adam"], mlp(), compiled=True),
    "compiled uneven": lambda: train(OPTIMIZERS["SGD"], mlp(), rows=29, compiled=True),
    "uneven": lambda: train(OPTIMIZERS["Adam"], mlp(), rows=29),
    "few rows": lambda: train(OPTIMIZERS["SGD"], mlp(), rows=3),
    "accumulated": lambda: train(OPTIMIZERS["Adam"], mlp(), batches=2, steps=3),
    "clip_norm": lambda: train(OPTIMIZERS["Adam"], mlp(), clip_norm=0.1),
    "clip_norm LARS": lambda: train(OPTIMIZERS["LARS"], mlp(), clip_norm=0.1),
    "wide": lambda: train(
        OPTIMIZERS["Adam"],
        mlp(sizes=(200, 150, 10)),
        batch=lambda step, rows: batch_of(step, rows, (200, 150, 10)),
    ),
    "clip_value": lambda: train(OPTIMIZERS["SGD"], mlp(), clip_value=1e-3),
    "groups": lambda: train(two_groups, mlp()),
    "settings": lambda: train(OPTIMIZERS["SGD"], mlp(), change=change_settings),
    "frozen": lambda: train(
        OPTIMIZERS["Adam"], mlp(), change=freeze_and_thaw, allow_missing=True
    ),
    "assigned": lambda: train(OPTIMIZERS["AdamW"], mlp(), change=assign_some),
    "halves": lambda: train(
        OPTIMIZERS["AdamW"],
        mlp(np.float16),
        change=assign_some,
        batch=lambda step, rows: batch_of(step, rows, dtype=np.float16),
    ),
    "complex": lambda: train(
        OPTIMIZERS["Adam"], complex_params(), loss=complex_loss, batch=complex_batch,
        allow_missing=True,
    ),
    "branches": lambda: train(
        OPTIMIZERS["Adam"], mlp(), loss=branching_loss, allow_missing=True, rows=16
    ),
    "scaled": scaled_run,
    "reloaded": reloaded_run,
    "weighted": weighted_run,
}  # fmt: skip

LARGE = (784, 512, 10)


def large_run():
    """Products that OpenBLAS gives to several threads."""

    def batch(step, rows):
        return batch_of(step, rows, LARGE)

    return train(OPTIMIZERS["SGD"], mlp(sizes=LARGE), steps=1, rows=256, shards=2, batch=batch)


# Whose bits depend on what the page for users says to take care of.
CARELESS = {
    "large": large_run,
    "without programs": lambda: train(
        OPTIMIZERS["SGD"], mlp(sizes=(64, 256, 10)), compiled=True, precompiled=False,
        batch=lambda step, rows: batch_of(step, rows, (64, 256, 10)),
    ),
}  # fmt: skip


def digits_run(name, compiled, is_sharded):
    """Train 200 steps on digits from a file, since not all interpreters have scikit-learn."""
    with np.load(os.environ["ODYSSEY_TEST_DIGITS"]) as data:
        inputs, targets = data["inputs"], data["targets"]

    def batch(step, rows):
        order = np.random.RandomState(step).permutation(len(inputs))[:rows]
        return inputs[order], targets[order]

    options = {"steps": 200, "rows": 32, "compiled": compiled, "batch": batch}
    work = train if is_sharded else tree_of_parts
    return work(OPTIMIZERS[name], mlp(), **options)


DIGITS = {
    f"digits {name} {kind} {form}": lambda name=name, kind=kind, form=form: digits_run(
        name, kind == "compiled", form == "sharded"
    )
    for name in ("SGD", "Adam", "AdamW")
    for kind in ("eager", "compiled")
    for form in ("sharded", "dense")
}


if __name__ == "__main__":
    found = {name: (RUNS | CARELESS | DIGITS)[name]() for name in sys.argv[1:] or RUNS}
    od.distributed.world().print(json.dumps(found))
