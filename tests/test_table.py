"""The table itself: whose rows are in it, and what may enter it."""

import importlib
import pkgutil

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import OdysseyError
from odyssey.ops import COMPOSITES, OPS
from odyssey.table import declare, published


@pytest.fixture
def open_table(monkeypatch):
    """The table as it is while families are imported, put back afterwards."""
    monkeypatch.setattr(published, "_SEAL", [])
    for name in ("_ROWS", "_COMPOSITES", "_NAMES"):
        monkeypatch.setattr(published, name, dict(getattr(published, name)))
    monkeypatch.setattr(published, "FAMILIES", set(published.FAMILIES))


def family(name):
    """The namespace of a module with one op, called ``name``."""
    space = {"__name__": "odyssey.somewhere", "np": np, "op": declare.op}
    exec(f"@op(ufunc=np.exp)\ndef {name}(x, /):\n    '''Doc.'''\n    return np.exp(x)", space)
    return space


def test_the_table_is_sealed_after_the_import_and_cannot_be_written_to():
    with pytest.raises(OdysseyError, match=r"publish: the table is sealed, odyssey\.somewhere"):
        declare.publish(family("another"))
    with pytest.raises(TypeError):
        OPS["another"] = OPS["exp"]


def test_rows_of_families_are_ours_wherever_they_lie_and_later_ones_are_not(open_table):
    space = family("another")
    declare.publish(space)
    assert published._ROWS["another"] is space["another"].row
    assert not space["another"].row.foreign
    published._SEAL.append(True)
    assert family("another")["another"].row.foreign
    assert not any(row.foreign for row in OPS.values())


@pytest.mark.parametrize("name", ["exp", "sub", "remainder", "vstack"])
def test_two_ops_of_one_name_are_refused(open_table, name):
    known = dict(published._NAMES)
    assert name in known
    with pytest.raises(OdysseyError, match=f"publish: two ops are called '{name}'"):
        declare.publish(family(name))
    assert known == published._NAMES


def test_every_name_and_alias_is_an_attribute_of_ops():
    for row in OPS.values():
        for name in (row.name, *row.aliases):
            assert getattr(od.ops, name) is row.call
    for name, function in COMPOSITES.items():
        for alias in (name, *function.aliases):
            assert getattr(od.ops, alias) is function


@pytest.mark.parametrize("room", ["linalg", "special", "nn"])
def test_a_room_hands_on_its_ops_and_no_module_hides_one(room):
    face = importlib.import_module(f"odyssey.{room}")
    rows = [row for row in OPS.values() if row.module.startswith(f"odyssey.{room}.")]
    functions = [f for f in COMPOSITES.values() if f.__module__.startswith(f"odyssey.{room}.")]
    assert sorted(face.__all__) == sorted([r.name for r in rows] + [f.__name__ for f in functions])
    for name in face.__all__:
        assert getattr(face, name) is getattr(od.ops, name)
    assert not {m.name for m in pkgutil.iter_modules(face.__path__)} & set(face.__all__)
