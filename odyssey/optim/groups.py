"""Parameter groups: Variables that share settings, and how an optimizer's arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import is_dataclass
from typing import Any, ClassVar

import numpy as np

from odyssey.checks import few_digits, shown
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DTypeError, OdysseyError, TapeError
from odyssey.optim.inplace_codegen import program_of, spelling
from odyssey.optim.inplace_program import Program
from odyssey.optim.rule import Rule
from odyssey.suggestions import keyword_hint
from odyssey.table.signature import parameters_of
from odyssey.table.store import MEMORY, Store, store
from odyssey.table.value import is_trainable
from odyssey.tree import paths
from odyssey.variable import Variable

__all__ = ["Group", "check_form", "counted", "defaults_of", "groups_of"]


_set_slot = object.__setattr__  # since to set an attribute of a group is to change it


class Group:
    """Parameters that share settings; each setting is an attribute, and may be assigned.

    Attributes:
        params: The Variables of the group, in order.
    """

    __slots__ = ("_make", "_programs", "_rule", "_settings", "params", "paths")

    _made_again: ClassVar[tuple[str, ...]] = ("_programs", "_rule")  # see Optimizer

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
        self.adopt(*self.checked(**settings))

    def checked(self, **settings: Any) -> tuple[dict[str, Any], Rule]:
        """Return all settings with some replaced, and the rule that they make."""
        if settings:
            _run_as_written(", ".join(settings))
        if unknown := set(settings) - set(self._settings):
            names = ", ".join(sorted(unknown))
            raise OdysseyError(
                f"{names}: not among the settings; there are {', '.join(self._settings)}"
            )
        changed = self._settings | {name: _python_number(value) for name, value in settings.items()}
        return changed, self._make(**changed)

    def adopt(self, settings: dict[str, Any], rule: Rule) -> None:
        """Take over what ``checked`` returned."""
        commit(self.adopting(settings, rule))

    def adopting(self, settings: dict[str, Any], rule: Rule) -> Plan:
        """The calls by which this group does so."""
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

    def program(self, dtype: np.dtype[Any]) -> Program | None:
        """The rule as calls in place, for arrays of ``dtype`` and any learning rate, if it can be.

        A rule that no ``rule_of`` declared may draw random numbers, or keep something elsewhere.
        """
        if dtype not in self._programs:
            declared = self._rule.elementwise and hasattr(self._make, "programs")
            found = program_of(self._make, self._settings, dtype) if declared else None
            self._programs[dtype] = found
        program: Program | None = self._programs[dtype]
        return program

    def rule_in(self, here: Store) -> Rule:
        """The rule whose learning rate is read from a store, as a graph does at each run."""
        rate = here.adopt(here.once(self, self._rate))
        rule: Rule = self._make(**self._settings | {"learning_rate": rate})
        return rule

    def _rate(self) -> Variable:
        """The learning rate as a Variable, which a graph reads each time it runs."""
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
        store().only_eagerly("it writes out a parameter group")
        if getattr(self, "_settings", None) is None:  # it is being made, or could not be
            return "<Group, unfinished>"
        settings = (f"{name}={few_digits(value)}" for name, value in self._settings.items())
        return f"Group({', '.join([counted(self.params, 'parameter'), *settings])})"


def _run_as_written(names: str) -> None:
    """End a trial: it would leave settings that it may not be able to put back."""
    if (here := store()) is not MEMORY:
        here.only_eagerly(f"it assigns {names}")
        raise TapeError(
            f"{names}: assigned while a graph is traced, which would happen once and not at every "
            "run; assign it, or step the schedule, outside what is compiled"
        )


def _same_but_rate(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether programs that were derived for the old settings are those of the new ones."""
    for name, value in old.items():
        if new[name] is not value and name != "learning_rate":
            spelled = spelling(value)
            if spelled is None or spelled != spelling(new[name]):
                return False
    return True


def counted(things: Sized, noun: str) -> str:
    """How many there are, as in ``2 parameters``."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function by name, each with its default or ``REQUIRED``."""
    return {p.name: p.default for p in parameters_of(function)}


def _python_number(value: Any) -> Any:
    """NumPy's numbers would make float32 parameters float64; Python's would not."""
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
    """Read a tree of parameters, or a list of dictionaries that hold ``params`` and settings."""
    settings = {name: _python_number(value) for name, value in settings.items()}
    params = _tree(who, params)
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
    _refuse_twice(who, groups)
    return groups


def _tree(who: str, params: Any) -> Any:
    """Parameters as a tree; any other iterable becomes a list."""
    if isinstance(params, (dict, list, tuple, Variable)) or is_dataclass(params):
        return params
    alone = isinstance(params, (str, bytes, *ARRAY_LIKE))
    if alone or not hasattr(type(params), "__iter__"):
        raise DTypeError(f"{who}: the parameters are {shown(params)}; pass Variables in any tree")
    return list(params)


def _are_groups(params: Any) -> bool:
    """Whether these are groups, not a tree: a list with a dictionary that has ``params``."""
    return isinstance(params, (list, tuple)) and any(
        isinstance(entry, dict) and "params" in entry for entry in params
    )


def _parameters(who: str, params: Any, prefix: str) -> tuple[list[Variable], list[str]]:
    """The Variables of a tree or an iterable, and how to call them in messages."""
    params = _tree(who, params)
    named = list(paths(params, prefix))
    if not named:
        raise OdysseyError(f"{who}: there are no parameters{' in ' + prefix if prefix else ''}")
    found: list[Variable] = []
    for path, p in named:
        if not isinstance(p, Variable) or not is_trainable(p):
            raise DTypeError(
                f"{who}: parameter {path} is {shown(p)}; pass Variables with requires_grad=True"
            )
        found.append(p)
    return found, [path for path, _ in named]


def _refuse_twice(who: str, groups: list[Group]) -> None:
    seen: set[int] = set()
    for group in groups:
        for p, path in zip(group.params, group.paths, strict=True):
            if p.id in seen:
                raise OdysseyError(f"{who}: parameter {p.name or path} came twice")
            seen.add(p.id)


def check_form(saved: Any) -> None:
    """Raise unless ``saved`` is built as ``state_dict`` builds it; numbers are checked later."""
    entry = {"count": int, "settings": dict}
    form = _has(saved, {"settings": dict, "groups": list, "state": list})
    form = form and all(_has(group, entry) for group in saved["groups"])
    if not (form and all(isinstance(state, dict) for state in saved["state"])):
        raise OdysseyError(f"load_state_dict: {shown(saved)} came; pass what state_dict() returned")


def _has(node: Any, form: dict[str, type]) -> bool:
    """Whether ``node`` is a dictionary with these entries, each of its type."""
    return isinstance(node, dict) and all(isinstance(node.get(n), kind) for n, kind in form.items())
