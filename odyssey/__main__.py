"""Run ``python -m odyssey``."""

import sys

from odyssey.cli import main

if __name__ == "__main__":
    sys.exit(main())
