"""Restoring a tree from a file: all is checked first, then written by one commit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, format_value, with_article
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan, commit
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, FormatError, OdysseyError, ShapeError, TapeError
from odyssey.floating_point_errors import isolate_errstate
from odyssey.ops.random.generator import Generator
from odyssey.saving.contents import Contents, kind_of_node
from odyssey.saving.leaves import class_of, kind_of, shown_path, state_of
from odyssey.spec import Array
from odyssey.table.store import refuse_locked
from odyssey.table.value import assign_plan, is_untracked
from odyssey.variable import Variable

__all__ = ["Filling"]

_FILLED = ("Variable", "optimizer", "schedule", "generator")

# Where a position in a generator's buffer may be; NumPy does not look.
_POSITIONS = {"pos": 624, "buffer_pos": 4}


class Filling:
    """Values to be written into the leaves of a tree."""

    def __init__(self) -> None:
        self._variables: list[tuple[str, Variable, Array]] = []
        # Optimizers, schedules and generators, each with its state.
        self._others: list[tuple[str, str, Any, Any]] = []

    # -------------------------------------------------------------- reading

    def read(self, contents: Contents, wanted: dict[str, Any]) -> list[Any]:
        """Read what goes into ``wanted``; return the leaves of the tree that ``load`` returns."""
        contents.refuse_others(wanted)
        values: list[Any] = []
        known: dict[tuple[str, int], Any] = {}
        owners: dict[int, tuple[str, str]] = {}
        for path, leaf in wanted.items():
            first, node = contents.node(path)
            kind = kind_of("load", path, leaf)
            _refuse_other_kind(path, kind, leaf, kind_of_node(node))
            key = (first, id(leaf))
            if kind in _FILLED:
                _refuse_two(path, leaf, owners.setdefault(id(leaf), (first, path)), first)
            if key not in known:
                known[key] = self._read(contents, path, kind, leaf, node)
            values.append(known[key])
        return values

    def _read(self, contents: Contents, path: str, kind: str, leaf: Any, node: Any) -> Any:
        if kind == "Variable":
            if not leaf.is_leaf or is_untracked(leaf):
                raise TapeError(
                    f"load: {shown_path(path)} of like is {leaf!r}, which is not a leaf; pass a "
                    "Variable that no op made"
                )
            self._variables.append((path, leaf, _array_like(contents, path, leaf, node[kind])))
            return leaf
        if kind in ("array", "scalar"):
            found = _array_like(contents, path, leaf, node[kind])
            found = found.astype(leaf.dtype, copy=False)  # in its byte order
            return found if kind == "array" else found[()]
        if kind not in ("optimizer", "schedule", "generator"):
            return contents.value(node)
        name, state = contents.state(node)
        if name != class_of(leaf):
            raise DTypeError(
                f"load: {shown_path(path)} was of class {name} when it was saved, and is of class "
                f"{class_of(leaf)} in like; pass one of the same class"
            )
        self._others.append((path, kind, leaf, state))
        return leaf

    # -------------------------------------------------------------- writing

    def commit(self) -> None:
        """Write all of it, or nothing."""
        with write_lock():
            wait_for_programs()
            commit(self._plan())

    def _plan(self) -> Plan:
        plan: Plan = []
        changes: dict[int, tuple[Any, list[Any]]] = {}  # settings of optimizers, all of them
        for path, kind, leaf, state in self._others:
            if kind == "generator":
                plan.append(_setting_state(path, leaf, state))
            elif kind == "optimizer":
                found, calls = _named(path, leaf._read_state, state, np.asarray)
                changes[id(leaf)] = (leaf, found)
                plan += calls
        for path, kind, leaf, state in self._others:
            if kind == "schedule":
                own, rates = _named(path, leaf._read_state, state)
                changes[id(leaf.optimizer)] = _with_rates(path, leaf, changes, rates)
                plan.append((vars(leaf).update, own))
        for path, leaf, array in self._variables:
            _refuse_other_spec(path, leaf, array.dtype, array.shape)  # it may have changed since
            refuse_locked(f"load: {shown_path(path)}", leaf)
            plan += assign_plan(leaf, array)
        for optimizer, settings in changes.values():
            plan += optimizer._settings_calls(settings)
        return plan


def _with_rates(path: str, schedule: Any, changes: Any, rates: list[float]) -> Any:
    """Settings of a schedule's optimizer, with what is loaded besides, and these rates."""
    groups = schedule.optimizer.groups
    start = [group.with_settings() for group in groups]
    _, present = changes.get(id(schedule.optimizer), (None, start))
    columns = zip(groups, present, rates, strict=True)
    found = [
        _named(path, lambda g=g, s=s, r=r: g.with_settings(**s | {"learning_rate": r}))
        for g, (s, _), r in columns
    ]
    return schedule.optimizer, found


