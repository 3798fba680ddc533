"""The distributed experiment: ranks against its reference, and hypotheses on made-up records."""

import numpy as np
import pytest

from study.contract import NotApplicable
from study.experiments import distributed
from study.records import Records, judged
from support.ranks import needs_mpi
from support.study import header, sample


def records_of(bits=7, gain=1.6, waiting=0.2):
    """Records of one rank and two, which are timed, and of four, which are not."""
    lines = []
    for system in distributed.SYSTEMS:
        for ranks in (1, 2, 4):
            config = {"ranks": ranks, "batch": 256, "shards": 4, "steps": 15}
            metrics = {"bits": float(bits if ranks == 4 else 7)}
            if ranks < 4:
                metrics |= {"seconds": 1.0 / (gain if ranks == 2 else 1.0)}
                metrics |= {"wait_share": waiting if ranks == 2 else 0.0}
            lines += [sample(system, k, 0.0, config=config, metrics=metrics) for k in range(3)]
    return Records(lines, [header()])


def outcomes(records):
    return {n: v.outcome for n, v in judged(distributed.HYPOTHESES, records).items()}


def test_equal_bits_and_a_gain_hold():
    assert outcomes(records_of()) == {"bits": "held", "gain": "held", "waiting": "held"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"bits": 8}, "bits"), ({"gain": 1.2}, "gain"), ({"waiting": 0.5}, "waiting")],
    ids=["bits", "gain", "waiting"],
)
def test_each_hypothesis_is_refuted_by_what_it_says(changes, name):
    found = outcomes(records_of(**changes))
    assert [n for n, outcome in found.items() if outcome == "refuted"] == [name]


def test_one_rank_alone_decides_nothing():
    alone = [line for line in records_of().lines if line["config"]["ranks"] == 1]
    assert set(outcomes(Records(alone, [header()])).values()) == {"undecided"}


def test_pictures_say_the_gain_that_the_records_have():
    seconds, waiting = distributed.pictures(records_of(gain=1.5, waiting=0.25))
    assert "1.50 to 1.50 times" in seconds.title
    assert "4 ranks" not in seconds.table()
    assert "up to 25% of a step" in waiting.title


def test_without_mpi_the_experiment_does_not_apply(monkeypatch):
    config = distributed.configs(False)[0]
    monkeypatch.setattr(distributed.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotApplicable, match="mpi4py is not installed"):
        distributed.build("taped", config)


@pytest.mark.slow
def test_two_ranks_take_the_steps_of_the_whole_batch():
    needs_mpi()
    config = {"ranks": 2, "batch": 16, "shards": 2, "steps": 2}
    answer = distributed.build("taped", config).answer()
    wanted = distributed.reference(config)["bias"]
    np.testing.assert_allclose(answer["bias"], wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
