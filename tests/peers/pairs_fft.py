"""Discrete Fourier transforms."""

from support.pairs import pair

LINES = ("fft", "ifft", "hfft", "irfft")
OF_REAL = ("rfft", "ihfft")
SPACES = ("fftn", "ifftn", "irfftn", "fft2", "ifft2", "irfft2")
SETTINGS = [
    ({}, {}),
    ({"n": 5, "axis": 0, "norm": "ortho"}, {"n": 5, "dim": 0, "norm": "ortho"}),
    ({"n": 2, "norm": "forward"}, {"n": 2, "norm": "forward"}),
    ({"n": 7, "axis": -2, "norm": "backward"}, {"n": 7, "dim": -2, "norm": "backward"}),
]
PLANES = [
    ({}, {}),
    ({"s": (3, 5), "axes": (0, 2), "norm": "ortho"}, {"s": (3, 5), "dim": (0, 2), "norm": "ortho"}),
    (
        {"s": (4, 2), "axes": (-1, 0), "norm": "forward"},
        {"s": (4, 2), "dim": (-1, 0), "norm": "forward"},
    ),
]


def both(names, shape, settings, **more):
    return [
        pair(f"torch.fft.{name}", name, shape, ours=ours, theirs=theirs, **more)
        for name in names
        for ours, theirs in settings
    ]


PAIRS = [
    *both((*LINES, *OF_REAL), (3, 4), SETTINGS),
    *both(LINES, (3, 4), SETTINGS, complex=True),
    *both((*SPACES, "rfftn", "rfft2"), (2, 3, 4), PLANES),
    *both(SPACES, (2, 3, 4), PLANES, complex=True),
    *both(
        ("fftshift", "ifftshift"),
        (3, 5),
        [({}, {}), ({"axes": (1,)}, {"dim": (1,)}), ({"axes": 0}, {"dim": 0})],
    ),
    *[
        pair(
            f"torch.fft.{name}",
            name,
            ours=lambda ops, name=name, n=n: getattr(ops, name)(n, 0.5),
            theirs=lambda torch, name=name, n=n: getattr(torch.fft, name)(
                n, 0.5, dtype=torch.float64
            ),
        )
        for name in ("fftfreq", "rfftfreq")
        for n in (1, 4, 5)
    ],
    *[
        pair(f"jax.numpy.fft.{name}", name, shape, complex=complex)
        for name, shape, complex in [
            ("fft", (3, 4), True),
            ("rfft", (3, 5), False),
            ("irfft", (3, 4), True),
            ("hfft", (3, 4), True),
            ("ihfft", (5,), False),
            ("fftn", (2, 3, 2), True),
            ("irfftn", (2, 3, 3), True),
            ("rfft2", (2, 3, 4), False),
        ]
    ],
]
