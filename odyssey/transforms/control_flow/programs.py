"""Programs for loops that run outside of ``compile``."""

from __future__ import annotations

import sys
from typing import Any

from odyssey.table.registry import load_module

__all__ = ["FEWEST_STEPS_DONE", "program_runner", "worth_a_trace"]

# Steps of a scan from which on a trace pays; and if the compiler must be loaded, which takes .1 s.
_FEWEST_STEPS = 64
_FEWEST_STEPS_TO_LOAD = 256

FEWEST_STEPS_DONE = 1024
"""Steps of a loop of unknown length after which a program is looked for."""


def worth_a_trace(steps: int) -> bool:
    """Return whether a program is looked for, for a scan of so many steps."""
    loaded = "odyssey.compiler.eager_loops" in sys.modules
    return steps >= (_FEWEST_STEPS if loaded else _FEWEST_STEPS_TO_LOAD)


def program_runner() -> Any:
    """Return ``compiler.eager_loops.run_loop``; the compiler is loaded by the first long loop."""
    return load_module("odyssey.compiler.eager_loops").run_loop
