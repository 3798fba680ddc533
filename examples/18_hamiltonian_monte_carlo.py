"""Hamiltonian Monte Carlo for a decay curve
==========================================

A quantity decays as a·exp(-k t). Twelve noisy measurements leave amplitude, rate and noise level
uncertain, and together in a curved way that one Gaussian does not describe. Hamiltonian Monte Carlo
draws samples of the posterior distribution: the parameters move like a particle in the landscape
of -log p, driven by its gradient, for 20 steps at a time (R. M. Neal, *Handbook of Markov Chain
Monte Carlo*, 2011).

To be seen: means and standard deviations from 64 chains agree with sums over a fine grid, and the
chains with each other. Runs in about 5 seconds, with the trajectory compiled.
"""

import numpy as np

import odyssey as od

# %%
# Posterior
# ---------
# The parameters are logarithms: amplitude, rate, noise level. The function takes a row for each
# chain; the gradient of the sum over the chains has the gradient of each chain in its row.

CHAINS, WARM_UP, DRAWS, LEAPS = 64, 300, 700, 20

rng = np.random.default_rng(4)
times = np.linspace(0.2, 6.0, 12)
measured = 2.0 * np.exp(-0.6 * times) + rng.normal(0.0, 0.25, 12)


def log_posterior(parameters):
    """Return log p of each row, up to a constant: normal errors, wide normal priors."""
    a, k, noise = (np.exp(parameters[:, i : i + 1]) for i in range(3))
    errors = (measured - a * np.exp(-k * times)) / noise
    log_likelihood = np.sum(-0.5 * errors**2 - np.log(noise), axis=1)
    prior = np.sum(-0.5 * (parameters - np.array([0.0, 0.0, -1.0])) ** 2, axis=1)
    return log_likelihood + prior


# %%
# Sampler
# -------
# A trajectory of the leapfrog method, then the test of Metropolis, which makes the samples exact.

slope = od.grad(lambda parameters: np.sum(log_posterior(parameters)))


@od.compile(fullgraph=True)
def leapfrog(position, momentum, length):
    """Return where the chains are after ``LEAPS`` steps, with their momentum and log p."""

    def leap(carry, _):
        position, momentum = carry
        momentum = momentum + 0.5 * length * slope(position)
        position = position + length * momentum
        momentum = momentum + 0.5 * length * slope(position)
        return (position, momentum), None

    (position, momentum), _ = od.scan(leap, (position, momentum), length=LEAPS)
    return position, momentum, log_posterior(position)


def sample(rng, position):
    """Return draws (draws, chains, 3), and how often a trajectory was accepted."""
    length, draws, accepted = 0.05, [], []
    log_p = log_posterior(position)
    for k in range(WARM_UP + DRAWS):
        momentum = rng.normal(size=position.shape)
        step = length * rng.uniform(0.8, 1.2)  # random: no trajectory closes on itself
        moved, final, moved_log_p = leapfrog(position, momentum, step)
        energy_change = moved_log_p - log_p - 0.5 * np.sum(final**2 - momentum**2, axis=1)
        accept = np.log(rng.random(len(position))) < energy_change
        position = np.where(accept[:, None], moved, position)
        log_p = np.where(accept, moved_log_p, log_p)
        if k < WARM_UP:  # lengths that 80 % accept
            length *= np.exp((accept.mean() - 0.8) / np.sqrt(k + 1.0))
        else:
            draws.append(position)
            accepted.append(accept.mean())
    return np.array(draws), np.mean(accepted)


draws, accepted = sample(rng, rng.normal(0.0, 0.3, (CHAINS, 3)) + np.array([0.0, 0.0, -1.0]))
between, within = draws.mean(axis=0).var(axis=0, ddof=1), draws.var(axis=0, ddof=1).mean(axis=0)
spread = np.sqrt(1.0 + between / within)  # R-hat of Gelman and Rubin, near 1 if chains agree
print(f"{accepted:.0%} accepted, R-hat", spread.round(4))
assert spread.max() < 1.02

# %%
# Comparison with a grid
# ----------------------
# Three parameters are few enough to sum over a grid of 100 × 100 × 100.

low, high = draws.min(axis=(0, 1)) - 0.3, draws.max(axis=(0, 1)) + 0.3
sides = [np.linspace(a, b, 100) for a, b in zip(low, high, strict=True)]
grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
log_p = np.array([log_posterior(rows.reshape(-1, 3)) for rows in grid]).reshape(100, 100, 100)
weights = np.exp(log_p - log_p.max())
weights /= weights.sum()
mean = np.sum(weights[..., None] * grid, axis=(0, 1, 2))
deviation = np.sqrt(np.sum(weights[..., None] * (grid - mean) ** 2, axis=(0, 1, 2)))
for i, name in enumerate(("log amplitude", "log rate", "log noise")):
    center, width = draws[..., i].mean(), draws[..., i].std()
    print(f"{name:13}: {center:7.4f} ± {width:.4f}, grid {mean[i]:7.4f} ± {deviation[i]:.4f}")
np.testing.assert_allclose(draws.mean(axis=(0, 1)), mean, atol=0.03 * deviation.max())
np.testing.assert_allclose(draws.std(axis=(0, 1)), deviation, rtol=0.03)

# %%
# Picture
# -------
# Left: measurements and curves of the posterior. Right: samples of amplitude and rate, and contours
# from the grid.


def draw():
    """Draw curves and samples; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    t = np.linspace(0.0, 6.5, 100)
    for a, k, _noise in np.exp(draws[-1]):
        left.plot(t, a * np.exp(-k * t), color="C0", linewidth=0.5, alpha=0.4)
    left.plot(times, measured, "k.", label="measured")
    left.plot(t, 2.0 * np.exp(-0.6 * t), "k--", linewidth=1, label="true")
    left.set(title="64 curves of the posterior", xlabel="t", ylabel="quantity")
    left.legend()
    right.plot(*draws[::50, :, :2].reshape(-1, 2).T, ".", markersize=2, alpha=0.5)
    right.contour(sides[0], sides[1], weights.sum(axis=2).T, colors="k", linewidths=0.8)
    right.set(title="Samples, and contours from the grid", xlabel="log a", ylabel="log k")
    right.set(xlim=(0.0, 1.2), ylim=(-1.4, 0.4))
    plt.show()


draw()
