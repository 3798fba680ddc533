"""Annotations as text for a stub, and the imports that they need."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

from odyssey.tape import GradientTape
from odyssey.variable import Variable

__all__ = ["WIDTH", "Imports", "annotated", "shown_literal"]

# Options that NumPy's functions and ours name alike, where the table says no more than Any.
_OPTIONS = {
    "axis": ("int | tuple[int, ...] | None", None),
    "axes": ("int | tuple[int, ...] | None", None),
    "dtype": ("DTypeLike", "numpy.typing"),
    "shape": ("int | Sequence[int]", "collections.abc"),
}

WIDTH = 100

_FIRST_PARTY = "odyssey"
_THIRD_PARTY = ("numpy",)


class Imports:
    """The imports of a stub, collected while its annotations are written."""

    def __init__(self) -> None:
        self.numpy = False
        self._names: dict[str, set[str]] = {}

    def add(self, module: str, name: str) -> None:
        """Import ``name`` from ``module``."""
        self._names.setdefault(module, set()).add(name)

    def text(self) -> str:
        """The import statements, in the order that isort gives them."""
        groups: list[list[str]] = [[], ["import numpy as np"] if self.numpy else [], []]
        for module in sorted(self._names):
            names = sorted(self._names[module], key=_isort_key)
            line = _import(module, names)
            root = module.partition(".")[0]
            groups[2 if root == _FIRST_PARTY else 1 if root in _THIRD_PARTY else 0].append(line)
        return "\n\n".join("\n".join(lines) for lines in groups if lines)

    def evaluated(self, annotation: Any, function: Callable[..., Any]) -> Any:
        """The object that an annotation of ``function`` means."""
        if not isinstance(annotation, str):
            return annotation
        known = {"GradientTape": GradientTape, "Variable": Variable}
        return eval(annotation, known | inspect.unwrap(function).__globals__)

    def rendered(self, hint: Any) -> str:
        """The text of a type, whose names are imported."""
        if hint is Any or hint is inspect.Parameter.empty:
            self.add("typing", "Any")
            return "Any"
        if hint is None or hint is type(None):
            return "None"
        if hint is ...:
            return "..."
        origin, args = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return " | ".join(map(self.rendered, args))
        if origin is Literal:
            self.add("typing", "Literal")
            return f"Literal[{', '.join(map(repr, args))}]"
        if isinstance(hint, list):
            return f"[{', '.join(map(self.rendered, hint))}]"
        if origin is not None:
            return f"{self.rendered(origin)}[{', '.join(map(self.rendered, args))}]"
        return self._named(hint)

    def _named(self, kind: type) -> str:
        if kind.__module__ == "builtins":
            return kind.__qualname__
        if kind.__module__ == "numpy":
            self.numpy = True
            return f"np.{kind.__qualname__}"
        self.add(kind.__module__, kind.__qualname__)
        return kind.__qualname__


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _isort_key(name: str) -> tuple[int, str]:
    """Constants before classes before functions, as isort sorts the names of one import."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


def annotated(function: Callable[..., Any], p: inspect.Parameter, imports: Imports) -> str:
    """The type of an option: as it is annotated, or what NumPy means by its name."""
    if p.annotation in ("Any", Any, p.empty) and p.name in _OPTIONS:
        text, module = _OPTIONS[p.name]
        if module:
            imports.add(module, text.rpartition("| ")[2].partition("[")[0])
        return f"{text} | None" if p.default is None and "None" not in text else text
    return imports.rendered(imports.evaluated(p.annotation, function))


def shown_literal(value: Any) -> str:
    """A default as it stands in a stub: simple values in full."""
    simple = value is None or type(value) in (bool, int, float, str)
    if type(value) is str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value) if simple else "..."
