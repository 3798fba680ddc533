"""Hand-written CUDA kernels, compiled to PTX without a GPU where NVVM is installed."""

import importlib.util
import re

import numpy as np
import pytest

import odyssey as od
from odyssey import optim
from odyssey.errors import DeviceError
from odyssey.kernels import (
    attention,
    cuda,
    cuda_scatter,
    matrix_product,
    optimizer_step,
    pooling,
)
from odyssey.optim import device_step

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="numba is missing"),
]


def kernels(dtype):
    """Name, kernel and argument types of each; a letter for an array, a number for a tuple."""
    computed = cuda.computing_dtype(dtype)
    arrays = {
        "x": dtype,
        "c": computed,
        "k": np.int64,
        "i": np.int32,
        "b": np.bool_,
        "d": np.float64,
    }
    sizes = (dtype, 8, 16, 24)
    for kernel, text, options in (
        ("forward", "xxxbxc", (0, False)),
        ("forward", "xxxbxc", (1, True)),
        ("forward", "xxxxxc", (2, False)),
        ("q", "xxxxbccx", (1, True)),
        ("kv", "xxxxbccxx", (1, True, True, True)),
        ("kv", "xxxxbccxx", (1, True, True, False)),
        ("kv", "xxxxbccxx", (1, True, False, True)),
    ):
        function = getattr(attention, f"_attention_{kernel}")
        bound = attention.bind_attention_kernel(function, *sizes, *options)
        yield f"attention {kernel} {options}", bound, arrays, (*text, 4, 3, float)
    dots = attention.bind_attention_kernel(attention._attention_dots, *sizes, 0, False)
    yield "attention dots", dots, arrays, "xxc"
    tiles = cuda.bind_kernel(matrix_product._matmul_tiles, dtype, TILE=8, AREA=64)
    yield "product", tiles, arrays, ("x", "x", "x", 4, 3, 3)
    for largest in (True, False):
        windows, shares = [
            cuda.bind_kernel(kernel, dtype, LARGEST=largest)
            for kernel in (pooling._cuda_windows, pooling._cuda_shares)
        ]
        yield f"windows {largest}", windows, arrays, (*("xxxi" if largest else "xcxi"), 4, 8)
        yield f"shares {largest}", shares, arrays, (*("xxxixx" if largest else "xxxxcx"), 4, 8)
    for rule in (optim.SGD, optim.Adam):
        options = {"momentum": 0.9} if rule is optim.SGD else {"amsgrad": True}
        group = rule([od.Variable([1.0], True)], learning_rate=0.1, **options).groups[0]
        program = group.program(computed)
        numbers = device_step.step_numbers(program, 0.1, 0)
        source = device_step.step_source(program, group.rule().slots_for(dtype), numbers)
        step = optimizer_step.bind_step_kernel(source, dtype)
        yield f"step of {rule.__name__}", step, arrays, ("k", "d", int)
    normalize, merge, fold = cuda_scatter.bind_scatter_kernels(dtype)
    yield "normalize", normalize, arrays, ("k", "k", "k", int, int)
    yield "merge", merge, arrays, ("k", "k", "k", "k", int, int)
    yield "fold", fold, arrays, ("x", "k", "k", "x", 4, int)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_hand_written_kernels_compile_to_ptx_in_their_precision_without_local_memory(dtype):
    numba = pytest.importorskip("numba")
    names = []
    for name, kernel, arrays, kinds in kernels(np.dtype(dtype)):
        signature = []
        for kind in kinds:
            if type(kind) is str:
                element = numba.from_dtype(np.dtype(arrays[kind]))
                signature.append(numba.types.Array(element, 1, "C"))
            elif type(kind) is int:
                signature.append(numba.types.UniTuple(numba.types.int64, kind))
            else:
                signature.append(numba.types.float64 if kind is float else numba.types.int64)
        try:
            text = cuda.ptx(kernel, tuple(signature))
        except DeviceError as error:
            pytest.skip(str(error))
        assert ".target sm_90" in text, name
        assert "call.uni" not in text, name  # all steps are part of the kernel
        assert ".local" not in text, name
        double = re.findall(r"\b(?:add|sub|mul|fma|div)\S*\.f64\b", text)
        assert dtype == "float64" or not double, name
        names.append(name)
    assert len(names) == len(set(names)) == 18
