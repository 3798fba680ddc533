"""Phase retrieval: ptychography from diffraction patterns
=======================================================

A detector far behind a sample records the intensity of its diffraction pattern and loses the phase.
In ptychography a small spot of light visits the sample at overlapping positions; together, the
patterns determine the sample as a complex image, and the spot as well (P. Thibault and A. Menzel,
*Nature* 494, 2013). Here both are found by gradient descent through the optics: a product and a
Fourier transform for each position.

To be seen: a resolution target of 64 × 64 complex pixels, recovered from 81 noisy patterns to
about one percent, together with the spot. The parameters are complex Variables: their gradient is
the direction of steepest ascent. Runs in about 5 seconds, with the step compiled.
"""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable

SIZE, SPOT, SHIFT, STEPS = 64, 24, 5, 600

# %%
# Sample and spot
# ---------------
# A Siemens star absorbs a little light and delays it; the spot is a Gaussian that is slightly out
# of focus. ``ROWS`` and ``COLUMNS`` select the part of the sample at each position. The positions
# are irregular: on a regular grid, patterns of its period could not be told from the spot.

rng = np.random.default_rng(0)
grid = SHIFT * np.arange((SIZE - SPOT) // SHIFT + 1)
corners = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
corners = np.clip(corners + rng.integers(-2, 3, corners.shape), 0, SIZE - SPOT)
ROWS = corners[:, :1, None] + np.arange(SPOT)[:, None]
COLUMNS = corners[:, 1:, None] + np.arange(SPOT)[None, :]


def siemens_star():
    y, x = np.mgrid[:SIZE, :SIZE] - 0.5 * (SIZE - 1)
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    star = 0.5 + 0.5 * np.tanh(0.3 * radius * np.sin(6.0 * angle))
    return (1.0 - 0.3 * star) * np.exp(1.2j * star)


def focused_spot(curvature):
    y, x = np.mgrid[:SPOT, :SPOT] - 0.5 * (SPOT - 1)
    squares = x**2 + y**2
    return np.exp(-squares / (2.0 * 5.0**2) + 1j * curvature * squares)


def waves(sample, spot):
    """Return the waves at the detector, (positions, spot, spot), in units of the detector's."""
    return np.fft.fft2(sample[ROWS, COLUMNS] * spot, norm="ortho")


true_sample, true_spot = siemens_star(), focused_spot(0.02)
photons = 10000.0 * np.abs(waves(true_sample, true_spot)) ** 2
measured = np.sqrt(rng.poisson(photons) / 10000.0)  # amplitudes, with noise of counting

# %%
# Reconstruction
# --------------
# The loss compares amplitudes; the small constant keeps its gradient finite where a wave is zero.

sample = Variable(np.ones((SIZE, SIZE), np.complex128), requires_grad=True)
spot = Variable(focused_spot(0.0), requires_grad=True)
optimizer = od.optim.Adam([sample, spot], learning_rate=0.05)
schedule = od.optim.CosineAnnealingLR(optimizer, STEPS)


@od.compile
def training_step(measured):
    with GradientTape() as tape:
        wave = waves(sample, spot)
        amplitude = np.sqrt(wave.real**2 + wave.imag**2 + 1e-6)
        loss = np.mean((amplitude - measured) ** 2)
    tape.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


losses = []
for k in range(STEPS):
    losses.append(float(training_step(measured)))
    schedule.step()
    if k in (0, 10, 50, STEPS - 1):
        print(f"step {k + 1:3}: mean squared error of amplitudes {losses[-1]:.2e}")

# %%
# Checks
# ------
# Patterns say nothing of a common complex factor, nor of a ramp of phases that the sample has and
# the spot undoes. Both are fitted before the comparison, in the region that light has reached.


light = np.zeros((SIZE, SIZE))
np.add.at(light, (ROWS, COLUMNS), np.abs(true_spot) ** 2)
lit = light > 0.1 * light.max()


def aligned(found, true):
    """Return what was found, without the factor and the ramp in which it differs from the truth."""
    y, x = np.mgrid[:SIZE, :SIZE]
    ratio = found * true.conj()
    slope_y = np.median(np.angle(ratio[1:] * ratio[:-1].conj())[lit[1:]])
    slope_x = np.median(np.angle(ratio[:, 1:] * ratio[:, :-1].conj())[lit[:, 1:]])
    found = found * np.exp(-1j * (slope_y * y + slope_x * x))
    return np.vdot(found[lit], true[lit]) / np.vdot(found[lit], found[lit]) * found


found = aligned(sample.numpy(), true_sample)
error = np.linalg.norm((found - true_sample)[lit]) / np.linalg.norm(true_sample[lit])
print(f"relative error of the sample: {error:.3f}")
assert error < 0.03
assert losses[-1] < 1e-2 * losses[0]

# %%
# Picture
# -------


def draw():
    """Draw the sample and what was found; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
    shown = np.where(lit, found, np.nan)
    panels = [
        ("A diffraction pattern, logarithmic", np.log10(np.fft.fftshift(measured[40]) ** 2 + 1e-3)),
        ("True phase of the sample", np.angle(true_sample)),
        ("True phase of the spot", np.angle(true_spot)),
        ("Amplitude of the sample, found", np.abs(shown)),
        ("Phase of the sample, found", np.angle(shown)),
        ("Phase of the spot, found", np.angle(spot.numpy())),
    ]
    for axis, (title, image) in zip(axes.ravel(), panels, strict=True):
        axis.imshow(image, cmap="magma" if image is panels[0][1] else "viridis")
        axis.set_title(title)
        axis.set_axis_off()
    plt.show()


draw()
