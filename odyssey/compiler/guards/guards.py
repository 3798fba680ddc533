"""Guard sets: all guards that a compiled program of a function depends on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from odyssey.compiler.attribute_states import StatefulFunction
from odyssey.compiler.guards.bytecode import uses_first_argument
from odyssey.compiler.guards.discovery import USED, GuardDiscovery, Unguardable, Use
from odyssey.compiler.guards.effects import defining_module, is_library
from odyssey.compiler.guards.objects import visit_object
from odyssey.compiler.guards.terms import Guard, compile_guards
from odyssey.compiler.native_dispatch import NATIVE_DISPATCH
from odyssey.compiler.native_dispatch.cpython_layout import MemoryGuard
from odyssey.compiler.scoped_function import unscoped_function
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.optim.groups import Group
from odyssey.table.value import Value
from odyssey.transforms.reachability import is_user_defined
from odyssey.tree import containers
from odyssey.tree_objects import no_attributes
from odyssey.variable import Variable

__all__ = [
    "GuardSet",
    "NamedObjects",
    "discover_guards",
    "named_objects",
    "reached_functions",
    "with_self",
]

CALLED = Use(read_only=True, called=True)
"""The use of the root of a walk."""

# How often native dispatch follows an object that moved in memory; Python checks it afterwards.
_MAX_MOVES = 4


class GuardSet:
    """The guards of a traced function: conditions on the Python objects that it read.

    The arrays of Variables and the learning rates of optimizers have no guards: a program reads
    them at each run.

    Attributes:
        reason: Why no guards can be made, in words; None where they can.
        fixes_numbers: Why numbers among the arguments must be fixed, in words; None where a
            scalar input can stand for one.
        compares_identity: Whether the code asks which object is which, but for None.
        holds: Predicate that is true while all guards hold. It takes 4 to 30 ns for each guard,
            runs no code of users, and may be called from any thread.
        variables: The Variables that the function reaches.
        groups: The parameter groups that it reaches, whose learning rates may change.
        schedules: Schedules that may be stepped after the program, as a deferred effect: the
            function does not read their step.
        only_written: Lists and dictionaries that the function writes to and does not read.
        objects: The ids of the objects whose attributes it may read.
        counted: Attributes that the function does nothing with but to add whole numbers.
    """

    holds: Callable[[], bool]

    def __init__(
        self,
        guards: list[Guard],
        variables: list[Variable],
        groups: list[Group],
        reason: str | None = None,
    ) -> None:
        self.reason = reason
        self.fixes_numbers: str | None = None
        self.compares_identity = False
        self.schedules: list[Any] = []
        self.only_written: list[Any] = []
        self.counted: set[str] = set()
        self.objects: frozenset[int] = frozenset()
        self.variables = variables
        self.groups = groups
        self._guards = guards
        self._last_failed: Guard | None = None
        # By id of a guard, the words last given to native dispatch, and how often they changed.
        self._native_words: dict[int, tuple[Any, int]] = {}
        self._python_part: tuple[Any, list[int], Callable[[], bool] | None] = None, [], None
        self._compile()

    def _compile(self) -> None:
        self.holds = compile_guards(self._guards) if self.reason is None else _never_holds

    def __len__(self) -> int:
        """Return the number of guards."""
        return len(self._guards)

    def guard_names(self) -> list[str]:
        """Return the names of the guarded things, as a user would write them."""
        return [guard.name for guard in self._guards]

    def guarded_arrays(self) -> list[Any]:
        """Return the arrays whose elements are guarded."""
        return [g.identity_guard().expected for g in self._guards if g.identity_guard is not None]

    def array_readers(self) -> dict[int, Callable[[], Any] | None]:
        """Return, by id of a guarded array, the function that reads the present one.

        An array may be replaced by one of equal elements. None stands for an array that several
        paths lead to, of which one may be replaced.
        """
        readers: dict[int, Callable[[], Any] | None] = {}
        for guard in self._guards:
            if guard.array_id is not None and guard.identity_guard is not None:
                reader = None if guard.array_id in readers else guard.identity_guard().read
                readers[guard.array_id] = reader
        return readers

    def are_of_any(self, things: Iterable[Any]) -> bool:
        """Return whether the function captured one of some objects: guards are of it."""
        ids = set(map(id, things))
        guarded = ((guard.expected, *guard.term()[1]) for guard in self._guards)
        return any(id(one) in ids for parts in guarded for one in parts)

    def guard_identity(self, arrays: Iterable[Any]) -> None:
        """Guard the identity of some arrays, wherever their elements are guarded."""
        by_id = {id(array): array for array in arrays}
        found = [guard for guard in self._guards if guard.array_id in by_id]
        for guard in found:
            if guard.identity_guard is not None and guard.array_id is not None:
                made = guard.identity_guard()
                made.expected = by_id[guard.array_id]  # of the trace; another may have its place
                self._guards.append(made)
        if found:
            self._compile()

    def refresh(self) -> bool:
        """Return whether all guards hold; equivalent numbers and strings become expected ones."""
        if self.reason is not None:
            return False
        failed = self._last_failed  # most often the guard that failed the last time fails again
        if failed is not None and failed.change() is not None:
            return False
        if self.describe_change() is not None:
            return False
        self._compile()
        return True

    def describe_change(self) -> str | None:
        """Describe the first guard that fails, as ``"cell scale: 1.0 -> 2.0"``, or return None."""
        for guard in self._guards:
            change = guard.change()
            if change is not None:
                self._last_failed = guard
                return change
        self._last_failed = None
        return None

    def attribute_places(self) -> set[tuple[int, str]]:
        """Return the attributes that have guards: the ids of their objects, and their names."""
        return {(id(g.place[0]), g.place[1]) for g in self._guards if g.place is not None}

    def changed_attributes(self, alone: bool = True) -> list[tuple[Any, str]] | None:
        """Return the attributes by which guards fail, or None.

        Args:
            alone: Whether to return None where other guards fail, too.
        """
        failed = [guard for guard in self._guards if guard.change() is not None]
        if alone and any(guard.place is None for guard in failed):
            return None
        found = {(id(g.place[0]), g.place[1]): g.place for g in failed if g.place is not None}
        return list(found.values()) or None

    def native_guards(self) -> tuple[list[MemoryGuard], Callable[[], bool] | None]:
        """Return the memory guards for native dispatch, and a predicate for the other guards.

        The predicate is None where no guard is left. An object that keeps its meaning but moves
        again and again is left to the predicate.
        """
        native: list[MemoryGuard] = []
        rest: list[Guard] = []
        for guard in self._guards:
            memory_guard = self._memory_guard(guard)
            if memory_guard is None:
                rest.append(guard)
            else:
                native.append(memory_guard)
        holds, ids = self.holds, [*map(id, rest)]
        if self._python_part[0] is not holds or self._python_part[1] != ids:
            self._python_part = holds, ids, compile_guards(rest) if rest else None
        return native, self._python_part[2]

    def _memory_guard(self, guard: Guard) -> MemoryGuard | None:
        before, moves = self._native_words.get(id(guard), (None, 0))
        if not NATIVE_DISPATCH or guard.memory_guard is None or moves > _MAX_MOVES:
            return None
        try:
            found = guard.memory_guard(guard.expected)
        except Exception:  # the object is no longer what it was
            return None
        if found is not None:
            items = [(id(dictionary), key, id(value)) for dictionary, key, value in found.items]
            now = found.words, items, [version for _, version in found.versions], found.pairs
            self._native_words[id(guard)] = now, moves + (before not in (None, now))
        return found

    def skip_elements(self, arrays: Collection[int]) -> None:
        """Drop the guards of some arrays' elements: a program reads these arrays itself.

        Args:
            arrays: The ids of the arrays.
        """
        guards, self._guards = self._guards, []
        for guard in guards:
            if guard.array_id in arrays and guard.identity_guard is not None:
                place, guard = guard.place, guard.identity_guard()
                guard.place = place
            self._guards.append(guard)
        self._compile()


def discover_guards(
    fn: Any, *args: Any, tapes: bool = False, trees: frozenset[int] = frozenset()
) -> GuardSet:
    """Discover the guards of a function and of its arguments.

    Args:
        fn: The function.
        args: The arguments, pytrees. The caller compares arrays, numbers, strings and Variables in
            them, and the identity of other leaves; the attributes of these have guards.
        tapes: Whether Variables have no guards, and may lie on tapes.
        trees: The ids of plain objects that are read as trees, so that all attributes matter.

    >>> scale = [2.0]
    >>> fn = eval("lambda x: x * scale[0]", {"scale": scale, "__name__": "user"})
    >>> guards = discover_guards(fn)
    >>> guards.reason, guards.holds()
    (None, True)
    >>> scale[0] = 3.0
    >>> guards.holds(), guards.describe_change()
    (False, 'global scale[0]: 2.0 -> 3.0')
    """
    discovery = GuardDiscovery(visit_object, tapes=tapes)
    discovery.trees = trees
    try:
        fn = _without_attribute_states(discovery, fn)
        _reject_lazy_function(fn)
        receiver = _receiver_of(fn, args)
        discovery.visit(fn, _callable_name(fn), _owner_of(fn, receiver), CALLED)
        for thing in _objects_of_tree(args):
            use = Use(read_only=True) if thing is receiver else USED
            discovery.visit(thing, f"the argument {_callable_name(thing)}", use=use)
        guards = discovery.complete()
        passed = {id(container) for container, _ in containers(args, no_attributes)}
        written = [x for x in discovery.only_written.values() if id(x) not in passed]
        objects = frozenset(id(thing) for thing, _ in discovery.names.objects)
    except Unguardable as error:
        return GuardSet([], [], [], with_self(str(error)))
    except RecursionError:
        return GuardSet([], [], [], "the objects that it reaches are nested too deeply")
    except Exception as error:  # an object whose attributes raise
        return GuardSet(
            [], [], [], f"inspecting the objects that it reaches raised {type(error).__name__}"
        )
    finally:
        discovery.close()
    made = GuardSet(guards, discovery.variables, discovery.groups)
    made.schedules = [] if discovery.asks_schedules else discovery.schedules
    made.only_written = written
    made.objects = objects
    made.counted = set(filter(discovery.names.is_only_counted, discovery.names.counted))
    if discovery.names.catches_errors:
        made.fixes_numbers = "the function may catch an error"
    made.compares_identity = discovery.names.compares_identity
    if made.fixes_numbers is None and made.compares_identity:
        made.fixes_numbers = "the function compares the identity of objects"
    return made


def _without_attribute_states(discovery: GuardDiscovery, fn: Any) -> Any:
    """Exempt the attributes that are arguments of a ``StatefulFunction``; return its function.

    Of a function that runs inside a scope it is the function itself.
    """
    if isinstance(fn, StatefulFunction):
        discovery.exempt.update((id(owner), name) for owner, name in fn.attribute_places)
        fn = fn.function
    return unscoped_function(fn)


def _receiver_of(fn: Any, args: Sequence[Any]) -> Any:
    """Return the first argument if the function only reads attributes of it, as of ``self``."""
    positional = args[0] if args and isinstance(args[0], tuple) else ()
    return positional[0] if positional and not uses_first_argument(fn) else None


def _owner_of(fn: Any, receiver: Any) -> type | None:
    """Return the class that a function is a method of, if the receiver is an object of it."""
    if receiver is None or not isinstance(fn, FunctionType):
        return None
    for base in type(receiver).__mro__:  # a decorated method is held by a compiled function
        if any(getattr(member, "_fn", member) is fn for member in vars(base).values()):
            return base
    return None


class NamedObjects(NamedTuple):
    """The objects that code may reach by name, and what it may write to them.

    Attributes:
        objects: The objects.
        assigned: The names of attributes that it may assign; None for all.
        writes_elements: Whether it may write elements of containers or arrays.
    """

    objects: list[Any]
    assigned: set[str] | None
    writes_elements: bool


def named_objects(fn: Any, *args: Any) -> NamedObjects | None:
    """Return the objects that code may reach from a function and its arguments by name.

    Args:
        fn: The function.
        args: The arguments, pytrees.

    Returns:
        The objects; None if they are unknown.
    """
    discovery = GuardDiscovery(visit_object, guarding=False)
    try:
        fn = _without_attribute_states(discovery, fn)
        receiver = _receiver_of(fn, args)
        discovery.visit(fn, _callable_name(fn), _owner_of(fn, receiver), CALLED)
        for tree in args:
            if receiver is not None and tree is args[0]:
                discovery.visit(receiver, _callable_name(receiver), use=Use(read_only=True))
                tree = tree[1:]
            discovery.visit(tree, _callable_name(tree))
        discovery.complete()
        names = discovery.names
        dynamic = names.uses_dynamic_names
        assigned = None if dynamic else names.assigned
        return NamedObjects(discovery.visited_objects(), assigned, dynamic or names.writes_elements)
    except Exception:  # an object whose attributes raise, too
        return None
    finally:
        discovery.close()


def with_self(text: str) -> str:
    """Return a text with ``self.rate`` for ``step.__self__.rate``, as users write it.

    >>> with_self("the length of step.__self__.layers")
    'the length of self.layers'
    """
    return re.sub(r"(?<![\w.\]])\w+\.__self__\b", "self", text)


def reached_functions(fn: Any) -> list[FunctionType]:
    """Return the users' functions that a function may call, up to one that stops the search."""
    discovery = GuardDiscovery(visit_object, guarding=False)
    try:
        discovery.visit(fn, _callable_name(fn), use=CALLED)
        discovery.complete()
    except Exception:  # the search stops at what cannot be guarded
        pass
    found = [thing for thing in discovery.visited_objects() if isinstance(thing, FunctionType)]
    discovery.close()
    return [function for function in found if not is_library(defining_module(function))]


def _objects_of_tree(node: Any) -> Iterator[Any]:
    """Yield the leaves of a tree whose attributes code may read, and the classes of containers."""
    own = isinstance(node, (dict, list, tuple, *ARRAY_LIKE, Value))
    is_tree = own or hasattr(type(node), "__dataclass_fields__")
    if is_tree and is_user_defined(type(node)) and type(node) not in ARRAYS:
        yield type(node)  # the function may make others; an object's class is visited with it
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
    """Return the name of a function, a method or a class; of another object, its class's."""
    named = isinstance(root, (FunctionType, MethodType, type))
    return str(root.__name__ if named else type(root).__name__)


def _reject_lazy_function(fn: Any) -> None:
    """Raise Unguardable for a function whose call runs nothing yet."""
    while isinstance(fn, (MethodType, partial)):
        fn = fn.__func__ if isinstance(fn, MethodType) else fn.func
    flags = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
    if isinstance(fn, FunctionType) and fn.__code__.co_flags & flags:
        raise Unguardable("it is a generator or a coroutine, which runs later")


def _never_holds() -> bool:
    return False
