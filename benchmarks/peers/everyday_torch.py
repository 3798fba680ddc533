"""The cases of `everyday.py` in PyTorch, eager."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.functional import hessian, jacobian

torch.set_num_threads(1)


def cases(given: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """By name what is timed; each returns its gradients."""

    def of(fn: Callable[[Any], Any], name: str = "matrix") -> Callable[[], Any]:
        x = torch.tensor(given[name], requires_grad=True)

        def run() -> Any:
            fn(x).sum().backward()
            gradient, x.grad = x.grad, None
            return gradient

        return run

    rows, columns, elements = (torch.tensor(given[k]) for k in ("rows", "columns", "elements"))
    mask, along, square = (torch.tensor(given[k]) for k in ("mask", "along", "square"))
    point, short = torch.tensor(given["point"]), torch.tensor(given["short"])
    return {
        "take_rows": of(lambda v: torch.index_select(v, 0, rows)),
        "take_elements": of(lambda v: torch.index_select(v, 0, elements), "vector"),
        "index_rows": of(lambda v: v[rows]),
        "index_pairs": of(lambda v: v[rows, columns]),
        "index_mask": of(lambda v: v[mask]),
        "index_slices": of(lambda v: v[10:900, ::2]),
        "along_axis": of(lambda v: torch.gather(v, 1, along)),
        "gelu": of(torch.nn.functional.gelu),
        "sigmoid": of(torch.sigmoid),
        "prod": of(lambda v: torch.prod(v, 1), "positive"),
        "prod_all": of(torch.prod, "positive"),
        "cumsum": of(lambda v: torch.cumsum(v, 1)),
        "jacobian": lambda: jacobian(lambda v: torch.tanh(square @ v), point),
        "hessian": lambda: hessian(lambda v: (torch.exp(torch.sin(v)) * v.flip(0)).sum(), short),
    }
