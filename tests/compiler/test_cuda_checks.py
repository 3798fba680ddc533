"""Checks of CUDA programs: kernels behind one that fails store nothing; and scalar inputs."""

import re

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.cuda.compile_kernels import compile_kernels
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import CheckStep, CopyStep, Launch, ProductStep
from odyssey.spec import Spec
from support.cuda_programs import SMALL, HostRun, cuda_program

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 6)).astype("f4")
GOOD, BAD = np.array([0, 1, 2, 3, 1]), np.array([0, 1, 4, 3, 1])


def lowered_step(rate=0.1, losses=1):
    """Lower a step of training whose loss checks class numbers."""
    w = Variable(RNG.normal(size=(6, 4)).astype("f4"), requires_grad=True, name="w")
    optimizer = od.optim.SGD([w], rate, momentum=0.9)

    def step(x, *targets):
        with GradientTape() as tape:
            loss = sum(od.losses.cross_entropy(x @ w, y) for y in targets)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return od.compile(step).lower(X, *[GOOD.copy() for _ in range(losses)])


def run(lowered, targets, backward=False):
    states = {
        k: s.variable._array.copy() for k, s in enumerate(lowered.graph.states) if s.field == "data"
    }
    found = HostRun(cuda_program(lowered.graph), [X, *targets], states, backward)
    found.run()
    return found


@pytest.mark.parametrize("backward", [False, True])
def test_states_stay_as_they_are_if_a_class_number_is_out_of_range(backward):
    lowered = lowered_step()
    found = run(lowered, [BAD], backward)
    assert found.truths == [False]
    for k, state in enumerate(lowered.graph.states):
        if state.field == "data":
            np.testing.assert_array_equal(found.states[k], state.variable._array)


def test_states_are_numpys_if_all_class_numbers_are_in_range():
    lowered = lowered_step()
    found = run(lowered, [GOOD])
    loss, left = lowered.evaluate(X, GOOD)
    assert found.truths == [True]
    np.testing.assert_allclose(found.outputs()[0], loss, rtol=3e-7)
    labels = {s.label: k for k, s in enumerate(lowered.graph.states) if s.field == "data"}
    for label in ("w", "w.velocity"):
        np.testing.assert_allclose(found.states[labels[label]], left[label], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("targets", "truths"),
    [
        ((GOOD, GOOD), [True, True]),
        ((GOOD, BAD[::-1]), [True, False]),
        ((BAD, GOOD[::-1]), [False, False]),
    ],
)
def test_a_byte_holds_whether_its_check_and_all_before_hold(targets, truths):
    lowered = lowered_step(losses=2)
    found = run(lowered, targets)
    assert [s.address.offset for s in found.program.steps if isinstance(s, CheckStep)] == [0, 1]
    assert found.truths == truths
    kept = [
        np.array_equal(found.states[k], s.variable._array)
        for k, s in enumerate(lowered.graph.states)
        if s.field == "data"
    ]
    assert all(kept) != all(truths)


def test_bytes_of_checks_are_still_there_after_the_run():
    found = run(lowered_step(losses=2), [GOOD, BAD])
    checks = [s for s in found.program.steps if isinstance(s, CheckStep)]
    assert [bool(found._bytes(s.address)[0]) for s in checks] == [True, False]


def test_nothing_behind_a_check_writes_a_state_without_reading_its_byte():
    program = cuda_program(lowered_step().graph)
    at = next(k for k, s in enumerate(program.steps) if isinstance(s, CheckStep))
    behind = program.steps[at + 1 :]
    kernels = {k.name: k for k in program.kernels}
    launches = [s for s in behind if isinstance(s, Launch)]
    assert launches
    assert all("%held" in kernels[s.kernel].body for s in launches)
    assert not [s for s in behind if isinstance(s, CopyStep) and s.target.kind == "state"]


def accumulate(w, x):
    w.assign(w * 0.5 + x.T @ x)


def write_rows(w, x):
    w[np.array([0, 2, 2, 8])] = x[:4]


def add_rows(w, x):
    w.assign(w + ops.add_at(x, (np.array([0, 1, 1, 0, 3, 3, 8, 8, 8]),), Spec((9, 9), x.dtype)))


