"""Saving and loading trees of Variables, optimizers, schedules and random generators."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odyssey.table.registry import missing_attribute_error

if TYPE_CHECKING:
    from odyssey.saving.tensor_listing import TensorListing
    from odyssey.saving.tensor_names import TensorSource

__all__ = ["TensorSource", "list_tensors", "load", "load_tensors", "save", "save_tensors"]

# Imports are in the functions: zipfile and json would slow down the import of odyssey.

_ENDINGS = ".npz", ".safetensors"


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a tree to one file atomically.

    The file is an ``.npz`` without pickles, which ``np.load`` reads too: each array is a member,
    named by its path in the tree; all else is JSON in one more member. The file is written under a
    temporary name in the same folder, flushed to the disk, and then renamed, so at every moment
    either the complete old file or the complete new one exists. The tree is copied first, so that
    the file is a consistent snapshot.

    A path that ends in ``.safetensors`` gets a file of that format, which other libraries read, see
    ``save_tensors``. It holds Variables and arrays only, so a tree with numbers, texts or
    optimizers, or with one Variable at two paths, is refused.

    Args:
        path: The path of the file, which must end in ``.npz`` or ``.safetensors``.
        tree: Any nest of dicts, lists, tuples, dataclasses and plain objects of Variables that are
            leaves or constants, arrays, numbers, text, None, optimizers, schedules and NumPy's
            random generators. Of a plain object the attributes that are such values, or hold
            nothing else, are saved; functions and the like are not. For an optimizer, its settings
            and state are saved; its parameters are saved where the tree holds them. Gradients are
            not saved, nor how many generators a generator has spawned.

    Raises:
        DTypeError, UntrackedError: if a leaf cannot be saved; the message has its path.
        SettingError: if two paths would be one, or one Variable is at two of a ``.safetensors``.
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
    from odyssey.saving.archive import write_archive
    from odyssey.saving.leaf_kinds import named_leaves, refuse_in_trace
    from odyssey.saving.node_format import encode_tree
    from odyssey.saving.paths import validate_path

    refuse_in_trace("save")
    target = validate_path("save", path, *_ENDINGS)
    if target.endswith(_ENDINGS[1]):
        from odyssey.saving.tensor_saving import save_tree_of_tensors

        save_tree_of_tensors("save", target, tree, sharing=False)
        return
    write_archive(target, encode_tree(named_leaves("save", tree)))


def load(path: str | os.PathLike[str], like: Any = None, *, missing: str = "error") -> Any:
    """Read a file of ``save``, and restore the Variables, optimizers and generators of a tree.

    The whole file is read and checked first; then all values are written, or none. Loading a file
    executes no code, and gives no more bytes of arrays than the file has: a file whose members
    overlap, or that names one twice, is refused. Tapes that still need the old value of a Variable
    detect the change, as with ``assign``.

    Args:
        path: The path of the file, which must end in ``.npz`` or ``.safetensors``. The tensors of
            the latter have names with dots: ``"layers.0.w"`` is at ``['layers'][0]['w']``.
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
    from odyssey.saving.leaf_kinds import named_leaves, refuse_in_trace, saved_attributes
    from odyssey.saving.paths import validate_path
    from odyssey.saving.restoring import Restorer, open_empty_lists, open_tree
    from odyssey.tree import unflatten

    refuse_in_trace("load")
    check_choice("load", "missing", missing, ("error", "keep"))
    source = validate_path("load", path, *_ENDINGS)
    like = None if like is None else open_empty_lists(like)
    wanted = {} if like is None else named_leaves("load", like)
    with open_tree(source, wanted) as saved:
        if like is None:
            return saved.all()
        restorer = Restorer()
        values = restorer.read(saved, wanted, missing == "keep")
    result = unflatten(like, values, saved_attributes)
    restorer.commit()
    return result


