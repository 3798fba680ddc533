"""``python -m tools.docs``: build the documentation site, check it, open it in a browser."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from tools.docs.build_folder import ROOT, BuildFolder
from tools.docs.source import write_source

LIBRARIES = ("sphinx", "furo", "myst_parser", "sphinx_gallery", "matplotlib", "sklearn")
# On busy cores, threads of OpenBLAS that wait for each other make small products many times slower.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


def main(argv: Sequence[str] | None = None) -> int:
    """Build, check or open the site."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    builder = commands.add_parser("build", help="write the site to build/docs/html")
    builder.add_argument(
        "--no-examples", action="store_true", help="do not run examples: a preview of the text"
    )
    commands.add_parser("open", help="show the site that was built")
    arguments = parser.parse_args(argv)
    build = BuildFolder()
    if arguments.command == "open":
        return int(not webbrowser.open((build.html / "index.html").as_uri()))
    return build_site(build, run_examples=not arguments.no_examples)


def build_site(build: BuildFolder, *, run_examples: bool = True) -> int:
    """Build the site, and return the exit status of Sphinx, for which warnings are errors."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"python -m tools.docs: {', '.join(missing)} is missing; "
            'pip install -e ".[docs]" installs what the site is built with',
            file=sys.stderr,
        )
        return 2
    from tools.docs.reference import reference_pages  # late: it needs matplotlib

    build.folder.mkdir(parents=True, exist_ok=True)
    write_source(build, reference_pages())
    settings = [] if run_examples else ["-t", "no_examples"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [
        *(sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"),
        *("-j", "2", "-b", "html", "-d", str(build.folder / "doctrees"), *settings),
        *(str(build.source), str(build.html)),
    ]
    status = subprocess.run(
        command,
        cwd=build.folder,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": paths},
        check=False,
    ).returncode
    if status == 0:
        print(f"built {_relative(build.html / 'index.html')}")
    return status


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if ROOT in path.parents else str(path)


if __name__ == "__main__":
    sys.exit(main())
