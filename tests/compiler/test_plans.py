"""Plans: which works of a program are computed otherwise, and that all plans compute alike."""

import copy
import itertools
import json
import pickle
import random
from types import GeneratorType

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Spec, Variable, ops
from odyssey.compiler.pipeline import lower_program, works_of
from odyssey.compiler.ways.plans import NO_PLAN, Plan, all_plans
from odyssey.compiler.ways.works import Work
from odyssey.errors import FormatError, OdysseyError, SettingError
from odyssey.graph.subgraphs import LoopRow
from support.by_plan import results_by_plan
from support.small_graphs import FUNCTIONS, in_float32, with_gradients

X = np.random.default_rng(0).normal(size=(4, 6)).astype("f")
SUM, MAX = (Work(name, ("float32[4, 6]",), "axis=(1,), keepdims=True") for name in ("sum", "max"))
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def softmax_rows(x):
    return ops.softmax(x)


# ------------------------------------------------------------------ a plan


def test_a_plan_is_equal_by_content_and_hashable_in_any_order():
    one, other = Plan({SUM: "called", MAX: "called"}), Plan([(MAX, "called"), (SUM, "called")])
    assert one == other
    assert hash(one) == hash(other)
    assert one != Plan({SUM: "called"})
    assert one != {SUM: "called", MAX: "called"}
    assert Plan() == NO_PLAN
    assert (len(one), len(NO_PLAN)) == (2, 0)


def test_a_plan_is_frozen():
    plan = Plan({SUM: "called"})
    with pytest.raises(AttributeError, match="with_way"):
        plan._ways = {}
    with pytest.raises(TypeError):
        plan.differences[MAX] = "called"
    given = {SUM: "called"}
    kept = Plan(given)
    given[MAX] = "called"
    assert len(kept) == 1


def test_with_way_adds_replaces_and_drops():
    plan = NO_PLAN.with_way(SUM, "called").with_way(MAX, "called")
    assert plan.with_way(SUM, "loops").differences == {SUM: "loops", MAX: "called"}
    assert plan.with_way(SUM, None) == Plan({MAX: "called"})
    assert (plan.get(SUM), NO_PLAN.get(SUM)) == ("called", None)


def test_a_plan_survives_json_pickle_and_copies():
    plan = Plan({SUM: "called", Work("a", ()): 'of "quotes"\n'})
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(NO_PLAN.to_json()) == NO_PLAN
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert copy.deepcopy(plan) == plan
    assert Plan([*plan.differences.items()][::-1]).to_json() == plan.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"works": []}',
        '{"format": "odyssey plan 2", "works": []}',
        '{"format": "odyssey plan 1", "works": [{"row": "sum"}]}',
        '{"format": "odyssey plan 1", "works": 3}',
        '{"format": "odyssey plan 1", "works": '
        '[{"row": 1, "specs": [], "options": "", "way": "a"}]}',
        '{"format": "odyssey plan 1", "works": '
        '[{"row": "a", "specs": "float32[3]", "options": "", "way": "a"}]}',
        "[" * 100_000,
    ],
)
def test_text_that_is_no_plan_is_refused(text):
    with pytest.raises(FormatError, match="not the JSON of a plan"):
        Plan.from_json(text)


def test_a_work_that_is_named_twice_is_refused():
    works = json.loads(Plan({SUM: "called"}).to_json())["works"] * 2
    with pytest.raises(FormatError, match="twice"):
        Plan.from_json(json.dumps({"format": "odyssey plan 1", "works": works}))


@pytest.mark.parametrize("ways", [{"sum": "called"}, {SUM: 1}, {SUM: ""}, {SUM: None}])
def test_what_is_no_work_or_no_name_is_refused(ways):
    with pytest.raises(SettingError, match="pass names of ways by Work"):
        Plan(ways)


def test_a_plan_prints_a_line_for_each_work():
    assert str(NO_PLAN) == "the guess"
    assert str(Plan({SUM: "called"})) == "sum(float32[4, 6]; axis=(1,), keepdims=True): called"


# ------------------------------------------------------------------ all plans


