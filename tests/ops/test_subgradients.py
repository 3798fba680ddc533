"""What the derivative is where there is none: ties, kinks, ends of domains, NaN and infinity."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.ops import OPS
from support import stated_arrays, stated_special
from support.cases import assert_same
from support.on_device import assert_equal_bits, is_on_device

INF, NAN = np.inf, np.nan

# (op, operands, gradient of the sum of the result for each, options). None: not differentiable.
TABLE = {
    "maximum tie": (ops.maximum, ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]), ([0.5, 0, 1], [0.5, 1, 0])),
    "maximum tie of zeros": (ops.maximum, ([0.0], [-0.0]), ([0.5], [0.5])),
    "maximum tie at infinity": (ops.maximum, ([INF, -INF], [INF, 0.0]), ([0.5, 0], [0.5, 1])),
    "maximum tie, broadcast": (ops.maximum, ([1.0, 1.0, 0.0], 1.0), ([0.5, 0.5, 0], 2.0)),
    "minimum tie": (ops.minimum, ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]), ([0.5, 1, 0], [0.5, 0, 1])),
    "maximum of NaN": (ops.maximum, ([NAN, 1.0], [1.0, NAN]), ([1, 0], [0, 1])),
    "minimum of NaN": (ops.minimum, ([NAN, 1.0], [1.0, NAN]), ([1, 0], [0, 1])),
    "fmax": (
        ops.fmax,
        ([1.0, 2.0, INF, NAN, 1.0, NAN], [1.0, 3.0, INF, 1.0, NAN, NAN]),
        ([0.5, 0, 0.5, 0, 1, 1], [0.5, 1, 0.5, 1, 0, 0]),
    ),
    "fmin": (
        ops.fmin,
        ([1.0, 2.0, -INF, NAN, 1.0, NAN], [1.0, 3.0, -INF, 1.0, NAN, NAN]),
        ([0.5, 1, 0.5, 0, 1, 1], [0.5, 0, 0.5, 1, 0, 0]),
    ),
    "max of two": (ops.max, ([3.0, 1.0, 3.0],), ([0.5, 0, 0.5],)),
    "max of all": (ops.max, ([2.0, 2.0, 2.0, 2.0],), ([0.25] * 4,)),
    "max by axis": (ops.max, ([[1.0, 1.0], [0.0, 2.0]],), ([[0.5, 0.5], [0, 1]],), {"axis": 1}),
    "max of infinities": (ops.max, ([INF, 0.0, INF],), ([0.5, 0, 0.5],)),
    "max of NaN": (ops.max, ([1.0, NAN],), ([0, 1],)),
    "min of two": (ops.min, ([1.0, 3.0, 1.0],), ([0.5, 0, 0.5],)),
    "min of NaN": (ops.min, ([1.0, NAN],), ([0, 1],)),
    "std of equals": (ops.std, ([3.0, 3.0, 3.0],), ([0, 0, 0],)),
    "std by axis": (ops.std, ([[1.0, 1.0], [0.0, 2.0]],), ([[0, 0], [-0.5, 0.5]],), {"axis": 1}),
    "logsumexp of nothing": (ops.logsumexp, ([-INF, -INF],), ([0, 0],)),
    "logsumexp of something": (ops.logsumexp, ([-INF, 1.0],), ([0, 1],)),
    "prod with a zero": (ops.prod, ([0.0, 2.0, 3.0],), ([6, 0, 0],)),
    "prod with two zeros": (ops.prod, ([0.0, 2.0, 0.0],), ([0, 0, 0],)),
    "sort of equals": (ops.sort, ([2.0, 1.0, 2.0, NAN],), ([1, 1, 1, 1],)),
    "cumprod with zeros": (ops.cumprod, ([2.0, 0.0, 3.0, 0.0],), ([1, 8, 0, 0],)),
    "piecewise_linear": (
        ops.piecewise_linear,
        (
            [-INF, -1.0, 0.0, 0.5, 1.0, 3.0, 4.0, INF],
            np.array([0.0, 1.0, 3.0]),
            np.array([1.0, 2.0, -1.0]),
        ),
        ([0, 0, 1, 1, -1.5, -1.5, 0, 0], None, None),
    ),
    "piecewise_linear in the values": (
        ops.piecewise_linear,
        (np.array([-1.0, 0.5, 1.0, 9.0]), np.array([0.0, 1.0, 3.0]), [1.0, 2.0, -1.0]),
        (None, None, [1.5, 1.5, 1]),
    ),
    "piecewise_linear of NaN": (
        ops.piecewise_linear,
        ([NAN], np.array([0.0, 1.0]), np.array([1.0, 2.0])),
        ([NAN], None, None),
    ),
    "absolute": (ops.absolute, ([-2.0, -0.0, 0.0, 3.0],), ([-1, 0, 0, 1],)),
    "absolute of complex": (ops.absolute, ([0j, 3 + 4j],), ([0, 0.6 + 0.8j],)),
    "fabs": (ops.fabs, ([-2.0, -0.0, 0.0, 3.0],), ([-1, 0, 0, 1],)),
    "angle": (ops.angle, ([-2.0, -0.0, 0.0, 3.0, INF],), ([0, 0, 0, 0, 0],)),
    # i / conj(z): steepest ascent is to the left, and steeper closer to 0.
    "angle of complex": (ops.angle, ([0j, 2 + 0j, 3 + 4j],), ([0, 0.5j, -0.16 + 0.12j],)),
    "angle, deg": (ops.angle, ([2 + 0j],), ([90j / np.pi],), {"deg": True}),
    "nan_to_num": (ops.nan_to_num, ([NAN, INF, -INF, 2.0],), ([0, 0, 0, 1],)),
    "sinc": (ops.sinc, ([0.0, 1.0, 0.5, INF],), ([0, -1, -4 / np.pi, NAN],)),
    "logaddexp": (
        ops.logaddexp,
        ([-INF, -INF, INF, INF, 1.0], [-INF, 0.0, 0.0, INF, 1.0]),
        ([0, 0, 1, NAN, 0.5], [0, 1, 0, NAN, 0.5]),
    ),
    "logaddexp2": (
        ops.logaddexp2,
        ([-INF, -INF, INF, INF, 1.0], [-INF, 0.0, 0.0, INF, 2.0]),
        ([0, 0, 1, NAN, 1 / 3], [0, 1, 0, NAN, 2 / 3]),
    ),
    "power_share": (
        ops.power_share,
        ([-INF, INF, INF, 1.0], [-INF, 0.0, INF, 1.0]),
        ([0, 0, NAN, 0.25], [0, 0, NAN, -0.25]),
    ),
    "logit": (ops.logit, ([0.0, -0.0, 0.5, 1.0],), ([INF, -INF, 4, INF],)),
    "xlogy": (ops.xlogy, ([0.0, 2.0, 0.0], [0.0, 1.0, 1.0]), ([-INF, 0, 0], [0, 2, 0])),
    "sign": (ops.sign, ([-1.0, 0.0, 2.0],), ([0, 0, 0],)),
    "relu": (ops.relu, ([-1.0, -0.0, 0.0, 2.0],), ([0, 0, 0, 1],)),
    "sqrt": (ops.sqrt, ([0.0, 4.0],), ([INF, 0.25],)),
    "log": (ops.log, ([0.0, 4.0],), ([INF, 0.25],)),
    "power, 0**0": (ops.power, (0.0, 0.0), (0, 0)),
    "power, x**0": (ops.power, ([2.0, -2.0], 0.0), ([0, 0], NAN)),
    "power, 0**1": (ops.power, (0.0, 1.0), (1, 0)),
    "power, 0**2": (ops.power, (0.0, 2.0), (0, 0)),
    "power, 0**0.5": (ops.power, (0.0, 0.5), (INF, 0)),
    "power, 1**0": (ops.power, (1.0, 0.0), (0, 0)),
    "power of a negative number": (ops.power, (-2.0, 2.0), (-4, NAN)),
    "where": (
        ops.where,
        (np.array([True, False]), [1.0, NAN], [NAN, 2.0]),
        (None, [1, 0], [0, 1]),
    ),
    "where, infinite": (
        ops.where,
        (np.array([True, False]), [1.0, INF], [-INF, 2.0]),
        (None, [1, 0], [0, 1]),
    ),
    "setitem twice": (
        ops.setitem,
        ([1.0, 2.0], [3.0, 4.0, 5.0]),
        ([1, 0], [0, 0, 1]),
        {"key": np.array([1, 1, 1])},
    ),
    "log2": (ops.log2, ([0.0, 4.0],), ([INF, 0.25 / np.log(2)],)),
    "log10": (ops.log10, ([0.0, 4.0],), ([INF, 0.25 / np.log(10)],)),
    "log1p": (ops.log1p, ([-1.0, 3.0],), ([INF, 0.25],)),
    "rsqrt": (ops.rsqrt, ([0.0, 4.0],), ([-INF, -1 / 16],)),
    "cbrt": (ops.cbrt, ([0.0, 8.0, -8.0],), ([INF, 1 / 12, 1 / 12],)),
    "reciprocal": (ops.reciprocal, ([0.0, 4.0],), ([-INF, -1 / 16],)),
    "arcsin": (ops.arcsin, ([-1.0, 0.6, 1.0],), ([INF, 1.25, INF],)),
    "arccos": (ops.arccos, ([-1.0, 0.6, 1.0],), ([-INF, -1.25, -INF],)),
    "arctanh": (ops.arctanh, ([-1.0, 0.5, 1.0],), ([INF, 4 / 3, INF],)),
    "arccosh": (ops.arccosh, ([1.0, 1.25],), ([INF, 4 / 3],)),
    "hypot": (ops.hypot, ([0.0, 3.0, 0.0], [0.0, 4.0, -2.0]), ([0, 0.6, 0], [0, 0.8, -1])),
    "arctan2": (
        ops.arctan2,
        ([0.0, -0.0, 0.0, 3.0], [0.0, -0.0, -2.0, 4.0]),
        ([0, 0, -0.5, 0.16], [0, 0, 0, -0.12]),
    ),
    "keep_where": (
        ops.keep_where,
        ([1.0, NAN, INF], np.array([True, False, False])),
        ([1, 0, 0], None),
    ),
    "eigenvalue_pullback": (
        ops.eigenvalue_pullback,
        ([1.0, 1.0], np.eye(2)),
        ([1, 1], np.zeros((2, 2))),
        {"constant": True},
    ),
    "singular_value_pullback": (
        ops.singular_value_pullback,
        ([0.0, 0.0], np.eye(2)),
        ([1, 1], np.zeros((2, 2))),
        {"constant": True},
    ),
    "fmod": (ops.fmod, ([6.0, -5.0, 5.0, 5.0], [3.0, 3.0, -3.0, INF]), ([1] * 4, [-2, 1, 1, 0])),
    "mod": (ops.mod, ([6.0, -5.0, 5.0], [3.0, 3.0, -3.0]), ([1, 1, 1], [-2, 2, 2])),
    "clip": (
        ops.clip,
        ([-2.0, -1.0, 0.5, 1.0, 3.0, NAN],),
        ([0, 1, 1, 1, 0, 0],),
        {"a_min": -1.0, "a_max": 1.0},
    ),
    "clip, bounds crossed": (
        ops.clip,
        ([-2.0, 0.0, 2.0],),
        ([0, 0, 0],),
        {"a_min": 1.0, "a_max": -1.0},
    ),
    "relu6": (ops.relu6, ([-1.0, -0.0, 0.0, 3.0, 6.0, 7.0],), ([0, 0, 0, 1, 0, 0],)),
    "leaky_relu": (ops.leaky_relu, ([-1.0, -0.0, 0.0, 2.0],), ([0.01, 0.01, 0.01, 1],)),
    "prelu": (ops.prelu, ([-3.0, -0.0, 0.0, 2.0], 0.25), ([0.25, 0.25, 0.25, 1], -3)),
    "elu": (ops.elu, ([-0.0, 0.0, 2.0],), ([0.5, 0.5, 1],), {"alpha": 0.5}),
    "selu": (ops.selu, ([-0.0, 0.0],), ([1.7580993408473766] * 2,)),
    "hard_sigmoid": (ops.hard_sigmoid, ([-4.0, -3.0, 0.0, 3.0, 4.0],), ([0, 0, 1 / 6, 0, 0],)),
    "hard_swish": (ops.hard_swish, ([-4.0, -3.0, 0.0, 3.0, 4.0],), ([0, 0, 0.5, 1, 1],)),
    "hard_tanh": (ops.hard_tanh, ([-2.0, -1.0, 0.0, 1.0, 2.0],), ([0, 0, 1, 0, 0],)),
    "floor": (ops.floor, ([-1.5, 0.0, 2.0, INF],), ([0, 0, 0, 0],)),
    "ceil": (ops.ceil, ([-1.5, 0.0, 2.0, INF],), ([0, 0, 0, 0],)),
    "rint": (ops.rint, ([-1.5, 0.5, 2.0, INF],), ([0, 0, 0, 0],)),
    "trunc": (ops.trunc, ([-1.5, 0.0, 2.0, INF],), ([0, 0, 0, 0],)),
    "fix": (ops.fix, ([-1.5, 0.0, 2.0, INF],), ([0, 0, 0, 0],)),
    "round": (ops.round, ([-1.25, 0.5, 2.0, INF],), ([0, 0, 0, 0],), {"decimals": 1}),
    "floor_divide": (ops.floor_divide, ([6.0, 5.0, 1.0], [3.0, 3.0, 0.0]), ([0] * 3, [0] * 3)),
    "tanh": (ops.tanh, ([0.0, 20.0, -20.0],), ([1, 0, 0],)),
    "sigmoid": (ops.sigmoid, ([0.0, 40.0],), ([0.25, 0],)),
    "sign of complex": (ops.sign, ([0j],), ([complex(NAN, NAN)],)),
    "power_slope, 0**0": (ops.power_slope, (0.0, 0.0), (0, NAN)),
    "power_log, 0**0": (ops.power_log, (0.0, 0.0), (NAN, NAN)),
    "over_length": (ops.over_length, ([0.0, 3.0], [0.0, 5.0]), ([INF, 0.2], [NAN, -0.12])),
    "logits, infinite": (
        ops.binary_entropy_with_logits,
        ([INF, -INF, 40.0], [0.5, 0.5, 1.0]),
        ([0.5, -0.5, 0], [-INF, INF, -40]),
    ),
    "softmax of infinity": (ops.softmax, ([INF, 0.0],), ([NAN, NAN],)),
    "log_softmax of infinity": (ops.log_softmax, ([INF, 0.0],), ([NAN, NAN],)),
    "cross entropy of infinity": (
        ops.softmax_cross_entropy,
        ([[INF, 0.0]], np.array([1])),
        ([[NAN, NAN]], None),
    ),
    "slope of cross entropy of infinity": (
        ops.softmax_cross_entropy_slope,
        ([[INF, 0.0]], np.array([1])),
        ([[NAN, NAN]], None),
    ),
    "direction": (ops.direction, ([0.0, 3.0], [0.0, 4.0]), ([NAN, 0.128], [NAN, -0.096])),
    # (p - y) / max(p (1 - p), 1e-12), and the difference of logarithms that stop at -100.
    "binary_entropy": (ops.binary_entropy, ([0.0, 1.0], [1.0, 0.0]), ([-1e12, 1e12], [100, -100])),
    "binary_entropy, right": (ops.binary_entropy, ([0.0, 1.0], [0.0, 1.0]), ([0, 0], [100, -100])),
}
LIMITS = {
    "exp": (ops.exp, ([-INF, INF],), ([0, INF],)),
    "tanh": (ops.tanh, ([-INF, INF],), ([0, 0],)),
    "sigmoid": (ops.sigmoid, ([-INF, INF, -1000.0, 1000.0],), ([0, 0, 0, 0],)),
    "log": (ops.log, ([INF],), ([0],)),
    "sqrt": (ops.sqrt, ([INF],), ([0],)),
    "divide": (ops.divide, (1.0, INF), (0, 0)),
    "divide by zero": (ops.divide, (1.0, 0.0), (INF, -INF)),
    "relu": (ops.relu, ([-INF, INF],), ([0, 1],)),
    "absolute": (ops.absolute, ([-INF, INF],), ([-1, 1],)),
    "logits": (
        ops.binary_entropy_with_logits,
        ([-1000.0, 1000.0], [1.0, 0.0]),
        ([-1, 1], [1000, -1000]),
    ),
    "softmax": (ops.softmax, ([-INF, 0.0],), ([0, 0],)),
    "cross entropy": (
        ops.softmax_cross_entropy,
        ([[1000.0, -1000.0]], np.array([1])),
        ([[1, -1]], None),
    ),
}
TABLE |= stated_arrays.STATED | stated_special.STATED
CASES = {f"kink: {k}": v for k, v in TABLE.items()}
CASES |= {f"limit: {k}": v for k, v in LIMITS.items()}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def placed(operand, device):
    """An operand without a gradient; on a device its arrays are constants there."""
    on_host = device == "cpu" or not isinstance(operand, np.ndarray)
    return operand if on_host else Variable(operand, device=device)


def recorded(case, device="cpu"):
    """The op's leaves and result on a persistent tape, and the gradients to expect."""
    op, operands, wanted, *options = case
    leaves = [
        Variable(o, requires_grad=True, device=device) if w is not None else placed(o, device)
        for o, w in zip(operands, wanted, strict=True)
    ]
    with GradientTape(persistent=True) as tape:
        out = op(*leaves, **(options[0] if options else {}))
    moving = [v for v in leaves if isinstance(v, Variable) and v.requires_grad]
    stated = [w for w in wanted if w is not None]
    expected = [np.asarray(w, leaf.dtype) for w, leaf in zip(stated, moving, strict=True)]
    return tape, out, moving, expected


