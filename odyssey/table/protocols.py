"""What the rooms below the tape ask of a tape, in writing."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Tape"]


class Tape(Protocol):
    """A tape, for those who need not know which; ``GradientTape`` is one."""

    persistent: bool
    _recording: Any

    @property
    def enabled(self) -> bool:
        """Whether it records now."""

    @property
    def paused(self) -> bool:
        """Whether a block pauses it."""

    @property
    def consumed(self) -> bool:
        """Whether a sweep spent its nodes."""

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
