"""Loss scaling: gradients scaled, unscaled in float32, and steps that overflows skip."""

import copy

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.half_dtypes import bfloat16
from odyssey.errors import (
    DTypeError,
    MissingGradientError,
    NonFiniteError,
    OdysseyError,
    SettingError,
)
from odyssey.optim import SGD, Adam, LossScaler
from support.optimizers import OPTIMIZERS

pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow) .*:RuntimeWarning")  # of losses
HALF = np.float16
dtypes = pytest.mark.parametrize("dtype", [HALF, np.float32, np.float64, bfloat16()], ids=str)


def state(optimizer):
    """All that a step changes, as bytes."""
    states = optimizer.state_dict()["state"]
    slots = [{n: np.asarray(v).tobytes() for n, v in s.items()} for s in states]
    return [p.numpy().tobytes() for p in optimizer.params], slots


def training(make, dtype=HALF, unscales=False, **settings):
    """A scaler, an optimizer, and a step whose gradient is what is passed."""
    w = Variable(np.array([1, 2, 3], dtype), requires_grad=True, name="w")
    optimizer = make([w])
    scaler = LossScaler(**settings)

    def step(g):
        with GradientTape() as tape:
            loss = scaler.scale((w * g).sum())
        tape.backward(loss)
        if unscales:
            scaler.unscale(optimizer)
            od.optim.clip_grad_value([w], 0.5)
        scaler.step(optimizer)
        optimizer.zero_grad()
        return loss

    return scaler, optimizer, step


def planted(k, dtype, overflows):
    """The gradient of step number ``k``, with an infinity or NaN at some steps."""
    g = np.random.default_rng(k).normal(size=3).astype(dtype)
    if k in overflows:
        g[k % 3] = np.inf if k % 2 else np.nan
    return g


@pytest.mark.parametrize("unscales", [False, True], ids=["step", "clipped"])
@dtypes
def test_thirty_steps_with_planted_overflows_skip_exactly_these_eager_and_compiled(dtype, unscales):
    def make(params):
        return Adam(params, 0.01)

    options = {"dtype": dtype, "unscales": unscales, "initial": 2.0**10, "interval": 4}
    scaler, optimizer, step = training(make, **options)
    other_scaler, other, compiled = training(make, **options)
    compiled = od.compile(compiled)
    overflows = (0, 1, 7, 20, 21)
    scale, finite_steps = 2.0**10, 0
    for k in range(30):
        before = state(optimizer)
        g = planted(k, dtype, overflows)
        assert step(g).item() == pytest.approx(compiled(g).item(), nan_ok=True)
        assert (state(optimizer) == before) is (k in overflows)
        # A compiled step that is skipped gives a new optimizer its first state.
        assert state(optimizer)[0] == state(other)[0]
        assert k < 2 or state(optimizer) == state(other)
        scale, finite_steps = (scale / 2, 0) if k in overflows else (scale, finite_steps + 1)
        scale, finite_steps = (scale * 2, 0) if finite_steps == 4 else (scale, finite_steps)
        assert scaler.value == other_scaler.value == scale
        assert scaler.state_dict() == other_scaler.state_dict()
    assert optimizer.state_dict()["state"][0]["steps"] == 25
    assert compiled.statistics().native == 29


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_every_optimizer_steps_as_without_a_scaler_at_the_steps_that_are_finite(case):
    make, _, _, settings = OPTIMIZERS[case]
    params, plain = [
        Variable(np.arange(1.0, 7, dtype=np.float32).reshape(2, 3), requires_grad=True)
        for _ in range(2)
    ]
    optimizer, expected = make([params], **settings), make([plain], **settings)
    scaler = LossScaler(initial=64.0)
    before = scaler.state_dict()
    for k in range(6):
        g = np.random.default_rng(k).normal(size=(2, 3)).astype(np.float32)
        params.grad = g * np.float32(64)
        if k == 3:
            params.grad = np.full((2, 3), np.nan)
        else:
            plain.grad = g
            expected.step()
        scaler.load_state_dict(before)  # the scale fell
        scaler.step(optimizer)
    assert state(optimizer) == state(expected)


