"""Random programs: both modes agree with each other and with differences, to second order."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odyssey import GradientTape, Variable, ops
from support.programs import Program, Step, seeded, write
from support.seeds import DERANDOMIZE

CALM = {
    "deadline": None,
    "derandomize": DERANDOMIZE,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@st.composite
def drawn(draw):
    """Programs that hypothesis can shrink: every choice is a draw."""
    return write(lambda options: draw(st.sampled_from(options)), draw(st.integers(0, 2**16)))


def programs():
    """Half of them as hypothesis likes them, half of them long."""
    return drawn() | st.integers(0, 2**16).map(seeded)


def flat(arrays):
    return np.concatenate([np.ravel(np.asarray(a)) for a in arrays])


def like(flat_numbers, arrays):
    """The flat numbers as arrays of the shapes of ``arrays``."""
    ends = np.cumsum([a.size for a in arrays])[:-1]
    parts = np.split(flat_numbers, ends)
    return [part.reshape(a.shape) for part, a in zip(parts, arrays, strict=True)]


def plain(program, numbers):
    """The outputs at ``numbers``, computed without a tape, as one flat array."""
    return flat(program.run(ops, like(numbers, program.leaves)))


def record(program):
    leaves = [Variable(x, requires_grad=True) for x in program.leaves]
    with GradientTape(persistent=True) as tape:
        outputs = program.run(ops, leaves)
    return tape, leaves, outputs


def pulled(tape, outputs, leaves, cotangent):
    """The gradients for a flat cotangent, as one flat array."""
    arrays = tape.gradient(outputs, leaves, like(cotangent, outputs), unused="zero")
    return flat(arrays)


def pushed(tape, outputs, leaves, tangent):
    """The tangents for a flat tangent, as one flat array."""
    return flat(tape.jvp(outputs, leaves, like(tangent, leaves)))


def differences(f, x, step=1e-5):
    """The Jacobian of ``f`` by central differences of fourth order, column by column."""
    columns = []
    for k in range(x.size):
        unit = np.zeros(x.size)
        unit[k] = step
        near, far = f(x + unit) - f(x - unit), f(x + 2 * unit) - f(x - 2 * unit)
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns, axis=-1) if columns else np.zeros((f(x).size, 0))


def assert_near(got, wanted, tolerance):
    scale = max(1.0, np.abs(wanted).max(initial=0.0))
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max(initial=0.0) <= tolerance * scale


def check_jacobians(program):
    """Raise AssertionError unless both modes and differences give one Jacobian."""
    tape, leaves, outputs = record(program)
    x, y = flat(program.leaves), flat([y.numpy() for y in outputs])
    # Not to the bit: of what lies elsewhere, or in another way, BLAS rounds products differently.
    assert_near(y, plain(program, x), 1e-14)
    rows = [pulled(tape, outputs, leaves, unit) for unit in np.eye(y.size)]
    columns = [pushed(tape, outputs, leaves, unit) for unit in np.eye(x.size)]
    reverse = np.reshape(rows, (y.size, x.size))
    forward = np.reshape(columns, (x.size, y.size)).T
    assert_near(forward, reverse, 1e-12)
    assert_near(reverse, differences(lambda at: plain(program, at), x), 1e-6)


@pytest.mark.slow
@settings(max_examples=250, **CALM)
@given(programs())
def test_reverse_mode_forward_mode_and_differences_give_one_jacobian(program):
    check_jacobians(program)


@pytest.mark.soak
@settings(max_examples=600, **CALM)
@given(programs())
def test_both_modes_and_differences_give_one_jacobian_of_many_programs(program):
    check_jacobians(program)


@pytest.mark.slow
@settings(max_examples=250, **CALM)
@given(programs())
def test_random_cotangents_and_tangents_meet_in_one_number(program):
    tape, leaves, outputs = record(program)
    rng = np.random.default_rng(0)
    v = rng.normal(size=sum(x.size for x in leaves))
    c = rng.normal(size=sum(y.size for y in outputs))
    tangent, gradient = pushed(tape, outputs, leaves, v), pulled(tape, outputs, leaves, c)
    scale = 1.0 + np.abs(c * tangent).sum() + np.abs(gradient * v).sum()
    assert abs(c @ tangent - gradient @ v) <= 1e-13 * scale


def gradient_at(program, numbers, weights):
    """The gradient of the weighted sum of the outputs at flat ``numbers``."""
    leaves = [Variable(x, requires_grad=True) for x in like(numbers, program.leaves)]
    with GradientTape() as tape:
        outputs = program.run(ops, leaves)
    return flat(tape.gradient(outputs, leaves, like(weights, outputs), unused="zero"))


@pytest.mark.slow
@settings(max_examples=250, **CALM)
@given(programs())
def test_three_ways_to_a_hessian_product_agree(program):
    x, rng = flat(program.leaves), np.random.default_rng(1)
    weights = rng.normal(size=plain(program, x).size)
    v = rng.normal(size=x.size)
    leaves = [Variable(a, requires_grad=True) for a in program.leaves]
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            outputs = program.run(ops, leaves)
        # Adding the leaf times 0 makes a result of what would be a constant.
        first = inner.gradient(outputs, leaves, like(weights, outputs), unused="zero")
        first = [g + 0.0 * a for g, a in zip(first, leaves, strict=True)]
    over_reverse = flat(outer.gradient(first, leaves, like(v, leaves), unused="zero"))
    over_forward = flat(outer.jvp(first, leaves, like(v, leaves)))
    scale = max(1.0, np.abs(over_reverse).max(initial=0.0))
    # The Hessian is symmetric, so both are its product with v.
    assert_near(over_forward, over_reverse, 1e-11)
    step = 1e-5
    slopes = [
        gradient_at(program, x + k * step * v, weights) * w
        for k, w in ((-2, 1), (-1, -8), (1, 8), (2, -1))
    ]
    assert_near(over_reverse, sum(slopes) / (12 * step), 1e-5 * scale)


@pytest.mark.slow
@settings(max_examples=150, **CALM)
@given(programs())
def test_a_sweep_that_consumes_gives_the_bits_of_one_that_keeps(program):
    tape, leaves, outputs = record(program)
    rng = np.random.default_rng(2)
    cotangents = [rng.normal(size=y.shape) for y in outputs]
    kept = tape.gradient(outputs, leaves, cotangents, unused="zero")
    again = tape.gradient(outputs, leaves, cotangents, unused="zero")
    with GradientTape() as once:
        fresh = program.run(ops, leaves)
    once.backward(fresh, cotangents)
    assert len(once) == 0
    for a, b, leaf in zip(kept, again, leaves, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(leaf.grad if leaf.grad is not None else 0.0 * a, a)


# Every differentiable op of the table, but those that only rules call. A list of its own, so that a
# new row edits one file; its move and its name here may follow.
DRAWN = """
absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh array_split binary_entropy
binary_entropy_with_logits broadcast_to cbrt clip concatenate conj cos cosh cumsum divide dot
elu erf erfc exp exp2 expand_dims expm1 flip gelu getitem hard_sigmoid hard_swish hard_tanh
hstack hypot identity inner leaky_relu linear log log10 log1p log2 log_sigmoid log_softmax
logsumexp matmul matrix_transpose max maximum mean min minimum mish mod moveaxis multiply
negative outer pad power prelu prod ravel real reciprocal relu relu6 repeat reshape roll rsqrt
selu setitem sigmoid sign silu sin sinh softmax softmax_cross_entropy softplus softsign split
sqrt square squared_error_mean squeeze stack std subtract sum swapaxes take take_along_axis tan
tanh tensordot tile transpose unstack var vdot vstack where
"""


@pytest.mark.slow
def test_the_programs_cover_the_table_and_the_shapes():
    ops_seen, shapes, shared, empty = set(), set(), 0, 0
    for seed in range(500):
        program = seeded(seed)
        ops_seen |= {step.op for step in program.steps}
        shapes |= {x.shape for x in program.leaves}
        uses = [o for step in program.steps for o in step.uses()]
        shared += len(uses) > len(set(uses))
        empty += any(x.size == 0 for x in program.leaves)
    assert ops_seen >= set(DRAWN.split())
    assert {(), (1,), (2, 3), (2, 1, 2), (0,)} <= shapes
    assert shared > 400
    assert empty > 50


@pytest.mark.parametrize("depth", [1, 10, 300])
def test_fan_out_of_a_shared_value_sums_over_exponentially_many_paths(depth):
    program = Program(
        [np.array(1.0)],
        [Step("add", (k, k), {}) for k in range(depth)],
        [depth],
    )
    tape, leaves, outputs = record(program)
    assert tape.gradient(outputs[0], leaves[0]) == 2.0**depth
    assert tape.jvp(outputs[0], leaves[0], 1.0) == 2.0**depth
