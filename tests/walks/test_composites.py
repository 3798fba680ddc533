"""Walks composites and losses: what is made of ops is right on each sample, as the rows are.

The values of losses are compared in test_loss_samples.
"""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError
from odyssey.ops import COMPOSITES
from odyssey.tree import leaves
from support import (
    by_loops,
    formulas_grids,
    formulas_indexing,
    formulas_networks,
    formulas_nn,
    formulas_pooling,
    formulas_special,
    formulas_vectors,
)
from support.cases import assert_close, assert_same, assert_transposed, derive
from support.composed import LOSSES, OF_LOSSES, OF_OPS, Call, results, walk
from support.convolved import convolved
from support.formulas_linalg import FORMULAS as OF_MATRICES
from support.together import together

every_sample = walk(OF_OPS)
MOVING = {name: case for name, case in (OF_OPS | OF_LOSSES).items() if Call(*case).arrays}
every_moving_sample = walk(MOVING)
REJECTS = {
    f"{f.__name__}-{k}": (f, reject)
    for f in [*COMPOSITES.values(), *LOSSES.values()]
    for k, reject in enumerate(f.rejects)
}
every_reject = pytest.mark.parametrize(("function", "case"), REJECTS.values(), ids=list(REJECTS))


def one_hot(indices, num_classes, dtype=np.float64, axis=-1):
    hits = np.asarray(indices)[..., None] == np.arange(num_classes)
    return np.moveaxis(hits, -1, axis).astype(dtype)


# What has no namesake in NumPy, or in its oldest version that odyssey runs with.
def cosine_similarity(x1, x2, axis=-1, eps=1e-8):
    lengths = [np.maximum(np.linalg.norm(x, axis=axis), eps) for x in np.broadcast_arrays(x1, x2)]
    return (x1 * x2).sum(axis) / (lengths[0] * lengths[1])


def ordered(function):
    """A function of NumPy that finds an order of complex numbers, which have none."""

    def called(x, **options):
        if x.dtype.kind == "c":
            raise TypeError
        return function(x, **options)

    return called


def of_real(formula):
    """What refuses complex numbers, and takes whole ones as floating numbers."""

    def called(x, y, **options):
        if np.result_type(x, y).kind == "c":
            raise TypeError
        x, y = (v.astype(np.float64) if v.dtype.kind in "biu" else v for v in (x, y))
        return formula(x, y, **options)

    return called


FORMULAS = {
    "fftconvolve": convolved,
    "cosine_similarity": of_real(cosine_similarity),
    "ptp": ordered(np.ptp),
    "pairwise_distance": of_real(
        lambda x, y, p=2, eps=1e-6, keepdims=False, squared=False: (
            np.linalg.norm(x - y + x.dtype.type(eps), p, -1, keepdims=keepdims)
            ** (2 if squared else 1)
        )
    ),
    # NumPy would have the numbers of Python make it float64.
    "array": lambda nest: np.array(nest, np.result_type(*leaves(nest))),
    "one_hot": one_hot,
    "unstack": lambda x, axis=0: tuple(np.moveaxis(x, axis, 0)),
    **formulas_indexing.FORMULAS,
    **formulas_networks.FORMULAS,
    **formulas_nn.FORMULAS,
    **formulas_pooling.FORMULAS,
    **formulas_grids.FORMULAS,
    **formulas_vectors.FORMULAS,
    **formulas_special.FORMULAS,
    **by_loops.FORMULAS,
}


def namesake(function):
    name = function.__name__
    return FORMULAS.get(name) or OF_MATRICES.get(name) or function.numpy[0]


@pytest.mark.parametrize("name", COMPOSITES)
def test_every_composite_has_samples(name):
    assert COMPOSITES[name].samples, f"give {name} samples, in its @composite(...)"


# ------------------------------------------------------------------ values


EARLY = np.lib.NumpyVersion(np.__version__) < "2.4.0"
DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int64", "bool"]


