"""Gradient tapes: recording of operations, and backward and forward sweeps over the record."""

from odyssey.tape.gradient_tape import GradientTape
from odyssey.tape.gradients import Gradients

__all__ = ["GradientTape", "Gradients"]


def __dir__() -> list[str]:
    return sorted(__all__)