def test_plans_are_lazy_and_begin_with_the_guess():
    called = []

    def works_by(plan):
        called.append(plan)
        return works_of(graph, plan)

    graph = od.compile(softmax_rows).lower(X).graph
    found = all_plans(works_by)
    assert isinstance(found, GeneratorType)
    assert not called
    assert next(found) == NO_PLAN
    assert not called
    assert len(next(found)) == 1
    assert len(called) == 1


def test_a_work_inside_of_another_has_ways_only_where_that_one_is_compiled():
    step = od.compile(softmax_rows)
    found = list(od.plans(step, X))
    softmax = Work("softmax", ("float32[4, 6]",), "axis=(1,)")
    inner = [plan for plan in found if SUM in plan.differences]
    assert inner
    assert all(softmax not in plan.differences for plan in inner)
    # Without softmax, with it called, and with its two reductions called, none, one or both.
    assert {frozenset(plan.differences) for plan in found} == {
        frozenset(works) for works in ([], [softmax], [SUM], [MAX], [SUM, MAX])
    }


def random_plan(graph, rng):
    """A valid plan: each work, in the order in which they are met, in one of its ways."""
    plan, k = NO_PLAN, 0
    while k < len(met := works_of(graph, plan)):
        name = rng.choice([way.name for way in met[k].ways])
        if name != met[k].ways[0].name:
            plan = plan.with_way(met[k].work, name)
        k += 1
    return plan


def assert_plans_agree(name, plans, fn):
    """Check programs in single precision by plans with the function in double precision."""
    args = FUNCTIONS[name][1]
    wanted = [np.asarray(one) for one in od.tree.leaves(fn(*args))]
    given = in_float32(args)
    graph = od.compile(fn).lower(*given).graph
    found = set()
    for plan in plans(graph):
        assert plan not in found
        found.add(plan)
        got = results_by_plan(graph, given, plan)
        for a, b in zip(got, wanted, strict=True):
            largest = np.abs(b).max()
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * largest, err_msg=str(plan))
    return len(found)


def every_plan(graph):
    return all_plans(lambda plan: works_of(graph, plan))


def some_plans(count):
    def choose(graph):
        rng = random.Random(5)
        return dict.fromkeys([NO_PLAN, *[random_plan(graph, rng) for _ in range(count)]])

    return choose


@pytest.mark.parametrize(
    ("name", "count"),
    [("a product of one row", 5), ("sorted rows", 4), ("running sums and products", 9)],
)
def test_all_plans_of_a_function_agree(name, count):
    assert assert_plans_agree(name, every_plan, FUNCTIONS[name][0]) == count


@pytest.mark.slow
@each_function
def test_some_plans_of_functions_and_their_gradients_agree(name):
    assert_plans_agree(name, some_plans(2), with_gradients(FUNCTIONS[name][0]))


@pytest.mark.soak
@each_function
def test_all_plans_of_functions_and_many_of_their_gradients_agree(name):
    assert_plans_agree(name, every_plan, FUNCTIONS[name][0])
    assert_plans_agree(name, some_plans(200), with_gradients(FUNCTIONS[name][0]))


@pytest.mark.parametrize(
    "name", ["sorted rows", *[pytest.param(n, marks=pytest.mark.slow) for n in FUNCTIONS]]
)
def test_plans_of_gradients_are_distinct_and_valid(name):
    fn, args = with_gradients(FUNCTIONS[name][0]), in_float32(FUNCTIONS[name][1])
    graph = od.compile(fn).lower(*args).graph
    found = list(itertools.islice(every_plan(graph), 12))
    found.append(random_plan(graph, random.Random(1)))
    for plan in found:
        chosen = {one.work: one.way for one in works_of(graph, plan) if one.origin == "pinned"}
        assert chosen == plan.differences
    assert len(set(found[:12])) == len(found[:12])


# ------------------------------------------------------------------ the text of programs


def texts_of(graph, plan):
    """The texts of a program and of its subgraphs."""
    found = [lower_program(graph, ways=plan).module.text]
    for one in graph.instructions:
        if isinstance(one.row, LoopRow):
            found += [text for part in one.row.loop.subgraphs for text in texts_of(part, plan)]
    return found


