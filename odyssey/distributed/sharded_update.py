"""Update in slices: each rank steps an optimizer's rule on its part of parameters and state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import is_half
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.distributed.flat_layout import BLOCK, FlatLayout, Piece, flat_view, layouts_of
from odyssey.distributed.group import Group
from odyssey.distributed.ordered_sums import gather_rows
from odyssey.errors import DistributedError, OdysseyError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, state_dtype
from odyssey.spec import Array
from odyssey.table.real_operands import real_dtype
from odyssey.table.value import assign_plan, is_trainable
from odyssey.variable import Variable

__all__ = ["ShardedUpdate"]

_STEP = "DataParallel.step"


class ShardedUpdate:
    """The parameters and the state of an optimizer, of which each rank steps a slice.

    In a group of one the optimizer itself steps. Else another optimizer with these settings steps
    this rank's pieces, which are Variables of their own; the new parameters are gathered from all
    ranks in memory that nobody sees, and then written to the parameters in one call of C.

    Attributes:
        layouts: How the parameters lie in flat arrays.
        group_of: The parameter group of each parameter.
        midway: Whether a step was interrupted after this rank's slice had moved.
    """

    def __init__(self, optimizer: Optimizer, group: Group) -> None:
        self._optimizer, self._group = optimizer, group
        self._params = optimizer.params
        self.group_of = [owner for owner in optimizer.groups for _ in owner.params]
        self._elementwise = [owner._rule.elementwise for owner in self.group_of]
        self.layouts = layouts_of(self._params, self._elementwise, group.size)
        pieces = [piece for layout in self.layouts for piece in layout.pieces(group.rank)]
        self._pieces = sorted(pieces, key=lambda piece: piece.k)
        self._means = {id(layout): np.zeros(layout.step, layout.wide) for layout in self.layouts}
        self._received: dict[int, Array] = {}
        self.midway = False
        self._inner = optimizer
        self._started = False
        # The versions of the parameters at the end of the last step.
        self._versions: list[float | None] = [None] * len(self._params)
        if group.size > 1:
            self._take_state()

    def _take_state(self) -> None:
        """Move the state of the optimizer to the ranks' slices."""
        optimizer, group = self._optimizer, self._group
        saved = optimizer.state_dict() if any(optimizer._state) else None
        owners: dict[int, tuple[list[Variable], list[str]]] = {
            id(owner): ([], []) for owner in optimizer.groups
        }
        for piece in self._pieces:
            own, names = owners[id(self.group_of[piece.k])]
            name = optimizer._param_name(piece.k)
            own.append(Variable(self._numbers(piece).copy(), requires_grad=True, name=name))
            names.append(name)
        self._inner = optimizer._for_slices(*zip(*owners.values(), strict=True))
        self._gathered = {
            id(layout): np.zeros(layout.length, layout.dtype) for layout in self.layouts
        }
        self._received = {
            id(layout): np.empty((group.size, layout.step), layout.wide) for layout in self.layouts
        }
        self._counts = [
            sum(_block_count(piece) for layout in self.layouts for piece in _blocked(layout, rank))
            for rank in range(group.size)
        ]
        self._versions = self._current_versions()
        plan: Plan = []
        if saved is not None:
            _, plan = self.read_state(saved, np.array)
        text = (
            f"its state lies in slices on the {group.size} ranks of a DataParallel; call step, "
            "state_dict and load_state_dict of that"
        )
        commit(
            [
                *plan,
                (setattr, optimizer, "_state_elsewhere", text),
                (setattr, optimizer, "_state", [{} for _ in self._params]),
                (setattr, optimizer, "_packs", []),
                (setattr, optimizer, "_resting", optimizer.params),
            ]
        )

    def refuse_midway(self, who: str) -> None:
        """Raise if a step was interrupted after this rank's slice moved."""
        if self.midway:
            raise DistributedError(
                f"{who}: an earlier step was interrupted after this rank's slice had moved; the "
                "parameters are those before it, and the state is not: load a checkpoint"
            )

    # ------------------------------------------------------------------ gradients

    def reduce(self, flats: Sequence[Array], reduction: str) -> list[Array]:
        """Return this rank's slices of the sums over ranks of flat gradients."""
        if self._group.size == 1:
            return list(flats)
        found = []
        for layout, flat in zip(self.layouts, flats, strict=True):
            if reduction == "fast":
                total = self._group.all_reduce(flat, reduction="fast")
                start = self._group.rank * layout.step
                found.append(total[start : start + layout.step])
            else:
                found.append(self._group.sum_slices(flat, self._received[id(layout)]))
        return found

    @ignore_fp_errors()
    def set_mean(self, slices: Sequence[Array], weight: float) -> None:
        """Let the gradients be these sums over their weight."""
        exact = math.frexp(weight)[0] == 0.5  # a power of two
        for layout, total in zip(self.layouts, slices, strict=True):
            mean = self._means[id(layout)]
            if exact:
                np.multiply(total, 1 / weight, out=mean)
            else:
                np.divide(total, weight, out=mean)

    @ignore_fp_errors()
    def divide(self, scale: float) -> bool:
        """Divide the gradients by a scale; return whether they are finite on all ranks."""
        finite = True
        for mean in self._means.values():
            np.divide(mean, scale, out=mean)
            finite = finite and bool(np.isfinite(mean).all())
        if self._group.size == 1:
            return finite
        return bool(gather_rows(self._group._transport, _STEP, np.array([finite], np.int64)).all())

    @ignore_fp_errors()
    def clip_value(self, limit: float) -> None:
        """Cut every element of the gradients to ``[-limit, limit]``."""
        for mean in self._means.values():
            np.minimum(np.maximum(mean, -limit, out=mean), limit, out=mean)

    @ignore_fp_errors()
    def clip_norm(self, max_norm: float) -> float:
        """Scale the gradients so that their norm is at most this; return the norm before.

        Squares are added in blocks of the parameters, which are equal on any number of ranks, and
        the sums of blocks exactly.
        """
        blocks = [
            _sums_of_squares(self._means[id(layout)][piece.window])
            for layout in self.layouts
            for piece in _blocked(layout, self._group.rank)
        ]
        sums = np.concatenate([*blocks, np.zeros(0)])
        if self._group.size > 1:
            padded = np.zeros(max(self._counts))
            padded[: len(sums)] = sums
            sums = gather_rows(self._group._transport, _STEP, padded).reshape(-1)
        norm = math.sqrt(_exact_sum(sums.tolist()))
        factor = max_norm / (norm + 1e-6)
        if factor >= 1:  # NaN stays
            factor = 1.0
        for mean in self._means.values():
            np.multiply(mean, factor, out=mean)
        return norm

    # ------------------------------------------------------------------ the update

    def run(self, present: Any, calls: Plan) -> None:
        """Step all parameters that have a gradient, and make more calls together with that."""
        moved = [k for k, p in enumerate(self._params) if present[k] and is_trainable(p)]
        inner = self._inner
        plan: Plan = []
        warning: Warning | None = None
        with write_lock():
            wait_for_programs()
            if self._group.size > 1:
                self._follow()
            inner._step_guarded(None, plan, self._gradients(set(moved)))
            if self._group.size == 1:
                inner._run([*plan, *calls])
                return
            plan += [(setattr, self, "midway", True), (setattr, self, "_started", True)]
            try:
                inner._run(plan)
            except Warning as error:  # after the step, where warnings are errors
                warning = error
        self._exchange_parameters(moved)
        with write_lock():
            wait_for_programs()
            commit([*self._assign_calls(moved), *calls, (setattr, self, "midway", False)])
            self._versions = self._current_versions()
        if warning is not None:
            raise warning

    def _gradients(self, moved: set[int]) -> list[Array | None]:
        """Return the gradient of each piece, in the order of the inner optimizer's parameters."""
        found: list[Array | None] = []
        for piece in self._pieces:
            p = self._params[piece.k]
            if piece.k not in moved:
                found.append(None)
                continue
            g = self._means[id(piece.layout)][piece.window]
            if self._group.size == 1 or piece.layout.complete:
                g = (g.view(p.dtype) if p.dtype.kind == "c" else g).reshape(p.shape)
            found.append(g)
        return found

    def _follow(self) -> None:
        """Give the pieces the settings, the freezing and the assigned numbers of the parameters."""
        for own, outer in zip(self._inner.groups, self._optimizer.groups, strict=True):
            if own._settings is not outer._settings:
                commit(own.adopt_calls(outer._settings, outer._rule))
        changed = set(self.assigned())
        for piece, own_piece in zip(self._pieces, self._inner.params, strict=True):
            p = self._params[piece.k]
            if piece.k in changed:
                own_piece._array[...] = self._numbers(piece)
            if is_trainable(own_piece) is not is_trainable(p):
                own_piece.requires_grad = is_trainable(p)

    def refusal(self) -> OdysseyError | None:
        """Return why the settings cannot be followed, or None."""
        for k, owner in enumerate(self.group_of):
            if owner._rule.elementwise is not self._elementwise[k]:
                return OdysseyError(
                    f"{_STEP}: a setting was changed by which the rule of "
                    f"{self._optimizer._param_name(k)} became one that looks at complete "
                    "parameters, or ceased to be; make a new DataParallel from its state_dict()"
                )
        return None

    def assigned(self) -> list[int]:
        """Return the parameters that were written to since the last step."""
        return [k for k, v in enumerate(self._current_versions()) if v != self._versions[k]]

    def _current_versions(self) -> list[float | None]:
        return [p._info.version if p._info is not None else None for p in self._params]

    def _numbers(self, piece: Piece) -> Array:
        """Return the elements of a piece in its parameter's array."""
        p = self._params[piece.k]
        if piece.layout.complete:
            return np.asarray(p._array)
        return flat_view(p._array, piece.layout.dtype)[piece.start : piece.stop]

    def _exchange_parameters(self, moved: Sequence[int]) -> None:
        """Gather the new numbers of parameters from all ranks."""
        wanted = set(moved)
        for layout in self.layouts:
            if wanted.isdisjoint(layout.indices):
                continue
            flat = self._gathered[id(layout)]
            begin = self._group.rank * layout.step
            own = flat[begin : begin + layout.step]
            for piece, moved_piece in zip(self._pieces, self._inner.params, strict=True):
                if piece.layout is layout:
                    own[piece.window] = flat_view(moved_piece._array, layout.dtype)
            self._group.gather_slices(flat.view(np.uint16) if is_half(layout.dtype) else flat)

    def _assign_calls(self, moved: Sequence[int]) -> Plan:
        views: dict[int, Array] = {}
        for layout in self.layouts:
            views |= layout.views(self._gathered[id(layout)], self._params)
        return [call for k in moved for call in assign_plan(self._params[k], views[k])]

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return what the optimizer would return on one process; all ranks call this."""
        self.refuse_midway("DataParallel.state_dict")
        if self._group.size == 1:
            return self._optimizer.state_dict()
        saved = self._optimizer._saved_groups()
        states: list[dict[str, Any]] = [{} for _ in self._params]
        if self._started:
            steps = self._step_counts()
            slots = [
                owner._rule.slots_for(p.dtype)
                for owner, p in zip(self.group_of, self._params, strict=True)
            ]
            states = [{"steps": np.array(count)} for count in steps]
            for layout in self.layouts:
                names = dict.fromkeys(name for k in layout.indices for name in slots[k])
                for name in names:
                    indices = [k for k in layout.indices if name in slots[k]]
                    for k, array in self._gather_slot(layout, name, indices).items():
                        states[k][name] = array
        return saved | {"state": states}

    def _step_counts(self) -> list[np.int64]:
        counts = np.zeros(len(self._params), np.int64)
        for piece, state in zip(self._pieces, self._inner._state, strict=True):
            if piece.start == 0:
                counts[piece.k] = state["steps"]._array
        table = gather_rows(self._group._transport, "DataParallel.state_dict", counts)
        return list(table.sum(0))

    def _gather_slot(self, layout: FlatLayout, name: str, indices: list[int]) -> dict[int, Array]:
        """Return the arrays of a slot of parameters, as copies."""
        own = [
            (piece, state[name]._array)
            for piece, state in zip(self._pieces, self._inner._state, strict=True)
            if piece.layout is layout and piece.k in indices
        ]
        wide = state_dtype(layout.dtype)
        if not layout.complete:
            flat = np.zeros(layout.length, wide)
            begin = self._group.rank * layout.step
            for piece, array in own:
                flat[begin : begin + layout.step][piece.window] = flat_view(array, wide)
            self._group.gather_slices(flat)
            views = layout.views(flat, self._params)
            return {k: views[k].copy() for k in indices}
        # Slots of other shapes than their parameters': one after the other on each rank.
        shapes = {
            k: self.group_of[k]._rule.shape_of_slot(name, self._params[k].shape) for k in indices
        }
        owner = dict(zip(layout.indices, layout.owners, strict=True))
        width = {k: self._params[k].dtype.itemsize // layout.dtype.itemsize for k in indices}
        ends = [0] * self._group.size
        starts = {}
        for k in indices:
            starts[k] = ends[owner[k]]
            ends[owner[k]] += math.prod(shapes[k]) * width[k]
        row = np.zeros(max(ends), wide)
        for piece, array in own:
            values = flat_view(array, wide)
            row[starts[piece.k] : starts[piece.k] + len(values)] = values
        table = gather_rows(self._group._transport, "DataParallel.state_dict", row)
        found = {}
        for k in indices:
            length = math.prod(shapes[k]) * width[k]
            values = table[owner[k], starts[k] : starts[k] + length]
            dtype = state_dtype(self._params[k].dtype)
            found[k] = np.array(values).view(dtype).reshape(shapes[k])
        return found

    def read_state(
        self, saved: Any, take: Callable[..., Any]
    ) -> tuple[list[tuple[dict[str, Any], Rule]], Plan]:
        """Return the settings and the calls by which this rank takes its slices of a state."""
        if self._group.size == 1:
            return self._optimizer._read_state(saved, take)
        changes, _ = self._optimizer._read_settings(saved)
        inner = self._inner
        counts = [{"count": len(own.params), "settings": own} for own in inner.groups]
        groups = [
            entry | {"settings": found["settings"]}
            for entry, found in zip(counts, saved["groups"], strict=True)
        ]
        state = [self._state_of_piece(piece, saved["state"][piece.k]) for piece in self._pieces]
        own = {"settings": saved["settings"], "groups": groups, "state": state}
        _, plan = inner._read_state(own, np.array)
        return changes, [
            *inner._settings_calls(changes),
            *plan,
            (setattr, self, "_started", True),
            (setattr, self, "midway", False),
            (setattr, self, "_versions", [None] * len(self._params)),
        ]

    def _state_of_piece(self, piece: Piece, saved: dict[str, Any]) -> dict[str, Any]:
        if piece.layout.complete:
            return dict(saved)
        dtype = state_dtype(self._params[piece.k].dtype)
        return {
            name: value
            if name == "steps"
            else flat_view(np.asarray(value, dtype), real_dtype(dtype))[piece.start : piece.stop]
            for name, value in saved.items()
        }


# ------------------------------------------------------------------ sums of squares


def _blocked(layout: FlatLayout, rank: int) -> list[Piece]:
    """Return what sums of squares are taken of: parameters, or the complete slice."""
    if layout.complete:
        return layout.pieces(rank)
    return [Piece(layout, 0, 0, 0, layout.step)]


def _block_count(piece: Piece) -> int:
    return -(-(piece.stop - piece.start) // BLOCK)


def _sums_of_squares(x: Array) -> Array:
    """Return the sum of squares of each block, in float64."""
    squares = np.square(x, dtype=np.float64)
    dense = len(x) // BLOCK * BLOCK
    sums: Array = squares[:dense].reshape(-1, BLOCK).sum(axis=1)
    return sums if dense == len(x) else np.append(sums, squares[dense:].sum())


def _exact_sum(numbers: list[float]) -> float:
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf


def __dir__() -> list[str]:
    return sorted(__all__)
