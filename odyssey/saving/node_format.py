"""Format of saved files: nodes as JSON, and arrays as members of the archive.

A node is null, a boolean, a number, a string or a list in JSON, or ``{kind: body}`` for other
objects. An array is a member in NumPy's format, whose header follows from its node: a reader
evaluates no text.
"""

from __future__ import annotations

import ast
import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import numpy as np

from odyssey.checks import format_value, with_article
from odyssey.devices.half_dtypes import bfloat16, is_bfloat16
from odyssey.devices.same_device import host_array
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, ShapeError
from odyssey.saving.archive import Archive, Members
from odyssey.saving.leaf_kinds import class_of, format_few, leaf_kind, short_path, state_of
from odyssey.spec import Array
from odyssey.variable import Variable

__all__ = [
    "SavedTree",
    "build_nest",
    "encode_tree",
    "leaf_digests",
    "node_kind",
    "path_keys",
    "tree_mismatch",
]

_NODES_MEMBER = "odyssey.json"
_FORMAT = 1
STATE_KINDS = ("optimizer", "schedule", "generator", "stateful")
"""Kinds of leaves with a state: they are saved with the name of their class."""

_SHARED = {"Variable", "array", *STATE_KINDS}
_NO_STATES: Mapping[int, Any] = MappingProxyType({})
_MAX_NAME_BYTES = 200  # many file systems limit names to 255 bytes


# ------------------------------------------------------------------ arrays


def _dtype_names() -> dict[np.dtype[Any], str]:
    names = {np.dtype(c): np.dtype(c).name for c in "?bhilqBHILQefdFD"}
    # Long doubles have one name in NumPy, but their precision depends on the machine.
    long = {np.dtype(c): f"{np.dtype(c).kind}-long-{np.finfo(c).nmant}" for c in "gG"}
    return long | names  # long doubles that equal doubles get the name of doubles


