"""Wholes as boxes side by side: what is read, written or added where one of their parts lies.

A loop that writes to one row after another makes a whole anew for each, and its derivative another.
Known as boxes, each row is read where it was computed, and of all wholes only the last is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from odyssey.compiler.numbers.dims import Varying
from odyssey.compiler.plan.meanings import Meaning
from odyssey.compiler.plan.nodes import Node, Nodes
from odyssey.spec import Shape

__all__ = ["Known", "is_part", "joined_anew", "overlaid", "picked"]

# Wholes of fewer elements take less time to be made anew than what becomes of them to compile.
_LEAST = 4096
# Boxes that one that is added may lie across: each is taken apart.
_MOST_ACROSS = 4
# Elements of a box that is worth a loop. Lags of one line leave ever more boxes of one element.
_SMALL = 64
# Parts of a whole that is made of another: more are looked through too often.
_MOST_PARTS = 64

Box = tuple[tuple[int, int], ...]
"""Along each axis where it begins and ends."""
Known = tuple[list[Box | None], dict[Box, int]]


def box_of(key: Sequence[Any], shape: Shape) -> Box | None:
    """What a key of slices and numbers picks; None where that is no box of fixed size."""
    parts = list(key)
    if any(k is None for k in parts) or any(isinstance(n, Varying) for n in shape):
        return None
    dots = next((place for place, k in enumerate(parts) if k is Ellipsis), len(parts))
    behind = parts[dots + 1 :]
    whole = [slice(None)] * (len(shape) - dots - len(behind))
    found = []
    for n, k in zip(shape, [*parts[:dots], *whole, *behind], strict=True):
        places = range(n)[k] if isinstance(k, slice) else range(k % n, k % n + 1)
        if not places or (len(places) > 1 and places.step != 1):
            return None
        found.append((places[0], places[-1] + 1))
    return tuple(found)


def _shared(a: Box, b: Box) -> Box | None:
    """What two boxes have in common."""
    found = tuple((max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True))
    return found if all(start < stop for start, stop in found) else None


def _without(box: Box, hole: Box) -> list[Box]:
    """Boxes that make up a box but for another in it."""
    found, inside = [], list(box)
    for axis, (start, stop) in enumerate(hole):
        for rest in ((inside[axis][0], start), (stop, inside[axis][1])):
            if rest[0] < rest[1]:
                found.append((*inside[:axis], rest, *inside[axis + 1 :]))
        inside[axis] = (start, stop)
    return found


def _cut(nodes: Nodes, part: Node, box: Box, inner: Box) -> Node:
    """What of a part that fills a box lies in a smaller one, with all axes."""
    whole = nodes.reshape(part, tuple(stop - start for start, stop in box))
    if inner == box:
        return whole
    pairs = zip(inner, box, strict=True)
    return nodes.part(whole, tuple(slice(a - s, b - s) for (a, b), (s, _) in pairs))


def _key(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*pair) for pair in box)


def _boxes(whole: Node, known: dict[int, Known]) -> Known:
    """The boxes of the parts of a whole, None for what is none; and by box which it is."""
    if whole.id not in known:
        boxes = [box_of(key, whole.shape) for key in whole.work]
        known[whole.id] = boxes, {one: place for place, one in enumerate(boxes) if one}
    return known[whole.id]


def is_part(node: Node) -> bool:
    """Whether a node is a part of another, seen through a key."""
    return node.kind == "view" and node.detail[0] == "part"


def picked(nodes: Nodes, view: Node, whole: Node, known: dict[int, Known]) -> Node | None:
    """What a key picks of a whole, where that lies in one of its parts.

    Args:
        nodes: What makes nodes.
        view: What is picked, of the same whole or of what that was before.
        whole: What it is picked of.
        known: By number of a whole, see ``_boxes``; filled in.
    """
    box = box_of(view.work, whole.shape) if whole.size >= _LEAST else None
    if box is None:
        return None
    boxes, places = _boxes(whole, known)
    place = places.get(box)
    if place is None:
        inside = (k for k, one in enumerate(boxes) if one and _shared(box, one) == box)
        place = next(inside, None)
    if place is None or whole.inputs[place].type != view.type:
        return None
    part, around = whole.inputs[place], boxes[place]
    assert around is not None, "a box lies in it"
    alone = part.shape == view.shape and box == around
    found = part if alone else nodes.reshape(_cut(nodes, part, around, box), view.shape)
    return nodes.in_memory(found)  # whoever reads it takes it for what lies somewhere


def joined_anew(
    nodes: Nodes, parts: Sequence[tuple[Node, Any]], shape: Shape, known: dict[int, Known]
) -> list[tuple[Node, Any]] | None:
    """Parts of a whole, those that are parts of another at the same place taken from there.

    Returns:
        Parts and keys; None where nothing is so, or they would be too many.
    """
    if math.prod(shape) < _LEAST:
        return None
    made: list[tuple[Node, Any]] = []
    changed = False
    for part, key in parts:
        found = _taken(nodes, part, key, shape, known)
        changed |= found is not None
        made += [(part, key)] if found is None else found
    return made if changed and len(made) <= _MOST_PARTS else None


def _taken(
    nodes: Nodes, part: Node, key: Any, shape: Shape, known: dict[int, Known]
) -> list[tuple[Node, Any]] | None:
    """What lies in a part, where that is a whole itself, or a part of one at the same place."""
    whole = part if part.kind == "join" else part.inputs[0] if is_part(part) else None
    box = box_of(key, shape)
    if whole is None or whole.kind != "join" or box is None:
        return None
    if whole is not part and (whole.shape != shape or box != box_of(part.work, shape)):
        return None
    boxes = [one for one in _boxes(whole, known)[0] if one is not None]
    if len(boxes) < len(whole.inputs) or any(i.type != part.type for i in whole.inputs):
        return None
    if whole is part:
        if whole.shape != tuple(stop - start for start, stop in box):
            return None
        boxes = [_moved(one, box) for one in boxes]
    made = []
    for own, around in zip(whole.inputs, boxes, strict=True):
        inner = _shared(box, around)
        if inner is not None:
            made.append((_cut(nodes, own, around, inner), _key(inner)))
    return made


def _moved(box: Box, whole: Box) -> Box:
    """A box counted from where a whole begins, as it lies in what that lies in."""
    pairs = zip(box, whole, strict=True)
    return tuple((start + s, stop + s) for (start, stop), (s, _) in pairs)


def overlaid(
    nodes: Nodes, node: Node, many: Node, one: Node, known: dict[int, Known], plain: Any
) -> list[tuple[Node, Any]] | None:
    """Parts of the sum of two wholes, the second of one part, which may lie across some of others.

    Args:
        nodes: What makes nodes.
        node: The sum.
        many: A whole.
        one: Another.
        known: As of ``picked``.
        plain: Gives a part as it is in a sum with 0.
    """
    boxes, own = ([b for b in _boxes(x, known)[0] if b is not None] for x in (many, one))
    if node.size < _LEAST or len(boxes) < len(many.inputs) or not own:
        return None
    shared = [_shared(box, own[0]) for box in boxes]
    if sum(inner is not None for inner in shared) > _MOST_ACROSS:
        return None
    means, made, rest = Meaning(node.work, node.detail), [], own
    for part, key, box, inner in zip(many.inputs, many.work, boxes, shared, strict=True):
        if inner is None:
            made.append((plain(part), key))
            continue
        pieces = [(plain(_cut(nodes, part, box, r)), _key(r)) for r in _without(box, inner)]
        pair = [_cut(nodes, part, box, inner), _cut(nodes, one.inputs[0], own[0], inner)]
        pieces.append((nodes.map(means, pair, pair[0].shape, node.type), _key(inner)))
        if any(piece.size < _SMALL for piece, _ in pieces):
            return None
        made += pieces
        rest = [found for box in rest for found in _outside(box, inner)]
    return made + [(plain(_cut(nodes, one.inputs[0], own[0], r)), _key(r)) for r in rest]


def _outside(box: Box, other: Box) -> list[Box]:
    inner = _shared(box, other)
    return [box] if inner is None else _without(box, inner)