def test_gradients_that_float16_has_not_reach_the_master_weights():
    scaler, optimizer, _ = training(lambda w: SGD(w, 1e6))
    g = np.array([1e-4, 0, 0], HALF)
    w = optimizer.params[0]

    def small(x):
        with GradientTape() as tape:
            loss = scaler.scale((w * x * HALF(1e-4)).sum())
        tape.backward(loss)
        scaler.step(optimizer)

    for _ in range(2):
        small(g)
    factor = float(g[0]) * float(HALF(1e-4))  # 1e-8: 0 in float16
    master = optimizer.state_dict()["state"][0]["master"]
    np.testing.assert_allclose(master, [1 - 2e6 * factor, 2, 3], rtol=1e-4)
    assert w.grad.dtype == HALF


def test_the_clipping_of_unscaled_gradients_is_in_float32():
    scaler, optimizer, _ = training(lambda w: SGD(w, 1.0))
    w = optimizer.params[0]
    w.grad = np.array([2**-9, 2**-9, 0], HALF)
    scaler.unscale(optimizer)
    assert w.grad.dtype == np.float32
    assert w.grad.tolist() == [2**-24, 2**-24, 0]
    norm = od.optim.clip_grad_global_norm([w], 2**-27)
    assert norm == pytest.approx(2**-23.5)
    assert w.grad.dtype == np.float32
    # The factor has 1e-6 below, beside the norm.
    np.testing.assert_allclose(w.grad[:2], 2**-24 * 2**-27 / (2**-23.5 + 1e-6), rtol=1e-5)
    scaler.step(optimizer)
    assert w.grad.dtype == HALF


def test_fifty_skipped_steps_in_a_row_end_with_a_named_error_and_change_nothing():
    for compiles in (False, True):
        scaler, optimizer, step = training(Adam)
        step = od.compile(step) if compiles else step
        good, bad = np.ones(3, HALF), np.full(3, np.inf, HALF)
        step(good)
        for _ in range(49):
            step(bad)
        assert scaler.state_dict()["skips"] == 49
        before = state(optimizer), scaler.value
        for _ in range(2):
            with pytest.raises(NonFiniteError, match=r"50 steps in a row .*check=True"):
                step(bad)
            assert (state(optimizer), scaler.value) == before
            assert scaler.state_dict()["skips"] == 49
        optimizer.zero_grad()
        step(good)
        assert scaler.state_dict()["skips"] == 0
        assert optimizer.state_dict()["state"][0]["steps"] == 2
        assert not compiles or step.statistics().native == 50


def test_a_scale_stays_within_float32():
    _, optimizer, _ = training(lambda w: SGD(w, 0.1), np.float64)
    (w,) = optimizer.params
    scaler = LossScaler(2.0**126, interval=1)
    for expected in (2.0**127, 2.0**127, 2.0**127):
        w.grad = np.ones(3)
        scaler.step(optimizer)
        assert scaler.value == expected
    scaler = LossScaler(2.0**-125)
    for expected in (2.0**-126, 2.0**-126):
        w.grad = np.full(3, np.nan)
        scaler.step(optimizer)
        assert scaler.value == expected


def test_a_second_unscale_before_the_step_is_refused_by_name():
    scaler, optimizer, step = training(Adam)
    (w,) = optimizer.params
    w.grad = np.ones(3)
    scaler.unscale(optimizer)
    found = w.grad.copy()
    with pytest.raises(OdysseyError, match=r"unscale: .*Adam.* were unscaled already; call"):
        scaler.unscale(optimizer)
    assert w.grad.tolist() == found.tolist()
    scaler.step(optimizer)
    w.grad = np.ones(3)
    scaler.unscale(optimizer)  # a step has ended the first
    optimizer.zero_grad()
    step(np.ones(3, HALF))  # and zero_grad() the second
    assert optimizer.state_dict()["state"][0]["steps"] == 2

    @od.compile
    def twice():
        scaler.unscale(optimizer)
        scaler.unscale(optimizer)

    w.grad = np.ones(3)
    with pytest.raises(OdysseyError, match="unscaled already"):
        twice()


def test_an_overflow_is_not_forgotten_by_a_clipping_that_hides_it():
    scaler, optimizer, _ = training(Adam)
    (w,) = optimizer.params
    w.grad = np.array([1, np.inf, 0])
    scaler.unscale(optimizer)
    od.optim.clip_grad_value([w], 1.0)
    assert np.isfinite(w.grad).all()
    scaler.step(optimizer)
    assert w.numpy().tolist() == [1, 2, 3]
    assert scaler.value == 2.0**14


