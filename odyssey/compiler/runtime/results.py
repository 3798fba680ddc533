"""Results: rebuild the function's result, a tree of Variables, arrays and scalars, from buffers.

Called by ``compiled_call`` after each run; ``dispatch_tables`` writes the leaves into tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

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
from odyssey.compiler.runtime.executable import Executable
from odyssey.devices.ownership import may_alias
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
from odyssey.tree import containers, extras_in, leaves, unflatten
from odyssey.variable import Variable

__all__ = ["ResultLeaf", "ResultBuilder", "NotCompilableError"]


_NONE_PASSED: Mapping[int, int] = MappingProxyType({})


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
        passed: For each leaf that is an argument itself, the position of that argument.

    Attributes:
        leaves: How each leaf is made.
        passes: Whether a leaf is an argument: the arguments then follow the output buffers.
        bare: Whether the result is a single leaf.
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
        passed: Mapping[int, int] = _NONE_PASSED,
    ) -> None:
        self.tree, self.passes = traced, bool(passed)
        symbols, found = leaves(traced), leaves(seen)
        if len(symbols) != len(found):
            raise NotCompilableError("the structure of its result changes")
        outputs = executable.graph.outputs
        anew = _freshly_allocated_values(executable.graph)
        place = iter(range(len(executable.plan.outputs)))
        known: dict[int, int] = {}
        self.leaves: list[ResultLeaf] = []
        _refuse_aliased_results([array_of(leaf) for leaf in found])
        if aliases_states(found, executable.graph):
            raise NotCompilableError("it returns a view of a Variable's array")
        for k, (symbol, leaf, output) in enumerate(zip(symbols, found, outputs, strict=True)):
            if not isinstance(output, (Ref, Splat)):
                self.leaves.append(_constant_leaf(leaf, output))
                continue
            at = next(place)
            if symbol is leaf:  # a captured object
                self.leaves.append(_captured_leaf(leaf))
                continue
            if id(symbol) in known and isinstance(symbol, (Value, Symbol)):
                raise NotCompilableError("it returns one value twice")
            known[id(symbol)] = k
            if k in passed:
                self.leaves.append(_argument_leaf(executable, output, passed[k]))
                continue
            if k in executable.graph.returned_gradients:
                self.leaves.append(
                    _gradient_leaf(executable, executable.graph.returned_gradients[k], leaf)
                )
                continue
            # According to the graph, before copies separated aliased results.
            there = executable.sources[k] < 0 and getattr(output, "id", None) not in anew
            if there and not _owns_fresh_memory(array_of(symbol), array_of(leaf)):
                raise NotCompilableError("it returns an argument, or a view of one")
            self.leaves.append(_output_leaf(leaf, at, symbol))
        self.bare = len(self.leaves) == 1 and leaves(traced)[0] is traced
        self.held = traced is seen  # a captured object
        if not self.held:
            _refuse_captured_containers(traced, seen)

    def build(self, outs: Sequence[Any]) -> Any:
        """Return the result for filled output buffers."""
        if self.held:
            return self.tree
        if self.bare:
            return self.leaves[0].make(outs)
        return unflatten(self.tree, [leaf.make(outs) for leaf in self.leaves])


def _owns_fresh_memory(made: Any, before: Any) -> bool:
    """Return whether each call makes a new array that is no view of another.

    Args:
        made: Leaf of the trace.
        before: Leaf of the eager call; the same object in both is passed on, not made.
    """
    if isinstance(made, np.generic):
        return True
    return type(made) is ndarray and made.flags.owndata and made is not before


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


def _refuse_captured_containers(traced: Any, seen: Any) -> None:
    """Refuse a result with containers that are the same in each call, or that repeat."""
    own = {id(one) for one, _ in containers(traced) if type(one) is not tuple}
    found = [id(one) for one, _ in containers(seen) if type(one) is not tuple]
    if not own.isdisjoint(found):
        raise NotCompilableError("it returns a captured container")
    if len(set(found)) != len(found):
        raise NotCompilableError("it returns one container twice")
    for (path, one), (other, thing) in zip(extras_in(traced), extras_in(seen), strict=False):
        if path != other or not _is_same_constant(one, thing):
            raise NotCompilableError(
                f"what it returns has an attribute of its own, {_last_attribute(path)}"
            )
    if len(list(extras_in(traced))) != len(list(extras_in(seen))):
        raise NotCompilableError("what it returns has attributes of its own, which change")


def _last_attribute(path: str) -> str:
    """Return the last attribute of a dotted path."""
    return path.rpartition(".")[2]


def _is_same_constant(one: Any, other: Any) -> bool:
    """Return whether two leaves are one object, or equal constants of one plain type."""
    plain = type(one) is type(other) and type(one) in (int, float, complex, bool, str, bytes)
    return one is other or (plain and repr(one) == repr(other))


def _refuse_aliased_results(found: Sequence[Any]) -> None:
    """Refuse results that alias one another."""
    arrays = [array for array in found if type(array) is ndarray and array.size]
    for k, one in enumerate(arrays):
        if may_alias(one, arrays[k + 1 :]):
            raise NotCompilableError("two of its results share memory")


def _captured_leaf(leaf: Any) -> ResultLeaf:
    """Return a leaf that is a captured object."""
    return ResultLeaf(lambda outs: leaf, HELD_OBJECT, leaf)


def _constant_leaf(leaf: Any, output: Any) -> ResultLeaf:
    """Return a leaf that is a constant of the trace."""
    plain = leaf is None or type(leaf) in (int, float, complex, bool, str)
    if not plain or type(output) is not type(leaf):
        raise NotCompilableError(f"it returns {describe_type(leaf)}")
    return _captured_leaf(output)  # the eager call may have had other scalars


def _argument_leaf(executable: Executable | LoweredProgram, output: Any, place: int) -> ResultLeaf:
    """Return a leaf that is an argument itself; the program has a private copy."""
    inputs = executable.graph.inputs
    if output != Ref(inputs[place][0]):
        raise NotCompilableError("it returns an argument, and the graph has another value there")
    return ResultLeaf(itemgetter(place - len(inputs)), None, None)


def _gradient_leaf(executable: Executable | LoweredProgram, variable: Any, leaf: Any) -> ResultLeaf:
    """Return a leaf that is the gradient array the program leaves to a Variable, not a copy."""
    grads = [state for state in executable.graph.states if state.field == "grad"]
    left = [id(state.variable) for state in grads if state.update is not None]
    if type(leaf) is not ndarray or id(variable) not in left:
        raise NotCompilableError("it returns a gradient that was there before, or no array")
    count = sum(node is not None for node in executable.plan.outputs)
    at = count - len(left) + left.index(id(variable))
    return ResultLeaf(itemgetter(at), ARRAY_RESULT, at)


def _identity(array: Any) -> Any:
    return array


def _is_real_number(symbol: Any) -> bool:
    return isinstance(symbol, Symbol) and symbol.dtype.kind == "f" and not symbol.shape


def _output_leaf(leaf: Any, at: int, symbol: Any) -> ResultLeaf:
    """Return a leaf made from an output buffer: a NumPy scalar, array, float or Variable."""
    if isinstance(leaf, np.generic):
        return ResultLeaf(lambda outs: outs[at][()], NUMBER_RESULT, at)
    if type(leaf) is ndarray:
        if leaf.base is not None and not leaf.flags.writeable:
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
        raise NotCompilableError("it returns a Variable that it made, with a name or a gradient")
    if not isinstance(where, Mark) and not where.dead:
        raise NotCompilableError("it returns a value on a tape that is still to be swept")
    note = info.note if isinstance(where, Mark) and info is not None else None

    def make(outs: Sequence[Any]) -> Any:
        told = None if note is None else Info(note=note)
        return make_value(Variable, got(outs[at]), where, free_id(), spec, told)

    kind = None if note is not None else NUMBER_VARIABLE_RESULT if number else VARIABLE_RESULT
    return ResultLeaf(make, kind, at, where, spec)
