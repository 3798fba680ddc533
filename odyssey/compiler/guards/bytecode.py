"""Bytecode analysis: the globals, attributes and modules that code reads by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import pairwise
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from odyssey.compiler.guards.effects import defining_module, is_library
from odyssey.transforms.reachability import is_generator, is_user_defined

__all__ = [
    "INERT_NAMES",
    "WRITING_NAMES",
    "CodeNames",
    "ReachedNames",
    "assigns_plainly",
    "chain_names",
    "class_defines",
    "names_of_code",
    "only_writes",
    "uses_first_argument",
]

_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR"}
_LOCALS = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}
_ATTRIBUTE_LOADS = {"LOAD_ATTR", "LOAD_METHOD"}
_FILLERS = {"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL"}
# Two instructions that Python 3.13 and later fuse into one.
_FUSED_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST_BORROW", "LOAD_FAST_BORROW"),
}
_FORMATS = {"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"}
_HAS_FORMAT_SPEC = 4  # flag in the argument of FORMAT_VALUE, until Python 3.12

# Builtins and attributes that read attributes whose names are nowhere in the code.
_DYNAMIC_BUILTINS = {"getattr", "hasattr", "setattr", "delattr", "vars", "dir"}
_DYNAMIC_ATTRIBUTES = {
    *("__dict__", "__getattribute__", "__setattr__", "__reduce__", "__reduce_ex__"),
    *("format", "format_map"),  # "{0.scale}".format(net)
}
_ONE_NAME_BUILTINS = {"getattr", "hasattr", "setattr", "delattr"}
_SIMPLE_LOADS = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CONST"}
_ASSIGNS = {"STORE_ATTR", "DELETE_ATTR", "setattr", "delattr", "__setattr__", "__delattr__"}
_COMPARES = {"IS_OP", "COMPARE_OP"}
_MATCHES = {"MATCH_CLASS", "MATCH_KEYS"}
# Instructions whose results are new objects, or numbers and strings.
_MAKES_NEW = ("BUILD_", "BINARY_OP", "LOAD_CONST", "UNARY_", "COMPARE_OP", "LOAD_SMALL_INT")
# Attributes of arrays whose assignment writes elements, or what they mean.
_ARRAY_ATTRIBUTES = {"real", "imag", "flat", "shape", "strides", "dtype", "data"}
_ELEMENT_WRITES = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}
# Functions and methods of Python and NumPy that write elements of a container or an array.
WRITING_NAMES = {
    *("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"),
    *("remove", "clear", "add", "discard", "update", "setdefault", "sort", "reverse", "rotate"),
    *("difference_update", "intersection_update", "symmetric_difference_update", "subtract"),
    *("move_to_end", "heapify", "heappop", "heappush", "heappushpop", "heapreplace"),
    *("insort", "insort_left", "insort_right", "setitem", "delitem", "fill", "partition"),
    *("resize", "itemset", "setfield", "setflags", "byteswap", "at", "copyto", "place", "put"),
    *("putmask", "put_along_axis", "fill_diagonal", "shuffle", "nan_to_num", "frompyfunc"),
    *("__setitem__", "__delitem__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__"),
    *("__imul__", "__setstate__", "__init__", "__array_interface__", "__array_struct__"),
}


# ------------------------------------------------------------------ the names in one function


@dataclass(slots=True)
class CodeNames:
    """The names in the code of a function and of the functions nested in it.

    Attributes:
        chains: Chains of attributes by the global, cell or module that they start from:
            ``np.linalg.norm(np)`` gives ``{"np": {("linalg", "norm"), ()}}``.
        first_argument_chains: Chains that start from the first argument, if it is never rebound.
        bare: Names of globals, cells and the first argument whose object is used as such, and not
            only for its attributes: it is passed on, indexed, iterated over or compared.
        ends: Attributes whose object is used as such.
        called: Names and attributes whose object is called in place, as ``self.net(x)`` does.
        stored_into: Names and attributes of whose object an item is assigned, ``log["loss"] = x``.
        appended_items: By name or attribute, the keys of the items of its object that are appended
            to, ``log["loss"].append(x)``.
        next_names: By name or attribute, the attributes that are read of its object.
        loaded: Attributes that are read or deleted.
        stored: Attributes that are assigned.
        counted: Attributes that a whole number is added to, as ``self.count += 1`` does.
        globals: Names that are looked up in the module.
        attributes: All names of attributes, of whatever object.
        unresolved: Attributes of objects that no name leads to: results, items, other arguments.
        assigned: Assigned names but arguments: attributes, globals, cells of nested functions.
        assigns_attributes: Whether attributes are assigned.
        writes_elements: Whether elements of containers or arrays may be written.
        imports: Imported modules, each with its level.
        uses_dynamic_names: Whether attributes may be read whose names are not in the code.
        catches_errors: Whether code goes on after an error, so that a missing name may matter.
        formats_objects: Whether objects are written as text.
        uses_format_spec: Whether that is by a format specification, as in ``f"{x:.3f}"``.
        uses_classes: Whether classes are defined, or asked for: ``type(x)``, ``x.__class__``.
        asks_type_of_values: Whether ``type`` is asked of an argument but ``self``, or of a result.
        compares_identity: Whether objects are compared by ``is``, but for None.
        checks_instances: Whether ``isinstance`` or ``issubclass`` is called.
    """

    chains: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    first_argument_chains: set[tuple[str, ...]] = field(default_factory=set)
    bare: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    stored_into: set[str] = field(default_factory=set)
    appended_items: dict[str, set[str]] = field(default_factory=dict)
    next_names: dict[str, set[str]] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    unresolved: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    imports: set[tuple[str, Any]] = field(default_factory=set)
    uses_dynamic_names: bool = False
    catches_errors: bool = False
    assigns_attributes: bool = False
    writes_elements: bool = False
    formats_objects: bool = False
    uses_format_spec: bool = False
    uses_classes: bool = False
    asks_type_of_values: bool = False
    compares_identity: bool = False
    checks_instances: bool = False


_NAMES: WeakKeyDictionary[CodeType, CodeNames] = WeakKeyDictionary()


def names_of_code(code: CodeType) -> CodeNames:
    """Return the names in a code object and in nested ones; callers do not change the result."""
    found = _NAMES.get(code)
    if found is None:
        found = _NAMES[code] = _find_names(code)
    return found


def _find_names(code: CodeType) -> CodeNames:
    names = CodeNames()
    for one in _nested_codes(code):
        _scan_code(one, names, first=_first_argument(one) if one is code else None)
        if one is not code:  # cells of nested functions may bear the names of outer variables
            names.assigned.update(one.co_cellvars)
    named = names.globals
    names.uses_dynamic_names |= not names.attributes.isdisjoint(_DYNAMIC_ATTRIBUTES)
    names.formats_objects |= not named.isdisjoint({"str", "repr", "format", "ascii"})
    names.uses_format_spec |= "format" in named
    names.uses_classes |= "__func__" in names.attributes
    names.checks_instances |= not named.isdisjoint({"isinstance", "issubclass"})
    return names


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _first_argument(code: CodeType) -> str | None:
    return code.co_varnames[0] if code.co_argcount else None


def _scan_code(code: CodeType, names: CodeNames, first: str | None) -> None:
    ops_with_names, ops = _instructions(code)
    handlers, chain_end = 0, -1  # the attributes up to chain_end belong to a chain
    fresh = _fresh_locals(code, ops)
    for constant in code.co_consts:  # np.add(a, b, out=c)
        names.writes_elements |= constant == "out" or (
            isinstance(constant, tuple) and "out" in constant
        )
    rebound = any("STORE_FAST" in op.opname and op.argval == first for op in ops)
    for k, op in enumerate(ops):
        opname, argument = op.opname, op.argval
        if opname == "PUSH_EXC_INFO":
            handlers += 1
        elif opname == "WITH_EXCEPT_START":
            handlers -= 1
        names.formats_objects |= opname in _FORMATS
        names.uses_format_spec |= opname == "FORMAT_WITH_SPEC" or (
            opname == "FORMAT_VALUE" and op.arg & _HAS_FORMAT_SPEC != 0
        )
        names.uses_classes |= opname == "LOAD_BUILD_CLASS"
        names.uses_dynamic_names |= opname in _MATCHES
        names.checks_instances |= opname == "MATCH_CLASS"
        if (argument == "__class__" and opname in _ATTRIBUTE_LOADS) or (
            argument == "type" and opname == "LOAD_GLOBAL"
        ):
            names.uses_classes |= not _is_compared(ops, k)
            names.asks_type_of_values |= argument == "type" and _loads_local(ops[k + 1])
        names.compares_identity |= opname == "IS_OP" and not _compares_singleton(ops, k)
        if opname in _ELEMENT_WRITES:
            names.writes_elements |= not _writes_to_fresh(ops, k, fresh)
        elif opname == "BINARY_OP" and op.argrepr.endswith("="):
            names.writes_elements |= not (
                _is_fresh(ops[k - 2], fresh) and ops[k - 1].opname in _SIMPLE_LOADS
            )
        names.assigns_attributes |= opname in _ASSIGNS or argument in _ASSIGNS
        stores = opname.startswith(("STORE_", "DELETE_")) and "FAST" not in opname
        if stores and isinstance(argument, str):
            names.assigned.add(argument)
            names.writes_elements |= argument in _ARRAY_ATTRIBUTES
        if opname == "IMPORT_NAME":
            names.imports.add((argument, ops[k - 2].argval))
        elif opname in _GLOBALS:
            names.globals.add(argument)
            if argument in _DYNAMIC_BUILTINS:
                _scan_dynamic_read(ops, k, names)
        elif opname in _ATTRIBUTES or opname == "IMPORT_FROM":
            names.attributes.add(argument)
            if _is_counted(ops, k):
                names.counted.add(argument)
            elif opname == "STORE_ATTR":
                if not _is_counted(ops, k - 4):
                    names.stored.add(argument)
            else:
                names.loaded.add(argument)
            if k > chain_end:
                names.unresolved.add(argument)
                names.ends.add(argument)
                names.writes_elements |= (
                    argument in WRITING_NAMES
                    and "STORE" not in opname
                    and not _is_fresh(ops[k - 1], fresh)
                )
            continue
        elif opname in ops_with_names:  # an instruction of a later Python
            names.globals.add(argument)
            names.attributes.add(argument)
            names.loaded.add(argument)
            names.unresolved.add(argument)
            names.ends.add(argument)
        elif opname in _LOCALS and argument == first and argument in code.co_cellvars:
            continue  # Python 3.13 and later make a closure this way, and read it by LOAD_DEREF
        elif opname in _LOCALS and argument == first and not rebound:
            chain = _attribute_chain(ops, k + 1)
            names.first_argument_chains.add(chain)
            chain_end = k + len(chain) + 3 * _appends_to_item(ops, k + len(chain) + 1)
            _note_use(ops, k, chain, names)
            continue
        elif opname in _LOCALS and argument == first:
            names.bare.add(argument)
            continue
        elif not opname.endswith("DEREF"):
            continue
        chain, chains = _attribute_chain(ops, k + 1), names.chains.setdefault(argument, set())
        chain_end = k + len(chain) + 3 * _appends_to_item(ops, k + len(chain) + 1)
        _note_use(ops, k, chain, names)
        if not _ignores_float_errors(chain, ops[k + 1 + len(chain) :]):
            chains.add(chain)
    # A ``with`` block has one handler, which raises again; ``finally`` counts as catching here.
    names.catches_errors |= handlers > 0


def _instructions(code: CodeType) -> tuple[set[str], list[Any]]:
    """Return the opcodes that take names, and the instructions of a code, fused ones split."""
    import dis  # imported when first needed: the package does not load it otherwise

    ops: list[Any] = []
    for op in dis.get_instructions(code):
        if pair := _FUSED_PAIRS.get(op.opname):
            halves = zip(pair, op.argval, strict=True)
            ops += [op._replace(opname=opname, argval=argument) for opname, argument in halves]
        elif op.opname not in _FILLERS:
            ops.append(op)
    return {dis.opname[k] for k in dis.hasname}, ops


def _fresh_locals(code: CodeType, ops: list[Any]) -> set[str]:
    """Return the local variables that only ever hold new objects, which nobody else has."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    fresh = set(code.co_varnames[count:])
    for k, op in enumerate(ops):
        stores = op.opname.startswith("STORE_FAST") or op.opname == "LOAD_FAST_AND_CLEAR"
        if stores and not (k and ops[k - 1].opname.startswith(_MAKES_NEW)):
            fresh.discard(op.argval)
    return fresh


