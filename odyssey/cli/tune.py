"""Command ``python -m odyssey tune``: find the fastest plan of a script's compiled function."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from odyssey.errors import OdysseyError

__all__ = ["add_command", "record_first_call"]

_FORMAT = "odyssey measurements 1"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``tune`` to the commands."""
    parser = commands.add_parser(
        "tune",
        help="measure which ways of computing a function are the fastest here, and keep the result",
        description="Run a script up to the first call of a compiled function, and tune the "
        "function for the arguments of that call: later processes run it by the plan that was the "
        "fastest on this machine. What is measured is kept beside the machine code, in the folder "
        "that ODYSSEY_CACHE names. Ctrl-C ends it; the same command goes on from there.",
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="SCRIPT:FUNCTION",
        help="script, and the name of a function in it that od.compile compiles",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=60.0,
        help="time after which no more ways are tried (60)",
    )
    parser.add_argument(
        "--ops",
        nargs="?",
        const="",
        metavar="NAMES",
        help="measure from which sizes on eager calls run compiled loops: all ops, or some",
    )
    parser.add_argument("--list", action="store_true", help="list what was measured")
    parser.add_argument(
        "--prune",
        action="store_true",
        help="delete what was measured on other machines, and of code that has changed since",
    )
    parser.add_argument(
        "--export", type=Path, metavar="FILE", help="write all measurements to a file"
    )
    parser.add_argument(
        "--import",
        type=Path,
        dest="import_file",
        metavar="FILE",
        help="add the measurements in a file, which serve machines with equal facts",
    )
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    """Parse a number of seconds; argparse reports other text."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")


def _run(arguments: argparse.Namespace) -> int:
    chosen: list[Callable[[], int]] = []
    if arguments.target is not None:
        chosen.append(lambda: _tune(arguments.target, arguments.seconds))
    if arguments.ops is not None:
        chosen.append(lambda: _tune_ops(arguments.ops, arguments.seconds))
    if arguments.list:
        chosen.append(_list)
    if arguments.prune:
        chosen.append(_prune)
    if arguments.export is not None:
        chosen.append(lambda: _export(arguments.export))
    if arguments.import_file is not None:
        chosen.append(lambda: _import(arguments.import_file))
    if len(chosen) != 1:
        raise _stopped("pass one of SCRIPT:FUNCTION, --ops, --list, --prune, --export and --import")
    try:
        return chosen[0]()
    except OdysseyError as error:
        raise _stopped(str(error)) from None
    except KeyboardInterrupt:
        print("interrupted; what was measured is kept, and the same command goes on")
        return 128 + 2


def _stopped(message: str) -> SystemExit:
    return SystemExit(f"python -m odyssey tune: {message}")


# ------------------------------------------------------------------ a function of a script


class _Stop(BaseException):
    """Ends a script at the call that is recorded; no ``except Exception`` holds it up."""


def _tune(target: str, seconds: float) -> int:
    from odyssey.compiler.tuning import tune

    script, _, name = target.rpartition(":")
    if not script or not name.isidentifier():
        raise _stopped(f"{target!r} is not SCRIPT:FUNCTION, such as train.py:step")
    if not Path(script).is_file():
        raise _stopped(f"no such script: {script!r}")
    step, args, named = record_first_call(script, name)
    if "seconds" in named:
        raise _stopped(f"{name} has a keyword argument seconds; tune it by od.tune in the script")
    print(f"tuning {name} for at most {seconds:g} seconds", flush=True)
    print(tune(step, *args, seconds=seconds, **named))
    return 0


def record_first_call(script: str, name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Run a script until it calls a compiled function of this name, which is not executed.

    Returns:
        The compiled function, and the arguments of the call.

    Raises:
        SystemExit: the script ended before, or failed.
    """
    from odyssey.compiler.compiled_function import CompiledFunction
    from odyssey.compiler.inspection import function_name
    from odyssey.compiler.static_arguments import CompiledByValue

    recorded: list[Any] = []
    others: set[str] = set()

    def patched(usual: Any) -> Any:
        def call(self: Any, *args: Any, **named: Any) -> Any:
            own = function_name(self._fn)
            if own == name and not recorded:
                recorded.extend((self, args, named))
                raise _Stop
            others.add(own)
            return usual(self, *args, **named)

        return call

    classes = CompiledFunction, CompiledByValue
    before = [(one, one.__call__) for one in classes]
    arguments, path = sys.argv, list(sys.path)
    try:
        for one, usual in before:
            one.__call__ = patched(usual)  # type: ignore[method-assign]
        sys.argv = [script]
        sys.path.insert(0, str(Path(script).resolve().parent))
        runpy.run_path(script, run_name="__main__")
    except _Stop:
        pass
    except SystemExit as error:
        if not recorded:
            raise _stopped(f"{script} ended ({error}) before it called {name}") from None
    finally:
        for one, usual in before:
            one.__call__ = usual  # type: ignore[method-assign]
        sys.argv, sys.path[:] = arguments, path
    if not recorded:
        called = f"it called {', '.join(sorted(others))}" if others else "it called none"
        raise _stopped(f"{script} calls no compiled function {name!r}; {called}")
    step, args, named = recorded
    return step, args, named


