"""Programs whose every access to memory is looked at, for a block."""

from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from odyssey.compiler import pipeline
from odyssey.compiler.codegen import module
from odyssey.compiler.runtime import compiled_call, executable
from support.address_sanitizer import AddressSanitizer, fault_of, words_at


class Looks:
    """The programs that a block made.

    Attributes:
        programs: As Executables.
    """

    def __init__(self):
        self.programs = []

    def count(self):
        """How many accesses were looked at."""
        return sum(self._words(made)[0] for made in self.programs)

    def faults(self):
        """What went out of its buffer, in words."""
        found = [fault_of(self._words(p), p.plan, p.module.buffers) for p in self.programs]
        return [fault for fault in found if fault is not None]

    @staticmethod
    def _words(made):
        return words_at(made.loaded.address("odyssey_fault"))


@contextmanager
def looking():
    """Let programs that are made look at each address; yields Looks."""
    looks = Looks()

    def noted(*args, **named):
        looks.programs.append(executable.Executable(*args, **named))
        return looks.programs[-1]

    bounded = partial(module.generate_code, instrumentation=AddressSanitizer())
    with (
        patch.object(pipeline, "generate_code", bounded),
        patch.object(compiled_call, "Executable", noted),
    ):
        yield looks


@contextmanager
def within_bounds():
    """The same; raises AssertionError where an access went out of its buffer."""
    with looking() as looks:
        yield looks
    assert not looks.faults(), looks.faults()
