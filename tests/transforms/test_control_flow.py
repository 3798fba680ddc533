"""scan, cond and while_loop are Python's for, if and while, with arrays for lists."""

import threading
from typing import NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, SettingError, ShapeError

RNG = np.random.default_rng(3)
W = RNG.normal(size=(3, 3)) * 0.5
XS = RNG.normal(size=(5, 3))
START = RNG.normal(size=3)


def leaf(value):
    return Variable(value, requires_grad=True)


def cell(w):
    def step(h, x):
        h = ops.tanh(h @ w + x)
        return h, ops.sin(h)

    return step


def by_hand(step, carry, xs, order=None):
    ys = {}
    for k in order or range(len(xs)):
        carry, ys[k] = step(carry, xs[k])
    return carry, ops.stack([ys[k] for k in range(len(xs))])


# ------------------------------------------------------------------ scan is the loop


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_scan_is_the_loop_bit_for_bit_in_values_and_gradients(reverse):
    found = []
    for whole in (od.scan, by_hand):
        w, x, h = leaf(W), leaf(XS), leaf(START)
        more = {"reverse": True} if reverse else {}
        if whole is by_hand and reverse:
            more = {"order": range(4, -1, -1)}
        with GradientTape() as tape:
            carry, ys = whole(cell(w), h, x, **more)
            loss = (carry * carry).sum() + (ys * ops.exp(ys)).sum()
        found.append([carry.numpy(), ys.numpy(), *tape.gradient(loss, [w, x, h])])
    for got, wanted in zip(*found, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("modes", ["r", "f", "rr", "rf", "fr", "ff", "rrr"])
def test_derivatives_of_every_order_and_mode_are_those_of_the_loop(modes):
    def total(whole):
        def fn(s):
            step = lambda c, x: (ops.sin(c * s) + x, c * c)  # noqa: E731
            carry, ys = whole(step, s * 0.5, np.array([0.1, 0.7, -0.3]))
            return carry + ys.sum()

        return fn

    found = []
    for fn in (total(od.scan), total(by_hand)):
        for mode in modes:
            fn = (
                od.grad(fn) if mode == "r" else (lambda g: lambda s: od.jvp(g, (s,), (1.0,))[1])(fn)
            )
        found.append(float(fn(0.8)))
    assert found[0] == found[1]


def test_differences_agree_to_second_order():
    def fn(p):
        carry, ys = od.scan(cell(p["w"]), p["h"], p["x"])
        return {"carry": carry, "ys": ys}

    od.testing.check_gradients(fn, {"w": W, "h": START, "x": XS})


def test_trees_go_through_with_their_containers():
    class State(NamedTuple):
        sums: object
        count: object

    def step(state, x):
        sums = {"a": state.sums["a"] + x["p"], "b": [state.sums["b"][0] * 2.0]}
        return State(sums, state.count + 1), {"square": x["p"] * x["p"], "none": None}

    start = State({"a": np.zeros(2), "b": [np.ones(())]}, 0)
    given = {"p": np.arange(6.0).reshape(3, 2), "q": None}
    carry, ys = od.scan(step, start, given)
    assert isinstance(carry, State)
    assert carry.sums["a"].tolist() == [6.0, 9.0]
    assert (float(carry.sums["b"][0]), int(carry.count)) == (8.0, 3)
    assert ys["square"].tolist() == [[0.0, 1.0], [4.0, 9.0], [16.0, 25.0]]
    assert ys["none"] is None


def test_steps_without_xs_are_counted_by_length():
    carry, ys = od.scan(lambda c, x: (c * 2, c if x is None else None), 1, None, 5)
    assert (int(carry), ys.tolist(), ys.dtype) == (32, [1, 2, 4, 8, 16], np.int64)


def test_a_number_in_the_first_carry_takes_the_dtype_that_comes_back():
    carry, ys = od.scan(lambda c, x: (c + x, c), 0, np.ones(2, np.float32))
    assert carry.dtype == np.float32
    assert ys.dtype == np.float32


def test_a_number_may_become_one_of_a_larger_kind_in_the_first_step():
    assert od.scan(lambda c, x: (c * 1j, None), 1.0, XS)[0].dtype == np.complex128
    assert od.scan(lambda c, x: (c * 0.5, None), 1, XS)[0].dtype == np.float64


def test_carries_of_whole_numbers_and_truths_stay_what_they_are():
    def step(c, x):
        count, seen = c
        return (count + (x > 0), seen | (x > 2)), count

    carry, ys = od.scan(step, (np.int32(0), np.bool_(False)), np.array([1, -1, 3], np.int32))
    assert (int(carry[0]), carry[0].dtype, bool(carry[1])) == (2, np.int32, True)
    assert ys.tolist() == [0, 1, 1]


def test_what_a_step_writes_to_later_stays_in_the_results_as_it_was():
    def step(c, x):
        c += x
        return c, c

    carry, ys = od.scan(step, np.zeros(2), np.ones((3, 2)))
    assert ys.tolist() == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert carry.tolist() == [3.0, 3.0]


def test_results_that_are_variables_in_some_steps_are_variables():
    w = leaf([1.0, 2.0])
    seen = []

    def step(c, x):
        seen.append(x)
        return c, (w * x if len(seen) > 1 else np.ones(2))

    with GradientTape() as tape:
        _, ys = od.scan(step, None, np.array([5.0, 3.0, 2.0]))
        total = ys.sum()
    assert tape.gradient(total, w).tolist() == [5.0, 5.0]


def test_of_no_steps_the_carry_is_what_came_and_results_have_their_shapes():
    w = leaf(W)
    calls = []

    def step(h, x):
        calls.append(w.assign(w * 0.0))
        return cell(w)(h, x)[0], {"y": x.sum(), "n": h > 0}

    carry, ys = od.scan(step, START, XS[:0])
    np.testing.assert_array_equal(carry, START)
    assert (ys["y"].shape, ys["y"].dtype) == ((0,), np.float64)
    assert (ys["n"].shape, ys["n"].dtype) == ((0, 3), np.bool_)
    np.testing.assert_array_equal(w.numpy(), W)


def test_scans_stand_in_scans_and_in_checkpoints():
    def rows(c, row):
        c, ys = od.scan(lambda a, x: (a * 0.5 + ops.sin(x), a * x), c, row)
        return c, ys

    x = XS[:3]

    def total(wrap):
        def fn(x):
            carry, ys = od.scan(wrap(rows), 0.2, x)
            return carry + (ys * ys).sum()

        return od.grad(fn)(x), od.grad(lambda x: od.grad(fn)(x).sum())(x)

    plain, again = total(lambda f: f), total(od.checkpoint)
    for got, wanted in zip(again, plain, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13)


def test_a_checkpoint_around_a_scan_gives_its_gradient():
    def fn(wrap):
        w = leaf(W)
        with GradientTape() as tape:
            carry, ys = wrap(lambda h, x: od.scan(cell(w), h, x))(START, XS)
            loss = carry.sum() + ys.sum()
        return tape.gradient(loss, w)

    np.testing.assert_array_equal(fn(od.checkpoint), fn(lambda f: f))


def test_threads_run_scans_side_by_side():
    expected = od.grad(lambda w: od.scan(cell(w), START, XS)[1].sum())(W)
    found = [None] * 4

    def work(k):
        found[k] = od.grad(lambda w: od.scan(cell(w), START, XS)[1].sum())(W)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got in found:
        np.testing.assert_array_equal(got, expected)


# ------------------------------------------------------------------ cond and while_loop


def test_cond_runs_the_chosen_function_alone_and_its_gradient_is_that_of_it():
    def fn(x):
        return od.cond(x.sum() > 0, lambda x: (x * x).sum(), lambda x: 1 / 0, x)

    assert od.grad(fn)(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert od.cond(np.int8(0), lambda: "yes", lambda: "no") == "no"
    assert od.cond(0.5, lambda a, b: a + b, lambda a, b: a, 1, 2) == 3


def test_while_loop_runs_as_long_as_its_condition_holds():
    def newton(a):
        def near(v):
            x, before = v
            return ops.absolute(x - before) > 1e-14

        return od.while_loop(near, lambda v: ((v[0] + a / v[0]) * 0.5, v[0]), (a * 1.0, a * 0.0))[0]

    assert float(newton(np.float64(2.0))) == pytest.approx(2**0.5, rel=1e-15)
    assert float(od.grad(newton)(2.0)) == pytest.approx(0.5 / 2**0.5, rel=1e-12)
    assert float(od.jvp(newton, (2.0,), (1.0,))[1]) == pytest.approx(0.5 / 2**0.5, rel=1e-12)
    second = od.grad(od.grad(newton))(2.0)
    assert float(second) == pytest.approx(-0.25 * 2**-1.5, rel=1e-9)


def test_a_while_loop_whose_condition_is_false_returns_what_came():
    start = {"n": np.zeros(3)}
    assert od.while_loop(lambda v: False, lambda v: 1 / 0, start)["n"].tolist() == [0.0] * 3


# ------------------------------------------------------------------ errors


def changing(after):
    return lambda: od.scan(lambda c, x: (after, None), np.zeros(2), None, 2)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (changing(np.zeros(3)), ShapeError, r"step 0 as float64\[2\], and comes out as float64\[3"),
        (changing(np.zeros(2, np.float32)), DTypeError, "comes out as float32"),
        (changing((np.zeros(2), 1)), DTypeError, r"the carry is \(array"),
        (changing(None), ShapeError, "comes out as None"),
        (changing("h"), DTypeError, "pass arrays"),
        (lambda: od.scan(lambda c, x: c, 0.0, XS), DTypeError, r"return a pair \(carry, y\)"),
        (lambda: od.scan(lambda c, x: (c, c, c), 0.0, XS), DTypeError, "returned 3 things"),
        (lambda: od.scan(lambda c, x: (c > 0, 0), 1, XS), DTypeError, "comes out as bool"),
        (lambda: od.scan(cell(W), START), ShapeError, "pass xs, or length"),
        (lambda: od.scan(cell(W), START, XS, 4), ShapeError, "5 steps.*length says 4"),
        (lambda: od.scan(cell(W), START, (XS, XS[:2])), ShapeError, r"xs\[1\] has 2 .*xs\[0\]"),
        (lambda: od.scan(cell(W), START, np.float64(1.0)), ShapeError, "xs has no axes"),
        (lambda: od.scan(cell(W), START, [1.0, 2.0]), DTypeError, r"xs\[0\] is a float"),
        (lambda: od.scan(cell(W), START, XS, -1), SettingError, "at least 0"),
        (lambda: od.scan(cell(W), START, XS, 2.5), DTypeError, "whole number"),
        (lambda: od.scan(cell(W), START, None, 10**5000), ShapeError, "it is too large"),
        (lambda: od.scan(cell(W), START, XS, None, "no"), DTypeError, "not a flag"),
        (lambda: od.scan(None, START, XS), DTypeError, "cannot be called"),
        (lambda: od.cond(np.zeros(2), abs, abs, 1), ShapeError, "must be a scalar"),
        (lambda: od.cond("x", abs, abs, 1), DTypeError, "a bool or a number"),
        (lambda: od.cond(1j, abs, abs, 1), DTypeError, "a bool or a number"),
        (lambda: od.cond(np.complex64(1), abs, abs, 1), DTypeError, "is complex64"),
        (lambda: od.cond(True, abs, 3, 1), DTypeError, "cannot be called"),
        (lambda: od.while_loop(lambda v: v, lambda v: v, XS), ShapeError, "result of cond_fun"),
        (lambda: od.while_loop(lambda v: v < 3, lambda v: XS, 1), ShapeError, "while_loop: the c"),
        (lambda: od.while_loop(3, abs, 1), DTypeError, "cannot be called"),
    ],
)
def test_misuse_is_refused_by_name(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, OdysseyError)


