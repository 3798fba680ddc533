"""Forward pass and sweep of a loss in each system, apart where the system keeps them apart.

A library is imported when a function of its system is called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.sampling import both_clocks, calibrate, repeated
from study.contract import NotApplicable

BLOCK_SECONDS = 0.1
MOST_PENDING = 32
"""Forward passes that wait for their sweeps: the clock is read once for so many."""


@dataclass(slots=True)
class Passes:
    """A loss and its gradient in one system.

    Args:
        both: Runs both, and returns the loss and the gradients; results are waited for.
        forward: Runs forward, and returns what `sweep` takes.
        sweep: Runs the sweep, and returns the gradients. None where one program does both: then
            `forward` is a program that computes the loss alone.
    """

    both: Callable[[], tuple[Any, Sequence[Any]]]
    forward: Callable[[], Any]
    sweep: Callable[[Any], Sequence[Any]] | None = None

    def answer(self) -> dict[str, Any]:
        """Return the loss and the gradients, for a comparison with the reference."""
        loss, gradients = self.both()
        return named_results(number_of(loss), [np.asarray(array_of(g)) for g in gradients])


def named_results(loss: Any, gradients: Sequence[Any]) -> dict[str, Any]:
    """Return a loss and gradients by the names that references and answers share."""
    named = {f"gradient{k}": np.asarray(g, np.float64) for k, g in enumerate(gradients)}
    return {"loss": np.asarray(loss, np.float64), **named}


def array_of(value: Any) -> Any:
    """Return a system's array as something that NumPy takes."""
    return value.detach().numpy() if hasattr(value, "detach") else value


def number_of(value: Any) -> float:
    """Return a system's number."""
    return float(value.item()) if hasattr(value, "item") else float(value)


def block_seconds(run: Callable[[int], Any], repeats: int) -> tuple[float, float]:
    """Return the elapsed and the processor seconds of one repetition, from a block of them."""
    took = both_clocks(run, repeats)
    return took["wall"], took["cpu"]


class PhaseTimes:
    """Samples of the processor time of forward pass and sweep; blocks are calibrated once."""

    def __init__(self, passes: Passes, seconds: float = BLOCK_SECONDS) -> None:
        self._passes = passes
        self._seconds = seconds
        self._repeats: tuple[int, int] | None = None

    def __call__(self) -> dict[str, float]:
        """Return ``seconds``, ``cpu_seconds``, ``forward_cpu_seconds``, ``sweep_cpu_seconds``.

        Where one program does both, the sweep is what it takes beside the loss alone.
        """
        return self._together() if self._passes.sweep is None else self._apart()

    def _together(self) -> dict[str, float]:
        forward, both = repeated(self._passes.forward), repeated(self._passes.both)
        if self._repeats is None:
            self._repeats = calibrate(forward, self._seconds), calibrate(both, self._seconds)
        _, cpu_forward = block_seconds(forward, self._repeats[0])
        wall, cpu = block_seconds(both, self._repeats[1])
        return _metrics(wall, cpu_forward, cpu)

    def _apart(self) -> dict[str, float]:
        pending: list[Any] = []
        forward, sweep = self._passes.forward, self._passes.sweep
        assert sweep is not None

        def run_forward(repeats: int) -> None:
            for _ in range(repeats):
                pending.append(forward())

        def run_sweeps(repeats: int) -> None:
            for _ in range(repeats):
                sweep(pending.pop())

        def run(repeats: int) -> None:
            run_forward(repeats)
            run_sweeps(repeats)

        if self._repeats is None:
            repeats = calibrate(run, self._seconds, most=MOST_PENDING)
            wall, _ = block_seconds(run, repeats)
            self._repeats = repeats, max(1, round(self._seconds / (wall * repeats)))
        repeats, groups = self._repeats
        totals = [0.0, 0.0, 0.0]
        for _ in range(groups):
            wall_forward, cpu_forward = block_seconds(run_forward, repeats)
            wall_sweep, cpu_sweep = block_seconds(run_sweeps, repeats)
            totals[0] += wall_forward + wall_sweep
            totals[1] += cpu_forward
            totals[2] += cpu_forward + cpu_sweep
        return _metrics(*(total / groups for total in totals))


def _metrics(wall: float, cpu_forward: float, cpu: float) -> dict[str, float]:
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "forward_cpu_seconds": cpu_forward,
        "sweep_cpu_seconds": cpu - cpu_forward,
    }


# ------------------------------------------------------------------ systems


