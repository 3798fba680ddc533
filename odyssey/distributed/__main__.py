"""Run a script as one rank: ``python -m odyssey.distributed script.py``, as under ``srun``."""

import sys

from odyssey.distributed.runner import main

if __name__ == "__main__":
    main(sys.argv[1:])
