"""Argument checks of the commands, and optional packages."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

__all__ = ["import_extra", "path_in_folder", "positive_int"]


def positive_int(text: str) -> int:
    """Parse a positive integer; argparse reports other text."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def path_in_folder(text: str) -> Path:
    """Parse a path whose folder exists; argparse reports a missing folder."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} lies in a folder that does not exist")
    return path


def import_extra(module: str, distribution: str, extra: str = "examples") -> ModuleType:
    """Import an optional module; if it is missing, exit with the command that installs it.

    Args:
        module: Its name.
        distribution: The package that has it.
        extra: The extra of odyssey that installs the package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is installed but broken: show its error
        root = Path(__file__).parents[2]
        if (root / "pyproject.toml").is_file():
            package = f'-e "{"." if root == Path.cwd() else root}[{extra}]"'
        else:
            package = f'"odyssey[{extra}]"'
        raise SystemExit(
            f"python -m odyssey: this command needs {distribution}, which is not installed; "
            f"install it with: pip install {package}"
        ) from error
