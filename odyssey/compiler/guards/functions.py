"""Guards of functions and modules: their parts, and the names that their code reads."""

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

from odyssey.compiler.guards import terms
from odyssey.compiler.guards.bytecode import (
    WRITING_NAMES,
    CodeNames,
    chain_names,
    names_of_code,
    only_writes,
    uses_first_argument,
)
from odyssey.compiler.guards.discovery import USED, GuardDiscovery, Namespace, Unguardable, Use
from odyssey.compiler.guards.effects import defining_module, is_library, is_own_or_numpy
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.device import Device
from odyssey.table.registry import is_unloaded
from odyssey.table.row import Row
from odyssey.transforms.reachability import is_user_defined

__all__ = ["visit_builtin", "visit_function", "visit_method", "visit_module", "visit_partial"]

# Modules whose functions read attributes by names that are not in any code.
_DYNAMIC_NAME_MODULES = {"copy", "dataclasses", "inspect", "operator", "pickle"}

# Attributes that decorators of libraries set on functions.
_DECORATOR_ATTRIBUTES = {"__wrapped__", "row", "programs", "samples", "rejects"}

_NO_ATTRIBUTES: frozenset[tuple[str, ...]] = frozenset({()})


def visit_function(discovery: GuardDiscovery, function: FunctionType, path: str) -> None:
    """Guard a function: its code and defaults, and the objects that they refer to."""
    module_name = defining_module(function)
    row = function.__dict__.get("row")
    if isinstance(row, Row):
        _visit_row(discovery, row)
    if not is_library(module_name):
        _visit_user_function(discovery, function, path)
        return
    discovery.reject_side_effects(function, module_name, function.__name__)
    _note_library_module(discovery, module_name)
    # A function that was made for a user, by od.grad for instance, may have user attributes.
    _visit_function_attributes(
        discovery,
        function,
        path,
        lambda name: name in discovery.names.mentioned - _DECORATOR_ATTRIBUTES,
    )
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    held += [function.__dict__.get("__wrapped__"), *_cell_contents(function)]
    for part in held:
        if is_own_or_numpy(module_name):
            visit_user_contents(discovery, part, path)
        else:
            discovery.visit(part, path)


def _note_library_module(discovery: GuardDiscovery, module_name: str) -> None:
    discovery.names.uses_dynamic_names |= module_name.lstrip("_") in _DYNAMIC_NAME_MODULES
    discovery.names.catches_errors |= module_name == "contextlib"


def visit_user_contents(discovery: GuardDiscovery, thing: Any, path: str) -> None:
    """Visit the users' objects in a library's containers, but not the library's own objects."""
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        for part in thing:
            visit_user_contents(discovery, part, path)
    elif isinstance(thing, (dict, MappingProxyType)):
        for part in thing.values():
            visit_user_contents(discovery, part, path)
    elif isinstance(thing, FunctionType):
        discovery.visit(thing, thing.__name__)
    elif isinstance(thing, Row):
        _visit_row(discovery, thing)
    elif not isinstance(thing, (type, ModuleType)) or is_user_defined(thing):
        user_made = not is_library(defining_module(type(thing)))
        if user_made or isinstance(thing, (MethodType, partial, np.ndarray)):
            discovery.visit(thing, path)


def _cell_contents(function: FunctionType) -> list[Any]:
    found = [terms.cell_guard("", cell).expected for cell in function.__closure__ or ()]
    return [thing for thing in found if thing is not terms.MISSING]


def _visit_row(discovery: GuardDiscovery, row: Row) -> None:
    """Visit the rules of an op that users declared: tracing the op calls them."""
    if is_library(defining_module(row.reference)):
        return
    for name in Row.__slots__:
        if name != "call":
            visit_user_contents(discovery, getattr(row, name, None), f"op {row.name}")


# ------------------------------------------------------------------ functions of users


def _visit_user_function(discovery: GuardDiscovery, function: FunctionType, path: str) -> None:
    discovery.add_guard(terms.attribute_guard(f"{path}.__code__", function, "__code__"))
    discovery.final_steps.append(lambda: _guard_function_attributes(discovery, function, path))
    for k, part in enumerate(function.__defaults__ or ()):
        if isinstance(part, ARRAYS):
            discovery.add_guard(terms.item_guard(f"a default of {path}", function.__defaults__, k))
        discovery.visit(part, f"a default of {path}")
    if function.__kwdefaults__:
        discovery.visit(function.__kwdefaults__, f"{path}.__kwdefaults__")
    code_names = names_of_code(function.__code__)
    if code_names.asks_type_of_values:
        raise Unguardable("it calls type() on an object that may be an array; use isinstance()")
    discovery.names.add_code(code_names)
    _note_argument_chains(discovery, function, code_names)
    free_names = function.__code__.co_freevars
    for name, cell in zip(free_names, function.__closure__ or (), strict=True):
        held = discovery.add_guard(terms.cell_guard(f"cell {name}", cell))
        if name == "__class__" and isinstance(held, type) and "super" in code_names.globals:
            discovery.visit_class(held, held.__name__)  # super() makes no object of it
            discovery.names.add_names(chain_names(code_names.chains.get(name, ())))
        elif held is not terms.MISSING:
            _visit_named(discovery, held, f"cell {name}", name, code_names)
    for name in sorted(code_names.globals):
        _visit_global(discovery, function, name, code_names)
    for name, level in sorted(code_names.imports, key=str):
        _visit_import(discovery, function, name, level, code_names)
    _visit_function_attributes(discovery, function, path, discovery.names.is_read)


