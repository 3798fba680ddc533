"""Folders of one build of the site."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "BuildFolder"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class BuildFolder:
    """Folders that a build reads and writes.

    Attributes:
        folder: All that the build writes lies here.
        docs: The pages, as in the checkout's ``docs/``.
        example_sources: The examples.
    """

    folder: Path = ROOT / "build" / "docs"
    docs: Path = ROOT / "docs"
    example_sources: Path = ROOT / "examples"

    @property
    def source(self) -> Path:
        """Return the folder that Sphinx reads."""
        return self.folder / "source"

    @property
    def examples(self) -> Path:
        """Return the folder of the examples that sphinx-gallery runs."""
        return self.folder / "examples"

    @property
    def html(self) -> Path:
        """Return the folder of the site."""
        return self.folder / "html"
