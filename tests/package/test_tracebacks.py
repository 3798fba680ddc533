"""Tracebacks of argument errors: frames of the library are cut or hidden, others are kept."""

import traceback

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.checks import hides_frame
from odyssey.errors import OdysseyError

PACKAGE = od.__path__[0]


def leaf():
    return Variable(np.ones((2, 3)), requires_grad=True)


def backward_of_many():
    with GradientTape() as tape:
        y = leaf() * 2.0
    tape.backward(y)


CALLS = {
    "option": lambda: ops.reshape(leaf(), (5,)),
    "operator": lambda: leaf() @ np.ones((2, 2)),
    "method": lambda: leaf().reshape(5),
    "axis": lambda: ops.softmax(leaf(), axis=7),
    "keyword": lambda: ops.sum(leaf(), dim=0),
    "arrays": lambda: ops.add(np.ones(2), np.ones(3)),
    "index": lambda: leaf()[5],
    "sweep": backward_of_many,
}


def frames_of(error):
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def is_ours(frame):
    return frame.f_code.co_filename.startswith(PACKAGE)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_frames_of_the_library_are_hidden_up_to_a_public_method(call):
    with pytest.raises(OdysseyError) as refused:
        call()
    ours = [frame for frame in frames_of(refused.value) if is_ours(frame)]
    assert ours
    shown = [frame for frame in ours if "__tracebackhide__" not in frame.f_locals]
    rooms = {frame.f_globals["__name__"].split(".")[1] for frame in shown}
    assert rooms <= {"variable", "tape"}
    assert all(frame.f_locals["__tracebackhide__"](refused) for frame in set(ours) - set(shown))


@pytest.mark.parametrize("name", ["option", "operator", "axis", "arrays"])
def test_rules_and_kernels_that_refused_an_operand_are_cut(name):
    with pytest.raises(OdysseyError) as refused:
        CALLS[name]()
    files = [frame.f_code.co_filename for frame in frames_of(refused.value)]
    assert files[0] == __file__
    assert {file.split("/")[-2] for file in files[1:] if file.startswith(PACKAGE)} <= {"table"}
    cause = refused.value.__cause__
    assert isinstance(cause, ValueError)
    assert cause.__traceback__ is None


def test_frames_of_a_user_are_kept():
    def refuse(x):
        raise OdysseyError("mine")

    @od.op(vjp={"x": lambda g: g})
    def own(x, /):
        return refuse(x)

    with pytest.raises(OdysseyError, match="mine") as refused:
        own(leaf())
    assert frames_of(refused.value)[-1].f_code is refuse.__code__


def test_other_errors_show_every_frame():
    class Excinfo:
        value = ValueError()

    assert not hides_frame(Excinfo)
    assert not hides_frame(None)
    Excinfo.value = OdysseyError()
    assert hides_frame(Excinfo)
