"""Kalman filter with noise levels fitted by maximum likelihood
=============================================================

A vehicle moves in a plane. Its position is measured 200 times with an error that is not known, and
its velocity drifts by a random acceleration that is not known either. For given noise levels a
Kalman filter tells where the vehicle is, and how likely the measurements are. This program finds
the levels that make them most likely, and their error bars from the Hessian at the optimum.

To be seen: the likelihood equals that of one Gaussian distribution of all 400 numbers; both levels
come out right within their error bars; the filtered track is closer to the truth than the
measurements are. Runs in about 5 seconds. Needs scikit-learn, which brings SciPy:
``pip install -e ".[examples]"``
"""

import numpy as np
from scipy.optimize import minimize

import odyssey as od

# %%
# Model
# -----
# The state is (position, velocity) in each direction. ``F`` moves it by a time step ``DT``, ``G``
# is what an acceleration does to it, ``H`` reads the position. Levels are logarithms, so that any
# number is allowed.

DT, STEPS = 0.5, 200
TRUE_LEVELS = {"acceleration": np.log(0.3), "measurement": np.log(2.0)}

EYE = np.eye(2)
F = np.kron(np.array([[1.0, DT], [0.0, 1.0]]), EYE)
G = np.kron(np.array([[0.5 * DT**2], [DT]]), EYE)
H = np.kron(np.array([[1.0, 0.0]]), EYE)
START_MEAN, START_COVARIANCE = np.zeros(4), np.diag([25.0, 25.0, 4.0, 4.0])


def simulate(rng):
    """Return true positions and measured ones, (steps, 2) each."""
    state, track = np.array([3.0, -2.0, 1.5, 1.0]), []
    for _ in range(STEPS):
        state = F @ state + G @ rng.normal(0.0, np.exp(TRUE_LEVELS["acceleration"]), 2)
        track.append(H @ state)
    track = np.array(track)
    return track, track + rng.normal(0.0, np.exp(TRUE_LEVELS["measurement"]), track.shape)


# %%
# Filter
# ------
# Each step predicts the next measurement, compares, and corrects the state. ``od.scan`` is the loop
# over time; its derivatives, in forward and reverse mode, are loops as well.


def kalman_filter(levels, measured):
    """Return the log-likelihood, and the mean and covariance of the state after each step."""
    q = np.exp(2.0 * levels["acceleration"]) * (G @ G.T)
    r = np.exp(2.0 * levels["measurement"]) * EYE

    def step(carry, z):
        mean, covariance = carry
        mean, covariance = F @ mean, F @ covariance @ F.T + q
        innovation, s = z - H @ mean, H @ covariance @ H.T + r
        gain = np.linalg.solve(s, H @ covariance).T
        mean = mean + gain @ innovation
        covariance = covariance - gain @ H @ covariance
        _, logdet = np.linalg.slogdet(s)
        distance = innovation @ np.linalg.solve(s, innovation)
        log_density = -0.5 * (distance + logdet + 2.0 * np.log(2.0 * np.pi))
        return (mean, covariance), (log_density, mean, covariance)

    _, (log_densities, means, covariances) = od.scan(step, (START_MEAN, START_COVARIANCE), measured)
    return log_densities.sum(), means, covariances


def log_density_of_all(levels, measured):
    """Return the log-density of all measurements at once, from their whole covariance."""
    accelerations = [np.linalg.matrix_power(F, k) @ G for k in range(STEPS)]
    rows = [
        np.hstack(
            [H @ np.linalg.matrix_power(F, k + 1)]
            + [H @ accelerations[k - j] if j <= k else np.zeros((2, 2)) for j in range(STEPS)]
        )
        for k in range(STEPS)
    ]
    design = np.vstack(rows)
    q = np.exp(2.0 * levels["acceleration"]) * np.ones(2 * STEPS)
    r = np.exp(2.0 * levels["measurement"]) * np.eye(2 * STEPS)
    variances = np.concatenate([np.diag(START_COVARIANCE), q])
    covariance = (design * variances) @ design.T + r
    z = measured.ravel()
    _, logdet = np.linalg.slogdet(covariance)
    return -0.5 * (z @ np.linalg.solve(covariance, z) + logdet + len(z) * np.log(2.0 * np.pi))


track, measured = simulate(np.random.default_rng(0))
recursive, means, covariances = kalman_filter(TRUE_LEVELS, measured)
at_once = log_density_of_all(TRUE_LEVELS, measured)
print(f"log-likelihood by the filter {recursive:.6f}, of all at once {at_once:.6f}")
np.testing.assert_allclose(recursive, at_once, rtol=1e-9)

# %%
# Fit
# ---
# ``scipy_objective`` gives SciPy's minimizers the value, the gradient and the Hessian. The inverse
# Hessian of -log p at the optimum is the covariance of the estimates.


def misfit(levels):
    return -kalman_filter(levels, measured)[0]


guess = {"acceleration": np.array(0.0), "measurement": np.array(0.0)}
objective = od.optim.scipy_objective(misfit, guess)
result = minimize(objective, objective.x0, jac=True, method="BFGS", options={"gtol": 1e-6})
levels = objective.unflatten(result.x)
deviations = objective.unflatten(np.sqrt(np.diag(np.linalg.inv(objective.hess(result.x)))))

for name, value in levels.items():
    true, width = TRUE_LEVELS[name], deviations[name]
    print(f"{name:12}: {np.exp(value):.3f} ± {np.exp(value) * width:.3f}, truth {np.exp(true):.3f}")
    assert abs(value - true) < 3.0 * width
assert np.abs(result.jac).max() < 1e-3

_, means, covariances = kalman_filter(levels, measured)
filtered = means[:, :2]
error, raw = (np.sqrt(np.mean((x - track)[20:] ** 2)) for x in (filtered, measured))
print(f"error of the filtered track {error:.2f}, of the measurements {raw:.2f}")
assert error < 0.6 * raw

inside = np.abs(filtered - track) < 2.0 * np.sqrt(covariances[:, [0, 1], [0, 1]])
print(f"the truth is within two standard deviations at {inside.mean():.0%} of the times")
assert inside.mean() > 0.9

# %%
# Picture
# -------
# Left: the track. Right: the error of one coordinate, and the two standard deviations within which
# the filter expects it.


def draw():
    """Draw the track and the filter's errors; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    left.plot(*measured.T, ".", color="0.6", label="measured")
    left.plot(*track.T, "k--", linewidth=1, label="true")
    left.plot(*filtered.T, label="filtered")
    left.set(title="Track of the vehicle", xlabel="x", ylabel="y")
    left.legend()
    times, deviation = DT * np.arange(STEPS), np.sqrt(covariances[:, 0, 0])
    right.fill_between(times, -2 * deviation, 2 * deviation, alpha=0.25, label="two deviations")
    right.plot(times, (measured - track)[:, 0], ".", color="0.6", label="measured")
    right.plot(times, (filtered - track)[:, 0], label="filtered")
    right.set(title="Errors of x over time", xlabel="time", ylabel="error of x")
    right.legend()
    plt.show()


draw()
