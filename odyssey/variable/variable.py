"""Variable: an array with a gradient slot and a place on a tape."""

from __future__ import annotations

from copy import deepcopy
from types import MemberDescriptorType
from typing import Any

import numpy as np

from odyssey import checks
from odyssey.checks import flag, label, shown
from odyssey.devices.arrays import as_array, native_dtype
from odyssey.errors import (
    DeviceError,
    DTypeError,
    ShapeError,
    TapeError,
    UntrackedError,
)
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array, fits_kind, spec_of
from odyssey.table import fast_calls
from odyssey.table.protocols import Tape
from odyssey.table.scope import find
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    Info,
    Mark,
    Symbol,
    Value,
    free_id,
    is_constant,
    is_trainable,
    is_untracked,
    make_value,
    place_of,
)
from odyssey.tree import leaf_type
from odyssey.variable.conversions import Conversions
from odyssey.variable.writing import Writing

__all__ = ["Variable", "check_trainable", "lent", "settled", "twin_of"]


class Variable(Conversions, Writing):
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
        if isinstance(data, Variable):
            data = data.numpy()
        if isinstance(data, Symbol) and store() is not MEMORY:
            self._stand_for(data, requires_grad, tape, name, dtype)
            return
        if name is not None:
            label("Variable", name)
        if requires_grad is not False and requires_grad is not True:
            requires_grad = flag("Variable", "requires_grad", requires_grad)
        if tape is not None and not hasattr(type(tape), "_adopt"):
            raise DTypeError(f"Variable: tape={shown(tape)} is not a GradientTape")
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
        held: Array = store().read(self)
        return held

    @data.setter
    def data(self, value: Any) -> None:
        self.assign(value)

    def numpy(self) -> Array:
        """The data as a read-only array; the same as ``.data`` for constants."""
        return self.data

    # -------------------------------------------------------------- what it is

    @property
    def device(self) -> str:
        """Where the data lives."""
        return "cpu"

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
        if name != self.name:
            self._own_info()
            store().rename(self, name)

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows through this; settable on a leaf, to freeze and thaw it."""
        return self._recording is not CONSTANT

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if is_untracked(self) or not self.is_leaf:
            raise TapeError(f"requires_grad: {self!r} is not a leaf; detach() it first")
        flag = checks.flag("Variable", "requires_grad", flag)
        if flag == self.requires_grad:
            return
        if flag:
            check_trainable(self.dtype)
            self._own_info()
        store().require(self, flag)
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
        return store().gradient(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        store().set_gradient(self, None if value is None else self._gradient(value))

    def _gradient(self, value: Any) -> Any:
        """A gradient that a user gives, of this dtype: a copy, as an array, of what is constant."""
        if isinstance(value, Variable) and is_constant(value):
            value = operand_of(value)
        kept = isinstance(value, (Variable, Symbol))
        found = value if kept else as_array("grad", "the gradient", value)
        if not fits_kind(found.dtype, self.dtype):
            raise DTypeError(f"grad: a gradient of dtype {found.dtype} came for {self!r}")
        if found.shape != self.shape:
            raise ShapeError(f"grad: a gradient of shape {found.shape} came for {self!r}")
        if not kept:
            return np.array(found, self.dtype)
        return found if found.dtype == self.dtype else astype(found, self.dtype)

    def zero_grad(self) -> None:
        """Forget the gradient: ``grad`` is None again."""
        store().set_gradient(self, None)

    def backward(self, grad: Any = None) -> Any:
        """Sweep the tape that recorded this value; see ``GradientTape.backward``.

        A trainable leaf is asked of the tape that made it, else of the one that is entered.
        """
        tape = self.tape
        if tape is None and is_trainable(self) and (home := find("backward", (self,), [])):
            tape = None if isinstance(home, Mark) else home.tape_of(self._id)
        if tape is None:
            raise TapeError(
                f"backward: {self!r} is not on a tape; compute it inside "
                "'with GradientTape() as tape:' and keep that tape"
            )
        return tape.backward(self, grad)

    def detach(self) -> Variable:
        """The same value as a constant: no gradient flows back through it.

        Of a leaf it shows what is written there later, as by a step of an optimizer that had the
        leaf before; ``v.detach() * 1.0`` never does.
        """
        data = self._array if isinstance(self._array, Symbol) else self.data
        info = Info(self.name, note=("detach", (self._id,)))
        return make_value(Variable, data, CONSTANT, free_id(), self._spec, info)

    def detach_into(self, tape: Tape) -> Variable:
        """A trainable leaf of another tape with the same value; no gradient flows back."""
        if not hasattr(type(tape), "_adopt"):
            raise DTypeError(f"detach_into: {shown(tape)} is not a GradientTape")
        moved: Variable = tape.variable(np.array(self.data), self.name)
        return moved

    def to(self, device: str) -> Variable:
        """This Variable on ``device``."""
        _check_device(device)
        return self

    # -------------------------------------------------------------- copies

    def __copy__(self) -> Variable:
        made = _rebuild(*self._parts("copy"))
        _give(made, *_own_attributes(self))
        return made

    def __deepcopy__(self, memo: Any) -> Variable:
        made = memo[id(self)] = _rebuild(*self._parts("copy"))
        _give(made, *deepcopy(_own_attributes(self), memo))
        return made

    def __reduce__(self) -> Any:
        own, slots = _own_attributes(self)
        return _rebuild, self._parts("pickle"), (own or None, slots) if own or slots else None

    def _parts(self, what: str) -> tuple[Array, bool, str | None, Any, type[Variable]]:
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
        return data, is_trainable(self), self.name, grad, type(self)

    def _refuse_unless_leaf(self, what: str) -> None:
        store().demand(f"{what} asks for the value of", self)
        if not self.is_leaf or is_untracked(self):
            raise UntrackedError(
                f"{what}: {self!r} is a result, whose history cannot be copied; detach() it first, "
                "or pass .numpy() where only its numbers are wanted, as in a plot"
            )


fast_calls.results_are(Variable)
leaf_type(Variable)


def _cast(who: str, array: Array, dtype: Any) -> Array:
    """The array in another dtype, in the byte order of this machine."""
    try:
        return array.astype(native_dtype(dtype), copy=False)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{who}: dtype={shown(dtype)} is not one of numbers: {error}") from None


def settled(grad: Any) -> Any:
    """A gradient that was recorded, as its array once that recording is spent."""
    spent = isinstance(grad, Value) and getattr(place_of(grad), "dead", None)
    return grad._array if spent else grad


def twin_of(value: Variable) -> Variable:
    """Another Variable for the same value, which may be written to in its place."""
    return make_value(Variable, value._array, place_of(value), value._id, value._spec)


def lent(value: Any) -> Any:
    """What somebody else may write to in the place of ``value``: a twin, but leaves themselves."""
    return twin_of(value) if isinstance(value, Variable) and not is_trainable(value) else value


def _rebuild(
    data: Array,
    requires_grad: bool,
    name: str | None,
    grad: Any = None,
    kind: type[Variable] = Variable,
) -> Variable:
    made = object.__new__(kind)  # not by its own __init__, which may take anything
    Variable.__init__(made, data, requires_grad, name=name)
    if grad is not None:
        made.grad = grad
    return made


def _own_attributes(value: Variable) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the class of a user adds to a Variable: in its dictionary, and in slots."""
    if type(value) is Variable:
        return {}, {}
    ours = Variable.__mro__
    theirs = [kind for kind in type(value).__mro__ if kind not in ours]
    names = [name for kind in theirs for name in _slots_of(kind) if hasattr(value, name)]
    return dict(getattr(value, "__dict__", {})), {name: getattr(value, name) for name in names}


def _slots_of(kind: type) -> list[str]:
    found = vars(kind).items()
    return [name for name, place in found if isinstance(place, MemberDescriptorType)]


def _give(made: Variable, own: dict[str, Any], slots: dict[str, Any]) -> None:
    """Give a Variable what a class of a user adds."""
    if own:
        made.__dict__.update(own)
    for name, value in slots.items():
        setattr(made, name, value)


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
