"""Data-parallel training: an optimizer steps on the mean gradient of the parts of all ranks."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odyssey import tree
from odyssey.checks import check_choice, check_flag, check_int, check_number, format_value
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import can_cast, is_half
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.distributed.agreement import Fact, agree_on_facts
from odyssey.distributed.batch_parts import (
    batch_checksum,
    batch_leaves,
    describe_batch,
    part_edges,
    part_of_batch,
)
from odyssey.distributed.gradient_sums import GradientSums
from odyssey.distributed.group import Group, world
from odyssey.distributed.sharded_update import ShardedUpdate
from odyssey.errors import (
    DTypeError,
    MissingGradientError,
    OdysseyError,
    SettingError,
    ShapeError,
)
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.optim.inplace_codegen import setting_key
from odyssey.optim.loss_scaler import LossScaler
from odyssey.optim.optimizer import Optimizer, _truth_of
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Array
from odyssey.table.store import MEMORY, refuse_in_vmap, store
from odyssey.table.value import Value, is_trainable
from odyssey.tape import Gradients, GradientTape

if TYPE_CHECKING:
    from odyssey.optim.rule import Rule

__all__ = ["DataParallel"]

_MOST_SHARDS = 65536


class _Batch:
    """The parts of one global batch that this rank computes gradients of.

    Attributes:
        text: Rows, tree, shapes and dtypes; None if parts are added without ``shards``.
        checksum: Of its numbers, or None.
        rows: Its number of rows, or None.
        lengths: The rows of this rank's parts that have any; None where they are not known.
        yielded: How many parts ``shards`` has yielded.
        weights: The weights of the parts that were added.
        has_weights: Whether they were passed to ``add``; None before the first.
        present: For each parameter whether a part has a gradient of it.
    """

    def __init__(
        self, text: str | None, checksum: int | None, rows: int | None, lengths: list[int] | None
    ) -> None:
        self.text, self.checksum, self.rows, self.lengths = text, checksum, rows, lengths
        self.yielded = 0
        self.weights: list[float] = []
        self.has_weights: bool | None = None
        self.present: Any = False


class _Sum:
    """The sum of the gradients of one or several batches, in this rank's slices.

    Attributes:
        slices: One array for each layout.
        weight: The sum of the weights of all ranks' parts.
        unit: How many rows a weight of 1 stands for.
        present: Whether a rank has a gradient, for each parameter.
    """

    def __init__(self, slices: list[Array], weight: float, unit: float, present: Any) -> None:
        self.slices, self.weight, self.unit, self.present = slices, weight, unit, present

    @ignore_fp_errors()
    def plus(self, other: _Sum) -> _Sum:
        """Return the sum of both, in new arrays."""
        present = self.present | other.present
        if self.unit == other.unit:
            slices = [a + b for a, b in zip(self.slices, other.slices, strict=True)]
            return _Sum(slices, self.weight + other.weight, self.unit, present)
        slices = [
            a * self.unit + b * other.unit for a, b in zip(self.slices, other.slices, strict=True)
        ]
        weight = self.weight * self.unit + other.weight * other.unit
        return _Sum(slices, weight, 1.0, present)


class DataParallel:
    """Steps an optimizer on the mean gradient over the parts of a batch, which ranks share.

    Every rank runs the same script on the same global batch, and computes the gradients of its
    parts of it. ``step`` adds them up, updates on each rank a slice of the parameters and of the
    optimizer's state, and sends the new parameters to all ranks (ZeRO stage 1, Rajbhandari et al.
    2020). So each rank holds ``1 / size`` of the state.

    The sum is a balanced tree over the parts. With ``shards`` the batch is cut into so many parts
    whatever the number of ranks is, and 1, 2, 4 … ranks give the same bits, if products run on as
    many threads and compiled functions are made ready by ``precompile``.

    The loss is the mean over the rows of a part. Parts that are not equally long are weighted by
    their rows, so that the sum is the mean over the batch.

    Args:
        optimizer: An optimizer of ``odyssey.optim``. Its settings, groups and schedules work as
            ever; with several ranks its state lies in slices, and only this object steps it.
        group: The ranks; ``od.distributed.world()`` by default.
        shards: How many parts a batch is cut into; a power of two, and a multiple of the number of
            ranks. By default as many as there are ranks.
        reduction: ``"ordered"`` adds in the order of the tree. ``"fast"`` leaves the order over
            ranks to MPI; ``shards`` then may be any multiple of the number of ranks.
        check_every: At the first of so many steps, batches and parameters are compared number by
            number over the ranks. None compares shapes only, and parameters that were assigned.

    Attributes:
        optimizer: The optimizer.
        group: The ranks.
        shard_count: How many parts a batch is cut into.
        reduction: The order of sums.

    Raises:
        OdysseyError: on all ranks, if an argument does not fit, or the parameters differ between
            ranks; the message names the first one that does.

    >>> import numpy as np
    >>> import odyssey as od
    >>> w = od.Variable([0.0], requires_grad=True, name="w")
    >>> optimizer = od.optim.SGD([w], learning_rate=0.5)
    >>> parallel = od.distributed.DataParallel(optimizer, shards=2)
    >>> x, y = np.ones((6, 1)), np.arange(6.0)
    >>> for a, b in parallel.shards((x, y)):
    ...     with od.GradientTape() as tape:
    ...         loss = od.losses.mean_squared_error(a @ w, b)
    ...     parallel.backward(tape, loss)
    >>> parallel.step()
    >>> w.numpy()
    array([2.5])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        group: Group | None = None,
        shards: int | None = None,
        reduction: str = "ordered",
        *,
        check_every: int | None = 100,
    ) -> None:
        self._refuse_in_trace("DataParallel: made")
        who = "DataParallel"
        if group is not None and not isinstance(group, Group):
            raise DTypeError(
                f"{who}: group={format_value(group)}; pass od.distributed.world(), or what its "
                "split() returned"
            )
        self.group = group = world() if group is None else group
        refusal, facts = None, []
        try:
            _check_optimizer(who, optimizer)
            self.reduction = check_choice(who, "reduction", reduction, ("ordered", "fast"))
            self.shard_count = _shard_count(who, shards, group, self.reduction)
            self._check_every = (
                None if check_every is None else check_int(who, "check_every", check_every, 1)
            )
            facts = self._facts_of_start(optimizer)
        except OdysseyError as error:
            refusal = error
        facts = facts or [Fact("", "", "")] * 4
        agree_on_facts(group, who, refusal, facts)
        self.optimizer = optimizer
        self._params = optimizer.params
        self._specs = [p._spec for p in self._params]
        self._names = [optimizer._param_name(k) for k in range(len(self._params))]
        self._update = ShardedUpdate(optimizer, group)
        self._sums = GradientSums(self._update.layouts, self._params)
        self._per_rank = self.shard_count // group.size
        self._mask_words = -(-len(self._params) // 64)
        self._known_settings: list[Any] = []
        self._text_of_settings = ""
        self._batch: _Batch | None = None
        # A group of one with one part a batch: its gradients, which nobody adds to.
        self._alone = group.size == 1 and self.shard_count == 1
        self._direct: tuple[list[Any], float | None] | None = None
        self._earlier: _Sum | None = None
        self._steps = 0

    def _facts_of_start(self, optimizer: Optimizer) -> list[Fact]:
        if self.group.size == 1:
            return []
        groups = ", ".join(
            f"{len(group.params)} parameters {_settings_text(group._settings)}"
            for group in optimizer.groups
        )
        state = [
            (name, zlib.crc32(np.ascontiguousarray(v._array).reshape(-1).view(np.uint8).data))
            for entry in optimizer._state
            for name, v in entry.items()
        ]
        names = [optimizer._param_name(k) for k in range(len(optimizer.params))]
        return [
            Fact(
                "shards, reduction or check_every differ",
                f"{self.shard_count}, {self.reduction}, {format_value(self._check_every)}",
                "pass equal ones",
            ),
            Fact(
                "the optimizer differs",
                f"{type(optimizer).__name__} of {groups}",
                "make it in one way",
            ),
            Fact(
                "the parameters differ",
                _checksums(names, optimizer.params),
                "seed generators equally on all ranks before the model is made, as by od.seed(0), "
                "or load one file",
                _first_different_parameter,
            ),
            Fact("the optimizer's state differs", f"{state}", "load one file on all ranks"),
        ]

    def __repr__(self) -> str:
        store().only_eagerly("it formats a data-parallel optimizer as text")
        if "_steps" not in vars(self):  # under construction, or construction failed
            return "<DataParallel, unfinished>"
        return (
            f"DataParallel({self.optimizer!r}, rank {self.group.rank} of {self.group.size}, "
            f"{self.shard_count} shards)"
        )

    def __reduce__(self) -> Any:
        raise OdysseyError(
            "DataParallel: it belongs to the ranks of this run, and is not copied or pickled; save "
            "parallel.state_dict(), or call parallel.save(path)"
        )

    def __copy__(self) -> Self:
        return self.__reduce__()  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: Any) -> Self:
        return self.__reduce__()  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ parts of a batch

    def shards(self, batch: Any) -> Iterator[Any]:
        """Yield this rank's parts of a global batch, in order, as views in a tree like it.

        The parts are the rows in order, cut into ``shards`` pieces of nearly equal length, the
        longer ones first; parts of no rows are left out. After each part ``add`` or ``backward``
        takes its gradients. A second batch before ``step`` accumulates: the step is one on the
        mean over the rows of all of them.

        Args:
            batch: A tree of arrays, or a tuple of them, with as many rows each; equal on all ranks.

        Raises:
            ShapeError, DTypeError: if the batch has no rows, or arrays differ in them.
            SettingError: if gradients of parts of an earlier batch are missing.
        """
        who = "DataParallel.shards"
        self._refuse_in_trace("DataParallel.shards: called")
        self._update.refuse_midway(who)
        found, rows = batch_leaves(who, batch)
        if self._batch is not None:
            self._close_batch(who)
        text = checksum = None
        if self.group.size > 1:
            text = describe_batch(batch, found, rows)
            checksum = batch_checksum(found) if self._is_checked() else None
        if self.shard_count == 1:
            self._batch = open_batch = _Batch(text, checksum, rows, [rows])
            return self._yield_parts(open_batch, [batch])
        edges = part_edges(rows, self.shard_count)
        own = [(edges[k], edges[k + 1]) for k in self._own_parts() if edges[k] < edges[k + 1]]
        self._batch = open_batch = _Batch(text, checksum, rows, [b - a for a, b in own])
        return self._yield_parts(open_batch, (part_of_batch(batch, found, a, b) for a, b in own))

    def _yield_parts(self, batch: _Batch, parts: Any) -> Iterator[Any]:
        for part in parts:
            if self._batch is not batch:
                raise SettingError(
                    "DataParallel.shards: the parts of a batch were left for another batch, a step "
                    "or zero_grad(), and are asked for again; call shards(batch) again"
                )
            batch.yielded += 1
            yield part

    def _own_parts(self) -> range:
        per = self.shard_count // self.group.size
        return range(self.group.rank * per, (self.group.rank + 1) * per)

    def _is_checked(self) -> bool:
        every = self._check_every
        return every is not None and self._steps % every == 0

    def precompile(self, fn: Any, batch: Any) -> None:
        """Compile a function for all shapes that parts of such a batch have, on any rank.

        The first call of a compiled function runs as it was written, whose bits differ from those
        of a program. How many calls that are depends on the number of ranks, so equal bits need
        programs before the first part.

        Args:
            fn: What ``od.compile`` returned. It is called with the arrays of a part if the batch is
                a tuple, and else with the part.
            batch: A batch as for ``shards``; specs, as ``od.Spec((256, 784), np.float32)``, may
                stand for arrays.

        Raises:
            CompileError: no program can be compiled; the message says why.
        """
        who = "DataParallel.precompile"
        if not hasattr(fn, "precompile"):
            raise DTypeError(f"{who}: {format_value(fn)} came; pass what od.compile returned")
        found, rows = batch_leaves(who, batch)
        edges = part_edges(rows, self.shard_count)
        lengths = {b - a for a, b in pairwise(edges)} - {0}
        for length in sorted(lengths, reverse=True):  # in one order on all ranks
            part = part_of_batch(batch, found, 0, length)
            fn.precompile(*(part if type(part) is tuple else (part,)))

    # ------------------------------------------------------------------ gradients

    def backward(self, tape: GradientTape, loss: Any, weight: float | None = None) -> None:
        """Sweep a tape, and add the gradients of a part.

        No ``.grad`` changes: gradients go from the tape to the sum of this step, so what a
        ``.grad`` holds for other purposes is neither lost nor counted.

        Args:
            tape: The tape that recorded the loss; it is consumed unless it is persistent.
            loss: The mean loss over the rows of the part.
            weight: See ``add``.
        """
        if store() is not MEMORY:
            self._refuse_in_trace("DataParallel.backward: called")
        if not isinstance(tape, GradientTape):
            raise DTypeError(
                f"DataParallel.backward: {format_value(tape)} came; pass the tape and then the "
                "loss, as in parallel.backward(tape, loss)"
            )
        batch = self._check_part("DataParallel.backward")
        gradients = tape.gradient(loss, self._params, unused="none")
        self._add_part("DataParallel.backward", batch, gradients, weight)

    def add(self, gradients: Any, weight: float | None = None) -> None:
        """Add the gradients of one part.

        In a group of one with one shard they are not copied: leave the arrays as they are until
        ``step``.

        Args:
            gradients: Those of the optimizer's parameters: a list in their order, a tree like the
                one that the optimizer got, as ``od.grad`` returns it, or the ``Gradients`` of a
                tape. None stands for a gradient that is missing, which counts as 0 if another part
                has one. Sparse rows are made dense.
            weight: How much the part counts, a number that is not negative; by default its number
                of rows. Pass it for all parts if losses are means over something else, such as
                tokens that are no padding. Parts of weight 0 are left out, whatever they have.

        Raises:
            ShapeError, DTypeError: gradients do not fit the parameters; nothing has changed.
            SettingError: a gradient more than there are parts.
        """
        who = "DataParallel.add"
        if store() is not MEMORY:
            self._refuse_in_trace("DataParallel.add: called")
        self._add_part(who, self._check_part(who), gradients, weight)

    def _add_part(
        self, who: str, batch: _Batch | None, gradients: Any, weight: float | None
    ) -> None:
        arrays = self._arrays_of(who, gradients)
        if weight is not None:
            weight = check_number(who, "weight", weight, "[0, inf)")
        if self._alone:
            self._direct = arrays, weight  # one assignment, before or after which a signal may come
        else:
            commit_quietly(self._add_calls(who, batch, arrays, weight))

    def _add_calls(
        self, who: str, batch: _Batch | None, arrays: list[Any], weight: float | None
    ) -> Plan:
        """Return the calls that add the gradients of a part to the sums, for one ``commit``."""
        batch = _Batch(None, None, None, None) if batch is None else batch
        has_weights = weight is not None
        if batch.has_weights is not None and batch.has_weights != has_weights:
            raise SettingError(
                f"{who}: weight={format_value(weight)}, and an earlier part of this batch came "
                f"{'without' if has_weights else 'with'} one; pass it for all parts or for none"
            )
        number = self._weight_of_part(batch) if weight is None else weight
        present = np.array([g is not None for g in arrays]) | batch.present
        if number == 0:
            arrays = [None] * len(arrays)
        is_factor = has_weights or not self._is_even(batch)
        return [
            *self._sums.add_calls(arrays, number if is_factor else None),
            (batch.weights.append, number),
            (setattr, batch, "has_weights", has_weights),
            (setattr, batch, "present", present),
            (setattr, self, "_batch", batch),
        ]

    def _check_part(self, who: str) -> _Batch | None:
        """Return the open batch, which has a part without gradients; None if there is none."""
        if self._update.midway:
            self._update.refuse_midway(who)
        batch = self._batch
        if batch is None and self._direct is None:
            return None
        if batch is None:
            batch = _Batch(None, None, None, None)
        added = len(batch.weights) + (self._direct is not None)
        if batch.lengths is None:
            most = self.shard_count // self.group.size
            if added >= most:
                raise SettingError(
                    f"{who}: {most} part{'s' * (most > 1)} of this step came already, "
                    f"{self.shard_count} shards over {self.group.size} ranks; call step(), or "
                    "shards(batch) for each batch that a step accumulates"
                )
        elif added >= len(batch.lengths):
            raise SettingError(
                f"{who}: the batch has {len(batch.lengths)} parts on this rank, and all of their "
                "gradients came already; call step() or shards(batch) first"
            )
        elif added >= batch.yielded:
            raise SettingError(
                f"{who}: gradients came twice for part {added - 1} of the batch; add them once for "
                "each part that shards(batch) yields"
            )
        return batch

    def _is_even(self, batch: _Batch) -> bool:
        """True if all parts of all ranks have equally many rows."""
        return batch.rows is None or batch.rows % self.shard_count == 0

    def _weight_of_part(self, batch: _Batch) -> float:
        if batch.lengths is None or self._is_even(batch):
            return 1.0
        return float(batch.lengths[len(batch.weights)])

    def _arrays_of(self, who: str, gradients: Any) -> list[Any]:
        """Return gradients as a list of arrays, sparse rows and None, which fit the parameters."""
        if type(gradients) in (list, tuple) and len(gradients) == len(self._params):
            found = list(gradients)
        elif isinstance(gradients, Gradients):
            found = [gradients.get(p) for p in self._params]
        elif isinstance(gradients, Optimizer):
            raise DTypeError(
                f"{who}: an optimizer came; pass gradients, as a list in the order of its "
                "parameters"
            )
        else:
            found = self._leaves_of(who, gradients)
        for k, (g, p, spec) in enumerate(zip(found, self._params, self._specs, strict=True)):
            usual = type(g) is np.ndarray and g.dtype is spec.dtype and g.shape == spec.shape
            if not usual or not is_trainable(p):
                found[k] = self._fitting(who, k, g)
        return found

    def _leaves_of(self, who: str, gradients: Any) -> list[Any]:
        """Return the leaves of a tree of gradients, whose paths are those of the parameters."""
        pairs = list(tree.paths(gradients))
        paths = self.optimizer._paths
        if len(pairs) != len(paths):
            raise ShapeError(
                f"{who}: {len(pairs)} gradient{'s' * (len(pairs) != 1)} came for {len(paths)} "
                f"parameters of the optimizer; pass one for each, None for those that are missing"
            )
        entries = dict(pairs)
        plain = [path.replace("['params']", "", 1) for path in paths]
        for names in (paths, plain):
            if entries.keys() == set(names):
                return [entries[name] for name in names]
        if all(
            type(path) is str and path.startswith("[") and path[1:-1].isdigit() for path in paths
        ):
            return [g for _, g in pairs]  # parameters came as a list, in the order of their tree
        path = next(path for path in entries if path not in (*paths, *plain))
        raise ShapeError(
            f"{who}: the gradients have {path}, and the optimizer got its parameters as "
            f"{', '.join(plain[:3])}{' …' if len(plain) > 3 else ''}; pass a tree like it, or a "
            "list in the order of optimizer.params"
        )

    def _fitting(self, who: str, k: int, g: Any) -> Any:
        """Return one gradient in the dtype of its parameter, or None if it has no use."""
        p = self._params[k]
        if g is None or not is_trainable(p):
            return None
        if isinstance(g, Value):
            g = g._array
        name = f"the gradient of {self._names[k]}"
        if type(g) is SparseRows:
            if p.size and self._is_lazy(k) and not self._alone:
                raise DTypeError(
                    f"{who}: {name} is sparse rows, and {type(self.optimizer).__name__} with "
                    "lazy=True steps such rows alone; sums over parts are dense: make the "
                    "optimizer without lazy, or the parameter without sparse_grad"
                )
        elif not isinstance(g, ARRAY_LIKE):
            raise DTypeError(f"{who}: {name} is {format_value(g)}; pass an array, or None")
        if g.shape != p.shape:
            raise ShapeError(f"{who}: {name} has shape {g.shape}, not {p.shape}")
        if g.dtype == p.dtype or (is_half(p.dtype) and g.dtype == np.float32):
            return g if type(g) is SparseRows else np.asarray(g)
        if not can_cast(g.dtype, p.dtype):
            raise DTypeError(f"{who}: {name} is of {g.dtype}, not of {p.dtype}")
        return g.astype(p.dtype) if type(g) is SparseRows else np.asarray(g, p.dtype)

    def _is_lazy(self, k: int) -> bool:
        return bool(self._update.group_of[k]._settings.get("lazy", False))

    def zero_grad(self) -> None:
        """Forget what was added since the last step; no ``.grad`` changes.

        Call it on all ranks, after an error that the script goes on from.
        """
        self._refuse_in_trace("DataParallel.zero_grad: called")
        commit(self._clear_calls())

    def _clear_calls(self) -> Plan:
        return [
            *self._sums.clear_calls(),
            (setattr, self, "_batch", None),
            (setattr, self, "_direct", None),
            (setattr, self, "_earlier", None),
        ]

    # ------------------------------------------------------------------ the step

    def step(
        self,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        allow_missing: bool = False,
        where: Any = True,
        scaler: LossScaler | None = None,
    ) -> float | None:
        """Move every parameter along the mean gradient of all ranks' parts; all ranks call it.

        Either the step happens on this rank as a whole or nothing changes, also under Ctrl-C. If
        another rank fails in the middle, ``DistributedError`` is raised: the parameters are then
        those before the step or those after it, and training goes on from a checkpoint.

        Args:
            clip_norm: Scale all gradients together so that their norm is at most this, as
                ``od.optim.clip_grad_global_norm`` does. The norm is computed in float64.
            clip_value: Cut every element of the gradients to ``[-clip_value, clip_value]``.
            allow_missing: Whether parameters stay where they are that no part has a gradient of.
            where: Whether to step at all. A step needs it to be true on all ranks; otherwise
                parameters and state stay as they are, and the gradients are forgotten.
            scaler: The ``LossScaler`` that scaled the losses, which it then adapts. Gradients are
                divided by its scale, and the step is left out if one of them is not finite.

        Returns:
            The norm before clipping, if there is a ``clip_norm``.

        Raises:
            MissingGradientError: naming a parameter without a gradient; nothing has changed.
            SettingError, ShapeError: gradients of parts are missing, or batches, settings, frozen
                or assigned parameters differ between ranks; raised on all ranks, and nothing has
                changed. ``zero_grad`` forgets the gradients.
            DistributedError: a rank did not come, or failed.
        """
        who = "DataParallel.step"
        if store() is not MEMORY:
            self._refuse_in_trace("DataParallel.step: called")
        plain = clip_norm is None and clip_value is None and scaler is None
        if self._update.midway:
            self._update.refuse_midway(who)
        refusal: OdysseyError | None = None
        limit, cut, options = None, None, ""
        try:
            if allow_missing is not False:
                allow_missing = check_flag(who, "allow_missing", allow_missing)
            where = True if where is True else _truth_of(who, where)
            if not plain:
                limit, cut, options = self._check_options(who, clip_norm, clip_value, scaler)
        except OdysseyError as error:
            refusal = error
        if refusal is None and plain and self._direct is not None and self._earlier is None:
            self._step_direct(who, allow_missing, where)
            return None
        options += f"allow_missing={format_value(allow_missing)}"
        total, is_stepped = self._sum_over_ranks(who, refusal, options, bool(where))
        if not allow_missing:
            self._refuse_missing(total.present)
        calls = [*self._clear_calls(), (setattr, self, "_steps", self._steps + 1)]
        if not is_stepped:
            commit(calls)
            return None
        self._update.set_mean(total.slices, total.weight)
        finite = True
        norm = None
        if scaler is not None:
            finite = self._update.divide(float(scaler._applied._array))
            calls += scaler._adapt_calls(finite)
        if not finite:
            commit(calls)
            return None
        if cut is not None:
            self._update.clip_value(cut)
        if limit is not None:
            norm = self._update.clip_norm(limit)
        self._update.run(total.present, calls)
        return norm

    def _check_options(
        self, who: str, clip_norm: Any, clip_value: Any, scaler: Any
    ) -> tuple[float | None, float | None, str]:
        """Return the limits as numbers, and the options as text."""
        if clip_norm is not None and clip_value is not None:
            raise SettingError(f"{who}: clip_norm and clip_value came; pass one of them")
        if clip_norm is not None:
            clip_norm = check_number(who, "clip_norm", clip_norm, "[0, inf]")
        if clip_value is not None:
            clip_value = check_number(who, "clip_value", clip_value, "[0, inf]")
            for p, name in zip(self._params, self._names, strict=True):
                if p.dtype.kind == "c":
                    raise DTypeError(
                        f"{who}: clip_value, and parameter {name} is complex; complex numbers have "
                        "no order: use clip_norm"
                    )
        if scaler is not None and not isinstance(scaler, LossScaler):
            raise DTypeError(
                f"{who}: scaler={format_value(scaler)}; pass an od.optim.LossScaler, or where=flag"
            )
        scale = None if scaler is None else scaler.value
        return clip_norm, clip_value, f"{clip_norm=}, {clip_value=}, {scale=}, "

    def _step_direct(self, who: str, allow_missing: bool, where: Any) -> None:
        """Step in a group of one with one shard, as the optimizer itself does."""
        assert self._direct is not None
        gradients, weight = self._direct
        if weight == 0:
            raise _no_weight_error(who)
        optimizer, refuse = self.optimizer, None if allow_missing else self._missing_refusal
        plan: Plan = []
        with write_lock():
            wait_for_programs()
            if where:
                optimizer._step_guarded(refuse, plan, gradients)
            else:
                optimizer._find_missing(refuse, gradients)
            plan.append((setattr, self, "_batch", None))
            plan.append((setattr, self, "_direct", None))
            plan.append((setattr, self, "_steps", self._steps + 1))
            optimizer._run(plan)

    def _missing_refusal(self, k: int) -> None:
        raise MissingGradientError(
            f"DataParallel.step: parameter {self._names[k]} has no gradient from any part; check "
            "that the loss depends on it, or pass allow_missing=True"
        )

    def _refuse_missing(self, present: Any) -> None:
        for k, p in enumerate(self._params):
            if not present[k] and is_trainable(p):
                self._missing_refusal(k)

    def _sum_over_ranks(
        self, who: str, refusal: OdysseyError | None, options: str, where: bool
    ) -> tuple[_Sum, bool]:
        """Return the sum of all parts since the last step, and whether to step on all ranks."""
        if self._direct is not None:  # a group of one, whose gradients are to be changed
            calls = self._add_calls(who, self._batch, *self._direct)
            commit_quietly([*calls, (setattr, self, "_direct", None)])
        batch = self._batch
        refusal = refusal or self._update.refusal()
        if refusal is None and (batch is None or len(batch.weights) < self._expected(batch)):
            refusal = self._incomplete_error(who, batch)
        words = np.zeros(2 + self._mask_words + self._per_rank, np.int64)
        if batch is not None and refusal is None:
            words[0] = where
            words[1] = -1 if batch.has_weights is None else batch.has_weights
            present = np.broadcast_to(batch.present, len(self._params))
            mask = np.packbits(present, bitorder="little")
            words[2 : 2 + self._mask_words].view(np.uint8)[: len(mask)] = mask
            weights = words[2 + self._mask_words :].view(np.float64)
            weights[: len(batch.weights)] = batch.weights
        table = agree_on_facts(self.group, who, refusal, self._facts(options), words)
        assert batch is not None
        modes = set(table[:, 1].tolist()) - {-1}
        if len(modes) > 1:
            raise SettingError(
                f"{who}: some ranks passed weight= to add, and others did not; pass it for all "
                "parts of a batch or for none"
            )
        weights = np.ascontiguousarray(table[:, 2 + self._mask_words :]).view(np.float64)
        if modes == {1} or not self._is_even(batch):
            weight, unit = math.fsum(weights.ravel().tolist()), 1.0
        else:
            weight = float(self.shard_count)
            unit = 1.0 if batch.rows is None else batch.rows / self.shard_count
        if weight == 0:
            raise _no_weight_error(who)
        masks = np.ascontiguousarray(table[:, 2 : 2 + self._mask_words]).view(np.uint8)
        joined = np.bitwise_or.reduce(masks, 0)
        present = np.unpackbits(joined, count=len(self._params), bitorder="little").astype(bool)
        slices = self._update.reduce(self._sums.total(), self.reduction)
        total = _Sum(slices, weight, unit, present)
        if self._earlier is not None:
            total = self._earlier.plus(total)
        return total, bool(table[:, 0].all())

    def _expected(self, batch: _Batch) -> int:
        return self._per_rank if batch.lengths is None else len(batch.lengths)

    def _incomplete_error(self, who: str, batch: _Batch | None) -> OdysseyError:
        if batch is None:
            return SettingError(
                f"{who}: no gradients came since the last step; call backward or add for each part "
                "that shards(batch) yields"
            )
        return SettingError(
            f"{who}: gradients of {len(batch.weights)} of {self._expected(batch)} parts came on "
            "this rank; call backward or add for each part, or zero_grad() to forget them"
        )

    def _close_batch(self, who: str) -> None:
        """Add up a batch that is complete, because another one begins before the step."""
        total, _ = self._sum_over_ranks(who, None, "", True)
        slices = [one.copy() for one in total.slices] if self._earlier is None else total.slices
        earlier = _Sum(slices, total.weight, total.unit, total.present)
        commit(
            [
                *self._sums.clear_calls(),
                (setattr, self, "_batch", None),
                (setattr, self, "_earlier", earlier),
            ]
        )

    def _facts(self, options: str) -> list[Fact]:
        """Return what must be equal on all ranks before a step."""
        if self.group.size == 1:
            return []
        batch = self._batch
        text = "added without shards(batch)" if batch is None or batch.text is None else batch.text
        checksum = "" if batch is None else f"checksum {batch.checksum}"
        frozen = ", ".join(
            name for name, p in zip(self._names, self._params, strict=True) if not is_trainable(p)
        )
        assigned = range(len(self._params)) if self._is_checked() else self._update.assigned()
        return [
            Fact(
                "the batch differs",
                text,
                "pass the same global batch on all ranks",
                None,
                ShapeError,
            ),
            Fact(
                "the order of the batch, or its numbers, differ",
                checksum,
                "draw batches from generators with one seed on all ranks, as od.batches with "
                "rng=od.Generator(0) does; ranks take their parts of it",
            ),
            Fact(
                "the optimizer's settings differ",
                self._settings_text(),
                "assign them, and step schedules, equally on all ranks; a loss that a schedule "
                "depends on goes through group.all_reduce",
            ),
            Fact(
                "what is frozen differs",
                frozen or "nothing",
                "freeze and thaw equally on all ranks",
            ),
            Fact("the options of step differ", options, "pass the same options on all ranks"),
            Fact(
                "parameters differ",
                _checksums([self._names[k] for k in assigned], [self._params[k] for k in assigned]),
                "assign equal values on all ranks, as group.broadcast returns them",
                _first_different_parameter,
            ),
        ]

    def _settings_text(self) -> str:
        known = [group._settings for group in self.optimizer.groups]
        if len(known) != len(self._known_settings) or any(
            a is not b for a, b in zip(known, self._known_settings, strict=True)
        ):
            self._text_of_settings = ", ".join(map(_settings_text, known))
            self._known_settings = known
        return self._text_of_settings

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's settings and state, as copies; all ranks call it.

        It is what the optimizer itself would return on one process: complete arrays, whatever the
        number of ranks, which ``optimizer.load_state_dict`` takes too.
        """
        self._refuse_in_trace("DataParallel.state_dict: called")
        return self._update.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned, on any number of ranks; all ranks call it.

        Raises:
            ShapeError, OdysseyError: it does not fit; nothing has changed on any rank.
        """
        self._refuse_in_trace("DataParallel.load_state_dict: called")
        refusal, found = None, None
        try:
            found = self._read_state(saved, np.array)
        except OdysseyError as error:
            refusal = error
        text = "" if refusal is not None else _state_text(saved)
        fact = Fact("the state differs", text, "load one file on all ranks")
        agree_on_facts(self.group, "DataParallel.load_state_dict", refusal, [fact])
        assert found is not None
        changes, plan = found
        with write_lock():
            wait_for_programs()
            commit([*self.optimizer._settings_calls(changes), *plan])

    def _read_state(self, saved: Any, take: Any) -> tuple[list[tuple[dict[str, Any], Rule]], Plan]:
        """Return the settings and the calls that restore the state; see ``Optimizer``."""
        changes, plan = self._update.read_state(saved, take)
        return changes, [*plan, *self._clear_calls()]

    # ------------------------------------------------------------------ checkpoints

    def save(self, path: Any, /, **more: Any) -> None:
        """Write a checkpoint: parameters, the optimizer's state, and more; all ranks call it.

        Rank 0 writes one file of ``od.save``, complete or not at all, when all ranks have come, and
        all return when it is written. Any number of ranks can load it, and ``od.load`` on one
        process: its entries are ``parameters``, ``optimizer``, ``more`` and ``run``, facts that
        ``load`` compares. Writing counts as waiting for the other ranks, see ``group.timeout``. An
        error is raised on all ranks, and training may go on.

        Args:
            path: The path of the file, which ends in ``.npz``; that of rank 0 counts.
            more: Further leaves by name, as ``od.save`` takes them, equal on all ranks: schedules,
                the position in the data, generators, averages, the number of the next step.

        Raises:
            FileError: the system refuses, as on a full disk; the old file is unchanged.
            DTypeError, SettingError: the path, or something in ``more``, does not fit.
            DistributedError: a leaf differs between ranks, which will all go on with one of them.

        >>> import tempfile
        >>> import odyssey as od
        >>> folder = tempfile.TemporaryDirectory()
        >>> w = od.Variable([1.0, 2.0], requires_grad=True, name="w")
        >>> parallel = od.distributed.DataParallel(od.optim.Adam([w]), shards=2)
        >>> rng = od.Generator(0)
        >>> parallel.save(f"{folder.name}/run.npz", step=7, rng=rng)
        >>> _ = w.assign([0.0, 0.0])
        >>> parallel.load(f"{folder.name}/run.npz", rng=rng)["step"], w.numpy()
        (7, array([1., 2.]))
        >>> folder.cleanup()
        """
        from odyssey.distributed.checkpoints import save_checkpoint

        save_checkpoint(self, path, more)

    def load(self, path: Any, /, **more: Any) -> dict[str, Any]:
        """Load a checkpoint on all ranks, or on none; all ranks call it.

        Rank 0 reads the file and sends it to the others. They may be more or fewer than those that
        saved it. Gradients that were added since the last step are forgotten. An error is raised on
        all ranks, and nothing has changed then.

        Args:
            path: The path of the file; that of rank 0 counts.
            more: Objects to restore in place, by the names that they were saved with.

        Returns:
            What the file has of ``more``, by name: the objects that were restored, and numbers and
            arrays, whether they were passed or not.

        Raises:
            FileError: the system refuses; ``MissingFileError`` if there is no such file.
            FormatError: the file is cut off, damaged, or no checkpoint.
            SettingError, ShapeError, DTypeError: it is of another model, optimizer, number of
                shards, reduction or number of threads of BLAS, whose bits would be others, or of
                another ``more``; the message lists what differs. ``od.load`` reads parts of it.
        """
        from odyssey.distributed.checkpoints import load_checkpoint

        return load_checkpoint(self, path, more)

    def resume(self, path: Any, /, **more: Any) -> dict[str, Any] | None:
        """Load a checkpoint if the launcher says so and there is a file; all ranks call it.

        ``launch --resume auto`` says so, and ``launch --restarts`` after a failure, by the
        environment variable ``ODYSSEY_RESUME=auto``. A file that is damaged or does not fit raises,
        as for ``load``.

        Args:
            path: The path of the file; that of rank 0 counts.
            more: As for ``load``.

        Returns:
            What ``load`` returns; None if there is nothing to resume.

        Raises:
            OdysseyError: as ``load``; and ``SettingError`` if the variable has another value.

        >>> import odyssey as od
        >>> w = od.Variable([1.0, 2.0], requires_grad=True)
        >>> parallel = od.distributed.DataParallel(od.optim.Adam([w]))
        >>> saved = parallel.resume("no/such/file.npz")
        >>> first_step = saved["step"] if saved else 0
        """
        from odyssey.distributed.checkpoints import resume_checkpoint

        return resume_checkpoint(self, path, more)

    def _has_gradients(self) -> bool:
        """Return whether gradients were added since the last step."""
        added = self._batch is not None and bool(self._batch.weights)
        return added or self._earlier is not None

    # ------------------------------------------------------------------ helpers

    @staticmethod
    def _refuse_in_trace(what: str) -> None:
        here = store()
        if here is not MEMORY:
            here.refuse_effect(
                what, "compile the function that computes gradients, and call it outside of that"
            )
            refuse_in_vmap(what.split(":")[0])


