"""A file takes the place of another at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

__all__ = ["DRAFTS", "replace"]

DRAFTS = ".odyssey-*.tmp"
"""How files are called while they are written; one whose writer was killed stays behind."""


def replace(
    target: str, fill: Callable[[BinaryIO], object], mode: int | None, durable: bool = True
) -> None:
    """Put a new file in the place of what is at ``target``; after an error that is as it was.

    Args:
        target: The path, which is no link.
        fill: Writes what the file holds.
        mode: Its permissions; None for those of new files.
        durable: Wait until the disk has it.

    Raises:
        OSError: The system refuses.
    """
    beside = os.path.join(os.path.dirname(target), DRAFTS.replace("*", os.urandom(8).hex()))
    try:
        with open(beside, "xb") as file:
            if mode is not None:
                os.chmod(beside, mode)
            fill(file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(beside, target)
    finally:  # after an error, or Ctrl-C at any place
        with suppress(FileNotFoundError):
            os.unlink(beside)
