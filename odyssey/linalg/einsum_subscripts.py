"""Reading the subscripts of Einstein's sums: what is to do to each operand, and to which pairs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.spec import Shape

__all__ = ["Alone", "Product", "Program", "as_text", "product_of", "program_of"]


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

# ------------------------------------------------------------------ products of two


class Product(NamedTuple):
    """How a product of two arrays is made one of matrices."""

    terms: tuple[str, str, str]  # the letters of x, y and the result
    shared: tuple[tuple[int, int], ...]  # axes of x and y that have one length
    orders: tuple[Any, Any, Any]  # of the axes of x, y and the result; None where they stand so
    counts: tuple[int, int, int]  # of letters in all terms, in x and the result, in x and y
    plain: bool  # one sum, over vectors or matrices


def product_of(subscripts: str) -> Product:
    """Read the subscripts of a product of two arrays.

    Raises:
        ShapeError: where a letter does not stand once in two terms or in three.
    """
    inputs, arrow, out = subscripts.partition("->")
    x, comma, y = inputs.partition(",")
    terms = (x, y, out)
    letters = "".join(terms)
    once = all(len(set(term)) == len(term) for term in terms)
    paired = all(letters.count(letter) > 1 for letter in letters)
    if not (arrow and comma and once and paired and (letters.isalpha() or not letters)):
        raise ShapeError(
            f"contract: subscripts={subscripts!r}; write 'ab,bc->ac', where each letter stands "
            "once in a term, and in two terms or in all three"
        )
    batch = [c for c in out if c in x and c in y]
    left = [c for c in out if c not in y]
    right = [c for c in out if c not in x]
    summed = [c for c in x if c not in out]
    return Product(
        terms,
        tuple((i, y.index(c)) for i, c in enumerate(x) if c in y),
        (
            _order(x, [*batch, *left, *summed]),
            _order(y, [*batch, *summed, *right]),
            _order([*batch, *left, *right], out),
        ),
        (len(batch), len(left), len(summed)),
        len(summed) == 1 and not batch and len(left) < 2 and len(right) < 2,
    )


def _order(have: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """How to transpose; None where nothing is to do."""
    order = tuple(have.index(letter) for letter in wanted)
    return None if order == tuple(range(len(order))) else order


# ------------------------------------------------------------------ sums of any number


class Alone(NamedTuple):
    """What is done to an operand alone."""

    shape: Shape | None  # without the axes of length 1 that broadcast
    diagonals: tuple[tuple[int, int], ...]  # pairs of axes, each of which goes to the end
    sums: tuple[int, ...]  # axes


class Program(NamedTuple):
    """What is done to each operand, to pairs of them, and to an only one in the end."""

    operands: tuple[Alone, ...]
    products: tuple[tuple[int, int, str], ...]  # which two, counted as einsum_path does, and how
    order: tuple[int, ...]  # of the axes, where there is one operand only


def program_of(text: str, shapes: tuple[Shape, ...], optimize: Any) -> Program:
    """What to do for a call of einsum; found once for operands of the same shapes."""
    return _found(text, shapes, _how(optimize))


# ------------------------------------------------------------------ both forms of a call


def _lettered(sublist: Any) -> str:
    """A list of axes, numbers below 52 and ``...``, as a term of letters in the same order."""
    letters = _LETTERS[26:] + _LETTERS[:26]
    try:
        places = [k if k is ... else operator.index(k) for k in sublist]
        if any(k is not ... and not 0 <= k < len(letters) for k in places):
            raise ValueError
    except (TypeError, ValueError):
        raise DTypeError(
            f"einsum: {shown(sublist)} came for a list of axes; pass ints from 0 to 51 and ..., "
            "or subscripts as text before all operands"
        ) from None
    return "".join("..." if k is ... else letters[k] for k in places)


def as_text(subscripts: Any, operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Both forms of a call as one: subscripts in letters, and the operands."""
    if isinstance(subscripts, str):
        return subscripts, list(operands)
    given = [subscripts, *operands]
    terms = [_lettered(sublist) for sublist in given[1::2]]
    arrow = ""
    if len(given) % 2 and len(given) > 1:
        arrow = f"->{_lettered(given.pop())}"
    return ",".join(terms) + arrow, given[::2]


# ------------------------------------------------------------------ letters and lengths


def _failure(text: str, why: str) -> ShapeError:
    return ShapeError(f"einsum: {text!r}: {why}")


