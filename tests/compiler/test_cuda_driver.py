"""Programs by the CUDA driver, which a strict stand-in computes on host memory."""

import ctypes
import gc
import re
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")

import odyssey as od
from odyssey import ops
from odyssey.compiler.cuda import driver as driver_module
from odyssey.compiler.cuda.driver import DeviceContext, DriverLauncher, load_driver
from odyssey.compiler.cuda.host_launcher import HostLauncher
from odyssey.compiler.cuda.launcher import Cell
from odyssey.compiler.cuda.program import CheckStep, CopyStep, Launch, ProductStep, ZeroStep
from odyssey.devices.backends import Backend
from odyssey.devices.cupy_backend import CupyBackend
from odyssey.errors import DeviceError, DeviceMemoryError
from support.fake_driver import FakeBackend, FakeDriver
from support.faults import interrupt
from support.launched import LaunchedRun, lowered_for_device
from support.standin import installed
from support.threads import run_in_threads

RNG = np.random.default_rng(3)
X = RNG.normal(size=(5, 4)).astype("f4")
CLASSES = np.array([0, 1, 2, 3, 1])
WIDE = RNG.normal(size=(3, 70)).astype("f4")
BATCH = RNG.normal(size=(3, 4, 5)).astype("f4")


def training_step():
    """A step with products, a check, and a product that is written over a state."""
    w = od.Variable(RNG.normal(size=(4, 4)).astype("f4"), name="w")

    def step(x, classes):
        loss = od.losses.cross_entropy(x @ w, classes)
        w.assign(x.T @ x)
        return loss

    return step


def overwriting_step():
    """A step that becomes two kernels, of which the first writes over what the second reads."""
    w = od.Variable(RNG.normal(size=(70, 3)).astype("f4"), name="w")

    def step():
        rows = ops.sum(w, axis=1, keepdims=True)
        columns = ops.sum(w / rows, axis=0)
        w.assign(w - rows * 0.25)
        return columns

    return step


PROGRAMS = {
    "elementwise": (lambda x: ops.tanh(x) * x + 1, X),
    "rows by barriers": (lambda x: ops.sum(x * x, axis=1), WIDE),
    "sum of all": (lambda x: ops.sum(x * 2), WIDE),
    "product": (lambda x: x @ x.T, X),
    "batch": (lambda x: x.swapaxes(1, 2) @ x, BATCH),
    "complex": (lambda x: x @ x.T, (X[:4] + 1j).astype("c8")),
    "gaps": (lambda x: od.grad(lambda x: (x[::2] * x[1:2]).sum())(x), X),
    "copy": (overwriting_step(),),
    "step": (training_step(), X, CLASSES),
    "step with a class out of range": (training_step(), X, CLASSES + 1),
}


class Session:
    """A program that is loaded by the fake driver, and its memory."""

    def __init__(self, fn, *args, driver=None, backend=None, index=0):
        self.driver = driver or FakeDriver()
        self.backend = backend or FakeBackend(self.driver)
        self.args = args
        self.lowered, self.states = lowered_for_device(fn, *args)
        self.load(index)

    def load(self, index=0):
        self.launcher = self.backend.launcher(index)
        self.seconds = self.launcher.load(self.lowered.program)
        self.run = self.new_run()

    def new_run(self):
        copies = {k: state.copy() for k, state in self.states.items()}
        allow = self.driver.allow
        return LaunchedRun(self.lowered, self.launcher, self.args, copies, allow)

    def expected(self):
        """The same program by the host launcher, run once."""
        launcher = HostLauncher()
        launcher.load(self.lowered.program)
        copies = {k: state.copy() for k, state in self.states.items()}
        found = LaunchedRun(self.lowered, launcher, self.args, copies)
        found.run()
        return found


