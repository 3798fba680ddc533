"""A last check: no process of a run is left when the tests have ended."""

import os

import pytest

from support.ranks import MARKER, processes_marked


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left():
    yield
    left = processes_marked(f"{os.getpid()}-")
    assert not left, f"processes with {MARKER} are left: {left}"
