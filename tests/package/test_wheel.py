"""The wheel, built and installed elsewhere: what is in it works, and nothing else is in it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "odyssey"

pytestmark = pytest.mark.soak  # the build fetches its backend


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(ROOT), "--no-deps", "--wheel-dir", str(folder))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder that holds the installed package and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("site")
    pip("install", str(wheel), "--no-deps", "--no-index", "--target", str(folder))
    return folder


def pip(*arguments):
    run("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments, cwd=ROOT.parent)


def run(*arguments, cwd, path=None):
    """Run Python in a folder, with what is installed in ``path`` before all else."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_holds_the_package_with_its_types_and_nothing_else_of_the_checkout(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.split("/")[0].endswith(".dist-info")} == wanted
    assert "odyssey/py.typed" in wanted
    assert {name for name in wanted if not name.endswith((".py", ".pyi"))} == {"odyssey/py.typed"}


def test_the_metadata_names_the_versions_and_the_license(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith("/METADATA")]
        metadata = file.read(name).decode()
    assert re.search(r"^Requires-Python: >=3\.11$", metadata, re.MULTILINE)
    assert re.search(r"^License-File: LICENSE$", metadata, re.MULTILINE)


def test_what_runs_is_the_installed_package(site, tmp_path):
    where = run("-c", "import odyssey; print(odyssey.__file__)", cwd=tmp_path, path=site)
    assert Path(where.strip()) == site / "odyssey" / "__init__.py"


SAVING = """
import json
import numpy as np
import odyssey as od

w = od.Variable(np.arange(3.0), requires_grad=True)
optimizer = od.optim.Adam([w])
with od.GradientTape() as tape:
    loss = od.losses.mean_squared_error(od.nn.gelu(w), np.ones(3))
tape.backward(loss)
optimizer.step()
od.save("state.npz", {"w": w, "optimizer": optimizer})
fresh = od.Variable(np.zeros(3), requires_grad=True)
od.load("state.npz", like={"w": fresh, "optimizer": od.optim.Adam([fresh])})
print(json.dumps([w.data.tolist(), fresh.data.tolist()]))
"""


def test_it_saves_and_loads(site, tmp_path):
    one, other = json.loads(run("-c", SAVING, cwd=tmp_path, path=site))
    assert one == other
    assert one != [0.0, 1.0, 2.0]


def test_it_tells_of_an_op(site, tmp_path):
    told = run("-m", "odyssey", "ops", "exp", cwd=tmp_path, path=site)
    assert re.search(r"^derivative in x +mul\(g, out\)$", told, re.MULTILINE)


def test_it_trains(site, tmp_path):
    for extra in ("sklearn", "tqdm"):
        pytest.importorskip(extra)
    command = ("-m", "odyssey", "train", "--epochs", "2", "--no-plot")
    assert "test accuracy: 0.9" in run(*command, cwd=tmp_path, path=site)


def test_an_example_runs_where_it_is_copied_to(site, tmp_path):
    copy = shutil.copy(ROOT / "examples" / "01_xor.py", tmp_path)
    assert run(copy, cwd=tmp_path, path=site)
