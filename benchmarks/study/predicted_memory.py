"""Memory of a taped training step, predicted from specs, without running it.

A step is traced (`od.compile(step).lower(...)`): its graph has the ops of the forward pass and of
the sweep, each with the spec of its result, in the order in which a tape runs them, and the nodes
of the tape say what they save. A result lives until its last reader, and what a node saves until
the sweep has left the node. By owner:

* ``state``: parameters, and what the optimizer holds beside them;
* ``gradients``: of parameters, until the end;
* ``saved``: results of the forward pass that nodes save, and residuals of kernels;
* ``frontier``: results that only the next ops need; in the sweep these are the cotangents;
* ``nodes``: the tape itself: tuples, ids, and the headers of the arrays that it saves.

Scratch memory within a kernel is not included, as no spec tells it.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

OWNERS = ("state", "gradients", "saved", "frontier", "nodes")
"""In the order in which figures stack them."""

LIST_SLOT = 9  # with the room that a list keeps for more
MALLOC_HEADER, MALLOC_UNIT = 8, 16
# Rows whose result is a view of their first operand.
VIEWS = {"matrix_transpose", "transpose", "swapaxes", "reshape", "getitem", "expand_dims"}
TURNING_VIEWS = {"matrix_transpose", "transpose", "swapaxes"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes of a step by owner, after each op.

    Args:
        forward: The number of ops of the forward pass; those of the sweep follow.
        timeline: By owner, the bytes while each op runs.
    """

    forward: int
    timeline: dict[str, list[int]]

    @property
    def totals(self) -> list[int]:
        """Bytes while each op runs."""
        return [sum(column) for column in zip(*self.timeline.values(), strict=True)]

    @property
    def peak(self) -> int:
        """The most bytes."""
        return max(self.totals)

    def at_peak(self) -> dict[str, int]:
        """Return the bytes of each owner at the peak."""
        position = self.totals.index(self.peak)
        return {owner: values[position] for owner, values in self.timeline.items()}