def _note_argument_chains(
    discovery: GuardDiscovery, function: FunctionType, code_names: CodeNames
) -> None:
    """Note the attributes read of the first argument and of the function's own cells."""
    owner = discovery.names.owner_of(function)
    if owner is None:
        discovery.names.add_names(chain_names(code_names.first_argument_chains))
    else:
        discovery.names.self_chains.setdefault(id(owner), set()).update(
            code_names.first_argument_chains
        )
    code = function.__code__
    for name in code_names.chains.keys() - {*code.co_freevars, *code_names.globals}:
        if owner is not None and name == code.co_varnames[0] and name not in code_names.assigned:
            discovery.names.self_chains[id(owner)].update(code_names.chains[name])
        else:
            discovery.names.add_names(chain_names(code_names.chains[name]))


def _visit_global(
    discovery: GuardDiscovery, function: FunctionType, name: str, code_names: CodeNames
) -> None:
    namespace = function.__globals__
    if name in namespace:
        thing = discovery.add_guard(terms.item_guard(f"global {name}", namespace, name))
        users = isinstance(thing, FunctionType) and not is_library(defining_module(thing))
        discovery.names.writes_elements |= name in WRITING_NAMES and not users
        _visit_named(discovery, thing, f"global {name}", name, code_names)
        return
    discovery.add_guard(terms.absence_guard(f"global {name}", namespace, name))
    chained = chain_names(code_names.chains.get(name, ()))
    discovery.names.writes_elements |= not WRITING_NAMES.isdisjoint(chained)
    untyped: Any = function  # the stubs lack __builtins__
    thing = untyped.__builtins__.get(name, terms.MISSING)
    if thing is terms.MISSING:
        return  # the run will raise NameError
    if getattr(builtins, name, terms.MISSING) is thing and not isinstance(thing, FunctionType):
        discovery.reject_side_effects(thing, "builtins", name)
    else:
        discovery.visit(thing, name)


def _visit_import(
    discovery: GuardDiscovery, function: FunctionType, name: str, level: Any, code_names: CodeNames
) -> None:
    """Guard a module that the code imports; importing it again has no side effect."""
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
        prefix = ".".join(parts[: k + 1])
        if not isinstance(sys.modules.get(prefix), ModuleType):
            raise Unguardable(f"it imports {prefix}, which was not imported before")
        if is_library(prefix):
            discovery.visit(sys.modules[prefix], f"module {prefix}")
        else:
            discovery.guard_and_visit(terms.item_guard(f"module {prefix}", sys.modules, prefix))


def _visit_function_attributes(
    discovery: GuardDiscovery, function: FunctionType, path: str, is_relevant: Callable[[str], bool]
) -> None:
    """Guard the attributes that users gave to a function."""
    namespace = function.__dict__

    def make_guard(path_of_name: str, name: str) -> terms.Guard:
        return terms.dict_attribute_guard(path_of_name, function, name)

    discovery.add_namespace(Namespace(path, namespace.keys, make_guard, is_relevant))


def _guard_function_attributes(
    discovery: GuardDiscovery, function: FunctionType, path: str
) -> None:
    """Guard defaults and attributes; missing ones only where the code catches errors."""
    names_matter = discovery.names.uses_dynamic_names or discovery.names.catches_errors
    for name in ("__defaults__", "__kwdefaults__"):
        if names_matter or getattr(function, name) is not None:
            discovery.add_guard(terms.attribute_guard(f"{path}.{name}", function, name))
    if names_matter:
        relevant = None if discovery.names.uses_dynamic_names else discovery.names.names
        path_of_name = f"the attributes of {path}"
        discovery.add_guard(
            terms.names_guard(
                path_of_name, lambda: function.__dict__, "{0}.__dict__", function, relevant
            )
        )


# ------------------------------------------------------------------ modules


def _visit_named(
    discovery: GuardDiscovery, thing: Any, path: str, name: str, code_names: CodeNames
) -> None:
    """Visit the object of a global or a cell, and what the code reads of it."""
    chains = code_names.chains.get(name, _NO_ATTRIBUTES)
    called = name in code_names.called
    bare = name in code_names.bare or name not in code_names.chains
    writes = not bare and only_writes(code_names, name, code_names.bare)
    appended = frozenset(code_names.appended_items.get(name, ()))
    used = bare or name in code_names.stored_into or bool(appended)
    use = Use(not used, called, writes, appended)
    _visit_chains(discovery, thing, path, chains, name, use)


