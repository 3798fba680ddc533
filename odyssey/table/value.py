"""Values of the table: numbers, arrays, Variables (Value), and Symbols."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from operator import attrgetter, setitem
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from odyssey.checks import is_called_by_user
from odyssey.devices.arrays import ARRAYS, NUMPY_SCALARS
from odyssey.devices.backends import backend_of
from odyssey.devices.commit import Plan, commit
from odyssey.devices.copy_on_write import has_exclusive_array
from odyssey.devices.ownership import is_writable
from odyssey.devices.same_device import fill_beside
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.protocols import Recording
from odyssey.tree_objects import variable_type

__all__ = [
    "CONSTANT",
    "LEAF",
    "NUMBERS",
    "PLAIN",
    "UNTRACKED",
    "Info",
    "Mark",
    "SharedVersion",
    "Symbol",
    "Traced",
    "Value",
    "Weak",
    "array_of",
    "assign_plan",
    "free_id",
    "is_constant",
    "is_tracked",
    "is_trainable",
    "is_untracked",
    "make_value",
    "move_to",
    "next_ticket",
    "recording_attribute",
    "write_plan",
]

# Ids of leaves and constants. Results on a tape take theirs from the tape's own blocks, far above.
free_id = itertools.count(1).__next__

# Numbers of writes to leaves, and of moments between them: where two moments have numbers that
# follow each other, there was no write in between.
next_ticket = count(1).__next__

NUMBERS = frozenset({int, float, complex, bool})
PLAIN = NUMBERS.union(ARRAYS, NUMPY_SCALARS)


class Mark:
    """The ``_recording`` of a Value that is on no recording.

    ``block`` yields no ids, which sends fast paths to the general path, as a recording that is off
    does; and no leaf has its ``mark``.
    """

    __slots__ = ("name",)

    block: Iterator[int] = iter(())
    mark = object()

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


CONSTANT = Mark("constant")
LEAF = Mark("trainable leaf")
UNTRACKED = Mark("untracked")


# Of leaves that are written to alone.
_UNSHARED: list[float] = [0, 0]

# A number that differs from itself, and so from every version that a tape has noted.
BEING_WRITTEN = float("nan")


class Info:
    """Data of a leaf, and of a few constants, besides its array.

    Attributes:
        name: For messages.
        grad: The accumulated gradient, or None.
        loan: A weak reference to the ``Gradients`` that shares ``grad``'s memory, or None.
        own: The number of this leaf's own writes; NaN, which differs from itself, during one.
        shared: A list with the same number for all leaves that are written to together, and how
            many these are.
        home: A weak reference to the tape that made the leaf, or None.
        lender: The Variable that this constant is an alias of, for a checkpoint; an assignment
            writes to both as long as they share an array.
        note: Why a constant is one: a word and the ids that it was computed from.
        sparse_grad: Whether gradients of few rows stay ``SparseRows``.
        watched: The id of the value that a tape gave this Variable when it was watched, or None;
            an item assignment since gave the Variable another value, and so another id.
    """

    __slots__ = (
        *("grad", "home", "lender", "loan", "name", "note", "own", "shared", "sparse_grad"),
        "watched",
    )

    any_sparse: ClassVar[bool] = False  # whether any leaf of this process has sparse_grad

    def __init__(self, name: str | None = None, note: tuple[str, tuple[int, ...]] | None = None):
        self.name = name
        self.note = note
        self.grad: Any = None
        self.loan: Any = None
        self.home: Any = None
        self.lender: Any = None
        self.own: float = 0
        self.shared = _UNSHARED
        self.sparse_grad = False
        self.watched: int | None = None

    @property
    def version(self) -> float:
        """Another number after each write to the data; none while it is written to."""
        return self.own + self.shared[0]


class Value:
    """The part of a Variable that ops read: its data, its spec, and its place on a recording.

    ``_recording`` is a recording or one of the three marks; ``_info`` is an Info, or None.
    ``_placed`` is the mark of the latest recording that took this leaf up, or of the one that met
    this constant; it means nothing for others, and results of shortcuts lack it.
    """

    __slots__ = ("__weakref__", "_array", "_id", "_info", "_placed", "_recording", "_spec")

    _array: Any
    _spec: Spec
    _recording: Recording | Mark
    _placed: Any
    _id: int
    _info: Any

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""
        return self._spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._spec.size

    @property
    def id(self) -> int:
        """A number that no other Variable of this process has or had."""
        if isinstance(self._array, Symbol) and is_called_by_user():
            graph: Any = self._array.graph
            graph.only_eagerly("it calls id() on a Variable that is a new one in each run")
        return self._id

    @property
    def is_leaf(self) -> bool:
        """Whether this is a Variable that no op made on a tape."""
        return isinstance(self._recording, Mark)


# Where a Value stands: on a recording, or at one of the three marks. In C, for those who ask often.
recording_attribute: Callable[[Value], Any] = attrgetter("_recording")


def is_trainable(value: Value) -> bool:
    """Whether this is a trainable leaf."""
    return value._recording is LEAF


def is_constant(value: Value) -> bool:
    """Whether no gradient flows through this."""
    return value._recording is CONSTANT


def is_untracked(value: Value) -> bool:
    """Whether this came from a trainable leaf while nothing recorded."""
    return value._recording is UNTRACKED


def is_tracked(thing: Any) -> bool:
    """Whether a thing is a Value, and not a constant."""
    return isinstance(thing, Value) and thing._recording is not CONSTANT


def move_to(value: Value, recording: Recording) -> None:
    """Let a constant stand for a result of ``recording`` from now on."""
    value._recording = recording


def array_of(value: Any) -> Any:
    """The array, or Symbol, of a Value; all else as it is."""
    return value._array if isinstance(value, Value) else value


V = TypeVar("V", bound=Value)


def make_value(
    cls: type[V],
    data: Any,
    recording: Recording | Mark,
    id: int,
    spec: Spec | None = None,
    info: Any = None,
) -> V:
    """Build a Value without running its class's public constructor."""
    value = cls.__new__(cls)
    value._array = data
    value._spec = spec_of(data) if spec is None else spec
    value._recording = recording
    value._placed = None
    value._id = id
    value._info = info
    return value


