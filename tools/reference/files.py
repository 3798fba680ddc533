"""The files that are made from the table, and whether they still say what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import odyssey
from odyssey.errors import OdysseyError
from tools.reference.backward_stub import backward_stub
from tools.reference.index import index
from tools.reference.native import native
from tools.reference.stubs import room_stub, signatures_stub

__all__ = ["FILES", "refresh", "stale"]

FILES: Mapping[str, Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "index": {"odyssey/table/index.py": index},
        "markdown": {"docs/native.md": native},
        "stubs": {
            "odyssey/backward.pyi": backward_stub,
            "odyssey/table/signatures.pyi": signatures_stub,
            **{
                f"odyssey/{room}/__init__.pyi": partial(room_stub, room)
                for room in ("ops", "fft", "linalg", "losses", "nn", "optim", "special")
            },
        },
    }
)
"""For each kind of files, their paths in the checkout and who makes them."""


def _root() -> Path:
    root = Path(__file__).resolve().parent.parent.parent
    package = Path(odyssey.__file__).resolve().parent
    if package.parent != root:
        raise OdysseyError(
            f"the package that was imported lies in {package}, not in this checkout, {root}; the "
            "files of a checkout are made from its own table"
        )
    return root


def refresh(kind: str) -> list[Path]:
    """Write the files of a kind, as ``"stubs"``, and return their paths."""
    texts = {_root() / path: make() for path, make in FILES[kind].items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def stale(kind: str) -> list[str]:
    """Return the files of a kind that do not say what the table says."""
    found = []
    for path, make in FILES[kind].items():
        file = _root() / path
        if not file.is_file() or file.read_text(encoding="utf-8") != make():
            found.append(path)
    return found
