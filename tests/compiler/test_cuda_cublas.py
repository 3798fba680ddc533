"""Matrix products by cuBLAS: its arguments, read on host memory as cuBLAS reads them."""

import ctypes

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.cuda.cublas import (
    COMPUTE_TYPES,
    Cublas,
    GemmCall,
    emulate,
    gemm_call,
    gemm_calls,
)
from odyssey.compiler.cuda.lower_for_device import lower_for_device
from odyssey.compiler.cuda.program import ProductStep
from odyssey.errors import DeviceError
from support.cuda_programs import SMALL, HostRun

rng = np.random.default_rng(5)


class _GemmRun(HostRun):
    """A run whose products are ``emulate`` of the calls of cuBLAS."""

    def __init__(self, lowered, inputs):
        super().__init__(lowered.program, inputs, {}, False)
        self._lowered = lowered

    def _product(self, node):
        for step in self._lowered.steps_of_product(node):
            emulate(step.call, *[self._bytes(address).ctypes.data for address in step[1:]])


def _array(*shape, dtype="f4"):
    return np.asarray(rng.normal(size=shape), dtype)


PRODUCTS = {
    "matrices": (lambda a, b: a @ b, _array(70, 30), _array(30, 50)),
    "float64": (lambda a, b: a @ b, _array(70, 30, dtype="f8"), _array(30, 50, dtype="f8")),
    "complex": (lambda a, b: a @ b, _array(40, 30, dtype="c8") * 1j, _array(30, 50, dtype="c8")),
    "transposed first": (lambda a, b: a.T @ b, _array(30, 70), _array(30, 50)),
    "transposed second": (lambda a, b: a @ b.T, _array(70, 30), _array(50, 30)),
    "both transposed": (lambda a, b: a.T @ b.T, _array(30, 70), _array(50, 30)),
    "transposed result": (lambda a, b: (a @ b).T * 2, _array(70, 30), _array(30, 50)),
    "batch": (lambda a, b: a @ b, _array(4, 33, 40), _array(4, 40, 50)),
    "batch of transposes": (
        lambda a, b: a.swapaxes(1, 2) @ b.swapaxes(1, 2),
        _array(4, 40, 33),
        _array(4, 50, 40),
    ),
    "batch times a matrix": (lambda a, b: a @ b, _array(4, 33, 40), _array(40, 50)),
    "a matrix times a batch": (lambda a, b: a @ b, _array(33, 40), _array(4, 40, 50)),
    "heads": (
        lambda a, b: a.transpose(0, 2, 1, 3) @ b.transpose(0, 2, 3, 1),
        _array(2, 33, 3, 40),
        _array(2, 50, 3, 40),
    ),
    "empty sums": (lambda a, b: a @ b, _array(3, 0), _array(0, 2)),
    "columns of slices": (lambda a, b: a[:, 3:33] @ b[5:35], _array(70, 40), _array(40, 50)),
}


@pytest.mark.share(1)
@pytest.mark.parametrize("name", PRODUCTS)
def test_arguments_of_cublas_give_the_product(name):
    fn, a, b = PRODUCTS[name]
    lowered = lower_for_device(od.compile(fn).lower(a, b).graph, shape=SMALL)
    run = _GemmRun(lowered, [a, b])
    run.run()
    assert any(isinstance(step, ProductStep) for step in lowered.program.steps)
    np.testing.assert_allclose(run.outputs()[0], fn(a, b), rtol=2e-4, atol=2e-4)


def test_a_convolution_and_its_gradients_are_products_of_columns():
    x, w = _array(2, 3, 8, 8), _array(4, 3, 3, 3)

    def step(x, w):
        return od.grad(lambda w: (od.nn.conv2d(x, w) ** 2).sum())(w)

    lowered = lower_for_device(od.compile(step).lower(x, w).graph, shape=SMALL)
    run = _GemmRun(lowered, [x, w])
    run.run()
    assert len(lowered.products) >= 2
    np.testing.assert_allclose(run.outputs()[0], np.asarray(step(x, w)), rtol=1e-4, atol=1e-3)


def _half_product(a, b):
    return od.Variable(a) @ b


def _half_gradient(a, b):
    return od.grad(lambda a: od.ops.exp(od.ops.tanh(a @ b)).sum())(a)


HALF_PRODUCTS = {
    "matrices": (_half_product, _array(70, 30), _array(30, 50)),
    "few rows": (_half_product, _array(4, 30), _array(30, 50)),
    "one row": (_half_product, _array(1, 30), _array(30, 50)),
    "one column": (_half_product, _array(50, 30), _array(30, 1)),
    "transposed": (lambda a, b: od.ops.tanh(od.Variable(a).T @ b), _array(30, 70), _array(30, 50)),
    "batch": (_half_product, _array(4, 33, 40), _array(4, 40, 50)),
    "gradient": (_half_gradient, _array(70, 30), _array(30, 50)),
    "empty sums": (_half_product, _array(3, 0), _array(0, 2)),
}


