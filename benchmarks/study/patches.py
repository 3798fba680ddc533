"""Rules of the tape and passes of the compiler, switched off: the library has no switches for them.

Each is a context manager, which puts back what it replaced. Gradients stay the same.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Switch = Callable[[], Any]


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ------------------------------------------------------------------ the tape


@contextmanager
def no_draining() -> Iterator[None]:
    """Sweeps keep all nodes until they end."""
    from odyssey.tape import queries

    sweep_backward = queries._sweep_backward

    def sweep(
        tape: Any, r: Any, since: int, seeds: Any, graph: bool, keep: bool, *rest: Any, **named: Any
    ) -> Any:
        return sweep_backward(tape, r, since, seeds, graph, True, *rest, **named)

    with _replaced(queries, "_sweep_backward", sweep):
        yield


@contextmanager
def no_pruning() -> Iterator[None]:
    """Recordings keep branches that no query can name any more."""
    from odyssey.tape.recording import Recording

    with _replaced(Recording, "_prune_nodes", lambda self: None):
        yield


@contextmanager
def all_saved() -> Iterator[None]:
    """Nodes save all operands and results, whatever the rules of their rows ask for."""
    from odyssey.table.row import Row

    def save_values(
        self: Any, recording: Any, inputs: Any, values: Any, options: Any, residual: Any = None
    ) -> tuple[Any, ...]:
        kept = [*values, *options]
        for k, id in enumerate(inputs):
            if id is None:
                kept[k] = recording.keep_array(kept[k])
        return tuple(kept if residual is None else [*kept, residual])

    with _general_calls(), _replaced(Row, "save_values", save_values):
        yield


@contextmanager
def no_residuals() -> Iterator[None]:
    """Kernels leave nothing for the rules of their rows, which compute it again."""
    from odyssey.table import call, fast_calls

    def run_with_residual(row: Any, values: Any, options: Any) -> None:
        return None

    with ExitStack() as stack:
        stack.enter_context(_general_calls())
        for module in (call, fast_calls):
            stack.enter_context(_replaced(module, "run_with_residual", run_with_residual))
        yield


@contextmanager
def _general_calls() -> Iterator[None]:
    """Calls of ops take the general path, as the fast ones decide at import what to save."""
    from odyssey.tape.recording import Recording
    from odyssey.tape.threads import NO_IDS

    set_active = Recording.set_active

    def without_ids(self: Any, on: int) -> None:
        set_active(self, on)
        self.block = NO_IDS

    with _replaced(Recording, "set_active", without_ids):
        yield


TAPE_RULES: dict[str, Switch] = {
    "draining": no_draining,
    "pruning": no_pruning,
    "needs": all_saved,
    "residuals": no_residuals,
}
"""Rules of the tape that a patch switches off."""

# ------------------------------------------------------------------ the compiler


@contextmanager
def no_fusion() -> Iterator[None]:
    """Each node that is not a scalar gets a kernel of its own."""
    from odyssey.compiler.schedule.fusion import _Fuser

    with (
        _replaced(_Fuser, "_fusable_kernel", lambda self, n, latest, inputs: None),
        _replaced(_Fuser, "_can_delay", lambda self, n: False),
    ):
        yield


@contextmanager
def no_decompositions() -> Iterator[None]:
    """Rows with neither a scalar nor a lowering are host calls of their kernels."""
    from odyssey.compiler.lowering import Lowering

    lower_natively = Lowering._lower_natively

    def lower(self: Any, row: Any, *rest: Any) -> Any:
        with _replaced(row, "decomposition", None):
            return lower_natively(self, row, *rest)

    with _replaced(Lowering, "_lower_natively", lower):
        yield


@contextmanager
def no_arena_reuse() -> Iterator[None]:
    """Each value in the arena has memory of its own, for the whole program."""
    from odyssey.compiler.schedule import buffer_assignment

    def assign_offsets(buffers: Any) -> int:
        size = 0
        for buffer in buffers:
            buffer.offset = size
            size += -(-buffer.bytes // buffer_assignment.ALIGNMENT) * buffer_assignment.ALIGNMENT
        return size

    with (
        _replaced(buffer_assignment, "assign_offsets", assign_offsets),
        _replaced(buffer_assignment, "_reuse_operand_buffers", lambda plan: None),
    ):
        yield


COMPILER_PASSES: dict[str, Switch] = {
    "fusion": no_fusion,
    "decompositions": no_decompositions,
    "arena-reuse": no_arena_reuse,
}
"""Passes of the compiler that a patch switches off."""


def switch_off(*names: str) -> ExitStack:
    """Switch rules and passes off by name, until the stack that is returned is closed."""
    switches = TAPE_RULES | COMPILER_PASSES
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(switches[name]())
        return stack.pop_all()
