"""Atomic replacement of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

__all__ = ["TEMPORARY_NAMES", "replace_file"]

TEMPORARY_NAMES = ".odyssey-*.tmp"
"""Names of files that are being written; a killed process leaves such a file behind."""


def replace_file(
    target: str, fill: Callable[[BinaryIO], object], mode: int | None, durable: bool = True
) -> None:
    """Replace the file at ``target`` by a new one atomically; an error leaves it unchanged.

    Args:
        target: The path, which is not a link.
        fill: Writes the contents of the file.
        mode: Its permissions; None for those of new files.
        durable: Whether to wait until the data is on the disk.

    Raises:
        OSError: if the system refuses.
    """
    temporary = os.path.join(
        os.path.dirname(target), TEMPORARY_NAMES.replace("*", os.urandom(8).hex())
    )
    try:
        with open(temporary, "xb") as file:
            if mode is not None:
                os.chmod(temporary, mode)
            fill(file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:  # also after an error or Ctrl-C
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def __dir__() -> list[str]:
    return sorted(__all__)
