"""In a graph, calls that mean the same are written the same, and others are not."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.ops import OPS
from odyssey.ops.structure.indexing import canonical_key
from odyssey.spec import Spec
from odyssey.tree import leaves
from support import spellings_convolution
from support.cases import CASES, SMOOTH, assert_close, draw, tracked, walk
from support.formulas_linalg import SPELLINGS as OF_MATRICES

WHOLE, F = np.int64, np.float64
SPEC = Spec((4, 3), np.dtype(F))
FLAT = Spec((4,), np.dtype(F))
PLACES = np.array([[0, 1], [2, 0]])
ROWS = np.array([0, 2])


def axes(*spellings):
    return [{"axis": axis} for axis in spellings]


FOLDS = [
    ([(2, 3)], [*axes(None, (0, 1), [1, 0], (-1, -2)), {}]),
    ([(2, 3)], axes(1, -1, (1,), [WHOLE(-1)], WHOLE(1), np.array(1))),
    ([(2, 3)], [{"axis": 0, "keepdims": k} for k in (True, 1, np.True_)]),
    ([(3,)], axes(None, 0, -1, (0,))),
    ([(2, 3)], axes((), [])),
]
PLACE = [
    ([(2, 3)], axes(1, -1, WHOLE(1))),
    ([(3,)], axes(None, 0, -1)),
    ([(2, 3)], [{}, *axes(None)]),
]
LINE = PLACE[:2]
ENTROPY = [
    (
        [(4, 3), np.array([0, 2, 1, 1])],
        [{}, *axes(1, -1, WHOLE(1)), {"label_smoothing": 0}, {"label_smoothing": np.float32(0)}],
    ),
    ([(4, 3), np.array([0, 2, 1, 1])], [{"ignore_index": k} for k in (1, WHOLE(1))]),
]
KEYS = [
    ((4, 3), [1, -3, WHOLE(1), (1,), (1, ...), (..., -3, slice(None)), (1, slice(0, 9))]),
    ((4, 3), [slice(None), ..., (), (slice(0, 4), ...), slice(-9, None, 1), (..., slice(-3, 3))]),
    ((4, 3), [slice(1, None), slice(1, 4), slice(-3, 9), (slice(1, 4, 1), slice(None))]),
    ((4, 3), [slice(None, None, -1), slice(3, None, -1), slice(9, -9, -1)]),
    ((4, 3), [slice(0, None, 2), slice(0, 3, 2), slice(-4, 4, 2)]),
    ((4, 3), [slice(2, 2), slice(3, 1), slice(1, 3, -1), slice(9, None)]),
    ((4, 3), [slice(1, 2), slice(1, 3, 7), slice(1, 0, -1), slice(-3, -2)]),
    ((4, 3), [(..., 0), (slice(None), 0), (slice(None), -3)]),
    ((4, 3), [(None, 1), (None, -3, ...), (None, 1, slice(None))]),
    ((4, 3), [(1, None), (1, None, ...), (1, None, slice(None))]),
    ((4, 3), [[0, -1], np.array([0, 3]), np.array([-4, -1], np.int8), (np.array([0, 3]), ...)]),
    ((4, 3), [(..., [0, 2]), (slice(None), np.array([0, -1]))]),
    ((2, 2), [np.eye(2, dtype=bool), (np.eye(2, dtype=bool),), (np.eye(2, dtype=bool), ...)]),
    ((0, 3), [slice(None), ..., slice(0, 5), slice(-3, 3)]),
    ((), [(), ...]),
]


def keys(*before, **more):
    return [([s, *before], [{"key": key, **more} for key in spellings]) for s, spellings in KEYS]


SORTS = [
    *LINE,
    ([(2, 3)], [{"kind": k} for k in (None, "stable", "quicksort")] + [{"stable": True}]),
]
SOFTMAXES = [([(2, 3)], [{}, *axes(1, -1, (1,), WHOLE(-1))])]
PULLBACKS = [([(2, 3)] * 2, SOFTMAXES[0][1])]
# For each row its operands, and options that mean the same.
SPELLINGS = {
    **dict.fromkeys(["sum", "mean", "max", "min", "any", "all", "prod", "logsumexp"], FOLDS),
    "var": [
        *FOLDS,
        ([(2, 3)], [{}, {"ddof": 0}, {"ddof": 0.0}, {"correction": 0}, {"ddof": np.float32(0)}]),
        ([(2, 3)], [{"ddof": 1}, {"correction": True}, {"ddof": WHOLE(1)}, {"ddof": 1.0}]),
    ],
    **dict.fromkeys(["argmax", "argmin"], PLACE),
    **dict.fromkeys(["cumsum", "reverse_cumsum", "cumprod"], PLACE),
    **dict.fromkeys(["sort", "argsort"], SORTS),
    **dict.fromkeys(["softmax", "log_softmax"], SOFTMAXES),
    **dict.fromkeys(["softmax_pullback", "log_softmax_pullback"], PULLBACKS),
    "linear_recurrence": [([(2, 3)] * 2, [{}, *axes(1, -1, WHOLE(1))])],
    "take": [
        ([(2, 3), ROWS], [{"axis": k} for k in (1, -1, WHOLE(-1))]),
        ([(3,), ROWS], [{}, *axes(None, 0, -1)]),
    ],
    "add_taken": [
        ([(2, 3), ROWS], [{"axis": k, "spec": SPEC} for k in (0, -2, WHOLE(0))]),
        ([(2,), ROWS], [{"axis": k, "spec": FLAT} for k in (None, 0, -1)]),
    ],
    "take_along_axis": [
        ([(2, 2), PLACES[:, :1] % 2], [{}, *axes(1, -1, WHOLE(1))]),
        ([(3,), ROWS], axes(None, 0, -1)),
    ],
    "add_along_axis": [
        ([(4, 1), np.zeros((4, 1), int)], [{"axis": k, "spec": SPEC} for k in (1, -1)]),
        ([(2,), ROWS], [{"axis": k, "spec": FLAT} for k in (None, 0, -1)]),
    ],
    "astype": [([(2, 3)], [{"dtype": d} for d in ("float32", np.float32, "f4", ">f4")])],
    "reshape": [
        ([(2, 3)], [{"shape": s} for s in (6, -1, (6,), [6], (-1,), WHOLE(6))]),
        ([(2, 3)], [{"shape": s} for s in ((3, 2), (3, -1), [-1, 2], (WHOLE(3), 2))]),
        ([(6,)], [{"shape": -1, "order": order} for order in "CF"]),
        ([(2, 3)], [{"shape": s, "order": "F"} for s in ((3, 2), (-1, 2))]),
    ],
    "transpose": [([(2, 3, 4)], [{}, *({"axes": a} for a in (None, (2, 1, 0), [-1, -2, -3]))])],
    "broadcast_to": [([()], [{"shape": s} for s in (3, (3,), [3], WHOLE(3))])],
    "sum_to": [([(4, 3)], [{"shape": s} for s in (3, (3,), [WHOLE(3)])])],
    "getitem": keys(),
    "setitem": [([shapes[0], ()], options) for shapes, options in keys()],
    "add_at": [
        ([()], [{"key": key, "spec": Spec(shape, np.dtype(F))} for key in spellings])
        for shape, spellings in KEYS
    ],
    "roll": [
        ([(2, 3)], [{"shift": s, "axis": a} for s, a in ((1, 1), (4, -1), ((1,), (1,)), (-2, 1))]),
        ([(2, 3)], [{"shift": s} for s in (2, -4, WHOLE(8))]),
        ([(3,)], [{"shift": 1}, {"shift": -2, "axis": 0}, {"shift": (1, 3), "axis": (0, 0)}]),
        (
            [(2, 3)],
            [{"shift": (1, 2), "axis": (0, 1)}, {"shift": [-1, 1, 1], "axis": (1, 1, 0)}][:1],
        ),
        ([(2, 3)], [{"shift": (2, 1), "axis": (1, 0)}, {"shift": (1, 1, 1), "axis": (0, 1, -1)}]),
        (
            [(2, 3)],
            [{"shift": 0, "axis": 1}, {"shift": 2, "axis": 0}, {"shift": 0, "axis": (0, 1)}],
        ),
    ],
    "clip": [
        (
            [(2, 3)],
            [{"a_min": 0, "a_max": 1}, {"min": 0.0, "max": 1}, {"a_min": 0, "max": 1.0}],
        ),
    ],
    "contract": [([(2, 3), (3, 4)], [{"subscripts": s} for s in ("ab,bc->ac", "ij,jk->ik")])],
    "cross": [
        (
            [(2, 3), (3,)],
            [{}, {"axisa": 1}, {"axisb": 0, "axisc": WHOLE(-1)}, {"axisa": -1, "axisc": 1}],
        ),
        ([(3, 2), (3, 2)], [{"axis": 0}, {"axis": -2}, {"axisa": 0, "axisb": -2, "axisc": 0}]),
    ],
    "softmax_cross_entropy": ENTROPY,
    "softmax_cross_entropy_slope": ENTROPY,
    "concatenate": [
        ([(2, 3), (2, 3)], axes(1, -1, WHOLE(1))),
        ([(2,), (3,)], [{}, *axes(0, -1, None)]),
    ],
    "round": [([(2, 3)], [{}, {"decimals": 0}, {"decimals": WHOLE(0)}])],
    "angle": [([(2, 3)], [{"deg": d} for d in (True, 1, np.True_)])],
    "softplus": [([(2, 3)], [{}, *({"beta": b} for b in (1, 1.0, np.float32(1)))])],
    "leaky_relu": [([(2, 3)], [{"negative_slope": s} for s in (1, 1.0, np.float32(1))])],
    "elu": [([(2, 3)], [{}, *({"alpha": s} for s in (1, 1.0, np.float32(1)))])],
    "hard_tanh": [([(2, 3)], [{}, {"min_val": -1, "max_val": WHOLE(1)}])],
    "power_share": [([(2, 3), (2, 3)], [{"base": b} for b in (2, 2.0, np.float32(2))])],
    "nan_to_num": [([(2, 3)], [{}, {"nan": 0}, {"copy": 1, "nan": np.float32(0)}])],
    "scaled_erfc_integral": [([(2, 3)], [{"order": k} for k in (1, WHOLE(1))])],
    "exponential_moment": [([(2, 3)], [{"order": k} for k in (1, WHOLE(1))])],
    "bessel_j_quotient": [([(2, 3)], [{"order": k} for k in (1, WHOLE(1))])],
    "bessel_quotient": [
        ([(2, 3)], [{"order": k} for k in (1, WHOLE(1))]),
        ([(2, 3)], [{"order": 1, "scaled": k} for k in (True, np.True_)]),
    ],
    "digamma_derivative": [([(2, 3)], [{"order": k} for k in (1, WHOLE(1))])],
    "sine_quotient": [([(2, 3)], [{"order": k} for k in (1, WHOLE(1))])],
    "piecewise_linear": [
        ([(2, 3), np.arange(3.0), (3,)], [{"left": v} for v in (1, 1.0, np.float32(1))])
    ],
}
SPELLINGS["std"] = SPELLINGS["var"]
SPELLINGS["demanded"] = [([(2,), np.array([True, True])], [{"message": "demanded: more"}])]
SPELLINGS["celu"] = SPELLINGS["elu"]
for _name in ("hard_shrink", "soft_shrink"):
    SPELLINGS[_name] = [([(2, 3)], [{}, *({"lambd": v} for v in (0.5, np.float32(0.5)))])]
SPELLINGS["threshold"] = [
    ([(2, 3)], [{"threshold": v, "value": WHOLE(2)} for v in (1, 1.0, np.float32(1))])
]
SPELLINGS |= OF_MATRICES
for _dims in (1, 2, 3):
    SPELLINGS[f"max_pool{_dims}d"] = SPELLINGS[f"avg_pool{_dims}d"] = [
        (
            [(2, *(5, 4, 6)[:_dims])],
            [{"window": w} for w in (2, WHOLE(2), (2,) * _dims, [2] * _dims)]
            + [{"window": 2, "stride": s, "padding": 0} for s in (2, [WHOLE(2)] * _dims)],
        )
    ]
SPELLINGS["dft"] = SPELLINGS["real_dft"] = [
    ([(2, 3)], [{}, *axes(-1, 1, WHOLE(1)), {"norm": None}, {"norm": "backward"}]),
]
SPELLINGS["inverse_real_dft"] = [
    ([(2, 3)], [{"n": n, "axis": k} for n in (4, WHOLE(4)) for k in (-1, 1, WHOLE(1))]),
]
SPELLINGS |= spellings_convolution.SPELLINGS
SPELLINGS["rms_norm"] = [
    ([(2, 3), None], [{}, {"axis": -1}, {"axis": 1}, {"axis": [1]}, {"axis": (-1,)}]),
    ([(2, 3), (3,)], [{"axis": (0, 1)}, {"axis": [-1, -2]}, {"axis": None}]),
    ([(3,), (3,)], [{"eps": 1}, {"eps": 1.0}, {"eps": np.float32(1)}]),
]
STATE = np.array([1, 2, 3], np.uint64)
for name in ("philox_uniform", "philox_normal"):
    SPELLINGS[name] = [
        ([STATE], [{"shape": s} for s in ((2,), 2, [2], WHOLE(2))]),
        ([STATE], [{"shape": (), "dtype": d} for d in ("float32", np.float32, "f4", ">f4")]),
    ]
SPELLINGS["philox_integers"] = [
    ([STATE], [{"shape": s, "high": WHOLE(3)} for s in ((2,), 2, [2], WHOLE(2))]),
    ([STATE], [{"shape": (), "low": WHOLE(-1), "high": 3, "dtype": d} for d in ("i2", np.int16)]),
]
SPELLINGS["philox_gamma"] = [([STATE, (2,)], [{"shape": s} for s in ((2,), 2, [2], WHOLE(2))])]
SPELLINGS["philox_dropout"] = [
    ([(2, 3), STATE], [{"rate": r} for r in (1, 1.0, np.float32(1))]),
    ([(2, 3), STATE], [{}, {"shared": WHOLE(0)}]),
]
NORMED = [(2, 3), (2, 3), (2, 1)]
SPELLINGS["norm_pullback"] = [([*NORMED, (2, 1), None], [{}, *axes(1, -1, WHOLE(1), (1,))])]
SPELLINGS["norm_weight_pullback"] = [
    ([*NORMED, None], [{"axis": k, "shape": (3,)} for k in (1, -1, (1,), [WHOLE(1)])])
]
SPELLINGS["embedding"] = [
    ([np.array([0, 1]), (4, 3)], [{"padding_index": k} for k in (3, -1, WHOLE(3))])
]
SPELLINGS["embedding_pullback"] = [
    ([(2, 3), np.array([0, 1])], [{"padding_index": k, "spec": SPEC} for k in (3, -1, WHOLE(3))])
]
SPELLINGS["layer_norm"] = [([*o, None], spellings) for o, spellings in SPELLINGS["rms_norm"]]
SPELLINGS["put_along_axis"] = [
    ([(2, 3), np.zeros((2, 1), int), (2, 1)], [{}, *axes(1, -1, WHOLE(1))]),
    ([(3,), ROWS, ()], axes(None, 0, -1)),
]
SPELLINGS["dynamic_slice"] = [
    ([(2, 3), ROWS], [{"slice_sizes": s} for s in ((1, 2), [1, WHOLE(2)], np.array([1, 2]))]),
]
SPELLINGS["update_rows"] = [
    ([(2, 4, 3), (2, 2, 3), np.array(1)], [{}, *axes(1, -2, WHOLE(1)), {"wrap": 0}]),
]
SPELLINGS["prod_others"] = [FOLDS[k] for k in (0, 1, 3, 4)]
SPELLINGS["argtopk"] = [([(2, 3)], [{"k": 2, "axis": a} for a in (1, -1, WHOLE(1))])]
SPELLINGS["median"] = FOLDS[:-1]
QUANTILES = [
    ([(2, 3)], [{"q": q} for q in (0.5, np.float32(0.5), np.array(0.5))]),
    ([(2, 3)], [{"q": q, "axis": k} for q, k in (([0, 1], 1), ((0.0, 1.0), -1), (ROWS // 2, 1))]),
]
SPELLINGS |= dict.fromkeys(["quantile", "percentile"], QUANTILES)
SPELLINGS |= dict.fromkeys(["running_argmax", "running_argmin", "logcumsumexp"], LINE)
SEGMENTS = [([(2, 3), ROWS], [{"num_segments": k} for k in (3, WHOLE(3))])]
SPELLINGS |= dict.fromkeys(["segment_max", "segment_min", "segment_softmax"], SEGMENTS)
# Words, which have one spelling; and what a rule alone calls, with options that were prepared.
OF_WORDS = {"convolve", "eigh", "eigvalsh", "gelu", "gelu_slope", "searchsorted"}
OF_WORDS |= {"softmax_cross_entropy_mass", "eigenvalue_pullback", "singular_value_pullback"}
SCALES = [{}, {"causal": 0}, {"causal": False}, *({"scale": s} for s in (None, 0.5, F(0.5)))]
SPELLINGS |= {
    "scaled_dot_product_attention": [([(2, 4), (3, 4), (3, 4), None], SCALES)],
    "attention_pullback": [
        ([(2, 4), (2, 4), (3, 4), (3, 4), None], [{**more, "operand": "q"} for more in SCALES])
    ],
    "bin_numbers": [
        ([(3,), np.array([0.0, 1.0])], [{}, *({"right": r} for r in (False, 0, np.False_))]),
        ([(3,), np.array([0.0, 1.0])], [{"right": r} for r in (True, 1, np.True_)]),
    ],
    "rope": [([(3, 4), np.arange(3)], [{}, *({"base": b} for b in (10000, 1e4, F(1e4)))])],
    "recurrent_states": [([(2, 3), (1, 3), (3, 3), None], [{"cell": "tanh"}])],
    "recurrent_pullback": [
        ([(2, 1, 3), (2, 3), (1, 3), (3, 3), None], [{"cell": "tanh", "operand": "x"}])
    ],
}
WALK = {
    f"{name}-{k}": (OPS[name], *case)
    for name, cases in SPELLINGS.items()
    for k, case in enumerate(cases)
}
OF_WORDS |= {
    "sampled",
    "max_pool_pullback",
    "max_pool_pushforward",
    "max_pool_indices",
    "avg_pool_pullback",
}


def graph_of(row, operands, options):
    moving = [k for k, operand in enumerate(operands) if isinstance(operand, tuple)]
    arrays = [np.ones(operands[k]) for k in moving]

    def call(*given):
        values = dict(zip(moving, given, strict=True))
        return row.call(*[values.get(k, o) for k, o in enumerate(operands)], **options)

    return od.compile(call).lower(*arrays).graph


@pytest.mark.parametrize(("row", "operands", "spellings"), WALK.values(), ids=list(WALK))
def test_what_means_the_same_is_written_the_same(row, operands, spellings):
    texts = {str(graph_of(row, operands, options)) for options in spellings}
    assert len(texts) == 1, texts


@pytest.mark.parametrize("name", [row.name for row in OPS.values() if row.options])
def test_every_row_with_options_says_how_they_are_written(name):
    assert name in SPELLINGS or name in OF_WORDS, f"add {name} to SPELLINGS or OF_WORDS here"


@pytest.mark.slow
def test_what_means_another_thing_is_written_otherwise():
    by_row = {}
    for row, sample in CASES.values():
        if row.options:
            by_row.setdefault(row.name, []).append((row, sample))
    for (row, one), (_, other) in itertools.chain.from_iterable(
        itertools.combinations(cases, 2) for cases in by_row.values()
    ):
        if repr(one.operands) != repr(other.operands):
            continue
        operands = draw(one)
        results = [np.asarray(row.call(*operands, **s.options)) for s in (one, other)]
        texts = {str(graph_of(row, s.operands, s.options)) for s in (one, other)}
        same = results[0].shape == results[1].shape and np.array_equal(*results, equal_nan=True)
        assert same or len(texts) == 2, (row.name, texts)


DOORS = {
    "sum": [
        lambda m, x: m.sum(x, 1),
        lambda m, x: m.sum(x, axis=(-1,)),
        lambda m, x: x.sum(1),
        lambda m, x: x.sum(axis=[1]),
    ],
    "flip": [
        lambda m, x: m.flip(x, 0),
        lambda m, x: m.flipud(x),
        lambda m, x: x[::-1],
        lambda m, x: x[::-1, ...],
    ],
    "reshape": [
        lambda m, x: m.ravel(x),
        lambda m, x: m.reshape(x, -1),
        lambda m, x: x.reshape(6),
        lambda m, x: x.ravel(),
    ],
    "axes": [
        lambda m, x: m.swapaxes(x, 0, -1),
        lambda m, x: m.moveaxis(x, 0, 1),
        lambda m, x: m.transpose(x),
        lambda m, x: m.rollaxis(x, 1),
    ],
}


@pytest.mark.parametrize("doors", DOORS.values(), ids=list(DOORS))
def test_whichever_door_a_call_comes_through_it_is_written_the_same(doors):
    texts = set()
    for door in doors:
        for module in (np, ops):
            call = lambda x, door=door, module=module: door(module, x)  # noqa: E731
            texts.add(str(od.compile(call).lower(np.ones((2, 3))).graph))
    assert len(texts) == 1, texts


def test_what_options_mean_to_an_op_from_outside_it_says_itself():
    def declare(**settings):
        @od.op(
            linear=True, infer=lambda x, key: Spec(np.ones(x.shape)[key].shape, x.dtype), **settings
        )
        def pick(x, /, key):
            return x[key]

        return pick

    x = np.arange(6.0).reshape(2, 3)
    for pick in (declare(), declare(canonical=lambda x, key: (key,))):
        for key in ([1, 0], (1, 0)):
            lowered = od.compile(lambda v, pick=pick, key=key: pick(v, key)).lower(x)
            found, _ = lowered.evaluate(x)
            np.testing.assert_array_equal(found, x[key])
    pick = declare(canonical=lambda x, key: (key % len(x.shape),))
    texts = {
        str(od.compile(lambda v, key=key: pick(v, key)).lower(np.ones((2, 2))).graph)
        for key in (1, -1)
    }
    assert len(texts) == 1


# ------------------------------------------------------------------ and means what was asked for


@walk(SMOOTH)
def test_the_graph_of_a_value_and_its_gradients_computes_what_eager_calls_do(row, sample):
    operands, positions = draw(sample), tracked(row, sample)

    def total(*moving):
        given = list(operands)
        for k, value in zip(positions, moving, strict=True):
            given[k] = value
        return ops.sum(ops.square(row.call(*given, **sample.options)))

    step = od.value_and_grad(total, argnums=tuple(range(len(positions))))
    arrays = [operands[k] for k in positions]
    wanted = step(*arrays)
    found = od.compile(step).lower(*arrays).evaluate(*arrays)
    for got, value in zip(leaves(found), leaves(wanted), strict=True):
        assert_close(got, value, 1e-14)


def random_part(rng, n):
    kind = rng.integers(7)
    if kind == 0 and n:
        return int(rng.integers(-n, n))
    if kind == 1 and n:
        return rng.integers(-n, n, size=rng.integers(0, 3)).astype(rng.choice([np.int8, np.intp]))
    if kind == 2:
        return rng.random(n) < 0.5
    bounds = [None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in range(2)]
    return slice(*bounds, rng.choice([None, 1, 2, -1, -2, -5]))


def random_key(rng, shape):
    count = rng.integers(len(shape) + 1)
    if rng.random() < 0.5:
        front = rng.integers(count + 1)
        back = len(shape) - (count - front)
        parts = [random_part(rng, n) for n in shape[:front]]
        parts += [..., *(random_part(rng, n) for n in shape[back:])]
    else:
        parts = [random_part(rng, n) for n in shape[:count]]
    for _ in range(rng.integers(3)):
        parts.insert(rng.integers(len(parts) + 1), rng.choice([None, True]))
    return parts[0] if len(parts) == 1 else tuple(parts)


@pytest.mark.slow
def test_an_index_reads_the_same_in_its_one_spelling_which_is_its_own():
    rng = np.random.default_rng(0)
    shapes = [(), (4,), (3, 4), (2, 0, 3), (2, 3, 1, 4)]
    for _ in range(3000):
        shape = shapes[rng.integers(len(shapes))]
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        key = random_key(rng, shape)
        try:
            wanted = x[key]
        except IndexError:  # arrays that do not broadcast
            continue
        spelled = canonical_key(shape, key)
        np.testing.assert_array_equal(x[spelled], wanted)
        assert repr(canonical_key(shape, spelled)) == repr(spelled)
