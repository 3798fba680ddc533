"""``Generator``: a key and a counter, from which ops draw random numbers.

Block number n of a generator is what the function Philox-4x64-10 makes of the counter n and the
key: four numbers of 64 bits (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
One draw of n numbers takes the next ceil(n / 4) blocks. So a draw depends on the key, the counter
and its size alone, and its numbers on nothing but their places; whoever knows the two can compute
any of them by itself.

The state is a Value, as the data of Variables is: a graph that is traced holds it as a state, and a
repetition puts another one in its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import setitem
from typing import Any

import numpy as np

from odyssey.checks import shown, whole
from odyssey.devices.commit import commit
from odyssey.devices.guard import guard, wait_for_programs
from odyssey.errors import DTypeError, SettingError
from odyssey.ops.elementwise.arithmetic import add
from odyssey.spec import Array
from odyssey.table import fast_calls
from odyssey.table.repeats import standing_for
from odyssey.table.store import MEMORY, store
from odyssey.table.value import CONSTANT, Value, free_id, make_value

__all__ = ["DRAWS", "Generator", "bits_of", "check_generator", "drawing"]

_WORD = 1 << 64
_NAME = "philox4x64-10"

# The last word of the counter tells what blocks are for.
DRAWS, _KEYS = 0, 1


class Generator:
    """Random numbers from a key and a counter, the same on every device.

    Args:
        seed: A whole number from 0 to 2**128 - 1, which is the key; by default one that the
            system gives, another at each time.

    Raises:
        SettingError: for a seed that is negative or too large.

    >>> import odyssey as od
    >>> rng = od.Generator(7)
    >>> od.ops.random_uniform((3,), rng=rng).round(3)
    array([0.901, 0.777, 0.965])
    >>> rng
    Generator(key=7, counter=1)
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            store().refuse_effect(
                "Generator: seeded by the system", "make it outside, or give it a seed"
            )
            seed = int.from_bytes(os.urandom(16), "little")
        key = whole("Generator", "seed", seed, 0)
        if key >= _WORD**2:
            raise SettingError(f"Generator: seed={shown(seed)}; it must be below 2**128")
        self._state = _state_value(_words(key, 0))

    # -------------------------------------------------------------- the state

    @property
    def state(self) -> dict[str, Any]:
        """The key, and how many blocks were drawn; to set it goes on from there."""
        here, place = store(), standing_for(self._state)
        here.demand("state of", place)
        key, counter = _numbers(np.asarray(here.operand(place)))
        return {"bit_generator": _NAME, "state": {"key": key, "counter": counter}}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        words = _checked(state)
        place = standing_for(self._state)
        with guard():
            wait_for_programs()
            store().write(place, words)

    def _setting(self, state: Mapping[str, Any]) -> tuple[Any, ...]:
        """The call of C that sets the state."""
        return setitem, self._state._array, ..., _checked(state)

    # -------------------------------------------------------------- others

    def split(self, n: int) -> list[Generator]:
        """Return ``n`` generators with keys of their own, that this one draws; it goes on itself.

        Their numbers are independent of one another's, and of those of this one.

        >>> import odyssey as od
        >>> [child.state["state"]["counter"] for child in od.Generator(7).split(2)]
        [0, 0]
        """
        count = whole("split", "n", n, 0)
        store().refuse_effect("Generator.split: called", "split the generator outside")
        before = np.asarray(_advanced(self, 4 * count))
        words = bits_of(before, 4 * count, _KEYS).reshape(count, 4)
        return [_made(_words_of(int(a), int(b), 0)) for a, b, _, _ in words.tolist()]

    def __repr__(self) -> str:
        data = self._state._array
        if not isinstance(data, np.ndarray):
            return f"Generator({data!r})"
        key, counter = _numbers(data)
        return f"Generator(key={key}, counter={counter})"

    def __copy__(self) -> Generator:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: Any) -> Generator:
        return _rebuilt(self.state)

    def __reduce__(self) -> Any:
        return _rebuilt, (self.state,)


# ------------------------------------------------------------------ drawing


def drawing(who: str, rng: Any, count: int) -> Any:
    """The state from which ``count`` numbers are drawn; the generator goes on behind them."""
    check_generator(who, rng)
    return _advanced(OWN if rng is None else rng, count)


def check_generator(who: str, rng: Any) -> None:
    """Raise for what is no generator; None stands for the process's own."""
    if rng is not None and not isinstance(rng, Generator):
        raise DTypeError(
            f"{who}: rng is {shown(rng)}; pass an od.Generator(seed), or None for the process's own"
        )


def _advanced(rng: Generator, count: int) -> Any:
    place, here, blocks = standing_for(rng._state), store(), -(-count // 4)
    with guard():
        wait_for_programs()
        if here is not MEMORY:
            before = here.copied(place)
            here.write(place, add(before, _words_of(0, 0, blocks)))
            return before
        state = place._array
        before = state.copy()
        state[2] = (int(before[2]) + blocks) % _WORD
        return before


def bits_of(state: Array, count: int, purpose: int = DRAWS) -> Array:
    """``count`` numbers of 64 bits, from the state on."""
    from numpy.random import Philox

    first = int(state[2]) + (purpose << 192)
    # NumPy's steps the counter before it makes a block.
    counter = np.frombuffer(((first - 1) % _WORD**4).to_bytes(32, "little"), "<u8")
    return Philox(counter=counter, key=state[:2]).random_raw(count)


# ------------------------------------------------------------------ words


def _words_of(low: int, high: int, counter: int) -> Array:
    return np.array([low, high, counter], np.uint64)


def _words(key: int, counter: int) -> Array:
    return _words_of(key % _WORD, key // _WORD, counter)


def _numbers(words: Array) -> tuple[int, int]:
    low, high, counter = words.tolist()
    return low + high * _WORD, counter


def _state_value(words: Array) -> Value:
    return make_value(fast_calls.VARIABLE, words, CONSTANT, free_id())


def _made(words: Array) -> Generator:
    made: Generator = object.__new__(Generator)
    made._state = _state_value(words)
    return made


def _rebuilt(state: Mapping[str, Any]) -> Generator:
    return _made(_checked(state))


def _checked(state: Any) -> Array:
    """The words of a state that somebody gives."""
    try:
        if state["bit_generator"] != _NAME or state.keys() != {"bit_generator", "state"}:
            raise ValueError
        inner = state["state"]
        if inner.keys() != {"key", "counter"}:
            raise ValueError
        key, counter = (whole("state", name, inner[name]) for name in ("key", "counter"))
    except (TypeError, ValueError, LookupError, AttributeError):
        raise DTypeError(
            f"Generator: {shown(state)} is not a state; pass what the state of a Generator was"
        ) from None
    if not (0 <= key < _WORD**2 and 0 <= counter < _WORD):
        raise SettingError(f"Generator: {shown(state)}; key is below 2**128, counter below 2**64")
    return _words(key, counter)


# ------------------------------------------------------------------ the process's own


def _own() -> Generator:
    return _made(np.frombuffer(os.urandom(16) + bytes(8), np.uint64).copy())


OWN = _own()
"""What ops draw from where no generator is given."""


def _in_the_child() -> None:
    # Else all children would draw the same numbers.
    commit([(setitem, OWN._state._array, ..., _own()._state._array)])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
