"""Functions in LLVM's language that look at tables of words and at Python's objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odyssey.compiler.native_dispatch.tables import BLOCK_FIELDS

__all__ = ["TextFunction", "return_truth"]


class TextFunction:
    """The text of a function while it is written.

    Args:
        head: Its type, name and parameters.
        once: Whether its instructions run once a call. Better ones save a hundredth of it then; to
            find them takes LLVM a fifth of its time for all that Python calls.
    """

    def __init__(self, head: str, once: bool = False) -> None:
        self._head = f"define {head} noinline {'optnone' if once else 'optsize'} {{\nbegin:"
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def text(self) -> str:
        """The whole of it."""
        return "\n".join([self._head, *self._slots, *self._lines, "}"])

    def give(self, text: str) -> str:
        """Append an instruction; return the name of what it gives."""
        self._count += 1
        self._lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def do(self, text: str) -> None:
        """Append an instruction that gives nothing."""
        self._lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self._lines.append(f"{name}:")

    def room(self, type: str, count: str = "1") -> str:
        """Memory on the stack; for a number that is known only later, ask where it is."""
        self._count += 1
        lines = self._slots if count.isdigit() else self._lines
        lines.append(f"  %v{self._count} = alloca {type}, i64 {count}, align 16")
        return f"%v{self._count}"

    def at(self, base: str, place: int | str) -> str:
        """The place of a word."""
        return self.give(f"getelementptr i64, ptr {base}, i64 {place}")

    def word(self, base: str, place: int | str, type: str = "ptr") -> str:
        """A word of a table."""
        return self.give(f"load {type}, ptr {self.at(base, place)}")

    def field(self, block: str, name: str, type: str = "ptr") -> str:
        """A word of a block, by its name."""
        return self.word(block, BLOCK_FIELDS[name], type)

    def require(self, truth: str, other: str) -> None:
        """Go on where a comparison holds, else to a block."""
        found = self.give(truth)
        self._count += 1
        self.do(f"br i1 {found}, label %go{self._count}, label %{other}")
        self.label(f"go{self._count}")

    @contextmanager
    def each(self, count: str) -> Iterator[str]:
        """A loop over numbers from 0."""
        counter, name = self.room("i64"), f"loop{self._count}"
        self.do(f"store i64 0, ptr {counter}")
        self.do(f"br label %{name}")
        self.label(name)
        k = self.give(f"load i64, ptr {counter}")
        self.require(f"icmp slt i64 {k}, {count}", f"{name}_end")
        yield k
        self.do(f"br label %{name}_next")
        self.label(f"{name}_next")
        after = self.give(f"add i64 {k}, 1")
        self.do(f"store i64 {after}, ptr {counter}")
        self.do(f"br label %{name}")
        self.label(f"{name}_end")

    @contextmanager
    def where(self, truth: str) -> Iterator[None]:
        """Instructions for where a comparison holds."""
        found = self.give(truth)
        self._count += 1
        name = f"where{self._count}"
        self.do(f"br i1 {found}, label %{name}, label %{name}_end")
        self.label(name)
        yield
        self.do(f"br label %{name}_end")
        self.label(f"{name}_end")

    def put(self, thing: str, base: str, place: int | str) -> None:
        """Put an object into a word of a table."""
        self.do(f"store ptr {thing}, ptr {self.at(base, place)}")

    def hold(self, thing: str) -> None:
        """Count one reference more."""
        self.do(f"call void @Py_IncRef(ptr {thing})")

    def drop(self, things: str, count: str) -> None:
        """Let go of the objects in a table, where there are any."""
        with self.each(count) as k:
            thing = self.word(things, k)
            with self.where(f"icmp ne ptr {thing}, null"):
                self.do(f"call void @Py_DecRef(ptr {thing})")

    def clear(self, things: str, count: str) -> None:
        """Empty a table on the stack."""
        with self.each(count) as k:
            self.put("null", things, k)


def return_truth(f: TextFunction) -> str:
    """The text of one that says yes here, and elsewhere goes to a block by the name of no."""
    f.do("ret i1 true")
    f.label("no")
    f.do("ret i1 false")
    return f.text()
