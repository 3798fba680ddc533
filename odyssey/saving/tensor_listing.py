"""Listing of the tensors of a file: names, dtypes, shapes and sizes, without their data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from odyssey.checks import format_value
from odyssey.saving.tensor_header import TensorEntry

__all__ = ["TensorListing"]

_MAX_NAME = 100


class TensorListing(Mapping[str, TensorEntry]):
    """The tensors of a file, or of shards, by name; prints as a table.

    Attributes:
        path: The path of the file, or of the index.
        metadata: The texts of the file by name; of shards, those of the first one with the name.
    """

    def __init__(
        self, path: str, entries: dict[str, TensorEntry], metadata: dict[str, str]
    ) -> None:
        self.path = path
        self.metadata = metadata
        self._entries = entries

    @property
    def nbytes(self) -> int:
        """The size of the data of all tensors in bytes."""
        return sum(entry.nbytes for entry in self._entries.values())

    def __getitem__(self, name: str) -> TensorEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"TensorListing({self.path!r}, {len(self)} tensors, {self.nbytes} bytes)"

    def __str__(self) -> str:
        files = {entry.file for entry in self._entries.values()}
        rows = [["name", "dtype", "shape", "bytes", "file"]]
        for name, entry in self._entries.items():
            shape = str(entry.shape)
            rows.append(
                [
                    _on_one_line(name),
                    entry.dtype,
                    shape,
                    f"{entry.nbytes:,}",
                    _on_one_line(entry.file),
                ]
            )
        if len(files) < 2:
            rows = [row[:-1] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [
                cell.rjust(width) if k == 3 else cell.ljust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        numbers = sum(math.prod(entry.shape) for entry in self._entries.values())
        total = f"{len(self)} tensors, {numbers:,} numbers, {self.nbytes:,} bytes"
        lines.append(total + (f", {len(files)} files" if len(files) > 1 else ""))
        lines += [
            f"metadata {_on_one_line(name)}: {_on_one_line(text)}"
            for name, text in self.metadata.items()
        ]
        return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """Return a text without what a terminal would obey, and not too long."""
    if not text.isprintable() or not text:
        text = format_value(text)
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 2]}.."
