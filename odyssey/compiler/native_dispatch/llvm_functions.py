"""LLVM functions, written as text, over tables of words and Python objects.

Called by ``entry``, ``guard_checks`` and ``dispatcher``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from odyssey.compiler.native_dispatch.tables import BLOCK_FIELDS, TABLE_COLUMNS, row_width

__all__ = ["TableRow", "TextFunction", "return_truth"]


class TableRow(NamedTuple):
    """One row of a table, while code that reads it is written.

    Attributes:
        function: The function that the code belongs to.
        address: Address of the row.
        columns: Names of the columns.
    """

    function: TextFunction
    address: str
    columns: tuple[str, ...]

    def load(self, column: str, type: str = "ptr") -> str:
        """Load the word in a column."""
        return self.function.load_word(self.address, self.columns.index(column), type)

    def column_address(self, column: str) -> str:
        """Return the address of the word in a column."""
        return self.function.element_address(self.address, self.columns.index(column))


class TextFunction:
    """The source of an LLVM function while it is written.

    Args:
        head: Its type, name and parameters.
        once: Whether its instructions run once a call. They are not optimized: that would save a
            hundredth of a call, and takes a fifth of LLVM's time for the entry points.
    """

    def __init__(self, head: str, once: bool = False) -> None:
        self._head = f"define {head} noinline {'optnone' if once else 'optsize'} {{\nbegin:"
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def source(self) -> str:
        """Return the source of the function."""
        return "\n".join([self._head, *self._slots, *self._lines, "}"])

    def emit_value(self, text: str) -> str:
        """Append an instruction; return the name of its value."""
        self._count += 1
        self._lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def emit_statement(self, text: str) -> None:
        """Append an instruction without a value."""
        self._lines.append(f"  {text}")

    def begin_block(self, name: str) -> None:
        """Begin a block."""
        self._lines.append(f"{name}:")

    def stack_slot(self, type: str, count: str = "1") -> str:
        """Allocate elements on the stack: at entry, or here where their number is a value."""
        self._count += 1
        lines = self._slots if count.isdigit() else self._lines
        lines.append(f"  %v{self._count} = alloca {type}, i64 {count}, align 16")
        return f"%v{self._count}"

    def element_address(self, base: str, index: int | str) -> str:
        """Return the address of a word in a table."""
        return self.emit_value(f"getelementptr i64, ptr {base}, i64 {index}")

    def load_word(self, base: str, index: int | str, type: str = "ptr") -> str:
        """Load a word of a table."""
        return self.emit_value(f"load {type}, ptr {self.element_address(base, index)}")

    def row_start(self, table: str, k: str) -> str:
        """Return the index of the first word of row ``k``."""
        width = row_width(table)
        if width & (width - 1):
            return self.emit_value(f"mul i64 {k}, {width}")
        return self.emit_value(f"shl i64 {k}, {width.bit_length() - 1}")

    def row(self, table: str, base: str, k: str) -> TableRow:
        """Return row ``k`` of a table that begins at ``base``."""
        start = self.row_start(table, k)
        return TableRow(self, self.element_address(base, start), TABLE_COLUMNS[table])

    def load_field(self, block: str, name: str, type: str = "ptr") -> str:
        """Load a field of a block, by its name."""
        return self.load_word(block, BLOCK_FIELDS[name], type)

    def branch_unless(self, comparison: str, other: str) -> None:
        """Continue if a comparison is true, else branch to a block."""
        truth = self.emit_value(comparison)
        self._count += 1
        self.emit_statement(f"br i1 {truth}, label %go{self._count}, label %{other}")
        self.begin_block(f"go{self._count}")

    @contextmanager
    def loop(self, count: str) -> Iterator[str]:
        """Write a loop that counts from 0."""
        counter, name = self.stack_slot("i64"), f"loop{self._count}"
        self.emit_statement(f"store i64 0, ptr {counter}")
        self.emit_statement(f"br label %{name}")
        self.begin_block(name)
        k = self.emit_value(f"load i64, ptr {counter}")
        self.branch_unless(f"icmp slt i64 {k}, {count}", f"{name}_end")
        yield k
        self.emit_statement(f"br label %{name}_next")
        self.begin_block(f"{name}_next")
        after = self.emit_value(f"add i64 {k}, 1")
        self.emit_statement(f"store i64 {after}, ptr {counter}")
        self.emit_statement(f"br label %{name}")
        self.begin_block(f"{name}_end")

    @contextmanager
    def when(self, comparison: str) -> Iterator[None]:
        """Write instructions that run if a comparison is true."""
        truth = self.emit_value(comparison)
        self._count += 1
        name = f"when{self._count}"
        self.emit_statement(f"br i1 {truth}, label %{name}, label %{name}_end")
        self.begin_block(name)
        yield
        self.emit_statement(f"br label %{name}_end")
        self.begin_block(f"{name}_end")

    def store_object(self, thing: str, base: str, index: int | str) -> None:
        """Store an object in a word of a table."""
        self.emit_statement(f"store ptr {thing}, ptr {self.element_address(base, index)}")

    def incref(self, thing: str) -> None:
        """Add a reference to an object."""
        self.emit_statement(f"call void @Py_IncRef(ptr {thing})")

    def decref_all(self, objects: str, count: str) -> None:
        """Drop the references in a table, of which some may be null."""
        with self.loop(count) as k:
            thing = self.load_word(objects, k)
            with self.when(f"icmp ne ptr {thing}, null"):
                self.emit_statement(f"call void @Py_DecRef(ptr {thing})")

    def clear_table(self, objects: str, count: str) -> None:
        """Set a table on the stack to null."""
        with self.loop(count) as k:
            self.store_object("null", objects, k)


def return_truth(f: TextFunction) -> str:
    """End a predicate: true here, false in the block ``no``; return its source."""
    f.emit_statement("ret i1 true")
    f.begin_block("no")
    f.emit_statement("ret i1 false")
    return f.source()