# ------------------------------------------------------------------ the file of measurements


def _require_store() -> Any:
    from odyssey.compiler.machine.thread_count import get_threads
    from odyssey.compiler.ways.store import default_store

    store = default_store(get_threads())
    if store is None:
        raise _stopped("ODYSSEY_CACHE=off: nothing is kept")
    return store


def _list() -> int:
    from odyssey.compiler.ways.contest import format_ratio

    store = _require_store()
    machines = store.machines()
    if not machines:
        print(f"nothing was measured yet; {store.path} does not exist or is empty")
        return 0
    print(store.path)
    for id, (facts, rows) in machines.items():
        here = " (this machine)" if id == store.machine else ""
        print(f"machine {id}{here}: {rows} rows; {', '.join(f'{k} {v}' for k, v in facts.items())}")
    latest = {(row.work, row.way): row for row in store.all_verdicts()}
    for row in latest.values():
        if row.reason:
            print(f"  {row.work}: {row.way}: in quarantine, since {row.reason}")
        elif row.ratio is not None:
            print(f"  {row.work}: {row.way}: {format_ratio(row.ratio, row.bound).rstrip()}")
        else:
            print(f"  {row.work}: {row.way}: checked, not timed")
    return 0


def _prune() -> int:
    from odyssey.compiler.ways.choosing import is_stale

    print(f"{_require_store().prune(is_stale)} rows deleted")
    return 0


def _export(path: Path) -> int:
    from odyssey.atomic_replace import replace_file

    rows = list(_require_store().export_rows())
    text = json.dumps({"format": _FORMAT, "rows": rows}, indent=1)
    try:
        replace_file(str(path), lambda file: file.write(text.encode()), None)
    except OSError as error:
        raise _stopped(f"{str(path)!r} was not written: {error}") from None
    print(f"{len(rows)} rows written to {path}")
    return 0


def _import(path: Path) -> int:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(read, dict) or read.get("format") != _FORMAT:
            raise ValueError("it has another format")
        rows = read.get("rows")
        if not isinstance(rows, list):
            raise ValueError("it has no rows")
        added = _require_store().import_rows(rows)
    except (OSError, ValueError, RecursionError) as error:
        raise _stopped(
            f"{str(path)!r} was not imported: {error}; pass a file that --export wrote"
        ) from None
    if added is None:
        raise _stopped("the file of measurements was not written")
    print(f"{added} rows added, {len(rows) - added} were there")
    return 0


# ------------------------------------------------------------------ sizes of eager calls


def _tune_ops(names: str, seconds: float) -> int:
    from odyssey.compiler.tuning_sizes import tune_sizes
    from odyssey.kernels.sizes import SIZES

    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in chosen if name not in SIZES]:
        raise _stopped(
            f"no compiled loops for {', '.join(unknown)}; the ops with compiled loops are "
            f"{', '.join(sorted(SIZES))}"
        )
    for line in tune_sizes(chosen or sorted(SIZES), seconds):
        print(line, flush=True)
    return 0
