"""Offsets in one piece of memory: the lowest that is free, and nothing upon what lives."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odyssey.compiler.schedule.buffer_assignment import ALIGNMENT, Buffer, assign_offsets

SIZES = st.sampled_from([0, 1, 8, 64, 100, 512, 4000])
BUFFERS = st.lists(
    st.tuples(st.integers(-1, 15), st.integers(0, 8), SIZES).map(
        lambda given: Buffer("arena", 0, given[2], 0, given[0], given[0] + given[1])
    ),
    max_size=40,
)


def lowest(buffers):
    """The same by looking at all of those before, from one end to the other."""
    placed, offsets = [], {}
    for one in sorted(buffers, key=lambda b: b.first):
        at = 0
        for other, start in sorted(placed, key=lambda pair: pair[1]):
            if other.last >= one.first and other.bytes and one.bytes:
                if at + one.bytes <= start:
                    break
                at = max(at, -(-(start + other.bytes) // ALIGNMENT) * ALIGNMENT)
        placed.append((one, at))
        offsets[id(one)] = at
    return [offsets[id(one)] for one in buffers]


@pytest.mark.slow
@given(BUFFERS)
def test_each_lies_in_the_lowest_gap_among_those_that_live_with_it(buffers):
    whole = assign_offsets(buffers)
    assert [one.offset for one in buffers] == lowest(buffers)
    assert whole == max((one.offset + one.bytes for one in buffers), default=0)


def test_many_that_live_at_once_are_placed_in_linear_time():
    rng = random.Random(1)
    many = [Buffer("arena", k, 64 * rng.randint(1, 9), 0, k, k + 20_000) for k in range(20_000)]
    assert assign_offsets(many) == sum(one.bytes for one in many)
