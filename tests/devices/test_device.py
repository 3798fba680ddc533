"""Devices: where Variables lie, what moves them, whose memory it is, and what fails by name."""

import gc
import os
import pickle
import subprocess
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices import backends, cupy_backend
from odyssey.devices.device import device_of
from odyssey.errors import (
    DeviceError,
    DeviceMemoryError,
    DTypeError,
    MutationError,
    SettingError,
    TapeError,
)


def leaf(data, device="cuda"):
    return Variable(np.asarray(data, np.float64), requires_grad=True, device=device)


# ------------------------------------------------------------------ names


def test_a_device_equals_its_name_and_survives_a_pickle(standin):
    one = od.devices.cuda(1)
    assert (str(one), one.platform, one.index) == ("cuda:1", "cuda", 1)
    assert one == "cuda:1" == od.devices.Device("cuda:1")
    assert one != od.devices.cuda(0)
    assert od.devices.Device("cuda") == "cuda:0"
    assert pickle.loads(pickle.dumps(one)) == one
    assert {one: 1}["cuda:1"] == 1


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:-1", "cpu:1", "cuda:1:0", "", 0, b"cpu"])
def test_names_of_no_device_are_refused_with_those_that_are(standin, name):
    with pytest.raises(DeviceError, match=r"is not available; pass 'cpu', 'cuda', 'cuda:1'"):
        Variable([1.0], device=name)


def test_a_card_that_is_not_there_is_refused_with_those_that_are(standin):
    with pytest.raises(DeviceError, match=r"'cuda:2' is not available: cuda:0 to cuda:1 are there"):
        od.devices.cuda(2)
    with pytest.raises(DeviceError, match=r"to: device 'cuda:2' is not available"):
        Variable([1.0]).to("cuda:2")
    with pytest.raises(SettingError, match="at least 0"):
        od.devices.cuda(-1)
    with pytest.raises(DTypeError, match="not a whole number"):
        od.devices.cuda("one")


IN_A_PROCESS = """
import sys
import odyssey as od
assert not [name for name in sys.modules if name.partition(".")[0] in ("cupy", "cupyx")]
try:
    od.Variable([1.0], device="cuda")
except od.errors.DeviceError as error:
    print(error)
assert float(od.Variable([1.0]).sum()) == 1.0
"""


@pytest.mark.slow
def test_without_cupy_the_error_says_what_to_install_and_the_import_reads_none_of_it():
    blocked = "import sys; sys.modules['cupy'] = None\n" + IN_A_PROCESS.replace(
        "assert not", "assert True or"
    )
    for script in (blocked, IN_A_PROCESS):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "device 'cuda' is not available: " in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install \"odyssey[cuda]\"; elsewhere pass device='cpu'" in done.stdout


# ------------------------------------------------------------------ Variables


def test_a_variable_lies_where_it_is_told_and_says_so(standin):
    w = leaf([1.0, 2.0], "cuda:1")
    assert w.device == "cuda:1"
    assert type(w._array) is standin.array_type
    assert repr(w) == (
        "Variable([1., 2.], shape=(2,), dtype=float64, device='cuda:1', requires_grad=True)"
    )
    assert Variable([1.0]).device == "cpu"
    assert "device" not in repr(Variable([1.0]))


def test_numpy_item_and_float_copy_to_the_host_and_no_conversion_does(standin):
    w = leaf([[3.0]])
    assert type(w.numpy()) is np.ndarray
    assert (w.item(), float(w.detach()), w.numpy()[0, 0], w.item(0, 0)) == (3.0, 3.0, 3.0, 3.0)
    for convert in (np.asarray, np.array, lambda v: np.ones((1, 1)) + np.asarray(v)):
        with pytest.raises(
            DeviceError, match=r"not copied to the host implicitly; pass .numpy\(\)"
        ):
            convert(w.detach())


def test_data_of_a_card_are_copies_that_change_no_variable(standin):
    host = np.arange(3.0)
    for v in (leaf(host), Variable(host, device="cuda")):
        host[0] = 9.0
        v.data[1] = 7.0
        v.numpy()[2] = 8.0
        host[0] = 0.0
        np.testing.assert_array_equal(v.numpy(), [0.0, 1.0, 2.0])


def test_an_array_of_the_card_is_copied_into_a_variable(standin):
    theirs = standin.to_device(np.arange(3.0), 1)
    for requires_grad in (False, True):
        v = Variable(theirs, requires_grad)
        assert v.device == "cuda:1"
        with standin.on(1):
            theirs[0] = 5.0
        np.testing.assert_array_equal(v.numpy(), [0.0, 1.0, 2.0])
        with standin.on(1):
            theirs[0] = 0.0