@together("dtype", DTYPES)
@every_sample
def test_values_and_dtypes_are_numpys_on_arrays_and_variables(function, sample, dtype):
    call = Call(function, sample, dtype)
    with np.errstate(all="ignore"):
        try:
            wanted = call.by(namesake(function), *call.arrays)
        except (TypeError, np.exceptions.ComplexWarning, np.linalg.LinAlgError):
            # Complex places, singular matrices of integers; or differences of truth values, which
            # we take as numbers.
            if (function.__name__, dtype) != ("gradient", "bool"):
                with pytest.raises(OdysseyError):
                    call(*call.arrays)
            return
        except ValueError:
            # Early releases of NumPy 2 know no largest element of nothing, and no norm of it: 0.
            assert EARLY
            assert not all(x.size for x in call.arrays)
            assert not np.any(call(*call.arrays))
            return
        if EARLY and function.__name__ == "cond":  # which they leave complex
            wanted = np.real(wanted)
        # NumPy's transforms of float16 are those of float32, but for a factor 1 / n in float16.
        is_transform = function.__module__.startswith("odyssey.fft")
        coarse = dtype if dtype == "float16" and is_transform else None
        assert_results(call(*call.arrays), wanted, dtype, coarse)
        values = [Variable(x, requires_grad=x.dtype.kind in "fc") for x in call.arrays]
        with GradientTape():
            assert_results(call(*values), wanted, dtype, coarse)
            for theirs in function.numpy if values else ():
                assert_results(call.by(theirs, *values), wanted, dtype, coarse)


def assert_results(got, wanted, dtype, coarse=None):
    assert isinstance(got, tuple) == isinstance(wanted, tuple)
    for out, value in zip(results(got), results(wanted), strict=True):
        out = out.numpy() if isinstance(out, Variable) else out
        assert (np.shape(out), np.asarray(out).dtype) == (np.shape(value), np.asarray(value).dtype)
        known = coarse or value.dtype
        bound = 4 * np.finfo(known).eps if np.asarray(value).dtype.kind in "fc" else 0
        size = np.abs(value).max(initial=1.0)
        np.testing.assert_allclose(out, value, rtol=0, atol=bound * size)


LAYOUTS = {
    "columns first": np.asfortranarray,
    "reversed": lambda x: x[(slice(None, None, -1),) * x.ndim],
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
}


