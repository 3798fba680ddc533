"""One rank of a data-parallel training, started by ``python -m odyssey launch``.

Rank 0 prints a JSON line: the median of the seconds of a step, the share of them that rank 0 spent
in collectives, a checksum of the bits of all parameters, and the last bias.
"""

import argparse
import itertools
import json
import statistics
import time
import zlib

import numpy as np

import odyssey as od
from odyssey import ops

SIZES = (784, 512, 512, 10)
RATE, MOMENTUM = 0.01, 0.9
WARM_STEPS = 3
"""Steps that are not timed."""


def parameters():
    """Return weights and biases in turn, in float32."""
    rng = np.random.RandomState(0)
    found = []
    for n, m in itertools.pairwise(SIZES):
        found += [rng.standard_normal((n, m)) * n**-0.5, np.zeros(m)]
    return [a.astype(np.float32) for a in found]


def batch_of(step, rows):
    """Return the global batch of a step."""
    rng = np.random.RandomState(1000 + step)
    x = rng.standard_normal((rows, SIZES[0])).astype(np.float32)
    return x, rng.randint(0, SIZES[-1], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("batch", "shards", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--compiled", action="store_true")
    arguments = parser.parse_args()
    od.set_threads(1)
    group = od.distributed.world()
    leaves = [od.Variable(a, requires_grad=True) for a in parameters()]
    optimizer = od.optim.SGD(leaves, RATE, momentum=MOMENTUM)
    parallel = od.distributed.DataParallel(optimizer, group, shards=arguments.shards)

    def loss_of(x, y):
        h = x
        for k in range(0, len(leaves), 2):
            h = h @ leaves[k] + leaves[k + 1]
            h = ops.relu(h) if k + 2 < len(leaves) else h
        return od.losses.cross_entropy(h, y)

    @od.compile
    def gradients(x, y):
        with od.GradientTape() as tape:
            loss = loss_of(x, y)
        return tape.gradient(loss, leaves)

    if arguments.compiled:
        parallel.precompile(gradients, batch_of(0, arguments.batch))
    batches = [batch_of(step, arguments.batch) for step in range(arguments.steps)]
    group.barrier()
    times, waits = [], []
    for batch in batches:
        begin, waited = time.perf_counter(), group.waited
        for x, y in parallel.shards(batch):
            if arguments.compiled:
                parallel.add(gradients(x, y))
            else:
                with od.GradientTape() as tape:
                    loss = loss_of(x, y)
                parallel.backward(tape, loss)
        parallel.step()
        times.append(time.perf_counter() - begin)
        waits.append(group.waited - waited)
    group.agree(*leaves)
    bits = 0
    for leaf in leaves:
        bits = zlib.crc32(np.ascontiguousarray(leaf.numpy()).tobytes(), bits)
    group.print(
        json.dumps(
            {
                "seconds": statistics.median(times[WARM_STEPS:] or times),
                "wait_share": sum(waits[WARM_STEPS:]) / (sum(times[WARM_STEPS:]) or 1.0),
                "bits": bits,
                "bias": leaves[-1].numpy().tolist(),
            }
        )
    )


if __name__ == "__main__":
    main()
