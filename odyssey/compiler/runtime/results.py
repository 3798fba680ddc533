"""Results: rebuild the function's result, a tree of Variables, arrays and scalars, from buffers.

Called by ``compiled_call`` after each run; ``dispatch_tables`` writes the leaves into tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from operator import call, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import describe_type
from odyssey.compiler.arguments import aliases_states
from odyssey.compiler.native_dispatch.tables import (
    ARRAY_RESULT,
    HELD_OBJECT,
    NUMBER_RESULT,
    NUMBER_VARIABLE_RESULT,
    VARIABLE_RESULT,
)
from odyssey.compiler.pipeline import LoweredProgram
from odyssey.compiler.result_aliases import (
    Alias,
    ResultAliases,
    View,
    find_aliases,
    view_between,
)
from odyssey.compiler.runtime.executable import Executable
from odyssey.compiler.tracing.snapshot import PythonEffect
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.backends import backend_of
from odyssey.devices.commit import run_all
from odyssey.devices.device import Device, cpu, device_of
from odyssey.devices.half_dtypes import is_bfloat16, is_floating
from odyssey.devices.ownership import is_writable, owner_of
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph, Ref, Splat
from odyssey.table.value import (
    Info,
    Mark,
    Symbol,
    Value,
    array_of,
    free_id,
    is_trainable,
    make_value,
)
from odyssey.tree import (
    children_of,
    containers,
    extras_in,
    leaves,
    map_tree,
    rebuild,
    unflatten,
)
from odyssey.tree_objects import HOLE
from odyssey.variable import Variable

__all__ = ["NotCompilableError", "ResultBuilder", "ResultLeaf", "VIEWS"]


VIEWS = frozenset({"reshape", "transpose", "matrix_transpose", "broadcast_to"})
"""Rows whose result may be a view of their operand; the results of all others are new arrays."""

ALIASED_RESULTS = "two of its results share memory"

_NO_READERS: Mapping[int, Callable[[], Any] | None] = MappingProxyType({})


class NotCompilableError(OdysseyError):
    """The function does something that no program can do; the message says what."""


class ResultLeaf(NamedTuple):
    """How one leaf of the result is made.

    Attributes:
        make: Makes it from the output buffers.
        kind: Kind in ``native_dispatch.tables``; None if only Python can make it.
        thing: The captured object itself, or the index of its output buffer.
        where: Recording or mark of a Variable.
        spec: Spec of a Variable.
    """

    make: Callable[[Sequence[Any]], Any]
    kind: int | None
    thing: Any
    where: Any = None
    spec: Any = None


class ResultBuilder:
    """Rebuilds the result tree of a function from flat output buffers.

    Args:
        executable: Executable or lowered program.
        traced: Result of the trace.
        seen: Result of an eager call, whose kinds of leaves are taken over.
        aliases: Aliases in that result; None if they are known only for another size.
        readers: By id of a captured array, a function that returns the present one; None if
            several paths lead to the array.
        effects: Writes to objects of Python. If there are any, results are pairs of what the
            function returned and a list of what it wrote.

    Attributes:
        leaves: How each leaf is made that the program computes, or that is a fixed object.
        derived: For each other leaf its position in the tree, and how it is made of the others,
            of captured arrays, or of the arguments.
        keeps_layout: Whether arguments must be C-contiguous, as those of the eager call were.
        bare: Whether the result is a single leaf, one of ``leaves``.
        held: Whether the result is a captured object.
        tree: Tree that the leaves are put into, if there are several.

    Raises:
        NotCompilableError: no program can return what the function does.
    """

    def __init__(
        self,
        executable: Executable | LoweredProgram,
        traced: Any,
        seen: Any,
        aliases: ResultAliases | None = None,
        readers: Mapping[int, Callable[[], Any] | None] = _NO_READERS,
        effects: Sequence[PythonEffect] = (),
    ) -> None:
        self.effects = effects
        symbols, found = leaves(traced), leaves(seen)
        if len(symbols) != len(found):
            raise NotCompilableError("the structure of its result changes")
        known = find_aliases(found, ()) if aliases is None else aliases
        if known.refusal is not None:
            raise NotCompilableError(known.refusal)
        if aliases is None and any(alias.view for alias in known.by_leaf.values()):
            raise NotCompilableError(ALIASED_RESULTS)
        if aliases_states(found, executable.graph):
            raise NotCompilableError("it returns a view of a Variable's array")
        if aliases is not None and not known.contiguous and _reshapes_results(executable.graph):
            raise NotCompilableError(
                "it returns a result and a reshaped one, and an argument is not contiguous"
            )
        self.held = traced is seen and readers.get(id(traced)) is None
        tree, entries, own = _collapse_captured_containers(traced, seen, executable.graph.outputs)
        self.tree = traced if self.held else tree
        self._single = len(entries) == 1 and leaves(self.tree)[0] is self.tree
        self.keeps_layout = any(a.is_input or a.view for a in known.by_leaf.values())
        self.leaves: list[ResultLeaf] = []
        self._slots: list[int] = []  # positions of ``leaves`` in the tree
        self._count = len(entries)
        made = _LeafMaker(executable, known, readers, aliases is not None)
        present: list[tuple[int, _Derive]] = []
        views: list[tuple[int, _Derive]] = []
        repeated: list[tuple[int, _Derive]] = []
        slots = {entry.position: slot for slot, entry in enumerate(entries)}
        for slot, entry in enumerate(entries):
            alias = known.by_leaf.get(entry.position)
            if (reader := made.present_reader(entry)) is not None:
                present.append((slot, reader))
            elif entry.is_captured:
                self._add(slot, _captured_leaf(entry.leaf))
            elif alias is None:
                self._add(slot, made.leaf(entry))
            else:
                made.check_alias(entry, alias, slots)
                source = alias.source if alias.is_input else slots[alias.source]
                derive = _derive_leaf(entry, alias, source)
                (repeated if alias.view is None else views).append((slot, derive))
        self.keeps_layout |= made.needs_layout
        self.derived = [*present, *views, *repeated]  # each of those before it
        self.bare = self._single and not self.derived
        if not self.held:  # of the leaves, Symbols hold their trace: 18 kB for each size
            self.tree = map_tree(lambda leaf: HOLE, self.tree)
        if not self.held:
            if len(set(own)) != len(own):
                raise NotCompilableError("it returns one container twice")
            _refuse_changed_attributes(traced, seen)

    def _add(self, slot: int, leaf: ResultLeaf) -> None:
        self._slots.append(slot)
        self.leaves.append(leaf)

    def build(self, outs: Sequence[Any], given: Sequence[Any]) -> Any:
        """Return the result for filled output buffers and the call's inputs."""
        if self.held:
            return self.tree
        if self.bare:
            return self.leaves[0].make(outs)
        return self.assemble([leaf.make(outs) for leaf in self.leaves], given)

    def assemble(self, values: list[Any], given: Sequence[Any]) -> Any:
        """Return the result for the values of ``leaves`` and the call's inputs."""
        if self.derived:
            made, values = values, [None] * self._count
            for slot, value in zip(self._slots, made, strict=True):
                values[slot] = value
            for slot, derive in self.derived:
                values[slot] = derive(values, given)
        made = values[0] if self._single else unflatten(self.tree, values)
        return self._write(*made) if self.effects else made

    def _write(self, result: Any, stored: list[list[Any]]) -> Any:
        """Repeat the writes to objects of Python in one call in C; return the result."""
        writes = zip(self.effects, stored, strict=True)
        run_all(starmap(call, [one for effect, values in writes for one in effect.calls(values)]))
        return result


