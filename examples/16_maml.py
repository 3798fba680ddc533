"""MAML: weights from which one step of gradient descent fits a new task
=====================================================================

Each task is a sine of random amplitude and phase, known at ten points. A network that is trained on
all tasks at once learns their mean, and a step of gradient descent from there helps little.
Model-agnostic meta-learning (C. Finn, P. Abbeel, S. Levine, ICML 2017) trains the weights for what
they are after such a step: its loss is that of the updated weights, so that its gradient goes
through a gradient.

To be seen: after one step on ten points, the meta-trained network follows a sine that it has never
seen; the ordinary one does not. Runs in about 10 seconds, with both training steps compiled.
"""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops

TASKS, POINTS, STEPS, INNER_RATE = 25, 10, 3000, 0.05


def draw_tasks(rng, count):
    """Return the points (count, points, 1) to adapt to, and those to be judged by."""
    amplitude, phase = rng.uniform(0.1, 5.0, (count, 1, 1)), rng.uniform(0.0, np.pi, (count, 1, 1))
    x = rng.uniform(-5.0, 5.0, (2, count, POINTS, 1))
    y = amplitude * np.sin(x - phase)
    return (x[0], y[0]), (x[1], y[1])


# %%
# A network for each task
# -----------------------
# ``weights`` may be shared, or have a leading axis for tasks: matrix products broadcast. As no task
# sees another's weights, the gradient of the sum of losses has the gradient of each task in its
# row.


def init_params(rng):
    sizes = [(1, 40), (40, 40), (40, 1)]
    weights = [od.init.he_normal(rng, size, np.float64, layout="in_out") for size in sizes]
    return [
        leaf
        for w in weights
        for leaf in (
            Variable(w, requires_grad=True),
            Variable(np.zeros((1, w.shape[1])), requires_grad=True),
        )
    ]


def network(params, x):
    w1, b1, w2, b2, w3, b3 = params
    return ops.tanh(ops.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def loss_per_task(params, x, y):
    return ops.mean((network(params, x) - y) ** 2, axis=(1, 2))


def adapt(params, x, y, steps=1):
    """Return weights for each task, after steps of gradient descent on its points."""
    params = [ops.broadcast_to(p, (len(x), *p.shape)) for p in params]
    for _ in range(steps):
        slopes = od.grad(lambda p: loss_per_task(p, x, y).sum())(params)
        params = [p - INNER_RATE * slope for p, slope in zip(params, slopes, strict=True)]
    return params


# %%
# Training
# --------
# The two losses differ in one line: whether the weights are judged after adapting or before.


def train(loss_of, seed):
    """Return weights that were trained by Adam, and the loss of each step."""
    rng, params = np.random.default_rng(seed), init_params(od.Generator(seed))
    optimizer = od.optim.Adam(params, learning_rate=5e-3)
    schedule = od.optim.CosineAnnealingLR(optimizer, STEPS)

    @od.compile(fullgraph=True)
    def training_step(seen, judged):
        with GradientTape() as tape:
            loss = loss_of(params, seen, judged)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = []
    for _ in range(STEPS):
        losses.append(float(training_step(*draw_tasks(rng, TASKS))))
        schedule.step()
    return params, np.array(losses)


def meta_loss(params, seen, judged):
    return loss_per_task(adapt(params, *seen), *judged).mean()


def ordinary_loss(params, seen, judged):
    return loss_per_task(params, *judged).mean()


meta, meta_losses = train(meta_loss, seed=0)
ordinary, ordinary_losses = train(ordinary_loss, seed=0)
print(
    f"loss of the last 100 steps: {meta_losses[-100:].mean():.3f} after adapting (MAML), ", end=""
)
print(f"{ordinary_losses[-100:].mean():.3f} without (ordinary training)")

# %%
# New tasks
# ---------

seen, judged = draw_tasks(np.random.default_rng(1), 500)
errors = {}
for name, params in {"MAML": meta, "ordinary": ordinary}.items():
    errors[name] = [
        loss_per_task(adapt(params, *seen, k), *judged).numpy().mean() for k in range(3)
    ]
    print(f"{name:8}: squared error after 0, 1, 2 steps", np.round(errors[name], 2))
assert errors["MAML"][1] < 0.5
assert errors["MAML"][1] < 0.25 * min(errors["ordinary"])

# %%
# Picture
# -------
# Left and middle: one new task, from either start. Right: the error over all new tasks; the second
# step, for which nothing was trained, helps no more.


def draw():
    """Draw a new sine and what the networks make of it; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    x = np.linspace(-5.0, 5.0, 200)[None, :, None]
    points = np.random.default_rng(3).uniform(-5.0, 5.0, (1, POINTS, 1))
    _, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    starts = (("MAML", meta), ("ordinary training", ordinary))
    for axis, (name, params) in zip(axes[:2], starts, strict=True):
        axis.plot(x[0, :, 0], 3.0 * np.sin(x[0, :, 0] - 1.0), "k--", linewidth=1, label="task")
        axis.plot(points[0, :, 0], 3.0 * np.sin(points[0, :, 0] - 1.0), "k.", label="known points")
        for steps in (0, 1):
            adapted = adapt(params, points, 3.0 * np.sin(points - 1.0), steps)
            line = network(adapted, x).numpy()[0, :, 0]
            axis.plot(x[0, :, 0], line, label=f"after {steps} step{'' if steps == 1 else 's'}")
        axis.set(title=f"A new task, {name}", ylim=(-5, 5), xlabel="x")
    axes[0].legend(fontsize="small", loc="lower right")
    for name, values in errors.items():
        axes[2].plot(values, "o-", label=name)
    axes[2].set(title="Error over 500 new tasks", xlabel="steps", ylabel="squared error", ylim=0)
    axes[2].set_xticks(range(3))
    axes[2].legend()
    plt.show()


draw()
