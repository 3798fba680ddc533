"""Calls of NumPy's functions on Variables, in NumPy's own signatures, as calls of ops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, kind_of, shown
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array, leads, refuse
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops import arithmetic, choice, complex_numbers, elementary, reductions, shape
from odyssey.table import fast_calls, index
from odyssey.table.declare import COMPOSITES, OPS, Row, operator_of
from odyssey.table.published import function_of, row_of
from odyssey.table.store import MEMORY, store
from odyssey.table.value import CONSTANT, Value, free_id, make_value
from odyssey.tree import map_tree

__all__ = ["MEANT", "UFUNC_CALLS", "call", "call_ufunc", "counterpart", "spelled"]

MEANT = {
    known: op
    for op, *functions in (word.split("=") for word in index.NUMPY.split())
    for known in functions or [op]
}
"""The op that each function and ufunc of NumPy means, both by name."""

# What was called already; families are loaded for the rest.
UFUNC_CALLS: dict[np.ufunc, Callable[..., Any]] = {}
_CALLS: dict[Any, Callable[..., Any]] = {
    # What is known of a Variable without computing.
    np.shape: lambda a: shape.shape_of(a),
    np.ndim: lambda a: len(shape.shape_of(a)),
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}

# What has integers, truth values or dtypes for its result, and so no gradient.
_NAMES = """
    allclose argpartition argwhere array_equal array_equiv can_cast common_type count_nonzero
    digitize einsum_path flatnonzero iscomplex iscomplexobj isclose isin isneginf isposinf isreal
    isrealobj lexsort may_share_memory min_scalar_type nanargmax nanargmin nonzero result_type
    searchsorted shares_memory
"""
_WITHOUT_GRADIENT = frozenset(getattr(np, name) for name in _NAMES.split())

# For each fold: what an element that where= leaves out counts as, and how initial= joins in.
_FOLDS: dict[Any, tuple[Any, Callable[..., Any] | None]] = {
    np.sum: (0, arithmetic.add),
    np.prod: (1, arithmetic.multiply),
    np.max: (None, arithmetic.maximum),
    np.min: (None, arithmetic.minimum),
    np.amax: (None, arithmetic.maximum),
    np.amin: (None, arithmetic.minimum),
    np.mean: (0, None),
    np.any: (False, None),
    np.all: (True, None),
    np.var: (None, None),
    np.std: (None, None),
    np.cumsum: (None, None),
    np.cumprod: (None, None),
}


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Call the op that NumPy's function ``func`` means.

    Raises:
        DTypeError: naming the function, or the argument, that odyssey does not have.
    """
    try:
        return _call(func, args, kwargs)
    except (OdysseyError, FloatingPointError):
        raise
    except STUMBLES as error:
        raise kind_of(error)(f"{spelled(func)}: {error}") from error


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    if func is np.where and len(args) == 1 and not kwargs:
        func = np.nonzero
    if func in _WITHOUT_GRADIENT and store() is MEMORY:
        return _on_data(func, args, kwargs)
    function = _CALLS.get(func) or _found(func)
    if function is None:
        raise _unknown(spelled(func))
    if func in _FOLDS:
        return _fold(func, function, *_FOLDS[func], _bound(func, args, kwargs))
    if not args:
        # NumPy's name for the first array may differ from ours.
        name = next(iter(_signature(func).parameters))
        kwargs = dict(kwargs)
        args = (kwargs.pop(name),) if name in kwargs else ()
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        raise _misfit(func, function, args, kwargs) or error from None


def _found(func: Any) -> Callable[..., Any] | None:
    """The op that a function of NumPy means, remembered for the next call of it."""
    name = _meant(func)
    function = function_of(name) if name else None
    if function is not None:
        _CALLS[func] = function
    return function


def _meant(func: Any) -> str | None:
    """The name of the op that a function or ufunc of NumPy means, if it is the one of that name."""
    public = spelled(func).removeprefix("np.")
    known: Any = np
    for part in public.split("."):
        known = getattr(known, part, None)
    return MEANT.get(public) if known is func else None


