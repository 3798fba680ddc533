"""Names of other libraries, where people look for them, say what is written here."""

import importlib
import re

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.suggestions import MISSING_NAMES

GUESSES = [(place, name) for place, names in MISSING_NAMES.items() for name in names]


@pytest.mark.parametrize(("place", "name"), GUESSES)
def test_a_guessed_name_is_answered_by_one_that_exists(place, name):
    words = MISSING_NAMES[place][name]
    optimizer = od.optim.SGD(Variable(np.ones(2), True), 0.1)
    objects = {"optimizer": optimizer, "scaler": od.optim.LossScaler()}
    thing = objects[place] if place in objects else importlib.import_module(place)
    with pytest.raises(AttributeError, match=f"{name}'; {re.escape(words)}"):
        getattr(thing, name)
    for path in re.findall(r"\bod((?:\.\w+)+)", words):
        found = od
        for part in path[1:].split("."):
            found = getattr(found, part)
    if place == "optimizer":
        known = re.match(r"write (\w+)", words)
        assert not known or known[1] == "tape" or hasattr(optimizer, known[1])
