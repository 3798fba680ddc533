"""Bounded cache of what is prepared for a device: tables of rows, loaded modules, plans."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any

__all__ = ["CPU_CACHE", "DEFAULT_CACHE_LIMIT", "DeviceCache"]

DEFAULT_CACHE_LIMIT = 4096
"""Entries that a device's cache keeps unless its limit is set."""


class DeviceCache:
    """The latest results by key, at most ``limit`` of them: the least recently used one goes first.

    It has no lock: each step is one operation of a dictionary, and two threads that miss at the
    same time both make the value.

    >>> cache = DeviceCache(limit=2)
    >>> [cache.get(key, lambda: key * 10) for key in (1, 2, 1, 3, 1)]
    [10, 20, 10, 30, 10]
    >>> cache.stats()
    {'entries': 2, 'limit': 2, 'hits': 2, 'misses': 3}
    """

    def __init__(self, limit: int = DEFAULT_CACHE_LIMIT) -> None:
        self._entries: dict[Hashable, Any] = {}  # the least recently used first
        self._limit = limit
        self._hits = self._misses = 0

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of a key, which ``make`` returns if there is none."""
        try:
            value = self._entries.pop(key)
        except KeyError:
            self._misses += 1
            value = make()
        else:
            self._hits += 1
        self._entries[key] = value
        self._evict()
        return value

    def memoize(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that keeps its results here, by its arguments, as ``lru_cache`` does.

        >>> cache = DeviceCache()
        >>> double = cache.memoize(lambda x: [2 * x])
        >>> double(3) is double(3), cache.stats()["entries"]
        (True, 1)
        """

        @wraps(function)
        def memoized(*args: Any, **options: Any) -> Any:
            # Types as well: 1, 1.0 and True are equal keys, and make other tables.
            types = tuple([type(v) for v in (*args, *options.values())])
            key = (function, args, tuple(sorted(options.items())), types)
            return self.get(key, lambda: function(*args, **options))

        return memoized

    def _evict(self) -> None:
        while len(self._entries) > self._limit:
            try:
                self._entries.pop(next(iter(self._entries)), None)
            except (StopIteration, RuntimeError):  # another thread changed it
                continue

    @property
    def limit(self) -> int:
        """The largest number of entries; a smaller one drops entries at once."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._evict()

    def clear(self) -> None:
        """Drop all entries, and count hits and misses anew."""
        self._entries.clear()
        self._hits = self._misses = 0

    def stats(self) -> dict[str, int]:
        """Return ``entries``, ``limit``, ``hits`` and ``misses``."""
        return {
            "entries": len(self._entries),
            "limit": self._limit,
            "hits": self._hits,
            "misses": self._misses,
        }


CPU_CACHE = DeviceCache()
"""The cache of the CPU."""
