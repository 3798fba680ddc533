"""Names of tensors: which tensors of a file a tree takes, from which names, by which steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from odyssey.checks import (
    STUMBLES,
    check_callable,
    check_int,
    describe_type,
    format_value,
)
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.same_device import host_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.spec import Array
from odyssey.suggestions import did_you_mean
from odyssey.tree import children_of, leaves, rebuild
from odyssey.variable import Variable

__all__ = ["TensorSource", "Selection", "WantedTensor", "select_tensors"]

_HOLE = re.compile(r"\{([A-Za-z_]\w*)\}")
_MOST = 8
"""Names of each side that a message lists."""


class TensorSource:
    """The tensors of a file that a tensor is made from, and how.

    The steps are applied in the order of the arguments: ``split``, ``transpose``, ``reshape``,
    ``apply``.

    Args:
        names: Names in the file; with ``apply``, more than one is allowed. ``{layer}`` is a hole
            for a number, see ``load_tensors``.
        split: ``(k, n)`` or ``(k, n, axis)``: the k-th of n equal slices along an axis, by
            default axis 0.
        transpose: True to reverse the axes, or the permutation of axes, as in ``np.transpose``.
        reshape: The new shape, as in ``np.reshape``.
        apply: A function of the arrays, which it may not write to; returns an array.

    Raises:
        SettingError, DTypeError: an argument does not say what to do.

    >>> od.TensorSource("h.{layer}.attn.c_attn.weight", split=(0, 3, 1), transpose=True)
    TensorSource('h.{layer}.attn.c_attn.weight', split=(0, 3, 1), transpose=True)
    """

    __slots__ = ("apply", "names", "reshape", "split", "transpose")

    def __init__(
        self,
        *names: str,
        split: tuple[int, int] | tuple[int, int, int] | None = None,
        transpose: bool | Sequence[int] = False,
        reshape: int | Sequence[int] | None = None,
        apply: Callable[..., Any] | None = None,
    ) -> None:
        who = "TensorSource"
        if not names:
            raise SettingError(f"{who}: it has no name; pass the name of a tensor in the file")
        for name in names:
            _check_tensor_name(who, name)
        if apply is not None:
            check_callable(f"{who}: apply", apply)
        elif len(names) > 1:
            raise SettingError(
                f"{who}: {len(names)} names need apply=, a function of {len(names)} arrays"
            )
        self.names = names
        self.split = None if split is None else _check_split(split)
        self.transpose: bool | tuple[int, ...] = (
            bool(transpose)
            if isinstance(transpose, (bool, np.bool_))
            else _check_sizes("transpose", transpose)
        )
        self.reshape = None if reshape is None else _check_sizes("reshape", reshape)
        self.apply = apply

    def __repr__(self) -> str:
        parts = [repr(name) for name in self.names]
        for option, default in (
            *(("split", None), ("transpose", False), ("reshape", None)),
            ("apply", None),
        ):
            value = getattr(self, option)
            if value is not default:
                parts.append(f"{option}={format_value(value)}")
        return f"TensorSource({', '.join(parts)})"

    def with_names(self, names: Sequence[str]) -> TensorSource:
        """Return a source with other names and equal steps."""
        return TensorSource(
            *names,
            split=self.split,
            transpose=self.transpose,
            reshape=self.reshape,
            apply=self.apply,
        )

    @property
    def is_plain(self) -> bool:
        """Whether the tensor is taken as it is."""
        steps = self.split, self.reshape, self.apply
        return steps == (None, None, None) and self.transpose is False

    def build(self, who: str, name: str, arrays: Sequence[Array]) -> Array:
        """Return the tensor ``name`` that is made from arrays.

        Raises:
            ShapeError: a step does not fit the shape of an array.
            DTypeError: ``apply`` returns no array.
        """
        steps = [
            self._apply_steps(who, name, source, array)
            for source, array in zip(self.names, arrays, strict=True)
        ]
        fn = self.apply
        if fn is None:
            return steps[0]
        try:
            found = fn(*steps)
        except Exception as error:
            error.add_note(f"{who}: in apply= of {name!r}, from {', '.join(self.names)}")
            raise
        found = found.numpy() if isinstance(found, Variable) else found
        array = host_array(found)
        if not isinstance(found, ARRAY_LIKE) or array.dtype == object:
            raise DTypeError(
                f"{who}: apply= of {name!r} returned {describe_type(found)}; return an array"
            )
        return array

    def _apply_steps(self, who: str, name: str, source: str, array: Array) -> Array:
        shape = array.shape
        try:
            if self.split is not None:
                k, count, axis = self.split
                if array.shape[axis] % count:
                    raise ValueError(
                        f"{array.shape[axis]} rows are not divisible into {count} equal slices"
                    )
                size = array.shape[axis] // count
                index = [slice(None)] * array.ndim
                index[axis] = slice(k * size, (k + 1) * size)
                array = array[tuple(index)]
            if self.transpose is not False:
                array = np.transpose(array, None if self.transpose is True else self.transpose)
            return array if self.reshape is None else array.reshape(self.reshape)
        except STUMBLES as error:
            raise ShapeError(
                f"{who}: {name!r} cannot be made from {source!r} of shape {shape} by {self!r}: "
                f"{error}"
            ) from None


def _check_tensor_name(who: str, name: Any) -> str:
    if not isinstance(name, str):
        raise DTypeError(f"{who}: {format_value(name)} is not the name of a tensor; pass a text")
    return name


def _check_split(split: Any) -> tuple[int, int, int]:
    found = _check_sizes("split", split)
    if len(found) == 2:
        found = (*found, 0)
    if len(found) != 3 or not 0 <= found[0] < found[1]:
        raise SettingError(
            f"TensorSource: split={format_value(split)}; pass (k, n) or (k, n, axis), for the k-th "
            "of n slices, with k from 0 to n - 1"
        )
    return found[0], found[1], found[2]


def _check_sizes(option: str, value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(check_int("TensorSource", option, n) for n in values)


# ------------------------------------------------------------------ patterns


def _holes(pattern: str) -> list[str]:
    return list(dict.fromkeys(_HOLE.findall(pattern)))


def _fill_holes(pattern: str, numbers: Mapping[str, int]) -> str:
    return _HOLE.sub(lambda m: str(numbers.get(m[1], m[0])), pattern)


def _pattern(text: str) -> re.Pattern[str]:
    """Return the regular expression of a name with holes; a hole holds a number."""
    found, position, named = "", 0, set()
    for hole in _HOLE.finditer(text):
        found += re.escape(text[position : hole.start()])
        name = hole[1]
        # A bounded number of digits, so that any name of a file can be a number of Python.
        found += f"(?P={name})" if name in named else f"(?P<{name}>0|[1-9][0-9]{{0,8}})"
        named.add(name)
        position = hole.end()
    return re.compile(found + re.escape(text[position:]))


# ------------------------------------------------------------------ selections


class WantedTensor:
    """A tensor that is asked for.

    Attributes:
        name: Its name in the tree: keys, indices and attributes, with dots in between.
        source: What it is made from.
    """

    __slots__ = ("name", "source")

    def __init__(self, name: str, source: TensorSource) -> None:
        self.name = name
        self.source = source


class Selection:
    """The tensors that ``names=`` takes from a file.

    Attributes:
        tree: A tree with a ``WantedTensor`` at each leaf.
        wanted: These leaves.
    """

    def __init__(self, tree: Any, wanted: list[WantedTensor]) -> None:
        self.tree = tree
        self.wanted = wanted


def select_tensors(who: str, path: str, names: Any, in_file: Sequence[str]) -> Selection:
    """Return what ``names`` takes from a file.

    Args:
        who: The function, for messages.
        path: The file, for messages.
        names: The argument of ``load_tensors``.
        in_file: Names of the tensors of the file.

    Raises:
        ShapeError: names of the file and of the tree do not match; the message has both.
        DTypeError, SettingError: ``names`` is malformed.
    """
    if names is None:
        return _flat_selection(in_file)
    if isinstance(names, (set, frozenset, list, tuple)) and all(type(n) is str for n in names):
        return _listed_selection(who, path, names, in_file)
    if isinstance(names, (str, TensorSource)) or not _is_container(names):
        raise DTypeError(
            f"{who}: names={format_value(names)}; pass a list of names, or a tree with names of "
            "the file at its leaves"
        )
    return _Matching(who, path, in_file).selection(names)


def _flat_selection(names: Sequence[str]) -> Selection:
    tree = {name: WantedTensor(name, TensorSource(name)) for name in names}
    return Selection(tree, list(tree.values()))


def _listed_selection(who: str, path: str, names: Any, in_file: Sequence[str]) -> Selection:
    present, found = set(in_file), list[str]()
    missing: list[tuple[str | None, str]] = []
    for name in sorted(names) if isinstance(names, (set, frozenset)) else names:
        matches = [name]
        if name not in present:
            pattern = _pattern(name)
            matches = [n for n in in_file if pattern.fullmatch(n)] if _holes(name) else []
        if not matches:
            missing.append((None, name))
        found += matches
    _refuse_unmatched(who, path, missing, [], in_file)
    return _flat_selection(list(dict.fromkeys(found)))


def _is_container(node: Any) -> bool:
    return isinstance(node, (dict, list, tuple)) or (
        is_dataclass(node) and not isinstance(node, type)
    )


class _Matching:
    """Names of a tree and of a file that are being matched."""

    def __init__(self, who: str, path: str, in_file: Sequence[str]) -> None:
        self._who = who
        self._path = path
        self._in_file = in_file
        self._present = set(in_file)
        self._used: set[str] = set()
        self._wanted: list[WantedTensor] = []
        self._missing: list[tuple[str | None, str]] = []
        self._rest: list[str] = []  # names of the leaves that take the rest

    def selection(self, names: Any) -> Selection:
        leaves(names)  # raises for a tree that holds itself
        ignored: set[str] = set()
        if isinstance(names, dict) and None in names:
            ignored = self._ignored(names[None])
            names = {key: value for key, value in names.items() if key is not None}
        tree = self._expand(names, "", {})
        rest = [n for n in self._in_file if n not in self._used and n not in ignored]
        _refuse_unmatched(
            self._who, self._path, self._missing, [] if self._rest else rest, self._in_file
        )
        if self._rest:
            tree = self._with_rest(tree, rest)
        return Selection(tree, self._wanted)

    def _ignored(self, patterns: Any) -> set[str]:
        if isinstance(patterns, str):
            patterns = [patterns]
        if not isinstance(patterns, (list, tuple, set, frozenset)):
            raise DTypeError(
                f"{self._who}: names[None]={format_value(patterns)}; pass a list of the names that "
                "are not needed"
            )
        texts = [_check_tensor_name(self._who, pattern) for pattern in patterns]
        found = [_pattern(text) for text in texts]
        return {
            name
            for name in self._in_file
            if name in texts or any(pattern.fullmatch(name) for pattern in found)
        }

    # -------------------------------------------------------------- holes

    def _expand(self, node: Any, name: str, numbers: Mapping[str, int]) -> Any:
        """Return a tree of wanted tensors: with a child for each number of a hole."""
        if isinstance(node, dict):
            return self._expand_dict(node, name, numbers)
        if type(node) is list and len(node) == 1:
            hole = self._open_holes(node[0], numbers)
            if hole:
                return [
                    self._expand(node[0], _below(name, k), {**numbers, hole[-1]: k})
                    for k in range(self._count(node[0], hole[-1], numbers))
                ]
        if _is_container(node):
            keys, children = children_of(node)
            pairs = zip(keys, children, strict=True)
            return rebuild(node, [self._expand(c, _below(name, k), numbers) for k, c in pairs])
        return self._wanted_leaf(node, name, numbers)

    def _expand_dict(self, node: Any, name: str, numbers: Mapping[str, int]) -> Any:
        found: dict[Any, Any] = {}
        for key, child in node.items():
            for filled, more in self._keys(key, child, numbers):
                if filled in found:
                    raise SettingError(
                        f"{self._who}: names= has {_below(name, filled)!r} twice; name it once"
                    )
                found[filled] = self._expand(child, _below(name, filled), {**numbers, **more})
        return found

    def _keys(
        self, key: Any, child: Any, numbers: Mapping[str, int]
    ) -> Iterator[tuple[Any, dict[str, int]]]:
        """Yield a key with its holes filled, and the numbers in them."""
        holes = [h for h in _holes(key) if h not in numbers] if type(key) is str else []
        if not holes:
            yield (_fill_holes(key, numbers) if type(key) is str else key), {}
            return
        hole = holes[0]
        for k in range(self._count(child, hole, numbers, key)):
            for filled, more in self._keys(key, child, {**numbers, hole: k}):
                yield filled, {hole: k, **more}

    def _open_holes(self, node: Any, numbers: Mapping[str, int]) -> list[str]:
        """Return the holes in the leaves of a tree that no key or list of it fills."""
        if isinstance(node, dict):
            found: list[str] = []
            for key, child in node.items():
                own = _holes(key) if type(key) is str else []
                found += [h for h in self._open_holes(child, numbers) if h not in own]
        elif _is_container(node):
            found = [h for child in children_of(node)[1] for h in self._open_holes(child, numbers)]
            if type(node) is list and len(node) == 1:
                found = list(dict.fromkeys(found))[:-1]
        else:
            found = [h for pattern in _patterns_of(node) for h in _holes(pattern)]
        return [h for h in dict.fromkeys(found) if h not in numbers]

    def _count(
        self, node: Any, hole: str, numbers: Mapping[str, int], key: str | None = None
    ) -> int:
        """Return how many numbers a hole has: one more than the largest in the file."""
        largest = -1
        patterns = [p for leaf in leaves(node) for p in _patterns_of(leaf) if hole in _holes(p)]
        if not patterns and key is not None:
            raise SettingError(
                f"{self._who}: no name below the key {key!r} of names= has the hole {{{hole}}}; "
                "write it in both"
            )
        for text in patterns:
            pattern = _pattern(_fill_holes(text, numbers))
            matches = (pattern.fullmatch(name) for name in self._in_file)
            largest = max([largest, *(int(m[hole]) for m in matches if m)])
        if largest < 0:
            self._missing += [(None, _fill_holes(text, numbers)) for text in patterns]
        if largest >= len(self._in_file):
            raise ShapeError(
                f"{self._who}: {self._path!r} has {len(self._in_file)} tensors, and one whose hole "
                f"{{{hole}}} in {patterns[0]!r} is {largest}; write the names without a hole"
            )
        return largest + 1

    # -------------------------------------------------------------- leaves

    def _wanted_leaf(self, leaf: Any, name: str, numbers: Mapping[str, int]) -> Any:
        if leaf is ...:
            self._rest.append(name)
            return leaf
        patterns = _patterns_of(leaf)
        if not patterns:
            raise DTypeError(
                f"{self._who}: {name!r} of names= is {format_value(leaf)}; pass the name of a "
                "tensor in the file, an od.TensorSource, or ... for the rest"
            )
        texts = [p if p in self._present else _fill_holes(p, numbers) for p in patterns]
        for text in texts:
            if text in self._present:
                self._used.add(text)
            elif holes := _holes(text):
                raise SettingError(
                    f"{self._who}: nothing fills the hole {{{holes[0]}}} of {text!r}, for "
                    f"{name!r}; write it in a key too, or put the entry in a list of one"
                )
            else:
                self._missing.append((name, text))
        source = leaf if isinstance(leaf, TensorSource) else TensorSource(*texts)
        wanted = WantedTensor(name, source.with_names(texts))
        self._wanted.append(wanted)
        return wanted

    def _with_rest(self, tree: Any, rest: list[str]) -> Any:
        """Return a tree with the tensors that no other leaf takes in the place of ``...``."""
        if len(self._rest) > 1:
            raise SettingError(
                f"{self._who}: {self._rest[0]!r} and {self._rest[1]!r} of names= would both take "
                "the rest; write ... once"
            )
        below = {n: WantedTensor(_below(self._rest[0], n), TensorSource(n)) for n in rest}
        self._wanted += below.values()

        def replace(node: Any) -> Any:
            if node is ...:
                return below
            if not _is_container(node):
                return node
            return rebuild(node, [replace(child) for child in children_of(node)[1]])

        return replace(tree)


def _patterns_of(leaf: Any) -> tuple[str, ...]:
    if isinstance(leaf, TensorSource):
        return leaf.names
    return (leaf,) if isinstance(leaf, str) else ()


def _below(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _refuse_unmatched(
    who: str,
    path: str,
    missing: list[tuple[str | None, str]],
    extra: list[str],
    in_file: Sequence[str],
) -> None:
    """Raise ShapeError that lists the names which only one of names= and the file has."""
    if not missing and not extra:
        return
    sides = []
    if missing:
        texts = []
        for name, text in missing[:_MOST]:
            hint = did_you_mean(text, in_file).lstrip("; ") if len(in_file) < 10_000 else ""
            notes = [f"for {name!r}"] * (name not in (None, text)) + [hint] * bool(hint)
            texts.append(
                f"{format_value(text)}{' (' * bool(notes)}{'; '.join(notes)}{')' * bool(notes)}"
            )
        sides.append(f"the file has no {_enumerated(texts, len(missing))}")
    if extra:
        texts = [format_value(text) for text in extra[:_MOST]]
        sides.append(f"nothing of names= takes {_enumerated(texts, len(extra))}")
    advice = "correct names="
    if extra:
        advice += ", list what is not needed under the key None, or write ... to take the rest"
    raise ShapeError(f"{who}: {path!r} and names= do not match: {'; '.join(sides)}; {advice}")


def _enumerated(texts: list[str], count: int) -> str:
    return ", ".join(texts) + (f" and {count - len(texts)} more" if count > len(texts) else "")


def matches_any(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that a name with holes stands for."""
    found = _pattern(pattern)
    return [name for name in names if name == pattern or found.fullmatch(name)]
