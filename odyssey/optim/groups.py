"""Parameter groups: Variables that share settings; parsing of an optimizer's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import is_dataclass
from typing import Any, ClassVar

import numpy as np

from odyssey.checks import few_digits, format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DTypeError, OdysseyError, TapeError
from odyssey.optim.inplace_codegen import cached_program, setting_key
from odyssey.optim.inplace_program import InPlaceProgram
from odyssey.optim.rule import Rule
from odyssey.suggestions import keyword_hint
from odyssey.table.signature import parameters_of
from odyssey.table.store import MEMORY, Store, refuse_in_vmap, store
from odyssey.table.value import is_trainable
from odyssey.tree import below_objects, paths
from odyssey.tree_objects import array_attributes
from odyssey.variable import Variable

__all__ = ["Group", "check_form", "count_text", "defaults_of", "groups_of"]


_set_slot = object.__setattr__  # because Group.__setattr__ changes a setting


class Group:
    """Parameters that share settings; each setting is an attribute, and may be assigned.

    Attributes:
        params: The Variables of the group, in order.
    """

    __slots__ = ("_make", "_programs", "_rule", "_settings", "params", "paths")

    _derived_state: ClassVar[tuple[str, ...]] = ("_programs", "_rule")  # see Optimizer

    learning_rate: float

    def __init__(
        self,
        params: list[Variable],
        paths: list[str],
        make: Callable[..., Rule],
        settings: dict[str, Any],
    ) -> None:
        _set_slot(self, "params", params)
        _set_slot(self, "paths", paths)
        _set_slot(self, "_make", make)
        _set_slot(self, "_settings", settings)
        _set_slot(self, "_programs", {})
        self.change()

    def change(self, **settings: Any) -> None:
        """Replace several settings at once; where they do not fit, nothing changes.

        Raises:
            OdysseyError, DTypeError: for a setting that is unknown or out of range.
            TapeError: while a graph is traced, which could not repeat it; what is compiled then
                runs as it was written.
        """
        self.set_settings(*self.with_settings(**settings))

    def with_settings(self, **settings: Any) -> tuple[dict[str, Any], Rule]:
        """Return all settings with some replaced, and the rule that they give."""
        if settings:
            _run_as_written(", ".join(settings))
        if unknown := set(settings) - set(self._settings):
            names = ", ".join(sorted(unknown))
            raise OdysseyError(
                f"{names}: not among the settings; there are {', '.join(self._settings)}"
            )
        changed = self._settings | {name: _python_number(value) for name, value in settings.items()}
        return changed, self._make(**changed)

    def set_settings(self, settings: dict[str, Any], rule: Rule) -> None:
        """Set what ``with_settings`` returned."""
        commit(self.adopt_calls(settings, rule))

    def adopt_calls(self, settings: dict[str, Any], rule: Rule) -> Plan:
        """Return the calls that set settings and rule."""
        plan: Plan = [
            (_set_slot, self, "_settings", settings),
            (_set_slot, self, "_rule", rule),
        ]
        if not _same_but_rate(settings, self._settings):
            plan.append((_set_slot, self, "_programs", {}))
        return plan

    def settings(self) -> dict[str, Any]:
        """Return the settings by name."""
        return dict(self._settings)

    def rule(self) -> Rule:
        """Return the pure rule with the present settings."""
        rule: Rule = self._rule
        return rule

    def program(self, dtype: np.dtype[Any]) -> InPlaceProgram | None:
        """Return the rule as an in-place program for any learning rate; None if it has none.

        A rule that was not declared by ``rule_of`` may draw random numbers, or have other side
        effects.
        """
        if dtype not in self._programs:
            declared = self._rule.elementwise and hasattr(self._make, "programs")
            found = cached_program(self._make, self._settings, dtype) if declared else None
            self._programs[dtype] = found
        program: InPlaceProgram | None = self._programs[dtype]
        return program

    def rule_in(self, here: Store) -> Rule:
        """Return the rule with a learning rate that a graph reads at each run."""
        rate = here.adopt(here.call_once(self, self._rate))
        rule: Rule = self._make(**self._settings | {"learning_rate": rate})
        return rule

    def _rate(self) -> Variable:
        """Return the learning rate as a Variable, which a graph reads at each run."""
        return Variable(np.float64(self._settings["learning_rate"]), name="learning_rate")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._settings:
            return self._settings[name]
        raise AttributeError(f"a parameter group has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        self.change(**{name: value})

    def __reduce__(self) -> Any:
        return Group, (self.params, self.paths, self._make, self._settings)

    def __repr__(self) -> str:
        store().only_eagerly("it formats a parameter group as text")
        if getattr(self, "_settings", None) is None:  # under construction, or construction failed
            return "<Group, unfinished>"
        settings = (f"{name}={few_digits(value)}" for name, value in self._settings.items())
        return f"Group({', '.join([count_text(self.params, 'parameter'), *settings])})"


def _run_as_written(names: str) -> None:
    """In a trace, raise TapeError: assigned settings could not be restored."""
    if (here := store()) is not MEMORY:
        here.only_eagerly(f"it assigns {names}")
        refuse_in_vmap(names)
        raise TapeError(
            f"{names}: assigned while a graph is traced, which would happen once and not at every "
            "run; assign it, or step the schedule, outside of the compiled function"
        )


def _same_but_rate(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """True if programs compiled for the old settings serve the new ones."""
    for name, value in old.items():
        if new[name] is not value and name != "learning_rate":
            spelled = setting_key(value)
            if spelled is None or spelled != setting_key(new[name]):
                return False
    return True


def count_text(things: Sized, noun: str) -> str:
    """Return a count with its noun, as in ``2 parameters``."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a function by name, each with its default or ``REQUIRED``."""
    return {p.name: p.default for p in parameters_of(function)}


