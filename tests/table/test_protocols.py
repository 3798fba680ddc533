"""What the rooms below the tape know of one is written down, and few ask where a value stands."""

import ast
from pathlib import Path

import odyssey
from odyssey import GradientTape
from odyssey.table.protocols import Recording, Tape

PACKAGE = Path(odyssey.__file__).parent

# Those who place Values, and those who are a tape; all others call ``is_trainable``,
# ``is_constant``, ``is_untracked``, ``is_tracked``, ``place_of`` and ``recording_of``.
PLACING = {
    "table/value.py",
    "table/scope.py",
    "table/call.py",
    "table/fast_calls.py",
    "table/store.py",
    "variable/variable.py",
    "compiler/arguments.py",  # where an argument stands says whether a program can take it
    "compiler/runtime/eligibility.py",
    "compiler/device_runtime/execution.py",  # guards: whether a state is a leaf
    "compiler/device_runtime/device_call.py",
    "compiler/symbolic_shapes/declarations.py",
    "compiler/runtime/results.py",
    "compiler/attribute_states.py",
    "compiler/eager_loops.py",
    "compiler/precompile.py",  # results that stand for those of an eager call
    "compiler/guards/library_objects.py",
    "tape/queries.py",  # for each leaf of each sweep
    "tape/recording.py",
    "tape/tape_base.py",
    "tape/gradient_tape.py",
}


def trees(*rooms, about):
    for room in rooms or ("",):
        for file in (PACKAGE / room).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            if about in text:
                yield str(file.relative_to(PACKAGE)), ast.parse(text)


def attributes(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def members(protocol):
    return (
        set(protocol.__protocol_attrs__)
        if hasattr(protocol, "__protocol_attrs__")
        else {
            name
            for name in (*protocol.__annotations__, *vars(protocol))
            if name != "_is_protocol" and not name.startswith(("__", "_abc_"))
        }
    )


def test_few_files_ask_a_value_or_a_tape_for_its_recording_by_the_private_name():
    asking = {
        name
        for name, tree in trees(about="._recording")
        if any(node.attr == "_recording" for node in attributes(tree))
    }
    assert asking == PLACING


def test_what_ops_and_variables_use_of_a_recording_stands_in_its_protocol():
    used = {
        node.attr
        for _, tree in trees("table", "variable", about="recording")
        for node in attributes(tree)
        if isinstance(node.value, ast.Name) and node.value.id in ("recording", "chosen")
    }
    assert {
        "block",
        "append",
        "operand_id",
        "keep_array",
        "new_id",
        "add_node",
        "on",
        "outer_values",
    } <= used
    assert used <= members(Recording)


def test_a_tape_and_its_recording_have_all_that_their_protocols_name():
    with GradientTape() as tape:
        for name in members(Recording):
            assert hasattr(tape._recording, name), name
        for name in members(Tape):
            assert hasattr(tape, name), name
