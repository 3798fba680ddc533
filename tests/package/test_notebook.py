"""A notebook shows Variables, tapes, graphs, explanations and profiles, also in a browser."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tools.docs.build_folder import ROOT
from tools.docs.check_browser import ARGUMENTS, chromium

missing = [
    name
    for name in ("nbconvert", "nbformat", "ipykernel", "playwright")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing), reason=f"needs the extra 'docs'; missing here: {', '.join(missing)}"
    ),
    pytest.mark.skipif(chromium() is None, reason="needs an installed Chromium"),
]

CELLS = [
    "import numpy as np, odyssey as od\n"
    "w = od.Variable(np.array([[1.0, 2.0]]), requires_grad=True, name='weights')\n"
    "w",
    "with od.GradientTape(persistent=True) as tape:\n    loss = np.tanh(w).sum()\ntape",
    "tape.explain(loss, w)",
    "step = od.compile(lambda x: np.exp(x).sum())\nx = np.ones(3)\n_ = step(x), step(x)\n"
    "step.lower(x).graph",
    "step.explain(x)",
    "step.profile(x)",
]


def test_a_notebook_shows_values_tapes_graphs_explanations_and_profiles(tmp_path):
    import nbformat
    from playwright.sync_api import sync_playwright

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    nbformat.write(notebook, tmp_path / "shown.ipynb")
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    subprocess.run(
        [
            *(sys.executable, "-m", "nbconvert", "--execute", "--to", "html"),
            *("--template", "basic", "shown.ipynb"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        timeout=200,
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        page = browser.new_page()
        faults, requests = [], []
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "shown.html").as_uri())
        text = page.inner_text("body")
        tables = page.locator("table").count()
        page.screenshot(path=str(tmp_path / "shown.png"), full_page=True)
        browser.close()
    assert faults == []
    assert requests == [(tmp_path / "shown.html").as_uri()]
    for shown in ("weights", "2 nodes", "tanh -> sum", "exp(%0)", "a program of", "kernels in"):
        assert shown in text, text
    assert tables >= 1
