"""Generated loops are kept in a folder that nobody else can write to, or not at all."""

import os
import sys

import pytest

from odyssey.atomic_replace import TEMPORARY_NAMES
from odyssey.kernels import cache_folders, generated
from odyssey.kernels.cache_folders import kernel_folder, machine_code_folder

owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no owners")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ODYSSEY_CACHE", raising=False)
    monkeypatch.setattr(cache_folders, "_warned", set())
    return tmp_path / "odyssey" / "kernels"


def imported(text):
    """Import a text in a process that did not do so before; return the name of its file."""
    module = generated.import_source(text)
    assert module.value == 3
    sys.modules.pop(module.__name__, None)
    return module.__file__


TEXT = "value = 3  # of a test of folders\n"


def test_the_folder_and_its_files_are_for_their_owner_alone(folder, monkeypatch):
    before = os.umask(0)
    try:
        path = imported(TEXT)
    finally:
        os.umask(before)
    assert os.path.dirname(path) == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert [entry.read_text() for entry in folder.iterdir()] == [TEXT]
    assert imported(TEXT) == path


@owners
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_to_is_refused_with_one_warning(folder, mode, monkeypatch):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match=r"others may write to .*kernels.* NUMBA_CACHE_DIR"):
        assert imported(TEXT).startswith("<odyssey_loop_")
    assert imported(TEXT).startswith("<odyssey_loop_")  # and says nothing more
    assert not list(folder.iterdir())


@owners
def test_a_folder_of_another_user_is_refused(folder, monkeypatch):
    folder.mkdir(parents=True, mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, 4242, -1)
    else:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert imported(TEXT).startswith("<odyssey_loop_")
    assert not list(folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="the system has no links")
def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(folder, monkeypatch, tmp_path):
    path = imported(TEXT)
    other = tmp_path / "other.txt"
    other.write_text("mine")
    os.unlink(path)
    os.symlink(other, path)
    assert imported(TEXT) == path
    assert not os.path.islink(path)
    assert other.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="the system has no links")
def test_drafts_have_names_that_nobody_predicts(folder, monkeypatch, tmp_path):
    drafts = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (drafts.append(a), replace(a, b)))
    for word in ("one", "two"):
        imported(TEXT + f"# {word}\n")
    first, second = map(os.path.basename, drafts)
    start, end = TEMPORARY_NAMES.split("*")
    for name in (first, second):
        assert name.startswith(start)
        assert name.endswith(end)
        assert str(os.getpid()) != name[len(start) : -len(end)]
        assert len(name[len(start) : -len(end)]) == 16
    assert first != second


def test_off_keeps_neither_machine_code_nor_loops(folder, monkeypatch):
    for setting in ("off", " OFF "):
        monkeypatch.setenv("ODYSSEY_CACHE", setting)
        assert kernel_folder() is None
        assert machine_code_folder() is None
        assert imported(TEXT).startswith("<odyssey_loop_")
    assert not folder.exists()


@pytest.mark.parametrize("call", ["stat", "lstat", "mkdir", "chmod", "replace"])
def test_a_refusal_of_any_call_of_the_system_is_no_error(folder, call, monkeypatch):
    def refuse(*args, **named):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        imported(TEXT)
    assert imported(TEXT) == str(next(folder.glob("*.py")))
