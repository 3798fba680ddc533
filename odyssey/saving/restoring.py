"""Restoring a tree from a file: every value is checked first, then one commit writes all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, format_value, with_article
from odyssey.devices.commit import Plan, commit
from odyssey.devices.same_device import place_beside
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, FormatError, OdysseyError, ShapeError, TapeError
from odyssey.floating_point_errors import isolate_errstate
from odyssey.ops.random.generator import Generator
from odyssey.saving.archive import open_archive
from odyssey.saving.leaf_kinds import (
    EmptyList,
    class_of,
    leaf_kind,
    saved_attributes,
    short_path,
    state_of,
)
from odyssey.saving.node_format import STATE_KINDS, SavedTree, node_kind
from odyssey.saving.tensor_files import open_tensor_files
from odyssey.saving.tensor_saving import TensorTree
from odyssey.spec import Array, native_form
from odyssey.table.store import refuse_locked
from odyssey.table.value import assign_plan, is_untracked
from odyssey.tree import leaves, replace_containers
from odyssey.variable import Variable

__all__ = ["Restorer", "open_empty_lists", "open_tree"]

_RESTORED = ("Variable", *STATE_KINDS)

# The largest positions in a generator's buffer, which NumPy does not check.
_MAX_POSITIONS = {"pos": 624, "buffer_pos": 4}


_EMPTY_LIST = EmptyList()


def open_empty_lists(like: Any) -> Any:
    """Return ``like`` with a leaf for each empty list, which takes what the file has there."""
    leaves(like, saved_attributes)  # raises for a tree that holds itself
    return replace_containers(
        like,
        lambda node: _EMPTY_LIST if type(node) is list and not node else None,
        saved_attributes,
    )


@contextmanager
def open_tree(path: str, wanted: dict[str, Any]) -> Iterator[SavedTree | TensorTree]:
    """Open a file of ``save`` for reading: an archive, or by its ending a file of tensors.

    Args:
        path: The file.
        wanted: The leaves of ``like`` by path.
    """
    if path.endswith(".npz"):
        with open_archive(path) as archive:
            yield SavedTree(archive)
    else:
        with open_tensor_files("load", path) as files:
            yield TensorTree(files, wanted)


class Restorer:
    """Values to be written into the leaves of a tree.

    Args:
        readers: By id of an optimizer, what reads its state instead of its ``_read_state``.
    """

    def __init__(self, readers: Mapping[int, Callable[..., Any]] | None = None) -> None:
        self._readers = readers or {}
        self._variables: list[tuple[str, Variable, Array]] = []
        # Optimizers, schedules and generators: path, kind, object and state.
        self._others: list[tuple[str, str, Any, Any]] = []

    # -------------------------------------------------------------- reading

    def read(
        self, tree: SavedTree | TensorTree, wanted: dict[str, Any], keep: bool = False
    ) -> list[Any]:
        """Read the values of ``wanted``; return the leaves of the tree that ``load`` returns.

        Args:
            tree: The file.
            wanted: The leaves of ``like`` by path.
            keep: Whether leaves that the file lacks are kept, instead of an error.
        """
        openings = [path for path, leaf in wanted.items() if leaf is ... or leaf is _EMPTY_LIST]
        optional = [path for path in openings if wanted[path] is _EMPTY_LIST]
        tree.refuse_others(wanted, openings, optional, keep)
        values: list[Any] = []
        by_key: dict[tuple[str, int], Any] = {}
        owners: dict[int, tuple[str, str]] = {}
        for path, leaf in wanted.items():
            if leaf is ... or leaf is _EMPTY_LIST:
                values.append(tree.subtree(path, [] if leaf is _EMPTY_LIST else leaf))
                continue
            if keep and path not in tree.entries:
                values.append(leaf)
                continue
            first, node = tree.node(path)
            kind = leaf_kind("load", path, leaf)
            _refuse_other_kind(path, kind, leaf, node_kind(node))
            key = (first, id(leaf))
            if kind in _RESTORED:
                _refuse_merged(path, leaf, owners.setdefault(id(leaf), (first, path)), first)
            if key not in by_key:
                by_key[key] = self._read(tree, path, kind, leaf, node)
            values.append(by_key[key])
        return values

    def _read(
        self, tree: SavedTree | TensorTree, path: str, kind: str, leaf: Any, node: Any
    ) -> Any:
        if kind == "Variable":
            if not leaf.is_leaf or is_untracked(leaf):
                raise TapeError(
                    f"load: {short_path(path)} of like is {leaf!r}, which is not a leaf; pass a "
                    "Variable that no op made"
                )
            self._variables.append((path, leaf, _read_array(tree, path, leaf, node[kind])))
            return leaf
        if kind in ("array", "scalar"):
            array = _read_array(tree, path, leaf, node[kind])
            array = array.astype(leaf.dtype, copy=False)  # to the leaf's byte order
            return place_beside(array, leaf) if kind == "array" else array[()]
        assert isinstance(tree, SavedTree)  # the other has arrays only
        if kind not in STATE_KINDS:
            return tree.value(node)
        name, state = tree.state(node)
        if name != class_of(leaf):
            raise DTypeError(
                f"load: {short_path(path)} was of class {name} when it was saved, and is of class "
                f"{class_of(leaf)} in like; pass one of the same class"
            )
        self._others.append((path, kind, leaf, state))
        return leaf

    # -------------------------------------------------------------- writing

    def commit(self) -> None:
        """Write all values, or none if one cannot be written."""
        with write_lock():
            wait_for_programs()
            commit(self._plan())

    def check(self) -> None:
        """Raise an error if ``commit`` would; nothing is written."""
        with write_lock():
            wait_for_programs()
            self._plan()

    def _plan(self) -> Plan:
        plan: Plan = []
        changes: dict[int, tuple[Any, list[Any]]] = {}  # by id of an optimizer, all its settings
        for path, kind, leaf, state in self._others:
            if kind == "generator":
                plan.append(_generator_step(path, leaf, state))
            elif kind == "stateful":
                plan += _call_with_path(path, leaf._state_plan, state)
            elif kind == "optimizer":
                reader = self._readers.get(id(leaf), leaf._read_state)
                settings, calls = _call_with_path(path, reader, state, np.asarray)
                changes[id(leaf)] = (leaf, settings)
                plan += calls
        for path, kind, leaf, state in self._others:
            if kind == "schedule":
                own, rates = _call_with_path(path, leaf._read_state, state)
                changes[id(leaf.optimizer)] = _settings_with_rates(path, leaf, changes, rates)
                plan.append((vars(leaf).update, own))
        for path, leaf, array in self._variables:
            _refuse_other_spec(
                path, leaf, array.dtype, array.shape
            )  # the Variable may have changed since
            refuse_locked(f"load: {short_path(path)}", leaf)
            plan += assign_plan(leaf, place_beside(array, leaf))
        for optimizer, settings in changes.values():
            plan += optimizer._settings_calls(settings)
        return plan


def _settings_with_rates(path: str, schedule: Any, changes: Any, rates: list[float]) -> Any:
    """Return a schedule's optimizer and its settings: those that are loaded, with ``rates``."""
    groups = schedule.optimizer.groups
    start = [group.with_settings() for group in groups]
    _, present = changes.get(id(schedule.optimizer), (None, start))
    columns = zip(groups, present, rates, strict=True)
    settings = [
        _call_with_path(path, lambda g=g, s=s, r=r: g.with_settings(**s | {"learning_rate": r}))
        for g, (s, _), r in columns
    ]
    return schedule.optimizer, settings


