"""Native dispatch: guards and argument checks in machine code over CPython and NumPy objects.

Everything in this room relies on the memory layout of objects of CPython and NumPy. In the
environment, ``ODYSSEY_NATIVE_DISPATCH=off`` turns it off, read once at import: guards and arguments
are then checked in Python, and a call takes about 10 us longer.
"""

from __future__ import annotations

import os

__all__ = ["NATIVE_DISPATCH"]

NATIVE_DISPATCH = os.environ.get("ODYSSEY_NATIVE_DISPATCH", "") != "off"
"""Whether calls may be dispatched natively: whether private memory layouts may be read."""
