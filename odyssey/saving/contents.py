"""Format of saved files: nodes as JSON text, and arrays as members of the archive.

A node is None, a flag, a number, a text or a list in JSON, or ``{kind: body}`` for all else. An
array is a member in NumPy's format, whose header follows from its node: nothing is evaluated.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from typing import Any

import numpy as np

from odyssey.checks import format_value, with_article
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, ShapeError
from odyssey.saving.files import Archive, Members
from odyssey.saving.leaves import class_of, few, kind_of, shown_path, state_of
from odyssey.spec import Array
from odyssey.variable import Variable

__all__ = ["Contents", "kind_of_node", "snapshot"]

_TEXT = "odyssey.json"
_FORMAT = 1
_SHARED = {"Variable", "array", "optimizer", "schedule", "generator"}
_LONGEST = 200  # bytes of a member's name: folders of many systems take 255


# ------------------------------------------------------------------ arrays


def _dtype_names() -> dict[np.dtype[Any], str]:
    found = {np.dtype(c): np.dtype(c).name for c in "?bhilqBHILQefdFD"}
    # Long doubles are of one name, and differ from machine to machine.
    long = {np.dtype(c): f"{np.dtype(c).kind}-long-{np.finfo(c).nmant}" for c in "gG"}
    return long | found  # where they are doubles, they are called so


_NAMES = _dtype_names()
_DTYPES = {name: np.dtype(dtype if "-" in name else name) for dtype, name in _NAMES.items()}


def _head(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> bytes:
    """Return the header of an array in NumPy's format, version 1.0."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


def _image(array: Array) -> tuple[memoryview, dict[str, Any]]:
    """An array as a member, which is a copy of it, and what the text says of it."""
    fortran = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    head = _head(array.dtype, array.shape, fortran)
    room = np.empty(len(head) + array.nbytes, np.uint8)
    room[: len(head)] = np.frombuffer(head, np.uint8)
    order: Any = "F" if fortran else "C"
    np.ndarray(array.shape, array.dtype, room.data, len(head), order=order)[...] = array
    spec = {
        "dtype": _NAMES[array.dtype.newbyteorder("=")],
        "big": array.dtype.str[0] == ">",
        "fortran": fortran,
        "shape": list(array.shape),
    }
    return room.data, spec


def _member(path: str, taken: Members) -> str:
    """The name of a member: the path, without what has a meaning in names of files."""
    name = "".join(c if c.isprintable() and c not in '%/\\:*?"<>|' else _percent(c) for c in path)
    if len(name.encode()) > _LONGEST:
        name = f"{name[:40]}~{len(taken)}"
    while f"{name}.npy" in taken:
        name += "~"
    return f"{name}.npy"


def _percent(c: str) -> str:
    return "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------ saving


def snapshot(leaves: dict[str, Any]) -> Members:
    """The members of a file: all that is saved, as it is at one moment."""
    members: Members = {}
    # No step of another thread comes in between.
    with write_lock():
        wait_for_programs()
        entries = _entries(leaves, members)
    text = {"format": _FORMAT, "arrays": len(members), "entries": entries}
    return {_TEXT: json.dumps(text, allow_nan=False).encode(), **members}


def _entries(leaves: dict[str, Any], members: Members) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    first: dict[int, str] = {}  # where an object stood first
    for path, leaf in leaves.items():
        kind = kind_of("save", path, leaf)
        if kind in _SHARED and id(leaf) in first:
            entries[path] = {"same": first[id(leaf)]}
            continue
        first[id(leaf)] = path
        entries[path] = _node(kind, path, leaf, members)
    return entries


def _node(kind: str, path: str, leaf: Any, members: Members) -> Any:
    if isinstance(leaf, Variable):
        leaf._refuse_unless_leaf(f"save: {shown_path(path)}")
        return {kind: _encoded(path, np.asarray(leaf._array), members)["array"]}
    if kind in ("optimizer", "schedule", "generator"):
        return {kind: [class_of(leaf), _encoded(path, state_of(leaf), members)]}
    return _encoded(path, leaf, members)


def _encoded(path: str, value: Any, members: Members) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if kind is complex:
        return {"complex": [_encoded(path, part, members) for part in (value.real, value.imag)]}
    if kind in (list, tuple):
        parts = [_encoded(f"{path}[{k}]", part, members) for k, part in enumerate(value)]
        return parts if kind is list else {"tuple": parts}
    if kind in (dict, Counter):
        pairs = [
            [_encoded(path, key, members), _encoded(f"{path}[{key!r}]", part, members)]
            for key, part in value.items()
        ]
        return {kind.__name__: pairs}
    return _encoded_array(path, value, members)


def _encoded_array(path: str, value: Any, members: Members) -> Any:
    kind = kind_of("save", path, value)
    if kind not in ("array", "scalar"):
        raise DTypeError(
            f"save: {shown_path(path)} is {with_article(kind)}, in a state; keep numbers"
        )
    name = _member(path, members)
    members[name], spec = _image(np.asarray(value))
    return {kind: {"member": name, **spec}}


