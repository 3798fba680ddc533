"""What is watched of this package's own objects: Variables, optimizers, schedules."""

from __future__ import annotations

from itertools import chain
from typing import Any

from odyssey.checks import sort_of
from odyssey.compiler.guards import terms as w
from odyssey.compiler.guards.discovery import GuardDiscovery, Namespace, Unguardable
from odyssey.compiler.guards.functions import visit_user_contents
from odyssey.compiler.native_dispatch.cpython_layout import (
    ALL_BITS,
    MemoryGuard,
    attribute_memory_guard,
    list_field_offsets,
    read_word,
    slot_offset,
)
from odyssey.ops.random.generator import Generator
from odyssey.optim.groups import Group
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule
from odyssey.optim.schedules import Schedule
from odyssey.spec import Spec
from odyssey.table.row import Row
from odyssey.table.value import Info, Mark, Value
from odyssey.transforms.custom import custom_vjp
from odyssey.transforms.replay import is_user_defined

__all__ = ["is_odyssey_object", "visit_odyssey_object"]

_COMPILED = ("CompiledFunction", "CompiledByValue")
# By these names a function asks for a learning rate, which it computes with while it is traced.
_RATES = {"learning_rate", "settings", "state_dict", "rule"}


def is_odyssey_object(thing: Any) -> bool:
    """Whether the class of an object is from this package, or made from one that is."""
    return any(base.__module__.partition(".")[0] == "odyssey" for base in type(thing).__mro__)


def visit_odyssey_object(walk: GuardDiscovery, thing: Any, path: str) -> None:
    """Take up an object of this package, and what users added to it."""
    if isinstance(thing, Value):
        _take_value(walk, thing, path)
    elif isinstance(thing, Optimizer):
        _take_optimizer(walk, thing, path)
    elif isinstance(thing, Group):
        _take_group(walk, thing, path)
    elif isinstance(thing, Generator):
        walk.follow(w.attribute_guard(f"{path}._state", thing, "_state"))
    elif isinstance(thing, Schedule):
        _take_schedule(walk, thing, path)
        return
    elif isinstance(thing, (Rule, Row)):
        visit_user_contents(walk, thing if isinstance(thing, Row) else thing.step, path)
    elif isinstance(thing, custom_vjp) or type(thing).__name__ in _COMPILED:
        names = ("_fn",) if type(thing).__name__ in _COMPILED else ("__wrapped__", "_rules")
        for name in names:
            walk.follow(w.attribute_guard(f"{path}.{name}", thing, name))
    elif not isinstance(thing, (Spec, Mark, BaseException)):
        kind = sort_of(thing)
        raise Unguardable(f"it reaches {path}, {kind}, which cannot be watched")
    if is_user_defined(type(thing)):
        walk.take_object(thing, path)
    elif isinstance(getattr(thing, "__dict__", None), dict):
        _enter_added(walk, thing, path)


def _enter_added(walk: GuardDiscovery, thing: Any, path: str) -> None:
    """Watch what users added to an object of this package, where the code speaks of it."""
    own = {"groups", "params"}

    def matters(name: str) -> bool:
        spoken = walk.code.by_text or name in walk.code.spoken
        return spoken and name not in own and not name.startswith("_")

    def place(told: str, name: str) -> w.Guard:
        return w.dict_attribute_guard(told, thing, name)

    walk.enter(Namespace(path, lambda: thing.__dict__, place, matters))


# ------------------------------------------------------------------ Variables


def _take_value(walk: GuardDiscovery, value: Any, path: str) -> None:
    info = value._info
    if not isinstance(value._recording, Mark):
        raise Unguardable(f"it reaches {path}, which lies on a tape")
    if info is not None and info.home is not None and info.home() is not None:
        raise Unguardable(f"it reaches {path}, a leaf of a tape, which records what uses it")
    if info is not None and isinstance(info.grad, Value):
        raise Unguardable(f"it reaches {path}, whose gradient was recorded")
    walk.variables.append(value)
    walk.watch(_variable(f"Variable {path}", value))

    def end() -> None:
        if walk.code.by_text or "name" in walk.code.spoken:
            walk.watch(
                w.Guard(f"{path}.name", "{0}.name is {1}", lambda: value.name, lambda n: (value, n))
            )

    walk.at_end.append(end)


def _variable(path: str, value: Any) -> w.Guard:
    """What eager ops see of a Variable besides its data: mark, spec, whether it has a gradient."""

    def read() -> tuple[Any, ...]:
        info = value._info
        grad = None if info is None else info.grad
        return value._recording, value._spec, info, type(grad)

    def same(new: Any, old: Any) -> bool:
        alike = new is not w.MISSING and new[0] is old[0] and new[1] == old[1]
        return alike and new[3] is old[3]

    def text(kept: Any) -> str:
        begin = "{0}._recording is {1} and {0}._spec is {2} and "
        if kept[2] is None:
            return begin + "{0}._info is None"
        # One that is there is never replaced.
        return begin + ("{3}.grad is None" if kept[3] is type(None) else "type({3}.grad) is {4}")

    watch = w.Guard(path, text, read, lambda kept: (value, *kept), same)
    return watch.by(_seen_of_variable, value)


