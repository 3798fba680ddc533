"""Names of values in reports: small numbers, leaf names, shapes, and calls on one line."""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import few_digits, format_sequence
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.spec import Spec, spec_of
from odyssey.table.value import Symbol, Value, array_of
from odyssey.tape.rounding import RoundedArray

if TYPE_CHECKING:
    from odyssey.tape.recording import RawNode, Recording

__all__ = ["Names", "brief", "on_one_line"]

# The most operands of one op that a line shows.
_MOST = 8
_WIDTH = 40

_NAMED = (type, FunctionType, BuiltinFunctionType, np.ufunc)


class Names:
    """Names of the values of one recording, as reports print them.

    Every value has a small number, ``#1``, ``#2`` ..., in the order in which the nodes first
    mention it; leaves that no node uses come last. A number is the same in all reports, and stays
    so while the tape goes on recording, until nodes are dropped by ``clear``, a sweep, or pruning.
    A leaf is called by its name if no other leaf has that name.

    Attributes:
        nodes: The nodes of the recording.
        leaves: The leaves of the recording, by id.
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
        values = watched | dict(recording.outer_values or {}) | leaves
        self.specs = {id: value._spec for id, value in values.items()}
        self._find_specs(nodes)
        self._names = self._unique_names(
            {id: on_one_line(_name_of(v)) for id, v in values.items() if id in self.numbers}
        )

    def _unique_names(self, texts: dict[int, str]) -> dict[int, str]:
        """Return the names by id; a number follows a name that several values have."""
        holders: dict[str, int] = {}
        for text in texts.values():
            holders[text] = holders.get(text, 0) + 1
        return {
            # A leaf may have been named "#3" by the user.
            id: text if holders[text] == 1 and "#" not in text else f"{text} #{self.numbers[id]}"
            for id, text in texts.items()
            if text
        }

    def _find_specs(self, nodes: list[RawNode]) -> None:
        """Read specs from nodes; a result without specs has the spec of its operands."""
        known_specs = self.specs
        for _, output, inputs, _, specs in nodes:
            if specs is None:
                operand_spec = next((known_specs[id] for id in inputs if id in known_specs), None)
                specs = (*[None] * len(inputs), operand_spec)
            for operand, spec in zip((*inputs, output), specs, strict=False):
                if operand is not None and spec is not None:
                    known_specs.setdefault(operand, spec)
        for _, output, inputs, _, specs in reversed(nodes):
            if specs is None and output in known_specs:
                for id in inputs:
                    if id is not None:
                        known_specs.setdefault(id, known_specs[output])

    def value_name(self, id: int) -> str:
        """Return the name of a value of the recording."""
        return self._names.get(id) or f"#{self.numbers[id]}"

    def variable_name(self, variable: Value, id: int) -> str:
        """Return the name of a Variable, which need not be on the recording."""
        own = on_one_line(_name_of(variable))
        if id not in self.numbers:
            return own or f"a Variable of {variable._spec}"
        number = f"#{self.numbers[id]}"
        return self._names.get(id) or (f"{own} {number}" if own else number)

    def typed_name(self, id: int) -> str:
        """Return the name of a value with its shape and dtype, as far as they are known."""
        spec = self.specs.get(id)
        return self.value_name(id) if spec is None else f"{self.value_name(id)}: {spec}"

    def operand_texts(self, node: RawNode) -> tuple[str, ...]:
        """Return the operands of a node, and its options that are not at their default.

        A constant is shown by value if it is a single number, by shape and dtype if it is an array.
        The word ``constant`` stands for a constant that the node does not save, because no rule
        needs it.
        """
        row, _, inputs, kept, specs = node
        texts = []
        for k, (name, id) in enumerate(zip(row.arrays, inputs, strict=False)):
            value = kept[k] if kept and k < len(kept) else None
            spec = specs[k] if specs and k < len(specs) else None
            absent = specs and name in row.optional
            if id is not None:
                texts.append(self.value_name(id))
            elif value is not None:
                texts.append(brief(value))
            elif absent and spec is None:
                texts.append("None")
            else:
                texts.append("constant" if spec is None else str(spec))
        # The rows of called functions have no defaults: the values that they save are no options.
        defaults = row.defaults
        options = (kept or ())[len(row.arrays) + len(row.results) :]
        for name, default, option in zip(row.options, defaults, options, strict=False):
            if (text := brief(option)) != brief(default):
                texts.append(f"{name}={text}")
        return tuple(texts)

    def node_text(self, node: RawNode) -> str:
        """Return a node as in ``#3: float64[2] = multiply(w, 2.0)``."""
        return f"{self.typed_name(node[1])} = {call_text(node[0].name, self.operand_texts(node))}"


def call_text(op: str, given: Iterable[str]) -> str:
    """Return a call on one line; of many operands only some are shown."""
    texts = list(given)
    if len(texts) > _MOST:
        left_out = slice(_MOST - 2, -1)  # the last one may be an option
        texts[left_out] = [f"... {len(texts[left_out])} more"]
    return on_one_line(f"{op}({', '.join(texts)})")


def brief(value: Any) -> str:
    """Return an operand or an option for a report: numbers by value, arrays by their spec.

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
        return format_sequence(value, brief)
    text = value.__name__ if isinstance(value, _NAMED) else few_digits(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 2]}.."


def specs_of_saved(saved: dict[str, Any]) -> str:
    """Return the arrays among the saved values of a node, by shape and dtype."""
    texts = [f"{name}: {text}" for name, value in saved.items() if (text := _spec_text(value))]
    return ", ".join(texts)


def _spec_text(value: Any) -> str:
    if type(value) is RoundedArray:
        return str(value)
    if isinstance(value, ARRAY_LIKE):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (Symbol, Value, Spec)):
        return str(value) if isinstance(value, Spec) else brief(value)
    if type(value) is tuple and (texts := [_spec_text(one) for one in value]) and all(texts):
        return f"({', '.join(texts)})"
    return ""


def _name_of(value: Any) -> str | None:
    """Return the name of a Value; classes of leaves without a name have none."""
    info = value._info
    return info.name if info is not None else None


def on_one_line(name: str | None) -> str:
    """Return a name on one line, with unprintable characters replaced by spaces."""
    return "".join(c if c.isprintable() else " " for c in name or "")
