"""The command log: pictures of runs, and event files that TensorBoard reads."""

import argparse
import math
import struct

import numpy as np
import pytest

from odyssey import MetricLog, cli
from odyssey.cli import log as command


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.jsonl"
    with MetricLog(path, {"lr": 0.1, "name": "$x_1$ <b>"}) as log:
        for step in range(10):
            log.log(step, {"train/loss": 1.0 / (step + 1)}, accuracy=step / 10)
        log.log(20, {"train/loss": math.nan, "$x_1$": math.inf})
    return path


# ------------------------------------------------------------------ pictures


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_runs_are_drawn_in_one_picture(path, tmp_path, ending, capsys):
    pytest.importorskip("matplotlib")
    other = tmp_path / "other.jsonl"
    with MetricLog(other) as log:
        log.log(0, accuracy=0.5)
    out = tmp_path / f"picture.{ending}"
    assert cli.main(["log", "plot", str(path), str(other), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    if ending == "svg":
        text = out.read_text()
        assert all(f">{name}<" in text for name in ("train/loss", "accuracy", "$x_1$", "other"))
        assert "1 values not finite" in text


@pytest.mark.slow
def test_a_panel_has_a_line_for_each_run_with_the_values_that_were_logged(path, tmp_path):
    pytest.importorskip("matplotlib")
    runs = list(command._labelled_runs([str(path)]))
    figure = command._draw_panels(runs, ["accuracy", "train/loss"], 0.0)
    drawn = [line.get_xydata() for axes in figure.axes for line in axes.get_lines()]
    np.testing.assert_array_equal(drawn[0], [(k, k / 10) for k in range(10)])
    assert len(drawn) == 2
    smoothed = command._draw_panels(runs, ["accuracy"], 0.5).axes[0].get_lines()
    assert len(smoothed) == 2  # the values behind it


def test_an_exponential_average_has_no_bias_and_keeps_gaps():
    averages = command._smoothed(np.array([4.0, 4.0, np.nan, 4.0]), 0.9)
    np.testing.assert_allclose(averages, [4.0, 4.0, np.nan, 4.0], rtol=1e-15)
    np.testing.assert_allclose(command._smoothed(np.array([0.0, 3.0]), 0.5), [0.0, 2.0])


def test_runs_of_one_file_and_files_of_one_name_have_labels_of_their_own(path, tmp_path):
    with MetricLog(path) as second:
        second.log(0, x=1)
    folder = tmp_path / "other"
    folder.mkdir()
    twin = folder / "run.jsonl"
    with MetricLog(twin) as log:
        log.log(0, x=1)
    labels = [label for label, _ in command._labelled_runs([str(path), str(twin), str(path)])]
    first = MetricLog.read(path)[0]
    assert labels == [f"{path} {first.id}", f"{path} {second.run}", str(twin)]


def test_what_cannot_be_drawn_is_named(path, tmp_path, capsys):
    def stopped(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main(["log", "plot", *map(str, arguments)])
        return str(caught.value.code)

    assert "no metric los; there are train/loss, accuracy, $x_1$" in stopped(path, "--keys", "los")
    assert "No such file or directory" in stopped(tmp_path / "none")
    foreign = tmp_path / "table.csv"
    foreign.write_text("step,loss\n")
    assert "table.csv' is not a metric log" in stopped(foreign)
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "empty.jsonl' has no runs yet" in stopped(empty)
    MetricLog(empty).close()
    assert "the runs have no metrics yet" in stopped(empty)
    stopped(path, "--out", tmp_path / "none" / "a.svg")
    assert "lies in a folder that does not exist" in capsys.readouterr().err


@pytest.mark.slow
def test_a_format_that_there_is_not_is_named(path, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(SystemExit, match=r"a\.xyz' was not written: Format 'xyz'"):
        cli.main(["log", "plot", str(path), "--out", str(tmp_path / "a.xyz")])


def test_lines_that_are_left_out_are_reported(path, capsys):
    with path.open("ab") as file:
        file.write(b'{"torn')
    command._read_file(str(path))
    assert "line 13 is left out: it is cut off" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1", "-0.1", "nan", "much"])
def test_a_factor_that_smooths_nothing_or_everything_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="at least 0 and below 1"):
        command._factor(text)


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [("matplotlib", ["plot"], "examples"), ("tensorboardX", ["tensorboard"], "tensorboard")],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    module, arguments, extra, path, tmp_path, monkeypatch
):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    monkeypatch.chdir(tmp_path)
    rest = [str(tmp_path / "events")] if module == "tensorboardX" else []
    with pytest.raises(SystemExit, match=rf"needs {module}, .* pip install .*\[{extra}\]"):
        cli.main(["log", *arguments, str(path), *rest])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.jsonl"]


# ------------------------------------------------------------------ TensorBoard


def events_of(folder):
    """The events of a folder, from the records of TensorFlow's format, whose sums are checked."""
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    def masked(data):
        check = crc32c(data)
        return ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF

    (file,) = folder.glob("events.out.tfevents.*")
    data, events = file.read_bytes(), []
    while data:
        size, check = struct.unpack("<QI", data[:12])
        assert check == masked(data[:8])
        body = data[12 : 12 + size]
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == masked(body)
        events.append(Event.FromString(body))
        data = data[16 + size :]
    return events


@pytest.mark.slow
def test_event_files_have_the_values_steps_and_times_of_each_run(path, tmp_path, capfd):
    pytest.importorskip("tensorboardX")
    with MetricLog(path) as second:
        second.log(7, loss=2.5)
    target = tmp_path / "board" / "events"
    assert cli.main(["log", "tensorboard", str(path), str(target)]) == 0
    assert capfd.readouterr() == (f"wrote 2 runs to {target}\n", "")
    first, second = MetricLog.read(path)
    assert sorted(p.name for p in target.iterdir()) == sorted(
        f"run-{run.id}" for run in (first, second)
    )
    found = {}
    for event in events_of(target / f"run-{first.id}"):
        for value in event.summary.value:
            if value.HasField("tensor"):
                text = value.tensor.string_val[0].decode()
                assert '"lr": 0.1' in text
            else:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    losses = found["train/loss"]
    expected = [(k, np.float32(1.0 / (k + 1))) for k in range(10)]
    assert losses[:-1] == expected
    assert losses[-1][0] == 20
    assert math.isnan(losses[-1][1])
    assert found["accuracy"] == [(k, np.float32(k / 10)) for k in range(10)]
    (event,) = [e for e in events_of(target / f"run-{second.id}") if e.summary.value]
    assert (event.step, event.summary.value[0].simple_value) == (7, 2.5)
    assert abs(event.wall_time - path.stat().st_mtime) < 60


@pytest.mark.slow
def test_event_files_that_are_there_are_not_written_again(path, tmp_path):
    pytest.importorskip("tensorboardX")
    target = tmp_path / "events"
    assert cli.main(["log", "tensorboard", str(path), str(target)]) == 0
    before = {p: p.read_bytes() for p in target.rglob("*") if p.is_file()}
    with pytest.raises(SystemExit, match=r"run-.*' exists; delete it, or choose another folder"):
        cli.main(["log", "tensorboard", str(path), str(target)])
    assert {p: p.read_bytes() for p in target.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_a_writer_that_fails_leaves_no_folder(path, tmp_path, monkeypatch):
    tensorboardx = pytest.importorskip("tensorboardX")

    def fail(*args, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboardx.SummaryWriter, "add_scalar", fail)
    target = tmp_path / "events"
    with pytest.raises(SystemExit, match=r"were not written: .*No space left"):
        cli.main(["log", "tensorboard", str(path), str(target)])
    assert list(target.iterdir()) == []
