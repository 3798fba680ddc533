"""The programs of the page on training run, in order."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_programs_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec("\n".join(PROGRAMS), names)
    assert names["w"].shape == (128, 64)
