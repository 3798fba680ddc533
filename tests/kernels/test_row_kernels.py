"""Kernels beside the rows' own: they give what the row gives, and run where they are asked for."""

import importlib.util
import itertools
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DeviceError, DTypeError
from odyssey.ops import OPS, Kernel
from odyssey.spec import spec_of
from odyssey.table.samples import Sample
from odyssey.testing import count_kernels
from support import faults, scalar_cases
from support.cases import assert_close, derive, draw, tracked
from support.chosen import picked

HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba, which compiles kernels, is missing")
CASES = {
    f"{row.name}, {kernel.name}": (row, kernel)
    for row in OPS.values()
    for kernel in row.kernels
    if kernel.device == "cpu"
}
every_kernel = pytest.mark.parametrize(("row", "kernel"), CASES.values(), ids=list(CASES))


def calls(row):
    """Operands and options: the row's samples, and larger arrays with the options of these."""
    shapes = ((7,), (5, 3), (2, 3, 4), (33, 20))
    for dtype in (np.float32, np.float64):
        for sample in row.samples:
            larger = [Sample(wider(sample, shape), sample.options) for shape in shapes]
            for case in (sample, *larger):
                operands = draw(case, dtype)
                with suppress(od.errors.OdysseyError):  # an axis that this shape lacks, say
                    options = row.bind_arguments(operands, case.options)[1]
                    row.infer(*specs_of(operands), *options)
                    with np.errstate(all="ignore"):
                        row.call(*operands, **case.options)
                    yield operands, options


def specs_of(operands):
    return [None if x is None else spec_of(np.asarray(x)) for x in operands]


def is_floating(x):
    return x is not None and x.dtype.kind == "f"


def wider(sample, shape):
    """Operands with another shape where a sample gives one; indices stay."""
    return tuple(shape if isinstance(o, tuple) else o for o in sample.operands)


def taken(row, kernel, operands, options):
    return kernel.takes(*specs_of(operands), *options)


def assert_as_good(row, kernel, operands, options):
    """Its error against float64 is at most four times the row's own, or what the kernel says."""
    with np.errstate(all="ignore"):
        got = kernel.run(*operands, *options)
        usual = row.kernel(*operands, *options)
        if usual.dtype.kind != "f":  # places
            assert spec_of(got) == spec_of(usual)
            return np.testing.assert_array_equal(got, usual)
        wide = [x.astype(np.float64) if is_floating(x) else x for x in operands]
        exact = row.kernel(*wide, *options)
        # What is no number of the dtype any more is infinite.
        most = np.finfo(usual.dtype).max
        exact = np.where(np.abs(exact) > most, np.copysign(np.inf, exact), exact)
        size = np.abs(exact)[np.isfinite(exact)].max(initial=1e-30)
        far, own = (np.abs(np.where(v == exact, 0, v - exact)) for v in (got, usual))
    assert spec_of(got) == spec_of(usual)
    # A sum of infinite products is none where a product and a sum are rounded once.
    better = np.isnan(usual) & (got == exact)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(usual) & ~better)
    if row.elementwise:
        # erfc alone may err by 6 units in the last place.
        scalar_cases.assert_is_kernel(row, got, usual, operands, ulps=8)
    largest, theirs = (np.nan_to_num(e, nan=0.0).max(initial=0.0) for e in (far, own))
    with np.errstate(over="ignore"):  # where its own is infinite
        allowed = 4 * max(theirs, np.finfo(got.dtype).eps * size)
        allowed += (kernel.error_bound or 0.0) * size
    assert largest <= allowed


@needs_numba
@every_kernel
def test_a_kernel_is_as_exact_as_its_row_on_samples_and_larger_arrays(row, kernel):
    count = 0
    for operands, options in calls(row):
        if taken(row, kernel, operands, options):
            count += 1
            assert_as_good(row, kernel, operands, options)
    assert count >= 4


def unaligned(x):
    room = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    room[...] = x
    return room


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "by columns": np.asfortranarray,
    "with gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "unaligned": unaligned,
    "read-only": read_only,
}


def check_layout(row, kernel, layout):
    """Raise AssertionError unless a kernel reads operands that lie so, and leaves them alone."""
    operands, options = next(
        (operands, options)
        for operands, options in calls(row)
        if np.ndim(operands[0]) > 1
        and taken(row, kernel, operands, options)
        and operands[0].dtype == np.float64
    )
    laid = [None if x is None else LAYOUTS[layout](x) for x in operands]
    got = kernel.run(*laid, *options)
    np.testing.assert_array_equal(got, kernel.run(*operands, *options))
    assert not any(np.shares_memory(got, x) for x in laid if x is not None)
    for x, before in zip(laid, operands, strict=True):
        np.testing.assert_array_equal(x, before)


