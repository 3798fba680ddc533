"""What is in the table: its rows, the composites beside them, and the seal on both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from odyssey.checks import STUMBLES, flag, kind_of
from odyssey.errors import OdysseyError
from odyssey.table.row import Row
from odyssey.table.samples import Reject, Sample
from odyssey.table.twins import FAMILIES, bare
from odyssey.vocabulary import keyword_hint

__all__ = ["COMPOSITES", "FOREIGN", "OPS", "composite", "publish", "seal", "sealed"]

_ROWS: dict[str, Row] = {}
OPS: Mapping[str, Row] = MappingProxyType(_ROWS)
"""Every built-in op by name; read-only, and sealed once the families are imported."""

FOREIGN: WeakValueDictionary[str, Callable[..., Any]] = WeakValueDictionary()
"""Ops from outside by name, the latest of each: for ``od.backward`` alone, and no longer than their
owner keeps them."""

_COMPOSITES: dict[str, Callable[..., Any]] = {}
COMPOSITES: Mapping[str, Callable[..., Any]] = MappingProxyType(_COMPOSITES)
"""Every built-in function that is made of ops, by name; likewise."""


def composite(
    *,
    numpy: Sequence[Any] = (),
    aliases: Sequence[str] = (),
    samples: Sequence[Sample] = (),
    rejects: Sequence[Reject] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function made of ops, which needs no rule of its own, beside the table's ops.

    Args:
        numpy: NumPy functions whose calls on Variables mean this function.
        aliases: Short names for it.
        samples: Cases to test it on, as those of a row.
        rejects: Cases that must fail, with their messages.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        flags = [n for n, d in (function.__kwdefaults__ or {}).items() if isinstance(d, bool)]

        @wraps(function)
        def made(*args: Any, **named: Any) -> Any:
            for name in flags:
                if name in named:
                    named[name] = flag(function.__name__, name, named[name])
            try:
                return function(*args, **named)
            except (OdysseyError, FloatingPointError):
                raise
            except STUMBLES as error:
                raise _misuse(function, error, named) from error

        made.numpy, made.aliases = tuple(numpy), tuple(aliases)  # type: ignore[attr-defined]
        made.samples, made.rejects = tuple(samples), tuple(rejects)  # type: ignore[attr-defined]
        return made

    return declare


def _misuse(
    function: Callable[..., Any], error: Exception, named: Mapping[str, Any]
) -> OdysseyError:
    """The error to raise where a composite stumbled over its arguments."""
    import inspect

    name = function.__name__
    came = f"{error}{keyword_hint(named)}"
    return kind_of(error)(f"{name}: {came}; the signature is {name}{inspect.signature(function)}")


# Every public name, aliases among them, and what it means; the ops get them when they are sealed.
_NAMES: dict[str, Callable[..., Any]] = {}
_SEAL: list[bool] = []


def publish(namespace: dict[str, Any]) -> None:
    """Enter the ops and composites of a module of this package, a family, into their tables.

    Raises:
        OdysseyError: for a name that another op has, and once the table is sealed.
    """
    if sealed():
        raise OdysseyError(
            f"publish: the table is sealed, {namespace['__name__']} came too late; an op from "
            "outside is called as it is, without a name in the table"
        )
    FAMILIES.add(namespace["__name__"])
    for value in list(namespace.values()):
        if getattr(value, "__module__", None) != namespace["__name__"]:
            continue
        row = getattr(value, "row", None)
        if row is not None:
            _enter((row.name, *row.aliases), row.call)
            _ROWS[row.name] = row
        elif hasattr(value, "aliases"):
            _enter((value.__name__, *value.aliases), value)
            _COMPOSITES[value.__name__] = value


def _enter(names: Sequence[str], function: Callable[..., Any]) -> None:
    for name in names:
        if _NAMES.setdefault(name, function) is not function:
            raise OdysseyError(f"publish: two ops are called {name!r}; choose another name")


def seal() -> Mapping[str, Callable[..., Any]]:
    """Close the table: rows that are declared from now on are from outside; return all names."""
    for row in _ROWS.values():
        row.bare = bare(row)
    _SEAL.append(True)
    return _NAMES


def sealed() -> bool:
    """Whether all families are in the table, and it takes no more."""
    return bool(_SEAL)