def _is_fresh(op: Any, fresh: set[str]) -> bool:
    """Return whether an instruction loads a new object, which nobody else has."""
    return (op.opname in _LOCALS and op.argval in fresh) or op.opname.startswith("BUILD_")


def _writes_to_fresh(ops: list[Any], k: int, fresh: set[str]) -> bool:
    """Return whether ``a[key] = ...`` writes to a new object."""
    return ops[k - 1].opname in _SIMPLE_LOADS and _is_fresh(ops[k - 2], fresh)


def _note_use(ops: list[Any], k: int, chain: tuple[str, ...], names: CodeNames) -> None:
    """Note how code uses the object at the end of a chain that starts at ``ops[k]``."""
    last = ops[k + len(chain)]
    after = ops[k + len(chain) + 1 : k + len(chain) + 3]
    following = [op.opname for op in after]
    path = (ops[k].argval, *chain)
    for name, following_name in pairwise(path):
        names.next_names.setdefault(name, set()).add(following_name)
    if following[:1] in (["STORE_ATTR"], ["DELETE_ATTR"]) or following == ["COPY", "LOAD_ATTR"]:
        return  # an attribute of it is assigned; after COPY, by an operator such as ``+=``
    if following and following[0].startswith("LOAD_SUPER"):
        return
    end = path[-1]
    if following == ["LOAD_CONST", "STORE_SUBSCR"]:
        names.stored_into.add(end)
    elif _appends_to_item(ops, k + len(chain) + 1):
        names.appended_items.setdefault(end, set()).add(after[0].argval)
    elif _is_called(last):
        names.called.add(end)
    else:
        (names.ends if chain else names.bare).add(end)