def _check_optimizer(who: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"{who}: {format_value(optimizer)} came; pass an optimizer of odyssey.optim, but for "
            "LBFGS, whose closure computes the loss of a complete batch again and again"
        )
    if type(optimizer).step is not Optimizer.step:
        raise DTypeError(
            f"{who}: {type(optimizer).__name__} has a step() of its own, which slices of "
            "parameters cannot go through; write its rule for od.optim.rule_of"
        )
    optimizer._refuse_state(who)


def _shard_count(who: str, shards: int | None, group: Group, reduction: str) -> int:
    if shards is None:
        return group.size
    count = check_int(who, "shards", shards, 1)
    if count > _MOST_SHARDS:
        raise SettingError(
            f"{who}: shards={format_value(count)}; pass at most {_MOST_SHARDS}, since each takes "
            "gradients of its own"
        )
    if count % group.size:
        raise SettingError(
            f"{who}: shards={count}, and there are {group.size} ranks; pass a multiple of that"
        )
    if reduction == "ordered" and count & (count - 1):
        raise SettingError(
            f"{who}: shards={count}; pass a power of two, whose sum is a balanced tree, or "
            "reduction='fast'"
        )
    return count


def _no_weight_error(who: str) -> SettingError:
    return SettingError(f"{who}: the weights of all parts are 0, so there is no mean gradient")


