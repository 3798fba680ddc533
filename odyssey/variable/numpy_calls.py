"""NumPy's functions and ufuncs on Variables, called with NumPy's signatures, as ops."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, error_class_of, format_value
from odyssey.devices.arrays import (
    ARRAY_LIKE,
    ARRAYS,
    DEVICE_TYPES,
    as_array,
    has_own_arithmetic,
    refuse_non_array,
)
from odyssey.devices.device import device_of
from odyssey.devices.half_dtypes import can_cast, named_dtype
from odyssey.devices.same_device import call_beside
from odyssey.errors import DeviceError, DTypeError, OdysseyError, ShapeError
from odyssey.ops.structure import shape
from odyssey.spec import Spec
from odyssey.table import fast_calls, index
from odyssey.table.declare import COMPOSITES, OPS, Row, operator_form
from odyssey.table.numpy_signatures import FALLBACKS
from odyssey.table.registry import function_of, row_of
from odyssey.table.store import MEMORY, numbers_of, store
from odyssey.table.value import CONSTANT, Traced, Value, free_id, make_value
from odyssey.tree import leaves, map_tree
from odyssey.tree_objects import no_attributes
from odyssey.variable.numpy_arguments import (
    given_arguments,
    is_default_option,
    numpy_signature_error,
    options_of,
    public_name,
    signature_of,
    without_default_options,
)
from odyssey.variable.numpy_reductions import REDUCTIONS, reduce_as_numpy

__all__ = [
    "OP_NAMES",
    "UFUNC_CALLS",
    "call",
    "call_ufunc",
    "counterpart",
    "options_of",
    "public_name",
]

OP_NAMES = {
    known: op
    for op, *functions in (word.split("=") for word in index.NUMPY.split())
    for known in functions or [op]
}
"""The name of the op for each function and ufunc of NumPy, by name."""

# The NumPy function for each op that has the same name.
_NUMPY_NAMES = {op: known for known, op in OP_NAMES.items() if known.rpartition(".")[2] == op}

# Functions that were called before; others may load a family of ops.
UFUNC_CALLS: dict[np.ufunc, Callable[..., Any]] = {}
_CALLS: dict[Any, Callable[..., Any]] = {
    # Functions of the shape, which need no computation.
    np.shape: lambda a: shape.shape_of(a),
    np.ndim: lambda a: len(shape.shape_of(a)),
    np.size: lambda a, axis=None: _size_along(shape.shape_of(a), axis),
    # In np.linalg some functions have other default axes.
    np.linalg.matmul: lambda x1, x2, /: _op_for(np.matmul)(x1, x2),
    np.linalg.matrix_transpose: lambda x, /: _op_for(np.matrix_transpose)(x),
    np.linalg.tensordot: lambda x1, x2, /, *, axes=2: _op_for(np.tensordot)(x1, x2, axes),
    np.linalg.cross: lambda x1, x2, /, *, axis=-1: _op_for(np.cross)(x1, x2, axis=axis),
    np.linalg.outer: lambda x1, x2, /: _op_for(np.outer)(*_vectors(x1, x2)),
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: _op_for(np.trace)(
        x, offset, -2, -1, dtype
    ),
    np.linalg.diagonal: lambda x, /, *, offset=0: _op_for(np.diagonal)(x, offset, -2, -1),
    # NumPy uses another formula, so the last digits may differ.
    np.i0: lambda x: OPS["i0"].call(x),
}

if hasattr(np, "astype"):
    _CALLS[np.astype] = lambda x, dtype, /, *, copy=True, device=None: shape.astype(x, dtype)


def _op_for(func: Any) -> Any:
    return _CALLS.get(func) or _find_op(func)


def _size_along(sizes: tuple[int, ...], axis: Any) -> int:
    axes = range(len(sizes)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(sizes[k] for k in axes)


def _vectors(x1: Any, x2: Any) -> tuple[Any, Any]:
    came = shape.shape_of(x1), shape.shape_of(x2)
    if [len(sizes) for sizes in came] != [1, 1]:
        raise ShapeError(
            f"np.linalg.outer: x1 has shape {came[0]}, x2 {came[1]}; pass two vectors, or use outer"
        )
    return x1, x2


# Functions whose results are integers, booleans or dtypes, and so have no gradient.
_NAMES = """
    allclose argpartition argwhere array2string array_equal array_equiv array_repr array_str
    can_cast common_type count_nonzero diag_indices_from digitize einsum_path flatnonzero iscomplex
    iscomplexobj isclose isin isneginf isposinf isreal isrealobj lexsort may_share_memory
    min_scalar_type nanargmax nanargmin nonzero packbits ravel_multi_index result_type searchsorted
    shares_memory tril_indices_from triu_indices_from unpackbits unravel_index