def _on_data(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of NumPy on the data of Variables; what comes out is constant."""
    plain = map_tree(_data, (list(args), dict(kwargs)))
    result = func(*plain[0], **plain[1])
    return tuple(map(_constant, result)) if isinstance(result, tuple) else _constant(result)


def _data(leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return leaf._array
    if isinstance(leaf, ARRAYS):
        refuse("NumPy", "an operand", leaf)
    return leaf


def _constant(found: Any) -> Any:
    if not isinstance(found, ARRAY_LIKE):
        return found
    return make_value(fast_calls.VARIABLE, found, CONSTANT, free_id())


def _fold(
    func: Any, op: Callable[..., Any], left_out: Any, join: Any, given: dict[str, Any]
) -> Any:
    """A fold with NumPy's options: ``dtype`` casts first, ``where`` masks, ``initial`` joins in."""
    x = given.pop("a")
    x = x if hasattr(x, "dtype") else as_array(spelled(func), "the operand", x)
    mask, initial = given.pop("where", None), given.pop("initial", None)
    if "out" in given:
        raise DTypeError(f"{spelled(func)}: out= is refused; a result is a value of its own")
    if given.get("dtype") is not None:
        x = shape.astype(x, given["dtype"])
    given.pop("dtype", None)
    if mask is not None:
        mask = mask if isinstance(mask, Value) else as_array(spelled(func), "where", mask)
        _check_mask(func, mask, x)
    if func in (np.var, np.std) and (mask is not None or "mean" in given):
        return _moment(func, x, True if mask is None else mask, **given)
    count = None
    if mask is not None:
        neutral = initial if left_out is None and join is not None else left_out
        if neutral is None:
            raise DTypeError(
                f"{spelled(func)}: where= "
                + ("needs initial= as well" if join else "is not offered; mask the operand")
            )
        x = choice.where(mask, x, neutral)
        if func is np.mean:
            counted = np.broadcast_to(np.asarray(mask), x.shape)
            count = np.sum(counted, given.get("axis"), keepdims=given.get("keepdims", False))
            op = reductions.sum
    result = op(x, given.pop("axis", None), **given)
    if count is not None:
        result = arithmetic.divide(result, count.astype(result.dtype))
    return result if initial is None else join(result, initial)


def _check_mask(func: Any, mask: Any, x: Any) -> None:
    came = shape.shape_of(mask)
    try:
        fits = np.broadcast_shapes(came, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{spelled(func)}: where= has shape {came}, which does not broadcast to {x.shape}"
        )


def _moment(
    func: Any,
    x: Any,
    mask: Any,
    axis: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    mean: Any = None,
) -> Any:
    """``np.var`` and ``np.std`` of the elements that ``mask`` leaves, about a ``mean`` if given."""
    if ddof and correction is not None:
        raise DTypeError(f"{spelled(func)}: ddof and correction are two names of one number")
    folded = reductions.reduced_shape(spelled(func), x.shape, axis, False)
    if x.dtype.kind in "biu":
        x = shape.astype(x, np.float64)
    number = np.empty(0, x.dtype).real.dtype
    mask = np.broadcast_to(np.asarray(mask, bool), x.shape)
    count = np.sum(mask, axis, keepdims=True)
    if mean is None:
        total = reductions.sum(choice.where(mask, x, 0), axis, keepdims=True)
        mean = arithmetic.divide(total, count.astype(number))
    away = choice.where(mask, arithmetic.subtract(x, mean), 0)
    square = arithmetic.multiply(away, complex_numbers.conj(away))
    square = complex_numbers.real(square) if x.dtype.kind == "c" else square
    left = np.maximum(count - (ddof if correction is None else correction), 0)
    left = left if keepdims else left.reshape(folded)
    square = arithmetic.divide(reductions.sum(square, axis, keepdims=keepdims), left.astype(number))
    if func is np.var:
        return square
    # As in the row: the slope of the root is 0 at 0.
    none = choice.equal(square, 0)
    return choice.where(none, 0, elementary.sqrt(choice.where(none, 1, square)))


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, named: dict[str, Any]) -> Any:
    """Call the op that a ufunc of NumPy or SciPy means, with its options.

    Raises:
        DTypeError: naming the ufunc, or the option, that odyssey does not have.
    """
    if any(leads(given) for given in inputs if not isinstance(given, Value)):
        return NotImplemented
    if "dtype" in named and named["dtype"] is None:  # which says nothing
        named = {name: value for name, value in named.items() if name != "dtype"}
    row = row_of(_meant(ufunc) or "") or _of_scipy(ufunc)
    if row is None and method == "__call__" and _has_no_gradient(ufunc) and store() is MEMORY:
        return _on_data(ufunc, inputs, named)
    if row is not None and method == "__call__":
        if not named:
            function = UFUNC_CALLS[ufunc] = operator_of(row.call)
            return function(*inputs)
        if named.keys() == {"dtype"}:
            return _with_dtype(row, inputs, named["dtype"])
    what = spelled(ufunc) + ("" if method == "__call__" else f".{method}")
    extra = f" with {', '.join(named)}=" if row is not None and named else ""
    raise _unknown(what + extra)