def assert_same(run, expected):
    for found, wanted in zip(run.outputs(), expected.outputs(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    for k, state in expected.states.items():
        np.testing.assert_array_equal(run.states[k], state)
    assert run.truths == expected.truths


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_bits_of_the_host_launcher(name):
    session = Session(*PROGRAMS[name])
    session.run.run()
    assert_same(session.run, session.expected())
    assert set(session.seconds) == {"ptx", "load"}


def test_the_programs_have_all_kinds_of_steps():
    kinds = {
        type(step)
        for fn, *args in PROGRAMS.values()
        for step in lowered_for_device(fn, *args)[0].program.steps
    }
    assert {Launch, ProductStep, CheckStep, CopyStep, ZeroStep} <= kinds


def test_results_are_numpys():
    session = Session(*PROGRAMS["product"])
    session.run.run()
    np.testing.assert_allclose(session.run.outputs()[0], X @ X.T, rtol=1e-5, atol=1e-6)


def test_calls_are_functions_of_c_without_code_of_python():
    session = Session(*PROGRAMS["step"])
    byte = np.zeros(1, np.uint8)
    cell = next(iter(session.run.cells.values()))
    launcher = session.launcher
    calls = [
        *session.run.calls,
        launcher.upload_call(cell, byte.ctypes.data, 1),
        launcher.download_call(byte.ctypes.data, cell, 1),
        launcher.copy_call(cell, cell, 0),
    ]
    libraries = vars(session.driver.library) | vars(session.driver.cublas)
    for function, *_ in calls:
        assert function in libraries.values() or function in (next, int)


def test_addresses_are_read_when_a_call_is_made():
    session = Session(*PROGRAMS["step"])
    expected = session.expected()
    session.run.run()
    for k, state in session.states.items():
        session.run.states[k][...] = state
    for array in session.run.move():
        session.driver.allow(array)
    session.run.run()
    assert_same(session.run, expected)


def test_a_launch_keeps_its_cells_and_its_module():
    session = Session(*PROGRAMS["elementwise"])
    expected = session.expected()
    session.run.cells.clear()
    context = session.launcher._context
    session.launcher.begin_run()
    calls, session.launcher, session.run.launcher = session.run.calls, None, None
    gc.collect()
    context.synchronize()
    for function, *arguments in calls:
        assert function(*arguments) == 0
    context.synchronize()
    assert_same(session.run, expected)


# ------------------------------------------------------------------ host memory


def test_uploads_of_many_runs_are_on_their_way_at_one_time():
    session = Session(*PROGRAMS["elementwise"])
    memory = np.zeros((20, 12), np.uint8)
    session.driver.allow(memory)
    source, other = np.zeros(8, np.uint8), np.zeros(4, np.uint8)
    cell, behind = Cell(), Cell()
    launcher = session.launcher
    calls = [
        launcher.upload_call(cell, source.ctypes.data, 8),
        launcher.upload_call(behind, other.ctypes.data, 4),
    ]
    before = len(session.driver.calls)
    for k in range(20):
        source[:], other[:] = k + 1, 100 + k
        cell.value = memory[k].ctypes.data
        behind.value = cell.value + 8
        session.run.make(calls)
    assert not memory[-1].any(), "the last copies did not run yet"
    assert "cuStreamSynchronize" not in session.driver.calls[before:]
    launcher.wait("run")
    np.testing.assert_array_equal(memory[:, 0], np.arange(1, 21))
    np.testing.assert_array_equal(
        memory[:, 7:9], np.stack([np.arange(20) + 1, np.arange(20) + 100], 1)
    )
    assert session.driver.alive()["host"] == 1
    more = launcher.upload_call(Cell(memory[0].ctypes.data), source.ctypes.data, 8)
    session.run.make([*calls, more])
    launcher.wait("run")
    np.testing.assert_array_equal(memory[0, :8], source)
    launcher.wait("run")
    assert session.driver.calls.count("cuMemHostAlloc") == 2
    assert session.driver.alive()["host"] == 1, "the smaller memory is released"


def test_a_large_upload_waits_and_so_does_a_download():
    session = Session(*PROGRAMS["elementwise"])
    session.backend.current_stream = 2
    device, source, target = (np.zeros(1 << 17, np.uint8) for _ in range(3))
    session.driver.allow(device)
    source[:] = RNG.integers(0, 256, source.size)
    launcher, cell = session.launcher, Cell(device.ctypes.data)
    session.driver.streams_used.clear()
    upload = launcher.upload_call(cell, source.ctypes.data, source.size)
    expected = source.copy()
    session.run.make([upload])
    source[:] = 0
    session.run.make([launcher.download_call(target.ctypes.data, cell, target.size)])
    np.testing.assert_array_equal(target, expected)
    copies = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"]
    waited = [(name, 2) for copy in copies for name in (copy, "cuStreamSynchronize")]
    assert session.driver.streams_used == waited


def test_no_bytes_are_no_copy_but_a_download_of_none_waits():
    session = Session(*PROGRAMS["elementwise"])
    launcher, cell = session.launcher, Cell(0)
    calls = [launcher.copy_call(cell, cell, 0), launcher.zero_call(cell, 0)]
    calls += [launcher.upload_call(cell, 0, 0), launcher.download_call(0, cell, 0)]
    session.driver.calls.clear()
    session.run.make(calls)
    assert session.driver.calls == ["cuCtxSetCurrent", "cuStreamSynchronize"]


@pytest.mark.parametrize("call", [1, 2])
def test_a_download_fails_if_the_copy_or_the_wait_fails(call):
    session = Session(*PROGRAMS["elementwise"])
    byte = np.zeros(1, np.uint8)
    session.driver.allow(byte)
    session.driver.fail(call, 700)
    download = session.launcher.download_call(byte.ctypes.data, Cell(byte.ctypes.data), 1)
    with pytest.raises(DeviceError, match=r"cuda: loss: .*illegal address.*CUDA_ERROR_ILLEGAL"):
        session.run.make([download], ["loss"])


# ------------------------------------------------------------------ graphs


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_gives_the_bits_of_its_calls(name):
    session = Session(*PROGRAMS[name])
    expected = session.expected()
    session.launcher.begin_run()
    launched, streams = list(session.driver.launched), session.driver.streams_used
    graph = session.launcher.graph_call(session.run.calls)
    session.launcher.wait("run")
    assert session.driver.launched == launched, "the calls were made"
    streams.clear()
    session.run.make([graph])
    assert streams == [("cuGraphLaunch", 0)]
    session.run.calls.clear()  # the checks alone
    session.run.run()
    assert_same(session.run, expected)


def test_a_graph_has_the_addresses_of_its_recording():
    session = Session(*PROGRAMS["product"])
    session.launcher.begin_run()
    graph = session.launcher.graph_call(session.run.calls)
    before = dict(session.run._memory)
    for array in session.run.move():
        session.driver.allow(array)
    session.run.make([graph])
    session.launcher.wait("run")
    assert np.all(session.run._memory["output", 0] == 0xA5)
    found = before["output", 0][: 25 * 4].view("f4").reshape(5, 5)
    np.testing.assert_allclose(found, X @ X.T, rtol=1e-5, atol=1e-6)


def test_calls_after_a_recording_run_in_the_stream_of_eager_ops():
    session = Session(*PROGRAMS["step"])
    session.backend.current_stream = 2
    session.launcher.begin_run()
    session.launcher.graph_call(session.run.calls)
    session.driver.streams_used.clear()
    session.run.run()
    assert {stream for _, stream in session.driver.streams_used} == {2}
    assert_same(session.run, session.expected())


def test_a_wait_within_a_recording_is_an_error_and_nothing_was_made():
    session = Session(*PROGRAMS["product"])
    session.launcher.begin_run()
    wait = session.driver.library.cuStreamSynchronize, session.launcher._stream
    with pytest.raises(DeviceError, match=r"call 1 of a graph: the stream is being captured"):
        session.launcher.graph_call([*session.run.calls, wait])
    session.launcher.wait("run")
    assert np.all(session.run._memory["output", 0] == 0xA5)
    session.run.make([session.launcher.graph_call(session.run.calls)])
    session.launcher.wait("run")
    assert_same(session.run, session.expected())


def test_copies_from_and_to_the_host_are_not_recorded():
    session = Session(*PROGRAMS["product"])
    session.launcher.begin_run()
    byte = np.zeros(1, np.uint8)
    for made in (
        session.launcher.upload_call(Cell(), byte.ctypes.data, 1),
        session.launcher.download_call(byte.ctypes.data, Cell(), 1),
    ):
        with pytest.raises(AssertionError, match="a copy from or to the host"):
            session.launcher.graph_call([*session.run.calls, made])


def test_a_dropped_graph_is_released_when_the_device_is_waited_for():
    session = Session(*PROGRAMS["step"])
    session.launcher.begin_run()
    graphs = [session.launcher.graph_call(session.run.calls) for _ in range(3)]
    assert session.driver.alive()["exec"] == 3
    del graphs[1:]
    gc.collect()
    assert session.driver.alive()["exec"] == 3
    session.launcher.wait("run")
    assert session.driver.alive() == {"module": 1, "stream": 1, "cublas": 2, "exec": 1}
    session.run.make(graphs)
    session.run.calls.clear()
    session.run.run()  # of checks alone
    assert_same(session.run, session.expected())


def test_a_graph_outlives_its_launcher():
    session = Session(*PROGRAMS["step"])
    session.launcher.begin_run()
    run, expected, context = session.run, session.expected(), session.launcher._context
    function, *arguments = session.launcher.graph_call(run.calls)
    assert "graph" not in session.driver.alive(), "the executable one is enough"
    session.launcher = run.launcher = None
    run.calls.clear()
    gc.collect()
    context.synchronize()
    assert function(*arguments) == 0
    context.synchronize()
    run.truths = expected.truths  # no launcher reads them
    assert_same(run, expected)


def test_a_recording_releases_the_graphs_before_it():
    session = Session(*PROGRAMS["product"])
    session.launcher.begin_run()
    for _ in range(5):
        session.launcher.graph_call(session.run.calls)
        gc.collect()
        assert session.driver.alive()["exec"] == 1


# ------------------------------------------------------------------ streams, threads, devices


def test_another_stream_waits_for_the_runs_of_the_one_before():
    session = Session(*PROGRAMS["step"])
    waits = []
    for stream in (0, 0, 2, 2, 0):
        session.backend.current_stream = stream
        before = len(session.driver.calls)
        session.run.make(session.run.calls)
        waits.append(session.driver.calls[before:].count("cuCtxSynchronize"))
    assert waits == [0, 0, 1, 0, 1]
    used = [stream for name, stream in session.driver.streams_used if "Gemm" in name]
    assert used == [0] * 4 + [2] * 4 + [0] * 2


def test_the_first_run_waits_for_constants_that_were_copied_in_another_stream():
    session = Session(*PROGRAMS["step"])
    session.backend.current_stream = 2
    before = len(session.driver.calls)
    session.run.make(session.run.calls)
    calls = session.driver.calls[before:]
    assert calls.index("cuCtxSynchronize") < calls.index("cuLaunchKernel")
    session.run.make(session.run.calls)
    assert session.driver.calls[before:].count("cuCtxSynchronize") == 1


def test_programs_of_one_stream_share_a_handle_of_cublas():
    session = Session(*PROGRAMS["product"])
    other = Session(*PROGRAMS["batch"], driver=session.driver, backend=session.backend)
    for each in (session, other, session):
        each.run.run()
    assert session.driver.alive()["cublas"] == 1
    assert session.driver.calls.count("cublasCreate_v2") == 1


def test_products_may_be_added_after_a_run():
    session = Session(*PROGRAMS["product"])
    fresh = session.backend.launcher(0)
    fresh.begin_run()
    session.launcher, session.run = fresh, None
    session.run = session.new_run()
    session.run.run()
    assert_same(session.run, session.expected())


def test_programs_without_products_do_not_load_cublas():
    session = Session(*PROGRAMS["elementwise"])
    session.run.run()
    session.run.make([session.launcher.graph_call(session.run.calls)])
    assert not any("cublas" in name for name in session.driver.calls)


def test_each_thread_gets_the_context_of_the_device():
    driver = FakeDriver(devices=2)
    backend = FakeBackend(driver)
    sessions = [
        Session(*PROGRAMS[name], driver=driver, backend=backend, index=index)
        for name, index in (("batch", 0), ("product", 1), ("sum of all", 1))
    ]

    def work(session):
        expected = session.expected()
        for _ in range(2):
            session.run.run()
            assert_same(session.run, expected)
            session.run.make([session.launcher.graph_call(session.run.calls)])

    run_in_threads(*[partial(work, session) for session in sessions])


def test_the_own_stream_of_each_thread_is_another_one():
    session = Session(*PROGRAMS["product"])
    session.backend.current_stream = 2
    session.run.run()
    before = len(session.driver.calls)
    thread = threading.Thread(target=session.run.run)
    thread.start()
    thread.join()
    calls = session.driver.calls[before:]
    assert calls.index("cuCtxSynchronize") < calls.index("cublasGemmStridedBatchedEx")
    assert session.launcher._key == (2, thread.ident)
    assert_same(session.run, session.expected())


# ------------------------------------------------------------------ devices


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        *[((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 7), "sm_86"), ((8, 9), "sm_89")],
        *[((9, 0), "sm_90"), ((10, 3), "sm_90"), ((12, 0), "sm_90")],
    ],
)
def test_ptx_is_for_the_latest_architecture_that_is_not_newer(capability, architecture):
    backend = FakeBackend(FakeDriver(capability))
    assert backend.launcher(0)._context.architecture == architecture


