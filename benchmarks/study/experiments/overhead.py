"""Overhead: what an op costs besides its arithmetic, against the size of its arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from study.bytecodes import count_bytecodes
from study.contract import Case, Hypothesis, Verdict
from study.passes import PhaseTimes, named_results, passes_of
from study.predicates import difference, scaled, within

NAME = "overhead"
QUESTION = "What does an op cost besides its arithmetic?"
SYSTEMS = ("numpy", "taped", "compiled", "torch", "torch.compile", "jax", "autograd")
FRESH = False
ROUNDS = 9
TIMEOUT = 300.0
TOLERANCE = 2e-3

OPS = 60
"""Multiplications and additions of a chain; each is run forward and swept."""

SMALL, LARGE = 4096, 100_000
"""Sizes up to which the cost is expected to be constant, and from which it is to be gone."""

LEAST_TAPED, MOST_TAPED, MOST_COMPILED = 0.5e-6, 3e-6, 0.05e-6
"""Bounds of what an op is expected to cost, in seconds."""

GONE = 1.1
"""The largest ratio to NumPy at which overhead counts as gone."""


def chain_inputs(elements: int, dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    """Return x, the factor and the addend of the chain."""
    x = np.linspace(-1, 1, elements, dtype=np.float32).astype(dtype)
    factor = np.full(elements, np.float32(1.0001), dtype)
    return x, factor, np.full(elements, np.float32(1e-4), dtype)


def chain_loss(p: Any, x: Any, addend: Any) -> Any:
    """Return the sum of x, multiplied by a factor and increased by turns.

    Gradients are of the factor: they depend on each product, so that no compiler drops the forward
    pass.
    """
    h = x
    for _ in range(OPS // 2):
        h = h * p[0] + addend
    return h.sum()


def chain_by_hand(p: Any, x: Any, addend: Any) -> tuple[Any, Callable[[], list[Any]]]:
    """Return the loss of NumPy, and its backward pass."""
    (factor,) = p
    products = [x]
    for _ in range(OPS // 2):
        products.append(products[-1] * factor + addend)

    def backward() -> list[Any]:
        g, slope = np.ones_like(factor), np.zeros_like(factor)
        for h in products[-2::-1]:
            slope = slope + g * h
            g = g * factor
        return [slope]

    return products[-1].sum(), backward


LOSSES = {
    "numpy": chain_by_hand,
    **dict.fromkeys(("odyssey", "torch", "jax", "autograd"), chain_loss),
}


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return sizes from 8 to a million."""
    sizes = (8, 100_000) if quick else (8, 64, SMALL, 32_768, LARGE, 1_000_000)
    return [{"elements": elements} for elements in sizes]


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and the gradient in float64."""
    x, factor, addend = chain_inputs(config["elements"], np.float64)
    loss, backward = chain_by_hand([factor], x, addend)
    return named_results(loss, backward())


def build(system: str, config: dict[str, Any]) -> Case:
    """Return the chain in a system, which is timed forward and back."""
    x, factor, addend = chain_inputs(config["elements"])
    passes = passes_of(system, LOSSES, [factor], [x, addend])
    for _ in range(3):  # compiles both programs
        passes.forward()
        passes.both()

    def counts() -> dict[str, float]:
        found: dict[str, float] = {"bytecodes": count_bytecodes(passes.both)}
        if system == "taped":
            found["nodes"] = len(passes.forward()[0].nodes)
        return found

    return Case(answer=passes.answer, counts=counts, sample=PhaseTimes(passes))


# ------------------------------------------------------------------ hypotheses


def op_seconds(records: Any, system: str, metric: str, elements: int) -> Any:
    """Return the seconds of one op."""
    return scaled(records.estimate(system, metric, elements=elements), 1 / OPS)


def _taped_constant(records: Any) -> Verdict:
    numbers = {}
    for n in [n for n in records.axis("elements", system="taped") if n <= SMALL]:
        taped, numpy = (op_seconds(records, s, "cpu_seconds", n) for s in ("taped", "numpy"))
        numbers[f"above NumPy at {n} elements, seconds"] = difference(taped, numpy)
    return within(numbers, LEAST_TAPED, MOST_TAPED)


def _compiled_small(records: Any) -> Verdict:
    least = min(records.axis("elements", system="compiled"), default=0)
    number = op_seconds(records, "compiled", "cpu_seconds", least)
    return within({f"compiled at {least} elements, seconds": number}, high=MOST_COMPILED)


def _gone(records: Any) -> Verdict:
    numbers = {
        f"taped to NumPy at {n} elements": records.ratio(
            "taped", "numpy", "cpu_seconds", elements=n
        )
        for n in records.axis("elements", system="taped")
        if n >= LARGE
    }
    return within(numbers, high=GONE)


HYPOTHESES = (
    Hypothesis(
        "taped-constant",
        f"An op on a tape, run and swept, costs a constant {1e6 * LEAST_TAPED:g} to "
        f"{1e6 * MOST_TAPED:g} µs besides its arithmetic.",
        f"its processor time above that of NumPy by hand lies outside of that on arrays of up to "
        f"{SMALL:,} elements.",
        _taped_constant,
    ),
    Hypothesis(
        "compiled-small",
        f"An op of a compiled program costs under {1e6 * MOST_COMPILED:g} µs.",
        "an op on the smallest arrays, run and swept, takes more.",
        _compiled_small,
    ),
    Hypothesis(
        "gone",
        f"From {LARGE:,} elements on the overhead of a tape is gone.",
        f"the tape takes over {GONE:g} of the time of NumPy by hand there.",
        _gone,
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return the time of an op against the size of its arrays, of all and of the tape's passes."""
    from study.drawing import Lines, number_text

    def points(system: str, metric: str) -> list[tuple[float, Any]]:
        sizes = records.axis("elements", system=system)
        found = [(n, op_seconds(records, system, metric, n)) for n in sizes]
        return [(n, value) for n, value in found if value.median > 0]

    systems = [s for s in SYSTEMS if records.has(s)]
    taped = points("taped", "cpu_seconds")
    if not taped:
        return []
    base = "numpy" if "numpy" in systems else "taped"
    label, (least, first) = "elements in each array (float32)", taped[0]
    both = Lines(
        "overhead",
        f"An op on {least} numbers takes {number_text(first.median, 's')} on a tape, run and swept",
        label,
        "processor time of one op",
        {system: points(system, "cpu_seconds") for system in systems},
        ratio_to=base,
        ratios={
            system: [
                (n, records.ratio(system, base, "cpu_seconds", elements=n))
                for n in records.axis("elements", system=system)
                if records.has(base, elements=n)
            ]
            for system in systems
            if system != base
        },
        unit="s",
    )
    halves = {name: points("taped", f"{name}_cpu_seconds") for name in ("forward", "sweep")}
    share = halves["sweep"][0][1].median / first.median
    passes = Lines(
        "overhead-passes",
        f"Of an op on {least} numbers the sweep takes {number_text(share, '%')}",
        label,
        "processor time of one op on a tape",
        halves,
        unit="s",
    )
    return [both, passes]
