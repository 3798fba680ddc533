"""Groups of processes, and collectives on arrays that end by a deadline."""

from __future__ import annotations

import builtins
import hashlib
import itertools
import math
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey import tree
from odyssey.checks import check_choice, check_int, describe_type, format_value
from odyssey.errors import DistributedError, DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.variable import Variable

if TYPE_CHECKING:
    from odyssey.distributed.transport import Transport

__all__ = ["Group", "world"]

_SIZES = ["ODYSSEY_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"]
"""Variables in which launchers tell a process how many there are."""

_RANKS = ("PMIX_RANK", "PMI_RANK")
"""Variables of launchers that tell the rank, but not always how many there are."""

_CACHE_LINE = 16
"""Elements of which slices are multiples: 64 bytes of float32."""

_GATHERED = 8192
"""Bytes up to which every rank sums complete arrays: one exchange instead of two."""


@ignore_fp_errors()
def _add_in_tree_order(parts: list[Any], own: int) -> Any:
    """Sum arrays as a balanced tree, in place of all but the one at ``own``.

    A number of arrays that is no power of two gives a tree that leans to the left.
    """
    sums = [(part, k != own) for k, part in enumerate(parts)]
    while len(sums) > 1:
        level = []
        for k in range(0, len(sums) - 1, 2):
            (left, writable), (right, _) = sums[k], sums[k + 1]
            level.append((np.add(left, right, left if writable else right), True))
        sums = level + sums[len(level) * 2 :]
    return sums[0][0]


