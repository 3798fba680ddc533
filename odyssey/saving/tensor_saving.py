"""Trees in safetensors files: saving of arrays by name, and loading into a tree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from odyssey.checks import format_value, with_article
from odyssey.devices.half_dtypes import is_bfloat16
from odyssey.devices.same_device import host_array
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.saving.leaf_kinds import EmptyList, leaf_kind, named_leaves, short_path
from odyssey.saving.node_format import build_nest, path_keys, tree_mismatch
from odyssey.saving.paths import write_atomically
from odyssey.saving.tensor_files import TensorFiles
from odyssey.saving.tensor_header import (
    METADATA_KEY,
    encode_tensor_header,
    require_safetensors,
    tensor_code,
)
from odyssey.spec import Array
from odyssey.table.store import store

__all__ = ["TensorTree", "dotted_name", "save_tree_of_tensors"]

_ARRAY_KINDS = ("Variable", "array", "scalar")


def dotted_name(path: str) -> str:
    """Return a path in a tree as the name of a tensor.

    >>> dotted_name("['layers'][0].weight")
    'layers.0.weight'
    """
    return ".".join(map(str, path_keys(path)))


# ------------------------------------------------------------------ saving


def save_tree_of_tensors(
    who: str, path: str, tree: Any, metadata: Any = None, sharing: bool = True
) -> None:
    """Write the arrays and Variables of a tree to a safetensors file, atomically.

    Args:
        who: The function, for messages.
        path: The path of the file.
        tree: The tree; its paths become the names.
        metadata: Texts by name, or None.
        sharing: Whether one array may be at several paths, and is then written for each.

    Raises:
        DTypeError, SettingError, UntrackedError: something cannot be stored; nothing is written.
        FileError: the system refuses; the old file is unchanged.
    """
    require_safetensors(who)
    texts = _check_metadata(who, metadata)
    paths = _paths_by_name(who, named_leaves(who, tree))
    kinds = {name: _check_leaf(who, path, leaf) for name, (path, leaf) in paths.items()}
    if not sharing:
        _refuse_sharing(who, paths)
    arrays: dict[str, Array] = {}
    # No step of another thread may run in between. The snapshots are not copies: the next write
    # to a Variable gives it another array as long as they exist.
    with write_lock():
        wait_for_programs()
        for name, (_, leaf) in paths.items():
            value = store().read(leaf) if kinds[name] == "Variable" else leaf
            arrays[name] = host_array(value)
    start, order = encode_tensor_header(arrays, texts)
    write_atomically(who, path, lambda file: _write_tensors(file, start, order, arrays))


def _write_tensors(
    file: BinaryIO, start: bytes, order: list[str], arrays: Mapping[str, Array]
) -> None:
    file.write(start)
    for name in order:
        file.write(_stored_bytes(arrays[name]))


def _stored_bytes(array: Array) -> memoryview:
    """Return the elements of an array in C order and little-endian; a copy if it is not so."""
    if is_bfloat16(array.dtype):
        array = array.view(np.uint16)
    little = array.dtype.newbyteorder("<")
    array = np.asarray(array, little, order="C")
    return array.reshape(-1).view(np.uint8).data


def _check_metadata(who: str, metadata: Any) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(
        isinstance(text, str) for pair in metadata.items() for text in pair
    ):
        raise DTypeError(
            f"{who}: metadata={format_value(metadata)}; pass texts by name, as JSON for others"
        )
    for pair in metadata.items():
        for text in pair:
            _refuse_surrogates(who, "metadata has", text)
    return {str(name): str(text) for name, text in metadata.items()}


def _refuse_surrogates(who: str, what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SettingError(
            f"{who}: {what} {format_value(text)}, which is not text of Unicode; leave out its "
            "surrogates"
        ) from None


def _paths_by_name(who: str, found: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the path and the leaf by name of a tensor."""
    by_name: dict[str, tuple[str, Any]] = {}
    for path, leaf in found.items():
        name = dotted_name(path)
        if not path:
            raise DTypeError(
                f"{who}: a safetensors file has tensors with names, and this is "
                f"{with_article(type(leaf).__name__)}; pass a dictionary, {{'name': array}}"
            )
        if name in by_name:
            raise SettingError(
                f"{who}: {short_path(by_name[name][0])} and {short_path(path)} would both be "
                f"called {format_value(name)} in the file; rename one"
            )
        if name == METADATA_KEY:
            raise SettingError(
                f"{who}: {short_path(path)}: no tensor can be called {METADATA_KEY}; rename it"
            )
        _refuse_surrogates(who, "a tensor would be called", name)
        by_name[name] = path, leaf
    return by_name


