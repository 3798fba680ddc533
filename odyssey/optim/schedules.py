"""Schedules: learning rates that follow the number of steps, or a measurement.

A schedule changes the learning rate of every group of its optimizer each time its ``step`` is
called, after the optimizer's. Those that PyTorch has follow its formulas, which take the present
rate further, so that schedules can be used together and rates assigned in between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from odyssey.errors import OdysseyError
from odyssey.optim.optimizer import Optimizer

__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "MultiStepLR",
    "ReduceLROnPlateau",
    "Schedule",
    "StepLR",
    "WarmupCosineLR",
    "WarmupLR",
]


class Schedule:
    """The part that all schedules share: the count of steps, and saving.

    Attributes:
        optimizer: Whose learning rates change.
        steps: How often ``step`` was called.
        base_rates: The learning rate of each group when the schedule was made.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise OdysseyError(f"{type(self).__name__}: pass an optimizer, not {optimizer!r}")
        self.optimizer = optimizer
        self.steps = 0
        self.base_rates = self._rates()

    def _rates(self) -> list[float]:
        return [float(group.learning_rate) for group in self.optimizer.groups]

    def _set(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.groups, rates, strict=True):
            group.learning_rate = rate

    def step(self) -> None:
        """Count one step, and set the learning rates that follow it."""
        self.steps += 1
        pairs = zip(self._rates(), self.base_rates, strict=True)
        try:
            self._set([self._next(rate, base) for rate, base in pairs])
        except BaseException:
            self.steps -= 1
            raise

    def _next(self, rate: float, base: float) -> float:
        """The rate after ``self.steps`` steps, where the one before was ``rate``."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return where the schedule stands, its settings, and the present learning rates."""
        own = {name: deepcopy(value) for name, value in vars(self).items() if name != "optimizer"}
        return own | {"rates": self._rates()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned, and set the optimizer's learning rates so.

        Raises:
            OdysseyError: for the state of another schedule, or of other groups; nothing changes.
        """
        wanted = self.state_dict()
        if set(saved) != set(wanted):
            raise OdysseyError(f"load_state_dict: came {sorted(saved)}, wanted {sorted(wanted)}")
        if not len(saved["rates"]) == len(saved["base_rates"]) == len(self.base_rates):
            raise OdysseyError(
                f"load_state_dict: rates of {len(saved['rates'])} groups came for "
                f"{len(self.base_rates)}"
            )
        self._set(saved["rates"])
        for name, value in saved.items():
            if name != "rates":
                setattr(self, name, deepcopy(value))


class StepLR(Schedule):
    """Multiply the rate by ``gamma`` after every ``step_size`` steps.

    >>> from odyssey import Variable
    >>> from odyssey.optim import SGD
    >>> optimizer = SGD(Variable(1.0, requires_grad=True), learning_rate=1.0)
    >>> schedule = StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     schedule.step()
    ...     print(optimizer.learning_rate)
    1.0
    0.5
    0.5
    0.25
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise OdysseyError(f"StepLR: step_size={step_size!r}; it must be at least 1")
        super().__init__(optimizer)
        self.step_size = step_size
        self.gamma = gamma

    def _next(self, rate: float, base: float) -> float:
        return rate if self.steps % self.step_size else rate * self.gamma


class MultiStepLR(Schedule):
    """Multiply the rate by ``gamma`` at each of the ``milestones``, which are counts of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        super().__init__(optimizer)
        self.milestones = Counter(milestones)
        self.gamma = gamma

    def _next(self, rate: float, base: float) -> float:
        times = self.milestones[self.steps]
        return float(rate * self.gamma**times) if times else rate


class ExponentialLR(Schedule):
    """Multiply the rate by ``gamma`` after every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer)
        self.gamma = gamma

    def _next(self, rate: float, base: float) -> float:
        return rate * self.gamma


class CosineAnnealingLR(Schedule):
    """Let the rate fall to ``eta_min`` along half a cosine (Loshchilov and Hutter 2017).

    After ``t`` steps the rate is ``eta_min + (base - eta_min) * (1 + cos(pi t / T_max)) / 2``,
    which rises again after ``T_max`` steps. As in PyTorch, it is reached from the rate before.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        if T_max < 1:
            raise OdysseyError(f"CosineAnnealingLR: T_max={T_max!r}; it must be at least 1")
        super().__init__(optimizer)
        self.T_max = T_max
        self.eta_min = eta_min

    def _next(self, rate: float, base: float) -> float:
        before = self.steps - 1
        if (before - self.T_max) % (2 * self.T_max) == 0:  # at the minimum the ratio is 0 / 0
            return rate + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        ratio = (1 + math.cos(math.pi * self.steps / self.T_max)) / (
            1 + math.cos(math.pi * before / self.T_max)
        )
        # One that was assigned below eta_min is driven away from it, but not below 0.
        return max(ratio * (rate - self.eta_min) + self.eta_min, 0.0)


class _Warmup(Schedule):
    """The climb that both warm-up schedules begin with."""

    def __init__(
        self, who: str, optimizer: Optimizer, warmup_steps: int, start_factor: float | None
    ) -> None:
        if warmup_steps < 0:
            raise OdysseyError(f"{who}: warmup_steps={warmup_steps!r}; it must not be negative")
        factor = 1 / (warmup_steps + 1) if start_factor is None else start_factor
        if not 0 <= factor <= 1:
            raise OdysseyError(f"{who}: start_factor={factor!r}; it must lie in [0, 1]")
        super().__init__(optimizer)
        self.warmup_steps = warmup_steps
        self.start_factor = factor

    def _begin(self) -> None:
        self._set([self._next(base, base) for base in self.base_rates])

    def _climb(self, base: float) -> float:
        done = self.steps / self.warmup_steps
        return base * (self.start_factor + (1 - self.start_factor) * done)


class WarmupLR(_Warmup):
    """Let the rate climb evenly to its full height.

    After ``t`` steps, from the schedule's making on (``t = 0``), the rate is
    ``base * (s + (1 - s) * min(t / warmup_steps, 1))`` with ``s = start_factor``.

    Args:
        optimizer: Its rates, as they are now, are the ``base``.
        warmup_steps: How many steps the climb takes.
        start_factor: Where it begins, in [0, 1]; by default ``1 / (warmup_steps + 1)``, so that
            the climb is even from the start and no step is lost on a rate of 0.

    >>> from odyssey import Variable
    >>> from odyssey.optim import SGD
    >>> optimizer = SGD(Variable(1.0, requires_grad=True), learning_rate=1.0)
    >>> schedule = WarmupLR(optimizer, warmup_steps=3)
    >>> for _ in range(5):
    ...     print(optimizer.learning_rate)
    ...     schedule.step()
    0.25
    0.5
    0.75
    1.0
    1.0
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, start_factor: float | None = None
    ) -> None:
        super().__init__("WarmupLR", optimizer, warmup_steps, start_factor)
        self._begin()

    def _next(self, rate: float, base: float) -> float:
        return self._climb(base) if self.steps < self.warmup_steps else base


