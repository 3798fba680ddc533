"""Namespaces: a device's array library as it stands where ``np`` stands in the code of rows.

Calls whose arguments hold no array of the device are NumPy's: rows compute with shapes, dtypes and
numbers on the host. Functions that make arrays make them on the device. Keywords of NumPy that the
library lacks are supplied here by functions that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from odyssey.devices.device_versions import check_bounds
from odyssey.errors import DeviceError

__all__ = ["Namespace"]

_MAKERS = frozenset(
    {
        *("arange", "array", "asarray", "ascontiguousarray", "asfortranarray", "bartlett"),
        *("blackman", "empty", "eye", "full", "hamming", "hanning", "identity", "indices"),
        *("kaiser", "linspace", "logspace", "mgrid", "ogrid", "ones", "tri", "tril_indices"),
        *("triu_indices", "zeros"),
    }
)

# Functions of shapes and dtypes, which read no element.
_OF_SHAPES = frozenset(
    {
        *("broadcast_shapes", "can_cast", "dtype", "isscalar", "issubdtype", "may_share_memory"),
        *("ndim", "promote_types", "shape", "shares_memory", "size", "iscomplexobj"),
        *("isrealobj", "errstate", "finfo", "iinfo", "result_type"),
    }
)


class Namespace:
    """A module of NumPy as a device has it.

    Args:
        library: The module of the array library, such as ``cupy``.
        array_type: The class of its arrays.
        host: The module of NumPy in whose place it stands.
    """

    def __init__(self, library: Any, array_type: type, host: Any = np) -> None:
        self._library = library
        self._array_type = array_type
        self._host = host

    def __repr__(self) -> str:
        return f"<{self._host.__name__} on {self._library!r}>"

    def __getattr__(self, name: str) -> Any:
        host = getattr(self._host, name)
        found = self._stand_for(name, host)
        self.__dict__[name] = found  # later look-ups find it without this call
        return found

    def _stand_for(self, name: str, host: Any) -> Any:
        if isinstance(host, ModuleType):
            return Namespace(getattr(self._library, name, None), self._array_type, host)
        supplied = _SUPPLIED.get(f"{self._host.__name__}.{name}".removeprefix("numpy."))
        if supplied is not None:
            return _Function(name, host, lambda *a, **k: supplied(self._library, *a, **k), self)
        if name in _OF_SHAPES:
            return _function_of_shapes(name, host, self._array_type)
        if self._host is np and name in _MAKERS:
            return getattr(self._library, name)
        if not callable(host) or isinstance(host, type):
            return host
        return _Function(name, host, getattr(self._library, name, None), self)


class _Function:
    """A function of NumPy: the library's where an argument is of the device, else NumPy's."""

    def __init__(self, name: str, host: Any, own: Any, space: Namespace) -> None:
        self.__name__ = name
        self._host = host
        self._own = own
        self._space = space

    def __call__(self, *args: Any, **options: Any) -> Any:
        kind = self._space._array_type
        for value in (*args, *options.values()):
            if type(value) is kind or (type(value) in (list, tuple) and _holds_array(value, kind)):
                break
        else:
            return self._host(*args, **options)
        if self._own is None:
            raise DeviceError(
                f"{self._host.__name__}: {self._space._library!r} has no such function; move the "
                "operands to the CPU, with .to('cpu')"
            )
        if "where" in options and isinstance(self._host, np.ufunc):
            return self._call_where(*args, **options)
        if "order" in options and isinstance(self._host, np.ufunc):
            order = options.pop("order")
            out = self._own(*args, **options)
            return (
                self._space.asfortranarray(out)
                if order == "F"
                else (self._space.ascontiguousarray(out) if order == "C" else out)
            )
        return self._own(*args, **options)

    def _call_where(self, *args: Any, where: Any, out: Any = None, **options: Any) -> Any:
        """Compute all elements, and write those where the mask is True: ``where=`` is missing."""
        made = self(*args, **options)
        if out is None or where is True:
            return made if out is None else self(*args, out=out, **options)
        out[...] = self._space.where(where, made, out)
        return out

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        host = getattr(self._host, name)  # a method of a ufunc
        if not callable(host):
            return host
        own = getattr(self._own, name, None)
        if name == "reduce" and self.__name__ in _REDUCTIONS:
            own = _reduction(getattr(self._space, _REDUCTIONS[self.__name__]))
        elif name == "accumulate" and self.__name__ in _ACCUMULATIONS:
            own = _accumulation(getattr(self._space, _ACCUMULATIONS[self.__name__]))
        elif name == "accumulate" and self.__name__ in ("maximum", "minimum", "logaddexp"):
            own = _accumulate_of(self._own, by_doubling=self.__name__ != "logaddexp")
        elif name == "reduceat" and self.__name__ in ("maximum", "minimum"):
            own = _extremes_of_segments(self._space, self._own)
        return _Function(f"{self.__name__}.{name}", host, own, self._space)


def _holds_array(values: Any, kind: type) -> bool:
    return any(
        type(value) is kind or (type(value) in (list, tuple) and _holds_array(value, kind))
        for value in values
    )


def _function_of_shapes(name: str, host: Any, kind: Any) -> Any:
    if name not in ("result_type", "can_cast", "ndim", "shape", "size"):
        return host

    def call(*args: Any, **options: Any) -> Any:
        if name in ("ndim", "shape", "size") and type(args[0]) is kind:
            return getattr(args[0], name)
        return host(*[v.dtype if type(v) is kind else v for v in args], **options)

    return call


# ------------------------------------------------------------------ ufuncs' methods

_REDUCTIONS = {
    **{"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"},
    **{"logical_and": "all", "logical_or": "any"},
}
_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_along(
        x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, **options: Any
    ) -> Any:
        more = {} if dtype is None else {"dtype": dtype}
        more |= {} if out is None else {"out": out}
        return function(x, axis=axis, **more, **options)

    return reduce_along


def _accumulation(function: Callable[..., Any]) -> Callable[..., Any]:
    def accumulate_along(x: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        return function(x, axis=axis, dtype=dtype, out=out)

    return accumulate_along


def _accumulate_of(function: Callable[..., Any], by_doubling: bool) -> Callable[..., Any]:
    """Return ``accumulate`` of a ufunc; by doubling where the order does not change rounding."""

    def accumulate_along(x: Any, axis: int = 0) -> Any:
        out = x.copy()
        lines = out.swapaxes(axis, 0)
        step = 1
        while step < len(lines):
            if by_doubling:
                lines[step:] = function(lines[:-step], lines[step:])
                step *= 2
            else:
                lines[step] = function(lines[step - 1], lines[step])
                step += 1
        return out

    return accumulate_along


def _extremes_of_segments(xp: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``reduceat`` of a maximum or minimum for rising starts, by doubling."""

    def reduce_at(x: Any, starts: Any, axis: int = 0) -> Any:
        out = x.copy()
        lines = out.swapaxes(axis, 0)
        begins = xp.zeros(len(lines), np.intp)
        begins[starts] = 1
        segments = begins.cumsum().reshape(-1, *[1] * (out.ndim - 1))
        step = 1
        while step < len(lines):
            later = lines[step:]
            same = segments[step:] == segments[:-step]
            lines[step:] = xp.where(same, function(lines[:-step], later), later)
            step *= 2
        ends = xp.append(starts[1:], len(lines)) - 1
        return xp.take(out, ends, axis)

    return reduce_at


