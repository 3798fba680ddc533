"""Groups of processes, and collectives on arrays that end by a deadline."""

from __future__ import annotations

import builtins
import hashlib
import math
import os
import sys
from _thread import RLock
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey import ops, tree
from odyssey.checks import check_choice, check_int, check_number, describe_type, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.stateful import TraceConstant
from odyssey.devices.write_guard import FORK_WAITS, hold_during_forks
from odyssey.distributed import collectives
from odyssey.distributed.ordered_sums import (
    gather_from_slices,
    gather_rows,
    slices_of,
    sum_own_slice,
)
from odyssey.errors import DistributedError, DTypeError, SettingError, ShapeError
from odyssey.table.store import store
from odyssey.table.value import Symbol, Value

if TYPE_CHECKING:
    from odyssey.distributed.transport import Transport

__all__ = ["Group", "make_world", "world"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "ODYSSEY_SIZE")
"""Variables in which launchers tell a process how many there are."""

_RANKS = ("PMIX_RANK", "PMI_RANK")
"""Variables of launchers that tell the rank, but not always how many there are."""

_LAUNCHES = ("ODYSSEY_RUN", "PMIX_NAMESPACE", "PMI_PORT", "SLURM_STEP_ID")
"""Variables of launchers that differ between two launches."""

_PROCESS = "ODYSSEY_RANK_PROCESS"
"""The variable in which a rank leaves its process and launch, for processes that it starts."""


