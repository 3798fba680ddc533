"""The holder that applies a pure update rule to Variables, in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import DTypeError, MissingGradientError, OdysseyError, ShapeError
from odyssey.ops.scope import TRACE, no_grad
from odyssey.ops.values import LEAF, Symbol, Value
from odyssey.tree import paths
from odyssey.variable import Variable

__all__ = ["Optimizer", "Rule"]

# Elements of a block: what an update reads and writes of it stays in a core's cache.
BLOCK = 16384


class Rule(NamedTuple):
    """A pure pair over trees: ``init(params) -> state``, ``update(grads, state, params)``."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


class _Pack:
    """Some parameters of one dtype whose data, gradients and state lie side by side in memory.

    The update of many small arrays costs a fixed time each, so they share one; a large array
    is a pack of its own, and its gradient is read where it lies.
    """

    def __init__(self, indices: list[int], params: list[Variable]) -> None:
        self.indices = indices
        sizes = [params[k].size for k in indices]
        ends = np.cumsum(sizes).tolist()
        self.slices = [slice(e - n, e) for e, n in zip(ends, sizes, strict=True)]
        dtype = params[indices[0]].dtype
        self.data = np.empty(ends[-1], dtype)
        self.grads = np.empty(ends[-1] if len(indices) > 1 else 0, dtype)
        self.state: Any = None
        self.views = []
        for k, part in zip(indices, self.slices, strict=True):
            view = self.data[part].reshape(params[k].shape)
            view[...] = params[k]._data
            params[k]._data = view
            self.views.append(view)

    def owns(self, params: list[Variable]) -> bool:
        """Whether the parameters still have their data here."""
        return all(params[k]._data is v for k, v in zip(self.indices, self.views, strict=True))


