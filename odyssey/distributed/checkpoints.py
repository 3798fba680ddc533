"""Checkpoints of data-parallel training: one file, which any number of ranks can load.

The file is one of ``od.save``: a tree with the entries ``run`` (facts that must agree when it is
loaded), ``parameters``, ``optimizer`` (its settings and whole state, as on one process) and
``more`` (what the caller adds). Rank 0 writes and reads it, so ranks need no common file system.

Every step that may fail on one rank is followed by an exchange of outcomes: either all ranks go on,
or all raise. The group stays usable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

import odyssey.errors
from odyssey.checks import format_value
from odyssey.devices.commit import Plan
from odyssey.distributed.agreement import texts_of_ranks
from odyssey.errors import (
    DistributedError,
    DTypeError,
    FileError,
    FormatError,
    OdysseyError,
    SettingError,
    ShapeError,
)
from odyssey.kernels.machine_facts import blas_thread_count
from odyssey.saving.archive import open_archive, read_file, write_archive
from odyssey.saving.leaf_kinds import named_leaves, refuse_in_trace, saved_attributes, short_path
from odyssey.saving.node_format import (
    STATE_KINDS,
    SavedTree,
    encode_tree,
    leaf_digests,
    node_kind,
    path_keys,
)
from odyssey.saving.paths import validate_path
from odyssey.saving.restoring import Restorer, open_empty_lists
from odyssey.tree import unflatten

if TYPE_CHECKING:
    from odyssey.distributed.group import Group
    from odyssey.optim import Optimizer

__all__ = ["load_checkpoint", "resume_checkpoint", "save_checkpoint"]

_Result = TypeVar("_Result")

_CHUNK_BYTES = 1 << 26
"""Bytes of a file that travel at a time: 64 MB arrive long before any deadline."""

_RESTORED = ("Variable", *STATE_KINDS)


class Training(Protocol):
    """Interface of ``DataParallel``, as far as checkpoints need it.

    Attributes:
        group: The ranks.
        optimizer: The optimizer, whose parameters are whole on every rank.
        shard_count: The number of shards of a batch.
        reduction: The order of sums, a word.
    """

    group: Group
    optimizer: Optimizer
    shard_count: int
    reduction: str

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state of the optimizer, as on one process; all ranks call."""

    def _read_state(self, saved: Any, take: Callable[..., Any]) -> tuple[Any, Plan]:
        """Return settings, and calls that take over a whole state and forget all gradients."""

    def _has_gradients(self) -> bool:
        """Return whether gradients were added since the last step."""


# ------------------------------------------------------------------ outcomes of all ranks


def _run_on_all(
    who: str, group: Group, work: Callable[[], tuple[_Result, Any]]
) -> tuple[_Result, list[Any]]:
    """Do some work on each rank, which may fail on some of them; all ranks raise then.

    Args:
        who: The function; a rank that waits for another one names it.
        group: The ranks.
        work: Returns a result, and facts for the other ranks as JSON takes them. It calls no
            collective.

    Returns:
        The result of this rank, and the facts of all.

    Raises:
        Exception: what ``work`` raised here.
        OdysseyError: of the class and text of the first rank that failed, if it is another one.
    """
    failure: Exception | None = None
    report: dict[str, Any]
    try:
        result, facts = work()
        report = {"facts": facts}
    except Exception as error:
        failure = error
        report = {"failure": _describe_failure(error)}
    text = json.dumps(report)
    texts = [text] if group.size == 1 else texts_of_ranks(group, who, text)
    reports = [json.loads(text) for text in texts]
    if failure is not None:
        raise failure
    for rank, other in enumerate(reports):
        if "failure" in other:
            raise _failure_of(rank, *other["failure"])
    return result, [other["facts"] for other in reports]


def _describe_failure(error: Exception) -> tuple[str, str, int | None]:
    """Return class, text and errno of an error, for other ranks."""
    name = type(error).__name__
    known = isinstance(error, OdysseyError) and name in odyssey.errors.__all__
    number = error.errno if isinstance(error, FileError) else None
    return (name, str(error), number) if known else ("OdysseyError", f"{name}: {error}", None)


