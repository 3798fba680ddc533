"""The examples and ``python -m odyssey train`` run as a reader would run them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import odyssey
from odyssey import cli
from odyssey.cli.arguments import import_extra

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))

EXTRAS = ("sklearn", "matplotlib", "tqdm")
missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
needs_extras = pytest.mark.skipif(
    bool(missing), reason=f"needs the extra 'examples'; missing here: {', '.join(missing)}"
)


def run_python(*arguments, cwd):
    """Run Python on the checkout's package, away from the checkout, and return what it printed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Beside other tests, threads of OpenBLAS that wait for each other take four times as long.
    # Pictures open no window.
    settings = {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **settings, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_there_are_examples():
    assert EXAMPLES


# These take about a second each, half of which is the import of matplotlib.
ARGUMENTS = {"22_language_model.py": ("100",)}  # training steps
LIGHT = ("01_xor.py", "02_linear_regression.py", "04_explicit_tape.py", "10_gaussian_process.py")


@pytest.mark.share(3, rest="slow")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[] if path.name in LIGHT else pytest.mark.slow)
        for path in EXAMPLES
    ],
)
def test_example_reaches_what_it_asserts(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    if "Needs scikit-learn" in text and "sklearn" in missing:
        pytest.skip("needs scikit-learn, which is not installed")
    if "Needs tokenizers" in text:
        for library in ("tokenizers", "safetensors"):
            pytest.importorskip(library)
    assert run_python(str(path), *ARGUMENTS.get(path.name, ()), cwd=tmp_path)
    assert not list(tmp_path.iterdir()), "an example leaves no files"


@pytest.mark.slow
@needs_extras
def test_train_reads_97_percent_of_the_digits_and_saves_its_picture(tmp_path):
    picture = tmp_path / "digits.png"
    printed = run_python("-m", "odyssey", "train", "--plot", str(picture), cwd=tmp_path)
    accuracy = re.search(r"^test accuracy: ([\d.]+)", printed, re.MULTILINE)
    assert accuracy, printed
    assert float(accuracy[1]) >= 0.97
    assert str(picture) in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


@needs_extras
@pytest.mark.slow
def test_train_repeats_itself_with_a_seed_and_saves_no_picture_when_told_so(tmp_path):
    command = ("-m", "odyssey", "train", "--epochs", "1", "--seed", "3", "--no-plot")
    first, second = run_python(*command, cwd=tmp_path), run_python(*command, cwd=tmp_path)
    assert first == second
    assert not list(tmp_path.iterdir())


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"odyssey {odyssey.__version__}\n"


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(extra, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == extra]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, extra, None)  # importing it now fails as if it were missing
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match=r'pip install -e "\.\[examples\]"'):
        import_extra(f"{extra}.anything", extra)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=re.escape(f'pip install -e "{ROOT}[examples]"')):
        import_extra(f"{extra}.anything", extra)


def test_an_extra_that_is_broken_shows_its_own_error(monkeypatch, tmp_path):
    (tmp_path / "broken_extra.py").write_text("import no_such_module_here\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        import_extra("broken_extra", "broken-extra")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param([], "COMMAND", id="no command"),
        pytest.param(["train", "--epochs", "0"], "'0' is not a positive", id="no epochs"),
        pytest.param(["train", "--epochs", "many"], "'many' is not a positive", id="words"),
        pytest.param(["train", "--plot", "none/such/a.png"], "does not exist", id="no folder"),
        pytest.param(["train", "--plot", "a.png", "--no-plot"], "not allowed", id="both"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as leaving:
        cli.main(arguments)
    assert leaving.value.code == 2
    assert complaint in capsys.readouterr().err