UPDATES = {
    "elements": lambda w, x: w.assign(w * 2 + x),
    "product": lambda w, x: w.assign(x.T @ x * 1),
    "accumulating product": accumulate,
    "product with the old value": lambda w, x: w.assign(w @ w),
    "rows": write_rows,
    "sums of rows": add_rows,
    "running sums": lambda w, x: w.assign(ops.cumsum(w, 0)),
    "reduction": lambda w, x: w.assign(w - ops.sum(w, axis=0)),
    "transposed": lambda w, x: w.assign(ops.transpose(w)),
    "join": lambda w, x: w.assign(ops.concatenate([x[3:], w[:3]], 0)),
}


def checked_update(update, dtype="f4"):
    """Lower an update of a state behind two checks: places of rows of two other states."""
    x = RNG.normal(size=(9, 9)).astype(dtype)
    w, *tables = (Variable(RNG.normal(size=(k, 9)).astype(dtype)) for k in (9, 4, 4))

    def step(x, first, second):
        tables[0][first] = x
        update(w, x)
        tables[1][second] = x * 2
        return ops.sum(x)

    places = RNG.integers(0, 4, 9)
    return od.compile(step).lower(x, places, places[::-1].copy()), x, places


@pytest.mark.parametrize("name", UPDATES)
def test_updates_behind_checks_are_made_if_both_hold_and_else_not_at_all(name):
    lowered, x, places = checked_update(UPDATES[name])
    outside = np.where(np.arange(9) == 5, 4, places)
    program = cuda_program(lowered.graph, LaunchShape(threads=32, blocks=2))
    assert isinstance(next(s for s in program.steps if not isinstance(s, Launch)), CheckStep)
    before = {k: s.variable._array for k, s in enumerate(lowered.graph.states) if s.field == "data"}
    cases = [(places, places, False), (outside, places, True), (places, outside, False)]
    for first, second, backward in cases:
        states = {k: array.copy() for k, array in before.items()}
        found = HostRun(program, [x, first, second], states, backward)
        found.run()
        holds = first is places and second is places
        assert all(found.truths) == holds
        _, left = lowered.evaluate(x, first, second) if holds else (None, {})
        for k, state in states.items():
            wanted = left[lowered.graph.states[k].label] if holds else before[k]
            np.testing.assert_allclose(state, wanted, rtol=1e-5 if holds else 0, atol=1e-5 * holds)


@pytest.mark.parametrize("name", ["product", "accumulating product"])
def test_a_state_that_a_product_is_written_over_is_kept_and_restored(name):
    program = cuda_program(checked_update(UPDATES[name])[0].graph)
    at = next(k for k, s in enumerate(program.steps) if isinstance(s, ProductStep))
    kept, product, restored = program.steps[at - 1 : at + 2]
    assert isinstance(kept, CopyStep)
    assert (kept.source.kind, kept.target.kind, kept.bytes) == ("state", "scratch", 4 * 81)
    assert product.node.detail[1] == (0.5 if name == "accumulating product" else 0)
    assert set(restored.arguments) >= {kept.source, kept.target}


@pytest.mark.parametrize(("dtype", "word"), [("u1", 8), ("f2", 16), ("f4", 32), ("c16", 32)])
def test_copies_read_no_longer_words_than_elements_which_may_lie_anywhere(dtype, word):
    lowered, _, _ = checked_update(lambda w, x: w.assign(ops.flip(w, axis=0)), dtype)
    program = cuda_program(lowered.graph)
    last = next(k for k in program.kernels if k.name == program.steps[-1].kernel)
    assert re.findall(r"= load i(\d+), ptr %v\d+", last.body) == [str(word)]


def test_numbers_of_python_are_read_at_each_run():
    compiled = od.compile(lambda x, rate, shift: x * rate + shift)
    compiled(X, 0.5, 3)
    compiled(X, 0.75, 4)  # numbers that vary are scalar inputs from here on
    compiled(X, 0.25, 5)
    ((case),) = compiled._known.values()
    plan = case.programs[-1][1].executable.plan
    leaves = [n for n in plan.fused.order if n.kind == "leaf" and n.detail[0] == "given"]
    assert len(leaves) == 2
    program = compile_kernels(plan, SMALL)
    for rate, shift in ((0.5, 3), (-2.0, 7)):
        given = {
            n.detail[1]: np.array([v], n.type) for n, v in zip(leaves, (rate, shift), strict=True)
        }
        found = HostRun(program, [X], {}, False, [given[k] for k in sorted(given)])
        found.run()
        np.testing.assert_array_equal(found.outputs()[0], X * np.float32(rate) + np.float32(shift))
