"""Tests that need what is not here are skipped, and say what they need."""

import importlib.util
import os

import pytest

PEERS_MISSING = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def pytest_collection_modifyitems(items):
    peers = pytest.mark.skip(reason=f"peers missing: {', '.join(PEERS_MISSING)}")
    cudasim = pytest.mark.skip(reason="needs NUMBA_ENABLE_CUDASIM=1")
    for item in items:
        if PEERS_MISSING and "peers" in item.keywords:
            item.add_marker(peers)
        if not SIMULATED and "cudasim" in item.keywords:
            item.add_marker(cudasim)