def test_a_variable_of_a_variable_stays_on_its_device_unless_told(standin):
    v = leaf([1.0, 2.0], "cuda:1")
    assert Variable(v).device == "cuda:1"
    assert Variable(v, device="cpu").device == "cpu"
    assert Variable(v, device="cuda").device == "cuda:0"
    np.testing.assert_array_equal(Variable(v, device="cuda").numpy(), [1.0, 2.0])


def test_copies_and_detached_values_stay_on_the_card(standin):
    from copy import copy, deepcopy

    w = leaf([1.0, 2.0])
    for made in (w.detach(), copy(w), deepcopy(w)):
        assert made.device == "cuda:0"
        np.testing.assert_array_equal(made.numpy(), [1.0, 2.0])


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int32", "int64", "bool", "complex64", "complex128"]
)
def test_zeros_and_ones_like_keep_dtype_and_device(standin, dtype):
    x = Variable(np.ones((2, 3), dtype), device="cuda:1")
    for like, value in ((ops.zeros_like, 0), (ops.ones_like, 1)):
        made = like(x)
        assert (str(made.dtype), str(made.device)) == (dtype, "cuda:1")
        np.testing.assert_array_equal(made.numpy(), np.full((2, 3), value, dtype))
    if np.dtype(dtype).kind not in "fc":
        with pytest.raises(DTypeError, match="cannot require gradients"):
            Variable(np.ones(2, dtype), requires_grad=True, device="cuda")


# ------------------------------------------------------------------ moving


def test_to_is_an_op_whose_gradient_flows_back_to_the_source(standin):
    w = leaf([1.0, 2.0], "cpu")
    with GradientTape(persistent=True) as tape:
        moved = w.to("cuda")
        y = (moved * moved).to("cuda:1")
        loss = ops.sum(y * 3.0).to("cpu")
        gradient = tape.gradient(loss, w)
    assert [str(v.device) for v in (moved, y, loss)] == ["cuda:0", "cuda:1", "cpu"]
    assert type(gradient) is np.ndarray
    np.testing.assert_array_equal(gradient, [6.0, 12.0])  # 2 * 3 * w


def test_to_has_second_derivatives_and_a_forward_mode(standin):
    def f(x):
        return ops.sum(x.to("cuda") ** 3).to("cpu")

    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(od.hessian(f)(x), np.diag(6 * x))
    value, slope = od.jvp(f, (x,), (np.ones(2),))
    assert (float(value), float(slope)) == (9.0, 15.0)


def test_to_the_same_device_is_the_variable_itself(standin):
    w = leaf([1.0])
    assert w.to("cuda") is w
    assert w.to(od.devices.cuda(0)) is w


def test_operands_on_two_devices_raise_and_name_both(standin):
    a, b, c = leaf([1.0]), leaf([1.0], "cuda:1"), leaf([1.0], "cpu")
    for x, y, names in (
        (a, b, ("cuda:0", "cuda:1")),
        (a, c, ("cuda:0", "cpu")),
        (c, b, ("cuda:1", "cpu")),
    ):
        for apply in (
            lambda x, y: x + y,
            lambda x, y: ops.matmul(x, y),
            lambda x, y: y - x,
            lambda x, y: ops.where(x > 0, x, y),
        ):
            with pytest.raises(DeviceError) as caught:
                apply(x, y)
            assert all(name in str(caught.value) for name in names)
    np.testing.assert_array_equal((a + 1.0 + np.float64(2.0)).numpy(), [4.0])


# ------------------------------------------------------------------ writing


def test_assign_takes_values_of_the_host_and_of_the_card_but_not_of_another(standin):
    w = leaf([1.0, 2.0])
    w.assign([3.0, 4.0])
    w.assign(Variable([5.0, 6.0], device="cuda") * 2.0)
    np.testing.assert_array_equal(w.numpy(), [10.0, 12.0])
    w += 1.0
    np.testing.assert_array_equal(w.numpy(), [11.0, 13.0])
    assert w.device == "cuda:0"
    with pytest.raises(DeviceError, match=r"the value is on cuda:1, and must be on cuda:0"):
        w.assign(Variable([0.0, 0.0], device="cuda:1"))
    home = leaf([1.0, 2.0], "cpu")
    with pytest.raises(DeviceError, match=r"the value is on cuda:0, and must be on cpu"):
        home.assign(w)
    np.testing.assert_array_equal(w.numpy(), [11.0, 13.0])
    np.testing.assert_array_equal(home.numpy(), [1.0, 2.0])