@every_case
def test_reverse_mode_gives_the_stated_derivative(case):
    with np.errstate(all="ignore"):
        tape, out, leaves, wanted = recorded(case)
        gradients = tape.gradient(out, leaves, np.ones(out.shape, out.dtype))
    for gradient, expected in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=0)


@pytest.mark.share(4, rest="slow")
@every_case
@pytest.mark.usefixtures("standin")
def test_the_stated_derivative_holds_on_a_device(case):
    with np.errstate(all="ignore"):
        found = []
        for device in ("cpu", "cuda"):
            tape, out, leaves, _ = recorded(case, device)
            ones = [np.ones(v.shape, v.dtype) for v in (out, *leaves)]
            pairs = zip(leaves, ones[1:], strict=True)
            moved = [tape.jvp(out, leaf, one) for leaf, one in pairs]
            found.append([*tape.gradient(out, leaves, ones[0]), *moved])
    assert all(map(is_on_device, found[1]))
    assert_equal_bits(found[1], found[0])


WITHOUT_KERNELS = {"sort", "median", "quantile", "percentile", "svdvals", "fmod"}
WITHOUT_KERNELS |= {"eigenvalue_pullback", "singular_value_pullback", "segment_max", "segment_min"}


@pytest.mark.share(6, rest="slow")
@every_case
@pytest.mark.usefixtures("standin")
def test_the_stated_derivative_holds_in_a_compiled_function_on_a_device(case):
    op, operands, stated, *options = case
    places = [k for k, w in enumerate(stated) if w is not None]
    constants = [placed(operand, "cuda") for operand in operands]

    def gradients(*given):
        leaves = [Variable(v, requires_grad=True) for v in given]
        values = list(constants)
        for k, leaf in zip(places, leaves, strict=True):
            values[k] = leaf
        with GradientTape() as tape:
            out = op(*values, **(options[0] if options else {}))
        return tape.gradient(out, leaves, ops.ones_like(out))

    compiled = od.compile(gradients, warn=False)
    given = [Variable(operands[k], device="cuda") for k in places]
    with np.errstate(all="ignore"):
        found = [compiled(*given) for _ in range(3)]
    for gradient, k, leaf in zip(found[2], places, given, strict=True):
        assert is_on_device(gradient)
        expected = np.asarray(stated[k], leaf.dtype)
        np.testing.assert_allclose(gradient.get(), expected, rtol=1e-12, atol=0)
    assert compiled.statistics().native == 2 or op.row.name in WITHOUT_KERNELS


