"""Caches of rows by position, as the keys and values of a decoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import setitem
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import STUMBLES, check_int, format_value
from odyssey.devices.array_locks import is_locked
from odyssey.devices.arrays import as_array, native_dtype
from odyssey.devices.commit import Plan, commit
from odyssey.devices.copy_on_write import has_exclusive_array
from odyssey.devices.ownership import is_writable
from odyssey.devices.same_device import (
    array_copy,
    call_beside,
    host_array,
    host_copy,
    new_beside,
    place_beside,
)
from odyssey.devices.stateful import Stateful
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import (
    DTypeError,
    MutationError,
    OdysseyError,
    OutOfRangeError,
    SettingError,
    ShapeError,
)
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.table.store import MEMORY, refuse_in_vmap, store
from odyssey.table.value import (
    Symbol,
    Value,
    assign_plan,
    is_constant,
    write_plan,
)
from odyssey.variable import Variable

__all__ = ["Cache"]

# Attention over so few rows costs nothing beside the rest of a step.
_LEAST_REACH = 64
# A compiled function has up to 8 programs for one signature, so there are fewer reaches.
_MOST_REACHES = 7
_MOST_LAYERS = 1 << 16
_MOST_POSITIONS = 1 << 40


class Cache(Stateful):
    """Rows by position for some layers, as the keys and values of a decoder.

    Each layer has a buffer of ``capacity`` rows for each name. ``cache[layer].put`` writes the rows
    of the next positions, and returns those of all positions so far; ``advance`` commits what was
    put into all layers. Rows that were not committed are not seen by later queries. Both work
    inside ``od.compile``, where only the new rows are written, and one program serves many lengths;
    see ``reach``. ``od.save`` and ``od.load`` keep the rows.

    Args:
        shapes: By name, the shape of the rows of one position, such as ``(heads, dim)``. Rows of
            n positions have shape ``(heads, n, dim)``.
        capacity: The number of positions that a layer holds.
        dtype: The dtype of the rows.
        layers: The number of layers.
        window: How many positions a query may attend to, its own included; or one number or None
            for each layer. If all layers have windows they are rings, which forget the oldest rows:
            the length is not limited, and a put has at most ``capacity - window + 1`` rows.
        device: The device of the rows, as for ``od.Variable``; the CPU by default. Lengths stay on
            the host.

    Raises:
        SettingError: a number is out of range.
        DeviceError: the device is not available.
        ShapeError: a shape has no axis.

    >>> import numpy as np
    >>> import odyssey as od
    >>> cache = od.Cache({"k": (2, 4), "v": (2, 4)}, capacity=16)
    >>> rows = np.ones((2, 3, 4), np.float32)
    >>> keys, values, seen = cache[0].put(k=rows, v=rows)
    >>> cache.advance(3)
    >>> keys.shape, len(cache), cache.reach
    ((2, 16, 4), 3, 16)
    >>> seen.numpy()[:, :4].astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0]])
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        capacity: int,
        dtype: Any = np.float32,
        layers: int = 1,
        window: int | Sequence[int | None] | None = None,
        *,
        device: Any = None,
    ) -> None:
        self._shapes = _check_shapes(shapes)
        self._capacity = check_int("Cache", "capacity", capacity, 1)
        if self._capacity > _MOST_POSITIONS:
            raise SettingError(f"Cache: capacity is above {_MOST_POSITIONS}; pass a smaller one")
        self._dtype = _check_dtype(dtype)
        layers = check_int("Cache", "layers", layers, 1)
        if layers > _MOST_LAYERS:
            raise SettingError(f"Cache: layers is above {_MOST_LAYERS}; pass fewer")
        self._windows = _check_windows(window, layers, self._capacity)
        # A ring takes so many rows at once that no query of theirs loses a row of its window.
        self._is_ring = None not in self._windows
        wide = max([w for w in self._windows if w is not None], default=1)
        self._overlap = wide - 1 if self._is_ring else 0
        self._most_rows = self._capacity - self._overlap
        self._buffers = tuple(
            {
                name: Variable(
                    _empty_buffer(name, shape, self._capacity, self._dtype),
                    name=f"{name}[{k}]",
                    device=device,
                )
                for name, shape in self._shapes.items()
            }
            for k in range(len(self._windows))
        )
        # The length commits. Rows from there on up to ``_written`` were put and not committed, and
        # those before ``_lost`` were overwritten in a ring.
        self._length = Variable(np.array(0), name="length")
        self._written = Variable(np.array(0), name="written")
        self._lost = Variable(np.array(0), name="lost")
        # By layer, the rows of its put since the last ``advance``; 0 for none.
        self._pending = Variable(np.zeros(len(self._windows), int), name="pending")
        self._reach = self._reach_of(1)

    # -------------------------------------------------------------- sizes

    @property
    def capacity(self) -> int:
        """The number of positions that a layer holds."""
        return self._capacity

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self._buffers)

    @property
    def dtype(self) -> Any:
        """The dtype of the rows."""
        return self._dtype

    @property
    def reach(self) -> int:
        """How many rows of each buffer the next ``put`` of one row returns.

        The next power of two of the length to come, from 64 or a 64th of the capacity on. A
        compiled function has a program for each. Inside of one this is the reach of its program;
        when the length exceeds that, the function runs as it was written, and then has the next;
        see ``prepare``.
        """
        if store() is MEMORY:
            self._refresh_reach(int(self._length._array) + 1)
        return self._reach

    def prepare(self, n: int) -> int:
        """Return the reach of a ``put`` of ``n`` rows, and let the next compiled call have it.

        Call it before a compiled function, or its ``precompile``, that puts more than one row.
        Without it, a put of many rows whose positions lie beyond ``reach`` runs as it was written.

        Args:
            n: The number of rows to come.

        Raises:
            SettingError: ``n`` is below 1.

        >>> cache = od.Cache({"k": (4,)}, capacity=512)
        >>> cache.reach, cache.prepare(200)
        (64, 256)
        """
        store().refuse_effect("Cache.prepare: called", "call it outside of the function")
        n = check_int("Cache.prepare", "n", n, 1)
        self._refresh_reach(int(self._length._array) + n)
        return self._reach

    @property
    def length(self) -> Variable:
        """The number of positions so far as an integer without axes, also in compiled functions.

        The next rows have the positions ``cache.length + np.arange(n)``.
        """
        length: Variable = ops.identity(self._length)
        return length

    def __len__(self) -> int:
        """The number of positions so far; in a compiled function ask ``length``."""
        who = "len() of a cache, where cache.length would be an array, asks for the value of"
        store().require_known(who, self._length)
        length = int(self._length._array)
        if store() is MEMORY and length + 1 > self._reach < self._capacity:
            self._refresh_reach(length + 1)  # and never back, after ``prepare``
        return length

    def __bool__(self) -> bool:
        """True, also of a cache of length 0."""
        return True

    def __repr__(self) -> str:
        store().only_eagerly("it formats a cache as text")
        rows = ", ".join(f"{name}: {shape}" for name, shape in self._shapes.items())
        windows = list(self._windows)
        window = windows[0] if len(set(windows)) == 1 else windows
        return (
            f"Cache({{{rows}}}, capacity={self._capacity}, dtype={self._dtype}, "
            f"layers={self.layers}, window={window}, length={len(self)})"
        )

    def _reach_of(self, total: int) -> int:
        """Return how many rows hold ``total`` positions."""
        top = 1 << (self._capacity - 1).bit_length()
        least = max(_LEAST_REACH, top >> (_MOST_REACHES - 1))
        return min(self._capacity, max(least, 1 << (total - 1).bit_length()))

    def _refresh_reach(self, total: int) -> None:
        reach = self._reach_of(total)
        if reach != self._reach:
            self._reach = reach

    # -------------------------------------------------------------- layers

    def __getitem__(self, layer: int) -> _CacheLayer:
        """Return a layer, whose ``put`` writes and reads rows."""
        try:
            k = range(self.layers)[layer]
        except STUMBLES:
            k = None
        if type(k) is not int:
            raise OutOfRangeError(
                f"Cache: layer {format_value(layer)} of {self.layers}; pass an int from 0 to "
                f"{self.layers - 1}"
            )
        return _CacheLayer(self, k)

    def _put(self, layer: int, given: dict[str, Any]) -> tuple[Any, ...]:
        refuse_in_vmap("Cache.put")
        rows = {name: _rows_of(name, given[name]) for name in self._check_names(given)}
        count = self._check_rows(layer, rows)
        if store() is not MEMORY:
            found, start, reach = self._put_traced(layer, rows, count)
        else:
            reach = self._check_room(count)
            found, start = self._put_rows(layer, rows, count, reach)
        seen = self._visible_rows(start, count, reach, self._windows[layer])
        return (*found, seen)

    def _put_traced(
        self, layer: int, rows: dict[str, Any], count: int
    ) -> tuple[list[Any], Any, int]:
        """Write the rows of a put in a program; return all rows, the start, and the reach."""
        start, reach = self._check_traced_room(count)
        pending = store().read(self._pending)
        if isinstance(pending, Symbol):  # the first put of the function
            message = "Cache.put: rows of an earlier put were not committed"
            start = demanded(start, ops.equal(pending, 0), message, OutOfRangeError)
            pending = np.zeros(self.layers, int)
        self._pending.assign(self._pending_after(layer, count, pending))
        found = []
        for name, value in rows.items():
            buffer = self._buffers[layer][name]
            new = ops.update_rows(buffer, value, start, wrap=self._is_ring)
            buffer.assign(new)
            found.append(new[..., :reach, :])
        end = ops.add(start, count)
        self._written.assign(end)
        if self._is_ring:
            self._lost.assign(ops.maximum(self._lost, ops.subtract(end, self._capacity)))
        return found, start, reach

    def _put_rows(
        self,
        layer: int,
        rows: dict[str, Any],
        count: int,
        reach: int,
    ) -> tuple[list[Any], Any]:
        """Write the rows of a put in place; return all rows, and the start."""
        with write_lock():
            wait_for_programs()
            start, written = int(self._length._array), int(self._written._array)
            end, buffers = start + count, self._buffers[layer]
            pending = self._pending_after(layer, count, self._pending._array)
            pieces = self._pieces(start, end)
            if written > end:  # an attempt that failed put more
                self._commit(self._clear_plan("put", end, written))
            plan: Plan = []
            for name, value in rows.items():
                array = value._array if isinstance(value, Value) else value
                array = place_beside(array, buffers[name])
                plan += self._write_plan(
                    "put", buffers[name], pieces, _rows_by_piece(array, pieces)
                )
            plan += assign_plan(self._written, np.array(end))
            lost = np.maximum(self._lost._array, end - self._capacity)
            plan += assign_plan(self._lost, lost)
            self._commit([*plan, *assign_plan(self._pending, pending)])
        given = Variable(place_beside(np.array(start), *buffers.values()))
        found = [
            _with_gradient(buffers[name][..., :reach, :], value, given, self._is_ring)
            for name, value in rows.items()
        ]
        return found, given

    def _check_names(self, given: dict[str, Any]) -> Iterable[str]:
        if given.keys() != self._shapes.keys():
            wanted, came = " and ".join(self._shapes), " and ".join(given) or "none"
            raise SettingError(f"Cache.put: rows of {came} came; pass those of {wanted}, each once")
        return self._shapes

    def _check_rows(self, layer: int, rows: dict[str, Any]) -> int:
        """Return the number of rows, if those of all names are as the buffers need them."""
        counts = set()
        for name, value in rows.items():
            shape = self._shapes[name]
            if value.dtype != self._dtype:
                raise DTypeError(
                    f"Cache.put: {name} has dtype {value.dtype}, and the cache {self._dtype}; cast "
                    f"it, ops.astype({name}, {str(self._dtype)!r}), or make the cache of that dtype"
                )
            if len(value.shape) != len(shape) + 1 or (*value.shape[:-2], value.shape[-1]) != shape:
                wanted = ", ".join(map(str, (*shape[:-1], "n", shape[-1])))
                raise ShapeError(
                    f"Cache.put: {name} has shape {value.shape}; pass ({wanted}), n rows for "
                    f"positions of {shape}"
                )
            counts.add(value.shape[-2])
        if len(counts) > 1:
            came = ", ".join(f"{value.shape[-2]} of {name}" for name, value in rows.items())
            raise ShapeError(f"Cache.put: {came} came; pass as many rows of each name")
        (count,) = counts
        if not count:
            raise OutOfRangeError("Cache.put: 0 rows came; pass those of one position or more")
        if count > self._most_rows:
            raise OutOfRangeError(
                f"Cache.put: {count} rows came for a ring of {self._capacity}; pass at most "
                f"{self._most_rows} at once, so that each query has its window, and a longer "
                "prompt in pieces"
                if self._is_ring
                else f"Cache.put: {count} rows came for a cache of capacity {self._capacity}; make "
                "one of a larger capacity"
            )
        return int(count)

    def _pending_after(self, layer: int, count: int, pending: Any) -> Any:
        """Return the rows that each layer has to commit after a put; those of one attempt agree."""
        # A layer that is put again begins a new attempt.
        pending = np.zeros_like(pending) if pending[layer] else np.array(pending)
        for k, other in enumerate(pending.tolist()):
            if other not in (0, count):
                raise ShapeError(
                    f"Cache.put: layer {layer} gets {count} row{'s' * (count > 1)}, and layer {k} "
                    f"got {other} since the last advance; put as many into each, or begin again "
                    "with cache.truncate(len(cache))"
                )
        pending[layer] = count
        return pending

    def _check_room(self, count: int) -> int:
        """Return the reach of a put; raise OutOfRangeError if it does not fit."""
        length = int(self._length._array)
        if length + count > self._capacity and not self._is_ring:
            raise OutOfRangeError(
                f"Cache.put: {count} row{'s' * (count > 1)} came for a cache of capacity "
                f"{self._capacity} that holds {length} positions; truncate or clear it, or make "
                "one of a larger capacity, or with a window"
            )
        self._refresh_reach(length + count)
        return self._reach

    def _check_traced_room(self, count: int) -> tuple[Any, int]:
        """Return the start of a put and its reach; a program checks both when it runs.

        Where its checks fail, the function runs as written, raises or grows the reach, and drops
        rows of a put that was not committed.
        """
        reach = max(self._reach, self._reach_of(count))
        message = f"Cache.put: a length beyond the {reach} rows of this program"
        start = ops.identity(self._length)
        if reach < self._capacity or not self._is_ring:
            start = demanded(start, ops.less_equal(start, reach - count), message, OutOfRangeError)
        fits = ops.less_equal(self._written, ops.add(start, count))
        message = "Cache.put: rows of a put that was not committed are in the way"
        return demanded(start, fits, message, OutOfRangeError), reach

    def _visible_rows(self, start: Any, count: int, reach: int, window: int | None) -> Any:
        """Return which rows each query may attend to."""
        arange = partial(new_beside, (start,), "arange")
        positions = ops.add(start, arange(count)[:, None])
        if not self._is_ring:
            held: Any = arange(reach)
            seen = ops.less_equal(held, positions)
        else:
            held = self._held_positions(ops.add(start, count), reach)
            seen = ops.logical_and(ops.greater_equal(held, 0), ops.less_equal(held, positions))
        if window is not None:
            seen = ops.logical_and(seen, ops.greater(held, ops.subtract(positions, window)))
        return seen

    def _held_positions(self, end: Any, reach: int) -> Any:
        """Return the position of each row of a ring, where the last is ``end`` - 1."""
        last, rows = ops.subtract(end, 1), new_beside((end,), "arange", reach)
        return ops.subtract(last, ops.mod(ops.subtract(last, rows), self._capacity))

    # -------------------------------------------------------------- writing

    def _pieces(self, first: int, last: int) -> list[slice]:
        """Return the rows of the buffers that hold positions from ``first`` to ``last`` - 1."""
        last = min(last, first + self._capacity)
        if not self._is_ring:
            return [slice(first, last)]
        begin, count = first % self._capacity, last - first
        end = min(begin + count, self._capacity)
        return [slice(begin, end), slice(0, count - (end - begin))]

    def _write_plan(self, who: str, buffer: Any, pieces: list[slice], parts: list[Any]) -> Plan:
        """Return the calls that write parts of a buffer; raise if a tape needs it unchanged."""
        if is_locked(buffer._array):
            raise MutationError(
                f"Cache.{who}: a tape that is not swept needs the buffer {buffer.name} of shape "
                f"{buffer.shape} unchanged; sweep or clear that tape first"
            )
        if not has_exclusive_array(buffer) or not is_writable(buffer._array):
            new = array_copy(buffer._array)
            for piece, part in zip(pieces, parts, strict=True):
                call_beside(new, setitem, new, (..., piece, slice(None)), part)
            return assign_plan(buffer, new)
        calls: Plan = [
            (setitem, buffer._array, (..., piece, slice(None)), part)
            for piece, part in zip(pieces, parts, strict=True)
        ]
        return write_plan(buffer, calls)

    def _commit(self, plan: Plan) -> None:
        """Make all calls of ``plan``, which write to buffers, on the device of the buffers."""
        call_beside(next(iter(self._buffers[0].values())), commit, plan)

    def _clear_plan(self, who: str, first: int, last: int) -> Plan:
        """Return the calls that set rows of all buffers to 0, so that no NaN stays behind."""
        pieces = self._pieces(first, last)
        zeros = [self._dtype.type(0)] * len(pieces)
        plan: Plan = []
        for layer in self._buffers:
            for buffer in layer.values():
                plan += self._write_plan(who, buffer, pieces, zeros)
        return plan

    def advance(self, n: int) -> None:
        """Commit the ``n`` rows that were put into each layer since the last ``advance``.

        Args:
            n: The number of rows of each of these puts.

        Raises:
            ShapeError: ``n`` is another number, or a layer got no rows.
        """
        refuse_in_vmap("Cache.advance")
        n = check_int("Cache.advance", "n", n, 1)
        if store() is not MEMORY:
            pending = store().read(self._pending)
            length: Any = self._length
            if isinstance(pending, Symbol):
                message = (
                    f"Cache.advance: n={format_value(n)}, and layers got another number of rows"
                )
                length = demanded(length, ops.equal(pending, n), message, ShapeError)
            else:
                self._check_pending(n, pending)
            self._pending.assign(np.zeros(self.layers, int))
            self._length.assign(ops.add(length, n))
            return
        with write_lock():
            wait_for_programs()
            self._check_pending(n, self._pending._array)
            new = int(self._length._array) + n
            commit(
                [
                    (setattr, self, "_reach", self._reach_of(new + 1)),
                    *assign_plan(self._pending, np.zeros(self.layers, int)),
                    *assign_plan(self._length, np.array(new)),
                ]
            )

    def _check_pending(self, n: int, pending: Any) -> None:
        for layer, count in enumerate(pending.tolist()):
            if count != n:
                got = f"{count} row{'s' * (count > 1)}" if count else "no rows"
                raise ShapeError(
                    f"Cache.advance: n={format_value(n)}, and layer {layer} of {self.layers} got "
                    f"{got} since the last advance; put n rows into each layer first"
                )

    def truncate(self, n: int) -> None:
        """Keep the first ``n`` positions, and drop those behind, committed or not.

        Inside a compiled function all buffers are passed over, outside only the rows that go.

        Args:
            n: The new length, at most the present one; an integer array without axes too.

        Raises:
            OutOfRangeError: ``n`` is negative or above the length; or rows that the window of a
                query at ``n`` needs were overwritten in a ring.
        """
        refuse_in_vmap("Cache.truncate")
        if store() is not MEMORY:
            self._truncate_traced(n)
            return
        n = _check_length(n)
        with write_lock():
            wait_for_programs()
            length, written = int(self._length._array), int(self._written._array)
            if not 0 <= n <= length:
                raise OutOfRangeError(
                    f"Cache.truncate: n={format_value(n)} for a cache of {length} positions; pass "
                    f"0 to {length}"
                )
            lost = int(self._lost._array)
            if n and lost > max(0, n - self._overlap):
                raise OutOfRangeError(
                    f"Cache.truncate: n={n} for a ring of {self._capacity} rows that holds "
                    f"{length} positions: it lacks rows in the window of the next query; keep "
                    f"{lost + self._overlap} or more, or clear it"
                )
            plan = self._clear_plan("truncate", n, written) if written > n else []
            self._commit(
                [
                    *plan,
                    (setattr, self, "_reach", self._reach_of(n + 1)),
                    *assign_plan(self._pending, np.zeros(self.layers, int)),
                    *assign_plan(self._lost, np.array(lost if n else 0)),
                    *assign_plan(self._written, np.array(n)),
                    *assign_plan(self._length, np.array(n)),
                ]
            )

    def _truncate_traced(self, n: Any) -> None:
        """Truncate in a program, by one pass over all buffers."""
        if not isinstance(n, (Value, Symbol)):
            n = np.array(_check_length(n))
        if n.shape != () or n.dtype.kind not in "iu":
            raise ShapeError(
                f"Cache.truncate: n has shape {n.shape} and dtype {n.dtype}; pass one integer"
            )
        n = ops.astype(n, np.int64)
        fits = ops.logical_and(ops.greater_equal(n, 0), ops.less_equal(n, self._length))
        if self._is_ring:
            whole = ops.less_equal(self._lost, ops.maximum(0, ops.subtract(n, self._overlap)))
            fits = ops.logical_and(fits, ops.logical_or(whole, ops.equal(n, 0)))
        n = demanded(n, fits, "Cache.truncate: n is out of range", OutOfRangeError)
        held: Any = np.arange(self._capacity)
        if self._is_ring:
            held = self._held_positions(ops.identity(self._written), self._capacity)
        kept = ops.reshape(ops.less(held, n), (-1, 1))
        for buffers in self._buffers:
            for buffer in buffers.values():
                buffer.assign(ops.where(kept, buffer, self._dtype.type(0)))
        self._pending.assign(np.zeros(self.layers, int))
        if self._is_ring:
            self._lost.assign(ops.where(ops.equal(n, 0), 0, self._lost))
        self._written.assign(n)
        self._length.assign(n)

    def clear(self) -> None:
        """Drop all positions."""
        self.truncate(0)

    # -------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the committed rows by name and layer, and the numbers that belong to them."""
        return self._state_of(range(self.layers))

    def _state_plan(self, saved: Any) -> Plan:
        return self._state_plan_of(saved, range(self.layers))

    def _state_of(self, layers: Sequence[int]) -> dict[str, Any]:
        """Return the state of some layers."""
        store().refuse_effect("Cache.state_dict: called", "call it outside of the function")
        refuse_in_vmap("Cache.state_dict")
        with write_lock():
            wait_for_programs()
            length, lost = int(self._length._array), int(self._lost._array)
            count = min(length, self._capacity)
            rows = {
                name: [host_copy(self._buffers[k][name]._array[..., :count, :]) for k in layers]
                for name in self._shapes
            }
        return {
            "length": length,
            "lost": lost,
            "ring": self._capacity if self._is_ring and length > self._capacity else 0,
            "windows": [self._windows[k] for k in layers],
            "rows": rows,
        }

    def _state_plan_of(self, saved: Any, layers: Sequence[int]) -> Plan:
        """Return the calls that take over the state of some layers."""
        who = "Cache.load_state_dict"
        names = {"length", "lost", "ring", "windows", "rows"}
        if not isinstance(saved, dict) or saved.keys() != names:
            raise OdysseyError(
                f"{who}: {format_value(saved)} came; pass what state_dict() returned"
            )
        length = check_int(who, "length", saved["length"], 0)
        lost = check_int(who, "lost", saved["lost"], 0)
        windows = [self._windows[k] for k in layers]
        if saved["windows"] != windows:
            raise ShapeError(
                f"{who}: the state is of windows {format_value(saved['windows'])}, and those of "
                f"the cache are {format_value(windows)}; make it with as many layers and the same "
                "windows"
            )
        ring = check_int(who, "ring", saved["ring"], 0)
        if ring not in (0, self._capacity) or (length > self._capacity and not ring):
            raise ShapeError(
                f"{who}: {format_value(length)} positions of a "
                f"{f'ring of {format_value(ring)} rows' if ring else 'cache'} came for a cache of "
                f"capacity {self._capacity}; make it "
                + ("of the same capacity" if ring else "of a larger capacity")
            )
        plan: Plan = [(setattr, self, "_reach", self._reach_of(length + 1))]
        plan += self._rows_plan(who, saved["rows"], layers, min(length, self._capacity))
        plan += assign_plan(self._pending, np.zeros(self.layers, int))
        numbers = (self._lost, lost), (self._written, length), (self._length, length)
        return plan + [call for v, n in numbers for call in assign_plan(v, np.array(n))]

    def _rows_plan(self, who: str, rows: Any, layers: Sequence[int], count: int) -> Plan:
        """Return the calls that take over the saved rows of some layers."""
        if not isinstance(rows, dict) or rows.keys() != self._shapes.keys():
            raise SettingError(
                f"{who}: rows of {format_value(rows)} came; those of "
                f"{' and '.join(self._shapes)} are wanted"
            )
        plan: Plan = []
        for name, arrays in rows.items():
            if not isinstance(arrays, list) or len(arrays) != len(layers):
                raise ShapeError(
                    f"{who}: {format_value(arrays)} came for {name}; a list of {len(layers)} "
                    "arrays is wanted"
                )
            for k, given in zip(layers, arrays, strict=True):
                array = host_array(as_array(who, f"{name} of layer {k}", given))
                buffer = self._buffers[k][name]
                wanted = (*buffer.shape[:-2], count, buffer.shape[-1])
                if array.shape != wanted or array.dtype != self._dtype:
                    raise ShapeError(
                        f"{who}: {name} of layer {k} is {array.dtype} {array.shape}; wanted is "
                        f"{self._dtype} {wanted}"
                    )
                full = np.zeros(buffer.shape, self._dtype)
                full[..., :count, :] = array
                plan += assign_plan(buffer, place_beside(full, buffer))
        return plan