def test_several_optimizers_step_together_or_not_at_all():
    def training():
        a, b = (Variable(np.ones(2, HALF), requires_grad=True, name=n) for n in "ab")
        one, two = SGD([a], 0.5), Adam([b], 0.5)
        scaler = LossScaler(16.0)

        def step(x, y):
            with GradientTape() as tape:
                loss = scaler.scale((a * x + b * y).sum())
            tape.backward(loss)
            scaler.unscale(two)
            scaler.step(one, two)
            one.zero_grad()
            two.zero_grad()

        return scaler, one, two, step

    scaler, one, two, eager = training()
    other, three, four, compiled = training()
    compiled = od.compile(compiled)
    ones, bad = np.ones(2, HALF), np.array([1, np.inf], HALF)
    for x, y in [(ones, ones), (ones, bad), (bad, ones), (bad, bad), (ones, ones)]:
        eager(x, y)
        compiled(x.copy(), y.copy())
    assert one.params[0].numpy().tolist() == [0, 0]
    assert two.state_dict()["state"][0]["steps"] == 2
    assert scaler.value == other.value == 2.0
    assert (state(one), state(two)) == (state(three), state(four))
    assert compiled.statistics().native == 4


def test_optimizers_that_step_one_after_the_other_share_the_scale_of_their_gradients():
    scaler, one, _ = training(lambda w: SGD(w, 1.0))
    _, two, _ = training(lambda w: SGD(w, 1.0))
    (a,), (b,) = one.params, two.params
    with GradientTape() as tape:
        loss = scaler.scale((a * np.array([1, np.inf, 1], HALF) + b).sum())
    tape.backward(loss)
    scaler.step(one)  # the scale falls
    scaler.step(two)
    assert a.numpy().tolist() == [1, 2, 3]
    assert b.numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
def test_sparse_rows_are_unscaled_and_skipped(compiles):
    table = Variable(np.ones((4, 2), HALF), requires_grad=True, sparse_grad=True)
    optimizer, scaler = SGD([table], 2.0**-12), LossScaler(4.0)

    def step(factor):
        with GradientTape() as tape:
            loss = scaler.scale((ops.embedding(np.array([2, 0, 2]), table) * factor).sum())
        tape.backward(loss)
        scaler.step(optimizer)
        optimizer.zero_grad()

    step = od.compile(step) if compiles else step
    for factor in (1.0, np.inf, 1.0, 1.0):
        step(np.full((3, 1), factor, HALF))
    master = optimizer.state_dict()["state"][0]["master"]
    assert master[:, 0].tolist() == [1 - 3 * 2**-12, 1, 1 - 6 * 2**-12, 1]
    assert scaler.value == 2.0
    assert not compiles or step.statistics().native == 3


def test_missing_gradients_are_named_and_nothing_changes():
    scaler, optimizer, _ = training(Adam)
    other = Variable(np.ones(2, HALF), requires_grad=True, name="other")
    both = Adam([*optimizer.params, other])
    (w,) = optimizer.params
    w.grad = g = np.array([np.inf, 1, 1], HALF)
    before = scaler.state_dict()
    with pytest.raises(MissingGradientError, match="parameter other"):
        scaler.step(both)
    assert scaler.state_dict() == before
    assert w.grad.tolist() == g.tolist()
    scaler.step(both, allow_missing=True)
    assert scaler.value == 2.0**14


def test_frozen_parameters_are_left_out():
    scaler, optimizer, _ = training(lambda w: SGD(w, 1.0))
    frozen = Variable(np.ones(2, HALF), requires_grad=True)
    both = SGD([*optimizer.params, frozen], 1.0)
    frozen.grad = np.full(2, np.nan, HALF)
    frozen.requires_grad = False
    optimizer.params[0].grad = np.full(3, 2.0**15, HALF)
    scaler.step(both)
    assert optimizer.params[0].numpy().tolist() == [0, 1, 2]


