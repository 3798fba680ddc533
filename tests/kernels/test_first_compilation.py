"""The first long compilation of a loop is told in one line, on a terminal, once on a machine."""

import os
import subprocess
import sys

import pytest

from odyssey.kernels import first_compilation
from odyssey.kernels.first_compilation import tell_first_compilation


class Terminal:
    def __init__(self, is_terminal=True):
        self.text = ""
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def write(self, text):
        self.text += text


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Tell of compilations, each as a new process would; return what a terminal shows."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ODYSSEY_CACHE", raising=False)

    def tell(*calls, stream=None):
        stream = Terminal() if stream is None else stream
        monkeypatch.setattr(first_compilation, "_told", [])
        monkeypatch.setattr(sys, "stderr", stream)
        for call in calls:
            tell_first_compilation(*call)
        return getattr(stream, "text", None)

    return tell


def test_one_line_says_what_is_compiled_and_names_the_command(told):
    text = told(("exp, of float64", 0.84))
    assert text.count("\n") == 1
    assert text.startswith("odyssey: compiled the loop of exp, of float64 (0.8 s); ")
    assert "once on this machine" in text
    assert "python -m odyssey warmup" in text


def test_it_is_told_once_on_a_machine(told, tmp_path):
    assert told(("exp", 0.8), ("log", 0.9)).count("\n") == 1
    assert told(("tanh", 1.5)) == ""
    (marker,) = [file for _, _, files in os.walk(tmp_path) for file in files]
    assert marker == "first-compilation-was-told"


def test_without_a_cache_it_is_told_once_in_a_process(told, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", "off")
    for _ in range(2):
        assert "in each process" in told(("exp", 0.8), ("log", 0.9))
        assert told(("exp", 0.8), ("log", 0.9)).count("\n") == 1


@pytest.mark.parametrize("stream", [Terminal(False), object(), None], ids=["file", "odd", "none"])
def test_nothing_is_written_but_to_a_terminal(told, stream, monkeypatch):
    if stream is None:
        told(stream=Terminal())
        monkeypatch.setattr(sys, "stderr", None)
        tell_first_compilation("exp", 0.8)
    else:
        assert not told(("exp", 0.8), stream=stream)
    assert told(("exp", 0.8))  # it is still to be told


def test_a_short_compilation_is_not_told(told):
    assert told(("exp", 0.1)) == ""
    assert told(("exp", 0.3)) != ""


def test_a_terminal_that_is_gone_is_no_error(told):
    class Gone(Terminal):
        def write(self, text):
            raise OSError("gone")

    assert told(("exp", 0.8), stream=Gone()) == ""


def test_a_folder_that_cannot_be_written_to_keeps_it_quiet(told, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert told(("exp", 0.8)) == ""


PROGRAM = """
import numpy as np, odyssey as od
for _ in range(2):
    with od.ops.use_kernels():
        od.nn.softmax(np.ones((4, 4)))
        od.ops.cumsum(np.ones(1000))
"""


@pytest.mark.slow
def test_a_program_on_a_terminal_tells_of_its_first_loop_only(tmp_path):
    pty = pytest.importorskip("pty")
    pytest.importorskip("numba")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "ODYSSEY_CACHE": ""}
    shown = []
    for _ in range(2):
        ours, theirs = pty.openpty()
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stderr=theirs, check=True)
        os.close(theirs)
        try:
            shown.append(os.read(ours, 10_000).decode())
        except OSError:  # nothing was written
            shown.append("")
        os.close(ours)
    assert shown[0].count("odyssey: compiled the loop of softmax_rows (") == 1
    assert shown[0].count("odyssey:") == 1
    assert shown[1] == ""
