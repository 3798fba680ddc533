"""From how many elements on an op runs a compiled kernel by itself, measured, in one table.

Counted are the elements of the largest operand. Below NumPy is as fast, or a program would wait
longer for numba, which takes 0.4 seconds to import, than the kernel saves it. An op that is not
named here runs its compiled kernels in ``with od.ops.use_kernels():`` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["SIZES"]

SIZES: Mapping[str, int] = MappingProxyType({})
"""By op."""
