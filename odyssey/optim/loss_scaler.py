"""Loss scaling: gradients of half precision are kept in range by a factor that adapts itself."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np

from odyssey import ops
from odyssey.checks import check_flag, check_int, check_number, few_digits, format_value
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import is_half
from odyssey.devices.same_device import on_one_device, place_beside
from odyssey.devices.stateful import Stateful
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, NonFiniteError, OdysseyError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import state_dtype, weak_factor
from odyssey.sparse_rows import SparseRows, assemble_rows
from odyssey.suggestions import MISSING_NAMES, keyword_hint
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, numbers_of, operand_of, store
from odyssey.table.value import assign_plan, is_trainable
from odyssey.variable import Variable

__all__ = ["LossScaler"]

_LIMITS = np.finfo(np.float32)
_SMALLEST, _LARGEST = float(_LIMITS.tiny), float(_LIMITS.max)
_SKIPS_ALLOWED = 50


class _Unscaled(NamedTuple):
    """An optimizer whose gradients were unscaled, and whether all of them were finite."""

    optimizer: Optimizer
    finite: Any


class LossScaler(Stateful):
    """Scales a loss up before the backward sweep, and its gradients down before the step.

    Gradients below 6e-8 are 0 in float16. Those of a loss that was multiplied by ``scale`` are not,
    and ``step`` divides them by it in float32. Where a gradient is infinite or NaN, the step is
    skipped: parameters and state of the optimizer stay as they are, and the scale falls. After
    ``interval`` finite steps in a row it grows again. bfloat16 has the range of float32 and needs
    no scaling.

    All of its state is in Variables, so it works inside ``od.compile`` too. ``od.save`` keeps it.

    Args:
        initial: The first scale.
        growth: Factor of the scale after ``interval`` finite steps, at least 1. A scale that would
            be infinite in float32 does not grow.
        backoff: Factor of the scale after a step that was skipped, above 0 and at most 1.
        interval: The number of finite steps in a row after which the scale grows.

    >>> import numpy as np
    >>> import odyssey as od
    >>> w = od.Variable(np.array([1.0], np.float16), requires_grad=True)
    >>> optimizer = od.optim.SGD([w], learning_rate=1e7)
    >>> scaler = od.optim.LossScaler()
    >>> with od.GradientTape() as tape:
    ...     loss = scaler.scale((w * np.float16(1e-4) * np.float16(2e-4)).sum())  # slope 2e-8
    >>> reached = tape.backward(loss)
    >>> scaler.step(optimizer)
    >>> w.numpy(), scaler.value
    (array([0.8], dtype=float16), 32768.0)
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Refuse keywords of other libraries by our words for them."""
        if hint := keyword_hint(named):
            raise DTypeError(f"LossScaler{hint.replace(';', ':', 1)}")
        return super().__new__(cls)

    def __init__(
        self,
        initial: float = 2.0**15,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ) -> None:
        scale = np.float32(_checked_scale("LossScaler", "initial", initial))
        self.growth, self.backoff, self.interval = _checked_settings(
            "LossScaler", growth, backoff, interval
        )
        self._scale = Variable(np.array(scale), name="scaler.scale")
        # The scale of the present gradients, and the numbers of finite and of skipped steps in a
        # row; ``step`` changes the scale while gradients of other optimizers may have the old one.
        self._applied = Variable(np.array(scale), name="scaler.applied")
        self._finite_steps = Variable(np.zeros((), np.int64), name="scaler.finite_steps")
        self._skips = Variable(np.zeros((), np.int64), name="scaler.skips")
        self._unscaled: tuple[_Unscaled, ...] = ()

    def __getattr__(self, name: str) -> Any:
        hint = MISSING_NAMES["scaler"].get(name)
        words = f"; {hint}" if hint else ""
        raise AttributeError(f"LossScaler has no {name!r}{words}", name=name)

    @property
    def value(self) -> float:
        """The scale that the next loss is multiplied by."""
        return float(numbers_of("LossScaler.value", self._scale))

    # -------------------------------------------------------------- before the sweep

    def scale(self, loss: Any) -> Any:
        """Return a loss times the scale, in float32 if it is of half precision.

        Call it where the tape records. The scale is the cotangent of the loss, so a loss of float16
        lets it grow to 2**15; compute the loss in float32 for more.

        Args:
            loss: A Variable, of any shape.
        """
        if not all(map(_has_gradients, self._unscaled)):  # zero_grad() ended it
            self._unscaled = tuple(filter(_has_gradients, self._unscaled))
        scale = store().copied(self._scale)
        with no_grad():
            self._applied.assign(scale)
        if getattr(loss, "dtype", None) is not None and is_half(loss.dtype):
            loss = ops.astype(loss, np.float32)
        return ops.multiply(loss, place_beside(scale, loss))

    # -------------------------------------------------------------- after the sweep

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, as before clipping them.

        Gradients of half-precision parameters are float32 then, until ``step`` is called. ``step``
        divides the gradients itself where this was not called.

        Args:
            optimizer: Whose gradients.

        Raises:
            OdysseyError: the gradients were unscaled already, and neither ``step`` was called
                since, nor ``optimizer.zero_grad()`` before the next ``scale``.
        """
        who = "LossScaler.unscale"
        _check_optimizer(who, optimizer)
        if self._find_unscaled(optimizer) is not None:
            raise OdysseyError(
                f"{who}: the gradients of {optimizer!r} were unscaled already; call "
                "scaler.step(optimizer) first, or optimizer.zero_grad() and scaler.scale(loss)"
            )
        if store() is not MEMORY:
            found, finite = self._quotients(optimizer)
            _set_gradients(found)
            self._unscaled = (*self._unscaled, _Unscaled(optimizer, finite))
            return
        with write_lock():
            wait_for_programs()
            found, finite = self._quotients(optimizer)
            unscaled = (*self._unscaled, _Unscaled(optimizer, bool(finite)))
            commit([*_gradient_calls(found), (setattr, self, "_unscaled", unscaled)])

    def step(self, *optimizers: Optimizer, allow_missing: bool = False) -> None:
        """Step optimizers if all their gradients are finite, and adapt the scale.

        Gradients that ``unscale`` has not divided by the scale are divided first; ``.grad`` holds
        the quotients afterwards. All optimizers step, or none. In a compiled function the step
        selects between new and old values, without a branch.

        Args:
            optimizers: Those whose parameters a loss depends on, usually one. Where losses have
                optimizers of their own, call this for each loss before the next one is scaled.
            allow_missing: Whether parameters without a gradient stay where they are.

        Raises:
            MissingGradientError: naming a parameter without a gradient; nothing has changed then.
            NonFiniteError: this would be the 50th skipped step in a row; nothing has changed then.
        """
        who = "LossScaler.step"
        allow_missing = check_flag(who, "allow_missing", allow_missing)
        for optimizer in optimizers:
            _check_optimizer(who, optimizer)
        if not optimizers or len(set(map(id, optimizers))) < len(optimizers):
            raise DTypeError(f"{who}: {len(optimizers)} optimizers came; pass each of them once")
        if store() is not MEMORY:
            self._step_in_store(optimizers, allow_missing)
            return
        with write_lock():
            wait_for_programs()
            self._step_guarded(optimizers, allow_missing)

    def _step_guarded(self, optimizers: tuple[Optimizer, ...], allow_missing: bool) -> None:
        plan: Plan = []
        unscaled = list(self._unscaled)
        for optimizer in optimizers:
            optimizer._find_missing(None if allow_missing else optimizer._refuse_missing)
            if self._find_unscaled(optimizer) is None:
                found, finite = self._quotients(optimizer)
                plan += _gradient_calls(found)
                unscaled.append(_Unscaled(optimizer, bool(finite)))
        own = [one for one in unscaled if one.optimizer in optimizers]
        finite = all(one.finite for one in own)
        adapts = self._adapt_calls(finite)
        # An interrupt between the two commits leaves gradients that are noted as unscaled.
        commit([*plan, (setattr, self, "_unscaled", tuple(unscaled))])
        calls: Plan = []
        for optimizer in optimizers if finite else ():
            if type(optimizer).step is Optimizer.step:
                optimizer._step_guarded(None, calls)
            else:  # a step of a user's class, which happens at once
                optimizer.step(**({"allow_missing": True} if allow_missing else {}))
        calls += adapts
        for optimizer in optimizers:
            calls += _gradient_calls(_narrowed(optimizer))
        rest = tuple(one for one in unscaled if one not in own)
        calls.append((setattr, self, "_unscaled", rest))
        optimizers[0]._run(calls)

    def _step_in_store(self, optimizers: tuple[Optimizer, ...], allow_missing: bool) -> None:
        truths = []
        for optimizer in optimizers:
            known = self._find_unscaled(optimizer)
            if known is None:
                found, finite = self._quotients(optimizer)
                _set_gradients(found)
                truths.append(finite)
            else:
                truths.append(known.finite)
        finite = reduce(ops.logical_and, truths)
        for optimizer in optimizers:
            optimizer.step(allow_missing=allow_missing, where=finite)
            _set_gradients(_narrowed(optimizer))
        *new, skips = self._adapted(finite)
        skips = demanded(skips, ops.less(skips, _SKIPS_ALLOWED), _skips_text())
        with no_grad():
            for variable, value in zip(self._numbers(), [*new, skips], strict=True):
                variable.assign(value)
        if self._unscaled:
            self._unscaled = tuple(one for one in self._unscaled if one.optimizer not in optimizers)

    def _find_unscaled(self, optimizer: Optimizer) -> _Unscaled | None:
        return next((one for one in self._unscaled if one.optimizer is optimizer), None)

    def _quotients(self, optimizer: Optimizer) -> tuple[list[tuple[Variable, Any]], Any]:
        """Return the gradients of an optimizer over the scale, and whether all are finite."""
        scale, found = operand_of(self._applied), []
        truths: list[Any] = []
        for p in optimizer.params:
            g = operand_of(p.grad) if is_trainable(p) else None
            if g is None:
                continue
            rows = type(g) is SparseRows
            quotient = _quotient(g.values if rows else g, scale)
            truths.append(ops.all(ops.isfinite(quotient)))
            found.append((p, assemble_rows(g.indices, quotient, g.shape) if rows else quotient))
        return found, reduce(ops.logical_and, on_one_device(truths), True)

    def _numbers(self) -> tuple[Variable, ...]:
        return self._scale, self._finite_steps, self._skips

    @ignore_fp_errors("over")
    def _adapted(self, finite: Any) -> list[Any]:
        """Return the numbers after a step whose gradients are all finite, or not."""
        scale, finite_steps, skips = map(operand_of, self._numbers())
        finite_steps = ops.where(finite, ops.add(finite_steps, 1), 0)
        grows = ops.greater_equal(finite_steps, self.interval)
        larger = ops.multiply(scale, self.growth)
        larger = ops.where(ops.logical_and(grows, ops.isfinite(larger)), larger, scale)
        smaller = ops.maximum(ops.multiply(scale, self.backoff), _SMALLEST)
        return [
            ops.where(finite, larger, smaller),
            ops.where(grows, 0, finite_steps),
            ops.where(finite, 0, ops.add(skips, 1)),
        ]

    def _adapt_calls(self, finite: bool) -> Plan:
        """Return the calls that set the numbers after a step; raise if too many were skipped."""
        new = self._adapted(finite)
        if new[-1] >= _SKIPS_ALLOWED:
            raise NonFiniteError(_skips_text())
        pairs = zip(self._numbers(), new, strict=True)
        return [call for v, value in pairs for call in assign_plan(v, np.asarray(value))]

    # -------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, the counts of steps, and the settings."""
        who = "a scaler's state_dict"
        return {
            "scale": float(numbers_of(who, self._scale)),
            "applied": float(numbers_of(who, self._applied)),
            "finite_steps": int(numbers_of(who, self._finite_steps)),
            "skips": int(numbers_of(who, self._skips)),
            "growth": self.growth,
            "backoff": self.backoff,
            "interval": self.interval,
        }

    def _state_plan(self, saved: Any) -> Plan:
        who = "load_state_dict"
        if not isinstance(saved, dict) or saved.keys() != self.state_dict().keys():
            raise OdysseyError(
                f"{who}: {format_value(saved)} came; pass what state_dict() returned"
            )
        settings = _checked_settings(who, saved["growth"], saved["backoff"], saved["interval"])
        plan: Plan = [(setattr, self, "_unscaled", ())]
        for name, value in zip(("growth", "backoff", "interval"), settings, strict=True):
            plan.append((setattr, self, name, value))
        for name, variable in (("scale", self._scale), ("applied", self._applied)):
            number = _checked_scale(who, name, saved[name])
            plan += assign_plan(variable, np.array(number, np.float32))
        for name, variable in (("finite_steps", self._finite_steps), ("skips", self._skips)):
            count = check_int(who, name, saved[name], 0)
            plan += assign_plan(variable, np.array(count, np.int64))
        return plan

    def __repr__(self) -> str:
        store().only_eagerly("it formats a loss scaler as text")
        if "_unscaled" not in vars(self):  # under construction, or construction failed
            return "<LossScaler, unfinished>"
        settings = (f"{n}={few_digits(vars(self)[n])}" for n in ("growth", "backoff", "interval"))
        return f"LossScaler(scale={few_digits(self.value)}, {', '.join(settings)})"


