"""Isolated tapes: a computation recorded by itself, and the outside values that it depends on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odyssey.tape import GradientTape
from odyssey.tape.recording import RawNode, Recording
from odyssey.tape.sweep import dependencies
from odyssey.tape.tape_base import recording_of

__all__ = ["covered_nodes", "external_sources", "isolated_tape"]


def isolated_tape() -> GradientTape:
    """Return a tape that joins no other, and accepts Variables of other tapes as inputs."""
    tape = GradientTape()
    recording_of(tape).outer_values = {}
    tape.enable()
    return tape


def covered_nodes(tape: GradientTape) -> list[RawNode]:
    """Return the nodes recorded while ``tape`` recorded, without those of inner tapes alone."""
    nodes = recording_of(tape).nodes
    return [node for node in nodes if tape._covers(node[1])] if tape._gaps else nodes


def external_sources(
    recording: Recording, nodes: list[RawNode], results: Iterable[int], known: Iterable[int] = ()
) -> dict[int, Any]:
    """Return the values that ``results`` depend on and no node produced, by id in order of use."""
    needed, produced = dependencies(nodes, results), {node[1] for node in nodes}
    sources: dict[int, Any] = {}
    guests = recording.outer_values or {}
    for _, id, inputs, _, _ in nodes:
        for i in inputs if id in needed else ():
            if i is None or i in produced or i in sources:
                continue
            value = recording.leaves.get(i, guests.get(i))
            # Other ids are leaves that an inner tape watched.
            if value is not None or i in known:
                sources[i] = value
    return sources
