"""A binding of a program to its states that an interrupt ends leaves no address of freed memory."""

from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.native_dispatch.tables import BLOCK_FIELDS
from odyssey.compiler.runtime.executable import Executable
from odyssey.devices.ownership import address_of
from support import faults
from support.faults import in_its_thread

RUNTIME = str(Path(od.__file__).parent / "compiler" / "runtime")


@pytest.mark.slow
@in_its_thread
def test_an_interrupt_at_any_line_of_a_binding_leaves_addresses_of_living_words():
    w = od.Variable(np.zeros(8))
    bind, programs = Executable.bind, []

    def noted_bind(self):
        programs.append(self)
        bind(self)

    @od.compile
    def step(x):
        w.assign(w + x)
        return w * 2.0

    Executable.bind = noted_bind
    try:
        step.precompile(np.ones(8))
    finally:
        Executable.bind = bind
    program, n, finished, places = programs[-1], 0, False, set()
    while not finished:
        n += 1
        w.assign(np.full(8, float(n)))
        kept = w.data  # so the program must copy the array, and be bound to the copy
        try:
            with faults.interrupt(n, within=RUNTIME) as fired:
                found = step(np.ones(8))
            finished = not fired
            np.testing.assert_array_equal(found, 2.0 * (n + np.ones(8)))
        except KeyboardInterrupt:
            pass
        held = [(program.words, program._spans), *(words[:2] for words in program._retired)]
        for k, field in enumerate(("guards", "spans")):
            address = int(program.block[BLOCK_FIELDS[field]])
            assert address in {address_of(arrays[k]) for arrays in held}, (field, fired)
        places.update(name for name, _ in fired)
        del kept
    assert {"Executable._bind", "Executable.set_fields", "NativeDispatch.bind"} <= places
    native = step.statistics().native
    np.testing.assert_array_equal(step(np.ones(8)), 2.0 * (n + 2 * np.ones(8)))
    assert step.statistics().native == native + 1
    assert not program._retired
