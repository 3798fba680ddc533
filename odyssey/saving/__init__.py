"""Saving and loading trees of Variables, optimizers, schedules and random generators."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["load", "save"]

# Imports are in the functions: zipfile and json would slow down the import of odyssey.


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a tree to one file atomically.

    The file is an ``.npz`` without pickles, which ``np.load`` reads too: each array is a member,
    named by its path in the tree; all else is JSON in one more member. The file is written under a
    temporary name in the same folder, flushed to the disk, and then renamed, so at every moment
    either the complete old file or the complete new one exists. The tree is copied first, so that
    the file is a consistent snapshot.

    Args:
        path: The path of the file, which must end in ``.npz``.
        tree: Any nest of dicts, lists, tuples, dataclasses and plain objects of Variables that are
            leaves or constants, arrays, numbers, text, None, optimizers, schedules and NumPy's
            random generators. Of a plain object the attributes that are such values, or hold
            nothing else, are saved; functions and the like are not. For an optimizer, its settings
            and state are saved; its parameters are saved where the tree holds them. Gradients are
            not saved, nor how many generators a generator has spawned.

    Raises:
        DTypeError, UntrackedError: if a leaf cannot be saved; the message has its path.
        FileError: if the system refuses; the old file is unchanged.

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
    from odyssey.saving.archive import validate_path, write_archive
    from odyssey.saving.leaf_kinds import named_leaves, refuse_in_trace
    from odyssey.saving.node_format import encode_tree

    refuse_in_trace("save")
    target = validate_path("save", path)
    write_archive(target, encode_tree(named_leaves("save", tree)))


def load(path: str | os.PathLike[str], like: Any = None, *, missing: str = "error") -> Any:
    """Read a file of ``save``, and restore the Variables, optimizers and generators of a tree.

    The whole file is read and checked first; then all values are written, or none. Loading a file
    executes no code, and gives no more bytes of arrays than the file has: a file whose members
    overlap, or that names one twice, is refused. Tapes that still need the old value of a Variable
    detect the change, as with ``assign``.

    Args:
        path: The path of the file, which must end in ``.npz``.
        like: A tree with the saved paths and, at each, a leaf of the saved kind: a Variable or
            array of equal shape and dtype, an optimizer or generator of the same class.
            ``requires_grad``, the name and the gradient of a Variable are not changed. At ``...``
            or an empty list it takes what the file has there: arrays, numbers and states, in lists
            and dictionaries. Without it, nothing is restored.
        missing: ``"error"`` refuses a file with other paths than ``like``. ``"keep"`` loads the
            paths that both have: other leaves of ``like`` stay as they are.

    Returns:
        A tree like ``like``, with its own Variables, optimizers, schedules and generators, and new
        arrays and numbers. Without ``like``, a dictionary by path of arrays, numbers, and the
        states of optimizers, schedules and generators.

    Raises:
        ShapeError, DTypeError: if ``like`` differs from the saved tree; nothing was changed.
        SettingError: if ``missing`` is another word.
        MutationError: if a tape locks the array of a Variable.
        FormatError: if ``save`` did not write the file, or it was damaged.
        FileError: if the system refuses; ``MissingFileError`` if there is no such file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/training.npz"
    >>> od.save(path, {"w": od.Variable([1.0, 2.0]), "epoch": 3})
    >>> w = od.Variable(np.zeros(2))
    >>> od.load(path, like={"w": w, "epoch": 0})["epoch"], w
    (3, Variable([1., 2.], shape=(2,), dtype=float64))
    >>> od.load(path, like={"epoch": ...}, missing="keep")
    {'epoch': 3}
    >>> od.load(path)
    {"['w']": array([1., 2.]), "['epoch']": 3}
    >>> folder.cleanup()
    """
    from odyssey.checks import check_choice
    from odyssey.saving.archive import open_archive, validate_path
    from odyssey.saving.leaf_kinds import named_leaves, refuse_in_trace, saved_attributes
    from odyssey.saving.node_format import SavedTree
    from odyssey.saving.restoring import Restorer, open_empty_lists
    from odyssey.tree import unflatten

    refuse_in_trace("load")
    check_choice("load", "missing", missing, ("error", "keep"))
    source = validate_path("load", path)
    like = None if like is None else open_empty_lists(like)
    wanted = {} if like is None else named_leaves("load", like)
    with open_archive(source) as archive:
        saved = SavedTree(archive)
        if like is None:
            return saved.all()
        restorer = Restorer()
        values = restorer.read(saved, wanted, missing == "keep")
    result = unflatten(like, values, saved_attributes)
    restorer.commit()
    return result


def __dir__() -> list[str]:
    return sorted(__all__)
