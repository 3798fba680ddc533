"""Tables of the performance page, filled from records of the benchmarks.

python -m tools.performance           # write the tables into the pages
python -m tools.performance --check   # which pages differ from the records

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->`` on a page. Its numbers
come from ``benchmarks/records/``, JSON lines that ``benchmarks/run.py`` and
``benchmarks/compiled.py`` write; none is typed by hand.
"""

import ast
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.statistics import bootstrap_median

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "records"
PAGES = [ROOT / "docs" / "performance.md"]
MARK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Record = dict[str, Any]


def read_records(name: str) -> list[Record]:
    """Return the lines of a record, the latest of each workload and peer only."""
    latest = {}
    for line in (RECORDS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        peer = record.get("peer", record.get("implementation"))
        latest[record["workload"], record.get("metric"), peer, record.get("threads")] = record
    return list(latest.values())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def number(value: float) -> str:
    """Return a ratio or a time with two significant digits."""
    text = f"{value:#.2g}".removesuffix(".")
    return text if "e" not in text else f"{float(text):,.0f}"


def compiled_titles() -> dict[str, str]:
    """Return the titles of the compiled workloads, from the table of the benchmark."""
    source = (ROOT / "benchmarks" / "harness" / "compiled_cases.py").read_text(encoding="utf-8")
    constants: dict[str, Any] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            constants |= {ast.unparse(target): node.value.value for target in node.targets}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASES":
            assert isinstance(node.value, ast.Dict)
            titles: dict[str, str] = {}
            for key, case in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant)
                assert isinstance(case, ast.Call)
                titles[str(key.value)] = eval(ast.unparse(case.args[0]), constants).partition(";")[
                    0
                ]
            return titles
    raise SystemExit("benchmarks/harness/compiled_cases.py has no table CASES")


