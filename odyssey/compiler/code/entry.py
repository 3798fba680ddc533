"""What Python calls of a program: it looks at arguments and states, and takes their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from odyssey.compiler.code.given import Taken, taking
from odyssey.compiler.plan.planning import Plan
from odyssey.spec import Spec

__all__ = ["RAN", "REFUSED", "STRANGE", "WORDS", "Layout", "entry"]

RAN, STRANGE, REFUSED = 0, 1, 2
"""What a program answers: all was done; arguments or states are others than it was made for, and
nothing was done; a check failed, and no state was written."""


class Layout(NamedTuple):
    """Where NumPy's arrays keep what describes them, in bytes; and others what is theirs.

    Attributes:
        variable: Of a Variable its slots, by name; none where no call is one native function.
        version: Of a dictionary its version, if it has one.
        items: Of a tuple what it has.
    """

    data: int
    ndim: int
    shape: int
    dtype: int
    flags: int
    variable: Mapping[str, int] = MappingProxyType({})
    version: int | None = None
    items: int = tuple.__basicsize__


_ARRAY_FLAGS = 0x101  # row-major, aligned


def entry(
    inputs: list[Spec],
    plan: Plan,
    slots: Mapping[tuple[str, int], int],
    layout: Layout,
    last: object,
    numbers: Sequence[Taken] = (),
) -> str:
    """``call(self, args, count)``: arguments and results as NumPy's arrays; and ``rest``.

    The first looks, and runs the first step; the other runs the last.

    Behind the arrays of arguments come ``numbers``, of which see ``given``.

    Its globals are the table; for each guard a place, a mask and the word that must stand there;
    the address of the array type, and of each argument's dtype; and where the states begin and
    end that are written to, since an argument must not lie there.
    """
    outputs, given = plan.written(), len(inputs) + len(numbers)
    lines = [
        "@table = global ptr null\n@guards = global ptr null\n@guard_count = global i64 0",
        "@array_type = global i64 0\n@spans = global ptr null\n@span_count = global i64 0",
        f"@dtypes = global [{max(len(inputs), 1)} x i64] zeroinitializer",
        "@number_classes = global [2 x i64] zeroinitializer",
        "declare ptr @PyLong_FromLong(i64)",
        "declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)",
        WORDS,
        *_looking(inputs, numbers, slots, layout),
        "define ptr @call(ptr %self, ptr %args, i64 %count) {",
        f"  %enough = icmp eq i64 %count, {given + len(outputs)}",
        "  br i1 %enough, label %look, label %strange",
        "look:",
        "  %right = call i1 @look(ptr %args)",
        "  br i1 %right, label %given, label %strange",
        "given:",
        "  %table = load ptr, ptr @table",
    ]
    for k, output in enumerate(outputs, given):
        lines += [
            f"  %oa{k} = getelementptr ptr, ptr %args, i64 {k}",
            f"  %o{k} = load ptr, ptr %oa{k}",
            *_field(k, "data", layout.data, "ptr"),
            *_stored(k, slots["output", output]),
        ]
    lines += [
        "  %answer = call i64 @segment0(ptr %table)",
        "  %made = call ptr @PyLong_FromLong(i64 %answer)",
        "  ret ptr %made",
        "strange:",
        f"  %other = call ptr @PyLong_FromLong(i64 {STRANGE})",
        "  ret ptr %other",
        "}",
        "define ptr @rest(ptr %self, ptr %args, i64 %count) {",
        "  %table = load ptr, ptr @table",
        f"  %answer = call i64 @{last}(ptr %table)",
        "  %made = call ptr @PyLong_FromLong(i64 %answer)",
        "  ret ptr %made",
        "}",
    ]
    return "\n".join(lines)


WORDS = """define internal i1 @words(ptr %rows, i64 %n) noinline {
begin:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %look, label %end
look:
  %i = phi i64 [0, %begin], [%after, %next]
  %row = phi ptr [%rows, %begin], [%later, %next]
  %second = getelementptr i64, ptr %row, i64 1
  %third = getelementptr i64, ptr %row, i64 2
  %place = load ptr, ptr %row
  %there = load i64, ptr %place
  %mask = load i64, ptr %second
  %have = and i64 %there, %mask
  %want = load i64, ptr %third
  %same = icmp eq i64 %have, %want
  br i1 %same, label %next, label %end
next:
  %after = add i64 %i, 1
  %later = getelementptr i64, ptr %row, i64 3
  %more = icmp slt i64 %after, %n
  br i1 %more, label %look, label %end
end:
  %answer = phi i1 [true, %begin], [false, %look], [true, %next]
  ret i1 %answer
}"""
"""Whether at each place there stands a word, under a mask: rows of the three."""


def _looking(
    inputs: list[Spec],
    numbers: Sequence[Taken],
    slots: Mapping[tuple[str, int], int],
    layout: Layout,
) -> list[str]:
    """``look(args)``: whether guards hold and arguments fit, whose addresses it notes."""
    lines = [
        "define i1 @look(ptr %args) {",
        "  %table = load ptr, ptr @table",
        "  %guards = load ptr, ptr @guards",
        "  %n = load i64, ptr @guard_count",
        "  %type = load i64, ptr @array_type",
        "  %spans = load ptr, ptr @spans",
        "  %spans_n = load i64, ptr @span_count",
        "  %same = call i1 @words(ptr %guards, i64 %n)",
        "  br i1 %same, label %given0, label %strange",
    ]
    for k, spec in enumerate(inputs):
        lines += _argument(k, spec, slots["input", k], layout)
    cells = {place: slot for (kind, place), slot in slots.items() if kind == "given"}
    for k, one in enumerate(numbers, len(inputs)):
        lines += taking(k, one, cells)
    end = f"given{len(inputs) + len(numbers)}:"
    return [*lines, end, "  ret i1 true", "strange:", "  ret i1 false", "}"]


def _field(k: int, name: str, at: int, type: str) -> list[str]:
    return [
        f"  %{name}a{k} = getelementptr i8, ptr %o{k}, i64 {at}",
        f"  %{name}{k} = load {type}, ptr %{name}a{k}",
    ]


def _stored(k: int, slot: int) -> list[str]:
    return [
        f"  %t{k} = getelementptr i64, ptr %table, i64 {slot}",
        f"  store ptr %data{k}, ptr %t{k}",
    ]


def _argument(k: int, spec: Spec, slot: int, layout: Layout) -> list[str]:
    """Look whether an argument is what the program is made for, and take its address."""
    count = 0
    lines = [
        f"given{k}:",
        f"  %oa{k} = getelementptr ptr, ptr %args, i64 {k}",
        f"  %o{k} = load ptr, ptr %oa{k}",
    ]

    def require(truth: str) -> None:
        nonlocal count
        lines.append(f"  %r{k}_{count} = {truth}")
        lines.append(f"  br i1 %r{k}_{count}, label %g{k}_{count}, label %strange")
        lines.append(f"g{k}_{count}:")
        count += 1

    lines.extend(_field(k, "kind", 8, "i64"))
    require(f"icmp eq i64 %kind{k}, %type")
    lines.extend(_field(k, "ndim", layout.ndim, "i32"))
    require(f"icmp eq i32 %ndim{k}, {len(spec.shape)}")
    lines.extend(_field(k, "dtype", layout.dtype, "i64"))
    lines.append(f"  %wd{k} = getelementptr i64, ptr @dtypes, i64 {k}")
    lines.append(f"  %w{k} = load i64, ptr %wd{k}")
    require(f"icmp eq i64 %dtype{k}, %w{k}")
    lines.extend(_field(k, "flags", layout.flags, "i32"))
    lines.append(f"  %lie{k} = and i32 %flags{k}, {_ARRAY_FLAGS}")
    require(f"icmp eq i32 %lie{k}, {_ARRAY_FLAGS}")
    lines.extend(_field(k, "shape", layout.shape, "ptr"))
    for axis, length in enumerate(spec.shape):
        lines.append(f"  %la{k}_{axis} = getelementptr i64, ptr %shape{k}, i64 {axis}")
        lines.append(f"  %l{k}_{axis} = load i64, ptr %la{k}_{axis}")
        require(f"icmp eq i64 %l{k}_{axis}, {length}")
    lines.extend(_field(k, "data", layout.data, "ptr"))
    size = spec.dtype.itemsize * spec.size
    lines.append(f"  %at{k} = ptrtoint ptr %data{k} to i64")
    lines.append(f"  %end{k} = add i64 %at{k}, {size}")
    # Not where a state lies that is written to: a list of their beginnings and ends.
    lines += [
        f"  br label %span{k}",
        f"span{k}:",
        f"  %s{k} = phi i64 [0, %g{k}_{count - 1}], [%sn{k}, %apart{k}]",
        f"  %sm{k} = icmp slt i64 %s{k}, %spans_n",
        f"  br i1 %sm{k}, label %near{k}, label %taken{k}",
        f"near{k}:",
        f"  %twice{k} = shl i64 %s{k}, 1",
        f"  %sa{k} = getelementptr i64, ptr %spans, i64 %twice{k}",
        f"  %sb{k} = getelementptr i64, ptr %sa{k}, i64 1",
        f"  %low{k} = load i64, ptr %sa{k}",
        f"  %high{k} = load i64, ptr %sb{k}",
        f"  %below{k} = icmp ule i64 %end{k}, %low{k}",
        f"  %above{k} = icmp uge i64 %at{k}, %high{k}",
        f"  %free{k} = or i1 %below{k}, %above{k}",
        f"  br i1 %free{k}, label %apart{k}, label %strange",
        f"apart{k}:",
        f"  %sn{k} = add i64 %s{k}, 1",
        f"  br label %span{k}",
        f"taken{k}:",
    ]
    return [*lines, *_stored(k, slot), f"  br label %given{k + 1}"]