@each_function
def test_programs_whose_guesses_are_named_or_have_no_alternatives_have_the_same_text(
    name, monkeypatch
):
    fn, args = with_gradients(FUNCTIONS[name][0]), in_float32(FUNCTIONS[name][1])
    graph = od.compile(fn).lower(*args).graph
    guessed = texts_of(graph, NO_PLAN)
    works = works_of(graph)
    assert texts_of(graph, Plan({one.work: one.ways[0].name for one in works})) == guessed
    with monkeypatch.context() as changed:
        for room in ("choices", "products"):
            target = f"odyssey.compiler.ways.{room}"
            for function in ("ways", "product_ways", "window_product_ways", "row_product_ways"):
                only_the_first(changed, target, function)
        assert all(len(one.ways) == 1 for one in works_of(graph))
        assert texts_of(graph, NO_PLAN) == guessed


def only_the_first(changed, module, function):
    """Let a function that lists ways return the guess alone, wherever it was imported."""
    import sys

    for name, loaded in list(sys.modules.items()):
        old = vars(loaded).get(function) if name.startswith("odyssey.compiler.") else None
        if callable(old) and old.__module__.startswith("odyssey.compiler.ways"):
            changed.setattr(loaded, function, lambda *given, old=old: old(*given)[:1])


# ------------------------------------------------------------------ pinned plans


def other_way(step, *args):
    """The plan of the first work of a step that has another way."""
    return next(itertools.islice(od.plans(step, *args), 1, None))


def test_a_pinned_plan_is_the_plan_in_use_and_gives_the_results():
    wanted = softmax_rows(X)
    for plan in od.plans(od.compile(softmax_rows), X):
        step = od.compile(softmax_rows, plan=plan)
        results = [step(X) for _ in range(3)]
        assert step.statistics().native == 2
        assert step.plan(X) == plan
        for result in results:
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_a_plan_is_pinned_by_every_way_to_compile():
    plan = other_way(od.compile(softmax_rows), X)
    decorated = od.compile(plan=plan)(softmax_rows)
    by_value = od.compile(lambda x, axis: ops.softmax(x, axis=axis), static="axis", plan=plan)
    copied = copy.copy(decorated)
    for step, args in [(decorated, (X,)), (by_value, (X, -1)), (copied, (X,))]:
        for _ in range(2):
            step(*args)
        assert step.plan(*args) == plan
    with od.no_grad():
        for _ in range(3):
            decorated(X)
    ahead = od.compile(softmax_rows, plan=plan)
    ahead.precompile(od.Spec((4, 6), "f"))
    assert ahead.plan(X) == plan
    assert next(iter(od.plans(by_value, X, -1))) == NO_PLAN


def test_a_plan_for_other_shapes_is_ignored_and_listed():
    plan = other_way(od.compile(softmax_rows), X)
    step = od.compile(softmax_rows, plan=plan)
    for _ in range(2):
        step(X[:2])
    assert step.plan(X[:2]) == NO_PLAN
    (work,) = plan.differences
    assert f"of the plan, not in this program: {work}" in step.explain(X[:2])


@pytest.mark.parametrize("name", ["magic", "windows", "library"])
def test_a_way_that_a_work_does_not_have_is_refused_before_anything_runs(name):
    compiled = od.compile(softmax_rows, plan=Plan({SUM: name}))
    for _ in range(3):
        with pytest.raises(SettingError, match=f"says '{name}' for sum.*'compiled' or 'called'"):
            compiled(X)
    with pytest.raises(SettingError, match=name):
        compiled.precompile(X)
    with pytest.raises(SettingError, match=name):
        compiled(X)
    assert compiled.statistics() == (0, 0, 0)
    assert compiled(X[:2]).shape == (2, 6)  # has no such work


