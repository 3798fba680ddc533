"""The holder that applies an update rule to Variables, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, MissingGradientError, OdysseyError, ShapeError
from odyssey.ops.scope import TRACE, no_grad
from odyssey.ops.values import LEAF, Value
from odyssey.optim.rule import Rule, State
from odyssey.spec import Array
from odyssey.tree import paths
from odyssey.variable import Variable

__all__ = ["Optimizer"]

# Arrays below this many elements are packed together; larger ones are updated block by block,
# so that temporaries stay small and in the cache.
SMALL = 16384
BLOCK = 65536


class _Pack:
    """Parameters whose data, gradients and state lie side by side, so that one update serves all.

    The update of many small arrays costs a fixed time each; a large array is a pack of its own,
    and its gradient is read where it lies.
    """

    def __init__(self, indices: list[int], params: list[Variable], rule: Rule) -> None:
        self.indices = indices
        self.params = [params[k] for k in indices]
        self.slices: list[slice] = []
        for p in self.params:
            start = self.slices[-1].stop if self.slices else 0
            self.slices.append(slice(start, start + p.size))
        size = self.slices[-1].stop
        dtype = self.params[0].dtype
        self.data = np.empty(size, dtype)
        self.grads = np.empty(size if len(indices) > 1 else 0, dtype)
        self.slots = {slot: np.zeros(size, dtype) for slot in rule.slots}
        self.steps = np.zeros(len(indices), np.int64)
        room = min(size, BLOCK)
        self.scratch = (np.empty(room, dtype), np.empty(room, dtype))
        self.views = [self.cut(self.data, j) for j in range(len(indices))]
        self.grad_views = [self.cut(self.grads, j) for j in range(len(indices)) if len(indices) > 1]
        for p, view in zip(self.params, self.views, strict=True):
            view[...] = p._data
            p._data = view

    def cut(self, flat: Array, j: int) -> Array:
        """The part of parameter number ``j``, in its shape."""
        return flat[self.slices[j]].reshape(self.params[j].shape)

    def fits(self, rule: Rule) -> bool:
        """Whether the slots are the rule's, and the parameters still have their data here.

        Another optimizer may have packed them since.
        """
        if len(self.slots) != len(rule.slots):
            return False
        for p, view in zip(self.params, self.views, strict=True):
            if p._data is not view:
                return False
        return True


class Optimizer:
    """Applies a rule to Variables: ``step``, ``zero_grad``, ``state_dict``, ``load_state_dict``.

    Args:
        params: Trainable Variables, in any tree.
        rule: Makes the rule from the settings.
        settings: Numbers and flags; each becomes an attribute, which may be assigned later.
    """

    learning_rate: float

    def __init__(self, params: Any, rule: Callable[..., Rule], **settings: Any) -> None:
        self.params, self._paths = _parameters(type(self).__name__, params)
        self._make_rule = rule
        self._names = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)
        self._packs: list[_Pack] = []
        # For each parameter its state as constant Variables, which a trace can take up.
        self._state: list[dict[str, Variable]] = [{} for _ in self.params]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "learning_rate" and not float(value) >= 0:
            raise OdysseyError(f"learning_rate: {value!r} is negative or NaN")
        super().__setattr__(name, value)

    def settings(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {name: getattr(self, name) for name in self._names}

    def rule(self) -> Rule:
        """Return the pure rule with the present settings."""
        return self._make_rule(**self.settings())

    # -------------------------------------------------------------- stepping

    def step(self, *, allow_missing: bool = False) -> None:
        """Move every parameter once along its gradient.

        Raises:
            MissingGradientError: naming a parameter without a gradient; nothing has moved then.
                With ``allow_missing`` such parameters stay where they are.
        """
        grads = [p._info.grad for p in self.params]
        if not allow_missing:
            self._refuse_missing(grads)
        rule = self.rule()
        if TRACE.get() is not None:
            self._step_traced(rule, grads)
            return
        if not self._packs or not all(pack.fits(rule) for pack in self._packs):
            self._pack(rule)
        for pack in self._packs:
            self._step_pack(pack, rule, [grads[k] for k in pack.indices])

    def _refuse_missing(self, grads: list[Any]) -> None:
        for p, path, g in zip(self.params, self._paths, grads, strict=True):
            if g is None:
                raise MissingGradientError(
                    f"{type(self).__name__}.step: parameter {p.name or path} has no gradient; "
                    "call tape.backward(loss) first, check that the loss depends on it, or pass "
                    "allow_missing=True"
                )

    def _start(self, rule: Rule) -> None:
        """Give every parameter the state that the rule begins with, where it has none."""
        for p, state in zip(self.params, self._state, strict=True):
            for name, value in rule.init([p])[0].items():
                state.setdefault(name, Variable(value, name=f"{p.name or p.id}.{name}"))

    def _pack(self, rule: Rule) -> None:
        """Move the parameters' data and state into packs."""
        self._start(rule)
        groups: dict[Any, list[int]] = {}
        for k, p in enumerate(self.params):
            alone = p.size >= SMALL or not rule.elementwise
            groups.setdefault((p.dtype, k if alone else None), []).append(k)
        self._packs = [_Pack(indices, self.params, rule) for indices in groups.values()]
        for pack in self._packs:
            for j, k in enumerate(pack.indices):
                places = {slot: pack.cut(flat, j) for slot, flat in pack.slots.items()}
                for name, view in (places | {"steps": pack.steps[j : j + 1].reshape(())}).items():
                    view[...] = self._state[k][name]._data
                    self._state[k][name]._data = view

    def _step_pack(self, pack: _Pack, rule: Rule, grads: list[Any]) -> None:
        plain = [g._data if isinstance(g, Value) else g for g in grads]
        steps = pack.steps.tolist()
        if len(plain) == 1:
            if plain[0] is not None:
                self._run(pack, rule, plain[0].reshape(-1), 0, steps[0])
        else:
            for view, g in zip(pack.grad_views, plain, strict=True):
                if g is not None:
                    view[...] = g
            everyone = all(g is not None for g in plain)
            if everyone and steps.count(steps[0]) == len(steps):
                self._run(pack, rule, pack.grads, 0, steps[0])
            else:
                for part, g, done in zip(pack.slices, plain, steps, strict=True):
                    if g is not None:
                        self._run(pack, rule, pack.grads[part], part.start, done)
        for j, g in enumerate(plain):
            if g is not None:
                pack.steps[j] += 1
                pack.params[j]._info.version += 1

    def _run(self, pack: _Pack, rule: Rule, grads: Array, start: int, steps: int) -> None:
        """Update the stretch of a pack that begins at ``start`` and is as long as ``grads``."""
        length = len(grads)
        size = BLOCK if rule.elementwise else max(length, 1)
        for first in range(0, length, size):
            here = slice(start + first, start + min(first + size, length))
            g = grads[first : first + size]
            p = pack.data[here]
            state: State = {"steps": steps}
            for slot, flat in pack.slots.items():
                state[slot] = flat[here]
            if rule.in_place is not None:
                one, two = pack.scratch
                rule.in_place(g, state, p, (one[: len(g)], two[: len(g)]))
                continue
            p[...], new = rule.step(g, state, p)
            for slot, flat in pack.slots.items():
                flat[here] = new[slot]

    def _step_traced(self, rule: Rule, grads: list[Any]) -> None:
        """The same update on Symbols: parameters and state are assigned as Variables."""
        self._start(rule)
        trace = TRACE.get()
        with no_grad():
            for p, g, state in zip(self.params, grads, self._state, strict=True):
                if g is None:
                    continue
                for variable in state.values():
                    trace.lift(variable, own=True)
                new_params, (new,) = rule.update([g], [dict(state)], [p])
                p.assign(new_params[0])
                for name, variable in state.items():
                    variable.assign(new[name])

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to None."""
        for p in self.params:
            p.zero_grad()

    # -------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the settings, and the state of each parameter in order, as copies."""
        state = [{name: np.array(v._data) for name, v in s.items()} for s in self._state]
        return {"settings": self.settings(), "state": state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; the parameters must be as many and as large.

        Raises:
            ShapeError, OdysseyError: for another number, shape or setting; nothing has changed.
        """
        state, settings = saved["state"], saved["settings"]
        if len(state) != len(self.params):
            raise ShapeError(
                f"load_state_dict: state of {len(state)} parameters came for {len(self.params)}"
            )
        for p, path, s in zip(self.params, self._paths, state, strict=True):
            for name, value in s.items():
                if name != "steps" and np.shape(value) != p.shape:
                    raise ShapeError(
                        f"load_state_dict: {name} of parameter {p.name or path} has shape "
                        f"{np.shape(value)}, the parameter {p.shape}"
                    )
        if set(settings) != set(self._names):
            raise OdysseyError(
                f"load_state_dict: the settings are {sorted(settings)}, not {sorted(self._names)}"
            )
        for name, value in settings.items():
            setattr(self, name, value)
        self._state = [
            {name: Variable(np.array(value)) for name, value in s.items()} for s in state
        ]
        self._packs = []


def _parameters(who: str, params: Any) -> tuple[list[Variable], list[str]]:
    """The Variables of a tree or an iterable, and how to call them in messages."""
    if not isinstance(params, (dict, list, tuple, Variable)) and not hasattr(params, "__dataclass_fields__"):
        params = list(params)
    named = list(paths(params))
    if not named:
        raise OdysseyError(f"{who}: there are no parameters")
    found: list[Variable] = []
    for path, p in named:
        if not isinstance(p, Variable) or p._recording is not LEAF:
            raise DTypeError(
                f"{who}: parameter {path} is {p!r}; pass Variables with requires_grad=True"
            )
        if any(p is q for q in found):
            raise OdysseyError(f"{who}: parameter {p.name or path} came twice")
        found.append(p)
    return found, [path for path, _ in named]
