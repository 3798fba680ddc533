"""Type stubs of the rooms of ops, whose names exist at run time only, a stub for each room.

Where three ops or more have one signature, names of parameters included, it is a protocol in
``odyssey/table/signatures.pyi``; the others are written out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from odyssey.describe.entries import Entry, entries, find, signature_of
from tools.reference.hints import Imports, annotated
from tools.reference.layout import HEAD, definition, in_order, listed
from tools.reference.overloads import TYPES, Overload, overloads

__all__ = ["room_stub", "signatures_stub"]

_SIGNATURES = "odyssey.table.signatures"
_ROOMS = ("fft", "linalg", "losses", "nn", "special")

# The names of signatures, and an op that has each.
_SHAPES = {
    "Unary": "exp",
    "Binary": "add",
    "Fold": "sum",
    "Product": "matmul",
    "Stacking": "vstack",
    "Loss": "mean_squared_error",
    "NanFold": "nansum",
    "Scattering": "scatter",
    "MatrixFunction": "inv",
    "Transform": "fft",
    "TwoDimensionalTransform": "fft2",
    "MultidimensionalTransform": "fftn",
    "Convolution": "conv1d",
    "TransposedConvolution": "conv_transpose1d",
    "MaxPooling": "max_pool1d",
    "AveragePooling": "avg_pool1d",
    "Unpooling": "max_unpool1d",
    "Dropout": "dropout",
}
_TYPE_NAMES = ("Array", "ArrayOrScalar", "Operand", "Plain", "Scalar", "V")


def signatures_stub() -> str:
    """Return the stub of the signatures that several ops share."""
    imports = Imports()
    for module, name in (
        ("collections.abc", "Sequence"),
        ("typing", "Any"),
        ("typing", "Protocol"),
        ("typing", "TypeAlias"),
        ("typing", "TypeVar"),
        ("typing", "overload"),
        ("numpy.typing", "NDArray"),
        ("odyssey.table.protocols", "Tape"),
        ("odyssey.table.value", "Symbol"),
        ("odyssey.table.value", "Value"),
    ):
        imports.add(module, name)
    imports.numpy = True
    body = [TYPES]
    for shape, name in _SHAPES.items():
        calls = list(_definitions(_entry(name), imports, "__call__", indent="    "))
        doc = f'    """Signature of ``{name}`` and others."""'
        body += ["", f"class {shape}(Protocol):", doc, "", *calls]
    title = "How ops are called, for type checkers; no module of this name exists at run time."
    return HEAD.format(title=title, imports=imports.text(), body="\n".join(body))


_Typed = tuple[inspect.Parameter, str]


def room_stub(room: str) -> str:
    """Return the stub of a room: of its own ops, and of ``odyssey.ops`` all others as well."""
    imports = Imports()
    face = import_module(f"odyssey.{room}")
    own = {entry.name: entry for entry in _own(room)}
    body: list[str] = []
    for name in sorted(own):
        body += _of_entry(own[name], imports)
        body += _aliases(own[name])
    for name in getattr(face, "OTHERS", ()):
        body += _of_entry(find(name), imports, name)
    for name in face.__all__:
        if name not in own:
            value = getattr(face, name)
            known = inspect.isclass(value) or inspect.isfunction(value)
            home = value.__module__ if known else "odyssey.table.declare"
            imports.add(vars(face).get("_HOMES", {}).get(name, home), name)
    others = [entry for entry in entries().values() if entry.name not in own]
    for entry in others if room == "ops" else ():
        imports.add(f"odyssey.{_room_of(entry)}", "*")
        body += _aliases(entry)
    text = "\n".join(body)
    for name in _TYPE_NAMES:
        if any(f"{before}{name}{after}" in text for before in " [" for after in ",)]: "):
            imports.add(_SIGNATURES, name)
    title = (face.__doc__ or "").partition("\n")[0]
    text = "\n".join([listed("__all__", face.__all__), "", text.lstrip("\n")])
    return HEAD.format(title=title, imports=imports.text(), body=text)


def _aliases(entry: Entry) -> list[str]:
    return [f"{alias} = {entry.name}" for alias in entry.aliases]


def _room_of(entry: Entry) -> str:
    """The room whose face has an op; where none has it, it is an attribute of ``ops`` alone."""
    room = entry.module.split(".")[1]
    return room if entry.name in import_module(f"odyssey.{room}").__all__ else "ops"


def _own(room: str) -> Iterator[Entry]:
    yield from (entry for entry in entries().values() if _room_of(entry) == room)
    if room == "losses":
        face = import_module("odyssey.losses")
        yield from (_entry(name) for name in face.__all__ if _is_loss(getattr(face, name)))


def _is_loss(function: object) -> bool:
    return inspect.isfunction(function) and function.__annotations__["return"] == "Any"


def _entry(name: str) -> Entry:
    """The entry of an op, or one made for a loss, which is a function that takes no tape."""
    if name in entries():
        return entries()[name]
    function = getattr(import_module("odyssey.losses"), name)
    return Entry(name, (), function.__module__, function, None)


def _of_entry(entry: Entry, imports: Imports, name: str = "") -> Iterator[str]:
    name = name or entry.name
    meaning = entry.meaning.replace("\\", "\\\\")
    shape = _shapes().get(_key(entry))
    if shape:
        imports.add(_SIGNATURES, shape)
        yield from (f"{name}: {shape}", f'"""{meaning}"""')
    else:
        yield from ("", *_definitions(entry, imports, name, meaning))


@cache
def _shapes() -> dict[object, str]:
    return {_key(_entry(name)): shape for shape, name in _SHAPES.items()}


def _key(entry: Entry) -> object:
    """Return a key of an op's overloads: the text of each, names of all parameters among it."""
    return tuple(
        (*_parameters(entry, way, Imports()), _result(entry, way, Imports()))
        for way in overloads(entry)
    )