@dataclass(frozen=True, slots=True)
class SweptNode:
    """A node of a traced tape.

    Args:
        raw: The node: row, id, ids of inputs, values that it saves, specs.
        first: Position of the first op of its rules among all ops.
        last: Position of the last; the sweep refers to the node until then.
    """

    raw: tuple[Any, ...]
    first: int
    last: int

    def saved_ids(self) -> list[int]:
        """Return the ids of the values that it saves."""
        return [value.id for value in self.raw[3] or () if hasattr(value, "id")]


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step as a graph, and the nodes of its tape in the order of the sweep."""

    graph: Any
    nodes: Sequence[SweptNode]


def trace_step(step: Callable[..., Any], *args: Any) -> TracedStep:
    """Trace a step that records on a tape, and sweeps it once by `backward`.

    Args:
        step: Returns the loss, and leaves gradients in parameters.
        args: Arrays, or an ``od.Spec`` for each.
    """
    import odyssey as od
    from odyssey.table.store import store
    from odyssey.tape import queries

    marks: list[tuple[Any, int]] = []
    original = queries.backward_sweep

    def noting(nodes: Iterable[Any], *rest: Any, **named: Any) -> None:
        emitted: Any = store()

        def marked() -> Iterator[Any]:
            for node in nodes:
                marks.append((node, len(emitted._instructions)))
                yield node
            marks.append((None, len(emitted._instructions)))

        original(marked(), *rest, **named)

    queries.backward_sweep = noting
    try:
        graph = od.compile(step).lower(*args).graph
    finally:
        queries.backward_sweep = original
    nodes = [SweptNode(raw, k, end - 1) for (raw, k), (_, end) in itertools.pairwise(marks)]
    return TracedStep(graph, nodes)


def predicted_memory(traced: TracedStep, state: int = 0) -> Prediction:
    """Predict the memory of a taped step.

    Args:
        traced: The step.
        state: Bytes of parameters and of the optimizer's state.
    """
    calls, nodes = traced.graph.instructions, traced.nodes
    forward, end = nodes[0].first, len(calls)
    storage = _storage(calls)
    specs = {id: spec for call in calls for id, spec in zip(call.ids, call.specs, strict=True)}
    specs |= dict(traced.graph.inputs) | {s.id: s.spec for s in traced.graph.states}
    # A gradient that does not depend on values is a number in the graph.
    updates = references(s.update for s in traced.graph.states)
    gradients = {storage.get(id, id) for id in updates}
    last = _last_positions(calls, nodes, storage)
    last.update(dict.fromkeys(gradients, end))
    saved = {storage.get(id, id) for node in nodes for id in node.saved_ids()}
    changes = {owner: np.zeros(end + 2, np.int64) for owner in OWNERS}

    def hold(owner: str, size: int, first: int, until: int) -> None:
        changes[owner][first] += size
        changes[owner][until + 1] -= size

    hold("state", state, 0, end)
    made_at: dict[int, int] = {}
    for k, call in enumerate(calls):
        made_at.update(dict.fromkeys(call.ids, k))
        for id in call.ids:
            if id not in storage:
                owner = "saved" if k < forward and id in saved else "frontier"
                hold("gradients" if id in gradients else owner, array_bytes(specs[id]), k, last[id])
    for node, k in zip(nodes, _positions(nodes, calls[:forward]), strict=True):
        headers = sum(made_at.get(id, end) < forward for id in node.saved_ids())
        hold("nodes", node_bytes(node.raw) + headers * _array_header(), k, node.last)
        hold("saved", residual_bytes(calls[k], specs), k, node.last)
    timeline = {owner: np.cumsum(values)[:end].tolist() for owner, values in changes.items()}
    return Prediction(forward, timeline)


def _last_positions(
    calls: Sequence[Any], nodes: Sequence[SweptNode], storage: Mapping[int, int]
) -> dict[int, int]:
    """Return the position of the last op that each array lives in, by the id of its value."""
    last: dict[int, int] = {}
    for k, call in enumerate(calls):
        for id in (*references(call.operands), *call.ids):
            last[storage.get(id, id)] = k
    made = {id: k for k, call in enumerate(calls) for id in call.ids}
    for node in nodes:
        for id in node.saved_ids():
            root = storage.get(id, id)
            last[root] = max(last.get(root, -1), node.last)
        # The sweep refers to a cotangent until it goes to the next node.
        for root, k in list(last.items()):
            if node.first <= k <= node.last and made.get(root, node.first) < node.first:
                last[root] = node.last
    return last


def array_bytes(spec: Any) -> int:
    """Return the bytes that the C library takes for an array of a spec."""
    size = math.prod(spec.shape) * spec.dtype.itemsize + MALLOC_HEADER
    return -(-size // MALLOC_UNIT) * MALLOC_UNIT


def _array_header() -> int:
    return sys.getsizeof(np.empty(0))


def node_bytes(raw: tuple[Any, ...]) -> int:
    """Return the bytes of a node: a tuple, its id, and tuples of inputs, values and specs."""
    row, _, inputs, values, specs = raw
    kept = () if values is None or not (any(row.needs) or row.options) else values
    lengths = [len(raw), len(inputs), len(kept), len(specs or ())]
    tuples = sum(sys.getsizeof((None,) * length) for length in lengths if length)
    return tuples + sys.getsizeof(1 << 41) + LIST_SLOT


def residual_bytes(call: Any, specs: dict[int, Any]) -> int:
    """Return the bytes of what a kernel leaves for the rule of its row.

    No spec tells these, so the kernel is called on zeros.
    """
    if call.row.with_residual is None:
        return 0
    operands = [np.zeros(s.shape, s.dtype) for s in map(specs.get, references(call.operands)) if s]
    pair = call.row.with_residual(*operands, *call.options)
    if pair is None:
        return 0
    parts = pair[1] if isinstance(pair[1], tuple) else (pair[1],)
    # A residual that is the result itself takes no more.
    return sum(p.nbytes for p in parts if isinstance(p, np.ndarray) and p is not pair[0])


def optimizer_bytes(sizes: Sequence[int], slots: int, scratch: int = 1) -> int:
    """Return the bytes of parameters in float32 and of an elementwise optimizer's state.

    Args:
        sizes: Elements of each parameter.
        slots: Arrays of the optimizer beside each parameter: 1 for momentum, 2 for Adam.
        scratch: Arrays that an update needs meanwhile.
    """
    from odyssey.optim.flat_parameters import BLOCK_SIZE, SMALL_SIZE

    small = [size for size in sizes if size < SMALL_SIZE]  # packed, with their gradients
    groups = [size for size in sizes if size >= SMALL_SIZE] + ([sum(small)] if small else [])
    blocks = [BLOCK_SIZE if size > 2 * BLOCK_SIZE else size for size in groups]
    packed = sum(small) if len(small) > 1 else 0
    return 4 * ((1 + slots) * sum(sizes) + packed + scratch * sum(blocks))


def references(operands: Iterable[Any]) -> list[int]:
    """Return the ids of the operands that are values of the graph."""
    from odyssey.graph.graph import Ref

    return [operand.id for operand in operands if isinstance(operand, Ref)]


def _storage(calls: Sequence[Any]) -> dict[int, int]:
    """Return, by id of a view, the id of the value whose memory it shows."""
    found: dict[int, int] = {}
    turned: set[int] = set()  # values whose axes are not in the order of memory
    for call in calls:
        name, sources = call.row.name, references(call.operands)
        if name not in VIEWS or (name == "reshape" and sources[0] in turned):
            continue
        found[call.id] = found.get(sources[0], sources[0])
        if name in TURNING_VIEWS or sources[0] in turned:
            turned.add(call.id)
    return found


def _positions(nodes: Sequence[SweptNode], forward: Sequence[Any]) -> list[int]:
    """Return the position of the call that each node was recorded at."""
    found, k = [], len(forward)
    for node in nodes:  # in reverse order
        k = next((m for m in range(k - 1, -1, -1) if forward[m].row is node.raw[0]), 0)
        found.append(k)
    return found
