"""Einstein's sums beyond the cases that all composites share: orders, forms of a call, refusals."""

import itertools
import string

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, SettingError, ShapeError
from support.cases import assert_close, assert_same

CHAIN = "ij,jk,kl,lm->im"
MATRICES = [(2, 3), (3, 5), (5, 2), (2, 4)]


def whole(shape):
    """Small whole numbers, on which sums and products are exact in any order."""
    return (np.arange(int(np.prod(shape))) * 7.0 % 5 - 2).reshape(shape)


def drawn(rng):
    """Subscripts that came by chance, and the shapes of their operands."""
    letters = string.ascii_letters[: rng.integers(1, 6)]
    lengths = dict(zip(letters, rng.integers(1, 4, len(letters)).tolist(), strict=True))
    terms = [
        "".join(rng.choice(list(letters), rng.integers(0, 4))) for _ in range(rng.integers(1, 5))
    ]
    shapes = [
        tuple(1 if term.count(c) == 1 and rng.random() < 0.15 else lengths[c] for c in term)
        for term in terms
    ]
    named = sorted(set("".join(terms)))
    out = "".join(rng.permutation(named)[: rng.integers(0, len(named) + 1)])
    arrow = f"->{out}" if rng.random() < 0.7 else ""
    return ",".join(terms) + arrow, shapes


@pytest.mark.slow
def test_whatever_the_subscripts_values_are_numpys_and_gradients_those_of_each_linear_function():
    rng = np.random.default_rng(0)
    for _ in range(300):
        text, shapes = drawn(rng)
        arrays = [rng.integers(-3, 4, shape).astype(float) for shape in shapes]
        wanted = np.einsum(text, *arrays)
        leaves = [Variable(x, requires_grad=True) for x in arrays]
        with GradientTape() as tape:
            out = np.einsum(text, *leaves)
        assert_same(out.numpy(), wanted)
        g = rng.integers(-3, 4, wanted.shape).astype(float)
        for k, gradient in enumerate(tape.gradient(out, leaves, g)):
            # In each of its operands alone the sum is linear.
            slopes = np.zeros(shapes[k])
            for place in np.ndindex(shapes[k]):
                unit = np.zeros(shapes[k])
                unit[place] = 1.0
                slopes[place] = np.sum(g * np.einsum(text, *arrays[:k], unit, *arrays[k + 1 :]))
            assert_same(gradient, slopes)


@pytest.mark.parametrize(
    "optimize",
    [
        True,
        False,
        "greedy",
        "optimal",
        ("greedy", 10),
        ["einsum_path", (0, 1, 2, 3)],
        ["einsum_path", (1, 2), (0, 1, 2)],
        ("einsum_path", (2, 3), (0, 2), (0, 1)),
        ["einsum_path", (0, 3), (0, 1), (0, 1)],
    ],
    ids=str,
)
def test_the_order_of_products_changes_neither_values_nor_gradients(optimize):
    arrays = [whole(shape) for shape in MATRICES]
    leaves = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape() as tape:
        out = np.einsum(CHAIN, *leaves, optimize=optimize)
    assert_same(out.numpy(), arrays[0] @ arrays[1] @ arrays[2] @ arrays[3])
    ones = np.ones(out.shape)
    a, b, c, d = arrays
    wanted = [
        ones @ (b @ c @ d).T,
        a.T @ ones @ (c @ d).T,
        (a @ b).T @ ones @ d.T,
        (a @ b @ c).T @ ones,
    ]
    for gradient, slope in zip(tape.gradient(out, leaves, ones), wanted, strict=True):
        assert_same(gradient, slope)


def test_a_path_that_numpy_found_is_followed_also_on_variables():
    arrays = [whole(shape) for shape in MATRICES]
    leaves = [Variable(x, requires_grad=True) for x in arrays]
    path, told = np.einsum_path(CHAIN, *leaves, optimize="optimal")
    assert (path, told) == np.einsum_path(CHAIN, *arrays, optimize="optimal")
    with GradientTape():
        assert_same(np.einsum(CHAIN, *leaves, optimize=path).numpy(), np.einsum(CHAIN, *arrays))


def test_a_good_order_is_taken_unless_another_is_asked_for():
    """Vectors at the end of a chain: from the right all products are of matrix and vector."""
    a, b, v = np.ones((30, 30)), np.ones((30, 30)), np.ones(30)
    shapes = []

    def watching(x, y, subscripts, kernel=ops.contract.row.kernel):
        shapes.append(kernel(x, y, subscripts).shape)
        return kernel(x, y, subscripts)

    row = ops.contract.row
    before = row.kernel
    try:
        row.use(watching)
        ops.einsum("ij,jk,k->i", a, b, v)
        ops.einsum("ij,jk,k->i", a, b, v, optimize=False)
    finally:
        row.use(before)
    assert shapes == [(30,), (30,), (30, 30), (30,)]


