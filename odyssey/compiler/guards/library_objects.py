"""Guards of this package's own objects: Variables, optimizers, schedules."""

from __future__ import annotations

from itertools import chain
from typing import Any

from odyssey.checks import describe_type
from odyssey.compiler.guards import terms
from odyssey.compiler.guards.discovery import GuardDiscovery, Namespace, Unguardable
from odyssey.compiler.guards.functions import visit_user_contents
from odyssey.compiler.machine.addresses import read_word
from odyssey.compiler.native_dispatch.cpython_layout import (
    ALL_BITS,
    MemoryGuard,
    attribute_memory_guard,
    list_field_offsets,
    slot_offset,
)
from odyssey.devices.device import Device
from odyssey.devices.stateful import Stateful, TraceConstant
from odyssey.ops.random.generator import Generator
from odyssey.optim.groups import Group
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule
from odyssey.optim.schedules import Schedule
from odyssey.spec import Spec
from odyssey.table.row import Row
from odyssey.table.value import Info, Mark, Value
from odyssey.transforms.custom import custom_vjp
from odyssey.transforms.reachability import is_user_defined

__all__ = ["is_odyssey_object", "visit_odyssey_object"]

_WRAPPERS = ("CompiledFunction", "CompiledByValue", "Objective")
# Attributes by which a function reads a learning rate, whose value the trace then fixes.
_RATE_NAMES = {"learning_rate", "settings", "state_dict", "rule"}


def is_odyssey_object(thing: Any) -> bool:
    """Return whether a class of this package is among the bases of an object's class."""
    return any(base.__module__.partition(".")[0] == "odyssey" for base in type(thing).__mro__)


def visit_odyssey_object(discovery: GuardDiscovery, thing: Any, path: str) -> None:
    """Guard an object of this package, and the attributes that users added to it."""
    if isinstance(thing, Value):
        _visit_variable(discovery, thing, path)
    elif isinstance(thing, Optimizer):
        _visit_optimizer(discovery, thing, path)
    elif isinstance(thing, Group):
        _visit_group(discovery, thing, path)
    elif isinstance(thing, Generator):
        discovery.guard_and_visit(terms.attribute_guard(f"{path}._state", thing, "_state"))
    elif isinstance(thing, Schedule):
        _visit_schedule(discovery, thing, path)
        return
    elif isinstance(thing, Stateful):
        discovery.visit_attributes(thing, path, all_attributes=True)
        return
    elif isinstance(thing, (Rule, Row)):
        visit_user_contents(discovery, thing if isinstance(thing, Row) else thing.step, path)
    elif isinstance(thing, custom_vjp) or type(thing).__name__ in _WRAPPERS:
        names = ("_fn",) if type(thing).__name__ in _WRAPPERS else ("__wrapped__", "_rules")
        for name in names:
            discovery.guard_and_visit(terms.attribute_guard(f"{path}.{name}", thing, name))
    elif isinstance(thing, Device):
        discovery.note_impure_attributes(type(thing))
    elif not isinstance(thing, (Spec, Mark, BaseException, TraceConstant)):
        kind = describe_type(thing)
        raise Unguardable(f"it reaches {path}, {kind}, which cannot be guarded")
    if is_user_defined(type(thing)):
        discovery.visit_attributes(thing, path)
    elif isinstance(getattr(thing, "__dict__", None), dict):
        _add_user_attributes(discovery, thing, path)


def _add_user_attributes(discovery: GuardDiscovery, thing: Any, path: str) -> None:
    """Guard attributes that users added to an object of this package, if the code reads them."""
    own = {"groups", "params"}

    def is_relevant(name: str) -> bool:
        mentioned = discovery.names.uses_dynamic_names or name in discovery.names.mentioned
        return mentioned and name not in own and not name.startswith("_")

    def make_guard(path: str, name: str) -> terms.Guard:
        return terms.dict_attribute_guard(path, thing, name)

    discovery.add_namespace(Namespace(path, lambda: thing.__dict__, make_guard, is_relevant))


