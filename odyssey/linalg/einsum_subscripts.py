"""Einsum subscripts: parsing, validation and the plan of pairwise contractions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import format_value
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.spec import Shape

__all__ = [
    "OperandPlan",
    "ContractionPlan",
    "EinsumPlan",
    "subscripts_as_text",
    "parse_contraction",
    "plan_einsum",
]


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

# ------------------------------------------------------------------ pairwise contraction


class ContractionPlan(NamedTuple):
    """Transpositions that turn a contraction of two arrays into a matrix product."""

    terms: tuple[str, str, str]  # the letters of x, y and the result
    shared_axes: tuple[tuple[int, int], ...]  # axes of x and y that must have equal lengths
    permutations: tuple[Any, Any, Any]  # of the axes of x, y and the result; None: identity
    letter_counts: tuple[int, int, int]  # in all terms, in x and the result, in x and y
    is_matmul: bool  # one summed axis, operands of at most two axes


def parse_contraction(subscripts: str) -> ContractionPlan:
    """Parse the subscripts of a contraction of two arrays.

    Raises:
        ShapeError: if a letter does not occur once in exactly two or in all three terms.
    """
    inputs, arrow, out = subscripts.partition("->")
    x, comma, y = inputs.partition(",")
    terms = (x, y, out)
    letters = "".join(terms)
    once = all(len(set(term)) == len(term) for term in terms)
    paired = all(letters.count(letter) > 1 for letter in letters)
    if not (arrow and comma and once and paired and (letters.isalpha() or not letters)):
        raise ShapeError(
            f"contract: subscripts={subscripts!r}; write 'ab,bc->ac', where each letter occurs "
            "once in a term, and in two terms or in all three"
        )
    batch = [c for c in out if c in x and c in y]
    left = [c for c in out if c not in y]
    right = [c for c in out if c not in x]
    summed = [c for c in x if c not in out]
    return ContractionPlan(
        terms,
        tuple((i, y.index(c)) for i, c in enumerate(x) if c in y),
        (
            _permutation(x, [*batch, *left, *summed]),
            _permutation(y, [*batch, *summed, *right]),
            _permutation([*batch, *left, *right], out),
        ),
        (len(batch), len(left), len(summed)),
        len(summed) == 1 and not batch and len(left) < 2 and len(right) < 2,
    )


def _permutation(have: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """Axes for ``transpose``; None for the identity."""
    order = tuple(have.index(letter) for letter in wanted)
    return None if order == tuple(range(len(order))) else order


# ------------------------------------------------------------------ plans of any number of operands


class OperandPlan(NamedTuple):
    """Reductions of a single operand, before the products."""

    shape: Shape | None  # without axes of length 1 that broadcast; None: unchanged
    diagonals: tuple[tuple[int, int], ...]  # pairs of axes; each diagonal becomes the last axis
    sums: tuple[int, ...]  # axes to sum over


class EinsumPlan(NamedTuple):
    """Plan of an einsum call: reductions of each operand, then pairwise contractions."""

    operands: tuple[OperandPlan, ...]
    products: tuple[
        tuple[int, int, str], ...
    ]  # the pair, numbered as by einsum_path, and its subscripts
    order: tuple[int, ...]  # of the axes, for a single operand


def plan_einsum(text: str, shapes: tuple[Shape, ...], optimize: Any) -> EinsumPlan:
    """Return the plan of an einsum call; cached by subscripts and shapes."""
    return _plan_for_shapes(text, shapes, _optimize_key(optimize))


# ------------------------------------------------------------------ call forms


def _sublist_letters(sublist: Any) -> str:
    """Convert a list of axes, integers below 52 and ``...``, to a term of letters."""
    letters = _LETTERS[26:] + _LETTERS[:26]
    try:
        labels = [k if k is ... else operator.index(k) for k in sublist]
        if any(k is not ... and not 0 <= k < len(letters) for k in labels):
            raise ValueError
    except (TypeError, ValueError):
        raise DTypeError(
            f"einsum: {format_value(sublist)} came for a list of axes; pass ints from 0 to 51 and "
            "..., or subscripts as text before all operands"
        ) from None
    return "".join("..." if k is ... else letters[k] for k in labels)


def subscripts_as_text(subscripts: Any, operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Convert either call form to subscripts as text and a list of operands."""
    if isinstance(subscripts, str):
        return subscripts, list(operands)
    interleaved = [subscripts, *operands]
    terms = [_sublist_letters(sublist) for sublist in interleaved[1::2]]
    arrow = ""
    if len(interleaved) % 2 and len(interleaved) > 1:
        arrow = f"->{_sublist_letters(interleaved.pop())}"
    return ",".join(terms) + arrow, interleaved[::2]