def test_two_operands_are_one_op_each_way():
    a, b = (Variable(whole(s), requires_grad=True) for s in ((4, 2, 3), (3, 4, 5)))
    with od.testing.count_kernels() as counts, GradientTape() as tape:
        out = np.einsum("bij,jbk->kbi", a, b)
        tape.gradient(out, [a, b], np.ones(out.shape))
    assert counts == {"contract": 3}


def test_products_of_one_meaning_have_one_spelling():
    a, b = Variable(whole((2, 3)), requires_grad=True), whole((3, 4))
    with GradientTape() as tape:
        np.einsum("xy,yz->xz", a, b)
        np.einsum(a, [7, 3], b, [3, 9])
        np.einsum("...i,ij", a, b)
    assert {node.saved["subscripts"] for node in tape.nodes} == {"ab,bc->ac"}


def test_lists_of_axes_stand_for_letters():
    a, b = whole((2, 3)), whole((3, 4, 2))
    for arrays, call in {
        "summed": ([a, b], lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2, 0])),
        "in order": ([a, b], lambda m, x, y: m.einsum(x, (30, 1), y, [1, 2, 30], [2, 30])),
        "rest": ([a.T, a], lambda m, x, y: m.einsum(x, [..., 1], y, [1, ...], [..., 1])),
        "one": ([a], lambda m, x: m.einsum(x, [1, 0])),
        "letters of both cases": ([b], lambda m, x: m.einsum(x, [0, 51, 26])),
        "to the result": ([b], lambda m, x: m.einsum(x, np.array([0, 51, 26]), [26, 51])),
    }.values():
        wanted = call(np, *arrays)
        assert_same(call(ops, *arrays), wanted)
        with GradientTape():
            leaves = [Variable(x, requires_grad=True) for x in arrays]
            assert_same(call(np, *leaves).numpy(), wanted)


def test_dtypes_are_promoted_before_anything_is_summed():
    small = np.array([100, 100], np.int8)
    assert_same(ops.einsum("i->", small), np.einsum("i->", small))
    assert_same(ops.einsum("i,->", small, np.array(1.0)), np.float64(200.0))
    leaf = Variable(np.ones((2, 2), np.float32), requires_grad=True)
    with GradientTape() as tape:
        out = np.einsum("ij,jk,k", leaf, np.eye(2) * 1j, np.array([1, 2]))
    assert out.dtype == np.complex128
    assert tape.gradient(out, leaf, np.ones(2, complex)).dtype == np.float32
    with GradientTape():
        assert np.einsum(",ij", 2.0, leaf).dtype == np.float64  # as in NumPy, see below


def test_complex_sums_differentiate_without_conjugates_but_their_gradient_has_them():
    a, b = np.array([[1 + 2j, 3j]]), np.array([2 - 1j, 1j])
    leaf = Variable(a, requires_grad=True)
    with GradientTape() as tape:
        out = np.einsum("ij,j->i", leaf, b)
    assert_same(tape.gradient(out, leaf, np.ones(1, complex)), np.conj(b)[None])


def test_many_operands_differentiate_to_second_order_in_both_modes():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in MATRICES]
    for optimize in (True, False):
        od.testing.check_gradients(
            lambda *v, how=optimize: ops.einsum(CHAIN, *v, optimize=how), *arrays
        )


def test_a_sum_agrees_with_numpys_to_rounding_on_large_operands():
    rng = np.random.default_rng(0)
    for text, shapes in (
        ("ij,jk->ik", [(300, 300), (300, 40)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 7, 16), (2, 3, 9, 16)]),
        ("nchw,ocij->", [(2, 3, 4, 5), (6, 3, 2, 2)]),
    ):
        arrays = [rng.normal(size=shape) for shape in shapes]
        wanted = np.einsum(text, *arrays, optimize=True)
        assert_close(ops.einsum(text, *arrays), wanted, 1e-12)


X = np.ones((2, 3))