def test_a_device_that_is_too_old_is_named():
    backend = FakeBackend(FakeDriver((7, 0)))
    with pytest.raises(DeviceError, match=r"compute capability 7\.0, and programs need 7\.5"):
        backend.launcher(0)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(DeviceError, match=r"cuda: cuDeviceGet: there is no such device"):
        FakeBackend(FakeDriver(devices=2)).launcher(2)


def test_a_driver_that_lacks_a_function_is_too_old():
    driver = FakeDriver()
    del driver.library.cuGraphInstantiateWithFlags
    with pytest.raises(DeviceError, match=r"no cuGraphInstantiateWithFlags; install driver 580"):
        FakeBackend(driver).launcher(0)


def test_a_missing_driver_is_named(monkeypatch):
    def refuse(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(DeviceError, match=r"driver cannot be loaded \(libcuda.so.1: .*driver 580"):
        load_driver()


def test_an_error_of_the_compilation_has_the_log_of_the_driver():
    driver = FakeDriver()
    backend = FakeBackend(driver)
    lowered, _ = lowered_for_device(*PROGRAMS["elementwise"])
    launcher = DriverLauncher(DeviceContext(backend, 0, driver.library))
    with pytest.raises(DeviceError, match=r"cuModuleLoadDataEx: .*INVALID_PTX.*ptxas fatal : no"):
        launcher.load(lowered.program)
    assert driver.alive() == {}


def test_the_backend_of_cupy_makes_launchers_and_others_need_not():
    assert CupyBackend.launcher.__doc__
    with pytest.raises(DeviceError, match="has no programs for"):
        Backend().launcher(0)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (700, DeviceError, r"outside of its arrays \(illegal address\).*ODYSSEY_CUDA_SYNC=1"),
        (719, DeviceError, r"a kernel failed; the device is unusable.*CUDA_ERROR_LAUNCH_FAILED"),
        (2, DeviceMemoryError, r"too little memory: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        (1, DeviceError, r"CUDA failed: CUDA_ERROR_INVALID_VALUE: invalid argument"),
        (12345, DeviceError, r"CUDA failed: status 12345"),
    ],
)
def test_a_status_names_the_kernel_and_what_it_means(status, kind, message):
    session = Session(*PROGRAMS["rows by barriers"])
    kernel = session.run.names[0]
    session.launcher.begin_run()
    session.driver.fail(1, status, sticky=True)
    with pytest.raises(kind, match=rf"cuda: {kernel}: .*{message}"):
        session.run.make(session.run.calls, session.run.names)


