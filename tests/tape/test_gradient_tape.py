"""The rules of the tape on gradients, each with the answer that calculus gives."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import TapeConsumedError


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ rule 1: adding up


def test_two_sweeps_of_a_persistent_tape_add_up_to_4x():
    x = wide([1.0, -2.0, 0.5])
    with GradientTape(persistent=True) as tape:
        y = (x * x).sum()
    tape.backward(y)
    np.testing.assert_array_equal(x.grad, [2.0, -4.0, 1.0])
    tape.backward(y)
    np.testing.assert_array_equal(x.grad, [4.0, -8.0, 2.0])


def test_sweeps_of_two_tapes_add_up():
    x = wide(3.0)
    for _ in range(2):
        with GradientTape() as tape:
            y = x * x
        tape.backward(y)
    assert float(x.grad) == 12.0


def test_fan_out_sums():
    x = wide(3.0)
    with GradientTape() as tape:
        square = x * x
        y = square + square * x + x
    assert float(tape.gradient(y, x)) == 6.0 + 27.0 + 1.0


def test_a_diamond_is_exact():
    x = wide(2.0)
    with GradientTape() as tape:
        top = x * 3.0
        left, right = top * top, top + 1.0
        y = left * right
    # y = 9 x^2 (3 x + 1), y' = 81 x^2 + 18 x
    assert float(tape.gradient(y, x)) == 81.0 * 4.0 + 18.0 * 2.0


def test_intermediates_are_not_propagated_again_by_a_second_sweep():
    x = wide(1.0)
    with GradientTape(persistent=True) as tape:
        y = x
        for _ in range(5):
            y = y + y
    first = tape.backward(y)
    second = tape.backward(y)
    assert float(first[x]) == float(second[x]) == 32.0
    assert float(x.grad) == 64.0


def test_an_operand_used_twice_by_one_op_gets_both_parts():
    x = wide([[1.0, 2.0], [3.0, 4.0]])
    with GradientTape() as tape:
        y = (x @ x).sum()
    ones = np.ones((2, 2))
    np.testing.assert_array_equal(tape.gradient(y, x), ones @ x.numpy().T + x.numpy().T @ ones)


# ------------------------------------------------------------------ rule 2: consuming


@pytest.mark.parametrize("first", ["backward", "gradient"])
@pytest.mark.parametrize("second", ["backward", "gradient", "jvp"])
def test_consumed_tape_refuses_a_second_sweep(first, second):
    x = wide(2.0)
    with GradientTape() as tape:
        y = x * x
    sweeps = {
        "backward": lambda: tape.backward(y),
        "gradient": lambda: tape.gradient(y, x),
        "jvp": lambda: tape.jvp(y, x, 1.0),
    }
    sweeps[first]()
    with pytest.raises(TapeConsumedError, match=r"persistent=True.*retain=True"):
        sweeps[second]()


def test_retain_keeps_the_tape_for_one_more_sweep():
    x = wide(2.0)
    with GradientTape() as tape:
        y = x * x
    tape.backward(y, retain=True)
    tape.backward(y)
    assert float(x.grad) == 8.0
    with pytest.raises(TapeConsumedError):
        tape.backward(y)


def test_create_graph_keeps_the_tape():
    x = wide(2.0)
    with GradientTape() as tape:
        y = x * x * x
    slope = tape.gradient(y, x, create_graph=True)
    assert float(slope) == 12.0
    assert float(tape.gradient(slope, x)) == 12.0
    with pytest.raises(TapeConsumedError):
        tape.gradient(y, x)


def test_create_graph_differentiates_to_any_order():
    x = wide(2.0)
    with GradientTape(persistent=True) as tape:
        y = x**5
    orders = [y]
    for _ in range(4):
        orders.append(tape.gradient(orders[-1], x, create_graph=True))
    assert [float(v) for v in orders] == [32.0, 80.0, 160.0, 240.0, 240.0]


def test_create_graph_gives_variables_also_where_the_gradient_is_constant():
    w = wide([1.0, 2.0])
    with GradientTape(persistent=True) as tape:
        y = (w * 3.0).sum()
    slope = tape.gradient(y, w, create_graph=True)
    assert isinstance(slope, Variable)
    np.testing.assert_array_equal(slope.numpy(), [3.0, 3.0])


def test_without_create_graph_gradients_are_plain_arrays():
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        y = (w * w).sum()
    assert type(tape.gradient(y, w)) is np.ndarray


def test_jvp_consumes_nothing():
    x = wide(3.0)
    with GradientTape() as tape:
        y = x * x
    assert float(tape.jvp(y, x, 1.0)) == float(tape.jvp(y, x, 1.0)) == 6.0
    assert float(tape.gradient(y, x)) == 6.0


@pytest.mark.parametrize("how", ["consumed", "left", "disabled"])
def test_a_tape_that_is_no_longer_recording_records_nothing_more(how):
    x = wide(2.0)
    with GradientTape(persistent=how != "consumed") as tape:
        y = x * x
        if how == "disabled":
            tape.disable()
            assert not (x * x).tape
        if how == "consumed":
            tape.backward(y)
            assert not (x * x).tape
    before = len(tape)
    z = x * x
    assert z.tape is None
    assert len(tape) == before == (0 if how == "consumed" else 1)


def test_a_left_tape_can_still_be_swept():
    x = wide(2.0)
    with GradientTape() as tape:
        y = x * x
    _ = [x * x for _ in range(3)]
    assert float(tape.gradient(y, x)) == 4.0


# ------------------------------------------------------------------ rule 3: cotangents


def test_an_explicit_cotangent_weighs_the_outputs():
    x = wide([1.0, 2.0, 3.0])
    with GradientTape() as tape:
        y = x * x
    np.testing.assert_array_equal(tape.gradient(y, x, [1.0, 10.0, 100.0]), [2.0, 40.0, 600.0])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=["scalar", "vector", "matrix"])
def test_one_element_is_seeded_with_one(shape):
    x = Variable(np.full(shape, 3.0), requires_grad=True)
    with GradientTape() as tape:
        y = x * x
    g = tape.gradient(y, x)
    assert g.shape == shape
    np.testing.assert_array_equal(g, np.full(shape, 6.0))


def test_the_gradient_of_a_leaf_with_respect_to_itself_is_one():
    w = wide(2.0)
    with GradientTape(persistent=True) as tape:
        y = w * w
    assert float(tape.gradient(w, w)) == 1.0
    assert float(tape.gradient(y, y)) == 1.0


def test_the_gradient_of_an_unused_leaf_with_respect_to_itself_is_one():
    w = wide(2.0)
    with GradientTape() as tape:
        pass
    assert float(tape.gradient(w, w)) == 1.0


def test_a_cotangent_of_the_same_kind_is_cast():
    x = Variable(np.ones(2, np.float32), requires_grad=True)
    with GradientTape() as tape:
        y = x * 2
    g = tape.gradient(y, x, np.array([1.0, 3.0], np.float64))
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, [2.0, 6.0])


def test_several_outputs_are_seeded_each_and_sum():
    x = wide(2.0)
    with GradientTape(persistent=True) as tape:
        outputs = {"square": x * x, "cube": x * x * x}
    assert float(tape.gradient(outputs, x)) == 4.0 + 12.0
    weighted = tape.gradient(outputs, x, {"square": 10.0, "cube": 100.0})
    assert float(weighted) == 40.0 + 1200.0


# ------------------------------------------------------------------ rule 4: only what is needed


def test_no_kernel_runs_for_the_gradient_of_a_frozen_operand():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 3)), wide(rng.normal(size=(3, 2)))
    with GradientTape() as tape:
        y = ops.matmul(x, w)
    with od.testing.count_kernels() as one:
        tape.backward(y, np.ones((4, 2)))
    both = wide(x)
    with GradientTape() as tape:
        y = ops.matmul(both, w)
    with od.testing.count_kernels() as two:
        tape.backward(y, np.ones((4, 2)))
    assert (one["matmul"], two["matmul"]) == (1, 2)


def test_freezing_a_leaf_saves_its_kernel_call():
    frozen, w = wide(np.ones((2, 2))), wide(np.ones((2, 2)))
    frozen.requires_grad = False
    with GradientTape() as tape:
        y = frozen @ w
    with od.testing.count_kernels() as counts:
        tape.backward(y, np.ones((2, 2)))
    assert counts["matmul"] == 1
    assert frozen.grad is None


def test_gradient_runs_nothing_for_sources_that_were_not_asked():
    a, b = wide(np.ones((2, 2))), wide(np.ones((2, 2)))
    with GradientTape() as tape:
        y = (ops.exp(a) @ b).sum()
    with od.testing.count_kernels() as counts:
        tape.gradient(y, b)
    assert counts["matmul"] == 1
    assert counts["multiply"] == 0


# ------------------------------------------------------------------ rule 8: complex numbers


def test_the_gradient_of_the_sum_of_squared_moduli_is_2z():
    z = Variable(np.array([1 + 2j, -3j]), requires_grad=True)
    with GradientTape() as tape:
        y = (z * z.conj()).real.sum()
    np.testing.assert_allclose(tape.gradient(y, z), 2 * z.numpy(), rtol=1e-15)


def test_a_complex_output_of_one_element_gives_the_conjugate_derivative():
    z = Variable(np.array(0.3 + 0.4j), requires_grad=True)
    with GradientTape() as tape:
        y = ops.exp(z)
    np.testing.assert_allclose(tape.gradient(y, z), np.conj(np.exp(0.3 + 0.4j)), rtol=1e-15)


def test_a_complex_cotangent_of_a_real_operand_keeps_its_real_part():
    x = wide(2.0)
    with GradientTape() as tape:
        y = x * (3 + 4j)
    g = tape.gradient(y, x)
    assert g.dtype == np.float64
    assert float(g) == 3.0


# ------------------------------------------------------------------ rule 9: dtypes


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_gradients_have_the_dtype_of_what_they_belong_to(name):
    dtype = np.dtype(name)
    w = Variable(np.ones(3, dtype), requires_grad=True)
    with GradientTape() as tape:
        middle = w * 2
        y = (middle * np.ones(3, np.float64)).sum()
    gradients = tape.backward(y)
    assert gradients[w].dtype == w.grad.dtype == dtype
    assert gradients[middle].dtype == dtype


def test_python_scalars_are_weak_and_arrays_are_not():
    w = Variable(np.ones(2, np.float32), requires_grad=True)
    with GradientTape():
        assert (w * 2.0).dtype == (2 + w).dtype == np.float32
        assert (w * np.float64(2.0)).dtype == np.float64
        assert (w * np.ones(2)).dtype == np.float64
        assert (w * 1j).dtype == np.complex64


# ------------------------------------------------------------------ rule 10: two of the kinks


def test_ties_of_a_maximum_split_evenly_on_a_tape():
    a, b = wide([1.0, 2.0]), wide([1.0, 1.0])
    with GradientTape() as tape:
        y = ops.maximum(a, b).sum()
    ga, gb = tape.gradient(y, (a, b))
    np.testing.assert_array_equal(ga, [0.5, 1.0])
    np.testing.assert_array_equal(gb, [0.5, 0.0])


def test_where_keeps_the_branch_not_taken_from_poisoning_the_gradient():
    x = wide([0.0, 4.0])
    with np.errstate(divide="ignore"), GradientTape() as tape:
        y = ops.where(x.numpy() > 0, ops.sqrt(ops.where(x.numpy() > 0, x, 1.0)), 0.0).sum()
    np.testing.assert_array_equal(tape.gradient(y, x), [0.0, 0.25])