class _CacheLayer(Stateful):
    """A layer of a cache; ``od.save`` keeps its rows.

    Args:
        cache: The cache.
        layer: The number of the layer.
    """

    def __init__(self, cache: Cache, layer: int) -> None:
        self._cache = cache
        self._layer = layer

    def put(self, /, **rows: Any) -> tuple[Any, ...]:
        """Write the rows of the next positions, and return those of all positions so far.

        A second put before ``advance`` replaces the first.

        Args:
            rows: For each name of the cache an array (..., n, dim), of the cache's dtype.

        Returns:
            For each name, in the order of the cache, the first ``reach`` rows of its buffer, (...,
            reach, dim); and ``seen``, truth values (n, reach): which rows each of the n queries
            may attend to.

        Raises:
            OutOfRangeError: the rows do not fit.
            ShapeError: the rows have another shape, or another number than those of other layers.
            DTypeError: the rows have another dtype.
            SettingError: a name is missing or unknown.
            MutationError: a tape needs a buffer unchanged.
        """
        return self._cache._put(self._layer, rows)

    def __repr__(self) -> str:
        return f"{self._cache!r}[{self._layer}]"

    def state_dict(self) -> dict[str, Any]:
        """Return the committed rows of the layer, and the numbers that belong to them."""
        return self._cache._state_of([self._layer])

    def _state_plan(self, saved: Any) -> Plan:
        return self._cache._state_plan_of(saved, [self._layer])


