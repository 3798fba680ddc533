"""Files of tensors: one safetensors file, or shards with an index, and the arrays in them."""

from __future__ import annotations

import math
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import is_bfloat16, is_half, is_inexact
from odyssey.errors import (
    DeviceMemoryError,
    FileError,
    FormatError,
    MissingFileError,
    OdysseyError,
    SettingError,
)
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.half_casts import narrow_into, widen_into
from odyssey.saving.paths import file_error, path_text, regular_file_mode
from odyssey.saving.tensor_header import (
    RELOAD,
    JSONObject,
    StoredTensor,
    TensorEntry,
    TensorHeader,
    parse_json_object,
    read_tensor_header,
    require_safetensors,
    validate_with_library,
)
from odyssey.spec import Array
from odyssey.table.kernel_selection import are_kernels_compiled

__all__ = ["TensorFile", "TensorFiles", "open_tensor_files"]

TENSOR_ENDING = ".safetensors"
_INDEX_ENDING = ".safetensors.index.json"
_MAX_INDEX_BYTES = 100_000_000
_CHUNK_BYTES = 1 << 22
"""Bytes that are read at a time where they are cast."""
_LEAST_LOOP_SIZE = 1 << 20


class TensorFile:
    """An open safetensors file, whose header was checked.

    Attributes:
        path: Its path, for messages.
        name: Its name in its folder.
        header: Its header.
    """

    def __init__(self, who: str, path: str, file: FileIO) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.header: TensorHeader = read_tensor_header(who, path, file)
        validate_with_library(who, path, self.header)
        self._who = who
        self._file = file
        self._map: mmap.mmap | None = None

    def damage(self, tensor: StoredTensor, why: str) -> FormatError:
        """Return the error for a tensor that the file does not hold as its header says."""
        return FormatError(
            f"{self._who}: {self.path!r}: tensor {format_value(tensor.name)} {why}; {RELOAD}"
        )

    def held_dtype(self, tensor: StoredTensor) -> np.dtype[Any]:
        """Return the dtype of a tensor; raise DTypeError if it cannot be held."""
        return tensor.held_dtype(self._who, self.path)

    def read_tensor(self, tensor: StoredTensor, dtype: np.dtype[Any] | None = None) -> Array:
        """Return a tensor as an array of its own, cast to ``dtype``."""
        source = self.held_dtype(tensor)
        target = source if dtype is None else dtype
        out = self._empty(tensor, target)
        bits = np.dtype("<u2") if is_bfloat16(source) else source.newbyteorder("<")
        if target == source and sys.byteorder == "little":
            self._read_into(tensor, 0, out.reshape(-1).view(np.uint8))
            self._check_booleans(tensor, out)
        else:
            cast = cast_function(source, target)
            flat = out.reshape(-1)
            step = max(1, _CHUNK_BYTES // source.itemsize)
            scratch = np.empty(min(step, flat.size), bits)
            for start in range(0, flat.size, step):
                block = scratch[: flat.size - start]
                self._read_into(tensor, start * source.itemsize, block.view(np.uint8))
                self._check_booleans(tensor, block)
                native = block.astype(block.dtype.newbyteorder("="), copy=False).view(source)
                try:
                    cast(native, flat[start : start + step])
                except OverflowError as error:
                    raise SettingError(
                        f"{self._who}: tensor {format_value(tensor.name)} of {self.path!r} "
                        f"has {error}; choose a dtype that holds its numbers"
                    ) from None
        return out

    def map_tensor(self, tensor: StoredTensor) -> Array:
        """Return a tensor as a read-only array over a map of the file, which it keeps alive.

        It is a copy if it does not lie at a multiple of its item size, or on a machine whose byte
        order is another one.
        """
        source = self.held_dtype(tensor)
        if sys.byteorder != "little" or tensor.start % source.itemsize or not tensor.nbytes:
            out = self.read_tensor(tensor)
            out.flags.writeable = False
            return out
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self._map) < tensor.stop:
            raise self.damage(tensor, "was cut off while the file was read")
        mapped: Array = np.ndarray(tensor.shape, source, self._map, tensor.start)
        self._check_booleans(tensor, mapped)
        return mapped

    def _empty(self, tensor: StoredTensor, dtype: np.dtype[Any]) -> Array:
        try:
            return np.empty(tensor.shape, dtype)
        except ValueError as error:  # a shape with a 0 and sizes that NumPy does not have
            raise self.damage(tensor, f"is of shape {tensor.shape}: {error}") from None
        except MemoryError:
            raise DeviceMemoryError(
                f"{self._who}: tensor {format_value(tensor.name)} of {self.path!r} takes "
                f"{math.prod(tensor.shape) * dtype.itemsize} bytes of memory, and there are fewer; "
                "pass mmap=True, or name the tensors that you need"
            ) from None

    def _check_booleans(self, tensor: StoredTensor, array: Array) -> None:
        if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise self.damage(tensor, "is of bool, and has bytes that are neither 0 nor 1")

    def _read_into(self, tensor: StoredTensor, offset: int, buffer: Array) -> None:
        self._file.seek(tensor.start + offset)
        view, start = buffer.data, 0
        while start < len(view):
            count = self._file.readinto(view[start:])
            if not count:
                raise self.damage(tensor, "was cut off while the file was read")
            start += count