def save_tensors(
    path: str | os.PathLike[str], tensors: Any, metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays and Variables to a safetensors file atomically.

    The file can be read by each library that reads the format. It is written under a temporary
    name in the same folder, flushed to the disk, and then renamed, as by ``save``. Needs
    ``pip install "odyssey[files]"``.

    Args:
        path: The path of the file, which must end in ``.safetensors``.
        tensors: A dictionary of arrays, and Variables that are leaves or constants, of any strides
            and byte order. Of a nest, the keys, indices and attributes on the way to an array are
            its name, with dots in between: ``"layers.0.weight"``. An array with two names is
            written twice.
        metadata: Texts by name, which the file holds beside the tensors.

    Raises:
        DTypeError, UntrackedError: if a leaf cannot be stored, as a number, a text, an optimizer,
            or an array of complex128; nothing is written.
        SettingError: if two tensors would have one name; nothing is written.
        FileError: if the system refuses; the old file is unchanged.
        OdysseyError: if the package safetensors is not installed.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/model.safetensors"
    >>> od.save_tensors(path, {"layers": [{"w": od.Variable([1.0, 2.0])}]}, {"format": "np"})
    >>> od.load_tensors(path)
    {'layers.0.w': array([1., 2.])}
    >>> folder.cleanup()
    """
    from odyssey.saving.leaf_kinds import refuse_in_trace
    from odyssey.saving.paths import validate_path
    from odyssey.saving.tensor_saving import save_tree_of_tensors

    refuse_in_trace("save_tensors")
    target = validate_path("save_tensors", path, _ENDINGS[1])
    save_tree_of_tensors("save_tensors", target, tensors, metadata)


def load_tensors(
    path: str | os.PathLike[str], *, mmap: bool = False, names: Any = None, dtype: Any = None
) -> Any:
    """Read arrays of a safetensors file, or of its shards.

    The headers of all files are read and checked first. Needs ``pip install "odyssey[files]"``.

    Args:
        path: A file that ends in ``.safetensors``, an index of shards that ends in
            ``.safetensors.index.json``, or a folder that holds one of them.
        mmap: Whether to return read-only arrays whose memory is the file itself. They take no
            time and no memory until they are used, and live as long as they are referenced; do not
            change the file meanwhile, but replace it, as ``save_tensors`` does. A Variable without
            gradient refers to such an array, and a compiled function reads it there. What is cast,
            or does not lie at a multiple of its item size, is a copy.
        names: What to load; by default everything, by name. A list selects names of the file.
            A tree, as a dictionary from your names, has at each leaf a name of the file, or a
            ``TensorSource`` that also says how to transpose, reshape or split. ``{layer}``, or
            another word in braces, is a hole for a number: an entry of a dictionary with it in the
            key, or of a list of one entry, is repeated for 0, 1, 2 and so on, as far as the file
            has it. All tensors of the file must be taken: ``...`` at a leaf takes the rest, as a
            dictionary, and a list under the key None has names that are not needed.
        dtype: A floating dtype that floating tensors are cast to, to nearest even; or a dictionary
            of dtypes by name in the result, with holes, and ``...`` for all others.

    Returns:
        A dictionary of arrays by name, or a tree like ``names``. Make Variables of them with
        ``od.Variable(array)``, which does not copy, or with ``requires_grad=True``, which does.

    Raises:
        FormatError: if a file is damaged, or an index and its shards differ; names file and tensor.
        ShapeError: if names of the file and of ``names`` do not match; lists both.
        DTypeError: if a tensor that is asked for has a dtype that NumPy lacks, such as float8.
        SettingError: if a number is too large for ``dtype``.
        FileError: if the system refuses; ``MissingFileError`` if there is no such file.
        OdysseyError: if the package safetensors is not installed.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/model.safetensors"
    >>> od.save_tensors(path, {"h.0.w": np.ones((3, 2)), "h.1.w": np.ones((3, 2)), "n": np.ones(2)})
    >>> names = {"layers": [{"w": od.TensorSource("h.{layer}.w", transpose=True)}], "norm": "n"}
    >>> tree = od.load_tensors(path, names=names, dtype="float32")
    >>> len(tree["layers"]), tree["layers"][1]["w"].shape, tree["norm"]
    (2, (2, 3), array([1., 1.], dtype=float32))
    >>> folder.cleanup()
    """
    from odyssey.checks import check_flag
    from odyssey.saving.leaf_kinds import refuse_in_trace
    from odyssey.saving.tensor_files import open_tensor_files
    from odyssey.saving.tensor_loading import TargetDtypes, load_selection
    from odyssey.saving.tensor_names import select_tensors

    who = "load_tensors"
    refuse_in_trace(who)
    mapped = check_flag(who, "mmap", mmap)
    dtypes = TargetDtypes(who, dtype)
    with open_tensor_files(who, path) as files:
        selection = select_tensors(who, files.path, names, list(files.tensors))
        return load_selection(who, files, selection, dtypes, mapped)


def list_tensors(path: str | os.PathLike[str]) -> TensorListing:
    """Return what a safetensors file, or its shards, hold; reads headers only.

    Args:
        path: A file, an index or a folder, as for ``load_tensors``.

    Returns:
        A mapping from names to entries with ``dtype`` (a text), ``shape``, ``nbytes`` and ``file``,
        with the attributes ``path``, ``metadata`` and ``nbytes``. It prints as a table.

    Raises:
        FormatError, FileError, OdysseyError: as ``load_tensors``.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/model.safetensors"
    >>> od.save_tensors(path, {"w": np.ones((2, 3), np.float32)}, {"format": "np"})
    >>> listing = od.list_tensors(path)
    >>> listing["w"].dtype, listing["w"].shape, listing.metadata
    ('float32', (2, 3), {'format': 'np'})
    >>> folder.cleanup()
    """
    from odyssey.saving.tensor_files import open_tensor_files
    from odyssey.saving.tensor_listing import TensorListing

    with open_tensor_files("list_tensors", path) as files:
        return TensorListing(files.path, files.entries(), files.metadata)


def __getattr__(name: str) -> Any:
    """Load ``TensorSource`` when it is first asked for."""
    if name != "TensorSource":
        raise missing_attribute_error(__name__, name)
    from odyssey.saving.tensor_names import TensorSource

    globals()[name] = TensorSource
    return TensorSource


def __dir__() -> list[str]:
    return sorted(__all__)