@pytest.mark.parametrize(
    ("args", "words"),
    {
        "unlike lengths": (("ij,jk", X, X), "axes 'j' differ in length"),
        "unlike diagonal": (("ii", np.ones((1, 2))), "axes 'i' differ in length"),
        "unlike rest": (("...,...", X, X.T), "axes of '...' differ in length"),
        "too many letters": (("ijk", X), r"'ijk' does not fit an operand of shape \(2, 3\)"),
        "too few letters": (("i", X), "'i' does not fit"),
        "too few operands": (("i,j", X), "names 2 operands, but 1 came"),
        "too many operands": (("ij", X, X), "names 1 operands, but 2 came"),
        "no operands": (("ij",), "no operands came"),
        "twice in the result": (("ij->ii", X), "repeats a letter"),
        "nowhere else": (("ij->k", X), "has k, which no operand has"),
        "rest not in the result": (("...j->j", X), "result needs '...'"),
        "digits": (("i1", X), "not made of letters"),
        "dots": (("i..", X), "not made of letters"),
        "two arrows": (("ij->i->j", X), "not made of letters"),
        "a path for more": (("ij,jk", X, X.T, {"optimize": ["einsum_path", (0, 2)]}), "not a path"),
        "a path for fewer": (
            ("ij,jk,kl", X, X.T, X, {"optimize": ["einsum_path", (0, 1)]}),
            "not a path for the 3 operands",
        ),
        "a path with itself": (
            ("ij,jk", X, X.T, {"optimize": ["einsum_path", (0, 0)]}),
            "not a path",
        ),
    }.values(),
    ids=lambda value: "",
)
def test_subscripts_that_do_not_fit_are_refused_in_words(args, words):
    *args, last = args
    options = last if isinstance(last, dict) else {}
    args = args if options else [*args, last]
    with pytest.raises(ShapeError, match=f"^einsum: .*{words}"):
        ops.einsum(*args, **options)
    leaves = [Variable(x, requires_grad=True) if x is not args[0] else x for x in args]
    with GradientTape() as tape, pytest.raises(ShapeError, match=words):
        ops.einsum(*leaves, **options)
    assert len(tape) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    {
        "order": (lambda v: np.einsum("ij", v, optimize="best"), "optimize='best'; pass True"),
        "out": (lambda v: np.einsum("ij", v, out=np.ones((2, 3))), r"np\.einsum: .*'out'"),
        "dtype": (lambda v: np.einsum("ij", v, dtype=float), r"np\.einsum: .*'dtype'"),
        "axes by halves": (lambda v: np.einsum(v, [0, 0.5]), "came for a list of axes"),
        "axes beyond": (lambda v: np.einsum(v, [0, 52]), "ints from 0 to 51"),
        "axes as text": (lambda v: ops.einsum(v, "ij"), "came for a list of axes"),
        "text": (lambda v: ops.einsum("ij,", v, "ab"), "an operand is a str"),
        "masked": (lambda v: ops.einsum("ij", np.ma.array(X)), "mask would be lost"),
    }.values(),
    ids=lambda value: "",
)
def test_what_is_not_offered_is_refused_by_name(call, words):
    kind = SettingError if "best" in words else DTypeError
    with pytest.raises(kind, match=words):
        call(Variable(X, requires_grad=True))


def test_more_axes_than_letters_are_refused():
    ones, letters = np.ones((1,) * 30), string.ascii_letters[:30]
    with pytest.raises(ShapeError, match="more than 52 axes"):
        ops.einsum(f"{letters},...->...", ones, ones)


def test_the_rules_of_a_product_hold_for_all_ways_to_share_two_letters():
    """Each letter in two terms or in all three: every such contraction, in every order of axes."""
    rng = np.random.default_rng(0)
    for kinds in itertools.product(("xy", "xo", "yo", "xyo"), repeat=2):
        terms = {
            t: "".join(c for c, kind in zip("ab", kinds, strict=True) if t in kind) for t in "xyo"
        }
        for x, y, out in itertools.product(*[{t, t[::-1]} for t in terms.values()]):
            shapes = [tuple({"a": 2, "b": 3}[c] for c in term) for term in (x, y)]
            arrays = [rng.normal(size=shape) for shape in shapes]
            text = f"{x},{y}->{out}"
            wanted = np.einsum(text, *arrays)
            assert_close(ops.contract(*arrays, subscripts=text), wanted, 1e-14)
            od.testing.check_gradients(lambda a, b, t=text: ops.contract(a, b, t), *arrays)


PRODUCTS = {
    "dot": lambda m, x, n: m.dot(x, n),
    "dot from the left": lambda m, x, n: m.dot(n, x),
    "inner": lambda m, x, n: m.inner(x, n),
    "outer": lambda m, x, n: m.outer(x, n),
    "kron": lambda m, x, n: m.kron(n, x),
    "tensordot": lambda m, x, n: m.tensordot(x, n, 0),
    "vdot": lambda m, x, n: m.vdot(x[:1], n),
    "einsum": lambda m, x, n: m.einsum("i,", x, n),
}


@pytest.mark.parametrize("call", PRODUCTS.values(), ids=list(PRODUCTS))
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("number", [2, 0.5, True, 1j], ids=repr)
def test_numbers_in_products_count_as_arrays_as_in_numpy(call, dtype, number):
    x = np.ones(3, dtype)
    wanted = call(np, x, number)
    leaf = Variable(x, requires_grad=x.dtype.kind in "fc")
    with GradientTape() as tape:
        for got in (call(ops, x, number), call(ops, leaf, number), call(np, leaf, number)):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(np.asarray(getattr(got, "data", got)), wanted)
    if leaf.requires_grad:
        g = tape.gradient(got, leaf, np.ones(got.shape, got.dtype))
        assert g.dtype == x.dtype