# ------------------------------------------------------------------ one op, written out


def _signature(entry: Entry) -> dict[str, inspect.Parameter]:
    function = entry.function
    of_table = entry.name in entries()
    signature = signature_of(entry) if of_table else inspect.signature(function)
    return dict(signature.parameters)


def _definitions(
    entry: Entry, imports: Imports, name: str, docstring: str = "", *, indent: str = ""
) -> Iterator[str]:
    ways = list(overloads(entry))
    for k, way in enumerate(ways):
        if len(ways) > 1:
            yield f"{indent}@overload"
        yield from definition(
            name,
            [*(["self"] if indent else []), *_parameters(entry, way, imports)],
            _result(entry, way, imports),
            "" if k else docstring,
            indent=indent,
        )


def _parameters(entry: Entry, way: Overload, imports: Imports) -> list[str]:
    typed: list[_Typed] = []
    for p in _signature(entry).values():
        if p.name in way.operands:
            hint = way.operands[p.name]
            p = p.replace(default=p.empty if hint == "V" else p.default)
        elif p.name == "tape":
            imports.add("odyssey.table.protocols", "Tape")
            hint = "Tape | None"
        else:
            hint = annotated(entry.function, p, imports)
        typed.append((p, hint))
    if len(list(overloads(entry))) > 1:
        imports.add("typing", "overload")
    return in_order(_without_gaps(typed))


def _without_gaps(typed: list[_Typed]) -> list[_Typed]:
    """Take the defaults of operands that come by position before one that must come."""
    last = max((k for k, (p, _) in enumerate(typed) if _must_come(p)), default=0)
    before = [(p.replace(default=p.empty), hint) for p, hint in typed[:last]]
    return before + typed[last:]


def _must_come(p: inspect.Parameter) -> bool:
    positional = p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    return positional and p.default is p.empty


def _result(entry: Entry, way: Overload, imports: Imports) -> str:
    """The annotated result with the overload's type in the place of Any."""
    returns = signature_of(entry).return_annotation
    if entry.row is not None or returns in ("Any", inspect.Signature.empty):
        if way.leaf == "Any":
            imports.add("typing", "Any")
        several = entry.row is not None and entry.row.pack_results is not None
        count = len(entry.row.results) if entry.row is not None else 1
        return f"tuple[{', '.join([way.leaf] * count)}]" if several else way.leaf
    hint = imports.rendered(imports.evaluated(returns, entry.function))
    return hint.replace("Any", way.leaf)
