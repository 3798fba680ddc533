"""Composites and losses on a device: values and both derivatives beside the CPU's."""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import IndependentWarning, OdysseyError
from support.composed import OF_LOSSES, OF_OPS, Call, results
from support.mapped import assert_near, second_order
from support.on_device import (
    DEVICE,
    assert_same_on_both,
    constant,
    difference,
    host,
    is_on_device,
    leaf,
    place,
)

INDEX = 1
"""Not the current device: what is computed outside of a call of the backend is an error."""

CASES = {name: case for name, case in (OF_OPS | OF_LOSSES).items() if Call(*case).arrays}
PARTS = 4


def placed(call, backend):
    """A call whose operands and options lie on a device."""
    options = {name: place(x, backend, INDEX) for name, x in call.sample.options.items()}
    made = Call(call.function, call.sample._replace(options=options))
    made.operands = place(made.operands, backend, INDEX)
    return made


def derivatives(call, arrays):
    """Both derivatives of the only result of a call with respect to its arrays."""
    twice = second_order(lambda *moving: results(call(*moving))[0], tuple(range(len(arrays))))
    with warnings.catch_warnings():  # zeros_like depends on no operand
        warnings.simplefilter("ignore", IndependentWarning)
        return twice(*arrays)


def failure_of(function, sample, backend):
    """Return how a function differs on the device; None if values and derivatives are equal."""
    call = Call(function, sample)
    there, arrays = placed(call, backend), place(call.arrays, backend, INDEX)
    wanted = results(call(*call.arrays))
    found = difference(wanted, results(there(*arrays)), backend)
    if found is not None or [x.dtype.kind for x in wanted] != ["f"]:
        return found
    wanted, found = derivatives(call, call.arrays), derivatives(there, arrays)
    for got, value in zip(found, wanted, strict=True):
        assert type(got) is backend.array_type
        assert_near(host(got), value)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_sample_of_composites_and_losses_is_that_of_the_cpu(part, standin):
    wrong = {}
    with ops.use_kernels("numpy"), np.errstate(all="ignore"):
        for name, case in list(CASES.items())[part::PARTS]:
            try:
                found = failure_of(*case, standin)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            if found is not None:
                wrong[name] = found
    assert not wrong


@pytest.mark.parametrize(
    "name", ["diff-2", "insert-1", "compress-3", "nll-1", "multi_margin-5", "hinge-0", "ctc-2"]
)
def test_functions_run_on_a_device(name, standin):
    with ops.use_kernels("numpy"), np.errstate(all="ignore"):
        assert failure_of(*CASES[name], standin) is None


def test_lengths_of_ctc_may_lie_on_the_host(standin):
    x, labels = np.log(np.full((3, 2, 4), 0.25)), np.array([[1, 2], [3, 0]])

    def program(device):
        counts = np.array([2, 1])
        return od.losses.ctc(
            leaf(x, device), constant(labels, device), input_lengths=[3, 2], target_lengths=counts
        )

    assert_same_on_both(program)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: od.losses.nll(x, [0, 3]), "nll: class numbers lie in"),
        (lambda x: od.losses.hinge(x, x), "hinge: the targets must be -1 or 1"),
        (lambda x: od.losses.gaussian_nll(x, x, ops.negative(x)), "a variance is negative, -"),
    ],
    ids=["class numbers", "signs", "variances"],
)
def test_values_that_a_loss_refuses_are_refused_on_a_device(call, match, standin):
    with pytest.raises(OdysseyError, match=match):
        call(standin.to_device(np.full((2, 3), 0.5), INDEX))


LOGITS = np.log(np.full((3, 4), 0.25))
CAPTURING = {
    "nll": lambda x, t: od.losses.nll(x, t),
    "multi_margin": lambda x, t: od.losses.multi_margin(x, t),
    "ctc": lambda x, t: od.losses.ctc(x, t[1:], target_lengths=[1], input_lengths=np.array([3])),
    "compress": lambda x, t: ops.compress([True, False, True], x, 0) * 2.0,
    "diff": lambda x, t: ops.diff(x, prepend=0.5) * 2.0,
    "insert": lambda x, t: ops.insert(x, 1, ops.sum(x), 0),
    "zeros_like": lambda x, t: ops.zeros_like(x) + ops.full_like(x, 2.0) * x,
    "vmap": lambda x, t: od.vmap(lambda row: ops.pad(row, 1)[np.array([0, 2, 2])])(x),
    "a Variable": lambda x, t: od.Variable(np.arange(4.0), device=x.device) * x,
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CAPTURING.values(), ids=list(CAPTURING))
def test_compiled_functions_of_captured_variables_need_no_constant_of_the_host(call, standin):
    x, t = leaf(LOGITS, DEVICE), constant(np.array([0, 1, 3]), DEVICE)
    run = od.compile(lambda c: call(x, t) + c, fullgraph=True)
    c = constant(np.array(0.5), DEVICE)
    with ops.use_kernels("numpy"):
        wanted = call(leaf(LOGITS, "cpu"), np.array([0, 1, 3])) + 0.5
    for _ in range(2):
        np.testing.assert_allclose(host(run(c)), host(wanted), rtol=1e-13, atol=1e-15)
    assert run.statistics().native == 1


GRADIENTS = {
    "mse": (od.losses.mse_loss_and_grad, lambda rng: rng.standard_normal((4, 3)), {}),
    "bce": (od.losses.bce_loss_and_grad, lambda rng: rng.uniform(0, 1, (4, 3)), {}),
    "bce of logits": (
        od.losses.bce_loss_and_grad,
        lambda rng: rng.uniform(0, 1, (4, 3)),
        {"from_logits": True, "reduction": "sum"},
    ),
    "ce": (od.losses.ce_loss_and_grad, lambda rng: rng.integers(0, 3, 4), {"ignore_index": 1}),
}


@pytest.mark.parametrize("make", [constant, lambda x, d: constant(x, d)._array], ids=["v", "a"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_without_a_tape_lie_where_the_predictions_do(name, weighted, make, standin):
    function, targets, options = GRADIENTS[name]

    def program(device):
        rng = np.random.default_rng(0)
        arrays = [rng.uniform(0.1, 0.9, (4, 3)), targets(rng), np.arange(4.0)]
        x, t, w = arrays if device == "cpu" else [make(a, device) for a in arrays]
        w = w if name == "ce" else w[:, None]
        return tuple(function(x, t, **options, **({"weights": w} if weighted else {})))

    loss, gradient = assert_same_on_both(program)
    assert type(gradient) is standin.array_type
    assert is_on_device(loss)
