"""Experiments on graphs: their hypotheses on records that are made up, and what they define."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from study.contract import SYSTEMS
from study.records import Records, judged
from support.study import header

NAMES = ("overhead", "depth", "width", "memory_ablation", "backward", "static", "dynamic")
EXPERIMENTS = {name: importlib.import_module(f"study.experiments.{name}") for name in NAMES}
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
WOBBLE = (0.99, 1.0, 1.01, 1.0, 0.995)


def records_of(*cells):
    """Records of five rounds: system, config, metrics and counts of each."""
    lines = []
    for system, config, metrics, *counts in cells:
        for number, factor in enumerate(WOBBLE):
            lines.append(
                {
                    **{"experiment": "e", "system": system, "config": config, "status": "ok"},
                    **{"attempt": 0, "session": 0, "round": number, "check": None},
                    "metrics": {name: value * factor for name, value in metrics.items()},
                    "counts": counts[0] if counts else {},
                }
            )
    return Records(lines, [header()])


def outcome(name, hypothesis, records):
    return judged(EXPERIMENTS[name].HYPOTHESES, records)[hypothesis].outcome


def overhead(taped, numpy, compiled=1e-9, elements=8):
    cells = [("taped", taped), ("numpy", numpy), ("compiled", compiled)]
    return [(s, {"elements": elements}, {"cpu_seconds": 60 * t}) for s, t in cells]


def depth(least, most, metric="op_bytes", dependent=False):
    configs = [{"ops": ops, "x_dependent": dependent} for ops in (100_000, 1_000_000)]
    return [("taped", c, {metric: v}) for c, v in zip(configs, (least, most), strict=True)]


def width(predicted, measured, metric="peak_bytes"):
    config = {"network": "W2", "units": 0, "layers": 0}
    return [("taped", config, {metric: measured}, {"predicted_bytes": predicted})]


def ablation(system, value, metric="peak_bytes"):
    return [("all-rules", {"layers": 2}, {metric: 1e6}), (system, {"layers": 2}, {metric: value})]


def sweeps(network, ratio):
    return [("taped", {"network": network}, {"sweep_ratio": ratio})]


def programs(network, system, value, base="taped", metric="cpu_seconds", **more):
    counts = [{"arena_bytes": 100}, {"arena_bytes": more.pop("arena", 100)}]
    return [
        (base, {"network": network}, {metric: 1.0}, counts[0]),
        (system, {"network": network}, {metric: value, **more}, counts[1]),
    ]


def steps(system, value, base, metric="cpu_seconds", varies="length"):
    return [
        (base, {"varies": varies}, {metric: 1.0}),
        (system, {"varies": varies}, {metric: value}),
    ]


CASES = [
    ("overhead", "taped-constant", overhead(2.5e-6, 1e-6), overhead(9e-6, 1e-6)),
    ("overhead", "compiled-small", overhead(1e-6, 1e-6, 2e-8), overhead(1e-6, 1e-6, 2e-7)),
    (
        *("overhead", "gone"),
        overhead(1e-3, 1e-3, elements=100_000),
        overhead(1.3e-3, 1e-3, elements=100_000),
    ),
    ("depth", "node-bytes", depth(210, 200), depth(400, 390)),
    ("depth", "linear-memory", depth(200, 210), depth(200, 400)),
    (
        *("depth", "linear-time"),
        depth(1e-6, 1.1e-6, "op_cpu_seconds", True),
        depth(1e-6, 3e-6, "op_cpu_seconds", True),
    ),
    ("width", "predicted", width(2e6, 2.05e6), width(2e6, 3e6)),
    (
        "width",
        "accounted",
        width(2e6, 2.05e6, "allocated_bytes"),
        width(2e6, 1e6, "allocated_bytes"),
    ),
    *(
        ("memory_ablation", rule, ablation(f"no-{rule}", 1.5e6), ablation(f"no-{rule}", 1e6))
        for rule in ("draining", "pruning", "needs")
    ),
    ("memory_ablation", "checkpoint", ablation("checkpoint", 5e5), ablation("checkpoint", 1e6)),
    ("memory_ablation", "half", ablation("half", 5e5), ablation("half", 1.2e6)),
    ("memory_ablation", "residuals", ablation("no-residuals", 9e5), ablation("no-residuals", 2e6)),
    (
        *("memory_ablation", "residuals-time"),
        ablation("no-residuals", 2e6, "cpu_seconds"),
        ablation("no-residuals", 5e5, "cpu_seconds"),
    ),
    ("backward", "networks", sweeps("W3", 1.8), sweeps("W3", 3.0)),
    ("backward", "chains", sweeps("W4", 1.0), sweeps("W4", 1.9)),
    ("static", "no-slower", programs("W2", "compiled", 0.5), programs("W2", "compiled", 1.5)),
    (
        *("static", "fusion"),
        programs("W4m", "no-fusion", 9.0, "compiled"),
        programs("W4m", "no-fusion", 1.1, "compiled"),
    ),
    (
        *("static", "arena"),
        programs("W2", "no-arena-reuse", 1.0, "compiled", arena=200),
        programs("W2", "no-arena-reuse", 1.0, "compiled", arena=100),
    ),
    (
        *("static", "pays"),
        programs("W2", "compiled", 0.5, compile_cpu_seconds=100.0),
        programs("W2", "compiled", 0.5, compile_cpu_seconds=9000.0),
    ),
    (
        *("dynamic", "one-program-a-length"),
        steps("compiled", 9.0, "taped"),
        steps("compiled", 0.5, "taped"),
    ),
    (
        *("dynamic", "dynamic"),
        steps("compiled-dynamic", 0.2, "compiled"),
        steps("compiled-dynamic", 2.0, "compiled"),
    ),
    (
        *("dynamic", "dynamic-later"),
        steps("compiled-dynamic", 0.2, "taped", "later_cpu_seconds"),
        steps("compiled-dynamic", 2.0, "taped", "later_cpu_seconds"),
    ),
    (
        *("dynamic", "depth"),
        steps("compiled", 9.0, "taped", varies="depth"),
        steps("compiled", 0.5, "taped", varies="depth"),
    ),
]


@pytest.mark.parametrize(
    ("name", "hypothesis", "held", "refuted"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_a_hypothesis_is_held_refuted_or_undecided(name, hypothesis, held, refuted):
    assert outcome(name, hypothesis, records_of(*held)) == "held"
    assert outcome(name, hypothesis, records_of(*refuted)) == "refuted"
    assert outcome(name, hypothesis, records_of()) == "undecided"


def test_every_hypothesis_has_a_case_but_that_of_failures():
    named = {
        (experiment.NAME, h.name)
        for experiment in EXPERIMENTS.values()
        for h in experiment.HYPOTHESES
    }
    tested = {(EXPERIMENTS[c[0]].NAME, c[1]) for c in CASES}
    assert named - tested == {("depth", "no-recursion")}


def test_depth_is_refuted_by_a_chain_that_fails():
    assert outcome("depth", "no-recursion", records_of(*depth(1, 1))) == "held"
    records = records_of(*depth(1, 1))
    records.lines[-1] |= {"status": "error", "message": "RecursionError: maximum depth"}
    assert outcome("depth", "no-recursion", records) == "refuted"


def test_a_number_near_its_bound_is_undecided():
    assert outcome("backward", "chains", records_of(*sweeps("W4", 1.5))) == "undecided"
    assert outcome("width", "predicted", records_of(*width(2e6, 2e6 / 1.1))) == "undecided"


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_defines_what_the_study_needs(name):
    experiment = EXPERIMENTS[name]
    assert name.replace("_", "-") == experiment.NAME
    assert experiment.QUESTION.endswith("?")
    whole, quick = experiment.configs(False), experiment.configs(True)
    assert json.loads(json.dumps(whole)) == whole
    assert len(quick) <= len(whole)
    own = set(experiment.SYSTEMS) - set(SYSTEMS)
    assert own == set() or name in ("memory_ablation", "static", "dynamic")
    names = [h.name for h in experiment.HYPOTHESES]
    assert len(names) == len(set(names))
    assert all(h.claim.endswith(".") and h.refuted_by.endswith(".") for h in experiment.HYPOTHESES)


def test_experiments_are_read_without_a_library_under_test():
    code = f"""
