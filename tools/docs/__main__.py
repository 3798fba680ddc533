"""``python -m tools.docs``: build the documentation site, check it, open it in a browser."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.docs.build_folder import ROOT, BuildFolder
from tools.docs.source import remove_old_pages, write_source

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
    checker = commands.add_parser("check", help="check the site that was built, also in Chromium")
    checker.add_argument("--no-browser", action="store_true", help="check the files only")
    commands.add_parser("open", help="show the site that was built")
    arguments = parser.parse_args(argv)
    build = BuildFolder()
    if arguments.command == "open":
        return int(not webbrowser.open((build.html / "index.html").as_uri()))
    if arguments.command == "check":
        return check_site(build, in_browser=not arguments.no_browser)
    return build_site(build, run_examples=not arguments.no_examples)


def build_site(
    build: BuildFolder,
    *,
    run_examples: bool = True,
    reference: Mapping[str, str] | None = None,
    root_pages: bool = True,
) -> int:
    """Build the site, and return the exit status of Sphinx, for which warnings are errors.

    Args:
        build: The folders.
        run_examples: Whether examples run; without, their pages show no output.
        reference: Generated pages; by default those of the whole reference.
        root_pages: Whether files of the checkout's root, as ``DESIGN.md``, have pages.
    """
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"python -m tools.docs: {', '.join(missing)} is missing; "
            'pip install -e ".[docs]" installs what the site is built with',
            file=sys.stderr,
        )
        return 2
    if reference is None:
        from tools.docs.reference import reference_pages  # late: it imports the whole library

        reference = reference_pages()
    build.folder.mkdir(parents=True, exist_ok=True)
    write_source(build, reference, root_pages=root_pages)
    settings = [] if run_examples else ["-t", "no_examples"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [
        *(sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"),
        *("-j", "2", "-b", "html", "-d", str(build.folder / "doctrees"), *settings),
        *(str(build.source), str(build.html)),
    ]
    # Sphinx adds what it reads to the search index of the build before, and so needs it complete.
    unfinished = build.folder / "unfinished"
    if unfinished.exists():
        shutil.rmtree(build.folder / "doctrees", ignore_errors=True)
    unfinished.touch()
    status = subprocess.run(
        command,
        cwd=build.folder,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": paths},
        check=False,
    ).returncode
    unfinished.unlink()
    remove_old_pages(build)
    if status == 0:
        print(f"built {_relative(build.html / 'index.html')}")
    return status


def check_site(build: BuildFolder, *, in_browser: bool = True) -> int:
    """Check the built site, print the faults, and return the exit status."""
    from tools.docs.check_browser import check_browser, chromium
    from tools.docs.check_files import check_coverage, check_files

    if not (build.html / "index.html").is_file():
        print("python -m tools.docs: there is no site; build it first", file=sys.stderr)
        return 2
    faults = [*check_files(build), *check_coverage(build.html)]
    skipped = ""
    if in_browser and importlib.util.find_spec("playwright") is None:
        skipped = 'playwright is missing; pip install -e ".[docs]" installs it'
    elif in_browser and chromium() is None:
        skipped = "Chromium is missing; on Debian and Ubuntu, apt-get install chromium installs it"
    elif in_browser:
        faults += check_browser(build.html, _pages_to_open(build))
    for fault in faults:
        print(fault)
    if skipped:
        print(f"checks in a browser are skipped: {skipped}")
    print(f"{len(faults)} faults" if faults else "the site has no faults")
    return int(bool(faults))


def _pages_to_open(build: BuildFolder) -> list[str]:
    """Return the pages to open: all, but of the pages of single ops and objects one in twelve."""
    pages = sorted(build.html.rglob("*.html"))
    names = [path.relative_to(build.html).as_posix().removesuffix(".html") for path in pages]
    single = ("reference/ops/", "reference/api/", "reference/families/")
    return [
        *(name for name in names if not name.startswith(single) and "_static" not in name),
        *[name for name in names if name.startswith(single)][::12],
    ]


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if ROOT in path.parents else str(path)


if __name__ == "__main__":
    sys.exit(main())