def _python_number(value: Any) -> Any:
    """Return a setting as Python numbers: NumPy's would make float32 parameters float64."""
    if isinstance(value, ARRAY_LIKE):
        value = as_array("optimizer", "a setting", value)
        if value.ndim == 0:
            return value.item()
    if isinstance(value, (list, tuple, *ARRAYS)):
        return tuple(v.item() if isinstance(v, np.generic) else v for v in value)
    return value


def groups_of(
    who: str, params: Any, make: Callable[..., Rule], settings: dict[str, Any]
) -> list[Group]:
    """Return the groups of a tree of parameters, or of a list of dictionaries with ``params``."""
    settings = {name: _python_number(value) for name, value in settings.items()}
    params = _as_tree(who, params)
    if not _are_groups(params):
        params = [{"params": params}]
        prefixes = [""]
    else:
        prefixes = [f"[{k}]['params']" for k in range(len(params))]
    groups = []
    for k, (entry, prefix) in enumerate(zip(params, prefixes, strict=True)):
        if not isinstance(entry, dict) or "params" not in entry:
            raise OdysseyError(f"{who}: group {k} has no 'params'; either all entries have or none")
        own = {name: _python_number(value) for name, value in entry.items() if name != "params"}
        if unknown := set(own) - set(settings):
            raise OdysseyError(
                f"{who}: group {k} has {', '.join(sorted(map(str, unknown)))}, which is not a "
                f"setting; there are {', '.join(settings)}{keyword_hint(unknown)}"
            )
        found = _parameters(who, entry["params"], prefix)
        groups.append(Group(*found, make, settings | own))
    _refuse_duplicates(who, groups)
    return groups


def _as_tree(who: str, params: Any) -> Any:
    """Return parameters as a tree; any other iterable becomes a list."""
    if isinstance(params, (dict, list, tuple, Variable)) or is_dataclass(params):
        return params
    if not hasattr(type(params), "__iter__") and array_attributes(params) is not None:
        return params
    alone = isinstance(params, (str, bytes, *ARRAY_LIKE))
    if alone or not hasattr(type(params), "__iter__"):
        raise DTypeError(
            f"{who}: the parameters are {format_value(params)}; pass Variables in any tree"
        )
    return list(params)


def _are_groups(params: Any) -> bool:
    """True for groups: a list with a dictionary that has ``params``."""
    return isinstance(params, (list, tuple)) and any(
        isinstance(entry, dict) and "params" in entry for entry in params
    )


def _parameters(who: str, params: Any, prefix: str) -> tuple[list[Variable], list[str]]:
    """Return the Variables of a tree or an iterable, and their paths for messages."""
    params = _as_tree(who, params)
    named = parameter_paths(params, prefix)
    if not named:
        raise OdysseyError(f"{who}: there are no parameters{' in ' + prefix if prefix else ''}")
    found: list[Variable] = []
    for path, p in named:
        if not isinstance(p, Variable) or not is_trainable(p):
            raise DTypeError(
                f"{who}: parameter {path} is {format_value(p)}; pass Variables with "
                "requires_grad=True"
            )
        found.append(p)
    return found, [path for path, _ in named]


def parameter_paths(params: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a tree of parameters, with their paths.

    Below a plain object these are trainable Variables alone, each once: a model may hold constants,
    and one weight as two attributes.
    """
    named = list(paths(params, prefix))
    found, known = [], set()
    for (path, leaf), below in zip(named, below_objects(params), strict=True):
        if below and (id(leaf) in known or not _is_parameter(leaf)):
            continue
        known.add(id(leaf))
        found.append((path, leaf))
    return found


def _is_parameter(leaf: Any) -> bool:
    return isinstance(leaf, Variable) and is_trainable(leaf)


def _refuse_duplicates(who: str, groups: list[Group]) -> None:
    seen: set[int] = set()
    for group in groups:
        for p, path in zip(group.params, group.paths, strict=True):
            if p.id in seen:
                raise OdysseyError(f"{who}: parameter {p.name or path} came twice")
            seen.add(p.id)


def check_form(saved: Any) -> None:
    """Raise unless ``saved`` is built as ``state_dict`` builds it; numbers are checked later."""
    entry = {"count": int, "settings": dict}
    form = _has_entries(saved, {"settings": dict, "groups": list, "state": list})
    form = form and all(_has_entries(group, entry) for group in saved["groups"])
    if not (form and all(isinstance(state, dict) for state in saved["state"])):
        raise OdysseyError(
            f"load_state_dict: {format_value(saved)} came; pass what state_dict() returned"
        )


def _has_entries(node: Any, form: dict[str, type]) -> bool:
    """True if ``node`` is a dictionary with these entries, each of its type."""
    return isinstance(node, dict) and all(isinstance(node.get(n), kind) for n, kind in form.items())