def _appends_to_item(ops: list[Any], k: int) -> bool:
    """Return whether an object loaded before ``ops[k]`` is used as in ``log["a"].append(x)``."""
    if len(ops) < k + 3 or [op.opname for op in ops[k : k + 2]] != ["LOAD_CONST", "BINARY_SUBSCR"]:
        return False
    method = ops[k + 2]
    named = method.opname in _ATTRIBUTE_LOADS and method.argval == "append"
    return named and type(ops[k].argval) is str and _is_called(method)


def _is_counted(ops: list[Any], k: int) -> bool:
    """Return whether ``ops[k]`` is the read of an attribute in ``self.count += 1``."""
    if (
        k < 1
        or len(ops) < k + 5
        or ops[k - 1].opname != "COPY"
        or ops[k].opname not in _ATTRIBUTE_LOADS
    ):
        return False
    number, add, _, store = ops[k + 1 : k + 5]
    return (
        number.opname.startswith("LOAD_")
        and type(number.argval) is int
        and add.opname == "BINARY_OP"
        and add.argrepr in ("+=", "-=")
        and store.opname == "STORE_ATTR"
        and store.argval == ops[k].argval
    )


def _is_called(op: Any) -> bool:
    """Return whether an instruction loads an object together with the slot that a call needs."""
    # Up to Python 3.12 the slot of LOAD_GLOBAL may be that of ``f[0](x)``.
    since = {"LOAD_ATTR": (3, 12), "LOAD_GLOBAL": (3, 13)}.get(op.opname)
    flagged = since is not None and sys.version_info >= since
    return op.opname == "LOAD_METHOD" or bool(flagged and op.arg & 1)