def _named(path: str, check: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``check``; name the leaf in its errors."""
    try:
        return check(*args)
    except OdysseyError as error:
        raise type(error)(f"load: {shown_path(path)}: {error}") from error


# ------------------------------------------------------------------ what does not fit


def _refuse_other_kind(path: str, kind: str, leaf: Any, came: str) -> None:
    if kind != came:
        raise DTypeError(
            f"load: {shown_path(path)} was {_a(came)} when it was saved, and is {_a(kind)} in "
            f"like, {format_value(leaf)}; pass {_a(came)} there"
        )


def _a(kind: str) -> str:
    words = {"scalar": "a NumPy number", "NoneType": "None", "str": "a text"}
    return words.get(kind) or with_article(kind)


def _refuse_two(path: str, leaf: Any, owner: tuple[str, str], first: str) -> None:
    if owner[0] != first:
        raise ShapeError(
            f"load: {shown_path(owner[1])} and {shown_path(path)} are one "
            f"{type(leaf).__name__} in like, and were two when they were saved; pass two"
        )


def _array_like(contents: Contents, path: str, leaf: Any, body: Any) -> Array:
    """An array of the file that has the shape and the dtype of ``leaf``."""
    _refuse_other_spec(path, leaf, *contents.spec(body))
    array = contents.array(body)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _refuse_other_spec(path: str, leaf: Any, dtype: np.dtype[Any], shape: Any) -> None:
    if shape != leaf.shape:
        raise ShapeError(
            f"load: {shown_path(path)} was of shape {shape} when it was saved, and is of shape "
            f"{leaf.shape} in like; pass one of the shape that was saved"
        )
    if dtype.newbyteorder("=") != leaf.dtype.newbyteorder("="):
        raise DTypeError(
            f"load: {shown_path(path)} was of {dtype} when it was saved, and is of {leaf.dtype} "
            f"in like; pass one of {dtype}, and convert what is loaded"
        )


# ------------------------------------------------------------------ generators


def _setting_state(path: str, generator: Any, state: Any) -> tuple[Any, ...]:
    """The call that puts a generator where it stood, after it was tried on a copy."""
    try:
        inner = state["state"]
        for name, most in _POSITIONS.items():
            for part in (state, inner):
                if name in part and not 0 <= part[name] <= most:
                    raise ValueError(f"{name}={part[name]}")
        trial = isolate_errstate(deepcopy)(generator)  # NumPy's begin within an np.errstate
        call = _call(trial, state)
        call[0](*call[1:])
        if not _same(state_of(trial), state):
            raise ValueError("it would become another one")
    except STUMBLES as error:
        raise FormatError(
            f"load: {shown_path(path)}: what was saved is not a state of {class_of(generator)} "
            f"({type(error).__name__}: {error}); load another copy of the file"
        ) from error
    return _call(generator, state)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[n], other[n]) for n in one)
    if isinstance(one, ARRAYS):
        return one.tobytes() == bytes(other.tobytes())
    return bool(one == other)


def _call(generator: Any, state: Any) -> tuple[Any, ...]:
    if isinstance(generator, np.random.RandomState):
        return (generator.set_state, state)
    if isinstance(generator, Generator):
        return generator._state_write(state)
    return (setattr, getattr(generator, "bit_generator", generator), "state", state)