def test_a_status_of_cublas_is_none_of_the_driver():
    session = Session(*PROGRAMS["product"])
    session.run.run()
    session.driver.fail(1, 13)  # behind cuCtxSetCurrent
    with pytest.raises(
        DeviceError, match=r"cuda: matmul gave status 13, execution failed, of cuBLAS"
    ):
        session.run.make(session.run.calls, session.run.names)


def test_the_first_error_of_a_run_is_raised():
    launcher = Session(*PROGRAMS["elementwise"]).launcher
    launcher.check_statuses([0, None, 0], ["a", "b", "c"])
    with pytest.raises(DeviceError, match=r"cuda: b: .*illegal address"):
        launcher.check_statuses([0, 700, 1], ["a", "b", "c"])


def test_a_module_that_has_no_room_is_loaded_again_after_the_pool_was_emptied():
    driver = FakeDriver()
    backend = FakeBackend(driver)
    lowered, _ = lowered_for_device(*PROGRAMS["elementwise"])
    launcher = backend.launcher(0)
    emptied = []
    backend.free_memory = emptied.append
    driver.fail(1, 2)
    launcher.load(lowered.program)
    assert emptied == [0]
    assert driver.calls.count("cuModuleLoadDataEx") == 2


def use_the_whole_driver(backend):
    """Load a program, run it by calls and by graphs in two streams, wait, and drop it."""
    driver, (lowered, states) = backend.driver, LOWERED_STEP
    launcher = backend.launcher(0)
    launcher.load(lowered.program)
    copies = {k: state.copy() for k, state in states.items()}
    run = LaunchedRun(lowered, launcher, PROGRAMS["step"][1:], copies, driver.allow)
    source = np.zeros(4, np.uint8)
    upload = launcher.upload_call(run.cell(run.checks[0]), source.ctypes.data, 1)
    run.make([upload])
    run.run()
    for stream in (0, 2):
        backend.current_stream = stream
        launcher.begin_run()
        run.make([launcher.graph_call(run.calls)])
        run.run()
    launcher.wait("run")