class Group:
    """Processes that compute together, and the collectives by which they exchange arrays.

    ``od.distributed.world()`` returns the group of all processes of the launcher, and ``split``
    smaller ones. Every rank of a group calls the same collectives in the same order. None waits
    for longer than ``timeout``: if a rank does not come, or comes for something else, the others
    raise ``DistributedError``, which says what each rank did last. The group is broken then, and
    every later collective raises the same error.

    >>> import odyssey as od
    >>> group = od.distributed.world()
    >>> group.rank, group.size
    (0, 1)
    """

    def __init__(self, transport: Transport | None = None, timeout: float | None = None) -> None:
        self._transport = transport
        self._timeout = _default_timeout() if timeout is None else timeout

    @property
    def rank(self) -> int:
        """The number of this process in the group, from 0."""
        return 0 if self._transport is None else self._transport.rank

    @property
    def size(self) -> int:
        """The number of processes in the group."""
        return 1 if self._transport is None else self._transport.size

    @property
    def timeout(self) -> float:
        """Seconds for which a collective waits for the other ranks."""
        return self._timeout if self._transport is None else self._transport.timeout

    @property
    def waited(self) -> float:
        """Seconds that this process has spent in collectives of this group."""
        return 0.0 if self._transport is None else self._transport.waited

    def __repr__(self) -> str:
        return f"<Group: rank {self.rank} of {self.size}>"

    def __reduce__(self) -> Any:
        raise DistributedError(
            "Group: a group is a connection of this process, and is not copied or saved; call "
            "od.distributed.world() in the process that needs it"
        )

    def __copy__(self) -> Any:
        return self.__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce__()

    # ------------------------------------------------------------------ meetings

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self._transport is not None:
            self._transport.run("barrier")

    def _finish(self) -> None:
        """Meet the other ranks at the end of the script; the last collective of a run."""
        if self._transport is not None:
            self._transport.run("finish")

    def print(self, *args: Any, **options: Any) -> None:
        """Print on rank 0 only, and at once; arguments are those of Python's ``print``."""
        if self.rank == 0:
            builtins.print(*args, **{"flush": True} | options)

    def agree(self, *values: Any) -> None:
        """Raise unless arrays, or trees of arrays, are the same bits on every rank.

        Raises:
            DistributedError: A leaf differs; the message names the first one and the ranks. All
                ranks raise, and the group is not broken.
        """
        if self._transport is None:
            return
        names, digests = [], []
        for path, leaf in tree.paths(values):
            array = np.asarray(leaf._array if isinstance(leaf, Variable) else leaf)
            names.append(f"value{path}")
            hashed = hashlib.blake2b(repr((array.dtype.str, array.shape)).encode(), digest_size=8)
            hashed.update(np.ascontiguousarray(array).view(np.uint8).data)
            digests.append(hashed.digest())
        own = np.frombuffer(b"".join(digests), np.uint8)
        table = self._exchange("agree", own).reshape(self.size, len(names), 8)
        different = (table != table[0]).any(2)
        if different.any():
            first = int(different.any(0).argmax())
            ranks = ", ".join(map(str, np.flatnonzero(different[:, first])))
            raise DistributedError(
                f"agree: {names[first]} differs: on rank {ranks} it has other bits than on rank 0 "
                f"({int(different.any(0).sum())} of {len(names)} arrays differ)"
            )

    def split(self, color: int, key: int | None = None) -> Group:
        """Return the group of those ranks that call with this color; all ranks call.

        Args:
            color: Ranks of one color form a group.
            key: The order of ranks in it, by default their order here.
        """
        color = check_int("Group.split", "color", color, 0)
        key = self.rank if key is None else check_int("Group.split", "key", key)
        if self._transport is None:
            return Group(timeout=self.timeout)
        return Group(self._transport.subset(color, key))

    # ------------------------------------------------------------------ slices of flat arrays

    def slices(self, length: int) -> list[slice]:
        """Return the slice of a flat array that each rank owns: nearly equal, whole cache lines.

        >>> import odyssey as od
        >>> od.distributed.world().slices(10)
        [slice(0, 10, None)]
        """
        length = check_int("Group.slices", "length", length, 0)
        step = math.ceil(length / self.size)
        if length >= _CACHE_LINE * self.size:
            step = math.ceil(step / _CACHE_LINE) * _CACHE_LINE
        edges = [min(length, rank * step) for rank in range(self.size)] + [length]
        return [slice(a, b) for a, b in itertools.pairwise(edges)]

    def sum_slices(self, flat: Any, parts: Any = None) -> Any:
        """Return this rank's slice of the sum over ranks of a flat array.

        The sum is a balanced tree over the ranks: its order does not depend on the library of MPI,
        on its algorithms or on sizes, so neither do its bits.

        Args:
            flat: A contiguous array of one dimension, as long on every rank. It is read only.
            parts: Memory for what arrives, of shape (size, length of the slice) and the dtype of
                ``flat``; the result lies in it.

        Returns:
            The array of the slice ``slices(len(flat))[rank]``; ``flat`` itself in a group of one.
        """
        flat = _check_flat("sum_slices", flat, sums=True)
        if self._transport is None:
            return flat
        own = self.slices(len(flat))
        mine = flat[own[self.rank]]
        if parts is None:
            parts = np.empty((self.size, len(mine)), flat.dtype)
        elif parts.shape != (self.size, len(mine)) or parts.dtype != flat.dtype:
            raise ShapeError(
                f"sum_slices: parts has shape {parts.shape} and dtype {parts.dtype}; it must have "
                f"shape {(self.size, len(mine))} and dtype {flat.dtype}"
            )
        others = [r for r in range(self.size) if r != self.rank]
        self._transport.exchange(
            "sum_slices",
            flat,
            sends=[(r, flat[own[r]]) for r in others],
            receives=[(r, parts[r]) for r in others],
        )
        return _add_in_tree_order([*parts[: self.rank], mine, *parts[self.rank + 1 :]], self.rank)

    def gather_slices(self, flat: Any) -> None:
        """Fill a flat array on every rank with the slices that the ranks own, in place."""
        flat = _check_flat("gather_slices", flat, written=True)
        if self._transport is None:
            return
        own = self.slices(len(flat))
        others = [r for r in range(self.size) if r != self.rank]
        self._transport.exchange(
            "gather_slices",
            flat,
            sends=[(r, flat[own[self.rank]]) for r in others],
            receives=[(r, flat[own[r]]) for r in others],
        )

    # ------------------------------------------------------------------ collectives on arrays

    def all_reduce(self, x: Any, reduction: str = "ordered") -> Any:
        """Return the sum of an array over the ranks."""
        check_choice("all_reduce", "reduction", reduction, ("ordered", "fast"))
        x = np.asarray(x)
        if self._transport is None:
            return x.copy()
        flat = np.array(x, order="C").reshape(-1)
        if reduction == "fast":
            self._transport.reduce_in_place(flat)
        elif flat.nbytes <= _GATHERED:
            table = self._exchange("all_reduce", flat)
            flat = _add_in_tree_order(list(table), -1)
        else:
            flat[self.slices(len(flat))[self.rank]] = self.sum_slices(flat)
            self.gather_slices(flat)
        return flat.reshape(x.shape)

    def broadcast(self, x: Any, root: int = 0) -> Any:
        """Return the array of rank ``root`` on every rank."""
        root = check_int("broadcast", "root", root, 0)
        if root >= self.size:
            raise SettingError(f"broadcast: root {root}, of {self.size} ranks")
        x = np.asarray(x)
        if self._transport is None:
            return x.copy()
        flat = np.array(x, order="C").reshape(-1)
        self._transport.broadcast_in_place(flat, root)
        return flat.reshape(x.shape)

    def _exchange(self, name: str, flat: Any) -> Any:
        """Return the flat arrays of all ranks, as rows of a table."""
        table = np.empty((self.size, len(flat)), flat.dtype)
        table[self.rank] = flat
        others = [r for r in range(self.size) if r != self.rank]
        assert self._transport is not None
        self._transport.exchange(
            name,
            flat,
            sends=[(r, flat) for r in others],
            receives=[(r, table[r]) for r in others],
        )
        return table


