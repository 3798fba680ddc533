"""Tapes apart: a stretch of a computation that is recorded by itself, and what it depends on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odyssey.tape import GradientTape
from odyssey.tape.recording import RawNode, Recording
from odyssey.tape.sweep import dependencies
from odyssey.tape.tape_base import recording_of

__all__ = ["nodes_of", "sources_of", "tape_apart"]


def tape_apart() -> GradientTape:
    """A tape that joins no other, and takes the Variables of others as inputs."""
    tape = GradientTape()
    recording_of(tape).guests = {}
    tape.enable()
    return tape


def nodes_of(tape: GradientTape) -> list[RawNode]:
    """What was recorded while ``tape`` recorded, and not only a tape inside of its block."""
    nodes = recording_of(tape).nodes
    return [node for node in nodes if tape._covers(node[1])] if tape._gaps else nodes


def sources_of(
    recording: Recording, nodes: list[RawNode], results: Iterable[int], known: Iterable[int] = ()
) -> dict[int, Any]:
    """What ``results`` depend on that no node made, by id, in order of first use."""
    needed, made = dependencies(nodes, results), {node[1] for node in nodes}
    found: dict[int, Any] = {}
    guests = recording.guests or {}
    for _, id, inputs, _, _ in nodes:
        for i in inputs if id in needed else ():
            if i is None or i in made or i in found:
                continue
            value = recording.leaves.get(i, guests.get(i))
            # Others are stand-ins for what a tape inside of the function watched.
            if value is not None or i in known:
                found[i] = value
    return found
