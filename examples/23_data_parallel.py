"""Data-parallel training, whose bits do not depend on the number of processes
===========================================================================

The digits of example 3 again, by one process or by several that train one model together. Each
batch is cut into four shards. The gradients of the shards are computed by whoever is there, one
process or four, and are always added in one order, so every number of processes ends with the same
bits. Rounding makes this worth a plan: added in another order, the last digits differ, and a long
training carries them on.

Halfway the training is written to a checkpoint, and another training, which begins with other
numbers, goes on from it. It ends with the same bits as the one that was never interrupted.

To be seen: equal bits, a test accuracy of 95 %, and how far gradients of different orders of
summation are apart. Runs alone in 5 seconds, and as two processes by
``python -m odyssey launch -n 2 examples/23_data_parallel.py`` (``pip install -e ".[dist]"``).
Needs scikit-learn: ``pip install -e ".[examples]"``
"""

import hashlib
import itertools
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import odyssey as od

SIZES = (64, 128, 64, 10)
BATCH_SIZE, SHARDS, STEPS = 128, 4, 160

# %%
# Processes
# ---------
# A launcher says how many there are. Alone it is a group of one, for which no MPI is needed.
# ``world.print`` prints on rank 0 only.

world = od.distributed.world()
world.print(f"ranks: {world.size}, shards of a batch: {SHARDS}")


# %%
# Training
# --------
# Every rank makes the same parameters and the same batches, from equal seeds, and computes the
# gradients of its own shards. ``step`` adds them up over the ranks, and each rank updates its slice
# of the parameters.


def split_digits():
    """Return (x, y) to train with and (x, y) to test with, the grey values in [0, 1]."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = np.float32(digits.data[order] / 16.0), digits.target[order]
    return (x[:-360], y[:-360]), (x[-360:], y[-360:])


def scores(params, x):
    """Return one row of ten scores for each row of x."""
    for w, b in params[:-1]:
        x = od.ops.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


class Training:
    """All that changes while the network learns."""

    def __init__(self, seed):
        rng = od.Generator(seed)
        self.params = [
            [
                od.Variable(od.init.he_normal(rng, (n, m), layout="in_out"), requires_grad=True),
                od.Variable(np.zeros(m, np.float32), requires_grad=True),
            ]
            for n, m in itertools.pairwise(SIZES)
        ]
        self.optimizer = od.optim.AdamW(self.params, learning_rate=3e-3, weight_decay=1e-3)
        self.schedule = od.optim.WarmupCosineLR(self.optimizer, 10, STEPS)
        self.data = od.batches(train, BATCH_SIZE, rng=rng, drop_last=True)
        self.parallel = od.distributed.DataParallel(self.optimizer, world, shards=SHARDS)
        self.losses = []

    def run(self, until):
        """Train up to a step."""
        while len(self.losses) < until:
            own = []
            for x, y in self.parallel.shards(next(self.data)):
                with od.GradientTape() as tape:
                    loss = od.losses.cross_entropy(scores(self.params, x), y)
                self.parallel.backward(tape, loss)
                own.append(loss.item())
            self.parallel.step()
            self.schedule.step()
            # Shards are equally large: the mean of their losses is that of the batch.
            self.losses.append(float(np.mean(world.all_gather(np.array(own)))))

    def digest(self):
        """Return a hash of the bits of all parameters."""
        leaves = [leaf.numpy().tobytes() for layer in self.params for leaf in layer]
        return hashlib.sha256(b"".join(leaves)).hexdigest()[:16]

    def save(self, path):
        """Write a checkpoint, when all ranks have come."""
        more = {"data": self.data, "schedule": self.schedule, "losses": self.losses}
        self.parallel.save(path, **more)

    def load(self, path):
        """Take over a checkpoint."""
        saved = self.parallel.load(path, data=self.data, schedule=self.schedule)
        self.losses = saved["losses"]


train, test = split_digits()
training = Training(seed=0)
training.run(STEPS // 2)
folder = tempfile.TemporaryDirectory()  # rank 0 alone writes and reads
training.save(f"{folder.name}/digits.npz")
training.run(STEPS)
for step in (1, 10, 40, 80, STEPS):
    world.print(f"step {step:3}: loss {training.losses[step - 1]:.4f}")

# %%
# From the checkpoint
# -------------------
# Another training, perhaps on another day with another number of ranks, has other parameters and
# another order of the data until it loads the file.

other = Training(seed=1)
other.load(f"{folder.name}/digits.npz")
folder.cleanup()
other.run(STEPS)

world.agree(training.params)  # all ranks have the same bits
world.print(f"parameters: {training.digest()}, by way of the checkpoint: {other.digest()}")
assert other.digest() == training.digest()
assert other.losses == training.losses

with od.no_grad():
    answers = scores(training.params, test[0]).numpy().argmax(axis=1)
accuracy = np.mean(answers == test[1])
world.print(f"test accuracy: {accuracy:.4f}")
assert accuracy >= 0.95

# %%
# Orders of summation
# -------------------
# The gradient of one batch as the mean over 1, 2, 4 ... shards. Each is right, and each differs
# from the others in its last digits; so does the training that follows from it.


def gradient(count):
    """Return the gradient of a batch as the mean over ``count`` shards, as one vector."""
    parts = []
    for x, y in zip(np.split(train[0][:128], count), np.split(train[1][:128], count), strict=True):
        with od.GradientTape() as tape:
            loss = od.losses.cross_entropy(scores(training.params, x), y)
        parts.append(od.tree.ravel(tape.gradient(loss, training.params))[0])
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0] / np.float32(count)


counts = [1, 2, 4, 8, 16, 32]
gradients = {count: gradient(count) for count in counts}
scale = np.abs(gradients[SHARDS]).max()
apart = {count: np.abs(gradients[count] - gradients[SHARDS]).max() / scale for count in counts}
assert all(0 < apart[count] < 1e-4 for count in counts if count != SHARDS)
for count in counts:
    world.print(f"{count:2} shards: {apart[count]:.1e} from the gradient of {SHARDS}")


def draw():
    """Draw the loss, and the differences; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    axes[0].semilogy(range(1, STEPS + 1), training.losses, label="without a stop")
    half = range(STEPS // 2 + 1, STEPS + 1)
    axes[0].semilogy(half, other.losses[STEPS // 2 :], "--", label="from the checkpoint")
    axes[0].axvline(STEPS / 2, color="k", linestyle=":", linewidth=1)
    axes[0].set(title="Training loss", xlabel="step", ylabel="mean cross entropy")
    axes[0].legend()
    others = [count for count in counts if count != SHARDS]
    axes[1].loglog(others, [apart[count] for count in others], "o")
    axes[1].set_xticks(others, others)
    axes[1].minorticks_off()
    axes[1].set_ylim(3e-8, 3e-6)
    axes[1].axhline(np.finfo(np.float32).eps, color="k", linestyle=":", linewidth=1)
    axes[1].text(others[-1], np.finfo(np.float32).eps, "unit of float32", ha="right", va="bottom")
    axes[1].set(title=f"Distance from the gradient of {SHARDS} shards", xlabel="shards")
    axes[1].set(ylabel="largest difference, relative")
    plt.show()


if world.rank == 0:
    draw()
