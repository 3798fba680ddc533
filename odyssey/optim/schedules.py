"""Learning-rate schedules by the number of steps.

A schedule changes the learning rate of every group of its optimizer each time its ``step`` is
called, after the optimizer's. Those that PyTorch has follow its formulas, which take the present
rate further, so that schedules can be used together and rates assigned in between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from typing import Any, ClassVar

from odyssey.checks import (
    check_callable,
    check_choice,
    check_flag,
    check_int,
    check_number,
    few_digits,
    format_value,
)
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DTypeError, OdysseyError, SettingError
from odyssey.optim.groups import defaults_of
from odyssey.optim.optimizer import Optimizer
from odyssey.table.store import store

__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "LambdaLR",
    "MultiStepLR",
    "OneCycleLR",
    "Schedule",
    "StepLR",
    "WarmupCosineLR",
    "WarmupLR",
]


# The number of settings that a repr always shows.
_SETTINGS_SHOWN = 3


class Schedule:
    """Base class of schedules: the count of steps, and saving.

    Attributes:
        optimizer: Whose learning rates change.
        steps: How often ``step`` was called.
        base_rates: The learning rate of each group when the schedule was made.
    """

    # The intervals of the settings and counts that are numbers.
    _ranges: ClassVar[dict[str, str]] = {"steps": "[0, inf)"}

    # The attributes of its progress that its repr shows.
    _standing: ClassVar[tuple[str, ...]] = ("steps",)

    # Attributes that are not saved.
    _unsaved: ClassVar[frozenset[str]] = frozenset({"optimizer"})

    def __init__(self, optimizer: Optimizer, **settings: Any) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DTypeError(
                f"{type(self).__name__}: pass an optimizer, not {format_value(optimizer)}"
            )
        vars(self).update(self._check_settings(settings))
        self.optimizer = optimizer
        self.steps = 0
        self.base_rates = self._rates()

    def _rates(self) -> list[float]:
        return [float(group.learning_rate) for group in self.optimizer.groups]

    def _check_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return settings and counts as they are stored; raise if one is invalid."""
        return {name: self._check_setting(name, value) for name, value in given.items()}

    def _check_setting(self, name: str, value: Any) -> Any:
        who = type(self).__name__
        if name in ("base_rates", "rates", "min_lrs", "max_lrs"):
            if not isinstance(value, (list, tuple)):
                raise DTypeError(f"{who}: {name}={format_value(value)}; pass a list of numbers")
            return [_checked_number(who, name, one, "[0, inf)") for one in value]
        if name not in self._ranges:  # an attribute that a user's class added
            return value
        return _checked_number(who, name, value, self._ranges[name])

    def __repr__(self) -> str:
        """The settings, and where the schedule and the learning rates stand."""
        store().only_eagerly("it formats a schedule as text")
        own = vars(self)
        if (
            "base_rates" not in own or "optimizer" not in own
        ):  # under construction, or construction failed
            return f"<{type(self).__name__}, unfinished>"
        settings: list[str] = []
        for name, default in defaults_of(type(self).__init__).items():
            if name == "optimizer" or name not in own:
                continue
            value = own[name]
            # The first settings are always shown.
            if len(settings) < _SETTINGS_SHOWN or value != default:
                value = sorted(value.elements()) if isinstance(value, Counter) else value
                settings.append(f"{name}={few_digits(value)}")
        rates = self._rates()
        rate = rates[0] if all(one == rates[0] for one in rates) else rates
        stands = {name: own.get(name) for name in self._standing} | {"learning_rate": rate}
        where = ", ".join(f"{name}={few_digits(value)}" for name, value in stands.items())
        return f"{type(self).__name__}({'; '.join(filter(None, [', '.join(settings), where]))})"

    def step(self) -> None:
        """Count one step, and set the learning rates that follow it.

        In a compiled function it comes last, behind the program, unless an optimizer's step follows
        it, or the function asks for rates, or for where the schedule stands.
        """
        ours = type(self).__module__ == __name__  # else a user's class
        if not (ours and store().defer_step(self)):
            commit(self.step_calls())

    def step_calls(self) -> Plan:
        """Return the calls that a step makes, for one ``commit``."""
        after = copy(self)
        after.steps += 1
        return self._state_calls(vars(after), after._next_rates(self._rates()))

    def _set_state(self, state: dict[str, Any], rates: list[float]) -> None:
        """Set attributes and learning rates, both or neither."""
        commit(self._state_calls(state, rates))

    def _state_calls(self, state: dict[str, Any], rates: list[float]) -> Plan:
        """Return the calls that set attributes and learning rates."""
        groups = self.optimizer.groups
        changes = [
            group.with_settings(learning_rate=rate, **self._other_settings(group, state))
            for group, rate in zip(groups, rates, strict=True)
        ]
        return [*self.optimizer._settings_calls(changes), (vars(self).update, state)]

    def _next_rates(self, rates: list[float]) -> list[float]:
        """Return the rate of each group after ``self.steps`` steps; the previous are ``rates``."""
        return [self._next(*pair) for pair in zip(rates, self.base_rates, strict=True)]

    def _other_settings(self, group: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Return what the schedule sets in a group beside its rate, in a state of its own."""
        return {}

    def _next(self, rate: float, base: float) -> float:
        """Return the rate after ``self.steps`` steps; the previous rate was ``rate``."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return where the schedule stands, its settings, and the present learning rates."""
        saved = [(n, v) for n, v in vars(self).items() if n not in self._unsaved]
        own = {name: deepcopy(value) for name, value in saved}
        return own | {"rates": self._rates()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned, and set the optimizer's learning rates so.

        Raises:
            OdysseyError: for the state of another schedule, or of other groups; nothing changes.
        """
        state, rates = self._read_state(saved)
        self._set_state(state, rates)

    def _read_state(self, saved: Any) -> tuple[dict[str, Any], list[float]]:
        """Return the attributes and rates that ``load_state_dict`` sets; raise if invalid."""
        wanted = self.state_dict()
        if not isinstance(saved, dict) or saved.keys() != wanted.keys():
            raise OdysseyError(
                f"load_state_dict: came {format_value(saved)}; wanted a dictionary of "
                f"{sorted(wanted)}"
            )
        saved = self._check_settings(saved)
        if not len(saved["rates"]) == len(saved["base_rates"]) == len(self.base_rates):
            raise OdysseyError(
                f"load_state_dict: rates of {len(saved['rates'])} groups came for "
                f"{len(self.base_rates)}"
            )
        rates = saved.pop("rates")
        return saved, rates


def _checked_number(who: str, name: str, value: Any, interval: str) -> Any:
    """Return a number in an interval; Python ints stay ints, others become floats."""
    found = check_number(who, name, value, interval)
    return value if type(value) is int else found


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

    step_size: float
    gamma: float
    _ranges = Schedule._ranges | {"step_size": "[1, inf)", "gamma": "[0, inf)"}

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(optimizer, step_size=step_size, gamma=gamma)

    def _next(self, rate: float, base: float) -> float:
        return rate if self.steps % self.step_size else rate * self.gamma


class MultiStepLR(Schedule):
    """Multiply the rate by ``gamma`` at each of the ``milestones``, which are counts of steps."""

    milestones: Counter[int]
    gamma: float
    _ranges = Schedule._ranges | {"gamma": "[0, inf)"}

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        super().__init__(optimizer, milestones=milestones, gamma=gamma)

    def _check_setting(self, name: str, value: Any) -> Any:
        if name != "milestones":
            return super()._check_setting(name, value)
        who = type(self).__name__
        several = hasattr(type(value), "__iter__") and getattr(value, "ndim", 1) == 1
        if isinstance(value, str) or not several:
            raise DTypeError(f"{who}: milestones={format_value(value)}; pass a list of ints")
        counted = isinstance(value, Counter)
        pairs = value.items() if counted else ((one, 1) for one in value)
        found: Counter[int] = Counter()
        for one, times in pairs:
            found[check_int(who, "milestones", one)] += check_int(who, "milestones", times)
        return found

    def _next(self, rate: float, base: float) -> float:
        times = self.milestones[self.steps]
        try:
            return float(rate * self.gamma**times) if times else rate
        except OverflowError:
            return math.inf  # refused by the optimizer


class ExponentialLR(Schedule):
    """Multiply the rate by ``gamma`` after every step."""

    gamma: float
    _ranges = Schedule._ranges | {"gamma": "[0, inf)"}

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, gamma=gamma)

    def _next(self, rate: float, base: float) -> float:
        return rate * self.gamma


class LambdaLR(Schedule):
    """Multiply the rate at the start by a function of the number of steps.

    After ``t`` steps, from the schedule's making on (``t = 0``), the rate is ``base * fn(t)``.

    Args:
        optimizer: Its rates, as they are now, are the ``base``.
        lr_lambda: The function ``fn``; or a list of functions, one for each group. Functions are
            not saved: a loaded schedule keeps those that it was made with.

    >>> from odyssey import Variable
    >>> from odyssey.optim import SGD
    >>> optimizer = SGD(Variable(1.0, requires_grad=True), learning_rate=1.0)
    >>> schedule = LambdaLR(optimizer, lambda t: 1 / (1 + t))
    >>> for _ in range(3):
    ...     print(optimizer.learning_rate)
    ...     schedule.step()
    1.0
    0.5
    0.3333333333333333
    """

    lr_lambda: list[Callable[[int], float]]
    _unsaved = Schedule._unsaved | {"lr_lambda"}

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Iterable[Callable[[int], float]],
    ) -> None:
        several = isinstance(lr_lambda, (list, tuple))
        functions: Any = list(lr_lambda) if several else [lr_lambda]  # type: ignore[arg-type]
        for function in functions:
            check_callable(type(self).__name__, function)
        super().__init__(optimizer, lr_lambda=functions)
        if not several:
            self.lr_lambda = functions * len(self.base_rates)
        if len(self.lr_lambda) != len(self.base_rates):
            raise OdysseyError(
                f"LambdaLR: {len(self.lr_lambda)} functions came for {len(self.base_rates)} groups"
            )
        self._set_state({}, self._next_rates(self.base_rates))

    def _next_rates(self, rates: list[float]) -> list[float]:
        pairs = zip(self.base_rates, self.lr_lambda, strict=True)
        factors = [(base, fn(self.steps)) for base, fn in pairs]
        who = type(self).__name__
        return [base * check_number(who, "lr_lambda", factor) for base, factor in factors]


class OneCycleLR(Schedule):
    """Let the rate climb to ``max_lr``, then fall far below its start (Smith and Topin 2018).

    After ``t`` steps, from the schedule's making on (``t = 0``), with ``start = max_lr /
    div_factor``, ``end = start / final_div_factor`` and ``n = total_steps``, the rate goes from
    ``start`` to ``max_lr`` until ``t = pct_start * n - 1`` and to ``end`` until ``t = n - 1``,
    where it stays. It is annealed by half a cosine or linearly.

    Args:
        optimizer: Its rates are overwritten.
        max_lr: The highest rate, a number or one for each group.
        total_steps: The number of steps of the cycle.
        pct_start: The share of steps in which the rate climbs, between 0 and 1.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum: Also let ``momentum``, or the first of ``betas``, go from ``max_momentum``
            to ``base_momentum`` and back, as PyTorch does by default. A compiled step is compiled
            anew for each momentum.
        base_momentum: The momentum at the highest rate.
        max_momentum: The momentum at the start and at the end.
        div_factor: The highest rate divided by that at the start.
        final_div_factor: The rate at the start divided by that at the end.
        three_phase: Let the rate fall as it climbed, and then to the end, in a third phase.

    >>> from odyssey import Variable
    >>> from odyssey.optim import SGD
    >>> optimizer = SGD(Variable(1.0, requires_grad=True), learning_rate=1.0)
    >>> schedule = OneCycleLR(optimizer, 0.8, 5, pct_start=0.6, div_factor=8.0)
    >>> for _ in range(6):
    ...     print(round(optimizer.learning_rate, 5))
    ...     schedule.step()
    0.1
    0.45
    0.8
    0.40001
    1e-05
    1e-05
    """

    max_lrs: list[float]
    total_steps: int
    pct_start: float
    anneal_strategy: str
    cycle_momentum: bool
    base_momentum: float
    max_momentum: float
    div_factor: float
    final_div_factor: float
    three_phase: bool
    _ranges = Schedule._ranges | {
        "total_steps": "[2, inf)",
        "pct_start": "(0, 1)",
        "base_momentum": "[0, 1)",
        "max_momentum": "[0, 1)",
        "div_factor": "(0, inf)",
        "final_div_factor": "(0, inf)",
    }

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Iterable[float],
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = False,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        several = isinstance(max_lr, (list, tuple))
        super().__init__(
            optimizer,
            max_lrs=list(max_lr) if several else [max_lr],  # type: ignore[arg-type]
            total_steps=total_steps,
            pct_start=pct_start,
            anneal_strategy=anneal_strategy,
            cycle_momentum=cycle_momentum,
            base_momentum=base_momentum,
            max_momentum=max_momentum,
            div_factor=div_factor,
            final_div_factor=final_div_factor,
            three_phase=three_phase,
        )
        if not several:
            self.max_lrs = self.max_lrs * len(self.base_rates)
        if len(self.max_lrs) != len(self.base_rates):
            raise OdysseyError(
                f"OneCycleLR: {len(self.max_lrs)} rates came for {len(self.base_rates)} groups"
            )
        if self.cycle_momentum:
            for group in optimizer.groups:
                if not {"momentum", "betas"} & set(group.settings()):
                    raise OdysseyError(
                        f"OneCycleLR: {type(optimizer).__name__} has neither momentum nor betas; "
                        "pass cycle_momentum=False"
                    )
        self._set_state({}, self._next_rates(self.base_rates))

    def _check_setting(self, name: str, value: Any) -> Any:
        who = type(self).__name__
        if name == "anneal_strategy":
            return check_choice(who, name, value, ("cos", "linear"))
        if name in ("cycle_momentum", "three_phase"):
            return check_flag(who, name, value)
        if name == "total_steps":
            value = check_int(who, name, value)
        return super()._check_setting(name, value)

    def _phase(self, steps: int) -> tuple[int, int, float]:
        """Return the marks between which the cycle stands, and the share that is behind.

        The marks are 0 at the start, 1 at the highest rate and 2 at the end.
        """
        ends = [(self.pct_start * self.total_steps - 1, 0, 1), (self.total_steps - 1, 1, 2)]
        if self.three_phase:
            ends.insert(1, (2 * self.pct_start * self.total_steps - 2, 1, 0))
            ends[2] = (self.total_steps - 1, 0, 2)
        begin, place = 0.0, float(min(steps, self.total_steps - 1))
        for end, first, last in ends[:-1]:
            if place <= end:
                return first, last, (place - begin) / (end - begin) if end > begin else 1.0
            begin = end
        end, first, last = ends[-1]
        return first, last, (place - begin) / (end - begin)

    def _anneal(self, values: tuple[float, float, float], steps: int) -> float:
        """Return a value between those at the start, at the highest rate and at the end."""
        first, last, share = self._phase(steps)
        start, end = values[first], values[last]
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def _next_rates(self, rates: list[float]) -> list[float]:
        starts = [highest / self.div_factor for highest in self.max_lrs]
        marks = zip(starts, self.max_lrs, strict=True)
        return [
            self._anneal((start, highest, start / self.final_div_factor), self.steps)
            for start, highest in marks
        ]

    def _other_settings(self, group: Any, state: dict[str, Any]) -> dict[str, Any]:
        if not self.cycle_momentum:
            return {}
        values = self.max_momentum, self.base_momentum, self.max_momentum
        momentum = self._anneal(values, state.get("steps", self.steps))
        settings = group.settings()
        if "betas" in settings:
            return {"betas": (momentum, *settings["betas"][1:])}
        return {"momentum": momentum}


class CosineAnnealingLR(Schedule):
    """Let the rate fall to ``eta_min`` along half a cosine (Loshchilov and Hutter 2017).

    After ``t`` steps the rate is ``eta_min + (base - eta_min) * (1 + cos(pi t / T_max)) / 2``,
    which rises again after ``T_max`` steps. As in PyTorch, it is reached from the rate before.
    """

    T_max: float
    eta_min: float
    _ranges = Schedule._ranges | {"T_max": "[1, inf)", "eta_min": "[0, inf)"}

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        super().__init__(optimizer, T_max=T_max, eta_min=eta_min)

    def _next(self, rate: float, base: float) -> float:
        before = self.steps - 1
        left = 1 + math.cos(math.pi * before / self.T_max)
        # At the minimum the ratio is 0 / 0.
        if left == 0 or (before - self.T_max) % (2 * self.T_max) == 0:
            return rate + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        ratio = (1 + math.cos(math.pi * self.steps / self.T_max)) / left
        # A rate that was assigned below eta_min moves away from it, but not below 0.
        return max(ratio * (rate - self.eta_min) + self.eta_min, 0.0)


class _Warmup(Schedule):
    """Linear warm-up, the first part of both warm-up schedules."""

    warmup_steps: float
    start_factor: float
    _ranges = Schedule._ranges | {"warmup_steps": "[0, inf)", "start_factor": "[0, 1]"}

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, start_factor: float | None, **settings: Any
    ) -> None:
        if start_factor is None:
            steps = check_number(type(self).__name__, "warmup_steps", warmup_steps, "[0, inf)")
            start_factor = 1 / (steps + 1)
        super().__init__(
            optimizer, warmup_steps=warmup_steps, start_factor=start_factor, **settings
        )
        self._set_state({}, [self._next(base, base) for base in self.base_rates])

    def _warmup_rate(self, base: float) -> float:
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
        super().__init__(optimizer, warmup_steps, start_factor)

    def _next(self, rate: float, base: float) -> float:
        return self._warmup_rate(base) if self.steps < self.warmup_steps else base


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

    total_steps: float
    eta_min: float
    _ranges = _Warmup._ranges | {"total_steps": "[0, inf)", "eta_min": "[0, inf)"}

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        eta_min: float = 0.0,
        start_factor: float | None = None,
    ) -> None:
        super().__init__(
            optimizer, warmup_steps, start_factor, total_steps=total_steps, eta_min=eta_min
        )

    def _check_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        found = super()._check_settings(given)
        total, climb = found["total_steps"], found["warmup_steps"]
        if total <= climb:
            raise SettingError(
                f"WarmupCosineLR: total_steps={total!r} must exceed warmup_steps={climb!r}"
            )
        return found

    def _next(self, rate: float, base: float) -> float:
        if self.steps < self.warmup_steps:
            return self._warmup_rate(base)
        if self.steps >= self.total_steps:
            return self.eta_min
        part = (self.steps - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * part)) / 2


def __dir__() -> list[str]:
    return sorted(__all__)
