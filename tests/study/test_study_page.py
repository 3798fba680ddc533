"""The page of the study in the documentation is that of its records."""

import gzip
import json

import pytest

from support.study import header, sample
from tools import study
from tools.docs import source


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout of its own for the page."""
    monkeypatch.setattr(study, "ROOT", tmp_path)
    monkeypatch.setattr(study, "PAGE", tmp_path / "docs" / "study.md")
    monkeypatch.setattr(study, "FOLDER", tmp_path / "docs" / "study")
    monkeypatch.setattr(study, "RECORDS", tmp_path / "docs" / "study" / "records.jsonl.gz")
    return tmp_path


def records(path, seconds=1e-6):
    lines = [header(), *(sample("taped", n, seconds, experiment="later") for n in range(5))]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_page_and_the_figures_are_those_of_the_records():
    assert study.stale_files() == [], "refresh with 'python -m tools.study'"


def test_page_figures_and_records_are_small():
    files = [study.PAGE, *study.FOLDER.glob("*")]
    assert sum(path.stat().st_size for path in files if path.is_file()) < study.MOST_BYTES


@pytest.mark.slow
def test_records_of_another_run_make_the_page_again(place, capsys):
    pytest.importorskip("matplotlib")
    assert study.main([str(records(place / "new.jsonl"))]) == 0
    assert study.main(["--check"]) == 0
    page = study.PAGE.read_text(encoding="utf-8")
    assert page.startswith("# What do dynamic graphs cost?\n\n<!-- made by python -m tools.study")
    assert "[records.jsonl.gz](study/records.jsonl.gz)" in page
    assert "report docs/study/records.jsonl.gz" in page
    packed = study.RECORDS.read_bytes()
    assert gzip.decompress(packed) == (place / "new.jsonl").read_bytes()
    (study.FOLDER / "old.svg").write_text("of an earlier page")
    assert study.stale_files() == [study.FOLDER / "old.svg"]
    assert study.main([]) == 0
    assert study.stale_files() == []
    assert study.PAGE.read_text(encoding="utf-8") == page
    study.PAGE.write_text(page.replace("1.00 µs", "2.00 µs"), encoding="utf-8")
    assert study.main(["--check"]) == 1
    assert "differs: docs/study.md" in capsys.readouterr().out
    assert study.main([str(records(place / "new.jsonl", 2e-6))]) == 0
    assert "2.00 µs" in study.PAGE.read_text(encoding="utf-8")
    assert study.RECORDS.read_bytes() != packed


def test_a_file_that_has_no_records_replaces_nothing(place):
    (place / "none.jsonl").touch()
    with pytest.raises(ValueError, match="no record of a run came"):
        study.main([str(place / "none.jsonl")])
    assert [path.name for path in place.iterdir()] == ["none.jsonl"]


def test_a_link_to_a_file_of_the_documentation_is_a_download(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "records.gz").touch()
    page = tmp_path / "study.md"
    text = "[a](study/records.gz) ![b](study/figure.svg) [c](none.gz)"
    assert source._with_source_links(page, "study.md", text, tmp_path) == (
        "{download}`a <study/records.gz>` ![b](study/figure.svg) [c](none.gz)"
    )
