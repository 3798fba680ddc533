"""What functions and modules hold, and what their code asks for by name."""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib.util import resolve_name
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from odyssey.compiler.guards import terms as w
from odyssey.compiler.guards.bytecode import CodeNames, chain_names, names_of_code
from odyssey.compiler.guards.discovery import GuardDiscovery, Namespace, Unguardable
from odyssey.compiler.guards.effects import defining_module, is_library, is_own_or_numpy
from odyssey.devices.arrays import ARRAYS
from odyssey.table.registry import is_unloaded
from odyssey.table.row import Row
from odyssey.transforms.replay import is_user_defined

__all__ = ["visit_builtin", "visit_function", "visit_method", "visit_module", "visit_partial"]

# Functions of these modules read attributes whose names are in no code.
_DYNAMIC_NAME_MODULES = {"copy", "dataclasses", "inspect", "operator", "pickle"}

# What decorators of libraries give to functions.
_DECORATOR_ATTRIBUTES = {"__wrapped__", "row", "programs", "samples", "rejects"}

_NO_ATTRIBUTES: frozenset[tuple[str, ...]] = frozenset({()})


def visit_function(walk: GuardDiscovery, function: FunctionType, path: str) -> None:
    """Take up a function: its code and defaults, and what they hold and name."""
    home = defining_module(function)
    row = function.__dict__.get("row")
    if isinstance(row, Row):
        _visit_row(walk, row)
    if not is_library(home):
        _visit_user_function(walk, function, path)
        return
    walk.refuse(function, home, function.__name__)
    _note_library_module(walk, home)
    # One that was made for a user, by od.grad for instance, may have been given some.
    _visit_function_attributes(
        walk, function, path, lambda name: name in walk.code.spoken - _DECORATOR_ATTRIBUTES
    )
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    held += [function.__dict__.get("__wrapped__"), *_cell_contents(function)]
    for part in held:
        if is_own_or_numpy(home):
            visit_user_contents(walk, part, path)
        else:
            walk.meet(part, path)


def _note_library_module(walk: GuardDiscovery, home: str) -> None:
    walk.code.by_text |= home.lstrip("_") in _DYNAMIC_NAME_MODULES
    walk.code.caught |= home == "contextlib"


def visit_user_contents(walk: GuardDiscovery, thing: Any, path: str) -> None:
    """Meet what a library holds of users; its own containers and objects are its affair."""
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        for part in thing:
            visit_user_contents(walk, part, path)
    elif isinstance(thing, (dict, MappingProxyType)):
        for part in thing.values():
            visit_user_contents(walk, part, path)
    elif isinstance(thing, FunctionType):
        walk.meet(thing, thing.__name__)
    elif isinstance(thing, Row):
        _visit_row(walk, thing)
    elif not isinstance(thing, (type, ModuleType)) or is_user_defined(thing):
        known = not is_library(defining_module(type(thing)))
        if known or isinstance(thing, (MethodType, partial, np.ndarray)):
            walk.meet(thing, path)


def _cell_contents(function: FunctionType) -> list[Any]:
    found = [w.cell_guard("", place).kept for place in function.__closure__ or ()]
    return [thing for thing in found if thing is not w.MISSING]


def _visit_row(walk: GuardDiscovery, row: Row) -> None:
    """Take up the rules of an op that users declared: they are called while it is traced."""
    if is_library(defining_module(row.reference)):
        return
    for name in Row.__slots__:
        if name != "call":
            visit_user_contents(walk, getattr(row, name, None), f"op {row.name}")


# ------------------------------------------------------------------ functions of users


