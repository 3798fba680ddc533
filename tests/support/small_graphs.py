"""Ten small functions with works of several ways, and their gradients."""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops


def _normal(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).normal(size=shape)


def _mlp(x, w, v):
    return ops.relu(x @ w) @ v


def _loss(x, w):
    return losses.cross_entropy(x @ w, np.arange(len(x)) % 3)


def _row(x, w):
    return ops.tanh(x @ w.T)


def _strided_convolution(x, w):
    return ops.conv2d(x, w, stride=2, padding=1)


def _pooled(x, w):
    return ops.max_pool2d(ops.conv2d(x, w, padding=1), window=2)


def _running(x):
    return ops.cumsum(x, axis=1) * ops.cumprod(x, axis=0)


def _sorted(x):
    return ops.sort(x, axis=1) * 2.0


def _attention(q, k, v):
    return ops.scaled_dot_product_attention(q, k, v, causal=True)


def _scanned(w, xs):
    return od.scan(lambda c, x: (ops.tanh(c @ w + x), c), xs[0] * 0.0, xs)[1]


def _branched(x, w):
    return od.cond(ops.sum(x) > 0.0, lambda v: v @ w, lambda v: ops.cumsum(v @ w, axis=1), x)


FUNCTIONS = {
    "an MLP": (_mlp, (_normal(4, 6), _normal(6, 5), _normal(5, 3))),
    "cross entropy": (_loss, (_normal(5, 4), _normal(4, 3))),
    "a product of one row": (_row, (_normal(1, 40), _normal(30, 40))),
    "a strided convolution": (_strided_convolution, (_normal(2, 3, 6, 6), _normal(4, 3, 3, 3))),
    "a pooled convolution": (_pooled, (_normal(2, 2, 6, 6), _normal(3, 2, 3, 3))),
    "running sums and products": (_running, (_normal(3, 5),)),
    "sorted rows": (_sorted, (_normal(3, 7),)),
    "attention": (
        _attention,
        (_normal(2, 4, 3), _normal(2, 4, 3, seed=1), _normal(2, 4, 3, seed=2)),
    ),
    "a long scan": (_scanned, (_normal(3, 3), _normal(70, 3))),
    "a branch": (_branched, (_normal(3, 3), _normal(3, 3, seed=1))),
}


def with_gradients(fn):
    """A function that returns the result of ``fn`` and the gradients of all arguments."""

    def call(*args):
        leaves = [Variable(x, requires_grad=True) for x in args]
        with GradientTape() as tape:
            out = fn(*leaves)
            loss = ops.sum(out * out)
        return [out, *tape.gradient(loss, leaves)]

    return call


def in_float32(args):
    return tuple([x.astype(np.float32) for x in args])
