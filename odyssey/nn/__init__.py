"""Neural networks: activations, softmax, layers, as functions."""

from odyssey.table.registry import lazy_module_interface

OTHERS = ("one_hot", "random_normal", "random_uniform")
"""Names that networks are written with, of ops that live in other rooms."""

__all__, __getattr__, __dir__ = lazy_module_interface(__name__, OTHERS)
