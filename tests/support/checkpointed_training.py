"""A training that writes checkpoints, goes on from them, and can be told to die; run by tests.

It prints a hash of the bits that it ends with: parameters, whole optimizer state, losses, averages,
numbers drawn and learning rate.
"""

import argparse
import hashlib
import itertools
import os
import signal
import threading

import numpy as np

import odyssey as od

RULES = {
    "sgd": lambda params: od.optim.SGD(params, 0.05, momentum=0.9),
    "adam": lambda params: od.optim.Adam(params, 1e-2),
    "adamw": lambda params: od.optim.AdamW(params, 1e-2, weight_decay=0.1),
}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_writing(how):
    """Make the next file that is written the last act of this process."""
    if how == "before the data is on the disk":
        os.fsync = lambda file: die()
    elif how == "before the file is renamed":
        os.replace = lambda *paths: die()
    else:
        replace = os.replace
        os.replace = lambda *paths: (replace(*paths), die())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--rule", choices=RULES, default="adam")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=7)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument(
        "--die", type=int, help="the step at which one rank dies at its first start"
    )
    parser.add_argument("--rank", type=int, default=0, help="which one")
    parser.add_argument("--writing", help="die at the first file after that step, and when")
    parser.add_argument("--after", type=float, help="die so many seconds after that step begins")
    parser.add_argument("--layers", default="12,20,16,5")
    options = parser.parse_args()

    world = od.distributed.world()
    sizes = [int(size) for size in options.layers.split(",")]
    first_start = os.environ.get("ODYSSEY_ATTEMPT", "1") == "1"
    dies = options.die is not None and first_start and world.rank == options.rank % world.size
    rng = od.Generator(0)
    params = [
        (
            od.Variable(od.init.he_normal(rng, (n, m), layout="in_out"), requires_grad=True),
            od.Variable(np.zeros(m, np.float32), requires_grad=True),
        )
        for n, m in itertools.pairwise(sizes)
    ]
    numbers = np.random.default_rng(1)
    x = numbers.normal(size=(150, sizes[0])).astype(np.float32)
    y = (x[:, :5].argmax(1) * sizes[-1]) // 5
    optimizer = RULES[options.rule](params)
    schedule = od.optim.WarmupCosineLR(optimizer, 5, options.steps)
    noise = np.random.default_rng(2)
    ema = od.optim.EMA(params, 0.9)
    data = od.batches((x, y), 64, rng=rng)  # the last batch of an epoch has 22 rows
    parallel = od.distributed.DataParallel(optimizer, world, shards=options.shards)

    def loss_of(params, x, y):
        for w, b in params[:-1]:
            x = od.ops.relu(x @ w + b)
        w, b = params[-1]
        return od.losses.cross_entropy(x @ w + b, y)

    gradients = od.value_and_grad(loss_of)
    if options.compiled:
        gradients = od.compile(lambda x, y: od.value_and_grad(loss_of)(params, x, y))
        for rows in (64, 22):
            parallel.precompile(gradients, (x[:rows], y[:rows]))

    more = {"schedule": schedule, "ema": ema, "data": data, "noise": noise, "rng": rng}
    saved = parallel.resume(options.path, **more)
    first, losses = (saved["step"], saved["losses"]) if saved is not None else (0, [])
    if saved is not None:
        world.print(f"goes on from step {first}")
    for step in range(first, options.steps):
        if dies and step == options.die:
            if options.writing is not None:
                die_while_writing(options.writing)
            elif options.after is not None:
                threading.Timer(options.after, die).start()
            else:
                die()
        batch, own = next(data), []
        batch = (
            batch[0] + np.float32(0.1) * noise.normal(size=batch[0].shape).astype("f"),
            batch[1],
        )
        for part in parallel.shards(batch):
            if options.compiled:
                loss, g = gradients(*part)
                parallel.add(g)
            else:
                with od.GradientTape() as tape:
                    loss = loss_of(params, *part)
                parallel.backward(tape, loss)
            own.append(float(loss))
        parallel.step()
        schedule.step()
        ema.update()
        losses.append(np.float64(world.all_gather(np.array(own)).reshape(-1).sum()))
        if options.every and (step + 1) % options.every == 0:
            parallel.save(options.path, step=step + 1, losses=losses, **more)

    state = parallel.state_dict()
    parts = [p.numpy() for p in optimizer.params]
    parts += [value for one in state["state"] for _, value in sorted(one.items())]
    parts += [np.array(losses), np.array(optimizer.learning_rate), noise.normal(size=3)]
    parts += [average.numpy() for average in od.tree.leaves(ema.averages)]
    world.agree(parts)
    text = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    world.print(f"bits {hashlib.sha256(text).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