LOWERED_STEP = lowered_for_device(*PROGRAMS["step"])


def living_after_release(backend):
    """What lives once nothing refers to programs of a backend."""
    gc.collect()
    for context in backend.contexts.values():
        context.make_current()
        context.synchronize()
    return backend.driver.alive()


def test_nothing_stays_of_a_program_that_is_dropped():
    backend = FakeBackend(FakeDriver())
    use_the_whole_driver(backend)
    names = list(backend.driver.calls)
    assert living_after_release(backend) == {}
    assert {name for name in names if name.startswith("cu")} >= set(driver_module._FUNCTIONS) - {
        *("cuGetErrorName", "cuGetErrorString", "cuModuleUnload", "cuStreamDestroy_v2"),
        *("cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuMemFreeHost", "cuEventDestroy_v2"),
    }


def fail_at(call):
    """Let a call of the whole use fail; return the error's text, and what stays."""
    backend = FakeBackend(FakeDriver())
    backend.driver.fail(call, 719)
    with pytest.raises(DeviceError) as raised:
        use_the_whole_driver(backend)
    words = str(raised.value)
    del raised
    return words, living_after_release(backend), backend.driver.calls[call]


@pytest.mark.parametrize("call", range(0, 70, 10))
def test_nothing_stays_if_a_call_fails(call):
    words, living, name = fail_at(call)
    assert re.match(r"cuda: \w.*(a kernel failed|status 719)", words), name
    assert living == {}, name