def _spelled_out(text: str, shapes: Sequence[Shape]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with letters for the axes of ``...``."""
    inputs, arrow, out = text.replace(" ", "").partition("->")
    terms = inputs.split(",")
    for term in (*terms, out):
        letters = term.replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise _failure(text, f"{term!r} is not made of letters and at most one '...'")
    if len(terms) != len(shapes):
        raise _failure(text, f"names {len(terms)} operands, but {len(shapes)} came")
    left = []
    for term, shape in zip(terms, shapes, strict=True):
        more = len(shape) - len(term.replace("...", ""))
        if more < 0 or (more and "..." not in term):
            raise _failure(text, f"{term!r} does not fit an operand of shape {shape}")
        left.append(more)
    spare = "".join(c for c in _LETTERS if c not in text)
    if max(left) > len(spare):
        raise _failure(text, f"more than {len(_LETTERS)} axes have no letters")
    rest = spare[: max(left)]
    full = [t.replace("...", rest[len(rest) - n :]) for t, n in zip(terms, left, strict=True)]
    if not arrow:
        named = inputs.replace("...", "").replace(",", "")
        return full, rest + "".join(sorted(c for c in named if named.count(c) == 1))
    if rest and "..." not in out:
        raise _failure(text, "the result needs '...' as well, or an operand has axes too many")
    out = out.replace("...", rest)
    unknown = sorted(set(out) - set("".join(full)))
    if unknown or len(set(out)) < len(out):
        why = f"has {', '.join(unknown)}, which no operand has" if unknown else "repeats a letter"
        raise _failure(text, f"the result {why}")
    return full, out


def _lengths(text: str, terms: Sequence[str], shapes: Sequence[Shape]) -> dict[str, int]:
    found: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for c, n in zip(term, shape, strict=True):
            # Axes of length 1 broadcast, but not along a diagonal.
            if own.setdefault(c, n) != n or (found.get(c, 1) != 1 and n not in (1, found[c])):
                name = repr(c) if c in text else "of '...'"
                raise _failure(text, f"the axes {name} differ in length, shapes {list(shapes)}")
            found[c] = n if found.get(c, 1) == 1 else found[c]
    return found


@lru_cache(maxsize=512)
def _found(text: str, shapes: tuple[Shape, ...], optimize: Any) -> Program:
    terms, out = _spelled_out(text, shapes)
    lengths = _lengths(text, terms, shapes)
    kept = [
        [k for k, (c, n) in enumerate(zip(term, shape, strict=True)) if n == lengths[c]]
        for term, shape in zip(terms, shapes, strict=True)
    ]
    narrow = ["".join(t[k] for k in places) for t, places in zip(terms, kept, strict=True)]
    operands, letters = [], []
    for k, term in enumerate(narrow):
        shape = tuple(lengths[c] for c in term)
        diagonals = []
        while len(set(term)) < len(term):
            c = next(c for c in term if term.count(c) > 1)
            i = term.index(c)
            j = term.index(c, i + 1)
            diagonals.append((i, j))
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + c
        others = "".join((*narrow[:k], *narrow[k + 1 :], out))
        sums = tuple(axis for axis, c in enumerate(term) if c not in others)
        same = shape == shapes[k]
        operands.append(Alone(None if same else shape, tuple(diagonals), sums))
        letters.append("".join(c for c in term if c in others))
    pairs = _pairs(text, letters, out, lengths, optimize)
    order = () if pairs else tuple(letters[0].index(c) for c in out)
    return Program(tuple(operands), _products(letters, out, pairs), order)


def _products(
    terms: list[str], out: str, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int, str], ...]:
    """The products of pairs, in the fewest letters, so that one meaning has one spelling."""
    terms, found = list(terms), []
    for i, j in pairs:
        y, x = terms.pop(j), terms.pop(i)
        elsewhere = set("".join(terms)) | set(out)
        left = "".join(c for c in x if c in elsewhere)
        made = left + "".join(c for c in y if c in elsewhere and c not in x) if terms else out
        found.append((i, j, f"{x},{y}->{made}".translate(_names(x + y))))
        terms.append(made)
    return tuple(found)


def _names(letters: str) -> dict[int, str]:
    """The letters from the first on, for these in the order in which they come."""
    return dict(zip(map(ord, dict.fromkeys(letters)), _LETTERS, strict=False))


# ------------------------------------------------------------------ the order of products


def _pairs(
    text: str, terms: list[str], out: str, lengths: dict[str, int], optimize: Any
) -> list[tuple[int, int]]:
    """Which two operands are multiplied when; the product goes to the end of the list."""
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
            places = sorted({operator.index(k) for k in group})
        except TypeError:
            places = []
        if not places or len(places) < len(group) or not 0 <= places[0] <= places[-1] < count:
            break
        for k, place in enumerate(places[1:]):
            # Those behind the first two move up, and the product is the last.
            pairs.append((places[0], place) if k == 0 else (place - k - 1, count - 1))
            count -= 1
    if count != 1 or (groups and len(pairs) != len(terms) - 1):
        raise ShapeError(
            f"einsum: optimize={shown(optimize)} is not a path for the {len(terms)} operands of "
            f"{text!r}; np.einsum_path finds one"
        )
    return pairs


def _how(optimize: Any) -> Any:
    """The option as something that can be looked up."""
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
        f"einsum: optimize={shown(optimize)}; pass True or False, 'greedy', 'optimal', one of "
        "them with a size, or what np.einsum_path found"
    )
