"""The workloads of `compiled.py` in PyTorch: eager, and with the update compiled as well."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from harness.compiled_cases import BATCH, CASES, HEADS, MOMENTUM, TIMES, WIDTH, chain


def forward(name: str, p: list[Any], x: Any, *y: Any) -> Any:
    """The loss of a workload."""
    if name in ("W4", "W4m"):
        return chain(name, p[0], x, torch).sum()
    if name == "W6":
        q, k, v = (x @ p[0]).view(BATCH, TIMES, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4).unbind(0)
        a = torch.softmax(q @ k.transpose(-1, -2) * (WIDTH**-0.5), -1)
        joined = (a @ v).transpose(1, 2).reshape(BATCH, TIMES, HEADS * WIDTH)
        return functional.mse_loss(joined @ p[1], *y)
    if name == "W7":
        for k, padding in ((0, 2), (2, 0)):
            h = torch.relu(functional.conv2d(x, p[k], p[k + 1], padding=padding))
            x = functional.max_pool2d(h, 2)
        x, p = x.flatten(1), p[4:]
    activation = torch.tanh if name in ("W1", "deep") else torch.relu
    for k in range(0, len(p) - 2, 2):
        x = activation(torch.addmm(p[k + 1], x, p[k]))
    x = torch.addmm(p[-1], x, p[-2])
    loss = functional.mse_loss if name in ("W1", "deep") else functional.cross_entropy
    return loss(x, *y)


def build(name: str, kind: str, parameters: list[Any], threads: int) -> Callable[..., Any]:
    """A step, eager or compiled."""
    torch.set_num_threads(threads)
    if name == "small":
        fn = lambda x, y: torch.tanh(x * y + x)  # noqa: E731
        step = torch.compile(fn) if kind == "torch.compile" else fn
    else:
        make = _compiled if kind == "torch.compile" else _eager
        step = make(name, [torch.tensor(a) for a in parameters])
    known: dict[int, Any] = {}

    def run(*batch: Any) -> Any:
        if id(batch) not in known:  # arrays of NumPy become tensors once
            known[id(batch)] = batch, [torch.tensor(a) for a in batch]
        return step(*known[id(batch)][1])

    return run


def _eager(name: str, p: list[Any]) -> Callable[..., Any]:
    for tensor in p:
        tensor.requires_grad_(True)
    rate = CASES[name].rate
    optimizer = (
        torch.optim.Adam(p, lr=rate)
        if name == "digits"
        else torch.optim.SGD(p, lr=rate, momentum=MOMENTUM)
    )

    def step(*batch: Any) -> Any:
        loss = forward(name, p, *batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def _compiled(name: str, p: list[Any]) -> Callable[..., Any]:
    """Gradient and update in one compiled function, the fastest form that PyTorch has."""
    gradient = torch.func.grad_and_value(lambda p, *batch: forward(name, p, *batch))
    rate = CASES[name].rate
    first = [torch.zeros_like(a) for a in p]
    second = [torch.zeros_like(a) for a in p]
    count = torch.zeros(())

    @torch.compile
    def momentum(*batch: Any) -> Any:
        grads, loss = gradient(p, *batch)
        for a, v, g in zip(p, first, grads, strict=True):
            v.mul_(MOMENTUM).add_(g)
            a.sub_(v * rate)
        return loss

    @torch.compile
    def adam(*batch: Any) -> Any:
        grads, loss = gradient(p, *batch)
        count.add_(1.0)
        for a, m, v, g in zip(p, first, second, grads, strict=True):
            m.mul_(0.9).add_(g * 0.1)
            v.mul_(0.999).add_(g * g * 0.001)
            root = (v / (1.0 - 0.999**count)).sqrt() + 1e-8
            a.sub_(rate * (m / (1.0 - 0.9**count)) / root)
        return loss

    return adam if name == "digits" else momentum


def number(result: Any) -> float:
    """What a step gave, as one number."""
    return float(result.detach().sum())
