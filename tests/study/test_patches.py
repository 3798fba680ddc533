"""Patches of the study: each switches one rule off, gradients stay, and all is put back."""

import os

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.lowering import Lowering
from odyssey.compiler.pipeline import lower_program
from odyssey.compiler.schedule import buffer_assignment
from odyssey.compiler.schedule.fusion import _Fuser
from odyssey.table import call, fast_calls
from odyssey.table.row import Row
from odyssey.tape import queries
from odyssey.tape.recording import Recording
from study.by_hand import run_mlp
from study.patches import COMPILER_PASSES, TAPE_RULES, switch_off


def network(dtype=np.float64):
    rng = np.random.default_rng(0)
    p = [rng.normal(size=shape).astype(dtype) for shape in ((6, 8), (8,), (8, 4), (4,))]
    return p, rng.normal(size=(5, 6)).astype(dtype), rng.integers(0, 4, 5)


def taped_gradients(p, x, labels, function=lambda h: h):
    leaves = [od.Variable(a, requires_grad=True) for a in p]

    def run(x):
        with od.GradientTape() as tape:
            h = function(od.ops.relu(x @ leaves[0] + leaves[1])) @ leaves[2] + leaves[3]
            loss = od.losses.cross_entropy(h, labels)
        return tape.gradient(loss, leaves)

    return run


@pytest.mark.parametrize("name", TAPE_RULES)
def test_gradients_without_a_rule_of_the_tape_are_those_by_hand(name):
    p, x, labels = network()
    wanted = run_mlp(p, x, labels)[1]()
    with switch_off(name):
        found = taped_gradients(p, x, labels)(x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", COMPILER_PASSES)
def test_gradients_without_a_pass_of_the_compiler_are_those_by_hand(name, monkeypatch):
    monkeypatch.setitem(os.environ, "ODYSSEY_CACHE", "off")
    p, x, labels = network()
    wanted = run_mlp(p, x, labels)[1]()
    with switch_off(name):
        compiled = od.compile(taped_gradients(p, x, labels))
        compiled.precompile(x)
        found = compiled(x)
        assert compiled.statistics().native == 1
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def nodes_after_a_sweep(monkeypatch):
    """The number of nodes that a sweep leaves, seen by a spy at its end."""
    left = []
    sweep = queries.backward_sweep

    def spy(*args, **named):
        sweep(*args, **named)
        left.append(len(args[7]))

    monkeypatch.setattr(queries, "backward_sweep", spy)
    p, x, labels = network()
    taped_gradients(p, x, labels)(x)
    return left


def test_a_sweep_without_draining_keeps_all_nodes(monkeypatch):
    assert nodes_after_a_sweep(monkeypatch) == [0]
    with switch_off("draining"):
        (left,) = nodes_after_a_sweep(monkeypatch)
    assert left >= 6


def recorded(function):
    """A tape with the function of a leaf, and its value."""
    x = od.Variable(np.ones((3, 4)), requires_grad=True)
    with od.GradientTape() as tape:
        out = function(x)
    return tape, out


def dead_branches(x):
    for _ in range(3000):
        od.ops.tanh(x)
    return x * 2.0


def test_a_recording_without_pruning_keeps_dead_branches():
    assert len(recorded(dead_branches)[0].nodes) < 1500
    with switch_off("pruning"):
        assert len(recorded(dead_branches)[0].nodes) == 3001


def test_nodes_save_operands_and_results_that_no_rule_asks_for():
    def function(x):
        return od.ops.tanh(x + 1.0)

    assert recorded(function)[0].memory().total == 96  # the result of tanh alone
    with switch_off("needs"):
        assert recorded(function)[0].memory().total == 3 * 96


def test_kernels_leave_no_residuals():
    def saved():
        tape, _ = recorded(lambda x: od.nn.layer_norm(x))
        return tape.nodes[-1].saved

    assert "residual" in saved()
    with switch_off("residuals"):
        assert "residual" not in saved()


def plan_of(function, *args):
    return lower_program(od.compile(function).lower(*args).graph).plan


def test_a_program_without_fusion_has_a_kernel_for_each_op():
    x = np.ones((50, 50))

    def function(x):
        return od.ops.exp(od.ops.tanh(x) * 2.0 + x).sum()

    assert len(plan_of(function, x).fused.kernels) == 1
    with switch_off("fusion"):
        assert len(plan_of(function, x).fused.kernels) == 5


def test_rows_with_a_decomposition_are_host_calls():
    def calls():
        plan = plan_of(lambda x: od.ops.logsumexp(x, axis=1), np.ones((50, 50)))
        return sum(kernel.kind == "call" for kernel in plan.fused.kernels)

    assert calls() == 0
    with switch_off("decompositions"):
        assert calls() == 1


def test_values_of_an_arena_without_reuse_have_memory_of_their_own():
    a = np.ones((64, 64))

    def function(a):
        return a @ a @ a @ a @ a @ a

    reused = plan_of(function, a).arena
    with switch_off("arena-reuse"):
        assert plan_of(function, a).arena == 4 * a.nbytes
    assert reused == 2 * a.nbytes


def test_everything_is_put_back():
    places = [
        (queries, "_sweep_backward"),
        (Recording, "_prune_nodes"),
        (Recording, "set_active"),
        (Row, "save_values"),
        (call, "run_with_residual"),
        (fast_calls, "run_with_residual"),
        (_Fuser, "_fusable_kernel"),
        (_Fuser, "_can_delay"),
        (Lowering, "_lower_natively"),
        (buffer_assignment, "assign_offsets"),
        (buffer_assignment, "_reuse_operand_buffers"),
    ]
    before = [getattr(*place) for place in places]
    with switch_off(*TAPE_RULES, *COMPILER_PASSES):
        assert all(getattr(*place) is not b for place, b in zip(places, before, strict=True))
    assert [getattr(*place) for place in places] == before
    with pytest.raises(KeyError):
        switch_off("pruning", "a rule that there is not")
    assert [getattr(*place) for place in places] == before
