"""Variable: an array with a gradient, whose uses a tape records."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from copy import deepcopy
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odyssey import checks
from odyssey.checks import (
    STUMBLES,
    check_flag,
    check_name,
    error_class_of,
    format_value,
    is_called_by_user,
)
from odyssey.devices.arrays import as_array, native_dtype
from odyssey.devices.device import Device, as_device, copy_to_device, cpu, device_of, transfer_array
from odyssey.devices.half_dtypes import is_inexact, named_dtype
from odyssey.devices.same_device import array_copy, host_array, place_as
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import (
    DeviceError,
    DTypeError,
    OdysseyError,
    SettingError,
    ShapeError,
    TapeError,
    UntrackedError,
)
from odyssey.floating_point_errors import isolate_errstate
from odyssey.ops.structure.indexing import (
    CapturedIndexError,
    UnknownIndexError,
    known_positions,
    setitem,
)
from odyssey.ops.structure.shape import astype
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Array, fits_kind, spec_of
from odyssey.table import fast_calls
from odyssey.table.declare import op
from odyssey.table.protocols import Tape
from odyssey.table.registry import load_module
from odyssey.table.scope import Pause, find_recording, innermost_scope, recording_now, recording_of
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    NUMBERS,
    UNTRACKED,
    Info,
    Mark,
    Symbol,
    Traced,
    Value,
    free_id,
    is_constant,
    is_trainable,
    is_untracked,
    make_value,
    recording_attribute,
)
from odyssey.tree import leaf_type
from odyssey.tree_objects import variable_type
from odyssey.variable import numpy_calls
from odyssey.variable.operators import Operators

__all__ = ["Variable", "alias_of", "check_trainable", "resolve_gradient", "writable_alias"]

_array_text = isolate_errstate(np.array2string)


class Variable(Value, Operators):
    """An array with a gradient slot, whose uses a tape records.

    Args:
        data: Anything that NumPy takes for an array of numbers. A trainable Variable owns a copy
            of it. A constant refers to it until it is first written to, as by ``assign``, by
            ``batch_norm`` or by ``od.load``; then it gets an array of its own.
        requires_grad: Whether this is a trainable leaf; needs floating or complex data.
        tape: A tape that records the uses of this leaf, without being entered or passed.
        name: For messages and reports.
        dtype: The dtype to convert to; by default that of the data.
        device: Where the data lie: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or an ``od.devices.Device``;
            by default where they lie already. Data that are copied to a card belong to the
            Variable alone.
        sparse_grad: Whether ``backward`` gives this leaf, a table, ``od.SparseRows`` as gradient,
            where only ``embedding``, ``take`` and indices along the first axis read it.

    Raises:
        DTypeError: for data that is not an array of numbers, or of integers that require gradients.
        DeviceError: for a device that is not available; the message says what is missing.

    >>> w = Variable([1.0, 2.0], requires_grad=True, name="w")
    >>> w
    Variable([1., 2.], shape=(2,), dtype=float64, name='w', requires_grad=True)
    """

    __slots__ = ()

    def __init__(
        self,
        data: Any,
        requires_grad: bool = False,
        *,
        tape: Tape | None = None,
        name: str | None = None,
        dtype: Any = None,
        device: Device | str | None = None,
        sparse_grad: bool = False,
    ) -> None:
        place_on = None if device is None else as_device("Variable", device)
        if sparse_grad is not False:
            sparse_grad = _check_sparse("Variable", sparse_grad, requires_grad, np.ndim(data))
        if isinstance(data, Variable):
            data = data.data
        if isinstance(data, Symbol) and store() is not MEMORY:
            self._init_traced(data, requires_grad, tape, name, dtype)
            if sparse_grad:
                self._info.sparse_grad = Info.any_sparse = True
            return
        if name is not None:
            check_name("Variable", name)
        if requires_grad is not False and requires_grad is not True:
            requires_grad = check_flag("Variable", "requires_grad", requires_grad)
        if tape is not None and not hasattr(type(tape), "_adopt"):
            raise DTypeError(f"Variable: tape={format_value(tape)} is not a GradientTape")
        array = as_array("Variable", "the data", data)
        if dtype is not None:
            array = _cast_array("Variable", array, dtype)
        if requires_grad:
            check_trainable(array.dtype)
        if place_on is not None or type(array) is not np.ndarray:
            array = _own_array(data, array, place_on, requires_grad)
        elif requires_grad:
            # C order, as in optimizers: the rounding of matrix products depends on the layout.
            array = np.array(array, order="C")
        self._array = array
        self._spec = spec_of(array)
        self._recording = LEAF if requires_grad else CONSTANT
        self._placed = None
        self._id = free_id()
        self._info = Info(name) if requires_grad or name is not None else None
        if sparse_grad:
            self._info.sparse_grad = Info.any_sparse = True
        if tape is not None:
            tape._adopt(self)

    def _init_traced(
        self, symbol: Any, requires_grad: bool, tape: Any, name: str | None, dtype: Any
    ) -> None:
        """Initialize as a Variable of the graph that is traced."""
        symbol = symbol if dtype is None else astype(symbol, dtype)
        if requires_grad:
            check_trainable(symbol.dtype)
        self._array = symbol
        self._spec = symbol.spec
        self._recording = LEAF if requires_grad else CONSTANT
        self._placed = None
        self._id = free_id()
        self._info = Info(name) if requires_grad or name is not None else None
        if tape is not None:
            tape._adopt(self)

    # -------------------------------------------------------------- data

    @property
    def data(self) -> Array:
        """The present numbers, which later writes to the Variable do not change; see ``numpy``."""
        held: Array = store().read(self)
        return held

    @data.setter
    def data(self, value: Any) -> None:
        self.assign(value)

    def numpy(self) -> Array:
        """Return a read-only snapshot of the numbers, which later writes do not change.

        The numbers of a card are copied to the host, once they are computed; that array is the
        caller's own.

        The next write to the Variable gives it a new array as long as the snapshot, or a view of
        it, is alive (copy on write); small parameters of an optimizer are copied at once. A
        constant returns the array that was passed in, or that an op computed, which is writable if
        that is, and which the library does not write to while anything else refers to it.

        >>> w = Variable([1.0, 2.0], requires_grad=True)
        >>> before = w.numpy()
        >>> w.assign([3.0, 4.0]).numpy(), before
        (array([3., 4.]), array([1., 2.]))
        """
        if type(self._array) is np.ndarray or self.device == cpu:
            return self.data
        if store() is not MEMORY:
            store().only_eagerly("it copies a Variable to the CPU, by numpy()")
            return self.data
        with write_lock():
            wait_for_programs()
            host: Array = copy_to_device("numpy", self._array, cpu)  # without a copy on the card
        return host

    # -------------------------------------------------------------- properties

    @property
    def device(self) -> Device:
        """The device of the data, which equals its name: ``v.device == "cpu"``."""
        array = self._array
        while type(array) is not np.ndarray and hasattr(array, "payload"):  # in vmap
            array = array.payload
        return array.graph.device if isinstance(array, Symbol) else device_of(array)

    @property
    def tape(self) -> Tape | None:
        """The tape that this result was recorded on; None for a leaf, or when that tape is gone."""
        if isinstance(self._recording, Mark):
            return None
        tape: Tape | None = self._recording.tape_of(self._id)
        return tape

    @property
    def name(self) -> str | None:
        """The name given, for messages."""
        return self._info.name if self._info is not None else None

    @name.setter
    def name(self, name: str | None) -> None:
        check_name("name", name)
        if name != self.name:
            self._own_info()
            store().rename(self, name)

    @property
    def requires_grad(self) -> bool:
        """True if a gradient flows through this; settable on a leaf, to freeze or unfreeze it."""
        return self._recording is not CONSTANT

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if is_untracked(self) or not self.is_leaf:
            raise TapeError(f"requires_grad: {self!r} is not a leaf; detach() it first")
        flag = checks.check_flag("Variable", "requires_grad", flag)
        if flag == self.requires_grad:
            return
        if flag:
            check_trainable(self.dtype)
            self._own_info()
        store().require(self, flag)
        self._placed = None

    @property
    def sparse_grad(self) -> bool:
        """Whether gradients of few rows stay ``od.SparseRows``; see the constructor."""
        return self._info is not None and self._info.sparse_grad

    def _own_info(self) -> Info:
        if self._info is None:
            self._info = Info()
        info: Info = self._info
        return info

    # -------------------------------------------------------------- gradient

    @property
    def grad(self) -> Any:
        """The accumulated gradient, an array that nobody else holds; None before a sweep.

        Of a Variable with ``sparse_grad=True`` it may be ``od.SparseRows``.
        """
        return store().gradient(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        store().set_gradient(self, None if value is None else self._as_gradient(value))

    def _as_gradient(self, value: Any) -> Any:
        """Return a gradient that a user gives, of this dtype; a constant as a copied array."""
        if isinstance(value, Variable) and is_constant(value):
            value = operand_of(value)
        if isinstance(value, SparseRows):
            return self._as_rows(value)
        kept = isinstance(value, (Variable, Symbol))
        found = value if kept else as_array("grad", "the gradient", value)
        if not fits_kind(found.dtype, self.dtype):
            raise DTypeError(f"grad: a gradient of dtype {found.dtype} came for {self!r}")
        if found.shape != self.shape:
            raise ShapeError(f"grad: a gradient of shape {found.shape} came for {self!r}")
        if not kept:
            return array_copy(place_as("grad", "the gradient", found, self), self.dtype)
        return found if found.dtype == self.dtype else astype(found, self.dtype)

    def _as_rows(self, rows: SparseRows) -> SparseRows:
        """Return sparse rows that a user gives as a copy of this dtype, or raise."""
        if not self.sparse_grad:
            raise DTypeError(
                f"grad: SparseRows came for {self!r}; make it with sparse_grad=True, or pass "
                "rows.to_dense()"
            )
        if not fits_kind(rows.dtype, self.dtype):
            raise DTypeError(f"grad: a gradient of dtype {rows.dtype} came for {self!r}")
        if rows.shape != self.shape:
            raise ShapeError(f"grad: a gradient of shape {rows.shape} came for {self!r}")
        return rows.copy() if rows.dtype == self.dtype else rows.astype(self.dtype)

    def zero_grad(self) -> None:
        """Forget the gradient: ``grad`` is None again."""
        store().set_gradient(self, None)

    def backward(self, grad: Any = None) -> Any:
        """Sweep the tape that recorded this value; see ``GradientTape.backward``.

        A trainable leaf is asked of the tape that made it, else of the one that is entered.
        """
        tape = self.tape
        if (
            tape is None
            and is_trainable(self)
            and (home := find_recording("backward", (self,), []))
        ):
            tape = None if isinstance(home, Mark) else home.tape_of(self._id)
        if tape is None:
            raise TapeError(
                f"backward: {self!r} is not on a tape; compute it inside "
                "'with GradientTape() as tape:' and keep that tape"
            )
        return tape.backward(self, grad)

    def detach(self) -> Variable:
        """Return this value as a constant: no gradient flows back through it.

        The detached value keeps the present numbers: later writes to the leaf, such as steps of an
        optimizer, do not change it. It is a snapshot like that of ``numpy``.
        """
        data = self._array if isinstance(self._array, Symbol) else self.data
        data = store().detached(data)
        info = Info(self.name, note=("detach", (self._id,)))
        return make_value(Variable, data, CONSTANT, free_id(), self._spec, info)

    def detach_into(self, tape: Tape) -> Variable:
        """Return a trainable leaf of another tape with this value; no gradient flows back."""
        if not hasattr(type(tape), "_adopt"):
            raise DTypeError(f"detach_into: {format_value(tape)} is not a GradientTape")
        moved: Variable = tape.variable(np.array(self.data), self.name)
        return moved

    def to(self, device: Device | str) -> Variable:
        """Return this value on a device: this Variable if it lies there, else the result of an op.

        The gradient of a copy flows back to this Variable, on its own device.

        Args:
            device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or an ``od.devices.Device``.

        Raises:
            DeviceError: the device is not available; the message says what is missing.

        >>> w = Variable([1.0, 2.0], requires_grad=True)
        >>> w.to("cpu") is w
        True
        """
        target, source = as_device("to", device), self.device
        if target == source:
            return self
        moved: Variable = transfer(self, device=str(target), source=str(source))
        return moved

    # -------------------------------------------------------------- conversion

    def item(self, *index: Any) -> Any:
        """The single element, or that at an index, as a Python number."""
        if index:
            return self._item_at(index)
        if self.size != 1:
            raise ShapeError(f"item: needs one element, this Variable has shape {self.shape}")
        store().require_known("item() asks for the value of", self)
        return host_array(self._array).item()

    def _item_at(self, index: tuple[Any, ...]) -> Any:
        store().require_known("item() asks for the value of", self)
        try:
            return host_array(self._array).item(*index)
        except STUMBLES as error:
            came = ", ".join(map(format_value, index))
            raise error_class_of(error)(
                f"item({came}) of a Variable of shape {self.shape}: {error}"
            ) from None

    # -------------------------------------------------------------- arrays

    if not TYPE_CHECKING:
        # By NumPy's stubs an object with __array__ is an array, so type checkers would take
        # ``x @ w`` with an array on the left for an array.
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
            return self._as_array(dtype, copy)

    def _refuse_tracked(self) -> None:
        """Raise while a tape follows this, or where its values are not known."""
        store().require_known("an array is made of", self)
        if isinstance(top := innermost_scope(), Pause) and top.refuse is not None:
            top.refuse("conversion to an array", self)
        if recording_of("conversion to an array", self) is not None:
            raise TapeError(
                "a Variable that a tape follows is not converted to an array implicitly, because "
                f"the array would carry no gradient; {numpy_calls.counterpart()}join several by "
                "od.ops.stack, or a nest of them by od.ops.array, and use .detach().numpy() where "
                f"no gradient is needed, on {self!r}"
            ) from None  # hides errors that NumPy handles in its own search

    def _as_array(self, dtype: Any, copy: bool | None) -> Array:
        """Return this as an array for NumPy; raise while a tape follows it, as ``float`` does."""
        self._refuse_tracked()
        if type(self._array) is not np.ndarray and self.device != cpu:
            raise DeviceError(
                f"{self!r} is not copied to the host implicitly; pass .numpy() for its numbers "
                "there, or .to('cpu')"
            ) from None
        try:
            return np.array(self.data, dtype, copy=copy)
        except STUMBLES as error:
            if isinstance(error, OdysseyError):
                raise
            kind = SettingError if isinstance(error, ValueError) else DTypeError
            raise kind(f"{self!r} as an array of dtype={format_value(dtype)}: {error}") from None

    def __dlpack__(self, **options: Any) -> Any:
        store().require_known("an array is made of", self)
        if not is_constant(self):
            raise TapeError(f"__dlpack__: detach() {self!r} first")
        return self._exported_array().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._exported_array().__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> Any:
        """Address, shape and strides of the data on a card, for libraries that read it there.

        Raises AttributeError for data of the CPU, by which those libraries know them. The memory is
        the Variable's own: read it only.
        """
        store().require_known("an array is made of", self)
        if self.device == cpu:
            raise AttributeError(f"{self!r} is on the CPU; it has no __cuda_array_interface__")
        if not is_constant(self):
            raise TapeError(f"__cuda_array_interface__: detach() {self!r} first")
        return self._exported_array().__cuda_array_interface__

    def _exported_array(self) -> Any:
        """Return the array that other libraries read: that of a constant itself, on a card."""
        return self.data if type(self._array) is np.ndarray else self._array

    def __len__(self) -> int:
        if not self._spec.shape:
            raise DTypeError("len() of a Variable without axes")
        return self._spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._spec.shape:
            raise DTypeError("iteration over a Variable without axes")
        return (self[i] for i in range(len(self)))

    def _single_element(self) -> Any:
        """Return the single element as a NumPy scalar."""
        if self.size != 1:
            raise ShapeError(
                f"a Variable of shape {self.shape} is not a single number; use .any(), .all() or "
                "an index"
            )
        store().require_known("Python asks for the value of", self)
        return host_array(self._array).reshape(())[()]

    def _as_number(self, who: str) -> Any:
        """Return the single element as a plain number; raise if a gradient would be lost."""
        store().require_known("Python asks for the value of", self)
        self._refuse_if_followed(who)
        return self._single_element()

    def _refuse_if_followed(self, who: str) -> None:
        home = recording_of(who, self)
        if home is None:
            return
        if is_untracked(self):
            raise UntrackedError(
                f"{who}: {self!r} was computed from a trainable leaf while nothing recorded, so a "
                "number made of it under a tape carries no gradient; pass .item() if that is meant"
            )
        raise TapeError(
            f"{who}: {home!r} follows {self!r}, and a plain number would carry no gradient; call "
            "an op of od.ops instead, or pass .item() if a number is meant"
        )

    def __bool__(self) -> bool:
        return bool(self._single_element())

    # NumPy and math call these to use a Variable as a number: y[0] = v, math.exp(v).

    def __float__(self) -> float:
        return float(self._as_number("float"))

    def __format__(self, spec: str) -> str:
        store().require_known("format() asks for the value of", self)
        if not isinstance(spec, str):
            raise DTypeError(f"format of {self!r}: {format_value(spec)} is not text")
        if not spec:
            return str(self)
        try:
            return format(self.item(), spec)
        except ValueError as error:
            if isinstance(error, OdysseyError):
                raise
            raise SettingError(f"format of {self!r}: {error}; {spec!r} came") from None

    def __int__(self) -> int:
        return int(self._as_number("int"))

    def __complex__(self) -> complex:
        return complex(self._as_number("complex"))

    def __trunc__(self) -> int:
        return int(self._as_number("trunc").item())

    def __floor__(self) -> int:
        below: int = math.floor(self._as_number("floor").item())
        return below

    def __ceil__(self) -> int:
        above: int = math.ceil(self._as_number("ceil").item())
        return above

    def __round__(self, digits: int | None = None) -> Any:
        """The nearest number of ``digits`` digits, with its gradient; see ``ops.round``."""
        return self.round(0 if digits is None else digits)

    def __index__(self) -> int:
        store().require_known("Python asks for the value of", self)
        self._refuse_if_followed("index")
        if self.dtype.kind not in "iu":
            raise DTypeError(f"{self!r} is not an integer, so it cannot be an index")
        return int(self._single_element())

    # -------------------------------------------------------------- text

    def __repr__(self) -> str:
        if is_called_by_user():
            store().only_eagerly("it formats a Variable as text")
        facts = [f"shape={self.shape}", f"dtype={self.dtype}"]
        if type(self._array) is not np.ndarray and self.device != cpu:
            facts.append(f"device={str(self.device)!r}")
        if self.name is not None:
            facts.append(f"name={self.name!r}")
        if is_trainable(self):
            facts += ["requires_grad=True"] + ["sparse_grad=True"] * self.sparse_grad
        elif is_untracked(self):
            facts.append("untracked")
        elif not is_constant(self):
            facts.append(f"op={self._op_name()}")
        return f"Variable({self._values()}, {', '.join(facts)})"

    def _values(self) -> str:
        if isinstance(self._array, Symbol):
            return f"<{self._array!r}>"
        return _array_text(
            host_array(self._array), separator=", ", prefix="Variable(", threshold=20, edgeitems=2
        )

    def _op_name(self) -> str:
        place = recording_attribute(self)
        for node in reversed(place.nodes):
            if node[1] == self._id:
                return str(node[0].name)
        # The arguments of a transformed function are watched without a node.
        return "identity" if self._id in place.watched else "(spent)"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>"

    # -------------------------------------------------------------- assignment

    def assign(self, value: Any) -> Self:
        """Write ``value`` into this leaf; tapes that still need the old numbers notice.

        Snapshots, and others that refer to the leaf's array, keep the old numbers.

        Args:
            value: An array or number that broadcasts to this shape, of a kind that casts safely.

        Raises:
            TapeError: for an intermediate. MutationError: where a tape holds the array locked.
        """
        if not self.is_leaf or is_untracked(self):
            raise TapeError(f"assign: {self!r} is not a leaf; build a new value with ops instead")
        store().write(self, operand_of(value))
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) not in NUMBERS and not isinstance(value, Traced):
            value = place_as("item assignment", "the value", value, self)
        if not is_trainable(self):
            store().become(self, _with_assigned(self, value, key))
            return
        if recording_now() is not None:
            raise TapeError(
                f"item assignment: {self!r} is a trainable leaf under a tape; "
                "write y = ops.setitem(w, value, key), or assign() outside the tape"
            )
        here = store()
        with write_lock():
            wait_for_programs()
            made = _with_assigned(here.operand(self), operand_of(value), key)
            here.write(self, operand_of(made))

    def __iadd__(self, other: Any) -> Self:
        return self._in_place("+=", operator.add, other)

    def __isub__(self, other: Any) -> Self:
        return self._in_place("-=", operator.sub, other)

    def __imul__(self, other: Any) -> Self:
        return self._in_place("*=", operator.mul, other)

    def __itruediv__(self, other: Any) -> Self:
        return self._in_place("/=", operator.truediv, other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._in_place("//=", operator.floordiv, other)

    def __imod__(self, other: Any) -> Self:
        return self._in_place("%=", operator.mod, other)

    def __ipow__(self, other: Any) -> Self:
        return self._in_place("**=", operator.pow, other)

    def __imatmul__(self, other: Any) -> Self:
        return self._in_place("@=", operator.matmul, other)

    def _in_place(self, sign: str, apply: Callable[[Any, Any], Any], other: Any) -> Self:
        """Assign ``apply(x, other)`` to a trainable leaf off the tape; else return a new value.

        A constant or an intermediate keeps its value for its other holders.
        """
        if is_trainable(self) and recording_now() is not None:
            raise TapeError(
                f"{sign}: {self!r} is a trainable leaf under a tape; write y = w {sign[:-1]} ..., "
                "or assign() outside the tape"
            )
        if not is_trainable(self):
            result: Self = apply(self, other)
            return result
        with write_lock():
            wait_for_programs()
            self.assign(apply(self, other))
        return self

    # -------------------------------------------------------------- copies

    def __copy__(self) -> Variable:
        if (result := self._copied_result()) is not None:
            return result
        made = _rebuild(*self._copy_arguments("copy"))
        _set_attributes(made, *_own_attributes(self))
        return made

    def __deepcopy__(self, memo: Any) -> Variable:
        if (result := self._copied_result()) is not None:
            memo[id(self)] = result
            return result
        made = memo[id(self)] = _rebuild(*self._copy_arguments("copy"))
        _set_attributes(made, *deepcopy(_own_attributes(self), memo))
        return made

    def __reduce__(self) -> Any:
        own, slots = _own_attributes(self)
        return (
            _rebuild,
            self._copy_arguments("pickle"),
            (own or None, slots) if own or slots else None,
        )

    def _copied_result(self) -> Variable | None:
        """Return a copy of a result that no tape follows, as an untracked value; else None.

        matplotlib copies what it plots. The copy has no history, so a use under a tape raises.
        """
        store().require_known("copy asks for the value of", self)
        if (self.is_leaf and not is_untracked(self)) or recording_of("copy", self) is not None:
            return None
        return make_value(Variable, array_copy(self._array), UNTRACKED, free_id())

    def _copy_arguments(
        self, what: str
    ) -> tuple[Array, bool, str | None, Any, type[Variable], bool]:
        """Return the arguments of ``_rebuild`` for a copy."""
        self._refuse_unless_leaf(what)
        grad = self.grad
        if isinstance(grad, Value):
            if resolve_gradient(grad) is grad:
                raise UntrackedError(
                    f"{what}: the gradient of {self!r} was recorded, and its history cannot be "
                    "copied; zero_grad() first, or copy detach()"
                )
            grad = grad._array
        data = array_copy(self._array)
        return data, is_trainable(self), self.name, grad, type(self), self.sparse_grad

    def _refuse_unless_leaf(self, what: str) -> None:
        store().require_known(f"{what} asks for the value of", self)
        if not self.is_leaf or is_untracked(self):
            raise UntrackedError(
                f"{what}: {self!r} is a result, whose history cannot be copied; detach() it first, "
                "or pass .numpy() where only its numbers are wanted, as in a plot"
            )


fast_calls.set_variable_class(Variable)
leaf_type(Variable)
variable_type(Variable)


def _cast_array(who: str, array: Array, dtype: Any) -> Array:
    """Return the array in another dtype, in the byte order of this machine."""
    try:
        dtype = named_dtype(dtype)
    except DTypeError as error:  # ml_dtypes is missing
        raise DTypeError(f"{who}: {error}") from None
    try:
        return array.astype(native_dtype(dtype), copy=False)
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"{who}: dtype={format_value(dtype)} is not one of numbers: {error}"
        ) from None


def resolve_gradient(grad: Any) -> Any:
    """Return a recorded gradient as its array once its recording is spent."""
    spent = isinstance(grad, Value) and getattr(recording_attribute(grad), "dead", None)
    return grad._array if spent else grad


def alias_of(value: Variable) -> Variable:
    """Return another Variable for the same value, which may be written to in its place."""
    return make_value(Variable, value._array, recording_attribute(value), value._id, value._spec)


def writable_alias(value: Any) -> Any:
    """Return an alias that others may write to; leaves and other objects themselves."""
    return alias_of(value) if isinstance(value, Variable) and not is_trainable(value) else value


def _rebuild(
    data: Array,
    requires_grad: bool,
    name: str | None,
    grad: Any = None,
    kind: type[Variable] = Variable,
    sparse_grad: bool = False,
) -> Variable:
    made = object.__new__(kind)  # not by the subclass's __init__, whose parameters are unknown
    Variable.__init__(made, data, requires_grad, name=name)
    if sparse_grad:  # perhaps of a leaf that is frozen
        made._own_info().sparse_grad = Info.any_sparse = True
    if grad is not None:
        made.grad = grad
    return made


def _own_attributes(value: Variable) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a user's subclass adds to a Variable: in its dictionary, and in slots."""
    if type(value) is Variable:
        return {}, {}
    ours = Variable.__mro__
    theirs = [kind for kind in type(value).__mro__ if kind not in ours]
    names = [name for kind in theirs for name in _slot_names(kind) if hasattr(value, name)]
    return dict(getattr(value, "__dict__", {})), {name: getattr(value, name) for name in names}


