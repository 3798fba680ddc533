"""Loops and branches as functions: ``scan``, ``cond``, ``while_loop``.

Where a function is simply run they are Python's ``for``, ``if`` and ``while``, and what happens
inside is recorded as if it had been written out. While a graph is traced they are one instruction
each, see ``traced_loops``: a compiled loop stays a loop, whatever its length, and a compiled branch
is chosen when it runs. They have the names and the meaning of JAX's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CellType, FunctionType
from typing import Any

import numpy as np

from odyssey.checks import flag, function, shown, sort_of, whole
from odyssey.devices.arrays import ARRAY_LIKE, refuse
from odyssey.errors import DTypeError, ShapeError, TapeError
from odyssey.graph.trace import Trace
from odyssey.spec import intern
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, store
from odyssey.table.value import NUMBERS, Symbol, Value
from odyssey.transforms.carries import Carry, Rows, own, spec_of_leaf
from odyssey.transforms.segments import tape_apart
from odyssey.transforms.traced_loops import branch, repeat, walk
from odyssey.transforms.traced_parts import Body, in_graph, kinds_of, trace_part
from odyssey.tree import leaves, paths, same_tree, unflatten
from odyssey.variable import Variable

__all__ = ["cond", "scan", "while_loop"]


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


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """Return ``true_fn(*operands)`` where ``pred`` is true, else ``false_fn(*operands)``.

    Only the one that is chosen runs. In a compiled function ``pred`` may depend on the arguments,
    which Python's ``if`` refuses; both are traced then, and must give the same.

    Args:
        pred: A truth or a number, as a scalar.
        true_fn: A function of the operands.
        false_fn: Another, with a result of the same tree, shapes and dtypes.
        operands: What they are given.

    Returns:
        What the function returned, in arrays of its own; Python's numbers are NumPy's.

    Raises:
        ShapeError: ``pred`` is no scalar. DTypeError: it is neither a truth nor a number.

    >>> float(cond(np.array(2.0) > 1.0, lambda x: x + 1.0, lambda x: x * 0.0, 5.0))
    6.0
    """
    function("cond", true_fn)
    function("cond", false_fn)
    truth = _truth("cond", "pred", pred)
    if isinstance(truth, Symbol):
        return _branch_in_graph(truth, (true_fn, false_fn), operands)
    return own((true_fn if truth else false_fn)(*operands))


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
    while _truth("while_loop", "the result of cond_fun", cond_fun(carry.tree)):
        carry.become(body_fun(carry.tree), k)
        k += 1
    return own(carry.tree)


# ------------------------------------------------------------------ what came


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
        refuse("scan", path, leaf)
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


def _truth(who: str, what: str, value: Any) -> Any:
    """What a condition says, a bool or a Symbol; raises for what is no scalar truth or number."""
    data = store().operand(value) if isinstance(value, Value) else in_graph(value)
    if type(data) in NUMBERS and type(data) is not complex:
        return bool(data)
    if not isinstance(data, (Symbol, *ARRAY_LIKE)):
        raise DTypeError(f"{who}: {what} is {shown(value)}; it must be a truth or a number")
    if data.shape:
        raise ShapeError(
            f"{who}: {what} has shape {data.shape}; it must be a scalar, as ops.all or ops.any "
            "make one of an array"
        )
    if data.dtype.kind not in "biuf":
        raise DTypeError(f"{who}: {what} is {data.dtype}; it must be a truth or a number")
    return data if isinstance(data, Symbol) else bool(data)


def _pair(result: Any) -> tuple[Any, Any]:
    """What a step of a scan returns."""
    if type(result) not in (tuple, list) or len(result) != 2:
        came = f"{len(result)} things" if type(result) in (tuple, list) else f"{shown(result)}"
        raise DTypeError(
            f"scan: f returned {came}; it must return a pair (carry, y), in which y may be None"
        )
    return result[0], result[1]


# ------------------------------------------------------------------ no steps


def _of_no_steps(f: Callable[..., Any], init: Any, xs: Any) -> Any:
    """The tree of ``ys`` of length 0, which a run on Symbols tells."""
    given = [None if c is None else np.empty(c.shape[1:], c.dtype) for c in leaves(xs)]
    trace = Trace()
    start = [v.detach() if isinstance(v, Variable) else v for v in leaves(init)]
    start = [np.asarray(v) if isinstance(v, np.generic) else v for v in start]
    try:
        _, y = _pair(trace.run(_apart(f), (unflatten(init, start), unflatten(xs, given)), {}))
        made = [_empty_of(leaf) for leaf in leaves(y)]
    except TapeError as error:
        raise ShapeError(
            "scan: there are no steps, and the shapes of ys cannot be found out, since f asks for "
            f"what only a step would tell ({error}); pass a step at least"
        ) from error
    finally:
        trace.close()
    return unflatten(y, made)


def _apart(f: Callable[..., Any]) -> Callable[..., Any]:
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


# ------------------------------------------------------------------ while a graph is traced


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

    step, again = step_of(f), step_of(as_it_is(f))
    if not steps:
        with no_grad():
            rows = [c if c is None else intern(c.shape[1:], c.dtype) for c in columns]
            made = trace_part(
                step_of(_apart(f)), [*flat, *rows], kinds_of(None, [*flat, *columns]), None
            )
        init = unflatten(init, list(map(in_graph, flat)))
        return own(init), unflatten(trees[0], [_empty_of(leaf) for leaf in made.outputs[count:]])
    carry, ys = walk(step, flat, columns, steps, reverse, again)
    return unflatten(init, carry), unflatten(trees[0], ys)


def _branch_in_graph(pred: Any, functions: Sequence[Callable[..., Any]], operands: Any) -> Any:
    trees: list[Any] = []

    def branch_of(fn: Callable[..., Any]) -> Body:
        def run(values: list[Any]) -> list[Any]:
            result = fn(*unflatten(operands, values))
            trees.append(result)
            return list(map(in_graph, same_tree("cond", "result of false_fn", trees[0], result)))

        return run

    again = [branch_of(as_it_is(fn)) for fn in functions]
    made = branch(pred, list(map(branch_of, functions)), leaves(operands), again)
    return unflatten(trees[0], made)


def _loop_in_graph(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any
) -> Any:
    def ask_of(fn: Callable[[Any], Any]) -> Body:
        what = "the result of cond_fun"
        return lambda values: [_truth("while_loop", what, fn(unflatten(init, values)))]

    def step_of(fn: Callable[[Any], Any]) -> Body:
        def step(values: list[Any]) -> list[Any]:
            after = fn(unflatten(init, values))
            return list(map(in_graph, same_tree("while_loop", "carry", init, after)))

        return step

    again = ask_of(as_it_is(cond_fun)), step_of(as_it_is(body_fun))
    return unflatten(init, repeat(ask_of(cond_fun), step_of(body_fun), leaves(init), again))


def as_it_is(fn: Any, known: dict[int, Any] | None = None) -> Any:
    """A function with what it closes over now, whatever its names are bound to later.

    So do the functions that it closes over. Derivatives run it when a loop around the call, for
    instance one over layers, has bound them anew.
    """
    if type(fn) is not FunctionType or not fn.__closure__:
        return fn
    known = {} if known is None else known
    if id(fn) in known:
        return known[id(fn)]
    cells = tuple(CellType() for _ in fn.__closure__)
    made = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    made.__kwdefaults__ = fn.__kwdefaults__
    known[id(fn)] = made
    for cell, new in zip(fn.__closure__, cells, strict=True):
        with suppress(ValueError):  # a name that was not bound yet
            new.cell_contents = as_it_is(cell.cell_contents, known)
    return made