def units(leaf, together):
    """Tangents that show the derivative: one for each element, or one for all."""
    places = [...] if together else list(np.ndindex(leaf.shape))
    for place, unit in itertools.product(places, (1.0, 1j) if leaf.dtype.kind == "c" else (1.0,)):
        tangent = np.zeros(leaf.shape, leaf.dtype)
        tangent[place] = unit
        yield place, unit, tangent


@every_case
def test_forward_mode_gives_the_stated_derivative(case):
    with np.errstate(all="ignore"):
        tape, out, leaves, wanted = recorded(case)
        for leaf, expected in zip(leaves, wanted, strict=True):
            # One element at a time would multiply an infinite slope by the zeros of the others.
            together = case[0].row.elementwise and out.shape == leaf.shape
            for place, unit, tangent in units(leaf, together):
                moved = tape.jvp(out, leaf, tangent)
                slope = (np.conj(expected[place]) * unit).real
                got = moved if together else np.sum(moved)
                np.testing.assert_allclose(got, slope, rtol=1e-12, atol=0)


def test_every_row_that_chooses_states_its_kinks():
    assert all(row.kinks for row in OPS.values() if row.selects)


def test_every_row_that_states_a_kink_has_its_cases():
    stated = {row.name for row in OPS.values() if row.kinks}
    assert stated <= {case[0].row.name for case in TABLE.values()}


