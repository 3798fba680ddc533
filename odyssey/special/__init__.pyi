"""Special functions, those that NumPy does not have.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from odyssey.table.signatures import Binary, Unary

__all__ = [
    "erf",
    "erfc",
    "logit",
    "xlogy",
]

erf: Unary
"""Elementwise error function, ``2 / sqrt(pi)`` times the integral of ``e**-(t**2)`` to x."""
erfc: Unary
"""Elementwise complement of the error function, ``1 - erf(x)``, without cancellation."""
logit: Unary
"""Elementwise logarithm of the odds, ``log(x / (1 - x))``: the inverse of sigmoid."""
xlogy: Binary
"""Elementwise ``x * log(y)``, but 0 where ``x`` is 0 and ``y`` is a number."""
