"""Manual records: nodes whose results were computed elsewhere, checked before they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, describe_type, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import array_copy, host_array
from odyssey.errors import DTypeError, ShapeError, TapeError, UnknownOpError
from odyssey.floating_point_errors import isolate_errstate
from odyssey.spec import Spec, spec_of
from odyssey.suggestions import did_you_mean
from odyssey.table.call import run
from odyssey.table.declare import REQUIRED, Row
from odyssey.table.multi_output import MultiOutputSpec
from odyssey.table.registry import op_names, row_of
from odyssey.table.store import numbers_of
from odyssey.table.value import NUMBERS, Value, is_constant, is_tracked, move_to
from odyssey.tape.recording import MANY_RECORDINGS, Recording
from odyssey.tape.tape_base import TapeBase, recording_of

__all__ = ["find_row", "record_node", "record_positional"]


def find_row(op: Any) -> Row:
    """Return the row of an op, given as the op, its name, or one of its short names."""
    row: Any = op if isinstance(op, Row) else getattr(op, "row", None)
    if isinstance(op, str):
        row = row_of(op)
    if not isinstance(row, Row):
        guess = did_you_mean(op, op_names(composites=False)) if isinstance(op, str) else ""
        raise UnknownOpError(
            f"record: there is no op {format_value(op)} in the table od.ops.OPS{guess}"
        )
    return row


def record_positional(tape: TapeBase, op: str, /, *ids: Any, **saved: Any) -> None:
    """Record ``op`` as ``record_<op>`` does: the inputs, then the output or outputs."""
    count = len(find_row(op).results)
    if len(ids) < count:
        outputs = "the output" if count == 1 else f"its {count} outputs"
        raise TapeError(f"record_{op}: pass the inputs and then {outputs}")
    output = ids[-1] if count == 1 else ids[-count:]
    record_node(tape, op, ids[:-count], output, saved)


def record_node(tape: TapeBase, op: Any, inputs: Any, output: Any, saved: dict[str, Any]) -> None:
    """See ``GradientTape.record``."""
    row = find_row(op)
    r = recording_of(tape)
    if not tape.enabled:
        raise TapeError(f"record: {r!r} records nothing now; enter or enable it")
    if not isinstance(inputs, (list, tuple)):
        raise DTypeError(f"record: the inputs are {format_value(inputs)}; pass a list of them")
    if len(inputs) != len(row.arrays):
        raise TapeError(
            f"record: {row.name} has the inputs {', '.join(row.arrays)}; {len(inputs)} came"
        )
    ids, values, specs = [], _copied_saved(row, saved), []
    for name, given in zip(row.arrays, inputs, strict=True):
        id, value, spec = _input_operand(tape, row, given)
        ids.append(id)
        specs.append(spec)
        if value is not None:
            values.setdefault(name, value)
    given_ids = {given._id if isinstance(given, Value) else given for given in inputs}
    made: list[tuple[int, Any]] = []
    for name, given in zip(row.results, _outputs_of(row, output), strict=True):
        id = _output_node_id(tape, row, given_ids | {i for i, _ in made}, given)
        result = given if isinstance(given, Value) else r.value_of_id(id)
        if result is not None:
            _refuse_used(r, row, result)
            values.setdefault(name, result._array)
        made.append((id, result))
    kept, specs = _saved_values_and_specs(row, ids, values, specs)
    results = [result for _, result in made]
    outs = _specs_of_outputs(row, results, specs, kept)
    _check_saved(row, values, (*specs, *outs))
    if r.checks is not None:
        _recompute(row, values, kept, results)
    _append_nodes(r, row, [id for id, _ in made], tuple(ids), kept, specs, outs)
    r.pinned_constants.update(given_ids - set(ids))
    for result in results:
        if result is not None and is_inexact(result._array.dtype):
            # Later nodes save results without a copy, but this array is owned by others.
            result._array = r.keep_array(result._array)
            move_to(result, r)


def _outputs_of(row: Row, output: Any) -> Sequence[Any]:
    """Return the given outputs, one for each result."""
    if row.pack_results is None:
        return (output,)
    if not isinstance(output, (list, tuple)) or len(output) != len(row.results):
        raise TapeError(
            f"record: {row.name} has the outputs {', '.join(row.results)}; {format_value(output)} "
            "came, pass a tuple of them"
        )
    return output


def _append_nodes(
    r: Recording,
    row: Row,
    made: list[int],
    ids: tuple[int | None, ...],
    kept: tuple[Any, ...],
    specs: list[Any],
    outs: list[Any],
) -> None:
    """Append the node; for several results, the node of the call and one for each result."""
    if row.pack_results is None:
        r.add_node((row, made[0], ids, kept, (*specs, outs[0])), None)
        r.manual[made[0]] = r.new_id()
        return
    call, multi_output_spec = r.new_id(), MultiOutputSpec(tuple(outs))
    r.add_node((row, call, ids, kept, (*specs, multi_output_spec)), None)
    for part, id, spec in zip(row.result_rows, made, outs, strict=True):
        if is_inexact(spec.dtype):
            r.add_node((part, id, (call,), (), (multi_output_spec, spec)), None)
            r.manual[id] = r.new_id()


def _input_operand(tape: TapeBase, row: Row, given: Any) -> tuple[int | None, Any, Spec | None]:
    """Return the id, value and spec of an input, as far as they are known."""
    r = recording_of(tape)
    if not isinstance(given, Value):
        if not isinstance(given, int) or isinstance(given, bool):
            raise TapeError(
                f"record: {row.name} got {describe_type(given)} as an input; make inputs with "
                "tape.variable or tape.constant, and pass them or their ids"
            )
        known = r.value_of_id(given)
        if known is None:
            # The node's own int object, by which pruning sees that the result is in use.
            made = next((node[1] for node in r.nodes if node[1] == given), None)
            if made is None:
                raise TapeError(
                    f"record: {row.name} names the input id {format_value(given)}, which this tape "
                    "does not know; make inputs with tape.variable or tape.constant, or pass "
                    "Variables"
                )
            return made, None, r.spec_of_id(made)
        given = known
    if is_constant(given):  # it must stay one: see ``pinned_constants``
        r.note_cut(given)
        return None, numbers_of("record", given), given._spec
    return r.operand_id(given), numbers_of("record", given), given._spec


def _output_node_id(tape: TapeBase, row: Row, inputs: set[Any], output: Any) -> int:
    """Return the id of the output; raise if it would make a cycle or have a second producer."""
    r = recording_of(tape)
    id = output._id if isinstance(output, Value) else output
    if not isinstance(id, int) or isinstance(id, bool):
        raise TapeError(
            f"record: the output is {format_value(output)}; pass a constant Variable or an id"
        )
    if id in inputs:
        raise TapeError(f"record: {row.name} would make a cycle, {id} is its input and its output")
    if id in r.leaves or r.is_result(id):
        raise TapeError(
            f"record: the output {id} of {row.name} is already a leaf or a result on this tape; "
            "a second producer could close a cycle; pass a constant or a new id"
        )
    if id in r.pinned_constants:
        raise TapeError(
            f"record: the output {id} of {row.name} was the input of an earlier record, as a "
            "constant, so this could close a cycle; record the op that makes it first"
        )
    if is_tracked(output):
        raise TapeError(f"record: the output {output!r} is not a constant")
    return id


def _refuse_used(r: Recording, row: Row, result: Value) -> None:
    """Raise if an op used the output as a constant before: that use would have no gradient."""
    if result._placed is MANY_RECORDINGS or result._placed is r.mark:
        raise TapeError(
            f"record: an op used the output {result!r} of {row.name} before, as a constant, so its "
            "gradient would be lost; record the op that makes it before any op that uses it, or "
            "pass a new constant"
        )


def _saved_values_and_specs(
    row: Row, ids: list[Any], values: dict[str, Any], specs: list[Any]
) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the values that the node saves, and its specs; raise if a rule would lack one."""
    wanted = {n for needs, i in zip(row.needs, ids, strict=True) if i is not None for n in needs}
    for k, name in enumerate(row.arrays):
        if specs[k] is None and name in values:
            specs[k] = spec_of(as_array(f"record: {row.name}", name, values[name]))
        given = values.get(f"{name}_spec")
        specs[k] = given if given is not None else specs[k]
    have = {f"{n}_spec" for n, s in zip(row.arrays, specs, strict=True) if s is not None}
    options = dict(zip(row.options, row.defaults, strict=True)) | values
    missing = sorted(wanted - have - set(values))
    missing += [name for name in row.options if options[name] is REQUIRED]
    if missing:
        raise TapeError(
            f"record: the rules of {row.name} ask for {', '.join(missing)}; "
            f"pass {missing[0]}=... or Variables in place of ids"
        )
    unknown = set(values) - {*row.layout.kept, *row.layout.specs}
    if unknown:
        raise TapeError(f"record: {row.name} has nothing called {', '.join(sorted(unknown))}")
    arrays = [values.get(n) if n in wanted else None for n in (*row.arrays, *row.results)]
    return (*arrays, *row.prepare_options(tuple(options[name] for name in row.options))), specs