class Group(TraceConstant):
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

    def __init__(self) -> None:
        self._transport: Any = None
        self._timeout = _default_timeout(os.environ)

    @classmethod
    def _from_transport(cls, transport: Transport | None, timeout: float) -> Group:
        """Make the group of a transport, or of one process without it."""
        group = cls.__new__(cls)
        group._transport, group._timeout = transport, timeout
        return group

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
        """Seconds for which a collective waits for the other ranks; settable, by default 60."""
        return self._timeout if self._transport is None else self._transport.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        seconds = check_number("Group", "timeout", seconds, "(0, inf)")
        if self._transport is None:
            self._timeout = seconds
        else:
            self._transport.timeout = seconds

    @property
    def waited(self) -> float:
        """Seconds that this process has spent in collectives of this group."""
        store().only_eagerly("it reads Group.waited")
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
        store().only_eagerly("Group.barrier has a side effect")
        if self._transport is not None and not store().traces:
            self._transport.run("barrier")

    def _finish(self) -> None:
        """Meet the other ranks at the end of the script; the last collective of a run."""
        if self._transport is not None:
            from odyssey.distributed.transport import FINISH

            self._transport.run(FINISH)

    def print(self, *args: Any, **options: Any) -> None:
        """Print on rank 0 only, and at once; arguments are those of Python's ``print``."""
        store().only_eagerly("Group.print prints")
        if self.rank == 0 and not store().traces:
            builtins.print(*args, **{"flush": True} | options)

    def agree(self, *values: Any) -> None:
        """Raise unless values are the same bits on every rank.

        Args:
            values: Arrays, Variables, numbers, texts, and trees of these.

        Raises:
            DistributedError: A leaf differs; the message names the first one and the ranks. All
                ranks raise, and the group is not broken.
        """
        store().only_eagerly("Group.agree has a side effect")
        if self._transport is None or store().traces:
            return
        names, digests = [], []
        for path, leaf in tree.paths(values):
            names.append(f"value{path}")
            digests.append(_digest("agree", names[-1], leaf))
        own = np.frombuffer(b"".join(digests), np.uint8)
        table = gather_rows(self._transport, "agree", own).reshape(self.size, len(names), 8)
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
        if max(color, abs(key)) >= 2**31:
            raise SettingError(
                f"Group.split: color {color}, key {key}; MPI takes numbers below 2**31"
            )
        if self._transport is None:
            return Group._from_transport(None, self.timeout)
        return Group._from_transport(self._transport.subset(color, key), self.timeout)

    # ------------------------------------------------------------------ slices of flat arrays

    def slices(self, length: int) -> list[slice]:
        """Return the slice of a flat array that each rank owns: nearly equal, whole cache lines.

        >>> import odyssey as od
        >>> od.distributed.world().slices(10)
        [slice(0, 10, None)]
        """
        return slices_of(check_int("Group.slices", "length", length, 0), self.size)

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

        Raises:
            DistributedError: See ``Group``.
            ShapeError: The array is not flat, or ``parts`` has another shape.
            DTypeError: The dtype does not travel, or has no sum: halves and bools.
        """
        flat = _check_flat("sum_slices", flat, sums=True)
        if self._transport is None:
            return flat
        if parts is not None:
            own = self.slices(len(flat))[self.rank]
            shape = self.size, own.stop - own.start
            flags = _check_array("sum_slices: parts", parts).flags
            if not (flags.c_contiguous and flags.writeable) or np.may_share_memory(parts, flat):
                raise SettingError(
                    "sum_slices: parts is filled; it must be contiguous, writable, and share no "
                    "memory with flat"
                )
            if parts.shape != shape or parts.dtype != flat.dtype:
                raise ShapeError(
                    f"sum_slices: parts has shape {parts.shape} and dtype {parts.dtype}; it must "
                    f"have shape {shape} and dtype {flat.dtype}"
                )
        return sum_own_slice(self._transport, "sum_slices", flat, parts)

    def gather_slices(self, flat: Any) -> None:
        """Fill a flat array on every rank with the slices that the ranks own, in place.

        Args:
            flat: A contiguous array of one dimension, as long on every rank; each rank has filled
                its slice, ``slices(len(flat))[rank]``.

        Raises:
            DistributedError: See ``Group``.
        """
        flat = _check_flat("gather_slices", flat, written=True)
        if self._transport is not None:
            gather_from_slices(self._transport, "gather_slices", flat)

    # ------------------------------------------------------------------ collectives on arrays

    def _call(self, row: Any, x: Any, name: str, *options: Any) -> Any:
        """Call a collective; a trace records it, of arrays too, and no rank waits for others."""
        options = (self, *options, name)
        here: Any = store()
        if here.traces and isinstance(x, np.ndarray):
            if here.outer is not None:  # a batch in a trace
                return here.compute_outside(self._call, row, x, name, *options[1:-1])
            return here.emit(row.row, (x,), options)
        return row(x, *options)

    def all_reduce(self, x: Any, reduction: str = "ordered") -> Any:
        """Return the sum of an array over the ranks, on every rank.

        Its transpose, and so its gradient, is ``all_reduce``: gradients are those of the sum of the
        losses of all ranks. If each rank computes the same loss from the sum, that is ``size``
        times the gradient of one of them.

        Args:
            x: An array or a Variable of any shape, equal on all ranks. Halves are summed in
                float32 and rounded once; bools are counted.
            reduction: ``"ordered"`` adds as a balanced tree over the ranks, with bits that depend
                on nothing else; ``"fast"`` leaves the order to the MPI library.

        Returns:
            The sum, a new array, or a Variable where a tape records.

        Raises:
            DistributedError: See ``Group``.

        >>> import odyssey as od
        >>> od.distributed.world().all_reduce([1.0, 2.0])
        array([1., 2.])
        """
        check_choice("all_reduce", "reduction", reduction, ("ordered", "fast"))
        x = _as_operand("all_reduce", x)
        if self._transport is None:
            return x.astype(np.int64) if x.dtype == np.bool_ else _copy_of_one(x)
        return self._call(collectives.all_reduce, x, "all_reduce", reduction)

    def all_gather(self, x: Any) -> Any:
        """Return the arrays of all ranks, stacked along a new axis 0, on every rank.

        Its transpose, and so its gradient, is ``reduce_scatter``.

        Args:
            x: An array or a Variable of any shape, equal on all ranks.

        Returns:
            An array of shape (size, *x.shape), or a Variable where a tape records.

        Raises:
            DistributedError: See ``Group``.

        >>> import odyssey as od
        >>> od.distributed.world().all_gather([1.0, 2.0])
        array([[1., 2.]])
        """
        x = _as_operand("all_gather", x)
        if self._transport is None:
            return _copy_of_one(x)[None]
        return self._call(collectives.all_gather, x, "all_gather")

    def reduce_scatter(self, x: Any) -> Any:
        """Return the sum over ranks of row ``rank`` of an array: each rank gets its own row.

        Its transpose, and so its gradient, is ``all_gather``. The sum is a balanced tree over the
        ranks, see ``sum_slices``.

        Args:
            x: An array or a Variable of shape (size, ...), equal on all ranks.

        Returns:
            An array of shape ``x.shape[1:]``, or a Variable where a tape records.

        Raises:
            DistributedError: See ``Group``.
            ShapeError: Axis 0 has another length than ``size``.

        >>> import odyssey as od
        >>> od.distributed.world().reduce_scatter([[1.0, 2.0]])
        array([1., 2.])
        """
        x = _as_operand("reduce_scatter", x)
        collectives.check_rows(x, self)
        if self._transport is None:
            x = x.astype(np.int64) if x.dtype == np.bool_ else _copy_of_one(x)
            return x[0, ...]
        return self._call(collectives.reduce_scatter, x, "reduce_scatter")

    def broadcast(self, x: Any, root: int = 0) -> Any:
        """Return the array of rank ``root``, on every rank.

        Its transpose, and so its gradient, is the sum over the ranks on rank ``root``, and 0 on the
        others.

        Args:
            x: An array or a Variable of any shape, equal on all ranks; only the root's values
                count.
            root: The rank whose values are sent.

        Returns:
            A new array, or a Variable where a tape records.

        Raises:
            DistributedError: See ``Group``.
        """
        root = check_int("broadcast", "root", root, 0)
        if root >= self.size:
            raise SettingError(
                f"broadcast: root is {format_value(root)}, in a group of {self.size}; it must be a "
                f"rank, below {self.size}"
            )
        x = _as_operand("broadcast", x)
        if self._transport is None:
            return _copy_of_one(x)
        return self._call(collectives.broadcast, x, "broadcast", root)

    def shift(self, x: Any, by: int = 1) -> Any:
        """Return the array of the rank that is ``by`` ranks before this one, around a ring.

        Rank r sends to rank (r + by) modulo size. Its transpose, and so its gradient, is the shift
        by ``-by``.

        Args:
            x: An array or a Variable of any shape, equal on all ranks.
            by: How far, of either sign.

        Returns:
            A new array, or a Variable where a tape records.

        Raises:
            DistributedError: See ``Group``.
        """
        by = check_int("shift", "by", by)
        x = _as_operand("shift", x)
        if self._transport is None:
            return _copy_of_one(x)
        return self._call(collectives.shift, x, "shift", by)


def _digest(who: str, name: str, leaf: Any) -> bytes:
    """Return 8 bytes that differ where the name, dtype, shape or bits of a leaf do."""
    if leaf is None or isinstance(leaf, str | bytes | int | float | complex):
        key, data = repr((name, leaf)), memoryview(b"")
    else:
        array = as_array(who, name, leaf._array if isinstance(leaf, Value) else leaf)
        key = repr((name, str(array.dtype), array.shape))
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    digest = hashlib.blake2b(key.encode(), digest_size=8)
    digest.update(data)
    return digest.digest()


def _as_operand(who: str, x: Any) -> Any:
    """Return a Variable or a Symbol as it is, and anything else as an array."""
    return x if isinstance(x, Value | Symbol) else as_array(who, "x", x)


def _copy_of_one(x: Any) -> Any:
    """Return what a collective of one rank returns: an array of its own, or an op's result."""
    if isinstance(x, np.ndarray):
        return np.array(x, order="C")
    return x if isinstance(x, Symbol) or x.dtype == np.bool_ else ops.positive(x)


