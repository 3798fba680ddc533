"""Programs for loops that run outside of ``compile``."""

from __future__ import annotations

from typing import Any

from odyssey.table.registry import load_module

__all__ = ["FEWEST_STEPS", "LEAST_SECONDS", "program_runner"]

FEWEST_STEPS = 64
"""Steps from which on a program is looked for; fewer take less time than a trace."""


LEAST_SECONDS = 0.02
"""Seconds of a loop of unknown length after which a program is looked for."""


def program_runner() -> Any:
    """Return ``compiler.eager_loops.run_loop``; the compiler is loaded by the first long loop."""
    return load_module("odyssey.compiler.eager_loops").run_loop