def next_version(number: float) -> float:
    """The number after ``number``, which was broken off in a write if it is none."""
    return number + 1 if number == number else next_ticket()


def write_plan(leaf: Value, calls: Plan | None = None) -> Plan:
    """The calls of a write to a leaf, and those that note it, for one ``commit``.

    Args:
        leaf: What is written to.
        calls: The calls that write; between the two numbers, other threads know of it.
    """
    info = leaf._info
    if info is None:
        return calls or []
    # A tape that took the leaf up, but has no use of it yet, looks again. A sweep elsewhere that
    # drew its ticket before this one notices; one that draws it later finds the version.
    begin = [
        (setattr, info, "own", BEING_WRITTEN),
        (setattr, leaf, "_placed", None),
        (next_ticket,),
    ]
    return [*begin, *(calls or ()), (setattr, info, "own", next_version(info.own))]


class SharedVersion:
    """The writes to leaves that are written to together: they share one number.

    Args:
        leaves: Trainable leaves, whose versions stay what they are until the first write.
    """

    def __init__(self, leaves: Sequence[Value]) -> None:
        self._leaves = leaves
        self._number: list[float] = [0, len(leaves)]
        self._begin: Plan = [(setitem, self._number, 0, BEING_WRITTEN), (next_ticket,)]
        for leaf in leaves:
            info = leaf._info
            version = info.version
            own = version if version == version else next_ticket()
            commit([(setattr, info, "own", own), (setattr, info, "shared", self._number)])

    def writing(self, calls: Plan) -> Plan:
        """The calls of a write to all, and those that note it, for one ``commit``."""
        for leaf in self._leaves:
            leaf._placed = None  # to look again does no harm, and takes C five times as long
        return [*self._begin, *calls, (setitem, self._number, 0, next_version(self._number[0]))]


def assign_plan(leaf: Value, array: Array) -> Plan:
    """The calls that write ``array`` to a leaf; it has the leaf's dtype, and fits its shape.

    Where anything else refers to the leaf's array, the leaf gets a new one (copy on write); so does
    one on a device, where a write may fail for want of memory.
    """
    on_host = backend_of(leaf._array) is None
    if on_host and has_exclusive_array(leaf) and is_writable(leaf._array):
        return write_plan(leaf, [(setitem, leaf._array, ..., array)])
    new = fill_beside(leaf._array, array)
    plan: Plan = []
    target: Value | None = leaf
    while target is not None and target._array is leaf._array:
        plan += write_plan(target, [(setattr, target, "_array", new)])
        target = target._info and target._info.lender
    return plan


class Graph(Protocol):
    """Interface of the graph that a Symbol belongs to."""

    def emit(self, row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """Append one instruction and return its result: a Symbol, or several."""


class Traced:
    """A traced value: it names the graph in which ops on it are recorded."""

    __slots__ = ("graph",)

    graph: Any


class Weak(Traced):
    """A Python number of a graph under construction, which takes on the dtype of arrays.

    It behaves as a number does; the trace calls the static methods of its class.
    """

    __slots__ = ()

    @staticmethod
    def expression_and_number(weak: Any) -> tuple[Any, Any]:
        """Return how the number is computed, and its value in this trace."""
        raise NotImplementedError

    @staticmethod
    def fix_value(weak: Any, question: str) -> Any:
        """Return the value in this trace, and fix it for all later runs."""
        raise NotImplementedError

    @staticmethod
    def restrict_to_int64(weak: Any) -> None:
        """Make integers that are computed from it int64, in every run."""
        raise NotImplementedError


class Symbol(Traced):
    """A value of a graph under construction: shape and dtype, no data."""

    __slots__ = ("id", "spec")

    def __init__(self, spec: Spec, graph: Graph, id: int) -> None:
        self.spec = spec
        self.graph = graph
        self.id = id

    shape = property(lambda self: self.spec.shape)
    dtype = property(lambda self: self.spec.dtype)
    ndim = property(lambda self: len(self.spec.shape))
    size = property(lambda self: self.spec.size)

    def __repr__(self) -> str:
        return f"%{self.id}: {self.spec}"


variable_type(Value)
variable_type(Traced)