def _check_flat(who: str, flat: Any, sums: bool = False, written: bool = False) -> Any:
    """Return a flat array that may travel as it is, or raise."""
    if type(flat) is not np.ndarray:
        raise DTypeError(f"{who}: wants an array of NumPy, got {describe_type(flat)}")
    if flat.ndim != 1 or not flat.flags.c_contiguous:
        raise ShapeError(
            f"{who}: wants a contiguous array of one dimension, got shape {flat.shape}, strides "
            f"{flat.strides}; np.ravel makes one"
        )
    if flat.dtype.kind not in "fciub" or not flat.dtype.isnative:
        raise DTypeError(f"{who}: arrays of numbers travel, not of {flat.dtype}")
    if sums and ((flat.dtype.itemsize < 4 and flat.dtype.kind == "f") or flat.dtype.kind == "b"):
        raise DTypeError(
            f"{who}: sums over ranks are not taken in {flat.dtype}; reduce in "
            f"{'int64' if flat.dtype.kind == 'b' else 'float32'}"
        )
    if written and not flat.flags.writeable:
        raise SettingError(f"{who}: the array is read-only, and is filled in place")
    return flat


# ------------------------------------------------------------------ the group of all processes


def _default_timeout(environment: Mapping[str, str] = os.environ) -> float:
    """Return the seconds of ``ODYSSEY_TIMEOUT``, by default 60."""
    text = environment.get("ODYSSEY_TIMEOUT", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SettingError(f"ODYSSEY_TIMEOUT is {format_value(text)}; it must be seconds above 0")
    return seconds


def _launched_size(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return how many processes a launcher says there are, 1 without one, None if unknown."""
    for name in _SIZES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None if any(name in environment for name in _RANKS) else 1


_WORLD: list[Group] = []
_WORLD_LOCK = threading.Lock()


def world() -> Group:
    """Return the group of all processes that the launcher started; the same object at each call.

    Without a launcher it is a group of one process, and MPI is not loaded.

    Raises:
        DistributedError: A launcher started this process, but ``mpi4py`` is missing; or it belongs
            to another MPI than the launcher; or other ranks do not make the group in time.

    >>> import odyssey as od
    >>> od.distributed.world() is od.distributed.world()
    True
    """
    with _WORLD_LOCK:
        if not _WORLD:
            _WORLD.append(_make_world())
        return _WORLD[0]


def _make_world() -> Group:
    timeout, size = _default_timeout(), _launched_size()
    if size == 1:
        return Group(timeout=timeout)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            f"world: a launcher started this process as one of {size or 'several'}, but mpi4py "
            f"does not load ({error}); pip install 'odyssey[dist]'"
        ) from error
    from odyssey.distributed.transport import load_world

    communicator = MPI.COMM_WORLD
    if size is not None and communicator.size != size:
        raise DistributedError(
            f"world: the launcher started {size} processes, but mpi4py's library sees "
            f"{communicator.size}; the launcher and the library belong to different MPIs "
            f"({MPI.Get_library_version().splitlines()[0].strip()})"
        )
    if communicator.size == 1:
        return Group(timeout=timeout)
    return Group(load_world(communicator, timeout), timeout)