class _Entry(NamedTuple):
    """One leaf of a result, or a captured container in it.

    Attributes:
        position: Its position among all leaves; -1 for a container.
        symbol: The leaf in the trace.
        leaf: The leaf in the eager call.
        output: The output of the graph.
        at: Its output buffer; -1 if it has none.
        is_captured: Whether it is the same object in both.
    """

    position: int
    symbol: Any
    leaf: Any
    output: Any
    at: int
    is_captured: bool


# Makes a leaf of the values of other leaves, and of the call's inputs.
_Derive = Callable[[Sequence[Any], Sequence[Any]], Any]


def _collapse_captured_containers(
    traced: Any, seen: Any, outputs: Sequence[Any]
) -> tuple[Any, list[_Entry], list[int]]:
    """Return the result of the trace with each captured container as a leaf.

    Returns:
        The result, its leaves, and the ids of the containers that each run makes.
    """
    collapser = _ContainerCollapser(outputs)
    return collapser.collapse(traced, seen), collapser.entries, collapser.own


class _ContainerCollapser:
    """One pass over a result, of the trace and of an eager run.

    Attributes:
        entries: The leaves so far.
        own: The ids of the containers that each run makes.
    """

    def __init__(self, outputs: Sequence[Any]) -> None:
        self.entries: list[_Entry] = []
        self.own: list[int] = []
        self._outputs = outputs
        self._position = self._buffer = 0

    def collapse(self, one: Any, other: Any) -> Any:
        """Return a subtree of the trace, given that of the eager run."""
        position = self._position
        if next(containers(one), None) is None:
            output = self._outputs[position]
            has_buffer = isinstance(output, (Ref, Splat))
            captured = one is other and (has_buffer or (output is None and one is not None))
            at = self._buffer if has_buffer else -1
            self.entries.append(_Entry(position, one, other, output, at, captured))
            self._position, self._buffer = position + 1, self._buffer + has_buffer
            return one
        if one is other and type(one) is not tuple:
            self.entries.append(_Entry(-1, one, one, None, -1, True))
            self._position = end = position + len(leaves(one))
            inside = self._outputs[position:end]
            self._buffer += sum(isinstance(o, (Ref, Splat)) for o in inside)
            return HOLE
        is_alike = type(one) is type(other)
        parts, others = children_of(one)[1], children_of(other)[1] if is_alike else []
        if not is_alike or len(parts) != len(others):
            raise NotCompilableError("the structure of its result changes")
        if type(one) is not tuple:
            self.own.append(id(other))
        made = [self.collapse(part, that) for part, that in zip(parts, others, strict=True)]
        unchanged = all(new is old for new, old in zip(made, parts, strict=True))
        return one if unchanged else rebuild(one, made)