class WarmupCosineLR(_Warmup):
    """Let the rate climb evenly to its full height, then fall along half a cosine.

    For the first ``warmup_steps`` as in ``WarmupLR``; then, after ``t`` steps, the rate is
    ``eta_min + (base - eta_min) * (1 + cos(pi f)) / 2``, where
    ``f = (t - warmup_steps) / (total_steps - warmup_steps)``, and ``eta_min`` from
    ``total_steps`` on.

    Args:
        optimizer: Its rates, as they are now, are the ``base``.
        warmup_steps: How many steps the climb takes.
        total_steps: How many steps climb and fall take together.
        eta_min: The rate at the end.
        start_factor: Where the climb begins; see ``WarmupLR``.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        eta_min: float = 0.0,
        start_factor: float | None = None,
    ) -> None:
        if total_steps <= warmup_steps:
            raise OdysseyError(
                f"WarmupCosineLR: total_steps={total_steps!r} must exceed "
                f"warmup_steps={warmup_steps!r}"
            )
        super().__init__("WarmupCosineLR", optimizer, warmup_steps, start_factor)
        self.total_steps = total_steps
        self.eta_min = eta_min
        self._begin()

    def _next(self, rate: float, base: float) -> float:
        if self.steps < self.warmup_steps:
            return self._climb(base)
        if self.steps >= self.total_steps:
            return self.eta_min
        part = (self.steps - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * part)) / 2


class ReduceLROnPlateau(Schedule):
    """Multiply the rate by ``factor`` when a measurement has stopped to improve.

    Args:
        optimizer: Whose rates are reduced.
        mode: ``"min"`` where a smaller measurement is better, or ``"max"``.
        factor: Below 1.
        patience: How many steps without improvement are put up with.
        threshold: How much better than the best so far counts as an improvement.
        threshold_mode: ``"rel"``, where the threshold is a part of the best, or ``"abs"``.
        cooldown: How many steps after a reduction do not count.
        min_lr: Below which no rate is reduced; a number, or one for each group.
        eps: Reductions by no more than this are not made.

    A measurement of NaN is no improvement.

    >>> from odyssey import Variable
    >>> from odyssey.optim import SGD
    >>> optimizer = SGD(Variable(1.0, requires_grad=True), learning_rate=1.0)
    >>> schedule = ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> optimizer.learning_rate
    0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1:
            raise OdysseyError(f"ReduceLROnPlateau: factor={factor!r}; it must be below 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise OdysseyError(
                f"ReduceLROnPlateau: mode={mode!r}, threshold_mode={threshold_mode!r}; choose "
                "'min' or 'max', and 'rel' or 'abs'"
            )
        super().__init__(optimizer)
        if isinstance(min_lr, (list, tuple)):
            self.min_lrs = list(min_lr)
        else:
            self.min_lrs = [min_lr] * len(self.base_rates)
        if len(self.min_lrs) != len(self.base_rates):
            raise OdysseyError(
                f"ReduceLROnPlateau: {len(self.min_lrs)} min_lr came for "
                f"{len(self.base_rates)} groups"
            )
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_steps = 0
        self.cooldown_left = 0

    def step(self, measurement: Any) -> None:  # type: ignore[override]
        """Count one step whose outcome was ``measurement``, a loss for instance."""
        measured = float(measurement)
        self.steps += 1
        if self._is_better(measured):
            self.best = measured
            self.bad_steps = 0
        else:
            self.bad_steps += 1
        if self.cooldown_left > 0:
            self.cooldown_left -= 1
            self.bad_steps = 0
        if self.bad_steps > self.patience:
            self._reduce()
            self.cooldown_left = self.cooldown
            self.bad_steps = 0

    def _is_better(self, measured: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * measured > sign * self.best * (1 + sign * self.threshold)
        return sign * measured > sign * self.best + self.threshold

    def _reduce(self) -> None:
        lower = [max(r * self.factor, m) for r, m in zip(self._rates(), self.min_lrs, strict=True)]
        pairs = zip(self._rates(), lower, strict=True)
        self._set([new if old - new > self.eps else old for old, new in pairs])
