"""GradientTape: record operations, sweep backward and forward over the record."""

from odyssey.tape.gradient_tape import GradientTape
from odyssey.tape.gradients import Gradients

__all__ = ["GradientTape", "Gradients"]
