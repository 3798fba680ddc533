"""LLVM IR as text: lines of functions, numbers in them, and what they call.

``Code`` and ``Word`` are those of ``words``, types those of ``ir_types``.
"""

from __future__ import annotations

from odyssey.compiler.numbers.elementary import definitions
from odyssey.compiler.numbers.ir_types import LLVM, MEMORY, TYPES, code_of, declared
from odyssey.compiler.numbers.words import Code, Word

__all__ = ["LLVM", "MEMORY", "TYPES", "Code", "Word", "code_of", "declarations"]


def declarations(text: str) -> str:
    """What code calls: functions of LLVM's and of libm, declared, and those of ours, defined.

    Args:
        text: Of functions; what it declares or defines itself is left out.

    Returns:
        Text that goes into the same module.

    >>> declarations("%y = call float @sinf(float %x)")
    'declare float @sinf(float) nounwind willreturn memory(none)'
    """
    made = definitions(text)
    return "\n".join(filter(None, [declared(text + made), made]))