def passes_of(
    system: str,
    losses: Mapping[str, Callable[..., Any]],
    parameters: Sequence[Any],
    batch: Sequence[Any],
) -> Passes:
    """Return the passes of a loss in a system.

    Args:
        system: One of `study.contract.SYSTEMS`.
        losses: The loss by library (``odyssey``, ``torch``, ``jax``, ``autograd``): a function of
            a list of parameters and the arrays of a batch. That of ``numpy`` returns the loss and
            a function that returns the gradients.
        parameters: Arrays of NumPy.
        batch: Arrays of NumPy.

    Raises:
        NotApplicable: There is no such loss for the library.
    """
    library = {"taped": "odyssey", "compiled": "odyssey", "torch.compile": "torch"}
    known = library.get(system, system)
    if known not in losses:
        raise NotApplicable(f"{known} has no such function")
    makers = {
        "numpy": _numpy,
        "taped": _taped,
        "compiled": _compiled,
        "torch": _torch,
        "torch.compile": _torch_compiled,
        "jax": _jax,
        "autograd": _autograd,
    }
    return makers[system](losses[known], list(parameters), list(batch))


def _numpy(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    def both() -> tuple[Any, Sequence[Any]]:
        loss, backward = loss_of(p, *batch)
        return loss, backward()

    return Passes(both, lambda: loss_of(p, *batch)[1], lambda backward: backward())


def _taped(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    import odyssey as od

    leaves = [od.Variable(a, requires_grad=True) for a in p]

    def forward() -> Any:
        with od.GradientTape() as tape:
            loss = loss_of(leaves, *batch)
        return tape, loss

    def sweep(pending: Any) -> Sequence[Any]:
        tape, loss = pending
        return list(tape.gradient(loss, leaves))

    def both() -> tuple[Any, Sequence[Any]]:
        pending = forward()
        return pending[1], sweep(pending)

    return Passes(both, forward, sweep)


def _compiled(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    import odyssey as od

    leaves = [od.Variable(a, requires_grad=True) for a in p]

    def run_both(*batch: Any) -> Any:
        with od.GradientTape() as tape:
            loss = loss_of(leaves, *batch)
        return loss, tape.gradient(loss, leaves)

    both, forward = od.compile(run_both), od.compile(lambda *batch: loss_of(leaves, *batch))
    return Passes(lambda: both(*batch), lambda: forward(*batch))


def _torch(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    import torch

    torch.set_num_threads(1)
    leaves = [torch.tensor(a, requires_grad=True) for a in p]
    tensors = [torch.tensor(a) for a in batch]

    def forward() -> Any:
        return loss_of(leaves, *tensors)

    def sweep(loss: Any) -> Sequence[Any]:
        return torch.autograd.grad(loss, leaves)

    def both() -> tuple[Any, Sequence[Any]]:
        loss = forward()
        return loss, sweep(loss)

    return Passes(both, forward, sweep)


def _torch_compiled(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    """Gradient and loss in one compiled function, the fastest form that PyTorch has."""
    import torch

    torch.set_num_threads(1)
    torch._dynamo.reset()
    leaves, tensors = [torch.tensor(a) for a in p], [torch.tensor(a) for a in batch]
    forward = torch.compile(loss_of, dynamic=False)
    gradient = torch.compile(torch.func.grad_and_value(loss_of), dynamic=False)

    def both() -> tuple[Any, Sequence[Any]]:
        gradients, loss = gradient(leaves, *tensors)
        return loss, gradients

    return Passes(both, lambda: forward(leaves, *tensors))


def _jax(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    import jax

    leaves, arrays = [jax.numpy.array(a) for a in p], [jax.numpy.array(a) for a in batch]
    forward, both = jax.jit(loss_of), jax.jit(jax.value_and_grad(loss_of))
    wait = jax.block_until_ready
    return Passes(lambda: wait(both(leaves, *arrays)), lambda: wait(forward(leaves, *arrays)))


def _autograd(loss_of: Callable[..., Any], p: list[Any], batch: list[Any]) -> Passes:
    from autograd.core import make_vjp

    def forward() -> Any:
        return make_vjp(lambda p: loss_of(p, *batch), p)

    def sweep(pending: Any) -> Sequence[Any]:
        found: Sequence[Any] = pending[0](pending[1].dtype.type(1))
        return found

    def both() -> tuple[Any, Sequence[Any]]:
        pending = forward()
        return pending[1], sweep(pending)

    return Passes(both, forward, sweep)
