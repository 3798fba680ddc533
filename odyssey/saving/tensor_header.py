"""Headers of safetensors files: reading with checks that name the tensor, and writing.

A file is 8 bytes with the length of the header, the header in JSON, and the data. The header has
for each tensor its dtype, its shape, and where its data begins and ends; the tensors cover the data
without gaps. The format is https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, format_value
from odyssey.devices.half_dtypes import bfloat16
from odyssey.errors import DTypeError, FormatError, OdysseyError, SettingError
from odyssey.spec import Array

__all__ = [
    "TensorEntry",
    "TensorHeader",
    "encode_tensor_header",
    "read_tensor_header",
    "require_safetensors",
    "tensor_code",
]

CODES = {
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F32": "float32",
    "U32": "uint32",
    "I32": "int32",
    "BF16": "bfloat16",
    "F16": "float16",
    "U16": "uint16",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Dtypes by their codes in a file, in the order in which the package safetensors writes them."""

_DTYPES = {code: np.dtype(name) for code, name in CODES.items() if code != "BF16"}
_BITS = {
    "BF16": 16,
    **{code: 8 * dtype.itemsize for code, dtype in _DTYPES.items()},
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the library's limit
METADATA_KEY = "__metadata__"
_MAX_AXES = 64  # NumPy's limit


def require_safetensors(who: str) -> Any:
    """Return the module ``safetensors``; raise OdysseyError if it cannot be imported."""
    try:
        import safetensors
    except ImportError as error:
        raise OdysseyError(
            f"{who}: safetensors files are read and written with the package safetensors, which "
            f'cannot be imported ({error}); pip install "odyssey[files]"'
        ) from None
    return safetensors


# ------------------------------------------------------------------ entries


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a file, without its data.

    Attributes:
        dtype: The name of its dtype, as ``"float32"``; of one that odyssey does not hold, the code
            that the file has, as ``"F8_E4M3"``.
        shape: Its shape.
        nbytes: The size of its data in bytes.
        file: The name of its file.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: str


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: its code, its shape, and the bytes of the file that are its data."""

    name: str
    code: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """The size of the data in bytes."""
        return self.stop - self.start

    def entry(self, file: str) -> TensorEntry:
        """Return what a listing shows of the tensor."""
        return TensorEntry(CODES.get(self.code, self.code), self.shape, self.nbytes, file)

    def held_dtype(self, who: str, path: str) -> np.dtype[Any]:
        """Return the dtype in native byte order; raise DTypeError if there is none."""
        if self.code == "BF16":
            try:
                return bfloat16()
            except DTypeError:  # ml_dtypes is missing
                raise DTypeError(
                    f"{who}: tensor {format_value(self.name)} of {path!r} is of bfloat16, a dtype "
                    'of the package ml_dtypes; pip install "odyssey[files]"'
                ) from None
        if self.code not in CODES:
            raise DTypeError(
                f"{who}: tensor {format_value(self.name)} of {path!r} is of {self.code}, which "
                "neither NumPy nor odyssey holds; name the tensors that you need in names=, or "
                "convert the file"
            )
        return _DTYPES[self.code]


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """The header of a file.

    Attributes:
        tensors: The tensors by name, in the order of the header.
        metadata: Texts by name.
        file_bytes: The size of the file.
    """

    tensors: dict[str, StoredTensor]
    metadata: dict[str, str]
    file_bytes: int


# ------------------------------------------------------------------ reading


class JSONObject(dict[str, Any]):
    """An object of JSON, and the names that it has more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) != len(pairs):
            counts: dict[str, int] = {}
            for name, _ in pairs:
                counts[name] = counts.get(name, 0) + 1
            self.repeated = [name for name, count in counts.items() if count > 1]


def parse_json_object(who: str, path: str, what: str, text: bytes) -> Any:
    """Return an object of JSON, which has ``repeated`` names; raise FormatError for other text."""
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=JSONObject)
    except STUMBLES as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        elif isinstance(error, RecursionError):
            reason = "it is nested too deep"
        raise FormatError(f"{who}: {path!r}: {what} is not JSON ({reason}); {RELOAD}") from None
    if type(found) is not JSONObject:
        raise FormatError(
            f"{who}: {path!r}: {what} is {format_value(found)}, not an object; {RELOAD}"
        )
    return found


RELOAD = "load another copy of the file"


def read_tensor_header(who: str, path: str, file: FileIO) -> TensorHeader:
    """Read and check the header of an open file.

    Raises:
        FormatError: it is not a safetensors file, or was damaged.
    """

    def damage(why: str) -> FormatError:
        return FormatError(
            f"{who}: {path!r} is not a safetensors file, or was cut off or damaged: {why}; {RELOAD}"
        )

    file_bytes = os.fstat(file.fileno()).st_size
    if not file_bytes:
        raise FormatError(f"{who}: {path!r} is empty; save it again")
    start = _read_bytes(file, _LENGTH_BYTES)
    if len(start) < _LENGTH_BYTES:
        raise damage("it ends before the length of the header, which takes 8 bytes")
    length = int.from_bytes(start, "little")
    if length > file_bytes - _LENGTH_BYTES:
        if start.startswith(b"PK\x03\x04"):
            raise FormatError(
                f"{who}: {path!r} is a zip archive, as .npz files are, and not a safetensors file; "
                "od.load reads what od.save wrote to a path that ends in .npz"
            )
        raise damage(f"its header would have {length} bytes, and the file has {file_bytes}")
    if length > _MAX_HEADER_BYTES:
        raise damage(f"its header has {length} bytes, and {_MAX_HEADER_BYTES} are allowed")
    text = _read_bytes(file, length)
    if len(text) < length:
        raise damage("it ends within the header")
    if text[:1] != b"{":
        raise damage("its header does not begin with {")
    found = parse_json_object(who, path, "the header", text)
    if found.repeated:
        raise damage(f"two tensors are called {format_value(found.repeated[0])}")
    metadata = found.pop(METADATA_KEY, JSONObject([]))
    if type(metadata) is not JSONObject or not all(type(v) is str for v in metadata.values()):
        raise damage(f"{METADATA_KEY} is {format_value(metadata)}, and must be texts by name")
    if metadata.repeated:
        raise damage(f"{METADATA_KEY} has {format_value(metadata.repeated[0])} twice")
    data_start = _LENGTH_BYTES + length
    tensors: dict[str, StoredTensor] = {}
    for name, node in found.items():
        try:
            tensors[name] = _parse_tensor(name, node, data_start, file_bytes)
        except ValueError as error:
            raise damage(f"tensor {format_value(name)}: {error}") from None
    _check_coverage(tensors, data_start, file_bytes, damage)
    return TensorHeader(tensors, dict(metadata), file_bytes)


