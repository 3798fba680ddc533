"""Packs: parameters of one group whose arrays lie side by side, so that one update serves all."""

from __future__ import annotations

from collections.abc import Callable
from operator import setitem
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.devices.arrays import aligned_zeros
from odyssey.devices.commit import Plan
from odyssey.devices.ownership import copy_if_shared
from odyssey.optim.fused_step import CompiledUpdate, compiled_update
from odyssey.optim.groups import Group
from odyssey.optim.inplace_program import Program, Update
from odyssey.optim.rule import Rule, State
from odyssey.spec import Array
from odyssey.table.kernel_selection import is_numba_avoided
from odyssey.table.real_operands import real_dtype
from odyssey.table.value import SharedVersion, Value, write_plan
from odyssey.variable import Variable

__all__ = ["SMALL", "Pack"]

# Arrays below SMALL elements are packed together. Those of more than two blocks are updated block
# by block, so that temporaries stay small and in the cache.
SMALL = 16384
BLOCK = 65536


class Pack:
    """Parameters whose data, gradients and state lie side by side, so that one update serves all.

    The update of many small arrays costs a fixed time each; a large array is a pack of its own,
    and its gradient is read where it lies. Complex numbers lie here as pairs of real ones.
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
        self.grads = aligned_zeros(size if len(params) > 1 else 0, real)
        self.slots = {slot: aligned_zeros(size, real) for slot in self.names}
        self.steps = np.zeros(len(params), np.int64)
        elementwise = group.rule().elementwise
        self.block = BLOCK if elementwise and size > 2 * BLOCK else size
        # Each parameter, where its data lies, and where its gradient is copied to, if it is.
        self.places: list[tuple[int, Variable, Array, Array | None]] = []
        for j, p in enumerate(params):
            view = self.cut(self.data, j)
            view[...] = p._array
            p._array = view
            place = self.cut(self.grads, j) if len(params) > 1 else None
            self.places.append((j, p, view, place))
        self.together = SharedVersion(params)
        # What updates in place, all (None) or a parameter, by a program; and the rule whose
        # learning rate they are settled for.
        self._updates: dict[int | None, Update | CompiledUpdate] = {}
        self._scratch: list[Array] = []
        self._program: Program | None = None
        self._settled: Rule | None = None
        # The calls that update everything, where they are the same each time, and their rule.
        self._known: Rule | None = None
        self._calls: Plan = []
        # Places, in this pack, of the parameters that had no gradient when last asked.
        self.missing: list[int] = []

    def cut(self, flat: Array, j: int) -> Array:
        """The part of parameter number ``j``, in its dtype and shape."""
        return flat[self.slices[j]].view(self.dtype).reshape(self.params[j].shape)

    def adopt(self, states: list[dict[str, Variable]]) -> None:
        """Let the state of each parameter lie here."""
        for j, state in enumerate(states):
            places = {slot: self.cut(flat, j) for slot, flat in self.slots.items()}
            for name, view in (places | {"steps": self.steps[j : j + 1].reshape(())}).items():
                view[...] = state[name]._array
                state[name]._array = view

    def gather(self, refuse: Callable[[int], None] | None) -> Array | None:
        """Return the gradients joined, or None where this pack is no longer what its group needs.

        Another optimizer may have packed the parameters since, they may have been frozen, or the
        rule may have other slots.

        Args:
            refuse: Called with the index of a parameter that has no gradient.
        """
        if self.names != self.group._rule.slots:
            return None
        self.missing = missing = []
        joined = self.grads
        for j, p, view, place in self.places:
            if p._array is not view:  # nor is that of one that was frozen since
                return None
            g = p._info.grad
            if type(g) is not ndarray:
                if g is None:
                    missing.append(j)
                    if refuse is not None:
                        refuse(self.indices[j])
                    continue
                if isinstance(g, Value):
                    g = g._array
            if place is None:
                joined = self._flat(g)
            else:
                place[...] = g
        return joined

    def updates(self, joined: Array, quiet: bool) -> Plan:
        """The calls that update the parameters that have a gradient, for one ``commit``.

        Args:
            joined: What ``gather`` returned.
            quiet: Whether nothing can raise in the middle. Else all that can is done here, and the
                calls only copy.
        """
        rule = self.group._rule
        steps = self.steps.tolist()
        if not self.missing and steps.count(steps[0]) == len(steps):
            if rule is self._known and quiet and joined is self.grads:
                plan = self._calls
            else:
                plan = self._part(None, rule, joined, steps[0], quiet)
            return self.together.writing([*plan, (self.steps.fill, steps[0] + 1)])
        plan = []
        for j, p in enumerate(self.params):
            if j not in self.missing:
                g = joined[self.slices[j]]
                plan += write_plan(p, self._part(j, rule, g, steps[j], quiet))
                plan.append((setitem, self.steps, j, steps[j] + 1))
        return plan

    def _part(self, j: int | None, rule: Rule, g: Array, steps: int, quiet: bool) -> Plan:
        """The calls that update parameter number ``j``, or all, from the gradient ``g``."""
        program = self.group.program(self.data.dtype) if quiet else None
        if program is None:
            return self._pure(rule, 0 if j is None else self.slices[j].start, g, steps)
        if rule is not self._settled:
            self._settle(rule, program)
        update = self._updates.get(j)
        if update is None:
            update = self._update(j, program)
            if is_numba_avoided():  # later steps, of which there may be many, choose anew
                return update.plan if g is self.grads else update.reading(g)
            self._updates[j] = update
        if g is not self.grads:
            return update.reading(g)
        self._known, self._calls = None, update.plan
        self._known = rule
        return update.plan

    def _settle(self, rule: Rule, program: Program) -> None:
        """Let the updates be those of a rule, of another learning rate mostly."""
        self._settled = self._known = None
        if program is self._program:
            for update in self._updates.values():
                update.settle(self.group._settings["learning_rate"])
        else:
            self._program, self._updates = None, {}
            self._scratch = [
                aligned_zeros(self.block, self.data.dtype) for _ in range(program.scratch)
            ]
        self._program, self._settled = program, rule

    def _update(self, j: int | None, program: Program) -> Update | CompiledUpdate:
        here = slice(None) if j is None else self.slices[j]
        arrays = {"p": self.data[here]} | {n: flat[here] for n, flat in self.slots.items()}
        if len(self.params) > 1:
            arrays["g"] = self.grads[here]
        steps = self.steps[j or 0 :][:1].reshape(())
        size = sum([p.size for p in self.group.params])
        made = compiled_update(program, arrays, steps, size)
        update = made or Update(program, arrays, self._scratch, steps, self.block)
        update.settle(self.group._settings["learning_rate"])
        return update

    def _flat(self, g: Any) -> Array:
        flat: Array = g.reshape(-1)
        if self.dtype == self.data.dtype:
            return flat
        return np.ascontiguousarray(flat, self.dtype).view(self.data.dtype)

    def _pure(self, rule: Rule, start: int, grads: Array, steps: int) -> Plan:
        """The calls that copy what the pure rule gives from ``start`` on, block by block."""
        length = len(grads)
        plan: Plan = []
        for first in range(0, length, self.block or 1):
            here = slice(start + first, start + min(first + self.block, length))
            p = self.data[here]
            state: State = {"steps": steps}
            for slot, flat in self.slots.items():
                state[slot] = flat[here]
            value, new = rule.stepped(grads[first : first + self.block], state, p)
            plan.append((setitem, p, ..., _fresh(value, p)))
            for slot, flat in self.slots.items():
                plan.append((setitem, flat, here, _fresh(new[slot], p)))
        return plan


def _fresh(value: Any, p: Array) -> Array:
    """What a rule returned, as ``p`` can take it without a failure, in memory of its own."""
    value = np.asarray(value).astype(p.dtype, copy=False)
    return np.broadcast_to(copy_if_shared(value), p.shape)
