"""CUDA kernels of loops, run on the CPU from the text that becomes PTX, give what NumPy gives."""

import math
import re

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.cuda.compile_kernels import compile_kernels
from odyssey.compiler.cuda.device_function import DeviceFunction, UnsupportedKernelError
from odyssey.compiler.cuda.host_execution import HostKernels
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.module import KernelTable, device_module, host_module
from odyssey.compiler.cuda.program import CopyStep, Launch
from odyssey.compiler.cuda.ptx import emit_ptx
from odyssey.compiler.pipeline import lower_program
from odyssey.compiler.schedule.fusion import loop_role
from odyssey.errors import OdysseyError, SettingError
from support.cuda_programs import SMALL, cuda_program, run_step

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def outputs_of(fn, *args, shape=SMALL):
    """Results on the CPU, which are the same in both orders, with what NumPy gives."""
    _, runs = run_step(fn, *args, shape=shape)
    runs.assert_equal_bits()
    return runs.run.outputs(), runs


def near_float64(fn, *args, tolerance=3e-7, **settings):
    """Check results against NumPy's of the same function in float64."""
    found, _ = outputs_of(fn, *args, **settings)
    wide = [x.astype("f8") if x.dtype == np.float32 else x for x in args]
    expected, _ = od.compile(fn).lower(*wide).evaluate(*wide)
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        scale = max(float(np.abs(b).max(initial=0)), 1e-30)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


# -------------------------------------------------------------- elements


@pytest.mark.parametrize("size", [1, 63, 64, 193, 1000])
def test_elements_of_any_number_are_computed_once_each(size):
    x = normal(size)
    (found,), runs = outputs_of(lambda x: x * 2 + 1, x)
    np.testing.assert_array_equal(found, x * 2 + 1)
    assert all(s.grid <= 3 for s in runs.run.program.steps)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "u8", "b1", "c8", "c16"])
def test_elements_of_each_dtype_are_numpys(dtype):
    x = (np.arange(70) % 2 if dtype == "b1" else np.arange(70)).astype(dtype)
    (found,), _ = outputs_of(lambda x: ops.where(x == x[3], x, x[::-1]), x)
    np.testing.assert_array_equal(found, np.where(x == x[3], x, x[::-1]))


def test_views_broadcasts_and_indices_are_read_where_they_lie():
    x, y = normal(5, 7, 3), normal(7, 1)
    (found,), _ = outputs_of(lambda x, y: ops.transpose(x, (2, 1, 0))[:, ::-2] * y[::2], x, y)
    np.testing.assert_array_equal(found, np.transpose(x, (2, 1, 0))[:, ::-2] * y[::2])


def test_gathers_read_at_indices():
    x, k = normal(9, 4), RNG.integers(0, 9, 33)
    (found,), _ = outputs_of(lambda x, k: x[k] * 2, x, k)
    np.testing.assert_array_equal(found, x[k] * 2)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("op", ["fmod", "mod", "floor_divide"])
def test_remainders_are_exact_for_quotients_of_any_size(op, dtype):
    info, word = np.finfo(dtype), f"u{dtype[1]}"
    bits = RNG.integers(0, np.iinfo(word).max, (2, 500), dtype=word, endpoint=True).view(dtype)
    few = RNG.normal(scale=50, size=(2, 500)).astype(dtype)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -3, info.max, -info.smallest_subnormal]
    special = np.array(special, dtype)
    x = np.concatenate([bits[0], few[0], few[0] * 4, np.repeat(special, 9)])
    y = np.concatenate([bits[1], few[1], few[0], np.tile(special, 9)])
    with np.errstate(all="ignore"):
        (found,), runs = outputs_of(getattr(ops, op), x, y)
        expected = getattr(np, {"mod": "remainder"}.get(op, op))(x, y)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))
    assert "frem" not in runs.run.program.text


# -------------------------------------------------------------- reductions


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("rows", [1, 3])
def test_sums_along_rows_by_threads_and_by_blocks(rows, length):
    near_float64(lambda x: ops.sum(x * x, axis=-1), normal(rows, length))


@pytest.mark.parametrize("shape", [(1, 5), (70, 3), (3, 70), (64, 4)])
def test_sums_along_columns(shape):
    near_float64(lambda x: ops.sum(x * x, axis=0), normal(*shape))


@pytest.mark.parametrize("shape", [(), (1,), (700,), (13, 17), (2, 3, 70)])
def test_sums_of_everything(shape):
    near_float64(lambda x: ops.sum(x + 1), normal(*shape))


@pytest.mark.parametrize("axis", [(0, 2), (1,), (0, 1), (1, 2)])
def test_sums_along_axes_in_the_midst(axis):
    near_float64(lambda x: ops.sum(x * 3, axis=axis), normal(2, 70, 3))


