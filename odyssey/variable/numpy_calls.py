"""Calls of NumPy's functions on Variables, in NumPy's own signatures, as calls of ops."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, kind_of, shown
from odyssey.devices.arrays import (
    ARRAY_LIKE,
    ARRAYS,
    as_array,
    has_own_arithmetic,
    refuse_non_array,
)
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops.structure import shape
from odyssey.spec import Spec
from odyssey.table import fast_calls, index
from odyssey.table.declare import COMPOSITES, OPS, Row, operator_form
from odyssey.table.numpy_signatures import FALLBACKS
from odyssey.table.registry import function_of, row_of
from odyssey.table.store import MEMORY, numbers_of, store
from odyssey.table.value import CONSTANT, Traced, Value, free_id, make_value
from odyssey.tree import map_tree
from odyssey.variable.numpy_arguments import (
    bound,
    is_silent,
    misfit_of,
    options_of,
    signature_of,
    spelled,
    without_silent,
)
from odyssey.variable.numpy_reductions import FOLDS, fold

__all__ = ["MEANT", "UFUNC_CALLS", "call", "call_ufunc", "counterpart", "options_of", "spelled"]

MEANT = {
    known: op
    for op, *functions in (word.split("=") for word in index.NUMPY.split())
    for known in functions or [op]
}
"""The op that each function and ufunc of NumPy means, both by name."""

# Of the op that has its name, the function of NumPy.
_HOMES = {op: known for known, op in MEANT.items() if known.rpartition(".")[2] == op}

# What was called already; families are loaded for the rest.
UFUNC_CALLS: dict[np.ufunc, Callable[..., Any]] = {}
_CALLS: dict[Any, Callable[..., Any]] = {
    # What is known of a Variable without computing.
    np.shape: lambda a: shape.shape_of(a),
    np.ndim: lambda a: len(shape.shape_of(a)),
    np.size: lambda a, axis=None: _size(shape.shape_of(a), axis),
    # In the room of linear algebra some have other axes by default.
    np.linalg.matmul: lambda x1, x2, /: _op(np.matmul)(x1, x2),
    np.linalg.matrix_transpose: lambda x, /: _op(np.matrix_transpose)(x),
    np.linalg.tensordot: lambda x1, x2, /, *, axes=2: _op(np.tensordot)(x1, x2, axes),
    np.linalg.cross: lambda x1, x2, /, *, axis=-1: _op(np.cross)(x1, x2, axis=axis),
    np.linalg.outer: lambda x1, x2, /: _op(np.outer)(*_vectors(x1, x2)),
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: _op(np.trace)(x, offset, -2, -1, dtype),
    np.linalg.diagonal: lambda x, /, *, offset=0: _op(np.diagonal)(x, offset, -2, -1),
    # By another formula than ours, so that the last places may differ.
    np.i0: lambda x: OPS["i0"].call(x),
}

if hasattr(np, "astype"):
    _CALLS[np.astype] = lambda x, dtype, /, *, copy=True, device=None: shape.astype(x, dtype)


def _op(func: Any) -> Any:
    return _CALLS.get(func) or _found(func)


def _size(sizes: tuple[int, ...], axis: Any) -> int:
    axes = range(len(sizes)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(sizes[k] for k in axes)


def _vectors(x1: Any, x2: Any) -> tuple[Any, Any]:
    came = shape.shape_of(x1), shape.shape_of(x2)
    if [len(sizes) for sizes in came] != [1, 1]:
        raise ShapeError(
            f"np.linalg.outer: x1 has shape {came[0]}, x2 {came[1]}; pass two vectors, or use outer"
        )
    return x1, x2


# What has integers, truth values or dtypes for its result, and so no gradient.
_NAMES = """
    allclose argpartition argwhere array2string array_equal array_equiv array_repr array_str
    can_cast common_type count_nonzero diag_indices_from digitize einsum_path flatnonzero iscomplex
    iscomplexobj isclose isin isneginf isposinf isreal isrealobj lexsort may_share_memory
    min_scalar_type nanargmax nanargmin nonzero packbits ravel_multi_index result_type searchsorted
    shares_memory tril_indices_from triu_indices_from unpackbits unravel_index
"""
_WITHOUT_GRADIENT = frozenset(getattr(np, name) for name in _NAMES.split())

# Ufuncs that mean an op of another name, or that have no public one, as that of ``array.clip``.
_UNNAMED = {np.positive: "identity", np._core.umath.clip: "clip"}  # type: ignore[attr-defined]


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
    function = _op(func)
    if function is None:
        raise _unknown(spelled(func))
    if func in FOLDS:
        return fold(spelled(func), func, function, bound(func, args, kwargs))
    if func is np.concatenate and len(args) > 1:  # ours takes arrays there
        args, kwargs = args[:1], dict(zip(("axis", "out"), args[1:], strict=False)) | kwargs
    if not args:
        # NumPy's name for the first array may differ from ours.
        name = next(iter(signature_of(func).parameters))
        kwargs = dict(kwargs)
        args = (kwargs.pop(name),) if name in kwargs else ()
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if misfit_of(func, function, args, kwargs) is None:
            raise error from None
        args, kwargs = without_silent(func, args, kwargs)
        if misfit := misfit_of(func, function, args, kwargs):
            raise misfit from None
    return function(*args, **kwargs)


def _lent(name: str, function: Any, bind: Any, args: Any, named: dict[str, Any]) -> Any:
    """Call an op with the arguments of NumPy's function of its name; else NotImplemented."""
    func: Any = np
    for part in _HOMES.get(name, "").split("."):
        func = getattr(func, part, None)
    tape = {"tape": named.pop("tape")} if "tape" in named else {}
    try:
        given = bound(func, args, named)
        args, named = without_silent(func, args, named)
        if func not in FOLDS or tape:
            bind(*args, **named)
    except (TypeError, ValueError):  # it has other parameters, or says of none
        return NotImplemented
    if func in FOLDS and not tape:
        return fold(name, func, function, given)
    return function(*args, **named, **tape)