@needs_numba
@every_kernel
def test_a_kernel_reads_some_layout_and_leaves_its_operands_alone(row, kernel):
    check_layout(row, kernel, picked(row.name, list(LAYOUTS)))


@needs_numba
@pytest.mark.soak
@pytest.mark.parametrize("layout", LAYOUTS)
@every_kernel
def test_a_kernel_reads_any_layout_and_leaves_its_operands_alone(row, kernel, layout):
    check_layout(row, kernel, layout)


@needs_numba
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_kernel
def test_a_kernel_gives_the_rows_special_values(row, kernel, dtype):
    numbers = scalar_cases.numbers(np.dtype(dtype))
    options = row.bind_arguments(draw(row.samples[0]), row.samples[0].options)[1]
    if row.elementwise:
        operands = scalar_cases.grid(len(row.arrays), np.dtype(dtype))
    else:  # each number beside each other in a row
        operands = [np.stack(np.meshgrid(numbers, numbers), axis=-1).reshape(-1, 2)]
    found = [(operands, options)]
    given = len(row.arrays) == len(operands) and "spec" not in row.options
    if not given or not taken(row, kernel, operands, options):
        # Shapes that fit one another are those of the samples: each number in some place of them.
        found = list(filled_with(numbers, row, kernel))
    assert found
    for operands, options in found:
        assert taken(row, kernel, operands, options)
        assert_as_good(row, kernel, operands, options)


def filled_with(numbers, row, kernel):
    """The calls that a kernel takes, with given numbers for operands, shifted again and again."""
    for operands, options in calls(row):
        if taken(row, kernel, operands, options) and operands[0].dtype == numbers.dtype:
            for shift in range(0, numbers.size, 3):
                yield (
                    [
                        np.resize(np.roll(numbers, shift * (k + 1)), x.shape)
                        if is_floating(x)
                        else x
                        for k, x in enumerate(operands)
                    ],
                    options,
                )


def test_kernels_have_names_and_devices_that_are_known():
    for row in OPS.values():
        names = [kernel.name for kernel in row.kernels]
        assert len(set(names)) == len(names)
        assert all(kernel.device in ("cpu", "cuda") for kernel in row.kernels)


# ------------------------------------------------------------------ using them


@pytest.fixture
def numbered(monkeypatch):
    """softmax with a kernel that notes its calls, for matrices."""
    ran = []

    def run(x, axis):
        ran.append(x.shape)
        return np.full(x.shape, 0.5)

    kernel = Kernel("noted", run, when=lambda x, axis: x.ndim == 2)
    monkeypatch.setattr(OPS["softmax"], "kernels", (kernel,))
    return ran


def test_a_kernel_runs_in_its_block_for_the_calls_that_it_takes(numbered):
    x = np.zeros((1, 4))
    usual = OPS["softmax"].kernel
    with ops.use_kernels():
        np.testing.assert_array_equal(od.nn.softmax(x), 0.5)
        np.testing.assert_array_equal(od.nn.softmax(x[0]), 0.25)
    np.testing.assert_array_equal(od.nn.softmax(x), 0.25)
    assert numbered == [(1, 4)]
    assert OPS["softmax"].kernel is usual


def test_kernels_are_put_back_after_an_error_and_within_other_blocks(numbered):
    x = np.zeros((1, 4))
    usual = OPS["softmax"].kernel
    with pytest.raises(ZeroDivisionError), ops.use_kernels():
        raise ZeroDivisionError
    with count_kernels() as counts, ops.use_kernels(), ops.use_kernels():
        od.nn.softmax(x)
        od.nn.softmax(x[0])
    assert counts["softmax"] == 2  # also the one that the kernel took
    assert OPS["softmax"].kernel is usual


def test_blocks_that_end_in_another_order_leave_the_usual_kernel(numbered):
    x, row = np.zeros((1, 4)), OPS["softmax"]
    usual = row.kernel
    first, second = ops.use_kernels(), ops.use_kernels()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    od.nn.softmax(x)
    assert numbered == [(1, 4)]
    second.__exit__(None, None, None)
    assert row.kernel is usual
    assert len(row.with_residuals) == 1


@pytest.mark.parametrize("also", [ops.use_kernels, count_kernels])
def test_blocks_that_count_end_in_any_order(numbered, also):
    x, usual = np.zeros((1, 4)), {row.name: row.kernel for row in OPS.values()}
    first, second = count_kernels(), also()
    counts = first.__enter__()
    second.__enter__()
    od.nn.softmax(x)
    first.__exit__(None, None, None)
    od.nn.softmax(x)
    assert counts == {"softmax": 1}
    second.__exit__(None, None, None)
    assert {row.name: row.kernel for row in OPS.values()} == usual
    assert len(numbered) == (2 if also is ops.use_kernels else 0)


