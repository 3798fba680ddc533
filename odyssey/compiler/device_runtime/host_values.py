"""Values of a device's program that the host computes: learning rates, and counts of steps.

Optimizers keep such numbers in Variables on the host, where eager steps compute with them as well.
``split_host_values`` takes the instructions that read nothing else out of a graph. The host runs
them before each run of the program, which gets their results as inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import NamedTuple

import numpy as np

from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.devices.backends import backend_of
from odyssey.graph.graph import Graph, Instruction, Ref, Splat, State, live_instructions
from odyssey.spec import Spec

__all__ = ["HostValues", "split_host_values"]

# A larger result is computed on the device: random bits, of which the host has the key alone.
_MOST_ELEMENTS = 16


class HostValues(NamedTuple):
    """A graph in two parts.

    Attributes:
        device: The part of the device; its last inputs are values of the host.
        host: The part of the host, which writes no states: its outputs are first the values that
            the device reads, then the new values of states. None if there is nothing to compute.
        sent: Ids and specs of the values that the device reads.
        updated: The states of the host whose new values the host computes.
        returned: The states of the host whose new values the device computes: its last outputs.
    """

    device: Graph
    host: Graph | None
    sent: list[tuple[int, Spec]]
    updated: list[State]
    returned: list[State]


def split_host_values(graph: Graph, on_host: Collection[int]) -> HostValues:
    """Split a graph into the part of a device, and the part of the host.

    Args:
        graph: The graph; it is not changed.
        on_host: Positions of its states that lie on the host.

    Raises:
        UnsupportedKernelError: a large state on the host depends on values of the device, or a
            result is a value of the host.
    """
    read = [graph.states[k] for k in on_host]
    specs = {state.id: state.spec for state in read if state.id >= 0}
    constants = {
        id: array
        for id, array in graph.constants.items()
        if backend_of(array) is None and np.size(array) <= _MOST_ELEMENTS
    }
    own: list[Instruction] = []
    rest: list[Instruction] = []
    for instruction in graph.instructions:
        if _reads_only(instruction, specs.keys(), constants):
            specs.update(zip(instruction.ids, instruction.specs, strict=True))
            own.append(instruction)
        else:
            rest.append(instruction)
    written = [state for state in read if state.update is not None]
    returned = [s for s in written if isinstance(s.update, Ref) and s.update.id not in specs]
    updated = [state for state in written if state not in returned]
    for state in returned:
        if state.spec.size > _MOST_ELEMENTS:
            raise UnsupportedKernelError(
                f"{state.label} lies on the CPU, and its new value is computed on the device"
            )
    if any(isinstance(output, Ref) and output.id in specs for output in graph.outputs):
        raise UnsupportedKernelError("it returns a value of a Variable that lies on the CPU")
    kept = [state for k, state in enumerate(graph.states) if k not in on_host]
    reads = {o.id: None for one in rest for o in one.operands if isinstance(o, Ref)}
    reads |= {s.update.id: None for s in kept if isinstance(s.update, Ref)}
    sent = [(id, specs[id]) for id in reads if id in specs]
    device = Graph()
    device.instructions, device.constants = rest, graph.constants
    device.inputs, device.states = [*graph.inputs, *sent], kept
    device.outputs = [*graph.outputs, *[state.update for state in returned]]
    device.numbers, device.tf32 = graph.numbers, graph.tf32
    if not sent and not updated:
        return HostValues(device, None, [], [], returned)
    outputs = [*[Ref(id) for id, _ in sent], *[state.update for state in updated]]
    host = Graph()
    host.instructions = live_instructions(own, [o.id for o in outputs if isinstance(o, Ref)])
    reads_of_host = {o.id for i in host.instructions for o in i.operands if isinstance(o, Ref)}
    host.constants = {id: array for id, array in constants.items() if id in reads_of_host}
    host.states = [State(s.variable, s.field, s.id, s.spec, s.label) for s in read]
    host.outputs = outputs
    return HostValues(device, host, sent, updated, returned)


def _reads_only(instruction: Instruction, specs: Set[int], constants: Collection[int]) -> bool:
    """Return whether an instruction computes small values from values of the host alone.

    Args:
        instruction: The instruction.
        specs: Ids of values that the host knows at each run.
        constants: Ids of small constants.
    """
    refs = [operand.id for operand in instruction.operands if isinstance(operand, Ref)]
    plain = all(
        isinstance(o, (Ref, int, float)) or (isinstance(o, Splat) and not o.shape)
        for o in instruction.operands
    )
    small = all(spec.size <= _MOST_ELEMENTS for spec in instruction.specs)
    known = not specs.isdisjoint(refs) and all(id in specs or id in constants for id in refs)
    return known and plain and small and not instruction.row.impure