@pytest.mark.parametrize(
    ("second", "text"),
    [(np.zeros(3), "of step 1 is"), (1, "float64"), ({"a": 1.0}, "results"), (None, "None")],
)
def test_results_that_differ_between_steps_are_refused(second, text):
    given = iter([np.zeros(2), second])
    with pytest.raises((ShapeError, DTypeError), match=text):
        od.scan(lambda c, x: (c, next(given)), None, None, 2)


def test_of_no_steps_a_question_for_a_value_is_refused_by_name():
    with pytest.raises(ShapeError, match="there are no steps"):
        od.scan(lambda c, x: (c, float(x)), 0.0, np.zeros(0))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_the_derivative_of_no_steps_that_differentiate_is_zero(compiled):
    start = np.array([1.0, 2.0])

    def cost(w, c):
        def step(c, x):
            return c - od.grad(lambda a: (a * a * w).sum())(c), (c * w).sum()

        c, ys = od.scan(step, c, length=0)
        return (c * c).sum() + ys.sum()

    def slopes(w):
        return od.grad(cost, argnums=(0, 1))(w, start)

    def all_of_it(w):
        second = od.grad(lambda w: (slopes(w)[1] * w).sum())(w)
        return *slopes(w), second, od.jvp(cost, (w, start), (w, start))[1]

    run = od.compile(all_of_it) if compiled else all_of_it
    for _ in range(3):
        of_w, of_start, second, moved = run(np.array([0.5, 0.7]))
        assert of_w.tolist() == [0.0, 0.0]
        assert of_start.tolist() == [2.0, 4.0]
        assert second.tolist() == [2.0, 4.0]
        assert float(moved) == 10.0