def uses_first_argument(function: Any) -> bool:
    """Return whether a call may use its first argument as such, and not only for its attributes."""
    if not isinstance(function, FunctionType) or not function.__code__.co_argcount:
        return True
    names, first = names_of_code(function.__code__), function.__code__.co_varnames[0]
    return not {first}.isdisjoint(names.bare | names.called | names.assigned)


def _ignores_float_errors(chain: tuple[str, ...], ops: list[Any]) -> bool:
    """Return whether this is ``np.errstate(all="ignore")``: compiled code raises nothing anyway."""
    if not chain or chain[-1] != "errstate":
        return False
    for op in ops:
        if op.opname.startswith("CALL"):
            return True
        keyword_names = op.opname == "KW_NAMES" or isinstance(op.argval, tuple)
        if not keyword_names and (op.opname != "LOAD_CONST" or op.argval != "ignore"):
            return False
    return False


def _scan_dynamic_read(ops: list[Any], k: int, names: CodeNames) -> None:
    """Scan a call such as ``getattr(self.net, "scale", 1.0)``, whose name may be a constant."""
    word, builtin = None, ops[k].argval
    if builtin in _ONE_NAME_BUILTINS and (k := _after_chain(ops, k + 1)):
        word = ops[k].argval if ops[k].opname == "LOAD_CONST" else None
        k += 1
        if ops[k].opname != "CALL":  # a third argument follows, if this is no f-string
            k = _after_chain(ops, k)
        word = word if k and ops[k].opname == "CALL" else None
    if isinstance(word, str):
        names.attributes.add(word)
        names.loaded.add(word)
        names.unresolved.add(word)
        names.ends.add(word)
        names.writes_elements |= word in WRITING_NAMES
        if builtin in ("setattr", "delattr"):
            names.assigned.add(word)
        names.catches_errors = True
    else:
        names.uses_dynamic_names = True


