"""Parameters on a device: the update rule runs on the device's arrays, and makes new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import setitem
from typing import Any

import numpy as np

from odyssey.devices.commit import Plan
from odyssey.devices.ownership import copy_if_shared
from odyssey.devices.same_device import cast_beside, own_copy, place_beside
from odyssey.optim.device_step import step_in_one_launch
from odyssey.optim.groups import Group
from odyssey.optim.rule import Rule, State
from odyssey.sparse_rows import SparseRows
from odyssey.table.value import Value, is_trainable, write_plan
from odyssey.variable import Variable

__all__ = ["DeviceParameters"]


class DeviceParameters:
    """Parameters of a group that lie on a device, with the interface of ``FlatParameters``.

    The pure rule, or one kernel for all parameters in a block of ``use_kernels("cuda")``, computes
    the new parameters and the new state from arrays of the device: a step copies nothing to the
    host, and waits for nothing. All results are there before the first parameter changes, so a step
    needs memory for one more copy of parameters and state. The count of steps lies on the host.
    """

    def __init__(self, group: Group, indices: list[int], params: list[Variable]) -> None:
        self.group = group
        self.indices = indices
        self.params = params
        self.names = group.rule().slots
        # Numbers of the parameters that had no gradient in the last step.
        self.missing: list[int] = []
        self._states: list[dict[str, Variable]] = []

    def adopt_state(self, states: list[dict[str, Variable]]) -> None:
        """Take over the state of each parameter; arrays of the host move to the device."""
        for p, state in zip(self.params, states, strict=True):
            for name, variable in state.items():
                if name != "steps":
                    variable._array = place_beside(variable._array, p)
        self._states = states

    def gather_gradients(
        self, refuse: Callable[[int], None] | None, given: Sequence[Any] | None = None
    ) -> list[Any] | None:
        """Return the gradients; None if this object no longer fits its group.

        The arguments are those of ``FlatParameters.gather_gradients``.
        """
        if self.names != self.group._rule.slots or not all(map(is_trainable, self.params)):
            return None
        self.missing = []
        gradients: list[Any] = []
        for j, (p, k) in enumerate(zip(self.params, self.indices, strict=True)):
            g = p._info.grad if given is None else given[k]
            if g is None:
                self.missing.append(j)
                if refuse is not None:
                    refuse(k)
            gradients.append(g._array if isinstance(g, Value) else g)
        return gradients

    def update_calls(self, gradients: list[Any], quiet: bool) -> Plan:
        """Return the calls that set the parameters that have a gradient, for one ``commit``.

        Args:
            gradients: The result of ``gather_gradients``.
            quiet: Without effect: all results are computed here.
        """
        plan: Plan = []
        rule = self.group._rule
        made = step_in_one_launch(self.group, self.params, gradients, self._states)
        for j, (p, g, state) in enumerate(zip(self.params, gradients, self._states, strict=True)):
            if g is not None:
                result = made[j] if j in made else _apply_rule(rule, g, state, p)
                plan += _update_plan(result, state, p)
        return plan


def _apply_rule(
    rule: Rule, g: Any, variables: dict[str, Variable], p: Variable
) -> tuple[Any, State]:
    state: State = {name: variable._array for name, variable in variables.items()}
    state["steps"] = int(variables["steps"]._array)
    if type(g) is SparseRows and rule.by_rows:
        return rule.update_rows(g, state, p._array)
    return rule.new_leaf(g.to_dense() if type(g) is SparseRows else g, state, p._array)


def _update_plan(result: tuple[Any, State], variables: dict[str, Variable], p: Variable) -> Plan:
    """Return the calls that set a parameter and its state to the results of a rule."""
    value, new = result
    count = variables["steps"]._array
    plan = write_plan(p, [(setattr, p, "_array", _own_result(value, p._array))])
    for name, variable in variables.items():
        if name != "steps":
            made = _own_result(new[name], variable._array)
            plan += write_plan(variable, [(setattr, variable, "_array", made)])
    return [*plan, *write_plan(variables["steps"], [(setitem, count, ..., int(count) + 1)])]


def _own_result(made: Any, old: Any) -> Any:
    """Return a result of a rule in dtype and shape of what it replaces, in memory of its own."""
    if made is old:
        return old
    if made.shape != old.shape:
        made = own_copy(np.broadcast_to(made, old.shape))
    return copy_if_shared(cast_beside(made, old.dtype))
