"""What nodes mean, by NumPy alone; and what a plan does, kernel by kernel, in memory of its own.

This is the oracle for passes: it knows nothing of loops, of code, or of how passes rewrite.
"""

import math
import operator

import numpy as np

from odyssey.kernels.scalars import Term

OPERATORS = {
    **{n: getattr(operator, n) for n in ("add", "sub", "mul", "truediv", "neg", "abs")},
    **{n: getattr(operator, n) for n in ("lt", "le", "gt", "ge", "eq", "ne", "mod", "floordiv")},
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "invert": operator.invert,
    "select": np.where,
}
FUNCTIONS = {
    name: getattr(np, name) for name in ("exp", "sqrt", "floor", "fabs", "tanh", "copysign")
}
COMBINING = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def dtype_of(node):
    return np.dtype(bool if node.type == "b1" else node.type)


def scalar(program, values):
    """What a scalar's program gives for arrays, which it takes in its dtype."""
    known = [
        np.asarray(v).astype(np.result_type(np.asarray(v).dtype, program.dtype)) for v in values
    ]
    for name, operands in program.steps:
        given = [known[o.id] if isinstance(o, Term) else program.dtype.type(o) for o in operands]
        if name == "T":
            made = np.asarray(given[0]).astype(program.dtype)
        elif name.startswith("math."):
            made = FUNCTIONS[name.removeprefix("math.")](*given)
        else:
            made = OPERATORS[name](*given)
        known.append(made)
    result = program.result
    return known[result.id] if isinstance(result, Term) else program.dtype.type(result)


def value(node, given, leaves):
    """What one node is, of the values of its inputs.

    Args:
        node: The node.
        given: Arrays.
        leaves: By ``detail`` of a leaf, its array.
    """
    with np.errstate(all="ignore"):
        made = globals()[f"_{node.kind}"](node, given, leaves)
    made = np.asarray(made).astype(dtype_of(node))
    return np.array(np.broadcast_to(made, node.shape))


def values(roots, leaves):
    """By number of a node, its value, of all that roots are computed from."""
    known = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        waiting = [i for i in node.inputs if i.id not in known]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if node.id not in known:
            known[node.id] = value(node, [known[i.id] for i in node.inputs], leaves)
    return known


def evaluated(roots, leaves):
    """The values of roots."""
    known = values(roots, leaves)
    return [known[root.id] for root in roots]


# ------------------------------------------------------------------ kinds


def _leaf(node, given, leaves):
    return leaves[node.detail]


def _number(node, given, leaves):
    return node.payload


def _index(node, given, leaves):
    return np.arange(node.size).reshape(node.shape)


def _map(node, given, leaves):
    return scalar(node.payload, given)


def _reduce(node, given, leaves):
    how, axes = node.detail
    return COMBINING[how].reduce(given[0], axis=axes, keepdims=True, dtype=dtype_of(node))


def _gather(node, given, leaves):
    array, *places = given
    return array[tuple(np.broadcast_arrays(*places))]


def _scatter(node, given, leaves):
    base, x, *places = given
    made = np.array(np.broadcast_to(base, node.shape))
    places = [np.broadcast_to(p, x.shape) for p in places]
    for at in np.ndindex(*x.shape):
        to = tuple(int(p[at]) for p in places)
        made[to] = x[at] if node.detail == "set" else COMBINING[node.detail](made[to], x[at])
    return made


def _scan(node, given, leaves):
    axis = node.detail[1]
    first, *others = [np.moveaxis(x, axis, 0) for x in given]
    made = [first[0]]
    for k in range(1, len(first)):
        made.append(scalar(node.payload, [made[-1], first[k], *[x[k - 1] for x in others]]))
    return np.moveaxis(np.array(made), 0, axis)


def _product(node, given, leaves):
    a, b, *before = given
    if len(node.detail) > 2:  # of tensors: so many axes are summed up, and so many are columns
        inner, columns = node.detail[2:]
        a = a.reshape(*a.shape[: a.ndim - inner], -1)
        head = b.shape[: b.ndim - inner - columns]
        b = b.reshape(*head, a.shape[-1], -1)
    made = np.matmul(a, b)
    if node.detail[0] == "sum":
        made = made.sum(axis=tuple(range(made.ndim - 2)))
    return made + node.detail[1] * before[0] if before else made


