"""Tables of the native dispatcher: writing them; ``native_dispatch.dispatcher`` reads them.

Called by ``compiled_call`` for a program without host calls. Fields and columns are described in
``native_dispatch.tables``.

A table never moves while the dispatcher may read it; it grows by a new one beside it. Objects whose
addresses are in the tables are held here. A writer first sets ``tables_complete`` to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from odyssey.compiler.guards.guards import GuardSet
from odyssey.compiler.machine.addresses import read_word
from odyssey.compiler.machine.jit import builtin
from odyssey.compiler.native_dispatch.cpython_layout import (
    MISSING,
    MemoryGuard,
    list_field_offsets,
    lock_owner_offset,
    slot_offset,
)
from odyssey.compiler.native_dispatch.loader import load_entry_points, native_dispatch_available
from odyssey.compiler.native_dispatch.tables import (
    BLOCK_FIELDS,
    CALL_BLOCK_SIZE,
    HELD_OBJECT,
    LIST_RESULT,
    NUMBER_RESULT,
    NUMBER_VARIABLE_RESULT,
    SINGLE_RESULT,
    TUPLE_RESULT,
    row_width,
)
from odyssey.compiler.runtime.executable import Executable
from odyssey.compiler.runtime.results import ResultBuilder
from odyssey.devices.ownership import address_of
from odyssey.devices.write_guard import BINDINGS, GUARD
from odyssey.optim.groups import Group
from odyssey.optim.step_runner import error_treatment
from odyssey.spec import Array
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from odyssey.table.value import Info, Value, free_id, next_ticket
from odyssey.tree import unflatten
from odyssey.variable import Variable

__all__ = ["NativeDispatch", "native_dispatch_of"]


class _WordTable:
    """Array of 64-bit words that does not move while there is room."""

    def __init__(self, held: list[Any]) -> None:
        self._held = held
        self._words = np.zeros(16, np.int64)
        held.append(self._words)

    def fill(self, words: Iterable[int]) -> tuple[int, int]:
        """Write words; return their address and their number."""
        new = list(words)
        if len(new) > self._words.size:
            self._words = np.zeros(2 * len(new), np.int64)
            self._held.append(self._words)  # the old words stay for a concurrent reader
        self._words[: len(new)] = new
        return address_of(self._words), len(new)


class NativeDispatch:
    """Dispatch of a whole call by one native function.

    Args:
        executable: Program with one native segment, or two without a host call.
        results: How its results are made.
        guards: Guards on what the trace read of Python.
        missed: Sentinel that the function returns on a cache miss.
        calls: Array of one word that counts the calls.
        rates: Parameter groups whose settings the program reads.
        settings: Settings of each group that the program has read.

    Attributes:
        call: The native function, of the arguments alone.
    """

    def __init__(
        self,
        executable: Executable,
        results: ResultBuilder,
        guards: GuardSet,
        missed: Any,
        calls: Array,
        rates: Sequence[Any],
        settings: list[Any],
    ) -> None:
        self._guards = guards
        self._executable = executable
        self._has_states = bool(executable.graph.states or executable.graph.cleared)
        self._lock = BINDINGS.new()
        self._enabled = False
        self._predicate: Any = None
        # Objects whose addresses are in the tables; they outlive the native function.
        self._guard_objects: list[Any] = []
        self._context_objects: list[Any] = []
        self._state_objects: list[Any] = []
        self._dictionaries: dict[int, Any] = {}
        lists = self._guard_objects, self._context_objects, self._state_objects, self._dictionaries
        self._held: list[Any] = [*lists, missed, calls]
        self._rates: list[tuple[int, int]] = []
        self._block = np.zeros(CALL_BLOCK_SIZE, np.int64)
        self._held.append(self._block)
        names = ("contexts", "dictionaries", "items", "words", "pairs", "versions", "cells")
        self._tables = {name: _WordTable(self._held) for name in (*names, "outs", "leaves")}
        self._state_words: list[int] = []
        fixed = {
            "program": address_of(executable.block),
            "cache_miss": id(missed),
            "calls": address_of(calls),
            "ticket": id(_call_counter(next_ticket)),
            "ids": id(_call_counter(free_id)),
            "one": id(1),
            "none": id(None),
            "true": id(True),
            "int_type": id(int),
            "variable": id(Variable),
        }
        self._set(**fixed)
        self._held += [_call_counter(next_ticket), _call_counter(free_id), 1]
        self._fill_results(executable, results)
        start = read_word(id(settings) + list_field_offsets()[1])  # the list keeps its length
        for k, (group, *_) in enumerate(rates):
            self._rates.append((id(group) + slot_offset(Group, "_settings"), start + 8 * k))
        self._held += [settings, [group for group, *_ in rates]]
        # For calls that run while the function's programs are cleared.
        code = load_entry_points(direct=True)
        keep = self._block, executable, self._held, code
        call = builtin(code.address("dispatch"), "program", *keep)
        self._tables_current: Callable[..., Any] = builtin(
            code.address("tables_current"), "fresh", *keep
        )
        self.call: Callable[..., Any] = call
        if int(self._block[BLOCK_FIELDS["form"]]) == LIST_RESULT:
            assemble = results.assemble

            def filled(*args: Any) -> Any:
                result: Any = call(*args)
                return result if result is missed else assemble(result, args)

            self.call = filled

    def _set(self, **fields: int) -> None:
        """Set fields of the call's block."""
        for name, value in fields.items():
            self._block[BLOCK_FIELDS[name]] = value

    def _fill(self, name: str, words: Iterable[int], count: str = "") -> None:
        """Fill a table; store its address, then its number of rows in the field ``count``."""
        address, length = self._tables[name].fill(words)
        self._set(**{name: address})
        if count:
            self._set(**{count: length // row_width(name)})

    def _fill_results(self, executable: Executable, results: ResultBuilder) -> None:
        """Fill the tables of output buffers and of result leaves."""
        slots, outs = executable.module.slots, []
        numbers = {
            leaf.thing
            for leaf in results.leaves
            if leaf.kind in (NUMBER_RESULT, NUMBER_VARIABLE_RESULT)
        }
        outputs = zip(executable.plan.written_outputs(), executable.outputs, strict=True)
        for k, (output, (shape, dtype)) in enumerate(outputs):
            is_number = k in numbers and not results.held
            words = np.zeros(2 if is_number else max(len(shape), 1), np.int64)
            if not is_number:
                words[: len(shape)] = shape
            self._held += [dtype, words]
            outs += [id(dtype), len(shape), address_of(words), slots["output", output], is_number]
        self._fill("outs", outs, "out_count")
        rows: list[int] = []
        if results.held:
            rows, form = [HELD_OBJECT, id(results.tree), 0, 0], SINGLE_RESULT
        else:
            for leaf in results.leaves:
                self._held.append(leaf)
                thing = id(leaf.thing) if leaf.kind == HELD_OBJECT else leaf.thing
                assert leaf.kind is not None, "only Python can make it"
                rows += [leaf.kind, thing, id(leaf.where), id(leaf.spec)]
            flat = type(results.tree) is tuple and len(results.tree) == len(results.leaves)
            form = (
                SINGLE_RESULT
                if results.bare
                else TUPLE_RESULT
                if flat and not (results.derived or results.effects) and _is_flat_tree(results.tree)
                else LIST_RESULT
            )
        self._held.append(results.tree)
        self._fill("leaves", rows, "leaf_count")
        self._set(form=form)

    # -------------------------------------------------------------- states and gradients

    def bind(
        self, written: Sequence[Any], counters: Sequence[Any], left: Sequence[Any], enabled: bool
    ) -> None:
        """Write the addresses of version counters and gradients.

        Args:
            written: Leaves that tapes must look up again.
            counters: Version counters: a list and an index, or an Info and a name.
            left: Variables whose gradients are the program's last results, in order.
            enabled: Whether a call needs no Python code.
        """
        with self._lock:
            self._set(tables_complete=0)
            words: list[int] = []
            addresses: list[int] = []
            held: list[Any] = [*written, *left]
            for _, thing, at in counters:
                held.append(thing)
                if type(thing) is list:
                    size, items = list_field_offsets()
                    start = read_word(id(thing) + items)
                    words += [id(thing) + size, -1, len(thing), id(thing) + items, -1, start]
                    addresses.append(start + 8 * at)
                else:
                    addresses.append(id(thing) + slot_offset(Info, at))
            cells: list[int] = []
            for leaf in written:
                cells += [id(leaf) + slot_offset(Value, "_placed"), 0]
            first = int(self._block[BLOCK_FIELDS["out_count"]]) - len(left)
            for k, leaf in enumerate(left, first + 1):
                info = leaf._info
                held.append(info)
                enabled = enabled and info is not None
                words += [id(leaf) + slot_offset(Value, "_info"), -1, id(info)]
                for name, source in (("grad", k), ("loan", 0)):
                    cells += [id(info) + slot_offset(Info, name), source]
            owner = lock_owner_offset()
            if self._has_states:  # no write, and no other program of these states, may be running
                enabled = enabled and owner is not None
                held += self._executable.locks
                for lock in (GUARD, *self._executable.locks):
                    words += [id(lock) + (owner or 0), -1, 0]
            self._fill("versions", addresses, "version_count")
            self._fill("cells", cells, "cell_count")
            self._state_words, self._enabled = words, enabled
            self._state_objects[:] = held

    # -------------------------------------------------------------- guards

    def refresh(self) -> None:
        """Fill the tables again if they are stale; called right after a call through Python."""
        if not self._enabled:
            return
        # True: all guards hold; None: only context variables differ.
        current = self._tables_current() if self._predicate is self._guards.holds else False
        if current is not True:
            with self._lock:
                generation = int(self._block[BLOCK_FIELDS["generation"]]) + 1
                self._set(tables_complete=0, generation=generation)
                complete = self._fill_contexts() and (current is None or self._fill_guards())
                self._set(tables_complete=complete)

    def _fill_contexts(self) -> bool:
        """Write the values of context variables under which the program may run."""
        scope = scopes()
        variable, treatment = error_treatment()
        if variable is None or scope[0] is not None or store() is not MEMORY:
            return False
        contexts = [
            id(_call_counter(store)),
            0,
            id(MEMORY),
            id(_call_counter(scopes)),
            0,
            id(scope),
        ]
        self._fill("contexts", [*contexts, id(variable), id(None), id(treatment)], "context_count")
        self._context_objects[:] = scope, treatment, variable
        return True

    def _fill_guards(self) -> bool:
        """Write the guard words, pairs and dictionary items."""
        predicate = self._guards.holds
        memory_guards, python_guards = self._guards.native_guards()
        state_words = {*zip(*[iter(self._executable.words.tolist())] * 3, strict=True)}
        words = [row for guard in memory_guards for row in guard.words if row not in state_words]
        rows = [*zip(*[iter(self._state_words)] * 3, strict=True), *words]
        self._fill("words", chain(*dict.fromkeys(rows)), "word_count")
        pairs = [pair for guard in memory_guards for pair in guard.pairs]
        self._fill("pairs", chain(*dict.fromkeys([*self._rates, *pairs])), "pair_count")
        self._fill_dictionaries(memory_guards)
        self._set(python_guards=0 if python_guards is None else id(python_guards))
        self._predicate = predicate
        # A concurrent call may be reading these dictionaries: they live as long as the tables.
        for guard in memory_guards:
            for row in (*guard.items, *guard.versions):
                self._dictionaries.update((id(x), x) for x in row[:2])
        held = [(guard.held, guard.items) for guard in memory_guards]
        self._guard_objects[:] = [python_guards, held]
        return True

    def _fill_dictionaries(self, memory_guards: Sequence[MemoryGuard]) -> None:
        """Write the items that dictionaries must have; native code finds their versions."""
        by_dictionary: dict[int, list[int]] = {}
        for guard in memory_guards:
            for dictionary, key, value in guard.items:
                expected = 0 if value is MISSING else id(value)
                by_dictionary.setdefault(id(dictionary), []).extend((id(key), expected))
        rows: list[int] = []
        items: list[int] = []
        for address, own in by_dictionary.items():
            rows += [address, -1, len(items) // 2, (len(items) + len(own)) // 2, 0]
            items += own
        for guard in memory_guards:
            for dictionary, version in guard.versions:
                rows += [id(dictionary), version, 0, 0, 1]
        self._fill("items", items)
        self._fill("dictionaries", rows, "dictionary_count")


def native_dispatch_of(
    executable: Executable,
    results: ResultBuilder,
    guards: GuardSet,
    missed: Any,
    calls: Array,
    rates: Sequence[Any],
    settings: list[Any],
) -> NativeDispatch | None:
    """Return the native dispatch of a program, or None if a call needs Python."""
    if not (executable.module.direct and native_dispatch_available()):
        return None
    if not all(isinstance(rate[0], Group) for rate in rates):
        return None
    if results.derived and not results.leaves:
        return None
    kinds = [leaf.kind for leaf in results.leaves]
    shapes = [shape for shape, _ in executable.outputs]
    for leaf in results.leaves:
        if leaf.kind in (NUMBER_RESULT, NUMBER_VARIABLE_RESULT) and shapes[leaf.thing]:
            return None
    if None in kinds and not results.held:
        return None
    return NativeDispatch(executable, results, guards, missed, calls, rates, settings)


def _call_counter(function: Any) -> Any:
    """Return the object that a bound method belongs to."""
    return function.__self__


def _is_flat_tree(tree: tuple[Any, ...]) -> bool:
    """Return whether a tuple holds leaves alone."""
    numbers = list(range(len(tree)))
    return bool(unflatten(tree, numbers) == tuple(numbers))
