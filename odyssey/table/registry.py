"""Registry of ops: rows and composites by name, in modules that load at first use.

An op module (a family) ends with ``publish(globals())``. The generated index maps names to
modules, so a name is known before its module is loaded. A look-up such as ``od.ops.gelu``,
``OPS["gelu"]`` or ``np.sinc(v)`` loads the module; iteration over all rows loads all of them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from functools import wraps
from importlib import import_module
from os.path import isdir, isfile, join
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from odyssey.checks import STUMBLES, check_flag, error_class_of, hides_frame
from odyssey.devices.arrays import DEVICE_TYPES
from odyssey.devices.commit import commit
from odyssey.errors import (
    DeviceError,
    DTypeError,
    LinAlgError,
    OdysseyError,
    SettingError,
    ShapeError,
)
from odyssey.suggestions import MISSING_NAMES, did_you_mean, keyword_hint
from odyssey.table import index
from odyssey.table.array_rules import OP_MODULES, forget_module, make_array_pullbacks
from odyssey.table.call import check_tape
from odyssey.table.half_kernels import handle_halves
from odyssey.table.numpy_signatures import call_with_numpy_signature
from odyssey.table.row import Row, handle_devices
from odyssey.table.samples import Reject, Sample
from odyssey.table.scope import run_with_tape
from odyssey.table.signature import format_call, parameters_of

__all__ = [
    "COMPOSITES",
    "FOREIGN",
    "OPS",
    "OP_MODULES",
    "composite",
    "function_of",
    "is_library_function",
    "lazy_module_interface",
    "load_all",
    "load_module",
    "missing_attribute_error",
    "op_names",
    "publish",
    "row_of",
]

T = TypeVar("T")

_OPERAND_ERRORS = (ShapeError, DTypeError, SettingError, LinAlgError, DeviceError)

# The keyword ``tape=`` of composites, as ``help`` shows it.
_TAPE = inspect.Parameter("tape", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
_TAPE_LINE = "tape: The tape to record on."

# The section of a docstring on arguments: its indentation, and its lines with theirs.
_ARGS_SECTION = re.compile(r"^( *)Args:(?=\n(\1 +))(?:\n\1 .*)+", re.MULTILINE)


def _parse_index(families: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Map each name of the index to its module and its aliases."""
    homes = {}
    for family, words in families.items():
        for word in words.split():
            name, *others = word.split("=")
            homes[name] = (family, *others)
    return homes


_ROW_HOMES, _COMPOSITE_HOMES = _parse_index(index.ROWS), _parse_index(index.COMPOSITES)

# The module of every name and alias.
_HOMES = {
    name: home
    for homes in (_ROW_HOMES, _COMPOSITE_HOMES)
    for first, (home, *others) in homes.items()
    for name in (first, *others)
}

# Entries of loaded modules: rows and composites by name, functions by name and alias.
_ROWS: dict[str, Row] = {}
_COMPOSITES: dict[str, Callable[..., Any]] = {}
_NAMES: dict[str, Callable[..., Any]] = {}
_LOADED: set[str] = set()

OP_MODULES.update(index.ROWS, index.COMPOSITES)


