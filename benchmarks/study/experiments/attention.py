"""Attention: memory against the length of the sequence, of all scores at once and of tiles.

``materialized`` computes softmax(q kᵀ / √d) v by ops, with all scores in memory; ``tiled`` is
`scaled_dot_product_attention`. Each sample is a process of its own, and a step is forward and
backward. Gradients with masks are checked by tests/nn/test_scaled_dot_product.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from study.contract import Case, Estimate, Hypothesis, NotApplicable, Verdict
from study.peaks import peak_and_least_times
from study.predicates import all_of, at_most, between, power
from study.records import MissingRecords, Records

NAME = "attention"
QUESTION = "How does the memory of attention grow with the length of the sequence?"
SYSTEMS = ("taped", "compiled", "torch")
FRESH = True
ROUNDS = 3
QUICK_ROUNDS = 1

DIM = 64
LENGTHS = (64, 256, 1024, 2048, 4096)
CAUSAL_LENGTHS = (1024, 4096)
LONG = 1024
"""Lengths from which scores are more than what a process takes and gives in small pieces."""

WARM_LENGTHS = {"taped": LONG, "compiled": 16, "torch": LONG}
"""Lengths that load the kernels of long sequences; compiled programs load theirs when made."""

STEPS = 3


def configs(quick: bool) -> list[dict[str, Any]]:
    """Lengths, forms, and whether later keys are masked."""
    lengths = {False: (256,), True: ()} if quick else {False: LENGTHS, True: CAUSAL_LENGTHS}
    return [
        {"length": length, "form": form, "causal": causal}
        for causal in lengths
        for length in lengths[causal]
        for form in ("materialized", "tiled")
    ]


def TOLERANCE(system: str, config: dict[str, Any]) -> float:
    """Return the largest relative error, in float32."""
    return 2e-5


def operands(length: int) -> list[Any]:
    """Return queries, keys, values and the cotangent of the result, of one head."""
    rng = np.random.RandomState(0)
    return [rng.standard_normal((1, 1, length, DIM)).astype(np.float32) for _ in range(4)]


Step = Callable[[], list[Any]]
"""Returns the result and the gradients of queries, keys and values."""


def _odyssey_attention(form: str, causal: bool) -> Callable[..., Any]:
    from odyssey import ops

    if form == "tiled":
        return lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, causal=causal)

    def materialized(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ ops.swapaxes(k, -1, -2)) * DIM**-0.5
        if causal:
            keep = np.tri(q.shape[-2], dtype=bool)
            scores = ops.where(keep, scores, np.float32(-np.inf))
        return ops.softmax(scores, axis=-1) @ v

    return materialized


def _taped(length: int, form: str, causal: bool) -> Step:
    import odyssey as od

    attend = _odyssey_attention(form, causal)
    *data, g = operands(length)
    leaves = [od.Variable(a, requires_grad=True) for a in data]

    def step() -> list[Any]:
        with od.GradientTape() as tape:
            out = attend(*leaves)
        value = out.numpy()
        return [value, *tape.gradient(out, leaves, g)]

    return step


def _compiled(length: int, form: str, causal: bool) -> Step:
    import odyssey as od

    attend = _odyssey_attention(form, causal)
    arguments = operands(length)

    @od.compile(fullgraph=True)
    def program(q: Any, k: Any, v: Any, g: Any) -> Any:
        out, pull = od.vjp(attend, q, k, v)
        return out, pull(g)

    program.precompile(*arguments)

    def step() -> list[Any]:
        out, slopes = program(*arguments)
        return [out, *slopes]

    return step


def _torch(length: int, form: str, causal: bool) -> Step:
    if length < LONG or causal:
        raise NotApplicable(f"torch is measured from length {LONG} on, without a mask")
    import torch

    torch.set_num_threads(1)
    *data, g = [torch.tensor(a) for a in operands(length)]
    leaves = [a.requires_grad_() for a in data]

    def step() -> list[Any]:
        q, k, v = leaves
        if form == "tiled":
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            out = torch.softmax((q @ k.transpose(-1, -2)) * DIM**-0.5, dim=-1) @ v
        return [out.detach(), *torch.autograd.grad(out, leaves, g)]

    return step


_STEPS = {"taped": _taped, "compiled": _compiled, "torch": _torch}
_NAMES = ("out", "q", "k", "v")


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a case whose sample has the peak of a first step, and the least time of some."""
    make = _STEPS[system]
    step = make(config["length"], config["form"], config["causal"])
    make(WARM_LENGTHS[system], config["form"], config["causal"])()

    def answer() -> dict[str, Any]:
        return {n: np.asarray(a, np.float64) for n, a in zip(_NAMES, step(), strict=True)}

    return Case(answer=answer, sample=lambda: peak_and_least_times(step, STEPS))


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the result and the gradients by hand, in float64."""
    q, k, v, g = (a[0, 0].astype(np.float64) for a in operands(config["length"]))
    scores = q @ k.T * DIM**-0.5
    if config["causal"]:
        scores[~np.tri(len(q), dtype=bool)] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores, out=scores)
    p /= p.sum(axis=1, keepdims=True)
    out = p @ v
    slope = g @ v.T
    slope -= np.sum(g * out, axis=1, keepdims=True)
    slope *= p
    slope *= DIM**-0.5
    found = (out, slope @ k, slope.T @ q, p.T @ g)
    return {name: a[None, None] for name, a in zip(_NAMES, found, strict=True)}


# ------------------------------------------------------------------ hypotheses

SQUARE, LINEAR = (1.8, 2.2), (0.8, 1.2)
"""Exponents of the length that count as its square, and as proportional to it."""

MOST_TIME = 1.2


def _exponents(records: Records, form: str) -> dict[str, Estimate]:
    found = {}
    for system in records.systems(form=form):
        points = [
            (length, records.estimate(system, "peak_bytes", length=length, form=form, causal=False))
            for length in records.axis("length", system=system, form=form, causal=False)
            if length >= LONG
        ]
        if len(points) > 1:
            found[system] = power(points)
    if not found:
        raise MissingRecords(f"no two lengths from {LONG} on were measured")
    return found


def _square(records: Records) -> Verdict:
    found = _exponents(records, "materialized")
    return Verdict(all_of(between(e, *SQUARE) for e in found.values()), found)


def _linear(records: Records) -> Verdict:
    found = _exponents(records, "tiled")
    return Verdict(all_of(between(e, *LINEAR) for e in found.values()), found)


def _no_slower(records: Records) -> Verdict:
    found = {}
    for system in ("taped", "compiled"):
        for length in records.axis("length", system=system, causal=False):
            both = [
                {"length": length, "form": f, "causal": False} for f in ("tiled", "materialized")
            ]
            if length >= LONG and all(records.has(system, **c) for c in both):
                found[f"{system}, length {length}"] = records.between(
                    (system, both[0]), (system, both[1]), "cpu_seconds"
                )
    if not found:
        raise MissingRecords(f"no length from {LONG} on was measured in both forms")
    return Verdict(all_of(at_most(e, MOST_TIME) for e in found.values()), found)


HYPOTHESES = (
    Hypothesis(
        "materialized",
        "With all scores in memory, the peak grows with the square of the length.",
        f"An exponent of the length outside of {SQUARE[0]:g} to {SQUARE[1]:g} from {LONG} on.",
        _square,
    ),
    Hypothesis(
        "tiled",
        "With tiles of scores, the peak grows in proportion to the length.",
        f"An exponent of the length outside of {LINEAR[0]:g} to {LINEAR[1]:g} from {LONG} on.",
        _linear,
    ),
    Hypothesis(
        "time",
        "Tiles cost odyssey no time: they compute scores twice, and read less memory.",
        f"A step with tiles that takes more than {MOST_TIME:g} of the other's processor time.",
        _no_slower,
    ),
)


# ------------------------------------------------------------------ pictures


def pictures(records: Records) -> list[Any]:
    """Return peaks of both forms against the length, and the time of tiles beside all scores."""
    from study.drawing import Lines

    found: list[Any] = []
    for form, subject in (("materialized", "With all scores in memory"), ("tiled", "With tiles")):
        series = {}
        for system in records.systems(form=form, causal=False):
            points = [
                (n, records.estimate(system, "peak_bytes", length=n, form=form, causal=False))
                for n in records.axis("length", system=system, form=form, causal=False)
            ]
            series[system] = [(n, e) for n, e in points if e.median > 0]
        if not series:
            continue
        title = f"{subject}: the peak of attention against the length of the sequence"
        with contextlib.suppress(MissingRecords):
            powers = [e.median for e in _exponents(records, form).values()]
            title = (
                f"{subject}, the peak of attention grows with the length to the power "
                f"{min(powers):.2f} to {max(powers):.2f}"
            )
        label = "peak of a step above what was resident before"
        name = f"attention-peak-{form}"
        found.append(Lines(name, title, "length of the sequence", label, series, unit="B"))
    ratios: dict[str, list[tuple[Any, Estimate]]] = {}
    for system in records.systems(form="tiled", causal=False):
        for n in records.axis("length", system=system, form="tiled", causal=False):
            both = [{"length": n, "form": f, "causal": False} for f in ("tiled", "materialized")]
            if records.has(system, **both[1]):
                one = records.between((system, both[0]), (system, both[1]), "cpu_seconds")
                ratios.setdefault(system, []).append((n, one))
    if ratios:
        medians = [e.median for points in ratios.values() for _, e in points]
        found.append(
            Lines(
                "attention-time",
                f"Tiles take {min(medians):.2f} to {max(medians):.2f} of the time that attention "
                "with all scores takes",
                "length of the sequence",
                "processor time with tiles, as a ratio to that with all scores",
                ratios,
                log_y=False,
            )
        )
    return found
