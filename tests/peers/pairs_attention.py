"""Attention and recurrent networks, and what PyTorch and JAX call them."""

import numpy as np

from support.pairs import pair

SDPA = "torch.nn.functional.scaled_dot_product_attention"
OURS = "scaled_dot_product_attention"
SINGLE = 3e-6  # in which JAX takes the softmax
RNG = np.random.default_rng(0)
SOME = RNG.random((2, 1, 5, 6)) < 0.6
SOME[0, 0, 2] = False  # a query that may attend to nothing
ABOVE = np.triu(np.ones((5, 6), bool), 1)
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


HEADS = (5, 2, 4), (6, 2, 4), (6, 2, 4), (12, 4), (12,), (4, 4), (4,)  # length first, as torch has


def their_heads(torch, q, k, v, w, b, w_o, b_o, **options):
    return torch.nn.functional.multi_head_attention_forward(
        *[q, k, v, 4, 2, w, b, None, None, False, 0.0, w_o, b_o], need_weights=False, **options
    )[0]


def our_heads(ops, q, k, v, w, b, w_o, b_o, **options):
    q, k, v = (ops.swapaxes(x, 0, 1) for x in (q, k, v))
    weights, biases = ops.split(w, 3), ops.split(b, 3)
    out = ops.multi_head_attention(q, k, v, *weights, w_o, *biases, b_o, heads=2, **options)
    return ops.swapaxes(out, 0, 1)


def layer(kind, pairs):
    """A layer of torch's over time, as the function that its module calls; one bias, in two."""

    def call(torch, x, state, w_x, w_h, *biases):
        b_x = biases[0]
        b_h = biases[1] if len(biases) > 1 else torch.zeros_like(b_x)
        state = [s[None] for s in state] if pairs else state[None]
        function = getattr(torch, kind)
        weights = [w_x, w_h, b_x, b_h]
        out, *last = function(x, state, weights, True, 1, 0.0, False, False, False)
        return (out, *[s[0] for s in last])

    return call


def cell(kind):
    def call(torch, x, state, w_x, w_h, *biases):
        b_x = biases[0]
        b_h = biases[1] if len(biases) > 1 else torch.zeros_like(b_x)
        return getattr(torch, kind)(x, state, w_x, w_h, b_x, b_h)

    return call


def paired(name):
    """Ours with h and c as two operands."""
    return lambda ops, x, h, c, *rest: flat(getattr(ops, name)(x, (h, c), *rest))


def flat(found):
    out, last = found
    return (out, *last) if isinstance(last, tuple) else found


def theirs_paired(call):
    return lambda torch, x, h, c, *rest: call(torch, x, (h, c), *rest)


STEP, TIME = (3, 4), (6, 3, 4)
SIMPLE = (3, 2), (2, 4), (2, 2), (2,)
LSTM = (3, 2), (3, 2), (8, 4), (8, 2), (8,)
GRU = (3, 2), (6, 4), (6, 2), (6,), (6,)
RELU = {"activation": "relu"}

PAIRS = [
    pair("torch.rnn_tanh_cell", "rnn_cell", STEP, *SIMPLE, theirs=cell("rnn_tanh_cell")),
    pair("torch.rnn_relu_cell", "rnn_cell", STEP, *SIMPLE, ours=RELU, theirs=cell("rnn_relu_cell")),
    pair("torch.rnn_tanh", "rnn", TIME, *SIMPLE, theirs=layer("rnn_tanh", False)),
    pair("torch.rnn_relu", "rnn", TIME, *SIMPLE, ours=RELU, theirs=layer("rnn_relu", False)),
    pair("torch.gru_cell", "gru_cell", STEP, *GRU, theirs=cell("gru_cell")),
    pair("torch.gru", "gru", TIME, *GRU, theirs=layer("gru", False)),
    pair(
        "torch.lstm_cell",
        "lstm_cell",
        STEP,
        *LSTM,
        ours=paired("lstm_cell"),
        theirs=theirs_paired(cell("lstm_cell")),
    ),
    pair(
        "torch.lstm",
        "lstm",
        TIME,
        *LSTM,
        ours=paired("lstm"),
        theirs=theirs_paired(layer("lstm", True)),
    ),
    pair(
        "torch.nn.functional.multi_head_attention_forward",
        "multi_head_attention",
        *HEADS,
        ours=our_heads,
        theirs=their_heads,
    ),
    pair(
        "torch.nn.functional.multi_head_attention_forward",
        "multi_head_attention",
        *HEADS,
        ours=lambda ops, *given: our_heads(ops, *given, mask=~ABOVE),
        theirs=lambda torch, *given: their_heads(torch, *given, attn_mask=torch.tensor(ABOVE)),
    ),
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
    pair(
        "jax.nn.dot_product_attention",
        OURS,
        *GROUPED[:2],
        GROUPED[1],
        theirs=jax_attention(),
        tolerance=SINGLE,
    ),
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
