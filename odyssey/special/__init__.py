"""Special functions, those that NumPy does not have."""

from odyssey.special.entropies import logit, xlogy
from odyssey.special.error_function import erf, erfc

__all__ = ["erf", "erfc", "logit", "xlogy"]
