"""Reports of compiled functions that run eagerly: warnings, errors, places, and what it costs."""

import logging
import pickle
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.compiler.arguments import cache_key
from odyssey.compiler.dispatch.cache import CacheEntry
from odyssey.compiler.fallback import Backoff
from odyssey.errors import CompileError, CompileWarning

X = np.arange(3.0)


def line_of(function, text):
    """Return ``file:line`` of the first line of a function that contains a text."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    number = next(k for k, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(function)}:{first + number}"


def calls(compiled, count, *args):
    """Return the CompileWarnings of some calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(count):
            compiled(*args)
    return [w for w in caught if issubclass(w.category, CompileWarning)]


class Trainer:
    """Reads an iterator in its step, as trainers do."""

    def __init__(self):
        self.batches = iter(range(1000))

    def step(self, x):
        return x * next(self.batches)


LOG = []


def logs(x):
    LOG.append(len(LOG))
    return x * 2.0


def test_the_second_call_warns_once_with_cause_place_and_advice():
    compiled = od.compile(logs)
    assert not calls(compiled, 1, X)
    (warning,) = calls(compiled, 5, X)
    message = str(warning.message)
    assert message.startswith("compile: logs runs eagerly, since it writes to a list")
    assert line_of(logs, "def logs").rpartition(":")[0] in message
    assert "Return the new value" in message
    assert "warn=False" in message
    assert "fullgraph=True" in message
    assert warning.filename == __file__


def test_the_place_is_where_the_code_reads_what_stops_it():
    step = Trainer().step
    (warning,) = calls(od.compile(step), 3, X)
    assert "iterator" in str(warning.message)
    assert "Take the next item outside" in str(warning.message)


def test_a_name_that_stops_it_is_found_in_functions_that_are_called():
    import time

    def inner(x):
        return x * time.time()

    def outer(x):
        return inner(x) + 1.0

    (warning,) = calls(od.compile(outer), 3, X)
    assert line_of(inner, "time.time()") in str(warning.message)


def test_what_changes_at_each_call_is_named_with_its_line():
    class Annealed:
        def __init__(self):
            self.rate = 1.0

        def step(self, x):
            return (
                x *
                self.rate
            )  # fmt: skip

    annealed = Annealed()
    compiled = od.compile(annealed.step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            annealed.rate *= 0.9
            compiled(X)
    (warning,) = caught
    assert "a guard fails again: self.rate changed" in str(warning.message)
    assert line_of(Annealed.step, "self.rate") in str(warning.message)


def test_what_compiles_warns_of_nothing():
    assert not calls(od.compile(lambda x: x * 2.0), 5, X)


def test_warn_false_keeps_quiet_and_check_true_does_not():
    assert not calls(od.compile(logs, warn=False), 5, X)
    assert len(calls(od.compile(logs, warn=False, check=True), 5, X)) == 1


def test_calls_inside_a_tape_warn():
    compiled = od.compile(lambda x: x * 2.0)
    with GradientTape():
        (warning,) = calls(compiled, 3, Variable(X))
    assert "inside an open tape" in str(warning.message)


def test_another_trace_takes_the_function_in_without_a_warning():
    inner = od.compile(lambda x: x * 2.0)
    assert not calls(od.compile(lambda x: inner(x) + 1.0), 4, X)


def test_fullgraph_raises_before_any_side_effect():
    compiled = od.compile(logs, fullgraph=True)
    before = len(LOG)
    for _ in range(3):
        with pytest.raises(CompileError, match="logs runs eagerly, since it writes to a list"):
            compiled(X)
    assert len(LOG) == before


def test_fullgraph_leaves_what_compiles_alone():
    compiled = od.compile(lambda x: x * 2.0, fullgraph=True)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), X * 2.0)
    assert compiled.statistics().programs == 1


def test_fullgraph_has_the_error_of_the_trace_as_its_cause():
    def fails(x):
        raise KeyError("a key that is missing")

    advice = "If it raises this without od.compile too, correct it; otherwise pass values"
    with pytest.raises(CompileError, match=f"a key that is missing.*{advice}") as caught:
        od.compile(fails, fullgraph=True)(X)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_warning_that_is_an_error_leaves_a_function_that_works():
    compiled = od.compile(logs)
    compiled(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CompileWarning):
            compiled(X)
        np.testing.assert_array_equal(compiled(X), X * 2.0)