def _failure_of(rank: int, name: str, text: str, number: int | None) -> OdysseyError:
    """Return the error of another rank."""
    error: OdysseyError = getattr(odyssey.errors, name)(f"{text} (rank {rank})")
    if isinstance(error, FileError):
        error.errno = number
    return error


# ------------------------------------------------------------------ saving


def save_checkpoint(parallel: Training, path: Any, more: dict[str, Any]) -> None:
    """Write a checkpoint when all ranks have come, and return when it is written.

    Args:
        parallel: The training.
        path: The path of the file, which ends in ``.npz``; that of rank 0 counts.
        more: Further leaves by name, equal on all ranks.
    """
    refuse_in_trace("save")
    group, optimizer = parallel.group, parallel.optimizer
    tree = {"parameters": optimizer.params, "optimizer": optimizer, "more": more}

    def hash_leaves() -> tuple[str, Any]:
        target = validate_path("save", path, ".npz")
        if parallel._has_gradients():
            raise SettingError(
                "save: gradients were added since the last step, and no file has them; call step() "
                "or zero_grad() first"
            )
        leaves = named_leaves("save", tree)
        # The state of the optimizer, of which each rank has a slice, is compared by no hash.
        digests = leaf_digests(leaves, {id(optimizer): None}) if group.size > 1 else {}
        return target, digests

    target, digests = _run_on_all("save", group, hash_leaves)
    _refuse_different_leaves(digests)
    state = parallel.state_dict()

    def write_file() -> tuple[None, None]:
        if group.rank == 0:
            run = {"run": _facts_of_run(parallel)}
            leaves = named_leaves("save", run | tree)
            write_archive(target, encode_tree(leaves, {id(optimizer): state}))
        return None, None

    _run_on_all("save", group, write_file)


def _refuse_different_leaves(digests: list[dict[str, str]]) -> None:
    """Raise DistributedError, with the first path, unless all ranks have equal leaves."""
    first = digests[0]
    for rank, other in enumerate(digests):
        if other != first:
            path = next(p for p in [*first, *other] if first.get(p) != other.get(p))
            raise DistributedError(
                f"save: {_leaf_text(path)} differs between rank 0 and rank {rank}, and all ranks "
                "will go on with what the file has; pass equal values, as all_reduce and broadcast "
                "return them"
            )


def _leaf_text(path: str) -> str:
    """Return the path of a leaf as the caller knows it."""
    return short_path(path.removeprefix("['more']"))


def _facts_of_run(parallel: Training) -> dict[str, Any]:
    """Return the facts that a file has of a run."""
    return {
        "odyssey": odyssey.__version__,
        "ranks": parallel.group.size,
        "names": _parameter_names(parallel),
        **_compared_facts(parallel),
    }


def _compared_facts(parallel: Training) -> dict[str, Any]:
    """Return the facts on which the bits of a step depend."""
    return {
        "shards": parallel.shard_count,
        "reduction": parallel.reduction,
        "blas_threads": blas_thread_count(),
    }


def _parameter_names(parallel: Training) -> list[str]:
    optimizer = parallel.optimizer
    return [optimizer._param_name(k) for k in range(len(optimizer.params))]


# ------------------------------------------------------------------ loading


def resume_checkpoint(parallel: Training, path: Any, more: dict[str, Any]) -> dict[str, Any] | None:
    """Load a checkpoint if ``launch --resume auto`` asks for it and there is one, else None.

    Args:
        parallel: The training.
        path: The path of the file.
        more: What to restore, as for ``load_checkpoint``.
    """
    return _load_on_all(parallel, path, more, True)


