"""Argument checks of the commands, and optional packages."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

__all__ = ["import_extra", "path_in_folder", "positive_int"]


def positive_int(text: str) -> int:
    """Return a whole number from 1 on, or let argparse say what came in its place."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def path_in_folder(text: str) -> Path:
    """Return a path whose folder exists, or let argparse say that it does not."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} lies in a folder that does not exist")
    return path


def import_extra(module: str, distribution: str) -> ModuleType:
    """Return ``module``, or leave the program with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the extra is there, but broken: show how
        checkout = (Path(__file__).parents[2] / "pyproject.toml").is_file()
        what = '-e ".[examples]"' if checkout else '"odyssey[examples]"'
        raise SystemExit(
            f"python -m odyssey: this command needs {distribution}, which is not installed; "
            f"install it with: pip install {what}"
        ) from error
