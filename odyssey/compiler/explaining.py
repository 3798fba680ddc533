"""What a program does, in words."""

from __future__ import annotations

from typing import Any

__all__ = ["explained"]


def explained(program: Any) -> str:
    """A program's kernels, calls, memory, guards and times."""
    executable = program.executable
    plan = executable.plan
    lines = [f"a program of {len(plan.fused.kernels)} kernels"]
    for kernel in plan.fused.kernels:
        name = executable.module.names.get(kernel.place, "")
        nodes = kernel.nodes
        what = f"{len(nodes)} fused" if len(nodes) > 1 else nodes[0].kind
        if kernel.kind == "call":
            what = f"calls {nodes[0].work.row.name}"
        moved = sum(home.buffer.bytes for n in nodes if (home := plan.homes.get(n.id)) is not None)
        moved += sum(plan.homes[n.id].buffer.bytes for n in plan.read(kernel))
        space = "x".join(map(str, kernel.space)) or "1"
        head = f"  {kernel.place:3} {kernel.kind:8} {space:>16}"
        lines.append(f"{head} {moved:>10} bytes  {what} {name}")
    outputs = sum(node.size for node in plan.outputs if node is not None)
    lines.append(f"arena: {plan.arena} bytes; results: {outputs} elements")
    for row, why in executable.calls.items():
        lines.append(f"not lowered: {row}, since {why}")
    lines.append(f"guards: {len(program.guards)} of Python, {len(executable.words) // 3} of memory")
    times = ", ".join(f"{stage} {1e3 * s:.1f}" for stage, s in executable.loaded.seconds.items())
    lines.append(f"milliseconds: {times}")
    return "\n".join(lines)
