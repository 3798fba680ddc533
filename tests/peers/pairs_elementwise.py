"""Functions of one number, or of two or three."""

import numpy as np

from support.pairs import pair

X = (2, 3)
MASK = np.array([[True, False, True], [False, False, True]])
WHOLE = np.array([[6, -3, 5], [12, 9, -7]])
OTHER = np.array([[3, 5, 1], [10, 9, 2]])

# ------------------------------------------------------------------ of one number

SMOOTH = """
    sin cos tanh sinh cosh arctan=atan arcsinh=asinh exp exp2 expm1 sigmoid square negative=neg
    sinc erf erfc absolute=abs deg2rad rad2deg tan
"""
# Where they are defined: names, and the bounds of what is drawn.
BOUNDED = {
    (0.2, 2.5): "log log2 log10 log1p sqrt rsqrt reciprocal log1p=special.log1p",
    (-0.9, 0.9): "arcsin=asin arccos=acos arctanh=atanh",
    (1.1, 3.0): "arccosh=acosh",
}
STEPS = "floor ceil trunc sign rint=round"
SPECIAL = "expm1 exp2 erf erfc expit sinc round=round"
ACTIVATIONS = """
    relu relu6 elu selu silu mish softplus softsign tanh sigmoid
    hard_swish=hardswish hard_tanh=hardtanh leaky_relu log_sigmoid=logsigmoid gelu
"""


def named(words, room="", *operands, **more):
    """A pair for each word, ours behind it under the peer's name where that is another one."""
    found = []
    for word in words.split():
        ours, _, theirs = word.partition("=")
        found.append(pair(f"torch.{room}{theirs or ours}", ours, *(operands or (X,)), **more))
    return found


UNARY = [
    *named(SMOOTH),
    *(p for (low, high), words in BOUNDED.items() for p in named(words, low=low, high=high)),
    *named(STEPS, low=-3.4, high=3.4),
    *named(SPECIAL, "special."),
    *named(ACTIVATIONS, "nn.functional."),
    *named("logit", "special.", low=0.1, high=0.9),
    *named("logit", low=0.1, high=0.9),
    # Whose derivative is 1 / 6 of single precision.
    *named("hard_sigmoid=hardsigmoid", "nn.functional.", tolerance=1e-8),
    pair(
        "torch.nn.functional.gelu",
        "gelu",
        X,
        ours={"approximate": "tanh"},
        theirs={"approximate": "tanh"},
    ),
    pair("torch.nn.functional.elu", "elu", X, ours={"alpha": 0.3}, theirs={"alpha": 0.3}),
    pair("torch.nn.functional.softplus", "softplus", X, ours={"beta": 2.0}, theirs={"beta": 2.0}),
    pair("torch.round", "round", X, ours={"decimals": 2}, theirs={"decimals": 2}, values_only=True),
    pair("torch.positive", "identity", X),
    pair("torch.clone", "identity", X),
    pair(
        "torch.special.entr",
        "xlogy",
        X,
        low=0.2,
        high=2.0,
        ours=lambda ops, x: ops.negative(ops.xlogy(x, x)),
        theirs={},
    ),
    pair("torch.nn.functional.prelu", "prelu", (2, 3, 2), (3,), ours={}),
    pair("torch.prelu", "prelu", (2, 3, 2), (3,), ours={}),
    *[
        pair(f"torch.nn.functional.{name}", name, X, ours={"axis": k}, theirs={"dim": k})
        for name in ("softmax", "log_softmax")
        for k in (0, -1)
    ],
    pair(
        "torch.nn.functional.softmin",
        "softmax",
        X,
        ours=lambda ops, x: ops.softmax(ops.negative(x)),
        theirs={"dim": -1},
    ),
    *[
        pair(f"torch.{name}", name, X, ours={"axis": 0}, theirs={"dim": 0})
        for name in ("softmax", "log_softmax")
    ],
    *[
        pair(f"torch.special.{name}", name, X, ours={"axis": 0}, theirs={"dim": 0})
        for name in ("softmax", "log_softmax", "logsumexp")
    ],
    *[pair(f"torch.{name}", name, X, values_only=True) for name in ("isnan", "isinf", "isfinite")],
    pair("torch.nan_to_num", "nan_to_num", np.array([1.0, np.nan, np.inf, -np.inf])),
]

# ------------------------------------------------------------------ of complex numbers

COMPLEX = [
    *named(
        "sin cos tanh exp log sqrt reciprocal square absolute=abs sinh cosh arctan=atan",
        complex=True,
    ),
    *named("real imag angle conj=conj_physical sign=sgn", complex=True),
    pair("torch.conj", "conj", X, complex=True),
    pair("torch.sgn", "sign", X, complex=True),
    pair("torch.complex", "add", X, X, ours=lambda ops, x, y: ops.add(x, ops.multiply(y, 1j))),
    pair(
        "torch.polar",
        "multiply",
        X,
        X,
        low=0.2,
        high=2.0,
        ours=lambda ops, r, t: ops.multiply(r, ops.exp(ops.multiply(t, 1j))),
    ),
    pair(
        "torch.view_as_real",
        "stack",
        X,
        complex=True,
        ours=lambda ops, z: ops.stack([ops.real(z), ops.imag(z)], axis=-1),
    ),
    pair(
        "torch.view_as_complex",
        "add",
        (3, 2),
        ours=lambda ops, x: ops.add(x[:, 0], ops.multiply(x[:, 1], 1j)),
    ),
    *[
        pair(f"torch.{theirs}", ours, X, X, complex=True)
        for ours, theirs in (("multiply", "mul"), ("divide", "div"), ("power", "pow"))
    ],
]

