"""Plans do what their graphs mean: kernels run by NumPy, in memory laid out as planned."""

import numpy as np
import pytest
from hypothesis import given, settings

from odyssey.compiler.pipeline import plan
from odyssey.compiler.schedule import buffer_assignment, fusion
from odyssey.compiler.schedule.verify import verify
from support.node_graphs import CALM, Graph, alike, graphs, nodes_of
from support.node_values import Machine, evaluated

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)


def check_plan(graph, roots, updates, look=verify):
    """Raise AssertionError unless a plan gives what the graph means, in outputs and states."""
    wanted = evaluated([*nodes_of(roots), *updates.values()], graph.leaves)
    made = plan(graph.lowered(nodes_of(roots), updates), {})
    look(made)
    machine = Machine(made, graph.leaves)
    assert machine.run()
    got = machine.outputs()
    got += [machine.state(k, graph.leaves["state", k]) for k in updates]
    alike(got, wanted)
    for k in (0, 1):  # effects: no other state is written
        if k not in updates:
            like = graph.leaves["state", k]
            alike([machine.state(k, like)], [like])
    written = {k for k, _ in made.state_copies} | {
        leaf.detail[1] for leaf in made.fused.in_place.values()
    }
    assert written == set(updates)
    return made


@pytest.mark.slow
@settings(max_examples=150, **CALM)
@given(graphs())
def test_plans_give_what_their_graphs_mean_and_write_each_state(found):
    graph, roots, updates = found
    check_plan(graph, roots, updates)


@pytest.mark.soak
@settings(max_examples=800, **CALM)
@given(graphs(most=60))
def test_800_plans_give_what_their_graphs_mean(found):
    graph, roots, updates = found
    check_plan(graph, roots, updates)


# ------------------------------------------------------------------ the oracle finds what is wrong


def found_wrong():
    """Of 120 graphs, how many have a plan that does not do what they mean."""
    wrong = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        graph = Graph(lambda options, rng=rng: list(options)[rng.integers(len(options))], True)
        graph.write(25)
        updates = {}
        for k in range(2):
            like = graph.leaves["state", k]
            updates[k] = [n for n, a in graph.pairs if a.shape == like.shape][-1]
        try:
            check_plan(graph, graph.pairs[-3:], updates, look=lambda made: None)
        except AssertionError:
            wrong += 1
    return wrong


@pytest.mark.slow
def test_plans_that_are_right_are_found_right():
    assert found_wrong() == 0


def together(buffers):
    """All buffers of the arena at one place."""
    return max((buffer.bytes for buffer in buffers), default=0)


FAULTS = {
    "values that overlap": (buffer_assignment, "assign_offsets", together),
    "a state that is written before it is read": (
        fusion._Fuser,
        "_update_in_place",
        lambda self, n, state: self.fused.in_place.__setitem__(n.id, state),
    ),
    "values that are forgotten": (buffer_assignment, "is_fully_covered", lambda join: True),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_planted_in_a_pass_is_found(monkeypatch, fault):
    where, name, wrong = FAULTS[fault]
    monkeypatch.setattr(where, name, wrong)
    assert found_wrong() > 0