class _LeafMaker:
    """Decides how the leaves of one result are made.

    Attributes:
        needs_layout: Whether a leaf is right only for inputs that are C-contiguous.
    """

    def __init__(
        self,
        executable: Executable | LoweredProgram,
        aliases: ResultAliases,
        readers: Mapping[int, Callable[[], Any] | None],
        is_this_size: bool,
    ) -> None:
        self._executable, self._aliases, self._readers = executable, aliases, readers
        self._anew = _freshly_allocated_values(executable.graph)
        self._is_this_size = is_this_size
        self._device: Device = getattr(executable, "device", cpu)
        self.needs_layout = False

    def present_reader(self, entry: _Entry) -> _Derive | None:
        """Return how a leaf is made that is a captured array, or a view of one; None for others."""
        symbol = entry.symbol
        reader = self._readers.get(id(symbol)) if entry.position >= 0 else None
        if reader is not None:
            return lambda values, given: reader()
        alias = self._aliases.by_leaf.get(entry.position)
        is_repeated = alias is not None and alias.view is None
        if type(symbol) not in ARRAYS or entry.is_captured or is_repeated:
            return None
        owner = owner_of(symbol)
        near = [(id, read) for id, read in self._readers.items() if _shows(id, read, owner)]
        if not near:
            if owner is owner_of(entry.leaf):
                raise NotCompilableError("it returns a view of an array that outlives the call")
            return None
        if len(near) > 1 or near[0][1] is None or not self._is_this_size:
            raise NotCompilableError("it returns a view of an array that it reads")
        read = near[0][1]
        view = view_between(symbol, read())
        if view is None:
            raise NotCompilableError("it returns a view of an array that it reads")
        return lambda values, given: view.of(read())

    def check_alias(self, entry: _Entry, alias: Alias, slots: Mapping[int, int]) -> None:
        """Raise NotCompilableError where a leaf cannot be made of another, or of an input."""
        gradients = self._executable.graph.returned_gradients
        if alias.is_input:
            return
        if alias.source not in slots:
            raise NotCompilableError(ALIASED_RESULTS)
        if alias.view is None:
            if gradients.get(entry.position) is not gradients.get(alias.source):
                raise NotCompilableError(ALIASED_RESULTS)
            return
        node = self._executable.plan.outputs[alias.source]
        if entry.position in gradients or node is None or node.kind == "result":
            raise NotCompilableError(ALIASED_RESULTS)

    def leaf(self, entry: _Entry) -> ResultLeaf:
        """Return how a leaf is made that is an output of the program, or a constant."""
        executable, k = self._executable, entry.position
        if entry.at < 0:
            return _constant_leaf(entry.leaf, entry.output)
        if k in executable.graph.returned_gradients:
            return _gradient_leaf(executable, executable.graph.returned_gradients[k], entry.leaf)
        if type(entry.symbol) in ARRAYS:  # ``present_reader`` found that each call makes it anew
            return self._output_leaf(entry)
        # According to the graph, before copies separated aliased results.
        passed_on = (
            executable.sources[k] < 0 and getattr(entry.output, "id", None) not in self._anew
        )
        shared_unseen = (
            backend_of(array_of(entry.leaf)) is not None and type(entry.leaf) is Variable
        )
        if (
            passed_on
            and not shared_unseen
            and not _owns_fresh_memory(array_of(entry.symbol), array_of(entry.leaf))
        ):
            is_input = -2 - len(executable.graph.inputs) < executable.sources[k] < -1
            if not (is_input and self._is_this_size and self._aliases.contiguous):
                raise NotCompilableError("it returns an argument, or a view of one")
            self.needs_layout = True  # of others it may return a view
        return self._output_leaf(entry)

    def _output_leaf(self, entry: _Entry) -> ResultLeaf:
        home = device_of(array_of(entry.leaf))
        if home != self._device and type(entry.leaf) is not float:
            raise NotCompilableError(f"it returns {describe_type(entry.leaf)} on {home}")
        return _output_leaf(entry.leaf, entry.at, entry.symbol)


