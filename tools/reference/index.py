"""The index of names, ``odyssey/table/index.py``: which family to load for what is asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import odyssey
from odyssey import losses
from odyssey.describe.entries import Entry, entries, public_name
from odyssey.optim import Optimizer
from odyssey.table.registry import OP_MODULES

__all__ = ["index"]

_HEAD = '''\
"""Index: the module of each op, and its NumPy functions, so that op modules load lazily.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

'''


def index() -> str:
    """Return the module: what there is by family, and functions of NumPy by op."""
    _load_new_families()
    made = entries().values()
    rows = _by_family(entry for entry in made if entry.row is not None)
    composites = _by_family(entry for entry in made if entry.row is None)
    exported = _exports("losses", _is_loss, vars(losses)["BESIDE"])
    optimizers = _exports("optim", _is_optimizer)
    numpy = {
        entry.name: [public_name(known) for known in _stands_for(entry)]
        for entry in made
        if _stands_for(entry)
    }
    parts = [
        _dict("ROWS", rows, "Rows by family; behind ``=`` their other names."),
        _dict("COMPOSITES", composites, "Composites by family, likewise."),
        _dict("LOSSES", exported, "What ``odyssey.losses`` hands on, by file."),
        _dict("OPTIMIZERS", optimizers, "What ``odyssey.optim`` hands on beside its own, by file."),
        _numpy(numpy),
    ]
    return _HEAD + "\n".join(parts)


def _load_new_families() -> None:
    """Load the families that there are, whatever the index of before knows of them."""
    root = Path(odyssey.__file__).parent
    found = {
        ".".join(("odyssey", *path.relative_to(root).with_suffix("").parts))
        for path in root.rglob("*.py")
        if path.read_text(encoding="utf-8").endswith("\npublish(globals())\n")
    }
    if found != OP_MODULES:
        OP_MODULES.intersection_update(found)
        OP_MODULES.update(found)
        entries.cache_clear()


def _exports(
    room: str, belongs: Callable[[Any], bool], others: Iterable[str] = ()
) -> dict[str, list[str]]:
    """Return the exports of the files of a package that ``belongs`` or ``others`` selects."""
    found = {}
    for file in sorted((Path(odyssey.__file__).parent / room).glob("[!_]*.py")):
        module = import_module(f"odyssey.{room}.{file.stem}")
        names = list(getattr(module, "__all__", ()))
        if file.stem in others or any(belongs(getattr(module, name)) for name in names):
            found[module.__name__] = names
    return found


def _is_loss(value: Any) -> bool:
    return hasattr(value, "samples")


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer


def _by_family(found: Iterable[Entry]) -> dict[str, list[str]]:
    families: dict[str, list[str]] = {}
    for entry in found:
        names = "=".join((entry.name, *entry.aliases))
        families.setdefault(entry.module, []).append(names)
    return families


def _stands_for(entry: Entry) -> tuple[object, ...]:
    if entry.name == "concatenate":  # the arrays of its row come one by one
        return (np.concatenate,)
    if entry.row is None:
        return tuple(entry.function.numpy)  # type: ignore[attr-defined]
    return tuple(known for known in (entry.row.ufunc, *entry.row.numpy) if known is not None)


def _dict(name: str, families: Mapping[str, list[str]], meaning: str) -> str:
    lines = [f"{name} = {{"]
    for family, names in families.items():
        line = f'    "{family}": "{" ".join(names)}",'
        if len(line) <= 100:
            lines.append(line)
        else:
            lines.append(f'    "{family}": """')
            lines += textwrap.wrap(" ".join(names), 92, initial_indent=" " * 8,
                                   subsequent_indent=" " * 8, break_on_hyphens=False)  # fmt: skip
            lines.append('    """,')
    return "\n".join([*lines, "}", f'"""{meaning}"""', ""])


def _numpy(found: Mapping[str, list[str]]) -> str:
    words = [op if names == [op] else "=".join((op, *names)) for op, names in sorted(found.items())]
    lines = textwrap.wrap(" ".join(words), 96, initial_indent="    ", subsequent_indent="    ",
                          break_on_hyphens=False)  # fmt: skip
    meaning = "Ops; behind ``=`` NumPy's functions that mean them on Variables, unless named alike."
    return "\n".join(['NUMPY = """', *lines, '"""', f'"""{meaning}"""', ""])
