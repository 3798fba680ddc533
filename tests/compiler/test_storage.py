"""What is kept on disk is what was written, whatever happens to the files; else it is nothing."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
import warnings

import pytest

from odyssey import atomic_replace
from odyssey.compiler.machine import disk_cache
from odyssey.compiler.machine.disk_cache import clear_cache, entry_key, read_entry, write_entry
from odyssey.kernels import cache_folders

KEY = entry_key(["a", "program"])
CODE = bytes(random.Random(0).randbytes(3000))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    monkeypatch.setattr(cache_folders, "_warned", set())
    return tmp_path / "native"


def only_file(cache):
    (path,) = cache.iterdir()
    return path


def test_what_was_written_is_read_and_under_no_other_key():
    assert read_entry(KEY) is None
    write_entry(KEY, CODE)
    assert read_entry(KEY) == CODE
    assert read_entry(entry_key(["ap", "rogram"])) is None
    write_entry(KEY, b"")
    assert read_entry(KEY) == b""


def test_the_folder_and_its_files_are_for_their_owner_alone(cache):
    before = os.umask(0)
    try:
        write_entry(KEY, CODE)
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o777 == 0o700
    assert only_file(cache).stat().st_mode & 0o777 == 0o600
    assert read_entry(KEY) == CODE


# ------------------------------------------------------------------ damage


def test_a_file_with_any_byte_changed_is_not_believed(cache):
    write_entry(KEY, CODE)
    path = only_file(cache)
    whole = path.read_bytes()
    for place in [*range(100), *range(100, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_entry(KEY) is None, place
    path.write_bytes(whole)
    assert read_entry(KEY) == CODE


def test_a_file_that_was_cut_off_or_goes_on_is_not_believed(cache):
    write_entry(KEY, CODE)
    path = only_file(cache)
    whole = path.read_bytes()
    for length in [*range(100), *range(100, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert read_entry(KEY) is None, length
    path.write_bytes(whole + b"\0")
    assert read_entry(KEY) is None


def test_the_file_of_another_program_is_not_believed_under_this_name(cache):
    write_entry(entry_key(["another"]), CODE)
    path = only_file(cache)
    path.rename(path.with_name(KEY.hex() + ".code"))
    assert read_entry(KEY) is None


def _link(path):
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _folder(path):
    path.unlink()
    path.mkdir()


def _open_to_all(path):
    path.chmod(0o666)


@pytest.mark.skipif(os.name != "posix", reason="the system has no such files")
@pytest.mark.parametrize("change", [_link, _pipe, _folder, _open_to_all])
def test_what_is_no_file_of_ours_is_not_read_nor_waited_for(cache, change):
    write_entry(KEY, CODE)
    change(cache / f"{KEY.hex()}.code")
    assert read_entry(KEY) is None
    write_entry(KEY, CODE)
    assert read_entry(KEY) == (None if change is _folder else CODE)


# ------------------------------------------------------------------ whose it is


def test_a_folder_that_others_may_write_to_is_refused_with_one_warning(cache):
    write_entry(KEY, CODE)
    for mode in (0o770, 0o707):
        cache.chmod(mode)
        cache_folders._warned.clear()
        with pytest.warns(RuntimeWarning, match=r"others may write.*chmod 700.*ODYSSEY_CACHE"):
            assert read_entry(KEY) is None
        write_entry(entry_key(["another"]), CODE)  # and says nothing more
        assert len(list(cache.iterdir())) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no owners")
def test_a_folder_or_file_of_another_user_is_refused(cache, monkeypatch):
    write_entry(KEY, CODE)
    path = only_file(cache)
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
        assert read_entry(KEY) is None
        os.chown(cache, 4242, -1)
    else:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert read_entry(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no owners")
def test_what_the_system_itself_owns_is_read_by_all_its_users(cache, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can write what root owns")
    write_entry(KEY, CODE)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert read_entry(KEY) == CODE


# ------------------------------------------------------------------ where it is


def test_off_keeps_nothing_and_no_home_is_no_error(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for given in ("off", "OFF", "~nobody-of-this-name/x", "with\0null"):
        if "\0" in given:
            monkeypatch.setattr(os, "environ", dict(os.environ) | {"ODYSSEY_CACHE": given})
        else:
            monkeypatch.setenv("ODYSSEY_CACHE", given)
        write_entry(KEY, CODE)
        assert read_entry(KEY) is None
        assert clear_cache() == 0
    assert not list(tmp_path.iterdir())


def test_a_path_through_a_file_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path / "file" / "below"))
    write_entry(KEY, CODE)
    assert read_entry(KEY) is None


def test_without_a_name_it_lies_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("ODYSSEY_CACHE")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    write_entry(KEY, CODE)
    assert only_file(tmp_path / "mine" / "odyssey" / "native").name == f"{KEY.hex()}.code"


# ------------------------------------------------------------------ a disk that refuses


def _refuse(*args, **named):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


CALLS = ["stat", "open", "fstat", "utime", "mkdir", "chmod", "replace", "scandir", "unlink"]


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_of_any_call_of_the_system_is_no_error(monkeypatch, cache, name):
    monkeypatch.setenv("ODYSSEY_CACHE_BYTES", "5000")  # room for one
    write_entry(KEY, CODE)
    with monkeypatch.context() as broken:
        broken.setattr(os, name, _refuse)
        assert read_entry(KEY) in (CODE, None)
        write_entry(entry_key(["another"]), CODE)
        clear_cache()
    if name not in ("scandir", "unlink", "stat"):
        clear_cache()
    write_entry(KEY, CODE)
    assert read_entry(KEY) == CODE


@pytest.mark.parametrize("what", ["open", "write", "flush"])
def test_a_disk_that_is_full_is_no_error_and_keeps_no_half(monkeypatch, cache, what):
    class Full:
        def __init__(self, *given):
            if what == "open":
                _refuse()
            self.file = open(*given, buffering=0)  # noqa: SIM115

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            self.file.close()

        def write(self, data):
            self.file.write(data[: len(data) // 2])
            if what == "write":
                _refuse()

        def flush(self):
            _refuse()

    write_entry(KEY, CODE)
    with monkeypatch.context() as broken:
        broken.setattr(atomic_replace, "open", Full, raising=False)
        write_entry(KEY, CODE[::-1])
    assert read_entry(KEY) == CODE
    assert len(list(cache.iterdir())) == 1


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_is_no_error(cache):
    pytest.importorskip("resource")
    program = f"""