def _call_with_path(path: str, check: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``check``; its errors name the leaf."""
    try:
        return check(*args)
    except OdysseyError as error:
        raise type(error)(f"load: {short_path(path)}: {error}") from error


# ------------------------------------------------------------------ mismatches


def _refuse_other_kind(path: str, kind: str, leaf: Any, saved: str) -> None:
    if kind != saved:
        raise DTypeError(
            f"load: {short_path(path)} was {_phrase(saved)} when it was saved, and is "
            f"{_phrase(kind)} in like, {format_value(leaf)}; pass {_phrase(saved)} there"
        )


def _phrase(kind: str) -> str:
    words = {"scalar": "a NumPy number", "NoneType": "None", "str": "a text"}
    return words.get(kind) or with_article(kind)


def _refuse_merged(path: str, leaf: Any, owner: tuple[str, str], first: str) -> None:
    if owner[0] != first:
        raise ShapeError(
            f"load: {short_path(owner[1])} and {short_path(path)} are one "
            f"{type(leaf).__name__} in like, and were two when they were saved; pass two"
        )


def _read_array(tree: SavedTree | TensorTree, path: str, leaf: Any, body: Any) -> Array:
    """Read an array; raise ShapeError or DTypeError if it does not fit ``leaf``."""
    _refuse_other_spec(path, leaf, *tree.spec(body))
    array = tree.read_array(body)
    return array.astype(native_form(array.dtype), copy=False)


def _refuse_other_spec(path: str, leaf: Any, dtype: np.dtype[Any], shape: Any) -> None:
    if shape != leaf.shape:
        raise ShapeError(
            f"load: {short_path(path)} was of shape {shape} when it was saved, and is of shape "
            f"{leaf.shape} in like; pass one of the shape that was saved"
        )
    if native_form(dtype) != native_form(leaf.dtype):
        raise DTypeError(
            f"load: {short_path(path)} was of {dtype} when it was saved, and is of {leaf.dtype} "
            f"in like; pass one of {dtype}, and convert what is loaded"
        )


# ------------------------------------------------------------------ generators


def _generator_step(path: str, generator: Any, state: Any) -> tuple[Any, ...]:
    """Return the call that sets the state of a generator, which was tried on a copy."""
    try:
        inner = state["state"]
        for name, most in _MAX_POSITIONS.items():
            for level in (state, inner):
                if name in level and not 0 <= level[name] <= most:
                    raise ValueError(f"{name}={level[name]}")
        copy = isolate_errstate(deepcopy)(generator)  # NumPy enters an np.errstate in it
        call = _set_state_call(copy, state)
        call[0](*call[1:])
        if not _equal_states(state_of(copy), state):
            raise ValueError("it would become another one")
    except STUMBLES as error:
        raise FormatError(
            f"load: {short_path(path)}: what was saved is not a state of {class_of(generator)} "
            f"({type(error).__name__}: {error}); load another copy of the file"
        ) from error
    return _set_state_call(generator, state)


def _equal_states(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal_states(one[n], other[n]) for n in one)
    if isinstance(one, np.ndarray):
        return one.tobytes() == bytes(other.tobytes())
    return bool(one == other)


def _set_state_call(generator: Any, state: Any) -> tuple[Any, ...]:
    if isinstance(generator, np.random.RandomState):
        return (generator.set_state, state)
    if isinstance(generator, Generator):
        return generator._state_write(state)
    return (setattr, getattr(generator, "bit_generator", generator), "state", state)
