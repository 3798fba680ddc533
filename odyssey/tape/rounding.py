"""Half-precision storage of what nodes save: ``GradientTape(saved="bfloat16")``.

Rounding happens where a node is appended, and widening where a sweep reads the node, so that ops,
rules and plain tapes do not know of it. These stay as they are:

* leaves, watched Variables and constants, and views of leaves: others hold them anyway;
* arrays of other dtypes than float32, and those of up to 4 kB;
* what checkpoints, custom rules and control flow save;
* what rules choose by: extremes, sorts and bounds other than 0, where rounding would make ties;
* operands and results of factorizations and solvers, whose rules magnify errors by the condition
  number of a matrix;
* an array with a finite number that would become infinite.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.ownership import address_of, owner_of
from odyssey.devices.same_device import call_beside, namespace_of
from odyssey.errors import DTypeError
from odyssey.kernels.half_storage import STORAGE_DTYPES, round_to_halves, widen_halves
from odyssey.kernels.scalars import Term, program
from odyssey.table.kernel_selection import is_numba_avoided

if TYPE_CHECKING:
    from odyssey.table.row import Row

Node = tuple[Any, ...]
"""A node of a recording; see ``RawNode``, which is defined above this module."""

__all__ = ["RoundedArray", "Rounding", "check_storage_dtype", "unrounded_saving"]

# Arrays of up to so many bytes stay: rounding takes as long as many of them.
SMALL = 4096
_FLOAT32 = np.dtype(np.float32)
# The table of shared arrays is searched for dead entries when it has doubled.
_FIRST_LIMIT = 256

_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
_STEPS = {"math.floor", "math.ceil", "math.trunc", "floordiv", "mod"}


def check_storage_dtype(saved: Any) -> str:
    """Return the name of the dtype that a tape stores arrays in.

    Raises:
        DTypeError: it is neither bfloat16 nor float16.
    """
    name = saved
    if not isinstance(saved, str):
        try:
            name = np.dtype(saved).name
        except TypeError:
            name = None
    if name not in STORAGE_DTYPES:
        raise DTypeError(
            f"GradientTape: saved is {format_value(saved)}; pass 'bfloat16' or 'float16', the "
            "dtype in which the tape stores float32 arrays, or leave it out"
        )
    return str(name)


class RoundedArray:
    """Array of float32 numbers in 16 bits, shared by the nodes that save it.

    ``np.asarray`` of it gives the rounded numbers in float32.

    Attributes:
        name: The dtype of storage, ``"bfloat16"`` or ``"float16"``.
        shape: Shape of the array.
        bits: The numbers in 16 bits, in memory order; None where ``exact`` is there instead.
        exact: The array itself, where a node needs it unrounded; else None.
    """

    __slots__ = ("__weakref__", "_axes", "bits", "exact", "name", "shape")

    dtype = _FLOAT32

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.shape = array.shape
        self.exact: Any = array
        self.bits: Any = None
        self._axes: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"<{self}, rounded from float32>" if self.exact is None else f"<{self}>"

    def __str__(self) -> str:
        return f"{'float32' if self.exact is not None else self.name}{list(self.shape)}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = call_beside(self.stored, self.widen)
        # Never the array that nodes share.
        return array.astype(dtype or _FLOAT32, copy=self.exact is not None)

    @property
    def stored(self) -> Any:
        """The array that holds the memory."""
        return self.exact if self.bits is None else self.bits

    @property
    def unrounded_bytes(self) -> int:
        """Size of the array in float32."""
        return 4 * int(np.prod(self.shape, dtype=np.int64))

    def round(self) -> None:
        """Replace the array by its rounded numbers, if all stay finite."""
        array = self.exact
        if array.flags.c_contiguous:
            flat = array.reshape(-1)
        else:
            # The order of memory is that of descending strides; it is restored by ``widen``.
            axes = sorted(range(array.ndim), key=lambda k: -abs(array.strides[k]))
            flat, self._axes = array.transpose(axes).reshape(-1), tuple(axes)
        xp = namespace_of(array)
        flat = xp.ascontiguousarray(flat)
        bits = round_to_halves(flat, self.name, not is_numba_avoided(), xp)
        if bits is not None:
            self.bits, self.exact = bits, None

    def keep_exact(self, array: Any) -> None:
        """Hold the array itself again, for a node that needs it unrounded."""
        self.exact, self.bits = array, None

    def widen(self) -> Any:
        """Return the numbers in float32: a new array, or the exact one."""
        exact, bits = self.exact, self.bits
        if exact is not None:
            return exact
        wide = widen_halves(bits, self.name, not is_numba_avoided(), namespace_of(bits))
        axes = self._axes
        if axes is None:
            return wide.reshape(self.shape)
        inverse = sorted(range(len(axes)), key=axes.__getitem__)
        return wide.reshape([self.shape[k] for k in axes]).transpose(inverse)


def needs_exact_values(row: Row, options: tuple[Any, ...]) -> bool:
    """Return whether the rules of a call need what they read unrounded, see the module."""
    if row.raises or row.primitive == "decompose" or row.rearranges:
        return True
    if not row.selects:
        return False
    try:
        return not _selects_by_sign(row, options)
    except TypeError:  # options that have no hash
        return True


@lru_cache(maxsize=1024)
def _selects_by_sign(row: Row, options: tuple[Any, ...]) -> bool:
    """Return whether an op of one operand chooses by its sign alone, which rounding keeps."""
    if row.scalar is None or len(row.arrays) != 1:
        return False
    try:
        traced = program(row.scalar, 1, options)
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return False  # this scalar needs other options than the op
    zeros = {
        k for k, (name, operands) in enumerate(traced.steps, 1) if name == "T" and operands == (0,)
    }

    def is_input(operand: Any) -> bool:
        return isinstance(operand, Term) and operand.id == 0

    def is_zero(operand: Any) -> bool:
        return operand.id in zeros if isinstance(operand, Term) else operand == 0

    for name, operands in traced.steps:
        if name in _STEPS:
            return False
        if name in _COMPARISONS and not (
            any(map(is_input, operands)) and any(map(is_zero, operands))
        ):
            return False
    return True


class Rounding:
    """Rounding of what the nodes of a recording save.

    Attributes:
        name: The dtype of storage.
        active: True while new nodes are rounded.
        pauses: The number of open blocks of ``unrounded_saving``.
    """

    __slots__ = ("_known", "_leaf_owners", "_limit", "_recording_ref", "active", "name", "pauses")

    def __init__(self, recording: Any, name: str) -> None:
        self.name = name
        self.active = False
        self.pauses = 0
        self._recording_ref = weakref.ref(recording)
        # By memory: the array that owns it, and the RoundedArray; both are held by nodes only.
        self._known: dict[Any, tuple[weakref.ref[Any], weakref.ref[RoundedArray]]] = {}
        self._limit = _FIRST_LIMIT
        # Ids of the arrays that own the memory of leaves and watched Variables.
        self._leaf_owners: set[int] = set()

    def clear(self) -> None:
        """Forget all arrays."""
        self._known.clear()
        self._leaf_owners.clear()

    # -------------------------------------------------------------- appending

    def append(self, node: Node) -> None:
        """Append a node to the recording, rounded."""
        recording = self._recording_ref()
        assert recording is not None  # it calls this
        recording.nodes.append(self.rounded(node))

    def rounded(self, node: Node) -> Node:
        """Return a node with its saved arrays rounded."""
        row, id, inputs, kept, specs = node
        recording = self._recording_ref()
        assert recording is not None
        fixed = [i is None or self._note_leaf(recording, i) for i in inputs]
        if not kept:
            return node
        names, count = row.layout.kept, len(inputs)
        options = range(len(names) - len(row.options), len(names))
        if row.propagate_selection is not None:
            # A call of a function, which runs again on its operands, or gets what it saved.
            exact, options = True, range(count, len(kept))
        else:
            exact = needs_exact_values(row, kept[options.start : options.stop])
        saved: list[Any] = []
        for k, value in enumerate(kept):
            if (k < count and fixed[k]) or k in options:
                saved.append(value)
            elif type(value) is tuple:  # a residual
                saved.append(tuple([self._rounded_array(part, exact) for part in value]))
            else:
                saved.append(self._rounded_array(value, exact))
        return row, id, inputs, tuple(saved), specs

    def _note_leaf(self, recording: Any, id: int) -> bool:
        """Return whether an operand is a leaf or watched, and note who owns its memory."""
        value = recording.leaves.get(id)
        if value is None and (ref := recording.watched.get(id)) is not None:
            value = ref()
        if value is None:
            return False
        if isinstance(value._array, ARRAYS) and value._array.nbytes > SMALL:
            self._leaf_owners.add(_id_of_owner(value._array))
        return True

    def _rounded_array(self, array: Any, exact: bool) -> Any:
        """Return what a node keeps of an array."""
        if not isinstance(array, ARRAYS) or array.dtype != _FLOAT32 or array.nbytes <= SMALL:
            return array
        owner = owner_of(array)
        # What is broadcast takes no memory.
        if id(owner) in self._leaf_owners or owner.nbytes < array.nbytes:
            return array
        shared = self._shared_array(owner, array)
        if exact:
            shared.keep_exact(array)
        elif shared.bits is None and shared.exact is array:
            call_beside(array, shared.round)
        return shared

    def _shared_array(self, owner: Any, array: Any) -> RoundedArray:
        """Return the RoundedArray of an array: a new one, or that of an earlier node."""
        key = _memory_key(owner, array)
        known = self._known.get(key)
        if known is not None and known[0]() is owner and (shared := known[1]()) is not None:
            return shared
        shared = RoundedArray(self.name, array)
        self._share(key, owner, shared)
        return shared

    def _share(self, key: Any, owner: Any, shared: RoundedArray) -> None:
        if len(self._known) >= self._limit:
            alive = {k: v for k, v in self._known.items() if None not in (v[0](), v[1]())}
            self._known, self._limit = alive, max(_FIRST_LIMIT, 2 * len(alive))
        self._known[key] = weakref.ref(owner), weakref.ref(shared)

    # -------------------------------------------------------------- reading

    def widened(self, node: Node, share: bool = False) -> Node:
        """Return a node with its saved arrays in float32.

        Args:
            node: The node.
            share: Nodes that save the widened arrays again are to share what this node holds.
        """
        kept = node[3]
        if not kept or not any(map(_is_rounded, kept)):
            return node
        row = node[0]
        wide: dict[int, Any] = {}
        # The slopes of an elementwise loop, beside which a rule reads nothing: see scalar_loop.
        has_slopes = len(kept) > len(row.layout.kept) and type(kept[-1]) is tuple
        skipped = 1 if has_slopes and row.elementwise and not (row.foreign or share) else 0

        def widen(value: Any) -> Any:
            if type(value) is not RoundedArray:
                return value
            if id(value) not in wide:
                wide[id(value)] = array = call_beside(value.stored, value.widen)
                if share:
                    owner = owner_of(array)
                    self._share(_memory_key(owner, array), owner, value)
            return wide[id(value)]

        values = list(kept)
        for k, value in enumerate(kept[skipped:], skipped):
            values[k] = tuple(map(widen, value)) if type(value) is tuple else widen(value)
        return *node[:3], tuple(values), node[4]

    def widened_if_reached(self, cotangents: dict[int, Any], node: Node) -> Node:
        """Return a node widened, if a backward sweep reaches it."""
        return self.widened(node) if node[1] in cotangents else node

    def widened_if_moved(self, tangents: dict[int, Any], node: Node) -> Node:
        """Return a node widened, if a forward sweep reaches it."""
        return self.widened(node) if any(i in tangents for i in node[2]) else node


def _is_rounded(value: Any) -> bool:
    if type(value) is tuple:
        return any(type(part) is RoundedArray for part in value)
    return type(value) is RoundedArray


def _id_of_owner(array: Any) -> int:
    return id(owner_of(array))


def _memory_key(owner: Any, array: Any) -> tuple[Any, ...]:
    return id(owner), address_of(array), array.shape, array.strides


@contextmanager
def unrounded_saving(recording: Any) -> Iterator[None]:
    """In this block, nodes of a recording save arrays as they are.

    For a function that runs again, which is compared with its first run.
    """
    rounding = recording.rounding
    if rounding is None:
        yield
        return
    rounding.pauses += 1
    recording.refresh()
    try:
        yield
    finally:
        rounding.pauses -= 1
        recording.refresh()
