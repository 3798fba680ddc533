"""Descriptions of ops, made from the table: ``python -m odyssey ops``."""

from odyssey.describe.entries import Entry, entries, find
from odyssey.describe.text import entry_text, listing

__all__ = ["Entry", "entries", "entry_text", "find", "listing"]


def __dir__() -> list[str]:
    return sorted(__all__)
