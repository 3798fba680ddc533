"""An experiment one of whose systems does a tenth more work than the other."""

from alike import (  # noqa: F401
    FRESH,
    HYPOTHESES,
    QUESTION,
    ROUNDS,
    SYSTEMS,
    TOLERANCE,
    build,
    pictures,
    reference,
)

NAME = "planted"


def configs(quick):
    return [{"number": 0, "planted": 10}]