def _read_bytes(file: FileIO, count: int) -> bytes:
    """Read as many bytes; fewer at the end of the file."""
    found = file.read(count)
    while len(found) < count and (more := file.read(count - len(found))):
        found += more
    return found


def _parse_tensor(name: str, node: Any, data_start: int, file_bytes: int) -> StoredTensor:
    """Return a tensor of the header; raise ValueError that says what is wrong."""
    if any("\ud800" <= c <= "\udfff" for c in name):
        raise ValueError("its name has a surrogate, which is not text of Unicode")
    if type(node) is not JSONObject:
        raise ValueError(f"it is {format_value(node)}, not an object")
    if node.repeated:
        raise ValueError(f"it has {format_value(node.repeated[0])} twice")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in node:
            raise ValueError(f"it has no {key}")
    code, shape, offsets = node["dtype"], node["shape"], node["data_offsets"]
    if type(code) is not str or not code.isascii() or not code.isprintable() or len(code) > 40:
        raise ValueError(f"{format_value(code)} is not a dtype")
    if not _are_sizes(shape):
        raise ValueError(f"{format_value(shape)} is not a shape")
    if len(shape) > _MAX_AXES:
        raise ValueError(f"it has {len(shape)} axes, and arrays have {_MAX_AXES} at most")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{format_value(offsets)} are not the begin and the end of its data")
    start, stop = offsets
    if data_start + stop > file_bytes:
        raise ValueError(
            f"its data would end at byte {data_start + stop}, and the file has {file_bytes}"
        )
    if code in _BITS:
        bits = math.prod(shape) * _BITS[code]
        if bits != 8 * (stop - start):
            raise ValueError(
                f"{code} of shape {format_value(tuple(shape))} takes {-(-bits // 8)} bytes, and "
                f"its data has {stop - start}"
            )
    return StoredTensor(name, code, tuple(shape), data_start + start, data_start + stop)


def _are_sizes(value: Any) -> bool:
    return type(value) is list and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _check_coverage(
    tensors: dict[str, StoredTensor], data_start: int, file_bytes: int, damage: Any
) -> None:
    """Raise unless each byte of the data belongs to exactly one tensor."""
    position, previous = data_start, None
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.stop)):
        if tensor.start < position and previous is not None:
            names = f"{format_value(previous.name)} and {format_value(tensor.name)}"
            raise damage(f"tensors {names} share bytes")
        if tensor.start > position:
            raise damage(
                f"tensor {format_value(tensor.name)}: {tensor.start - position} bytes before its "
                "data belong to none"
            )
        position, previous = tensor.stop, tensor
    if position != file_bytes:
        last = "" if previous is None else f" after tensor {format_value(previous.name)}"
        raise damage(f"{file_bytes - position} bytes at its end{last} belong to no tensor")


def validate_with_library(who: str, path: str, header: TensorHeader) -> None:
    """Raise FormatError if the library refuses the header of a file, which was read."""
    library = require_safetensors(who)
    try:
        with library.safe_open(path, framework="numpy"):
            pass
    except library.SafetensorError as error:
        unknown = next((t for t in header.tensors.values() if t.code not in _BITS), None)
        about = "" if unknown is None else f", of which tensor {format_value(unknown.name)} is"
        raise FormatError(
            f"{who}: {path!r}: the package safetensors refuses it: {error}{about}; {RELOAD}"
        ) from error


# ------------------------------------------------------------------ writing


_BY_NAME = {name: code for code, name in CODES.items()}
_RANKS = {code: rank for rank, code in enumerate(CODES)}


def tensor_code(dtype: np.dtype[Any]) -> str | None:
    """Return the code of a dtype in a file; None if the format has none."""
    return _BY_NAME.get(dtype.name)  # one for long and for long long, if they are as long


def encode_tensor_header(
    arrays: Mapping[str, Array], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """Return the bytes before the data, and the names in the order of their data.

    The order is that of the package safetensors: large items first, so that data is aligned.
    """
    entries: dict[str, Any] = {METADATA_KEY: dict(sorted(metadata.items()))} if metadata else {}
    codes = {name: tensor_code(array.dtype) or "" for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: (_RANKS[codes[name]], name))
    position = 0
    for name in order:
        array = arrays[name]
        stop = position + array.nbytes
        entries[name] = {
            "dtype": codes[name],
            "shape": list(array.shape),
            "data_offsets": [position, stop],
        }
        position = stop
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER_BYTES:
        raise SettingError(
            f"save_tensors: the names and texts take {len(text)} bytes, and a file has room for "
            f"{_MAX_HEADER_BYTES}; shorten them"
        )
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text, order
