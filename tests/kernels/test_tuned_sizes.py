"""Measured sizes of eager kernels are read once, at the first large call, and checked."""

import json

import numpy as np
import pytest

from odyssey import cli
from odyssey.compiler import tuning_sizes
from odyssey.compiler.ways.contest import contest_of
from odyssey.kernels import tuned_sizes
from odyssey.kernels.sizes import SIZES
from odyssey.kernels.tuned_sizes import read_sizes, write_sizes
from odyssey.table.kernel_selection import Kernel, select_by_size


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    monkeypatch.setattr(tuned_sizes, "_read", [])
    monkeypatch.setattr(tuned_sizes, "_waiting", [])
    return tmp_path / "native"


def selected(count=1):
    """Return a selected kernel of softmax that tells which one ran."""
    kernel = Kernel("loops", lambda *values: "loops", with_residual=lambda *values: ("loops", ()))
    return select_by_size("softmax", [kernel], count, lambda *values: "numpy", None)


def test_sizes_are_read_back(folder):
    assert read_sizes() == {}
    assert write_sizes({"softmax": 100, "gelu": 7})
    assert read_sizes() == {"softmax": 100, "gelu": 7}


@pytest.mark.parametrize("count", [1, 2])
def test_measured_sizes_hold_after_the_first_large_call(count):
    write_sizes({"softmax": 100})
    run, leaving = selected(count)
    given = [np.ones(100)] * count
    assert run(*given) == "numpy"
    assert leaving(*given) is None
    assert run(np.ones(SIZES["softmax"]), *given[1:]) == "loops"
    assert run(*given) == "loops"
    assert leaving(*given) == ("loops", ())
    assert run(*[np.ones(99)] * count) == "numpy"


def test_a_larger_measured_size_leaves_calls_to_numpy():
    write_sizes({"softmax": 4 * SIZES["softmax"]})
    run, leaving = selected()
    assert run(np.ones(SIZES["softmax"])) == "numpy"
    assert leaving(np.ones(SIZES["softmax"])) is None
    assert run(np.ones(4 * SIZES["softmax"])) == "loops"


def test_a_row_that_is_made_later_has_the_measured_size_at_once():
    write_sizes({"softmax": 100})
    assert selected()[0](np.ones(SIZES["softmax"])) == "loops"
    assert selected()[0](np.ones(100)) == "loops"


def test_sizes_are_read_once(monkeypatch):
    run, _ = selected()
    assert run(np.ones(SIZES["softmax"])) == "loops"
    monkeypatch.setattr(tuned_sizes, "read_sizes", lambda: pytest.fail("read again"))
    assert selected()[0](np.ones(SIZES["softmax"])) == "loops"


def test_an_interrupted_read_is_made_again(monkeypatch):
    write_sizes({"softmax": 100})
    run, _ = selected()

    def interrupt(*_):
        raise KeyboardInterrupt

    tuned_sizes._waiting.insert(0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(np.ones(SIZES["softmax"]))
    tuned_sizes._waiting.remove(interrupt)
    assert run(np.ones(SIZES["softmax"])) == "loops"
    assert run(np.ones(100)) == "loops"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "[" * 9999, '{"format": "x"}', '{"format": "odyssey sizes 1"}'],
)
def test_a_file_that_makes_no_sense_changes_nothing(text, folder):
    folder.mkdir(mode=0o700)
    (folder / "sizes.json").write_text(text)
    assert read_sizes() == {}
    assert selected()[0](np.ones(SIZES["softmax"])) == "loops"


@pytest.mark.parametrize("size", [0, -1, 1.5, "7", None, True, 10**30])
def test_sizes_that_make_no_sense_are_passed_over(size, folder):
    write_sizes({"softmax": size, "gelu": 7, "birds": 3})
    assert read_sizes() == {"gelu": 7}


def test_sizes_of_another_machine_are_not_used(folder):
    write_sizes({"softmax": 100})
    path = folder / "sizes.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "another"}))
    assert read_sizes() == {}


def test_a_folder_in_the_place_of_the_file_changes_nothing(folder):
    (folder / "sizes.json").mkdir(parents=True, mode=0o700)
    assert read_sizes() == {}
    assert not write_sizes({"softmax": 100})


def test_the_smallest_size_from_which_a_kernel_wins_is_taken(monkeypatch, capsys):
    asked = []

    def contest(case, name, size, dtype):
        asked.append((name, size))
        wins = size >= SIZES["softmax"] // 4
        return contest_of([(100.0, 50.0 if wins else 99.0)] * 9)

    monkeypatch.setattr(tuning_sizes, "_contest", contest)
    assert cli.main(["tune", "--ops", "softmax"]) == 0
    assert read_sizes() == {"softmax": SIZES["softmax"] // 4}
    assert "x0.50 of NumPy's time there" in capsys.readouterr().out
    assert {size for _, size in asked} == {SIZES["softmax"] >> k for k in range(4)}


def test_a_kernel_that_does_not_win_keeps_its_size(monkeypatch):
    monkeypatch.setattr(tuning_sizes, "_contest", lambda *_: contest_of([(100.0, 99.0)] * 9))
    assert cli.main(["tune", "--ops", "softmax,silu"]) == 0
    assert read_sizes() == {name: SIZES[name] for name in ("softmax", "silu")}


def test_ops_are_tuned_until_the_time_is_over_and_those_that_are_left_come_first(
    monkeypatch, capsys
):
    monkeypatch.setattr(tuning_sizes, "_contest", lambda *_: contest_of([(100.0, 99.0)] * 9))
    assert cli.main(["tune", "--ops", "silu,gelu", "--seconds", "0"]) == 0
    assert "2 ops are left" in capsys.readouterr().out
    write_sizes({"gelu": 7})
    assert cli.main(["tune", "--ops", "gelu,silu"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["silu", "gelu"]


@pytest.mark.slow
def test_below_its_shipped_size_a_tuned_kernel_takes_less_time_than_numpy(capsys):
    assert cli.main(["tune", "--ops", "linear_recurrence"]) == 0
    size = read_sizes()["linear_recurrence"]
    assert size < SIZES["linear_recurrence"]
    ratio = float(capsys.readouterr().out.partition("x")[2].split()[0])
    assert ratio <= 0.8
