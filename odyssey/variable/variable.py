"""Variable: an array with a gradient slot and a place on a tape."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odyssey import checks
from odyssey.checks import STUMBLES, flag, label, shown
from odyssey.devices.arrays import as_array, native_dtype
from odyssey.devices.commit import commit
from odyssey.devices.guard import GUARD
from odyssey.devices.locks import holders
from odyssey.devices.ownership import frozen
from odyssey.errors import (
    DeviceError,
    DTypeError,
    MutationError,
    OdysseyError,
    SettingError,
    ShapeError,
    TapeError,
    UntrackedError,
)
from odyssey.ops.indexing import setitem
from odyssey.ops.shape import astype
from odyssey.spec import Array, Shape, fits_kind, spec_of
from odyssey.table import fast_calls
from odyssey.table.protocols import Tape
from odyssey.table.scope import TRACE, Pause, find, follower, innermost, recording_now
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    UNTRACKED,
    Info,
    Mark,
    Symbol,
    Value,
    array_of,
    free_id,
    make_value,
    replacing,
    ticket,
)
from odyssey.tree import leaf_type
from odyssey.variable import numpy_calls
from odyssey.variable.operators import Operators

__all__ = ["Variable", "check_trainable", "refuse_locked", "settled"]


class Variable(Value, Operators):
    """An array with a gradient slot, whose uses a tape records.

    Args:
        data: Anything that NumPy takes for an array of numbers. A trainable Variable owns a copy
            of it; a constant one refers to it.
        requires_grad: Whether this is a trainable leaf; needs floating or complex data.
        tape: A tape that records the uses of this leaf, without being entered or passed.
        name: For messages and reports.
        dtype: The dtype to convert to; by default that of the data.
        device: ``"cpu"``.

    Raises:
        DTypeError: for data that is not an array of numbers, or of integers that require gradients.
        DeviceError: for a device that is not available.

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
        device: str | None = None,
    ) -> None:
        _check_device(device)
        if isinstance(data, (Symbol, Variable)) and TRACE.get() is not None:
            symbol = data.numpy() if isinstance(data, Variable) else data
            if isinstance(symbol, Symbol):
                self._stand_for(symbol, requires_grad, tape, name, dtype)
                return
        if name is not None:
            label("Variable", name)
        if requires_grad is not False and requires_grad is not True:
            requires_grad = flag("Variable", "requires_grad", requires_grad)
        if tape is not None and not hasattr(type(tape), "_adopt"):
            raise DTypeError(f"Variable: tape={shown(tape)} is not a GradientTape")
        if isinstance(data, Variable):
            data = data.numpy()
        array = as_array("Variable", "the data", data)
        if dtype is not None:
            array = _cast("Variable", array, dtype)
        if requires_grad:
            check_trainable(array.dtype)
            # Row by row, as optimizers keep parameters: matrix products round by the layout.
            array = np.array(array, order="C")
        self._array = array
        self._spec = spec_of(array)
        self._recording = LEAF if requires_grad else CONSTANT
        self._placed = None
        self._id = free_id()
        self._info = Info(name) if requires_grad or name is not None else None
        if tape is not None:
            tape._adopt(self)

    def _stand_for(
        self, symbol: Any, requires_grad: bool, tape: Any, name: str | None, dtype: Any
    ) -> None:
        """Be a Variable of the graph that is traced."""
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
        """The array: a read-only view, but for constants, which are what was passed in."""
        if isinstance(self._array, Symbol):
            return self._array  # type: ignore[return-value]
        if (trace := TRACE.get()) is not None:
            lifted: Array = trace.lift(self)
            return lifted
        if self._recording is CONSTANT:
            self._array = np.asarray(self._array)
            constant: Array = self._array
            return constant
        return frozen(np.asarray(self._array))

    @data.setter
    def data(self, value: Any) -> None:
        self.assign(value)

    def assign(self, value: Any) -> Variable:
        """Write ``value`` into this leaf's array; tapes that still need the old one notice.

        Args:
            value: An array or number that broadcasts to this shape, of a kind that casts safely.

        Raises:
            TapeError: for an intermediate. MutationError: where a tape holds the array locked.
        """
        if not isinstance(self._recording, Mark) or self._recording is UNTRACKED:
            raise TapeError(f"assign: {self!r} is not a leaf; build a new value with ops instead")
        value = array_of(value)
        trace = TRACE.get()
        if trace is not None:
            trace.assign(self, value)
            return self
        array = as_array("assign", "the value", value)
        if not np.can_cast(array.dtype, self._array.dtype, "same_kind"):
            raise DTypeError(f"assign: {array.dtype} does not cast to {self.dtype} of {self!r}")
        array = np.asarray(array, self._array.dtype)  # which may overflow: before anything is done
        with GUARD:
            try:
                refuse_locked("assign", self)
                array = np.broadcast_to(array, self.shape)
            except ValueError:
                raise ShapeError(
                    f"assign: a value of shape {array.shape} does not fit {self!r}"
                ) from None
            # NumPy would copy what overlaps, and that may fail.
            if np.may_share_memory(array, self._array):
                array = array.copy()
            commit(replacing(self, array))
        return self

    def numpy(self) -> Array:
        """The data as a read-only array; the same as ``.data`` for constants."""
        return self.data

    def item(self) -> Any:
        """The single element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item: needs one element, this Variable has shape {self.shape}")
        self._refuse_in_trace("item() asks for the value of")
        return np.asarray(self._array).item()

    # -------------------------------------------------------------- what it is

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
    def device(self) -> str:
        """Where the data lives."""
        return "cpu"

    @property
    def id(self) -> int:
        """A number that no other Variable of this process has or had."""
        return self._id

    @property
    def is_leaf(self) -> bool:
        """Whether this is a Variable that no op made on a tape."""
        return isinstance(self._recording, Mark)

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
        label("name", name)
        self._own_info().name = name

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows through this; settable on a leaf, to freeze and thaw it."""
        return self._recording is not CONSTANT

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if self._recording is UNTRACKED or not self.is_leaf:
            raise TapeError(f"requires_grad: {self!r} is not a leaf; detach() it first")
        flag = checks.flag("Variable", "requires_grad", flag)
        if flag == self.requires_grad:
            return
        self._refuse_in_trace("requires_grad of")
        if flag and self._recording is CONSTANT:
            check_trainable(self.dtype)
            self._own_info()
            with GUARD:
                array = np.array(self._array, order="C")
                commit([(setattr, self, "_array", array), (setattr, self, "_recording", LEAF)])
        elif not flag and self._recording is LEAF:
            # A tape may hold the leaf's array, and that of a constant can be written to.
            with GUARD:
                array = np.array(self._array)
                commit(
                    [
                        (ticket,),  # tapes that took it up look again
                        (setattr, self, "_array", array),
                        (setattr, self, "_recording", CONSTANT),
                    ]
                )
        self._placed = None

    def _own_info(self) -> Info:
        if self._info is None:
            self._info = Info()
        info: Info = self._info
        return info

    # -------------------------------------------------------------- gradient

    @property
    def grad(self) -> Any:
        """The accumulated gradient, an array that nobody else holds; None before a sweep."""
        if (trace := TRACE.get()) is not None:
            return trace.grad_of(self)
        info = self._info
        if info is None or info.grad is None:
            return None
        if info.loan is not None:
            with GUARD:
                # The mapping that the sweep returned still shows this array: get one of its own.
                on_loan = info.loan is not None and info.loan() is not None
                if on_loan and type(info.grad) is np.ndarray:
                    info.grad = info.grad.copy()
                info.loan = None
        return info.grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not isinstance(value, (Variable, Symbol)):
            value = self._gradient(value)
        if value is not None and value.shape != self.shape:
            raise ShapeError(f"grad: a gradient of shape {value.shape} came for {self!r}")
        if (trace := TRACE.get()) is not None:
            trace.set_grad(self, value)
            return
        info = self._own_info()
        with GUARD:  # else a sum that another thread computes would take its place
            info.grad, info.loan = value, None

    def _gradient(self, value: Any) -> Array:
        """A copy of a gradient that a user gives, as an array of this dtype."""
        array = as_array("grad", "the gradient", value)
        if not fits_kind(array.dtype, self.dtype):
            raise DTypeError(f"grad: a gradient of dtype {array.dtype} came for {self!r}")
        return np.array(array, self.dtype)

    def zero_grad(self) -> None:
        """Forget the gradient: ``grad`` is None again."""
        if (trace := TRACE.get()) is not None:
            trace.set_grad(self, None)
        elif self._info is not None:
            with GUARD:
                self._info.grad = self._info.loan = None

    def backward(self, grad: Any = None) -> Any:
        """Sweep the tape that recorded this value; see ``GradientTape.backward``.

        A trainable leaf is asked of the tape that made it, else of the one that is entered.
        """
        tape = self.tape
        if tape is None and self._recording is LEAF and (home := find("backward", (self,), [])):
            tape = None if isinstance(home, Mark) else home.tape_of(self._id)
        if tape is None:
            raise TapeError(
                f"backward: {self!r} is not on a tape; compute it inside "
                "'with GradientTape() as tape:' and keep that tape"
            )
        return tape.backward(self, grad)

    def detach(self) -> Variable:
        """The same value as a constant: no gradient flows back through it."""
        data = self._array if isinstance(self._array, Symbol) else self.data
        info = Info(self.name, note=("detach", (self._id,)))
        return make_value(Variable, data, CONSTANT, free_id(), self._spec, info)

    def detach_into(self, tape: Tape) -> Variable:
        """A trainable leaf of another tape with the same value; no gradient flows back."""
        if not hasattr(type(tape), "_adopt"):
            raise DTypeError(f"detach_into: {shown(tape)} is not a GradientTape")
        moved: Variable = tape.variable(np.array(self.data), self.name)
        return moved

    # -------------------------------------------------------------- conversions

    def to(self, device: str) -> Variable:
        """This Variable on ``device``."""
        _check_device(device)
        return self

    if not TYPE_CHECKING:
        # NumPy's stubs take what has it for an array, so ``x @ w`` with an array on the left would
        # be one to type checkers.
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
            return self._converted(dtype, copy)

    def _converted(self, dtype: Any, copy: bool | None) -> Array:
        """What NumPy makes an array of; raises where that would lose a gradient."""
        self._refuse_in_trace("an array is made of")
        if isinstance(top := innermost(), Pause) and top.refuse is not None:
            top.refuse("conversion to an array", self)
        if self._carries_gradient():
            raise TapeError(
                "a Variable that requires a gradient does not become an array by itself, because "
                f"the array would carry none; {numpy_calls.counterpart()}join several by "
                "od.ops.stack, or a nest of them by od.ops.array, and use .detach().numpy() where "
                f"no gradient is needed, on {self!r}"
            ) from None  # NumPy may be handling an error of its own search
        try:
            return np.array(self.data, dtype, copy=copy)
        except STUMBLES as error:
            if isinstance(error, OdysseyError):
                raise
            kind = SettingError if isinstance(error, ValueError) else DTypeError
            raise kind(f"{self!r} as an array of dtype={shown(dtype)}: {error}") from None

    def _carries_gradient(self) -> bool:
        """Whether a copy of the bare data would lose a gradient."""
        if self._recording is CONSTANT:
            return False
        if not self.is_leaf or self._recording is UNTRACKED:
            return True
        return follower("conversion to an array", self) is not None

    def __dlpack__(self, **options: Any) -> Any:
        self._refuse_in_trace("an array is made of")
        if self.requires_grad:
            raise TapeError(f"__dlpack__: detach() {self!r} first")
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def __len__(self) -> int:
        if not self._spec.shape:
            raise DTypeError("len() of a Variable without axes")
        return self._spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._spec.shape:
            raise DTypeError("iteration over a Variable without axes")
        return (self[i] for i in range(len(self)))

    def _element(self) -> Any:
        """The single element, as NumPy's."""
        if self.size != 1:
            raise ShapeError(
                f"a Variable of shape {self.shape} is not a single number; use .any(), .all() or "
                "an index"
            )
        self._refuse_in_trace("Python asks for the value of")
        return np.asarray(self._array).reshape(())[()]

    def _refuse_in_trace(self, who: str) -> None:
        """Raise where only the run of a traced function will know what is asked."""
        if (trace := TRACE.get()) is not None and not trace.knows(self):
            raise trace.no_value(who, self)

    def _number(self, who: str) -> Any:
        """The single element for what will be a plain number, unless a gradient would be lost."""
        self._refuse_in_trace("Python asks for the value of")
        self._refuse_if_followed(who)
        return self._element()

    def _refuse_if_followed(self, who: str) -> None:
        home = follower(who, self)
        if home is None:
            return
        if self._recording is UNTRACKED:
            raise UntrackedError(
                f"{who}: {self!r} was computed from a trainable leaf while nothing recorded, so a "
                "number made of it under a tape carries no gradient; pass .item() if that is meant"
            )
        raise TapeError(
            f"{who}: {home!r} follows {self!r}, and a plain number would carry no gradient; call "
            "an op of od.ops instead, or pass .item() if a number is meant"
        )

    def __bool__(self) -> bool:
        return bool(self._element())

    # NumPy and math ask for these where they take a Variable for a number: y[0] = v, math.exp(v).

    def __float__(self) -> float:
        return float(self._number("float"))

    def __format__(self, spec: str) -> str:
        self._refuse_in_trace("format() asks for the value of")
        if not isinstance(spec, str):
            raise DTypeError(f"format of {self!r}: {shown(spec)} is not text")
        if not spec:
            return str(self)
        try:
            return format(self.item(), spec)
        except ValueError as error:
            if isinstance(error, OdysseyError):
                raise
            raise SettingError(f"format of {self!r}: {error}; {spec!r} came") from None

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __trunc__(self) -> int:
        return int(self._number("trunc").item())

    def __floor__(self) -> int:
        below: int = math.floor(self._number("floor").item())
        return below

    def __ceil__(self) -> int:
        above: int = math.ceil(self._number("ceil").item())
        return above

    def __round__(self, digits: int | None = None) -> Any:
        """The nearest number of ``digits`` digits, with its gradient; see ``ops.round``."""
        return self.round(0 if digits is None else digits)

    def __index__(self) -> int:
        self._refuse_in_trace("Python asks for the value of")
        self._refuse_if_followed("index")
        if self.dtype.kind not in "iu":
            raise DTypeError(f"{self!r} is not an integer, so it cannot be an index")
        return int(self._element())

    # -------------------------------------------------------------- writing

    def __setitem__(self, key: Any, value: Any) -> None:
        trace = TRACE.get()
        if self._recording is LEAF:
            if recording_now() is not None:
                raise TapeError(
                    f"item assignment: {self!r} is a trainable leaf under a tape; "
                    "write y = ops.setitem(w, value, key), or assign() outside the tape"
                )
            if trace is not None:
                trace.assign(self, setitem(trace.lift(self), array_of(value), key))
                return
            with GUARD:
                self.assign(setitem(np.array(self._array), array_of(value), key))
            return
        result = setitem(self, value, key)
        if trace is not None and not trace.is_own(self):
            trace.assign(self, result._array)
            return
        commit(
            [
                (setattr, self, "_array", result._array),
                (setattr, self, "_spec", result._spec),
                (setattr, self, "_recording", result._recording),
                (setattr, self, "_id", result._id),
                (setattr, self, "_placed", None),
            ]
        )

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
        """``x += y`` rebinds an intermediate to a new value, and writes to a leaf off the tape."""
        if self._recording is LEAF and recording_now() is not None:
            raise TapeError(
                f"{sign}: {self!r} is a trainable leaf under a tape; write y = w {sign[:-1]} ..., "
                "or assign() outside the tape"
            )
        if self._recording is not LEAF:
            result: Self = apply(self, other)
            return result
        with GUARD:
            self.assign(apply(self, other))
        return self

    # -------------------------------------------------------------- copies and pictures

    def __copy__(self) -> Variable:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: Any) -> Variable:
        return _rebuild(*self._parts("copy"))

    def __reduce__(self) -> Any:
        return _rebuild, self._parts("pickle")

    def _parts(self, what: str) -> tuple[Array, bool, str | None, Any]:
        """What a copy is made of."""
        self._refuse_unless_leaf(what)
        grad = self.grad
        if isinstance(grad, Value):
            if settled(grad) is grad:
                raise UntrackedError(
                    f"{what}: the gradient of {self!r} was recorded, and its history cannot be "
                    "copied; zero_grad() first, or copy detach()"
                )
            grad = grad._array
        data = np.array(self._array)
        return data, self._recording is LEAF, self.name, grad

    def _refuse_unless_leaf(self, what: str) -> None:
        self._refuse_in_trace(f"{what} asks for the value of")
        if not self.is_leaf or self._recording is UNTRACKED:
            raise UntrackedError(
                f"{what}: {self!r} is a result, whose history cannot be copied; detach() it first, "
                "or pass .numpy() where only its numbers are wanted, as in a plot"
            )

    def __repr__(self) -> str:
        facts = [f"shape={self.shape}", f"dtype={self.dtype}"]
        if self.name is not None:
            facts.append(f"name={self.name!r}")
        if self._recording is LEAF:
            facts.append("requires_grad=True")
        elif self._recording is UNTRACKED:
            facts.append("untracked")
        elif self._recording is not CONSTANT:
            facts.append(f"op={self._op_name()}")
        return f"Variable({self._values()}, {', '.join(facts)})"

    def _values(self) -> str:
        if isinstance(self._array, Symbol):
            return f"<{self._array!r}>"
        return np.array2string(np.asarray(self._array), separator=", ", threshold=20, edgeitems=2)

    def _op_name(self) -> str:
        for node in reversed(self._recording.nodes):
            if node[1] == self._id:
                return str(node[0].name)
        return "(spent)"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>"


