"""Series of erf and erfc, for NumPy and for compiled loops.

On [-1, 1] erf is its Maclaurin series (DLMF 7.6.1). Outside erfc is a falling exponential times
a smooth function, which is a polynomial of one variable on the whole half line:
(1 + 2 x) e**(x**2) erfc(x) of t = (x - K) / (x + K), after M. M. Shepherd and J. G. Laframboise,
Chebyshev Approximation of (1 + 2x) exp(x**2) erfc x in 0 <= x < inf, Math. Comp. 36 (1981).
The coefficients below interpolate it at the Chebyshev points of 1 <= x < inf for K = 3, computed
with 60 digits; the relative errors are 4.7e-17 and 1.4e-8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ERRORS", "K", "Series"]

_SLOPE = 2 / math.sqrt(math.pi)

K = 3.0
"""Where t of the series of erfc is 0."""


class Series(NamedTuple):
    """Coefficients from the highest power down, and the argument from which on erfc is 0."""

    near: list[float]
    far: list[float]
    end: float
    half: Any


def _maclaurin(terms: int) -> list[float]:
    """Return the coefficients of erf(x) / x - 1 in powers of x**2."""
    powers = [_SLOPE * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(terms)]
    return [*powers[:0:-1], 0.12837916709551257]  # the slope less 1, rounded once


_SINGLE = Series(
    near=_maclaurin(10),
    far=[
        *(-0.0005743200396567353, 0.0016405168232373258, 0.0024868680110204304),
        *(-0.023655129115753935, 0.06830205016097596, -0.11929336715396092),
        *(0.12964674973668613, -0.04756110620558166, -0.13562115777522538),
        1.2530080462658038,
    ],
    end=11.0,
    half=np.float16,
)
_DOUBLE = Series(
    near=_maclaurin(18),
    far=[
        *(-4.520964519539401e-08, 2.1159864593666886e-07, -1.4247477511728202e-07),
        *(-7.144620295722057e-07, 4.112434498812321e-07, 3.4993019532879996e-06),
        *(-7.621548574406344e-07, -2.010098568573293e-05, 4.957208622870267e-06),
        *(0.0001250981640724874, -0.0001051608456435926, -0.0007798320215481393),
        *(0.0018886904367616043, 0.0025293917936656156, -0.023770514921552247),
        *(0.0683080273449022, -0.11927366341526784, 0.1296451587027457),
        *(-0.04756229435345069, -0.13562110612458111, 1.2530080582697296),
    ],
    end=28.0,
    half=np.float32,
)

ERRORS: Mapping[Any, Series] = MappingProxyType({np.float32: _SINGLE, np.float64: _DOUBLE})
"""By the type of the numbers."""