"""
_WITHOUT_GRADIENT = frozenset(getattr(np, name) for name in _NAMES.split())

# Ufuncs without a public name, as that of ``array.clip``.
_UNNAMED = {np._core.umath.clip: "clip"}  # type: ignore[attr-defined]


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Call the op for NumPy's function ``func``.

    Raises:
        DTypeError: naming the function, or the argument, that odyssey does not have.
    """
    try:
        return _call(func, args, kwargs)
    except (OdysseyError, FloatingPointError):
        raise
    except STUMBLES as error:
        raise error_class_of(error)(f"{public_name(func)}: {error}") from error


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    if func is np.where and len(args) == 1 and not kwargs:
        func = np.nonzero
    if func in _WITHOUT_GRADIENT and store() is MEMORY:
        return _call_on_arrays(func, args, kwargs)
    function = _op_for(func)
    if function is None:
        raise _unknown_function(public_name(func))
    if func in REDUCTIONS:
        return reduce_as_numpy(
            public_name(func), func, function, given_arguments(func, args, kwargs)
        )
    if func is np.concatenate and len(args) > 1:  # the op takes arrays there
        args, kwargs = args[:1], dict(zip(("axis", "out"), args[1:], strict=False)) | kwargs
    if not args:
        # NumPy's name for the first array may differ from the op's.
        name = next(iter(signature_of(func).parameters))
        kwargs = dict(kwargs)
        args = (kwargs.pop(name),) if name in kwargs else ()
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if numpy_signature_error(func, function, args, kwargs) is None:
            raise error from None
        args, kwargs = without_default_options(func, args, kwargs)
        if misfit := numpy_signature_error(func, function, args, kwargs):
            raise misfit from None
    return function(*args, **kwargs)


def _call_with_numpy_signature(
    name: str, function: Any, bind: Any, args: Any, named: dict[str, Any]
) -> Any:
    """Call an op with the arguments of NumPy's function of its name; else NotImplemented."""
    func: Any = np
    for part in _NUMPY_NAMES.get(name, "").split("."):
        func = getattr(func, part, None)
    tape = {"tape": named.pop("tape")} if "tape" in named else {}
    try:
        given = given_arguments(func, args, named)
        args, named = without_default_options(func, args, named)
        if func not in REDUCTIONS or tape:
            bind(*args, **named)
    except (TypeError, ValueError):  # it has other parameters, or says of none
        return NotImplemented
    if func in REDUCTIONS and not tape:
        return reduce_as_numpy(name, func, function, given)
    return function(*args, **named, **tape)


FALLBACKS.append(_call_with_numpy_signature)


def _find_op(func: Any) -> Callable[..., Any] | None:
    """Return the op for a function of NumPy, and cache it."""
    name = _op_name_of(func)
    function = function_of(name) if name else None
    if function is not None:
        _CALLS[func] = function
    return function


def _op_name_of(func: Any) -> str | None:
    """Return the name of the op for a function or ufunc of NumPy; None for other functions."""
    public = public_name(func).removeprefix("np.")
    known: Any = np
    for part in public.split("."):
        known = getattr(known, part, None)
    return OP_NAMES.get(public) if known is func else None


