"""Samples: calibrated blocks, timed in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

Clock = Callable[[], float]


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


def both_clocks(run: Callable[[int], Any], repeats: int) -> tuple[float, float]:
    """Return the elapsed and the processor seconds of one repetition, from a block of them."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(repeats)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return wall / repeats, cpu / repeats


class Samples:
    """Seconds of one repetition by name, one for each round; ratios are taken round by round."""

    def __init__(self, values: Mapping[str, list[float]]) -> None:
        self.values = values

    def median(self, name: str) -> float:
        return statistics.median(self.values[name])

    def best(self, name: str) -> float:
        return min(self.values[name])

    def ratios(self, name: str, base: str) -> list[float]:
        """Ratios to the base, one for each round."""
        pairs = zip(self.values[name], self.values[base], strict=True)
        return [value / reference for value, reference in pairs]

    def ratio(self, name: str, base: str) -> float:
        """The median of the ratios to the base."""
        return statistics.median(self.ratios(name, base))


def take_turns(names: list[str], rounds: int) -> list[tuple[int, str]]:
    """Rounds and names, A B C, C B A, …, so that a busy moment falls on every name alike."""
    return [(k, name) for k in range(rounds) for name in (names if k % 2 == 0 else names[::-1])]
