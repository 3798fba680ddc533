"""What NumPy says of floating-point errors, and that nothing of ours changes it."""

import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.floating_point_errors import ignore_fp_errors, isolate_errstate

PACKAGE = Path(od.__file__).parent
ZERO, ONE = np.zeros(2), np.ones(2)


@ignore_fp_errors("divide")
def inverse(x):
    return np.divide(1.0, x), np.geterr()


def test_of_the_kinds_that_are_named_nothing_is_said_and_of_others_as_the_caller_wants():
    with np.errstate(divide="raise", invalid="raise", over="call", under="warn"):
        told = np.geterr()
        out, within = inverse(ZERO)
        assert np.isinf(out).all()
        assert within == {**told, "divide": "ignore"}
        assert np.geterr() == told
        with pytest.raises(FloatingPointError):
            ignore_fp_errors("divide")(np.subtract)(np.inf, np.inf)
        assert np.geterr() == told
    assert inverse(ONE)[1] == {**np.geterr(), "divide": "ignore"}
    assert set(ignore_fp_errors()(np.geterr)().values()) == {"ignore"}


def test_threads_have_each_what_they_told():
    seen = {}

    def work(mode):
        with np.errstate(over=mode):
            for _ in range(200):
                seen.setdefault(mode, set()).add(inverse(ONE)[1]["over"])

    threads = [threading.Thread(target=work, args=(m,)) for m in ("ignore", "warn", "raise")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {mode: {mode} for mode in ("ignore", "warn", "raise")}


def test_a_function_keeps_its_name_and_what_it_is_documented_with():
    assert inverse.__name__ == "inverse"
    assert ignore_fp_errors()(np.add).__name__ == "add"


def test_ops_within_are_recorded_on_the_tape_that_is_open_outside():
    x = od.Variable([1.0, 2.0], requires_grad=True)
    with od.GradientTape() as tape:
        y = ignore_fp_errors()(lambda v: ops.sum(v * v))(x)
    tape.backward(y)
    assert x.grad.tolist() == [2.0, 4.0]


def test_of_a_function_of_others_nothing_is_left_of_what_it_told_numpy():
    def tell():
        np.seterr(all="raise")
        return np.geterr()

    with np.errstate(divide="call"):
        before = np.geterr()
        assert isolate_errstate(np.geterr)() == before
        assert set(isolate_errstate(tell)().values()) == {"raise"}
        assert np.geterr() == before


EYE = np.eye(3)
CALLS = {
    "a range": lambda: ops.random_uniform(8, rng=od.Generator(1)),
    "logsumexp": lambda: od.ops.logsumexp(np.array([1.0, -np.inf])),
    "a slope of powers": lambda: od.grad(lambda x: ops.sum(x**2.5))(np.array([0.0, 2.0])),
    "expm": lambda: od.linalg.expm(np.eye(2)),
    **{
        name: lambda name=name: getattr(od.linalg, name)(EYE)
        for name in (
            *("cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matrix_rank"),
            *("pinv", "qr", "slogdet", "svd", "svdvals"),
        )
    },
    "lstsq": lambda: od.linalg.lstsq(EYE, EYE),
    "solve": lambda: od.linalg.solve(EYE, EYE),
    "a repr": lambda: repr(od.Variable(EYE)),
}


needs_timers = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def assert_nothing_is_left_told(call):
    """Interrupted at 200 moments, it leaves what NumPy was told."""
    told = np.geterr()
    call()  # what it imports would be interrupted in its loading
    start = time.perf_counter()
    call()
    step = max(1e-6, (time.perf_counter() - start) / 150)

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for k in range(200):
            with suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, step * (k + 1))
                    call()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert np.geterr() == told, k
    finally:
        signal.signal(signal.SIGALRM, before)


class TestInterrupts:
    pytestmark = needs_timers

    @pytest.mark.parametrize("name", CALLS)
    def test_ctrl_c_at_any_moment_leaves_what_numpy_was_told(self, name):
        assert_nothing_is_left_told(CALLS[name])

    def test_a_load_into_a_generator_as_well(self, tmp_path):
        rng = np.random.default_rng(0)
        od.save(tmp_path / "held.npz", rng)
        assert_nothing_is_left_told(lambda: od.load(tmp_path / "held.npz", rng))


def test_numpys_functions_of_matrices_are_called_where_they_are_set_apart():
    calls = re.compile(r"(?<!\w)np\.linalg\.(?!norm)[a-z_]+\((?!np\.eye\(1\)\))")
    lines = {
        (p.name, line) for p in PACKAGE.rglob("*.py") for line in p.read_text("utf-8").split("\n")
    }
    found = [
        (name, line) for name, line in lines if calls.search(re.sub(r" (>>>|\.\.\.).*", "", line))
    ]
    assert not found, "call odyssey.linalg.lapack's: Ctrl-C may come within their errstate"


def test_no_function_leaves_it_to_python_to_end_what_it_told_numpy():
    calls = re.compile(r"np\.errstate\((?!all=\"ignore\"\)``)|[^.]with .*errstate")
    found = [str(p) for p in PACKAGE.rglob("*.py") if calls.search(p.read_text("utf-8"))]
    assert not found, (
        "use odyssey.floating_point_errors.ignore_fp_errors: Ctrl-C may come within errstate"
    )


class Telling(np.ndarray):
    """An array whose repr tells NumPy something, as any does for as long as it runs."""

    def __repr__(self):
        np.seterr(all="raise")
        return "Telling"


def telling(values):
    return np.array(values).view(Telling)


FEW, HALF = telling([7, 8, 9]), telling([0.5, 1.5])
MESSAGES = {
    "diff": lambda: ops.diff(ONE, axis=telling([0, 0])),
    "interp": lambda: ops.interp(ONE, ONE, ONE, left=HALF),
    "linear_recurrence": lambda: ops.linear_recurrence(ONE, ONE, axis=HALF),
    "moveaxis": lambda: ops.moveaxis(EYE, telling([0, 1]), 0),
    "nanquantile": lambda: ops.nanquantile(ONE, HALF),
    "pad, ints": lambda: ops.pad(ONE, HALF),
    "pad, axes": lambda: ops.pad(ONE, FEW),
    "pad, negative": lambda: ops.pad(ONE, telling([-1, -1])),
    "pad, statistics": lambda: ops.pad(ONE, 1, mode="mean", stat_length=HALF),
    "repeat": lambda: ops.repeat(ONE, HALF),
    "repeat, negative": lambda: ops.repeat(ONE, telling([-1, -1])),
    "roll": lambda: ops.roll(ONE, HALF),
    "segment_sum": lambda: ops.segment_sum(ONE, np.array([0, 1]), num_segments=HALF),
    "sort": lambda: ops.sort(ONE, order=HALF),
    "partition": lambda: ops.partition(ONE, 1, order=HALF),
    "take": lambda: ops.take(ONE, [0], mode=HALF),
    "topk": lambda: ops.topk(ONE, HALF),
    "transpose": lambda: ops.transpose(EYE, telling([0])),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_message_prints_of_an_array_tells_numpy_nothing(name):
    told = np.geterr()
    try:
        with pytest.raises((od.errors.OdysseyError, ValueError), match="Telling") as caught:
            MESSAGES[name]()
        assert np.geterr() == told, caught.value
    finally:
        np.seterr(**told)
