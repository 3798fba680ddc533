"""Reference pages of public objects that are not ops: classes, functions, modules."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import odyssey
from odyssey.describe.entries import entries
from odyssey.table.signature import format_call
from tools.docs.docstrings import parse, prose, to_rst
from tools.docs.example_uses import example_uses
from tools.docs.peer_names import PEER_OBJECTS

__all__ = [
    "GROUPS",
    "MODULES",
    "Group",
    "api_page",
    "documented",
    "group_page",
    "link",
    "modules_page",
    "object_page",
    "op_names",
    "public_names",
    "title_lines",
    "uses_lines",
]

MODULES = (
    "odyssey",
    *(f"odyssey.{name}" for name in ("ops", "nn", "linalg", "fft", "special", "losses", "optim")),
    *(f"odyssey.{name}" for name in ("init", "tree", "testing", "errors", "backward")),
    "odyssey.devices",
    "odyssey.distributed",
)
"""The public modules: those in ``odyssey.__all__``, and the package."""


@dataclass(frozen=True)
class Group:
    """Objects that one page of the reference lists.

    Attributes:
        slug: The name of the page.
        title: Its heading.
        intro: A sentence for the reader.
        names: Full names of the objects.
    """

    slug: str
    title: str
    intro: str
    names: tuple[str, ...]


def value_of(name: str) -> Any:
    """Return the object of a full name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names)


