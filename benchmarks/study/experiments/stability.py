"""Stability: errors of values and gradients, taped and compiled, against 50-digit arithmetic.

Errors are relative, in units of the dtype's epsilon ("ulp"). The data of a configuration are
drawn from a fixed seed, so a sample repeats exactly on one machine, and one round is enough. What a
compiled program differs from the tape by is measured within one process, in units in the last place
of the larger number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from study.contract import Case, Estimate, Hypothesis, Verdict
from study.patches import no_fusion
from study.predicates import NOTHING, all_of, at_most, between, power
from study.records import MissingRecords, Records

NAME = "stability"
QUESTION = "Does a compiled program keep the numbers of the tape, and how do their errors grow?"
SYSTEMS = ("taped", "compiled", "torch", "jax")
FRESH = False
ROUNDS = 1
TOLERANCE = 0.0  # without answers: errors are what is measured, and nothing is timed

DIGITS = 50
ELEMENTS = 24
MOST_UNROLLED = 32
"""Layers that a compiled function has one by one; of more it has a loop."""

DEPTHS = (1, 10, 100, 1000, 10_000)
CONDITIONS = (1.0, 1e4, 1e8, 1e12)
SIZES = (100, 1000, 30_000)
_SIZES_OF: dict[str, list[float]] = {
    "chain": list(DEPTHS),
    "functions": [1, 10, 100],
    "network": [1, 4, 16],
    "sum": list(SIZES),
    "solve": list(CONDITIONS),
    "range": [1100],
}
QUICK = ("chain", "functions", "sum", "range")
LIMITS = {"float32": (128, 150), "float64": (1024, 1075)}
"""First powers of 2 that overflow, and first powers of 1/2 that are 0, by the formats."""


def configs(quick: bool) -> list[dict[str, Any]]:
    """Problems, with all their sizes in one sample."""
    if quick:
        return [
            {"problem": problem, "dtype": "float32", "sizes": _SIZES_OF[problem][:2]}
            for problem in QUICK
        ]
    return [
        {"problem": problem, "dtype": dtype, "sizes": sizes}
        for problem, sizes in _SIZES_OF.items()
        for dtype in ("float32", "float64")
    ]


# ------------------------------------------------------------------ problems


def _draw(problem: str, size: float, dtype: str) -> dict[str, Any]:
    """Return the operand ``x``, the cotangent ``g`` of the result, and the data of a problem."""
    rng = np.random.RandomState(0)  # NumPy promises its stream, whatever version a peer has
    n = int(size)

    def rounded(array: Any) -> Any:
        return np.asarray(array).astype(dtype)

    if problem == "chain":
        # Products of the factors stay near 1, so that the condition number does too.
        return {
            "x": rounded(rng.uniform(0.5, 1.0, ELEMENTS)),
            "g": rounded(rng.uniform(0.5, 1.0, ELEMENTS)),
            "data": (
                rounded(np.exp(rng.uniform(-0.02, 0.02, (n, ELEMENTS)))),
                rounded(rng.normal(0.0, 1e-3, (n, ELEMENTS))),
            ),
        }
    if problem == "functions":
        return {
            "x": rounded(rng.uniform(0.5, 1.0, ELEMENTS)),
            "g": rounded(rng.uniform(0.5, 1.0, ELEMENTS)),
            "data": (
                rounded(rng.uniform(0.9, 1.1, (n, ELEMENTS))),
                rounded(rng.uniform(0.1, 0.3, (n, ELEMENTS))),
            ),
        }
    if problem == "network":
        return {
            "x": rounded(rng.normal(size=(4, 8))),
            "g": rounded(rng.normal(size=(4, 8))),
            "data": (
                rounded(rng.normal(0.0, 8**-0.5, (n, 8, 8))),
                rounded(rng.normal(0.0, 0.1, (n, 8))),
            ),
        }
    if problem == "sum":
        return {
            "x": rounded(rng.uniform(0.5, 1.0, n)),
            "g": rounded(rng.uniform(0.5, 1.0)),
            "data": (rounded(rng.uniform(0.5, 1.0, n)),),
        }
    order = 8
    left, right = (np.linalg.qr(rng.normal(size=(order, order)))[0] for _ in range(2))
    return {
        "x": rounded(rng.normal(size=order)),
        "g": rounded(rng.normal(size=order)),
        "data": (rounded(left @ np.diag(np.geomspace(1.0, 1.0 / size, order)) @ right),),
    }


def _function(problem: str, m: Any) -> Callable[..., Any]:
    """Return a problem as a function of its operand and its data, in the ops of a library."""
    if problem == "chain":
        return lambda x, w, c: m.layers(lambda h, w, c: h * w + c, x, w, c)
    if problem == "functions":
        return lambda x, w, c: m.layers(lambda h, w, c: m.tanh(h) * w + m.exp(h * c) * c, x, w, c)
    if problem == "network":
        return lambda x, w, b: m.layers(lambda h, w, b: m.tanh(h @ w + b), x, w, b)
    if problem == "sum":
        return lambda x, w: m.sum(x * w)
    if problem == "solve":
        return lambda x, a: m.solve(a, x)
    return lambda x, w: m.layers(lambda h, w: h * w, x, w)  # range


def _loop(step: Callable[..., Any], x: Any, *data: Any) -> Any:
    for row in zip(*data, strict=True):
        x = step(x, *row)
    return x


# ------------------------------------------------------------------ systems

Program = Callable[..., tuple[Any, Any]]
"""Of the operand, the cotangent and the data: the value, and the gradient of the operand."""


def _taped(problem: str) -> Program:
    import odyssey as od

    f = _function(problem, _odyssey_ops(_loop))

    def run(x: Any, g: Any, *data: Any) -> tuple[Any, Any]:
        leaf = od.Variable(x, requires_grad=True)
        with od.GradientTape() as tape:
            y = f(leaf, *data)
        return y.numpy(), tape.gradient(y, leaf, g)

    return run


def _odyssey_ops(layers: Callable[..., Any]) -> Any:
    import odyssey as od

    return SimpleNamespace(
        tanh=od.ops.tanh, exp=od.ops.exp, sum=od.ops.sum, solve=od.linalg.solve, layers=layers
    )


def _compiled(problem: str) -> Program:
    import odyssey as od

    def layers(step: Callable[..., Any], x: Any, *data: Any) -> Any:
        if len(data[0]) <= MOST_UNROLLED:
            return _loop(step, x, *data)
        return od.scan(lambda h, row: (step(h, *row), None), x, data)[0]

    f = _function(problem, _odyssey_ops(layers))

    @od.compile(fullgraph=True)
    def program(x: Any, g: Any, *data: Any) -> Any:
        y, pull = od.vjp(lambda x: f(x, *data), x)
        return y, pull(g)

    def run(x: Any, g: Any, *data: Any) -> tuple[Any, Any]:
        program.precompile(x, g, *data)
        y, slope = program(x, g, *data)
        return np.asarray(y), np.asarray(slope[0] if isinstance(slope, tuple) else slope)

    return run


def _torch(problem: str) -> Program:
    import torch

    torch.set_num_threads(1)
    ops = SimpleNamespace(
        tanh=torch.tanh, exp=torch.exp, sum=torch.sum, solve=torch.linalg.solve, layers=_loop
    )
    f = _function(problem, ops)

    def run(x: Any, g: Any, *data: Any) -> tuple[Any, Any]:
        leaf = torch.tensor(x, requires_grad=True)
        y = f(leaf, *map(torch.tensor, data))
        slope = torch.autograd.grad(y, leaf, torch.tensor(g))[0]
        return y.detach().numpy(), slope.numpy()

    return run


def _jax(problem: str) -> Program:
    import jax

    jax.config.update("jax_enable_x64", True)

    def layers(step: Callable[..., Any], x: Any, *data: Any) -> Any:
        return jax.lax.scan(lambda h, row: (step(h, *row), None), x, data)[0]

    numpy = jax.numpy
    ops = SimpleNamespace(
        tanh=numpy.tanh, exp=numpy.exp, sum=numpy.sum, solve=numpy.linalg.solve, layers=layers
    )
    f = _function(problem, ops)

    @jax.jit
    def program(x: Any, g: Any, *data: Any) -> Any:
        y, pull = jax.vjp(lambda x: f(x, *data), x)
        return y, pull(g)[0]

    def run(x: Any, g: Any, *data: Any) -> tuple[Any, Any]:
        y, slope = program(x, g, *data)
        return np.asarray(y), np.asarray(slope)

    return run


_PROGRAMS = {"taped": _taped, "compiled": _compiled, "torch": _torch, "jax": _jax}


# ------------------------------------------------------------------ 50-digit arithmetic


def _to_exact(value: Any) -> Any:
    import mpmath

    return mpmath.mpf(float(value))


@functools.lru_cache(maxsize=4)
def exact(problem: str, size: float, dtype: str) -> tuple[Any, Any]:
    """Return value and gradient of a problem as arrays of mpmath's numbers of 50 digits."""
    import mpmath

    drawn = _draw(problem, size, dtype)
    with mpmath.workdps(DIGITS):
        to_exact = np.frompyfunc(_to_exact, 1, 1)
        x, g = to_exact(drawn["x"]), to_exact(drawn["g"])
        data = [to_exact(array) for array in drawn["data"]]
        if problem == "chain":
            factors, summands = data
            for w, c in zip(factors, summands, strict=True):
                x, g = x * w + c, g * w  # products commute, so g may be taken along
            return x, g
        if problem == "functions":
            tanh, exp = np.frompyfunc(mpmath.tanh, 1, 1), np.frompyfunc(mpmath.exp, 1, 1)
            for w, c in zip(*data, strict=True):
                t, e = tanh(x), exp(x * c)
                x, g = t * w + e * c, g * ((1 - t * t) * w + e * c * c)
            return x, g
        if problem == "network":
            tanh = np.frompyfunc(mpmath.tanh, 1, 1)
            states = [x]
            for w, b in zip(*data, strict=True):
                states.append(tanh(states[-1].dot(w) + b))
            for w, h in zip(data[0][::-1], states[:0:-1], strict=True):
                g = (g * (1 - h * h)).dot(w.T)
            return states[-1], g
        if problem == "sum":
            return np.array(mpmath.fsum(x * data[0])), data[0] * g
        a = mpmath.matrix(data[0].tolist())
        value = mpmath.lu_solve(a, mpmath.matrix(list(x)))
        slope = mpmath.lu_solve(a.T, mpmath.matrix(list(g)))
        return np.array(list(value)), np.array(list(slope))


