"""Half precision by way of float32: kernels, rules and shape rules for float16 and bfloat16.

A kernel of a row that computes gets half operands as float32, and its result is rounded once to
the half. NumPy computes functions of float16 the same way, but rounds sums and products at each
step and takes 10 to 200 times as long as for float32. Rows that only move elements run on halves.
Reverse and forward rules are computed in float32 from end to end, and rounded once.

bfloat16 is promoted as float16 is: with itself and small integers to itself, with wider dtypes to
what NumPy gives for float16. So shape rules run with float16 in its place. float16 with bfloat16
has no common half; it is refused.

Nothing of this is installed before the first half arrives: rows are as fast as ever without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from odyssey.devices.backends import backend_of
from odyssey.devices.half_dtypes import is_inexact, result_type
from odyssey.errors import DTypeError, OdysseyError
from odyssey.kernels.half_casts import (
    LEAST_SIZE,
    narrow,
    narrower,
    reports_underflow,
    widen,
    widener,
)
from odyssey.kernels.half_products import product_in_blocks
from odyssey.spec import HALF_LISTENERS, HALVES, Spec, intern, is_bfloat16
from odyssey.table.kernel_selection import are_kernels_compiled, is_numba_avoided

__all__ = ["cast", "handle_halves", "half_kernel", "moves_elements"]

_FLOAT16, _FLOAT32 = np.dtype(np.float16), np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)

# Elements in a block of an elementwise row: 64 kB of float32, so that temporaries stay in cache.
_BLOCK = 1 << 14

# Of so few elements a ufunc on halves, which computes each in float32 as well, takes less time than
# casts.
_FEW = 32

# Rows that move elements, beside those whose primitive says so.
_MOVES = frozenset(
    {
        *("astype", "conj", "dynamic_update_slice", "imag", "keep_where", "matrix_transpose"),
        *("nan_to_num", "put_along_axis", "real", "roll", "setitem", "update_rows"),
        "where",
    }
)
# Rows of several steps in which float16 is rounded at each, as in NumPy and in compiled code.
_STEPWISE = frozenset({"round"})

# Products, which cast a large matrix in blocks.
_PRODUCTS = frozenset({"matmul", "linear"})

# NumPy's extremes of float16 return the first of two zeros, unlike those of float32.
_FIRST_OF_EQUALS: dict[str, Callable[..., Any]] = {
    "maximum": lambda x, y: np.where((x >= y) | (x != x), x, y)[()],
    "minimum": lambda x, y: np.where((x <= y) | (x != x), x, y)[()],
}

# Rows whose rules are one operation, which rounds once as it is.
_ONE_STEP_RULES = frozenset({"add", "subtract", "multiply", "negative"})

_MAX_PLANS = 256

# Rows of the table, which handle halves from the first one on.
_ROWS: list[Any] = []

_ARRIVED = [False]


def handle_halves(row: Any) -> None:
    """Let a row of the table handle halves from the first one on, or now if one has arrived."""
    _ROWS.append(row)
    if _ARRIVED[0]:
        row.handle_halves()


def _handle_in_all_rows(dtype: np.dtype[Any]) -> None:
    _ARRIVED[0] = True
    for row in list(_ROWS):
        row.handle_halves()


HALF_LISTENERS.append(_handle_in_all_rows)


def moves_elements(row: Any) -> bool:
    """Return whether a row arranges elements without computing with them."""
    by_primitive = row.primitive in ("view", "assemble", "gather") and row.rearranges
    return by_primitive or row.name in _MOVES or row.name == "demanded"


def _is_half(value: Any) -> bool:
    return getattr(value, "dtype", None) in HALVES


# ------------------------------------------------------------------ dtypes of results


def _refuse_both(row: Any, dtypes: Sequence[Any]) -> None:
    """Raise if float16 meets bfloat16, which NumPy would promote to float32, or not at all."""
    if _FLOAT16 in dtypes and any(is_bfloat16(d) for d in dtypes if isinstance(d, np.dtype)):
        raise DTypeError(
            f"{row.name}: float16 and bfloat16 have no common half; cast one of them, with "
            "ops.astype(x, 'float32') for example"
        )


def _stand_in(value: Any) -> Any:
    """Return a spec, or an option's array, with float16 for bfloat16; others as they are."""
    if isinstance(value, Spec) and is_bfloat16(value.dtype):
        return Spec(value.shape, _FLOAT16)
    if isinstance(value, (np.ndarray, np.generic)) and is_bfloat16(value.dtype):
        return value.astype(_FLOAT16)
    return value