import os, resource
from odyssey.compiler.machine.disk_cache import read_entry, write_entry

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_entry({KEY!r}, bytes(3000))
assert read_entry({KEY!r}) is None
write_entry({KEY!r}, bytes(300))
assert read_entry({KEY!r}) == bytes(300)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert only_file(cache).stat().st_size < 1000


# ------------------------------------------------------------------ room


def aged(cache, key, seconds):
    path = cache / f"{key.hex()}.code"
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_what_was_not_used_for_longest_goes_first(monkeypatch, cache):
    monkeypatch.setenv("ODYSSEY_CACHE_BYTES", "100000")
    keys = [entry_key([str(k)]) for k in range(40)]
    for age, key in enumerate(keys[:20]):
        write_entry(key, CODE)
        aged(cache, key, 1000 - age)
    assert read_entry(keys[0]) == CODE  # the oldest, which is used now
    for key in keys[20:]:
        write_entry(key, CODE)
        total = sum(path.stat().st_size for path in cache.iterdir())
        assert total <= 100_000
    kept = [read_entry(key) is not None for key in keys]
    assert kept[0]
    assert kept[39]
    first = kept.index(True, 1)
    assert all(kept[first:])  # those that went are the older ones
    assert 20 <= sum(kept) <= 33


def test_small_files_are_counted_now_and_then(monkeypatch, cache):
    monkeypatch.setenv("ODYSSEY_CACHE_BYTES", "500000")
    counted, highest = [], 0
    look = disk_cache._cache_files
    monkeypatch.setattr(disk_cache, "_cache_files", lambda home: counted.append(home) or look(home))
    for k in range(1000):
        write_entry(entry_key([str(k)]), CODE)
        if k % 50 == 0:
            highest = max(highest, sum(path.stat().st_size for path in cache.iterdir()))
    assert 5 < len(counted) < 40  # one of 64
    assert 400_000 < highest < 1_000_000