def _slot_names(kind: type) -> list[str]:
    found = vars(kind).items()
    return [name for name, place in found if isinstance(place, MemberDescriptorType)]


def _set_attributes(made: Variable, own: dict[str, Any], slots: dict[str, Any]) -> None:
    """Set the attributes that a user's subclass adds."""
    if own:
        made.__dict__.update(own)
    for name, value in slots.items():
        setattr(made, name, value)


def check_trainable(dtype: np.dtype[Any]) -> None:
    """Raise unless numbers of ``dtype`` have gradients."""
    if not is_inexact(dtype):
        raise DTypeError(
            f"Variable: {dtype} data cannot require gradients; pass dtype=float64, for example"
        )


def _check_sparse(who: str, given: Any, requires_grad: Any, ndim: int) -> bool:
    """Return whether a Variable gets sparse gradients, or raise."""
    flag: bool = check_flag(who, "sparse_grad", given)
    if flag and not requires_grad:
        raise SettingError(f"{who}: sparse_grad=True needs requires_grad=True")
    if flag and not ndim:
        raise ShapeError(f"{who}: sparse_grad=True needs rows; the data have no axes")
    return flag


def _own_array(data: Any, array: Any, device: Device | None, copies: Any) -> Any:
    """Return the array of a new Variable on a device: on a card one that nobody else has.

    Args:
        data: As the user gave it.
        array: The data as an array.
        device: Where it shall lie; None where it lies.
        copies: Whether an array of the CPU is copied as well.
    """
    placed = array if device is None else copy_to_device("Variable", array, device)
    if type(placed) is np.ndarray:
        return np.array(placed, order="C") if copies else placed
    if placed is data or (placed is array and copies):
        return array_copy(placed, order="C")
    return placed


@op(
    linear=True,
    primitive="call",
    infer=lambda x, device, source: x,
    vjp={"x": lambda g, device, source: transfer(g, device=source, source=device)},
    vmap="leading",
)
def transfer(x: Any, /, device: str, source: str) -> Any:
    """Copy to another device; the gradient is copied back."""
    del source
    return transfer_array(x, device)


def _with_assigned(x: Any, value: Any, key: Any) -> Any:
    """Return ``x`` with ``value`` at ``key``; the key may be known only at run time in a graph."""
    try:
        return setitem(x, value, key)
    except UnknownIndexError as error:
        found = load_module("odyssey.ops.structure.traced_indexing").write_at(x, value, key)
        if found is not NotImplemented:
            return found
        if not isinstance(error, CapturedIndexError):
            raise
    return setitem(x, value, known_positions(key))