def _compares_singleton(ops: list[Any], k: int) -> bool:
    """Return whether one side of ``is`` is ``self``, a class, None or another singleton."""
    start = k - 1
    while ops[start].opname in _ATTRIBUTE_LOADS:
        start -= 1
    return _loads_no_number(ops[k - 1]) or _loads_no_number(ops[start - 1])


def _loads_no_number(op: Any) -> bool:
    """Return whether an instruction loads ``self``, a class, None or another singleton."""
    if op.opname in _ATTRIBUTE_LOADS and op.argval == "__class__":
        return True
    if "FAST" in op.opname and op.argval == "self":
        return True
    singletons = (None, True, False, ...)
    return op.opname == "LOAD_CONST" and any(op.argval is one for one in singletons)


def _loads_local(op: Any) -> bool:
    """Return whether an instruction loads what a trace may have made: a local but ``self``."""
    return op.opname not in ("LOAD_GLOBAL", "LOAD_DEREF") and op.argval != "self"


def _is_compared(ops: list[Any], k: int) -> bool:
    """Return whether ``x.__class__`` or ``type(x)`` is compared or named, and not called."""
    if ops[k].opname == "LOAD_GLOBAL":
        k = _after_chain(ops, k + 1)
        if not k or ops[k].opname != "CALL":
            return False
    if ops[k + 1].opname in _COMPARES or ops[k + 1].argval in ("__name__", "__qualname__"):
        return True
    return ops[_after_chain(ops, k + 1)].opname in _COMPARES


def _after_chain(ops: list[Any], k: int) -> int:
    """Return the index after a name, a number or a chain of attributes; 0 for anything else."""
    if ops[k].opname not in _SIMPLE_LOADS:
        return 0
    k += 1
    while ops[k].opname in _ATTRIBUTE_LOADS:
        k += 1
    return k


def _attribute_chain(ops: list[Any], start: int) -> tuple[str, ...]:
    chain = []
    for op in ops[start:]:
        if op.opname not in _ATTRIBUTE_LOADS:
            break
        chain.append(op.argval)
    return tuple(chain)


# ------------------------------------------------------------------ the names in all code reached

