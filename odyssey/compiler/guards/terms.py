"""Guards: one condition on one Python object each, written as a term of a generated predicate.

A guard for an array compares its layout and a copy of its elements. The array itself is not held:
its owner may resize it in place only while nobody else refers to it, and may drop it for its
memory.
"""

from __future__ import annotations

from abc import get_cache_token
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from keyword import iskeyword
from operator import is_
from struct import pack
from types import CellType, CodeType
from typing import Any, Self

import numpy as np

from odyssey.checks import describe_type, format_value
from odyssey.compiler.native_dispatch import cpython_layout
from odyssey.compiler.native_dispatch.cpython_layout import MISSING, MemoryGuard
from odyssey.devices.array_locks import is_locked
from odyssey.devices.ownership import copy_with_layout, is_writable, owner_of, same_bits
from odyssey.transforms.reachability import slot_value

__all__ = [
    "ATOMIC_TYPES",
    "MISSING",
    "Guard",
    "ReferenceGuard",
    "abc_registry_guard",
    "absence_guard",
    "array_elements_guard",
    "array_layout_guard",
    "attribute_guard",
    "bytes_guard",
    "cell_guard",
    "class_guard",
    "compile_guards",
    "dict_attribute_guard",
    "equivalent_values",
    "item_guard",
    "length_guard",
    "members_guard",
    "names_guard",
    "plain_attribute_guard",
    "slot_guard",
    "unshadowed_guard",
    "without_repetitions",
]

# The most guards that are compiled into one function.
_GUARDS_PER_FUNCTION = 200

# Arrays up to this many bytes are compared by their bytes, which are copied for it; for larger
# ones that costs more than a comparison in pieces.
_MAX_COMPARED_BYTES = 1 << 16


