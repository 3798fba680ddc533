"""``ODYSSEY_PROFILE=N``: a table of ops on stderr, of each N ops; each test is a process."""

import os
import subprocess
import sys

import pytest

HEAD = "import numpy as np, odyssey as od\nfrom odyssey import ops\n"

STEPS = """
rng = np.random.default_rng(0)
w = od.Variable(rng.normal(size=(4, 3)), requires_grad=True)
optimizer = od.optim.SGD([w], learning_rate=0.1, momentum=0.9)
def step(x):
    with od.GradientTape() as tape:
        loss = od.nn.gelu(x @ w).sum() + od.nn.softmax(x @ w).mean() + (2 ** w).sum()
    tape.backward(loss)
    optimizer.step()
    return loss
x = rng.normal(size=(5, 4))
for _ in range(5):
    loss = step(x)
with ops.use_kernels():
    for _ in range(2):
        loss = step(x)
compiled = od.compile(step)
for _ in range(6):
    loss = compiled(x)
print(w.data.tobytes().hex(), float(loss))
"""


def _run(program, **environment):
    """What a process printed: stdout, stderr."""
    kept = {k: v for k, v in os.environ.items() if k != "ODYSSEY_PROFILE"}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def _tables(text):
    """By table: its count of ops, and by op calls, milliseconds, percent and bytes."""
    found = []
    for line in text.splitlines():
        if line.startswith("odyssey: "):
            found.append((int(line.split()[1].replace(",", "")), {}))
        elif line.split()[0] != "op":
            *name, calls, spent, share, moved = line.replace(",", "").split()
            row = int(calls), float(spent), float(share[:-1]), int(moved)
            found[-1][1][" ".join(name)] = row
    return found


def test_each_n_ops_give_a_table_with_calls_and_bytes_the_dearest_first():
    program = """
small, large = np.ones(8), np.ones((300, 300))
for _ in range(6):
    ops.exp(small)
    ops.add(small, 1.0)
    ops.matmul(large, large)
"""
    out, err = _run(program, ODYSSEY_PROFILE="9")
    assert not out
    first, second = _tables(err)
    for count, lines in (first, second):
        assert count == 9
        spent = [line[1] for line in lines.values()]
        assert spent == sorted(spent, reverse=True)
        assert {name: (line[0], line[3]) for name, line in lines.items()} == {
            "exp": (3, 3 * 2 * 64),
            "add": (3, 3 * 2 * 64),
            "matmul": (3, 3 * 3 * 720_000),
        }
        assert sum(line[2] for line in lines.values()) == pytest.approx(100, abs=0.2)


def test_tapes_and_rules_are_in_the_table():
    program = """
w = od.Variable(np.ones((3, 3)), requires_grad=True)
with od.GradientTape() as tape:
    y = (np.exp(w) @ w).sum()
tape.gradient(y, w)
"""
    ((_, lines),) = _tables(_run(program, ODYSSEY_PROFILE="6")[1])
    # Forward exp, matmul and sum; backward two products, and the first of what follows.
    assert (lines["exp"][0], lines["sum"][0]) == (1, 1)
    assert lines["matmul"][0] > 1


@pytest.mark.share(3, rest="slow")
@pytest.mark.parametrize("value", ["", " ", "0"])
def test_nothing_is_printed_where_nothing_is_asked(value):
    assert _run("ops.exp(np.ones(3))", ODYSSEY_PROFILE=value) == ("", "")


def test_rows_run_their_own_kernels_where_nothing_is_asked():
    program = """
import sys
odd = [r.name for r in ops.OPS.values() if "profiling" in getattr(r.kernel, "__module__", "")]
print(odd, "odyssey.table.profiling" in sys.modules)
"""
    assert _run(program) == ("[] False\n", "")


@pytest.mark.share(4, rest="slow")
@pytest.mark.parametrize("value", ["often", "-1", "1.5", "1e3"])
def test_what_is_no_number_of_ops_is_told_of_and_times_nothing(value):
    out, err = _run("print(ops.exp(0.0))", ODYSSEY_PROFILE=value)
    assert out == "1.0\n"
    assert f"RuntimeWarning: ODYSSEY_PROFILE='{value}' is not a number of ops" in err
    assert "whole number such as 1000" in err
    assert "op  " not in err


