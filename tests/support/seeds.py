"""Seed of the random loops of soaks: 0, or what ODYSSEY_TEST_SEED says, to explore or to repeat."""

import os

SEED = int(os.environ.get("ODYSSEY_TEST_SEED", "0"))
# Settings of hypothesis for soaks: without a seed each run tries the same examples; with one,
# those that ``--hypothesis-seed`` chooses.
DERANDOMIZE = SEED == 0