class _LazyMapping(Mapping[str, T]):
    """A read-only mapping: a look-up loads the module of the name, iteration loads all modules."""

    def __init__(self, entered: dict[str, T], homes: Mapping[str, Any]) -> None:
        self._entered = entered
        self._homes = homes

    def __getitem__(self, name: str) -> T:
        if name not in self._entered and name in self._homes:
            function_of(name)
        return self._entered[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entered or name in self._homes

    def __iter__(self) -> Iterator[str]:
        load_all()
        # In the order of the index, which does not depend on the process.
        known = [name for name in self._homes if name in self._entered]
        return iter([*known, *(name for name in list(self._entered) if name not in self._homes)])

    def __len__(self) -> int:
        load_all()
        return len(self._entered)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {value!r}' for name, value in self.items())}}}"


OPS: Mapping[str, Row] = _LazyMapping(_ROWS, _ROW_HOMES)
"""Every built-in op by name; read-only."""

COMPOSITES: Mapping[str, Callable[..., Any]] = _LazyMapping(_COMPOSITES, _COMPOSITE_HOMES)
"""Every built-in composite by name; read-only."""

FOREIGN: WeakValueDictionary[str, Callable[..., Any]] = WeakValueDictionary()
"""Ops of users by name, the latest of each, while their owner keeps them: for ``od.backward``."""


# ------------------------------------------------------------------ names, and loading


def op_names(*, rows: bool = True, composites: bool = True, others: bool = False) -> list[str]:
    """Return names of rows and composites without loading modules; with ``others``, aliases too."""
    homes = (_ROW_HOMES if rows else {}) | (_COMPOSITE_HOMES if composites else {})
    return [n for first, (_, *more) in homes.items() for n in (first, *(more if others else ()))]


def function_of(name: str) -> Callable[..., Any] | None:
    """Return the op or composite of a name or alias, or None."""
    if name not in _NAMES and name in _HOMES:
        load_module(_HOMES[name])
        if name not in _NAMES:  # the index is outdated
            load_all()
    return _NAMES.get(name)


def is_unloaded(name: str) -> bool:
    """Return whether a name is in the index and its module is not loaded yet."""
    return name not in _NAMES and name in _HOMES


def row_of(name: str) -> Row | None:
    """Return the row of an op by name or alias, or None."""
    return getattr(function_of(name), "row", None)


def load_all() -> None:
    """Load all op modules."""
    for family in sorted(OP_MODULES - _LOADED):
        load_module(family)


def load_module(module: str) -> ModuleType:
    """Import a module of the package in a context of its own, and return it.

    So no tape records the import, no trace captures it, and floating-point errors are not raised.
    Python's import lock makes other threads wait.
    """
    return Context().run(import_module, module)


def lazy_module_interface(
    room: str, others: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package whose ops load lazily.

    Its attributes are its ops, their aliases, and ``others``, names of ops of other packages.

    >>> __all__, __getattr__, __dir__ = lazy_module_interface("odyssey.special")
    >>> __getattr__("erf").__module__
    'odyssey.special.error_functions'
    """
    own = {
        name: more
        for homes in (_ROW_HOMES, _COMPOSITE_HOMES)
        for name, (family, *more) in homes.items()
        if family.startswith(f"{room}.")
    }
    names = sorted(own)
    known = {*own, *(name for more in own.values() for name in more), *others}

    def get(name: str) -> Any:
        value = function_of(name) if name in known else None
        if value is None:
            raise missing_attribute_error(room, name)
        vars(sys.modules[room])[name] = value
        return value

    return names, get, lambda: sorted(known)


def missing_attribute_error(module: str, name: str) -> AttributeError:
    """Return the AttributeError for a missing name of a module, which suggests similar names.

    They are in the message, since IPython does not show those that Python adds.
    """
    words = f"module {module!r} has no attribute {name!r}"
    if name in MISSING_NAMES.get(module, ()):
        words += f"; {MISSING_NAMES[module][name]}"
    elif name in _HOMES:
        words += f"; write od.ops.{name}"
    elif not (name.startswith("_") or _is_submodule(module, name)):
        words += did_you_mean(name, dir(sys.modules[module]))
    return AttributeError(words, name=name)


def _is_submodule(module: str, name: str) -> bool:
    """Return whether a package has such a module: an import asks for the attribute first."""
    folders = getattr(sys.modules[module], "__path__", ())
    return any(
        isdir(join(folder, name)) or isfile(join(folder, f"{name}.py")) for folder in folders
    )


# ------------------------------------------------------------------ entering


def composite(
    *,
    numpy: Sequence[Any] = (),
    aliases: Sequence[str] = (),
    samples: Sequence[Sample] = (),
    rejects: Sequence[Reject] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a composite: a function of ops, which needs no rule of its own.

    Callers may pass ``tape=``, which the function itself does not take: the ops that it calls
    record on that tape, as if it was passed to each. The signature and the docstring show it.

    Args:
        numpy: NumPy functions whose calls on Variables mean this function.
        aliases: Short names for it.
        samples: Cases to test it on, as for a row.
        rejects: Cases that must fail, with their messages.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        known = [(k, p) for k, p in enumerate(parameters_of(function)) if type(p.default) is bool]
        flags = [p.name for _, p in known]
        places = [(k, p.name) for k, p in known if p.kind != "named"]

        @wraps(function)
        def checked_call(*args: Any, tape: Any = None, **named: Any) -> Any:
            __tracebackhide__ = hides_frame
            for name in flags:
                if name in named:
                    named[name] = check_flag(function.__name__, name, named[name])
            for k, name in places:
                if k < len(args):
                    args = (*args[:k], check_flag(function.__name__, name, args[k]), *args[k + 1 :])
            try:
                body = body_on_device(function, args, named) if DEVICE_TYPES else function
                if tape is None:
                    return body(*args, **named)
                check_tape(function.__name__, checked_call, tape)
                return run_with_tape(tape, body, args, named)
            except _OPERAND_ERRORS as error:
                # The error may name an inner op that the caller does not know.
                who = f"{function.__name__}: "
                if not str(error).startswith(who):
                    error.args = (f"{who}{error}",)
                raise
            except (OdysseyError, FloatingPointError):
                raise
            except STUMBLES as error:
                more = {} if tape is None else {"tape": tape}
                found = call_with_numpy_signature(
                    function.__name__, checked_call, function, args, named | more
                )
                if found is NotImplemented:
                    raise _argument_error(function, error, named) from error
                return found

        checked_call.__signature__ = _signature_with_tape(function)  # type: ignore[attr-defined]
        checked_call.__doc__ = _doc_with_tape(function.__doc__)
        checked_call.numpy, checked_call.aliases = tuple(numpy), tuple(aliases)  # type: ignore[attr-defined]
        checked_call.samples, checked_call.rejects = tuple(samples), tuple(rejects)  # type: ignore[attr-defined]
        return checked_call

    return declare


def _signature_with_tape(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a composite, with ``tape`` after the parameters of its function."""
    own = inspect.signature(function)
    return own.replace(parameters=[*own.parameters.values(), _TAPE])


def _doc_with_tape(doc: str | None) -> str | None:
    """Return the docstring of a composite, with a line on ``tape`` last among its arguments."""
    section = _ARGS_SECTION.search(doc or "")
    if doc is None or section is None:
        return doc
    return f"{doc[: section.end()]}\n{section[2]}{_TAPE_LINE}{doc[section.end() :]}"


def _argument_error(
    function: Callable[..., Any], error: Exception, named: Mapping[str, Any]
) -> OdysseyError:
    """Return the error for arguments that a composite cannot use."""
    name = function.__name__
    came = f"{error}{keyword_hint(named)}"
    shape = format_call(name, _signature_with_tape(function))
    return error_class_of(error)(f"{name}: {came}; the signature is {shape}")


def is_library_function(function: Any) -> bool:
    """Return whether a function is defined in an op module of this package."""
    space = getattr(function, "__globals__", {})
    name = space.get("__name__")
    return name in OP_MODULES and vars(sys.modules.get(name, sys)) is space


def body_on_device(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function of ops for a call: the device's, if operands lie there."""
    from odyssey.table.device_rows import composite_body

    return composite_body(function, args, named)


def publish(namespace: dict[str, Any]) -> None:
    """Register the ops and composites of a module, all or none; the last line of the module.

    Raises:
        OdysseyError: if another op has the name, or the module is not in the index.
    """
    family = namespace["__name__"]
    if family not in OP_MODULES:
        raise OdysseyError(
            f"publish: the table is sealed, {family} is not in its index; an op from outside is "
            "called as it is, without a name in the table, and a new family of this package gets "
            "into the index by 'python -m tools.reference'"
        )
    rows, composites = {}, {}
    names: dict[str, Callable[..., Any]] = {}
    for value in list(namespace.values()):
        if getattr(value, "__module__", None) != family:
            continue
        row = getattr(value, "row", None)
        if row is not None:
            _register_names(names, family, (row.name, *row.aliases), row.call)
            rows[row.name] = row
        elif hasattr(value, "aliases"):
            _register_names(names, family, (value.__name__, *value.aliases), value)
            composites[value.__name__] = value
    forget_module(family)  # left by an interrupted import
    for row in rows.values():
        if row.with_arity is None:  # those of several arities make their own
            row.array_pullbacks = make_array_pullbacks(row)
            handle_halves(row)
            handle_devices(row)
    commit(
        [
            (_ROWS.update, rows),
            (_COMPOSITES.update, composites),
            (_NAMES.update, names),
            (_LOADED.add, family),
        ]
    )


def _register_names(
    names: dict[str, Any], family: str, wanted: Sequence[str], function: Callable[..., Any]
) -> None:
    for name in wanted:
        other = names.get(name)
        if other is None and _NAMES.get(name) is not None:
            # The second import of a module whose first was interrupted after its last line.
            other = None if _NAMES[name].__module__ == family else _NAMES[name]
        if other is not None and other is not function:
            raise OdysseyError(f"publish: two ops are called {name!r}; choose another name")
        names[name] = function
