"""GradientTape: the tape that users enter, sweep and inspect."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import Text, check_callable, check_flag
from odyssey.devices.same_device import array_copy
from odyssey.errors import TapeError
from odyssey.ops.structure.shape import identity
from odyssey.spec import Array, spec_of
from odyssey.table.registry import op_names
from odyssey.table.scope import Pause, innermost_scope
from odyssey.table.store import MEMORY, store
from odyssey.table.tree_sources import fixed_leaves
from odyssey.table.value import (
    LEAF,
    Info,
    Symbol,
    free_id,
    is_tracked,
    is_trainable,
    make_value,
)
from odyssey.tape import manual, queries
from odyssey.tape.gradients import Gradients
from odyssey.tape.hooks import unique_hook
from odyssey.tape.queries import Sources
from odyssey.tape.tape_base import NoRecording, TapeBase
from odyssey.tape.validation import source_id
from odyssey.tree import leaves, unflatten
from odyssey.variable import Variable, check_trainable

if TYPE_CHECKING:
    from odyssey.tape.report import Memory, TapeNode

__all__ = ["GradientTape"]

new: Any = object.__new__


class _HideRecorders(type):
    """Metaclass that hides the 300 ``record_<op>`` from ``dir(GradientTape)`` and ``help``."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("record_")]