@pytest.mark.parametrize("how", ["max", "min", "prod", "any", "all"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_each_kind(how, axis):
    x = normal(2, 70)
    x = x > 2 if how in ("any", "all") else x
    (found,), _ = outputs_of(lambda x: getattr(ops, how)(x, axis=axis), x)
    expected = getattr(np, how)(x, axis=axis)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if how == "prod" else 0)


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "c16"])
@pytest.mark.parametrize("axis", [None, 1])
def test_sums_of_each_dtype_by_blocks(dtype, axis):
    x = (np.arange(70) % 5).reshape(1, 70).astype(dtype)
    (found,), _ = outputs_of(lambda x: ops.sum(x, axis=axis), x)
    np.testing.assert_array_equal(found, np.sum(x, axis=axis))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("how", ["sum", "max"])
def test_values_of_rows_are_reduced_to_several_elements(how, keepdims):
    x = RNG.integers(-9, 9, (5, 3, 20))

    def reduced(space, x):
        rows = space.max(x, axis=2, keepdims=True)
        several = getattr(space, how)(rows, axis=(0, 2), keepdims=keepdims)
        return x - rows, several, space.sum(rows)

    found, runs = outputs_of(lambda x: reduced(ops, x), x)
    (kernel,) = runs.run.program.plan.fused.kernels
    assert "reduce_rows" in [loop_role(n, kernel.space) for n in kernel.nodes if n.size == 3]
    for a, b in zip(found, reduced(np, x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [1, 31, 33, 1025])
def test_extremes_of_special_numbers_and_their_first_places_are_numpys(size):
    x = RNG.choice(np.array([np.inf, -np.inf, 0.0, -0.0, 1.0], "f4"), (4, size))
    x[0] = 1
    x[1, size // 2] = np.nan
    names = ("max", "min", "argmax", "argmin")
    found, _ = outputs_of(lambda x: [getattr(ops, name)(x, axis=1) for name in names], x)
    for a, name in zip(found, names, strict=True):
        np.testing.assert_array_equal(a, getattr(np, name)(x, axis=1), err_msg=name)


def test_long_sums_of_a_thread_are_added_in_float64():
    # 1 + 2**-25 is 1 in float32, and so would be each partial sum.
    x = np.full((2, 1 << 15), 2.0**-25, np.float32)
    x[:, 0] = 1
    one = LaunchShape(threads=32, blocks=1, row_length=1 << 20)
    (found,), _ = outputs_of(lambda x: ops.sum(x, axis=1), x, shape=one)
    np.testing.assert_allclose(found, 1 + (2**15 - 1) * 2.0**-25, rtol=2e-5)


def test_softmax_of_short_and_long_rows():
    for shape in ((70, 5), (3, 130)):
        near_float64(lambda x: ops.softmax(x, axis=-1), normal(*shape))


def test_a_norm_with_scales_of_its_columns():
    near_float64(
        lambda x, g: (x - ops.mean(x, -1, keepdims=True)) / ops.std(x, -1, keepdims=True) * g,
        normal(2, 70),
        normal(70),
        tolerance=1e-6,
    )


# -------------------------------------------------------------- several kernels for one


def test_rows_and_columns_are_reduced_by_two_kernels():
    def rows_and_columns(x):
        y = x / ops.sum(x, axis=1, keepdims=True)
        return y, ops.sum(y, axis=0)

    x = np.abs(normal(66, 3)) + 1
    _, runs = outputs_of(rows_and_columns, x)
    launches = [s for s in runs.run.program.steps if isinstance(s, Launch)]
    assert len(launches) == 2
    assert len({s.position for s in launches}) == 1
    assert runs.run.program.scratch > 0
    wide = x.astype("f8")
    expected = wide / wide.sum(1, keepdims=True)
    for found, exact in zip(runs.run.outputs(), (expected, expected.sum(0)), strict=True):
        np.testing.assert_allclose(found, exact, rtol=3e-7)


def test_an_operand_that_is_overwritten_is_copied_for_a_later_kernel():
    w = od.Variable(np.abs(normal(70, 9)) + 1, name="w")
    start = w.numpy().astype("f8")

    def step():
        rows = ops.sum(w, axis=1, keepdims=True)
        columns = ops.sum(w / rows, axis=0)
        w.assign(w - rows * 0.25)
        return columns

    graph, runs = run_step(step)
    runs.assert_equal_bits()
    rows = start.sum(1, keepdims=True)
    np.testing.assert_allclose(runs.run.outputs()[0], (start / rows).sum(0), rtol=1e-6)
    np.testing.assert_allclose(runs.states(graph)["w"], start - rows * 0.25, atol=2e-5)
    assert any(isinstance(s, CopyStep) for s in runs.run.program.steps)


UPDATES_WITH_OWN_ELEMENTS = {
    "the first": lambda w: w * w[0, 0],
    "the last": lambda w: w - w[-1, -1] * 2,
    "beside sums of rows": lambda w: w - ops.max(w, axis=1, keepdims=True) * w[4, 1],
}


@pytest.mark.parametrize("name", UPDATES_WITH_OWN_ELEMENTS)
@pytest.mark.parametrize("shape", [(5, 70), (70, 5)])
def test_an_element_that_all_threads_read_is_that_before_its_update(shape, name):
    w = od.Variable(RNG.integers(-5, 5, shape).astype("f8"), name="w")
    update = UPDATES_WITH_OWN_ELEMENTS[name]
    graph, runs = run_step(lambda: w.assign(update(w)))
    runs.assert_equal_bits()
    np.testing.assert_array_equal(runs.states(graph)["w"], runs.left["w"])
    copied = [s for s in runs.run.program.steps if isinstance(s, CopyStep)]
    assert {s.bytes for s in copied} == {8}


def test_scalars_that_a_single_thread_updates_are_not_copied():
    count = od.Variable(np.array(3.0), name="count")

    def step(x):
        count.assign(count * 0.5 + ops.sum(x * count))

    graph, runs = run_step(step, np.arange(70.0))
    assert runs.states(graph)["count"] == 3 * 0.5 + 3 * 70 * 69 / 2
    assert not [s for s in runs.run.program.steps if isinstance(s, CopyStep)]


def test_a_program_leaves_its_plan_as_it_was():
    def rows_and_columns(x):
        y = x / ops.sum(x, axis=1, keepdims=True)
        return y, ops.sum(y, axis=0)

    plan = lower_program(od.compile(rows_and_columns).lower(normal(70, 9)).graph).plan
    before = {k: (id(a.buffer), a.view) for k, a in plan.allocations.items()}
    first, again = compile_kernels(plan), compile_kernels(plan)
    assert {k: (id(a.buffer), a.view) for k, a in plan.allocations.items()} == before
    assert first.text == again.text
    assert first.steps == again.steps


# -------------------------------------------------------------- texts


def test_equal_kernels_are_one_function():
    def layers(x, w):
        return ops.tanh(ops.tanh(ops.tanh(x @ w) @ w) @ w)

    program = cuda_program(od.compile(layers).lower(normal(8, 8), normal(8, 8)).graph)
    assert len([s for s in program.steps if isinstance(s, Launch)]) == 3
    assert len(program.kernels) == 2  # the first two are in place, the last one writes the result


def test_ptx_rounds_to_nearest_and_calls_no_library():
    def fn(x, y):
        return ops.softmax(ops.tanh(x) * y + ops.sin(x) / y), ops.sum(x * y + 1)

    ptx = emit_ptx(cuda_program(od.compile(fn).lower(normal(9, 70), normal(70)).graph).text)
    assert ".target sm_80" in ptx
    arithmetic = re.findall(r"^\s+((?:add|sub|mul|div|fma|sqrt)\S*\.f(?:32|64))\s", ptx, re.M)
    assert arithmetic
    assert all(".rn." in word and ".ftz" not in word for word in arithmetic)
    assert not re.findall(r"\b(?:approx|\.extern)\b", ptx)


def test_ptx_does_not_fuse_products_with_sums():
    program = cuda_program(od.compile(lambda x, y: x * y + 1).lower(normal(9), normal(9)).graph)
    ptx = emit_ptx(program.text)
    assert "fma" not in ptx
    assert "mul.rn.f32" in ptx
    assert "add.rn.f32" in ptx


def test_an_unknown_architecture_is_named():
    with pytest.raises(SettingError, match=r"architecture='sm_12' is none of .*'sm_90'"):
        emit_ptx("", "sm_12")


def test_text_that_llvm_refuses_is_an_error():
    with pytest.raises(OdysseyError, match="cuda: LLVM refuses the program"):
        emit_ptx("define void @f( {")


@od.op(elementwise=True, scalar=lambda x: math.cbrt(x))
def cube_root(x, /):
    """Cube root."""
    return np.cbrt(x)


def test_kernels_that_call_the_c_library_are_refused():
    graph = od.compile(cube_root).lower(normal(3)).graph
    with pytest.raises(UnsupportedKernelError, match=r"cube_root .*calls cbrtf of the C library"):
        cuda_program(graph)


def test_kernels_without_a_form_for_devices_are_named():
    x = normal(5, 5) + 5 * np.eye(5, dtype="f4")
    graph = od.compile(lambda x: od.linalg.cholesky(x @ x.T)).lower(x).graph
    with pytest.raises(UnsupportedKernelError, match=r"cholesky .*lapack.* has no CUDA kernel"):
        cuda_program(graph)


def test_threads_that_diverge_are_an_error_and_no_hang():
    program = cuda_program(od.compile(lambda x: x + 1).lower(normal(3)).graph)
    function = DeviceFunction(program.plan, program.plan.fused.kernels[0], single_threaded=True)
    others = function.code.op("b1", "icmp ne i64 %lane, 3")
    function.shared_slot("f4", function.code.const("i8", 0))
    function.emit_if(others, function.emit_barrier)
    kernel = KernelTable().add(function)
    program = program._replace(kernels=(kernel,), host_text=host_module([kernel]))
    with pytest.raises(
        OdysseyError, match=r"diverge: thread \d+ waits at a barrier for threads that"
    ):
        HostKernels(program).launch(kernel.name, 1, 32, [])
    assert re.search(r"bar(?:rier)?\.sync", emit_ptx(device_module([kernel])))