def _check_array(who: str, array: Any) -> Any:
    """Return an array of NumPy, or raise."""
    if type(array) is not np.ndarray:
        raise DTypeError(f"{who}: expected an array of NumPy, got {describe_type(array)}")
    return array


def _check_flat(who: str, flat: Any, sums: bool = False, written: bool = False) -> Any:
    """Return a flat array that may travel as it is, or raise."""
    _check_array(who, flat)
    if flat.ndim != 1 or not flat.flags.c_contiguous:
        raise ShapeError(
            f"{who}: expected a contiguous array of one dimension, got shape {flat.shape}, strides "
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


def _default_timeout(environment: Mapping[str, str]) -> float:
    """Return the seconds of ``ODYSSEY_TIMEOUT``, by default 60."""
    text = environment.get("ODYSSEY_TIMEOUT", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SettingError(f"ODYSSEY_TIMEOUT is {format_value(text)}; it must be seconds above 0")
    return seconds


def _launched_size(environment: Mapping[str, str]) -> int | None:
    """Return how many processes a launcher says there are, 1 without one, None if unknown."""
    for name in _SIZES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None if any(name in environment for name in _RANKS) else 1


_WORLD: list[Group] = []
_WORLD_LOCK = RLock()
hold_during_forks(lambda: (_WORLD_LOCK,), FORK_WAITS)


def world() -> Group:
    """Return the group of all processes that the launcher started; the same object at each call.

    Without a launcher it is a group of one process, and MPI is not loaded.

    Raises:
        DistributedError: A launcher started this process, but ``mpi4py`` is missing; or it belongs
            to another MPI than the launcher; or a rank started this process; or other ranks do not
            make the group in time.

    >>> import odyssey as od
    >>> od.distributed.world() is od.distributed.world()
    True
    """
    with _WORLD_LOCK:
        if not _WORLD:
            _WORLD.append(make_world())
        return _WORLD[0]


def make_world(environment: Mapping[str, str] = os.environ) -> Group:
    """Return the group of all processes that a launcher's environment speaks of."""
    timeout, size = _default_timeout(environment), _launched_size(environment)
    loaded: Any = sys.modules.get("mpi4py.MPI")
    if size == 1 and not (loaded and loaded.Is_initialized() and loaded.COMM_WORLD.size > 1):
        return Group._from_transport(None, timeout)
    _refuse_process_of_rank(environment)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            f"world: a launcher started this process as one of {size or 'several'}, but mpi4py "
            f"does not load ({error}); pip install 'odyssey[dist]'"
        ) from error
    from odyssey.distributed.transport import load_world

    communicator = MPI.COMM_WORLD
    if size not in (None, 1, communicator.size):
        raise DistributedError(
            f"world: the launcher started {size} processes, but mpi4py's library sees "
            f"{communicator.size}; the launcher and the library belong to different MPIs "
            f"({MPI.Get_library_version().splitlines()[0].strip()})"
        )
    if communicator.size == 1:
        return Group._from_transport(None, timeout)
    transport = load_world(communicator, timeout)
    os.environ[_PROCESS] = ":".join((str(transport.rank), str(os.getpid()), *_launch(environment)))
    return Group._from_transport(transport, timeout)


def _launch(environment: Mapping[str, str]) -> list[str]:
    """Return words that tell one launch from another; empty where nothing is known."""
    try:
        socket = str(os.fstat(int(environment["PMI_FD"])).st_ino)  # closed in other processes
    except (KeyError, ValueError, OSError):
        socket = ""
    words = [environment.get(name, "") for name in _LAUNCHES]
    return [hashlib.blake2b(w.encode(), digest_size=6).hexdigest() if w else "" for w in words] + [
        socket
    ]


def _refuse_process_of_rank(environment: Mapping[str, str]) -> None:
    """Raise in a process that a rank started: MPI would end it, or wait for ever."""
    rank, _, rest = environment.get(_PROCESS, "").partition(":")
    process, *launch = rest.split(":")
    if not rest or process == str(os.getpid()):
        return
    if all(own in ("", saved) for own, saved in zip(_launch(environment), launch, strict=False)):
        raise DistributedError(
            f"world: rank {rank}, process {process}, started this process, which is not a rank; "
            "call od.distributed.world() in ranks alone, or start it without the launcher's "
            "environment"
        )