def _copied_saved(row: Row, saved: dict[str, Any]) -> dict[str, Any]:
    """Return the saved values by name, with arrays copied."""
    found = dict(saved)
    for name in {*row.arrays, *row.results} & saved.keys():
        value = saved[name]
        if isinstance(value, Value):
            value = numbers_of("record", value)
        if value is None or type(value) in NUMBERS:
            continue
        found[name] = array_copy(as_array("record", name, value))
    for name in (f"{array}_spec" for array in row.arrays):
        if not isinstance(saved.get(name), (Spec, type(None))):
            raise DTypeError(f"record: {name}={format_value(saved[name])} is not a Spec")
    return found


def _specs_of_outputs(
    row: Row, results: list[Any], specs: list[Any], kept: tuple[Any, ...]
) -> list[Any]:
    if any(spec is None for spec in specs):
        known = next((spec for spec in specs if spec is not None), None)
        if row.pack_results is not None and None in results:
            raise TapeError(
                f"record: the shapes of {', '.join(row.results)} are not known; pass constants for "
                f"the outputs of {row.name}, or Variables for its inputs"
            )
        return [known if result is None else result._spec for result in results]
    options = kept[len(row.arrays) + len(row.results) :]
    try:
        made = row.infer(*specs, *options)
    except STUMBLES as error:
        raise row.kernel_error(error, specs, options) from error
    outs = [made] if row.pack_results is None else list(made)
    for result, spec in zip(results, outs, strict=True):
        if result is not None:
            _check_output(row, result, spec)
    return outs


