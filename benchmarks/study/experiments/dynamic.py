"""Dynamic: what a static graph cannot have for free, when each step has another length or depth."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from study.contract import Case, Hypothesis, NotApplicable, Verdict
from study.passes import named_results
from study.predicates import within

NAME = "dynamic"
QUESTION = "What does a step cost whose length or depth changes each time, retracing included?"
DYNAMIC = "compiled-dynamic"
SYSTEMS = ("taped", "compiled", DYNAMIC, "torch", "torch.compile", "jax")
FRESH = True
ROUNDS = 3
TIMEOUT = 300.0
TOLERANCE = 1e-3

UNITS = 32
LEAST_LENGTH, MOST_LENGTH = 10, 200
LEAST_DEPTH, MOST_DEPTH = 1, 20
SLOW = 1.0


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return what varies from step to step, and the number of steps."""
    steps = 20 if quick else 50
    return [{"varies": varies, "steps": steps} for varies in ("length", "depth")[: 2 - quick]]


def drawn(config: dict[str, Any]) -> list[int]:
    """Return the length or the depth of each step."""
    low, high = (
        (LEAST_LENGTH, MOST_LENGTH) if config["varies"] == "length" else (LEAST_DEPTH, MOST_DEPTH)
    )
    return [int(n) for n in np.random.RandomState(0).randint(low, high + 1, config["steps"])]


def step_inputs(config: dict[str, Any], dtype: Any = np.float32) -> tuple[list[Any], list[Any]]:
    """Return two parameters, and a sequence for each step."""
    rng = np.random.RandomState(1)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)

    p = [normal(UNITS, UNITS) * dtype(0.5 * UNITS**-0.5) for _ in range(2)]
    by_length = config["varies"] == "length"
    return p, [normal(n if by_length else 16, UNITS) for n in drawn(config)]


def sequence_loss(p: Any, x: Any, tanh: Any, mean: Any) -> Any:
    """Return the loss of a sequence: each row is compared with the mean of all."""
    h = tanh(x @ p[0])
    difference = h @ p[1] - mean(h)
    return (difference * difference).mean()


