"""A thousand random programs give the numbers that JAX finds, in float64, to second order."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from support.cases import random_like
from support.peers import COMPARED, jax, jax_ops, report
from support.programs import seeded

pytestmark = pytest.mark.peers
FIXTURES = (jax, report)  # imported for pytest to find

CHUNK, CHUNKS = 10, 100
KINDS = ("outputs", "gradients", "tangents", "Hessian products")
# Sixty steps that each round to within 16 units of 2**-53 err by 1e-13 of the largest number. What
# a steep step amplifies it amplifies with its error; a digit more is left for cancellation.
TOLERANCE = 1e-12


def table_of(jax):
    """The ops that programs are made of, on jax arrays."""
    jnp, nn, lax = jax.numpy, jax.nn, jax.lax
    names = "sin cos tan sinh cosh arcsin arccos arctan arctan2 arcsinh arccosh arctanh hypot "
    names += (
        "mod fmod log2 log10 expm1 log1p cbrt reciprocal exp2 prod var std cumsum ravel squeeze "
    )
    names += "expand_dims swapaxes moveaxis flip roll concatenate stack hstack vstack split "
    names += "array_split unstack tile repeat pad take take_along_axis dot inner outer vdot "
    names += "tensordot"
    activations = "leaky_relu relu6 elu selu silu mish log_sigmoid hard_sigmoid hard_swish "
    activations += "logsumexp"

    def prelu(x, weight):
        weight = jnp.asarray(weight)
        if weight.size == 1:
            weight = weight.reshape(())
        else:
            weight = weight.reshape(weight.shape + (1,) * (x.ndim - 2))
        return jnp.where(x > 0, x, weight * x)

    def linear(x, weight, bias):
        return x @ weight.T + (0.0 if bias is None else bias)

    def entropy(logits, targets):
        chosen = jnp.take_along_axis(nn.log_softmax(logits), targets[..., None], -1)
        return -jnp.mean(chosen)

    def written(x, v, key):
        # Of several values for one place NumPy keeps the last; jax keeps any.
        if isinstance(key, np.ndarray) and key.dtype != bool:
            key, places = np.unique(key[::-1], return_index=True)
            v = jnp.asarray(v)
            v = v[::-1][places] if v.ndim == x.ndim and v.shape[0] > 1 else v
        return shared["setitem"](x, v, key)

    shared = jax_ops(jax)
    table = shared | {name: getattr(jnp, name) for name in names.split()}
    table |= {name: getattr(nn, name) for name in activations.split()}
    return table | {
        "setitem": written,
        "prelu": prelu,
        "linear": linear,
        "softsign": nn.soft_sign,
        "erf": lax.erf,
        "erfc": lax.erfc,
        "rsqrt": lax.rsqrt,
        "gelu": lambda x, approximate="none": nn.gelu(x, approximate=approximate == "tanh"),
        "softplus": lambda x, beta=1.0: nn.softplus(beta * x) / beta,
        "clip": lambda x, a_min, a_max: jnp.clip(x, a_min, a_max),
        "hard_tanh": lambda x, min_val=-1.0, max_val=1.0: jnp.clip(x, min_val, max_val),
        "binary_entropy": lambda p, y: -(y * jnp.log(p) + (1 - y) * jnp.log(1 - p)),
        "binary_entropy_with_logits": lambda x, y: nn.softplus(x) - x * y,
        "softmax_cross_entropy": entropy,
    }


def ours(program, cotangents, tangents):
    """Outputs, gradients, tangents of the outputs, and of the gradients: a Hessian's product."""
    leaves = [Variable(x, requires_grad=True) for x in program.leaves]
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            outputs = program.run(ops, leaves)
        gradients = inner.gradient(outputs, leaves, cotangents, unused="zero")
        # The leaf times 0 makes a result of what is constant.
        moving = [g + 0.0 * x for g, x in zip(gradients, leaves, strict=True)]
    pushed = outer.jvp(outputs, leaves, tangents)
    seconds = outer.jvp(moving, leaves, tangents)
    return [y.numpy() for y in outputs], [g.numpy() for g in gradients], pushed, seconds


def theirs(jax, table, program, cotangents, tangents):
    """The same from jax, which compiles the whole of it: op by op takes five times as long."""

    def reverse(leaves, cotangents):
        outputs, pull = jax.vjp(lambda xs: program.run(table, xs), leaves)
        return outputs, pull(cotangents)[0]

    def forward(leaves, cotangents, tangents):
        return jax.jvp(lambda xs: reverse(xs, cotangents), (leaves,), (tangents,))

    first, second = jax.jit(forward)(program.leaves, cotangents, tangents)
    return *first, *second


def assert_near(got, wanted, message):
    """Compare lists of arrays to within a fraction of their largest number."""
    wanted = [np.asarray(b) for b in wanted]
    scale = max([1.0, *(np.abs(b).max(initial=0.0) for b in wanted)])
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape, message
        assert a.dtype == b.dtype, message
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=TOLERANCE, err_msg=message)


@pytest.mark.share(20)  # JAX compiles each program, in some two seconds
@pytest.mark.parametrize("chunk", range(CHUNKS), ids=lambda k: f"programs from {k * CHUNK}")
def test_programs_have_jaxs_values_gradients_tangents_and_hessian_products(jax, chunk):
    table = type("JaxOps", (), {k: staticmethod(v) for k, v in table_of(jax).items()})
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        program = seeded(seed)
        outputs = program.run(ops, program.leaves)
        rng = np.random.default_rng(seed)
        cotangents = [random_like(np.asarray(y), seed) for y in outputs]
        tangents = [rng.uniform(-1.0, 1.0, x.shape) for x in program.leaves]
        mine = ours(program, cotangents, tangents)
        other = theirs(jax, table, program, cotangents, tangents)
        for what, a, b in zip(KINDS, mine, other, strict=True):
            assert_near(a, b, f"{what} of program {seed}")
        COMPARED["jax"].update(step.op for step in program.steps)
    jax.clear_caches()
