"""Loading of the native entry points and of the native dispatcher, once a process.

Called by ``runtime.executable`` and ``runtime.dispatch_tables``.
"""

from __future__ import annotations

from functools import cache

from odyssey.compiler.machine.jit import Loaded, load
from odyssey.compiler.native_dispatch.dispatcher import native_dispatch_module
from odyssey.compiler.native_dispatch.entry import entry_module
from odyssey.compiler.native_dispatch.object_layout import numpy_functions, object_layout

__all__ = ["load_entry_points", "native_dispatch_available"]


@cache
def load_entry_points(direct: bool) -> Loaded:
    """Load the code that Python calls for any program; native dispatch if `direct`."""
    layout = object_layout()
    assert layout is not None, "without a known layout, Python dispatches every call"
    return (
        load(native_dispatch_module(layout), numpy_functions())
        if direct
        else load(entry_module(layout))
    )


def native_dispatch_available() -> bool:
    """Return whether a call may be dispatched by one native function on this interpreter."""
    layout = object_layout()
    return layout is not None and bool(layout.variable)
