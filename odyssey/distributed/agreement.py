"""Agreement of ranks: facts that must be equal on all, and errors that all of them raise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from odyssey import errors
from odyssey.distributed.group import Group
from odyssey.distributed.ordered_sums import gather_rows
from odyssey.errors import OdysseyError, SettingError
from odyssey.spec import Array

__all__ = ["Fact", "agree_on_facts", "texts_of_ranks"]


class Fact(NamedTuple):
    """Something that must be equal on all ranks.

    Attributes:
        name: What it is, with its verb, as in "the batch differs".
        text: The fact.
        advice: What to do if it differs.
        describe: Returns the difference in words, from the texts of all ranks.
        error: The class of the error.
    """

    name: str
    text: str
    advice: str
    describe: Callable[[list[str]], str] | None = None
    error: type[OdysseyError] = SettingError


@lru_cache(maxsize=256)
def _hash_of(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def agree_on_facts(
    group: Group,
    who: str,
    refusal: OdysseyError | None,
    facts: Sequence[Fact],
    words: Array | None = None,
) -> Array:
    """Exchange a few words in one collective, or raise on all ranks.

    Args:
        group: The ranks.
        who: The caller, for messages.
        refusal: Why this rank cannot go on, or None.
        facts: What must be equal on all ranks.
        words: Integers of 64 bits for the other ranks, as many on each.

    Returns:
        The words of all ranks, one row for each.

    Raises:
        OdysseyError: the refusal; or that of another rank, with its number; or a fact differs.
    """
    words = np.zeros(0, np.int64) if words is None else words
    if group.size == 1:
        if refusal is not None:
            raise refusal
        return words[None]
    begin = 1 + len(facts)
    header = np.empty(begin + len(words), np.int64)
    header[0] = refusal is not None
    header[1:begin] = [_hash_of(fact.text) for fact in facts]
    header[begin:] = words
    table = gather_rows(group._transport, who, header)
    if table[:, 0].any():
        _raise_refusal(group, who, refusal)
    for j, fact in enumerate(facts, 1):
        if (table[:, j] != table[0, j]).any():
            texts = texts_of_ranks(group, who, fact.text)
            if fact.describe is not None:
                raise fact.error(f"{who}: {fact.describe(texts)}; {fact.advice}")
            shown = "; ".join(f"on rank {r} {text}" for r, text in enumerate(texts))
            raise fact.error(f"{who}: {fact.name} between ranks: {shown}; {fact.advice}")
    found: Array = table[:, begin:]
    return found


def _raise_refusal(group: Group, who: str, refusal: OdysseyError | None) -> None:
    """Raise the refusal of this rank, or else that of the first rank that has one."""
    name = type(refusal).__name__ if type(refusal).__name__ in errors.__all__ else "OdysseyError"
    texts = texts_of_ranks(group, who, "" if refusal is None else f"{name} {refusal}")
    if refusal is not None:
        raise refusal
    rank, text = next((r, text) for r, text in enumerate(texts) if text)
    name, _, message = text.partition(" ")
    raise getattr(errors, name)(f"{message} (rank {rank})")


def texts_of_ranks(group: Group, who: str, text: str) -> list[str]:
    """Return the texts of all ranks, by rank."""
    encoded = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    longest = int(gather_rows(group._transport, who, np.array([len(encoded)], np.int64)).max())
    padded = np.zeros(max(longest, 1), np.uint8)
    padded[: len(encoded)] = encoded
    table = gather_rows(group._transport, who, padded)
    return [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in table]


def __dir__() -> list[str]:
    return sorted(__all__)
