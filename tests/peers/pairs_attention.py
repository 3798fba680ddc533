"""Attention and recurrent networks, and what PyTorch and JAX call them."""

import numpy as np

from support.pairs import pair

SDPA = "torch.nn.functional.scaled_dot_product_attention"
OURS = "scaled_dot_product_attention"
SINGLE = 3e-6  # in which JAX takes the softmax
RNG = np.random.default_rng(0)
SOME = RNG.random((2, 1, 5, 6)) < 0.6
SOME[0, 0, 2] = False  # a query that may attend to nothing
GROUPED = (2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 2)


def jax_attention(**options):
    """JAX has the heads behind the length."""

    def call(jax, q, k, v, *mask):
        q, k, v = (jax.numpy.swapaxes(x, -3, -2) for x in (q, k, v))
        out = jax.nn.dot_product_attention(q, k, v, *mask, **options)
        return jax.numpy.swapaxes(out, -3, -2)

    return call


def with_mask(torch, q, k, v, mask):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)


PAIRS = [
    pair(SDPA, OURS, (2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 2)),
    pair(SDPA, OURS, (5, 3), (6, 3), (6, 3)),
    pair(SDPA, OURS, (2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 2), (5, 6)),
    pair(SDPA, OURS, (2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 2), (2, 1, 1, 6)),
    pair(SDPA, OURS, (2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 2), SOME),
    pair(
        SDPA,
        OURS,
        (3, 6, 4),
        (3, 4, 4),
        (3, 4, 4),
        ours={"causal": True},
        theirs={"is_causal": True},
    ),
    pair(SDPA, OURS, (4, 4), (4, 4), (4, 4), ours={"scale": 0.3}, theirs={"scale": 0.3}),
    pair(SDPA, OURS, *GROUPED, theirs={"enable_gqa": True}),
    pair(SDPA, OURS, (40, 130, 3), (40, 140, 3), (40, 140, 2)),  # more scores than a tile has
    pair("jax.nn.dot_product_attention", OURS, *GROUPED, theirs=jax_attention(), tolerance=SINGLE),
    pair(
        "jax.nn.dot_product_attention",
        OURS,
        (1, 2, 4, 3),
        (1, 2, 4, 3),
        (1, 2, 4, 3),
        ours={"causal": True},
        theirs=jax_attention(is_causal=True),
        tolerance=SINGLE,
    ),
]