fast_calls.results_are(Variable)
leaf_type(Variable)


def refuse_locked(who: str, variable: Variable) -> None:
    """Raise where the array of ``variable`` cannot be written to, and say whose lock it is."""
    if variable._array.flags.writeable:
        return
    tapes = " and ".join(map(repr, holders(variable._array)))
    why = f"is needed unchanged by {tapes}; sweep or clear that tape first"
    if not tapes:
        why = "is read-only, as its owner made it; pass a copy of it to Variable"
    raise MutationError(f"{who}: the array of {variable!r} {why}")


def _cast(who: str, array: Array, dtype: Any) -> Array:
    """The array in another dtype, in the byte order of this machine."""
    try:
        return array.astype(native_dtype(dtype), copy=False)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{who}: dtype={shown(dtype)} is not one of numbers: {error}") from None


def settled(grad: Any) -> Any:
    """A gradient that was recorded, as its array once that recording is spent."""
    spent = isinstance(grad, Value) and getattr(grad._recording, "dead", None)
    return grad._array if spent else grad


def _rebuild(data: Array, requires_grad: bool, name: str | None, grad: Any = None) -> Variable:
    made = Variable(data, requires_grad, name=name)
    if grad is not None:
        made.grad = grad
    return made


def check_trainable(dtype: np.dtype[Any]) -> None:
    """Raise unless numbers of ``dtype`` have gradients."""
    if dtype.kind not in "fc":
        raise DTypeError(
            f"Variable: {dtype} data cannot require gradients; pass dtype=float64, for example"
        )


def _check_device(device: str | None) -> None:
    if device is not None and not (isinstance(device, str) and device == "cpu"):
        raise DeviceError(
            f"device {shown(device)} is not available: this version computes on 'cpu'; "
            "leave device out, or pass 'cpu'"
        )