import importlib, sys
for name in {NAMES!r}:
    importlib.import_module("study.experiments." + name)
print([n for n in ("odyssey", "torch", "jax", "autograd", "matplotlib") if n in sys.modules])
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PICTURES = {
    "overhead": overhead(2.5e-6, 1e-6) + overhead(1e-3, 9e-4, 1e-4, 100_000),
    "depth": depth(210, 200) + depth(220, 230, dependent=True),
    "width": width(2e6, 2.05e6),
    "memory_ablation": ablation("no-rules", 3e6) + ablation("no-pruning", 2e6)[1:],
    "backward": [(*sweeps("W3", 1.8)[0], {"sweep_flops": 2.0, "forward_flops": 1.0})],
    "static": programs("W2", "compiled", 0.5, peak_bytes=1.0, compile_cpu_seconds=100.0)
    + programs("W2", "no-fusion", 0.7, "compiled", peak_bytes=1.0)[1:],
    "dynamic": steps("compiled-dynamic", 0.5, "taped"),
}


def _complete(metrics):
    """All metrics that pictures may ask for, by the one that is given."""
    value = next(iter(metrics.values()))
    whole = ("cpu_seconds", "op_cpu_seconds", "op_bytes", "peak_bytes", "later_cpu_seconds")
    halves = ("forward_cpu_seconds", "sweep_cpu_seconds")
    return dict.fromkeys(whole, value) | dict.fromkeys(halves, value / 2) | metrics


@pytest.mark.parametrize("name", NAMES)
def test_pictures_change_with_the_records(name):
    cells = [(c[0], c[1], _complete(c[2]), *c[3:]) for c in PICTURES[name]]
    before = EXPERIMENTS[name].pictures(records_of(*cells))
    assert before
    titles = [{p.title} for p in before]
    for k, cell in enumerate(cells):
        larger = {m: (k + 3) * value for k, (m, value) in enumerate(cell[2].items())}
        changed = [*cells[:k], (*cell[:2], larger, *cell[3:]), *cells[k + 1 :]]
        after = EXPERIMENTS[name].pictures(records_of(*changed))
        assert [p.name for p in after] == [p.name for p in before]
        assert [p.table() for p in after] != [p.table() for p in before]
        for seen, picture in zip(titles, after, strict=True):
            seen.add(picture.title)
    assert all(len(seen) > 1 for seen in titles)
    assert EXPERIMENTS[name].pictures(records_of()) == []