def _check_leaf(who: str, path: str, leaf: Any) -> str:
    """Return the kind of a leaf; raise an error if it cannot be a tensor of a file."""
    kind = leaf_kind(who, path, leaf)
    if kind not in _ARRAY_KINDS:
        raise DTypeError(
            f"{who}: {short_path(path)} is {with_article(kind)}, and a safetensors file holds "
            "arrays only; leave it out, or save to a path that ends in .npz"
        )
    if kind == "Variable":
        leaf._refuse_unless_leaf(f"{who}: {short_path(path)}")
    if tensor_code(leaf.dtype) is None:
        raise DTypeError(
            f"{who}: {short_path(path)} is of {leaf.dtype}, a dtype that a safetensors file does "
            "not have; cast it, or save to a path that ends in .npz"
        )
    return kind


def _refuse_sharing(who: str, paths: Mapping[str, tuple[str, Any]]) -> None:
    first: dict[int, str] = {}
    for path, leaf in paths.values():
        if id(leaf) in first:
            raise SettingError(
                f"{who}: {short_path(first[id(leaf)])} and {short_path(path)} are one "
                f"{type(leaf).__name__}, and a safetensors file would make two of it; leave one "
                "out, or save to a path that ends in .npz"
            )
        first[id(leaf)] = path


# ------------------------------------------------------------------ loading


def _keys_of(name: str) -> list[Any]:
    """Return the keys of a name: ints for indices, else texts."""
    return [int(k) if k.isascii() and k.isdecimal() else k for k in name.split(".")]


class TensorTree:
    """The tensors of a file as a saved tree, whose arrays are read on demand.

    It has the interface of ``SavedTree``.

    Attributes:
        entries: Names of tensors by path in ``like``; of others, by their own name.
    """

    def __init__(self, files: TensorFiles, wanted: Mapping[str, Any]) -> None:
        self._files = files
        self._names = {path: name for name, (path, _) in _paths_by_name("load", wanted).items()}
        self._wanted = wanted
        paths = {
            self._names[path]: path
            for path, leaf in wanted.items()
            if leaf is not ... and not isinstance(leaf, EmptyList)
        }
        self.entries = {paths.get(name, name): name for name in files.tensors}

    def node(self, path: str) -> tuple[str, Any]:
        """Return the first path of the tensor at ``path``, and its node."""
        kind = leaf_kind("load", path, self._wanted[path])
        return path, {kind if kind in _ARRAY_KINDS else "array": self._names[path]}

    def refuse_others(
        self,
        wanted: Collection[str],
        openings: Sequence[str],
        optional: Sequence[str],
        keep: bool,
    ) -> None:
        """Raise ShapeError unless the names of the file are those of ``wanted``."""
        in_file = self._files.tensors
        opened = {name for path in openings for name in self._below(path)}
        closed = [path for path in wanted if path not in openings]
        missing = [path for path in closed if self._names[path] not in in_file]
        missing += [p for p in openings if p not in optional and not self._below(p)]
        named = {self._names[path] for path in closed}
        extra = [name for name in in_file if name not in named and name not in opened]
        if keep and (len(extra) < len(in_file) or not in_file):
            return
        if missing or extra:
            raise tree_mismatch(self._files.path, missing, extra, keep)

    def _below(self, path: str) -> list[str]:
        above = self._names[path]
        return [n for n in self._files.tensors if n == above or n.startswith(f"{above}.")]

    def subtree(self, path: str, default: Any) -> Any:
        """Return the tensors at a path: one, or lists and dictionaries of them."""
        above, found = self._names[path], self._below(path)
        if found == [above]:
            return self.read_array(above)
        if not found:
            return default
        return build_nest(
            lambda why: ShapeError(
                f"load: {self._files.path!r} holds no tree: tensor {why}; read it with "
                "od.load_tensors"
            ),
            sorted(
                ((name, _keys_of(name[len(above) + 1 :])) for name in found),
                key=lambda entry: [(type(key) is str, key) for key in entry[1]],
            ),
            self.read_array,
        )

    def all(self) -> dict[str, Any]:
        """Return all tensors by name."""
        return {name: self.read_array(name) for name in self._files.tensors}

    def spec(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the dtype and shape of a tensor without reading it."""
        file, tensor = self._files.tensors[name]
        return file.held_dtype(tensor), tensor.shape

    def read_array(self, name: str) -> Array:
        """Read a tensor into new memory."""
        file, tensor = self._files.tensors[name]
        return file.read_tensor(tensor)