@pytest.mark.parametrize("mode", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", HALF_PRODUCTS)
def test_products_of_autocast_read_both_matrices_in_half_precision(name, mode):
    fn, a, b = HALF_PRODUCTS[name]
    fn = od.autocast(mode)(fn)
    lowered = lower_for_device(od.compile(fn).lower(a, b).graph, shape=SMALL)
    code = {"float16": "f2", "bfloat16": "f2b"}[mode]
    calls = [call for calls in lowered.products.values() for call in calls]
    assert all(call.types == (code, code) for call in calls)
    counts = {"gradient": 2, "one column": 0}  # a column is a sum in a loop
    assert len(calls) == counts.get(name, 1)
    run = _GemmRun(lowered, [a, b])
    run.run()
    expected = np.asarray(fn(a, b))
    found = run.outputs()[0]
    assert found.dtype == expected.dtype
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}[mode]
    np.testing.assert_allclose(
        found.astype("f4"), expected.astype("f4"), rtol=tolerance, atol=tolerance
    )


def test_a_product_of_a_half_and_a_float32_matrix_reads_float32():
    a, b = _array(4, 30), _array(30, 50)
    for fn in (
        lambda a, b: od.ops.astype(a, "float16") @ b,
        lambda a, b: a @ od.ops.astype(b, "float16"),
        lambda a, b: (
            od.ops.astype(od.ops.astype(a, "float16"), "f4")
            @ od.ops.astype(od.ops.astype(b, "bfloat16"), "f4")
        ),
    ):
        lowered = lower_for_device(od.compile(fn).lower(a, b).graph, shape=SMALL)
        (calls,) = lowered.products.values()
        assert [call.types for call in calls] == [("f4", "f4")]
        run = _GemmRun(lowered, [a, b])
        run.run()
        np.testing.assert_allclose(run.outputs()[0], fn(a, b), rtol=1e-4, atol=1e-4)


class _Recorder:
    """A library in the place of cuBLAS that notes what it is called with."""

    def __init__(self, status=0):
        self.calls, self.status = [], status

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            return self.status

        return call


def test_a_change_of_streams_sets_the_workspace_again():
    library = _Recorder()
    cublas = Cublas(library, 4096)
    for stream in (7, 9):
        cublas.use_stream(stream)
    names = [name for name, _ in library.calls]
    assert names[1:] == ["cublasSetStream_v2", "cublasSetWorkspace_v2"] * 2
    assert library.calls[2][1][1].value == 4096


def _make(library, product):
    addresses = map(ctypes.c_void_p, (100, 200, 300))
    function, *arguments = gemm_call(library, ctypes.c_void_p(), product, *addresses)
    return function(*arguments)


def test_gemm_passes_the_arguments_in_the_order_of_the_library():
    library = _Recorder()
    call = GemmCall((1, 0), (5, 6, 7), (8, 9, 10), (11, 12, 13), 3, (0, 0, 0), ("f4", "f4"), 0.5)
    _make(library, call)
    name, given = library.calls[-1]
    assert name == "cublasGemmStridedBatchedEx"
    values = [getattr(one, "value", one) for one in given[1:6]]
    assert values == [1, 0, 5, 6, 7]
    plain = [getattr(one, "value", one) for one in given[7:]]
    assert plain[:8] == [100, 0, 8, 11, 200, 0, 9, 12]
    assert plain[9:] == [300, 0, 10, 13, 3, 68, -1]
    beta = ctypes.cast(given[15], ctypes.POINTER(ctypes.c_float))
    assert beta[0] == 0.5


@pytest.mark.parametrize(("dtype", "expected"), [("f4", 77), ("f8", 70), ("c8", 68)])
def test_tf32_changes_the_compute_type_of_products_of_float32_alone(dtype, expected):
    a, b = _array(4, 5, 6, dtype=dtype), _array(4, 6, 7, dtype=dtype)
    program = lower_for_device(od.compile(lambda a, b: a @ b).lower(a, b).graph).program
    (node,) = [step.node for step in program.steps if isinstance(step, ProductStep)]
    library = _Recorder()
    for tf32 in (True, False):
        (call,) = gemm_calls(program.plan, node, tf32)
        _make(library, call)
    types = [given[21] for name, given in library.calls if name == "cublasGemmStridedBatchedEx"]
    assert types == [expected, COMPUTE_TYPES[dtype]]


def test_a_status_of_the_library_is_a_device_error_with_its_meaning():
    with pytest.raises(DeviceError, match="cublasCreate gave status 3, allocation failed"):
        Cublas(_Recorder(3), 0)
