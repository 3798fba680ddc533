"""Choices: the way of each work of one program, as lowering and code generation ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from odyssey.compiler.ways.alternatives import (
    Choice,
    Way,
    guessed_name,
    has_alternatives,
    kernel_of_way,
    lowering_names,
    ways,
)
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.compiler.ways.works import Work, row_work
from odyssey.errors import SettingError
from odyssey.table.row import Row

__all__ = ["Choices", "PlanError"]


class PlanError(SettingError):
    """A plan names a way that a work does not have."""


class _Note(NamedTuple):
    """A choice before it is formatted, which takes longer than lowering.

    ``row`` tells whether it is one for a call of a row, and not for a product.
    """

    describe: Callable[[], Work]
    list_ways: Callable[[], tuple[Way, ...]]
    way: str
    origin: str
    row: bool = False
    call: tuple[Row, tuple[Any, ...], tuple[Any, ...]] | None = None


class Choices:
    """The choices of one program.

    Args:
        plan: Plan of the program.
        pinned: For symbolic sizes, which are not known as such while a row is lowered: by position
            among the choices, a work and its way by the plan.
    """

    def __init__(
        self, plan: Plan = NO_PLAN, pinned: Mapping[int, tuple[Work, str]] | None = None
    ) -> None:
        self.plan, self._pinned = plan, pinned
        self._notes: list[_Note] = []

    def choose_for_row(
        self,
        row: Row,
        specs: Sequence[Any],
        actual: Sequence[Any],
        options: tuple[Any, ...],
        fixed: bool,
        can_lower: Callable[[str], bool],
    ) -> str:
        """Return the name of the way to lower a call of a row.

        Args:
            row: The row.
            specs: Specs of the operands, with float16 instead of bfloat16.
            actual: Specs of the operands, as the work has them.
            options: Canonical options.
            fixed: Whether sizes are fixed. Else a row that is decomposed is guessed to be
                compiled, for all sizes alike.
            can_lower: Returns whether the row's lowering of this name takes the call.

        Raises:
            PlanError: the plan names another way than the work has.
        """
        if fixed or row.lowering is not None:
            guess = guessed_name(row, specs, options)
        else:
            guess = lowering_names(row)[0]
        if not has_alternatives(row):
            return guess
        work, name = None, None
        if self._pinned is not None:
            work, name = self._pinned.get(len(self._notes), (None, None))
        elif row.name in self.plan.rows:
            work = row_work(row, actual, options)
            name = self.plan.get(work)
        if work is not None and name is not None and name != guess:
            known = [way.name for way in ways(row, specs, options, guess)]
            if name not in known and kernel_of_way(row, specs, options, name) is None:
                raise unknown_way(work, name, known)
        way = guess if name is None else name
        compiled = lowering_names(row)

        def list_ways() -> tuple[Way, ...]:
            found = ways(row, specs, options, guess)
            return tuple([w for w in found if w.name not in compiled or can_lower(w.name)])

        origin = "guessed" if name is None else "pinned"
        call = row, tuple(actual), options
        describe = partial(row_work, *call)
        self._notes.append(_Note(describe, list_ways, way, origin, True, call))
        return way

    def choose(self, ways: tuple[Way, ...], describe: Callable[[], Work]) -> str:
        """Return the name of the way of a work.

        Args:
            ways: Its ways, the guess first.
            describe: Returns the work.

        Raises:
            PlanError: the plan names another way than the work has.
        """
        name = self.plan.get(describe()) if self.plan else None
        known = [way.name for way in ways]
        if name is not None and name not in known:
            raise unknown_way(describe(), name, known)
        origin = "guessed" if name is None else "pinned"
        self._notes.append(_Note(describe, lambda: ways, name or known[0], origin))
        return name or known[0]

    def position(self) -> int:
        """Return the number of choices so far."""
        return len(self._notes)

    def reason(self, position: int, row: Row, guessed: str) -> str:
        """Return why a call of a row is a host call: as guessed, or by the plan."""
        pinned = has_alternatives(row) and self._notes[position].origin == "pinned"
        return "the plan says so" if pinned else guessed

    def refuse(self, position: int, row: Row, reason: str) -> None:
        """Note that a call of a row cannot be compiled in the way that was chosen.

        It has no other way than a host call. What its lowering chose meanwhile is forgotten.

        Raises:
            PlanError: the plan names the way.
        """
        note = self._notes[position] if has_alternatives(row) else None
        if note is not None and note.origin == "pinned":
            raise PlanError(
                f"compile: the plan says {note.way!r} for {note.describe()}, which cannot be "
                f"compiled so: {reason}; leave it out"
            )
        del self._notes[position:]

    def works_by_position(self) -> list[tuple[int, Work]]:
        """Return the works of rows with their positions among the choices."""
        return [(k, note.describe()) for k, note in enumerate(self._notes) if note.row]

    def rename(self, works: Mapping[int, Work]) -> None:
        """Describe choices for rows, by position, as works with lengths that vary."""
        for k, work in works.items():
            self._notes[k] = self._notes[k]._replace(describe=partial(_identity, work))

    def listing(self) -> list[Choice]:
        """Return the choices of all works, each once, in the order in which they were met."""
        found: dict[Work, Choice] = {}
        for note in self._notes:
            work = note.describe()
            if work not in found:
                found[work] = Choice(work, note.list_ways(), note.way, note.origin, note.call)
        return list(found.values())


def _identity(work: Work) -> Work:
    return work


def unknown_way(work: Work, name: str, known: Sequence[str]) -> PlanError:
    """Return the error for a way that a work does not have."""
    return PlanError(
        f"compile: the plan says {name!r} for {work}, which has no such way here; choose "
        f"{' or '.join(map(repr, known))}, or leave it out for the guess, {known[0]!r}"
    )
