"""The numbers of the performance page are those of the records."""

import re

import pytest

from tools import performance

PAGE = performance.ROOT / "docs" / "performance.md"


def test_the_tables_of_the_pages_are_those_of_the_records():
    assert performance.stale_pages() == [], "refresh with 'python -m tools.performance'"


def test_a_number_that_was_typed_by_hand_is_found(tmp_path, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    changed = re.sub(r"\| 0\.\d+ \(", "| 0.01 (", text, count=1)
    assert changed != text
    page = tmp_path / "performance.md"
    page.write_text(changed, encoding="utf-8")
    monkeypatch.setattr(performance, "PAGES", [page])
    assert performance.stale_pages() == [page]
    assert performance.main(["--check"]) == 1
    assert performance.main([]) == 0
    assert performance.stale_pages() == []
    assert page.read_text(encoding="utf-8") == text


def test_no_figure_of_speed_stands_outside_of_the_tables():
    prose = performance.MARK.sub("", PAGE.read_text(encoding="utf-8"))
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", prose, flags=re.DOTALL)
    assert re.findall(r"\d+\.\d+|\d+ ?(?:us|ms|s|%|times)\b", prose) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.50"), (0.0051, "0.0051"), (1.04, "1.0"), (12.34, "12"), (1234.0, "1,200")],
)
def test_a_figure_has_two_significant_digits(value, text):
    assert performance.number(value) == text