# ------------------------------------------------------------------ Variables


def _visit_variable(discovery: GuardDiscovery, value: Any, path: str) -> None:
    info = value._info
    if discovery.tapes:
        return
    if not isinstance(value._recording, Mark):
        raise Unguardable(f"it reaches {path}, which is recorded on a tape")
    if info is not None and info.home is not None and info.home() is not None:
        raise Unguardable(
            f"it reaches {path}, a leaf of a tape, which records each op that uses it"
        )
    if info is not None and isinstance(info.grad, Value):
        raise Unguardable(f"it reaches {path}, whose gradient was recorded")
    discovery.variables.append(value)
    discovery.add_guard(_variable_guard(f"Variable {path}", value))

    def guard_name() -> None:
        if discovery.names.uses_dynamic_names or "name" in discovery.names.mentioned:
            discovery.add_guard(
                terms.Guard(
                    f"{path}.name", "{0}.name is {1}", lambda: value.name, lambda n: (value, n)
                )
            )

    discovery.final_steps.append(guard_name)


def _variable_guard(path: str, value: Any) -> terms.Guard:
    """Guard a Variable but for its data: its mark, its spec, and whether it has a gradient."""

    def read_current() -> tuple[Any, ...]:
        info = value._info
        grad = None if info is None else info.grad
        return value._recording, value._spec, info, type(grad)

    def is_equivalent(new: Any, old: Any) -> bool:
        equal = new is not terms.MISSING and new[0] is old[0] and new[1] == old[1]
        return equal and new[3] is old[3]

    def expression(expected: Any) -> str:
        begin = "{0}._recording is {1} and {0}._spec is {2} and "
        if expected[2] is None:
            return begin + "{0}._info is None"
        # An Info that exists is never replaced.
        return begin + (
            "{3}.grad is None" if expected[3] is type(None) else "type({3}.grad) is {4}"
        )

    guard = terms.Guard(
        path, expression, read_current, lambda expected: (value, *expected), is_equivalent
    )
    return guard.with_memory_guard(_variable_memory_guard, value)


def _variable_memory_guard(value: Any, expected: Any) -> MemoryGuard | None:
    mark, spec, info, grad = expected
    slots = {"_recording": mark, "_spec": spec}
    if info is None:
        slots["_info"] = None
    elif grad is not type(None):
        return None
    words = [(id(value) + slot_offset(Value, name), ALL_BITS, id(x)) for name, x in slots.items()]
    if info is not None:
        words.append((id(info) + slot_offset(Info, "grad"), ALL_BITS, id(None)))
    return MemoryGuard(tuple(words), held=(value, *expected))


# ------------------------------------------------------------------ optimizers


def _visit_optimizer(discovery: GuardDiscovery, optimizer: Any, path: str) -> None:
    for name in ("groups", "params"):
        discovery.guard_and_visit(terms.attribute_guard(f"{path}.{name}", optimizer, name))
    discovery.add_guard(_optimizer_state_guard(f"the state of {path}", optimizer))


def _optimizer_state_guard(path: str, optimizer: Any) -> terms.Guard:
    """Guard which Variables an optimizer has for the state of each parameter.

    Once all of them exist they stay: a loaded state is written into them.
    """

    def read_current() -> tuple[Any, ...]:
        state = optimizer._state
        return state, [[*one.items()] for one in state]

    def is_equivalent(new: Any, old: Any) -> bool:
        if new is terms.MISSING or [*map(len, new[1])] != [*map(len, old[1])]:
            return False
        pairs = zip(chain(*new[1]), chain(*old[1]), strict=True)
        return all(n == m and one is two for (n, one), (m, two) in pairs)

    def is_complete(expected: Any) -> bool:
        owners = [group for group in optimizer.groups for _ in group.params]
        wanted = [{"steps", *group._rule.slots} for group in owners]
        there = [{name for name, _ in one} for one in expected[1]]
        return len(wanted) == len(there) and all(map(set.issubset, wanted, there))

    def expression(expected: Any) -> str:
        return "{0}._state is {1}" + (
            "" if is_complete(expected) else " and [*map(len, {1})] == {2}"
        )

    def operands(expected: Any) -> tuple[Any, ...]:
        return optimizer, expected[0], [*map(len, expected[1])]

    guard = terms.Guard(path, expression, read_current, operands, is_equivalent)
    return guard.with_memory_guard(
        lambda expected: (
            attribute_memory_guard(optimizer, "_state", expected[0])
            if is_complete(expected)
            else None
        )
    )