def test_snapshots_keep_the_old_numbers_of_a_leaf(standin):
    w = leaf([1.0, 2.0])
    before, detached = w.data, w.detach()
    w.assign([3.0, 4.0])
    np.testing.assert_array_equal(standin.to_host(before), [1.0, 2.0])
    np.testing.assert_array_equal(detached.numpy(), [1.0, 2.0])


@pytest.mark.parametrize("size", [4, 1 << 12])
def test_a_users_array_of_the_card_that_a_tape_keeps_is_copied_or_watched(standin, size):
    theirs = standin.to_device(np.ones(size), 0)
    w = leaf(np.ones(size))
    with GradientTape() as tape:
        loss = ops.sum(w * theirs)
    theirs[0] = 7.0
    if theirs.nbytes <= 2048:
        np.testing.assert_array_equal(standin.to_host(tape.gradient(loss, w)), np.ones(size))
    else:
        with pytest.raises(MutationError, match="was written to since"):
            tape.gradient(loss, w)


def test_a_users_large_array_that_is_not_written_to_serves_the_sweep(standin):
    theirs = standin.to_device(np.full(1 << 12, 2.0), 0)
    w = leaf(np.ones(1 << 12))
    with GradientTape() as tape:
        loss = ops.sum(w * theirs)
    np.testing.assert_array_equal(standin.to_host(tape.gradient(loss, w)), np.full(1 << 12, 2.0))


def test_intermediates_die_with_their_last_name_and_leaves_live(standin):
    w = leaf(np.ones(100))
    gc.disable()
    try:
        with GradientTape() as tape:
            h = ops.exp(w * 2.0)
            loss = ops.sum(h * h)
        seen, kept = weakref.ref(h._array), weakref.ref(w._array)
        tape.backward(loss)
        del h, loss, tape
        assert seen() is None
        assert kept() is w._array
    finally:
        gc.enable()


# ------------------------------------------------------------------ other libraries


def test_libraries_of_the_card_read_a_constant_without_a_copy(standin):
    v = Variable(np.arange(6.0).reshape(2, 3), device="cuda")
    shown = v.__cuda_array_interface__
    assert shown["data"][0] == standin.pointer(v._array)
    assert shown["shape"] == (2, 3)
    with pytest.raises(TapeError, match=r"__cuda_array_interface__: detach\(\)"):
        leaf([1.0]).__cuda_array_interface__  # noqa: B018
    assert not hasattr(Variable([1.0]), "__cuda_array_interface__")


def test_dlpack_hands_out_the_cards_own_memory(standin, monkeypatch):
    monkeypatch.setattr(
        standin.array_type,
        "__dlpack__",
        lambda self, **options: ("capsule", id(self), options),
        raising=False,
    )
    monkeypatch.setattr(
        standin.array_type, "__dlpack_device__", lambda self: (2, self.device), raising=False
    )
    v = Variable([1.0], device="cuda:1")
    assert v.__dlpack__(stream=2) == ("capsule", id(v._array), {"stream": 2})
    assert v.__dlpack_device__() == (2, 1)
    with pytest.raises(TapeError, match=r"__dlpack__: detach\(\)"):
        leaf([1.0]).__dlpack__()


# ------------------------------------------------------------------ memory and caches


def test_memory_counts_arrays_and_buffers_of_programs_and_one_limit_holds_for_both(standin):
    device = od.devices.cuda(1)
    start = device.memory_stats()["in_use"]
    v = Variable(np.zeros(1000), device=device)
    buffer = standin.allocate(4000, 1)  # as a compiled program does
    assert device.memory_stats()["in_use"] - start == 8000 + 4000
    assert standin.memory_span(buffer)[1] - standin.memory_span(buffer)[0] == 4000
    device.memory_limit = start + 13000
    try:
        assert device.memory_limit == start + 13000
        for take in (
            lambda: standin.allocate(2000, 1),
            lambda: Variable(np.zeros(250), device=device),
        ):
            with pytest.raises(DeviceMemoryError, match="Out of memory"):
                take()
        np.testing.assert_array_equal(v.numpy(), np.zeros(1000))
        del buffer
        assert standin.allocate(2000, 1).size == 2000
    finally:
        device.memory_limit = None
    device.reset_peak()
    assert device.memory_stats()["peak"] == device.memory_stats()["in_use"]


