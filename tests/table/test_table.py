"""The table itself: whose rows are in it, and what may enter it."""

import importlib
import pkgutil
import sys
from functools import wraps
from types import ModuleType

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import OdysseyError
from odyssey.ops import COMPOSITES, OPS
from odyssey.table import declare, registry


@pytest.fixture
def family(monkeypatch):
    """Make the namespace of a module with one op, which the index knows as a family."""
    registry.load_all()
    monkeypatch.setattr(registry, "_LOADED", set(registry._LOADED))
    for name in ("_ROWS", "_COMPOSITES", "_NAMES"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    families = registry.OP_MODULES | {"odyssey.somewhere"}
    monkeypatch.setattr(registry, "OP_MODULES", families)

    def make(name):
        module = ModuleType("odyssey.somewhere")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return declaring(name, vars(module))

    return make


def declaring(name, space):
    space |= {"np": np, "op": declare.op}
    exec(f"@op(ufunc=np.exp)\ndef {name}(x, /):\n    '''Doc.'''\n    return np.exp(x)", space)
    return space


def test_a_module_that_is_no_family_enters_nothing_and_nobody_writes_to_the_table():
    stranger = declaring("another", {"__name__": "odyssey.somewhere"})
    with pytest.raises(OdysseyError, match=r"publish: the table is sealed, odyssey\.somewhere"):
        declare.publish(stranger)
    with pytest.raises(TypeError):
        OPS["another"] = OPS["exp"]
    with pytest.raises(TypeError):
        del OPS["exp"]


def test_rows_of_families_are_ours_wherever_they_lie_and_others_are_not(family):
    space = family("another")
    declare.publish(space)
    assert registry._ROWS["another"] is space["another"].row
    assert not space["another"].row.foreign
    assert not any(row.foreign for row in OPS.values())


@pytest.mark.parametrize(
    "module", ["odyssey.elsewhere", "odyssey.nn.activations.smooth", "__main__"]
)
def test_an_op_from_outside_is_no_op_of_ours_whatever_its_module_calls_itself(module):
    od.nn.gelu  # noqa: B018  (which loads the family)
    assert declaring("another", {"__name__": module})["another"].row.foreign


def test_a_function_that_borrows_the_name_of_an_op_of_ours_is_not_ours():
    @declare.op(elementwise=True)
    @wraps(od.ops.exp.row.reference)
    def borrowed(x, /):
        return np.exp(x)

    assert borrowed.row.foreign


@pytest.mark.parametrize("name", ["exp", "sub", "remainder", "vstack"])
def test_two_ops_of_one_name_are_refused_and_nothing_is_entered(family, name):
    space = declaring("another", family(name))
    known = dict(registry._NAMES)
    assert name in known
    with pytest.raises(OdysseyError, match=f"publish: two ops are called '{name}'"):
        declare.publish(space)
    assert known == registry._NAMES
    assert "another" not in registry._ROWS


def test_every_name_and_alias_is_an_attribute_of_ops():
    for row in OPS.values():
        for name in (row.name, *row.aliases):
            assert getattr(od.ops, name) is row.call
    for name, function in COMPOSITES.items():
        for alias in (name, *function.aliases):
            assert getattr(od.ops, alias) is function


@pytest.mark.parametrize("room", ["fft", "linalg", "special", "nn"])
def test_a_room_hands_on_its_ops_and_no_module_hides_one(room):
    face = importlib.import_module(f"odyssey.{room}")
    rows = [row for row in OPS.values() if row.module.startswith(f"odyssey.{room}.")]
    functions = [f for f in COMPOSITES.values() if f.__module__.startswith(f"odyssey.{room}.")]
    assert sorted(face.__all__) == sorted([r.name for r in rows] + [f.__name__ for f in functions])
    for name in face.__all__:
        assert getattr(face, name) is getattr(od.ops, name)
    assert not {m.name for m in pkgutil.iter_modules(face.__path__)} & set(face.__all__)