def _shows(id_of_array: int, read: Callable[[], Any] | None, owner: Any) -> bool:
    """Return whether a captured array lies in the memory of an owner."""
    return id_of_array == id(owner) or (read is not None and owner_of(read()) is owner)


def _derive_leaf(entry: _Entry, alias: Alias, source: int) -> _Derive:
    """Return how a leaf is made of another leaf, or of an input, at ``source``."""
    view, is_input = alias.view, alias.is_input
    if view is None:
        return lambda values, given: (given if is_input else values)[source]
    kept: View = view
    if type(entry.leaf) in ARRAYS:
        return lambda values, given: kept.of(array_of((given if is_input else values)[source]))
    wrap = _output_leaf(entry.leaf, 0, entry.symbol).make
    return lambda values, given: wrap((kept.of(array_of((given if is_input else values)[source])),))


def _owns_fresh_memory(made: Any, before: Any) -> bool:
    """Return whether each call makes a new array that is no view of another.

    Args:
        made: Leaf of the trace.
        before: Leaf of the eager call; the same object in both is passed on, not made.
    """
    if isinstance(made, np.generic):
        return True
    return type(made) in ARRAYS and made.flags.owndata and made is not before


def _freshly_allocated_values(graph: Graph) -> set[int]:
    """Return the values that own their memory in an eager run: results of ufuncs, and ops on them.

    A compiled product by one may be the other factor itself.
    """
    found: set[int] = set()
    for row, operands, _, ids, _ in graph.instructions:
        refs = [o.id for o in operands if isinstance(o, Ref)]
        if row.ufunc is not None or (refs and found.issuperset(refs)):
            found.update(ids)
    return found


def _reshapes_results(graph: Graph) -> bool:
    """Return whether an output is reshaped from what another shows, and so may be a view of it."""
    shown = {
        ids[0]: (row.name, operands[0].id)
        for row, operands, _, ids, _ in graph.instructions
        if row.name in VIEWS and isinstance(operands[0], Ref)
    }
    roots: dict[int, list[bool]] = {}
    for output in graph.outputs:
        if isinstance(output, Ref):
            id, is_reshaped = output.id, False
            while id in shown:
                name, id = shown[id]
                is_reshaped |= name == "reshape"
            roots.setdefault(id, []).append(is_reshaped)
    return any(len(found) > 1 and any(found) for found in roots.values())


def _refuse_changed_attributes(traced: Any, seen: Any) -> None:
    """Refuse a result with containers whose attributes of their own differ from run to run."""
    for (path, one), (other, thing) in zip(extras_in(traced), extras_in(seen), strict=False):
        if path != other or not _is_same_constant(one, thing):
            raise NotCompilableError(
                f"it returns an object with an extra attribute, {_last_attribute(path)}"
            )
    if len(list(extras_in(traced))) != len(list(extras_in(seen))):
        raise NotCompilableError(
            "it returns an object with extra attributes, which differ between calls"
        )


