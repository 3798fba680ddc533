"""``scan``: a loop over the first axis of arrays, run step by step or traced as one instruction."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import flag, function, shown, sort_of, whole
from odyssey.devices.arrays import ARRAY_LIKE, refuse_non_array
from odyssey.errors import DTypeError, ShapeError, TapeError
from odyssey.graph.subgraphs import Loop
from odyssey.graph.trace import Trace
from odyssey.spec import intern
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, store
from odyssey.table.value import Symbol, Value
from odyssey.transforms.call_nodes import home_of
from odyssey.transforms.control_flow.carries import Carry, Rows, own, spec_of_leaf
from odyssey.transforms.control_flow.derivatives import (
    Again,
    Part,
    flat_parts,
    follow,
    followed,
    moved_of,
    parts_of,
    pulled,
    pushed,
)
from odyssey.transforms.control_flow.tracing import (
    LIVE,
    Body,
    Flat,
    dressed,
    fill_like,
    freeze_closure,
    in_graph,
    kinds_of,
    present_arrays,
    spec_for,
    steady,
    trace_part,
    tracked_positions,
)
from odyssey.transforms.isolated_tapes import tape_apart
from odyssey.tree import leaves, paths, same_tree, unflatten
from odyssey.variable import Variable

__all__ = ["scan", "walk"]


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Call ``f(carry, x) -> (carry, y)`` for each ``x`` along the first axis of ``xs``.

    The loop ``for x in xs: carry, y = f(carry, x); ys.append(y)``, with arrays in the place of
    lists. Gradients of all orders, both modes, and what ``f`` closes over are as in that loop.
    ``od.compile`` makes one step of it, whatever the length, and a step of its derivative: where
    nobody reads the last carry, its cotangent of 0 meets what is infinite or NaN there, as NaN. A
    function whose step writes to Variables, or draws random numbers, runs as it was written.

    Args:
        f: A step. The carry that it returns has the tree, the shapes and the dtypes of the one
            that it was given; a Python number in ``init`` takes the dtype of what comes back.
        init: The first carry, an array or a tree of them.
        xs: A tree of arrays with one first axis in common; None for steps that are given None.
        length: The number of steps, which may be left out where there are ``xs``.
        reverse: Whether to go from the last step to the first. Each ``y`` stands where its ``x``
            stood.

    Returns:
        ``(carry, ys)``: the last carry, and the tree of ``y`` with a new first axis, in arrays of
        their own. Of no steps ``f`` is asked for the shapes of ``ys``, by a run on values that
        are not there.

    Raises:
        ShapeError: ``xs`` differ in length, or a carry or a ``y`` in shape or structure.
        DTypeError: a carry or a ``y`` changes its dtype.

    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> float(total), sums
    (6.0, array([1., 3., 6.]))
    """
    f, reverse = function("scan", f), flag("scan", "reverse", reverse)
    steps = _length(xs, length)
    if store() is not MEMORY:
        return _scan_in_graph(f, init, xs, steps, reverse)
    carry = Carry("scan", init)
    if not steps:
        return own(init), _of_no_steps(f, init, xs)
    columns, ys = leaves(xs), Rows(steps)
    for k in range(steps - 1, -1, -1) if reverse else range(steps):
        x = unflatten(xs, [None if column is None else column[k] for column in columns])
        after, y = _pair(f(carry.tree, x))
        carry.become(after, k)
        ys.put(k, y)
    return own(carry.tree), ys.stacked()


def _length(xs: Any, length: Any) -> int:
    """The number of steps of a scan."""
    if length is not None:
        length = whole("scan", "length", length, 0)
        if length > sys.maxsize:
            raise ShapeError(f"scan: length={shown(length)}; no range is as long")
    found, first = length, "length"
    for path, leaf in paths(xs, "xs"):
        if leaf is None:
            continue
        refuse_non_array("scan", path, leaf)
        if not isinstance(leaf, (Value, Symbol, *ARRAY_LIKE)):
            raise DTypeError(
                f"scan: {path} is {sort_of(leaf)}; pass an array whose first axis goes "
                "along the steps, as np.array(xs) makes one of a list"
            )
        if not leaf.shape:
            raise ShapeError(f"scan: {path} has no axes; its first must go along the steps")
        if found is not None and leaf.shape[0] != found:
            raise ShapeError(
                f"scan: {path} has {leaf.shape[0]} steps along its first axis, shape "
                f"{leaf.shape}, and {first} says {shown(found)}; all must have one length"
            )
        if found is None:
            found, first = int(leaf.shape[0]), path
    if found is None:
        raise ShapeError("scan: the number of steps is unknown; pass xs, or length")
    return int(found)