def _visit_group(discovery: GuardDiscovery, group: Any, path: str) -> None:
    discovery.groups.append(group)
    # Neither ``params`` nor the maker of the rule can be assigned.
    discovery.visit(group.params, f"{path}.params")
    if not hasattr(group._make, "programs"):  # ``rule_of`` requires pure functions
        discovery.visit(group._make, f"{path}._make")
    discovery.final_steps.append(lambda: _guard_settings(discovery, group, path))


def _visit_schedule(discovery: GuardDiscovery, schedule: Any, path: str) -> None:
    """Guard the attributes that code reads of a schedule; of one that only steps, its optimizer."""
    if type(schedule).__module__ != Schedule.__module__:  # a user's class
        discovery.visit_attributes(schedule, path, all_attributes=True)
        return
    discovery.schedules.append(schedule)
    discovery.guard_and_visit(terms.attribute_guard(f"{path}.optimizer", schedule, "optimizer"))
    asking = {*vars(schedule), "state_dict", "load_state_dict"} - {"optimizer"}

    def guard_schedule() -> None:
        reads_schedule = (
            discovery.names.uses_dynamic_names
            or not discovery.names.mentioned.isdisjoint(_RATE_NAMES | asking)
        )
        if reads_schedule:
            for name in sorted(vars(schedule)):
                discovery.add_guard(terms.attribute_guard(f"{path}.{name}", schedule, name))
        discovery.asks_schedules |= reads_schedule

    discovery.final_steps.append(guard_schedule)


def _guard_settings(discovery: GuardDiscovery, group: Any, path: str) -> None:
    """Guard the settings of a group, but for a learning rate that only the program reads."""
    reads_rate = discovery.names.uses_dynamic_names or not discovery.names.mentioned.isdisjoint(
        _RATE_NAMES
    )
    discovery.add_guard(_settings_guard(path, group, reads_rate))


def _settings_guard(path: str, group: Any, reads_rate: bool) -> terms.Guard:
    """Guard a group's settings; another learning rate is adopted where the code reads no rate."""
    latest = [group._settings]

    def is_compatible(new: Any, old: Any) -> bool:
        names = [name for name in old if reads_rate or name != "learning_rate"]
        equal = isinstance(new, dict) and new.keys() == old.keys()
        return equal and all(terms.equivalent_values(new[name], old[name]) for name in names)

    def adopt_settings() -> bool:
        now = group._settings
        if not is_compatible(now, latest[0]):
            return False
        latest[0] = now
        return True

    def is_equivalent(new: Any, old: Any) -> bool:
        return is_compatible(new, old) and adopt_settings()

    return terms.Guard(
        f"the settings of {path}",
        "({0}._settings is {1}[0] or {2}())",
        lambda: group._settings,
        lambda _: (group, latest, adopt_settings),
        is_equivalent,
    ).with_memory_guard(_settings_memory_guard, group, latest)


def _settings_memory_guard(group: Any, latest: list[Any], _: Any) -> MemoryGuard | None:
    """Guard that a group's settings are those adopted last, which are the one item of a list."""
    items = list_field_offsets()[1]
    if not items:
        return None
    address = id(group) + slot_offset(Group, "_settings")
    return MemoryGuard(pairs=((address, read_word(id(latest) + items)),), held=(group, latest))