class GradientTape(TapeBase, metaclass=_HideRecorders):
    """Records ops on Variables, and differentiates what it recorded.

    Inside ``with GradientTape() as tape:`` every op on a trainable leaf, or on what came from
    one, appends a node. ``backward``, ``gradient`` and ``jvp`` sweep over the nodes. A tape
    that is opened inside another joins its recording, so sweeps can be differentiated.

    Args:
        persistent: Keep the nodes after a sweep, for more sweeps.
        check: Be careful and slow: note source lines, find saved arrays that were written to,
            verify manual records, and report the first value that is not finite and that a
            sweep uses, or the first such gradient, with its op, line, index and operands. Warn
            of the first op where a constant turns float32 to float64; NumPy's warnings point
            to the line of the user.
        saved: ``"bfloat16"`` or ``"float16"``, to store in half precision what nodes save of
            float32 arrays above 4 kB: about half the memory, results to the bit, gradients within
            the rounding of these arrays (at most 2**-8 or 2**-11 of a number). Leaves, constants
            and what rules choose by stay as they are. For eager code: a compiled function with it
            runs as it was written, and takes less memory without it.

    Raises:
        DTypeError: if ``saved`` is another dtype.

    >>> w = Variable(3.0, requires_grad=True)
    >>> with GradientTape() as tape:
    ...     y = w * w
    >>> float(tape.gradient(y, w))
    6.0
    """

    def __init__(self, *, persistent: bool = False, check: bool = False, saved: Any = None) -> None:
        if persistent is not False:
            persistent = check_flag("GradientTape", "persistent", persistent)
        if check is not False:
            check = check_flag("GradientTape", "check", check)
        if saved is not None:
            from odyssey.tape.rounding import check_storage_dtype

            saved = check_storage_dtype(saved)
        super().__init__(persistent, check, saved)

    def __dir__(self) -> list[str]:
        """Names without the 300 ``record_<op>``, which would bury the others at a tab."""
        return [name for name in super().__dir__() if not name.startswith("record_")]

    def no_recording(self) -> NoRecording:
        """Pause this tape in a block; what is computed there is constant to it."""
        return NoRecording(self)

    # -------------------------------------------------------------- contents

    def __len__(self) -> int:
        return 0 if self._consumed else len(self._recording.nodes)

    def __bool__(self) -> bool:
        return True

    @property
    def nodes(self) -> list[TapeNode]:
        """The nodes in order of recording; a copy for reading."""
        from odyssey.tape import report

        return report.nodes_of(self)

    @property
    def ids(self) -> frozenset[int]:
        """Ids of everything this tape knows: leaves, watched values, constants and results."""
        if self._consumed:
            return frozenset()
        r = self._recording
        results = [node[1] for node in r.nodes]
        constants = (id for id, ref in r.constants.items() if ref() is not None)
        return frozenset((*r.leaves, *constants, *results))

    def variable(self, data: Any, name: str | None = None) -> Variable:
        """Return a trainable leaf whose uses this tape records, entered or not, while enabled."""
        return Variable(data, requires_grad=True, name=name, tape=self)

    def constant(self, data: Any) -> Variable:
        """Return a constant whose id this tape knows, for manual records."""
        return self._adopt(Variable(data))

    def _adopt(self, variable: Variable) -> Variable:
        if self._consumed or self._recording.dead:
            self._start_recording()
        if is_trainable(variable):
            variable._own_info().home = weakref.ref(self)
            self._recording.operand_id(variable)
        else:
            self._recording.constants[variable.id] = weakref.ref(variable)
        return variable

    def watch(self, tree: Any) -> Any:
        """Return the tree with each leaf as a Variable of this tape, whose gradient can be asked.

        Args:
            tree: Arrays, numbers or Variables in any nest of containers. Constants, integers and
                numbers below a plain object are not watched. All stay untouched;
                what the gradient of a watched trainable leaf is, reaches the leaf as well. What
                is asked of a watched Variable is answered for its value here, whatever is written
                to it later.

        Raises:
            DTypeError: for integers, which have no gradient.
        """
        if not self.enabled or isinstance(innermost_scope(), Pause):
            raise TapeError(f"watch: {self._recording!r} records nothing now; enter or enable it")
        flat = leaves(tree)
        fixed = fixed_leaves(tree, flat)
        found = [leaf if k in fixed else self._watch_one(leaf) for k, leaf in enumerate(flat)]
        return unflatten(tree, found)

    def _watch_one(self, value: Any) -> Variable:
        if store() is not MEMORY and isinstance(value, Variable):
            (value,) = store().localize([value])
        is_known = is_tracked(value)
        if not is_known:
            data = value.data if isinstance(value, Variable) else value
            if not isinstance(data, Symbol):
                data = Variable(data)._array
            check_trainable(data.dtype)
            # No copy of the data: the identity below makes one.
            value = make_value(Variable, data, LEAF, free_id(), info=Info())
        watched: Variable = identity(value, tape=self)
        if not is_known:
            # No user has the temporary leaf, so its own gradient is never needed.
            self._recording.leaves.pop(value.id)
            self._recording.versions.pop(value.id)
        watched._own_info().watched = watched._id
        self._recording.watched[watched._id] = weakref.ref(watched)
        return watched

    def _watch_arrays(self, arrays: list[Array], sources: Sources) -> list[Variable]:
        """``watch`` for arrays, which are copied: Variables that no node produced.

        Args:
            arrays: Arrays of floating numbers.
            sources: Gets their ids, specs and arrays. A function that gets the Variables may write
                to them, after which they have other values.
        """
        recording = self._recording
        if not recording.on:
            raise TapeError(f"watch: {recording!r} records nothing now; enter or enable it")
        variables: list[Variable] = []
        watched, ref = recording.watched, weakref.ref
        for array in arrays:
            # Keeps the layout, like ``np.array``, in half its time. A view, so that it is copied
            # when a user reads it.
            data = (array.copy("K") if type(array) is np.ndarray else array_copy(array))[()]
            value = new(Variable)  # make_value() inlined: half the total time
            value._array = data
            value._spec = spec = spec_of(data)
            value._recording = recording
            value._id = id = recording.new_id()
            value._info = None
            watched[id] = ref(value)
            sources.ids.append(id)
            sources.specs.append(spec)
            sources.arrays.append(data)
            variables.append(value)
        return variables

    def clear_grads(self) -> None:
        """Set the gradient of every leaf of this tape to None."""
        for leaf in self._recording.leaves.values():
            leaf.zero_grad()  # type: ignore[attr-defined]

    # -------------------------------------------------------------- recording by hand

    def record(self, op: Any, inputs: Any, output: Any, **saved: Any) -> None:
        """Append a node by hand; ``record_<op>(x, y, out)`` is the same with the op in the name.

        Args:
            op: An op, or its name.
            inputs: Variables, or ids that this tape knows.
            output: A constant, which becomes this node's result, or an id that no node produced.
            saved: What the op's rules ask for and the inputs cannot tell, and its options.

        Raises:
            TapeError: for a tape that does not record, an unknown input, an output that is known.
        """
        manual.record_node(self, op, inputs, output, saved)

    if TYPE_CHECKING:
        # ``record_<op>`` for every op of the table: methods that are added below. A real
        # ``__getattr__`` would slow down every attribute access of every tape.
        def __getattr__(self, name: str) -> Any: ...

    # -------------------------------------------------------------- sweeps

    def backward(self, output: Any, grad: Any = None, *, retain: bool = False) -> Gradients:
        """Add the gradients of ``output`` to the ``.grad`` of every trainable leaf that it used.

        Args:
            output: A Variable recorded here, a trainable leaf, or a tree of them.
            grad: Its cotangent, of its shape; may be left out where there is one element.
            retain: Keep the nodes for another sweep.

        Returns:
            This sweep's cotangents, by Variable.

        Raises:
            TapeConsumedError, TapeError, ShapeError, DTypeError, MutationError: and then nothing
            has changed.
        """
        try:
            return queries.run_backward(self, output, grad, retain)
        except BaseException as error:
            self._close_failed_sweep(error)
            raise

    def gradient(
        self,
        output: Any,
        sources: Any,
        grad: Any = None,
        *,
        unused: str = "error",
        create_graph: bool = False,
    ) -> Any:
        """Return the gradients of ``output`` with respect to ``sources``; touch no ``.grad``.

        Args:
            output: A Variable recorded here, or a tree of them.
            sources: A Variable (leaf, watched, or intermediate), its id, or a tree of them.
            grad: The cotangent of ``output``; may be left out where there is one element.
            unused: What a source gets that ``output`` does not depend on, be it a constant or a
                frozen leaf: ``"error"`` raises, ``"zero"`` gives zeros, ``"none"`` gives None.
            create_graph: Record the sweep, so that its results can be differentiated; keeps
                the tape.

        Returns:
            Arrays in the shape of ``sources``; Variables when the sweep was recorded.

        Raises:
            TapeConsumedError, TapeError, ShapeError, DTypeError, MutationError: and then nothing
            has changed.

        >>> x = Variable(2.0, requires_grad=True)
        >>> with GradientTape(persistent=True) as tape:
        ...     y = x * x * x
        >>> slope = tape.gradient(y, x, create_graph=True)
        >>> float(slope), float(tape.gradient(slope, x))
        (12.0, 12.0)
        """
        try:
            return queries.run_gradient(self, output, sources, grad, unused, create_graph)
        except BaseException as error:
            self._close_failed_sweep(error)
            raise

    def jvp(self, output: Any, sources: Any, tangents: Any, *, unused: str = "error") -> Any:
        """Return how ``output`` changes when ``sources`` move along ``tangents``.

        A forward sweep over the same nodes; it keeps the tape, and is recorded while a tape that
        encloses this one records.

        Args:
            output: A Variable recorded here, or a tree of them.
            sources: A Variable or a tree of them.
            tangents: Arrays of the shapes of ``sources``, in the same tree.
            unused: What an output gets that depends on no source, or is a constant: ``"error"``
                raises, ``"zero"`` gives zeros, ``"none"`` gives None. Unless it is ``"error"``,
                sources may be constants or frozen leaves, which move nothing.

        Returns:
            Tangents in the shape of ``output``.

        Raises:
            TapeConsumedError: after a sweep that consumed the tape.

        >>> x = Variable([1.0, 2.0], requires_grad=True)
        >>> with GradientTape() as tape:
        ...     y = (x * x).sum()
        >>> float(tape.jvp(y, x, [1.0, 10.0]))
        42.0
        """
        return queries.run_jvp(self, output, sources, tangents, unused)

    def on_gradient(self, variable: Variable, fn: Callable[[Any], Any]) -> None:
        """Call ``fn(g)`` once, when the cotangent of ``variable`` is complete in the next sweep.

        What it returns, unless None, replaces the cotangent, and must have its shape. Given during
        a sweep it is called in that one, if the cotangent is not complete yet.
        """
        id = source_id(self, "on_gradient", variable)
        assert id is not None  # None stands for constants, which are refused here
        given = unique_hook(check_callable("on_gradient", fn))
        self._hooks[id] = (*self._hooks.get(id, ()), given)

    # -------------------------------------------------------------- reports, loaded on first use

    def explain(self, output: Variable, source: Variable) -> Text:
        """Return how ``output`` depends on ``source``: the path of ops, or what broke it."""
        from odyssey.tape import report

        return Text(report.explain_dependence(self, output, source))

    def memory(self) -> Memory:
        """Return what this tape holds in memory, by node and in total."""
        from odyssey.tape import report

        return report.memory_use(self)

    def to_dot(self) -> Text:
        """Return the graph in Graphviz's language."""
        from odyssey.tape import report

        return Text(report.to_dot(self))

    def to_mermaid(self) -> Text:
        """Return the graph in Mermaid's language."""
        from odyssey.tape import report

        return Text(report.to_mermaid(self))

    def _repr_html_(self) -> str:
        from odyssey.tape import report

        return report.to_html(self)


def _recorder(op: str) -> Callable[..., None]:
    def record_op(self: GradientTape, *ids: Any, **saved: Any) -> None:
        manual.record_positional(self, op, *ids, **saved)

    record_op.__name__ = f"record_{op}"
    record_op.__qualname__ = f"GradientTape.{record_op.__name__}"
    record_op.__doc__ = f"Record ``{op}`` by hand: its inputs, then its output; see ``record``."
    return record_op


for _name in op_names(composites=False, others=True):
    setattr(GradientTape, f"record_{_name}", _recorder(_name))
