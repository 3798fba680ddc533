"""Memory predicted from specs: by counting on paper, and against peaks of fresh processes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from study.experiments import width
from study.predicted_memory import (
    MALLOC_HEADER,
    MALLOC_UNIT,
    array_bytes,
    optimizer_bytes,
    predicted_memory,
    trace_step,
)

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_an_array_takes_whole_units_of_the_c_library():
    assert array_bytes(od.Spec((), np.float32)) == MALLOC_UNIT
    assert array_bytes(od.Spec((100, 100), np.float32)) == 40_000 + MALLOC_HEADER + 8


def test_state_is_counted_as_the_optimizer_keeps_it():
    # One large array in blocks, one alone; two small ones packed, with their gradients.
    sizes = [400_000, 20_000, 10, 30]
    blocks = 65_536 + 20_000 + 40
    assert optimizer_bytes(sizes, slots=1) == 4 * (2 * 420_040 + 40 + blocks)
    assert optimizer_bytes([100], slots=2, scratch=0) == 4 * 300


def prediction(rows=64, units=128):
    """A step of tanh(x @ w), summed, with its arrays of a size that is counted on paper."""
    w = od.Variable(np.zeros((units, units), np.float32), requires_grad=True)

    def step(x):
        with od.GradientTape() as tape:
            loss = od.ops.tanh(x @ w).sum()
        tape.backward(loss)
        return loss

    return predicted_memory(trace_step(step, np.zeros((rows, units), np.float32)), state=1000)


def test_bytes_by_owner_are_those_counted_on_paper():
    found = prediction()
    activation, weight = 64 * 128 * 4 + 16, 128 * 128 * 4 + 16
    assert found.forward == 3
    assert set(found.timeline["state"]) == {1000}
    # tanh saves its result, and the product nothing but what the caller passed.
    assert max(found.timeline["saved"]) == activation
    assert found.timeline["frontier"][0] == activation  # the product, until tanh has read it
    assert found.timeline["gradients"][-1] == weight
    assert found.timeline["gradients"][found.forward - 1] == 0
    assert found.timeline["saved"][-1] == 0  # drained when the last rule runs
    assert found.peak == sum(found.at_peak().values()) == max(found.totals)


def test_the_prediction_grows_with_the_batch_as_activations_do():
    small, large = (prediction(rows) for rows in (64, 128))
    assert max(large.timeline["saved"]) == 2 * max(small.timeline["saved"]) - 16
    assert large.timeline["gradients"] == small.timeline["gradients"]


def test_each_level_of_a_chain_adds_the_same_bytes():
    def peak(levels):
        leaf = od.Variable(np.ones(8, np.float32), requires_grad=True)

        def run():
            with od.GradientTape() as tape:
                loss = width.chain_loss([leaf], levels)
            tape.backward(loss)
            return loss

        return predicted_memory(trace_step(run)).at_peak()["nodes"]

    added = [peak(b) - peak(a) for a, b in ((10, 20), (20, 30))]
    assert added[0] == added[1]
    assert 2 * 150 < added[0] / 10 < 2 * 350


def test_tracing_puts_the_sweep_back():
    from odyssey.tape import queries

    before = queries.backward_sweep
    with pytest.raises(ZeroDivisionError):
        trace_step(lambda: 1 // 0)
    assert queries.backward_sweep is before


@pytest.mark.slow
@pytest.mark.parametrize("network", ["W2", "W3", "W7", "chain"])
def test_specs_predict_the_peak_of_a_fresh_process_within_ten_percent(network):
    config = {"network": network, "units": 0, "layers": 0}
    code = (
        "import json; from study.experiments.width import build, predict\n"
        f"case = build('taped', {config!r}); measured = case.sample()\n"
        f"print(json.dumps([predict({config!r}).peak, measured]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    predicted, measured = json.loads(done.stdout)
    for peak in (measured["peak_bytes"], measured["allocated_bytes"]):
        assert predicted == pytest.approx(peak, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs peaks of memory as Linux counts them")
def test_a_peak_does_not_depend_on_gaps_of_the_heap():
    # 400 blocks of 50 kB beside each other, freed with one above them: a gap of 20 MB. In it, the
    # freed arrays would leave holes too small for the next ones, their pages still resident.
    code = """
import sys
import numpy as np
from study.peaks import resident_peak
blocks = [np.ones(50_000, np.uint8) for _ in range(401)]
if sys.argv[1] == "gap":
    del blocks[:-1]
def step():
    kept = []
    for k in range(10):
        freed = np.ones(1_000_000 + 100_000 * k, np.uint8)
        kept.append(np.ones(500_000, np.uint8))
        del freed
print(resident_peak(lambda: step))
"""
    peaks = []
    for kind in ("plain", "gap"):
        command = [sys.executable, "-c", code, kind]
        done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    arrays = 10 * 500_000 + 1_900_000
    assert peaks == pytest.approx([arrays, arrays], rel=0.05)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs peaks of memory as Linux counts them")
def test_a_peak_is_measured_on_one_processor_with_all_threads():
    code = """
import os, threading
from study.peaks import resident_peak
processors, seen, over = os.sched_getaffinity(0), [], threading.Event()
other = threading.Thread(target=over.wait, daemon=True)
other.start()
def step():
    seen.append([os.sched_getaffinity(k) for k in (0, other.native_id)])
resident_peak(lambda: step)
step()
over.set()
first, last = seen[:4], seen[4:-1]  # those that load what a step needs, and those that count
assert first == [[processors] * 2] * 4, first
assert len(last) == 17 and all(one == two and len(one) == 1 for one, two in last), last
assert seen[-1] == [processors] * 2, seen[-1]
"""
    subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, check=True)
