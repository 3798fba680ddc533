"""Programs by given plans, beside the functions that they are of."""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.compiler.pipeline import works_of
from odyssey.compiler.runtime.dry_run import DryRun
from odyssey.compiler.schedule.verify import verify
from odyssey.compiler.ways.plans import Plan
from support.cases import draw, random_like, tracked
from support.compiled_rows import assert_within, outcome, plain, same_bits, ways_to_outputs


def arrays_of(args):
    return [a for a in od.tree.leaves(args) if isinstance(a, (np.ndarray, np.generic))]


def results_by_plan(graph, args, plan):
    """The results of a graph's program by a plan, whose buffers are sound."""
    dry = DryRun(graph, arrays_of(args), ways=plan)
    verify(dry.executable.plan)
    chosen = {one.work: one.way for one in dry.works()}
    assert {work: chosen[work] for work in plan.differences} == dict(plan.differences)
    dry.run()
    return dry.results()[: sum(node is not None for node in dry.executable.plan.outputs)]


def single_plans(graph):
    """The plans of a graph that differ from the guess in one work."""
    return [Plan({one.work: way.name}) for one in works_of(graph) for way in one.ways[1:]]


def check_single_plans(fn, args, what):
    """Check that programs by all plans with one difference give what the function does."""
    with np.errstate(all="ignore"):
        wanted, error = outcome(fn, args)
        if error is not None:
            return 0
        graph = od.compile(fn).lower(*args).graph
        bounds, _ = ways_to_outputs(graph, arrays_of(args))
    plans = single_plans(graph)
    for plan in plans:
        with np.errstate(all="ignore"):
            got = results_by_plan(graph, args, plan)
        for a, b, bound in zip(got, map(plain, wanted), bounds, strict=True):
            if not same_bits(a, b):
                assert_within(a, b, bound, (what, plan))
    return len(plans)


def pullback(row, sample, dtype):
    """A row and its gradients as a function of arrays, and its arguments."""
    positions = tracked(row, sample)
    kept = draw(sample, dtype)
    op, options, several = row.call, dict(sample.options), bool(row.pack_results)

    def call(moving, cotangents):
        leaves = [Variable(x, requires_grad=True) for x in moving]
        given = list(kept)
        for k, leaf in zip(positions, leaves, strict=True):
            given[k] = leaf
        with GradientTape() as tape:
            out = op(*given, **options)
        outs = list(out) if several else [out]
        return [x * 2.0 for x in tape.gradient(outs, leaves, cotangents, unused="zero")]

    made = op(*kept, **options)
    outs = list(made) if several else [made]
    return call, ([kept[k] for k in positions], [random_like(out, seed=10) for out in outs])
