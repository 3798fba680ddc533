"""``python -m tools.reference``: write the files made from the table, or say which are stale."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from odyssey.errors import OdysseyError
from tools.reference.files import FILES, refresh, stale


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files that are asked for, all by default; or only look whether they are fresh."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(FILES)}; or all")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    arguments = parser.parse_args(argv)
    kinds = arguments.kinds or list(FILES)
    if unknown := [kind for kind in kinds if kind not in FILES]:
        parser.error(f"no files are called {', '.join(unknown)}; there are {', '.join(FILES)}")
    try:
        if "index" in kinds and not arguments.check and stale("index"):
            # The rest is made by a process that starts with the new one.
            print(f"wrote {refresh('index')[0]}")
            rest = [kind for kind in kinds if kind != "index"]
            again = [sys.executable, "-m", "tools.reference", *rest]
            return subprocess.run(again, check=False).returncode if rest else 0
        done = [path for kind in kinds for path in (stale if arguments.check else refresh)(kind)]
    except OdysseyError as error:
        raise SystemExit(f"python -m tools.reference: {error}") from None
    for path in done:
        print(f"stale: {path}" if arguments.check else f"wrote {path}")
    return int(arguments.check and bool(done))


if __name__ == "__main__":
    sys.exit(main())