def _of_scipy(ufunc: np.ufunc) -> Row | None:
    """The elementwise op that has the name of a ufunc of SciPy, which is not imported for that."""
    name = ufunc.__name__
    if getattr(sys.modules.get("scipy.special"), name, None) is not ufunc:
        return None
    row = row_of(name)
    alike = row is not None and row.elementwise and (len(row.arrays), 1) == (ufunc.nin, ufunc.nout)
    return row if alike else None


def counterpart() -> str:
    """What to call in place of the function of SciPy that is running, or nothing.

    It asked a Variable for an array; SciPy's functions, unlike its ufuncs, ask nothing else.
    """
    frame = sys._getframe(1)
    while frame is not None:
        room, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_name
        package = room.partition(".")[0]
        if package not in ("numpy", "scipy", "odyssey"):
            break
        if package == "scipy" and (name in OPS or name in COMPOSITES):
            return f"od.ops.{name} is what scipy.{room.split('.')[1]}.{name} is on Variables; "
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _has_no_gradient(ufunc: np.ufunc) -> bool:
    """Whether a ufunc makes integers or truth values of floating numbers, as np.signbit does."""
    made = [kinds.partition("->")[2] for kinds in ufunc.types if kinds[0] in "efdgFDG"]
    return bool(made) and all(set(kinds) <= set("?bhilqBHILQ") for kinds in made)


def _unknown(what: str) -> DTypeError:
    return DTypeError(
        f"{what} is not in odyssey's table of differentiable ops; use an op of od.ops, give its "
        "derivative yourself with od.op or od.custom_vjp, or pass .detach().numpy() where no "
        "gradient is needed"
    )


def _with_dtype(row: Row, inputs: Any, dtype: Any) -> Any:
    """Call a ufunc's op with its operands cast to ``dtype``, as NumPy's ``dtype=`` means."""
    if not any(row.vjp.values()):
        raise DTypeError(f"np.{row.name} with dtype= has no meaning on Variables; cast the result")
    try:
        dtype = np.dtype(dtype)
    except STUMBLES as error:
        raise DTypeError(f"np.{row.name}: dtype={shown(dtype)}: {error}") from None
    operands = [v if hasattr(v, "dtype") else as_array(row.name, "an operand", v) for v in inputs]
    for operand in operands:
        if not np.can_cast(operand.dtype, dtype, "same_kind"):
            raise DTypeError(
                f"np.{row.name}: {operand.dtype} does not cast to dtype={dtype}; "
                "use astype, which may lose more"
            )
    return row.call(*[shape.astype(operand, dtype) for operand in operands])


def _signature(func: Any) -> Any:
    import inspect

    return inspect.signature(func)


def _bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments that were given, by NumPy's names, without those that say nothing."""
    given = _signature(func).bind(*args, **kwargs).arguments
    no_value = getattr(np, "_NoValue", None)
    silent = {"out": None, "dtype": None, "where": True}
    return {
        name: value
        for name, value in given.items()
        if value is not no_value and not (name in silent and value is silent[name])
    }


def spelled(func: Any) -> str:
    """A function as users write it: ``np.linalg.norm``, ``scipy.special.gammaln``.

    >>> spelled(np.linalg.norm), spelled(np.hypot)
    ('np.linalg.norm', 'np.hypot')
    """
    name = func.__name__
    # Ufuncs of SciPy, and those of older versions of NumPy, do not know where they come from.
    rooms = (np, sys.modules.get("scipy.special"))
    known = (room.__name__ for room in rooms if room and getattr(room, name, None) is func)
    home = getattr(func, "__module__", None) or next(known, "")
    public = [part for part in home.split(".") if part and not part.startswith("_")]
    return ".".join([*public, name]).replace("numpy", "np", 1)


def _misfit(func: Any, function: Any, args: Any, kwargs: Any) -> DTypeError | None:
    """The error to raise where the arguments are more than NumPy's function and ours share."""
    signature = _signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return DTypeError(f"{spelled(func)}: {error}; on Variables it takes {signature}")
    return None
