"""Explanation of a compiled program as text: kernels, host calls, memory, guards and times."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from odyssey.checks import user_stacklevel
from odyssey.compiler.machine.blas import thread_setters
from odyssey.compiler.machine.thread_count import get_threads, requested_threads
from odyssey.compiler.runtime.kernel_work import format_count, kernel_work
from odyssey.compiler.runtime.thread_pool import why_single_threaded
from odyssey.compiler.schedule.state_copies import describe_copies
from odyssey.compiler.ways.works import Work
from odyssey.errors import WideningWarning
from odyssey.graph.graph import Graph, Ref, Splat
from odyssey.spec import Spec, spec_of
from odyssey.table.widening import describe_widening, is_wide

__all__ = ["explain_program", "explain_scalar_inputs", "warn_of_widening"]

# Guards that are listed by name.
_MOST_GUARDS = 12


def explain_program(program: Any) -> str:
    """Describe a program: kernels, host calls, memory, guards and times."""
    executable = program.executable
    plan = executable.plan
    lines = [f"a program of {len(plan.fused.kernels)} kernels"]
    if plan.fused.kernels:
        lines.append(
            f"  {'':3} {'kernel':<8} {'space':>16} {'bytes':>14} {'flops':>16}  function  what"
        )
    lines += _kernel_lines(executable, "")
    outputs = sum(node.size for node in plan.outputs if node is not None)
    lines += executable.describe_launches()
    lines.append(f"arena: {plan.arena:,} bytes; results: {outputs:,} elements")
    lines += [f"copies {line}" for line in describe_copies(plan, executable.graph)]
    widening = first_widening(executable.graph)
    if widening is not None:
        lines.append(f"widens: {widening}")
    for row, why in executable.calls.items():
        lines.append(f"not lowered: {row}, since {why}")
    lines += _quarantine_lines(executable)
    for schedule in executable.graph.deferred_steps:
        lines.append(f"steps after the program: {schedule!r}")
    lines += _way_lines(executable, program.reasons)
    if executable.shares:
        lines.append(
            _thread_line(executable.threads or requested_threads(), executable.module.text)
        )
    words = len(executable.words) // 3
    lines.append(f"guards: {len(program.guards)} on Python objects, {words} on words of memory")
    places = program.guards.guard_names()
    lines += [f"  {place}" for place in places[:_MOST_GUARDS]]
    if len(places) > _MOST_GUARDS:
        lines.append(f"  and {len(places) - _MOST_GUARDS} more")
    seconds = {**program.seconds, **executable.seconds, **executable.loaded.seconds}
    times = ", ".join(f"{stage} {1e3 * s:.1f}" for stage, s in seconds.items())
    lines.append(f"milliseconds: {times}")
    return "\n".join(lines)


def _quarantine_lines(executable: Any) -> list[str]:
    """Return a line for each way of the works that failed a check on this machine."""
    from odyssey.compiler.ways.choosing import quarantined
    from odyssey.compiler.ways.store import default_store, is_present

    if not is_present():
        return []
    works = [(one.work, one.ways) for one in executable.works()]
    found = quarantined(default_store(executable.threads or get_threads()), works)
    return [f"in quarantine: {work}: {way}, since {reason}" for work, way, reason in found]


def first_widening(graph: Graph) -> str | None:
    """Describe the first op of a graph of narrow inputs that a constant or an integer widens.

    None for a graph that has a float64 input or state, and where only ``astype`` widens.
    """
    known = dict(graph.inputs) | {state.id: state.spec for state in graph.states}
    if any(is_wide(spec.dtype) for spec in known.values()):
        return None
    known |= {id: spec_of(np.asarray(array)) for id, array in graph.constants.items()}
    for instruction in graph.instructions:
        specs = [_operand_spec(operand, known) for operand in instruction.operands]
        known |= zip(instruction.ids, instruction.specs, strict=True)
        text = describe_widening(instruction.row, specs, instruction.specs[0])
        if text is not None:
            return text
    return None


def warn_of_widening(graph: Graph) -> None:
    """Warn of the first op that widens narrow inputs, for ``check=True``."""
    text = first_widening(graph)
    if text is not None:
        warnings.warn(f"compile: {text}", WideningWarning, stacklevel=user_stacklevel())


def _operand_spec(operand: Any, known: Mapping[int, Spec]) -> Spec | None:
    """Return the spec of an operand; None for numbers of Python, which are weak."""
    if isinstance(operand, Ref):
        return known.get(operand.id)
    return Spec(operand.shape, operand.number.dtype) if isinstance(operand, Splat) else None


def _kernel_lines(executable: Any, inside: str) -> list[str]:
    """Return a line for each kernel, and indented lines for the kernels of its subgraphs."""
    plan, lines = executable.plan, []
    for kernel in plan.fused.kernels:
        name = executable.module.names.get(kernel.position, "")
        kind, space, what, moved, flops = kernel_work(plan, kernel)
        called = kernel.kind == "call"
        lines.append(
            f"  {kernel.position:3} {kind:<8} {space:>16} {moved:>14,} {format_count(flops):>16}  "
            f"{name:<8}  {inside}{'calls ' * called}{what}"
        )
        parts = executable.host_calls[kernel.nodes[0].id].parts if called else {}
        for title, part in parts.items():
            lines.append(f"  {'':70}{inside}  {title}:")
            lines += _kernel_lines(part, f"{inside}    ")
    return lines


def _way_lines(executable: Any, reasons: Mapping[Work, str]) -> list[str]:
    """Return a line for each work that has several ways, and for those that only a plan has."""
    works = executable.works()
    lines = []
    for one in works:
        if len(one.ways) > 1:
            others = ", ".join(way.name for way in one.ways if way.name != one.way)
            why = reasons.get(one.work, one.origin)
            lines.append(f"  {one.work}: {one.way}, {why}; or {others}")
    if lines:
        lines.insert(0, "ways, equal works once:")
    known = {one.work for one in works}
    unused = [work for work in executable.ways.differences if work not in known]
    lines += [f"of the plan, not in this program: {work}" for work in unused]
    return lines


def _thread_line(number: int, text: str) -> str:
    """Describe in how many threads a program runs, and what limits it."""
    count = text.count(".take(ptr")
    lone = why_single_threaded()
    products = "call i64 @ody_enter(" in text
    if lone is not None:
        return f"threads: 1, since {lone}"
    if not number:
        told = f"threads: 1, the default; od.set_threads(n) lets n threads share {count} functions"
        return told + "; matrix products use the threads of the BLAS library" * products
    told = f"threads: {number}, which share {count} functions"
    if products and not all(thread_setters()):
        told += "; matrix products are not, since the BLAS library cannot set its thread count"
    return told


def explain_scalar_inputs(
    fn: Callable[..., Any], free: Iterable[str], asked: Mapping[str, str]
) -> list[str]:
    """Describe which scalars among the arguments are inputs, and why others are fixed.

    Args:
        fn: The function.
        free: Paths of scalar inputs among the arguments.
        asked: Reasons by path of the other scalars.
    """
    names = _positional_names(fn)
    found = [_format_path(path, names) for path in free]
    lines = [f"scalar inputs: {', '.join(found)}"] if found else []
    return lines + [f"{_format_path(path, names)} is fixed: {why}" for path, why in asked.items()]


def _positional_names(fn: Callable[..., Any]) -> list[str]:
    """Return the names of a function's positional parameters; empty if unknown."""
    from inspect import Parameter, signature

    kinds = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    try:
        return [name for name, p in signature(fn).parameters.items() if p.kind in kinds]
    except (TypeError, ValueError):
        return []


def _format_path(path: str, names: list[str]) -> str:
    """Format a path among all arguments with the function's names: ``settings['rate']``."""
    given = re.fullmatch(r"\[0\]\[(\d+)\](.*)", path, re.DOTALL)
    if given is not None:
        k, rest = int(given[1]), given[2]
        return f"{names[k] if k < len(names) else f'argument {k}'}{rest}"
    named = re.fullmatch(r"\[1\]\['(\w+)'\](.*)", path, re.DOTALL)
    return path if named is None else f"{named[1]}{named[2]}"
