"""Flat parameters: several parameters of a group in one array, so that one update serves all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import setitem
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.devices.arrays import aligned_zeros
from odyssey.devices.commit import Plan, commit
from odyssey.devices.copy_on_write import (
    SLOT_COUNT,
    SNAPSHOT_SIZE,
    ParameterMemory,
    StateMemory,
    has_exclusive_array,
    is_held_by_recordings_only,
    packed_view,
    references,
)
from odyssey.devices.half_dtypes import is_half
from odyssey.devices.ownership import copy_if_shared
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.half_casts import cast_call, take_assigned_call, widen
from odyssey.optim.fused_step import FusedUpdate, fused_update
from odyssey.optim.groups import Group
from odyssey.optim.inplace_program import InPlaceProgram, InPlaceUpdate
from odyssey.optim.rule import MASTER, Rule, State, state_dtype, synced_master
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Array
from odyssey.table.kernel_selection import is_numba_avoided
from odyssey.table.real_operands import real_dtype
from odyssey.table.value import SharedVersion, Value, write_plan
from odyssey.variable import Variable

__all__ = ["SMALL_SIZE", "FlatParameters"]

# Arrays below SMALL_SIZE elements share one flat array. Those of more than two blocks are updated
# block by block, so that temporaries stay small and in the cache.
SMALL_SIZE = SNAPSHOT_SIZE
BLOCK_SIZE = 65536


class FlatParameters:
    """Parameters whose data, gradients and state lie in flat arrays, so that one update serves all.

    The update of many small arrays costs a fixed time each. A large array is stored alone, and its
    gradient is read in place. Complex numbers are stored as pairs of real ones. Half-precision
    parameters have master weights of float32, which are updated, and rounded once afterwards.
    """

    def __init__(self, group: Group, indices: list[int], params: list[Variable]) -> None:
        self.group = group
        self.indices = indices
        self.params = params
        self.names = group.rule().slots
        self.dtype = params[0].dtype
        real = real_dtype(self.dtype)
        width = self.dtype.itemsize // real.itemsize
        self.slices: list[slice] = []
        for p in params:
            start = self.slices[-1].stop if self.slices else 0
            self.slices.append(slice(start, start + p.size * width))
        size = self.slices[-1].stop
        self.data = aligned_zeros(size, real)
        wide = state_dtype(real)
        # The numbers that updates compute with: the data itself, or the master weights.
        self.work = self.data if wide == real else aligned_zeros(size, wide)
        self.grads = aligned_zeros(size if len(params) > 1 else 0, wide)
        # A rule that knows shapes has each parameter alone, and may have slots of other shapes.
        self.shaped = group.rule().slot_shape is not None
        self.slot_shapes = {n: group.rule().shape_of_slot(n, params[0].shape) for n in self.names}
        sizes = {
            name: math.prod(shape) * width if self.shaped else size
            for name, shape in self.slot_shapes.items()
        }
        self.slots = {slot: aligned_zeros(length, wide) for slot, length in sizes.items()}
        self.steps = np.zeros(len(params), np.int64)
        elementwise = group.rule().elementwise
        self.block = BLOCK_SIZE if elementwise and size > 2 * BLOCK_SIZE else size
        # Each parameter, the base of its array, and the view for a copy of its gradient, or None.
        self.views: list[tuple[int, Variable, Array, Array | None]] = []
        self._adopt_data(self.data)
        self.together = SharedVersion(params)
        # In-grad_view updates of all parameters (None) or one of them, and the rule whose learning
        # rate they have.
        self._updates: dict[int | None, InPlaceUpdate | FusedUpdate] = {}
        self._scratch: list[Array] = []
        # Half precision: blocks for master weights that were rounded, and for what differs.
        width = self.block if wide != real and elementwise else 0
        self._rounded, self._differs = np.zeros(width, real), np.zeros(width, bool)
        self._restored, self._assigned = np.zeros(width, wide), np.zeros(width, wide)
        self._program: InPlaceProgram | None = None
        self._rule_of_updates: Rule | None = None
        # The calls that update all parameters, if they are the same at each step, and their rule.
        self._known: Rule | None = None
        self._calls: Plan = []
        # Indices of the parameters that had no gradient in the last step.
        self.missing: list[int] = []

    def _adopt_data(self, data: Array) -> None:
        """Move the parameters' numbers into ``data``, and let each parameter refer to its part."""
        memory = data.view(ParameterMemory)
        views: list[tuple[int, Variable, Array, Array | None]] = []
        plan: Plan = []
        for j, p in enumerate(self.params):
            base = self.param_view(memory, j)
            base[...] = p._array
            grad_view = self.param_view(self.grads, j) if len(self.params) > 1 else None
            views.append((j, p, base, grad_view))
            plan.append((setattr, p, "_array", packed_view(base)))
        if self.work is self.data:
            plan.append((setattr, self, "work", data))
        plan += [(setattr, self, "data", data), (setattr, self, "views", views)]
        commit(plan)

    def _move_data(self) -> None:
        """Move the parameters to new memory, because others refer to the old one."""
        # An interrupt leaves no update that would write to the old memory.
        self._known, updates, self._updates = None, self._updates, {}
        self._adopt_data(aligned_zeros(len(self.data), self.data.dtype))
        moved: dict[int | None, InPlaceUpdate | FusedUpdate] = {}
        for j, update in updates.items():
            if isinstance(update, FusedUpdate):  # any other is bound again in less time
                update.move_parameter(self.work[slice(None) if j is None else self.slices[j]])
                moved[j] = update
        self._updates = moved

    def param_view(self, flat: Array, j: int) -> Array:
        """Return the view of parameter number ``j``, in its shape, and complex if it is."""
        dtype = self.dtype if flat.dtype == self.data.dtype else flat.dtype
        return flat[self.slices[j]].view(dtype).reshape(self.params[j].shape)

    def adopt_state(self, states: list[dict[str, Variable]]) -> None:
        """Move the state of each parameter into the flat arrays."""
        memories = {slot: flat.view(StateMemory) for slot, flat in self.slots.items()}
        if self.work is not self.data:
            memories[MASTER] = self.work.view(StateMemory)
        steps = self.steps.view(StateMemory)
        for j, state in enumerate(states):
            views = {slot: self._slot_view(slot, memory, j) for slot, memory in memories.items()}
            for name, view in (views | {"steps": steps[j : j + 1].reshape(())}).items():
                view[...] = state[name]._array
                state[name]._array = packed_view(view)

    def _slot_view(self, slot: str, flat: Array, j: int) -> Array:
        """Return the view of a slot of parameter number ``j``, in its shape."""
        if not self.shaped or (slot == MASTER and self.work is not self.data):
            return self.param_view(flat, j)
        dtype = self.dtype if flat.dtype == self.data.dtype else flat.dtype
        return flat.view(dtype).reshape(self.slot_shapes[slot])

    def gather_gradients(
        self, refuse: Callable[[int], None] | None, given: Sequence[Any] | None = None
    ) -> Array | SparseRows | None:
        """Return the flat gradients, or sparse rows; None if this object no longer fits its group.

        Another optimizer may have moved the parameters since, they may have been frozen, or the
        rule may have other slots.

        Args:
            refuse: Called with the index of a parameter that has no gradient.
            given: The gradients of all parameters of the optimizer; by default ``.grad`` of each.
        """
        if self.names != self.group._rule.slots:
            return None
        self.missing = missing = []
        gradients: Array | SparseRows = self.grads
        is_held = False
        for j, p, base, grad_view in self.views:
            if p._array.base is not base:  # packed again, or frozen since
                return None
            if references(p._array) != SLOT_COUNT and not has_exclusive_array(p):
                is_held = is_held or not is_held_by_recordings_only(p)
            g = p._info.grad if given is None else given[self.indices[j]]
            if type(g) is not ndarray:
                if g is None:
                    missing.append(j)
                    if refuse is not None:
                        refuse(self.indices[j])
                    continue
                if isinstance(g, Value):
                    g = g._array
                elif type(g) is SparseRows and not (grad_view is None and self.group._rule.by_rows):
                    g = g.to_dense()
            if grad_view is None:
                gradients = g if type(g) is SparseRows else self._flattened(g)
            else:
                grad_view[...] = g
        if is_held:
            self._move_data()
        return gradients

    def update_calls(self, gradients: Array | SparseRows, quiet: bool) -> Plan:
        """Return the calls that update the parameters that have a gradient, for one ``commit``.

        Args:
            gradients: The result of ``gather_gradients``.
            quiet: True if no floating-point error can raise during the calls. Otherwise the results
                are computed here, and the calls only copy.
        """
        rule = self.group._rule
        steps = self.steps.tolist()
        if isinstance(gradients, SparseRows):
            plan = self._row_calls(rule, gradients, steps[0])
            return self.together.writing([*plan, (self.steps.fill, steps[0] + 1)])
        if not self.missing and steps.count(steps[0]) == len(steps):
            if rule is self._known and quiet and gradients is self.grads:
                plan = self._calls
            else:
                plan = self._update_for(None, rule, gradients, steps[0], quiet)
            return self.together.writing([*plan, (self.steps.fill, steps[0] + 1)])
        plan = []
        for j, p in enumerate(self.params):
            if j not in self.missing:
                g = gradients[self.slices[j]]
                plan += write_plan(p, self._update_for(j, rule, g, steps[j], quiet))
                plan.append((setitem, self.steps, j, steps[j] + 1))
        return plan

    def _update_for(self, j: int | None, rule: Rule, g: Array, steps: int, quiet: bool) -> Plan:
        """Return the calls that update parameter number ``j``, or all, from the gradient ``g``."""
        if self.shaped:
            return self._shaped_calls(rule, g, steps)
        program = self.group.program(self.work.dtype) if quiet else None
        if program is None:
            return self._pure_calls(rule, 0 if j is None else self.slices[j].start, g, steps)
        if self.work is not self.data:
            window = slice(0, len(self.data)) if j is None else self.slices[j]
            plan = self._in_place_calls(j, rule, program, g)
            rounding = _cast_call(self.work[window], self.data[window])
            return [*self._sync_calls(window), *plan, rounding]
        return self._in_place_calls(j, rule, program, g)

    def _sync_calls(self, window: slice) -> Plan:
        """Return the calls of ``synced_master`` in place, block by block."""
        plan: Plan = []
        for first in range(window.start, window.stop, self.block or 1):
            part = slice(first, min(first + self.block, window.stop))
            data, master = self.data[part], self.work[part]
            own = self._rounded, self._restored, self._assigned, self._differs
            rounded, restored, assigned, differs = [array[: len(data)] for array in own]
            plan.append(_cast_call(master, rounded))
            plan += [_cast_call(rounded, restored), _cast_call(data, assigned)]
            found = None if is_numba_avoided() else take_assigned_call(restored, assigned, master)
            if found is None:
                plan.append((np.not_equal, restored, assigned, differs))
                plan.append((partial(np.positive, where=differs), assigned, master))
            else:
                plan.append(found)
        return plan

    def _synced(self, master: Array, p: Array) -> Array:
        """Return the numbers that an update computes with, which for most dtypes are ``p``."""
        return p if self.work is self.data else _quietly_synced(master, p)

    def _in_place_calls(self, j: int | None, rule: Rule, program: InPlaceProgram, g: Array) -> Plan:
        """Return the calls of the in-place program of parameter number ``j``, or of all."""
        if rule is not self._rule_of_updates:
            self._set_rule(rule, program)
        update = self._updates.get(j)
        if update is None:
            update = self._new_update(j, program)
            if is_numba_avoided():  # the first steps only; later ones may be fused
                return update.plan if g is self.grads else update.calls_for(g)
            self._updates[j] = update
        if g is not self.grads:
            return update.calls_for(g)
        if self.work is self.data:
            self._known, self._calls = None, update.plan
            self._known = rule
        return update.plan

    def _set_rule(self, rule: Rule, program: InPlaceProgram) -> None:
        """Set the rule of the updates, usually one with another learning rate."""
        self._rule_of_updates = self._known = None
        if program is self._program:
            for update in self._updates.values():
                update.set_rate(self.group._settings["learning_rate"])
        else:
            self._program, self._updates = None, {}
            self._scratch = [
                aligned_zeros(self.block, self.work.dtype) for _ in range(program.scratch)
            ]
        self._program, self._rule_of_updates = program, rule

    def _new_update(self, j: int | None, program: InPlaceProgram) -> InPlaceUpdate | FusedUpdate:
        window = slice(None) if j is None else self.slices[j]
        arrays = {"p": self.work[window]} | {n: flat[window] for n, flat in self.slots.items()}
        if len(self.params) > 1:
            arrays["g"] = self.grads[window]
        steps = self.steps[j or 0 :][:1].reshape(())
        size = sum([p.size for p in self.group.params])
        made = fused_update(program, arrays, steps, size)
        update = made or InPlaceUpdate(program, arrays, self._scratch, steps, self.block)
        update.set_rate(self.group._settings["learning_rate"])
        return update

    def _flattened(self, g: Any) -> Array:
        flat: Array = g.reshape(-1)
        if self.dtype == self.work.dtype:
            return flat
        if is_half(flat.dtype):
            wide: Array = widen(flat, loops=not is_numba_avoided())
            return np.ascontiguousarray(wide)
        return np.ascontiguousarray(flat, state_dtype(self.dtype)).view(self.work.dtype)

    def _row_calls(self, rule: Rule, gradient: SparseRows, steps: int) -> Plan:
        """Return the calls that copy the results of a rule into the rows of a gradient."""
        found = gradient.coalesce()
        places, count = found.indices, len(self.params[0]._array)
        if not len(places):
            return []
        g = np.ascontiguousarray(found.values, state_dtype(self.dtype))
        g = g.view(self.work.dtype).reshape(len(places), -1)
        tables = {slot: flat.reshape(count, -1) for slot, flat in self.slots.items()}
        data, master = self.data.reshape(count, -1), self.work.reshape(count, -1)
        state = {"steps": steps} | {slot: table.take(places, 0) for slot, table in tables.items()}
        p = self._synced(master.take(places, 0), data.take(places, 0))
        value, new = rule.stepped(g, state, p)
        pairs = [(data, value), *((table, new[slot]) for slot, table in tables.items())]
        if master.dtype != data.dtype:
            pairs.append((master, value))
        return [
            (setitem, table, places, np.asarray(made).astype(table.dtype, copy=False))
            for table, made in pairs
        ]

    def _shaped_calls(self, rule: Rule, g: Array, steps: int) -> Plan:
        """Return the calls that copy the results of a rule that knows shapes."""
        p = self.param_view(self.data, 0)
        dtype = state_dtype(self.dtype)
        master = self.param_view(self.work, 0)
        wide, shaped = self._synced(master, p), g.view(dtype).reshape(p.shape)
        slots = {slot: self._slot_view(slot, flat, 0) for slot, flat in self.slots.items()}
        value, new = rule.stepped(shaped, {"steps": steps, **slots}, wide)
        pairs = [(p, value), *((view, new[slot]) for slot, view in slots.items())]
        if self.work is not self.data:
            pairs.append((master, value))
        return [(setitem, view, ..., _exclusive_result(made, view)) for view, made in pairs]

    def _pure_calls(self, rule: Rule, start: int, grads: Array, steps: int) -> Plan:
        """Return the calls that copy the pure rule's results from ``start`` on, block by block."""
        length = len(grads)
        plan: Plan = []
        for first in range(0, length, self.block or 1):
            window = slice(start + first, start + min(first + self.block, length))
            p = self.data[window]
            wide = self._synced(self.work[window], p)
            state: State = {"steps": steps}
            for slot, flat in self.slots.items():
                state[slot] = flat[window]
            value, new = rule.stepped(grads[first : first + self.block], state, wide)
            plan.append((setitem, p, ..., _exclusive_result(value, p)))
            if self.work is not self.data:
                plan.append((setitem, self.work, window, _exclusive_result(value, wide)))
            for slot, flat in self.slots.items():
                plan.append((setitem, flat, window, _exclusive_result(new[slot], wide)))
        return plan


@ignore_fp_errors()
def _quietly_synced(master: Array, p: Array) -> Array:
    found: Array = synced_master(master, p)
    return found


def _cast_call(x: Array, out: Array) -> tuple[Any, ...]:
    """Return the call that casts between half precision and float32."""
    found = None if is_numba_avoided() else cast_call(x, out)
    return found or (setitem, out, ..., x)


def _exclusive_result(value: Any, p: Array) -> Array:
    """Return a result of a rule in the dtype and shape of ``p``, in memory of its own."""
    value = np.asarray(value).astype(p.dtype, copy=False)
    return np.broadcast_to(copy_if_shared(value), p.shape)
