"""``Generator``: a counter-based random number generator, Philox-4x64-10.

Block n of a generator is Philox-4x64-10 of the key and the counter n: four numbers of 64 bits
(Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011). A draw of n numbers takes the
next ceil(n / 4) blocks. Each number depends only on the key, the counter at the start of the draw
and its position, so any of them can be computed alone.

The state is a Value, as the data of Variables is: a traced graph holds it as a state, and a replay
substitutes another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import setitem
from typing import Any

import numpy as np

from odyssey.checks import check_int, format_value
from odyssey.devices.commit import commit
from odyssey.devices.same_device import namespace_of
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, SettingError
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.random.philox_on_arrays import philox_bits
from odyssey.spec import Array
from odyssey.table import fast_calls, registry
from odyssey.table.rng_replay import current_rng_state
from odyssey.table.store import store
from odyssey.table.value import CONSTANT, Value, free_id, make_value

__all__ = [
    "DRAWS",
    "Generator",
    "check_generator",
    "draw_state",
    "generator_state",
    "generator_with",
    "random_bits",
    "seed",
    "set_generator_state",
]

_WORD = 1 << 64
_NAME = "philox4x64-10"

# The last word of the counter says what blocks are used for.
DRAWS, _KEYS = 0, 1


class Generator:
    """Counter-based random number generator, with the same numbers on every device.

    Args:
        seed: The key, an integer from 0 to 2**128 - 1; by default random, from the operating
            system.

    Raises:
        SettingError: if the seed is negative or too large.

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
        key = check_int("Generator", "seed", seed, 0)
        if key >= _WORD**2:
            raise SettingError(f"Generator: seed={format_value(seed)}; it must be below 2**128")
        self._state = _state_value(_initial_words(key, 0))

    # -------------------------------------------------------------- the state

    @property
    def state(self) -> dict[str, Any]:
        """The key and the number of blocks drawn so far; assigning it resumes from there."""
        here, value = store(), current_rng_state(self._state)
        here.require_known("state of", value)
        key, counter = _key_and_counter(np.asarray(here.operand(value)))
        return {"bit_generator": _NAME, "state": {"key": key, "counter": counter}}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        words = _parse_state(state)
        value = current_rng_state(self._state)
        with write_lock():
            wait_for_programs()
            store().write(value, words, "Generator.state")

    def _state_write(self, state: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the C call that sets the state."""
        return setitem, self._state._array, ..., _parse_state(state)

    # -------------------------------------------------------------- draws, as NumPy's are called

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = float) -> Any:
        """Return uniform numbers in [low, high); see ``ops.random_uniform``.

        ``size`` is the shape of the result, in all draws; by default that of the parameters.
        """
        shape = _drawn_size(size, low, high)
        return _draw("random_uniform", shape, low=low, high=high, dtype=dtype, rng=self)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> Any:
        """Return normal numbers of mean ``loc`` and deviation ``scale``; see ``random_normal``."""
        shape = _drawn_size(size, loc, scale)
        return _draw("random_normal", shape, mean=loc, std=scale, dtype=dtype, rng=self)

    def integers(
        self, low: int, high: int | None = None, size: Any = None, dtype: Any = np.int64
    ) -> Any:
        """Return integers from ``low`` up to ``high - 1``; see ``ops.random_integers``.

        With one bound they go from 0 up to that bound, which is excluded.

        >>> import odyssey as od
        >>> od.Generator(7).integers(10, size=5)
        array([9, 7, 9, 1, 8])
        """
        first, last = (0, low) if high is None else (low, high)
        shape = _drawn_size(size)
        return _draw("random_integers", shape, low=first, high=last, dtype=dtype, rng=self)

    def bernoulli(self, p: Any = 0.5, size: Any = None) -> Any:
        """Return booleans that are True with probability ``p``; see ``ops.random_bernoulli``."""
        return _draw("random_bernoulli", _drawn_size(size, p), p=p, rng=self)

    def categorical(self, logits: Any, *, axis: int = -1, size: Any = None) -> Any:
        """Return indices of logits, drawn by their softmax; see ``ops.random_categorical``."""
        return _draw("random_categorical", logits, axis=axis, shape=size, rng=self)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Return an array in random order, or that of ``range(x)``; see ``random_permutation``."""
        return _draw("random_permutation", x, axis=axis, rng=self)

    def exponential(self, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> Any:
        """Return exponential numbers of mean ``scale``; see ``ops.random_exponential``."""
        shape = _drawn_size(size, scale)
        return _draw("random_exponential", shape, scale=scale, dtype=dtype, rng=self)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> Any:
        """Return numbers of the gamma distribution of a shape parameter; see ``random_gamma``."""
        named = {"concentration": shape, "scale": scale, "dtype": dtype}
        return _draw("random_gamma", _drawn_size(size, shape, scale), **named, rng=self)

    # -------------------------------------------------------------- splitting and copying

    def split(self, n: int) -> list[Generator]:
        """Return ``n`` independent generators, whose keys are drawn from this one.

        Their numbers are independent of one another's and of those of this generator.

        >>> import odyssey as od
        >>> [child.state["state"]["counter"] for child in od.Generator(7).split(2)]
        [0, 0]
        """
        count = check_int("split", "n", n, 0)
        store().refuse_effect("Generator.split: called", "split the generator outside")
        before = np.asarray(_advance_counter(self, 4 * count))
        words = random_bits(before, 4 * count, _KEYS).reshape(count, 4)
        return [_generator_of(_pack_words(int(a), int(b), 0)) for a, b, _, _ in words.tolist()]

    def __repr__(self) -> str:
        data = self._state._array
        if not isinstance(data, np.ndarray):
            return f"Generator({data!r})"
        key, counter = _key_and_counter(data)
        return f"Generator(key={key}, counter={counter})"

    def __copy__(self) -> Generator:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: Any) -> Generator:
        return _restore_generator(self.state)

    def __reduce__(self) -> Any:
        return _restore_generator, (self.state,)


# ------------------------------------------------------------------ drawing


def _draw(name: str, *args: Any, **named: Any) -> Any:
    """Call the op of a name; its module is above this one."""
    op: Any = registry.function_of(name)
    return op(*args, **named)


def _drawn_size(size: Any, *parameters: Any) -> Any:
    """Return the shape of a draw: ``size``, or the shape to which the parameters broadcast."""
    if size is not None or not parameters:
        return () if size is None else size
    return np.broadcast_shapes(*(getattr(v, "shape", None) or np.shape(v) for v in parameters))


def draw_state(who: str, rng: Any, count: int) -> Any:
    """Return the state to draw ``count`` numbers from, and advance the generator past them."""
    check_generator(who, rng)
    return _advance_counter(PROCESS_GENERATOR if rng is None else rng, count)


def check_generator(who: str, rng: Any) -> None:
    """Raise DTypeError if ``rng`` is no generator; None stands for the generator of the process."""
    if rng is not None and not isinstance(rng, Generator):
        raise DTypeError(
            f"{who}: rng is {format_value(rng)}; pass an od.Generator(seed), or None for the "
            "process's own"
        )


def _advance_counter(rng: Generator, count: int) -> Any:
    value, blocks = current_rng_state(rng._state), -(-count // 4)

    def advanced(state: Any) -> Any:
        if not isinstance(state, np.ndarray):
            return add(state, _pack_words(0, 0, blocks))
        words = state.copy()
        words[2] = (int(state[2]) + blocks) % _WORD
        return words

    with write_lock():
        wait_for_programs()
        return store().replace_state(value, advanced)


def generator_state(generator: Generator) -> Any:
    """Return the words of a generator's state, as the store holds them."""
    return store().copied(current_rng_state(generator._state))


def set_generator_state(generator: Generator, words: Any) -> None:
    """Set the words of a generator's state."""
    value = current_rng_state(generator._state)
    with write_lock():
        wait_for_programs()
        store().write(value, words, "Generator.state")


def random_bits(state: Array, count: int, purpose: int = DRAWS, trial: int = 0) -> Array:
    """Return ``count`` numbers of 64 bits, starting at a state; others for each ``trial``."""
    if type(state) is not np.ndarray and (xp := namespace_of(state)) is not np:
        return philox_bits(xp, state, count, purpose, trial)
    from numpy.random import Philox

    first = int(state[2]) + (trial << 128) + (purpose << 192)
    # NumPy's generator increments the counter before it computes a block.
    counter = np.frombuffer(((first - 1) % _WORD**4).to_bytes(32, "little"), "<u8")
    return Philox(counter=counter, key=state[:2]).random_raw(count)


# ------------------------------------------------------------------ words of a state


def _pack_words(low: int, high: int, counter: int) -> Array:
    return np.array([low, high, counter], np.uint64)


def _initial_words(key: int, counter: int) -> Array:
    return _pack_words(key % _WORD, key // _WORD, counter)


def _key_and_counter(words: Array) -> tuple[int, int]:
    low, high, counter = words.tolist()
    return low + high * _WORD, counter


def _state_value(words: Array) -> Value:
    return make_value(fast_calls.VARIABLE, words, CONSTANT, free_id())


def generator_with(state: Value) -> Generator:
    """Return a generator with a state."""
    generator: Generator = object.__new__(Generator)
    generator._state = state
    return generator


def _generator_of(words: Array) -> Generator:
    return generator_with(_state_value(words))


def _restore_generator(state: Mapping[str, Any]) -> Generator:
    return _generator_of(_parse_state(state))


def _parse_state(state: Any) -> Array:
    """Validate a user's state and return its words."""
    try:
        if state["bit_generator"] != _NAME or state.keys() != {"bit_generator", "state"}:
            raise ValueError
        inner = state["state"]
        if inner.keys() != {"key", "counter"}:
            raise ValueError
        key, counter = (check_int("state", name, inner[name]) for name in ("key", "counter"))
    except (TypeError, ValueError, LookupError, AttributeError):
        raise DTypeError(
            f"Generator: {format_value(state)} is not a state; pass what the state of a Generator "
            "was"
        ) from None
    if not (0 <= key < _WORD**2 and 0 <= counter < _WORD):
        raise SettingError(
            f"Generator: {format_value(state)}; key is below 2**128, counter below 2**64"
        )
    return _initial_words(key, counter)


# ------------------------------------------------------------------ generator of the process


def _new_process_generator() -> Generator:
    return _generator_of(np.frombuffer(os.urandom(16) + bytes(8), np.uint64).copy())


PROCESS_GENERATOR = _new_process_generator()
"""Generator that ops draw from by default."""


def seed(number: int) -> None:
    """Seed the generator of the process, from which ops draw that are given no ``rng``.

    A child process that is forked later has another seed, from the operating system.

    Args:
        number: The key, an integer from 0 to 2**128 - 1.

    >>> import odyssey as od
    >>> od.seed(7)
    >>> od.ops.random_uniform((3,)).round(3)
    array([0.901, 0.777, 0.965])
    """
    key = check_int("seed", "number", number, 0)
    if key >= _WORD**2:
        raise SettingError(f"seed: number={format_value(number)}; it must be below 2**128")
    PROCESS_GENERATOR.state = {"bit_generator": _NAME, "state": {"key": key, "counter": 0}}


def _reseed_after_fork() -> None:
    # Otherwise all children would draw the same numbers.
    commit(
        [(setitem, PROCESS_GENERATOR._state._array, ..., _new_process_generator()._state._array)]
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reseed_after_fork)
