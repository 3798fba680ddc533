"""The ways to call an op, as types: overloads over what its operands may be.

A call with a Variable, or a Symbol, gives one of its own kind; one with arrays gives an array.
NumPy turns arrays without axes into scalars, and numbers stay numbers: where that may be, the
result is also Any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odyssey.describe.entries import Entry, signature_of

__all__ = ["ARRAYS", "SEQUENCES", "TYPES", "Overload", "operands_of", "overloads"]

# NumPy's and PyTorch's names for arrays: the rows mark theirs, composites only name them.
_NAMES = """
A a anchor ar arr array ary b bias concentration condition d data f fill_value fp g high ind indices
input k key log_probabilities log_rates logits low m mask mean means negatives p positives
predictions q query running_mean running_var segment_ids source start std stop targets theta v
value values variances weight weights x x1 x2 xp y z
"""
ARRAYS = frozenset(_NAMES.split())
SEQUENCES = frozenset(
    {"arrays", "choicelist", "choices", "condlist", "operands", "tup", "args", "xi"}
)

TYPES = """\
Scalar: TypeAlias = complex | np.generic
Array: TypeAlias = NDArray[Any]
# No protocol, as NumPy's ArrayLike is: a Variable can become an array, and must not fit.
Plain: TypeAlias = Array | Scalar | Sequence[Any]
Operand: TypeAlias = Value | Symbol | Plain
ArrayOrScalar: TypeAlias = Array | Any
V = TypeVar("V", bound=Value | Symbol)\
"""
"""What the types of operands and results are called in the stubs."""

_LIKE = {
    "V": {"array": "V", "optional": "V", "arrays": "V | Sequence[V]", "rest": "V"},
    "plain": {
        "array": "Plain",
        "optional": "Plain | None",
        "arrays": "Array | Sequence[Array]",
        "rest": "Array",
    },
    "any": {
        "array": "Operand",
        "optional": "Operand | None",
        # Checkers take a list of both kinds for one of objects.
        "arrays": "Operand | Sequence[object]",
        "rest": "Operand",
    },
}


class Overload(NamedTuple):
    """One way to call an op."""

    operands: dict[str, str]  # the types of the operands
    leaf: str  # what stands for Any in the result


def operands_of(entry: Entry) -> dict[str, str]:
    """Return the parameters that take arrays, each with its kind.

    The kind is ``"array"``, ``"optional"``, ``"arrays"`` for a sequence, or ``"rest"`` for what
    comes one by one.
    """
    if entry.row is not None and entry.row.layout.variadic:
        return {entry.row.layout.variadic: "arrays"}
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


def overloads(entry: Entry) -> Iterator[Overload]:
    """Yield the ways to call an op: with the first operand a Variable, with the second, with none.

    Where operands come in a sequence no type says that a Variable is among them.
    """
    kinds = operands_of(entry)
    result = _plain_result(entry)
    if not kinds:
        yield Overload({}, "ArrayOrScalar")
        return
    if set(kinds.values()) & {"arrays", "rest"}:
        for like, leaf in (("V", "V"), ("plain", result), ("any", "Any")):
            yield Overload({name: _LIKE[like][kind] for name, kind in kinds.items()}, leaf)
        return
    for k in range(len(kinds)):
        likes = ["plain"] * k + ["V"] + ["any"] * (len(kinds) - k - 1)
        pairs = zip(kinds.items(), likes, strict=True)
        yield Overload({name: _LIKE[like][kind] for (name, kind), like in pairs}, "V")
    if entry.row is not None and entry.row.elementwise:
        yield Overload(dict.fromkeys(kinds, "Scalar"), "Any")
    yield Overload({name: _LIKE["plain"][kind] for name, kind in kinds.items()}, result)


def _plain_result(entry: Entry) -> str:
    """The type of the result on arrays: also Any where an array with axes may give a scalar."""
    if entry.row is None:
        several = str(signature_of(entry).return_annotation).startswith(("list", "tuple"))
        return "Array" if several else "ArrayOrScalar"
    rng = np.random.default_rng(0)
    for case in entry.row.samples:
        operands = case.arrays(rng)
        made = entry.row.call(*operands, **case.options)
        results = (made,) if entry.row.pack_results is None else made
        if all(np.ndim(o) for o in operands) and not all(
            isinstance(r, np.ndarray) for r in results
        ):
            return "ArrayOrScalar"
    return "Array" if entry.row.samples else "ArrayOrScalar"
