"""Batches of arrays: ``od.batches``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_flag, check_int, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.commit import Plan, commit
from odyssey.devices.stateful import Stateful
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import OdysseyError, ShapeError
from odyssey.ops.random.generator import Generator, check_generator
from odyssey.spec import Array
from odyssey.table.store import store
from odyssey.tree import leaves, paths, unflatten

__all__ = ["Batches", "batches"]


class Batches(Stateful):
    """An iterator of the batches of one epoch after another; see ``batches``.

    Attributes:
        epoch: The number of epochs that are over.
        position: The number of examples of this epoch that are over.
    """

    def __init__(self, arrays: Any, size: int, rng: Any, shuffle: bool, drop_last: bool) -> None:
        who = "batches"
        self.size = check_int(who, "size", size, 1)
        self.shuffle = check_flag(who, "shuffle", shuffle)
        self.drop_last = check_flag(who, "drop_last", drop_last)
        check_generator(who, rng)
        self._tree = arrays
        found = [(path, as_array(who, path or "arrays", leaf)) for path, leaf in paths(arrays)]
        self._arrays = [array for _, array in found]
        lengths = {path or "arrays": array.shape[:1] for path, array in found}
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise ShapeError(
                f"{who}: the arrays have {format_value(lengths)} examples along their first axes; "
                "they must be equally many"
            )
        self.examples = self._arrays[0].shape[0]
        if not len(self):
            raise ShapeError(
                f"{who}: {self.examples} examples are fewer than one batch of {self.size}"
            )
        self.epoch = self.position = 0
        # The key of an epoch's order is drawn once: orders depend on it and on the epoch alone.
        self._key = self._draw_key(rng) if self.shuffle else 0
        self._order: tuple[int, Array] | None = None

    @staticmethod
    def _draw_key(rng: Any) -> int:
        store().refuse_effect("batches: made", "create them outside of the compiled function")
        return int(ops.random_integers((), high=2**63, rng=rng))

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        whole, rest = divmod(self.examples, self.size)
        return int(whole + bool(rest and not self.drop_last))

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that this epoch still has; the next loop has the next epoch."""
        epoch = self.epoch
        while self.epoch == epoch:
            yield next(self)

    def __next__(self) -> Any:
        """Return the next batch, of the next epoch where this one is over."""
        store().refuse_effect("batches: drawn", "pass the batch as an argument")
        with write_lock():
            wait_for_programs()
            begin, epoch = self.position, self.epoch
            end = min(begin + self.size, self.examples)
            chosen = self._indices(epoch, begin, end)
            batch = [array[chosen] for array in self._arrays]
            rest = self.examples - end
            over = rest == 0 or (self.drop_last and rest < self.size)
            after = {"epoch": epoch + 1, "position": 0} if over else {"position": end}
            commit([(vars(self).update, after)])
        return unflatten(self._tree, batch)

    def _indices(self, epoch: int, begin: int, end: int) -> Any:
        if not self.shuffle:
            return slice(begin, end)
        if self._order is None or self._order[0] != epoch:
            rng = Generator(self._key + (epoch << 64))
            self._order = epoch, np.asarray(ops.random_permutation(self.examples, rng=rng))
        return self._order[1][begin:end]

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration stands: epoch, position, key of the orders, and examples."""
        names = "epoch", "position", "examples"
        return {name: getattr(self, name) for name in names} | {"key": self._key}

    def _state_plan(self, saved: Any) -> Plan:
        who = "load_state_dict"
        if not isinstance(saved, dict) or saved.keys() != self.state_dict().keys():
            raise OdysseyError(
                f"{who}: {format_value(saved)} came; pass what state_dict() returned"
            )
        new = {name: check_int(who, name, value, 0) for name, value in saved.items()}
        if new.pop("examples") != self.examples or new["position"] >= self.examples:
            raise ShapeError(
                f"{who}: the state is of {saved['examples']} examples, not of {self.examples}"
            )
        if new["key"] >= 2**63 or new["epoch"] >= 2**63:
            raise OdysseyError(f"{who}: {format_value(saved)} is not a state of batches")
        new["_key"] = new.pop("key")
        return [(vars(self).update, new | {"_order": None})]

    def __repr__(self) -> str:
        count = len(leaves(self._tree))
        return (
            f"Batches({count} array{'' if count == 1 else 's'} of {self.examples} examples, "
            f"size={self.size}, epoch={self.epoch}, position={self.position})"
        )


def batches(
    arrays: Any,
    size: int,
    rng: Generator | None = None,
    shuffle: bool = True,
    *,
    drop_last: bool = False,
) -> Batches:
    """Iterate over batches of arrays, in another order in each epoch.

    A loop over the result has the batches of one epoch. ``od.save`` keeps where it stands, and a
    loop after ``od.load`` goes on in the middle of the epoch, with the batches that were to come.

    Args:
        arrays: Arrays of equally many examples along their first axes, in any tree.
        size: The number of examples of a batch.
        rng: The ``od.Generator`` from which the key of the orders is drawn, once; by default that
            of the process.
        shuffle: Draw a new order in each epoch; otherwise batches are slices in order.
        drop_last: Leave out a last batch that is smaller.

    Returns:
        An iterable of trees like ``arrays``; its ``len`` is the number of batches of an epoch.

    Raises:
        ShapeError: if arrays differ in the number of examples, or make no batch.

    >>> import odyssey as od
    >>> data = od.batches({"x": np.arange(5.0), "y": np.arange(5)}, 2, rng=od.Generator(7))
    >>> for batch in data:
    ...     print(batch["x"], batch["y"])
    [4. 2.] [4 2]
    [3. 1.] [3 1]
    [0.] [0]
    >>> data
    Batches(2 arrays of 5 examples, size=2, epoch=1, position=0)
    """
    return Batches(arrays, size, rng, shuffle, drop_last)


def __dir__() -> list[str]:
    return sorted(__all__)
