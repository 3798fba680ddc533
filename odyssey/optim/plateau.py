"""ReduceLROnPlateau: a schedule that follows a measurement."""

from __future__ import annotations

import math
from copy import copy
from typing import Any, ClassVar

from odyssey.checks import check_choice, check_number, format_value
from odyssey.errors import OdysseyError, SettingError
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.schedules import Schedule

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(Schedule):
    """Multiply the rate by ``factor`` when a measurement has stopped improving.

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

    A measurement of NaN is not an improvement.

    >>> from odyssey import Variable
    >>> from odyssey.optim import SGD
    >>> optimizer = SGD(Variable(1.0, requires_grad=True), learning_rate=1.0)
    >>> schedule = ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> optimizer.learning_rate
    0.1
    """

    mode: str
    factor: float
    patience: float
    threshold: float
    threshold_mode: str
    cooldown: float
    eps: float
    _standing = ("steps", "best", "bad_steps")
    _words: ClassVar[dict[str, tuple[str, ...]]] = {
        "mode": ("min", "max"),
        "threshold_mode": ("rel", "abs"),
    }
    _ranges = Schedule._ranges | {
        "factor": "[0, inf)",
        "patience": "[0, inf]",
        "threshold": "(-inf, inf)",
        "cooldown": "[0, inf]",
        "eps": "[0, inf)",
        "best": "[-inf, inf]",
        "bad_steps": "[0, inf)",
        "cooldown_left": "[0, inf]",
    }

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
        super().__init__(
            optimizer,
            mode=mode,
            factor=factor,
            patience=patience,
            threshold=threshold,
            threshold_mode=threshold_mode,
            cooldown=cooldown,
            eps=eps,
        )
        several = isinstance(min_lr, (list, tuple))
        self.min_lrs = self._check_setting("min_lrs", min_lr if several else [min_lr])
        if not several:
            self.min_lrs *= len(self.base_rates)
        if len(self.min_lrs) != len(self.base_rates):
            raise OdysseyError(
                f"ReduceLROnPlateau: {len(self.min_lrs)} min_lr came for "
                f"{len(self.base_rates)} groups"
            )
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_steps = 0
        self.cooldown_left: float = 0

    def _check_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        found = super()._check_settings(given)
        if "min_lrs" in found and len(found["min_lrs"]) != len(found["base_rates"]):
            raise OdysseyError(
                f"ReduceLROnPlateau: min_lrs={format_value(found['min_lrs'])} came for "
                f"{len(found['base_rates'])} groups"
            )
        return found

    def _check_setting(self, name: str, value: Any) -> Any:
        if name in self._words:
            return check_choice("ReduceLROnPlateau", name, value, self._words[name])
        found = super()._check_setting(name, value)
        if name == "factor" and found >= 1:
            raise SettingError(f"ReduceLROnPlateau: factor={found!r}; it must be below 1")
        return found

    def step(self, measurement: Any) -> None:  # type: ignore[override]
        """Count one step whose outcome was ``measurement``, a loss for instance."""
        measured = check_number("ReduceLROnPlateau.step", "measurement", measurement, "NaN")
        after = copy(self)
        rates = after._rates_after(measured)
        self._set_state(vars(after), rates)

    def _rates_after(self, measured: float) -> list[float]:
        """Count one step; return the learning rates that follow."""
        self.steps += 1
        if self._is_better(measured):
            self.best = measured
            self.bad_steps = 0
        else:
            self.bad_steps += 1
        if self.cooldown_left > 0:
            self.cooldown_left -= 1
            self.bad_steps = 0
        if self.bad_steps <= self.patience:
            return self._rates()
        self.cooldown_left = self.cooldown
        self.bad_steps = 0
        return self._lowered_rates()

    def _is_better(self, measured: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * measured > sign * self.best * (1 + sign * self.threshold)
        return sign * measured > sign * self.best + self.threshold

    def _lowered_rates(self) -> list[float]:
        lower = [max(r * self.factor, m) for r, m in zip(self._rates(), self.min_lrs, strict=True)]
        pairs = zip(self._rates(), lower, strict=True)
        return [new if old - new > self.eps else old for old, new in pairs]