def _last_attribute(path: str) -> str:
    """Return the last attribute of a dotted path."""
    return path.rpartition(".")[2]


def _is_same_constant(one: Any, other: Any) -> bool:
    """Return whether two leaves are one object, or equal constants of one plain type."""
    plain = type(one) is type(other) and type(one) in (int, float, complex, bool, str, bytes)
    return one is other or (plain and repr(one) == repr(other))


def _captured_leaf(leaf: Any) -> ResultLeaf:
    """Return a leaf that is a captured object."""
    return ResultLeaf(lambda outs: leaf, HELD_OBJECT, leaf)


def _constant_leaf(leaf: Any, output: Any) -> ResultLeaf:
    """Return a leaf that is a constant of the trace."""
    plain = leaf is None or type(leaf) in (int, float, complex, bool, str)
    if not plain or type(output) is not type(leaf):
        raise NotCompilableError(f"it returns {describe_type(leaf)}")
    return _captured_leaf(output)  # the eager call may have had other scalars


def _gradient_leaf(executable: Executable | LoweredProgram, variable: Any, leaf: Any) -> ResultLeaf:
    """Return a leaf that is the gradient array the program leaves to a Variable, not a copy."""
    grads = [state for state in executable.graph.states if state.field != "data"]
    left = [id(state.variable) for state in grads if state.update is not None]
    if type(leaf) not in ARRAYS or id(variable) not in left:
        raise NotCompilableError(
            "it returns a gradient of an earlier call, or one that is not an array"
        )
    count = sum(node is not None for node in executable.plan.outputs)
    at = count - len(left) + left.index(id(variable))
    return ResultLeaf(itemgetter(at), ARRAY_RESULT, at)


def _identity(array: Any) -> Any:
    return array


def _is_real_number(symbol: Any) -> bool:
    return isinstance(symbol, Symbol) and is_floating(symbol.dtype) and not symbol.shape


def _refuse_other_promotion(leaf: Any, symbol: Any) -> None:
    """Raise if an eager call on NumPy's arrays made another dtype than a trace, of bfloat16."""
    made, traced = getattr(leaf, "dtype", None), getattr(symbol, "dtype", None)
    if made != traced and traced is not None and is_bfloat16(traced):
        raise NotCompilableError(
            f"it returns {made}, which NumPy makes of bfloat16, where odyssey keeps {traced}; "
            "pass Variables, or call odyssey.ops"
        )


def _output_leaf(leaf: Any, at: int, symbol: Any) -> ResultLeaf:
    """Return a leaf made from an output buffer: a NumPy scalar, array, float or Variable."""
    _refuse_other_promotion(leaf, symbol)
    if isinstance(leaf, np.generic):
        return ResultLeaf(lambda outs: outs[at][()], NUMBER_RESULT, at)
    if type(leaf) in ARRAYS:
        if leaf.base is not None and not is_writable(leaf):
            raise NotCompilableError("it returns an array that cannot be written to")
        return ResultLeaf(lambda outs: outs[at], ARRAY_RESULT, at)
    if type(leaf) is float and _is_real_number(symbol):  # such as the norm that clipping returns
        return ResultLeaf(lambda outs: float(outs[at]), None, at)
    if type(leaf) is not Variable:
        raise NotCompilableError(f"it returns {describe_type(leaf)}")
    # The eager call may have had another size.
    where, info = leaf._recording, leaf._info
    spec = symbol._spec if isinstance(symbol, Value) else leaf._spec
    number = isinstance(leaf._array, np.generic)
    got = itemgetter(()) if number else _identity
    if is_trainable(leaf) or (info is not None and (info.name or info.grad is not None)):
        raise NotCompilableError("it returns a new Variable that has a name or a gradient")
    if not isinstance(where, Mark) and not where.dead:
        raise NotCompilableError("it returns a value on a tape that was not swept yet")
    note = info.note if isinstance(where, Mark) and info is not None else None

    def make(outs: Sequence[Any]) -> Any:
        told = None if note is None else Info(note=note)
        return make_value(Variable, got(outs[at]), where, free_id(), spec, told)

    kind = None if note is not None else NUMBER_VARIABLE_RESULT if number else VARIABLE_RESULT
    return ResultLeaf(make, kind, at, where, spec)