# ------------------------------------------------------------------ loading


def kind_of_node(node: Any) -> str:
    """The kind of a leaf that a node stands for."""
    if type(node) is dict:
        (kind,) = node
        return str(kind)
    return type(node).__name__


class Contents:
    """Contents of a saved file, read on demand.

    Attributes:
        entries: The nodes by path.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        if _TEXT not in archive.names:
            raise archive.error(
                f"was not written by od.save: it has no {_TEXT!r}; numpy.load may read it"
            )
        text = json.loads(archive.read(_TEXT).decode())
        version = text["format"]
        if type(version) is int and version > _FORMAT:
            raise archive.error(
                f"is of format {version}, and this version of odyssey reads {_FORMAT}; install a "
                "later one"
            )
        if type(version) is not int or version != _FORMAT:
            raise archive.damage(f"its format is {format_value(version)}")
        self.entries: dict[str, Any] = text["entries"]
        if type(self.entries) is not dict or text["arrays"] != len(archive.names) - 1:
            raise archive.damage("it has other members than its text says")

    def node(self, path: str) -> tuple[str, Any]:
        """The node of an entry, and where it stood first."""
        node = self.entries[path]
        if kind_of_node(node) != "same":
            return path, node
        first = node["same"]
        if kind_of_node(self.entries[first]) == "same":
            raise self._archive.damage(f"{format_value(path)} stands for itself")
        return first, self.entries[first]

    def refuse_others(self, wanted: dict[str, Any]) -> None:
        """Raise unless the entries are those ``wanted``."""
        missing = [path for path in wanted if path not in self.entries]
        extra = [path for path in self.entries if path not in wanted]
        said = []
        if missing:
            said.append(f"it has no {few(missing)}, which like has")
        if extra:
            said.append(f"it has {few(extra)}, which like has not")
        if said:
            raise ShapeError(
                f"load: {self._archive.path!r} holds another tree than like: "
                f"{'; '.join(said)}; pass a tree like the one that was saved, or none, and take "
                "what you need"
            )

    def all(self) -> dict[str, Any]:
        """All entries, by path: arrays, numbers and states."""
        found: dict[str, Any] = {}
        for path in self.entries:
            first, node = self.node(path)
            if first != path and first in found:
                found[path] = found[first]
                continue
            kind = kind_of_node(node)
            if kind == "Variable":
                found[path] = self.array(node[kind])
            elif kind in ("optimizer", "schedule", "generator"):
                found[path] = self.state(node)[1]
            else:
                found[path] = self.value(node)
        return found

    def state(self, node: Any) -> tuple[str, Any]:
        """The class and the state of an optimizer, a schedule or a generator."""
        ((name, state),) = node.values()
        if type(name) is not str:
            raise self._archive.damage(f"{format_value(name)} is not the name of a class")
        return name, self.value(state)

    def value(self, node: Any) -> Any:
        """Return the value of a node."""
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is list:
            return [self.value(part) for part in node]
        ((kind, body),) = node.items()
        if kind == "int":
            return int(body, 16)
        if kind == "float":
            return struct.unpack(">d", bytes.fromhex(body))[0]
        if kind == "complex":
            real, imag = map(self.value, body)
            return complex(float(real), float(imag))
        if kind == "tuple":
            return tuple(self.value(part) for part in body)
        if kind in ("dict", "Counter"):
            pairs = {self.value(key): self.value(part) for key, part in body}
            return pairs if kind == "dict" else Counter(pairs)
        if kind in ("array", "scalar"):
            return self.array(body) if kind == "array" else self.array(body)[()]
        raise self._archive.damage(f"{format_value(kind)} is not a kind of entry")

    def spec(self, body: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The dtype and shape of an array, which is not read."""
        dtype, shape = _DTYPES.get(body["dtype"]), body["shape"]
        if dtype is None:
            raise self._archive.error(
                f"has an array of dtype {format_value(body['dtype'])}, which is not one of this "
                "machine"
            )
        if type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
            raise self._archive.damage(f"{format_value(shape)} is not a shape")
        return dtype.newbyteorder(">") if body["big"] else dtype, tuple(shape)

    def array(self, body: Any) -> Array:
        """An array, read into memory of its own."""
        dtype, shape = self.spec(body)
        fortran = bool(body["fortran"])
        head = _head(dtype, shape, fortran)
        if self._archive.size(body["member"]) - len(head) != math.prod(shape) * dtype.itemsize:
            raise self._archive.damage(
                f"{format_value(body['member'])} is of another size than it says"
            )
        order: Any = "F" if fortran else "C"
        array: Array = np.empty(shape, dtype, order)
        room = array.reshape(-1, order=order).view(np.uint8)
        self._archive.read_into(body["member"], head, room.data)
        if dtype.kind == "b" and room.size and room.max() > 1:
            raise self._archive.damage(f"{format_value(body['member'])} has flags that are neither")
        return array
