"""Modules list their public names, and nothing else, at ``dir`` and so at tab completion."""

import importlib
import pkgutil

import pytest

import odyssey
from odyssey.table.registry import op_names

MODULES = [
    "odyssey",
    *(f"odyssey.{module.name}" for module in pkgutil.iter_modules(odyssey.__path__)),
    "odyssey.losses.gradients",
    "odyssey.optim.schedules",
]
MODULES.remove("odyssey.__main__")

NEEDS_NUMBA = "odyssey.kernels"

# An op's module exports aliases as well, and names of ops of other packages.
OPS = {*op_names(others=True)}


def public_names(module):
    return [name for name in dir(module) if not name.startswith("_")]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_only_what_it_exports_and_its_submodules(name):
    module = importlib.import_module(name)
    exported = {*getattr(module, "__all__", ())}
    submodules = {m.name for m in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    assert not set(public_names(module)) - exported - submodules - OPS


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_all_that_it_exports_and_each_listed_name_is_an_attribute(name):
    module = importlib.import_module(name)
    assert {*getattr(module, "__all__", ())} <= {*dir(module)}
    for listed in dir(module) if name != NEEDS_NUMBA else ():
        getattr(module, listed)