def test_static_values_share_one_warning():
    @od.compile(static="n")
    def repeated(x, n):
        LOG.append(len(LOG))
        return x * n

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (1, 2, 3):
            repeated(X, n), repeated(X, n)
    assert len([w for w in caught if w.category is CompileWarning]) == 1


def test_a_function_that_only_meets_new_shapes_stops_trying():
    compiled = od.compile(lambda x: x + 1.0)
    sizes = iter(range(400))
    (warning,) = calls(lambda: compiled(np.zeros(next(sizes))), 300)
    assert "arguments of a new shape" in str(warning.message)
    assert "dynamic=" in str(warning.message)
    assert len(compiled._known) == 256
    traces = compiled._first_calls
    for n in sizes:
        compiled(np.zeros(n))
    assert compiled._first_calls - traces < 30


def test_an_entry_that_is_there_evicts_no_other():
    compiled = od.compile(lambda x: x * 2)
    shapes = [np.ones((1, n)) for n in range(256)]
    for x in shapes:
        compiled._known[cache_key((x,), {})] = CacheEntry()
    before = list(compiled._known)
    compiled.precompile(shapes[100])
    assert list(compiled._known) == before
    compiled.precompile(np.ones((2, 2)))
    assert list(compiled._known)[:255] == before[1:]


def test_a_function_of_new_shapes_that_settles_on_one_has_a_program():
    compiled = od.compile(lambda x: x + 1.0, warn=False)
    for n in range(300):
        compiled(np.zeros(n))
    for _ in range(5000):
        compiled(np.zeros(1000))
    assert compiled.statistics().programs == 1


def test_refused_calls_skip_the_search_for_a_program_more_and_more():
    backoff, looked = Backoff(), 0
    for _ in range(10_000):
        if backoff.skips > 0:
            backoff.skips -= 1
        else:
            looked += 1
            backoff.note_failure()
    assert looked < 30
    backoff.reset()
    assert backoff.skips == 0


def test_a_copy_reports_anew():
    import copy

    compiled = od.compile(logs)
    assert len(calls(compiled, 3, X)) == 1
    assert copy.copy(compiled)._backoff.skips == 0
    assert pickle.loads(pickle.dumps(CompileError("a message"))).args == ("a message",)


@pytest.mark.parametrize("name", ["warn", "fullgraph"])
def test_settings_are_flags(name):
    with pytest.raises(TypeError, match=name):
        od.compile(logs, **{name: "yes"})


@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_a_function_prints_or_asks_comes_once_a_call(fullgraph, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "2")

    def talks(x):
        print("called with", x.shape)
        return x * float(input("a factor"))

    compiled = od.compile(talks, warn=False, fullgraph=fullgraph)
    for count in range(1, 4):
        if fullgraph:
            with pytest.raises(CompileError, match="talks runs eagerly, since it uses"):
                compiled(X)
        else:
            np.testing.assert_array_equal(compiled(X), X * 2.0)
        done = 0 if fullgraph else count
        assert len(asked) == done
    assert capsys.readouterr().out == "called with (3,)\n" * (0 if fullgraph else 3)


def test_a_log_file_and_a_logger_get_one_line_a_call(tmp_path, caplog):
    logger = logging.getLogger("odyssey.test")

    def logs(x, file):
        file.write("line\n")
        logger.warning("called")
        return x * 2.0

    compiled = od.compile(logs, warn=False)
    with open(tmp_path / "log", "w") as file:
        for _ in range(3):
            compiled(X, file)
    assert (tmp_path / "log").read_text() == "line\n" * 3
    assert len(caplog.records) == 3


def test_a_printed_result_is_an_eager_run_with_a_warning():
    def prints(x):
        print(f"{float((x * 2.0).sum()):.2f}")
        return x * 2.0

    (warning,) = calls(od.compile(prints), 3, X)
    assert "since it uses print" in str(warning.message)


def test_an_object_that_is_another_at_each_call_is_named():
    class Model:
        def __init__(self, w):
            self.w = w

    update = od.compile(lambda model, x: Model(model.w + x))

    def chain():
        model = Model(X)
        for _ in range(12):
            model = update(model, X)
        return model

    (warning,) = calls(chain, 1)
    assert "argument [0] is another object at each call" in str(warning.message)
    assert "a dataclass" in str(warning.message)
    np.testing.assert_array_equal(chain().w, 13 * X)