def load_checkpoint(parallel: Training, path: Any, more: dict[str, Any]) -> dict[str, Any]:
    """Load a checkpoint on all ranks, or on none; return what it has of ``more``.

    Args:
        parallel: The training.
        path: The path of the file; that of rank 0 counts.
        more: The objects to restore in place, and numbers and arrays, by the names that they were
            saved with. Numbers and arrays that were saved under other names are returned too.
    """
    loaded = _load_on_all(parallel, path, more, False)
    assert loaded is not None
    return loaded


def _load_on_all(
    parallel: Training, path: Any, more: dict[str, Any], resuming: bool
) -> dict[str, Any] | None:
    refuse_in_trace("load")
    group, optimizer = parallel.group, parallel.optimizer
    target, contents = _contents_on_all(group, path, resuming)
    if contents is None:
        return None
    restorer = Restorer({id(optimizer): parallel._read_state})

    def read() -> tuple[dict[str, Any], None]:
        with open_archive(target, contents) as archive:
            saved = SavedTree(archive)
            _refuse_other_run(target, saved, parallel)
            rest = _unclaimed_names(target, saved, more)
            like = open_empty_lists(
                {
                    "run": [],  # whatever the file has
                    "parameters": optimizer.params,
                    "optimizer": optimizer,
                    "more": more | dict.fromkeys(rest, ...),
                }
            )
            values = restorer.read(saved, named_leaves("load", like))
        restorer.check()
        result: dict[str, Any] = unflatten(like, values, saved_attributes)["more"]
        return result, None

    loaded, _ = _run_on_all("load", group, read)
    restorer.commit()
    return loaded


def _contents_on_all(group: Group, path: Any, resuming: bool) -> tuple[str, BytesIO | None]:
    """Return the path, and the bytes of the file on all ranks; None if there is nothing to resume.

    Rank 0 reads the file. What it reads cannot be replaced before another rank has read it.
    """

    def read() -> tuple[tuple[str, BytesIO | None], Any]:
        target = validate_path("load", path, ".npz")
        contents = None
        if group.rank == 0 and not (resuming and not _is_resumable(target)):
            contents = read_file(target)
        size = -1 if contents is None else len(contents.getbuffer())
        return (target, contents), size

    (target, contents), sizes = _run_on_all("load", group, read)
    size = sizes[0]
    if size < 0 or group.size == 1:
        return target, contents
    return target, _broadcast_bytes(group, contents, size)


def _is_resumable(path: str) -> bool:
    """Return whether the launcher asks to resume, and there is a file."""
    word = os.environ.get("ODYSSEY_RESUME", "")
    if word not in ("", "auto"):
        raise SettingError(
            f"resume: ODYSSEY_RESUME={format_value(word)}; 'auto', as launch --resume auto sets, "
            "resumes if there is a file; unset it to start anew"
        )
    return word == "auto" and os.path.lexists(path)


def _broadcast_bytes(group: Group, contents: BytesIO | None, size: int) -> BytesIO:
    """Return the bytes that rank 0 has, on every rank."""
    contents = BytesIO(bytes(size)) if contents is None else contents
    assert group._transport is not None
    with contents.getbuffer() as buffer:
        flat = np.frombuffer(buffer, np.uint8)
        for start in range(0, size, _CHUNK_BYTES):
            group._transport.send_to_all("load", flat[start : start + _CHUNK_BYTES], 0)
        del flat  # else the memory would stay exported
    return contents


# ------------------------------------------------------------------ mismatches


def _refuse_other_run(path: str, saved: SavedTree, parallel: Training) -> None:
    """Raise an error, with all that differs, if a file is of another training.

    Raises:
        FormatError: if it is a file of another kind.
        ShapeError, DTypeError, SettingError: if model, optimizer or settings of the run differ.
    """
    entries = saved.entries
    if "['optimizer']" not in entries or "['parameters'][0]" not in entries:
        raise FormatError(
            f"load: {path!r} lacks the entries 'parameters' and 'optimizer' of a checkpoint; load "
            "a file that DataParallel.save wrote, or this one by od.load"
        )
    differences = [*_model_differences(saved, parallel), *_run_differences(saved, parallel)]
    if differences:
        kind = differences[0][0]
        texts = [text for _, text in differences]
        most = 5
        shown = "; ".join(texts[:most])
        if len(texts) > most:
            shown += f"; and {len(texts) - most} more"
        raise kind(f"load: {path!r} was saved by another training: {shown}")


