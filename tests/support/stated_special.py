"""What the special functions' derivatives are at the ends of their domains and at poles."""

import numpy as np

from odyssey import ops

INF, NAN = np.inf, np.nan

# As in test_subgradients: op, operands, the gradients of the sum of the result, options.
STATED = {
    "gammaln": (ops.gammaln, ([0.0, -0.0, -1.0, -INF],), ([-INF, INF, NAN, NAN],)),
    "gamma": (ops.gamma, ([0.0, -0.0, -1.0, -INF],), ([-INF, -INF, NAN, NAN],)),
    "digamma": (ops.digamma, ([0.0, -1.0, -INF],), ([INF, INF, INF],)),
    "digamma_derivative": (
        ops.digamma_derivative,
        ([0.0, -0.0, -1.0],),
        ([-INF, INF, NAN],),
        {"order": 1},
    ),
    "ndtri": (ops.ndtri, ([0.0, 1.0, 2.0],), ([INF, INF, NAN],)),
    "erfinv": (ops.erfinv, ([-1.0, 1.0, 2.0],), ([INF, INF, NAN],)),
    "erfcinv": (ops.erfcinv, ([0.0, 2.0, 3.0],), ([-INF, -INF, NAN],)),
    "i0e": (ops.i0e, ([0.0],), ([0.0],)),
    "i1e": (ops.i1e, ([0.0],), ([0.5],)),
    "bessel_quotient": (ops.bessel_quotient, ([0.0],), ([0.0],), {"order": 1, "scaled": True}),
    "entr": (ops.entr, ([0.0, -0.0, -1.0],), ([INF, INF, NAN],)),
    "xlog1py": (ops.xlog1py, ([0.0, 2.0], [-1.0, 0.0]), ([-INF, 0], [0, 2])),
    "rel_entr": (ops.rel_entr, ([0.0, 0.0], [0.0, 1.0]), ([NAN, -INF], [0, 0])),
    "kl_div": (ops.kl_div, ([0.0, 0.0], [0.0, 1.0]), ([NAN, -INF], [1, 1])),
    "zeta": (ops.zeta, (np.array([2.0, 2.0]), [0.0, -1.0]), (None, [-INF, NAN])),
    "beta": (ops.beta, ([0.0], [1.0]), ([-INF], [NAN])),
    "betaln": (ops.betaln, ([0.0], [1.0]), ([-INF], [0.0])),
    "gammainc": (ops.gammainc, (np.array([0.5, 1.0, 2.5]), [0.0] * 3), (None, [INF, 1, 0])),
    "gammaincc": (ops.gammaincc, (np.array([0.5, 1.0, 2.5]), [0.0] * 3), (None, [-INF, -1, 0])),
    "betainc": (
        ops.betainc,
        (np.array([0.5, 1.0, 2.5]), 1.0, [0.0] * 3),
        (None, None, [INF, 1, 0]),
    ),
}