def relative_error(array: Any, reference: Any, dtype: str) -> float:
    """Return the norm of the error by the norm of the reference, in epsilons of a dtype."""
    import mpmath

    with mpmath.workdps(DIGITS):
        numbers = [mpmath.mpf(float(v)) for v in np.ravel(array)]
        expected = list(np.ravel(reference))
        error = sum((a - b) ** 2 for a, b in zip(numbers, expected, strict=True))
        size = sum(b**2 for b in expected)
        return float(mpmath.sqrt(error / size) / float(np.finfo(dtype).eps))


def elementwise_error(array: Any, reference: Any, dtype: str) -> float:
    """Return the root of the mean square of relative errors, in epsilons of a dtype."""
    import mpmath

    with mpmath.workdps(DIGITS):
        errors = [
            float((mpmath.mpf(float(a)) - b) / b)
            for a, b in zip(np.ravel(array), np.ravel(reference), strict=True)
        ]
    return float(np.sqrt(np.mean(np.square(errors))) / np.finfo(dtype).eps)


def ulp_distance(one: Any, other: Any) -> float:
    """Return the largest difference of two arrays, in units in the last place of the larger."""
    one, other = np.asarray(one), np.asarray(other)
    difference = np.abs(one.astype(np.longdouble) - other.astype(np.longdouble))
    unit = np.spacing(np.maximum(np.abs(one), np.abs(other)))
    return float(np.max(difference / unit, initial=0.0))