def _all_of(module: str, *, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    exported = importlib.import_module(module).__all__
    return tuple(f"{module}.{n}" for n in exported if n not in without and _is_object(module, n))


def _is_object(module: str, name: str) -> bool:
    value = getattr(importlib.import_module(module), name)
    return not inspect.ismodule(value) and not _is_op(value)


def _is_op(value: Any) -> bool:
    return callable(value) and any(entry.function is value for entry in _by_function(value))


def _by_function(value: Any) -> Iterator[Any]:
    entry = entries().get(getattr(value, "__name__", ""))
    if entry:
        yield entry


_RULES = (
    *("adadelta", "adafactor", "adagrad", "adam", "adamw", "adamax", "lars", "lion", "muon"),
    *("nadam", "radam", "rmsprop", "sgd", "Rule", "rule_of"),
)
_SCHEDULES = (
    *("Schedule", "StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "OneCycleLR"),
    *("WarmupLR", "WarmupCosineLR", "LambdaLR", "ReduceLROnPlateau"),
)
_CLIPS = ("clip_grad_norm", "clip_grad_global_norm", "clip_grad_value")
_NOT_OPTIMIZERS = (*_RULES, *_SCHEDULES, *_CLIPS, "scipy_objective")

GROUPS: tuple[Group, ...] = (
    Group(
        "variables",
        "Variables",
        "An array whose uses are recorded.",
        _of("odyssey", *(n for n in ("Variable", "SparseRows") if n in odyssey.__all__)),
    ),
    Group(
        "tapes",
        "Gradient tapes",
        "A tape records operations, and differentiates what it recorded.",
        _of("odyssey", "GradientTape", "Gradients", "TapeNode", "no_grad", "autocast"),
    ),
    Group(
        "transforms",
        "Function transforms",
        "Functions of functions: gradients, products with Jacobians and Hessians, custom rules.",
        _of(
            "odyssey",
            *("grad", "value_and_grad", "vjp", "jvp", "hvp", "jacobian", "hessian"),
            *("checkpoint", "stop_gradient", "custom_vjp"),
        ),
    ),
    Group(
        "control-flow",
        "Control flow",
        "Loops and branches that stay loops and branches when they are compiled.",
        _of("odyssey", "scan", "cond", "while_loop"),
    ),
    Group(
        "compile",
        "Compilation",
        "A function, tape and optimizer included, as one native program.",
        (
            *_of(
                "odyssey",
                "compile",
                "Dim",
                "Plan",
                "Spec",
                "get_threads",
                "plans",
                "set_threads",
                "tune",
            ),
            *_of("odyssey.compiler", "CompiledFunction", "Lowered"),
        ),
    ),
    Group(
        "optimizers",
        "Optimizers",
        "Objects that update Variables from their gradients, with PyTorch's semantics.",
        (
            *_all_of("odyssey.optim", without=_NOT_OPTIMIZERS),
            "odyssey.optim.scipy_objective",
            "odyssey.objective.Objective",
        ),
    ),
    Group(
        "optimizer-rules",
        "Optimizer rules",
        "Pure pairs `init(params) → state` and `update(grads, state, params) → (params, state)`.",
        _of("odyssey.optim", *_RULES),
    ),
    Group(
        "schedules",
        "Learning-rate schedules",
        "Objects that set an optimizer's learning rate, by step or by epoch.",
        _of("odyssey.optim", *_SCHEDULES),
    ),
    Group(
        "clipping",
        "Gradient clipping",
        "Limits for gradients, between `backward` and `step`.",
        _of("odyssey.optim", *_CLIPS),
    ),
    Group(
        "losses",
        "Losses",
        "Losses of predictions and targets, and their gradients without a tape.",
        _all_of("odyssey.losses"),
    ),
    Group(
        "random",
        "Random numbers",
        "Counter-based generators, and the seed of the process's own.",
        _of("odyssey", "Generator", "seed"),
    ),
    Group(
        "init",
        "Initial values",
        "Random initial weights.",
        _all_of("odyssey.init"),
    ),
    Group(
        "trees",
        "Trees",
        "Nests of dicts, lists, tuples, named tuples and dataclasses, as parameters are.",
        (*_all_of("odyssey.tree"), "odyssey.summary"),
    ),
    Group(
        "saving",
        "Saving and loading",
        "One file for all of a training, written atomically and read without pickle.",
        (
            *_of("odyssey", "save", "load", "save_tensors", "load_tensors", "list_tensors"),
            *_of("odyssey", "TensorSource"),
        ),
    ),
    Group(
        "caches",
        "Caches",
        "Rows by position that decoders attend to.",
        _of("odyssey", "Cache"),
    ),
    Group(
        "batches",
        "Batches of data",
        "Minibatches of arrays.",
        (*_of("odyssey", "batches"), "odyssey.batching.Batches"),
    ),
    Group(
        "devices",
        "Devices",
        "The CPU and CUDA cards, their memory and its limits.",
        _all_of("odyssey.devices"),
    ),
    Group(
        "distributed",
        "Several processes",
        "Groups of ranks, their collectives, and data-parallel training on MPI.",
        _all_of("odyssey.distributed"),
    ),
    Group(
        "metric-logs",
        "Metric logs",
        "A line of JSON for each step of a training.",
        (
            *_of("odyssey", "MetricLog"),
            *_of("odyssey.metric_log", "MetricRun", "MetricRuns"),
        ),
    ),
    Group(
        "testing",
        "Testing",
        "Checks of gradients, and counts of the kernels that ran.",
        _all_of("odyssey.testing"),
    ),
    Group(
        "errors",
        "Errors and warnings",
        "What the library raises. Each is also the built-in error that fits.",
        _all_of("odyssey.errors"),
    ),
    Group(
        "own-ops",
        "Ops of your own",
        "Declare a row of the table from outside, and look at those that are there.",
        (
            *_of("odyssey", "op"),
            *_of("odyssey.ops", "Row", "Kernel", "Symbol", "PASS", "use_kernels"),
            *_of("odyssey.ops", "OPS", "COMPOSITES"),
            "odyssey.backward.TABLE",
        ),
    ),
)


def _others() -> Iterator[Group]:
    """Yield a group of the objects that the groups above lack, if there are any."""
    listed = {id(value_of(name)) for group in GROUPS for name in group.names}
    names = tuple(
        name for module in MODULES for name in _all_of(module) if id(value_of(name)) not in listed
    )
    names = tuple(dict.fromkeys(names))
    if names:
        yield Group("others", "Other objects", "Public objects that no other page lists.", names)


_DATA = {
    "odyssey.ops.OPS": "The rows of the table by name; a read-only mapping.",
    "odyssey.ops.COMPOSITES": "The functions that are made of other ops, by name.",
    "odyssey.backward.TABLE": "The backward functions by name of the op; a read-only mapping.",
    "odyssey.devices.cpu": "The CPU, a Device whose arrays are NumPy's.",
}
_WITHOUT_MEMBERS = {"odyssey.ops.Row", "odyssey.ops.Symbol"}


GROUPS = (*GROUPS, *_others())


@cache
def op_names() -> Mapping[str, str]:
    """Return the name of the op for each name and other name of an op."""
    return {n: entry.name for entry in entries().values() for n in (entry.name, *entry.aliases)}


@cache
def documented() -> Mapping[str, str]:
    """Return the page of each documented name, such as ``odyssey.grad`` and ``odyssey.nn.gelu``."""
    pages: dict[str, str] = {}
    identities: dict[int, str] = {}
    for group in GROUPS:
        for name in group.names:
            pages[name] = api_page(name)
            identities[id(value_of(name))] = name
    for module in MODULES:
        pages[module] = "reference/modules"
        for name in public_names(module):
            full = f"{module}.{name}"
            value = getattr(importlib.import_module(module), name)
            if full in pages or inspect.ismodule(value):
                continue
            if id(value) in identities:
                pages[full] = api_page(identities[id(value)])
            elif name in op_names():
                pages[full] = f"reference/ops/{op_names()[name]}"
    return pages


def public_names(module: str) -> list[str]:
    """Return the public names of a module: what it exports, and the ops that it has."""
    loaded = importlib.import_module(module)
    exported = list(getattr(loaded, "__all__", ()))
    ops = [n for n in dir(loaded) if n in op_names() and n not in exported]
    if module in ("odyssey.ops", "odyssey.backward"):
        return [*exported, *ops]
    return exported


def api_page(name: str) -> str:
    """Return the page of an object by its full name."""
    return f"reference/api/{name}"


@cache
def _links() -> Mapping[str, str]:
    targets: dict[str, str] = {}
    for full in documented():
        if full in MODULES or full.startswith("odyssey.backward."):
            continue
        targets[full.replace("odyssey.", "od.", 1)] = full
        module, _, name = full.rpartition(".")
        targets[f"{module.rpartition('.')[2]}.{name}"] = full
        if name[0].isupper():
            targets[name] = full
    return targets


def link(text: str) -> str | None:
    """Return the documented name that a literal in a docstring means, such as ``od.grad``.

    >>> link("od.grad"), link("ShapeError"), link("x")
    ('odyssey.grad', 'odyssey.errors.ShapeError', None)
    """
    target = _links().get(text)
    return canonical_name(target) if target else None


def canonical_name(full: str) -> str:
    """Return the name under which an object has its page."""
    page = documented()[full]
    name = page.rpartition("/")[2]
    return name if page.startswith("reference/api/") else f"odyssey.ops.{name}"


# ------------------------------------------------------------------ pages


def title_lines(title: str, mark: str = "=") -> list[str]:
    """Return a heading."""
    return [title, mark * max(len(title), 3), ""]


def object_page(name: str, group: Group) -> str:
    """Return the page of an object."""
    value = value_of(name)
    lines = [":orphan:", "", *title_lines(name.rpartition(".")[2].replace("_", r"\_"))]
    lines += [*_definition(name, value), ""]
    lines += [f"   {line}".rstrip() for line in _body(name, value)]
    if isinstance(value, type) and name not in _WITHOUT_MEMBERS:
        for member in _members(value):
            lines += [f"   {line}".rstrip() for line in member]
    lines += ["", ".. rst-class:: odyssey-facts", "", *_facts(name, value, group), ""]
    return "\n".join(lines)


def _definition(full: str, value: Any) -> Iterator[str]:
    # Relative to a module, since the index calls what has none a built-in function.
    module, _, name = full.rpartition(".")
    yield from (f".. py:currentmodule:: {module}", "")
    if full in _DATA:
        yield f".. py:data:: {name}"
    elif isinstance(value, type) and issubclass(value, BaseException):
        yield f".. py:exception:: {name}"
    elif isinstance(value, type):
        yield f".. py:class:: {name}{_signature(value)}"
    else:
        yield f".. py:function:: {name}{_signature(value)}"


def _signature(value: Any) -> str:
    try:
        return (
            format_call("", inspect.signature(value))
            .replace("(self, ", "(")
            .replace("(self)", "()")
        )
    except (TypeError, ValueError):
        return "()"


def _body(name: str, value: Any) -> Iterator[str]:
    if name in _DATA:
        yield _DATA[name]
        return
    if isinstance(value, type) and issubclass(value, BaseException):
        bases = [base for base in value.__mro__[1:] if base.__name__ not in ("object",)]
        shown = [
            f":py:exc:`{b.__name__} <odyssey.errors.{b.__name__}>`"
            if b.__module__.startswith("odyssey")
            else f"``{b.__name__}``"
            for b in bases
            if b.__name__ not in ("BaseException", "Exception")
        ]
        yield from (prose(inspect.getdoc(value) or "", link), "")
        if shown:
            yield from (f":Also: {', '.join(shown)}", "")
        return
    yield from to_rst(parse(value.__doc__), link)


def _members(value: type) -> Iterator[list[str]]:
    """Yield the lines of each public method and property."""
    members: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("odyssey"):
            members.update(vars(base))
    for name, member in members.items():
        if name.startswith("record_") or (name in op_names() and name != "flatten"):
            continue
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, property):
            yield [f".. py:property:: {name}", "", *_indented_body(member.fget)]
        elif inspect.isfunction(member) and member.__doc__:
            yield [f".. py:method:: {name}{_signature(member)}", "", *_indented_body(member)]


def _indented_body(function: Any) -> list[str]:
    body = to_rst(parse(getattr(function, "__doc__", "")), link)
    return [f"   {line}".rstrip() for line in body] + [""]


def _facts(name: str, value: Any, group: Group) -> Iterator[str]:
    short = name.replace("odyssey.", "od.", 1)
    others = [full for full in documented() if full != name and canonical_name_or(full) == name]
    if others:
        names = ", ".join(f"``{full.replace('odyssey.', 'od.', 1)}``" for full in others)
        yield f":Also: {names}"
    if name == "odyssey.Variable":
        yield (
            ":Methods of ops: Each op is a method too, such as ``v.sum(0)`` and "
            "``v.reshape(2, 3)``: :doc:`/reference/ops`."
        )
    if short in PEER_OBJECTS:
        yield f":Other libraries: {PEER_OBJECTS[short]}"
    yield f":Group: :doc:`/reference/{group.slug}`"
    yield from uses_lines([name, *others])


def canonical_name_or(full: str) -> str:
    """Return ``canonical_name``, or the name itself for a module."""
    return full if full in MODULES else canonical_name(full)


def uses_lines(names: list[str]) -> Iterator[str]:
    """Yield a line with the examples that use one of the names."""
    uses = example_uses()
    programs = sorted({program for name in names for program in uses.get(name, ())})
    if programs:
        shown = ", ".join(f":doc:`/gallery/{program}`" for program in programs)
        yield f":Examples: {shown}"


# ------------------------------------------------------------------ pages of many names


def group_page(group: Group) -> str:
    """Return the page of a group: a table of its objects."""
    lines = [*title_lines(group.title), _markdown_literals(group.intro), ""]
    lines += [".. list-table::", "   :class: odyssey-names", "   :widths: 35 65", ""]
    for name in group.names:
        summary = _DATA.get(name) or parse(value_of(name).__doc__).summary
        short = name.replace("odyssey.", "od.", 1)
        lines += [f"   * - :py:obj:`{short} <{name}>`", f"     - {prose(summary, link)}"]
    return "\n".join([*lines, ""])


def _markdown_literals(text: str) -> str:
    return text.replace("`", "``")


def modules_page() -> str:
    """Return the page of all public modules with all of their names."""
    lines = title_lines("Modules")
    lines += ["All public names by module. Aliases lead to the page of the op or object.", ""]
    for module in MODULES:
        doc = parse(importlib.import_module(module).__doc__).summary
        lines += [*title_lines(module.replace("odyssey.", "od.", 1), "-")]
        lines += [f".. py:module:: {module}", "", prose(doc, link), ""]
        names = sorted(public_names(module), key=str.lower)
        shown = [_name_in_list(module, name) for name in names]
        lines += [".. rst-class:: odyssey-name-list", "", ", ".join(shown), ""]
    return "\n".join(lines)


def _name_in_list(module: str, name: str) -> str:
    full = f"{module}.{name}"
    if full in MODULES:
        return f":py:mod:`{name} <{full}>`"
    page = documented().get(full)
    return f":doc:`{name} </{page}>`" if page else f"``{name}``"
