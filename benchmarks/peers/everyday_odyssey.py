"""The cases of `everyday.py` in odyssey."""

from collections.abc import Callable
from typing import Any

import odyssey as od
from odyssey import GradientTape, Variable, ops


def cases(given: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """By name what is timed; each returns its gradients."""

    def of(fn: Callable[[Any], Any], name: str = "matrix") -> Callable[[], Any]:
        x = Variable(given[name], requires_grad=True)

        def run() -> Any:
            with GradientTape() as tape:
                out = ops.sum(fn(x))
            tape.backward(out)
            gradient, x.grad = x.grad, None
            return gradient

        return run

    def network(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = ops.tanh(x @ p["w1"] + p["b1"])
        return ops.mean(ops.square(h @ p["w2"] + p["b2"] - y))

    names = ("w1", "b1", "w2", "b2")
    arrays = {name: given[name] for name in names}
    leaves = {name: Variable(given[name], requires_grad=True) for name in names}
    x, y = given["x"], given["y"]

    def tape() -> Any:
        with GradientTape() as tape:
            loss = network(leaves, x, y)
        tape.backward(loss)
        gradients = [leaf.grad for leaf in leaves.values()]
        for leaf in leaves.values():
            leaf.grad = None
        return gradients

    step = od.value_and_grad(network)
    rows, columns, elements = given["rows"], given["columns"], given["elements"]
    mask, along, square = given["mask"], given["along"], given["square"]
    jacobian = od.jacobian(lambda v: ops.tanh(square @ v))
    hessian = od.hessian(lambda v: ops.sum(ops.exp(ops.sin(v)) * v[::-1]))
    point, short = Variable(given["point"]), Variable(given["short"])
    return {
        "tape": tape,
        "value_and_grad": lambda: list(step(arrays, x, y)[1].values()),
        "take_rows": of(lambda v: ops.take(v, rows, 0)),
        "take_elements": of(lambda v: ops.take(v, elements, 0), "vector"),
        "index_rows": of(lambda v: v[rows]),
        "index_pairs": of(lambda v: v[rows, columns]),
        "index_mask": of(lambda v: v[mask]),
        "index_slices": of(lambda v: v[10:900, ::2]),
        "along_axis": of(lambda v: ops.take_along_axis(v, along, 1)),
        "gelu": of(ops.gelu),
        "sigmoid": of(ops.sigmoid),
        "prod": of(lambda v: ops.prod(v, 1), "positive"),
        "prod_all": of(ops.prod, "positive"),
        "cumsum": of(lambda v: ops.cumsum(v, 1)),
        "jacobian": lambda: jacobian(point),
        "hessian": lambda: hessian(short),
    }
