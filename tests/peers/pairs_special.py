"""Special functions."""

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
    pair("jax.scipy.special.digamma", "digamma", (4, 3), **UP),
    pair("jax.scipy.special.gamma", "gamma", (4, 3), **UP),
    pair("jax.scipy.special.gammaln", "gammaln", (4, 3), **UP),
]
