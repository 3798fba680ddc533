"""Tuning finds faster ways of works and trains nothing; compiled functions use what it found."""

import json
import os
import time
from contextlib import nullcontext
from random import Random
from statistics import median

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler import tuning
from odyssey.compiler.way_checks import check_in_program, check_ways
from odyssey.compiler.ways.choosing import graph_key, version_of
from odyssey.compiler.ways.contest import contest_of, hold_contest
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.compiler.ways.store import Outcome, Store, Verdict, default_store
from odyssey.errors import DTypeError, SettingError
from odyssey.ops import OPS
from odyssey.table.kernel_selection import Kernel

ops = od.ops


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Keep measurements in a folder of the test, and the warnings of other tests out."""
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    monkeypatch.setattr("odyssey.kernels.cache_folders._warned", set())
    return tmp_path


@pytest.fixture
def contests(monkeypatch):
    """Replace contests: a challenger wins if ``winners`` has its way, by the given ratio."""
    held, winners = [], {}

    def contest(self, champion, challenger, goes_on):
        plans = {run: plan for plan, run in self._runs.items()}
        base, own = plans[champion], plans[challenger]
        challenger.block(1)
        held.append((base, own))
        ratio = 1.0
        for plan, power in ((base, -1), (own, 1)):
            for name in plan.differences.values():
                ratio *= winners.get(name, 1.2) ** power
        return contest_of([(100.0, 100.0 * ratio)] * 25)

    monkeypatch.setattr(tuning._Tuner, "_contest", contest)
    held_contests = type("Contests", (), {"held": held, "winners": winners})
    return held_contests


@pytest.fixture
def passes(monkeypatch):
    """Replace the checks of ways, which take some programs each."""

    def check(choice, names):
        return [verdict_on(choice, name, "")._replace(ratio=None, bound=None) for name in names]

    monkeypatch.setattr(tuning, "check_ways", check)


def rows(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def works_of(step, *args):
    return {one.work: one for one in step._works(NO_PLAN, args, {})}


def verdict_on(choice, name, graph, bound=0.5, **more):
    way = next(one for one in choice.ways if one.name == name)
    version = version_of(way, choice.ways[0])
    settings = {"error": 1e-7, "guess_error": 1e-7} | more
    return Verdict(str(choice.work), name, version, graph, 0.9 * bound, bound, **settings)


def running_sum(x):
    return ops.cumsum(x, axis=1) * 2.0


# ------------------------------------------------------------------ use of what is known


def test_a_compiled_function_uses_what_the_store_knows_and_explains_it():
    x = rows(4, 8)
    step = od.compile(running_sum)
    (choice,) = works_of(step, x).values()
    assert default_store().add(verdicts=[verdict_on(choice, "called", "elsewhere")])
    expected = running_sum(x)
    assert np.array_equal(step(x), expected)
    np.testing.assert_allclose(step(x), expected, rtol=1e-6)
    assert step.statistics().native == 1
    assert step.plan(x) == Plan({choice.work: "called"})
    assert "measured x0.45 (<0.50), in another program" in step.explain(x)
    assert od.compile(running_sum, plan=NO_PLAN).explain(x).count("measured") == 0


def test_a_verdict_in_the_program_itself_wins_over_others():
    x = rows(4, 8)
    step = od.compile(running_sum)
    step.precompile(x)
    (choice,) = works_of(step, x).values()
    key = graph_key(step.lower(x).graph)
    own = verdict_on(choice, "called", key, bound=1.1)
    assert default_store().add(verdicts=[own, verdict_on(choice, "called", "elsewhere")])
    again = od.compile(running_sum)
    again.precompile(x)
    assert again.plan(x) == NO_PLAN


@pytest.mark.parametrize(
    ("tolerance", "more", "taken"),
    [
        ("bits", {"equal": True}, True),
        ("bits", {"equal": False}, False),
        (0.0, {"error": 1e-5}, False),
        (1e-4, {"error": 1e-5}, True),
        (1e-6, {"error": 1e-5}, False),
        (0.0, {"reason": "it raised"}, False),
    ],
)
def test_the_tolerance_of_a_compiled_function_is_kept(tolerance, more, taken):
    x = rows(4, 8)
    (choice,) = works_of(od.compile(running_sum), x).values()
    assert default_store().add(verdicts=[verdict_on(choice, "called", "g", **more)])
    step = od.compile(running_sum, tolerance=tolerance)
    step.precompile(x)
    assert bool(len(step.plan(x))) is taken


@pytest.mark.parametrize("limit", ["memory_limit", "memory_budget"])
def test_with_a_memory_limit_programs_are_as_guessed(limit):
    x = rows(4, 8)
    (choice,) = works_of(od.compile(running_sum), x).values()
    assert default_store().add(verdicts=[verdict_on(choice, "called", "g")])
    step = od.compile(running_sum, **{limit: 10**6})
    step.precompile(x)
    assert step.plan(x) == NO_PLAN


@pytest.mark.parametrize(
    ("wrong", "error"), [("exact", SettingError), (-1, SettingError), (None, DTypeError)]
)
def test_a_wrong_tolerance_is_refused_at_once(wrong, error):
    with pytest.raises(error, match=r"^compile: tolerance="):
        od.compile(running_sum, tolerance=wrong)
    with pytest.raises(error, match=r"^compile: tolerance="):
        od.compile(tolerance=wrong)


def test_without_a_file_of_measurements_none_is_opened(monkeypatch):
    monkeypatch.setattr(Store, "__init__", lambda *_: pytest.fail("a store was made"))
    step = od.compile(running_sum)
    step.precompile(rows(4, 8))
    assert step.plan(rows(4, 8)) == NO_PLAN


@pytest.mark.parametrize("kind", ["garbage", "folder", "raises", "unknown way"])
def test_no_failure_of_the_store_raises_from_a_compiled_call(kind, folder, monkeypatch):
    x = rows(4, 8)
    store = default_store()
    (choice,) = works_of(od.compile(running_sum), x).values()
    row = verdict_on(choice, "called", "g")
    assert store.add(verdicts=[row])
    store.close()
    if kind == "garbage":
        store.path.write_bytes(os.urandom(9000))
    elif kind == "folder":
        store.path.unlink()
        store.path.mkdir()
    elif kind == "raises":
        monkeypatch.setattr(Store, "verdicts", lambda *_: 1 / 0)
    else:
        monkeypatch.setattr(
            "odyssey.compiler.ways.choosing.choose",
            lambda *_: {choice.work: type("Other", (), {"way": "no such way", "ratio": 0.1})()},
        )
    step = od.compile(running_sum, warn=False)
    with pytest.warns(RuntimeWarning) if kind in ("garbage", "folder") else nullcontext():
        np.testing.assert_allclose(step(x), running_sum(x), rtol=1e-6)
        np.testing.assert_allclose(step(x), running_sum(x), rtol=1e-6)
    assert step.statistics().native == 1
    assert step.plan(x) == NO_PLAN


@pytest.mark.slow
def test_a_look_up_takes_at_most_30_us_a_work():
    from odyssey.compiler.ways.choosing import choose_from

    x = rows(4, 8)
    step = od.compile(lambda x: [ops.cumsum(ops.softmax(x[k:]), axis=1) for k in range(4)])
    works = list(works_of(step, x).values())
    store = default_store()
    for graph in ("", "g", "i"):
        found = [verdict_on(one, way.name, graph) for one in works for way in one.ways[1:]]
        assert store.add(verdicts=found, outcomes=[Outcome("g", "0.0", "{}", 1.0, 1.0)])
    pairs = [(one.work, one.ways) for one in works]
    times = []
    for _ in range(30):
        begin = time.thread_time()
        choose_from(store, pairs, lambda: "h", 0.0)
        times.append(time.thread_time() - begin)
    assert len(pairs) >= 8
    assert min(times) / len(pairs) < 60e-6, min(times) / len(pairs)  # 30 us on an idle machine


# ------------------------------------------------------------------ the tuner


@pytest.mark.slow
def test_a_way_that_wins_is_taken_stored_and_used_at_once(contests):
    contests.winners["called"] = 0.5
    x = rows(4, 8)
    step = od.compile(running_sum)
    report = od.tune(step, x)
    (work,) = works_of(step, x)
    assert report.plan == step.plan(x) == Plan({work: "called"})
    assert (report.ratio, report.left, report.is_stored) == (0.5, 0, True)
    assert "x0.50 (<0.50) of the guess" in repr(report)
    assert "measured x0.50 (<0.50)" in step.explain(x)
    assert step.statistics().written == 0
    np.testing.assert_allclose(step(x), running_sum(x), rtol=1e-6)
    # A later process with the same function finds it.
    again = od.compile(running_sum)
    again.precompile(x)
    assert again.plan(x) == report.plan
    assert default_store().contests()[0].rounds == [(100.0, 50.0)] * 25


def test_the_guess_stays_where_nothing_is_faster_and_that_is_stored(contests, passes):
    x = rows(4, 8)
    step = od.compile(running_sum)
    report = od.tune(step, x)
    assert (report.plan, report.ratio) == (NO_PLAN, 1.0)
    assert all(one.note == "slower" for one in report.tried)
    assert report.tried
    key = graph_key(step.lower(x).graph)
    assert [one.plan for one in default_store().outcomes(key)] == ["{}"]


def test_a_plan_that_loses_at_the_end_is_not_taken(contests, passes, monkeypatch):
    contests.winners["called"] = 0.5
    finish = tuning._Tuner._finish

    def lose(self, champion):
        contests.winners["called"] = 1.01
        return finish(self, champion)

    monkeypatch.setattr(tuning._Tuner, "_finish", lose)
    x = rows(4, 8)
    step = od.compile(running_sum)
    assert od.tune(step, x).plan == step.plan(x) == NO_PLAN
    again = od.compile(running_sum)
    again.precompile(x)
    assert again.plan(x) == NO_PLAN


def test_ways_outside_of_the_tolerance_are_timed_and_not_taken(contests):
    contests.winners["called"] = 0.5
    x = rows(4, 8)
    step = od.compile(running_sum, tolerance="bits")
    (choice,) = works_of(step, x).values()
    row = verdict_on(choice, "called", "", error=1e-5)
    assert default_store().add(verdicts=[row._replace(ratio=None, bound=None)])
    report = od.tune(step, x)
    assert report.plan == NO_PLAN
    assert "outside of the tolerance" in repr(report)
    wide = od.compile(running_sum, tolerance=1e-4)
    wide.precompile(x)
    assert wide.plan(x) == Plan({choice.work: "called"})


def three_sums(x):
    return ops.cumsum(x, axis=0), ops.cumsum(x[1:], axis=0), ops.cumsum(x[2:], axis=0)


def test_tuning_in_pieces_tries_every_way_once(contests, passes, monkeypatch):
    x = rows(5, 3)
    step = od.compile(three_sums)
    works = works_of(step, x).values()
    every = {(str(one.work), way.name) for one in works for way in one.ways[1:]}
    tried, lefts = [], []
    for _ in range(len(every) + 1):
        begun = []
        monkeypatch.setattr(
            tuning._Tuner, "_has_time", lambda self, begun=begun: not begun or begun.clear()
        )
        real = tuning._Tuner._try

        def once(self, *given, begun=begun, real=real):
            begun.append(1)
            return real(self, *given)

        monkeypatch.setattr(tuning._Tuner, "_try", once)
        report = od.tune(step, x)
        monkeypatch.setattr(tuning._Tuner, "_try", real)
        tried += [(one.work, one.way) for one in report.tried]
        lefts.append(report.left)
    assert sorted(tried) == sorted(every)
    assert lefts == [*range(len(every) - 1, -1, -1), 0]


def test_an_interrupted_tuning_keeps_what_was_measured(contests, passes, monkeypatch):
    x = rows(5, 3)
    step = od.compile(three_sums)
    real = tuning._Tuner._contest

    def interrupt(self, *given):
        if len(contests.held) == 2:
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(tuning._Tuner, "_contest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        od.tune(step, x)
    monkeypatch.setattr(tuning._Tuner, "_contest", real)
    before = list(contests.held)
    report = od.tune(step, x)
    assert len(before) == 2
    assert not {own for _, own in before} & {own for _, own in contests.held[2:]}
    assert report.left == 0
    np.testing.assert_allclose(step(x)[0], three_sums(x)[0], rtol=1e-6)


def test_works_within_loops_are_tuned(contests, passes):
    contests.winners["called"] = 0.5

    def loop(x):
        return od.scan(lambda h, row: (h + ops.cumsum(row, axis=0), h), x[0], x)[0]

    x = rows(100, 3)
    step = od.compile(loop)
    report = od.tune(step, x)
    assert [work.row for work in report.plan.differences] == ["cumsum"]
    np.testing.assert_allclose(step(x), loop(x), rtol=1e-5)
    assert "measured" in step.explain(x)


def test_static_arguments_select_the_program_that_is_tuned(contests, passes):
    contests.winners["called"] = 0.5
    step = od.compile(lambda x, n: ops.cumsum(x, axis=n), static="n")
    x = rows(4, 8)
    report = od.tune(step, x, 1)
    assert report.plan == step.plan(x, 1)
    assert len(report.plan) == 1


class Smoother:
    """An object whose method keeps an array in an attribute."""

    def __init__(self):
        self.h = rows(4, 8) * 0

    @od.compile
    def step(self, x):
        self.h = self.h * 0.5 + ops.cumsum(x, axis=1)
        return self.h.sum()


@pytest.mark.slow
def test_a_method_is_tuned_and_its_object_stays_as_it_is(contests, passes):
    contests.winners["called"] = 0.5
    one, twin, x = Smoother(), Smoother(), rows(4, 8)
    for _ in range(4):
        one.step(x)
    before = np.array(one.h)
    report = od.tune(one.step, x)
    assert np.array_equal(one.h, before)
    assert "cumsum" in {work.row for work in report.plan.differences}
    assert Smoother.step.plan(one, x) == report.plan
    for _ in range(4):
        Smoother.step._fn(twin, x)
    for _ in range(3):
        np.testing.assert_allclose(one.step(x), Smoother.step._fn(twin, x), rtol=1e-5)


def training():
    rng = np.random.default_rng(0)
    w = od.Variable(rng.normal(size=(6, 5)), requires_grad=True)
    running = od.Variable(np.zeros(5))
    optimizer = od.optim.Adam([w], 0.01)
    generator = od.Generator(0)

    def step(x):
        with od.GradientTape() as tape:
            y = ops.softmax(ops.dropout(x @ w, rate=0.5, rng=generator))
            loss = (ops.cumsum(y, axis=1) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        running.assign(running * 0.9 + y.sum(axis=0) * 0.1)
        return loss

    return step, (w, running, optimizer, generator)


def state_of(parts):
    w, running, optimizer, generator = parts
    state = optimizer.state_dict()
    arrays = [w.numpy(), running.numpy(), *od.tree.leaves(state)]
    grad = None if w.grad is None else w.grad.numpy()
    return [np.asarray(one).tobytes() for one in arrays], grad, str(generator.state)


@pytest.mark.slow
def test_a_training_step_that_is_tuned_trains_nothing(contests, passes, monkeypatch):
    monkeypatch.setattr(tuning._Tuner, "_has_time", lambda self: len(self._tried) < 2)
    fn, parts = training()
    twin, others = training()
    step, x = od.compile(fn), rows(7, 6, dtype=np.float64)
    step.precompile(x)  # gives the optimizer its first state
    for _ in range(3):
        step(x)
    before = state_of(parts)
    contests.winners["called"] = 0.5
    report = od.tune(step, x)
    assert state_of(parts) == before
    assert report.plan == step.plan(x) != NO_PLAN
    for _ in range(3):
        twin(x)
    for _ in range(2):
        np.testing.assert_allclose(step(x).numpy(), twin(x).numpy(), rtol=1e-9)
    np.testing.assert_allclose(parts[0].numpy(), others[0].numpy(), rtol=1e-9)
    assert step.statistics().written <= 1


def test_blocks_set_the_states_back_where_a_check_refuses_them():
    class Filling:
        left, resets = 3, 0

        def run(self):
            if self.left == 0:
                raise od.errors.OdysseyError("full")
            self.left -= 1

        def reset(self):
            self.left, self.resets = 3, self.resets + 1

    run = Filling()
    tuning._Runner(run).block(10)
    assert run.resets > 0
    run.left, run.reset = 0, lambda: None
    with pytest.raises(od.errors.OdysseyError, match="full"):
        tuning._Runner(run).block(2)


def test_a_store_that_cannot_be_written_leaves_the_plan_in_the_report(
    contests, passes, monkeypatch
):
    contests.winners["called"] = 0.5
    monkeypatch.setenv("ODYSSEY_CACHE", "off")
    x = rows(4, 8)
    step = od.compile(running_sum)
    report = od.tune(step, x)
    assert len(report.plan) == 1
    assert not report.is_stored
    assert "pin the plan" in repr(report)
    assert step.plan(x) == NO_PLAN
    pinned = od.compile(running_sum, plan=report.plan)
    pinned.precompile(x)
    assert pinned.plan(x) == report.plan


def test_what_cannot_be_tuned_is_refused_by_name():
    x = rows(4, 8)
    step = od.compile(running_sum)
    with pytest.raises(SettingError, match="which is not compiled"):
        od.tune(running_sum, x)
    with pytest.raises(SettingError, match="running_sum has a pinned plan"):
        od.tune(od.compile(running_sum, plan=NO_PLAN), x)
    with pytest.raises(SettingError, match="running_sum has a memory limit"):
        od.tune(od.compile(running_sum, memory_limit=10**6), x)
    sized = od.compile(running_sum, dynamic={"x": {0: od.Dim("rows", 1, 64)}})
    with pytest.raises(SettingError, match="running_sum has symbolic sizes"):
        od.tune(sized, x)
    with pytest.raises(SettingError, match="a spec came for running_sum"):
        od.tune(step, od.Spec((4, 8), np.float32))
    with pytest.raises(SettingError, match="seconds"):
        od.tune(step, x, seconds=-1)
    with od.GradientTape(), pytest.raises(SettingError, match="inside an open tape"):
        od.tune(step, x)
    with pytest.raises(od.errors.CompileError):
        od.tune(od.compile(lambda x: print(x)), x)
    assert default_store().all_verdicts() == []


def test_values_that_the_program_refuses_are_no_fault_of_a_way(contests, passes):
    step = od.compile(lambda x, k: ops.cumsum(x, axis=0)[k])
    x = rows(4, 8)
    with pytest.raises(SettingError, match="refuses the values of these arguments"):
        od.tune(step, x, np.array([1, 9]))
    assert default_store().all_verdicts() == []


def test_a_way_that_fails_in_the_program_goes_into_quarantine(contests, passes, monkeypatch):
    contests.winners["planted"] = 0.5
    monkeypatch.setattr(OPS["softmax"], "kernels", (Kernel("planted", raises),))
    step = od.compile(lambda x: ops.softmax(x))
    report = od.tune(step, rows(3, 5))
    (row,) = [row for row in default_store().all_verdicts() if row.reason]
    assert (row.way, row.reason) == ("planted", "it raised ValueError: no such call")
    assert "planted" not in report.plan.differences.values()


# ------------------------------------------------------------------ checks of ways


def check_kernel(monkeypatch, run, name="softmax", error_bound=None, fn=None, x=None):
    """Return the verdict on a kernel that a row gets."""
    row = OPS[name]
    kernel = Kernel("planted", run, error_bound=error_bound)
    monkeypatch.setattr(row, "kernels", (*row.kernels, kernel))
    step = od.compile(fn or (lambda x: ops.softmax(x)))
    (choice,) = [
        c for w, c in works_of(step, rows(3, 5) if x is None else x).items() if w.row == name
    ]
    (verdict,) = check_ways(choice, ["planted"])
    return verdict


def exact(x, axis):
    y = np.exp(x.astype(np.float64) - np.max(x, axis, keepdims=True).astype(np.float64))
    return (y / y.sum(axis, keepdims=True)).astype(x.dtype)


def raises(x, axis):
    raise ValueError("no such call")


def writes(x, axis):
    out = exact(x, axis)
    x[...] = 0
    return out


def returns_a_view(x, axis):
    return x[...]


def hides_nan(x, axis):
    return np.nan_to_num(exact(x, axis))


def imprecise(x, axis):
    return exact(x, axis) * (1 + np.float32(1e-4))


def overflows(x, axis):
    y = np.exp(40 * x.astype(np.float32)) ** (np.float32(1 / 40))
    return (y / y.sum(axis, keepdims=True)).astype(x.dtype)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (raises, "it raised ValueError: no such call"),
        (writes, "it wrote to an operand"),
        (returns_a_view, "it returns a view of an operand"),
        (hides_nan, "its NaN and infinite elements are others for operands with such elements"),
        (overflows, "its NaN and infinite elements are others"),
    ],
)
def test_a_way_that_fails_its_checks_goes_into_quarantine(run, reason, monkeypatch):
    assert check_kernel(monkeypatch, run).reason.startswith(reason)


def test_a_way_that_is_right_passes_with_its_error(monkeypatch):
    verdict = check_kernel(monkeypatch, exact)
    assert verdict.reason == ""
    assert verdict.error <= 4 * verdict.guess_error < 1e-5


def test_a_way_that_is_imprecise_passes_with_a_larger_error(monkeypatch):
    verdict = check_kernel(monkeypatch, imprecise)
    assert verdict.reason == ""
    assert 0.5e-4 < verdict.error < 2e-4
    assert verdict.error > 4 * verdict.guess_error


def test_a_way_with_other_integers_goes_into_quarantine(monkeypatch):
    verdict = check_kernel(
        *(monkeypatch, lambda x, axis, keepdims: np.zeros(x.shape[:1], np.int64), "argmax"),
        fn=lambda x: ops.argmax(x, axis=1),
    )
    assert verdict.reason == "its integers differ from those of the guess"


def test_a_product_within_a_convolution_is_checked_in_the_program(contests):
    x, w = rows(1, 4, 9, 9), rows(4, 4, 3, 3)
    step = od.compile(lambda x: ops.conv2d(x, w, padding=1))
    works = works_of(step, x)
    (choice,) = [one for work, one in works.items() if work.row == "window product"]
    step.precompile(x)
    tuner = tuning._Tuner(tuning._Target.of(step, (x,), {}), 1.0)
    check = tuner._checked(choice, choice.ways[1].name)
    assert check.reason == ""
    assert 0 <= check.error <= 4 * check.guess_error < 1e-4
    assert tuner._checked(choice, choice.ways[1].name) == check


def test_results_of_a_program_that_differ_are_no_rounding():
    choice = works_of(od.compile(running_sum), rows(4, 8)).popitem()[1]

    class Run:
        def __init__(self, value):
            self.value = value

        def reset(self):
            self.value = np.array(self.value)

        def run(self):
            self.reset()

        def results(self):
            return [self.value]

    guess = Run(rows(4, 8))
    for factor, is_exact in ((1 + 1e-6, True), (1 + 1e-3, False)):
        check = check_in_program(choice, "called", guess, Run(guess.value * np.float32(factor)))
        assert (check.error <= 4 * check.guess_error) is is_exact
    check = check_in_program(choice, "called", guess, Run(guess.value * np.nan))
    assert check.reason == "its NaN and infinite elements are others"


def test_a_quarantine_is_stored_explained_and_kept(monkeypatch, contests):
    row = OPS["softmax"]
    monkeypatch.setattr(row, "kernels", (Kernel("planted", writes),))
    contests.winners["planted"] = 0.1
    x = rows(3, 5)
    step = od.compile(lambda x: ops.softmax(x))
    report = od.tune(step, x)
    assert "planted" not in report.plan.differences.values()
    assert "planted: it wrote to an operand" in repr(report)
    assert (
        "softmax(float32[3, 5]; axis=(1,)): planted, since it wrote to an operand"
        in step.explain(x)
    )
    again = od.tune(step, x)
    assert again.tried == ()
    (kept,) = [row for row in default_store().all_verdicts() if row.way == "planted"]
    assert kept.reason == "it wrote to an operand"


# ------------------------------------------------------------------ real contests

SPOILED = {
    "softmax": (lambda x: ops.softmax(x), (rows(96, 128),)),
    "cumsum": (lambda x: ops.cumsum(x, axis=1), (rows(128, 128),)),
    "sum": (lambda x: (x * 2.0).sum(axis=1), (rows(128, 128),)),
    "max": (lambda x: (x * 2.0).max(axis=1), (rows(128, 128),)),
    "log_softmax": (lambda x: ops.log_softmax(x), (rows(96, 128),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOILED)
def test_a_rule_that_was_spoiled_is_found_and_undone(name, monkeypatch):
    fn, args = SPOILED[name]
    monkeypatch.setattr(OPS[name], "guess", lambda *_: "called")
    step = od.compile(fn)
    step.precompile(*args)
    assert "calls" in step.explain(*args)
    report = od.tune(step, *args, seconds=1.0)
    mended = {work.row: way for work, way in report.plan.differences.items()}
    assert mended[name] == "compiled", report
    assert report.ratio < 0.95
    assert f"calls {name}" not in step.explain(*args)


@pytest.mark.slow
def test_a_tuned_program_is_never_slower_than_the_guess():
    x, w = rows(64, 64), rows(64, 64)

    def fn(x, w):
        return ops.cumsum(ops.softmax(x @ w), axis=0)

    step = od.compile(fn)
    report = od.tune(step, x, w, seconds=6.0)
    if report.plan == NO_PLAN:
        return  # it is the guess
    runs = [step._dry_run(plan, (x, w), {}) for plan in (NO_PLAN, report.plan)]
    blocks = [tuning._Runner(run).block for run in runs]
    ratios = [
        hold_contest(*blocks, time.thread_time_ns, Random(k), block=3_000_000).ratio
        for k in range(3)
    ]
    assert median(ratios) <= 1.03, (ratios, report)


def test_a_report_prints_what_was_tried():
    tried = (
        tuning.WayTried("a(float32[2])", "called", 1.5, float("inf"), "slower"),
        tuning.WayTried("b(float32[2])", "loops", None, None, "it raised"),
    )
    report = tuning.TuningReport("step", NO_PLAN, 1.0, 1.0, tried, 3, 1.25, True)
    assert repr(report).splitlines() == [
        "tune: step: the guess, 2 ways in 1.2 s",
        "  3 ways are left; call it again to go on",
        "  not a(float32[2]): called: x1.50 slower",
        "  not b(float32[2]): loops: it raised",
    ]


def test_json_of_contests_names_the_plans(contests, passes):
    contests.winners["called"] = 0.5
    x = rows(4, 8)
    report = od.tune(od.compile(running_sum), x)
    ran = default_store().contests()
    assert Plan.from_json(ran[-1].plan) == report.plan
    assert json.loads(ran[-1].against)["works"] == []
