"""The files that are made from the table: the page of all ops, the type stubs.

Run in a checkout, this writes those that are not fresh::

    python -m tools.reference
"""

from tools.reference.files import FILES, refresh, stale

__all__ = ["FILES", "refresh", "stale"]
