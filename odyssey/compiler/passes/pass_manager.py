"""Pass manager: the table of passes over the IR, and how they run.

Called by ``pipeline`` between lowering and buffer assignment.
``ODYSSEY_PRINT_IR=1`` prints the graph after each pass to standard error;
``ODYSSEY_PRINT_IR=assign_layouts`` after each pass of that name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from odyssey.compiler.ir.nodes import Node, topological_order
from odyssey.compiler.lowering import Lowered
from odyssey.compiler.passes.layout_assignment import (
    Roots,
    assign_layouts,
    find_strided_states,
    isolate_join_members,
    legalize_products,
)
from odyssey.compiler.passes.rewriting import Rewrite, apply_rewrite
from odyssey.compiler.passes.row_products import fold_row_products
from odyssey.compiler.passes.simplify import REWRITES, gemm_accumulate

__all__ = ["PASSES", "Pass", "format_ir", "optimize", "run_passes"]


class Pass(NamedTuple):
    """A pass over the IR.

    Attributes:
        name: Name of the pass.
        summary: Purpose of the pass in one line.
        function: Rewrites the graph of these roots.
    """

    name: str
    summary: str
    function: Callable[[Roots], None]


def _rewrite_pass(row: Rewrite) -> Pass:
    def apply(roots: Roots) -> None:
        roots.nodes = apply_rewrite(row, roots.builder, roots.nodes, roots.choices)

    return Pass(row.name, f"{row.pattern} -> {row.replacement}", apply)


def _accumulate_products(roots: Roots) -> None:
    roots.nodes = gemm_accumulate(roots.builder, roots.nodes, roots.updated_leaves())


_UNALIAS = Pass("unalias", "give each result and update memory of its own", Roots.unalias)

PASSES = (
    *map(_rewrite_pass, REWRITES),
    Pass(
        "fold_row_products",
        "one row @ a matrix along whose inner axis memory runs -> sum of products",
        fold_row_products,
    ),
    _UNALIAS,
    Pass("gemm_accumulate", "v = m v + a @ b -> one accumulating product", _accumulate_products),
    _UNALIAS,
    Pass("isolate_join_members", "compute members of joins inside them", isolate_join_members),
    _UNALIAS,
    Pass("find_strided_states", "note the views of strided states", find_strided_states),
    Pass("assign_layouts", "order axes so that views need no copies", assign_layouts),
    _UNALIAS,
    Pass("legalize_products", "copy operands that products cannot read", legalize_products),
)
"""The passes, in the order in which they run."""


def optimize(low: Lowered, strides: Mapping[int, Sequence[int]]) -> Roots:
    """Run all passes over a lowered graph, and return its roots.

    Args:
        low: The lowered graph.
        strides: By number of a state that is not contiguous, its strides in elements.
    """
    roots = Roots(low, strides)
    run_passes(roots)
    return roots


def run_passes(roots: Roots) -> None:
    """Run all passes over a graph."""
    printed = os.environ.get("ODYSSEY_PRINT_IR", "")
    for each in PASSES:
        each.function(roots)
        if printed in ("1", each.name):
            print(f"after {each.name}:\n{format_ir(roots.nodes)}", file=sys.stderr)


def format_ir(roots: Iterable[Node]) -> str:
    """Format a graph, one node a line, with its details and the row that it was made for."""
    lines = []
    for node in topological_order(roots):
        detail = "" if node.detail is None else " " + " ".join(str(node.detail).split())
        row = f"  # {node.op}" if node.op else ""
        lines.append(f"  {node}{detail}{row}")
    return "\n".join(lines)
