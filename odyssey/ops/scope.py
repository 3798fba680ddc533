"""What surrounds a call: the entered tapes and pauses of this context, and the trace in progress.

Scopes live in context variables, so each thread and each async task has its own. They are a
stack of recordings and pauses, innermost first; an entry leaves the stack by its own end, not by
its position, because a suspended generator can leave its scopes in its caller's context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from odyssey.ops.values import Mark

__all__ = ["TRACE", "Pause", "enter", "innermost", "leave", "no_grad", "replace", "scopes"]

_SCOPES: ContextVar[tuple[Any, ...]] = ContextVar("odyssey_scopes", default=(None,))
scopes = _SCOPES.get

# The graph under construction, or None: set by ``compile`` while it traces a function.
TRACE: ContextVar[Any] = ContextVar("odyssey_trace", default=None)


class Pause(Mark):
    """The scope of one ``no_grad`` block.

    Attributes:
        over: Whether the block was left.
        refuse: Called with the name of an op and each operand that it meets in the block, and
            with each leaf that a tape inside of the block meets; raises where that loses a
            gradient. None to let all pass.
    """

    __slots__ = ("over", "refuse")

    def __init__(self, refuse: Callable[[str, Any], None] | None = None) -> None:
        super().__init__("no_grad")
        self.over = False
        self.refuse = refuse


def enter(scope: Any) -> None:
    """Make ``scope`` the innermost one of this context."""
    _SCOPES.set((scope, *scopes()))


def leave(scope: Any) -> None:
    """Take the innermost occurrence of ``scope`` off the stack, if this context has one."""
    stack = scopes()
    if stack[0] is scope:
        _SCOPES.set(stack[1:])
    elif scope in stack:
        position = stack.index(scope)
        _SCOPES.set((*stack[:position], *stack[position + 1 :]))


def replace(scope: Any, other: Any) -> None:
    """Put ``other`` in the place of the innermost occurrence of ``scope``, if there is one."""
    stack = scopes()
    if scope in stack:
        position = stack.index(scope)
        _SCOPES.set((*stack[:position], other, *stack[position + 1 :]))


def innermost() -> Any:
    """Return the innermost scope that has not ended, or None."""
    stack = scopes()
    top = stack[0]
    if top is None or not top.over:
        return top
    alive = tuple(scope for scope in stack if scope is None or not scope.over)
    _SCOPES.set(alive)
    return alive[0]


@contextmanager
def no_grad() -> Iterator[None]:
    """Record nothing in this block: results are constants, whatever tape is entered or passed.

    >>> import odyssey as od
    >>> w = od.Variable(2.0, requires_grad=True)
    >>> with od.no_grad():
    ...     (w * w).requires_grad
    False
    """
    pause = Pause()
    enter(pause)
    try:
        yield
    finally:
        pause.over = True
        leave(pause)
