"""Guards: whether all that a function reads of Python is as it was when it was traced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import FunctionType, MethodType
from typing import Any

from odyssey.compiler.guards.discovery import GuardDiscovery, Unguardable
from odyssey.compiler.guards.objects import visit_object
from odyssey.compiler.guards.terms import Guard, compile_guards
from odyssey.compiler.native_dispatch.cpython_layout import MemoryGuard
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.optim.groups import Group
from odyssey.table.value import Value
from odyssey.transforms.replay import is_user_defined
from odyssey.variable import Variable

__all__ = ["GuardSet", "discover_guards", "named_objects"]

# How often native code is told anew where something lies.
_MAX_MOVES = 4


class GuardSet:
    """What a traced function read of Python, watched.

    The arrays of Variables and the learning rates of optimizers are not watched: a program reads
    them at each run.

    Attributes:
        reason: Why the function cannot be watched, in words; None where it can.
        settles: Why nothing but a number itself can stand for one, in words; None where that can.
        holds: Tells whether all is as it was. It takes 4 to 30 ns for each place, calls no code of
            users, and may be called from any thread.
        variables: The Variables that the function reaches.
        groups: The parameter groups whose learning rates may have changed meanwhile.
        steps: Schedules that may step behind a program: the function does not ask where they stand.
    """

    holds: Callable[[], bool]

    def __init__(
        self,
        watches: list[Guard],
        variables: list[Variable],
        groups: list[Group],
        reason: str | None = None,
    ) -> None:
        self.reason = reason
        self.settles: str | None = None
        self.steps: list[Any] = []
        self.variables = variables
        self.groups = groups
        self._watches = watches
        self._latest: Guard | None = None
        # By watch what was noted of it, and how often that was something else.
        self._noted: dict[int, tuple[Any, int]] = {}
        self._rest: tuple[Any, list[int], Callable[[], bool] | None] = None, [], None
        self._look()

    def _look(self) -> None:
        self.holds = compile_guards(self._watches) if self.reason is None else _never_holds

    def __len__(self) -> int:
        """How many places are watched."""
        return len(self._watches)

    def places(self) -> list[str]:
        """What is watched, as a user would call it."""
        return [watch.name for watch in self._watches]

    def arrays(self) -> list[Any]:
        """The arrays, as they lie now, whose elements are watched."""
        return [watch.instead().kept for watch in self._watches if watch.instead is not None]

    def refresh(self) -> bool:
        """Whether all means what it meant; an equal number or string at a place is remembered."""
        if self.reason is not None:
            return False
        latest = self._latest  # most often it is the same place as the last time
        if latest is not None and latest.change() is not None:
            return False
        if self.changed() is not None:
            return False
        self._look()
        return True

    def changed(self) -> str | None:
        """What is not as it was, as ``"cell scale: 1.0 -> 2.0"``; None where all is."""
        for watch in self._watches:
            change = watch.change()
            if change is not None:
                self._latest = watch
                return change
        self._latest = None
        return None

    def noted(self) -> tuple[list[MemoryGuard], Callable[[], bool] | None]:
        """What native code looks at, and what tells whether the rest holds; None for no rest.

        Of what means the same, but moves again and again, Python is asked.
        """
        found: list[MemoryGuard] = []
        rest: list[Guard] = []
        for watch in self._watches:
            seen = self._seen(watch)
            if seen is None:
                rest.append(watch)
            else:
                found.append(seen)
        holds, ids = self.holds, [*map(id, rest)]
        if self._rest[0] is not holds or self._rest[1] != ids:
            self._rest = holds, ids, compile_guards(rest) if rest else None
        return found, self._rest[2]

    def _seen(self, watch: Guard) -> MemoryGuard | None:
        before, moves = self._noted.get(id(watch), (None, 0))
        if watch.seen is None or moves > _MAX_MOVES:
            return None
        try:
            seen = watch.seen(watch.kept)
        except Exception:  # of what is no more what it was
            return None
        if seen is not None:
            items = [(id(room), key, id(thing)) for room, key, thing in seen.items]
            now = seen.words, items, [version for _, version in seen.rooms], seen.pairs
            self._noted[id(watch)] = now, moves + (before not in (None, now))
        return seen

    def skip(self, arrays: Collection[int]) -> None:
        """Compare the elements of some arrays no more: a program has them, and reads them itself.

        Args:
            arrays: Their ids.
        """
        self._watches = [
            watch.instead() if watch.array in arrays and watch.instead else watch
            for watch in self._watches
        ]
        self._look()


def discover_guards(fn: Any, *args: Any) -> GuardSet:
    """Watch what a function, and objects that are given to it, read of Python.

    Args:
        fn: The function.
        args: What it is called with, trees. Arrays, numbers, strings and Variables in them are
            the caller's to compare, and so is which objects they are; what they hold is watched.

    >>> scale = [2.0]
    >>> guards = guards_of(eval("lambda x: x * scale[0]", {"scale": scale, "__name__": "user"}))
    >>> guards.reason, guards.holds()
    (None, True)
    >>> scale[0] = 3.0
    >>> guards.holds(), guards.changed()
    (False, 'global scale[0]: 2.0 -> 3.0')
    """
    walk = GuardDiscovery(visit_object)
    try:
        _reject_lazy_function(fn)
        walk.meet(fn, _callable_name(fn))
        for thing in _objects_of_tree(args):
            walk.meet(thing, f"the argument {_callable_name(thing)}")
        watches = walk.finish()
    except Unguardable as error:
        return GuardSet([], [], [], str(error))
    except RecursionError:
        return GuardSet([], [], [], "what it reaches is nested too deep")
    except Exception as error:  # of an object that does not let itself be looked at
        return GuardSet([], [], [], f"looking at what it reaches raised {type(error).__name__}")
    finally:
        walk.close()
    made = GuardSet(watches, walk.variables, walk.groups)
    made.steps = [] if walk.asks_schedules else walk.schedules
    if walk.code.caught:
        made.settles = "it goes on after errors"
    elif walk.code.identities:
        made.settles = "it asks which object is which"
    return made


def named_objects(*roots: Any) -> list[Any] | None:
    """All that the code of functions, given the others, may ask for; None if nobody can tell."""
    walk = GuardDiscovery(visit_object, watching=False)
    try:
        for root in roots:
            walk.meet(root, _callable_name(root))
        walk.finish()
        return walk.things()
    except Exception:  # also of an object that does not let itself be looked at
        return None
    finally:
        walk.close()


def _objects_of_tree(node: Any) -> Iterator[Any]:
    """The objects in a tree whose own parts may be asked for, and the classes of containers."""
    own = isinstance(node, (dict, list, tuple, *ARRAY_LIKE, Value))
    if is_user_defined(type(node)) and (own or hasattr(type(node), "__dataclass_fields__")):
        yield type(node)  # others like it are made; of objects the class is asked with them
    if isinstance(node, dict):
        parts = list(node.values())
    elif isinstance(node, (list, tuple)):
        parts = list(node)
    elif hasattr(type(node), "__dataclass_fields__"):
        parts = [getattr(node, name, None) for name in node.__dataclass_fields__]
    elif isinstance(node, (*ARRAY_LIKE, Value)):
        return
    else:
        yield node
        return
    for part in parts:
        yield from _objects_of_tree(part)


def _callable_name(root: Any) -> str:
    """What a function, a method or a class is called; of an object, its class."""
    named = isinstance(root, (FunctionType, MethodType, type))
    return str(root.__name__ if named else type(root).__name__)


def _reject_lazy_function(fn: Any) -> None:
    """Raise for a function whose call runs nothing yet."""
    while isinstance(fn, (MethodType, partial)):
        fn = fn.__func__ if isinstance(fn, MethodType) else fn.func
    flags = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
    if isinstance(fn, FunctionType) and fn.__code__.co_flags & flags:
        raise Unguardable("it is a generator or a coroutine, which runs later")


def _never_holds() -> bool:
    return False