class Optimizer(ABC):
    """Applies a rule to Variables: ``step``, ``zero_grad``, ``state_dict``, ``load_state_dict``."""

    def __init__(self, params: Any, learning_rate: float) -> None:
        named = list(paths(params)) if not isinstance(params, Variable) else [("", params)]
        if not isinstance(params, (dict, list, tuple, Variable)):
            named = list(paths(list(params)))
        self.params: list[Variable] = []
        who = type(self).__name__
        for path, p in named:
            if not isinstance(p, Variable) or p._recording is not LEAF:
                raise DTypeError(
                    f"{who}: parameter {path} is {p!r}; pass Variables with requires_grad=True"
                )
            if any(p is q for q in self.params):
                raise OdysseyError(f"{who}: parameter {path} came twice")
            self.params.append(p)
        if not self.params:
            raise OdysseyError(f"{who}: there are no parameters")
        self._paths = [path for path, _ in named]
        # Constant Variables, so that a trace can take them up; None before the first step.
        self._state: list[Any] = [None] * len(self.params)
        self._packs: list[_Pack] = []
        self.learning_rate = learning_rate

    @property
    def learning_rate(self) -> float:
        """Step length; assign to change it."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if not float(value) >= 0:
            raise OdysseyError(f"learning_rate: {value!r} is negative or NaN")
        self._learning_rate = float(value)

    @abstractmethod
    def rule(self) -> Rule:
        """The pure pair with the present settings."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings by name."""

    @property
    @abstractmethod
    def starts_from_zeros(self) -> bool:
        """Whether zeros stand for a state that no step has touched."""

    # -------------------------------------------------------------- stepping

    def step(self, *, allow_missing: bool = False) -> None:
        """Move every parameter once along its gradient.

        Raises:
            MissingGradientError: naming a parameter without a gradient; nothing has moved then.
                With ``allow_missing`` such parameters stay where they are.
        """
        grads = [self._grad(k, p, allow_missing) for k, p in enumerate(self.params)]
        if any(isinstance(g, Symbol) for g in grads):
            self._step_traced(grads)
            return
        update = self.rule().update
        if not all(pack.owns(self.params) for pack in self._packs) or not self._packs:
            self._pack()
        for pack in self._packs:
            self._step_pack(pack, grads, update)

    def _grad(self, k: int, p: Variable, allow_missing: bool) -> Any:
        g = p._info.grad
        if g is None and not allow_missing:
            raise MissingGradientError(
                f"{type(self).__name__}.step: parameter {p.name or self._paths[k] or k} has no "
                "gradient; call tape.backward(loss) first, check that the loss depends on it, or "
                "pass allow_missing=True"
            )
        return g._data if isinstance(g, Value) else g

    def _pack(self) -> None:
        """Move the parameters' data, and what state there is, into packs."""
        groups: dict[Any, list[int]] = {}
        for k, p in enumerate(self.params):
            groups.setdefault((p.dtype, k if p.size >= BLOCK else None), []).append(k)
        self._packs = [_Pack(indices, self.params) for indices in groups.values()]
        for pack in self._packs:
            if any(self._state[k] is not None for k in pack.indices):
                pack.state = np.zeros_like(pack.data)
            for k, part in zip(pack.indices, pack.slices, strict=True):
                if self._state[k] is not None:
                    pack.state[part] = self._state[k]._data.reshape(-1)
                    self._show_state(pack, k, part)

    def _show_state(self, pack: _Pack, k: int, part: slice) -> None:
        """Let the Variable that holds a parameter's state show its stretch of the pack."""
        view = pack.state[part].reshape(self.params[k].shape)
        if self._state[k] is None:
            self._state[k] = Variable(view, name=f"{self.params[k].name or k}.state")
        self._state[k]._data = view

    def _step_pack(self, pack: _Pack, grads: list[Any], update: Any) -> None:
        present = [grads[k] is not None for k in pack.indices]
        started = [self._state[k] is not None for k in pack.indices]
        if len(pack.indices) == 1:
            if present[0]:
                source = np.ascontiguousarray(grads[pack.indices[0]]).reshape(-1)
                self._update(pack, source, slice(0, len(pack.data)), started[0], update)
        else:
            for k, part, here in zip(pack.indices, pack.slices, present, strict=True):
                if here:
                    pack.grads[part] = grads[k].reshape(-1)
            if all(present) and len(set(started)) == 1:
                self._update(pack, pack.grads, slice(0, len(pack.data)), started[0], update)
            else:
                for part, here, on in zip(pack.slices, present, started, strict=True):
                    if here:
                        self._update(pack, pack.grads, part, on, update)
        for k, part, here, on in zip(pack.indices, pack.slices, present, started, strict=True):
            if here:
                self.params[k]._info.version += 1
                if not on and pack.state is not None:
                    self._show_state(pack, k, part)

    def _update(self, pack: _Pack, grads: Any, part: slice, started: bool, update: Any) -> None:
        """Update a stretch of a pack, block by block, so that temporaries stay in the cache."""
        for start in range(part.start, part.stop, BLOCK):
            block = slice(start, min(start + BLOCK, part.stop))
            state = pack.state[block] if started else None
            pack.data[block], new = update(grads[block], state, pack.data[block])
            if new is not None:
                if pack.state is None:
                    pack.state = np.zeros_like(pack.data)
                pack.state[block] = new

    def _step_traced(self, grads: list[Any]) -> None:
        """The same update on Symbols: parameters and state are assigned as Variables."""
        update = self.rule().update
        with no_grad():
            for k, (p, g) in enumerate(zip(self.params, grads, strict=True)):
                if g is None:
                    continue
                state = self._state_variable(k)
                new, new_state = update(g, state, p)
                p.assign(new)
                if new_state is not None and state is not None:
                    state.assign(new_state)

    def _state_variable(self, k: int) -> Variable | None:
        """The state of a parameter, made of zeros if no step made it, as state of the trace."""
        if self.rule().update(np.zeros(1), None, np.zeros(1))[1] is None:
            return None
        if self._state[k] is None:
            if not self.starts_from_zeros:
                raise OdysseyError(
                    f"{type(self).__name__}: run one step uncompiled first, which starts the state"
                )
            p = self.params[k]
            self._state[k] = Variable(np.zeros(p.shape, p.dtype), name=f"{p.name or k}.state")
        TRACE.get().lift(self._state[k], own=True)
        return self._state[k]

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to None."""
        for p in self.params:
            p.zero_grad()

    # -------------------------------------------------------------- saving

    def _state_of(self, k: int) -> Any:
        return None if self._state[k] is None else np.array(self._state[k]._data)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings, and the state of each parameter in order, as copies."""
        return {
            "settings": self.settings(),
            "state": [self._state_of(k) for k in range(len(self.params))],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; the parameters must be as many and as large."""
        state = saved["state"]
        shapes = [None if s is None else np.shape(s) for s in state]
        if len(state) != len(self.params) or any(
            s is not None and s != p.shape for s, p in zip(shapes, self.params, strict=False)
        ):
            raise ShapeError(
                f"load_state_dict: the state has shapes {shapes}, "
                f"the parameters {[p.shape for p in self.params]}"
            )
        unknown = set(saved["settings"]) - set(self.settings())
        if unknown:
            raise OdysseyError(f"load_state_dict: unknown settings {sorted(unknown)}")
        for name, value in saved["settings"].items():
            setattr(self, name, value)
        self._state = [
            None if s is None else Variable(np.array(s, p.dtype))
            for s, p in zip(state, self.params, strict=True)
        ]
        self._packs = []