def _visit_user_function(walk: GuardDiscovery, function: FunctionType, path: str) -> None:
    walk.watch(w.attribute_guard(f"{path}.__code__", function, "__code__"))
    walk.at_end.append(lambda: _guard_function_attributes(walk, function, path))
    for k, part in enumerate(function.__defaults__ or ()):
        if isinstance(part, ARRAYS):
            walk.watch(w.item_guard(f"a default of {path}", function.__defaults__, k))
        walk.meet(part, f"a default of {path}")
    if function.__kwdefaults__:
        walk.meet(function.__kwdefaults__, f"{path}.__kwdefaults__")
    reads = names_of_code(function.__code__)
    if reads.types:
        raise Unguardable("it asks for the type of what may be an array; isinstance can be told")
    walk.code.learn(reads)
    _note_argument_chains(walk, function, reads)
    names = function.__code__.co_freevars
    for name, place in zip(names, function.__closure__ or (), strict=True):
        held = walk.watch(w.cell_guard(f"cell {name}", place))
        if name == "__class__" and isinstance(held, type) and "super" in reads.globals:
            walk.take_class(held, held.__name__)  # for super(), which makes no object
            walk.code.names |= chain_names(reads.chains.get(name, ()))
        elif held is not w.MISSING:
            _visit_named(walk, held, f"cell {name}", reads.chains.get(name, _NO_ATTRIBUTES), name)
    for name in sorted(reads.globals):
        _visit_global(walk, function, name, reads)
    for name, level in sorted(reads.imports, key=str):
        _visit_import(walk, function, name, level, reads)
    _visit_function_attributes(walk, function, path, walk.code.is_read)


def _note_argument_chains(walk: GuardDiscovery, function: FunctionType, reads: CodeNames) -> None:
    """Note what is asked of the first argument, and of what cells of its own stand for."""
    owner = walk.code.owner_of(function)
    if owner is None:
        walk.code.names |= chain_names(reads.arguments)
    else:
        walk.code.selves.setdefault(id(owner), set()).update(reads.arguments)
    code = function.__code__
    for name in reads.chains.keys() - {*code.co_freevars, *reads.globals}:
        if owner is not None and name == code.co_varnames[0] and name not in reads.stored:
            walk.code.selves[id(owner)].update(reads.chains[name])
        else:
            walk.code.names |= chain_names(reads.chains[name])


def _visit_global(
    walk: GuardDiscovery, function: FunctionType, name: str, reads: CodeNames
) -> None:
    room = function.__globals__
    if name in room:
        thing = walk.watch(w.item_guard(f"global {name}", room, name))
        _visit_named(walk, thing, f"global {name}", reads.chains.get(name, _NO_ATTRIBUTES), name)
        return
    walk.watch(w.absence_guard(f"global {name}", room, name))
    seen: Any = function  # of whose attributes the stubs do not know all
    thing = seen.__builtins__.get(name, w.MISSING)
    if thing is w.MISSING:
        return  # the run will say so
    if getattr(builtins, name, w.MISSING) is thing and not isinstance(thing, FunctionType):
        walk.refuse(thing, "builtins", name)
    else:
        walk.meet(thing, name)


def _visit_import(
    walk: GuardDiscovery, function: FunctionType, name: str, level: Any, reads: CodeNames
) -> None:
    """Take up a module that the code imports: nothing happens where it is there already."""
    if type(level) is not int:
        raise Unguardable(f"it imports {name}")
    if level:
        package = function.__globals__.get("__package__")
        try:
            name = resolve_name("." * level + name, package)
        except (ImportError, TypeError):
            raise Unguardable(f"it imports {name}") from None
    parts = name.split(".")
    for k in range(len(parts)):
        whole = ".".join(parts[: k + 1])
        if not isinstance(sys.modules.get(whole), ModuleType):
            raise Unguardable(f"it imports {whole}, which was not imported before")
        if is_library(whole):
            walk.meet(sys.modules[whole], f"module {whole}")
        else:
            walk.follow(w.item_guard(f"module {whole}", sys.modules, whole))


def _visit_function_attributes(
    walk: GuardDiscovery, function: FunctionType, path: str, matters: Callable[[str], bool]
) -> None:
    """The attributes that users gave to a function."""
    room = function.__dict__

    def place(told: str, name: str) -> w.Guard:
        return w.dict_attribute_guard(told, function, name)

    walk.enter(Namespace(path, room.keys, place, matters))


def _guard_function_attributes(walk: GuardDiscovery, function: FunctionType, path: str) -> None:
    """Watch defaults and attributes; those that are missing only where errors are caught."""
    careful = walk.code.by_text or walk.code.caught
    for name in ("__defaults__", "__kwdefaults__"):
        if careful or getattr(function, name) is not None:
            walk.watch(w.attribute_guard(f"{path}.{name}", function, name))
    if careful:
        named = None if walk.code.by_text else walk.code.names
        told = f"the attributes of {path}"
        walk.watch(w.names_guard(told, lambda: function.__dict__, "{0}.__dict__", function, named))


