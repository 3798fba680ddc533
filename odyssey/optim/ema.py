"""Exponential moving average of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_number, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import array_copy, cast_beside, host_copy
from odyssey.devices.stateful import Stateful
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.optim.groups import parameter_paths
from odyssey.optim.rule import state_dtype, weak_factor
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, numbers_of, refuse_in_vmap, store
from odyssey.table.value import assign_plan
from odyssey.tree import map_tree
from odyssey.variable import Variable

__all__ = ["EMA"]


class EMA(Stateful):
    """Exponential moving average of parameters (Polyak and Juditsky 1992), kept beside them.

    ``update`` is called after each step of an optimizer, and works inside ``od.compile``. Averages
    of half-precision parameters are float32.

    Args:
        params: Floating Variables, in any tree.
        decay: How much of the average stays at an update, in [0, 1].

    Attributes:
        averages: A tree like ``params``, of constant Variables: at first the values of ``params``.
            A model that is called with it computes with the averages.

    >>> from odyssey import Variable
    >>> w = Variable([4.0], requires_grad=True)
    >>> ema = EMA({"w": w}, decay=0.75)
    >>> w.data = [0.0]
    >>> ema.update()
    >>> ema.averages["w"].numpy()
    array([3.])
    >>> ema.swap()  # compute with the averages; another swap goes back
    >>> w.numpy()
    array([3.])
    """

    averages: Any

    def __init__(self, params: Any, decay: float = 0.999) -> None:
        self.decay = check_number("EMA", "decay", decay, "[0, 1]")
        found = parameter_paths(params)
        for path, leaf in found:
            if not isinstance(leaf, Variable) or not is_inexact(leaf.dtype) or not leaf.is_leaf:
                raise DTypeError(
                    f"EMA: {path or 'params'} is {format_value(leaf)}; pass floating leaf Variables"
                )
        self._params = [leaf for _, leaf in found]
        self._paths = [path for path, _ in found]
        self._averages = [
            Variable(_wide(numbers_of("EMA", p)), name=f"{p.name or path or 'params'}.average")
            for path, p in found
        ]
        averages = {id(p): average for p, average in zip(self._params, self._averages, strict=True)}
        self.averages = map_tree(lambda leaf: averages.get(id(leaf), leaf), params)

    def update(self) -> None:
        """Move each average to ``decay * average + (1 - decay) * parameter``."""
        with no_grad():
            pairs = [(a, self._moved(a, p)) for a, p in self._pairs()]
        if store() is not MEMORY:
            for average, new in pairs:
                average.assign(new)
            return
        _assign_all([(average, numbers_of("EMA.update", new)) for average, new in pairs])

    def _pairs(self) -> list[tuple[Variable, Variable]]:
        return list(zip(self._averages, self._params, strict=True))

    def _moved(self, average: Variable, p: Variable) -> Any:
        wide = p if p.dtype == average.dtype else ops.astype(p, average.dtype)
        share = weak_factor(1 - self.decay, average)
        return ops.add(average, ops.multiply(share, ops.subtract(wide, average)))

    def swap(self) -> None:
        """Exchange the parameters and their averages; a second call goes back, but for rounding.

        The rounding is that of averages to the dtype of half-precision parameters.
        """
        store().refuse_effect("EMA.swap: called", "call it outside of the compiled function")
        refuse_in_vmap("EMA.swap")
        plan = []
        for average, p in self._pairs():
            new = array_copy(numbers_of("EMA.swap", average), p.dtype)
            plan += [(p, new), (average, _wide(numbers_of("EMA.swap", p)))]
        _assign_all(plan)

    def state_dict(self) -> dict[str, Any]:
        """Return the decay and the averages, in the order of the parameters, as copies."""
        averages = [host_copy(numbers_of("an average's state_dict", a)) for a in self._averages]
        return {"decay": self.decay, "averages": averages}

    def _state_plan(self, saved: Any) -> Plan:
        if not isinstance(saved, dict) or saved.keys() != {"decay", "averages"}:
            raise OdysseyError(
                f"load_state_dict: {format_value(saved)} came; pass what state_dict() returned"
            )
        decay = check_number("load_state_dict", "decay", saved["decay"], "[0, 1]")
        arrays = list(saved["averages"])
        if len(arrays) != len(self._averages):
            raise ShapeError(
                f"load_state_dict: {len(arrays)} averages came for {len(self._averages)} parameters"
            )
        plan: Plan = [(setattr, self, "decay", decay)]
        for average, path, value in zip(self._averages, self._paths, arrays, strict=True):
            array = as_array("load_state_dict", f"the average of {path or 'params'}", value)
            if array.shape != average.shape:
                raise ShapeError(
                    f"load_state_dict: the average of {path or 'params'} has shape {array.shape}, "
                    f"not {average.shape}"
                )
            if not np.can_cast(array.dtype, average.dtype, "same_kind"):
                raise DTypeError(
                    f"load_state_dict: the average of {path or 'params'} is of {array.dtype}, not "
                    f"of {average.dtype}"
                )
            plan += assign_plan(average, array_copy(array, average.dtype))
        return plan

    def __repr__(self) -> str:
        store().only_eagerly("it formats an average as text")
        return f"EMA({len(self._params)} parameters, decay={self.decay!r})"


def _wide(array: Any) -> Any:
    """Return a copy of an array, of float32 instead of half precision."""
    return array_copy(array, state_dtype(array.dtype))


def _assign_all(pairs: list[tuple[Variable, Any]]) -> None:
    """Write arrays to Variables, all or none."""
    with write_lock():
        wait_for_programs()
        commit([call for v, array in pairs for call in assign_plan(v, cast_beside(array, v.dtype))])
