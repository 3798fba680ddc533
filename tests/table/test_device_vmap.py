"""``vmap`` over arrays of a device: rows, functions of ops and derivatives, beside the CPU's."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DeviceError
from support.cases import EVERY, tracked
from support.composed import results
from support.mapped import Mapped, assert_near, choices, second_order
from support.on_device import (
    DEVICE,
    assert_same_on_both,
    constant,
    current,
    difference,
    host,
    is_on_device,
    leaf,
    place,
)

INDEX = 1
"""Not the current device: what is computed outside of a call of the backend is an error."""

PARTS = 8
CASES = {name: case for name, case in EVERY.items() if case[0].name != "bessel_j_quotient"}


def on_both(call, arrays, backend):
    """Results of a call on the CPU, by NumPy alone, and on the device."""
    with ops.use_kernels("numpy"), np.errstate(all="ignore"):
        return call(*arrays), call(*place(list(arrays), backend, INDEX))


def value_failure(row, sample, backend):
    """Return how values of vmap differ on the device; None if no example does."""
    for chosen in choices(sample):
        for size in (3, 0):
            case = Mapped(row, sample, chosen, axis=-1, size=size)
            call = od.vmap(case.call, tuple(case.axes))
            found = difference(*map(results, on_both(call, case.operands, backend)), backend)
            if found is not None:
                return f"mapped {chosen}, {size} examples: {found}"
    return None


def check_derivatives(row, sample, backend):
    """Raise AssertionError unless both derivatives, outside and inside of vmap, are the CPU's."""
    chosen = list(choices(sample))[-1]
    case = Mapped(row, sample, chosen, axis=0)
    positions = tuple(tracked(row, sample))
    outside = second_order(case.batched, positions)
    inside = od.vmap(second_order(case.flat, positions), tuple(case.axes))
    for call in (outside, inside):
        wanted, got = on_both(call, case.operands, backend)
        for one, other in zip(got, wanted, strict=True):
            assert type(one) is backend.array_type
            assert_near(host(one), other)


def failures(cases, check):
    """Return what fails, by the name of the case."""
    wrong = {}
    for name, case in cases:
        try:
            found = check(*case)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            wrong[name] = found
    return wrong


def is_differentiable(row, sample):
    """Whether a row has derivatives, and its result is floating."""
    case = Mapped(row, sample, (), 0)
    return bool(tracked(row, sample)) and case.flat(*case.operands).dtype.kind == "f"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_values_of_every_sample_equal_the_cpu_bit_for_bit(part, standin):
    cases = list(CASES.items())[part::PARTS]
    assert not failures(cases, lambda *case: value_failure(*case, standin))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_both_derivatives_of_every_row_are_those_of_the_cpu(part, standin):
    first = [(name, case) for name, case in CASES.items() if name.endswith(("-0", "-1"))]
    cases = [(name, case) for name, case in first[part::PARTS] if is_differentiable(*case)]
    assert cases
    assert not failures(cases, lambda *case: check_derivatives(*case, standin))


@pytest.mark.parametrize("name", ["getitem-3", "setitem-4", "keep_where-0"])
def test_rows_run_on_a_device(name, standin):
    assert value_failure(*CASES[name], standin) is None


def by_composite(call):
    """A call of one array, whose result is one floating array."""

    def program(device):
        x = leaf(np.random.default_rng(0).standard_normal((3, 4, 5)), device)
        run = od.vmap(call)
        return [run(x), *second_order(run, (0,))(x), *od.vmap(second_order(call, (0,)))(x)]

    return program


COMPOSITES = {
    "pad": lambda x: ops.pad(x, ((1, 0), (2, 3)), constant_values=0.5),
    "pad by edges": lambda x: ops.pad(x, 2, "edge"),
    "median": lambda x: ops.median(x, axis=0),
    "tril": lambda x: ops.tril(x, 1),
    "triu": lambda x: ops.triu(x),
    "nested": lambda x: od.vmap(lambda row: ops.sort(row) * ops.tril(ops.outer(row, row)))(x),
    "index": lambda x: x[:, np.array([0, 2, 2])],
}


@pytest.mark.parametrize("call", COMPOSITES.values(), ids=list(COMPOSITES))
def test_functions_of_ops_run_on_a_device(call, standin):
    assert all(map(is_on_device, assert_same_on_both(by_composite(call))))


def scalar(x):
    return ops.sum(ops.sin(x) * ops.tril(ops.outer(x, x))[1])


def drawn(x):
    draws = lambda row, rng: ops.random_normal((4,), mean=row, rng=rng)  # noqa: E731
    return od.vmap(draws)(x, [od.Generator(k) for k in range(3)])


TRANSFORMS = {
    "jacobian": lambda x: od.vmap(od.jacobian(lambda row: ops.pad(row * row, 1)))(x),
    "hessian": lambda x: od.vmap(od.hessian(scalar))(x),
    "jvp": lambda x: od.vmap(lambda row: od.jvp(scalar, (row,), (row * 2.0,)))(x),
    "checkpoint": lambda x: od.vmap(od.grad(od.checkpoint(scalar)))(x),
    "scan": lambda x: od.vmap(
        od.grad(lambda row: od.scan(lambda c, e: (c * e + ops.median(row), e), scalar(row), row)[0])
    )(x),
    "cond": lambda x: od.vmap(
        lambda row: od.cond(row[0] > 0, lambda r: ops.pad(r, 1), lambda r: ops.pad(r * 2.0, 1), row)
    )(x),
    "generators": drawn,
    "NumPy's functions": lambda x: od.vmap(lambda row: np.tril(np.outer(row, row)).sum(0))(x),
    "a loss": lambda x: od.vmap(od.grad(lambda row: od.losses.nll(row, ops.argmax(row))))(x),
}


@pytest.mark.parametrize("call", TRANSFORMS.values(), ids=list(TRANSFORMS))
def test_transforms_run_on_a_device(call, standin):
    x = np.random.default_rng(0).standard_normal((3, 4))
    wanted, got = call(x), call(standin.to_device(x, INDEX))
    for one, other in zip(od.tree.leaves(got), od.tree.leaves(wanted), strict=True):
        assert is_on_device(one)
        assert_near(host(one), other)


def test_chunks_shared_operands_and_out_axes_run_on_a_device(standin):
    def program(device):
        x = constant(np.arange(12.0).reshape(2, 6), device)
        w = constant(np.linspace(-1.0, 1.0, 2), device)

        def call(w, x):
            return ops.pad(w * x, 1), w

        return od.vmap(call, (None, -1), (1, None), chunk=4)(w, x)

    assert_same_on_both(program)


def test_a_host_array_beside_examples_of_a_device_raises_and_names_both(standin):
    x = od.Variable(np.ones((3, 2)), device=DEVICE)
    with pytest.raises(DeviceError, match="add: x is on cuda:1 and y on cpu"):
        od.vmap(lambda row: row + np.ones(2))(x)


def test_an_array_of_the_device_stands_on_either_side_of_an_example(standin):
    x, c = (standin.to_device(a, INDEX) for a in (np.ones((3, 2)), np.array([1.0, -2.0])))
    with current():
        for out in (od.vmap(lambda row: row - c)(x), -od.vmap(lambda row: c - row)(x)):
            np.testing.assert_array_equal(host(out), np.ones((3, 2)) - [1.0, -2.0])
