"""Loading of tensors: dtypes by name, and arrays that are owned or mapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import native_dtype
from odyssey.devices.half_dtypes import can_cast, is_floating, is_number_dtype
from odyssey.devices.ownership import is_writable, owns_memory, read_only_view
from odyssey.errors import DTypeError, SettingError
from odyssey.saving.tensor_files import TensorFile, TensorFiles
from odyssey.saving.tensor_header import StoredTensor
from odyssey.saving.tensor_names import Selection, WantedTensor, matches_any
from odyssey.spec import Array
from odyssey.tree import leaves, unflatten

__all__ = ["TargetDtypes", "load_selection"]


class TargetDtypes:
    """The dtypes that tensors are cast to.

    Args:
        who: The function, for messages.
        dtype: None; a floating dtype for all floating tensors; or a mapping from names, with
            holes, and ``...`` for all others, to dtypes.
    """

    def __init__(self, who: str, dtype: Any) -> None:
        self._who = who
        self._all: np.dtype[Any] | None = None
        self._by_name: dict[Any, np.dtype[Any]] = {}
        if isinstance(dtype, Mapping):
            for name, one in dtype.items():
                if name is not ... and not isinstance(name, str):
                    raise DTypeError(
                        f"{who}: dtype= has the key {format_value(name)}; pass names, or ... for "
                        "all others"
                    )
                self._by_name[name] = self._parse(one)
            dtype = self._by_name.pop(..., None)
        if dtype is not None:
            self._all = self._parse(dtype)
            if not is_floating(self._all):
                raise SettingError(
                    f"{who}: dtype={self._all} for all tensors is not a floating dtype, and casts "
                    "those that are floating; pass other dtypes by name, dtype={'name': 'int32'}"
                )

    def _parse(self, dtype: Any) -> np.dtype[Any]:
        try:
            return native_dtype(dtype)
        except DTypeError as error:  # ml_dtypes is missing
            raise DTypeError(f"{self._who}: {error}") from None
        except (TypeError, ValueError) as error:
            raise DTypeError(
                f"{self._who}: dtype={format_value(dtype)} is not one of numbers: {error}"
            ) from None

    def of_all(self, names: list[str]) -> dict[str, np.dtype[Any]]:
        """Return the dtypes that were given by name, of the tensors with these names."""
        found: dict[str, np.dtype[Any]] = {}
        for pattern, dtype in self._by_name.items():
            matches = matches_any(pattern, names)
            if not matches:
                raise SettingError(
                    f"{self._who}: dtype= names {format_value(pattern)}, and no tensor that is "
                    "returned is called so; correct it, or leave it out"
                )
            for name in matches:
                if found.setdefault(name, dtype) != dtype:
                    raise SettingError(
                        f"{self._who}: dtype= gives {format_value(name)} two dtypes, "
                        f"{found[name]} and {dtype}; give it one"
                    )
        return found

    def target(
        self, tensor: StoredTensor, source: np.dtype[Any], named: np.dtype[Any] | None
    ) -> np.dtype[Any]:
        """Return the dtype that a tensor of the file is cast to; its own if it is not cast."""
        if named is None:
            return source if self._all is None or not is_floating(source) else self._all
        if not can_cast(source, named):
            raise DTypeError(
                f"{self._who}: tensor {format_value(tensor.name)} is of {source}, which dtype= "
                f"would cast to {named} and lose what it says; load it as it is"
            )
        return named


def load_selection(
    who: str, files: TensorFiles, selection: Selection, dtypes: TargetDtypes, mapped: bool
) -> Any:
    """Return the tree of a selection with an array at each leaf.

    Args:
        who: The function, for messages.
        files: The open files.
        selection: What is taken from them.
        dtypes: What it is cast to.
        mapped: Whether arrays are read-only, over maps of the files where these hold them so.
    """
    named = dtypes.of_all([wanted.name for wanted in selection.wanted])
    plan: list[list[tuple[str, np.dtype[Any]]]] = []
    for wanted in selection.wanted:  # all is checked before anything is read
        inputs = []
        for name in wanted.source.names:
            file, tensor = files.tensors[name]
            source = file.held_dtype(tensor)
            inputs.append((name, dtypes.target(tensor, source, named.get(wanted.name))))
        plan.append(inputs)
    uses = Counter(key for inputs in plan for key in inputs)
    arrays: dict[tuple[str, np.dtype[Any]], Array] = {}
    values: list[Array] = []
    for wanted, inputs in zip(selection.wanted, plan, strict=True):
        for key in inputs:
            if key not in arrays:
                arrays[key] = _read_or_map(*files.tensors[key[0]], key[1], mapped)
            uses[key] -= 1
        found = _build(who, wanted, [arrays[key] for key in inputs])
        last = not any(uses[key] for key in inputs)
        values.append(_read_only(found) if mapped else _owned(found, wanted, last))
        for key in inputs:
            if not uses[key]:
                arrays.pop(key, None)
    by_leaf = dict(zip(map(id, selection.wanted), values, strict=True))
    found_tree = [by_leaf.get(id(leaf), leaf) for leaf in leaves(selection.tree)]
    return unflatten(selection.tree, found_tree)


def _read_or_map(
    file: TensorFile, tensor: StoredTensor, dtype: np.dtype[Any], mapped: bool
) -> Array:
    if mapped and file.held_dtype(tensor) == dtype:
        return file.map_tensor(tensor)
    return file.read_tensor(tensor, dtype)


def _build(who: str, wanted: WantedTensor, arrays: list[Array]) -> Array:
    if wanted.source.is_plain:
        return arrays[0]
    found = wanted.source.build(who, wanted.name, [_read_only(array) for array in arrays])
    if not is_number_dtype(found.dtype):
        raise DTypeError(
            f"{who}: apply= of {wanted.name!r} returned an array of {found.dtype}; return one of "
            "numbers"
        )
    return found


def _read_only(array: Array) -> Array:
    """Return a view of an array that cannot be written to."""
    return read_only_view(array) if is_writable(array) else array


def _owned(array: Array, wanted: WantedTensor, last: bool) -> Array:
    """Return an array that owns its data, in C order, and that no other leaf shares."""
    if wanted.source.is_plain and last:
        return array
    own = owns_memory(array) and array.flags.c_contiguous
    return array if own and not wanted.source.is_plain else np.array(array, order="C")
