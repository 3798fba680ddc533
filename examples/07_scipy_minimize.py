"""Logistic regression by SciPy's minimizers
=========================================

``scipy.optimize.minimize`` wants one flat vector of numbers, a value and a gradient. A model has
weights and biases in a tree. ``od.optim.scipy_objective(fn, params)`` converts between the two::

    objective = od.optim.scipy_objective(fn, params)
    objective.x0                      # the parameters, flattened
    objective(x)                      # value and gradient, for minimize(..., jac=True)
    objective.hessp(x, v)             # the Hessian times v, for Newton's methods
    objective.unflatten(result.x)     # the solution in the form of params

The problem is to tell malignant from benign tumours in scikit-learn's breast cancer data, with a
little weight decay, which makes the optimum unique.

To be seen: L-BFGS, which uses gradients alone, and a Newton method in a trust region, which uses
products with the Hessian, find one optimum, which is scikit-learn's as well. Runs in about 5
seconds. Needs scikit-learn, which brings SciPy: ``pip install -e ".[examples]"``
"""

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import odyssey as od
from odyssey import ops

DECAY = 1.0


def load_data():
    """Return 30 measurements of each tumour, with mean 0 and variance 1, and 1 for benign."""
    x, y = load_breast_cancer(return_X_y=True)
    return (x - x.mean(0)) / x.std(0), y.astype(float)


def draw(scores, benign, weights, known):
    """Draw scores, and weights beside scikit-learn's; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    bins = np.linspace(scores.min(), scores.max(), 40)
    left.hist([scores[~benign], scores[benign]], bins, stacked=True, label=["malignant", "benign"])
    left.axvline(0.0, color="k", linewidth=1)
    left.set(title="Scores of the tumours", xlabel="log-odds of benign", ylabel="number")
    left.legend()
    right.bar(range(len(weights)), weights, label="odyssey")
    right.plot(known, "k.", label="scikit-learn")
    right.set(title="Weights of the measurements", xlabel="measurement")
    right.legend()
    plt.show()


def main():
    x, y = load_data()

    def loss(params):
        logits = x @ params["w"] + params["b"]
        misfit = od.binary_cross_entropy(logits, y, from_logits=True, reduction="sum")
        return misfit + 0.5 * DECAY * ops.sum(params["w"] ** 2)

    params = {"w": np.zeros(x.shape[1]), "b": np.array(0.0)}
    objective = od.optim.scipy_objective(loss, params)

    by_gradients = minimize(
        objective, objective.x0, jac=True, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 1e-8}
    )
    by_curvature = minimize(
        objective,
        objective.x0,
        jac=True,
        hessp=objective.hessp,
        method="trust-ncg",
        options={"gtol": 1e-8},
    )
    for name, found in {"L-BFGS": by_gradients, "trust region": by_curvature}.items():
        _, gradient = objective(found.x)
        size = np.max(np.abs(gradient))
        print(f"{name:12}: loss {found.fun:.8f} after {found.nit:3} steps, gradient {size:.1e}")
        assert size < 1e-4

    solution = objective.unflatten(by_curvature.x)
    scores = x @ solution["w"] + solution["b"]
    right = np.mean((scores > 0) == (y == 1))
    print(f"{right:.1%} of the tumours are on their side of the boundary")
    assert right > 0.98

    np.testing.assert_allclose(by_gradients.x, by_curvature.x, atol=1e-4)
    known = LogisticRegression(C=1 / DECAY, tol=1e-10, max_iter=10_000).fit(x, y)
    np.testing.assert_allclose(solution["w"], known.coef_[0], atol=1e-4)
    np.testing.assert_allclose(solution["b"], known.intercept_[0], atol=1e-4)
    draw(scores, y == 1, solution["w"], known.coef_[0])


if __name__ == "__main__":
    main()
