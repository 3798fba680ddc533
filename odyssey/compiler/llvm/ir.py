"""LLVM IR as text: lines of functions, numbers in them, and what they call.

``FunctionBuilder`` and ``LLVMValue`` are those of ``words``, types those of ``ir_types``.
"""

from __future__ import annotations

from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.elementary import define_formulas
from odyssey.compiler.llvm.types import LLVM, MEMORY, TYPES, declare_functions, type_code

__all__ = ["LLVM", "MEMORY", "TYPES", "FunctionBuilder", "LLVMValue", "type_code", "declarations"]


def declarations(text: str) -> str:
    """Declare the LLVM and libm functions that a text calls, and define our own.

    Args:
        text: Of functions; what it declares or defines itself is left out.

    Returns:
        Text that goes into the same module.

    >>> declarations("%y = call float @sinf(float %x)")
    'declare float @sinf(float) nounwind willreturn memory(none)'
    """
    made = define_formulas(text)
    return "\n".join(filter(None, [declare_functions(text + made), made]))
