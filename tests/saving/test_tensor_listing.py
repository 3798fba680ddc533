"""Listings of tensor files, in Python and by ``python -m odyssey files``."""

import os
import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey.cli import main


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {"h.10.w": np.ones((2, 3), np.float32), "h.2.w": np.ones(4, bool), "n": np.array(3)}
    od.save_tensors(path, arrays, {"format": "np"})
    return path


TABLE = """\
name    dtype    shape   bytes
h.2.w   bool     (4,)        4
h.10.w  float32  (2, 3)     24
n       int64    ()          8
3 tensors, 11 numbers, 36 bytes
metadata format: np
"""


def test_a_listing_is_a_mapping_that_prints_as_a_table(path):
    found = od.list_tensors(path)
    assert list(found) == ["h.2.w", "h.10.w", "n"]
    assert (found["h.10.w"].dtype, found["h.10.w"].shape) == ("float32", (2, 3))
    assert (found["h.10.w"].nbytes, found["h.10.w"].file) == (24, "model.safetensors")
    assert (found.nbytes, found.metadata, found.path) == (36, {"format": "np"}, str(path))
    assert f"{found}\n" == TABLE
    assert repr(found) == f"TensorListing({str(path)!r}, 3 tensors, 36 bytes)"
    assert "x" not in found
    with pytest.raises(KeyError):
        found["x"]


def test_only_the_header_is_read(path, monkeypatch):
    from odyssey.saving import tensor_header

    counts = []
    read = tensor_header._read_bytes
    monkeypatch.setattr(
        tensor_header, "_read_bytes", lambda file, n: counts.append(n) or read(file, n)
    )
    od.list_tensors(path)
    assert sum(counts) == path.stat().st_size - 36
    if os.path.exists("/proc/self/fd"):
        before = len(os.listdir("/proc/self/fd"))
        od.list_tensors(path)
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_command_prints_the_table(path, capsys):
    assert main(["files", str(path)]) == 0
    assert capsys.readouterr().out == TABLE


def test_several_paths_have_their_names_above_them(path, capsys):
    assert main(["files", str(path), str(path.parent)]) == 0
    assert capsys.readouterr().out == f"{path}\n{TABLE}\n{path}\n{TABLE}"


def test_shards_have_a_column_of_files(tmp_path, capsys):
    for shard in "ab":
        od.save_tensors(tmp_path / f"{shard}.safetensors", {f"w{shard}": np.ones(2)})
    (tmp_path / "m.safetensors.index.json").write_text(
        '{"weight_map": {"wa": "a.safetensors", "wb": "b.safetensors"}}'
    )
    assert main(["files", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "name  dtype    shape  bytes  file",
        "wa    float64  (2,)      16  a.safetensors",
        "wb    float64  (2,)      16  b.safetensors",
        "2 tensors, 4 numbers, 32 bytes, 2 files",
    ]


def test_a_file_of_no_tensors_has_a_table_too(tmp_path, capsys):
    od.save_tensors(tmp_path / "x.safetensors", {})
    assert main(["files", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["0 tensors, 0 numbers, 0 bytes"]


def test_an_error_is_one_line_and_the_others_are_listed(path, capsys):
    bad = path.parent / "bad\n.safetensors"
    bad.write_bytes(b"\x1b[31m" * 10)
    assert main(["files", str(path.parent / "no.safetensors"), str(bad), str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.endswith(TABLE)
    lines = captured.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("python -m odyssey files: '/")
    assert "no.safetensors': No such file or directory; pass the path of one" in lines[0]
    assert "bad\\n.safetensors' is not a safetensors file" in lines[1]
    assert "\x1b" not in captured.err


def test_names_cannot_write_to_the_terminal(tmp_path, capsys):
    arrays = {"\x1b[31mred": np.ones(1), "x" * 300: np.ones(1), "a\rb": np.ones(1), "": np.ones(1)}
    od.save_tensors(tmp_path / "x.safetensors", arrays, {"note": "line\nline " + "y" * 300})
    assert main(["files", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 7
    assert out.isascii()
    assert not any(c in out for c in "\x1b\r")
    assert max(map(len, out.splitlines())) < 160


def test_the_command_runs_as_a_program(path):
    done = subprocess.run(
        [sys.executable, "-m", "odyssey", "files", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == TABLE
    assert done.stderr == ""


def test_importing_odyssey_imports_no_safetensors():
    program = (
        "import sys, odyssey as od; od.load_tensors, od.TensorSource; "
        "sys.exit(bool({'safetensors', 'ml_dtypes', 'mmap'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
