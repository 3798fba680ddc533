"""Neural networks: activations, softmax, layers, as functions."""

from odyssey.table.published import handed_on

__all__, __getattr__, __dir__ = handed_on(__name__)
