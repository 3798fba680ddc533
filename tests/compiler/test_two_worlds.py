"""A world whose functions are compiled cannot be told from one in which they are not."""

import pytest

from support.seeds import SEED
from support.two_worlds import run


def test_a_compiled_and_an_eager_world_stay_equal_through_twenty_random_actions():
    run(0, 20)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2), ids=lambda k: f"seeds from {k * 15}")
def test_compiled_and_eager_worlds_stay_equal_through_the_same_random_actions(chunk):
    errors = [run(seed, 30) for seed in range(chunk * 15, (chunk + 1) * 15)]
    assert 15 < sum(errors) < 15 * 20  # actions that fail are among them, and do not prevail


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(10), ids=lambda k: f"seeds from {k * 100 + 1000}")
def test_a_thousand_pairs_of_worlds_stay_equal(chunk):
    for seed in range(chunk * 100 + 1000, (chunk + 1) * 100 + 1000):
        run(SEED + seed, 30)
