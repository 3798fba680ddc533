"""When the values of a graph are needed: what nobody reads, and the last use of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odyssey.graph.graph import Instruction, Ref

__all__ = ["last_uses", "live_instructions"]


def live_instructions(
    instructions: Sequence[Instruction], kept: Iterable[int]
) -> list[Instruction]:
    """The instructions that the values ``kept`` are computed by, in order, and those that stay.

    Args:
        instructions: In order of execution.
        kept: Numbers of the values that somebody reads when all have run.
    """
    wanted = set(kept)
    found: list[Instruction] = []
    for instruction in reversed(instructions):
        if instruction.row.impure or not wanted.isdisjoint(instruction.ids):
            found.append(instruction)
            wanted.update(o.id for o in instruction.operands if isinstance(o, Ref))
    return found[::-1]


def last_uses(instructions: Sequence[Instruction], kept: Iterable[int]) -> dict[int, int]:
    """Return the position of the last instruction that reads each value (liveness).

    Values that are ``kept`` are read by one more, behind the last. From its last use on, an
    array's memory may hold something else; an elementwise op may write over what it reads last.
    """
    uses = {
        operand.id: place
        for place, instruction in enumerate(instructions)
        for operand in instruction.operands
        if isinstance(operand, Ref)
    }
    return uses | dict.fromkeys(kept, len(instructions))