def _call_on_arrays(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of NumPy on the data of Variables; the results are constants."""
    plain = map_tree(_array_for_numpy, (list(args), dict(kwargs)), rule=no_attributes)
    found = leaves(plain)
    array = next((one for one in found if type(one) in DEVICE_TYPES), None)
    for other in found if array is not None else ():
        if isinstance(other, ARRAYS) and device_of(other) != device_of(array):
            here = str(device_of(array))
            raise DeviceError(
                f"{public_name(func)}: an operand is on {here} and one on {device_of(other)}; pass "
                f"both on one device, by .to({here!r}) or .numpy() of a Variable"
            )
    result = call_beside(array, lambda: func(*plain[0], **plain[1]))
    return tuple(map(_as_constant, result)) if isinstance(result, tuple) else _as_constant(result)


def _array_for_numpy(leaf: Any) -> Any:
    if isinstance(leaf, Value):
        return numbers_of("NumPy", leaf)
    if isinstance(leaf, ARRAYS):
        refuse_non_array("NumPy", "an operand", leaf)
    return leaf


def _as_constant(found: Any) -> Any:
    if not isinstance(found, ARRAY_LIKE):
        return found
    return make_value(fast_calls.VARIABLE, found, CONSTANT, free_id())


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, named: dict[str, Any]) -> Any:
    """Call the op for a ufunc of NumPy or SciPy, with its options.

    Raises:
        DTypeError: naming the ufunc, or the option, that odyssey does not have.
    """
    if any(has_own_arithmetic(given) for given in inputs if not isinstance(given, (Value, Traced))):
        return NotImplemented
    if named:
        named = {name: value for name, value in named.items() if not is_default_option(name, value)}
    if ufunc is np.divmod and method == "__call__" and not named:
        return OPS["floor_divide"].call(*inputs), OPS["mod"].call(*inputs)
    op_name = _UNNAMED.get(ufunc) or _op_name_of(ufunc) or ""
    if op_name in COMPOSITES and method == "__call__":
        return COMPOSITES[op_name](*inputs, **named)
    row = row_of(op_name) or _row_of_scipy_ufunc(ufunc)
    if row is None and method == "__call__" and _has_no_gradient(ufunc) and store() is MEMORY:
        return _call_on_arrays(ufunc, inputs, named)
    if row is not None and method == "__call__":
        if not named:
            # The ufunc of ``array.clip`` takes bounds of all kinds, as the op does.
            function = row.call if op_name == "clip" else operator_form(row.call)
            UFUNC_CALLS[ufunc] = function
            return function(*inputs)
        if named.keys() == {"dtype"}:
            return _with_dtype(row, inputs, named["dtype"])
    what = public_name(ufunc) + ("" if method == "__call__" else f".{method}")
    extra = f" with {', '.join(named)}=" if row is not None and named else ""
    raise _unknown_function(what + extra, counterpart())


def _row_of_scipy_ufunc(ufunc: np.ufunc) -> Row | None:
    """Return the elementwise op with the name of a SciPy ufunc, without importing SciPy."""
    name = ufunc.__name__
    if getattr(sys.modules.get("scipy.special"), name, None) is not ufunc:
        return None
    row = row_of(name)
    alike = row is not None and row.elementwise and (len(row.arrays), 1) == (ufunc.nin, ufunc.nout)
    return row if alike else None


# Modules of SciPy with functions that are ops, and functions there that share only the name.
_SCIPY_MODULES = {
    "fft": "",
    "integrate": "",
    "linalg": "dft",
    "signal": "bilinear normalize square",
    "spatial": "norm",
    "special": "",
}
# Arguments with which SciPy's function equals the op with its defaults.
_DEFAULTS = {
    "linalg.cholesky": "lower=True",
    "linalg.qr": "mode='economic'",
    "signal.correlate": "mode='valid'",
    "special.log_softmax": "axis=-1",
    "special.softmax": "axis=-1",
}


def counterpart() -> str:
    """Return advice which op to call instead of the running SciPy function, or an empty text.

    The function converted a Variable to an array. SciPy's functions, unlike its ufuncs, have no
    other protocol.
    """
    frame = sys._getframe(1)
    while frame is not None:
        module, code = str(frame.f_globals.get("__name__", "")), frame.f_code
        package, _, rest = module.partition(".")
        if package not in ("numpy", "scipy", "odyssey"):
            break
        name, room = code.co_name, rest.partition(".")[0]
        # The name of a method has no fixed meaning.
        theirs = package == "scipy" and code.co_qualname == name
        alike = (name in OPS or name in COMPOSITES) and name not in _SCIPY_MODULES.get(
            room, name
        ).split()
        if theirs and alike:
            known = _DEFAULTS.get(f"{room}.{name}")
            called = f" with {known}" if known else ""
            return f"od.ops.{name} is what scipy.{room}.{name} is on Variables{called}; "
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _has_no_gradient(ufunc: np.ufunc) -> bool:
    """True if a ufunc returns integers or booleans for floating numbers, as np.signbit does."""
    made = [kinds.partition("->")[2] for kinds in ufunc.types if kinds[0] in "efdgFDG"]
    return bool(made) and all(set(kinds) <= set("?bhilqBHILQ") for kinds in made)


def _unknown_function(what: str, ours: str = "") -> DTypeError:
    return DTypeError(
        f"{what} is not in odyssey's table of differentiable ops; {ours}use an op of od.ops, give "
        "its derivative yourself with od.op or od.custom_vjp, or pass .detach().numpy() where no "
        "gradient is needed"
    )


def _with_dtype(row: Row, inputs: Any, dtype: Any) -> Any:
    """Call a ufunc's op with its operands cast to ``dtype``, the meaning of NumPy's ``dtype=``."""
    if not any(row.vjp.values()):
        raise DTypeError(f"np.{row.name} with dtype= has no meaning on Variables; cast the result")
    try:
        dtype = np.dtype(named_dtype(dtype))
    except STUMBLES as error:
        raise DTypeError(f"np.{row.name}: dtype={format_value(dtype)}: {error}") from None
    operands = [v if hasattr(v, "dtype") else as_array(row.name, "an operand", v) for v in inputs]
    for operand in operands:
        if not can_cast(operand.dtype, dtype):
            raise DTypeError(
                f"np.{row.name}: {operand.dtype} does not cast to dtype={dtype}; "
                "use astype, which may lose more"
            )
    made = row.infer(*(Spec(operand.shape, dtype) for operand in operands)).dtype
    if made != dtype:
        what = f"np.{row.name}: dtype={dtype}, which would give {made}"
        raise DTypeError(f"{what}; pass a dtype of its results, or cast them")
    return row.call(*[shape.astype(operand, dtype) for operand in operands])
