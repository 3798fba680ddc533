"""Loops and branches while a graph is traced: one instruction, whose parts are traced once.

The derivative of one is another, of the derivative of its parts, and is traced in the same way; so
derivatives of every order follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, NotDifferentiableError, ShapeError
from odyssey.graph.parts import Loop
from odyssey.spec import intern
from odyssey.table.scope import no_grad
from odyssey.table.store import store
from odyssey.table.value import NUMBERS, is_tracked
from odyssey.transforms.calls import home_of
from odyssey.transforms.traced_parts import (
    FIXED,
    LIVE,
    Body,
    Flat,
    Traced,
    array_for,
    dressed,
    dtype_of,
    is_number,
    kinds_of,
    spec_for,
    steady,
    trace_part,
)
from odyssey.transforms.traced_rules import (
    Again,
    Part,
    Rule,
    flat_parts,
    follow,
    followed,
    moved_of,
    parts_of,
    pulled,
    pushed,
)
from odyssey.variable import Variable

__all__ = ["branch", "repeat", "walk"]


def _tracked(values: Flat, kinds: Sequence[int]) -> list[int]:
    """The places of what a tape follows from outside."""
    return [
        k
        for k, (v, kind) in enumerate(zip(values, kinds, strict=True))
        if kind == LIVE and isinstance(v, Variable) and is_tracked(v)
    ]


def _there(values: Flat) -> list[Any]:
    return [array_for(v) for v in values if v is not None]


def _spread(values: Sequence[Any], like: Sequence[Any]) -> Flat:
    """Values at the places where ``like`` is not None."""
    supply = iter(values)
    return [None if one is None else next(supply) for one in like]


# ------------------------------------------------------------------ scan


def walk(
    body: Body,
    init: Flat,
    columns: Flat,
    steps: int,
    reverse: bool,
    again: Body | None = None,
) -> tuple[Flat, Flat]:
    """The loop of a scan.

    Args:
        body: From the carry and a part of each column to the next carry and results.
        init: The first carry.
        columns: Arrays whose first axis goes along the steps; or None.
        steps: How many there are, one at least.
        reverse: Whether to begin with the last.
        again: The body that derivatives run, if it is another; see ``as_it_is``.
    """
    return _Walk(body, init, columns, steps, reverse, again).run()


class _Walk:
    def __init__(
        self,
        body: Body,
        init: Flat,
        columns: Flat,
        steps: int,
        reverse: bool,
        again: Body | None,
    ) -> None:
        self.columns, self.steps, self.reverse = columns, steps, reverse
        self.recording = home_of("scan", [*init, *columns])
        self.count = count = len(init)
        specs = [c if c is None else spec_for(c) for c in columns]
        operands = [*init, *[s and intern(s.shape[1:], s.dtype) for s in specs]]
        kinds = kinds_of(self.recording, [*init, *columns])
        self.traced, operands, self.kinds = steady(
            "scan", body, operands, kinds, count, self.recording
        )
        self.init = operands[:count]
        self.outs = self.traced.outputs
        self.again = again or body

    def run(self) -> tuple[Flat, Flat]:
        count, traced = self.count, self.traced
        live = [k for k, kind in enumerate(traced.kinds) if kind == LIVE]
        symbols = [s for s in traced.symbols[:count] if s is not None]
        before = symbols if live else []
        graph = traced.graph(before)
        loop = Loop(
            "scan", (graph,), len(symbols), len(_there(self.columns)), self.steps, self.reverse
        )
        trace: Any = store()
        made = list(trace.bind(loop, [*_there(self.init), *_there(self.columns)]))
        results = _spread(made, self.outs)
        # What each step was given.
        self.before = _spread(made[len(made) - len(before) :], self.init) if live else []
        if live:
            self._record(live, results)
        found = list(map(dressed, results, traced.kinds))
        return found[:count], found[count:]

    def _record(self, live: list[int], results: Flat) -> None:
        """Put the loop on the recording; results that it follows become Variables there."""
        self.live = live
        self.part = Again("scan", self.again, self.kinds, self.traced.signature())
        self.carried = [k for k in range(self.count) if self.kinds[k] == LIVE]
        everything = [*self.init, *self.columns]
        self.tracked = _tracked(everything, self.kinds)
        self.ids = list(self.traced.sources)
        inputs = [*[everything[k] for k in self.tracked], *self.traced.sources.values()]
        arrays = [*[results[k] for k in live], *[self.before[k] for k in self.carried]]
        rules = self._pull, self._push
        made = followed("scan", self.recording, inputs, arrays, rules, [self.traced])
        for k, value in zip(live, made, strict=False):
            results[k] = value
        self.plain = list(self.before)
        for k, value in zip(self.carried, made[len(live) :], strict=True):
            self.before[k] = value

    def _now(self, given: Sequence[Any]) -> Flat:
        """First carry and columns as the sweep gives them."""
        values = [*self.init, *self.columns]
        for k, value in zip(self.tracked, given, strict=False):
            values[k] = value
        return values

    def _pull(self, parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
        count, carried, live = self.count, self.carried, self.live
        follows = follow({j: p.value for j, p in parts.items()}, given)
        before = self.before if follows else self.plain
        columns = self._now(given)[count:]
        asked = [k for k in range(len(self.kinds)) if self.kinds[k] == LIVE and k >= count]
        seeds = {live[j]: p for j, p in parts.items() if j < len(live)}
        # Those of what each step was given, which derivatives of this loop depend on.
        inner = {carried[j - len(live)]: p for j, p in parts.items() if j >= len(live)}
        rows = [k for k in seeds if k >= count]
        size, width = len(carried), len(before) + len(columns)
        wide = (size + len(self.ids)) * (1 + masked)

        def back(values: Flat) -> Flat:
            ends, rest = parts_of(values[:wide], masked), values[wide:]
            more = dict(zip([*rows, *inner], parts_of(rest[width:], masked), strict=True))
            gs = {k: more[k] for k in rows}
            gs |= {k: p for k, p in zip(carried, ends, strict=False) if k in live}
            sums = dict(zip(self.ids, ends[size:], strict=True))
            found, totals = pulled(self.part, rest[:width], gs, sums, masked)
            for k in inner:
                found[k] = Part.of(found[k].value + more[k].value, None, masked)
            starts = flat_parts([*[found[k] for k in carried], *totals], masked)
            return [*starts, *flat_parts([found[k] for k in asked], masked)]

        starts = [seeds.get(k) or Part.nothing(self.init[k], masked) for k in carried]
        starts += [Part.nothing(v, masked) for v in self.traced.sources.values()]
        along = flat_parts([*[seeds[k] for k in rows], *inner.values()], masked)
        ends, made = walk(
            back, flat_parts(starts, masked), [*before, *columns, *along], self.steps,
            not self.reverse,
        )  # fmt: skip
        found, asked_parts = parts_of(ends, masked), parts_of(made, masked)
        answers = dict(zip([*carried, *asked], [*found[:size], *asked_parts], strict=True))
        return [*[answers[k] for k in self.tracked], *found[size:]]

    def _push(self, parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
        count, carried = self.count, self.carried
        values = self._now(given)
        moved, others = moved_of(parts, self.tracked, self.ids)
        along = [k for k in moved if k >= count]
        rows = [k for k in self.live if k >= count]
        size, width = len(carried) * (1 + masked), len(values) - count

        def on(values: Flat) -> Flat:
            carry, ends, rest = values[:count], values[count : count + size], values[count + size :]
            now = parts_of(ends, masked)
            ts = [*now, *parts_of(rest[width:], masked)]
            tangents = dict(zip([*carried, *along], ts, strict=True))
            outputs, found = pushed(self.part, [*carry, *rest[:width]], tangents, others, masked)
            after = flat_parts([found[k] for k in carried], masked)
            return [
                *outputs[:count],
                *after,
                *flat_parts([*[found[k] for k in rows], *now], masked),
            ]

        starts = [moved.get(k) or Part.nothing(self.init[k], masked) for k in carried]
        columns = [*values[count:], *flat_parts([moved[k] for k in along], masked)]
        begin = [*values[:count], *flat_parts(starts, masked)]
        ends, made = walk(on, begin, columns, self.steps, self.reverse)
        results = parts_of(made, masked)
        found = dict(
            zip([*carried, *rows], [*parts_of(ends[count:], masked), *results], strict=False)
        )
        return [*[found[k] for k in self.live], *results[len(rows) :]]


# ------------------------------------------------------------------ cond


def branch(
    pred: Any, bodies: Sequence[Body], operands: Flat, again: Sequence[Body] | None = None
) -> Flat:
    """One of two parts, by a scalar of the graph; ``again`` as ``walk`` takes it."""
    recording = home_of("cond", operands)
    kinds = kinds_of(recording, operands)
    traced = [trace_part(body, operands, kinds, recording) for body in bodies]
    outputs = _agreed(traced)
    joined = list(map(max, *[t.kinds for t in traced]))
    parts = tuple(t._replace(outputs=o).graph() for t, o in zip(traced, outputs, strict=True))
    given = [o for o in operands if not is_number(o)]
    trace: Any = store()
    made = trace.bind(Loop("cond", parts), [array_for(pred), *_there(given)])
    results = _spread(made, outputs[0])
    live = [k for k, kind in enumerate(joined) if kind == LIVE]
    if live:
        sources = traced[0].sources | traced[1].sources
        halves = [
            Again("cond", body, kinds, t.signature())
            for body, t in zip(again or bodies, traced, strict=True)
        ]
        rules = _rules_of_branches(pred, halves, operands, sources, live)
        inputs = [*[operands[k] for k in _tracked(operands, kinds)], *sources.values()]
        arrays = [results[k] for k in live]
        made = followed("cond", recording, inputs, arrays, rules, traced)
        for k, value in zip(live, made, strict=True):
            results[k] = value
    return list(map(dressed, results, joined))


def _agreed(traced: Sequence[Traced]) -> list[Flat]:
    """The outputs of two branches, which have the same specs."""
    found: list[Flat] = [[], []]
    for k, pair in enumerate(zip(*[t.outputs for t in traced], strict=True)):
        if any(o is None for o in pair):
            if any(o is not None for o in pair):
                raise ShapeError(f"cond: leaf {k} is None in one branch, and not in the other")
            values = list(pair)
        else:
            # Of themselves, as uncompiled, where the other branch is not known.
            values = [np.asarray(v) if type(v) in NUMBERS else v for v in pair]
            specs = [spec_for(array_for(v)) for v in values]
            if specs[0] != specs[1]:
                kind = DTypeError if specs[0].shape == specs[1].shape else ShapeError
                raise kind(
                    f"cond: leaf {k} is {specs[0]} in true_fn, and {specs[1]} in false_fn; both "
                    "must give the same"
                )
        for one, value in zip(found, values, strict=True):
            one.append(value)
    return found


def _rules_of_branches(
    pred: Any,
    halves: Sequence[Again],
    operands: Flat,
    sources: dict[int, Any],
    live: Sequence[int],
) -> tuple[Rule, Rule]:
    tracked = _tracked(operands, halves[0].kinds)
    count = len(operands)

    def now(given: Sequence[Any]) -> Flat:
        values = list(operands)
        for k, value in zip(tracked, given, strict=False):
            values[k] = value
        return values

    def backward(parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
        def back(half: Again) -> Body:
            def run(values: Flat) -> Flat:
                gs = parts_of(values[count:], masked)
                seeds = {live[j]: p for j, p in zip(parts, gs, strict=True)}
                sums = {id: Part.nothing(v, masked) for id, v in sources.items()}
                found, totals = pulled(half, values[:count], seeds, sums, masked)
                return flat_parts([*[found[k] for k in tracked], *totals], masked)

            return run

        given_back = [*now(given), *flat_parts(parts.values(), masked)]
        return parts_of(branch(pred, list(map(back, halves)), given_back), masked)

    def forward(parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
        def on(half: Again) -> Body:
            def run(values: Flat) -> Flat:
                ts = dict(zip(parts, parts_of(values[count:], masked), strict=True))
                tangents, others = moved_of(ts, tracked, list(sources))
                _, found = pushed(half, values[:count], tangents, others, masked)
                return flat_parts([found[k] for k in live], masked)

            return run

        given_on = [*now(given), *flat_parts(parts.values(), masked)]
        return parts_of(branch(pred, list(map(on, halves)), given_on), masked)

    return backward, forward


# ------------------------------------------------------------------ while_loop


def repeat(ask: Body, body: Body, init: Flat, again: Sequence[Body] | None = None) -> Flat:
    """The loop of a ``while_loop``; ``ask`` gives a list of one truth, ``again`` as in ``walk``."""
    recording = home_of("while_loop", init)
    kinds = kinds_of(recording, init)
    given = init
    traced, init, kinds = steady("while_loop", body, init, kinds, len(init), recording)
    for one, other in zip(given, init, strict=True):
        if is_number(one) and dtype_of(one) != spec_for(other).dtype:
            raise DTypeError(
                f"while_loop: {one!r} becomes {other.dtype}, and stays what it is where there are "
                f"no steps; pass np.{other.dtype}({one!r})"
            )
    still = [min(kind, FIXED) if kind == LIVE else kind for kind in kinds]
    with no_grad():
        asked = trace_part(ask, init, still, None)
    trace: Any = store()
    loop = Loop("while_loop", (asked.graph(), traced.graph()), len(_there(init)))
    results = _spread(trace.bind(loop, _there(init)), init)
    live = [k for k, kind in enumerate(kinds) if kind == LIVE]
    if live:
        tracked, ids = _tracked(init, kinds), list(traced.sources)
        asks, body = again or (ask, body)
        step = Again("while_loop", body, kinds, traced.signature())
        question = Again("while_loop", asks, still, asked.signature())
        inputs = [*[init[k] for k in tracked], *traced.sources.values()]

        def forward(parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
            values = list(init)
            for k, value in zip(tracked, given, strict=False):
                values[k] = value
            moved, others = moved_of(parts, tracked, ids)
            count = len(values)

            def on(values: Flat) -> Flat:
                tangents = dict(zip(live, parts_of(values[count:], masked), strict=True))
                outputs, found = pushed(step, values[:count], tangents, others, masked)
                return [*outputs, *flat_parts([found[k] for k in live], masked)]

            starts = [moved.get(k) or Part.nothing(init[k], masked) for k in live]
            begin = [*values, *flat_parts(starts, masked)]
            return parts_of(repeat(lambda v: question.called(v[:count]), on, begin)[count:], masked)

        arrays = [results[k] for k in live]
        rules = _no_way_back, forward
        made = followed("while_loop", recording, inputs, arrays, rules, [traced])
        for k, value in zip(live, made, strict=True):
            results[k] = value
    return list(map(dressed, results, kinds))


def _no_way_back(parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
    raise NotDifferentiableError(
        "while_loop: a graph has no reverse derivative of it, since how many steps must be kept is "
        "known only when it runs; use scan, or forward mode"
    )
