"""Step of an optimizer on a device in one launch: the calls of a program, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.backends import backend_of
from odyssey.devices.commit import commit
from odyssey.kernels.cuda import contiguous, new_array
from odyssey.kernels.optimizer_step import StepSource, cuda_step
from odyssey.optim.fused_step import KNOWN_CALLS, element_lines
from odyssey.optim.groups import Group
from odyssey.optim.inplace_program import InPlaceProgram, Location, bind_call
from odyssey.optim.rule import MASTER, state_dtype
from odyssey.table.kernel_selection import CUDA_KERNELS
from odyssey.variable import Variable

__all__ = ["step_in_one_launch", "step_numbers", "step_source"]

Results = dict[int, tuple[Any, dict[str, Any]]]
States = Sequence[dict[str, Variable]]


def step_in_one_launch(
    group: Group, params: Sequence[Variable], gradients: Sequence[Any], states: States
) -> Results:
    """Return the new values and states of parameters that a kernel updates, by their numbers.

    In a block of ``use_kernels("cuda")`` there is one launch for each dtype and device, if the rule
    has an in-place program. Complex and bfloat16 numbers, and gradients of rows, are left to the
    pure rule.
    """
    if not CUDA_KERNELS[0]:
        return {}
    together: dict[Any, list[int]] = {}
    for j, (p, g, state) in enumerate(zip(params, gradients, states, strict=True)):
        array, backend = p._array, backend_of(p._array)
        if backend is not None and _fits(group, array, g, state):
            together.setdefault((array.dtype, backend.device_index(array)), []).append(j)
    found: Results = {}
    for (dtype, _), numbers in together.items():
        program = group.program(state_dtype(dtype))
        if program is not None and all(call.function in KNOWN_CALLS for call in program.calls):
            work = [(params[j]._array, gradients[j], states[j]) for j in numbers]
            found |= dict(zip(numbers, _launch(group, program, dtype, work), strict=True))
    return found


def _fits(group: Group, p: Any, g: Any, state: dict[str, Variable]) -> bool:
    if p.dtype.char not in "efd" or type(g) is not type(p):
        return False
    slots = group._rule.slots_for(p.dtype)
    alike = (g.dtype, g.shape) == (p.dtype, p.shape) and state.keys() == {"steps", *slots}
    return alike and all(state[slot]._array.shape == p.shape for slot in slots)


def _launch(
    group: Group,
    program: InPlaceProgram,
    dtype: np.dtype[Any],
    work: Sequence[tuple[Any, Any, dict[str, Variable]]],
) -> list[tuple[Any, dict[str, Any]]]:

    slots = group._rule.slots_for(dtype)
    numbers = {
        steps: step_numbers(program, group._settings["learning_rate"], steps)
        for steps in {int(state["steps"]._array) for *_, state in work}
    }
    rows, results = [], []
    for p, g, state in work:
        olds = [p, *[state[slot]._array for slot in slots]]
        news = [new_array(p, p.shape, old.dtype) for old in olds]
        arrays = list(map(contiguous, [g, *olds, *news]))
        rows.append((arrays, list(numbers[int(state["steps"]._array)].values())))
        results.append((news[0], dict(zip(slots, news[1:], strict=True))))
    source = step_source(program, slots, next(iter(numbers.values())))
    cuda_step(source, rows, dtype)
    return results


def step_numbers(program: InPlaceProgram, rate: Any, steps: int) -> dict[Location, Any]:
    """Return the numbers that the calls on arrays read, after so many steps."""
    numbers = {k: v.copy() if isinstance(v, ARRAYS) else v for k, v in program.numbers.items()}
    numbers |= {"rate": np.array(float(rate)), "steps": np.array(steps)}
    commit([bind_call(call, numbers) for call in (*program.rate_calls, *program.step_calls)])
    used = {location for call in program.calls for location in call.operands}
    return {location: number for location, number in numbers.items() if location in used}


def step_source(
    program: InPlaceProgram, slots: Sequence[str], numbers: dict[Location, Any]
) -> StepSource:
    """Return what a kernel does for one element: the calls of a program, and its loads and stores.

    Args:
        program: The program.
        slots: Names of the arrays of the state.
        numbers: The numbers that the program reads, by location.
    """
    own = [slot for slot in slots if slot != MASTER]
    lines = ["g_ = T(in_g[i])", "p_ = T(in_p[i])", *[f"{slot}_ = in_{slot}[i]" for slot in own]]
    if MASTER in slots:  # see ``rule.synced_master``
        lines.append("p_ = select(S(in_master[i]) == in_p[i], in_master[i], p_)")
    lines += element_lines(program, ("p", *own), list(numbers))
    lines += ["out_p[i] = S(p_)", *[f"out_{slot}[i] = {slot}_" for slot in own]]
    if MASTER in slots:
        lines.append("out_master[i] = p_")
    names = [f"{side}_{name}" for side in ("in", "out") for name in ("p", *slots)]
    truths = [np.asarray(number).dtype.kind == "b" for number in numbers.values()]
    return StepSource(
        arrays=(("in_g", True), *[(name, name in ("in_p", "out_p")) for name in names]),
        numbers=tuple([(f"n{k}", truth) for k, truth in enumerate(truths)]),
        lines=tuple(lines),
    )
