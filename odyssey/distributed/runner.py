"""Runner: a script as one rank, whose failure ends all ranks, and whose end all ranks meet."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib.util
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, NoReturn

from odyssey.distributed.run_processes import environment_rank
from odyssey.errors import DistributedError, OdysseyError

__all__ = ["main"]

STATUS_DISTRIBUTED = 75  # EX_TEMPFAIL of sysexits.h
STATUS_INTERRUPTED = 130
STATUS_USAGE = 2
ABORT_LIMIT = 5.0
"""Seconds after which a rank ends although MPI's Abort has not returned."""

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_ENDING_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

_SHARED_MEMORY = re.compile(r"/dev/shm/(mpich|ucx|vader_segment|sm_segment)[\w.-]*$")
"""Shared memory of MPICH and Open MPI that has a name."""

_USAGE = "usage: python -m odyssey.distributed [-m] SCRIPT [ARGUMENT ...]"


def main(arguments: Sequence[str]) -> None:
    """Run a script, or a module after ``-m``, as ``__main__`` of this rank.

    Returns when the script has ended. When the interpreter has joined its threads and run its exit
    handlers, this rank meets the others and leaves the mark that it reached the end. If it fails,
    all ranks are ended.

    Args:
        arguments: ``-m``, if a module is meant; the script or module; its arguments.
    """
    if list(arguments) in (["-h"], ["--help"]):
        print(_USAGE)
        return
    module = list(arguments[:1]) == ["-m"]
    target, *rest = arguments[module:] or [""]
    rank = _Rank(environment_rank() or 0, os.environ.get("ODYSSEY_RUN"))
    if not faulthandler.is_enabled():
        with contextlib.suppress(Exception):  # standard error may be closed
            faulthandler.enable()
    with contextlib.suppress(Exception):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        if not target:
            raise OdysseyError(_USAGE)
        rank.meet()
        code, main_module = _load_module(target) if module else _load_script(target)
        sys.argv[:] = [str(main_module.__file__) if module else target, *rest]
        sys.modules["__main__"] = main_module
    except _Unloadable as error:
        rank.fail(STATUS_USAGE, str(error))
    except OdysseyError as error:
        rank.fail(STATUS_USAGE if not target else _status(error), _with_name(error))
    except BaseException as error:
        rank.fail_by(error)
    # Exit handlers run in reverse order, so this one is after those that the script registers.
    atexit.register(rank.finish)
    sys.unraisablehook = rank.note_unraisable(sys.unraisablehook)
    try:
        exec(code, main_module.__dict__)
    except SystemExit as exit_request:
        rank.exit(exit_request.code)
    except BaseException as error:
        rank.fail_by(error)


class _Unloadable(Exception):
    """There is no such script or module."""


def _load_script(path: str) -> tuple[CodeType, ModuleType]:
    """Return the code of a script, and a new module for it, with its folder on ``sys.path``."""
    complete = os.path.abspath(path)
    try:
        with io.open_code(complete) as file:
            source = file.read()
    except OSError as error:
        raise _Unloadable(f"the script {path!r} cannot be read: {error.strerror}") from None
    code = compile(source, complete, "exec", dont_inherit=True)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))  # instead of that of -m
    return code, _new_main_module(complete)


