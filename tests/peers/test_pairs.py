"""Functions of torch and jax, and what they are called here: values and gradients agree."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from odyssey import ops
from support.pairs import of_jax, of_ours, of_torch
from support.peers import jax, torch  # noqa: F401

pytestmark = pytest.mark.peers

FAMILIES = sorted(path.stem for path in Path(__file__).parent.glob("pairs_*.py"))
PAIRS = [p for family in FAMILIES for p in importlib.import_module(family).PAIRS]


def labels():
    found = {}
    for p in PAIRS:
        found[p.theirs] = found.get(p.theirs, 0) + 1
        yield f"{p.theirs}-{found[p.theirs]}"


@pytest.mark.parametrize("p", PAIRS, ids=list(labels()))
def test_values_and_gradients_agree(p, request):
    peer = request.getfixturevalue(p.peer)
    assert hasattr(ops, p.ours.rpartition(".")[2]) or "." in p.ours, f"{p.ours} is not an op"
    values, gradients = of_ours(p)
    wanted, slopes = (of_torch if p.peer == "torch" else of_jax)(p, peer)
    assert len(values) == len(wanted)
    for got, want in zip((*values, *gradients), (*wanted, *slopes), strict=True):
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=p.tolerance, atol=p.tolerance)


def test_the_count_of_torchs_names_is_told():
    names = {p.theirs for p in PAIRS if p.peer == "torch"}
    print(f"\n{len(names)} names of torch: {', '.join(sorted(names))}")
    assert names
