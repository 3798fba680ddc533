"""Type stubs of ``odyssey.ops`` and ``odyssey.backward``, whose names exist at run time only.

A call with a Variable gives a Variable; one with arrays gives an array. NumPy turns arrays
without axes into scalars, and numbers stay numbers: where that may be, the result is also Any.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odyssey import backward, ops
from odyssey.describe.entries import Entry, entries, signature_of
from odyssey.table.declare import REQUIRED, Row
from tools.reference.hints import Imports, annotated, shown_literal

__all__ = ["ARRAYS", "SEQUENCES", "backward_stub", "operands_of", "ops_stub"]

_WIDTH = 100

# NumPy's and PyTorch's names for arrays: the rows mark theirs, composites only name them.
_NAMES = """
A a ary arr array b bias condition f fill_value fp g indices input k key logits m mask p q query
running_mean running_var start stop targets v value values weight x x1 x2 xp y z
"""
ARRAYS = frozenset(_NAMES.split())
SEQUENCES = frozenset({"arrays", "operands", "tup"})

_HEAD = '''\
"""{title}

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

{imports}

{body}
'''


# ------------------------------------------------------------------ odyssey.ops


def ops_stub() -> str:
    """Return the stub of ``odyssey.ops``."""
    imports = Imports()
    for module, name in (
        ("collections.abc", "Sequence"),
        ("typing", "Any"),
        ("typing", "TypeAlias"),
        ("typing", "overload"),
        ("numpy.typing", "NDArray"),
        ("odyssey.tape", "GradientTape"),
        ("odyssey.variable", "Variable"),
    ):
        imports.add(module, name)
    imports.numpy = True
    for name in ops.__all__:
        value = getattr(ops, name)
        own = inspect.isclass(value) or inspect.isfunction(value)
        imports.add(value.__module__ if own else "odyssey.table.declare", name)
    body = [
        _list("__all__", ops.__all__),
        "",
        "_Scalar: TypeAlias = complex | np.generic",
        "_Array: TypeAlias = NDArray[Any]",
        "# No protocol, as NumPy's ArrayLike is: a Variable can become an array, and must not fit.",
        "_Plain: TypeAlias = _Array | _Scalar | Sequence[Any]",
        "_Operand: TypeAlias = Variable | _Plain",
        "_ArrayOrScalar: TypeAlias = NDArray[Any] | Any",
    ]
    for entry in sorted(entries().values(), key=lambda entry: entry.name):
        body += ["", *_function(entry, imports)]
        body += [f"{alias} = {entry.name}" for alias in entry.aliases]
    title = "The ops: ``od.ops.<name>(arrays..., options..., tape=None)``, with their types."
    return _HEAD.format(title=title, imports=imports.text(), body="\n".join(body))


def operands_of(entry: Entry) -> dict[str, str]:
    """Return the parameters that take arrays, each with its kind.

    The kind is ``"array"``, ``"optional"``, ``"arrays"`` for a sequence, or ``"rest"`` for what
    comes one by one.
    """
    if entry.row is not None and hasattr(entry.function, "__wrapped__"):
        return {n: "optional" if n in entry.row.optional else "array" for n in entry.row.arrays}
    found = {}
    for name, parameter in signature_of(entry).parameters.items():
        if name in SEQUENCES:
            rest = parameter.kind is parameter.VAR_POSITIONAL
            found[name] = "rest" if rest else "arrays"
        elif name in ARRAYS and parameter.annotation in ("Any", "Any | None"):
            found[name] = "optional" if parameter.default is None else "array"
    return found


class _Overload(NamedTuple):
    operands: dict[str, str]  # the types of the operands
    leaf: str  # what stands for Any in the result


_TYPES = {
    "Variable": {
        "array": "Variable",
        "optional": "Variable",
        "arrays": "Variable | Sequence[Variable]",
        "rest": "Variable",
    },
    "plain": {
        "array": "_Plain",
        "optional": "_Plain | None",
        "arrays": "_Array | Sequence[_Array]",
        "rest": "_Array",
    },
    "any": {
        "array": "_Operand",
        "optional": "_Operand | None",
        # Checkers take a list of both kinds for one of objects.
        "arrays": "_Operand | Sequence[object]",
        "rest": "_Operand",
    },
}


def _overloads(entry: Entry) -> Iterator[_Overload]:
    kinds = operands_of(entry)
    result = _plain_result(entry)
    if not kinds:
        yield _Overload({}, "Variable | _ArrayOrScalar")
        return
    if set(kinds.values()) & {"arrays", "rest"}:
        # Of a sequence of both kinds no type says that a Variable is among them.
        for like, leaf in (("Variable", "Variable"), ("plain", result), ("any", "Any")):
            yield _Overload({name: _TYPES[like][kind] for name, kind in kinds.items()}, leaf)
        return
    for k, first in enumerate(kinds):
        likes = ["plain"] * k + ["Variable"] + ["any"] * (len(kinds) - k - 1)
        pairs = zip(kinds.items(), likes, strict=True)
        types = {name: _TYPES[like][kind] for (name, kind), like in pairs}
        assert types[first] == "Variable"
        yield _Overload(types, "Variable")
    if entry.row is not None and entry.row.elementwise:
        yield _Overload(dict.fromkeys(kinds, "_Scalar"), "Any")
    yield _Overload({name: _TYPES["plain"][kind] for name, kind in kinds.items()}, result)


def _plain_result(entry: Entry) -> str:
    """The type of the result on arrays: also Any where an array with axes may give a scalar."""
    if entry.row is None:
        several = str(signature_of(entry).return_annotation).startswith(("list", "tuple"))
        return "_Array" if several else "_ArrayOrScalar"
    rng = np.random.default_rng(0)
    for case in entry.row.samples:
        operands = case.arrays(rng)
        result = entry.row.call(*operands, **case.options)
        if all(np.ndim(o) for o in operands) and not isinstance(result, np.ndarray):
            return "_ArrayOrScalar"
    return "_Array" if entry.row.samples else "_ArrayOrScalar"


def _function(entry: Entry, imports: Imports) -> Iterator[str]:
    overloads = list(_overloads(entry))
    for k, overload in enumerate(overloads):
        if len(overloads) > 1:
            yield "@overload"
        docstring = f'    """{entry.meaning}"""'.replace("\\", "\\\\") if k == 0 else ""
        yield from _definition(
            entry.name,
            _parameters(entry, overload, imports),
            _result(entry, overload, imports),
            docstring,
        )


def _parameters(entry: Entry, overload: _Overload, imports: Imports) -> list[str]:
    texts = []
    for p in signature_of(entry).parameters.values():
        if p.name in overload.operands:
            hint = overload.operands[p.name]
            p = p.replace(default=p.empty if hint == "Variable" else p.default)
        elif p.name == "tape":
            hint = "GradientTape | None"
        else:
            hint = annotated(entry.function, p, imports)
        texts.append((p, hint))
    return _in_order(texts)


def _in_order(typed: list[tuple[inspect.Parameter, str]]) -> list[str]:
    """Parameters as text, with the ``/`` and ``*`` between their kinds."""
    texts: list[str] = []
    star = False
    for k, (p, hint) in enumerate(typed):
        if p.kind is p.VAR_POSITIONAL:
            texts.append(f"*{p.name}: {hint}")
            star = True
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            texts.append("*")
            star = True
        default = "" if p.default is p.empty else f" = {shown_literal(p.default)}"
        texts.append(f"{p.name}: {hint}{default}")
        following = typed[k + 1][0].kind if k + 1 < len(typed) else None
        if p.kind is p.POSITIONAL_ONLY and following is not p.POSITIONAL_ONLY:
            texts.append("/")
    return texts


def _result(entry: Entry, overload: _Overload, imports: Imports) -> str:
    """The annotated result with the overload's type in the place of Any."""
    returns = signature_of(entry).return_annotation
    if entry.row is not None or returns in ("Any", inspect.Signature.empty):
        return overload.leaf
    hint = imports.rendered(imports.evaluated(returns, entry.function))
    return hint.replace("Any", overload.leaf)


# ------------------------------------------------------------------ odyssey.backward


def backward_stub() -> str:
    """Return the stub of ``odyssey.backward``."""
    imports = Imports()
    for module, name in (
        ("collections.abc", "Callable"),
        ("collections.abc", "Mapping"),
        ("typing", "Any"),
        ("typing", "TypeAlias"),
        ("numpy.typing", "ArrayLike"),
        ("numpy.typing", "NDArray"),
    ):
        imports.add(module, name)
    body = [
        _list("__all__", backward.__all__),
        "",
        "_Array: TypeAlias = NDArray[Any]",
        "",
        "TABLE: Mapping[str, Callable[..., Any]]",
    ]
    for name in sorted(backward.TABLE):
        row = ops.OPS[name]
        body += ["", *_backward(row, imports), *(f"{alias} = {name}" for alias in row.aliases)]
    title = "The backward functions of all ops, ``od.backward.<op>(g, ...)``, with their types."
    return _HEAD.format(title=title, imports=imports.text(), body="\n".join(body))


def _backward(row: Row, imports: Imports) -> Iterator[str]:
    options = inspect.signature(inspect.unwrap(row.reference)).parameters
    defaults = dict(zip(row.options, row.defaults, strict=True))
    texts = ["g: ArrayLike"]
    optional = False
    for name in row.asks:
        hint, none = "ArrayLike", name in row.optional
        if none:
            hint, optional = "ArrayLike | None", True
        elif name.endswith("_spec") and name not in row.options:
            imports.add("odyssey.spec", "Spec")
            hint, optional = "Spec", True  # read from the operand where that is given by name
        elif name in row.options:
            hint = annotated(row.reference, options[name], imports)
            optional = optional or defaults[name] is not REQUIRED
        default = defaults.get(name, None if none else REQUIRED)
        shown = "..." if default is REQUIRED else shown_literal(default)
        texts.append(f"{name}: {hint} = {shown}" if optional else f"{name}: {hint}")
    unasked = [f"{name}: ArrayLike = ..." for name in row.arrays if name not in row.asks]
    texts += ["*", *unasked] if unasked else []
    results = [name for name, rule in row.vjp.items() if rule]
    kinds = ["_Array | None" if name in row.optional else "_Array" for name in results]
    docstring = f'    """The gradients of ``{row.name}`` in {", ".join(results)}."""'
    returns = kinds[0] if len(results) == 1 else f"tuple[{', '.join(kinds)}]"
    yield from _definition(row.name, texts, returns, docstring)


# ------------------------------------------------------------------ layout


def _definition(name: str, parameters: list[str], returns: str, docstring: str) -> Iterator[str]:
    line = f"def {name}({', '.join(parameters)}) -> {returns}:"
    end = "" if docstring else " ..."
    if len(line + end) <= _WIDTH:
        yield line + end
    else:
        yield f"def {name}("
        yield from (f"    {parameter}," for parameter in parameters)
        yield f") -> {returns}:{end}"
    if docstring:
        yield docstring


def _list(name: str, values: list[str]) -> str:
    return "\n".join([f"{name} = [", *(f'    "{value}",' for value in values), "]"])
