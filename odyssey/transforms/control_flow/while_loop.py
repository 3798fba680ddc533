"""``while_loop``: a loop with a condition, run step by step or traced as one instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odyssey.checks import check_callable, user_line
from odyssey.errors import DTypeError, NotDifferentiableError, TapeError
from odyssey.graph.batch_trace import BatchTrace, differs_by_example
from odyssey.graph.subgraphs import Loop
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, store
from odyssey.transforms.call_nodes import recording_for
from odyssey.transforms.control_flow.carries import Carry, exclusive_results
from odyssey.transforms.control_flow.derivatives import (
    MaskedDerivative,
    ReplayedBody,
    body_jvp,
    flatten_derivatives,
    record_results,
    split_tangents,
    unflatten_derivatives,
)
from odyssey.transforms.control_flow.programs import FEWEST_STEPS_DONE, program_runner
from odyssey.transforms.control_flow.tracing import (
    FIXED,
    LIVE,
    Body,
    Flat,
    body_outside,
    concrete_symbol,
    dtype_of,
    fill_like,
    freeze_closure,
    is_number,
    kinds_of,
    present_arrays,
    scalar_condition,
    spec_or_number,
    trace_body,
    trace_until_stable,
    tracked_positions,
    wrap_variable,
)
from odyssey.tree import leaves, same_tree, unflatten

__all__ = ["traced_while", "while_loop"]


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """Call ``body_fun`` on what it returned before, as long as ``cond_fun`` of that is true.

    The loop ``while cond_fun(value): value = body_fun(value)``. In a compiled function it runs as
    long as the arguments say; it has forward derivatives there, and a function that sweeps it
    backward runs as it was written. Outside of ``od.compile`` a loop that no tape records, and that
    takes longer than a compilation would, goes on by a program, from some power of two of its steps
    on; see ``scan``.

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
    check_callable("while_loop", cond_fun)
    check_callable("while_loop", body_fun)
    if store().traces:
        return _while_symbolically(cond_fun, body_fun, init_val)
    return _while_eagerly(cond_fun, body_fun, init_val)


def _while_eagerly(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    carry, k = Carry("while_loop", init_val), 0
    while _condition(cond_fun(carry.tree)):
        carry.advance(body_fun(carry.tree), k)
        k += 1
        # Now and then, as nobody knows how many steps are to come: as many as were, at a guess.
        if k >= FEWEST_STEPS_DONE and not k & (k - 1) and store() is MEMORY:
            found = _rest_by_program(cond_fun, body_fun, carry.tree, k)
            if found is not None:
                return found[0]
    return exclusive_results(carry.tree)


def _condition(value: Any) -> Any:
    """Return the result of the condition as a bool or Symbol; raise if examples differ in it."""
    truth = scalar_condition("while_loop", "the result of cond_fun", value)
    if differs_by_example(truth):
        raise TapeError(
            f"while_loop: the result of cond_fun, {value!r}, is another for each example of vmap, "
            "and all examples take the same steps; use scan with a number of steps that is enough "
            "for all, in which ops.where(condition, new, old) keeps the values of those that are "
            f"done ({user_line()})"
        )
    return truth


def _rest_by_program(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], value: Any, steps: int
) -> tuple[Any] | None:
    """Run the steps to come by a program; None where there is none.

    Args:
        cond_fun: The condition.
        body_fun: The step.
        value: What the steps until now returned.
        steps: Their number.
    """
    fns = cond_fun, body_fun
    frozen = [freeze_closure(fn) for fn in fns]

    def body(values: Flat) -> Flat:
        run = _while_symbolically if store().traces else _while_eagerly
        return leaves(run(frozen[0], frozen[1], unflatten(value, values)))

    made = program_runner()("while_loop", fns, body, leaves(value), steps, sweeps=False)
    return None if made is None else (unflatten(value, made),)


def _while_symbolically(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any
) -> Any:
    def condition_of(fn: Callable[[Any], Any]) -> Body:
        return lambda values: [_condition(fn(unflatten(init, values)))]

    def step_of(fn: Callable[[Any], Any]) -> Body:
        def step(values: list[Any]) -> list[Any]:
            after = fn(unflatten(init, values))
            return list(map(concrete_symbol, same_tree("while_loop", "carry", init, after)))

        return step

    replay_bodies = condition_of(freeze_closure(cond_fun)), step_of(freeze_closure(body_fun))
    return unflatten(
        init, traced_while(condition_of(cond_fun), step_of(body_fun), leaves(init), replay_bodies)
    )


