"""Checks of ways before their first use on a machine: how exact they are, and what they touch.

Called by ``tuning``. A way of a work runs beside the guess and the row's reference in float64, on
the shapes of the work and on samples of the row: normal numbers at several scales, and operands
with NaN, infinity and -0. A way that fails where the reference does not, that has other special
values, writes to an operand, or returns a view, is put in quarantine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.compiled_function import CompiledFunction
from odyssey.compiler.ways.alternatives import CALLED, Choice, kernel_of_way
from odyssey.compiler.ways.choosing import version_of
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.compiler.ways.store import Verdict
from odyssey.devices.half_dtypes import finfo, is_floating, is_inexact
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.spec import Array, Spec
from odyssey.table.registry import OPS

__all__ = ["check_in_program", "check_ways"]

SCALES = (1.0, 30.0, 1e-20)

# Samples of the row on which its ways are checked as well, each of which takes a program a way.
_MOST_SAMPLES = 2

_SPEC = re.compile(r"(\w+)\[([\d, ]*)\]")


class _Case(NamedTuple):
    """A call of a row.

    Attributes:
        row: The row.
        operands: Arrays, numbers or None.
        named: Options by name.
        options: All options, in the order of the row; None for a sample.
    """

    row: Any
    operands: tuple[Any, ...]
    named: dict[str, Any]
    options: tuple[Any, ...] | None


class _Record:
    """The worst that was seen of a way."""

    def __init__(self) -> None:
        self.error = self.guess_error = 0.0
        self.equal, self.runs, self.reason = True, 0, ""

    def fail(self, reason: str) -> None:
        """Note the first reason for a quarantine."""
        self.reason = self.reason or reason


@ignore_fp_errors()
def check_ways(choice: Choice, names: Sequence[str]) -> list[Verdict]:
    """Return a verdict on each of some ways of a work.

    Args:
        choice: The work with its ways.
        names: Names of the ways, none of them the guess.
    """
    records = {name: _Record() for name in names}
    for case in _cases(choice):
        _check_case(choice, case, records)
    return [_verdict(choice, name, record) for name, record in records.items()]


def check_in_program(choice: Choice, name: str, guess: Any, run: Any) -> Verdict:
    """Return a verdict on a way that is checked in a program, since no call of a row has its work.

    These are products within convolutions. There is no reference, so the results of the program are
    compared with those of the guess, for the arguments that it is tuned for.

    Args:
        choice: The work with its ways.
        name: Name of the way.
        guess: Dry run of the program as guessed.
        run: Dry run of the program with the way.
    """
    record = _Record()
    results = []
    for one in (guess, run):
        one.reset()
        one.run()
        results.append(one.results())
        one.reset()
    for usual, own in zip(*results, strict=True):
        _compare(record, own, usual, _widened(usual), False)
        if is_inexact(own.dtype):
            rounding = _MOST_ROUNDINGS * float(finfo(own.dtype).eps)
            record.guess_error = max(record.guess_error, rounding)
    record.runs = 1
    return _verdict(choice, name, record)


# Error of results that only the order of sums changes, in units of the dtype's epsilon.
_MOST_ROUNDINGS = 16


def _verdict(choice: Choice, name: str, record: _Record) -> Verdict:
    """Return the verdict of a record; without an error if nothing was run."""
    way = next(one for one in choice.ways if one.name == name)
    known = record.runs > 0
    return Verdict(
        *(str(choice.work), name, version_of(way, choice.ways[0])),
        error=record.error if known else None,
        guess_error=record.guess_error if known else None,
        equal=known and record.equal,
        reason=record.reason,
    )


# ------------------------------------------------------------------ operands


def _cases(choice: Choice) -> Iterator[_Case]:
    """Yield the call of a work with operands of its shapes, and samples of its row."""
    rng = np.random.default_rng(0)
    call = choice.call or _product_call(choice)
    if call is None:
        return
    row, specs, options = call
    operands = tuple(_draw_operand(spec, rng) for spec in specs)
    yield _Case(row, operands, dict(zip(row.options, options, strict=True)), options)
    dtypes = [s.dtype for s in specs if isinstance(s, Spec) and is_inexact(s.dtype)]
    samples = [one for one in row.samples if one.operands and dtypes]
    for one in samples[:_MOST_SAMPLES]:
        drawn = one.arrays(rng, np.float64)
        operands = tuple(
            x.astype(dtypes[0]) if isinstance(x, np.ndarray) and is_floating(x.dtype) else x
            for x in drawn
        )
        yield _Case(row, operands, one.options, None)


def _product_call(choice: Choice) -> tuple[Any, list[Spec], tuple[Any, ...]] | None:
    """Return the call of ``matmul`` that is a product of such operands."""
    specs = []
    for text in choice.work.specs:
        match = _SPEC.fullmatch(text)
        if match is None:
            return None
        shape = tuple(int(n) for n in match[2].split(",") if n.strip())
        try:
            specs.append(Spec(shape, np.dtype(match[1])))
        except TypeError:
            return None
    return (OPS["matmul"], specs, ()) if len(specs) == 2 else None


def _draw_operand(spec: Any, rng: np.random.Generator) -> Any:
    if not isinstance(spec, Spec):
        return spec
    dtype = spec.dtype
    if is_inexact(dtype):
        values = rng.normal(size=spec.shape)
        if dtype.kind == "c":
            values = values + 1j * rng.normal(size=spec.shape)
        return np.asarray(values).astype(dtype)
    return rng.integers(0, 2, spec.shape).astype(dtype)  # as indices too they are in range


def _fill(array: Array, values: Array, scale: float, special: bool) -> None:
    """Write an operand at a scale; with ``special`` some elements are NaN, infinite or -0."""
    array[...] = (values * scale).astype(array.dtype)
    if special:
        flat = array.reshape(-1)
        for k, number in enumerate((np.nan, np.inf, -np.inf, -0.0)):
            if flat.size > 4 * k:
                flat[4 * k] = number


# ------------------------------------------------------------------ runs


def _check_case(choice: Choice, case: _Case, records: dict[str, _Record]) -> None:
    """Run the guess and ways on a case at all scales, and record how they differ."""
    places = [k for k, x in enumerate(case.operands) if isinstance(x, np.ndarray)]
    arrays = [np.array(case.operands[k], order="C") for k in places]
    before = [np.array(array) for array in arrays]

    def call(*values: Any) -> Any:
        operands = list(case.operands)
        for k, value in zip(places, values, strict=True):
            operands[k] = value
        return case.row.call(*operands, **case.named)

    # Operands may be one array, and are drawn apart from each other here.
    step = CompiledFunction(call, warn=False)
    try:
        step.precompile(*arrays)
        guess = step._dry_run(NO_PLAN, tuple(arrays), {})
    except Exception:  # the reference takes no such operands
        return
    met = _met(guess, choice)
    if met is None:
        return
    runs = {}
    for name, record in records.items():
        if name not in [way.name for way in met.ways]:
            continue
        try:
            runs[name] = step._dry_run(Plan({met.work: name}), tuple(arrays), {})
        except Exception as error:
            record.fail(f"{type(error).__name__} while it was compiled: {error}")
        _check_views(case, name, arrays, record)
    for scale, special in [*[(scale, False) for scale in SCALES], (1.0, True)]:
        _compare_at(call, guess, runs, arrays, before, records, scale, special)


def _met(guess: Any, choice: Choice) -> Choice | None:
    """Return the choice of a program that is the work, or the one of its row on other shapes."""
    listed = guess.works()
    same = [one for one in listed if one.work == choice.work]
    alike = [one for one in listed if one.work.row == choice.work.row]
    return next(iter(same or alike), None)


def _compare_at(
    call: Any,
    guess: Any,
    runs: dict[str, Any],
    arrays: list[Array],
    before: list[Array],
    records: dict[str, _Record],
    scale: float,
    special: bool,
) -> None:
    for array, values in zip(arrays, before, strict=True):
        if is_inexact(array.dtype):
            _fill(array, values, scale, special)
    wide = [_widened(array) for array in arrays]
    try:
        expected = call(*wide)
        guess.run()
    except Exception:  # not defined for such numbers
        return
    expected = [np.asarray(x) for x in (expected if isinstance(expected, tuple) else (expected,))]
    usual = guess.results()
    held = [array.tobytes() for array in arrays]
    for name, run in runs.items():
        record = records[name]
        try:
            run.run()
            results = run.results()
        except Exception as error:
            record.fail(f"it raised {type(error).__name__}: {error}")
            continue
        if [array.tobytes() for array in arrays] != held:
            record.fail("it wrote to an operand")
            return
        for own, common, reference in zip(results, usual, expected, strict=True):
            _compare(record, own, common, reference, special)
        record.runs += 1


def _compare(record: _Record, own: Array, usual: Array, expected: Array, special: bool) -> None:
    """Record how a result of a way differs from that of the guess, and from the reference."""
    if own.tobytes() == usual.tobytes():
        equal = True
    else:
        equal = record.equal = False
    if not is_inexact(own.dtype):
        if not equal:
            record.fail("its integers differ from those of the guess")
        return
    if not equal and not _have_same_specials(own, usual):
        narrow = expected.astype(own.dtype)
        if not _have_same_specials(own, narrow):
            record.fail(
                "its NaN and infinite elements are others"
                + (" for operands with such elements" if special else "")
            )
            return
    floor = float(finfo(own.dtype).eps) / (1 if own.dtype.itemsize >= 8 else 2)
    record.error = max(record.error, _error(own, expected))
    record.guess_error = max(record.guess_error, floor, _error(usual, expected))


def _have_same_specials(one: Array, other: Array) -> bool:
    one, other = _widened(one), _widened(other)
    same = np.isnan(one) == np.isnan(other)
    infinite = np.isinf(one) | np.isinf(other)
    return bool(np.all(same) and np.all(one[infinite] == other[infinite]))


def _error(own: Array, expected: Array) -> float:
    """Return the largest error of finite elements, relative to the largest of them.

    Where all elements are subnormal, it is relative to the smallest normal number that has as many
    digits as others.
    """
    limits = finfo(own.dtype)
    own = _widened(own)
    finite = np.isfinite(own) & np.isfinite(expected)
    if not np.any(finite):
        return 0.0
    least = float(limits.smallest_normal) / float(limits.eps)
    largest = max(float(np.max(np.abs(expected[finite]))), least)
    return float(np.max(np.abs(own[finite] - expected[finite]))) / largest


def _widened(array: Array) -> Array:
    """Return floating-point numbers in double precision, and all else as it is."""
    if not is_inexact(array.dtype):
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _check_views(case: _Case, name: str, arrays: list[Array], record: _Record) -> None:
    """Record a kernel whose result shares memory with an operand."""
    if name == CALLED or case.options is None:
        return
    specs = [Spec(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in case.operands]
    kernel = kernel_of_way(case.row, specs, case.options, name)
    if kernel is None:
        return
    operands, given = list(case.operands), iter(arrays)
    operands = [next(given) if isinstance(x, np.ndarray) else x for x in operands]
    try:
        found = kernel.run(*operands, *case.options)
    except Exception as error:
        record.fail(f"it raised {type(error).__name__}: {error}")
        return
    results = found if isinstance(found, tuple) else (found,)
    if any(np.may_share_memory(x, array) for x in results for array in arrays):
        record.fail("it returns a view of an operand")