# ------------------------------------------------------------------ the branch not taken

BRANCHES = {
    "sqrt": lambda x: ops.sqrt(x),
    "log": lambda x: ops.log(x),
    "1 / x": lambda x: 1.0 / x,
    "power": lambda x: x**0.5,
    "x log x": lambda x: x * ops.log(x),
    "exp of log": lambda x: ops.exp(ops.log(x)),
    "exp": lambda x: ops.exp(x * -1000.0),
}


@pytest.mark.parametrize("branch", BRANCHES.values(), ids=list(BRANCHES))
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_where_keeps_the_branch_not_taken_out_of_the_derivative(branch, mode):
    x = Variable([-1.0, 0.0, 4.0], requires_grad=True)
    with np.errstate(all="ignore"), GradientTape() as tape:
        y = ops.where(x > 0.0, branch(x), 0.0)
    with np.errstate(all="ignore"):
        sweep = tape.gradient if mode == "reverse" else tape.jvp
        slope = sweep(y, x, np.ones(3))
    assert slope[:2].tolist() == [0.0, 0.0]
    assert np.isfinite(slope[2])


@pytest.mark.parametrize("branch", BRANCHES.values(), ids=list(BRANCHES))
@pytest.mark.parametrize("inside", ["gradient", "jvp"])
@pytest.mark.parametrize("outside", ["gradient", "jvp"])
def test_where_keeps_the_branch_not_taken_out_of_second_derivatives(branch, inside, outside):
    x = Variable([-1.0, 0.0, 4.0], requires_grad=True)
    with np.errstate(all="ignore"):
        with GradientTape() as outer:
            with GradientTape() as inner:
                y = ops.where(x > 0.0, branch(x), 0.0)
            slope = getattr(inner, inside)(y, x, np.ones(3))
        bend = getattr(outer, outside)(slope, x, np.ones(3))
    assert bend[:2].tolist() == [0.0, 0.0]
    assert np.isfinite(bend[2])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: ops.where(np.array([[False], [False]]), ops.sqrt(x), 0.0 * x),
        lambda x: ops.where(np.array(False), ops.sum(ops.log(x)), ops.sum(0.0 * x)),
        lambda x: ops.where(x > 0.0, ops.reshape(ops.log(ops.reshape(x, (3, 1))), (3,)), 0.0),
    ],
    ids=["broadcast", "reduced", "reshaped"],
)
def test_where_keeps_the_branch_not_taken_out_through_other_ops(program):
    x = Variable([-1.0, 0.0, 4.0], requires_grad=True)
    with np.errstate(all="ignore"):
        with GradientTape() as tape:
            y = program(x)
        slope = tape.gradient(y, x, np.ones(y.shape))
    assert slope[:2].tolist() == [0.0, 0.0]
    assert np.isfinite(slope[2])