def traced_while(
    condition: Body, body: Body, init: Flat, replay_bodies: Sequence[Body] | None = None
) -> Flat:
    """Trace a while loop as one instruction.

    ``condition`` returns a list of one boolean; for ``replay_bodies`` see ``traced_scan``.
    """
    init = list(store().localize(init))
    recording = recording_for("while_loop", init)
    kinds = kinds_of(recording, init)
    given = init
    traced, init, kinds = trace_until_stable("while_loop", body, init, kinds, len(init), recording)
    for one, other in zip(given, init, strict=True):
        if is_number(one) and dtype_of(one) != spec_or_number(other).dtype:
            raise DTypeError(
                f"while_loop: {one!r} becomes {other.dtype}, but stays as it is if there are no "
                f"steps; pass np.{other.dtype}({one!r})"
            )
    untracked_kinds = [min(kind, FIXED) if kind == LIVE else kind for kind in kinds]
    with no_grad():
        traced_condition = trace_body(
            condition, init, untracked_kinds, None, batches=traced.batches[0]
        )
    trace: Any = store()
    if type(trace) is BatchTrace:
        batches = traced.batches[0]
        outside = [
            body_outside(trace, condition, untracked_kinds, None, (batches, [()])),
            body_outside(trace, body, kinds, recording, (batches, batches)),
        ]
        payloads = [trace.payload_with(v, b[0]) for v, b in zip(init, batches, strict=True)]
        made = trace.compute_outside(traced_while, *outside, payloads)
        results: Flat = [
            None if payload is None else trace.wrap(payload, b[0])
            for payload, b in zip(made, batches, strict=True)
        ]
    else:
        graphs = traced_condition.graph(), traced.graph()
        loop = Loop("while_loop", graphs, len(present_arrays(init)))
        results = fill_like(trace.emit_loop(loop, present_arrays(init)), init)
    live = [k for k, kind in enumerate(kinds) if kind == LIVE]
    if live:
        tracked, ids = tracked_positions(init, kinds), list(traced.sources)
        replay_condition, body = replay_bodies or (condition, body)
        step = ReplayedBody.of("while_loop", body, kinds, traced)
        condition_body = ReplayedBody.of(
            "while_loop", replay_condition, untracked_kinds, traced_condition
        )
        inputs = [*[init[k] for k in tracked], *traced.sources.values()]

        def forward(
            derivatives: dict[int, MaskedDerivative], given: Sequence[Any], masked: bool
        ) -> list[MaskedDerivative]:
            values = list(init)
            for k, value in zip(tracked, given, strict=False):
                values[k] = value
            moved, others = split_tangents(derivatives, tracked, ids)
            count = len(values)

            def forward_step(values: Flat) -> Flat:
                tangents = dict(
                    zip(live, unflatten_derivatives(values[count:], masked), strict=True)
                )
                outputs, found = body_jvp(step, values[:count], tangents, others, masked)
                return [*outputs, *flatten_derivatives([found[k] for k in live], masked)]

            starts = [moved.get(k) or MaskedDerivative.zero(init[k], masked) for k in live]
            begin = [*values, *flatten_derivatives(starts, masked)]
            return unflatten_derivatives(
                traced_while(
                    lambda v: condition_body.spread_and_call(v[:count]), forward_step, begin
                )[count:],
                masked,
            )

        arrays = [results[k] for k in live]
        rules = _refuse_reverse_mode, forward
        made = record_results("while_loop", recording, inputs, arrays, rules, [traced])
        for k, value in zip(live, made, strict=True):
            results[k] = value
    return list(map(wrap_variable, results, kinds))


def _refuse_reverse_mode(
    derivatives: dict[int, MaskedDerivative], given: Sequence[Any], masked: bool
) -> list[MaskedDerivative]:
    """Raise NotDifferentiableError: a traced while loop has no reverse derivative."""
    raise NotDifferentiableError(
        "while_loop: a graph has no reverse derivative of it, since how many steps must be kept is "
        "known only when it runs; use scan, or forward mode"
    )