def _seen_of_variable(value: Any, kept: Any) -> MemoryGuard | None:
    where, spec, info, grad = kept
    places = {"_recording": where, "_spec": spec}
    if info is None:
        places["_info"] = None
    elif grad is not type(None):
        return None
    words = [(id(value) + slot_offset(Value, name), ALL_BITS, id(x)) for name, x in places.items()]
    if info is not None:
        words.append((id(info) + slot_offset(Info, "grad"), ALL_BITS, id(None)))
    return MemoryGuard(tuple(words), held=(value, *kept))


# ------------------------------------------------------------------ optimizers


def _take_optimizer(walk: GuardDiscovery, optimizer: Any, path: str) -> None:
    for name in ("groups", "params"):
        walk.follow(w.attribute_guard(f"{path}.{name}", optimizer, name))
    walk.watch(_state(f"the state of {path}", optimizer))


def _state(path: str, optimizer: Any) -> w.Guard:
    """Which Variables an optimizer has for the state of each parameter.

    Where all of them are there, they stay: what is loaded is written into them.
    """

    def read() -> tuple[Any, ...]:
        state = optimizer._state
        return state, [[*one.items()] for one in state]

    def same(new: Any, old: Any) -> bool:
        if new is w.MISSING or [*map(len, new[1])] != [*map(len, old[1])]:
            return False
        pairs = zip(chain(*new[1]), chain(*old[1]), strict=True)
        return all(n == m and one is two for (n, one), (m, two) in pairs)

    def is_whole(kept: Any) -> bool:
        owners = [group for group in optimizer.groups for _ in group.params]
        wanted = [{"steps", *group._rule.slots} for group in owners]
        there = [{name for name, _ in one} for one in kept[1]]
        return len(wanted) == len(there) and all(map(set.issubset, wanted, there))

    def text(kept: Any) -> str:
        return "{0}._state is {1}" + ("" if is_whole(kept) else " and [*map(len, {1})] == {2}")

    def bound(kept: Any) -> tuple[Any, ...]:
        return optimizer, kept[0], [*map(len, kept[1])]

    watch = w.Guard(path, text, read, bound, same)
    return watch.by(
        lambda kept: (
            attribute_memory_guard(optimizer, "_state", kept[0]) if is_whole(kept) else None
        )
    )


def _take_group(walk: GuardDiscovery, group: Any, path: str) -> None:
    walk.groups.append(group)
    walk.meet(group.params, f"{path}.params")  # which cannot be assigned, as the maker cannot
    if not hasattr(group._make, "programs"):  # by ``rule_of``, whose functions are pure, as it says
        walk.meet(group._make, f"{path}._make")
    walk.at_end.append(lambda: _end_group(walk, group, path))


def _take_schedule(walk: GuardDiscovery, schedule: Any, path: str) -> None:
    """Watch what the code asks a schedule for; of one that only steps, whose rates it sets."""
    if type(schedule).__module__ != Schedule.__module__:  # it does what a user wrote
        walk.take_object(schedule, path, whole=True)
        return
    walk.schedules.append(schedule)
    walk.follow(w.attribute_guard(f"{path}.optimizer", schedule, "optimizer"))
    asking = {*vars(schedule), "state_dict", "load_state_dict"} - {"optimizer"}

    def end() -> None:
        told = walk.code.by_text or not walk.code.spoken.isdisjoint(_RATES | asking)
        if told:
            for name in sorted(vars(schedule)):
                walk.watch(w.attribute_guard(f"{path}.{name}", schedule, name))
        walk.asks_schedules |= told

    walk.at_end.append(end)


def _end_group(walk: GuardDiscovery, group: Any, path: str) -> None:
    """Watch the settings, but for a rate that only the program reads."""
    asked = walk.code.by_text or not walk.code.spoken.isdisjoint(_RATES)
    walk.watch(_settings(path, group, asked))


def _settings(path: str, group: Any, asked: bool) -> w.Guard:
    """The settings of a group; another learning rate alone is taken over where nobody asked."""
    latest = [group._settings]

    def fits(new: Any, old: Any) -> bool:
        names = [name for name in old if asked or name != "learning_rate"]
        alike = isinstance(new, dict) and new.keys() == old.keys()
        return alike and all(w.equivalent_values(new[name], old[name]) for name in names)

    def renew() -> bool:
        now = group._settings
        if not fits(now, latest[0]):
            return False
        latest[0] = now
        return True

    def same(new: Any, old: Any) -> bool:
        return fits(new, old) and renew()

    return w.Guard(
        f"the settings of {path}",
        "({0}._settings is {1}[0] or {2}())",
        lambda: group._settings,
        lambda _: (group, latest, renew),
        same,
    ).by(_seen_of_settings, group, latest)


def _seen_of_settings(group: Any, latest: list[Any], _: Any) -> MemoryGuard | None:
    """The same settings as the latest that were taken over, of which the list has one."""
    items = list_field_offsets()[1]
    if not items:
        return None
    place = id(group) + slot_offset(Group, "_settings")
    return MemoryGuard(pairs=((place, read_word(id(latest) + items)),), held=(group, latest))
