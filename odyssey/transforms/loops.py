"""Loops and branches as functions: ``scan``, ``cond``, ``while_loop``.

Where a function is simply run they are Python's ``for``, ``if`` and ``while``, and what happens
inside is recorded as if it had been written out. They have the names and the meaning of JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import flag, function, shown, whole
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.errors import DTypeError, OdysseyError, ShapeError, TapeError
from odyssey.graph.trace import Trace
from odyssey.ops.structure.joining import stack
from odyssey.spec import Spec, spec_of
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, store
from odyssey.table.value import NUMBERS, Symbol, Value, array_of
from odyssey.transforms.arguments import twin_of
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

    Args:
        f: A step. The carry that it returns has the tree, the shapes and the dtypes of the one
            that it was given; a Python number in ``init`` takes the dtype of what comes back.
        init: The first carry, an array or a tree of them.
        xs: A tree of arrays with one first axis in common; None for steps that are given None.
        length: The number of steps, which may be left out where there are ``xs``.
        reverse: Whether to go from the last step to the first. Each ``y`` stands where its ``x``
            stood.

    Returns:
        ``(carry, ys)``: the last carry, and the tree of ``y`` with a new first axis. Of no steps
        ``f`` is asked for the shapes of ``ys``, by a run on values that are not there.

    Raises:
        ShapeError: ``xs`` differ in length, or a carry or a ``y`` in shape or structure.
        DTypeError: a carry or a ``y`` changes its dtype.

    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> float(total), sums
    (6.0, array([1., 3., 6.]))
    """
    f, reverse = function("scan", f), flag("scan", "reverse", reverse)
    steps = _length(xs, length)
    if not steps:
        return init, _of_no_steps(f, init, xs)
    columns = leaves(xs)
    carry, ys = _Carry("scan", init), _Rows(steps)
    for k in range(steps - 1, -1, -1) if reverse else range(steps):
        x = unflatten(xs, [None if column is None else column[k] for column in columns])
        after, y = _pair(f(carry.tree, x))
        carry.become(after, k)
        ys.put(k, y)
    return carry.tree, ys.stacked()


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """Return ``true_fn(*operands)`` where ``pred`` is true, else ``false_fn(*operands)``.

    Only the one that is chosen runs.

    Args:
        pred: A truth or a number, as a scalar.
        true_fn: A function of the operands.
        false_fn: Another, with a result of the same tree, shapes and dtypes.
        operands: What they are given.

    Raises:
        ShapeError: ``pred`` is no scalar. DTypeError: it is neither a truth nor a number.

    >>> cond(np.array(2.0) > 1.0, lambda x: x + 1.0, lambda x: x * 0.0, 5.0)
    6.0
    """
    function("cond", true_fn)
    function("cond", false_fn)
    return (true_fn if _truth("cond", "pred", pred) else false_fn)(*operands)


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """Call ``body_fun`` on what it returned before, as long as ``cond_fun`` of that is true.

    The loop ``while cond_fun(value): value = body_fun(value)``.

    Args:
        cond_fun: A function of the value that returns a truth, as a scalar.
        body_fun: A step. What it returns has the tree, the shapes and the dtypes of what it was
            given; a Python number in ``init_val`` takes the dtype of what comes back.
        init_val: The first value, an array or a tree of them.

    Returns:
        The first value for which ``cond_fun`` is false.

    Raises:
        ShapeError, DTypeError: the value changes its tree, shape or dtype, or ``cond_fun`` returns
            no scalar truth.

    >>> int(while_loop(lambda n: n < 100, lambda n: n * 2, 3))
    192
    """
    function("while_loop", cond_fun)
    function("while_loop", body_fun)
    carry, k = _Carry("while_loop", init_val), 0
    while _truth("while_loop", "the result of cond_fun", cond_fun(carry.tree)):
        carry.become(body_fun(carry.tree), k)
        k += 1
    return carry.tree


# ------------------------------------------------------------------ what came