def _check_shapes(shapes: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(shapes, Mapping) or not shapes:
        raise DTypeError(
            f"Cache: shapes={format_value(shapes)}; pass a dict of at least one name and shape, "
            "such as {'k': (heads, dim), 'v': (heads, dim)}"
        )
    found = {}
    for name, shape in shapes.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise SettingError(
                f"Cache: the name {format_value(name)} is not an identifier of Python, and put "
                "takes rows by name"
            )
        if not isinstance(shape, (tuple, list)) or not shape:
            raise ShapeError(
                f"Cache: {name} has shape {format_value(shape)}; pass the shape of the rows of one "
                "position, such as (heads, dim)"
            )
        found[name] = tuple([check_int("Cache", f"a size of {name}", n, 1) for n in shape])
    return found


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        return native_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"Cache: dtype={format_value(dtype)} is not one of numbers: {error}"
        ) from (None)


def _empty_buffer(name: str, shape: tuple[int, ...], capacity: int, dtype: Any) -> Any:
    try:
        return np.zeros((*shape[:-1], capacity, shape[-1]), dtype)
    except ValueError as error:
        raise SettingError(
            f"Cache: {name} of shape {format_value(shape)} at {capacity} positions does not fit "
            f"an array: {error}"
        ) from None


def _check_windows(window: Any, layers: int, capacity: int) -> tuple[int | None, ...]:
    """Return the window of each layer."""
    windows = list(window) if isinstance(window, (tuple, list)) else [window] * layers
    if len(windows) != layers:
        raise ShapeError(f"Cache: {len(windows)} windows came for {layers} layers; pass one each")
    found = [None if w is None else check_int("Cache", "window", w, 1) for w in windows]
    for w in found:
        if w is not None and w > capacity:
            raise SettingError(
                f"Cache: window={format_value(w)} is above capacity={capacity}; pass a capacity of "
                "the window and of the rows of one put less 1, or more"
            )
    return tuple(found)


def _check_length(n: Any) -> int:
    """Return a length; an integer, or an integer array without axes."""
    if isinstance(n, Variable) and not n.shape:
        n = n.item()
    return check_int("Cache.truncate", "n", n)


def _rows_of(name: str, value: Any) -> Any:
    """Return rows as an array, or as the Variable or traced array that they are."""
    if isinstance(value, (Value, Symbol)):
        return value
    return as_array("Cache.put", name, value)


def _rows_by_piece(rows: Any, pieces: list[slice]) -> list[Any]:
    """Return the rows that go into each piece of a buffer."""
    parts, begin = [], 0
    for piece in pieces:
        end = begin + piece.stop - piece.start
        parts.append(rows[..., begin:end, :])
        begin = end
    return parts


def _with_gradient(held: Any, rows: Any, start: Any, wrap: bool) -> Any:
    """Return what a cache holds, new rows included, so that gradients flow back to these."""
    if not isinstance(rows, Value) or is_constant(rows):
        return held
    return ops.update_rows(held, rows, start, wrap=wrap)


def __dir__() -> list[str]:
    return sorted(__all__)