@ignore_fp_errors()
def commit_quietly(plan: Plan) -> None:
    commit(plan)


def _settings_text(settings: Mapping[str, Any]) -> str:
    texts = [
        f"{name}={setting_key(value) or type(value).__name__}" for name, value in settings.items()
    ]
    return f"({', '.join(texts)})"


def _checksums(names: Sequence[str], params: Sequence[Any]) -> str:
    """Return a line with name, shape, dtype and checksum of each parameter."""
    lines = []
    for name, p in zip(names, params, strict=True):
        data = np.ascontiguousarray(p._array).reshape(-1).view(np.uint8).data
        lines.append(f"{name}\t{p.shape} {p.dtype}\t{zlib.crc32(data):08x}")
    return "\n".join(lines)


def _first_different_parameter(texts: list[str]) -> str:
    """Name the first parameter whose line differs between ranks."""
    lines = [text.split("\n") for text in texts]
    for k in range(max(map(len, lines))):
        column = [own[k].split("\t") if k < len(own) else [] for own in lines]
        for rank, other in enumerate(column):
            if other == column[0]:
                continue
            (name, *facts), one = column[0] or [""], other or [""]
            if [name, *facts[:1]] == one[:2]:
                return f"parameter {name} has other numbers on rank {rank} than on rank 0"
            shown = [" of ".join(c[:2]).strip() or "nothing" for c in (column[0], other)]
            return f"parameter number {k} is {shown[0]} on rank 0, and {shown[1]} on rank {rank}"
    return "parameters differ between ranks"


def _state_text(saved: dict[str, Any]) -> str:
    """Return a checksum of a state dict as text."""
    total = 0
    for path, leaf in tree.paths(saved):
        total = zlib.crc32(path.encode(), total)
        if isinstance(leaf, ARRAY_LIKE):
            array = np.ascontiguousarray(leaf).reshape(-1)
            total = zlib.crc32(array.view(np.uint8).data, total)
        else:
            total = zlib.crc32(repr(leaf).encode(), total)
    return f"checksum {total:08x}"


def __dir__() -> list[str]:
    return sorted(__all__)