@pytest.mark.slow
def test_results_are_the_same_bits_while_ops_are_timed():
    out, err = _run(STEPS, ODYSSEY_PROFILE="20")
    assert out == _run(STEPS)[0]
    assert all(count == 20 for count, _ in _tables(err))


def test_a_run_of_a_program_counts_as_one_op_under_the_name_of_its_function():
    program = """
@od.compile
def thrice(x):
    return (x * 3).sum()
for _ in range(12):
    thrice(np.ones(1000))
"""
    err = _run(program, ODYSSEY_PROFILE="1")[1]
    lines = [lines for _, lines in _tables(err) if "compiled thrice" in lines]
    # The first call runs the function, the others the program.
    assert [line["compiled thrice"][0] for line in lines] == [1] * 11


@pytest.mark.slow
def test_a_program_for_all_sizes_is_one_op_too():
    program = """
@od.compile(dynamic={"x": {0: od.Dim("n", 1, 100)}})
def thrice(x):
    return (x * 3).sum()
for n in range(2, 14):
    thrice(np.ones(n))
print(thrice.statistics().programs)
"""
    out, err = _run(program, ODYSSEY_PROFILE="1")
    lines = [lines for _, lines in _tables(err) if "compiled thrice" in lines]
    assert [line["compiled thrice"][0] for line in lines] == [1] * 11
    assert out.split() == ["1"]


def test_kernels_of_a_program_have_lines_of_their_own():
    program = """
@od.compile
def weighed(x):
    return ops.softmax(x @ x, axis=-1)
for _ in range(5):
    weighed(np.ones((200, 200)))
"""
    tables = _tables(_run(program, ODYSSEY_PROFILE="1")[1])
    own = [{k: v for k, v in t.items() if k.startswith("compiled weighed")} for _, t in tables]
    found = {name: [t[name] for t in own if name in t] for t in own for name in t}
    assert list(map(len, found.values())) == [4, 4, 4]
    product = found["compiled weighed: product of matmul"]
    assert all(line[0] == 1 and line[3] == 2 * 320_000 for line in product)
    # What is left for the program itself are looks at arguments, and the result.
    assert sum(line[1] for line in product) > sum(line[1] for line in found["compiled weighed"])


def test_time_within_a_call_of_another_op_is_counted_once():
    program = """
from odyssey.table.profiling import time_calls
from time import perf_counter, sleep
inner = time_calls("inner", lambda: sleep(0.05))
outer = time_calls("outer", lambda: (sleep(0.02), inner()))
start = perf_counter()
outer()
print(1e3 * (perf_counter() - start))
"""
    out, err = _run(program, ODYSSEY_PROFILE="2")
    ((_, lines),) = _tables(err)
    assert lines["inner"][1] >= 50
    assert lines["outer"][1] >= 20
    assert lines["inner"][1] + lines["outer"][1] <= float(out)


def test_an_op_that_runs_itself_is_called_once():
    program = """
from odyssey.table.profiling import time_calls
inner = time_calls("same", lambda: None)
outer = time_calls("same", inner)
outer()
time_calls("other", lambda: None)()
"""
    ((_, lines),) = _tables(_run(program, ODYSSEY_PROFILE="2")[1])
    assert {name: line[0] for name, line in lines.items()} == {"same": 1, "other": 1}


def test_a_refused_call_raises_as_ever_and_is_no_call():
    program = """
try:
    ops.matmul(np.ones((2, 3)), np.ones((2, 3)))
except od.errors.ShapeError as error:
    print(error)
ops.exp(np.ones(2))
"""
    out, err = _run(program, ODYSSEY_PROFILE="1")
    assert out == _run(program)[0] != ""
    ((_, lines),) = _tables(err)
    assert lines["exp"][0] == 1
    assert lines["matmul"][0] == 0


def test_ops_of_several_threads_are_all_counted():
    program = """
from threading import Thread
def work():
    for _ in range(250):
        ops.exp(np.ones(4))
threads = [Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    found = _tables(_run(program, ODYSSEY_PROFILE="100")[1])
    assert [(count, lines["exp"][0]) for count, lines in found] == [(100, 100)] * 10