def conditions() -> str:
    """Return the sentence on machine, versions, day and rounds of the eager record."""
    records = [r for r in read_records("run") if "worker" in r]
    machine, config = records[0]["hardware"], records[0]["config"]
    versions: dict[str, str] = {}
    for record in records:
        versions |= record["worker"]["versions"]
    names = {"python": "Python", "numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
    listed = ", ".join(f"{names[n]} {versions[n]}" for n in names if n in versions)
    day = max(record["time"] for record in records)[:10]
    text = (
        f"{machine['cpu']}, {machine['cpu_count']} cores, {machine['system']} on "
        f"{machine['architecture']};\n{listed};\n{day}, {config['rounds']} rounds, "
        f"{config['threads']} thread, {machine['load']}.\n"
    )
    if float(machine["load"].split()[1]) > machine["cpu_count"]:
        text += (
            "\nOther programs kept the cores busy. Ratios of small steps then come out lower than\n"
            "on an idle machine; [DESIGN](../DESIGN.md#measurements) has some of an idle one.\n"
        )
    return text


def _ratio(record: Record | None) -> str:
    ratio = record and (record["cpu_ratio"] or record["ratio"])
    return number(ratio["median"]) if ratio else ""


def _with_interval(record: Record, base: Record) -> str:
    """Return the median of the ratios to the base, round by round, with its 95 % interval."""
    clock = "cpu" if record["cpu"] else "wall"
    pairs = zip(record[clock], base[clock], strict=True)
    median, low, high = bootstrap_median([value / reference for value, reference in pairs])
    return f"{number(median)} ({number(low)} to {number(high)})"


def eager() -> str:
    """Return the table of eager code beside PyTorch eager, JAX and NumPy by hand."""
    records = {(r["workload"], r.get("metric"), r["peer"]): r for r in read_records("run")}
    rows = []
    for workload, metric, title in (
        ("record", "record", "recording an op, 8 elements"),
        ("record", "sweep", "sweeping an op, 8 elements"),
        ("W1", "step", "training step, MLP 2-16-1, batch 4"),
        ("W2", "step", "training step, MLP 784-128-10, batch 32"),
        ("W3", "step", "training step, MLP 784-512-512-10, batch 256"),
        ("depth", "total", "a chain of 200,000 ops: time"),
        ("depth", "memory", "a chain of 200,000 ops: memory"),
    ):
        ours = records.get((workload, metric, "odyssey"))
        if ours is None or ours.get("failure"):
            continue
        others = [records.get((workload, metric, peer)) for peer in ("jax", "numpy")]
        own = _with_interval(ours, records[workload, metric, "torch"])
        rows.append((title, own, *(_ratio(other) for other in others)))
    head = ("", "odyssey (95 % interval)", "JAX, `jit`", "NumPy by hand")
    return table(head, rows)


def _ratios(one: Record, base: Record) -> list[float]:
    """Return the ratios of process time, round by round."""
    pairs = zip(one["samples"], base["samples"], strict=True)
    return [a["cpu"] / b["cpu"] for a, b in pairs]


def _median_ratio(one: Record | None, base: Record | None) -> str:
    if one is None or base is None:
        return ""
    return number(statistics.median(_ratios(one, base)))


OTHER_COMPILERS = {
    "torch.compile": "`torch.compile`",
    "jax": "JAX, `jit`",
    "pytensor": "PyTensor",
}
"""Other compilers by their names in the record; those that it lacks have no column."""


def _compiled_runs() -> tuple[dict[tuple[str, str], Record], list[str]]:
    """Return the records by workload and implementation, and the other compilers in them."""
    records = {(r["workload"], r["implementation"]): r for r in read_records("compiled")}
    measured = {kind for _, kind in records}
    return records, [kind for kind in OTHER_COMPILERS if kind in measured]


def compiled() -> str:
    """Return the table of compiled steps beside PyTorch eager and other compilers."""
    records, others = _compiled_runs()
    rows = []
    for workload, title in compiled_titles().items():
        ours, base = records.get((workload, "compiled")), records.get((workload, "torch"))
        if workload == "deep" or ours is None or base is None:
            continue  # deep is there for the time of compilation
        found = sorted(_ratios(ours, base))
        spread = f"({number(found[0])} to {number(found[-1])})"
        cells = [_median_ratio(records.get((workload, kind)), base) for kind in others]
        itself = _median_ratio(ours, records.get((workload, "eager")))
        rows.append((title, f"{number(statistics.median(found))} {spread}", *cells, itself))
    names = [OTHER_COMPILERS[kind] for kind in others]
    return table(("", "odyssey (range)", *names, "odyssey, to its eager self"), rows)


def compilation() -> str:
    """Return the table of the time that compilation takes, from an empty cache and again."""
    records, others = _compiled_runs()
    rows = []
    for workload, title in compiled_titles().items():
        found = [records.get((workload, kind)) for kind in ("compiled", *others)]
        if found[0] is not None:
            cells = [
                f"{number(one['cold']['cpu'])}, {number(one['warm']['cpu'])}" if one else ""
                for one in found
            ]
            rows.append((title, *cells))
    return table(("", "odyssey", *(OTHER_COMPILERS[kind] for kind in others)), rows)


TABLES: dict[str, Callable[[], str]] = {
    "conditions": conditions,
    "eager": eager,
    "compiled": compiled,
    "compilation": compilation,
}


def filled(text: str) -> str:
    """Return the text of a page with its tables as the records have them."""
    return MARK.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


def stale_pages() -> list[Path]:
    """Return the pages whose tables differ from the records."""
    pages = [page for page in PAGES if page.is_file()]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return [page for page, text in texts.items() if filled(text) != text]


def main(arguments: list[str]) -> int:
    """Write the tables, or with ``--check`` return 1 where a page differs from the records."""
    stale, only_check = stale_pages(), arguments == ["--check"]
    for page in stale:
        if not only_check:
            page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
        print("differs:" if only_check else "wrote", page.name)
    return int(bool(stale) and only_check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
