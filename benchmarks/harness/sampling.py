"""Samples: calibrated blocks, timed in turns."""

import os
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

Clock = Callable[[], float]
Name = TypeVar("Name")
Result = TypeVar("Result")


def repeated(action: Callable[[], Any]) -> Callable[[int], Any]:
    """Return a function that calls `action` so many times, and returns its last result."""

    def run(repeats: int) -> Any:
        result = None
        for _ in range(repeats):
            result = action()
        return result

    return run


def calibrate(
    run: Callable[[int], Any],
    seconds: float,
    clock: Clock = time.perf_counter,
    most: int | None = None,
) -> int:
    """Warm up, and return the number of repeats that fills a block.

    Args:
        run: Repeats the work so many times.
        seconds: Of a block.
        clock: A clock in seconds.
        most: The largest number of repeats.
    """
    repeats = 1
    while True:
        elapsed = block(run, repeats, clock) * repeats
        if elapsed >= seconds / 2 or repeats == most:
            fitting = max(1, round(repeats * seconds / max(elapsed, 1e-9)))
            return fitting if most is None else min(most, fitting)
        repeats = repeats * 2 if most is None else min(most, repeats * 2)


def block(run: Callable[[int], Any], repeats: int, clock: Clock) -> float:
    """Return the seconds of one repetition, from a block of them."""
    start = clock()
    run(repeats)
    return (clock() - start) / repeats


def processor_seconds() -> float:
    """Processor time of this process, and of those that it started and that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def both_clocks(run: Callable[[int], Any], repeats: int) -> dict[str, float]:
    """Return the elapsed and the processor seconds of one repetition, ``wall`` and ``cpu``."""
    wall, cpu = time.perf_counter(), processor_seconds()
    run(repeats)
    cpu, wall = processor_seconds() - cpu, time.perf_counter() - wall
    return {"wall": wall / repeats, "cpu": cpu / repeats}


def take_turns(names: Iterable[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yield rounds and names, A B C, C B A, …, so that a busy moment falls on every name alike."""
    order = list(names)
    for number in range(rounds):
        yield from ((number, name) for name in order)
        order.reverse()


class Samples(dict[Hashable, list[float]]):
    """Seconds of one repetition by name, one for each round; ratios are taken round by round.

    Args:
        clock: A clock in seconds.
    """

    def __init__(self, clock: Clock = time.process_time) -> None:
        super().__init__()
        self._clock = clock

    def timed(self, name: Hashable, call: Callable[[], Result]) -> Result:
        """Call once, keep the seconds, and return the result."""
        start = self._clock()
        result = call()
        self.setdefault(name, []).append(self._clock() - start)
        return result

    def median(self, name: Hashable) -> float:
        return statistics.median(self[name])

    def best(self, name: Hashable) -> float:
        return min(self[name])

    def ratio(self, name: Hashable, base: Hashable) -> float:
        """The median of the ratios to the base."""
        pairs = zip(self[name], self[base], strict=True)
        return statistics.median(value / reference for value, reference in pairs)


def interleaved(
    cases: Mapping[Any, Callable[[], Any]],
    rounds: int,
    seconds: float = 0.02,
    *,
    clock: Clock = time.process_time,
    repeats: int | None = None,
    around: Callable[[Any], AbstractContextManager[Any]] = nullcontext,
) -> Samples:
    """Time cases that take turns.

    Args:
        cases: What is repeated, by name.
        rounds: Samples of each.
        seconds: Of a block.
        clock: A clock in seconds.
        repeats: Of each block; None for as many as fill it, which are found once and warm it up.
        around: Called with a name before each block; the block runs inside of what it returns.
    """
    runs = {name: repeated(case) for name, case in cases.items()}
    counts = {}
    for name, run in runs.items():
        with around(name):
            counts[name] = calibrate(run, seconds, clock) if repeats is None else repeats
    samples = Samples()
    for _, name in take_turns(runs, rounds):
        with around(name):
            taken = block(runs[name], counts[name], clock)
        samples.setdefault(name, []).append(taken)
    return samples