# Special methods that Python itself calls only to write, make, assign to or copy objects.
_FORMATTING_METHODS = {"__repr__", "__str__", "__format__"}
_CREATION_METHODS = {"__init__", "__new__", "__init_subclass__", "__set_name__", "__del__"}
_ASSIGNMENT_METHODS = {"__setattr__", "__delattr__", "__set__", "__delete__"}
_COPY_METHODS = {
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__"),
    *("__getnewargs__", "__getnewargs_ex__", "__sizeof__", "__dir__", "__replace__"),
}
# Attributes that describe a class and do not decide about what code does with it.
INERT_NAMES = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    *("__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"),
    *("__firstlineno__", "__static_attributes__", "__abstractmethods__", "__parameters__"),
    *("__orig_bases__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"),
    "_abc_impl",
}
# Special methods that reading an attribute calls, whatever the code does with the object.
_READING_METHODS = {"__getattr__", "__getattribute__"}
# Special names that code may mention without any other special method being called for it.
_HARMLESS_MENTIONS = {
    *("__init__", "__post_init__", "__class__", "__name__", "__qualname__", "__doc__"),
    *("__call__", "__enter__", "__exit__", "__iter__", "__next__", "__getitem__", "__len__"),
}


class ReachedNames:
    """The names in all code that guard discovery has reached so far.

    Attributes:
        names: Attributes that may be read of any of the users' objects.
        of_object: By id of an object, attributes that are read of it.
        of_class: By id of a class, attributes that are read of its objects.
        mentioned: Attributes of any object.
        self_chains: By id of a class, the chains that its methods read of their first argument.
        passed: Names that chains go through, but for the last of each.
        uses_dynamic_names: Whether the code may read attributes by names that are not in it.
        catches_errors: Whether it goes on after errors, so that a missing name matters.
        uses_format_spec: Whether it formats objects by a specification, as in ``f"{x:.3f}"``.
        compares_identity: Whether it compares objects by ``is``.
        checks_instances: Whether it calls ``isinstance`` or its like.
        owners: By id of a function that is a method and nothing else, its class.
        objects: The objects reached, each with the chains that were resolved for it as ``self``.
        instantiated: The ids of the classes that the code may make objects of.
        ends: Attributes whose object is used as such, see ``CodeNames``.
        called: Attributes whose object is called in place.
        exposed: The ids of the classes of whose objects code uses one as such, so that Python may
            call any of their special methods.
        callable: The ids of the classes of whose objects code calls one in place.
        stored_into: Attributes of whose object an item is assigned, see ``CodeNames``.
        appended_items: By attribute, the keys of items that are appended to, see ``CodeNames``.
        loaded: Attributes that are read; ``stored`` and ``counted`` are assigned, see there.
        next_names: By attribute, the attributes that are read of its object.
        unresolved: Attributes of objects that no name leads to, so that they were used as such.
        assigned: Assigned names, see ``CodeNames``.
        writes_elements: Whether elements of containers or arrays may be written.
        lost: Attributes of chains of which nobody knows where they lead.
        of_generators: Attributes of random generators.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.of_object: dict[int, set[str]] = {}
        self.of_class: dict[int, set[str]] = {}
        self.mentioned: set[str] = set()
        self.self_chains: dict[int, set[tuple[str, ...]]] = {}
        self.passed: set[str] = set()
        self.uses_dynamic_names = self.catches_errors = False
        self.compares_identity = self.checks_instances = False
        self.owners: dict[int, type] = {}
        self.objects: list[tuple[Any, set[tuple[str, ...]]]] = []
        self.instantiated: set[int] = set()
        self.ends: set[str] = set()
        self.called: set[str] = set()
        self.stored_into: set[str] = set()
        self.loaded: set[str] = set()
        self.stored: set[str] = set()
        self.counted: set[str] = set()
        self.next_names: dict[str, set[str]] = {}
        self.appended_items: dict[str, set[str]] = {}
        self.exposed: set[int] = set()
        self.callable: set[int] = set()
        self.unresolved: set[str] = set()
        self.lost: set[str] = set()
        self.of_generators: set[str] = set()
        self._exposes_all = False
        self.assigned: set[str] = set()
        self.writes_elements = False
        self.uses_format_spec = False
        self._formats_objects = self._uses_classes = self._assigns_attributes = False

    def add_code(self, code: CodeNames) -> None:
        """Add the names of a function's code."""
        self.names |= code.unresolved
        self.unresolved |= code.unresolved
        self.ends |= code.ends
        self.called |= code.called
        self.stored_into |= code.stored_into
        self.loaded |= code.loaded
        self.stored |= code.stored
        self.counted |= code.counted
        for name, found in code.next_names.items():
            self.next_names.setdefault(name, set()).update(found)
        for name, keys in code.appended_items.items():
            self.appended_items.setdefault(name, set()).update(keys)
        mentioned = {name for name in code.attributes if is_special_name(name)}
        self._exposes_all |= "locals" in code.globals or not mentioned <= _HARMLESS_MENTIONS
        self.mentioned |= code.attributes
        self.assigned |= code.assigned
        self.writes_elements |= code.writes_elements
        self.uses_dynamic_names |= code.uses_dynamic_names
        self.catches_errors |= code.catches_errors
        self.compares_identity |= code.compares_identity
        self.checks_instances |= code.checks_instances
        self.uses_format_spec |= code.uses_format_spec
        self._formats_objects |= code.formats_objects
        self._uses_classes |= code.uses_classes
        self._assigns_attributes |= code.assigns_attributes

    def add_names(self, names: Iterable[str]) -> None:
        """Add attributes of chains of which nobody knows where they lead."""
        self.names.update(names)
        self.lost.update(names)

    def resolve_chain(self, thing: Any, chain: tuple[str, ...]) -> None:
        """Add the names of a chain that starts from an object.

        In ``self.optimizer.step`` the name ``step`` is read of the optimizer, not of ``self``.
        """
        for k, name in enumerate(chain):
            if isinstance(thing, ModuleType):
                self.add_names(chain[k:])
                if defining_module(thing).partition(".")[0] != "odyssey":
                    self.writes_elements |= not WRITING_NAMES.isdisjoint(chain[k:])
                return
            self._note_write(thing, name)
            if is_generator(thing):
                self.of_generators.update(chain[k:])
            if has_user_names(thing):
                self._add_name_of(thing, name)
            namespace = _plain_attributes(thing)
            if name not in namespace or class_defines(type(thing), name):
                self.add_names(chain[k + 1 :])
                self.writes_elements |= not WRITING_NAMES.isdisjoint(chain[k + 1 :])
                return
            if chain[k + 1 :]:
                self.passed.add(name)
            thing = namespace[name]

    def _note_write(self, thing: Any, name: str) -> None:
        """Note that a method of Python's or NumPy's may write elements of an object."""
        if name in WRITING_NAMES:
            owner = next((b for b in type(thing).__mro__ if name in vars(b)), object)
            own = is_user_defined(owner) or defining_module(owner).startswith("odyssey")
            self.writes_elements |= not own and name not in _plain_attributes(thing)

    def _add_name_of(self, thing: Any, name: str) -> None:
        if isinstance(thing, (FunctionType, MethodType, type)):
            self.names.add(name)
            return
        self.of_object.setdefault(id(thing), set()).add(name)
        for base in type(thing).__mro__:
            self.of_class.setdefault(id(base), set()).add(name)

    def is_only_stored(self, name: str) -> bool:
        """Return whether code assigns an attribute of this name and never reads one."""
        return name in self.stored and name not in self.counted and not self._may_load(name)

    def is_only_counted(self, name: str) -> bool:
        """Return whether code does nothing with such an attribute but to add whole numbers."""
        return name in self.counted and name not in self.stored and not self._may_load(name)

    def _may_load(self, name: str) -> bool:
        return self.uses_dynamic_names or name in self.loaded

    def only_writes(self, name: str) -> bool:
        """Return whether code only appends to what objects have by a name, or assigns items."""
        return not self.uses_dynamic_names and only_writes(self, name, self.ends)

    def owner_of(self, function: Any) -> type | None:
        """Return the class of a function that is a method and nothing else; or None."""
        return self.owners.get(id(function))

    def disown(self, thing: Any) -> None:
        """Note that a method's first argument may be anything."""
        if self.owners.pop(id(thing), None) is not None and isinstance(thing, FunctionType):
            self.add_names(chain_names(names_of_code(thing.__code__).first_argument_chains))

    def resolve_self_chains(self) -> None:
        """Resolve for each object the chains that the methods of its classes read of ``self``."""
        for thing, resolved in self.objects:
            for base in type(thing).__mro__:
                for chain in self.self_chains.get(id(base), set()) - resolved:
                    resolved.add(chain)
                    self.resolve_chain(thing, chain)
        for owner, chains in self.self_chains.items():
            if owner in self.instantiated or self._uses_classes:  # there are other objects of it
                self.add_names(chain_names(chains))
        if not self.passed.isdisjoint(self.assigned):  # a chain may lead elsewhere for a while
            self.add_names(self.mentioned)

    def is_read(self, name: str) -> bool:
        """Return whether the code may read an attribute of this name, of whatever object."""
        return self.uses_dynamic_names or name in self.names

    def names_of(self, thing: Any) -> set[str]:
        """Return the attributes that the code may read of an object, or of objects of a class."""
        by_id = self.of_class if isinstance(thing, type) else self.of_object
        return self.names | by_id.get(id(thing), set())

    def is_read_of_class(self, name: str, kind: type) -> bool:
        """Return whether the code, or Python on its behalf, may read a name of a class."""
        if name in INERT_NAMES or (name in _ASSIGNMENT_METHODS and _is_frozen(kind)):
            return False
        if name in self.names or name in self.of_class.get(id(kind), ()):
            return True
        if not is_special_name(name):
            return self.uses_dynamic_names
        if name in _CREATION_METHODS:
            return id(kind) in self.instantiated or self._uses_classes
        if name in _FORMATTING_METHODS:
            return self._formats_objects
        if name in _ASSIGNMENT_METHODS:
            return self._assigns_attributes or self.uses_dynamic_names
        if name in _COPY_METHODS:
            return self.uses_dynamic_names
        if self.is_exposed(kind) or name in _READING_METHODS:
            return True
        return name == "__call__" and id(kind) in self.callable

    def is_exposed(self, kind: type) -> bool:
        """Return whether code may use an object of a class as such."""
        made = self._exposes_all or self._uses_classes or id(kind) in self.instantiated
        return made or id(kind) in self.exposed or issubclass(kind, type)

    def expose(self, thing: Any, called: bool = False) -> None:
        """Note that code uses an object as such.

        Args:
            thing: The object.
            called: Whether it is only called in place.
        """
        classes = self.callable if called else self.exposed
        classes.update(map(id, type(thing).__mro__[:-1]))


