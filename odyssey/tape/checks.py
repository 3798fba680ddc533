"""Checks of ``GradientTape(check=True)``: source lines, checksums, first nonfinite value.

A value that is not finite is an error only if a gradient uses it: an infinite element that
``where`` does not choose, or that a softmax maps to 0, has the cotangent 0. So values are noted
when they are recorded, and judged by their cotangents in the sweep.
"""

from __future__ import annotations

import sys
import warnings
import zlib
from cmath import isfinite
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np

from odyssey.checks import user_line, user_stacklevel
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import call_beside, host_array
from odyssey.errors import MutationError, NonFiniteError, WideningWarning
from odyssey.sparse_rows import SparseRows
from odyssey.spec import spec_of
from odyssey.table.row import Row
from odyssey.table.value import array_of
from odyssey.table.widening import describe_widening, is_narrow
from odyssey.tape.rounding import RoundedArray

__all__ = ["NodeChecks"]


def _checksum(array: Any) -> tuple[bool, int]:
    """Return whether an array is stored in 16 bits, and a checksum of what is stored."""
    halves = type(array) is RoundedArray and array.bits is not None
    stored = array.stored if type(array) is RoundedArray else array
    return halves, zlib.crc32(
        np.ascontiguousarray(host_array(stored)).view(np.uint8).reshape(-1).data
    )


def _all_finite(array: Any) -> bool:
    return not is_inexact(array.dtype) or bool(call_beside(array, _finite, array))


def _finite(array: Any) -> Any:
    return np.isfinite(array).all()


def _is_finite(operand: Any) -> bool:
    """True if an operand is finite: an array, a Python number, or None for an absent one."""
    if isinstance(operand, ARRAY_LIKE):
        return _all_finite(operand)
    return not isinstance(operand, (float, complex)) or isfinite(operand)


def _nonfinite_operands(row: Any, operands: Sequence[Any] | None) -> list[str] | None:
    """Return the names of operands that were not finite before the op; None if unknown."""
    if operands is None:
        return None
    named = zip(row.arrays, operands, strict=True)
    return [name for name, operand in named if not _is_finite(operand)]


@dataclass(slots=True)
class _Nonfinite:
    """Elements of a result that are not finite.

    Attributes:
        name: The op.
        inputs: Ids of the operands.
        shape: Shape of the result.
        at: Flat indices of the elements, ascending.
        values: The elements.
        operands: For an elementwise op the values of each operand at these elements, and its shape;
            None for other ops, and for operands that are absent or unknown.
        names: Names of the operands.
        nonfinite: Names of the operands that were not finite before; None if unknown.
    """

    name: str
    inputs: tuple[int | None, ...]
    shape: tuple[int, ...]
    at: Any
    values: Any
    operands: list[tuple[Any, tuple[int, ...]] | None]
    names: tuple[str, ...]
    nonfinite: list[str] | None

    def first_nan(self, among: Any) -> int:
        """Return the first of these elements that is NaN, else the first: masks are infinite."""
        nan = among[np.isnan(self.values[among])]
        return int(nan[0] if len(nan) else among[0])

    def first_cause(self, among: Any) -> int:
        """Return the first of these elements that the op made of finite operands.

        Where there is none, or the operands are unknown, return ``first_nan``.
        """
        finite = np.ones(len(among), bool)
        for operand in self.operands:
            if operand is not None:
                finite &= np.isfinite(operand[0][among])
        return self.first_nan(among[finite] if finite.any() else among)

    def operand_finiteness(self, k: int) -> str:
        """Describe which operands were not finite before, for element number ``k`` if known."""
        if self.nonfinite is None:
            return ""
        if not self.nonfinite:
            return "; its operands are finite"
        here = self.nonfinite
        if self.operands:
            pairs = zip(self.names, self.operands, strict=True)
            here = [name for name, x in pairs if x is not None and not np.isfinite(x[0][k])]
        if not here:
            return (
                f"; its operands are finite at this element, other elements of "
                f"{' and '.join(self.nonfinite)} are not"
            )
        were = "was" if len(here) == 1 else "were"
        return f"; its operand{'s' * (len(here) > 1)} {', '.join(here)} {were} not finite before"

    def describe(self, k: int) -> str:
        """Return the op with the operands and the index of element number ``k``."""
        of = [str(operand[0][k]) for operand in self.operands if operand is not None]
        place = _format_index(self.at[k], self.shape)
        more = f" (one of {len(self.at)} elements)" if len(self.at) > 1 else ""
        if not of:
            return f"gave {self.values[k]}{place}{more}"
        return f"gave {self.values[k]}, {self.name} of {' and '.join(of)}{place}{more}"


