"""How reports call what is on a tape: small numbers, names, shapes, and the calls in one line."""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import few_digits, sequence
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.spec import Spec, spec_of
from odyssey.table.value import Symbol, Value, array_of

if TYPE_CHECKING:
    from odyssey.tape.recording import RawNode, Recording

__all__ = ["Names", "brief", "on_one_line"]

# Of an op with more operands a line shows so many.
_MOST = 8
_WIDTH = 40

_NAMED = (type, FunctionType, BuiltinFunctionType, np.ufunc)


class Names:
    """How the reports on one recording call its values.

    Every value has a small number, ``#1``, ``#2`` ..., in the order in which the nodes first
    mention it, leaves that no node uses last. So a number is the same in all reports, and in those
    of a tape that went on recording, until nodes are dropped: by ``clear``, a sweep, or the pruning
    of a long recording. A leaf is called by its name where no other one has that name.

    Attributes:
        nodes: Those of the recording.
        leaves: Those of the recording, by id.
        numbers: The small number of each id.
        specs: Shape and dtype by id, as far as they are known.
    """

    def __init__(self, recording: Recording) -> None:
        self.nodes = nodes = [node for node in tuple(recording.nodes) if node[2]]
        self.leaves = leaves = dict(recording.leaves)
        alive = {id: ref() for id, ref in tuple(recording.watched.items())}
        watched = {id: value for id, value in alive.items() if value is not None}
        self.numbers: dict[int, int] = {}
        for _, output, inputs, _, _ in nodes:
            for id in (*inputs, output):
                if id is not None:
                    self.numbers.setdefault(id, len(self.numbers) + 1)
        for id in leaves:
            self.numbers.setdefault(id, len(self.numbers) + 1)
        values = watched | dict(recording.guests or {}) | leaves
        self.specs = {id: value._spec for id, value in values.items()}
        self._find_specs(nodes)
        self._names = self._told_apart(
            {id: on_one_line(_name_of(v)) for id, v in values.items() if id in self.numbers}
        )

    def _told_apart(self, texts: dict[int, str]) -> dict[int, str]:
        """The names of those that have one; a number stands behind one that several might have."""
        holders: dict[str, int] = {}
        for text in texts.values():
            holders[text] = holders.get(text, 0) + 1
        return {
            # A leaf may have been called "#3", as a value is here.
            id: text if holders[text] == 1 and "#" not in text else f"{text} #{self.numbers[id]}"
            for id, text in texts.items()
            if text
        }

    def _find_specs(self, nodes: list[RawNode]) -> None:
        """Read specs from nodes; one without has operands that need a gradient like its result."""
        found = self.specs
        for _, output, inputs, _, specs in nodes:
            if specs is None:
                known = next((found[id] for id in inputs if id in found), None)
                specs = (*[None] * len(inputs), known)
            for operand, spec in zip((*inputs, output), specs, strict=False):
                if operand is not None and spec is not None:
                    found.setdefault(operand, spec)
        for _, output, inputs, _, specs in reversed(nodes):
            if specs is None and output in found:
                for id in inputs:
                    if id is not None:
                        found.setdefault(id, found[output])

    def of(self, id: int) -> str:
        """A value of the recording, in a word or two."""
        return self._names.get(id) or f"#{self.numbers[id]}"

    def of_variable(self, variable: Value, id: int) -> str:
        """A Variable, which need not be on the recording, in a word or two."""
        own = on_one_line(_name_of(variable))
        if id not in self.numbers:
            return own or f"a Variable of {variable._spec}"
        number = f"#{self.numbers[id]}"
        return self._names.get(id) or (f"{own} {number}" if own else number)

    def typed(self, id: int) -> str:
        """The same with its shape and dtype, as far as they are known."""
        spec = self.specs.get(id)
        return self.of(id) if spec is None else f"{self.of(id)}: {spec}"

    def given(self, node: RawNode) -> tuple[str, ...]:
        """Operands of a node, and its options where they are not what they are by default.

        A constant is shown by value if it is a single number, by shape and dtype if it is an
        array; the word ``constant`` stands for one of which the node keeps nothing, since no rule
        asks for it.
        """
        row, _, inputs, kept, specs = node
        texts = []
        for k, (name, id) in enumerate(zip(row.arrays, inputs, strict=False)):
            value = kept[k] if kept and k < len(kept) else None
            spec = specs[k] if specs and k < len(specs) else None
            absent = specs and name in row.optional
            if id is not None:
                texts.append(self.of(id))
            elif value is not None:
                texts.append(brief(value))
            elif absent and spec is None:
                texts.append("None")
            else:
                texts.append("constant" if spec is None else str(spec))
        # The rows of called functions have no defaults: what they keep are no options.
        defaults = row.defaults
        options = (kept or ())[len(row.arrays) + len(row.results) :]
        for name, default, option in zip(row.options, defaults, options, strict=False):
            if (text := brief(option)) != brief(default):
                texts.append(f"{name}={text}")
        return tuple(texts)

    def line(self, node: RawNode) -> str:
        """A node as in ``#3: float64[2] = multiply(w, 2.0)``."""
        return f"{self.typed(node[1])} = {call_text(node[0].name, self.given(node))}"


def call_text(op: str, given: Iterable[str]) -> str:
    """A call, of which no line shows a hundred operands."""
    texts = list(given)
    if len(texts) > _MOST:
        left_out = slice(_MOST - 2, -1)  # the last one may be an option
        texts[left_out] = [f"... {len(texts[left_out])} more"]
    return on_one_line(f"{op}({', '.join(texts)})")


def brief(value: Any) -> str:
    """What a report says of an operand or an option: numbers by value, arrays by their spec.

    >>> brief(np.ones((2, 3))), brief(1 / 3), brief((slice(2, None), 0))
    ('float64[2, 3]', '0.333333', '(2:, 0)')
    """
    if isinstance(value, (Value, Symbol)):
        value = array_of(value)
        return str(value.spec) if isinstance(value, Symbol) else str(spec_of(value))
    if isinstance(value, ARRAYS) and value.ndim == 0:
        value = value[()]
    if isinstance(value, ARRAYS):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is slice:
        parts = ["" if part is None else brief(part) for part in (value.start, value.stop)]
        return ":".join(parts if value.step is None else [*parts, brief(value.step)])
    if type(value) in (tuple, list):
        return sequence(value, brief)
    text = value.__name__ if isinstance(value, _NAMED) else few_digits(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 2]}.."


def specs_of_saved(saved: dict[str, Any]) -> str:
    """The arrays among what a node saves, by shape and dtype."""
    texts = [f"{name}: {text}" for name, value in saved.items() if (text := _spec_text(value))]
    return ", ".join(texts)


def _spec_text(value: Any) -> str:
    if isinstance(value, ARRAY_LIKE):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (Symbol, Value, Spec)):
        return str(value) if isinstance(value, Spec) else brief(value)
    if type(value) is tuple and (texts := [_spec_text(one) for one in value]) and all(texts):
        return f"({', '.join(texts)})"
    return ""


def _name_of(value: Any) -> str | None:
    """The name of a Value, whose class may be that of leaves which have none."""
    info = value._info
    return info.name if info is not None else None


def on_one_line(name: str | None) -> str:
    """A name on one line, without what no picture can show."""
    return "".join(c if c.isprintable() else " " for c in name or "")