# ------------------------------------------------------------------ measuring


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a case whose sample holds the errors at each size."""
    problem, dtype = config["problem"], config["dtype"]
    if problem == "range":
        run = _PROGRAMS[system]("range")
        return Case(sample=lambda: _first_lost(run, config["sizes"][0], dtype))
    run = _PROGRAMS[system](problem)

    def sample() -> dict[str, float]:
        metrics: dict[str, float] = {}
        for size in config["sizes"]:
            drawn = _draw(problem, size, dtype)
            arguments = (drawn["x"], drawn["g"], *drawn["data"])
            error = elementwise_error if problem in ("chain", "functions") else relative_error
            found = run(*arguments)
            for name, array, expected in zip(
                ("value", "gradient"), found, exact(problem, size, dtype), strict=True
            ):
                metrics[f"{name}_error_at_{size:g}"] = error(array, expected, dtype)
            if system == "compiled":
                taped = _taped(problem)(*arguments)
                with no_fusion():
                    unfused = _compiled(problem)(*arguments)
                for name, arrays in (("fused", found), ("unfused", unfused)):
                    metrics[f"{name}_from_taped_at_{size:g}"] = max(
                        ulp_distance(a, b) for a, b in zip(arrays, taped, strict=True)
                    )
        return metrics

    return Case(sample=sample)


def _first_lost(run: Program, depth: int, dtype: str) -> dict[str, float]:
    """Return at which depth a gradient of powers of 2 overflows, and one of 1/2 is 0."""
    one = np.ones(1, dtype)

    def gradient(base: float, layers: int) -> float:
        factors = np.ones((depth, 1), dtype)
        factors[:layers] = base
        return float(run(one, one, factors)[1][0])

    def first(lost: Callable[[int], bool]) -> float:
        low, high = 0, depth  # not lost at low; lost at high, or never
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if lost(middle) else (middle, high)
        return float(high)

    return {
        "first_overflow": first(lambda n: not np.isfinite(gradient(2.0, n))),
        "first_underflow": first(lambda n: gradient(0.5, n) == 0.0),
    }


def reference(config: dict[str, Any]) -> None:
    """Nothing: samples compare themselves with 50-digit arithmetic, since errors are the result."""


# ------------------------------------------------------------------ hypotheses

MOST_APART = 4.0
"""Units in the last place between a compiled program with fusion and the tape."""

ROOT = (0.4, 0.6)
"""Exponents of depth that count as a square root."""

PER_CONDITION = 10.0
"""Epsilons of error that a solution may have for each unit of the condition number."""

_PROBLEM_NAMES = [name for name in _SIZES_OF if name != "range"]


def _at_sizes(
    records: Records, system: str, metric: str, problem: str, dtype: str
) -> list[tuple[float, Estimate]]:
    """Return the estimates of a metric at all sizes of a problem that were measured."""
    found = []
    for config in records.configs(system, problem=problem, dtype=dtype):
        for size in config["sizes"]:
            found.append((size, records.estimate(system, f"{metric}_at_{size:g}", **config)))
    return found


def _differences(records: Records, kind: str) -> dict[str, Estimate]:
    """Return the largest difference of compiled and taped, by problem."""
    found: dict[str, Estimate] = {}
    for problem in _PROBLEM_NAMES:
        for dtype in records.axis("dtype", system="compiled", problem=problem):
            for _, one in _at_sizes(records, "compiled", f"{kind}_from_taped", problem, dtype):
                if problem not in found or one.median > found[problem].median:
                    found[problem] = one
    if not found:
        raise MissingRecords(NOTHING)
    return found


def _equal_without_fusion(records: Records) -> Verdict:
    found = _differences(records, "unfused")
    return Verdict(all_of(at_most(e, 0.0) for e in found.values()), found)


def _close_with_fusion(records: Records) -> Verdict:
    found = _differences(records, "fused")
    return Verdict(all_of(at_most(e, MOST_APART) for e in found.values()), found)


def _root_of_depth(records: Records) -> Verdict:
    found: dict[str, Estimate] = {}
    for dtype in records.axis("dtype", problem="chain"):
        for system in records.systems(problem="chain", dtype=dtype):
            points = _at_sizes(records, system, "gradient_error", "chain", dtype)
            found[f"{system}, {dtype}"] = power(points)
    if not found:
        raise MissingRecords(NOTHING)
    return Verdict(all_of(between(e, *ROOT) for e in found.values()), found)


def _in_proportion_to_condition(records: Records) -> Verdict:
    found: dict[str, Estimate] = {}
    for dtype in records.axis("dtype", problem="solve"):
        for system in records.systems(problem="solve", dtype=dtype):
            by_condition = [
                Estimate(e.median / kappa, e.low / kappa, e.high / kappa, e.rounds)
                for metric in ("value_error", "gradient_error")
                for kappa, e in _at_sizes(records, system, metric, "solve", dtype)
                # Beyond it no digit is left, and the error says nothing.
                if kappa * float(np.finfo(dtype).eps) < 0.1
            ]
            if by_condition:
                found[f"{system}, {dtype}"] = max(by_condition, key=lambda e: e.median)
    if not found:
        raise MissingRecords(NOTHING)
    return Verdict(all_of(at_most(e, PER_CONDITION) for e in found.values()), found)


def _range_of_the_format(records: Records) -> Verdict:
    found: dict[str, Estimate] = {}
    outcomes = []
    for dtype in records.axis("dtype", problem="range"):
        for system in records.systems(problem="range", dtype=dtype):
            for metric, limit in zip(("overflow", "underflow"), LIMITS[dtype], strict=True):
                one = records.estimate(system, f"first_{metric}", problem="range", dtype=dtype)
                found[f"{system}, {dtype}, first {metric}"] = one
                outcomes.append(between(one, limit, limit))
    if not found:
        raise MissingRecords(NOTHING)
    return Verdict(all_of(outcomes), found)


HYPOTHESES = (
    Hypothesis(
        "bits",
        "Compiled without fusion, a program gives the bits of the tape.",
        "One value or gradient of a problem that differs by a unit in the last place.",
        _equal_without_fusion,
    ),
    Hypothesis(
        "fusion",
        f"With fusion, a program stays within {MOST_APART:g} units in the last place of the tape.",
        "One value or gradient of a problem that differs by more.",
        _close_with_fusion,
    ),
    Hypothesis(
        "depth",
        "The relative error of a gradient grows with the square root of depth, in every system.",
        f"An exponent of depth outside of {ROOT[0]:g} to {ROOT[1]:g} in one of them.",
        _root_of_depth,
    ),
    Hypothesis(
        "condition",
        "The error of a linear system and of its gradient grows at most in proportion to the "
        "condition number, in every system.",
        f"More than {PER_CONDITION:g} epsilons for a unit of the condition number.",
        _in_proportion_to_condition,
    ),
    Hypothesis(
        "range",
        "Gradients overflow and vanish where numbers of their format do: no system loses range.",
        "A first depth of infinity or zero that is not that of the format.",
        _range_of_the_format,
    ),
)


# ------------------------------------------------------------------ pictures


def _latest(estimates: dict[str, Estimate]) -> float:
    return max(e.median for e in estimates.values())


def pictures(records: Records) -> list[Any]:
    """Return errors against depth and condition, and the distance of compiled from taped."""
    from study.drawing import Bars, Lines, number_text, system_label

    found: list[Any] = []
    for dtype in records.axis("dtype", problem="chain"):
        series = {
            system: _at_sizes(records, system, "gradient_error", "chain", dtype)
            for system in records.systems(problem="chain", dtype=dtype)
        }
        slopes = [power(points).median for points in series.values()]
        found.append(
            Lines(
                f"stability-depth-{dtype}",
                f"Errors of {dtype} gradients grow with depth to the power "
                f"{min(slopes):.2f} to {max(slopes):.2f}",
                "layers",
                "error of the gradient, epsilons",
                series,
            )
        )
    for dtype in records.axis("dtype", problem="solve"):
        series = {
            system: _at_sizes(records, system, "gradient_error", "solve", dtype)
            for system in records.systems(problem="solve", dtype=dtype)
        }
        kappa = max(size for points in series.values() for size, _ in points)
        errors = [e.median for points in series.values() for size, e in points if size == kappa]
        found.append(
            Lines(
                f"stability-condition-{dtype}",
                f"At condition number {number_text(kappa)}, {dtype} gradients of linear systems "
                f"err by {number_text(min(errors))} to {number_text(max(errors))} epsilons",
                "condition number",
                "error of the gradient, epsilons",
                series,
            )
        )
    for dtype in records.axis("dtype", problem="sum"):
        series = {
            system: _at_sizes(records, system, "value_error", "sum", dtype)
            for system in records.systems(problem="sum", dtype=dtype)
        }
        worst = max(e.median for points in series.values() for _, e in points)
        found.append(
            Lines(
                f"stability-sums-{dtype}",
                f"Whatever the order of a {dtype} sum, it errs by at most {worst:.2g} epsilons",
                "numbers in the sum",
                "error of the sum, epsilons",
                series,
                log_y=False,
            )
        )
    lost = {}
    for dtype in records.axis("dtype", problem="range"):
        for metric in ("overflow", "underflow"):
            lost[f"{dtype}, first {metric}"] = {
                system: records.estimate(system, f"first_{metric}", problem="range", dtype=dtype)
                for system in records.systems(problem="range", dtype=dtype)
            }
    if lost:
        # Whoever flushes the smallest numbers to zero is behind the others here.
        early = {s for of in lost.values() for s in of if of[s].median < _latest(of)}
        who = " and ".join(system_label(s) for s in SYSTEMS if s in early)
        title = "Gradients overflow and vanish in all systems where the format ends"
        found.append(
            Bars(
                "stability-range",
                f"Gradients are lost sooner in {who} than in the others" if who else title,
                "depth of the first infinite gradient, of powers of two, and of the first zero",
                lost,
            )
        )
    if "compiled" in records.systems(problem="chain"):
        kinds = {kind: _differences(records, kind) for kind in ("fused", "unfused")}
        worst = max(e.median for e in kinds["fused"].values())
        found.append(
            Bars(
                "stability-bits",
                f"Compiled differs from taped by up to {worst:.0f} units in the last place",
                "units in the last place",
                {
                    problem: {kind: kinds[kind][problem] for kind in kinds}
                    for problem in kinds["fused"]
                },
            )
        )
    return found