def _check_output(row: Row, result: Any, spec: Spec) -> None:
    if result._spec.shape != spec.shape:
        raise ShapeError(
            f"record: the output {result!r} of {row.name} has shape {result._spec.shape}; these "
            f"inputs give {spec.shape}"
        )
    if result._spec.dtype != spec.dtype:
        raise DTypeError(
            f"record: the output {result!r} of {row.name} is of {result._spec.dtype}; these inputs "
            f"give {spec.dtype}"
        )


def _check_saved(row: Row, saved: dict[str, Any], specs: tuple[Any, ...]) -> None:
    """Raise if an array that was given for an input or the output has the wrong shape."""
    for name, spec in zip((*row.arrays, *row.results), specs, strict=True):
        given = saved.get(name)
        if given is not None and spec is not None and np.shape(given) != spec.shape:
            raise ShapeError(
                f"record: {name}= of {row.name} has shape {np.shape(given)}; the {name} of this "
                f"record has {spec.shape}"
            )


_all_close = isolate_errstate(np.allclose)


def _recompute(row: Row, values: dict[str, Any], kept: tuple[Any, ...], results: list[Any]) -> None:
    """With ``check=True``: raise if the op gives another result for these inputs."""
    if not all(name in values for name in row.arrays):
        return
    options = kept[len(row.arrays) + len(row.results) :]
    found = run(row, [values[name] for name in row.arrays], options)
    each = (found,) if row.pack_results is None else found
    for name, made, result in zip(row.results, each, results, strict=True):
        claimed = [values[name]] if name in values else []
        for value in claimed if result is None else [result._array, *claimed]:
            if np.shape(made) != np.shape(value) or not _all_close(
                host_array(made), host_array(value), equal_nan=True
            ):
                raise TapeError(
                    f"record: {row.name} of these inputs gives {made!r}, the output holds {value!r}"
                )