def _visit_chains(
    discovery: GuardDiscovery, thing: Any, path: str, chains: Any, name: str, use: Use = USED
) -> None:
    """Visit an object; of a module the attributes read, as in ``np.linalg.norm``."""
    if not isinstance(thing, ModuleType):
        discovery.visit(thing, path, use=use)
        for chain in filter(None, chains):
            discovery.names.passed.add(name)
            discovery.names.resolve_chain(thing, chain)
        return
    for chain in sorted(chains):
        if not chain:
            discovery.visit(thing, path)  # the module itself is passed on
        else:
            _visit_module_attribute(discovery, thing, path, chain[0], chain[1:])


def _visit_module_attribute(
    discovery: GuardDiscovery, module: ModuleType, path: str, name: str, rest: Any
) -> None:
    path_of_name = f"{path}.{name}"
    if not defining_module(module).startswith("odyssey"):
        discovery.names.writes_elements |= not WRITING_NAMES.isdisjoint((name, *rest))
    if is_library(defining_module(module)):
        if (
            defining_module(module).startswith("odyssey.")
            and name not in vars(module)
            and is_unloaded(name)
        ):
            return  # an op, which is pure; it need not be loaded for this
        thing = getattr(module, name, terms.MISSING)
        discovery.names.writes_elements |= isinstance(thing, np.ufunc)
        module_name = defining_module(thing) if callable(thing) else defining_module(module)
        discovery.reject_side_effects(thing, defining_module(module), name)
        discovery.reject_side_effects(thing, module_name, name)
        _note_library_module(discovery, module_name)
        if defining_module(module) == "odyssey.devices":  # the CPU, and what cuda(k) returns
            discovery.note_impure_attributes(Device)
        if isinstance(thing, ModuleType):
            _visit_chains(discovery, thing, path_of_name, {rest}, name)
        elif isinstance(thing, type) and is_library(module_name):
            discovery.note_abstract_class(thing)
            discovery.note_impure_attributes(thing)
        elif not is_library(module_name):
            discovery.visit(thing, path_of_name)
            discovery.names.resolve_chain(thing, rest)
        return
    namespace = vars(module)
    if name not in namespace:
        discovery.add_guard(terms.absence_guard(path_of_name, namespace, name))
        if "__getattr__" in namespace:
            discovery.guard_and_visit(
                terms.item_guard(f"{path}.__getattr__", namespace, "__getattr__")
            )
        return
    thing = discovery.add_guard(terms.item_guard(path_of_name, namespace, name))
    _visit_chains(discovery, thing, path_of_name, {rest}, name)


def visit_module(discovery: GuardDiscovery, module: ModuleType, path: str) -> None:
    """Guard the attributes of a module that is passed on, of which code may read any name."""
    namespace = vars(module)
    library = is_library(defining_module(module))

    def make_guard(path_of_name: str, name: str) -> terms.Guard | None:
        if library:
            _visit_module_attribute(discovery, module, path, name, ())
            return None
        return terms.item_guard(path_of_name, namespace, name)

    def guard_all_names() -> None:
        if not discovery.names.uses_dynamic_names:
            return
        if library:
            raise Unguardable(
                f"it may read any attribute of {path}, by names that are not in its code"
            )
        discovery.add_guard(
            terms.names_guard(f"the names of {path}", namespace.keys, "{0}", namespace, None)
        )

    is_relevant = (
        (lambda name: name in discovery.names.names) if library else discovery.names.is_read
    )
    discovery.add_namespace(Namespace(path, namespace.keys, make_guard, is_relevant))
    discovery.final_steps.append(guard_all_names)


# ------------------------------------------------------------------ other callables


def visit_method(discovery: GuardDiscovery, method: MethodType, path: str) -> None:
    """Guard a bound method: its function and its object."""
    called: Any = method.__func__
    name = str(getattr(called, "__name__", ""))
    bases = type(method.__self__).__mro__
    owner = next((base for base in bases if vars(base).get(name) is called), None)
    discovery.visit(called, path, owner)
    use = Use(read_only=not uses_first_argument(called))
    discovery.visit(method.__self__, f"{path}.__self__", use=use)


def visit_builtin(discovery: GuardDiscovery, function: BuiltinFunctionType, path: str) -> None:
    """Guard a function written in C, or a bound method of an object written in C."""
    owner = function.__self__
    if owner is None or isinstance(owner, (type, ModuleType)):
        discovery.reject_side_effects(function, defining_module(function), function.__name__)
    else:
        discovery.names.names.add(function.__name__)
        discovery.names.mentioned.add(function.__name__)
        discovery.visit(owner, f"{path}.__self__")


def visit_partial(discovery: GuardDiscovery, call: partial[Any], path: str) -> None:
    """Guard a ``functools.partial``."""
    names = discovery.names.mentioned
    for name in ("func", "args", "keywords"):
        only_called = name == "func" and not ("func" in names or discovery.names.uses_dynamic_names)
        use = Use(read_only=True, called=True) if only_called else USED
        discovery.guard_and_visit(terms.attribute_guard(f"{path}.{name}", call, name), use=use)
    discovery.visit_attributes(call, path)
