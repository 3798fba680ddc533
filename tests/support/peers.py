"""The ops of torch and jax under our names, and a record of what was compared with them."""

import numpy as np
import pytest

COMPARED = {"torch": set(), "jax": set()}
TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        yield jax


@pytest.fixture(scope="module", autouse=True)
def report():
    """Print, at the end of a file, what was compared so far; ``pytest -s`` shows it."""
    yield
    for peer, names in COMPARED.items():
        print(f"\ncompared with {peer}, {len(names)}: {', '.join(sorted(names))}")


def close(got, wanted, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def torch_ops(torch):
    """Functions of torch tensors by the names of our ops, taking our options."""
    f = torch.nn.functional

    def axes(x, axis):
        return tuple(range(x.ndim)) if axis is None else axis

    def fold(fn):
        return lambda x, axis=None, keepdims=False: (
            fn(x, axes(x, axis), keepdims) if axis != () and x.ndim else x.clone()
        )

    def scored(logits, targets, axis=-1, reduction="mean", ignore_index=None, label_smoothing=0.0):
        return f.cross_entropy(
            logits.movedim(axis, 1) if logits.ndim > 1 else logits,
            targets,
            reduction=reduction,
            ignore_index=-100 if ignore_index is None else ignore_index,
            label_smoothing=label_smoothing,
        )

    def written(x, v, key):
        out = x.clone()
        out[key] = v
        return out

    def reshaped(x, shape, order="C"):
        shape = shape if isinstance(shape, tuple) else (shape,)
        # In Fortran's order the first axis runs fastest: the same with all axes reversed.
        return x.reshape(shape) if order == "C" else flip(flip(x).reshape(shape[::-1]))

    def flip(x):
        return x.permute(tuple(range(x.ndim))[::-1])

    names = "add subtract multiply divide negative square exp log sqrt tanh sigmoid relu conj "
    names += "sign where maximum minimum matmul real"
    shared = {name: getattr(torch, name) for name in names.split()}
    return shared | {
        "power": torch.pow,
        "absolute": torch.abs,
        "softmax": lambda x, axis=-1: torch.softmax(x, axis),
        "log_softmax": lambda x, axis=-1: torch.log_softmax(x, axis),
        "sum": fold(torch.sum),
        "mean": fold(torch.mean),
        "max": fold(torch.amax),
        "min": fold(torch.amin),
        "reshape": reshaped,
        "transpose": lambda x, axes=None: torch.permute(x, axes or tuple(range(x.ndim))[::-1]),
        "matrix_transpose": lambda x: x.mT,
        "broadcast_to": lambda x, shape: torch.broadcast_to(x, shape),
        "getitem": lambda x, key: x[key],
        "setitem": written,
        "identity": torch.clone,
        "squared_error_mean": f.mse_loss,
        "binary_entropy": lambda p, y: f.binary_cross_entropy(p, y, reduction="none"),
        "binary_entropy_with_logits": lambda x, y: f.binary_cross_entropy_with_logits(
            x, y, reduction="none"
        ),
        "softmax_cross_entropy": scored,
    }


def jax_ops(jax):
    """Functions of jax arrays by the names of our ops, taking our options."""
    jnp = jax.numpy
    names = "add subtract multiply divide power negative square exp log sqrt tanh absolute sign "
    names += "conj real where maximum minimum matmul sum mean max min reshape transpose "
    names += "matrix_transpose broadcast_to"
    shared = {name: getattr(jnp, name) for name in names.split()}

    def written(x, v, key):
        # NumPy drops leading axes of length 1 of what is written, jax does not.
        part, v = jnp.asarray(x)[key], jnp.asarray(v)
        return jnp.asarray(x).at[key].set(v.reshape(v.shape[max(v.ndim - part.ndim, 0) :]))

    return shared | {
        "sigmoid": jax.nn.sigmoid,
        "relu": jax.nn.relu,
        "softmax": jax.nn.softmax,
        "log_softmax": jax.nn.log_softmax,
        "getitem": lambda x, key: x[key],
        "setitem": written,
        "identity": lambda x: x + 0,
        "squared_error_mean": lambda x, y: jnp.mean((x - y) ** 2),
    }