# ------------------------------------------------------------------ modules


def _visit_named(walk: GuardDiscovery, thing: Any, path: str, chains: Any, name: str) -> None:
    """Meet what a name stands for; of a module what the code asks of it, ``np.linalg.norm``."""
    if not isinstance(thing, ModuleType):
        walk.meet(thing, path)
        for chain in filter(None, chains):
            walk.code.passed.add(name)
            walk.code.ask(thing, chain)
        return
    for chain in sorted(chains):
        if not chain:
            walk.meet(thing, path)  # the module itself goes somewhere
        else:
            _visit_module_attribute(walk, thing, path, chain[0], chain[1:])


def _visit_module_attribute(
    walk: GuardDiscovery, module: ModuleType, path: str, name: str, rest: Any
) -> None:
    told = f"{path}.{name}"
    if is_library(defining_module(module)):
        if (
            defining_module(module).startswith("odyssey.")
            and name not in vars(module)
            and is_unloaded(name)
        ):
            return  # an op, which is as others; what no run calls need not load for this
        thing = getattr(module, name, w.MISSING)
        home = defining_module(thing) if callable(thing) else defining_module(module)
        walk.refuse(thing, defining_module(module), name)
        walk.refuse(thing, home, name)
        _note_library_module(walk, home)
        if isinstance(thing, ModuleType):
            _visit_named(walk, thing, told, {rest}, name)
        elif isinstance(thing, type) and is_library(home):
            walk.take_abstract(thing)
        elif not is_library(home):
            walk.meet(thing, told)
            walk.code.ask(thing, rest)
        return
    room = vars(module)
    if name not in room:
        walk.watch(w.absence_guard(told, room, name))
        if "__getattr__" in room:
            walk.follow(w.item_guard(f"{path}.__getattr__", room, "__getattr__"))
        return
    _visit_named(walk, walk.watch(w.item_guard(told, room, name)), told, {rest}, name)


def visit_module(walk: GuardDiscovery, module: ModuleType, path: str) -> None:
    """Take up a module that the code may ask for anything that it names."""
    room = vars(module)
    library = is_library(defining_module(module))

    def place(told: str, name: str) -> w.Guard | None:
        if library:
            _visit_module_attribute(walk, module, path, name, ())
            return None
        return w.item_guard(told, room, name)

    def end() -> None:
        if not walk.code.by_text:
            return
        if library:
            raise Unguardable(f"it may read anything of {path}, by names that are not in its code")
        walk.watch(w.names_guard(f"the names of {path}", room.keys, "{0}", room, None))

    matters = (lambda name: name in walk.code.names) if library else walk.code.is_read
    walk.enter(Namespace(path, room.keys, place, matters))
    walk.at_end.append(end)


# ------------------------------------------------------------------ other callables


def visit_method(walk: GuardDiscovery, method: MethodType, path: str) -> None:
    """Take up a bound method."""
    called: Any = method.__func__
    name = str(getattr(called, "__name__", ""))
    bases = type(method.__self__).__mro__
    owner = next((base for base in bases if vars(base).get(name) is called), None)
    walk.meet(called, path, owner)
    walk.meet(method.__self__, f"{path}.__self__")


def visit_builtin(walk: GuardDiscovery, function: BuiltinFunctionType, path: str) -> None:
    """Take up a function written in C, or a bound method of something that is."""
    owner = function.__self__
    if owner is None or isinstance(owner, (type, ModuleType)):
        walk.refuse(function, defining_module(function), function.__name__)
    else:
        walk.code.names.add(function.__name__)
        walk.meet(owner, f"{path}.__self__")


def visit_partial(walk: GuardDiscovery, call: partial[Any], path: str) -> None:
    """Take up a call that is prepared."""
    for name in ("func", "args", "keywords"):
        walk.follow(w.attribute_guard(f"{path}.{name}", call, name))
    walk.take_object(call, path)