class Guard:
    """A condition on one Python object: it is still what it was when the function was traced.

    Attributes:
        name: The name of the guarded thing, as a user would write it.
        expression: A Python expression that is true while the guard holds, with ``{0}``, ``{1}``
            for what ``operands`` returns; or a function from the expected value to it.
        operands: Function from the expected value to the objects in the expression.
        read: Function that returns the current value; it may raise where there is none.
        is_equivalent: Function of the current and the expected value: may one replace the other?
        array_id: The id of the array whose elements are guarded, or None.
        identity_guard: Function that makes a guard of the array's identity, to be used where its
            elements need no guard; or None.
        memory_guard: Function from the expected value to the words that native dispatch compares
            instead of the expression; or None.
        place: The object and the name, if this is an attribute that code may assign; or None.
    """

    __slots__ = (
        "array_id",
        "expected",
        "expression",
        "identity_guard",
        "is_equivalent",
        "memory_guard",
        "name",
        "operands",
        "place",
        "read",
    )

    def __init__(
        self,
        name: str,
        expression: str | Callable[[Any], str],
        read: Callable[[], Any],
        operands: Callable[[Any], Sequence[Any]],
        is_equivalent: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        self.name, self.expression, self.read, self.operands = name, expression, read, operands
        self.is_equivalent = is_equivalent or equivalent_values
        self.array_id: int | None = None
        self.identity_guard: Callable[[], Guard] | None = None
        self.memory_guard: Callable[[Any], MemoryGuard | None] | None = None
        self.place: tuple[Any, str] | None = None
        self.expected = self.current()

    def term(self) -> tuple[str, Sequence[Any]]:
        """Return the guard's expression and its operands."""
        text = self.expression
        text = text if isinstance(text, str) else text(self.expected)
        return text, self.operands(self.expected)

    def with_memory_guard(self, make: Callable[..., MemoryGuard | None], *args: Any) -> Self:
        """Let native dispatch check what ``make(*args, expected)`` returns; return the guard."""
        self.memory_guard = partial(make, *args)
        return self

    def current(self) -> Any:
        """Return the current value, or ``MISSING``."""
        try:
            return self.read()
        except Exception:  # each kind of guard raises its own error where there is nothing
            return MISSING

    def change(self) -> str | None:
        """Describe the change that made the guard fail; None where it holds.

        An equivalent value is remembered as the expected one.
        """
        now = self.current()
        if now is self.expected:
            return None
        if self.is_equivalent(now, self.expected):
            self.expected = now
            return None
        return f"{self.name}: {_format_value(self.expected)} -> {_format_value(now)}"


class ReferenceGuard(Guard):
    """Guard: an expression still gives one and the same object, or MISSING.

    Args:
        name: The name of the guarded thing, as a user would write it.
        target: Python expression that gives the object, with ``{0}``, ``{1}`` for ``holders``.
        read: Function that returns the object.
        holders: The objects in ``target``.
    """

    __slots__ = ("holders", "target")

    def __init__(self, name: str, target: str, read: Callable[[], Any], *holders: Any) -> None:
        self.target, self.holders = target, holders
        expression = f"{target} is {{{len(holders)}}}"
        super().__init__(name, expression, read, lambda expected: (*holders, expected))


def _format_value(thing: Any) -> str:
    try:
        return format_value(thing)
    except Exception:  # an object whose repr raises
        return f"{describe_type(thing)}"


# ------------------------------------------------------------------ equivalent values


def equivalent_values(new: Any, old: Any) -> bool:
    """Return whether only ``is`` can tell two objects apart: numbers of equal bits, strings.

    >>> equivalent_values(1.5, 3.0 / 2.0), equivalent_values(0.0, -0.0), equivalent_values(1, True)
    (True, False, False)
    """
    if new is old:
        return True
    kind = type(new)
    if kind is not type(old):
        return False
    if kind is tuple:
        return len(new) == len(old) and all(map(equivalent_values, new, old))
    if kind is float:
        return pack("d", new) == pack("d", old)
    if kind is complex:
        return pack("2d", new.real, new.imag) == pack("2d", old.real, old.imag)
    if kind in _COMPARED_BY_EQUALITY:
        return bool(new == old)
    if issubclass(kind, np.generic) and kind is not np.object_:
        return new.dtype == old.dtype and bool(new.tobytes() == old.tobytes())
    return False


ATOMIC_TYPES = frozenset({int, str, bytes, range, bool, float, complex, type(None), type(...)})
"""Immutable types whose objects hold no other objects."""

_COMPARED_BY_EQUALITY = frozenset({int, str, bytes, range, bool})


# ------------------------------------------------------------------ references


def item_guard(name: str, container: Any, key: Any) -> ReferenceGuard:
    """Guard an item of a dictionary, a list or the mapping proxy of a class."""
    if type(key) in (str, int):
        target = f"{{0}}[{_escaped_literal(key)}]"
        guard = ReferenceGuard(name, target, lambda: container[key], container)
        return guard.with_memory_guard(cpython_layout.item_memory_guard, container, key)
    return ReferenceGuard(name, "{0}[{1}]", lambda: container[key], container, key)


def _escaped_literal(word: str) -> str:
    return repr(word).replace("{", "{{").replace("}", "}}")


def attribute_guard(name: str, thing: Any, word: str) -> ReferenceGuard:
    """Guard an attribute of a library's object."""
    guard = ReferenceGuard(name, f"{{0}}.{word}", lambda: getattr(thing, word), thing)
    return guard.with_memory_guard(cpython_layout.attribute_memory_guard, thing, word)


def plain_attribute_guard(name: str, thing: Any, word: str) -> ReferenceGuard:
    """Guard an attribute in an object's dictionary that no class attribute shares its name with."""
    if not word.isidentifier() or iskeyword(word):
        return dict_attribute_guard(name, thing, word)
    # A read by getattr might call a property that the class got in the meantime.
    guard = ReferenceGuard(name, f"{{0}}.{word}", lambda: thing.__dict__[word], thing)
    return guard.with_memory_guard(cpython_layout.dict_attribute_memory_guard, thing, word)


def dict_attribute_guard(name: str, thing: Any, word: str) -> ReferenceGuard:
    """Guard an item of an object's ``__dict__``, whatever the class has by that name."""
    target = f"{{0}}.__dict__[{_escaped_literal(word)}]"
    guard = ReferenceGuard(name, target, lambda: thing.__dict__[word], thing)
    return guard.with_memory_guard(cpython_layout.dict_attribute_memory_guard, thing, word)


def slot_guard(name: str, thing: Any, descriptor: Any) -> ReferenceGuard:
    """Guard the value of a slot, or its absence."""
    read = partial(slot_value, descriptor, thing, MISSING)
    guard = ReferenceGuard(name, "{0}()", read, read)
    return guard.with_memory_guard(cpython_layout.slot_memory_guard, thing, descriptor)


def class_guard(name: str, thing: Any) -> ReferenceGuard:
    """Guard the class of an object, which can be assigned."""
    guard = ReferenceGuard(f"the class of {name}", "type({0})", lambda: type(thing), thing)
    return guard.with_memory_guard(cpython_layout.class_memory_guard, thing)


def cell_guard(name: str, cell: CellType) -> Guard:
    """Guard the contents of a closure's cell."""
    if cell == CellType():
        expression = "{0} == {1}"
        empty = Guard(name, expression, lambda: cell == CellType(), lambda _: (cell, CellType()))
        return empty.with_memory_guard(
            lambda expected: (
                cpython_layout.cell_memory_guard(cell, MISSING) if expected is True else None
            )
        )
    read = lambda: cell.cell_contents  # noqa: E731
    guard = ReferenceGuard(name, "{0}.cell_contents", read, cell)
    return guard.with_memory_guard(cpython_layout.cell_memory_guard, cell)


# ------------------------------------------------------------------ names, members and bytes


def absence_guard(name: str, namespace: Any, key: str) -> Guard:
    """Guard that a dictionary lacks a key, which would hide what is found elsewhere."""
    expression = f"{_escaped_literal(key)} not in {{0}}"
    guard = Guard(name, expression, lambda: namespace.get(key, MISSING), lambda _: (namespace,))
    return guard.with_memory_guard(
        lambda expected: (
            cpython_layout.key_absent_memory_guard(namespace, key) if expected is MISSING else None
        )
    )


def unshadowed_guard(name: str, thing: Any, words: Sequence[str]) -> Guard:
    """Guard that an object's dictionary does not shadow some attributes of its class."""
    terms = [f"{_escaped_literal(word)} not in room" for word in words]
    expression = f"(room := {{0}}.__dict__) is not None and {' and '.join(terms)}"
    return Guard(
        name,
        expression,
        lambda: [word for word in words if word in thing.__dict__],
        lambda _: (thing,),
        _equal_values,
    ).with_memory_guard(
        lambda shadowed: None if shadowed else cpython_layout.unshadowed_memory_guard(thing, words)
    )


def names_guard(
    name: str,
    namespace: Callable[[], Any],
    expression: str,
    thing: Any,
    relevant: set[str] | None,
) -> Guard:
    """Guard the names in a namespace, in order.

    Args:
        name: The name of the namespace.
        namespace: Function that returns it.
        expression: Python expression for it, with ``{0}`` for ``thing``.
        thing: The owner of the namespace.
        relevant: The names that matter, all where it is None; the set may still grow.
    """

    def is_equivalent(new: Any, old: Any) -> bool:
        if new is MISSING or relevant is None:
            return bool(new == old)
        return not any(word in relevant or _is_dunder(word) for word in {*new} ^ {*old})

    guard = Guard(
        name,
        f"[*{expression}] == {{1}}",
        lambda: [*namespace()],
        lambda expected: (thing, expected),
        is_equivalent,
    )
    of_instance = expression != "{0}"
    return guard.with_memory_guard(cpython_layout.dict_names_memory_guard, thing, of_instance)


def _is_dunder(word: str) -> bool:
    return word.startswith("__") and word.endswith("__")


def length_guard(name: str, thing: Any) -> Guard:
    """Guard the length of a list."""
    return Guard(
        f"the length of {name}",
        "len({0}) == {1}",
        lambda: len(thing),
        lambda expected: (thing, expected),
    ).with_memory_guard(cpython_layout.list_length_memory_guard, thing)


def members_guard(name: str, thing: Any, iterate: Callable[[Any], Iterable[Any]]) -> Guard:
    """Guard the identity and order of a container's members, over which ``iterate`` goes."""
    return Guard(
        name,
        "len({0}) == {1} and all(map(is_, {3}({0}), {2}))",
        lambda: tuple(iterate(thing)),
        lambda expected: (thing, len(expected), expected, iterate),
    )


def bytes_guard(name: str, buffer: Any) -> Guard:
    """Guard the bytes of a bytearray, a memoryview or a record."""
    return Guard(
        name,
        "bytes({0}) == {1}",
        lambda: bytes(buffer),
        lambda expected: (buffer, expected),
        _equal_values,
    )


def abc_registry_guard() -> Guard:
    """Guard the registrations with abstract base classes, such as ``numbers.Number``."""
    name, expression = "the classes that are registered with abstract ones", "{0}() == {1}"
    return Guard(
        name,
        expression,
        get_cache_token,
        lambda expected: (get_cache_token, expected),
        _equal_values,
    )


def _equal_values(new: Any, old: Any) -> bool:
    return type(new) is type(old) and bool(new == old)


# ------------------------------------------------------------------ arrays


def array_layout_guard(guard: ReferenceGuard) -> Guard:
    """Guard the class, shape, strides and dtype of the array that a reference leads to."""
    n = len(guard.holders)
    expression = f"type(array := {guard.target}) is {{{n}}} and array.shape == {{{n + 1}}}"
    expression += f" and array.strides == {{{n + 2}}} and array.dtype is {{{n + 3}}}"
    read, holders = guard.read, guard.holders

    def read_layout() -> tuple[Any, ...]:
        array = read()
        return type(array), array.shape, array.strides, array.dtype

    return Guard(
        f"the layout of {guard.name}",
        expression,
        read_layout,
        lambda expected: (*holders, *expected),
        lambda new, old: type(new) is tuple and bool(new == old),
    )


def array_elements_guard(guard: ReferenceGuard) -> Guard:
    """Guard the elements of the array that a reference leads to.

    Of an array that nobody can write to, identity and the read-only flags are guarded.
    """
    array = guard.expected
    made = _read_only_guard(guard) if _is_read_only(array) else _copied_elements_guard(guard)
    made.array_id = id(array)
    # A guard of the identity refers to the array, so it is made when it is asked for.
    name, target, read, holders = guard.name, guard.target, guard.read, guard.holders
    made.identity_guard = lambda: ReferenceGuard(name, target, read, *holders)
    return made


def _copied_elements_guard(guard: ReferenceGuard) -> Guard:
    n = len(guard.holders)
    copy, expression = _copy_method(guard.expected)
    read, holders = guard.read, guard.holders
    repeats = copy is _bytes_without_repetitions
    return Guard(
        f"elements of {guard.name}",
        expression.format(guard.target, f"{{{n}}}", f"{{{n + 1}}}"),
        lambda: ArrayElements(copy(read())),
        lambda expected: (
            *holders,
            expected.data,
            without_repetitions if repeats else same_bits,
        ),
        _equal_elements,
    )


def _copy_method(array: Any) -> tuple[Callable[[Any], Any], str]:
    """Return how an array's elements are copied, and the expression that compares them."""
    axes = zip(array.shape, array.strides, strict=True)
    if any(n > 1 and not stride for n, stride in axes):
        return _bytes_without_repetitions, "{2}({0}).tobytes() == {1}"
    if array.nbytes <= _MAX_COMPARED_BYTES or array.dtype.itemsize not in (1, 2, 4, 8):
        return lambda current: current.tobytes(), "{0}.tobytes() == {1}"
    return copy_with_layout, "{2}({0}, {1})"


def without_repetitions(array: Any) -> Any:
    """Return a view without repetitions: a copy of a broadcast array would be large.

    >>> import numpy as np
    >>> without_repetitions(np.broadcast_to(np.arange(2.0), (10**6, 2)))
    array([[0., 1.]])
    """
    axes = zip(array.shape, array.strides, strict=True)
    return array[tuple(slice(None) if stride or n < 2 else slice(1) for n, stride in axes)]


def _bytes_without_repetitions(array: Any) -> bytes:
    copied: bytes = without_repetitions(array).tobytes()
    return copied


class ArrayElements:
    """Copied elements of an array: bytes, or an array."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data

    def __repr__(self) -> str:
        return "elements"


def _equal_elements(new: Any, old: Any) -> bool:
    """Return whether both are elements (the array may be gone), and of the same bits."""
    if not (isinstance(new, ArrayElements) and isinstance(old, ArrayElements)):
        return False
    one, two = new.data, old.data
    if isinstance(one, bytes) or isinstance(two, bytes):
        return type(one) is type(two) and bool(one == two)
    return one.shape == two.shape and one.dtype == two.dtype and same_bits(one, two)


def _read_only_guard(guard: ReferenceGuard) -> Guard:
    owner, n = owner_of(guard.expected), len(guard.holders)
    read, holders, array = guard.read, guard.holders, guard.expected
    return Guard(
        f"elements of {guard.name}",
        f"(array := {guard.target}) is {{{n}}} and not array.flags.writeable"
        f" and not {{{n + 1}}}.flags.writeable",
        lambda: read() is array and not is_writable(array) and not is_writable(owner),
        lambda _: (*holders, array, owner),
    )


def _is_read_only(array: Any) -> bool:
    """Return whether its owner made an array read-only, and no tape did so temporarily."""
    owner = owner_of(array)
    if owner.base is not None:  # memory of another object, which may be written in other ways
        return False
    while array is not owner:
        if is_writable(array) or is_locked(array):
            return False
        array = array.base
    return not is_writable(owner) and not is_locked(owner)


# ------------------------------------------------------------------ the compiled predicate


def compile_guards(guards: Sequence[Guard]) -> Callable[[], bool]:
    """Compile guards into one predicate that is true while all of them hold.

    A guard takes 4 to 30 ns this way, where a call for each would take 50 to 100.
    """
    chunks = [
        _compile_guard_chunk(guards[k : k + _GUARDS_PER_FUNCTION])
        for k in range(0, len(guards), _GUARDS_PER_FUNCTION)
    ]
    if len(chunks) == 1:
        return chunks[0]
    return lambda: all(holds() for holds in chunks)


def _compile_guard_chunk(guards: Sequence[Guard]) -> Callable[[], bool]:
    names: dict[int, str] = {}
    constants: dict[str, Any] = {"is_": is_}
    terms: list[str] = []
    for guard in guards:
        words = []
        expression, operands = guard.term()
        for operand in operands:
            if id(operand) not in names:
                names[id(operand)] = f"k{len(names)}"
                constants[names[id(operand)]] = operand
            words.append(names[id(operand)])
        terms.append(expression.format(*words))
    parameters = ", ".join(f"{name}={name}" for name in constants)
    source = (
        f"def holds({parameters}):\n"
        "    try:\n"
        f"        return {' and '.join(terms)}\n"
        "    except Exception:\n"
        "        return False\n"
    )
    exec(_compile_source(source), constants)
    predicate: Callable[[], bool] = constants.pop("holds")
    return predicate


@lru_cache(maxsize=256)
def _compile_source(source: str) -> CodeType:
    return compile(source, "<guards>", "exec")