@pytest.mark.slow
def test_nothing_stays_whichever_call_fails():
    backend = FakeBackend(FakeDriver())
    use_the_whole_driver(backend)
    for call, name in enumerate(backend.driver.calls):
        if "Destroy" not in name:  # what is released is released
            test_nothing_stays_if_a_call_fails(call)


def test_nothing_stays_and_nothing_is_captured_if_an_interrupt_comes_at_any_line():
    session = Session(*PROGRAMS["product"])
    expected = session.expected()
    session.run.run()
    driver, launcher = session.driver, session.launcher
    session.run.make([launcher.graph_call(session.run.calls)])
    path = driver_module.__file__
    for k in range(1, 400):
        try:
            with interrupt(k, within=path) as fired:
                launcher.graph_call(session.run.calls)
        except KeyboardInterrupt:
            pass
        if not fired:
            break
        assert not driver._captures(), fired
        session.run.run()
        assert_same(session.run, expected)
    assert k > 30
    gc.collect()
    launcher.wait("run")
    assert {kind: n for kind, n in driver.alive().items() if kind in ("graph", "exec")} == {}


def test_importing_the_package_imports_no_driver():
    program = "import sys, odyssey; sys.exit('odyssey.compiler.cuda.driver' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_launcher_is_for_programs_of_the_default_shape():
    assert DriverLauncher.shape.threads == 256
    assert DriverLauncher.has_graphs


# ------------------------------------------------------------------ compiled functions


@pytest.fixture
def fake():
    """The backend of the fake driver, installed as that of "cuda:0" and "cuda:1"."""
    with installed(FakeBackend(FakeDriver(devices=2, is_late=False))) as backend:
        yield backend


def classifier(device):
    """A step of training with products, a check and a rate that is assigned."""
    rng = np.random.default_rng(5)
    p = [
        od.Variable(rng.normal(size=s).astype("f4"), requires_grad=True, device=device)
        for s in ((4, 5), (5, 4))
    ]
    update = od.optim.SGD(p, 0.1, momentum=0.9)

    def step(x, y):
        with od.GradientTape() as tape:
            loss = od.losses.cross_entropy(ops.tanh(x @ p[0]) @ p[1], y)
        tape.backward(loss)
        update.step()
        update.zero_grad()
        return loss

    return step, p, update


def train(device, compiled, steps=4):
    step, p, update = classifier(device)
    step = od.compile(step, fullgraph=True) if compiled else step
    x, y = (od.Variable(a, device=device) for a in (X, CLASSES))
    losses = []
    for k in range(steps):
        update.learning_rate = 0.1 / (k + 1)
        losses.append(step(x, y).item())
    return losses, [one.numpy() for one in p], step