def test_the_state_is_saved_and_restored_and_goes_on_bit_for_bit(tmp_path):
    options = {"interval": 3, "growth": 4.0, "backoff": 0.25}
    scaler, optimizer, step = training(Adam, **options)
    for k in range(5):
        step(planted(k, HALF, (1,)))
    od.save(tmp_path / "state.npz", {"s": scaler, "o": optimizer, "p": optimizer.params})
    restored, other, other_step = training(Adam)
    od.load(tmp_path / "state.npz", {"s": restored, "o": other, "p": other.params})
    copied = copy.deepcopy(scaler)
    assert scaler.state_dict() == restored.state_dict() == copied.state_dict()
    assert (restored.growth, restored.backoff, restored.interval) == (4.0, 0.25, 3)
    other_step = od.compile(other_step)
    for k in range(5, 12):
        step(planted(k, HALF, (8,)))
        other_step(planted(k, HALF, (8,)))
    assert scaler.state_dict() == restored.state_dict()
    assert state(optimizer) == state(other)


def test_a_state_that_does_not_fit_is_refused_and_nothing_changes():
    scaler = LossScaler()
    before = scaler.state_dict()
    for change in ({"scale": 0.0}, {"skips": -1}, {"growth": 0.5}, {"backoff": 2.0}):
        with pytest.raises(SettingError, match=f"load_state_dict: {next(iter(change))}="):
            scaler.load_state_dict(before | {"finite_steps": 7} | change)
        assert scaler.state_dict() == before
    with pytest.raises(OdysseyError, match="pass what state_dict"):
        scaler.load_state_dict({"scale": 1.0})


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"initial": 0}, SettingError),
        ({"initial": -1.0}, SettingError),
        ({"initial": np.inf}, SettingError),
        ({"initial": 1e39}, SettingError),
        ({"initial": "2"}, DTypeError),
        ({"growth": 0.5}, SettingError),
        ({"growth": np.nan}, SettingError),
        ({"backoff": 0.0}, SettingError),
        ({"backoff": 1.5}, SettingError),
        ({"interval": 0}, SettingError),
        ({"interval": 2.5}, DTypeError),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused_by_name(settings, error):
    with pytest.raises(error, match=f"LossScaler: {next(iter(settings))}="):
        LossScaler(**settings)


def test_keywords_of_pytorch_are_answered_by_ours():
    with pytest.raises(DTypeError, match="LossScaler: init_scale is called initial here"):
        LossScaler(init_scale=2.0)


def test_what_is_no_optimizer_is_refused_by_name():
    scaler, optimizer, _ = training(Adam)
    with pytest.raises(DTypeError, match=r"LossScaler.step: 0 optimizers came"):
        scaler.step()
    with pytest.raises(DTypeError, match=r"LossScaler.step: 2 optimizers came; pass each"):
        scaler.step(optimizer, optimizer)
    for call in (scaler.step, scaler.unscale):
        with pytest.raises(DTypeError, match=r"LBFGS\(1 parameter.* came; pass an optimizer"):
            call(od.optim.LBFGS(optimizer.params))


def test_a_loss_of_half_precision_is_scaled_in_float32():
    scaler = LossScaler(2.0**17)
    assert scaler.scale(Variable(np.array(3, HALF))).dtype == np.float32
    assert scaler.scale(Variable(np.array(3, HALF))).item() == 3 * 2.0**17
    assert scaler.scale(Variable(np.array(3.0))).dtype == np.float64
    assert repr(scaler) == "LossScaler(scale=131072.0, growth=2.0, backoff=0.5, interval=2000)"


def test_a_step_of_a_class_of_ones_own_is_called_where_all_gradients_are_finite():
    calls = []

    class Counted(SGD):
        def step(self):
            calls.append(1)
            super().step()

    scaler, optimizer, step = training(lambda w: Counted(w, 1.0))
    for factor in (1, np.inf, 1):
        step(np.full(3, factor, HALF))
    assert len(calls) == 2
    assert optimizer.params[0].numpy().tolist() == [-1, 0, 1]
    assert scaler.value == 2.0**14


def test_a_precompiled_step_is_native_from_its_first_call():
    scaler, optimizer, step = training(Adam)
    step = od.compile(step)
    step.precompile(od.Spec((3,), HALF))
    assert scaler.value == 2.0**15
    for factor in (np.inf, 1, 1):
        step(np.full(3, factor, HALF))
    assert step.statistics().native == 3
    assert scaler.value == 2.0**14
    assert optimizer.state_dict()["state"][0]["steps"] == 2