def _format_index(flat: Any, shape: tuple[int, ...]) -> str:
    """Return `` at [i, j]`` for a flat index; nothing for a number."""
    return f" at [{', '.join(map(str, np.unravel_index(flat, shape)))}]" if shape else ""


def _note_nonfinite(node: Any, data: Any, operands: Sequence[Any] | None) -> _Nonfinite:
    row, _, inputs, _, _ = node
    data = host_array(data)
    at = np.flatnonzero(~np.isfinite(data))
    taken: list[tuple[Any, tuple[int, ...]] | None] = []
    if row.elementwise and operands is not None:
        for operand in operands:
            array = None if operand is None else host_array(operand)
            if array is None or array.dtype == object:
                taken.append(None)
            else:
                taken.append((np.broadcast_to(array, data.shape).reshape(-1)[at], array.shape))
    values, nonfinite = data.reshape(-1)[at], _nonfinite_operands(row, operands)
    return _Nonfinite(row.name, inputs, data.shape, at, values, taken, row.arrays, nonfinite)


def call_with_user_lines(fn: Callable[..., Any], /, *args: Any) -> Any:
    """Call a function in which NumPy's floating-point warnings point to the user's line.

    NumPy gives no line of its caller's caller, so it calls a function of ours where it would warn.
    This takes microseconds, which only ``check=True`` spends.
    """
    return copy_context().run(_call_and_warn, fn, args)


def _call_and_warn(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    if np.geterrcall() is None:
        np.seterrcall(_warn_at_user_line)
        modes: Any = {kind: "call" for kind, mode in np.geterr().items() if mode == "warn"}
        np.seterr(**modes)
    return fn(*args)


def _warn_at_user_line(kind: str, flag: int) -> None:
    frame: Any = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("row"), Row):
        frame = frame.f_back
    where = "" if frame is None else f" in {frame.f_locals['row'].name}"
    warnings.warn(f"{kind} encountered{where}", RuntimeWarning, stacklevel=user_stacklevel())