_NAMES = _dtype_names()
_DTYPES = {name: np.dtype(dtype if "-" in name else name) for dtype, name in _NAMES.items()}


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> bytes:
    """Return the header of an array in NumPy's format, version 1.0."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


def _npy_member(array: Array) -> tuple[memoryview, dict[str, Any]]:
    """Return an array as a member, which is a copy, and its node.

    Numbers of bfloat16, which NumPy's format does not know, are stored as their bits in uint16.
    """
    bfloat = is_bfloat16(array.dtype)
    array = array.view(np.uint16) if bfloat else array
    fortran = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    header = _npy_header(array.dtype, array.shape, fortran)
    buffer = np.empty(len(header) + array.nbytes, np.uint8)
    buffer[: len(header)] = np.frombuffer(header, np.uint8)
    order: Any = "F" if fortran else "C"
    np.ndarray(array.shape, array.dtype, buffer.data, len(header), order=order)[...] = array
    spec = {
        "dtype": "bfloat16" if bfloat else _NAMES[array.dtype.newbyteorder("=")],
        "big": array.dtype.str[0] == ">",
        "fortran": fortran,
        "shape": list(array.shape),
    }
    return buffer.data, spec


def _member_name(path: str, members: Members) -> str:
    """Return the name of a member: the path, without characters that file systems reserve."""
    name = "".join(
        c if c.isprintable() and c not in '%/\\:*?"<>|' else _percent_encoded(c) for c in path
    )
    if len(name.encode()) > _MAX_NAME_BYTES:
        name = f"{name[:40]}~{len(members)}"
    while f"{name}.npy" in members:
        name += "~"
    return f"{name}.npy"


def _percent_encoded(c: str) -> str:
    return "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------ saving


def encode_tree(leaves: dict[str, Any], states: Mapping[int, Any] = _NO_STATES) -> Members:
    """Return the members of a file: a consistent snapshot of the leaves.

    Args:
        leaves: The leaves by path.
        states: States by id of a leaf, for objects that do not have all of their state themselves.
    """
    members: Members = {}
    # No step of another thread may run in between.
    with write_lock():
        wait_for_programs()
        entries = _encode_entries(leaves, members, states)
    text = {"format": _FORMAT, "arrays": len(members), "entries": entries}
    return {_NODES_MEMBER: json.dumps(text, allow_nan=False).encode(), **members}


def leaf_digests(leaves: dict[str, Any], states: Mapping[int, Any] = _NO_STATES) -> dict[str, str]:
    """Return a hash of each leaf by path, equal for leaves that a file holds as equal bytes.

    Args:
        leaves: The leaves by path.
        states: States by id of a leaf, as for ``encode_tree``.
    """
    digests = {}
    with write_lock():
        wait_for_programs()
        for path, leaf in leaves.items():
            members: Members = {}
            entries = _encode_entries({path: leaf}, members, states)
            digest = blake2b(json.dumps(entries).encode(), digest_size=16)
            for data in members.values():
                digest.update(data)
            digests[path] = digest.hexdigest()
    return digests


def _encode_entries(
    leaves: dict[str, Any], members: Members, states: Mapping[int, Any]
) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    first: dict[int, str] = {}  # by id of an object, its first path
    for path, leaf in leaves.items():
        kind = leaf_kind("save", path, leaf)
        if kind in _SHARED and id(leaf) in first:
            entries[path] = {"same": first[id(leaf)]}
            continue
        first[id(leaf)] = path
        entries[path] = _encode_leaf(kind, path, leaf, members, states)
    return entries


def _encode_leaf(
    kind: str, path: str, leaf: Any, members: Members, states: Mapping[int, Any]
) -> Any:
    if isinstance(leaf, Variable):
        leaf._refuse_unless_leaf(f"save: {short_path(path)}")
        return {kind: _encode_value(path, host_array(leaf._array), members)["array"]}
    if kind in STATE_KINDS:
        state = states[id(leaf)] if id(leaf) in states else state_of(leaf)
        return {kind: [class_of(leaf), _encode_value(path, state, members)]}
    return _encode_value(path, leaf, members)


def _encode_value(path: str, value: Any, members: Members) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if kind is complex:
        return {"complex": [_encode_value(path, x, members) for x in (value.real, value.imag)]}
    if kind in (list, tuple):
        items = [_encode_value(f"{path}[{k}]", item, members) for k, item in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if kind in (dict, Counter):
        pairs = [
            [_encode_value(path, key, members), _encode_value(f"{path}[{key!r}]", item, members)]
            for key, item in value.items()
        ]
        return {kind.__name__: pairs}
    return _encode_array(path, value, members)


def _encode_array(path: str, value: Any, members: Members) -> Any:
    kind = leaf_kind("save", path, value)
    if kind not in ("array", "scalar"):
        raise DTypeError(
            f"save: {short_path(path)} is {with_article(kind)}, in a state; keep numbers"
        )
    name = _member_name(path, members)
    members[name], spec = _npy_member(host_array(value))
    return {kind: {"member": name, **spec}}


# ------------------------------------------------------------------ loading


def node_kind(node: Any) -> str:
    """Return the kind of the leaf that a node encodes."""
    if type(node) is dict:
        (kind,) = node
        return str(kind)
    return type(node).__name__


class _Branch(dict[Any, Any]):
    """A container of a file, by key; no leaf is of this class."""


# One step of a path: an index, a text or another key in brackets, or the name of an attribute.
_STEP = re.compile(r"""\[(-?\d+)\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]|\[([^]]*)\]|\.(\w+)""")


def path_keys(path: str) -> list[Any]:
    """Return the keys of a path: ints for indices, else texts."""
    keys: list[Any] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:  # a key with brackets in its text
            return [*keys, path[position:]]
        index, text, other, name = step.groups()
        keys.append(int(index) if index else _text_of(text) if text else other or name)
        position = step.end()
    return keys


def _text_of(literal: str) -> str:
    """Return the text that a literal of Python stands for; the literal if it is malformed."""
    try:
        return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):
        return literal


def _is_below(path: str, above: str) -> bool:
    """Return whether ``path`` is ``above``, or the path of something in it."""
    return path.startswith(above) and path[len(above) : len(above) + 1] in ("", "[", ".")


def _as_containers(node: Any) -> Any:
    """Return lists for branches whose keys are 0, 1, 2 and so on, dictionaries for others."""
    if type(node) not in (dict, _Branch):
        return node
    values = {key: _as_containers(value) for key, value in node.items()}
    return list(values.values()) if list(values) == list(range(len(values))) else values


def build_nest(
    error: Callable[[str], Exception],
    entries: Iterable[tuple[str, list[Any]]],
    read: Callable[[str], Any],
) -> Any:
    """Return lists and dictionaries of the leaves that a file has below some path.

    Args:
        error: Returns the error for entries that no nest can hold.
        entries: The path of each leaf in the file, and its keys from the root of the nest on.
        read: Returns the leaf at a path.
    """
    nest: dict[Any, Any] = {}
    for entry, keys in entries:
        node = nest
        *above, last = keys
        for key in above:
            node = node.setdefault(key, _Branch())
            if type(node) is not _Branch:
                raise error(f"{format_value(entry)} lies in a leaf")
        if last in node:
            raise error(f"{format_value(entry)} is there twice")
        node[last] = read(entry)
    return _as_containers(nest)


def tree_mismatch(path: str, missing: list[str], extra: list[str], keep: bool) -> ShapeError:
    """Return the error for a file that holds another tree than ``like``.

    Args:
        path: The file.
        missing: Paths that it lacks.
        extra: Paths that only the file has.
        keep: Whether it was enough that one path is in both.
    """
    differences = []
    if missing:
        differences.append(f"it has no {format_few(missing)}, which like has")
    if extra:
        differences.append(f"it has {format_few(extra)}, which like lacks")
    hint = "" if keep else ", or missing='keep' to load what both have"
    return ShapeError(
        f"load: {path!r} holds another tree than like: {'; '.join(differences)}; pass a tree like "
        f"the one that was saved, or none, and take what you need{hint}"
    )


class SavedTree:
    """Tree of a saved file, whose arrays are read on demand.

    Attributes:
        entries: The nodes of the leaves, by path.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        if _NODES_MEMBER not in archive.names:
            raise archive.error(
                f"was not written by od.save: it has no {_NODES_MEMBER!r}; numpy.load may read it"
            )
        text = json.loads(archive.read(_NODES_MEMBER).decode())
        version = text["format"]
        if type(version) is int and version > _FORMAT:
            raise archive.error(
                f"is of format {version}, and this version of odyssey reads {_FORMAT}; install a "
                "later one"
            )
        if type(version) is not int or version != _FORMAT:
            raise archive.damage(f"its format is {format_value(version)}")
        self.entries: dict[str, Any] = text["entries"]
        self._leaves: dict[str, Any] = {}  # by first path, those that ``_shared_leaf`` read
        self._bodies: dict[str, int] = {}  # by name of a member, the id of the body that names it
        if type(self.entries) is not dict or text["arrays"] != len(archive.names) - 1:
            raise archive.damage("it has other members than its text says")

    def node(self, path: str) -> tuple[str, Any]:
        """Return the first path of the object at ``path``, and its node."""
        node = self.entries[path]
        if node_kind(node) != "same":
            return path, node
        first = node["same"]
        if node_kind(self.entries[first]) == "same":
            raise self._archive.damage(f"{format_value(path)} refers to itself")
        return first, self.entries[first]

    def refuse_others(
        self, wanted: Collection[str], openings: Sequence[str], optional: Sequence[str], keep: bool
    ) -> None:
        """Raise ShapeError unless the paths of the file are those of ``wanted``.

        Args:
            wanted: Paths of ``like``.
            openings: Those of them that take whatever the file has there.
            optional: Those openings that the file need not have.
            keep: Whether it is enough that one path is in both.
        """
        named = set(wanted)
        opened = {path for path in self.entries if any(_is_below(path, o) for o in openings)}
        missing = [path for path in wanted if path not in openings and path not in self.entries]
        missing += [o for o in openings if o not in optional and not self._below(o)]
        extra = [path for path in self.entries if path not in named and path not in opened]
        if keep and (len(extra) < len(self.entries) or not self.entries):
            return
        if missing or extra:
            raise tree_mismatch(self._archive.path, missing, extra, keep)

    def _below(self, path: str) -> list[str]:
        return [entry for entry in self.entries if _is_below(entry, path)]

    def subtree(self, path: str, default: Any) -> Any:
        """Return all that was saved at a path: a leaf, or lists and dictionaries of leaves.

        Indices make a list; keys and the names of attributes make a dictionary.

        Args:
            path: The path.
            default: Returned if there is nothing.
        """
        found = self._below(path)
        if path in self.entries:
            if len(found) > 1:
                raise self._archive.damage(f"{format_value(found[1])} lies in a leaf")
            return self._shared_leaf(path)
        if not found:
            return default
        return build_nest(
            self._archive.damage,
            ((entry, path_keys(entry[len(path) :])) for entry in found),
            self._shared_leaf,
        )

    def _shared_leaf(self, path: str) -> Any:
        """Return a leaf; one object at several paths is read once."""
        first, node = self.node(path)
        if first not in self._leaves:
            self._leaves[first] = self._decode_leaf(node)
        return self._leaves[first]

    def all(self) -> dict[str, Any]:
        """Return all leaves by path: arrays, numbers and states."""
        return {path: self._shared_leaf(path) for path in self.entries}

    def _decode_leaf(self, node: Any) -> Any:
        """Return the array, number or state of a leaf."""
        kind = node_kind(node)
        if kind == "Variable":
            return self.read_array(node[kind])
        if kind in STATE_KINDS:
            return self.state(node)[1]
        return self.value(node)

    def state(self, node: Any) -> tuple[str, Any]:
        """Return the class name and the state of an optimizer, schedule or generator."""
        ((name, state),) = node.values()
        if type(name) is not str:
            raise self._archive.damage(f"{format_value(name)} is not the name of a class")
        return name, self.value(state)

    def value(self, node: Any) -> Any:
        """Return the value of a node."""
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is list:
            return [self.value(item) for item in node]
        ((kind, body),) = node.items()
        if kind == "int":
            return int(body, 16)
        if kind == "float":
            return struct.unpack(">d", bytes.fromhex(body))[0]
        if kind == "complex":
            real, imag = map(self.value, body)
            return complex(float(real), float(imag))
        if kind == "tuple":
            return tuple(self.value(item) for item in body)
        if kind in ("dict", "Counter"):
            pairs = {self.value(key): self.value(item) for key, item in body}
            return pairs if kind == "dict" else Counter(pairs)
        if kind in ("array", "scalar"):
            return self.read_array(body) if kind == "array" else self.read_array(body)[()]
        raise self._archive.damage(f"{format_value(kind)} is not a kind of entry")

    def spec(self, body: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the dtype and shape of an array without reading it."""
        name, shape = body["dtype"], body["shape"]
        dtype = self._bfloat16() if name == "bfloat16" else _DTYPES.get(name)
        if dtype is None:
            raise self._archive.error(
                f"has an array of dtype {format_value(name)}, which is not one of this machine"
            )
        if type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
            raise self._archive.damage(f"{format_value(shape)} is not a shape")
        big = body["big"] and name != "bfloat16"
        return dtype.newbyteorder(">") if big else dtype, tuple(shape)

    def _bfloat16(self) -> np.dtype[Any]:
        try:
            return bfloat16()
        except DTypeError as error:  # ml_dtypes is missing
            raise DTypeError(f"load: {self._archive.path!r} has arrays of it: {error}") from None

    def read_array(self, body: Any) -> Array:
        """Read an array into new memory."""
        if self._bodies.setdefault(body["member"], id(body)) != id(body):
            raise self._archive.damage(f"two entries are {format_value(body['member'])}")
        dtype, shape = self.spec(body)
        fortran = bool(body["fortran"])
        stored = np.dtype(np.uint16) if is_bfloat16(dtype) else dtype
        header = _npy_header(stored, shape, fortran)
        if self._archive.size(body["member"]) - len(header) != math.prod(shape) * dtype.itemsize:
            raise self._archive.damage(
                f"{format_value(body['member'])} is of another size than it says"
            )
        order: Any = "F" if fortran else "C"
        array: Array = np.empty(shape, dtype, order)
        buffer = array.reshape(-1, order=order).view(np.uint8)
        self._archive.read_into(body["member"], header, buffer.data)
        if dtype.kind == "b" and buffer.size and buffer.max() > 1:
            raise self._archive.damage(f"{format_value(body['member'])} has flags that are neither")
        return array
