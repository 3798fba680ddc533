"""Plans: which works of a program are computed in another way than the guess."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odyssey.checks import STUMBLES, format_value
from odyssey.compiler.ways.works import Work
from odyssey.errors import FormatError, SettingError

if TYPE_CHECKING:
    from odyssey.compiler.ways.alternatives import Choice

__all__ = ["NO_PLAN", "Plan", "all_plans", "check_plan", "plans"]

_FORMAT = "odyssey plan 1"


class Plan:
    """Ways of the works of a program, for those works that are not computed as guessed.

    Plans are immutable, equal if they choose alike, and hashable. ``step.plan(*args)`` returns the
    plan in use, ``od.plans(step, *args)`` all of them, and ``od.compile(fn, plan=plan)`` pins one.

    Args:
        ways: The name of a way for each work.

    Attributes:
        rows: The rows of its works.

    Raises:
        SettingError: a key is no ``Work``, or a value is no name.

    >>> import numpy as np
    >>> import odyssey as od
    >>> step = od.compile(lambda x: od.ops.softmax(x))
    >>> plan = list(od.plans(step, np.ones((2, 3))))[1]
    >>> print(plan)
    sum(float64[2, 3]; axis=(1,), keepdims=True): called
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    __slots__ = ("_ways", "rows")
    _ways: Mapping[Work, str]
    rows: frozenset[str]

    def __init__(self, ways: Mapping[Work, str] | Iterable[tuple[Work, str]] = ()) -> None:
        try:
            pairs = [(k, n) for k, n in (ways.items() if isinstance(ways, Mapping) else ways)]
        except STUMBLES:
            raise SettingError(
                f"Plan: {format_value(ways)} came; pass a dict of names of ways by Work"
            ) from None
        for work, name in pairs:
            if not isinstance(work, Work) or not isinstance(name, str) or not name:
                raise SettingError(
                    f"Plan: {format_value(work)}: {format_value(name)} came; pass names of ways by "
                    "Work, as od.plans and Plan.from_json give them"
                )
        object.__setattr__(self, "_ways", MappingProxyType(dict(sorted(pairs))))
        object.__setattr__(self, "rows", frozenset([work.row for work, _ in pairs]))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Plan: {name} cannot be set; with_way returns another plan")

    @property
    def differences(self) -> Mapping[Work, str]:
        """The name of the way for each work that is not computed as guessed."""
        return self._ways

    def get(self, work: Work) -> str | None:
        """Return the name of the way of a work; None for the guess."""
        return self._ways.get(work)

    def with_way(self, work: Work, name: str | None) -> Plan:
        """Return this plan with another way for a work; None for the guess."""
        others = {one: way for one, way in self._ways.items() if one != work}
        return Plan(others if name is None else {**others, work: name})

    def __len__(self) -> int:
        return len(self._ways)

    def __eq__(self, other: object) -> bool:
        return self._ways == other._ways if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._ways.items()))

    def __str__(self) -> str:
        """Format one line a work; ``the guess`` if there is none."""
        return "\n".join([f"{work}: {name}" for work, name in self._ways.items()]) or "the guess"

    def __repr__(self) -> str:
        return f"Plan({dict(self._ways)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan, (dict(self._ways),)

    def to_json(self) -> str:
        """Return the plan as JSON text, equal for equal plans."""
        import json

        works = [
            {"row": work.row, "specs": list(work.specs), "options": work.options, "way": name}
            for work, name in self._ways.items()
        ]
        return json.dumps({"format": _FORMAT, "works": works}, indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Return the plan of a JSON text.

        Raises:
            FormatError: the text is not the JSON of a plan.
        """
        import json

        try:
            read = json.loads(text)
            if read["format"] != _FORMAT:
                raise ValueError(f"its format is {format_value(read['format'])}, not {_FORMAT!r}")
            found = [_read_work(one) for one in read["works"]]
            plan = Plan(found)
            if len(plan) != len(found):
                raise ValueError("it names a work twice")
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else error
            raise FormatError(
                f"Plan.from_json: this is not the JSON of a plan: {why}; pass what to_json returned"
            ) from None
        return plan


def _read_work(one: Any) -> tuple[Work, str]:
    row, specs, options, way = one["row"], one["specs"], one["options"], one["way"]
    if not isinstance(specs, list) or not all(
        isinstance(text, str) for text in (row, options, way, *specs)
    ):
        raise ValueError(f"a work is {format_value(one)}")
    return Work(row, tuple(specs), options), way


NO_PLAN = Plan()
"""The guess for every work."""


def check_plan(who: str, plan: Any) -> Plan:
    """Return a plan that a user passed.

    Raises:
        SettingError: it is no plan.
    """
    if not isinstance(plan, Plan):
        raise SettingError(
            f"{who}: plan={format_value(plan)} is not a plan; pass what step.plan(*args), od.plans "
            "or Plan.from_json returned"
        )
    return plan


def all_plans(works_by: Callable[[Plan], Iterable[Choice]]) -> Iterator[Plan]:
    """Yield every valid plan once, the guess first.

    Args:
        works_by: Returns the works of the program by a plan, in the order in which they are met.
            Works before one do not depend on its way. It is called with a plan when the next is
            asked for.
    """
    stack = [(NO_PLAN, -1)]
    while stack:
        plan, last = stack.pop()
        yield plan
        met = list(works_by(plan))
        for k in range(last + 1, len(met)):
            others = [way.name for way in met[k].ways[1:]]
            stack += [(plan.with_way(met[k].work, name), k) for name in reversed(others)]


def plans(step: Any, /, *args: Any, **named: Any) -> Iterator[Plan]:
    """Yield every valid plan of a compiled function for such arguments, the guess first.

    A program with n works of two ways each has 2**n plans, so take what you need:
    ``itertools.islice(od.plans(step, x), 100)``. Nothing is compiled or run; a trace is made for
    the first plan, and the graph is lowered once for each.

    Args:
        step: A function that ``od.compile`` returned.
        args: Arguments as in a call; an ``od.Spec`` may stand for an array.
        named: Keyword arguments as in a call.

    Returns:
        An iterator over distinct plans. Each can be passed to ``od.compile(fn, plan=plan)``.

    Raises:
        SettingError: ``step`` is not compiled.

    >>> import numpy as np
    >>> import odyssey as od
    >>> step = od.compile(lambda x: od.ops.cumsum(x))
    >>> for plan in od.plans(step, np.ones(3)):
    ...     print(plan)
    the guess
    cumsum(float64[3]; axis=0): called
    cumsum(float64[3]; axis=0): lines side by side
    """
    works_by = getattr(step, "_works_by_plan", None)
    if works_by is None:
        raise SettingError(
            f"plans: {format_value(step)} came, which is not compiled; pass what od.compile returns"
        )
    return all_plans(works_by(args, named))