def test_counters_of_blocks_within_each_other_count_apart():
    with count_kernels() as outer:
        ops.exp(np.zeros(3))
        with count_kernels() as inner:
            ops.exp(np.zeros(3))
    assert (outer, inner) == ({"exp": 2}, {"exp": 1})


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 41))]
)
def test_an_interrupt_of_a_block_that_counts_leaves_the_usual_kernels(first):
    usual = {row.name: row.kernel for row in OPS.values()}
    for n in itertools.count(first, 40):
        with suppress(KeyboardInterrupt), faults.interrupt(n) as fired, count_kernels():
            pass
        assert {row.name: row.kernel for row in OPS.values()} == usual, fired
        if not fired:
            break
    assert n > 400


@pytest.mark.parametrize(
    "first",
    [pytest.param(1, marks=pytest.mark.slow)]
    + [pytest.param(n, marks=pytest.mark.soak) for n in (2, 3, 4)],
)
def test_an_interrupt_at_any_line_of_a_block_leaves_the_usual_kernels(numbered, first):
    usual = {row.name: row.kernel for row in OPS.values()}
    for n in itertools.count(first, 4):
        with suppress(KeyboardInterrupt), faults.interrupt(n) as fired, ops.use_kernels():
            pass
        assert {row.name: row.kernel for row in OPS.values()} == usual, fired
        assert all(len(row.with_residuals) == 1 for row in OPS.values()), fired
        if not fired:
            break
    assert n > 100
    with ops.use_kernels():
        od.nn.softmax(np.zeros((1, 4)))
    assert numbered == [(1, 4)]


def test_a_function_may_be_decorated_with_kernels(numbered):
    softmax = ops.use_kernels()(od.nn.softmax)
    for _ in range(2):
        np.testing.assert_array_equal(softmax(np.zeros((1, 4))), 0.5)
    np.testing.assert_array_equal(od.nn.softmax(np.zeros((1, 4))), 0.25)


@pytest.mark.slow
def test_a_kernel_that_cannot_be_had_is_left_out(monkeypatch):
    tried = []

    def missing(x, axis):
        tried.append(axis)
        raise DeviceError("not here")

    monkeypatch.setattr(OPS["softmax"], "kernels", (Kernel("missing", missing),))
    with ops.use_kernels():
        for _ in range(3):
            np.testing.assert_array_equal(od.nn.softmax(np.zeros((1, 4))), 0.25)
    assert tried == [-1]


def test_a_device_that_nobody_knows_is_refused():
    with pytest.raises((DTypeError, od.errors.OdysseyError), match="use_kernels: device='gpu'"):
        ops.use_kernels("gpu")


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize(
    ("row", "kernel"),
    [case for case in CASES.values() if any(case[0].vjp.values())],
    ids=[name for name, case in CASES.items() if any(case[0].vjp.values())],
)
def test_derivatives_are_those_of_the_row_in_the_block(row, kernel):
    sample = next(
        s
        for s in row.samples
        if taken(row, kernel, draw(s), row.bind_arguments(draw(s), s.options)[1])
    )

    def call(*operands):
        return row.call(*operands, **sample.options)

    usual = derive(call, draw(sample), tracked(row, sample))
    with ops.use_kernels():
        swapped = derive(call, draw(sample), tracked(row, sample))
    for got, wanted in zip(swapped.flat(), usual.flat(), strict=True):
        assert_close(got, wanted, 1e-14)


@pytest.mark.slow
def test_nothing_compiles_without_being_asked():
    program = (
        "import sys, numpy as np, odyssey as od\n"
        "w = od.Variable(np.ones((4, 3)), requires_grad=True)\n"
        "with od.GradientTape() as tape:\n"
        "    loss = (od.nn.softmax(od.nn.gelu(w)) ** 2).sum()\n"
        "tape.gradient(loss, w)\n"
        "print([n for n in sys.modules if n.partition('.')[0] in ('numba', 'llvmlite')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@needs_numba
def test_the_gpu_is_not_missed_in_silence():
    program = (
        "import odyssey as od\n"
        "from numba import cuda\n"
        "try:\n"
        "    with od.ops.use_kernels('cuda'):\n"
        "        print('cuda: no GPU can be used' if cuda.is_available() else 'entered')\n"
        "except od.errors.DeviceError as error:\n"
        "    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("cuda: no GPU can be used")
