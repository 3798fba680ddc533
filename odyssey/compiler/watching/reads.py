"""What a function's code asks of Python: globals, attributes, modules by dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

__all__ = ["Reads", "reads_of"]

_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR"}
_STEPS = {"LOAD_ATTR", "LOAD_METHOD"}
_FILLERS = {"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL"}
_FORMATS = {"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"}

# By these a function reads attributes whose names are nowhere in its code.
_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr", "vars", "dir"}
_BY_TEXT_OF = {
    *("__dict__", "__getattribute__", "__setattr__", "__reduce__", "__reduce_ex__"),
    *("format", "format_map"),  # "{0.scale}".format(net)
}
_OF_ONE = {"getattr", "hasattr", "setattr", "delattr"}
_SIMPLE = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CONST"}
_MATCHES = {"MATCH_CLASS", "MATCH_KEYS"}


@dataclass(slots=True)
class Reads:
    """The names in the code of a function, and of those written inside it.

    Attributes:
        chains: For each global, cell or module by which a chain of attributes begins, these
            chains: ``np.linalg.norm(np)`` gives ``{"np": {("linalg", "norm"), ()}}``.
        globals: The names that are looked up in the module.
        attributes: All names of attributes, of whatever object.
        imports: The modules that are imported, each with its level.
        by_text: Whether attributes may be read whose names are not in the code.
        caught: Whether something goes on after an error: a name that is missing may then matter.
        formats: Whether objects are written out.
        kinds: Whether classes are made, or asked of objects: ``type(x)``, ``x.__class__``.
    """

    chains: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    imports: set[tuple[str, Any]] = field(default_factory=set)
    by_text: bool = False
    caught: bool = False
    formats: bool = False
    kinds: bool = False


def reads_of(code: CodeType) -> Reads:
    """Read a code object, and those of the functions within."""
    reads = Reads()
    for one in _codes(code):
        _read(one, reads)
    named = reads.globals
    reads.by_text |= not reads.attributes.isdisjoint(_BY_TEXT_OF)
    reads.formats |= not named.isdisjoint({"str", "repr", "format", "ascii"})
    reads.kinds |= "type" in named or "__class__" in reads.attributes
    return reads


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _read(code: CodeType, reads: Reads) -> None:
    import dis  # when first needed: it is not among what the package loads

    named = {dis.opname[k] for k in dis.hasname}
    steps = [step for step in dis.get_instructions(code) if step.opname not in _FILLERS]
    handlers = 0
    for k, step in enumerate(steps):
        name, what = step.opname, step.argval
        if name == "PUSH_EXC_INFO":
            handlers += 1
        elif name == "WITH_EXCEPT_START":
            handlers -= 1
        reads.formats |= name in _FORMATS
        reads.kinds |= name == "LOAD_BUILD_CLASS"
        reads.by_text |= name in _MATCHES
        if name == "IMPORT_NAME":
            reads.imports.add((what, steps[k - 2].argval))
        elif name in _GLOBALS:
            reads.globals.add(what)
            if what in _BY_TEXT:
                _read_by_text(steps, k, reads)
        elif name in _ATTRIBUTES or name == "IMPORT_FROM":
            reads.attributes.add(what)
            continue
        elif name in named:  # of a Python to come
            reads.globals.add(what)
            reads.attributes.add(what)
        elif not name.endswith("DEREF"):
            continue
        reads.chains.setdefault(what, set()).add(_chain(steps, k + 1))
    # A ``with`` block has one handler, which raises on; ``finally`` passes for catching here.
    reads.caught |= handlers > 0


def _read_by_text(steps: list[Any], k: int, reads: Reads) -> None:
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
        reads.caught = True
    else:
        reads.by_text = True


def _behind(steps: list[Any], k: int) -> int:
    """The step behind a name, a number, or a chain of attributes; 0 for anything else."""
    if steps[k].opname not in _SIMPLE:
        return 0
    k += 1
    while steps[k].opname in _STEPS:
        k += 1
    return k


def _chain(steps: list[Any], start: int) -> tuple[str, ...]:
    names = []
    for step in steps[start:]:
        if step.opname not in _STEPS:
            break
        names.append(step.argval)
    return tuple(names)