# ------------------------------------------------------------------ what the library lacks


def _take(
    cp: Any, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise"
) -> Any:
    """Take elements: ``mode=`` is missing, and an index out of bounds wraps."""
    a = cp.asarray(a)
    size = a.size if axis is None else a.shape[axis]
    if mode == "clip":
        indices = cp.clip(cp.asarray(indices), 0, max(size - 1, 0))
    elif mode == "raise":
        indices = cp.asarray(indices)
        check_bounds(indices, axis, size)
    return cp.take(a, cp.asarray(indices), axis, out)


def _extreme(name: str, pick: str) -> Callable[..., Any]:
    def reduce(
        cp: Any,
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        if initial is None and where is True:
            return getattr(cp, name)(a, axis, out, keepdims)
        if where is not True:
            a = cp.where(where, a, cp.asarray(initial, a.dtype))
        axes = range(a.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = {k % a.ndim for k in axes} if a.ndim else set()
        if any(a.shape[k] == 0 for k in axes):
            shape = [1 if k in axes else n for k, n in enumerate(a.shape)]
            made = cp.full(shape, initial, a.dtype)
            if not keepdims:
                made = made.reshape([n for k, n in enumerate(a.shape) if k not in axes])
        else:
            made = getattr(cp, pick)(getattr(cp, name)(a, axis, None, keepdims), initial)
        if out is None:
            return made
        out[...] = made
        return out

    return reduce


def _reduction_of(name: str, neutral: int) -> Callable[..., Any]:
    """Return a reduction with ``where=`` and ``initial=``, which CuPy's lack."""

    def reduce(
        cp: Any, a: Any, *args: Any, initial: Any = None, where: Any = True, **options: Any
    ) -> Any:
        if where is not True:
            a = cp.where(where, a, cp.asarray(neutral, a.dtype))
        made = getattr(cp, name)(a, *args, **options)
        if initial is None or initial == neutral:
            return made
        if name == "sum":
            made += initial
        else:
            made *= initial
        return made

    return reduce


def _put_along_axis(cp: Any, arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """Assign elements of lines: CuPy takes no number for values, and no negative axis."""
    check_bounds(indices, axis, arr.size if axis is None else arr.shape[axis])
    if axis is None:
        arr.reshape(-1)[indices] = values
        return
    places: list[Any] = []
    for k, n in enumerate(arr.shape):
        shape = [1] * arr.ndim
        shape[k] = n
        places.append(cp.arange(n).reshape(shape))
    places[axis] = indices
    arr[tuple(places)] = values


def _as_strided(
    tricks: Any,
    x: Any,
    shape: Any = None,
    strides: Any = None,
    subok: bool = False,
    writeable: bool = True,
) -> Any:
    return tricks.as_strided(x, shape, strides)


def _broadcast_to(cp: Any, array: Any, shape: Any, subok: bool = False) -> Any:
    return cp.broadcast_to(array, shape)


def _cholesky(linalg: Any, a: Any, *, upper: bool = False) -> Any:
    if not upper:
        return linalg.cholesky(a)
    # The upper triangle of a is the lower one of its transpose.
    return linalg.cholesky(a.swapaxes(-1, -2)).swapaxes(-1, -2)


def _singular_values(linalg: Any, a: Any, hermitian: bool) -> Any:
    if not hermitian:
        return linalg.svd(a, compute_uv=False)
    sizes = abs(linalg.eigvalsh(a))
    sizes.sort(axis=-1)
    return sizes[..., ::-1]


def _matrix_rank(
    linalg: Any, a: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None
) -> Any:
    """Count singular values above a bound, as NumPy does."""
    if a.ndim < 2:
        return (a != 0).any().astype(int)
    s = _singular_values(linalg, a, hermitian)
    if tol is None:
        if rtol is None:
            rtol = max(a.shape[-2:]) * np.finfo(s.dtype).eps
        tol = s.max(axis=-1, keepdims=True) * rtol
    elif np.ndim(tol):
        tol = tol[..., None]
    return (s > tol).sum(axis=-1)


def _pinv(linalg: Any, a: Any, rcond: Any = None, hermitian: bool = False) -> Any:
    """Invert the singular values above a bound, as NumPy does."""
    if rcond is None:
        rcond = max(a.shape[-2:]) * np.finfo(a.dtype).eps
    a = a.conj()
    if hermitian:  # singular values are the eigenvalues' sizes, from the largest to the smallest
        values, vectors = linalg.eigh(a)
        s = abs(values)
        order = s.argsort(axis=-1)[..., ::-1]
        matrices = a.reshape(-1, *a.shape[-2:])
        u, vt = vectors.copy(), vectors.copy()
        flat = u.reshape(matrices.shape), vt.reshape(matrices.shape)
        sizes, signed = s.reshape(-1, s.shape[-1]), values.reshape(-1, s.shape[-1])
        lines = order.reshape(sizes.shape)
        for k in range(len(matrices)):
            sign = (signed[k] > 0).astype(a.dtype) - (signed[k] < 0).astype(a.dtype)
            flat[0][k] = flat[0][k][:, lines[k]]
            flat[1][k] = (flat[1][k] * sign)[:, lines[k]]
            sizes[k] = sizes[k][lines[k]]
        vt = vt.swapaxes(-1, -2).conj()
    else:
        u, s, vt = linalg.svd(a, full_matrices=False)
    large = s > rcond * s.max(axis=-1, keepdims=True)
    s = (1 / (s + (s == 0))) * large
    return vt.swapaxes(-1, -2) @ (s[..., None] * u.swapaxes(-1, -2))


_SUPPLIED: dict[str, Callable[..., Any]] = {
    "all": _reduction_of("all", 1),
    "amax": _extreme("max", "maximum"),
    "amin": _extreme("min", "minimum"),
    "any": _reduction_of("any", 0),
    "broadcast_to": _broadcast_to,
    "linalg.cholesky": _cholesky,
    "linalg.matrix_rank": _matrix_rank,
    "linalg.pinv": _pinv,
    "lib.stride_tricks.as_strided": _as_strided,
    "max": _extreme("max", "maximum"),
    "min": _extreme("min", "minimum"),
    "prod": _reduction_of("prod", 1),
    "put_along_axis": _put_along_axis,
    "sum": _reduction_of("sum", 0),
    "take": _take,
}