def test_out_of_memory_leaves_leaf_and_tape_as_they_were(standin):
    device = od.devices.cuda(0)
    w = leaf(np.ones(1000))
    with GradientTape() as tape:
        loss = ops.sum(w * 3.0)
    device.memory_limit = device.memory_stats()["in_use"] + 100
    try:
        with pytest.raises(DeviceMemoryError, match=r"exp: .*Out of memory"):
            ops.exp(w)
        with pytest.raises(DeviceMemoryError):
            w.assign(np.zeros(1000))
    finally:
        device.memory_limit = None
    np.testing.assert_array_equal(w.numpy(), np.ones(1000))
    np.testing.assert_array_equal(standin.to_host(tape.gradient(loss, w)), np.full(1000, 3.0))
    assert float(Variable(2.0) * 3.0) == 6.0


def test_memory_that_the_pool_held_is_freed_and_the_call_repeated_once(standin, monkeypatch):
    freed, calls = [], []
    monkeypatch.setattr(standin, "free_memory", freed.append)

    def fails_once():
        calls.append(1)
        if len(calls) == 1:
            raise DeviceMemoryError("short")
        return "done"

    assert standin.call("example", 1, fails_once) == "done"
    assert (freed, len(calls)) == ([1], 2)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_cache_keeps_at_most_its_limit_and_none_once_cleared(standin, limit):
    device = od.devices.cuda(0)
    cache, before = standin.cache(0), device.cache_limit
    try:
        device.clear_cache()
        device.cache_limit = limit
        made = [cache.get(k % 5, lambda k=k: k % 5) for k in range(20)]
        assert made == [k % 5 for k in range(20)]
        assert device.cache_stats()["entries"] == limit
        assert device.cache_stats()["hits"] + device.cache_stats()["misses"] == 20
        device.clear_cache()
        assert device.cache_stats() == {"entries": 0, "limit": limit, "hits": 0, "misses": 0}
        with pytest.raises(SettingError, match="cache_limit=-1; it must be at least 0"):
            device.cache_limit = -1
        assert device.cache_limit == limit
    finally:
        device.cache_limit = before


def test_tables_of_rows_are_entries_of_the_cache_and_its_limit_holds_for_them(standin):
    device = od.devices.cuda(0)
    x = Variable(np.arange(16.0).reshape(1, 1, 4, 4), device="cuda")
    device.clear_cache()
    first = ops.interpolate(x, size=(6, 6), mode="bicubic").numpy()
    filled = device.cache_stats()["entries"]
    assert filled > 0
    before, device.cache_limit = device.cache_limit, 1
    try:
        assert device.cache_stats()["entries"] == 1
        np.testing.assert_array_equal(
            ops.interpolate(x, size=(6, 6), mode="bicubic").numpy(), first
        )
        assert device.cache_stats()["entries"] == 1
        device.clear_cache()
        assert device.cache_stats()["entries"] == 0
    finally:
        device.cache_limit = before


def test_the_cpu_waits_for_nothing_has_no_limit_and_tells_its_memory():
    assert od.devices.cpu.synchronize() is None
    stats = od.devices.cpu.memory_stats()
    assert stats["limit"] is None
    assert stats["in_use"] is None or 0 < stats["in_use"] <= stats["peak"]
    assert od.devices.cpu.cache_stats()["entries"] == 0
    with pytest.raises(DeviceError, match=r"od.compile\(memory_limit=\)"):
        od.devices.cpu.memory_limit = 1000
    with pytest.raises(SettingError, match="memory_limit=0"):
        od.devices.cpu.memory_limit = 0


# ------------------------------------------------------------------ waiting and errors


def test_synchronize_waits_and_each_op_does_when_asked(standin, monkeypatch):
    before = standin.waited
    od.devices.cuda(0).synchronize()
    assert standin.waited == before + 1
    w = leaf([1.0])
    monkeypatch.delenv("ODYSSEY_CUDA_SYNC", raising=False)
    before = standin.waited
    ops.exp(w)
    assert standin.waited == before
    monkeypatch.setenv("ODYSSEY_CUDA_SYNC", "1")
    ops.exp(w)
    assert standin.waited > before


class CUDARuntimeError(RuntimeError):
    """As CuPy's, which is found by its name."""


class OutOfMemoryError(MemoryError):
    """As ``cupy.cuda.memory.OutOfMemoryError``."""


