"""All families of the table: to import one enters its rows, and then the table is sealed.

This is also where every op becomes an attribute of ``odyssey.ops``, whatever room it lives in.
"""

from odyssey import ops
from odyssey.linalg import contraction, products, vectors  # noqa: F401
from odyssey.losses import entropy, softmax_entropy, squared_error  # noqa: F401
from odyssey.nn import activations, layers, rectifiers, softmaxes  # noqa: F401
from odyssey.ops import (  # noqa: F401
    arithmetic,
    arrangement,
    choice,
    complex_numbers,
    creation,
    diagonals,
    differences,
    elementary,
    gathering,
    indexing,
    interpolation,
    joining,
    logarithms,
    recurrences,
    reductions,
    repeating,
    replacement,
    rounding,
    scans,
    sequences,
    shape,
    sinc,
    sorting,
    splitting,
    stacking,
    statistics,
    trigonometry,
)
from odyssey.special import entropies, error_function  # noqa: F401
from odyssey.table.declare import seal

__all__: list[str] = []

vars(ops).update(seal())
