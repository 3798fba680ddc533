"""Parameters, gradients and states on several devices at once: each stays where it lies."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, nn, ops
from odyssey.errors import DeviceError
from support.on_device import assert_equal_bits, assert_same_on_both, constant, host, leaf
from support.optimizers import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("standin")

PLACES = ("cuda:0", "cuda:1", "cpu")


def leaves(data):
    """The same parameter on each device."""
    return [leaf(data, place) for place in PLACES]


def places_of(values):
    return tuple(str(Variable(value).device) for value in values)


# ------------------------------------------------------------------ optimizers


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_an_optimizer_steps_each_parameter_on_its_device(case):
    make, _, _, settings = OPTIMIZERS[case]
    params = leaves(np.array([[1.0, -2.0], [0.5, 4.0]]))
    with od.ops.use_kernels("numpy"):
        optimizer = make(params, **settings)
        for k in range(2):
            for p in params:
                p.grad = np.array([[0.5, 1.0], [-1.0, k + 1.0]])
            optimizer.step()
    assert places_of(params) == PLACES
    assert_equal_bits(params[:2], [params[2]] * 2)
    state = optimizer.state_dict()
    assert all(
        not hasattr(a, "get") for one in state["state"] for a in one.values() if a is not one
    )
    optimizer.load_state_dict(state)
    for p, one in zip(params, optimizer._state, strict=True):
        assert {str(v.device) for n, v in one.items() if n != "steps"} <= {str(p.device)}


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, np.inf])
def test_clipping_by_the_common_norm_takes_gradients_of_all_devices(norm_type):
    params, plain = leaves([0.0, 0.0]), [leaf([0.0, 0.0], "cpu") for _ in PLACES]
    for p, q, factor in zip(params, plain, (1.0, 2.0, -3.0), strict=True):
        p.grad = q.grad = [factor, 0.5]
    norms = [od.optim.clip_grad_global_norm(ps, 0.5, norm_type=norm_type) for ps in (params, plain)]
    gradients = np.array([[1.0, 0.5], [2.0, 0.5], [-3.0, 0.5]])
    np.testing.assert_allclose(norms, np.linalg.norm(gradients.reshape(-1), norm_type), rtol=1e-12)
    assert places_of(p.grad for p in params) == PLACES
    assert_equal_bits([p.grad for p in params], [q.grad for q in plain])


@pytest.mark.parametrize("bad", [0, 1, 2, None])
def test_a_scaler_looks_for_infinite_gradients_on_all_devices(bad):
    params = leaves([1.0])
    optimizer, scaler = od.optim.SGD(params, 0.5), od.optim.LossScaler(8.0)
    for k, p in enumerate(params):
        p.grad = [np.inf if k == bad else 4.0]
    scaler.step(optimizer)
    assert [host(p)[0] for p in params] == [1.0 if bad is not None else 0.75] * 3
    assert scaler.value == (8.0 if bad is None else 4.0)


# ------------------------------------------------------------------ tapes and transforms


def test_a_sweep_adds_cotangents_on_the_device_of_each_value():
    a, b, c = leaves([1.0, 2.0])
    with GradientTape(persistent=True) as tape:
        x, y = a * a, b * b
        # Each value is used twice, so that its cotangents are added up where it lies.
        z = (x * x).to("cpu") + (y * y).to("cpu") + c * c + x.to("cuda:1").to("cpu")
        loss = (z * z).sum()
    gradients = tape.gradient(loss, [a, b, c])
    assert places_of(gradients) == PLACES
    w = np.array([1.0, 2.0])
    z = 2 * w**4 + 2 * w**2
    expected = [2 * z * (4 * w**3 + 2 * w), 2 * z * 4 * w**3, 2 * z * 2 * w]
    for got, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(host(got), wanted, rtol=1e-12)
    tangents = tape.jvp(loss, [a, b, c], [np.ones(2)] * 3)
    np.testing.assert_allclose(host(tangents), sum(map(np.sum, expected)), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*encountered in divide:RuntimeWarning")
def test_elements_masked_out_stay_at_zero_on_each_device():
    params = leaves([0.0, 4.0])
    with GradientTape() as tape:
        parts = [ops.where(p > 0.0, ops.sqrt(p), 0.0).to("cpu") for p in params]
        loss = ops.sum(parts[0] + parts[1] + parts[2])
    gradients = tape.gradient(loss, params)
    assert places_of(gradients) == PLACES
    assert_equal_bits(gradients, [np.array([0.0, 0.25])] * 3)


@pytest.mark.parametrize("place", ["cuda:0", "cpu"])
def test_what_a_user_hands_to_a_sweep_lies_on_the_device_of_its_value(place):
    x, other = leaf([1.0, 2.0], "cuda:1"), Variable([1.0, 1.0], device=place)
    home = leaf([1.0, 2.0], "cpu")
    given = other.data
    with GradientTape(persistent=True) as tape:
        y, z = ops.sin(x), ops.sin(home)
    refused = [
        lambda: tape.jvp(z, home, Variable([1.0, 1.0], device="cuda:0").data),
        lambda: tape.gradient(z, home, Variable([1.0, 1.0], device="cuda:0").data),
        lambda: setattr(home, "grad", Variable([1.0, 1.0], device="cuda:0")),
    ]
    if place == "cuda:0":
        refused += [
            lambda: tape.gradient(y, x, given),
            lambda: tape.gradient(y, x, other),
            lambda: tape.backward(y, grad=other),
            lambda: tape.jvp(y, x, given),
            lambda: od.vjp(ops.sin, x.data)[1](given),
            lambda: od.jvp(ops.sin, (x.data,), (given,)),
            lambda: od.hvp(lambda x: ops.sin(x).sum(), (x.data,), (given,)),
            lambda: setattr(x, "grad", other),
        ]
    for call in refused:
        with pytest.raises(DeviceError, match=r"is on cuda:0, and must be on (cuda:1|cpu)"):
            call()
    assert x.grad is home.grad is None
    if place == "cpu":
        np.testing.assert_array_equal(host(tape.gradient(y, x, given)), np.cos([1.0, 2.0]))


def test_a_hook_that_returns_an_array_of_another_device_is_refused():
    x = leaf([1.0, 2.0], "cuda:1")
    with GradientTape() as tape:
        y = x * 3.0
        loss = y.sum()
    tape.on_gradient(y, lambda g: Variable([1.0, 1.0], device="cuda:0"))
    with pytest.raises(DeviceError, match=r"on_gradient: .* is on cuda:0, and must be on cuda:1"):
        tape.backward(loss)


def test_a_gradient_of_the_device_is_set_on_its_parameter():
    x = leaf([1.0, 2.0], "cuda:1")
    for g in (Variable([3.0, 4.0], device="cuda:1"), Variable([3.0, 4.0], device="cuda:1").data):
        x.grad = None
        x.grad = g
        np.testing.assert_array_equal(host(x.grad), [3.0, 4.0])
        assert places_of([x.grad]) == ("cuda:1",)


def test_vmap_of_arrays_on_two_devices_is_refused_where_they_meet():
    x, y = leaf([1.0, 2.0], "cuda:0"), leaf([1.0, 2.0], "cuda:1")
    found = od.vmap(lambda a, b: (a * 2.0, b * 3.0))(x, y)
    assert places_of(found) == ("cuda:0", "cuda:1")
    for other in (y, leaf([1.0, 2.0], "cpu"), np.ones(2)):
        with pytest.raises(DeviceError, match="multiply: x is on cuda:0 and y on c"):
            od.vmap(lambda a, b: a * b)(x, other)


# ------------------------------------------------------------------ the rest


def test_running_statistics_of_batch_norm_move_on_the_device():
    def program(device):
        x = leaf(np.arange(24.0).reshape(4, 3, 2) ** 1.5, device)
        running = [Variable(np.full(3, k + 1.0), device=device) for k in range(2)]
        with GradientTape() as tape:
            y = nn.batch_norm(x, running_mean=running[0], running_var=running[1], training=True)
            loss = (y * y * y).sum()
        tape.backward(loss)
        return y, x.grad, running

    assert_same_on_both(program)


def test_full_like_fills_where_the_array_lies():
    x = Variable(np.ones((2, 3)), device="cuda:1")
    fill = Variable(2.0, requires_grad=True, device="cuda:1")
    with GradientTape() as tape:
        full = ops.full_like(x, fill)
    np.testing.assert_array_equal(host(tape.gradient(full, fill, np.ones((2, 3)))), 6.0)
    for other in (Variable(2.0), Variable(2.0, device="cuda:0")):
        with pytest.raises(DeviceError, match=r"full_like: fill_value is on c.* must be on cuda:1"):
            ops.full_like(x, other)
    assert places_of([full, ops.full_like(x, 2.0)]) == ("cuda:1", "cuda:1")


def test_assigned_elements_come_from_the_host_or_the_own_device():
    for w in (leaf([1.0, 2.0, 3.0], "cuda:1"), Variable([1.0, 2.0, 3.0], device="cuda:1")):
        w[0] = 4.0
        w[1:] = np.array([5.0, 6.0])
        w[Variable(np.array([2]), device="cuda:1")] = Variable([7.0], device="cuda:1")
        w[[True, False, False]] = [8.0]
        np.testing.assert_array_equal(host(w), [8.0, 5.0, 7.0])
        for value in (Variable([1.0, 1.0], device="cuda:0"), Variable(1.0), Variable([1.0, 1.0])):
            with pytest.raises(
                DeviceError, match=r"item assignment: the value is on c.* on cuda:1"
            ):
                w[:2] = value
        np.testing.assert_array_equal(host(w), [8.0, 5.0, 7.0])
    with pytest.raises(DeviceError, match=r"item assignment: the value is on cuda:1.* on cpu"):
        leaf([1.0], "cpu")[0] = w[0]


def test_comparisons_of_numpy_run_on_the_device_and_refuse_another():
    x, y = leaf([1.0, np.nan], "cuda:1"), Variable([1.0, np.nan], device="cuda:1")
    assert bool(np.allclose(x, y, equal_nan=True))
    assert not bool(np.allclose(x, 1.0))
    assert not bool(np.array_equal(x, y))
    np.testing.assert_array_equal(host(np.isclose(x, 1.0)), [True, False])
    np.testing.assert_array_equal(host(np.isreal(x)), [True, True])
    for other in (np.ones(2), Variable([1.0, 1.0]), Variable([1.0, 1.0], device="cuda:0")):
        for compare in (np.allclose, np.array_equal, np.isclose):
            with pytest.raises(DeviceError, match=r"is on cuda:1 and one on c.* on one device"):
                compare(x, other)


def test_sparse_rows_are_made_on_the_device_of_their_values():
    values = Variable([[1.0, 2.0], [3.0, 4.0]], device="cuda:1").data
    for indices in ([2, -3], Variable(np.array([2, -3]), device="cuda:1").data):
        rows = od.SparseRows(indices, values, (3, 2))
        np.testing.assert_array_equal(host(rows.to_dense()), [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]])
        assert places_of([rows.indices, rows.values, rows.to_dense()]) == ("cuda:1",) * 3
    with pytest.raises(DeviceError, match="SparseRows: the array of indices is on cuda:0"):
        od.SparseRows(Variable(np.array([2, 0]), device="cuda:0").data, values, (3, 2))


def test_histograms_and_quantiles_take_settings_of_the_device():
    def program(device):
        x = leaf([1.0, 2.0, 4.0, 8.0], device)
        counts, edges = ops.histogram(x.detach(), bins=3)
        return counts, edges, ops.quantile(x, constant(np.array([0.25, 0.5]), device))

    assert_same_on_both(program)
