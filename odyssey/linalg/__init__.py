"""Linear algebra: products, linear systems, decompositions, norms and matrix functions."""

from odyssey.table.registry import lazy_module_interface

__all__, __getattr__, __dir__ = lazy_module_interface(__name__)
