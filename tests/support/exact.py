"""Values in floating point against many digits."""

import mpmath
import numpy as np

DIGITS = 60


def assert_exact(function, wanted, numbers, dtype, ulps, beside=0):
    """``function`` is mpmath's ``wanted`` to so many units in the last place.

    Units are those of the result, and where ``beside`` is given, of numbers of that size as well.
    What is no number of the dtype, too large or too small, is passed over.
    """
    x = np.asarray(numbers).astype(dtype)
    limits = np.finfo(dtype)
    out = function(x)
    assert out.dtype == x.dtype
    wrong = []
    with mpmath.workdps(DIGITS):
        for point, got in zip(x.tolist(), out.tolist(), strict=True):
            exact = wanted(mpmath.mpf(point))
            if not float(limits.tiny) <= abs(exact) <= float(limits.max):
                continue
            unit = float(limits.eps) * (abs(exact) + beside)
            if not abs(mpmath.mpf(got) - exact) <= ulps * unit:
                wrong.append(f"{got} at {point}, wanted {mpmath.nstr(exact, 20)}")
    assert not wrong, "\n".join(wrong[:10])
