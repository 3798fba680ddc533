"""Rows on a device: every sample of every row, and its reverse rules, beside the CPU's, to the bit.

``rows_without_device.txt`` lists the rows that fail. It may only get shorter.
"""

from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import DeviceError
from odyssey.nn.shared import SharedPullback
from odyssey.ops import OPS
from odyssey.table.device_rows import array_on_device
from odyssey.table.multi_output import MultiOutput
from odyssey.table.signature import PASS
from support.on_device import difference, place
from support.standin import CURRENT, DeviceArray

FAILING = Path(__file__).with_name("rows_without_device.txt").read_text().split()
LIMIT = 1
"""Rows in the list; lower it when the list gets shorter."""

ROWS = sorted(OPS)
PARTS = 8


def call_of(row, sample, seed=0):
    """Return the row of a sample's arity, its operands and its options."""
    operands = sample.arrays(np.random.default_rng(seed))
    if row.layout.variadic:
        if len(operands) == 1 and isinstance(operands[0], list):
            operands = operands[0]
        row = row.with_arity(len(operands))
    operands, options = row.bind_arguments(tuple(operands), dict(sample.options))
    return row, list(operands), options


def failure_of(row, backend):
    """Return why a row fails on the device; None if all of its samples equal the CPU's."""
    for sample in row.samples:
        actual, operands, options = call_of(row, sample)
        expected = actual.kernel(*operands, *options)
        _, operands, options = call_of(row, sample)
        try:
            found = actual.kernel(*[place(x, backend) for x in operands], *options)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        wrong = difference(expected, found, backend)
        if wrong is not None:
            return wrong
    return None


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_sample_on_a_device_equals_the_cpu_bit_for_bit(part, standin):
    wrong = {}
    with od.ops.use_kernels("numpy"), np.errstate(all="ignore"):
        for name in ROWS[part::PARTS]:
            why = failure_of(OPS[name], standin)
            if (why is not None) != (name in FAILING):
                wrong[name] = why or "runs: remove it from rows_without_device.txt, lower LIMIT"
    assert not wrong


def test_the_list_of_rows_without_device_only_shrinks():
    assert len(FAILING) == LIMIT <= 10
    assert set(FAILING) <= set(OPS)
    assert sorted(set(FAILING)) == FAILING


def nodes_of(row, sample):
    """Record a sample on the CPU and return its node, or None if nothing is differentiable."""
    actual, operands, options = call_of(row, sample)
    inexact = [isinstance(x, np.ndarray) and x.dtype.kind in "fc" for x in operands]
    given = [
        od.Variable(x, requires_grad=True) if on and pull is not None else x
        for x, on, pull in zip(operands, inexact, actual.pullbacks, strict=True)
    ]
    with od.GradientTape(persistent=True) as tape:
        out = actual.call(*given, **dict(zip(actual.options, options, strict=True)))
    nodes = [node for node in tape._recording.nodes if node[0].name == actual.name]
    return (nodes[-1], out, tape) if nodes else None


def cotangent_of(row, out, rng):
    def draw(x):
        g = rng.uniform(0.5, 1.5, x.shape).astype(x.dtype)
        return np.asarray(g)

    if row.cotangents:
        parts = {k: draw(o) for k, o in enumerate(out) if o.dtype.kind in "fc"}
        return MultiOutput(parts)
    return draw(out)


def rule_failure_of(row, backend):
    """Return why a reverse rule of a row fails on the device; None if all equal the CPU's."""
    rng = np.random.default_rng(1)
    for sample in row.samples[:3]:
        found = nodes_of(row, sample)
        if found is None:
            continue
        (actual, _, inputs, kept, specs), out, _ = found
        g = cotangent_of(actual, out, rng)
        count = len(actual.arrays) + len(actual.results)
        for k, i in enumerate(inputs):
            pull = actual.array_pullbacks[k]
            if i is None or pull is None or pull is PASS:
                continue
            expected = pull(g, kept, specs)
            placed = kept and (*[place(x, backend) for x in kept[:count]], *kept[count:])
            if kept and len(kept) > count + len(actual.options):  # a residual
                placed = (*placed[:-1], place(kept[-1], backend))
            try:
                made = pull(place(g, backend), placed, specs)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            wrong = difference(expected, made, backend)
            if wrong is not None:
                return wrong
    return None


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_reverse_rules_on_a_device_equal_the_cpu_bit_for_bit(part, standin):
    wrong = {}
    with od.ops.use_kernels("numpy"), np.errstate(all="ignore"):
        for name in ROWS[part::PARTS]:
            why = None if name in FAILING else rule_failure_of(OPS[name], standin)
            if why is not None:
                wrong[name] = why
    assert not wrong


@pytest.mark.parametrize(
    "name", ["add", "exp", "matmul", "sum", "concatenate", "getitem", "cholesky"]
)
def test_rows_run_on_a_device(name, standin):
    with od.ops.use_kernels("numpy"), np.errstate(all="ignore"):
        assert failure_of(OPS[name], standin) is None


