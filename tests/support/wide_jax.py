"""JAX's functions by the names of our ops, for the moves of ``wide_programs``."""

import numpy as np

__all__ = ["wide_table"]

NUMPY = "sinc deg2rad rad2deg nan_to_num i0 logaddexp logaddexp2 fmax fmin copysign heaviside "
NUMPY += "cumprod diff gradient sort median quantile percentile ptp nansum nanprod nanmean nanvar "
NUMPY += "nancumsum nancumprod average flipud fliplr append insert delete select choose "
NUMPY += "meshgrid diag diagonal trace tril triu rot90 atleast_1d atleast_2d atleast_3d fabs "
NUMPY += "column_stack dstack kron einsum vecdot polyval cross convolve correlate imag"
FFT = "fft ifft rfft irfft ihfft fft2 fftshift"
LINALG = "det slogdet inv solve cholesky matrix_power eigvalsh qr eigh svd svdvals pinv norm "
LINALG += "multi_dot"
SPECIAL = "i0e i1 i1e ndtr log_ndtr gammaln digamma entr gamma erfinv logit ndtri xlogy xlog1py "
SPECIAL += "betaln gammainc gammaincc betainc zeta"


def wide_table(jax, table):
    """Those of ``table`` and those that the wide programs call besides."""
    jnp, nn, lax = jax.numpy, jax.nn, jax.lax
    special, linalg = jax.scipy.special, jax.scipy.linalg

    def of_lower(fn):
        # We read the lower triangle, JAX the mean of both: the gradients of one matrix differ.
        return lambda a: fn(jnp.tril(a) + jnp.tril(a, -1).T)

    def scan(fn):
        return lambda x, axis: fn(jnp.asarray(x), axis=axis % np.ndim(x))

    def first(fn):
        return lambda *args, **options: (fn(*args, **options),)

    def pooled(x, window, stride, start, combine):
        window = window if isinstance(window, tuple) else (window,)
        stride = window if stride is None else (stride,)
        lead = (1,) * (x.ndim - len(window))
        return lax.reduce_window(x, start, combine, lead + window, lead + stride, "VALID")

    def max_pool(x, window, stride=None):
        return pooled(x, window, stride, -jnp.inf, lax.max)

    def avg_pool(x, window, stride=None):
        return pooled(x, window, stride, 0.0, lax.add) / np.prod(window)

    def conv(x, weight, stride=1, padding=0, dilation=1):
        dims = x.ndim - 2
        return lax.conv_general_dilated(
            x,
            weight,
            (stride,) * dims,
            [(padding, padding)] * dims,
            rhs_dilation=(dilation,) * dims,
        )

    def attention(q, k, v):
        # JAX's own works in single precision.
        return nn.softmax(q @ k.mT / np.sqrt(q.shape[-1])) @ v

    def layer_norm(x):
        return nn.standardize(x, axis=-1, epsilon=1e-5)

    def topk(x, k):
        return lax.top_k(x, k)

    def segment_sum(x, rows, num_segments):
        return jax.ops.segment_sum(x, rows, num_segments)

    found = {name: getattr(jnp, name) for name in NUMPY.split()}
    found |= {name: getattr(jnp.fft, name) for name in FFT.split()}
    found |= {name: getattr(jnp.linalg, name) for name in LINALG.split()}
    found |= {name: getattr(special, name) for name in SPECIAL.split()}
    return (
        table
        | found
        | {
            "compress": lambda condition, x, axis: jnp.compress(
                condition, x, axis=axis, size=np.count_nonzero(condition)
            ),
            **{name: of_lower(found[name]) for name in ("cholesky", "eigh", "eigvalsh")},
            "celu": nn.celu,
            "glu": nn.glu,
            "hard_shrink": lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0.0),
            "soft_shrink": lambda x: jnp.sign(x) * nn.relu(jnp.abs(x) - 0.5),
            "tanh_shrink": lambda x: x - jnp.tanh(x),
            "trapezoid": jnp.trapezoid,
            "logcumsumexp": scan(lax.cumlogsumexp),
            "cummax": first(scan(lax.cummax)),
            "cummin": first(scan(lax.cummin)),
            "polygamma": special.polygamma,
            "topk": topk,
            "segment_sum": segment_sum,
            "index_add": lambda x, rows, source, axis: jnp.asarray(x).at[rows].add(source),
            "dynamic_slice": lambda x, starts, slice_sizes: lax.dynamic_slice(
                x, starts, slice_sizes
            ),
            "dynamic_update_slice": lax.dynamic_update_slice,
            "triangular_solve": lambda a, b, lower: linalg.solve_triangular(a, b, lower=lower),
            "cho_solve": lambda factor, b: linalg.cho_solve(tuple(factor), b),
            "expm": linalg.expm,
            "conv1d": conv,
            "conv2d": conv,
            "max_pool1d": max_pool,
            "max_pool2d": max_pool,
            "avg_pool1d": avg_pool,
            "avg_pool2d": avg_pool,
            "layer_norm": layer_norm,
            "rms_norm": lambda x: x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6),
            "softmin": lambda x, axis: nn.softmax(-x, axis),
            "normalize": lambda x, axis: x / jnp.linalg.norm(x, axis=axis, keepdims=True),
            "scaled_dot_product_attention": attention,
        }
    )
