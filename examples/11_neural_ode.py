"""Neural ODE: fitting a pendulum through thousands of steps
=========================================================

A pendulum with friction obeys dy/dt = f(y), with y its angle and its velocity. Here f is a small
network, and all that is known of the pendulum are its positions at a few times, with noise. The
equation is solved by the method of Runge and Kutta; the loss compares the solution at those times
with what was measured, and its gradient goes back through every step (Chen et al. 2018).

A gradient needs what the steps computed, which grows with their number. ``od.checkpoint`` keeps the
state at the beginning of each stretch of steps alone, and computes the rest again in the backward
pass: the gradient is equal up to rounding, and memory grows with the number of stretches. Training
begins with few, long steps, which costs little, and ends with 2,016 short ones.

To be seen: memory a hundred times smaller, and a prediction of pendulums that were never shown.
Runs in about 25 seconds.
"""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.optim import Adam, clip_grad_global_norm

STARTS = 8  # pendulums that are let go
TIMES = 24  # at which they are seen
SPAN = 6.0  # seconds, about two swings
HIDDEN = 32
STAGES = ((1, 450, 0.05), (2, 100, 0.01))  # steps from one time to the next, rounds, largest rate
STEPS = 84  # from one time to the next, in the end


def pendulum(y):
    """Return the true dy/dt of angles and velocities."""
    return np.stack([y[:, 1], -4.0 * np.sin(y[:, 0]) - 0.2 * y[:, 1]], axis=1)