# ------------------------------------------------------------------ axis letters and lengths


def _subscripts_error(text: str, why: str) -> ShapeError:
    return ShapeError(f"einsum: {text!r}: {why}")


def _expand_ellipsis(text: str, shapes: Sequence[Shape]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, with ``...`` expanded."""
    inputs, arrow, out = text.replace(" ", "").partition("->")
    terms = inputs.split(",")
    for term in (*terms, out):
        letters = term.replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise _subscripts_error(text, f"{term!r} is not made of letters and at most one '...'")
    if len(terms) != len(shapes):
        raise _subscripts_error(text, f"names {len(terms)} operands, but {len(shapes)} came")
    unlabeled = []
    for term, shape in zip(terms, shapes, strict=True):
        extra = len(shape) - len(term.replace("...", ""))
        if extra < 0 or (extra and "..." not in term):
            raise _subscripts_error(text, f"{term!r} does not fit an operand of shape {shape}")
        unlabeled.append(extra)
    unused = "".join(c for c in _LETTERS if c not in text)
    if max(unlabeled) > len(unused):
        raise _subscripts_error(text, f"more than {len(_LETTERS)} axes have no letters")
    ellipsis = unused[: max(unlabeled)]
    full = [
        t.replace("...", ellipsis[len(ellipsis) - n :])
        for t, n in zip(terms, unlabeled, strict=True)
    ]
    if not arrow:
        named = inputs.replace("...", "").replace(",", "")
        return full, ellipsis + "".join(sorted(c for c in named if named.count(c) == 1))
    if ellipsis and "..." not in out:
        raise _subscripts_error(
            text, "the result needs '...' as well, or an operand has axes too many"
        )
    out = out.replace("...", ellipsis)
    unknown = sorted(set(out) - set("".join(full)))
    if unknown or len(set(out)) < len(out):
        why = f"has {', '.join(unknown)}, which no operand has" if unknown else "repeats a letter"
        raise _subscripts_error(text, f"the result {why}")
    return full, out


def _axis_lengths(text: str, terms: Sequence[str], shapes: Sequence[Shape]) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        term_lengths: dict[str, int] = {}
        for c, n in zip(term, shape, strict=True):
            # Axes of length 1 broadcast, except on a diagonal.
            if term_lengths.setdefault(c, n) != n or (
                lengths.get(c, 1) != 1 and n not in (1, lengths[c])
            ):
                name = repr(c) if c in text else "of '...'"
                raise _subscripts_error(
                    text, f"the axes {name} differ in length, shapes {list(shapes)}"
                )
            lengths[c] = n if lengths.get(c, 1) == 1 else lengths[c]
    return lengths


@lru_cache(maxsize=512)
def _plan_for_shapes(text: str, shapes: tuple[Shape, ...], optimize: Any) -> EinsumPlan:
    terms, out = _expand_ellipsis(text, shapes)
    lengths = _axis_lengths(text, terms, shapes)
    kept_axes = [
        [k for k, (c, n) in enumerate(zip(term, shape, strict=True)) if n == lengths[c]]
        for term, shape in zip(terms, shapes, strict=True)
    ]
    kept_terms = ["".join(t[k] for k in axes) for t, axes in zip(terms, kept_axes, strict=True)]
    operands, letters = [], []
    for k, term in enumerate(kept_terms):
        shape = tuple(lengths[c] for c in term)
        diagonals = []
        while len(set(term)) < len(term):
            c = next(c for c in term if term.count(c) > 1)
            i = term.index(c)
            j = term.index(c, i + 1)
            diagonals.append((i, j))
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + c
        others = "".join((*kept_terms[:k], *kept_terms[k + 1 :], out))
        sums = tuple(axis for axis, c in enumerate(term) if c not in others)
        unchanged = shape == shapes[k]
        operands.append(OperandPlan(None if unchanged else shape, tuple(diagonals), sums))
        letters.append("".join(c for c in term if c in others))
    pairs = _contraction_path(text, letters, out, lengths, optimize)
    order = () if pairs else tuple(letters[0].index(c) for c in out)
    return EinsumPlan(tuple(operands), _pairwise_contractions(letters, out, pairs), order)


def _pairwise_contractions(
    terms: list[str], out: str, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int, str], ...]:
    """Subscripts of each pairwise contraction, relabeled from ``a`` so that equal ones match."""
    terms, contractions = list(terms), []
    for i, j in pairs:
        y, x = terms.pop(j), terms.pop(i)
        still_needed = set("".join(terms)) | set(out)
        left = "".join(c for c in x if c in still_needed)
        result = left + "".join(c for c in y if c in still_needed and c not in x) if terms else out
        contractions.append((i, j, f"{x},{y}->{result}".translate(_relabeling(x + y))))
        terms.append(result)
    return tuple(contractions)


def _relabeling(letters: str) -> dict[int, str]:
    """Translation of letters to ``a``, ``b``, … in order of appearance."""
    return dict(zip(map(ord, dict.fromkeys(letters)), _LETTERS, strict=False))


# ------------------------------------------------------------------ contraction order


def _contraction_path(
    text: str, terms: list[str], out: str, lengths: dict[str, int], optimize: Any
) -> list[tuple[int, int]]:
    """Pairs of operands in contraction order; each product is appended to the list."""
    count = len(terms)
    if isinstance(optimize, tuple) and optimize[:1] == ("einsum_path",):
        groups = optimize[1:]
    elif optimize is False or count < 3:
        return [(0, 1), *((0, n - 1) for n in range(count - 1, 1, -1))] if count > 1 else []
    else:
        stand_ins = [np.broadcast_to(0.0, [lengths[c] for c in term]) for term in terms]
        path = np.einsum_path(f"{','.join(terms)}->{out}", *stand_ins, optimize=optimize)[0]
        groups = tuple(path[1:])
    pairs = []
    for group in groups:
        try:
            positions = sorted({operator.index(k) for k in group})
        except TypeError:
            positions = []
        if (
            not positions
            or len(positions) < len(group)
            or not 0 <= positions[0] <= positions[-1] < count
        ):
            break
        for k, position in enumerate(positions[1:]):
            # Operands after the first two move up; the product is the last.
            pairs.append((positions[0], position) if k == 0 else (position - k - 1, count - 1))
            count -= 1
    if count != 1 or (groups and len(pairs) != len(terms) - 1):
        raise ShapeError(
            f"einsum: optimize={format_value(optimize)} is not a path for the {len(terms)} "
            f"operands of {text!r}; np.einsum_path finds one"
        )
    return pairs


def _optimize_key(optimize: Any) -> Any:
    """Normalize the option to a hashable cache key."""
    if isinstance(optimize, (bool, np.bool_)):
        return "greedy" if optimize else False
    if isinstance(optimize, str) and optimize in ("greedy", "optimal"):
        return optimize
    if isinstance(optimize, (list, tuple)) and len(optimize) and isinstance(optimize[0], str):
        first, *rest = optimize
        if first == "einsum_path" and all(isinstance(group, (list, tuple)) for group in rest):
            return (first, *map(tuple, rest))
        if first in ("greedy", "optimal") and len(rest) == 1:
            return (first, operator.index(rest[0]))
    raise SettingError(
        f"einsum: optimize={format_value(optimize)}; pass True or False, 'greedy', 'optimal', one "
        "of them with a size, or what np.einsum_path found"
    )