def test_what_is_larger_than_the_limit_is_not_written(monkeypatch, cache):
    monkeypatch.setenv("ODYSSEY_CACHE_BYTES", "1000")
    write_entry(KEY, CODE)
    assert not cache.exists()


@pytest.mark.parametrize("given", ["many", "-1", "1e6"])
def test_a_limit_that_is_no_number_is_told_once_and_the_usual_one_taken(monkeypatch, given):
    monkeypatch.setenv("ODYSSEY_CACHE_BYTES", given)
    with pytest.warns(RuntimeWarning, match=f"ODYSSEY_CACHE_BYTES='{given}'"):
        write_entry(KEY, CODE)
    write_entry(KEY, CODE)
    assert read_entry(KEY) == CODE


def test_clearing_counts_what_it_frees_and_leaves_what_is_not_ours(cache):
    write_entry(KEY, CODE)
    write_entry(entry_key(["another"]), CODE)
    others = [cache / "notes.code", cache / "a", cache / f"{KEY.hex()}.text"]
    for path in others:
        path.write_bytes(b"mine")
    drafts = [cache / atomic_replace.TEMPORARY_NAMES.replace("*", word) for word in ("new", "old")]
    for path in drafts:
        path.write_bytes(b"")
    os.utime(drafts[1], (time.time() - 7200,) * 2)
    ours = sum(path.stat().st_size for path in cache.iterdir()) - 3 * len(b"mine")
    assert clear_cache() == ours > 6000
    assert set(cache.iterdir()) == {*others, drafts[0]}  # a draft may be somebody's still


# ------------------------------------------------------------------ others at the same time


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_kill_at_any_moment_leaves_what_was_or_what_is(cache):
    rng = random.Random(1)
    versions = [rng.randbytes(1) * (1 << 20) for _ in range(4)]
    keys = [entry_key([str(k)]) for k in range(3)]
    drafts = rounds = 0
    while rounds < 25 or (not drafts and rounds < 400):
        rounds += 1
        child = os.fork()
        if not child:
            while True:
                write_entry(rng.choice(keys), rng.choice(versions))
        time.sleep(0.002 + 0.02 * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert all(read_entry(key) in (None, *versions) for key in keys)
        if cache.exists():  # the child may have been killed before it made the folder
            drafts += sum(path.suffix == ".tmp" for path in cache.iterdir())
    assert any(read_entry(key) is not None for key in keys)
    assert drafts  # some were killed while they wrote


MANY = """
import random, sys
from odyssey.compiler.machine.disk_cache import clear_cache, entry_key, read_entry, write_entry
from odyssey.kernels import cache_folders

rng = random.Random(int(sys.argv[1]))
hits = 0
for turn in range(400):
    k = rng.randrange(40)
    code = bytes([k]) * (1000 + 100 * k)
    found = read_entry(entry_key([str(k)]))
    assert found in (None, code)
    hits += found is not None
    write_entry(entry_key([str(k)]), code)
    if turn % 150 == 149:
        clear_cache()
print(hits)
"""


@pytest.mark.slow
def test_processes_that_read_write_and_delete_at_once_do_not_disturb_each_other(cache):
    environment = os.environ | {"ODYSSEY_CACHE_BYTES": "60000"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", MANY, str(k)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for k in range(3)
    ]
    hits = [int(child.communicate(timeout=120)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert min(hits) > 20
    assert not [path for path in cache.iterdir() if path.suffix == ".tmp"]


def test_nothing_is_ever_told_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_entry(KEY, CODE)
        assert read_entry(KEY) == CODE
        assert clear_cache() > 3000