# ------------------------------------------------------------------ of two numbers

SAME_OR_SHORTER = """
    add subtract=sub multiply=mul maximum minimum fmax fmin hypot logaddexp logaddexp2 arctan2=atan2
"""
BINARY = [
    *[
        pair(
            f"torch.{word.partition('=')[2] or word.partition('=')[0]}",
            word.partition("=")[0],
            X,
            (3,),
        )
        for word in SAME_OR_SHORTER.split()
    ],
    pair("torch.subtract", "subtract", X, X),
    pair("torch.multiply", "multiply", X, X),
    pair("torch.divide", "divide", X, X, low=0.5, high=2.0),
    pair("torch.true_divide", "divide", X, X, low=0.5, high=2.0),
    pair("torch.div", "divide", X, (3,), low=0.5, high=2.0),
    pair("torch.pow", "power", X, (3,), low=0.5, high=2.0),
    pair("torch.arctan2", "arctan2", X, X),
    pair("torch.xlogy", "xlogy", X, X, low=0.5, high=2.0),
    pair("torch.special.xlogy", "xlogy", X, X, low=0.5, high=2.0),
    pair("torch.remainder", "mod", X, X, low=0.5, high=2.0),
    pair("torch.fmod", "fmod", X, X, low=0.5, high=2.0),
    pair("torch.floor_divide", "floor_divide", X, X, low=0.5, high=4.0, values_only=True),
    pair("torch.rsub", "subtract", X, X, ours=lambda ops, x, y: ops.subtract(y, x)),
    pair(
        "torch.addcmul",
        "add",
        X,
        X,
        X,
        theirs={"value": 0.5},
        ours=lambda ops, x, a, b: ops.add(x, ops.multiply(0.5, ops.multiply(a, b))),
    ),
    pair(
        "torch.addcdiv",
        "add",
        X,
        X,
        X,
        theirs={"value": 0.5},
        low=0.5,
        high=2.0,
        ours=lambda ops, x, a, b: ops.add(x, ops.multiply(0.5, ops.divide(a, b))),
    ),
    pair(
        "torch.lerp",
        "add",
        X,
        X,
        X,
        ours=lambda ops, a, b, w: ops.add(a, ops.multiply(w, ops.subtract(b, a))),
    ),
    pair("torch.frac", "subtract", X, ours=lambda ops, x: ops.subtract(x, ops.trunc(x))),
    *[
        pair(f"torch.{theirs}", ours, WHOLE, OTHER)
        for ours, theirs in (
            ("greater", "gt"),
            ("greater_equal", "ge"),
            ("less", "lt"),
            ("less_equal", "le"),
            ("equal", "eq"),
            ("not_equal", "ne"),
            ("greater", "greater"),
            ("less", "less"),
            ("greater_equal", "greater_equal"),
            ("less_equal", "less_equal"),
            ("not_equal", "not_equal"),
            ("bitwise_and", "bitwise_and"),
            ("bitwise_or", "bitwise_or"),
            ("bitwise_xor", "bitwise_xor"),
            ("logical_and", "logical_and"),
            ("logical_or", "logical_or"),
            ("logical_xor", "logical_xor"),
        )
    ],
    pair("torch.logical_not", "logical_not", MASK),
    pair("torch.bitwise_not", "invert", WHOLE),
]

# ------------------------------------------------------------------ choices

CHOICES = [
    pair("torch.where", "where", MASK, X, (3,)),
    pair(
        "torch.clamp",
        "clip",
        X,
        ours={"a_min": -0.5, "a_max": 0.7},
        theirs={"min": -0.5, "max": 0.7},
    ),
    pair("torch.clip", "clip", X, ours={"a_min": None, "a_max": 0.7}, theirs={"max": 0.7}),
    pair(
        "torch.masked_fill",
        "where",
        X,
        ours=lambda ops, x: ops.where(MASK, 3.0, x),
        theirs=lambda torch, x: torch.masked_fill(x, torch.tensor(MASK), 3.0),
    ),
    pair(
        "torch.masked_select",
        "getitem",
        X,
        ours=lambda ops, x: x[MASK],
        theirs=lambda torch, x: torch.masked_select(x, torch.tensor(MASK)),
    ),
    pair(
        "torch.nn.functional.threshold",
        "where",
        X,
        ours=lambda ops, x: ops.where(ops.greater(x, 0.1), x, 7.0),
        theirs={"threshold": 0.1, "value": 7.0},
    ),
    pair(
        "torch.nn.functional.hardshrink",
        "where",
        X,
        theirs={"lambd": 0.4},
        ours=lambda ops, x: ops.where(ops.greater(ops.abs(x), 0.4), x, 0.0),
    ),
    pair(
        "torch.nn.functional.softshrink",
        "sign",
        X,
        theirs={"lambd": 0.4},
        ours=lambda ops, x: ops.multiply(ops.sign(x), ops.relu(ops.subtract(ops.abs(x), 0.4))),
    ),
    pair(
        "torch.nn.functional.tanhshrink",
        "subtract",
        X,
        ours=lambda ops, x: ops.subtract(x, ops.tanh(x)),
    ),
]

PAIRS = [*UNARY, *COMPLEX, *BINARY, *CHOICES]
