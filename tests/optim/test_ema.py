"""Exponential moving averages: by their formula, compiled, swapped, saved."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, OdysseyError, SettingError
from odyssey.optim import EMA, SGD


def test_averages_follow_their_formula():
    rng = np.random.default_rng(0)
    params = {"w": Variable(rng.normal(size=(2, 3)), True), "c": Variable(np.array(1 + 2j), True)}
    ema = EMA(params, decay=0.9)
    wanted = {name: p.numpy().copy() for name, p in params.items()}
    for _ in range(100):
        for name, p in params.items():
            p.data = rng.normal(size=p.shape).astype(p.dtype)
            wanted[name] = 0.9 * wanted[name] + 0.1 * p.numpy()
        ema.update()
    for name, average in ema.averages.items():
        assert not average.requires_grad
        np.testing.assert_allclose(average.numpy(), wanted[name], rtol=1e-12)
    assert repr(ema) == "EMA(2 parameters, decay=0.9)"


def test_averages_of_half_precision_do_not_stop():
    w = Variable(np.float16([1.0]), True)
    ema = EMA(w, decay=0.999)
    w.data = np.float16([2.0])
    for _ in range(1000):
        ema.update()
    assert ema.averages.dtype == np.float32
    np.testing.assert_allclose(ema.averages.numpy(), 2 - 0.999**1000, rtol=1e-5)
    ema.swap()
    assert w.dtype == np.float16


def test_a_compiled_step_updates_the_averages():
    def made():
        w = Variable(np.array([1.0, -2.0]), True)
        optimizer, ema = SGD([w], 0.1, momentum=0.5), EMA({"w": w}, 0.8)

        def step(x):
            with GradientTape() as tape:
                loss = ((w * x - 1.0) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            ema.update()
            return loss

        return step, w, ema

    eager, w, ema = made()
    step, v, other = made()
    compiled = od.compile(step, fullgraph=True)
    for k in range(6):
        x = np.array([1.0 + k, 0.5])
        eager(x)
        compiled(x)
        np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=1e-13)
        got, wanted = other.averages["w"].numpy(), ema.averages["w"].numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-13)


def test_a_swap_exchanges_and_another_goes_back():
    w = Variable([1.0, 2.0], True)
    ema = EMA([w], 0.5)
    w.data = [3.0, 4.0]
    ema.update()
    before = w.numpy()
    ema.swap()
    np.testing.assert_array_equal(w.numpy(), [2.0, 3.0])
    np.testing.assert_array_equal(ema.averages[0].numpy(), [3.0, 4.0])
    np.testing.assert_array_equal(before, [3.0, 4.0])
    ema.swap()
    np.testing.assert_array_equal(w.numpy(), [3.0, 4.0])


def test_a_saved_average_goes_on(tmp_path):
    w, v = Variable([1.0, 2.0], True), Variable([0.0, 0.0], True)
    ema, other = EMA({"w": w}, 0.5), EMA({"w": v}, 0.9)
    w.data = [3.0, 4.0]
    ema.update()
    od.save(tmp_path / "ema.npz", {"w": w, "ema": ema})
    od.load(tmp_path / "ema.npz", like={"w": v, "ema": other})
    for one in (ema, other):
        one.update()
    np.testing.assert_array_equal(other.averages["w"].numpy(), ema.averages["w"].numpy())
    for wrong in ({}, {"decay": 2.0, "averages": []}, {"decay": 0.5, "averages": [np.ones(3)]}):
        with pytest.raises(OdysseyError):
            other.load_state_dict(wrong)
    np.testing.assert_array_equal(other.averages["w"].numpy(), ema.averages["w"].numpy())


def test_what_cannot_be_averaged_is_refused():
    with pytest.raises(DTypeError, match=r"EMA: \['n'\] is .*pass floating leaf Variables"):
        EMA({"n": Variable(np.arange(3))})
    with pytest.raises(SettingError, match=r"decay=1\.5"):
        EMA(Variable(1.0), 1.5)


@pytest.mark.peers
def test_averages_equal_those_of_torch():
    torch = pytest.importorskip("torch")
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    rng = np.random.default_rng(0)
    model = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.97))
    averaged.update_parameters(model)
    w = Variable(model.weight.detach().numpy().copy(), True)
    ema = EMA(w, 0.97)
    for _ in range(100):
        new = rng.normal(size=(2, 3))
        w.data = new
        with torch.no_grad():
            model.weight.copy_(torch.tensor(new))
        averaged.update_parameters(model)
        ema.update()
    theirs = averaged.module.weight.detach().numpy()
    np.testing.assert_allclose(ema.averages.numpy(), theirs, rtol=1e-12)