# ------------------------------------------------------------------ casts


def cast_function(source: np.dtype[Any], target: np.dtype[Any]) -> Callable[[Array, Array], None]:
    """Return a function that casts the numbers of an array into another one, to nearest even.

    It raises OverflowError where a finite number became infinite, or an integer another one.
    """

    @ignore_fp_errors()
    def cast_block(block: Array, out: Array) -> None:
        numbers = block
        if is_bfloat16(target) and source.kind in "iuf" and block.dtype.char not in "ef":
            numbers = _round_to_odd(block)
        if "e" in (numbers.dtype.char, target.char) and _runs_loop(numbers, target):
            (narrow_into if target.char == "e" else widen_into)(numbers, out)
        else:
            out[...] = numbers
        if is_inexact(target):
            if is_half(target) and not _has_infinities(out):
                return
            changed = np.isinf(out)
            if is_inexact(source):
                changed &= np.isfinite(block)
        elif target != source:
            changed = out.astype(source) != block
        else:
            return
        if changed.any():
            raise OverflowError(f"{block[changed][0]}, and {target} has no such number")

    return cast_block


def _runs_loop(block: Array, target: np.dtype[Any]) -> bool:
    """Return whether a compiled loop casts a block between float16 and float32.

    NumPy takes 6 ms for a million numbers, a loop 0.3, and the import of numba 400.
    """
    return (
        block.size >= _LEAST_LOOP_SIZE
        and {block.dtype.char, target.char} == {"e", "f"}
        and are_kernels_compiled()
    )


def _has_infinities(halves: Array) -> bool:
    """Return whether an array of halves may have infinities: two passes over its bits."""
    least = 0x7C00 if halves.dtype.char == "e" else 0x7F80
    return bool(halves.size and (halves.view(np.uint16) & 0x7FFF).max() >= least)


def _round_to_odd(x: Array) -> Array:
    """Return numbers in float32, rounded so that rounding once more is as rounding once.

    Boldo and Melquiond, Emulation of FMA and correctly rounded sums (2008): a number that float32
    does not hold goes to the neighbour whose last bit is 1.
    """
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:  # float64 does not hold all of them
        low = x & 4095
        x = np.where((low == 0) | (np.abs(x) < 1 << 53), x, x - low + 2048)
    wide = x.astype(np.float64)
    near = wide.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    inexact = (back != wide) & np.isfinite(wide)
    too_far = inexact & (np.abs(back) > np.abs(wide))
    odd: Array = np.where(inexact, (bits - too_far) | 1, bits).astype(np.uint32).view(np.float32)
    return odd


# ------------------------------------------------------------------ one file, or shards


class TensorFiles:
    """The open files of a path: one, or the shards of an index.

    Attributes:
        path: The path of the file or of the index, for messages.
        tensors: By name of a tensor, its file, and where it lies there; layer 2 before layer 10.
        files: The files.
    """

    def __init__(self, path: str, files: list[TensorFile]) -> None:
        self.path = path
        self.files = files
        found = {name: file for file in files for name in file.header.tensors}
        self.tensors: dict[str, tuple[TensorFile, StoredTensor]] = {
            name: (found[name], found[name].header.tensors[name])
            for name in sorted(found, key=_sorting_key)
        }

    @property
    def metadata(self) -> dict[str, str]:
        """The texts of the files; those of the first one that has a name."""
        found: dict[str, str] = {}
        for file in self.files:
            found = file.header.metadata | found
        return found

    def entries(self) -> dict[str, TensorEntry]:
        """Return what a listing shows of each tensor."""
        return {name: tensor.entry(file.name) for name, (file, tensor) in self.tensors.items()}


def _sorting_key(name: str) -> list[tuple[int, str]]:
    """Return the key of a name by which numbers in it are ordered as numbers."""
    return [(len(text) if k % 2 else 0, text) for k, text in enumerate(re.split("([0-9]+)", name))]


@contextmanager
def open_tensor_files(who: str, path: Any) -> Iterator[TensorFiles]:
    """Open a safetensors file, an index of shards, or what a folder has of them.

    Raises:
        OdysseyError: the package safetensors is not installed.
        FileError: the system refuses, or there is no such file.
        FormatError: a file is damaged, or shards and index differ.
    """
    text = path_text(who, path)
    require_safetensors(who)
    with ExitStack() as stack:
        try:
            if os.path.isdir(text):
                text = _file_in_folder(who, text)
            if text.endswith(".json"):
                yield TensorFiles(text, _open_shards(who, text, stack))
            else:
                yield TensorFiles(text, [_open_tensor_file(who, text, stack)])
        except OdysseyError:
            raise
        except OSError as error:
            raise file_error(who, text, error) from error