def _model_differences(
    saved: SavedTree, parallel: Training
) -> Iterator[tuple[type[OdysseyError], str]]:
    """Yield what differs between optimizer and parameters of a file and of this training."""
    optimizer = parallel.optimizer
    in_file = saved.entries["['optimizer']"]["optimizer"][0]
    here = type(optimizer).__name__
    if in_file != here:
        yield DTypeError, f"its optimizer is {_plain_text(in_file)}, not {here}"
    count = sum(path_keys(entry)[0] == "parameters" for entry in saved.entries)
    names = _parameter_names(parallel)
    if count != len(names):
        yield ShapeError, f"it has {count} parameters, not {len(names)}"
        return
    run = saved.subtree("['run']", {})
    saved_names = run.get("names") if isinstance(run, dict) else None
    if not isinstance(saved_names, list) or len(saved_names) != count:
        saved_names = names  # a file of od.save has none
    for k, (p, name, saved_name) in enumerate(
        zip(optimizer.params, names, saved_names, strict=True)
    ):
        _, node = saved.node(f"['parameters'][{k}]")
        dtype, shape = saved.spec(node[node_kind(node)])
        if name != saved_name:
            yield SettingError, f"parameter {k} is {_plain_text(saved_name)}, not {name}"
        if shape != p.shape:
            yield ShapeError, f"parameter {name} is of shape {shape}, not {p.shape}"
        if dtype != p.dtype:
            yield DTypeError, f"parameter {name} is of {dtype}, not {p.dtype}"


_ADVICE = {
    "shards": "pass shards={}",
    "reduction": "pass reduction={!r}",
    "blas_threads": "start with launch --blas-threads {0}, or OPENBLAS_NUM_THREADS={0}",
}


def _run_differences(
    saved: SavedTree, parallel: Training
) -> Iterator[tuple[type[OdysseyError], str]]:
    """Yield what differs between the settings of the run that saved a file and of this one."""
    run = saved.subtree("['run']", {})
    if not isinstance(run, dict):
        return
    for name, here in _compared_facts(parallel).items():
        in_file = run.get(name, here)
        known = name != "blas_threads" or (in_file and here)  # 0 for libraries that do not say
        if known and in_file != here:
            advice = _ADVICE[name].format(in_file)
            words = "BLAS threads" if name == "blas_threads" else name
            yield SettingError, f"{words}: {_plain_text(in_file)}, not {here} ({advice})"


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else format_value(value)


def _unclaimed_names(path: str, saved: SavedTree, more: dict[str, Any]) -> list[str]:
    """Return the names in ``more`` of a file whose numbers and arrays are only returned.

    Raises:
        ShapeError: if the file lacks something to restore, or has something with a state, such as a
            schedule, that would not be restored.
    """
    names: dict[str, list[str]] = {}
    for entry in saved.entries:
        keys = path_keys(entry)
        if keys[0] == "more" and len(keys) > 1:
            names.setdefault(str(keys[1]), []).append(entry)
    wanted = {path_keys(leaf)[1] for leaf in named_leaves("load", {"more": more})}
    listing = ", ".join(names) or "nothing"
    for name in more:
        if name in wanted and name not in names:
            raise ShapeError(
                f"load: {path!r} has no {name}; it has {listing}; pass to load what was passed to "
                "save"
            )
    rest = [name for name in names if name not in more]
    for name in rest:
        for entry in names[name]:
            first, node = saved.node(entry)
            if node_kind(node) in _RESTORED and path_keys(first)[0] == "more":
                raise ShapeError(
                    f"load: {path!r} has a state at {_leaf_text(entry)}, and no object came that "
                    f"takes it; pass {name}=, as to save"
                )
    return rest


def __dir__() -> list[str]:
    return sorted(__all__)