def test_a_training_step_with_a_bad_plan_leaves_its_parameters():
    w = Variable(np.ones((6, 6), "f"), requires_grad=True)
    optimizer = od.optim.Adam([w], 0.1)

    def step(x):
        with GradientTape() as tape:
            loss = ops.sum(softmax_rows(x @ w) ** 2)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    good = od.compile(step)
    for _ in range(3):
        good(X)
    names = dict.fromkeys(other_way(good, X).differences, "magic")
    bad = od.compile(step, plan=Plan(names))
    before = w.numpy(), optimizer.state_dict()
    for _ in range(2):
        with pytest.raises(SettingError, match="magic"):
            bad(X)
    assert np.array_equal(w.numpy(), before[0])
    assert str(optimizer.state_dict()) == str(before[1])
    plan = other_way(good, X)
    pinned = od.compile(step, plan=plan)
    for _ in range(3):
        pinned(X)
    assert pinned.plan(X) == plan
    assert pinned.statistics().native == 2


@pytest.mark.parametrize("plan", ["called", {}, 3, [("a", "b")]])
def test_what_is_no_plan_is_refused(plan):
    with pytest.raises(SettingError, match=r"plan=.* is not a plan"):
        od.compile(softmax_rows, plan=plan)


def test_plans_of_what_is_not_compiled_are_refused():
    with pytest.raises(SettingError, match="not compiled"):
        od.plans(softmax_rows, X)


def test_the_plan_of_a_step_without_a_program_is_refused():
    with pytest.raises(SettingError, match="no program"):
        od.compile(softmax_rows).plan(X)


def test_explain_says_which_works_were_guessed_and_which_pinned():
    plan = Plan({SUM: "called"})
    step = od.compile(softmax_rows, plan=plan)
    for _ in range(2):
        step(X)
    text = str(step.explain(X))
    assert f"{SUM}: called, pinned; or compiled" in text
    assert f"{MAX}: compiled, guessed; or called" in text
    assert "not lowered: sum, since the plan says so" in text


# ------------------------------------------------------------------ ops of users


def user_op(guess):
    @od.op(infer=lambda x: x, decomposition=lambda x: ops.mul(x, 2.0), linear=True, guess=guess)
    def twice(x, /):
        """Twice a number."""
        return np.asarray(x) * 2.0

    return twice


def test_an_op_of_a_user_guesses_by_specs():
    twice = user_op(lambda x: "called" if x.size > 12 else "compiled")
    step = od.compile(lambda x: twice(x) + 1.0)
    for x, way, other in [(X, "called", "compiled"), (X[:2], "compiled", "called")]:
        for _ in range(3):
            np.testing.assert_array_equal(step(x), 2.0 * x + 1.0)
        guess, changed = od.plans(step, x)
        (work,) = changed.differences
        assert changed.get(work) == other
        assert f"{work}: {way}, guessed; or {other}" in step.explain(x)
        assert guess == step.plan(x)


def test_a_guess_of_no_way_is_refused_by_name():
    twice = user_op(lambda x: "magic")
    step = od.compile(lambda x: twice(x) + 1.0, check=True)
    step(X)
    with pytest.raises(
        SettingError, match=r"op twice: its guess is 'magic'.*'compiled' or 'called'"
    ):
        step(X)
    with pytest.raises(OdysseyError, match="guess takes"):
        od.op(infer=lambda x: x, guess=lambda y: "called")(lambda x, /: x)


# ------------------------------------------------------------------ sizes that vary, and loops


def dynamic(**settings):
    return od.compile(softmax_rows, dynamic={"x": {0: od.Dim("n", 1, 4096)}}, **settings)


@pytest.mark.slow
def test_plans_for_all_sizes_hold_for_all_sizes():
    step = dynamic()
    for n in (5, 7, 9):
        step(np.ones((n, 6), "f"))
    found = list(od.plans(step, np.ones((9, 6), "f")))
    assert len(found) == 5
    work = Work("softmax", ("float32[*, 6]",), "axis=(1,)")
    assert Plan({work: "called"}) in found
    for plan in found:
        pinned = dynamic(plan=plan)
        for n in (5, 7, 200, 9):
            x = np.random.default_rng(n).normal(size=(n, 6)).astype("f")
            np.testing.assert_allclose(pinned(x), softmax_rows(x), rtol=1e-6)
        assert pinned.statistics().programs == 1
        assert pinned.plan(np.ones((200, 6), "f")) == plan
        one = np.ones((1, 6), "f")  # a special case, which has a program of its own
        for _ in range(3):
            pinned(one)
        assert pinned.plan(one) == NO_PLAN