def _load_module(name: str) -> tuple[CodeType, ModuleType]:
    """Return the code of a module, or of a package's ``__main__``, and a new module for it."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    except ValueError:
        spec = None
    code = getattr(spec.loader, "get_code", lambda name: None)(spec.name) if spec else None
    if spec is None or code is None:
        raise _Unloadable(f"no module {name!r} can be run")
    module = _new_main_module(spec.origin or name)
    module.__spec__, module.__package__, module.__loader__ = spec, spec.parent, spec.loader
    return code, module


def _new_main_module(path: str) -> ModuleType:
    """Return an empty ``__main__`` with the names that this version of Python gives it."""
    module, present = ModuleType("__main__"), vars(sys.modules["__main__"])
    names = {"__file__": path, "__builtins__": __builtins__, "__annotations__": {}}
    names |= {"__cached__": None, "__loader__": SourceFileLoader("__main__", path)}
    module.__dict__.update((name, value) for name, value in names.items() if name in present)
    return module


def _status(error: BaseException) -> int:
    if isinstance(error, DistributedError):
        return STATUS_DISTRIBUTED
    return STATUS_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _with_name(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


class _Rank:
    """This process as one of several: its marks in the run folder, and its end.

    Args:
        number: The rank.
        folder: The run folder of ``odyssey launch``; None under another launcher.
    """

    def __init__(self, number: int, folder: str | None) -> None:
        self.number, self.folder, self.process = number, folder, os.getpid()
        self._lost_handlers: list[str] = []  # exit handlers that raised

    def meet(self) -> None:
        """Make the group of all ranks."""
        from odyssey.distributed.group import world

        usual = [n for n in _ENDING_SIGNALS if signal.getsignal(n) == signal.SIG_DFL]
        self.number = world().rank
        for number in usual:  # libraries below MPI catch some for debugging, SIGHUP among them
            signal.signal(number, signal.SIG_DFL)
        self._mark("shared", "\n".join(_shared_memory()))
        self._mark("ready")

    def finish(self) -> None:
        """Meet the other ranks at the end of the script, and leave the mark."""
        from odyssey.distributed.group import world

        if os.getpid() != self.process:  # a fork of the rank, where mpi4py would finalize MPI
            self._flush()
            os._exit(0)
        try:
            if self._lost_handlers:
                error = self._lost_handlers[0]
                self.fail(1, f"an exit handler raised {error}", shown=False)
            world()._finish()
            if sys.stdout is not None and not sys.stdout.closed:
                sys.stdout.flush()
            if not self._mark("done"):
                self.fail(1, "the mark of the end cannot be written to the run folder")
        except BaseException as error:
            self.fail_by(error)

    def exit(self, code: object) -> None:
        """End as ``sys.exit(code)`` asks: return for success."""
        if code is None or (isinstance(code, int) and code == 0):
            return
        if isinstance(code, int):
            # odyssey launch says it itself, and a process that runs alone is as one of Python.
            shown = self.folder is None and environment_rank() is not None
            self.fail(code & 0xFF or 1, f"sys.exit({code})", shown=shown)
        self.fail(1, f"sys.exit: {code}", f"{code}")

    def fail_by(self, error: BaseException) -> NoReturn:
        """End by an exception: print its traceback, from the first line of the script."""
        try:
            text = _format_error(error)
        except BaseException as another:  # an exception that cannot be printed
            text = f"{type(error).__name__} (its text raised {type(another).__name__})\n"
        summary = text.rstrip().rpartition("\n")[2]
        self.fail(_status(error), summary, text)

    def fail(self, status: int, summary: str, text: str = "", shown: bool = True) -> NoReturn:
        """Print why this rank failed, leave the mark, and end all ranks."""
        try:
            self._flush()
            if shown:
                self._print(text or summary)
            if os.getpid() == self.process:  # a fork ends alone
                self._mark("failed", f"{status} {summary}".replace("\n", " ")[:2000])
                if self.folder is None:
                    _abort(status)
        finally:
            os._exit(status)

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    def note_unraisable(self, usual: Any) -> Any:
        """Return a hook that also notes exceptions of exit handlers, which Python ignores."""

        def hook(event: Any) -> None:
            if "atexit" in (event.err_msg or ""):
                self._lost_handlers.append(_with_name(event.exc_value))
            usual(event)

        return hook

    def _print(self, text: str) -> None:
        """Write lines to standard error in one piece, with the rank unless the launcher adds it."""
        tagged = self.folder is not None and self.number > 0
        alone = environment_rank() is None
        tag = "" if tagged or alone else f"rank {self.number}: "
        lines = "".join(f"{tag}{line}\n" for line in text.splitlines())
        with contextlib.suppress(OSError):
            left = lines.encode(errors="backslashreplace")
            while left:
                left = left[os.write(2, left) :]

    def _mark(self, kind: str, text: str = "") -> bool:
        """Write a mark to the run folder, and return whether it is there."""
        if self.folder is None:
            return True
        path = os.path.join(self.folder, f"{kind}.{self.number}")
        try:
            with open(path + "~", "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            os.replace(path + "~", path)
        except OSError:
            return False
        return True


def _format_error(error: BaseException) -> str:
    """Return the traceback of an exception without the frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    if isinstance(error, KeyboardInterrupt):
        where = traceback.extract_tb(frames)[-1:]
        return "".join(f"interrupted in {f.filename}, line {f.lineno}\n" for f in where)
    if not isinstance(error, DistributedError):
        return "".join(traceback.format_exception(error.with_traceback(frames)))
    # Where a collective failed inside of the library says nothing.
    calls = [f for f in traceback.extract_tb(frames) if not f.filename.startswith(_PACKAGE)]
    head = ["Traceback (most recent call last):\n", *traceback.format_list(calls)]
    name = type(error).__name__
    return "".join(head if calls else ["At the end of the script:\n"]) + f"{name}: {error}\n"


def _abort(status: int) -> None:
    """Ask MPI to end all ranks, if it was loaded; it may not return, or return."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    timer = threading.Timer(ABORT_LIMIT, os._exit, [status])
    timer.daemon = True
    timer.start()
    mpi.COMM_WORLD.Abort(status)


def _shared_memory() -> list[str]:
    """Return the shared memory of this process that has a name, which a kill leaves behind."""
    if "mpi4py.MPI" not in sys.modules:
        return []
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split(maxsplit=5)[5].strip() for line in file if "/dev/shm/" in line}
    except (OSError, IndexError):
        return []
    return sorted(path for path in paths if _SHARED_MEMORY.match(path))
