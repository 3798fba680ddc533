"""Running functions as native programs, without what decides whether to."""

import numpy as np

import odyssey as od
from odyssey.compiler.native_dispatch.entry import RAN
from odyssey.compiler.runtime.executable import Executable
from odyssey.compiler.schedule.verify import verify
from support.compiled_rows import assert_within, outcome, plain, same_bits, ways_to_outputs


def run(fn, *args):
    """What a program answers, the arrays that it leaves, and the program, whose plan is sound."""
    made = Executable(od.compile(fn).lower(*args).graph)
    verify(made.plan)
    arrays = [a for a in od.tree.leaves(args) if isinstance(a, (np.ndarray, np.generic))]
    outs = [np.empty(shape, dtype) for shape, dtype in made.outputs]
    answer = made.start(*made.canonical_args(arrays), *outs)
    if answer == RAN and len(made.module.steps) > 1:
        answer = made.run_middle_steps()
        answer = made.rest() if answer == RAN else answer
    written = iter(outs)
    results = [
        made.host_results.get(node.id) if node.kind == "result" else next(written)
        for node in made.plan.outputs
        if node is not None
    ]
    return answer, results, made


def check_program(fn, args, what=""):
    """Raise AssertionError unless a program gives what a function does."""
    with np.errstate(all="ignore"):
        wanted, error = outcome(fn, args)
        if error is not None:
            return
        answer, got, made = run(fn, *args)
    assert answer == RAN, what
    pairs = list(zip(got, map(plain, wanted), strict=True))
    if all(same_bits(a, b) for a, b in pairs):
        return
    arrays = [a for a in od.tree.leaves(args) if isinstance(a, (np.ndarray, np.generic))]
    ways, _ = ways_to_outputs(made.graph, arrays)
    for (a, b), way in zip(pairs, ways, strict=True):
        if not same_bits(a, b):
            assert_within(a, b, way, what)