def loop_loss(p: Any, x: Any, tanh: Any, depth: int) -> Any:
    """Return the loss of a loop that is as deep as its data asks for."""
    h = x
    for _ in range(depth):
        h = tanh(h @ p[0]) + x
    difference = h @ p[1]
    return (difference * difference).mean()


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return loss and gradients of the first step in float64, by hand."""
    p, sequences = step_inputs(config, np.float64)
    x = sequences[0]
    if config["varies"] == "length":
        h = np.tanh(x @ p[0])
        d = h @ p[1] - h.mean(axis=0)
        gd = d * (2 / d.size)
        gh = (gd @ p[1].T - gd.sum(axis=0) / len(x)) * (1 - h * h)
        return named_results(np.mean(d * d), [x.T @ gh, h.T @ gd])
    states, h = [], x
    for _ in range(drawn(config)[0]):
        t = np.tanh(h @ p[0])
        states.append((h, t))
        h = t + x
    d = h @ p[1]
    gd = d * (2 / d.size)
    g, slope = gd @ p[1].T, np.zeros_like(p[0])
    for before, t in reversed(states):
        gz = g * (1 - t * t)
        slope += before.T @ gz
        g = gz @ p[0].T
    return named_results(np.mean(d * d), [slope, h.T @ gd])


Gradient = Callable[[int], tuple[Any, Sequence[Any]]]
"""Loss and gradients of a step, by its number."""


def build(system: str, config: dict[str, Any]) -> Case:
    """Return steps that are timed from the first on."""
    if config["varies"] == "depth" and system == DYNAMIC:
        raise NotApplicable("dynamic= is for sizes; the number of steps of a loop is none")
    if config["varies"] == "depth" and system == "torch.compile":
        raise NotApplicable("it gives up after a few depths, and runs eagerly")
    os.environ["ODYSSEY_CACHE"] = "off"
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    makers = {
        "taped": _odyssey,
        "compiled": _odyssey,
        DYNAMIC: _odyssey,
        "torch": _torch,
        "torch.compile": _torch,
        "jax": _jax,
    }
    made: list[Gradient] = []

    def gradient() -> Gradient:
        if not made:  # at the first use: a check of the answer must not warm a sample up
            made.append(makers[system](system, config))
        return made[0]

    def answer() -> dict[str, Any]:
        loss, gradients = gradient()(0)
        return named_results(float(loss), [np.asarray(g) for g in gradients])

    def sample() -> dict[str, float]:
        run, steps = gradient(), config["steps"]
        wall, cpu = time.perf_counter(), time.process_time()
        for k in range(steps):
            run(k)
        cpu_later, wall_later = time.process_time(), time.perf_counter()
        for k in range(steps):  # a program is compiled when a length comes again
            run(k)
        begin = time.process_time()
        for k in range(steps):
            run(k)
        again = time.process_time() - begin
        return {
            "seconds": (wall_later - wall) / steps,
            "cpu_seconds": (cpu_later - cpu) / steps,
            "later_cpu_seconds": again / steps,
        }

    return Case(answer=answer, counts={"distinct": len(set(drawn(config)))}, sample=sample)


def _odyssey(system: str, config: dict[str, Any]) -> Gradient:
    import odyssey as od
    from odyssey import ops

    arrays, sequences = step_inputs(config)
    p = [od.Variable(a, requires_grad=True) for a in arrays]
    depths = drawn(config)

    def by_length(x: Any) -> Any:
        with od.GradientTape() as tape:
            loss = sequence_loss(p, x, ops.tanh, lambda h: ops.mean(h, axis=0))
        return loss, tape.gradient(loss, p)

    def by_depth(x: Any, depth: int) -> Any:
        with od.GradientTape() as tape:
            loss = loop_loss(p, x, ops.tanh, depth)
        return loss, tape.gradient(loss, p)

    run: Any = by_length if config["varies"] == "length" else by_depth
    if system == DYNAMIC:
        size = od.Dim("length", LEAST_LENGTH, MOST_LENGTH)
        run = od.compile(run, dynamic={"x": {0: size}})
    elif system == "compiled":
        run = od.compile(run, warn=False)

    def step(k: int) -> tuple[Any, Sequence[Any]]:
        x = sequences[k]
        loss, gradients = run(x) if config["varies"] == "length" else run(x, depths[k])
        return loss.item(), gradients

    return step


def _torch(system: str, config: dict[str, Any]) -> Gradient:
    import torch

    torch.set_num_threads(1)
    arrays, sequences = step_inputs(config)
    tensors, depths = [torch.tensor(x) for x in sequences], drawn(config)

    def loss_of(p: Any, x: Any, depth: int) -> Any:
        if config["varies"] == "length":
            return sequence_loss(p, x, torch.tanh, lambda h: h.mean(0))
        return loop_loss(p, x, torch.tanh, depth)

    if system == "torch.compile":
        fixed = [torch.tensor(a) for a in arrays]
        both = torch.compile(torch.func.grad_and_value(loss_of), dynamic=True)

        def compiled_step(k: int) -> tuple[Any, Sequence[Any]]:
            gradients, loss = both(fixed, tensors[k], depths[k] if _by_depth(config) else 0)
            return loss.item(), gradients

        return compiled_step
    p = [torch.tensor(a, requires_grad=True) for a in arrays]

    def step(k: int) -> tuple[Any, Sequence[Any]]:
        loss = loss_of(p, tensors[k], depths[k])
        gradients = torch.autograd.grad(loss, p)
        return loss.item(), gradients

    return step


def _jax(system: str, config: dict[str, Any]) -> Gradient:
    import jax
    import jax.numpy as jnp

    arrays, sequences = step_inputs(config)
    p, depths = [jnp.array(a) for a in arrays], drawn(config)

    def loss_of(p: Any, x: Any, depth: int) -> Any:
        if config["varies"] == "length":
            return sequence_loss(p, x, jnp.tanh, lambda h: h.mean(0))
        return loop_loss(p, x, jnp.tanh, depth)

    both = jax.jit(jax.value_and_grad(loss_of), static_argnums=2)

    def step(k: int) -> tuple[Any, Sequence[Any]]:
        loss, gradients = both(p, jnp.array(sequences[k]), depths[k] if _by_depth(config) else 0)
        return float(loss), jax.block_until_ready(gradients)

    return step


def _by_depth(config: dict[str, Any]) -> bool:
    return bool(config["varies"] == "depth")


# ------------------------------------------------------------------ hypotheses


def _ratio(records: Any, system: str, base: str, metric: str, varies: str) -> dict[str, Any]:
    return {f"{system} to {base}, {varies}": records.ratio(system, base, metric, varies=varies)}


def _dynamic(records: Any) -> Verdict:
    return within(_ratio(records, DYNAMIC, "compiled", "cpu_seconds", "length"), high=SLOW)


def _one_a_length(records: Any) -> Verdict:
    return within(_ratio(records, "compiled", "taped", "cpu_seconds", "length"), low=SLOW)


def _later(records: Any) -> Verdict:
    return within(_ratio(records, DYNAMIC, "taped", "later_cpu_seconds", "length"), high=SLOW)


def _depth(records: Any) -> Verdict:
    return within(_ratio(records, "compiled", "taped", "cpu_seconds", "depth"), low=SLOW)


HYPOTHESES = (
    Hypothesis(
        "one-program-a-length",
        "With a program for each length, steps of lengths that are drawn take longer than on a "
        "tape, retracing included.",
        "they take less.",
        _one_a_length,
    ),
    Hypothesis(
        "dynamic",
        "A program for all lengths takes less than a program for each, retracing included.",
        "it takes more.",
        _dynamic,
    ),
    Hypothesis(
        "dynamic-later",
        "Once it is there, a program for all lengths takes less than the tape.",
        "it takes more.",
        _later,
    ),
    Hypothesis(
        "depth",
        "Where the depth depends on the data, compiled steps take longer than on a tape, retracing "
        "included.",
        "they take less.",
        _depth,
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return the time of a step in each system, retracing counted, and once all was met."""
    from study.drawing import Bars, number_text

    groups: dict[str, dict[str, Any]] = {}
    for varies in records.axis("varies"):
        for metric, when in (
            ("cpu_seconds", "first met"),
            ("later_cpu_seconds", "met twice before"),
        ):
            groups[f"{varies}, {when}"] = {
                system: records.estimate(system, metric, varies=varies)
                for system in SYSTEMS
                if records.has(system, varies=varies)
            }
    if not records.has("taped") or not records.has(DYNAMIC):
        return []
    ratio = records.ratio(DYNAMIC, "taped", "cpu_seconds", varies="length").median
    title = (
        f"With dynamic= a step of another length takes {number_text(ratio)} times as long as on a "
        "tape, retracing included"
    )
    return [Bars("dynamic", title, "processor time of a step", groups, unit="s")]
