"""Saving trees of Variables, optimizers and generators, and going on where they stood."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["load", "save"]

# What does the work is imported by the first call: it needs zipfile and json.


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a tree to one file, whole or not at all.

    The file is an ``.npz`` without pickles, which ``np.load`` reads too: each array under its path
    in the tree. What is not an array stands in a text beside them. It is written under another name
    in the same folder, flushed to the disk, and takes the place of the old one at once, so at every
    moment the old file or the new one is there, whole. All is saved as it is at one moment, to
    which end it is copied first.

    Args:
        path: Ends in ``.npz``.
        tree: Any nest of dicts, lists, tuples and dataclasses that holds Variables that are
            leaves or constants, arrays, numbers, text, None, optimizers, schedules and NumPy's
            random generators. Of an optimizer its settings and state are saved: its parameters
            are where the tree has them. Gradients are not saved, nor how many others a generator
            has spawned.

    Raises:
        DTypeError, UntrackedError: for what cannot be saved, by its path.
        FileError: where the system refuses; the old file is as it was.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> w = od.Variable([1.0, 2.0], requires_grad=True)
    >>> optimizer = od.optim.Adam([w])
    >>> path = f"{folder.name}/training.npz"
    >>> od.save(path, {"w": w, "optimizer": optimizer, "epoch": 3})
    >>> np.load(path)["['w']"]
    array([1., 2.])
    >>> folder.cleanup()
    """
    from odyssey.saving.contents import snapshot
    from odyssey.saving.files import checked_path, write
    from odyssey.saving.leaves import named_leaves, refuse_in_trace

    refuse_in_trace("save")
    target = checked_path("save", path)
    write(target, snapshot(named_leaves("save", tree)))


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Read what ``save`` wrote, and fill the Variables, optimizers and generators of a tree.

    All is read and checked first, and then taken over at once: whole, or not at all. A file cannot
    run code. Tapes that still need a Variable as it was notice, as with ``assign``.

    Args:
        path: Ends in ``.npz``.
        like: A tree with the same paths, and at each what was saved there: a Variable or array of
            the same shape and dtype, an optimizer or generator of the same class. Whether a
            Variable is frozen, its name and its gradient stay as they are. Without it, nothing is
            filled.

    Returns:
        A tree like ``like``: its Variables, optimizers, schedules and generators themselves, and
        new arrays and numbers. Without ``like`` a dictionary: by path, arrays and numbers, and the
        states of optimizers, schedules and generators.

    Raises:
        ShapeError, DTypeError: where ``like`` differs from what was saved; nothing has changed.
        MutationError: where a tape holds the array of a Variable locked.
        FormatError: for a file that ``save`` did not write, or that was damaged.
        FileError: where the system refuses; ``MissingFileError`` where there is no such file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/training.npz"
    >>> od.save(path, {"w": od.Variable([1.0, 2.0]), "epoch": 3})
    >>> w = od.Variable(np.zeros(2))
    >>> od.load(path, like={"w": w, "epoch": 0})["epoch"], w
    (3, Variable([1., 2.], shape=(2,), dtype=float64))
    >>> od.load(path)
    {"['w']": array([1., 2.]), "['epoch']": 3}
    >>> folder.cleanup()
    """
    from odyssey.saving.contents import Contents
    from odyssey.saving.files import checked_path, opened
    from odyssey.saving.filling import Filling
    from odyssey.saving.leaves import named_leaves, refuse_in_trace
    from odyssey.tree import unflatten

    refuse_in_trace("load")
    source = checked_path("load", path)
    wanted = {} if like is None else named_leaves("load", like)
    with opened(source) as archive:
        contents = Contents(archive)
        if like is None:
            return contents.all()
        filling = Filling()
        values = filling.read(contents, wanted)
    result = unflatten(like, values)
    filling.commit()
    return result


def __dir__() -> list[str]:
    return sorted(__all__)
