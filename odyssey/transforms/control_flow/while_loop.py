"""``while_loop``: a loop with a condition, run step by step or traced as one instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odyssey.checks import function
from odyssey.errors import DTypeError, NotDifferentiableError
from odyssey.graph.subgraphs import Loop
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, store
from odyssey.transforms.call_nodes import home_of
from odyssey.transforms.control_flow.carries import Carry, own
from odyssey.transforms.control_flow.derivatives import (
    Again,
    Part,
    flat_parts,
    followed,
    moved_of,
    parts_of,
    pushed,
)
from odyssey.transforms.control_flow.tracing import (
    FIXED,
    LIVE,
    Body,
    Flat,
    dressed,
    dtype_of,
    fill_like,
    freeze_closure,
    in_graph,
    is_number,
    kinds_of,
    present_arrays,
    scalar_condition,
    spec_for,
    steady,
    trace_part,
    tracked_positions,
)
from odyssey.tree import leaves, same_tree, unflatten

__all__ = ["repeat", "while_loop"]


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """Call ``body_fun`` on what it returned before, as long as ``cond_fun`` of that is true.

    The loop ``while cond_fun(value): value = body_fun(value)``. In a compiled function it runs as
    long as the arguments say; it has forward derivatives there, and a function that sweeps it
    backward runs as it was written.

    Args:
        cond_fun: A function of the value that returns a truth, as a scalar.
        body_fun: A step. What it returns has the tree, the shapes and the dtypes of what it was
            given; a Python number in ``init_val`` takes the dtype of what comes back.
        init_val: The first value, an array or a tree of them.

    Returns:
        The first value for which ``cond_fun`` is false, in arrays of its own.

    Raises:
        ShapeError, DTypeError: the value changes its tree, shape or dtype, or ``cond_fun`` returns
            no scalar truth.

    >>> int(while_loop(lambda n: n < 100, lambda n: n * 2, 3))
    192
    """
    function("while_loop", cond_fun)
    function("while_loop", body_fun)
    if store() is not MEMORY:
        return _loop_in_graph(cond_fun, body_fun, init_val)
    carry, k = Carry("while_loop", init_val), 0
    while scalar_condition("while_loop", "the result of cond_fun", cond_fun(carry.tree)):
        carry.become(body_fun(carry.tree), k)
        k += 1
    return own(carry.tree)


def _loop_in_graph(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any
) -> Any:
    def ask_of(fn: Callable[[Any], Any]) -> Body:
        what = "the result of cond_fun"
        return lambda values: [scalar_condition("while_loop", what, fn(unflatten(init, values)))]

    def step_of(fn: Callable[[Any], Any]) -> Body:
        def step(values: list[Any]) -> list[Any]:
            after = fn(unflatten(init, values))
            return list(map(in_graph, same_tree("while_loop", "carry", init, after)))

        return step

    again = ask_of(freeze_closure(cond_fun)), step_of(freeze_closure(body_fun))
    return unflatten(init, repeat(ask_of(cond_fun), step_of(body_fun), leaves(init), again))


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
    loop = Loop("while_loop", (asked.graph(), traced.graph()), len(present_arrays(init)))
    results = fill_like(trace.bind(loop, present_arrays(init)), init)
    live = [k for k, kind in enumerate(kinds) if kind == LIVE]
    if live:
        tracked, ids = tracked_positions(init, kinds), list(traced.sources)
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
