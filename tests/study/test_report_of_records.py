"""The report: text and figures from records alone, whatever the records are."""

import ast
import dataclasses
import gzip
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from study import report
from study.contract import Estimate, Hypothesis, Verdict
from study.drawing import Bars, Lines
from study.records import MissingRecords, RecordsError
from support.study import ROOT, header, sample

SIZES = (8, 64)
HOSTILE = "<script>alert(1)</script> $x$ | `a` *b* [c](d) \\ é"


def _ratio(records):
    ratio = records.ratio("taped", "compiled", "cpu_seconds", size=64)
    outcome = "held" if ratio.low > 2.0 else "refuted" if ratio.high < 2.0 else "undecided"
    p = records.p_value("taped", "compiled", "cpu_seconds", 2.0, size=64)
    return Verdict(outcome, {"ratio": ratio, "nodes": records.count("taped", "nodes", size=64)}, p)


def _torch(records):
    return Verdict("held", {"torch": records.estimate("torch", "cpu_seconds", size=8)})


def _pictures(records):
    ratio = records.ratio("taped", "compiled", "cpu_seconds", size=64)
    return [
        Lines.from_records(
            records, name="alpha", title=f"Taped takes {ratio.median:.3g} times as long", x="size",
            metric="cpu_seconds", systems=["taped", "compiled", "torch"], x_label="elements",
            y_label="CPU time", ratio_to="compiled", unit="s",
        ),
        Bars(
            "sizes", "CPU time by size", "CPU time",
            {str(n): {s: records.estimate(s, "cpu_seconds", size=n) for s in records.systems()}
             for n in records.axis("size")}, "s",
        ),
    ]  # fmt: skip


ALPHA = SimpleNamespace(
    NAME="alpha",
    QUESTION="What does a tape cost?",
    HYPOTHESES=(
        Hypothesis("ratio", "A tape takes {ratio} times as long.", "A ratio below.", _ratio),
        Hypothesis("torch", "PyTorch takes {torch:s}.", "Another time.", _torch),
    ),
    pictures=_pictures,
)


