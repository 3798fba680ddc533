"""Command ``python -m odyssey warmup``: compile the kernels of ops, and cache them on disk."""

from __future__ import annotations

import argparse
import time
from typing import Any

__all__ = ["add_command"]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``warmup`` to the commands."""
    parser = commands.add_parser(
        "warmup",
        help="compile the loops that ops run on large arrays, and keep them on disk",
        description="Compile the loops that ops run on large arrays, for float32 and float64. The "
        "machine code is kept on disk, where later processes find it; without this command each "
        "loop is compiled when it is first needed, which takes 0.3 to 2 seconds.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="ops to compile loops for; all by default"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from odyssey.errors import OdysseyError
    from odyssey.kernels import numba_module
    from odyssey.kernels.sizes import OPTIMIZER_STEP, SIZES
    from odyssey.ops import OPS, use_kernels

    try:
        numba_module()
    except OdysseyError as error:
        raise SystemExit(f"python -m odyssey warmup: {error}") from None
    if unknown := [name for name in arguments.names if name not in SIZES]:
        raise SystemExit(
            f"python -m odyssey warmup: no compiled loops for {', '.join(unknown)}; the ops with "
            f"compiled loops are {', '.join(sorted(SIZES))}"
        )
    start = time.perf_counter()
    names = sorted(arguments.names or SIZES)
    with use_kernels():
        for number, name in enumerate(names, 1):
            op_start = time.perf_counter()
            for dtype in ("float32", "float64"):
                if name == OPTIMIZER_STEP:
                    _steps(dtype)
                else:
                    _call(OPS[name], dtype)
            seconds = time.perf_counter() - op_start
            print(f"{number:3d} of {len(names)}  {name:32s}{seconds:6.1f} s", flush=True)
    print(f"done in {time.perf_counter() - start:.0f} s")
    return 0


def _steps(dtype: str) -> None:
    """Run a step of the most common optimizers, which compiles their loops."""
    import numpy as np

    from odyssey import Variable, optim

    for make in (
        lambda p: optim.SGD(p, 0.1),
        lambda p: optim.SGD(p, 0.1, momentum=0.9),
        lambda p: optim.Adam(p),
        lambda p: optim.AdamW(p),
    ):
        for count in (1, 2):  # one array has another loop than several, which are packed
            leaves = [Variable(np.ones(4, dtype), requires_grad=True) for _ in range(count)]
            for leaf in leaves:
                leaf.grad = np.ones(4, dtype)
            make(leaves).step()


def _call(row: Any, dtype: str) -> None:
    """Run an op and its derivative rules on its samples, which compiles their loops."""
    import numpy as np

    from odyssey import GradientTape, Variable
    from odyssey.errors import OdysseyError
    from odyssey.floating_point_errors import isolate_errstate

    rng = isolate_errstate(np.random.default_rng)(0)
    for sample in row.samples:
        operands = [
            Variable(x, requires_grad=True) if getattr(x, "dtype", None) == dtype else x
            for x in sample.arrays(rng, dtype)
        ]
        leaves = [x for x in operands if isinstance(x, Variable)]
        try:
            with GradientTape() as tape:
                out = row.call(*operands, **sample.options)
            outs = [x for x in (out if isinstance(out, tuple) else (out,)) if x.dtype == dtype]
            seeds = [np.ones(x.shape, x.dtype) for x in outs]
            tape.gradient(outs, leaves, seeds, unused="zero")
        except OdysseyError:
            continue  # not differentiable, or not in this dtype