FAILURES = {
    "cudaErrorIllegalAddress: an illegal memory access was encountered": "illegal address",
    "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered": "illegal address",
    "cudaErrorMisalignedAddress: misaligned address": "illegal address",
    "cudaErrorLaunchFailure: unspecified launch failure": "a kernel failed",
    "cudaErrorDevicesUnavailable: all devices are busy": "lost or busy",
    "CUDA_ERROR_DEVICE_LOST: device lost": "the device is lost",
    "cudaErrorInvalidResourceHandle: invalid resource handle": "foreign stream",
    "CUDA_ERROR_INVALID_HANDLE: invalid resource handle": "foreign stream",
    "cudaErrorStreamCaptureUnsupported: not permitted when stream is capturing": "being captured",
    "cudaErrorInsufficientDriver: CUDA driver version is insufficient": "driver 580",
    "cudaErrorUnknown: unknown error": "CUDA failed: cudaErrorUnknown",
}


@pytest.mark.parametrize(
    ("text", "words"), FAILURES.items(), ids=[t.partition(":")[0] for t in FAILURES]
)
def test_errors_of_cuda_get_a_name_and_say_what_to_do(text, words):
    backend = object.__new__(cupy_backend.CupyBackend)
    found = backend.named_error("matmul", CUDARuntimeError(text))
    assert type(found) is DeviceError
    assert str(found).startswith("matmul: ")
    assert words in str(found)
    assert text in str(found)


def test_errors_of_others_pass_and_want_of_memory_is_named():
    backend = object.__new__(cupy_backend.CupyBackend)
    assert backend.named_error("exp", ValueError("theirs")) is None
    assert backend.named_error("exp", DeviceError("ours")) is None
    for error in (
        OutOfMemoryError("Out of memory allocating 8 bytes"),
        CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"),
    ):
        found = backend.named_error("exp", error)
        assert type(found) is DeviceMemoryError
        assert "checkpoint" in str(found)


def test_an_error_in_a_kernel_names_the_op_and_the_cpu_goes_on(standin, monkeypatch):
    monkeypatch.setattr(
        standin,
        "named_error",
        lambda who, error: cupy_backend.CupyBackend.named_error(standin, who, error),
    )

    def fails(*_, **__):
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")

    w, home = leaf([1.0, 2.0]), leaf([1.0, 2.0], "cpu")
    monkeypatch.setattr(standin, "on", fails)
    with pytest.raises(DeviceError, match=r"exp: a kernel read or wrote outside .*illegal address"):
        ops.exp(w)
    np.testing.assert_array_equal(ops.exp(home).numpy(), np.exp([1.0, 2.0]))


def test_an_array_with_gaps_is_made_contiguous_where_it_lies_before_it_moves():
    current = []

    class Device:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            current.append(self.index)

        def __exit__(self, *_):
            current.pop()

    def made(how):
        def copy(array, order="C"):
            copies.append((how, *current, array.flags.forc))
            return np.array(array, order=order)

        return copy

    copies = []
    backend = object.__new__(cupy_backend.CupyBackend)
    backend._cupy = SimpleNamespace(
        cuda=SimpleNamespace(Device=Device), array=made("moved"), ascontiguousarray=made("packed")
    )
    backend.device_index = lambda array: 0
    backend.move(np.ones((4, 4))[::2, ::2], 1)
    assert copies == [("packed", 0, False), ("moved", 1, True)]
    copies.clear()
    backend.move(np.ones((4, 4)).T, 1)
    assert copies == [("moved", 1, True)]


# ------------------------------------------------------------------ installing


class Other(backends.Backend):
    platform = "other"
    array_type = type("OtherArray", (), {})


def test_what_is_uninstalled_leaves_nothing_behind():
    from odyssey.devices import arrays
    from odyssey.tape import queries

    before = arrays.ARRAYS, arrays.ARRAY_LIKE
    backend = Other()
    backends.install(backend)
    backends.install(backend)  # again, which changes nothing
    assert backend.array_type in queries.ARRAYS
    assert queries.ARRAYS is arrays.ARRAYS
    assert backends.backend_of(backend.array_type()) is backend
    assert backends.installed("other") is backend
    backends.uninstall(backend)
    backends.uninstall(backend)
    assert before == (arrays.ARRAYS, arrays.ARRAY_LIKE)
    assert before[0] == queries.ARRAYS
    assert backends.backend_of(backend.array_type()) is None
    assert backends.installed("other") is None


def test_arrays_of_numpy_belong_to_the_cpu():
    assert device_of(np.ones(2)) == od.devices.cpu
    assert backends.backend_of(np.float64(1.0)) is None
    assert os.environ.get("ODYSSEY_CUDA_SYNC", "0") in ("", "0")