def only_writes(names: Any, name: str, used: set[str]) -> bool:
    """Return whether code only appends to an object of a name, or assigns items of it.

    Args:
        names: The names in the code.
        name: The name.
        used: The names whose objects are used in other ways.
    """
    found = names.next_names.get(name, set())
    appends = found == {"append"} and "append" not in names.ends
    stores = not found and (name in names.stored_into or name in names.appended_items)
    return (appends or stores) and name not in used and name not in names.called


def is_special_name(name: str) -> bool:
    """Return whether a name is of the kind that Python itself reads, as ``__call__``."""
    return name.startswith("__") and name.endswith("__")


def chain_names(chains: Iterable[tuple[str, ...]]) -> set[str]:
    """Return all names in chains of attributes."""
    return {name for chain in chains for name in chain}


def _plain_attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object, without running code of users."""
    if isinstance(thing, type):
        return {}
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return attributes if isinstance(attributes, dict) else {}


def has_user_names(thing: Any) -> bool:
    """Return whether users named the attributes of an object, and not the library that made it."""
    if isinstance(thing, FunctionType):
        return not is_library(defining_module(thing))
    if isinstance(thing, MethodType):  # a method shows the attributes of its function
        return True
    return is_user_defined(thing if isinstance(thing, (type, ModuleType)) else type(thing))


def class_defines(kind: type, name: str) -> bool:
    """Return whether a class or one of its bases defines a name."""
    return any(name in vars(base) for base in kind.__mro__)


def assigns_plainly(kind: type) -> bool:
    """Return whether a class has no rules of its own for assignments to attributes."""
    return not any("__setattr__" in vars(base) for base in kind.__mro__[:-1])


def _is_frozen(kind: type) -> bool:
    """Return whether a class is a frozen dataclass, whose objects are not assigned to."""
    return getattr(vars(kind).get("__dataclass_params__"), "frozen", False) is True
