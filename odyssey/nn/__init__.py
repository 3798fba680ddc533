"""Neural networks: activations, softmax, layers, as functions."""

from odyssey.table.published import handed_on

OTHERS = ("one_hot", "random_normal", "random_uniform")
"""Names that networks are written with, of ops that live in other rooms."""

__all__, __getattr__, __dir__ = handed_on(__name__, OTHERS)
