"""What a function's code asks of Python: globals, attributes, modules by dotted names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from odyssey.compiler.guards.effects import defining_module, is_library
from odyssey.transforms.replay import is_user_defined

__all__ = [
    "CodeNames",
    "names_of_code",
    "INERT_NAMES",
    "ReachedNames",
    "chain_names",
    "class_defines",
]


_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR"}
_LOCALS = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}
_STEPS = {"LOAD_ATTR", "LOAD_METHOD"}
_FILLERS = {"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL"}
# Two steps that Pythons from 3.13 on write as one.
_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST_BORROW", "LOAD_FAST_BORROW"),
}
_FORMATS = {"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"}

# By these a function reads attributes whose names are nowhere in its code.
_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr", "vars", "dir"}
_BY_TEXT_OF = {
    *("__dict__", "__getattribute__", "__setattr__", "__reduce__", "__reduce_ex__"),
    *("format", "format_map"),  # "{0.scale}".format(net)
}
_OF_ONE = {"getattr", "hasattr", "setattr", "delattr"}
_SIMPLE = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CONST"}
_ASSIGNS = {"STORE_ATTR", "DELETE_ATTR", "setattr", "delattr", "__setattr__", "__delattr__"}
_COMPARES = {"IS_OP", "COMPARE_OP"}
_MATCHES = {"MATCH_CLASS", "MATCH_KEYS"}


@dataclass(slots=True)
class CodeNames:
    """The names in the code of a function, and of those written inside it.

    Attributes:
        chains: For each global, cell or module by which a chain of attributes begins, these
            chains: ``np.linalg.norm(np)`` gives ``{"np": {("linalg", "norm"), ()}}``.
        arguments: The same for the first argument, where it stays what it is.
        globals: The names that are looked up in the module.
        attributes: All names of attributes, of whatever object.
        loose: Those of objects that no name leads to: of results, items and other arguments.
        stored: What is assigned besides arguments: attributes, globals, names of inner functions.
        stores: Whether attributes are assigned.
        imports: The modules that are imported, each with its level.
        by_text: Whether attributes may be read whose names are not in the code.
        caught: Whether something goes on after an error: a name that is missing may then matter.
        formats: Whether objects are written out.
        kinds: Whether classes are made, or asked of objects: ``type(x)``, ``x.__class__``.
        types: Whether that is asked of an argument but ``self``, or of what was computed.
        identities: Whether things are told apart by what they are, by ``is``, but for None.
        told: Whether objects are asked whether they are of a class.
    """

    chains: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    arguments: set[tuple[str, ...]] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    loose: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    imports: set[tuple[str, Any]] = field(default_factory=set)
    by_text: bool = False
    caught: bool = False
    stores: bool = False
    formats: bool = False
    kinds: bool = False
    types: bool = False
    identities: bool = False
    told: bool = False


@lru_cache(maxsize=1024)
def names_of_code(code: CodeType) -> CodeNames:
    """Read a code object, and those of the functions within; nobody changes what it returns."""
    reads = CodeNames()
    for one in _codes(code):
        _scan_code(one, reads, first=_first_argument(one) if one is code else None)
        if one is not code:  # whose names may be those of others outside
            reads.stored.update(one.co_cellvars)
    named = reads.globals
    reads.by_text |= not reads.attributes.isdisjoint(_BY_TEXT_OF)
    reads.formats |= not named.isdisjoint({"str", "repr", "format", "ascii"})
    reads.kinds |= "__func__" in reads.attributes
    reads.told |= not named.isdisjoint({"isinstance", "issubclass"})
    return reads


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _first_argument(code: CodeType) -> str | None:
    return code.co_varnames[0] if code.co_argcount else None


def _scan_code(code: CodeType, reads: CodeNames, first: str | None) -> None:
    named, steps = _steps(code)
    handlers, led = 0, -1  # up to where names lead
    rebound = any("STORE_FAST" in s.opname and s.argval == first for s in steps)
    for k, step in enumerate(steps):
        name, what = step.opname, step.argval
        if name == "PUSH_EXC_INFO":
            handlers += 1
        elif name == "WITH_EXCEPT_START":
            handlers -= 1
        reads.formats |= name in _FORMATS
        reads.kinds |= name == "LOAD_BUILD_CLASS"
        reads.by_text |= name in _MATCHES
        reads.told |= name == "MATCH_CLASS"
        if (what == "__class__" and name in _STEPS) or (what == "type" and name == "LOAD_GLOBAL"):
            reads.kinds |= not _is_compared(steps, k)
            reads.types |= what == "type" and _is_local(steps[k + 1])
        reads.identities |= name == "IS_OP" and not any(map(_is_no_number, steps[k - 2 : k]))
        reads.stores |= name in _ASSIGNS or what in _ASSIGNS
        if name.startswith(("STORE_", "DELETE_")) and "FAST" not in name and isinstance(what, str):
            reads.stored.add(what)
        if name == "IMPORT_NAME":
            reads.imports.add((what, steps[k - 2].argval))
        elif name in _GLOBALS:
            reads.globals.add(what)
            if what in _BY_TEXT:
                _read_by_text(steps, k, reads)
        elif name in _ATTRIBUTES or name == "IMPORT_FROM":
            reads.attributes.add(what)
            if k > led:
                reads.loose.add(what)
            continue
        elif name in named:  # of a Python to come
            reads.globals.add(what)
            reads.attributes.add(what)
            reads.loose.add(what)
        elif name in _LOCALS and what == first and not rebound:
            chain = _attribute_chain(steps, k + 1)
            reads.arguments.add(chain)
            led = k + len(chain)
            continue
        elif not name.endswith("DEREF"):
            continue
        chain, chains = _attribute_chain(steps, k + 1), reads.chains.setdefault(what, set())
        led = k + len(chain)
        if not _is_quiet(chain, steps[k + 1 + len(chain) :]):
            chains.add(chain)
    # A ``with`` block has one handler, which raises on; ``finally`` passes for catching here.
    reads.caught |= handlers > 0


def _steps(code: CodeType) -> tuple[set[str], list[Any]]:
    """The steps that are named by names, and those of a code object, each of one thing."""
    import dis  # when first needed: it is not among what the package loads

    steps: list[Any] = []
    for step in dis.get_instructions(code):
        if pair := _PAIRS.get(step.opname):
            parts = zip(pair, step.argval, strict=True)
            steps += [step._replace(opname=name, argval=what) for name, what in parts]
        elif step.opname not in _FILLERS:
            steps.append(step)
    return {dis.opname[k] for k in dis.hasname}, steps


def _is_quiet(chain: tuple[str, ...], steps: list[Any]) -> bool:
    """Whether this is ``np.errstate(all="ignore")``: what is compiled raises nothing anyway."""
    if not chain or chain[-1] != "errstate":
        return False
    for step in steps:
        if step.opname.startswith("CALL"):
            return True
        kept = step.opname == "KW_NAMES" or isinstance(step.argval, tuple)
        if not kept and (step.opname != "LOAD_CONST" or step.argval != "ignore"):
            return False
    return False


def _read_by_text(steps: list[Any], k: int, reads: CodeNames) -> None:
    """Read a call such as ``getattr(self.net, "scale", 1.0)``, where the code has the name."""
    word = None
    if steps[k].argval in _OF_ONE and (k := _behind(steps, k + 1)):
        word = steps[k].argval if steps[k].opname == "LOAD_CONST" else None
        k += 1
        if steps[k].opname != "CALL":  # of a third argument, and not of an f-string, say
            k = _behind(steps, k)
        word = word if k and steps[k].opname == "CALL" else None
    if isinstance(word, str):
        reads.attributes.add(word)
        reads.loose.add(word)
        reads.caught = True
    else:
        reads.by_text = True


def _is_no_number(step: Any) -> bool:
    """Whether a step takes up ``self``, a class, or None or its like, which no number is."""
    if step.opname in _STEPS and step.argval == "__class__":
        return True
    if "FAST" in step.opname and step.argval == "self":
        return True
    singles = (None, True, False, ...)
    return step.opname == "LOAD_CONST" and any(step.argval is one for one in singles)


def _is_local(step: Any) -> bool:
    """Whether a step takes up what a trace may have made: no global, no cell, not ``self``."""
    return step.opname not in ("LOAD_GLOBAL", "LOAD_DEREF") and step.argval != "self"


def _is_compared(steps: list[Any], k: int) -> bool:
    """Whether a class, of ``x.__class__`` or ``type(x)``, is compared or told, and not called."""
    if steps[k].opname == "LOAD_GLOBAL":
        k = _behind(steps, k + 1)
        if not k or steps[k].opname != "CALL":
            return False
    if steps[k + 1].opname in _COMPARES or steps[k + 1].argval in ("__name__", "__qualname__"):
        return True
    return steps[_behind(steps, k + 1)].opname in _COMPARES


def _behind(steps: list[Any], k: int) -> int:
    """The step behind a name, a number, or a chain of attributes; 0 for anything else."""
    if steps[k].opname not in _SIMPLE:
        return 0
    k += 1
    while steps[k].opname in _STEPS:
        k += 1
    return k


def _attribute_chain(steps: list[Any], start: int) -> tuple[str, ...]:
    names = []
    for step in steps[start:]:
        if step.opname not in _STEPS:
            break
        names.append(step.argval)
    return tuple(names)


# What Python itself asks of classes only where objects are written out, made, or copied.
_WRITTEN = {"__repr__", "__str__", "__format__"}
_MADE = {"__init__", "__new__", "__init_subclass__", "__set_name__", "__del__"}
_SET = {"__setattr__", "__delattr__", "__set__", "__delete__"}
_COPIED = {
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__"),
    *("__getnewargs__", "__getnewargs_ex__", "__sizeof__", "__dir__", "__replace__"),
}
# What says something of a class that no code does with.
INERT_NAMES = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    *("__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"),
    *("__firstlineno__", "__static_attributes__", "__abstractmethods__", "__parameters__"),
    *("__orig_bases__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"),
    "_abc_impl",
}


class ReachedNames:
    """The names in the code that a walk has found so far.

    Attributes:
        names: Those of attributes, but for what the code asks of objects of libraries alone.
        spoken: Those of all attributes.
        selves: What the methods of a class, by its id, ask of their first argument.
        passed: The names on the way to what is asked.
        by_text: Whether the code may read attributes by names that are not in it.
        caught: Whether it goes on after errors, so that what is missing matters.
        identities: Whether it tells things apart by ``is``.
        told: Whether it asks objects whether they are of a class.
        owners: The class of a function, by its id, that is a method and nothing else.
        objects: The objects that were met, each with what was asked of it as a first argument.
        made: The ids of the classes of which the code may make objects.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.spoken: set[str] = set()
        self.selves: dict[int, set[tuple[str, ...]]] = {}
        self.passed: set[str] = set()
        self.by_text = self.caught = self.identities = self.told = False
        self.owners: dict[int, type] = {}
        self.objects: list[tuple[Any, set[tuple[str, ...]]]] = []
        self.made: set[int] = set()
        self._stored: set[str] = set()
        self._formats = self._kinds = self._stores = False

    def learn(self, reads: CodeNames) -> None:
        """Let names of attributes matter from now on."""
        self.names |= reads.loose
        self.spoken |= reads.attributes
        self._stored |= reads.stored
        self.by_text |= reads.by_text
        self.caught |= reads.caught
        self.identities |= reads.identities
        self.told |= reads.told
        self._formats |= reads.formats
        self._kinds |= reads.kinds
        self._stores |= reads.stores

    def ask(self, thing: Any, chain: tuple[str, ...]) -> None:
        """Note what the code asks of a thing: ``self.optimizer.step`` is no matter of ``self``."""
        for k, name in enumerate(chain):
            if isinstance(thing, ModuleType):
                self.names.update(chain[k:])
                return
            if has_user_names(thing):
                self.names.add(name)
            room = _room_of(thing)
            if name not in room or class_defines(type(thing), name):
                self.names.update(chain[k + 1 :])
                return
            if chain[k + 1 :]:
                self.passed.add(name)
            thing = room[name]

    def owner_of(self, function: Any) -> type | None:
        """The class that a function is a method of, and nothing else; or None."""
        return self.owners.get(id(function))

    def disown(self, thing: Any) -> None:
        """Take a function for one whose first argument may be anything."""
        if self.owners.pop(id(thing), None) is not None and isinstance(thing, FunctionType):
            self.names.update(chain_names(names_of_code(thing.__code__).arguments))

    def ask_selves(self) -> None:
        """Ask objects for what the methods of their classes ask of ``self``."""
        for thing, asked in self.objects:
            for base in type(thing).__mro__:
                for chain in self.selves.get(id(base), set()) - asked:
                    asked.add(chain)
                    self.ask(thing, chain)
        for owner, chains in self.selves.items():
            if owner in self.made or self._kinds:  # there are others
                self.names.update(chain_names(chains))
        if not self.passed.isdisjoint(self._stored):  # there may be something else for a while
            self.names |= self.spoken

    def is_read(self, name: str) -> bool:
        """Whether the code may read an attribute of this name."""
        return self.by_text or name in self.names

    def is_asked(self, name: str, kind: type) -> bool:
        """Whether the code, or Python for it, may ask a class for this name."""
        if name in INERT_NAMES or (name in _SET and _is_frozen(kind)):
            return False
        if name in self.names:
            return True
        if not (name.startswith("__") and name.endswith("__")):
            return self.by_text
        if name in _MADE:
            return id(kind) in self.made or self._kinds
        if name in _WRITTEN:
            return self._formats
        if name in _SET:
            return self._stores or self.by_text
        return name not in _COPIED or self.by_text


def chain_names(chains: Iterable[tuple[str, ...]]) -> set[str]:
    """All names in chains of attributes."""
    return {name for chain in chains for name in chain}


def _room_of(thing: Any) -> dict[str, Any]:
    """The attributes of an object; no code of users is asked for them."""
    if isinstance(thing, type):
        return {}
    try:
        room = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return room if isinstance(room, dict) else {}


def has_user_names(thing: Any) -> bool:
    """Whether the names of a thing are those that users gave: not of what a library made."""
    if isinstance(thing, FunctionType):
        return not is_library(defining_module(thing))
    if isinstance(thing, MethodType):  # which shows the names of its function
        return True
    return is_user_defined(thing if isinstance(thing, (type, ModuleType)) else type(thing))


def class_defines(kind: type, name: str) -> bool:
    """Whether a class, or one that it is made from, has something by a name."""
    return any(name in vars(base) for base in kind.__mro__)


def _is_frozen(kind: type) -> bool:
    """Whether a class is a frozen dataclass, to whose objects nothing is assigned."""
    return getattr(vars(kind).get("__dataclass_params__"), "frozen", False) is True
