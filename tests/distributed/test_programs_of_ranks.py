"""The programs of the page and of the gallery run on several ranks as they do alone."""

import importlib.util
import re
from pathlib import Path

import pytest

from support.ranks import run_ranks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "distributed.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "23_data_parallel.py"


@pytest.mark.slow
def test_the_programs_of_the_page_run_on_two_ranks():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    programs = [block for block in blocks if not re.search("^>>> ", block, re.MULTILINE)]
    assert len(programs) >= 5
    text = "\n".join(programs)
    assert "parallel.precompile(" in text
    assert "parallel.load(" in text
    result = run_ranks(2, f"{text}\nworld.agree(params)\nworld.print('both came to the end')\n")
    assert result.status == 0, result.stderr
    assert result.stdout.count("epoch 2") == 1  # of rank 0 alone
    assert "both came to the end" in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn")
def test_the_example_ends_with_equal_bits_on_one_and_two_ranks(tmp_path):
    printed = {}
    for ranks in (1, 2):
        result = run_ranks(ranks, EXAMPLE, env={"MPLBACKEND": "agg"})
        assert result.status == 0, result.stderr
        assert f"ranks: {ranks}, " in result.stdout
        printed[ranks] = result.stdout.partition("\n")[2]
    assert re.search(r"^parameters: \w{16}, ", printed[1], re.MULTILINE)
    assert printed[1] == printed[2]