def _view(node, given, leaves):
    kind, how = node.detail
    (x,) = given
    if kind == "reshape":
        return x.reshape(how)
    if kind == "windows":
        return _windows(x, *how)
    if kind == "transpose":
        return x.transpose(how)
    return np.broadcast_to(x, how) if kind == "broadcast" else x[node.payload]


def _windows(x, window, stride, dilation):
    """The elements of windows, and then their places, element by element."""
    n = x.ndim - len(window)
    counts = [
        max((size - d * (k - 1) - 1) // s + 1, 0)
        for size, k, s, d in zip(x.shape[n:], window, stride, dilation, strict=True)
    ]
    made = np.empty((*x.shape[:n], *window, *counts), x.dtype)
    for at in np.ndindex(*window, *counts):
        inside, place = at[: len(window)], at[len(window) :]
        of = [p * s + k * d for p, s, k, d in zip(place, stride, inside, dilation, strict=True)]
        made[(..., *at)] = x[(..., *of)]
    return made


def _join(node, given, leaves):
    made = np.zeros(node.shape, dtype_of(node))
    for part, key in zip(given, node.payload, strict=True):
        made[key] = part
    return made


# ------------------------------------------------------------------ plans


class Machine:
    """Memory, and what runs the kernels of a plan in it.

    Args:
        plan: The plan.
        leaves: By ``detail`` of a leaf, its array; states are copied.
    """

    def __init__(self, plan, leaves):
        self.plan = plan
        self.arena = np.full(plan.arena, 0xA5, np.uint8)
        self.rooms = {}
        for (role, index), array in leaves.items():
            room = np.array(array, order="C")
            self.rooms[role, index] = room.reshape(-1).view(np.uint8)
        for home in plan.allocations.values():
            buffer = home.buffer
            if buffer.kind == "output":
                self.rooms.setdefault(
                    ("output", buffer.index), np.full(buffer.bytes, 0xA5, np.uint8)
                )

    def memory(self, node):
        """Where a node lies, as an array that can be written."""
        home, dtype = self.plan.allocation(node), dtype_of(node)
        buffer, view = home.buffer, home.view
        if buffer.kind == "arena":
            room = self.arena[buffer.offset : buffer.offset + buffer.bytes]
        else:
            room = self.rooms[buffer.kind, buffer.index]
        strides = [s * dtype.itemsize for s in view.strides]
        at = view.offset * dtype.itemsize
        if not view.size:
            return np.zeros(view.shape, dtype)
        last = at + sum((n - 1) * s for n, s in zip(view.shape, strides, strict=True))
        assert 0 <= last <= len(room) - dtype.itemsize, f"{node} lies beyond its buffer"
        return np.ndarray(view.shape, dtype, room, at, strides)

    def run(self):
        """Do all kernels and moves."""
        fused = self.plan.fused
        for node in fused.order:
            if node.kind == "join" and node.id in self.plan.allocations:
                covered = sum(part.size for part in node.inputs) == math.prod(node.shape)
                if not covered:
                    self.memory(node)[...] = 0
        for kernel in fused.kernels:
            known = {}
            for node in kernel.nodes:
                given = [self._read(i, known) for i in node.inputs]
                known[node.id] = value(node, given, {})
            for node in kernel.nodes:
                if node.id in self.plan.allocations:
                    self.memory(node)[...] = known[node.id]
            for check in kernel.checks:
                if not self.memory(check).all():
                    return False
        found = [(state, self.memory(node).copy()) for state, node in self.plan.state_copies]
        for state, array in found:
            self.rooms["state", state][: array.nbytes] = array.reshape(-1).view(np.uint8)
        return True

    def _read(self, node, known):
        if node.id in known:
            return known[node.id]
        if node.kind == "view":
            if node.owner.id in self.plan.allocations and node.owner.id not in known:
                return np.array(self.memory(node))
            return value(node, [self._read(node.inputs[0], known)], {})
        if node.kind in ("number", "index"):
            return value(node, [], {})
        if node.id in self.plan.fused.numbers:
            return value(node, [self._read(i, known) for i in node.inputs], {})
        return np.array(self.memory(node))

    def outputs(self):
        """The results, by place."""
        found = []
        for node in self.plan.outputs:
            found.append(None if node is None else np.array(self._read(node, {})))
        return found

    def state(self, index, like):
        """What a state holds now."""
        return self.rooms["state", index].view(like.dtype).reshape(like.shape)