def _pair(result: Any) -> tuple[Any, Any]:
    """What a step of a scan returns."""
    if type(result) not in (tuple, list) or len(result) != 2:
        came = f"{len(result)} things" if type(result) in (tuple, list) else f"{shown(result)}"
        raise DTypeError(
            f"scan: f returned {came}; it must return a pair (carry, y), in which y may be None"
        )
    return result[0], result[1]


def _of_no_steps(f: Callable[..., Any], init: Any, xs: Any) -> Any:
    """The tree of ``ys`` of length 0, which a run on Symbols tells."""
    given = [None if c is None else np.empty(c.shape[1:], c.dtype) for c in leaves(xs)]
    trace = Trace()
    start = [v.detach() if isinstance(v, Variable) else v for v in leaves(init)]
    start = [np.asarray(v) if isinstance(v, np.generic) else v for v in start]
    try:
        _, y = _pair(
            trace.run(_on_isolated_tape(f), (unflatten(init, start), unflatten(xs, given)), {})
        )
        made = [_empty_of(leaf) for leaf in leaves(y)]
    except TapeError as error:
        raise ShapeError(
            "scan: there are no steps, and the shapes of ys cannot be found out, since f asks for "
            f"what only a step would tell ({error}); pass a step at least"
        ) from error
    finally:
        trace.close()
    return unflatten(y, made)


def _on_isolated_tape(f: Callable[..., Any]) -> Callable[..., Any]:
    """A step on a tape of its own, which takes what ``f`` closes over from other tapes.

    Else that would be recorded there, or refused by the tapes of derivatives in the step.
    """

    def run(*given: Any) -> Any:
        with tape_apart():
            return f(*given)

    return run


def _empty_of(leaf: Any) -> Any:
    spec = spec_of_leaf("scan", "y", leaf)
    return None if spec is None else np.empty((0, *spec.shape), spec.dtype)


def _scan_in_graph(
    f: Callable[..., Any], init: Any, xs: Any, steps: int, reverse: bool
) -> tuple[Any, Any]:
    flat, columns = leaves(init), leaves(xs)
    trees: list[Any] = []
    count = len(flat)

    def step_of(f: Callable[..., Any]) -> Body:
        def step(values: list[Any]) -> list[Any]:
            after, y = _pair(f(unflatten(init, values[:count]), unflatten(xs, values[count:])))
            trees.append(y)
            return list(map(in_graph, [*same_tree("scan", "carry", init, after), *leaves(y)]))

        return step

    step, again = step_of(f), step_of(freeze_closure(f))
    if not steps:
        with no_grad():
            rows = [c if c is None else intern(c.shape[1:], c.dtype) for c in columns]
            made = trace_part(
                step_of(_on_isolated_tape(f)),
                [*flat, *rows],
                kinds_of(None, [*flat, *columns]),
                None,
            )
        init = unflatten(init, list(map(in_graph, flat)))
        return own(init), unflatten(trees[0], [_empty_of(leaf) for leaf in made.outputs[count:]])
    carry, ys = walk(step, flat, columns, steps, reverse, again)
    return unflatten(init, carry), unflatten(trees[0], ys)


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
        again: The body that derivatives run, if it is another; see ``freeze_closure``.
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
            "scan",
            (graph,),
            len(symbols),
            len(present_arrays(self.columns)),
            self.steps,
            self.reverse,
        )
        trace: Any = store()
        made = list(trace.bind(loop, [*present_arrays(self.init), *present_arrays(self.columns)]))
        results = fill_like(made, self.outs)
        # What each step was given.
        self.before = fill_like(made[len(made) - len(before) :], self.init) if live else []
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
        self.tracked = tracked_positions(everything, self.kinds)
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
