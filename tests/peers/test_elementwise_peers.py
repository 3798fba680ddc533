"""The elementwise ops against torch and jax in float64: values, first and second derivatives."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.ops import OPS
from support.peers import COMPARED, close, jax, report, torch

pytestmark = pytest.mark.peers
FIXTURES = (torch, jax, report)  # imported for pytest to find

# Ranges that the operands are drawn from, beside the whole line.
RANGES = {
    **dict.fromkeys(["log2", "log10", "rsqrt", "reciprocal"], (0.1, 30.0)),
    **dict.fromkeys(["arcsin", "arccos", "arctanh"], (-0.95, 0.95)),
    **dict.fromkeys(["exp2", "expm1", "sinh", "cosh"], (-6.0, 6.0)),
    "log1p": (-0.9, 30.0),
    "logit": (0.05, 0.95),
    "xlogy": (0.1, 30.0),
    "arccosh": (1.1, 30.0),
    "tan": (-1.4, 1.4),
    "erf": (-5.0, 5.0),
    "erfc": (-5.0, 5.0),
}
# Options to compare, beside none.
OPTIONS = {
    "leaky_relu": {"negative_slope": 0.3},
    "elu": {"alpha": 0.7},
    "softplus": {"beta": 2.5},
    "gelu": {"approximate": "tanh"},
    "hard_tanh": {"min_val": -4.0, "max_val": 6.5},
}
PAIRED = {"arctan2", "hypot", "mod", "fmod", "logaddexp", "logaddexp2", "fmax", "fmin", "xlogy"}


def torch_names(torch):
    f = torch.nn.functional
    same = (
        "sin cos tan sinh cosh arcsin arccos arctan arctan2 arcsinh arccosh arctanh hypot fmod erf "
    )
    same += "erfc log2 log10 expm1 log1p rsqrt reciprocal exp2 logaddexp logaddexp2 fmax fmin sinc "
    same += "deg2rad rad2deg nan_to_num logit xlogy"
    functional = "leaky_relu relu6 elu selu gelu silu mish softsign"
    return (
        {name: getattr(torch, name) for name in same.split()}
        | {name: getattr(f, name) for name in functional.split()}
        | {
            "mod": torch.remainder,
            "log_sigmoid": f.logsigmoid,
            # By its definition: the slope of torch's own is a sixth in single precision, in
            # float64 too, and it has no second derivative.
            "hard_sigmoid": lambda x: f.relu6(x + 3) / 6,
            "hard_swish": f.hardswish,
            "hard_tanh": f.hardtanh,
            # Ours has no threshold beyond which it becomes a line.
            "softplus": lambda x, beta=1.0: f.softplus(x, beta, threshold=500.0),
        }
    )


def jax_names(jax):
    jnp, nn = jax.numpy, jax.nn
    same = (
        "sin cos tan sinh cosh arcsin arccos arctan arctan2 arcsinh arccosh arctanh hypot mod fmod "
    )
    same += "log2 log10 expm1 log1p cbrt reciprocal exp2 logaddexp logaddexp2 fmax fmin sinc "
    same += "deg2rad rad2deg nan_to_num fabs"
    activations = "leaky_relu relu6 elu selu silu mish log_sigmoid hard_sigmoid "
    activations += "hard_swish"
    return (
        {name: getattr(jnp, name) for name in same.split()}
        | {name: getattr(nn, name) for name in activations.split()}
        | {
            "softsign": nn.soft_sign,
            "logit": jax.scipy.special.logit,
            "xlogy": jax.scipy.special.xlogy,
            "erf": jax.lax.erf,
            "erfc": jax.lax.erfc,
            "rsqrt": jax.lax.rsqrt,
            "gelu": lambda x, approximate="none": nn.gelu(x, approximate=approximate == "tanh"),
            "softplus": lambda x, beta=1.0: nn.softplus(beta * x) / beta,
            "hard_tanh": lambda x, min_val=-1.0, max_val=1.0: jnp.clip(x, min_val, max_val),
        }
    )


def cases(table):
    """Name, operands and options of every comparison."""
    rng = np.random.default_rng(7)
    for name in table:
        low, high = RANGES.get(name, (-30.0, 30.0))
        operands = [rng.uniform(low, high, 400) for _ in range(2 if name in PAIRED else 1)]
        for options in ({}, OPTIONS.get(name)):
            if options is not None:
                yield name, operands, options


def ours(op, operands, options):
    """Value, gradients, and gradients of the sum of the gradients times their operands."""
    leaves = [Variable(x, requires_grad=True) for x in operands]
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = op(*leaves, **options)
        first = inner.gradient(out, leaves, np.ones(out.shape))
        total = sum(ops.sum(g * x) for g, x in zip(first, leaves, strict=True))
    return [out.numpy(), *[g.numpy() for g in first], *outer.gradient(total, leaves)]


def test_values_first_and_second_derivatives_equal_those_of_torch(torch):
    table = torch_names(torch)
    assert set(table) <= set(OPS)
    for name, operands, options in cases(table):
        tensors = [torch.tensor(x, requires_grad=True) for x in operands]
        out = table[name](*tensors, **options)
        first = torch.autograd.grad(out.sum(), tensors, create_graph=True)
        total = sum((g * x).sum() for g, x in zip(first, tensors, strict=True))
        second = torch.autograd.grad(total, tensors)
        theirs = [t.detach().numpy() for t in (out, *first, *second)]
        for mine, other in zip(ours(getattr(ops, name), operands, options), theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10, err_msg=name)
        COMPARED["torch"].add(name)


def test_values_first_and_second_derivatives_equal_those_of_jax(jax):
    table = jax_names(jax)
    assert set(table) <= set(OPS)
    for name, operands, options in cases(table):

        def call(*xs, name=name, options=options):
            return table[name](*xs, **options)

        everywhere = tuple(range(len(operands)))

        def gradients(*xs, call=call, everywhere=everywhere):
            return jax.grad(lambda *ys: call(*ys).sum(), everywhere)(*xs)

        def total(*xs, gradients=gradients):
            return sum((g * x).sum() for g, x in zip(gradients(*xs), xs, strict=True))

        second = jax.grad(total, everywhere)(*operands)
        theirs = [call(*operands), *gradients(*operands), *second]
        for mine, other in zip(ours(getattr(ops, name), operands, options), theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10, err_msg=name)
        COMPARED["jax"].add(name)


# ------------------------------------------------------------------ corners

# Where both decide on a corner, ours are torch's; the rest is stated in test_subgradients.
CORNERS = {
    "relu6": [-0.0, 0.0, 6.0],
    "leaky_relu": [-0.0, 0.0],
    "elu": [-0.0, 0.0],
    "selu": [-0.0, 0.0],
    "hard_sigmoid": [-3.0, 3.0],
    "hard_swish": [-3.0, 0.0, 3.0],
    "hard_tanh": [-1.0, 1.0],
    "softsign": [-0.0, 0.0],
    "log2": [0.0],
    "log10": [0.0],
    "log1p": [-1.0],
    "rsqrt": [0.0],
    "reciprocal": [0.0],
    "arcsin": [-1.0, 1.0],
    "arccos": [-1.0, 1.0],
    "arctanh": [-1.0, 1.0],
    "arccosh": [1.0],
}


@pytest.mark.parametrize("name", CORNERS)
def test_corners_have_the_derivative_of_torch(torch, name):
    x = np.array(CORNERS[name])
    tensor = torch.tensor(x, requires_grad=True)
    out = torch_names(torch)[name](tensor)
    (theirs,) = torch.autograd.grad(out.sum(), tensor)
    with np.errstate(all="ignore"):
        leaf = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            mine = getattr(ops, name)(leaf)
        gradient = tape.gradient(mine, leaf, np.ones(x.shape))
    np.testing.assert_array_equal(mine.numpy(), out.detach().numpy())
    np.testing.assert_allclose(gradient, theirs.numpy(), rtol=1e-15)


def test_clip_and_prelu_are_those_of_torch(torch):
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    x[0, 0, :4] = -0.5, 0.25, 0.0, -0.0
    weight = np.array([0.25, -1.0, 0.0, 2.0])
    for mine, theirs, operands in (
        (lambda v: ops.clip(v, -0.5, 0.25), lambda t: torch.clamp(t, -0.5, 0.25), [x]),
        (lambda v: ops.clip(v, a_max=0.25), lambda t: torch.clamp(t, max=0.25), [x]),
        (ops.prelu, torch.nn.functional.prelu, [x, weight]),
        (ops.prelu, torch.nn.functional.prelu, [x, weight[:1]]),
    ):
        tensors = [torch.tensor(o, requires_grad=True) for o in operands]
        out = theirs(*tensors)
        cotangent = np.random.default_rng(1).normal(size=x.shape)
        wanted = torch.autograd.grad(out, tensors, torch.tensor(cotangent))
        leaves = [Variable(o, requires_grad=True) for o in operands]
        with GradientTape() as tape:
            got = mine(*leaves)
        close(got.numpy(), out.detach())
        for a, b in zip(tape.gradient(got, leaves, cotangent), wanted, strict=True):
            close(a, b)
    COMPARED["torch"] |= {"clip", "prelu"}


def test_rounding_is_that_of_both_peers(torch, jax):
    x = np.array([-2.5, -1.5, -0.5, -0.2, 0.5, 1.5, 2.5, 7.3])
    for name in ("floor", "ceil", "round"):
        np.testing.assert_array_equal(getattr(ops, name)(x), getattr(torch, name)(torch.tensor(x)))
        np.testing.assert_array_equal(getattr(ops, name)(x), getattr(jax.numpy, name)(x))
    quotient = torch.div(torch.tensor(x), 0.7, rounding_mode="floor")
    np.testing.assert_array_equal(ops.floor_divide(x, 0.7), quotient)
    np.testing.assert_array_equal(ops.floor_divide(x, 0.7), jax.numpy.floor_divide(x, 0.7))