class Metres(np.ndarray):
    """An array with arithmetic of its own, as those with units have."""

    def __mul__(self, other):
        return np.ndarray.__mul__(self, other).view(Metres)


CONTAINERS = {
    "masked": (np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), "a masked array, whose mask would"),
    "with units": (np.array([1.0, 2.0, 3.0]).view(Metres), "arithmetic of its own, such as units"),
}
STEPS = np.arange(3.0)
PLACES = {
    "scan: xs is": lambda v: od.scan(lambda c, x: (c + x, c * x), 0.0, v),
    r"scan: xs\['a'\] is": lambda v: od.scan(lambda c, x: (c, x["a"]), 0.0, {"a": v}),
    "scan: the carry is": lambda v: od.scan(lambda c, x: (c + x, c * x), v, STEPS),
    "scan: the carry  is": lambda v: od.scan(lambda c, x: (v, c * x), STEPS, STEPS),
    "scan: the carry   is": lambda v: od.scan(lambda c, x: (c, x), v, np.zeros(0)),
    "scan: y is": lambda v: od.scan(lambda c, x: (c + x, v), 0.0, STEPS),
    "while_loop: the carry is": lambda v: od.while_loop(lambda n: False, lambda n: n, v),
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("compiled", [False, True], ids=["run", "compiled"])
def test_a_loop_refuses_by_name_what_would_lose_its_mask_or_its_unit(kind, place, compiled):
    value, words = CONTAINERS[kind]
    call = od.compile(PLACES[place]) if compiled else PLACES[place]
    for _ in range(2):
        with pytest.raises(DTypeError, match=f"{' '.join(place.split())} .*{words}"):
            call(value)


def test_compiled_functions_run_as_written_on_masked_arrays_and_follow_their_masks():
    masked, y = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), np.ones(3)
    of_argument, closed = od.compile(lambda a: a * 2.0), od.compile(lambda a: a * masked)
    for _ in range(3):
        for got in (of_argument(masked), closed(2.0 * y)):
            assert got.mask.tolist() == [False, True, False]
            assert got.filled(0.0).tolist() == [2.0, 0.0, 6.0]
    masked.mask = [True, False, False]
    assert closed(2.0 * y).filled(0.0).tolist() == [0.0, 4.0, 6.0]