def test_python_and_numpy_numbers_work_beside_a_device(standin):
    x = standin.to_device(np.arange(3, dtype=np.float32))
    for number in (2, 0.5, True, np.float32(3), np.float64(3), np.array(0.5)):
        for got in (od.ops.multiply(x, number), od.ops.multiply(number, x)):
            expected = np.arange(3, dtype=np.float32) * number
            assert difference(expected, got, standin) is None


def test_a_host_array_beside_a_device_raises_and_names_both(standin):
    x = standin.to_device(np.ones(3))
    with pytest.raises(DeviceError, match="add: x is on cuda:0 and y on cpu"):
        OPS["add"].kernel(x, np.ones(3))
    with pytest.raises(DeviceError, match="add: y is on cuda:0 and x on cpu"):
        OPS["add"].kernel(np.ones(3), x)
    assert np.array_equal(standin.to_host(x), np.ones(3))


def test_operands_on_two_devices_raise_and_name_both(standin):
    x, y = standin.to_device(np.ones(3)), standin.to_device(np.ones(3), 1)
    with pytest.raises(DeviceError, match="add: x is on cuda:0 and y on cuda:1"):
        OPS["add"].kernel(x, y)


def test_tables_and_caches_belong_to_one_device(standin):
    logits, targets = np.ones((4, 3)), np.array([0, 2, 1, 1])
    loss = OPS["softmax_cross_entropy"]
    _, options = loss.bind_arguments((logits, targets), {})
    expected = loss.reference(logits, targets, *options)
    for index in (1, 0, 1):
        placed = [standin.to_device(x, index) for x in (logits, targets)]
        out = loss.kernel(*placed, *options)
        assert standin.device_index(out) == index
        assert np.array_equal(standin.to_host(out), expected)
    assert CURRENT.index == 0


def test_the_kernels_of_the_cpu_are_back_after_a_backend_is_uninstalled():
    from odyssey.devices.backends import install, uninstall
    from support.standin import StandIn

    rows = list(OPS.values())
    before = [(row.kernel, row.array_pullbacks, row.pushforwards) for row in rows]
    backend = StandIn()
    install(backend)
    try:
        assert OPS["exp"].kernel is not dict(zip(rows, before, strict=True))[OPS["exp"]][0]
    finally:
        uninstall(backend)
    assert [(row.kernel, row.array_pullbacks, row.pushforwards) for row in rows] == before
    assert array_on_device([DeviceArray(np.ones(2))]) is None


def test_halves_on_a_device_are_rounded_once_as_on_the_cpu(standin):
    x = np.linspace(-2, 2, 9).astype(np.float16)
    for name in ("exp", "tanh", "sum"):
        row = OPS[name]
        options = row.defaults
        expected = row.kernel(x, *options)
        assert difference(expected, row.kernel(standin.to_device(x), *options), standin) is None


def test_kernels_of_a_device_run_its_arrays_without_a_copy(standin):
    row, seen = OPS["exp"], []

    def run(x):
        seen.append(x)
        return x

    kernel = od.ops.Kernel("mine", run, device="cuda", when=lambda x: x.ndim == 1)
    row.device_kernels = (kernel,)
    try:
        x, y = standin.to_device(np.ones(3)), standin.to_device(np.zeros((2, 2)))
        assert row.kernel(x) is x
        assert seen == [x] or seen[0] is x
        assert np.array_equal(standin.to_host(row.kernel(y)), np.ones((2, 2)))
        assert len(seen) == 1
    finally:
        row.device_kernels = ()


@pytest.mark.parametrize("causal", [False, True])
def test_a_kernel_of_a_device_leaves_its_residual_for_the_rules_of_the_calls_it_takes(
    standin, causal
):
    row, pulled = OPS["scaled_dot_product_attention"], []

    def pull(kept, g, q, *rest):
        pulled.append((q, *kept))
        return {"q": q, "k": q + 1, "v": q + 2}

    kernel = od.ops.Kernel(
        "mine",
        lambda q, *rest: q,
        device="cuda",
        when=lambda q, k, v, mask, causal, scale: not causal,
        with_residual=lambda q, *rest: (q * 2, (SharedPullback(), pull, q * 3)),
    )
    arrays = [np.random.default_rng(n).normal(size=(3, 2)) for n in range(3)]

    def gradients(device):
        xs = [od.Variable(x, requires_grad=True, device=device) for x in arrays]
        with od.GradientTape() as tape:
            out = od.nn.scaled_dot_product_attention(*xs, causal=causal)
            loss = od.ops.sum(out)
        return out.numpy(), tape.gradient(loss, xs)

    row.device_kernels = (kernel,)
    try:
        out, found = gradients("cuda")
        expected = gradients("cpu")  # which kernels of a device do not change
    finally:
        row.device_kernels = ()
    if causal:
        assert not pulled
    else:
        ((q, kept),) = pulled
        np.testing.assert_array_equal(standin.to_host(kept), standin.to_host(q) * 3)
        expected = arrays[0] * 2, [arrays[0], arrays[0] + 1, arrays[0] + 2]
    np.testing.assert_allclose(out, expected[0], rtol=1e-15)
    for there, here in zip(found, expected[1], strict=True):
        np.testing.assert_allclose(standin.to_host(there), here, rtol=0, atol=1e-15)