FALLBACKS.append(_lent)


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
        return numbers_of("NumPy", leaf)
    if isinstance(leaf, ARRAYS):
        refuse_non_array("NumPy", "an operand", leaf)
    return leaf


def _constant(found: Any) -> Any:
    if not isinstance(found, ARRAY_LIKE):
        return found
    return make_value(fast_calls.VARIABLE, found, CONSTANT, free_id())


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, named: dict[str, Any]) -> Any:
    """Call the op that a ufunc of NumPy or SciPy means, with its options.

    Raises:
        DTypeError: naming the ufunc, or the option, that odyssey does not have.
    """
    if any(has_own_arithmetic(given) for given in inputs if not isinstance(given, (Value, Traced))):
        return NotImplemented
    if named:
        named = {name: value for name, value in named.items() if not is_silent(name, value)}
    if ufunc is np.divmod and method == "__call__" and not named:
        return OPS["floor_divide"].call(*inputs), OPS["mod"].call(*inputs)
    meant = _UNNAMED.get(ufunc) or _meant(ufunc) or ""
    if meant in COMPOSITES and method == "__call__":
        return COMPOSITES[meant](*inputs, **named)
    row = row_of(meant) or _of_scipy(ufunc)
    if row is None and method == "__call__" and _has_no_gradient(ufunc) and store() is MEMORY:
        return _on_data(ufunc, inputs, named)
    if row is not None and method == "__call__":
        if not named:
            # That of ``array.clip`` takes bounds of all kinds, as the op does.
            function = row.call if meant == "clip" else operator_form(row.call)
            UFUNC_CALLS[ufunc] = function
            return function(*inputs)
        if named.keys() == {"dtype"}:
            return _with_dtype(row, inputs, named["dtype"])
    what = spelled(ufunc) + ("" if method == "__call__" else f".{method}")
    extra = f" with {', '.join(named)}=" if row is not None and named else ""
    raise _unknown(what + extra, counterpart())


def _of_scipy(ufunc: np.ufunc) -> Row | None:
    """The elementwise op that has the name of a ufunc of SciPy, which is not imported for that."""
    name = ufunc.__name__
    if getattr(sys.modules.get("scipy.special"), name, None) is not ufunc:
        return None
    row = row_of(name)
    alike = row is not None and row.elementwise and (len(row.arrays), 1) == (ufunc.nin, ufunc.nout)
    return row if alike else None


# Rooms of SciPy whose functions ops are, and what in them has the name of an op and no more.
_ROOMS = {
    "fft": "",
    "integrate": "",
    "linalg": "dft",
    "signal": "bilinear normalize square",
    "spatial": "norm",
    "special": "",
}
# How SciPy's function is to be called to be what the op is by default.
_DEFAULTS = {
    "linalg.cholesky": "lower=True",
    "linalg.qr": "mode='economic'",
    "signal.correlate": "mode='valid'",
    "special.log_softmax": "axis=-1",
    "special.softmax": "axis=-1",
}


def counterpart() -> str:
    """What to call in place of the function of SciPy that is running, or nothing.

    It asked a Variable for an array; SciPy's functions, unlike its ufuncs, ask nothing else.
    """
    frame = sys._getframe(1)
    while frame is not None:
        module, code = str(frame.f_globals.get("__name__", "")), frame.f_code
        package, _, rest = module.partition(".")
        if package not in ("numpy", "scipy", "odyssey"):
            break
        name, room = code.co_name, rest.partition(".")[0]
        # A method may mean anything by its name.
        theirs = package == "scipy" and code.co_qualname == name
        alike = (name in OPS or name in COMPOSITES) and name not in _ROOMS.get(room, name).split()
        if theirs and alike:
            known = _DEFAULTS.get(f"{room}.{name}")
            called = f" with {known}" if known else ""
            return f"od.ops.{name} is what scipy.{room}.{name} is on Variables{called}; "
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _has_no_gradient(ufunc: np.ufunc) -> bool:
    """Whether a ufunc makes integers or truth values of floating numbers, as np.signbit does."""
    made = [kinds.partition("->")[2] for kinds in ufunc.types if kinds[0] in "efdgFDG"]
    return bool(made) and all(set(kinds) <= set("?bhilqBHILQ") for kinds in made)


def _unknown(what: str, ours: str = "") -> DTypeError:
    return DTypeError(
        f"{what} is not in odyssey's table of differentiable ops; {ours}use an op of od.ops, give "
        "its derivative yourself with od.op or od.custom_vjp, or pass .detach().numpy() where no "
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
    made = row.infer(*(Spec(operand.shape, dtype) for operand in operands)).dtype
    if made != dtype:
        what = f"np.{row.name}: dtype={dtype}, of which it makes {made}"
        raise DTypeError(f"{what}; pass a dtype of its results, or cast them")
    return row.call(*[shape.astype(operand, dtype) for operand in operands])