def _checked_scale(who: str, name: str, value: Any) -> float:
    return check_number(who, name, value, f"[{_SMALLEST}, {_LARGEST}]")


def _checked_settings(
    who: str, growth: Any, backoff: Any, interval: Any
) -> tuple[float, float, int]:
    return (
        check_number(who, "growth", growth, f"[1, {_LARGEST}]"),
        check_number(who, "backoff", backoff, "(0, 1]"),
        check_int(who, "interval", interval, 1),
    )


def _check_optimizer(who: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"{who}: {format_value(optimizer)} came; pass an optimizer of odyssey.optim, but for "
            "LBFGS, whose closure computes losses that must not be scaled"
        )


def _skips_text() -> str:
    return (
        f"LossScaler.step: the gradients of {_SKIPS_ALLOWED} steps in a row were not finite, at "
        "ever smaller scales; the loss is infinite or NaN itself, or its gradients are: find where "
        "it comes from with GradientTape(check=True)"
    )


def _has_gradients(one: _Unscaled) -> bool:
    return any(p.grad is not None for p in one.optimizer.params)


@ignore_fp_errors()
def _quotient(g: Any, scale: Any) -> Any:
    wide = ops.astype(g, state_dtype(g.dtype)) if is_half(g.dtype) else g
    return ops.divide(wide, weak_factor(place_beside(scale, wide), wide))


@ignore_fp_errors()
def _narrowed(optimizer: Optimizer) -> list[tuple[Variable, Any]]:
    """Return the gradients that are float32 in the dtype of their half-precision parameters."""
    found = []
    for p in optimizer.params:
        g = p.grad if is_half(p.dtype) else None
        if g is not None and g.dtype != p.dtype:
            rows = type(g) is SparseRows
            found.append((p, g.astype(p.dtype) if rows else ops.astype(operand_of(g), p.dtype)))
    return found


def _gradient_calls(found: list[tuple[Variable, Any]]) -> Plan:
    """Return the calls that give Variables in memory new gradients."""
    plan: Plan = []
    for p, g in found:
        own = g if type(g) in (SparseRows, *ARRAYS) else np.asarray(g)
        plan += [(setattr, p._info, "grad", own), (setattr, p._info, "loan", None)]
    return plan


def _set_gradients(found: list[tuple[Variable, Any]]) -> None:
    """Give Variables new gradients while a graph is traced, float32 also for half precision."""
    for p, g in found:
        store().set_gradient(p, g)