def half_infer(row: Any, infer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a shape rule that treats bfloat16 as float16."""
    if row.name == "astype":
        return infer
    count = len(row.arrays)

    @wraps(infer)
    def run(*given: Any) -> Any:
        dtypes = [v.dtype for v in given if isinstance(v, (Spec, np.ndarray, np.generic))]
        half = next(filter(is_bfloat16, dtypes), None)
        if half is None:
            return infer(*given)
        _refuse_both(row, dtypes[:count])
        try:
            found = infer(*map(_stand_in, given))
        except OdysseyError as error:
            error.args = (str(error).replace("float16", "bfloat16"),)
            raise
        if isinstance(found, tuple):
            return tuple([_with_half(spec, half) for spec in found])
        return _with_half(found, half)

    return run


def _with_half(spec: Any, half: np.dtype[Any]) -> Any:
    return intern(spec.shape, half) if spec.dtype == _FLOAT16 else spec


class _Plan:
    """How a row computes with operands of some dtypes.

    Attributes:
        wide: The dtype that halves are cast to; None to run the kernel on them.
        dtypes: Dtypes of the results.
        weak: The half that Python numbers are rounded to; None if there are none beside halves.
        rounds_once: True if a ufunc on the halves themselves gives the same result.
    """

    __slots__ = ("dtypes", "rounds_once", "weak", "wide")

    def __init__(
        self,
        wide: np.dtype[Any] | None,
        dtypes: tuple[np.dtype[Any], ...],
        weak: np.dtype[Any] | None = None,
    ) -> None:
        self.wide = wide
        self.dtypes = dtypes
        self.weak = weak
        self.rounds_once = False


def _make_plan(row: Any, operands: Sequence[Any], options: tuple[Any, ...]) -> _Plan:
    known = [v.dtype for v in operands if hasattr(v, "dtype")]
    _refuse_both(row, known)
    bfloat = any(map(is_bfloat16, known))
    moves = moves_elements(row)
    if (moves or row.name in _STEPWISE) and not bfloat:
        return _Plan(None, ())
    specs = [intern(v.shape, v.dtype) if hasattr(v, "dtype") else v for v in operands]
    try:
        found = row.infer(*specs, *options)
    except Exception:
        if bfloat:
            raise
        # The kernel raises as well: of bfloat16 NumPy would compute some in float64.
        return _Plan(None, ())
    results = tuple([s.dtype for s in (found if isinstance(found, tuple) else (found,))])
    if moves:
        # NumPy joins bfloat16 with few dtypes, so it is cast to that of the result.
        wide = results[0] if is_inexact(results[0]) and results[0] not in HALVES else None
        return _Plan(wide, results)
    most = max(
        (d.itemsize // (2 if d.kind == "c" else 1) for d in results if is_inexact(d)), default=0
    )
    if most > 4:
        return _Plan(_FLOAT64 if bfloat else None, results)
    plan = _Plan(_FLOAT32, results, _weak_dtype(operands) if row.elementwise else None)
    alike = not bfloat or len(known) == len(operands)  # ml_dtypes casts Python numbers to float32
    plan.rounds_once = alike and len(set(known)) == 1 and set(results) <= HALVES
    return plan


def _weak_dtype(operands: Sequence[Any]) -> np.dtype[Any] | None:
    """Return the half that Python numbers take from the operands beside them, as in NumPy.

    None without numbers, and where other operands are wider than the halves.
    """
    if not any(type(v) in (int, float) for v in operands):
        return None
    dtype = result_type(*[getattr(v, "dtype", v) for v in operands])
    return dtype if dtype in HALVES else None


def _rounded_number(value: Any, half: np.dtype[Any]) -> Any:
    """Return a Python number rounded to a half; anything else as it is."""
    return float(half.type(value)) if type(value) in (int, float) else value


# ------------------------------------------------------------------ kernels


def plans_of(row: Any) -> Callable[[Sequence[Any], tuple[Any, ...]], _Plan]:
    """Return a function that looks up the plan of a call, by the dtypes of its operands."""
    plans: dict[Any, _Plan] = {}

    def plan_of(operands: Sequence[Any], options: tuple[Any, ...]) -> _Plan:
        key: Any = tuple([getattr(v, "dtype", None) or type(v) for v in operands])
        if options:
            key = key, options, tuple(map(type, options))
        try:
            plan = plans.get(key)
        except TypeError:  # an option that has no hash
            key = plan = None
        if plan is None:
            plan = _make_plan(row, operands, options)
            if key is not None:
                if len(plans) >= _MAX_PLANS:
                    plans.clear()
                plans[key] = plan
        return plan

    return plan_of


def half_kernel(row: Any, kernel: Callable[..., Any], on_host: bool = True) -> Callable[..., Any]:
    """Return a kernel that computes halves by way of float32 with a kernel of the row.

    Unless ``on_host``, operands are arrays of a device, which no loop of the CPU can read.
    """
    count = len(row.arrays)
    plan_of = plans_of(row)

    first = _FIRST_OF_EQUALS.get(row.name)
    is_ufunc = isinstance(kernel, np.ufunc) or getattr(kernel, "__module__", "") == "_operator"

    def compute(values: tuple[Any, ...]) -> Any:
        operands, options = values[:count], values[count:]
        plan = plan_of(operands, options)
        wide, dtypes = plan.wide, plan.dtypes
        if is_ufunc and plan.rounds_once:
            size = getattr(operands[0], "size", 1)
            if size <= _FEW and (count == 1 or getattr(operands[1], "size", 1) <= _FEW):
                return kernel(*values)
        if wide is None:
            out = kernel(*values)
            return out if not dtypes else _as_dtypes(out, dtypes, False)
        chosen = kernel if first is None or dtypes[0] != _FLOAT16 else first
        if plan.weak is not None:
            operands = tuple([_rounded_number(v, plan.weak) for v in operands])
        large = on_host and any(getattr(v, "size", 1) >= LEAST_SIZE for v in operands)
        loops = large and _may_use_loops()
        if row.elementwise and loops:
            blocks = _in_blocks(row, chosen, operands, options, dtypes[0])
            if blocks is not None:
                return blocks
        if on_host and row.name in _PRODUCTS and wide == _FLOAT32 and dtypes[0].itemsize <= 4:
            product = product_in_blocks(row.name, operands, dtypes[0], loops)
            if product is not None:
                return product
        widened = [
            _widened(v, wide, loops) if getattr(v, "dtype", None) in HALVES else v for v in operands
        ]
        if options:
            options = tuple(map(_wide_option, options))
        return _as_dtypes(chosen(*widened, *options), dtypes, loops)

    def run(*values: Any) -> Any:
        for value in values[:count]:
            if getattr(value, "dtype", None) in HALVES:
                return compute(values)
        return kernel(*values)

    def run_one(x: Any, *options: Any) -> Any:
        return (
            compute((x, *options)) if getattr(x, "dtype", None) in HALVES else kernel(x, *options)
        )

    found: Any = run_one if count == 1 else run
    found.without_halves = kernel
    return found


def _widened(value: Any, wide: np.dtype[Any], loops: bool) -> Any:
    if wide != _FLOAT32 or backend_of(value) is not None:
        return value.astype(wide)
    return widen(value, loops)


def _may_use_loops() -> bool:
    return are_kernels_compiled() and not is_numba_avoided()


def _wide_option(option: Any) -> Any:
    """Return an option, if it is a spec or an array of halves, with float32."""
    if isinstance(option, Spec) and option.dtype in HALVES:
        return intern(option.shape, _FLOAT32)
    if isinstance(option, (np.ndarray, np.generic)) and option.dtype in HALVES:
        return option.astype(_FLOAT32)
    return option


def _as_dtypes(out: Any, dtypes: Sequence[np.dtype[Any]], loops: bool) -> Any:
    """Return results cast to their dtypes, rounded once."""
    if isinstance(out, tuple):
        return tuple([_as_dtype(one, dtype, loops) for one, dtype in zip(out, dtypes, strict=True)])
    return _as_dtype(out, dtypes[0], loops)


def _as_dtype(out: Any, dtype: np.dtype[Any], loops: bool) -> Any:
    if out.dtype == dtype:
        return out
    if out.dtype == _FLOAT32 and dtype in HALVES:
        # A result may be large though no operand is.
        return _narrowed(out, dtype, loops)
    return out.astype(dtype)


def _narrowed(out: Any, dtype: np.dtype[Any], loops: bool) -> Any:
    if backend_of(out) is not None:
        return out.astype(dtype)
    return narrow(out, dtype, loops or (out.size >= LEAST_SIZE and _may_use_loops()))


def _in_blocks(
    row: Any,
    kernel: Callable[..., Any],
    operands: Sequence[Any],
    options: tuple[Any, ...],
    dtype: np.dtype[Any],
) -> Any:
    """Return the result of a large elementwise call, computed in blocks; None where that is not so.

    All arrays have one shape and are C-contiguous, or are scalars.
    """
    arrays = [v for v in operands if type(v) is np.ndarray and v.ndim]
    if not arrays or arrays[0].size < 2 * LEAST_SIZE or dtype.kind == "c":
        return None
    shape = arrays[0].shape
    for array in arrays:
        flags = array.flags
        if array.shape != shape or not (flags.c_contiguous and flags.aligned):
            return None
    if any(isinstance(option, np.ndarray) for option in options) or reports_underflow(dtype):
        return None
    out = np.empty(shape, dtype)
    size, target = out.size, out.reshape(-1)
    readers = [_block_reader(v) for v in operands]
    ufunc = row.ufunc if getattr(kernel, "__module__", "") == "_operator" else kernel
    if isinstance(ufunc, np.ufunc):
        # A ufunc whose result is no half writes to the result itself.
        place = np.empty(_BLOCK, _FLOAT32) if dtype in HALVES else None
    else:
        ufunc = place = None
    write = narrower(target) if dtype in HALVES else None
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        block = [read(start, stop) for read in readers]
        if ufunc is None:
            made = kernel(*block, *options)
        elif place is None:
            made = ufunc(*block, out=target[start:stop])
            continue
        else:
            made = ufunc(*block, out=place[: stop - start])
        if write is not None and made.dtype == _FLOAT32 and made.flags.c_contiguous:
            write(made, start, stop)
        else:
            target[start:stop] = made
    return out


def _block_reader(value: Any) -> Callable[[int, int], Any]:
    """Return a function that reads a block of an operand: of halves, as float32."""
    if type(value) is not np.ndarray or not value.ndim:
        number = widen(value) if _is_half(value) else value
        return lambda start, stop: number
    flat = value.reshape(-1)
    if _is_half(value):
        return widener(flat, np.empty(_BLOCK, _FLOAT32))
    return lambda start, stop: flat[start:stop]


def half_with_residual(row: Any, with_residual: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``with_residual`` that computes halves in float32; rules get its residual as is."""
    count = len(row.arrays)
    plan_of = plans_of(row)

    def run(*values: Any) -> Any:
        operands = values[:count]
        if not any(map(_is_half, operands)):
            return with_residual(*values)
        plan = plan_of(operands, values[count:])
        if plan.wide != _FLOAT32:
            return None
        loops = _may_use_loops()
        wide = [widen(v, loops) if _is_half(v) else v for v in operands]
        pair = with_residual(*wide, *map(_wide_option, values[count:]))
        return pair and (_as_dtypes(pair[0], plan.dtypes, loops), pair[1])

    return run


# ------------------------------------------------------------------ rules


def half_rules(row: Any, rules: Sequence[Any]) -> tuple[Any, ...]:
    """Return reverse or forward rules that compute in float32 for halves."""
    if row.rearranges or row.linear or row.name in _ONE_STEP_RULES or moves_elements(row):
        return tuple(rules)
    return tuple([_half_rule(row, rule) for rule in rules])


def _half_rule(row: Any, rule: Any) -> Any:
    from odyssey.table.signature import PASS

    if rule is None or rule is PASS or hasattr(rule, "without_halves"):
        return rule
    saved = len(row.arrays) + len(row.results)

    def run(g: Any, kept: Any, specs: Any) -> Any:
        half = getattr(g, "dtype", None)
        if half not in HALVES:
            if specs is None or not any(s is not None and s.dtype in HALVES for s in specs):
                return rule(g, kept, specs)
            half = None
        wide_kept = kept
        if kept:
            options = kept[saved : saved + len(row.options)]
            wide_kept = (
                *map(_wide_value, kept[:saved]),
                *map(_wide_option, options),
                *kept[saved + len(row.options) :],
            )
        wide_specs = None if specs is None else tuple(map(_wide_option, specs))
        out = rule(_wide_value(g), wide_kept, wide_specs)
        # With specs, the caller sums and casts: sums are taken in float32.
        if specs is None and half is not None and getattr(out, "dtype", None) == _FLOAT32:
            return _cast(out, half)
        return out

    run.without_halves = rule  # type: ignore[attr-defined]
    return run


def cast(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array cast to a dtype: between a half and float32 by a compiled loop."""
    if HALVES and backend_of(x) is None:
        loops = x.size >= LEAST_SIZE and _may_use_loops()
        if dtype in HALVES and x.dtype == _FLOAT32:
            return narrow(x, dtype, loops)
        if x.dtype in HALVES and dtype == _FLOAT32:
            return widen(x, loops)
    return x.astype(dtype)


def _wide_value(value: Any) -> Any:
    return _cast(value, _FLOAT32) if _is_half(value) else value


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """Cast an array, or a Variable or Symbol, recorded."""
    if isinstance(value, (np.ndarray, np.generic)):
        return cast(value, dtype)
    return value.astype(dtype)
