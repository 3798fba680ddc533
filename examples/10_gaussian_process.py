"""Gaussian process regression
===========================

A Gaussian process says that values of a function at any points are jointly normal, and how two of
them are correlated by their distance. Three numbers are not known: how large the function is, over
what length it changes, and how noisy the measurements are. The best ones make the measurements most
likely, with the function itself integrated out (C. E. Rasmussen and C. K. I. Williams, *Gaussian
Processes for Machine Learning*, MIT Press 2006, equation 5.8):

    -log p(y) = y.T inv(K) y / 2 + log det K / 2 + n log(2 pi) / 2

All of it comes from one Cholesky factor of K. ``od.grad`` differentiates through the factor, and
agrees with equation 5.9 of the book. ``od.hessian`` differentiates once more, for Newton's method.

To be seen: a function recovered from 60 noisy points, with an error band that widens where nothing
was measured. Runs in about 2 seconds.
"""

import numpy as np

import odyssey as od
from odyssey import ops

NOISE = 0.2


def truth(x):
    return np.sin(1.5 * x) + 0.5 * np.sin(0.5 * x)


def measure(rng, count):
    x = np.sort(rng.uniform(-6.0, 6.0, count))
    return x, truth(x) + rng.normal(0.0, NOISE, count)


def covariance(settings, a, b):
    """Return the covariance of values at points a and b."""
    distance = (a[:, None] - b[None, :]) / ops.exp(settings["length"])
    return ops.exp(2.0 * settings["size"] - 0.5 * distance**2)


def factor(settings, x):
    """Return the Cholesky factor of the covariance of measurements at x."""
    noise = ops.exp(2.0 * settings["noise"])
    return ops.cholesky(covariance(settings, x, x) + noise * np.eye(len(x)))


def misfit(settings, x, y):
    """Return -log p(y); settings are logarithms, so that any number is allowed."""
    c = factor(settings, x)
    half_log_det = ops.sum(ops.log(ops.diagonal(c)))
    distance = ops.sum(y * ops.cho_solve((c, True), y))
    return 0.5 * distance + half_log_det + 0.5 * len(x) * np.log(2.0 * np.pi)


def predict(settings, x, y, points):
    """Return mean and standard deviation of the function at points, given the measurements."""
    c = factor(settings, x)
    between = covariance(settings, x, points)
    mean = between.T @ ops.cho_solve((c, True), y)
    known = ops.triangular_solve(c, between, lower=True)
    variance = ops.exp(2.0 * settings["size"]) - ops.sum(known**2, axis=0)
    return mean, np.sqrt(np.maximum(variance, 0.0))


def by_the_book(settings, x, y):
    """Return the gradient by equation 5.9: half the trace of (inv K - a a.T) dK."""
    k = covariance(settings, x, x)
    noise = np.exp(2.0 * settings["noise"]) * np.eye(len(x))
    inverse = np.linalg.inv(k + noise)
    inner = inverse - np.outer(inverse @ y, inverse @ y)
    squares = ((x[:, None] - x[None, :]) / np.exp(settings["length"])) ** 2
    slopes = {"size": 2.0 * k, "length": k * squares, "noise": 2.0 * noise}
    return {name: 0.5 * np.sum(inner * slope) for name, slope in slopes.items()}


def fit(settings, x, y):
    """Return the optimum by Newton's method, with steps that never go uphill."""
    names = list(settings)
    value_and_slope = od.value_and_grad(misfit)
    for step in range(30):
        value, slope = value_and_slope(settings, x, y)
        g = np.array([slope[name] for name in names])
        if np.abs(g).max() < 1e-8:
            break
        h = od.hessian(misfit)(settings, x, y)
        w, v = np.linalg.eigh(np.array([[h[a][b] for b in names] for a in names]))
        move = -v @ (v.T @ g / np.maximum(np.abs(w), 1e-3))
        move /= max(1.0, np.abs(move).max())
        while True:
            tried = {name: settings[name] + d for name, d in zip(names, move, strict=True)}
            if misfit(tried, x, y) <= value + 1e-10 * abs(value):
                break
            move = move / 2.0
        settings = tried
        print(f"step {step + 1}: -log p = {value:9.4f}, largest slope {np.abs(g).max():.1e}")
    return settings, np.abs(g).max()


def draw(settings, x, y):
    """Draw the function with its error band; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    points = np.linspace(-9.0, 9.0, 400)
    mean, deviation = predict(settings, x, y, points)
    _, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    axes.fill_between(points, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25)
    axes.plot(points, mean, label="mean, and two standard deviations")
    axes.plot(points, truth(points), "k--", linewidth=1, label="the function")
    axes.plot(x, y, "k.", label="measurements")
    axes.legend(loc="upper center", ncols=3)
    axes.set(title="Function recovered from noisy measurements", xlabel="x", ylim=(-2.4, 2.8))
    plt.show()


def main():
    x, y = measure(np.random.default_rng(0), 60)
    start = {"size": np.array(0.0), "length": np.array(0.0), "noise": np.array(-1.0)}

    gradient, wanted = od.grad(misfit)(start, x, y), by_the_book(start, x, y)
    for name, value in wanted.items():
        np.testing.assert_allclose(gradient[name], value, rtol=1e-9)

    settings, slope = fit(start, x, y)
    size, length, noise = (np.exp(settings[name]) for name in ("size", "length", "noise"))
    print(f"size {size:.3f}, length {length:.3f}, noise {noise:.3f}; the noise was {NOISE}")
    assert slope < 1e-6
    assert abs(noise - NOISE) < 0.05

    inside = np.linspace(-5.5, 5.5, 200)
    mean, deviation = predict(settings, x, y, inside)
    error = np.abs(mean - truth(inside))
    covered = np.mean(error <= 2.0 * deviation)
    print(f"error {error.mean():.3f} on average; within two deviations at {covered:.0%} of points")
    assert error.mean() < 0.1
    assert covered > 0.85

    _, outside = predict(settings, x, y, np.array([9.0]))
    assert outside[0] > 5.0 * deviation.mean(), "far from all measurements little is known"
    draw(settings, x, y)


if __name__ == "__main__":
    main()