def test_a_bad_way_for_all_sizes_is_refused():
    work = Work("softmax", ("float32[*, 6]",), "axis=(1,)")
    step = dynamic(plan=Plan({work: "magic"}))
    step(np.ones((5, 6), "f"))  # which no program for all sizes runs
    for n in (6, 7):
        with pytest.raises(SettingError, match=r"float32\[\*, 6\]"):
            step(np.ones((n, 6), "f"))


def recurrence(w, xs):
    return od.scan(lambda c, x: (softmax_rows(c @ w + x), c), xs[0] * 0.0, xs)[1]


@pytest.mark.parametrize("steps", [4, 100])
def test_works_within_loops_are_works(steps):
    w, xs = np.eye(6, dtype="f"), np.random.default_rng(1).normal(size=(steps, 6)).astype("f")
    work = Work("softmax", ("float32[6]",), "axis=(0,)")
    wanted = recurrence(w, xs)
    step = od.compile(recurrence, plan=Plan({work: "called"}))
    for _ in range(3):
        np.testing.assert_allclose(step(w, xs), wanted, rtol=1e-6)
    assert step.plan(w, xs) == Plan({work: "called"})
    assert f"{work}: called, pinned" in step.explain(w, xs)


def test_works_of_conditions_and_branches_are_works():
    def grow(x):
        x = od.while_loop(lambda c: ops.sum(c) < 50.0, lambda c: ops.cumsum(c, axis=1), x)
        return od.cond(ops.sum(x) > 0.0, softmax_rows, lambda v: ops.cumsum(v, axis=0), x)

    step = od.compile(grow)
    x = np.ones((2, 3), "f")
    for _ in range(3):
        step(x)
    works = [one.work.row for one in step._works(NO_PLAN, (x,), {})]
    assert {"sum", "cumsum", "softmax"} <= set(works)
    others = [one for one in step._works(NO_PLAN, (x,), {}) if one.work.row != "softmax"]
    plan = Plan({one.work: one.ways[1].name for one in others})
    pinned = od.compile(grow, plan=plan)
    for _ in range(3):
        np.testing.assert_allclose(pinned(x), grow(x), rtol=1e-6)


# ------------------------------------------------------------------ dry runs


def test_a_dry_run_changes_no_state_and_begins_anew_when_it_is_reset():
    w = Variable(np.zeros(6, "f"), requires_grad=True)
    rng = od.Generator(3)

    def step(x):
        w.assign(w + ops.sum(softmax_rows(x), 0) + ops.random_uniform((6,), dtype="f", rng=rng))
        return w * 1.0

    compiled = od.compile(step)
    for _ in range(3):
        compiled(X)
    before, drawn = w.numpy(), rng.state
    dry = compiled._dry_run(Plan({SUM: "called"}), (X,), {})
    dry.run()
    first = dry.results()
    dry.run()
    assert not np.array_equal(dry.results()[0], first[0])
    dry.reset()
    dry.run()
    assert all(map(np.array_equal, dry.results(), first))
    assert np.array_equal(w.numpy(), before)
    assert np.array_equal(rng.state, drawn)
    np.testing.assert_allclose(first[0], compiled(X).numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_works_name_the_half_and_plans_of_them_are_pinned(dtype):
    x = np.arange(6, dtype=np.float32).reshape(2, 3).astype(Spec((), dtype).dtype)
    step = od.compile(lambda x: ops.cumsum(x, axis=1))
    guess, plan, *_ = od.plans(step, x)
    assert not guess
    assert [work.specs for work in plan.differences] == [(f"{dtype}[2, 3]",)]
    pinned = od.compile(lambda x: ops.cumsum(x, axis=1), plan=plan)
    pinned.precompile(x)
    assert pinned.plan(x) == plan
    np.testing.assert_array_equal(
        np.asarray(pinned(x)).astype(np.float32), np.cumsum(x.astype(np.float32), axis=1)
    )
