"""Protocols of tapes and recordings, as the layers below the tape use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

__all__ = ["Recording", "Tape"]


class Recording(Protocol):
    """The nodes of one nest of tapes, for those who call ops; see ``odyssey.tape.recording``.

    Attributes:
        block: What the shortcuts of calls draw ids from: empty where they may not record here.
        append: Takes a node; ``nodes.append``, which shortcuts read once.
        mark: A number that no other recording has; a leaf bears it that was taken up here.
        on: How many of its tapes record now.
        dead: Why it is empty, or nothing.
        traced: The store that it was begun in; None if that is memory.
        outer_values: Values of other recordings that were used here, by id; None where they are
            refused.
        nodes: In order of recording.
    """

    block: Iterator[int]
    append: Callable[[Any], None]
    mark: int
    on: int
    dead: str
    traced: Any
    outer_values: Any
    nodes: list[Any]

    @property
    def checks(self) -> Any:
        """The check that each node must pass, or None."""

    @property
    def pause(self) -> Any:
        """The origin of results that are constant because a tape was paused."""

    @property
    def exited(self) -> bool:
        """True if every block that entered the recording has exited."""

    @property
    def paused(self) -> bool:
        """True if a block pauses one of its tapes."""

    def operand_id(self, value: Any, who: str = "record") -> int | None:
        """Return the id of an operand, None for a constant; raise if a gradient would be lost."""

    def keep_array(self, array: Any) -> Any:
        """Return an array that a node may keep for a foreign one: itself, guarded, or a copy."""

    def new_id(self) -> int:
        """Return an id that no value of this process has."""

    def add_node(self, node: Any, data: Any, operands: Sequence[Any] | None = None) -> None:
        """Append a node whose result is ``data``, of ``operands``, on the general path."""

    def tape_of(self, id: int) -> Any:
        """Return the innermost tape that recorded ``id``."""


class Tape(Protocol):
    """A tape of any kind; ``GradientTape`` is one."""

    persistent: bool

    @property
    def _recording(self) -> Recording:
        """The recording of this tape; only ``scope.find`` reads it."""

    @property
    def enabled(self) -> bool:
        """True if the tape records now."""

    @property
    def paused(self) -> bool:
        """True if a block pauses the tape."""

    @property
    def consumed(self) -> bool:
        """True if a sweep consumed its nodes."""

    @property
    def nodes(self) -> list[Any]:
        """Its nodes in order of recording."""

    def backward(self, output: Any, grad: Any = None, *, retain: bool = False) -> Any:
        """See ``GradientTape.backward``."""

    def gradient(
        self,
        output: Any,
        sources: Any,
        grad: Any = None,
        *,
        unused: str = "error",
        create_graph: bool = False,
    ) -> Any:
        """See ``GradientTape.gradient``."""

    def jvp(self, output: Any, sources: Any, tangents: Any, *, unused: str = "error") -> Any:
        """See ``GradientTape.jvp``."""

    def variable(self, data: Any, name: str | None = None) -> Any:
        """See ``GradientTape.variable``."""

    def _adopt(self, variable: Any) -> Any:
        """Take a leaf or a constant up."""

    def explain(self, output: Any, source: Any) -> str:
        """See ``GradientTape.explain``."""
