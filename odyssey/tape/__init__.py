"""GradientTape: record operations, sweep backward and forward over the record."""

from odyssey.tape.gradient_tape import GradientTape
from odyssey.tape.gradients import Gradients
from odyssey.tape.report import TapeNode

__all__ = ["GradientTape", "Gradients", "TapeNode"]