def test_a_compiled_step_trains_by_the_driver(fake):
    losses, parameters, _ = train("cpu", False)
    found, trained, step = train("cuda:1", True)
    np.testing.assert_allclose(found, losses, rtol=2e-6)
    for one, other in zip(trained, parameters, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
    assert step.statistics().native == 3
    calls = fake.driver.calls
    assert calls.count("cuGraphLaunch") == 2
    assert calls.count("cuLaunchKernel") < 100
    assert fake.driver.local.context is None, "the device is current within a run alone"


def test_segments_between_host_calls_and_steps_of_loops_run_by_the_driver(fake):
    def fn(x):
        y = ops.sort(x * 2.0) + 1.0
        return od.while_loop(lambda c: (c * c).sum() < 1e3, lambda c: c * 1.5 + y, y) * 2.0

    step, x = od.compile(fn, fullgraph=True), od.Variable(X, device="cuda:1")
    want = fn(x).numpy()
    for _ in range(4):
        np.testing.assert_allclose(step(x).numpy(), want, rtol=1e-6)
    assert step.statistics().native == 3
    assert "launched as 3 CUDA graphs" in str(step.explain(x))
    assert fake.driver.local.context is None


def test_a_graph_is_recorded_again_in_another_stream(fake):
    w = od.Variable(np.eye(4, dtype="f4"), device="cuda")
    step = od.compile(lambda x: w.assign(w + x.T @ x), fullgraph=True)
    x = od.Variable(X, device="cuda")
    for stream in (0, 0, 0, 2, 2, 2, 0):
        fake.current_stream = stream
        step(x)
    np.testing.assert_allclose(w.numpy(), np.eye(4) + 7 * X.T @ X, rtol=1e-5, atol=1e-5)
    used = [stream for name, stream in fake.driver.streams_used if name == "cuGraphLaunch"]
    assert used == [0, 2, 2, 2, 0]  # the first two ran eagerly, and by separate launches
    assert fake.driver.calls.count("cuStreamBeginCapture_v2") == 3


def test_a_graph_of_states_alone_is_recorded_again_in_another_stream(fake):
    w = od.Variable(np.eye(4, dtype="f4"), device="cuda")

    def double():
        w.assign(w * 2.0)

    step = od.compile(double, fullgraph=True)
    for stream in (0, 0, 0, 2, 2):
        fake.current_stream = stream
        step()
    np.testing.assert_array_equal(w.numpy(), 32 * np.eye(4, dtype="f4"))
    used = [stream for name, stream in fake.driver.streams_used if name == "cuGraphLaunch"]
    assert used == [0, 2, 2]
    assert fake.driver.calls.count("cuStreamBeginCapture_v2") == 2  # cuBLAS has a handle for each


def test_a_run_whose_recording_is_broken_off_is_launched_by_separate_calls(fake):
    step = od.compile(lambda x: ops.tanh(x.T @ x), fullgraph=True)
    x = od.Variable(X, device="cuda")
    begin = fake.driver.library.cuStreamBeginCapture_v2

    def begin_and_wait(stream, mode, function=begin._function):
        return function(stream, mode) or fake.driver.cuCtxSynchronize() * 0

    begin._function = begin_and_wait
    for _ in range(4):
        np.testing.assert_allclose(step(x).numpy(), np.tanh(X.T @ X), rtol=1e-5, atol=1e-6)
    assert step.statistics().native == 3
    assert fake.driver.calls.count("cuStreamBeginCapture_v2") == 1
    assert "cuGraphLaunch" not in fake.driver.calls


def test_the_kernel_that_failed_is_named_if_each_call_waits(fake, monkeypatch):
    step, _, _ = classifier("cuda")
    step = od.compile(step, fullgraph=True)
    x, y = (od.Variable(a, device="cuda") for a in (X, CLASSES))
    monkeypatch.setenv("ODYSSEY_CUDA_SYNC", "1")
    step(x, y)
    function = fake.driver.cuStreamSynchronize

    def fail_behind_a_kernel(stream):
        return function(stream) or (700 if fake.driver.calls[-2] == "cuLaunchKernel" else 0)

    fake.driver.library.cuStreamSynchronize._function = fail_behind_a_kernel
    with pytest.raises(DeviceError, match=r"cuda: kernel k\d.*illegal address"):
        step(x, y)