# ------------------------------------------------------------------ NaN and infinity in values

SPECIAL = np.array([-INF, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, INF, NAN])
UFUNCS = {name: row for name, row in OPS.items() if row.ufunc is not None and name != "matmul"}
OF_FLOATS = [row for row in UFUNCS.values() if any("d" in types for types in row.ufunc.types)]
FOLDS = ["sum", "mean", "max", "min", "argmax"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row", OF_FLOATS, ids=lambda row: row.name)
def test_nan_and_infinity_go_through_elementwise_ops_as_through_numpy(row, dtype):
    numbers = SPECIAL.astype(dtype)
    grid = np.meshgrid(*[numbers] * len(row.arrays))
    leaves = [Variable(x, requires_grad=True) for x in grid]
    with np.errstate(all="ignore"), GradientTape():
        assert_same(row.call(*leaves).numpy(), row.ufunc(*grid))


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("number", [NAN, INF, -INF], ids=str)
def test_nan_and_infinity_go_through_reductions_as_through_numpy(name, number):
    x = np.random.default_rng(0).normal(size=(3, 4))
    x[1, 2] = number
    for axis in (None, 0, 1):
        got = getattr(ops, name)(Variable(x), axis=axis).numpy()
        assert_same(got, getattr(np, name)(x, axis=axis))


def test_sigmoid_relu_and_softmax_pass_nan_on_and_take_infinity_to_their_limits():
    with np.errstate(all="ignore"):
        assert_same(ops.sigmoid(np.array([-INF, INF, NAN])), np.array([0.0, 1.0, NAN]))
        assert_same(ops.relu(np.array([-INF, INF, NAN])), np.array([0.0, INF, NAN]))
        assert_same(ops.softmax(np.array([-INF, 0.0])), np.array([0.0, 1.0]))
        assert_same(ops.log_softmax(np.array([-INF, 0.0])), np.array([-INF, 0.0]))
        assert np.isnan(ops.softmax(np.array([NAN, 0.0]))).all()


def test_sure_predictions_cost_nothing_when_right_and_a_bounded_sum_when_wrong():
    p = np.array([0.0, 1.0, 0.0, 1.0])
    assert od.losses.binary_cross_entropy(p, [0.0, 1.0, 1.0, 0.0], reduction="none").tolist() == [
        0.0,
        0.0,
        100.0,
        100.0,
    ]