@together("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@every_moving_sample
def test_the_layout_of_operands_changes_neither_value_nor_gradient(function, sample, layout):
    call = Call(function, sample)
    laid = [layout(x) if x.ndim else x for x in call.arrays]
    assert_alike(call(*laid), call(*[x.copy() for x in laid]))
    for got, wanted in zip(
        gradients(call, laid), gradients(call, [x.copy() for x in laid]), strict=True
    ):
        assert_close(got, wanted, 1e-14)


def assert_alike(got, wanted):
    for out, value in zip(results(got), results(wanted), strict=True):
        assert_close(out, value, 1e-14)


def total(call):
    """The sum of the squares of all results: a number whose gradient depends on all of them."""

    def summed(*operands):
        return sum(ops.sum(ops.square(out)) for out in results(call(*operands)))

    return summed


def gradients(call, arrays, wrapped=lambda fn: fn):
    with GradientTape() as tape:
        sources = [Variable(x, requires_grad=True) for x in arrays]
        out = wrapped(total(call))(*sources)
    if not isinstance(out, Variable) or not out.requires_grad:
        return [np.zeros_like(x) for x in arrays]
    return tape.gradient(out, sources, unused="zero")


# ------------------------------------------------------------------ derivatives


# Complex factors that are defined but for their phases, on which a difference depends; what does
# not is tested in tests/linalg.
PHASED = {"qr", "svd"}


@together("dtype", ["float64", "complex128"])
@pytest.mark.share(4)
@every_moving_sample
def test_derivatives_of_two_orders_agree_with_differences_in_both_modes(function, sample, dtype):
    call = Call(function, sample, dtype)
    try:
        call(*call.arrays)
    except OdysseyError:
        assert dtype == "complex128"
        return
    if dtype == "complex128" and function.__name__ in PHASED:
        return
    od.testing.check_gradients(
        lambda *v: [ops.square(out) for out in results(call(*v))], *call.arrays
    )


@every_moving_sample
def test_forward_and_reverse_mode_are_transposes_of_each_other(function, sample):
    call = Call(function, sample)
    for place, positions in enumerate(reached(call)):
        if positions:
            d = derive(lambda *v, k=place: results(call(*v))[k], call.arrays, positions)
            assert_transposed(d, 1e-13)


def reached(call):
    """For each result the positions of the operands on which it depends."""
    sources = [Variable(x, requires_grad=True) for x in call.arrays]
    with GradientTape(persistent=True) as tape:
        found = results(call(*sources))
    return [
        [
            k
            for k, g in enumerate(tape.gradient(out, sources, unused="none", grad=ones(out)))
            if g is not None
        ]
        if getattr(out, "requires_grad", False)
        else []
        for out in found
    ]


def ones(out):
    return np.ones(out.shape, out.dtype)


def test_only_what_reads_no_values_gives_constants():
    constant = {f.__name__ for f, s in MOVING.values() if not any(reached(Call(f, s)))}
    assert constant == {"zeros_like", "ones_like", "full_like"}


@every_moving_sample
def test_gradients_have_the_dtype_and_shape_of_what_they_belong_to(function, sample):
    call = Call(function, sample, np.float32)
    for gradient, x in zip(gradients(call, call.arrays), call.arrays, strict=True):
        assert (gradient.dtype, gradient.shape) == (x.dtype, x.shape)


# ------------------------------------------------------------------ under tapes, traced, by hand


@every_moving_sample
def test_under_a_checkpoint_and_an_outer_tape_the_gradient_is_the_same(function, sample):
    call = Call(function, sample)
    wanted = gradients(call, call.arrays)
    with GradientTape():
        inside = gradients(call, call.arrays)
    for found in (gradients(call, call.arrays, od.checkpoint), inside):
        for got, want in zip(found, wanted, strict=True):
            assert_same(got.numpy() if isinstance(got, Variable) else got, want)


@pytest.mark.share(4)
@every_moving_sample
def test_the_graph_of_value_and_gradient_computes_what_the_eager_call_does(function, sample):
    call = Call(function, sample)
    positions = {k for found in reached(call) for k in found}
    step = od.value_and_grad(total(call), argnums=tuple(positions)) if positions else call
    wanted, compiled = step(*call.arrays), od.compile(step)
    for out, value in zip(leaves(compiled(*call.arrays)), leaves(wanted), strict=True):
        assert_same(out, value)
    evaluated = compiled.lower(*call.arrays).evaluate(*call.arrays)
    for out, value in zip(leaves(evaluated), leaves(wanted), strict=True):
        assert_close(out, value, 1e-14)  # sums of what lies otherwise in memory


@walk({name: case for name, case in OF_OPS.items() if name in MOVING})
def test_a_tape_passed_by_hand_records_all_of_it(function, sample):
    call, tape = Call(function, sample), GradientTape()
    tape.enable()
    sources = [Variable(x, requires_grad=True) for x in call.arrays]
    for out, positions in zip(
        results(call.by(function, *sources, tape=tape)), reached(call), strict=True
    ):
        if positions:
            assert out.tape is tape or out is sources[0]


# ------------------------------------------------------------------ what is refused


@every_reject
def test_what_must_be_refused_is_refused_in_words_on_arrays_and_under_a_tape(function, case):
    zeros = [np.zeros(o) if isinstance(o, tuple) else o for o in case.operands]
    tracked = [
        Variable(x, requires_grad=True) if isinstance(o, tuple) else o
        for o, x in zip(case.operands, zeros, strict=True)
    ]
    with pytest.raises(case.error, match=f"^{function.__name__}: .*{case.match}"):
        function(*zeros, **case.options)
    with GradientTape(), pytest.raises(case.error, match=case.match):
        function(*tracked, **case.options)