class NodeChecks:
    """Notes on each node of a checked recording: its source line, checksums, nonfinite elements.

    The keys are negated output ids. These are separate int objects, so a note does not count as a
    reference that keeps its node from being pruned.
    """

    __slots__ = ("lines", "nonfinite", "sums", "widened")

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.sums: dict[int, list[tuple[int, tuple[bool, int]]]] = {}
        self.nonfinite: dict[int, _Nonfinite] = {}
        self.widened = False

    def run_kernel(self, run: Callable[..., Any], *args: Any) -> Any:
        """Call ``run``, the kernel of an op that is recorded."""
        return call_with_user_lines(run, *args)

    def run_sweep(self, sweep: Callable[..., None], *args: Any) -> None:
        """Call ``sweep``, a sweep that these checks audit."""
        call_with_user_lines(sweep, *args)

    def check_node(self, node: Any, data: Any, operands: Sequence[Any] | None = None) -> None:
        """Note a new node: its source line, what it saved, and which elements are not finite."""
        _, id, _, kept, _ = node
        self.lines[-id] = user_line()
        self.sums[-id] = [
            (k, _checksum(value))
            for k, value in enumerate(kept)
            if isinstance(value, (*ARRAYS, RoundedArray))
        ]
        if isinstance(data, ARRAY_LIKE) and not _all_finite(data):
            self.nonfinite[-id] = _note_nonfinite(node, data, operands)
        if operands is not None and not self.widened and isinstance(data, ARRAY_LIKE):
            self._warn_of_widening(node, data, operands)

    def _warn_of_widening(self, node: Any, data: Any, operands: Sequence[Any]) -> None:
        """Warn of the first op whose operands on the tape are float32, and whose result is not."""
        row, _, inputs, _, _ = node
        specs = [spec_of(x) if isinstance(x, ARRAY_LIKE) else None for x in operands]
        tracked = [s for i, s in zip(inputs, specs, strict=True) if i is not None and s is not None]
        if tracked and all(is_narrow(spec.dtype) for spec in tracked):
            text = describe_widening(row, specs, spec_of(data))
            if text is not None:
                self.widened = True
                warnings.warn(f"check: {text}", WideningWarning, stacklevel=user_stacklevel())

    def verify(self, nodes: Any) -> None:
        """Raise MutationError if an array that a node saved has changed."""
        for row, id, _, kept, _ in nodes:
            for k, before in self.sums.get(-id, ()):
                now = _checksum(kept[k])
                # What a later node needs unrounded has the checksum of that node.
                if now != before and now[0] == before[0]:
                    name = row.layout.kept[k]
                    raise MutationError(
                        f"{row.name} at {self.source_line(id)} saved {name}, which was written to "
                        "since; pass a copy, or sweep before writing"
                    )

    def source_line(self, id: int) -> str:
        """Return the source line at which the node with this output was recorded."""
        return self.lines.get(-id, "an unknown line")

    def keep_only(self, nodes: Any) -> None:
        """Drop the notes on nodes that were pruned."""
        alive = {-node[1] for node in nodes}
        self.lines = {key: line for key, line in self.lines.items() if key in alive}
        self.sums = {key: sums for key, sums in self.sums.items() if key in alive}
        self.nonfinite = {key: note for key, note in self.nonfinite.items() if key in alive}

    # -------------------------------------------------------------- in a sweep

    def check_value(self, id: int, g: Any) -> None:
        """Raise NonFiniteError if ``g``, the cotangent of a result, uses a nonfinite element."""
        note = self.nonfinite.get(-id)
        if note is not None:
            used = np.flatnonzero(host_array(array_of(g)).reshape(-1)[note.at])
            if len(used):
                self._raise_first(id, used)

    def check_gradient(self, node: Any, name: str, g: Any, r: Any) -> None:
        """Raise NonFiniteError if a rule made a nonfinite gradient.

        Args:
            node: The node.
            name: The operand.
            g: The cotangent of the node's result.
            r: The gradient of the operand that the rule made of it.
        """
        row, id, _, kept, _ = node
        r = r.to_dense() if type(r) is SparseRows else array_of(r)
        if isinstance(r, ARRAY_LIKE) and not _all_finite(r):
            raise NonFiniteError(
                f"the gradient of {row.name} at {self.source_line(id)} with respect to {name} is "
                f"the first that is not finite: {_describe_gradient(row, kept, g, r)}"
            )

    def check_outputs(self, ids: Iterable[int | None]) -> None:
        """Raise NonFiniteError if one of these results is not finite."""
        for id in ids:
            if id is not None and (note := self.nonfinite.get(-id)) is not None:
                self._raise_first(id, np.arange(len(note.at)))

    def _raise_first(self, id: int, among: Any) -> None:
        """Raise for the op that made elements ``among`` of a result nonfinite, or an op before it.

        Args:
            id: Id of the result.
            among: Numbers of the elements, into the ``at`` of its note.
        """
        while (found := self._nonfinite_input(self.nonfinite[-id], among)) is not None:
            id, among = found
        note = self.nonfinite[-id]
        k = note.first_cause(among)
        raise NonFiniteError(
            f"{note.name} at {self.source_line(id)} {note.describe(k)}, the first value that is "
            f"not finite{note.operand_finiteness(k)}"
        )

    def _nonfinite_input(self, note: _Nonfinite, among: Any) -> tuple[int, Any] | None:
        """Return the operand, and its elements, that made elements nonfinite; None if none."""
        if not note.operands:
            known = [i for i in note.inputs if i is not None and -i in self.nonfinite]
            return (min(known), np.arange(len(self.nonfinite[-min(known)].at))) if known else None
        k = note.first_nan(among)
        for i, operand in zip(note.inputs, note.operands, strict=True):
            if i is None or operand is None or -i not in self.nonfinite:
                continue
            values, shape = operand
            if np.isfinite(values[k]):
                continue
            at = note.at[among[~np.isfinite(values[among])]]
            index = np.unravel_index(at, note.shape) if note.shape else ()
            own = [
                np.zeros_like(j) if length == 1 else j
                for j, length in zip(index[len(index) - len(shape) :], shape, strict=True)
            ]
            flat = np.ravel_multi_index(own, shape) if shape else np.zeros(1, np.intp)
            return i, np.unique(np.searchsorted(self.nonfinite[-i].at, flat))
        return None


def _describe_gradient(row: Any, kept: Any, g: Any, r: Any) -> str:
    """Describe the first nonfinite element of a gradient, and what the rule computed it from."""
    r = host_array(r)
    flat = np.flatnonzero(~np.isfinite(r))[0]
    words = f"{r.reshape(-1)[flat]}{_format_index(flat, r.shape)}"
    if not row.elementwise:
        return words
    arrays = {"the cotangent": g, **dict(zip(row.layout.kept, kept or (), strict=False))}
    known = {name: _on_host(array_of(value)) for name, value in arrays.items()}
    of = [
        f"{name} is {np.broadcast_to(value, r.shape).reshape(-1)[flat]}"
        for name, value in known.items()
        if name in ("the cotangent", *row.arrays, *row.results)
        and isinstance(value, (*ARRAY_LIKE, int, float, complex))
        and _broadcasts_to(np.shape(value), r.shape)
    ]
    return f"{words}, where {' and '.join(of)}" if of else words


def _on_host(value: Any) -> Any:
    return host_array(value) if isinstance(value, ARRAYS) else value


def _broadcasts_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    pairs = zip(shape[::-1], wanted[::-1], strict=False)
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in pairs)
