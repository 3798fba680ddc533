"""Special functions."""

import numpy as np

from support.pairs import pair

UP = {"low": 0.3, "high": 6.0}
# torch's polygamma of order 1 errs by 5e-10 below; so does its slope of digamma.
FAR = {"low": 12.0, "high": 20.0}

PAIRS = [
    pair("torch.lgamma", "gammaln", (5, 4), **UP),
    pair("torch.special.gammaln", "gammaln", (7,), low=-2.9, high=-2.1),
    pair("torch.digamma", "digamma", (5, 4), **FAR),
    pair("torch.special.digamma", "digamma", (7,), low=-1.9, high=-1.1, values_only=True),
    pair("torch.special.psi", "psi", (4,), **FAR),
    *(
        pair(
            name,
            "polygamma",
            (4, 3),
            ours=lambda ops, x, n=n: ops.polygamma(n, x),
            theirs=lambda torch, x, n=n: torch.polygamma(n, x),
            **(UP if n > 1 else FAR),
        )
        for name, n in (
            ("torch.polygamma", 1),
            ("torch.special.polygamma", 2),
            ("torch.polygamma", 3),
            ("torch.polygamma", 0),
        )
    ),
    pair(
        "torch.special.multigammaln",
        "multigammaln",
        (3, 2),
        ours=lambda ops, x: ops.multigammaln(x, 3),
        theirs=lambda torch, x: torch.special.multigammaln(x, 3),
        low=1.5,
        high=5.0,
    ),
    pair("torch.mvlgamma", "multigammaln", (4,), 2, low=1.0, high=5.0),
    pair("torch.special.erfcx", "erfcx", (5, 4), low=-3.0, high=9.0),
    pair("torch.special.ndtr", "ndtr", (5, 4), low=-6.0, high=4.0),
    pair("torch.special.log_ndtr", "log_ndtr", (5, 4), low=-20.0, high=4.0),
    pair("torch.special.ndtri", "ndtri", (5, 4), low=0.01, high=0.99),
    pair("torch.erfinv", "erfinv", (5, 4), low=-0.98, high=0.98),
    pair("torch.special.erfinv", "erfinv", (3,), low=-0.4, high=0.4),
    pair("torch.erf", "erf", (5, 4)),
    pair("torch.special.erf", "erf", (3,), low=-4.0, high=4.0),
    pair("torch.erfc", "erfc", (5, 4)),
    pair("torch.special.erfc", "erfc", (3,), low=0.0, high=4.0),
    pair("torch.special.expit", "expit", (3, 2)),
    pair("torch.sigmoid", "sigmoid", (3, 2)),
    pair("torch.special.logit", "logit", (3, 2), low=0.1, high=0.9),
    pair("torch.logit", "logit", (3, 2), low=0.1, high=0.9),
    pair("torch.special.xlogy", "xlogy", (3, 2), (2,), low=0.1, high=3.0),
    pair("torch.xlogy", "xlogy", (3, 1), (2,), low=0.1, high=3.0),
    pair("torch.special.expm1", "expm1", (3, 2)),
    pair("torch.special.exp2", "exp2", (3, 2)),
    pair("torch.special.log1p", "log1p", (3, 2), low=-0.5, high=3.0),
    pair("torch.special.sinc", "sinc", (3, 2)),
    pair("torch.special.round", "round", (3, 2)),
    pair("torch.special.log_softmax", "log_softmax", (3, 4), ours={"axis": 1}, theirs={"dim": 1}),
    pair("torch.special.softmax", "softmax", (3, 4), ours={"axis": 0}, theirs={"dim": 0}),
    pair("torch.special.logsumexp", "logsumexp", (3, 4), ours={"axis": 1}, theirs={"dim": 1}),
    pair(
        "jax.scipy.special.logsumexp",
        "logsumexp",
        (3, 4),
        (4,),
        ours=lambda ops, x, b: ops.logsumexp(x, axis=1, b=b, return_sign=True),
        theirs=lambda jax, x, b: jax.scipy.special.logsumexp(x, axis=1, b=b, return_sign=True),
    ),
    pair("jax.scipy.special.log_ndtr", "log_ndtr", (3, 4), low=-9.0, high=5.0),
    pair("jax.scipy.special.digamma", "digamma", (4, 3), **UP),
    pair("jax.scipy.special.gamma", "gamma", (4, 3), **UP),
    pair("jax.scipy.special.gammaln", "gammaln", (4, 3), **UP),
    pair("torch.special.i0", "i0", (5, 4), low=-12.0, high=12.0),
    pair("torch.i0", "i0", (3,), low=-3.0, high=3.0),
    pair("torch.special.i0e", "i0e", (5, 4), low=-12.0, high=12.0),
    pair("torch.special.i1", "i1", (5, 4), low=-12.0, high=12.0),
    pair("torch.special.i1e", "i1e", (5, 4), low=-12.0, high=12.0),
    pair("torch.special.modified_bessel_i0", "i0", (4,), low=-12.0, high=12.0, values_only=True),
    pair("torch.special.modified_bessel_i1", "i1", (4,), low=-12.0, high=12.0, values_only=True),
    pair("torch.special.entr", "entr", (3, 2), low=0.1, high=3.0),
    pair("torch.special.xlog1py", "xlog1py", (3, 2), (2,), low=-0.6, high=3.0),
    pair("torch.special.zeta", "zeta", np.array([[2.5], [3.0], [7.5]]), (4,), low=0.5, high=9.0),
    pair("jax.scipy.special.i1e", "i1e", (5, 4), low=-12.0, high=12.0),
    pair("jax.scipy.special.rel_entr", "rel_entr", (3, 2), (2,), low=0.2, high=3.0),
    pair("jax.scipy.special.kl_div", "kl_div", (3, 2), (2,), low=0.2, high=3.0),
    pair("torch.special.gammainc", "gammainc", np.array([[0.5], [2.0], [9.0]]), (4,), **UP),
    pair("torch.special.gammaincc", "gammaincc", np.array([[0.5], [2.0], [9.0]]), (4,), **UP),
    pair("torch.igamma", "gammainc", np.array([3.0, 1.5]), (3, 2), **UP),
    pair("torch.igammac", "gammaincc", np.array([3.0, 1.5]), (3, 2), **UP),
    pair(
        "jax.scipy.special.betainc", "betainc", 2.5, np.array([0.5, 3.0]), (3, 2), low=0.1, high=0.9
    ),
    pair("jax.scipy.special.betaln", "betaln", (3, 2), (2,), **UP),
    pair("jax.scipy.special.beta", "beta", (3, 2), (2,), **UP),
    *(
        # Beyond 3 the first four of torch err by up to 3e-7.
        pair(f"torch.special.{theirs}", ours, (5,), low=0.5, high=3.0, values_only=True)
        for theirs, ours in (
            ("bessel_j0", "j0"),
            ("bessel_j1", "j1"),
            ("bessel_y0", "y0"),
            ("bessel_y1", "y1"),
            ("modified_bessel_k0", "k0"),
            ("modified_bessel_k1", "k1"),
            ("scaled_modified_bessel_k0", "k0e"),
            ("scaled_modified_bessel_k1", "k1e"),
        )
    ),
    pair(
        "torch.special.spherical_bessel_j0",
        "sine_quotient",
        (5,),
        ours={"order": 0},
        values_only=True,
    ),
]
