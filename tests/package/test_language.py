"""Names and docstrings of the package use the terms of the glossary in DESIGN.md."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "odyssey"

# A docstring that opens so describes a thing instead of naming it, or needs the one before it.
RIDDLE = re.compile(
    r'^ *r?"""(?:What|The same|Of|By|That|Who|Where|It|Whether\b.*? or)\b.*', re.MULTILINE
)
MOST_RIDDLES = 18
"""Docstrings that may open so; the number only decreases."""

DEFINITION = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)
MOST_FILES = 4
"""Files that may define one name, whatever its leading underscores."""

TABLE_WORDS = {"infer", "samples", "rejects", "rule", "forward", "backward", "vjp", "jvp"} | {
    *("run", "call", "step", "init", "update")
}
"""Names of the table's columns, and of the interfaces of rules and rows."""

COMMON = {
    "launch": "CUDA's word, an interface of launchers of kernels, and the launcher of ranks",
    "profile": "a public method, and an interface of programs of the CPU, of devices, of all sizes",
    "dry_run": "interface of programs of the CPU, of devices, of all sizes, which tuning calls",
    "works": "interface of executables of CPU and devices, by that name in plans and tuning",
    "size": "the attribute of NumPy's arrays, by that name for specs, views, Values and words",
    "read": "the method of files and of stores, by that name for whatever is read",
    "begin": "interface of blocks, called by table/scoped_exit.py",
    "end": "interface of blocks, called by table/scoped_exit.py",
    "reshape": "NumPy's name, by that name an op, a method and a builder of nodes and views",
    "transpose": "NumPy's name, by that name an op, a method and a builder of nodes and views",
    "broadcast": "NumPy's and MPI's name, by that name builders of views and a collective",
    "finish": "the last step of a trace, a contest, a loop's body and a script of several ranks",
    "split": "NumPy's name, by that name public methods of generators and of groups of processes",
    "power": "NumPy's name, by that name an op and its native code",
    "gradient": "public names of a tape's method and of NumPy's function; interface of stores",
    "state_dict": "PyTorch's name, an interface of objects whose state is saved",
    "read_state": "interface of optimizers, schedules and DataParallel, which loading calls",
    "pointer": "LLVM's type, and the interface of a device's backend",
    "load": "public name of od.load and of DataParallel, and LLVM's instruction",
    "state_plan": "interface of Stateful, the objects whose state is a leaf of saved trees",
    "clear": "Python's name for emptying a container, public of tapes and caches",
    "emit": "interface of graphs, traces and batches, which a call of an op on a Symbol reaches",
    "close": "Python's name for ending the use of a file, connection or writer",
    "add_command": "interface of the commands, which the parser calls",
    "add": "public name of the op and of DataParallel, and of collections that something enters",
    "precompile": "public name of compiled functions, of whatever kind, and of DataParallel",
    "wait": "as subprocess.Popen.wait, and an interface of launchers of kernels",
    "bind": "as inspect.Signature.bind: arguments, or the arrays of a program",
}
"""Names that more files define, each with its reason."""

# The words on the left are private; those on the right are the terms that replaced them.
PRIVATE_WORDS = {
    "ahead": "receiver arguments",
    "again": "rematerialize",
    "apart": "separate, disjoint",
    "arranging": "layout_assignment",
    "ask": "query, check",
    "asked": "guard_checks",
    "bare": "arrays only, flat",
    "behind": "deferred effect",
    "borrowed": "numpy_signatures",
    "briefly": "without_numba",
    "careful": "checks",
    "clocks": "instrumentation",
    "cutting": "work_partition",
    "door": "entry point",
    "doors": "fast_path",
    "found": "the name of the result",
    "fusing": "fusion",
    "given": "the name of the input",
    "joined": "concatenate, merge",
    "kept": "saved",
    "known": "constant, static",
    "lenders": "FALLBACKS",
    "made": "the name of the result",
    "meanings": "scalar programs",
    "mending": "vector_fallbacks",
    "missed": "cache miss",
    "ours": "library_objects",
    "part": "slice, subgraph, member, chunk",
    "place": "position, offset, index, slot",
    "places": "positions",
    "planning": "buffer_assignment",
    "question": "validation",
    "recomputing": "rematerialization",
    "seeing": "alias analysis, views",
    "seen": "visited",
    "settle": "resolve",
    "settled": "resolved",
    "showing": "alias analysis",
    "spell": "format",
    "spelled": "formatted, unrolled",
    "strange": "untrusted",
    "suited": "eligibility",
    "surroundings": "snapshot",
    "taken": "the name of the input",
    "told": "notified",
    "trial": "trace attempt",
    "twin": "array rule",
    "twins": "array_rules",
    "verbs": "builder",
    "watches": "guards",
    "watching": "guards",
    "whole": "dense, full, complete",
    "wire": "multi-output value",
    "wires": "multi_output",
}

STILL_PRIVATE = {
    "ask": 1,
    "known": 1,
    "made": 1,
}
"""Definitions that still have such a name, by word; the numbers only decrease."""


@pytest.fixture(scope="module")
def sources():
    return {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_docstrings_open_with_the_name_of_their_subject(sources):
    riddles = [
        f"{name}: {match.group().strip()}"
        for name, text in sources.items()
        for match in RIDDLE.finditer(text)
    ]
    assert len(riddles) <= MOST_RIDDLES, "\n".join(riddles)


def test_every_file_begins_with_a_docstring(sources):
    assert len(sources) > 300
    assert [name for name, text in sources.items() if not text.startswith('"""')] == []


def test_no_name_is_defined_in_more_than_four_files_but_for_a_reason(sources):
    files = defaultdict(set)
    for file, text in sources.items():
        for name in DEFINITION.findall(text):
            if not name.startswith("__"):
                files[name.lstrip("_")].add(file)
    allowed = TABLE_WORDS | COMMON.keys()
    many = {name for name, where in files.items() if len(where) > MOST_FILES}
    assert {name: sorted(files[name]) for name in many - allowed} == {}


def test_no_module_class_or_function_is_called_by_a_private_word(sources):
    private = defaultdict(list)
    for file, text in sources.items():
        *folders, stem = file.removesuffix(".py").split("/")
        for name in [*folders, stem, *DEFINITION.findall(text)]:
            word = name.strip("_").lower()
            if word in PRIVATE_WORDS:
                private[word].append(file)
    said = [
        f"{word} in {', '.join(files)}; the term is {PRIVATE_WORDS[word]}"
        for word, files in private.items()
        if len(files) > STILL_PRIVATE.get(word, 0)
    ]
    assert said == []
