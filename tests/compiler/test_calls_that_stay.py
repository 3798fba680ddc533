"""Calls whose results nobody reads: what they raise, and do beside, happens compiled too."""

import itertools
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.errors import LinAlgError, OdysseyError
from odyssey.spec import Spec
from support.cases import EVERY

ROWS = {row.name: row for row, _ in EVERY.values()}


def apart(fn, options, read):
    """A compiled function that calls ``fn`` and returns what it gives, or something else."""

    def function(*given):
        made = fn(*given, **options)
        return made if read else [x + x for x in given if x is not None]

    return od.compile(function)


def likely(like):
    """Arrays in the place of one, one of which a row takes for its numbers."""
    if like is None:
        return [None]
    shape, rng = like.shape, np.random.default_rng(0)
    found = [rng.uniform(0.1, 0.9, shape), np.ones(shape), np.zeros(shape)]
    if len(shape) > 1 and shape[-1] == shape[-2]:
        found.insert(0, np.broadcast_to(np.diag(np.arange(2.0, 2 + shape[-1])), shape).copy())
    return [np.asarray(x, like.dtype) for x in found]


def outcome(fn, given):
    try:
        fn(*given)
    except (OdysseyError, ValueError, ArithmeticError) as error:
        return type(error), str(error)
    return None


def taken(fn, refused):
    """Arrays of the same specs as others, that are not refused; None where the specs are."""
    for given in itertools.product(*map(likely, refused)):
        if outcome(fn, given) is None:
            return given
    return None


def values_refused(row):
    """The cases that a row refuses for their numbers alone: what it takes instead, and they."""
    for case in row.rejects:
        given = [np.zeros(o) if isinstance(o, tuple) else o for o in case.operands]
        if not all(x is None or isinstance(x, np.ndarray) for x in given):
            continue

        def eager(*given, options=case.options):
            return row.call(*given, **options)

        fitting = taken(eager, given)
        if outcome(eager, given) is not None and fitting is not None:
            yield eager, case.options, fitting, given


@pytest.mark.slow
@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
def test_numbers_are_refused_by_a_program_that_was_made_for_others(read):
    seen = set()
    for row in ROWS.values():
        for eager, options, fitting, refused in values_refused(row):
            compiled = apart(row.call, options, read)
            for _ in range(3):
                assert outcome(compiled, fitting) is None, row
            assert outcome(compiled, refused) == outcome(eager, refused), row
            assert outcome(compiled, fitting) is None, row
            seen.add(row.name)
    assert {"cholesky", "inv", "take", "embedding", "solve", "svdvals"} <= seen


MATRICES = [row for row in ROWS.values() if row.module.startswith("odyssey.linalg")]


@pytest.mark.parametrize("row", MATRICES, ids=lambda row: row.name)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_function_of_matrices_that_raises_for_strange_numbers_does_so_unread(row, value):
    count = len(row.arrays)
    like = [np.eye(3) * (2 + k) for k in range(count)]
    strange = [np.full((3, 3), value), *like[1:]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(row.call, strange)
        if outcome(row.call, like) is not None:
            return  # it takes no matrices
        compiled = apart(row.call, {}, False)
        for given in (like, like, strange, like):
            assert outcome(compiled, given) == (expected if given is strange else None)


# ------------------------------------------------------------------ ops from outside


@od.op(infer=lambda x: Spec(x.shape, x.dtype), vjp={"x": lambda g: g})
def positive_only(x, /):
    """The same numbers, which must be positive."""
    if np.any(x <= 0):
        raise ValueError("numbers are to be positive")
    return np.array(x)


TOLD = []


@od.op(infer=lambda x, tag: Spec(x.shape, x.dtype), vjp={"x": lambda g: g}, has_side_effect=True)
def told(x, /, tag):
    """The same numbers, of which is told."""
    TOLD.append((tag, float(np.sum(x))))
    return np.array(x)


class TestOpsFromOutside:
    def test_what_one_raises_is_raised_unread(self):
        @od.compile
        def step(x):
            positive_only(x)
            return x * 2

        for _ in range(3):
            assert step(np.ones(2)).tolist() == [2, 2]
        with pytest.raises(ValueError, match="are to be positive"):
            step(-np.ones(2))

    def test_in_a_sweep_too(self):
        w = Variable(np.ones(2), requires_grad=True)

        @od.compile
        def step(x):
            with od.GradientTape() as tape:
                positive_only(w * x)
                loss = ops.sum(w * w * x)
            tape.backward(loss)
            return loss

        for _ in range(3):
            step(np.ones(2))
        before = w.grad.copy()
        with pytest.raises(ValueError, match="are to be positive"):
            step(-np.ones(2))
        assert np.array_equal(w.grad, before)

    def test_what_an_ordered_one_does_is_done_at_each_call_in_order(self):
        def eager(x):
            told(x, tag="first")
            twice = x * 2
            told(twice, tag="second")
            told(x, tag="first")  # the same once more
            carry, _ = od.scan(lambda c, _: (told(c, tag="loop") + 1, None), x, None, length=2)
            told(ops.take(carry, np.array([0])), tag="last")
            return twice * 3

        compiled, x = od.compile(eager), np.ones(3)
        TOLD.clear()
        eager(x)
        expected = list(TOLD)
        assert len(expected) == 6
        for _ in range(4):
            TOLD.clear()
            assert compiled(x).tolist() == [6, 6, 6]
            assert expected == TOLD
        assert "told has a side effect" in str(compiled.explain(x))

    def test_one_that_is_unread_within_a_loop_or_a_branch_is_kept(self):
        def body(carry, _):
            od.cond(carry[0] > 0, lambda c: told(c, tag="deep") * 1, lambda c: c, carry)
            return carry + 1, None

        def eager(x):
            return od.scan(body, x, None, length=2)[0]

        for fn in (eager, od.compile(eager)):
            for _ in range(3):
                TOLD.clear()
                fn(np.ones(2))
                assert TOLD == [("deep", 2.0), ("deep", 4.0)]


class TestLoops:
    def test_what_a_step_raises_is_raised_unread(self):
        def body(carry, m):
            od.linalg.cholesky(m)
            return carry + 1, None

        def eager(ms):
            return od.scan(body, np.zeros(()), ms)[0]

        good, bad = np.stack([np.eye(2)] * 3), np.stack([np.eye(2), np.eye(2), -np.eye(2)])
        for fn in (eager, od.compile(eager)):
            for _ in range(3):
                assert fn(good) == 3
            with pytest.raises(LinAlgError, match="not positive definite"):
                fn(bad)
            assert fn(good) == 3

    def test_so_is_a_branch(self):
        @od.compile
        def step(x):
            od.cond(x[0, 0] > 0, lambda a: od.linalg.cholesky(a), lambda a: a, x)
            return x * 2

        for _ in range(3):
            step(np.eye(2))
            step(-np.eye(2))  # the other branch
        with pytest.raises(LinAlgError, match="not positive definite"):
            step(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_a_call_stays_under_a_budget_and_with_sizes_that_vary():
    def step(x):
        od.linalg.cholesky(x)
        return ops.exp(x) * 2

    for compiled in (
        od.compile(step, memory_budget=10**6),
        od.compile(step, dynamic={"x": {0: od.Dim("n", 1, 8), 1: od.Dim("n", 1, 8)}}),
        od.compile(step, check=True),
    ):
        for n in (2, 3, 2):
            compiled(np.eye(n))
        with pytest.raises(LinAlgError, match="not positive definite"):
            compiled(-np.eye(2))
