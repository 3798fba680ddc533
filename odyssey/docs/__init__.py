"""What the table says, for readers and for type checkers: ``python -m odyssey ops``."""

from odyssey.docs.entries import Entry, entries, find
from odyssey.docs.files import FILES, refresh, stale
from odyssey.docs.text import entry_text, listing

__all__ = ["FILES", "Entry", "entries", "entry_text", "find", "listing", "refresh", "stale"]