def _open_tensor_file(who: str, path: str, stack: ExitStack) -> TensorFile:
    try:
        if regular_file_mode(path) is None:  # opening a pipe would wait for a writer
            raise FileNotFoundError(2, os.strerror(2))
        return TensorFile(who, path, stack.enter_context(FileIO(path)))
    except OSError as error:
        if isinstance(error, OdysseyError):
            raise
        raise file_error(who, path, error) from error


def _file_in_folder(who: str, folder: str) -> str:
    """Return the path of the index, or of the only safetensors file, of a folder."""
    names = sorted(os.listdir(folder))
    files = [name for name in names if name.endswith(TENSOR_ENDING)]
    indexes = [name for name in names if name.endswith(_INDEX_ENDING)]
    choices = indexes or files
    if not choices:
        raise MissingFileError(
            f"{who}: {folder!r} holds no file that ends in {TENSOR_ENDING} or {_INDEX_ENDING}; "
            "pass the path of one"
        )
    if len(choices) == 1 and indexes:
        index = os.path.join(folder, indexes[0])
        shards = set(_read_index(who, index).values())
        choices = [*indexes, *(name for name in files if name not in shards)]
    if len(choices) > 1:
        raise FileError(
            f"{who}: {folder!r} holds {', '.join(map(repr, choices[:4]))}"
            f"{' and others' * (len(choices) > 4)}; pass the path of the one that is meant"
        )
    return os.path.join(folder, choices[0])


def _read_index(who: str, path: str) -> dict[str, str]:
    """Return the shard of each tensor of an index."""

    def damage(why: str) -> FormatError:
        return FormatError(f"{who}: {path!r} is not an index of safetensors files: {why}; {RELOAD}")

    if regular_file_mode(path) is None:
        raise FileNotFoundError(2, os.strerror(2))
    with open(path, "rb") as file:
        text = file.read(_MAX_INDEX_BYTES + 1)
    if len(text) > _MAX_INDEX_BYTES:
        raise damage(f"it has more than {_MAX_INDEX_BYTES} bytes")
    shards = parse_json_object(who, path, "the index", text).get("weight_map")
    if type(shards) is not JSONObject:
        raise damage("it has no weight_map, from names of tensors to names of files")
    if shards.repeated:
        raise damage(f"its weight_map has tensor {format_value(shards.repeated[0])} twice")
    for name, shard in shards.items():
        if type(shard) is not str or not shard.endswith(TENSOR_ENDING):
            raise damage(
                f"tensor {format_value(name)} is in {format_value(shard)}, which is not the name "
                f"of a file that ends in {TENSOR_ENDING}"
            )
        if os.path.basename(shard) != shard or "\\" in shard or "\0" in shard:
            raise damage(
                f"tensor {format_value(name)} is in {format_value(shard)}, which may not be in "
                "another folder than the index"
            )
    return dict(shards)


def _open_shards(who: str, path: str, stack: ExitStack) -> list[TensorFile]:
    """Open the shards of an index, and check that they have the tensors that it says."""
    shards = _read_index(who, path)
    folder = os.path.dirname(path)
    files: dict[str, TensorFile] = {}
    for name in dict.fromkeys(shards.values()):
        try:
            files[name] = _open_tensor_file(who, os.path.join(folder, name), stack)
        except MissingFileError:
            first = next(tensor for tensor, shard in shards.items() if shard == name)
            raise MissingFileError(
                f"{who}: {path!r} names {name!r}, the file of tensor {format_value(first)} and "
                "others, and no such file lies beside it; fetch all files of the index"
            ) from None
    owners: dict[str, str] = {}
    for name, file in files.items():
        for tensor in file.header.tensors:
            if tensor in owners:
                raise FormatError(
                    f"{who}: {path!r}: tensor {format_value(tensor)} is in two files, "
                    f"{owners[tensor]!r} and {name!r}; {RELOAD}"
                )
            owners[tensor] = name
    for tensor, name in shards.items():
        if tensor not in owners:
            raise FormatError(
                f"{who}: {path!r} says that tensor {format_value(tensor)} is in {name!r}, which "
                f"lacks it; {RELOAD}"
            )
        if owners[tensor] != name:
            raise FormatError(
                f"{who}: {path!r} says that tensor {format_value(tensor)} is in {name!r}, and it "
                f"is in {owners[tensor]!r}; {RELOAD}"
            )
    for tensor, name in owners.items():
        if tensor not in shards:
            raise FormatError(
                f"{who}: {path!r}: tensor {format_value(tensor)} is in {name!r}, and the index "
                f"does not name it; {RELOAD}"
            )
    return list(files.values())