def _length(xs: Any, length: Any) -> int:
    """The number of steps of a scan."""
    if length is not None:
        length = whole("scan", "length", length, 0)
    found, first = length, "length"
    for path, leaf in paths(xs, "xs"):
        if leaf is None:
            continue
        if not isinstance(leaf, (Value, Symbol, *ARRAY_LIKE)):
            raise DTypeError(
                f"scan: {path} is a {type(leaf).__name__}; pass an array whose first axis goes "
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


def _truth(who: str, what: str, value: Any) -> bool:
    """What a condition says; raises for what is no scalar truth or number."""
    data = array_of(value)
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
    if isinstance(data, Symbol):
        # Not as a question that no graph can hold: the function runs as it was written.
        store().only_eagerly(f"{who} chooses by a value")
        raise TapeError(f"{who}: {what} is {value!r}, which only a run will know")
    return bool(data)


def _pair(result: Any) -> tuple[Any, Any]:
    """What a step of a scan returns."""
    if type(result) not in (tuple, list) or len(result) != 2:
        came = f"{len(result)} things" if type(result) in (tuple, list) else f"{shown(result)}"
        raise DTypeError(
            f"scan: f returned {came}; it must return a pair (carry, y), in which y may be None"
        )
    return result[0], result[1]


# ------------------------------------------------------------------ what goes from step to step

_KINDS = {kind: k for k, kinds in enumerate(("b", "iu", "f", "c")) for kind in kinds}


class _Carry:
    """What a step is given, and leaves to the next: always one tree, of the same specs.

    Attributes:
        tree: The present one.
    """

    def __init__(self, who: str, init: Any) -> None:
        self._who = who
        self._init = self.tree = init
        # Python's numbers as they came: the first step says which dtype they have.
        self._specs = [_spec(who, path, leaf, weak=True) for path, leaf in paths(init, "the carry")]

    def become(self, tree: Any, step: int) -> None:
        """Take over what a step returned.

        Raises:
            ShapeError, DTypeError: it differs from what the step was given.
        """
        flat = same_tree(self._who, "carry", self._init, tree)
        for k, (spec, leaf) in enumerate(zip(self._specs, flat, strict=True)):
            if type(leaf) in NUMBERS:
                leaf = flat[k] = np.asarray(leaf)[()]
            found = _spec(self._who, "the carry", leaf)
            if found is not spec and found != spec:
                self._specs[k] = self._settled(k, spec, found, step)
        self.tree = unflatten(self._init, flat)

    def _settled(self, k: int, given: Any, found: Any, step: int) -> Any:
        """The spec of a number, once it is known; raises where something else changed."""
        if _settles(given, found):
            return found
        given = Spec((), np.asarray(given).dtype) if type(given) in NUMBERS else given
        path = list(paths(self._init, "the carry"))[k][0]
        wrong = f"{self._who}: {path} goes into step {step} as {given}, and comes out as {found}"
        if given is not None and found is not None and found.shape == given.shape:
            raise DTypeError(f"{wrong}; cast one of them, as by ops.astype")
        raise ShapeError(f"{wrong}; it must keep its shape")


def _settles(number: Any, found: Any) -> bool:
    """Whether this is a Python number that may stand for a scalar of a spec."""
    if type(number) not in NUMBERS or found is None or found.shape:
        return False
    return _KINDS.get(np.asarray(number).dtype.kind, 9) <= _KINDS.get(found.dtype.kind, -1)


def _spec(who: str, what: str, leaf: Any, weak: bool = False) -> Any:
    """Shape and dtype of a leaf; None of None, and where ``weak`` a Python number itself."""
    if isinstance(leaf, Value):
        return leaf._spec
    if leaf is None or (weak and type(leaf) in NUMBERS):
        return leaf
    if isinstance(leaf, Symbol):
        return leaf.spec
    array = np.asarray(leaf) if isinstance(leaf, (*ARRAY_LIKE, *NUMBERS)) else None
    if array is None or array.dtype.kind not in "biufc":
        raise DTypeError(f"{who}: {what} is {shown(leaf)}; pass arrays, Variables or numbers")
    return spec_of(array)


class _Rows:
    """The results of steps, side by side along a new first axis."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._tree: Any = None
        self._specs: list[Any] = []
        self._columns: list[Any] = []

    def put(self, k: int, y: Any) -> None:
        """Take over what step ``k`` gave.

        Raises:
            ShapeError, DTypeError: it differs from what the first step gave.
        """
        first = not self._specs
        flat = leaves(y) if first else same_tree("scan", "results", self._tree, y)
        if first:
            self._tree = y
            # A number may be the first carry, whose dtype a later step will say.
            self._specs = [_spec("scan", "y", leaf, weak=True) for leaf in flat]
            self._columns = [self._column(leaf) for leaf in flat]
        for j, (spec, leaf) in enumerate(zip(self._specs, flat, strict=True)):
            if leaf is None and spec is None:
                continue
            found = spec if leaf is spec else _spec("scan", "y", leaf)
            if found is not spec and found != spec:
                if not _settles(spec, found):
                    raise self._differs(j, k, spec, found)
                self._specs[j] = found
            column = self._columns[j]
            if type(column) is np.ndarray and isinstance(leaf, (Value, Symbol)):
                column = self._columns[j] = list(column)
            # What the step gave may be written to by the next one.
            column[k] = leaf if type(column) is np.ndarray else _kept(leaf)

    def _column(self, leaf: Any) -> Any:
        if leaf is None:
            return None
        if isinstance(leaf, (Value, Symbol)) or type(leaf) in NUMBERS:
            return [None] * self._steps
        array = np.asarray(leaf)
        return np.empty((self._steps, *array.shape), array.dtype)

    def _differs(self, j: int, k: int, spec: Any, found: Any) -> OdysseyError:
        path = list(paths(self._tree, "y"))[j][0]
        spec = Spec((), np.asarray(spec).dtype) if type(spec) in NUMBERS else spec
        same = spec is not None and found is not None and spec.shape == found.shape
        kind = DTypeError if same else ShapeError
        return kind(
            f"scan: {path} of step {k} is {found}, and that of the first {spec}; all steps must "
            "give the same"
        )

    def stacked(self) -> Any:
        """The tree of all results."""
        return unflatten(self._tree, list(map(self._joined, self._specs, self._columns)))

    def _joined(self, spec: Any, column: Any) -> Any:
        if type(column) is not list:
            return column
        dtype = spec.dtype if isinstance(spec, Spec) else None
        if not any(isinstance(one, (Value, Symbol)) for one in column):
            return np.array(column, dtype)
        return stack([np.array(v, dtype) if type(v) is np.ndarray else v for v in column])


def _kept(leaf: Any) -> Any:
    """What a step gave, as it is now."""
    if isinstance(leaf, Symbol):
        return leaf
    return twin_of(leaf) if isinstance(leaf, Variable) else np.array(leaf)


def _of_no_steps(f: Callable[..., Any], init: Any, xs: Any) -> Any:
    """The tree of ``ys`` of length 0, which a run on Symbols tells."""
    if store() is not MEMORY:
        store().only_eagerly("scan has no steps")
        raise TapeError("scan: there are no steps")
    given = [None if c is None else np.empty(c.shape[1:], c.dtype) for c in leaves(xs)]
    trace = Trace()
    start = [v.detach() if isinstance(v, Variable) else v for v in leaves(init)]
    start = [np.asarray(v) if isinstance(v, np.generic) else v for v in start]
    asked = no_grad()(f)  # else what it closes over would be recorded
    try:
        _, y = _pair(trace.run(asked, (unflatten(init, start), unflatten(xs, given)), {}))
        made = [_empty_of(leaf) for leaf in leaves(y)]
    except TapeError as error:
        raise ShapeError(
            "scan: there are no steps, and the shapes of ys cannot be found out, since f asks for "
            f"what only a step would tell ({error}); pass a step at least"
        ) from error
    finally:
        trace.close()
    return unflatten(y, made)


def _empty_of(leaf: Any) -> Any:
    spec = _spec("scan", "y", leaf)
    return None if spec is None else np.empty((0, *spec.shape), spec.dtype)