def alpha_lines(factor=3.0, systems=("taped", "compiled")):
    """Records of 15 rounds on a machine that slows down, in which taped takes `factor` times."""
    seconds = {"taped": factor, "compiled": 1.0, "torch": 5.0}
    return [
        sample(
            system, number, seconds[system] * 1e-6 * size * (1 + number / 100),
            experiment="alpha", config={"size": size},
        )
        for size in SIZES
        for number in range(15)
        for system in systems
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def experiments(monkeypatch):
    """Two experiments: one above, and one that cannot be imported."""
    known = {"alpha": ALPHA}

    def load(name):
        if name not in known:
            raise ImportError(f"no module {name}")
        return known[name]

    monkeypatch.setattr(report, "experiment_names", lambda: ["alpha", "ablation", "broken"])
    monkeypatch.setattr(report, "load_experiment", load)
    return known


def write(path, lines, first=None, end=""):
    data = "".join(json.dumps(line) + "\n" for line in [first or header(), *lines]) + end
    path.write_text(data, encoding="utf-8")
    return path


def text_of(tmp_path, lines, first=None, end=""):
    path = write(tmp_path / "records.jsonl", lines, first, end)
    made = report.read_report(path)
    return made.markdown(), made


# ------------------------------------------------------------------ text


def test_a_hypothesis_is_held_with_its_numbers_and_what_would_refute_it(tmp_path):
    text, made = text_of(tmp_path, alpha_lines())
    assert (
        "* **held**: A tape takes 3.00 times as long. Measured: ratio 3.00; nodes 3; p "
        "6.1·10⁻⁵ after Holm's correction. Refuted by: A ratio below." in text
    )
    assert "* **undecided**: PyTorch takes (not measured). (cpu\\_seconds of torch" in text
    assert "Of 2 hypotheses, written down before measuring: 1 held, 1 undecided." in text
    assert made.faults == []


def test_a_changed_record_changes_the_text_the_table_and_the_title(tmp_path):
    before, _ = text_of(tmp_path, alpha_lines())
    after, made = text_of(tmp_path, alpha_lines(1.5))
    assert "**refuted**: A tape takes 1.50 times as long" in after
    assert "![Taped takes 1.5 times as long](alpha.svg)" in after
    table = [block.text for block in made.blocks if isinstance(block, report.Table)][-2]
    assert "| 64 | 103 µs" in table
    assert [line for line in before.splitlines() if "2.00" in line] == []
    assert before != after


def test_each_number_of_the_conditions_is_one_of_the_header(tmp_path):
    machine = {**header()["machine"], "cpu": "Z9", "threads": 7, "load_at_start": 4.25}
    first = header(machine=machine, seed=11, run="feedfeedfeed")
    text, _ = text_of(tmp_path, alpha_lines(), first)
    assert "one process on 7 threads" in text
    assert "The load of the machine was 4.25 at the start" in text
    assert "--seed 11" in text
    assert "feedfeedfeed" in text
    assert "| cpu | Z9 |" in text


def test_a_quick_run_says_that_its_numbers_are_not_results(tmp_path):
    quick, _ = text_of(tmp_path, alpha_lines(), header(quick=True))
    assert "**A quick run**" in quick
    assert "--quick" in quick
    full, _ = text_of(tmp_path, alpha_lines())
    assert "quick" not in full


def test_systems_that_were_not_measured_are_lines_the_wrong_ones_first(tmp_path):
    failure = {**sample("jax", 0, 1.0, experiment="alpha"), "message": "no interpreter has jax"}
    for entry in ("metrics", "counts", "check"):
        del failure[entry]
    failure["status"] = "absent"
    wrong = {
        **failure, "system": "torch", "status": "wrong", "message": "grad: 3.0 came",
        "wrong": {"name": "grad", "came": 3.0, "wanted": 4.0, "relative_error": 0.25,
                  "tolerance": 1e-6},
    }  # fmt: skip
    memory = [
        {**failure, "system": "taped", "status": "out-of-memory", "config": {"size": n},
         "message": "4 GiB"} for n in (1, 2)
    ]  # fmt: skip
    text, _ = text_of(tmp_path, [failure, *memory, wrong, *alpha_lines()])
    at = [text.index(part) for part in (
        "* PyTorch eager: **wrong** at `{\"size\": 1}`: grad: 3.0 came",
        "* odyssey taped: out-of-memory at 2 configs: 4 GiB",
        "* JAX jit: absent: no interpreter has jax",
    )]  # fmt: skip
    assert at == sorted(at)
    assert "| JAX jit | jax – | 0 | 0 | 1 absent |" in text


def test_messages_lose_the_folders_of_a_machine_and_nothing_else():
    message = "not in /opt/venv/bin/python: n/k, a/b and https://host/a/b; see '/a/b.c'"
    assert report.without_folders(message) == (
        "not in python: n/k, a/b and https://host/a/b; see 'b.c'"
    )


def test_records_of_absent_peers_alone_make_a_report(tmp_path):
    failure = {**sample("jax", 0, 1.0, experiment="alpha"), "message": "m", "status": "absent"}
    for entry in ("metrics", "counts", "check"):
        del failure[entry]
    text, made = text_of(tmp_path, [failure])
    assert "## alpha" in text
    assert made.figures() == []
    assert made.faults == []
    assert "2 undecided" in text


def test_a_run_without_records_makes_a_report_and_an_empty_file_is_refused(tmp_path):
    text, _ = text_of(tmp_path, [])
    assert "## Threats to validity" in text
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(RecordsError, match=r"empty\.jsonl: no record of a run came"):
        report.read_report(empty)


def test_an_unknown_experiment_is_shown_by_its_values(tmp_path):
    lines = [{**line, "experiment": "later"} for line in alpha_lines()]
    text, made = text_of(tmp_path, lines)
    assert "This version of the study has no experiment of this name" in text
    assert '| odyssey taped | `{"size": 64}` | 205 µs (' in text
    assert made.faults == []


def test_an_experiment_that_cannot_be_read_is_a_fault_and_the_rest_is_reported(tmp_path):
    lines = [{**line, "experiment": "broken"} for line in alpha_lines()]
    text, made = text_of(tmp_path, lines + alpha_lines())
    assert made.faults == ["broken: the experiment cannot be read: ImportError: no module broken"]
    assert "## Left out" in text
    assert "**held**: A tape takes 3.00" in text


def test_a_judge_and_pictures_that_fail_are_faults_and_no_loss_of_the_rest(tmp_path, experiments):
    def fail(records):
        raise ZeroDivisionError("by 0")

    broken = Hypothesis("broken", "Nothing breaks.", "A break.", fail)
    experiments["alpha"] = SimpleNamespace(
        **{**vars(ALPHA), "HYPOTHESES": (*ALPHA.HYPOTHESES, broken), "pictures": fail}
    )
    text, made = text_of(tmp_path, alpha_lines())
    assert made.faults == [
        "alpha: hypothesis broken: ZeroDivisionError: by 0",
        "alpha: its figures: ZeroDivisionError: by 0",
    ]
    assert "**undecided**: Nothing breaks. (its judge failed, see below)" in text
    assert "**held**: A tape takes 3.00" in text
    assert '| odyssey taped | `{"size": 8}`' in text  # values instead of figures


def test_torn_and_damaged_lines_are_reported_by_number_without_the_folder(tmp_path):
    text, made = text_of(tmp_path, [*alpha_lines(), {"study": 1, "experiment": "x"}], end='{"a')
    assert len(made.faults) == 2
    assert re.fullmatch(r"records\.jsonl: line 62 is left out: .*", made.faults[0])
    assert made.faults[1] == "records.jsonl: line 63 is left out: torn: it has no end"
    assert "line 63 is left out" in text
    assert str(tmp_path) not in text


def test_compressed_records_give_the_report_of_plain_ones(tmp_path):
    plain, _ = text_of(tmp_path, alpha_lines())
    packed = tmp_path / "packed" / "records.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress((tmp_path / "records.jsonl").read_bytes()))
    text = report.read_report(packed, "records.jsonl").markdown()
    assert text == plain
    packed.write_bytes(packed.read_bytes()[:-30])
    (fault,) = report.read_report(packed).faults
    assert "torn: it has no end" in fault


def test_text_of_strangers_is_shown_as_it_is_and_runs_nothing(tmp_path):
    lines = [
        {**line, "experiment": "later<b>", "config": {HOSTILE: HOSTILE}}
        for line in alpha_lines(systems=("taped",))[:15]
    ]
    first = header(machine={**header()["machine"], "cpu": HOSTILE}, set_aside=HOSTILE)
    text, made = text_of(tmp_path, lines, first)
    prose = re.sub(r"(`+).*?\1", "", text)
    assert re.findall(r"(?<!\\)<(?!details|/details|summary|/summary)", prose) == []
    assert re.findall(r"(?<!\\)\$", prose) == []
    page = made.html({})
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt; $x$") >= 4


def test_one_report_is_equal_bytes_whenever_it_is_made(tmp_path):
    first, _ = text_of(tmp_path, alpha_lines())
    assert text_of(tmp_path, alpha_lines())[0] == first


# ------------------------------------------------------------------ figures and files


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.alts, self.ids, self.anchors = [], [], [], set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.ids.add(attrs.get("id"))
        if tag == "img":
            self.alts.append(attrs["alt"])
        if "href" in attrs:
            self.anchors.append(attrs["href"])
        self.sources += [attrs[k] for k in ("src", "data") if k in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.slow
def test_files_are_written_with_figures_and_the_page_needs_no_other_file(tmp_path):
    pytest.importorskip("matplotlib")
    path = write(tmp_path / "records.jsonl", alpha_lines())
    said = []
    report.write_report(path, tmp_path / "out" / "deep", said.append)
    out = tmp_path / "out" / "deep"
    assert said == [f"wrote {out / 'report.md'}, report.html and 2 figures"]
    names = ["alpha", "alpha-sizes"]
    assert sorted(p.name for p in out.iterdir()) == sorted(
        [*(f"{n}.{e}" for n in names for e in ("svg", "png")), "report.md", "report.html"]
    )
    page = Page((out / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.alts == ["Taped takes 3 times as long", "CPU time by size"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert all(anchor[0] == "#" and anchor[1:] in page.ids for anchor in page.anchors)
    assert len(page.anchors) == 2
    text = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"https?://", text) == []
    assert "prefers-color-scheme: dark" in text
    svg = (out / "alpha.svg").read_text(encoding="utf-8")
    assert "Median of 15 interleaved rounds" in svg
    written = {p.name: p.read_bytes() for p in out.iterdir()}
    report.write_report(path, out, said.append)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == written


@pytest.mark.slow
def test_a_changed_record_changes_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for factor in (3.0, 4.0):
        path = write(tmp_path / "records.jsonl", alpha_lines(factor))
        drawn.append(report.draw_figures(report.read_report(path))[0])
    assert drawn[0].keys() == drawn[1].keys() == {"alpha", "alpha-sizes"}
    assert all(drawn[0][name] != drawn[1][name] for name in drawn[0])


@pytest.mark.slow
def test_a_figure_that_cannot_be_drawn_leaves_the_others(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")

    def fail(self):
        raise ValueError("no room")

    monkeypatch.setattr(Bars, "_figure", fail)
    path = write(tmp_path / "records.jsonl", alpha_lines())
    said = []
    report.write_report(path, tmp_path / "out", said.append)
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "figure alpha-sizes was not drawn: ValueError: no room" in text
    assert "](alpha-sizes.svg)" not in text
    assert "](alpha.svg)" in text


def test_without_matplotlib_nothing_is_written_and_the_message_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = write(tmp_path / "records.jsonl", alpha_lines())
    with pytest.raises(ImportError, match=r"matplotlib draws the figures .* pip install"):
        report.write_report(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_writes_a_report_and_refuses_a_file_that_has_none(tmp_path):
    pytest.importorskip("matplotlib")

    def run(*arguments):
        command = [sys.executable, "-m", "benchmarks", "study", "report", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    lines = [{**line, "experiment": "later"} for line in alpha_lines()]
    path = write(tmp_path / "records.jsonl", lines)
    done = run(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "report.md").is_file()
    path.write_text("")
    done = run(path, "--out", tmp_path / "other")
    assert done.returncode == 1
    assert "no record of a run came" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "other").exists()


# ------------------------------------------------------------------ no number is typed

NUMBER = re.compile(r"(?<![\w.-])[-−]?\d[\d.,]*(?:\s|%|$|[^\w])")
PROSE = re.compile(r"[A-Za-z]{2}.* .*[A-Za-z]{2}", re.DOTALL)


def typed_numbers(source):
    """Lines of the strings of a program that read as prose and have a number in them.

    Fields of f-strings are no part of their strings. Docstrings and messages of errors are not
    reported.
    """
    tree = ast.parse(source)
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        elif isinstance(node, ast.FormattedValue) and node.format_spec:
            left_out |= {id(inner) for inner in ast.walk(node.format_spec)}
        elif isinstance(node, ast.Raise):
            left_out |= {id(inner) for inner in ast.walk(node)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in left_out and PROSE.search(node.value) and NUMBER.search(node.value)
    ]


STUDY = ROOT / "benchmarks" / "study"
TEMPLATES = [
    STUDY / "report.py",
    STUDY / "drawing.py",
    *sorted((STUDY / "experiments").glob("*.py")),
]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_no_number_is_typed_in_the_prose_of_the_report(path):
    assert typed_numbers(path.read_text(encoding="utf-8")) == []


def test_a_typed_number_is_found_and_a_field_or_a_name_is_not():
    source = '''
QUESTION = "An op costs 0.5 µs taped."
BOUND = "Within 10 % of the peak."
FIELD = f"Within {LIMIT:.3g} of the peak of W2, in float32"
def f():
    """It takes 3 steps."""
    raise ValueError("rank 0 is missing here")
'''
    assert [line for line, _ in typed_numbers(source)] == [2, 3]


def test_numbers_of_a_verdict_that_are_not_estimates_are_written_too():
    numbers = {"nodes": 61, "peak bytes": Estimate(2e6, 2e6, 2e6, 5), "share": 0.125}
    hypothesis = Hypothesis("a", "A {share:%}, {missing} {0}, {a.b} {", "Never.", None)
    text = report._verdict_text(hypothesis, Verdict("held", numbers))
    assert "Measured: nodes 61; peak bytes 2.00 MB; share 12.5 %." in text
    hypothesis = dataclasses.replace(hypothesis, claim="A {share:%}, {missing}, {a.b}")
    text = report._verdict_text(hypothesis, Verdict("held", numbers))
    assert "A 12.5 %, (not measured), (not measured)" in text


def test_missing_records_make_a_hypothesis_undecided_with_the_reason(tmp_path):
    def judge(records):
        raise MissingRecords("nothing of that kind")

    verdicts = report._verdicts("a", [Hypothesis("h", "c", "r", judge)], None, [])
    assert verdicts[0][1] == Verdict("undecided", {}, None, "nothing of that kind")


def test_a_name_of_a_picture_stays_in_the_folder():
    assert Path("alpha.svg").name == "alpha.svg"
    with pytest.raises(ValueError, match="a picture's name is its file"):
        Bars("../../etc", "", "", {})