def runge_kutta(f, y, h):
    """Return the state a step of length ``h`` later, to fourth order."""
    k1 = f(y)
    k2 = f(y + (0.5 * h) * k1)
    k3 = f(y + (0.5 * h) * k2)
    k4 = f(y + h * k3)
    return y + (h / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def observe(rng):
    """Return how pendulums start, and what is seen of them, by steps of 1/1000 s."""
    y = np.stack([rng.uniform(-2.0, 2.0, STARTS), rng.uniform(-2.0, 2.0, STARTS)], axis=1)
    start, seen = y, []
    every = round(SPAN / TIMES * 1000)
    for k in range(TIMES * every):
        y = runge_kutta(pendulum, y, 1e-3)
        if (k + 1) % every == 0:
            seen.append(y)
    truth = np.stack(seen)
    return start, truth, truth + rng.normal(0.0, 0.02, truth.shape)


class Network:
    """dy/dt as a network of one hidden layer."""

    def __init__(self, rng):
        scale = 1.0 / np.sqrt(HIDDEN)
        self.params = [
            Variable(rng.normal(0.0, 0.7, (HIDDEN, 2)), requires_grad=True, name="w1"),
            Variable(np.zeros(HIDDEN), requires_grad=True, name="b1"),
            Variable(rng.normal(0.0, 0.3 * scale, (2, HIDDEN)), requires_grad=True, name="w2"),
            Variable(np.zeros(2), requires_grad=True, name="b2"),
        ]

    def __call__(self, y):
        w1, b1, w2, b2 = self.params
        return ops.linear(ops.tanh(ops.linear(y, w1, b1)), w2, b2)


def solve(f, start, steps, times, checkpointed):
    """Return the states at each of ``times``, which lie so many steps apart."""

    def stretch(y):
        for _ in range(steps):
            y = runge_kutta(f, y, SPAN / TIMES / steps)
        return y

    if checkpointed:
        stretch = od.checkpoint(stretch)
    y, passed = start, []
    for _ in range(times):
        y = stretch(y)
        passed.append(y)
    return ops.stack(passed)


def gradient(f, start, seen, steps, checkpointed):
    """Return the gradients of the loss, and how many bytes the tape held for them."""
    with GradientTape() as tape:
        passed = solve(f, start, steps, len(seen), checkpointed)
        loss = od.mean_squared_error(passed, seen)
    held = tape.memory().total
    return tape.gradient(loss, f.params), held


def train(f, optimizer, start, seen, steps, rounds):
    """Return the loss of the last of so many rounds."""
    for _ in range(rounds):
        with GradientTape() as tape:
            passed = solve(f, start, steps, len(seen), checkpointed=steps > 8)
            loss = od.mean_squared_error(passed, seen)
        tape.backward(loss)
        clip_grad_global_norm(f.params, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return float(loss)


def swing(f, start, steps):
    """Return the angles that a solution passes, without a gradient."""
    with od.no_grad():
        return solve(f, start, steps, TIMES, checkpointed=False).numpy()[:, :, 0]


def picture(truth, seen, found):
    """Return a drawing of an angle over time: the truth, what was seen of it, and the network."""
    height, width = 15, 2 * TIMES
    rows = [[" "] * (width + 1) for _ in range(height)]
    scale = (height - 1) / 2 / np.abs(truth).max() / 1.1
    for mark, values in (("·", truth), ("o", seen), ("x", found)):
        for k, angle in enumerate(values):
            row = round((height - 1) / 2 - angle * scale)
            rows[min(max(row, 0), height - 1)][2 * (k + 1)] = mark
    return "\n".join("".join(row).rstrip() for row in rows)


def draw(truth, seen, found):
    """Draw angles of four new pendulums; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    times = SPAN / TIMES * np.arange(1, TIMES + 1)
    for k in range(4):
        (line,) = axis.plot(times, found[:, k], label="network" if k == 0 else None)
        axis.plot(times, truth[:, k], ":", color="k", linewidth=1, label=None if k else "truth")
        axis.plot(times, seen[:, k], "o", color=line.get_color(), markersize=3)
    axis.set(title="Pendulums that were never shown", xlabel="seconds", ylabel="angle")
    axis.legend(loc="upper right")
    plt.show()


def main():
    rng = np.random.default_rng(0)
    start, _, seen = observe(rng)
    f = Network(rng)
    optimizer = Adam(f.params, learning_rate=STAGES[0][2])

    print(f"{len(start)} pendulums, each seen {TIMES} times in {SPAN:g} s")
    for times in (TIMES // 4, TIMES // 2):  # not all of the way at once
        loss = train(f, optimizer, start, seen[:times], 1, rounds=80)
    for steps, rounds, peak in STAGES:
        for k in range(rounds):
            optimizer.learning_rate = peak * np.cos(0.5 * np.pi * k / rounds) ** 2 + 1e-4
            loss = train(f, optimizer, start, seen, steps, rounds=1)
            if (k + 1) % 50 == 0:
                print(f"round {k + 1:3}: {steps * TIMES:4} steps, loss {loss:.5f}")

    # Many steps: the memory of a gradient with and without checkpoints, and their difference.
    whole, held = gradient(f, start, seen, STEPS, checkpointed=False)
    again, less = gradient(f, start, seen, STEPS, checkpointed=True)
    off = max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(whole, again, strict=True))
    print(f"{TIMES * STEPS} steps hold {held / 1e6:.1f} MB for a gradient, checkpointed", end=" ")
    print(f"{less / 1e6:.2f} MB; the gradients differ by {off:.0e} of their size")
    assert held > 100 * less
    assert off < 1e-9

    optimizer.learning_rate = 1e-3
    for k in range(2):
        loss = train(f, optimizer, start, seen, STEPS, rounds=1)
        print(f"round {k + 1:3}: {TIMES * STEPS} steps, loss {loss:.5f}")

    # A pendulum that it was never shown.
    fresh, true_path, noisy = observe(np.random.default_rng(1))
    found = swing(f, fresh, 8)
    error = np.sqrt(np.mean((found - true_path[:, :, 0]) ** 2))
    print("\nA new pendulum: x what the network foresees, o what would be seen\n")
    print(picture(true_path[:, 0, 0], noisy[:, 0, 0], found[:, 0]))
    print(f"\nangles of new pendulums are off by {error:.3f} rad")
    assert loss < 0.005
    assert error < 0.15
    draw(true_path[:, :, 0], noisy[:, :, 0], found)


if __name__ == "__main__":
    main()
