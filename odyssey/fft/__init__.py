"""Discrete Fourier transforms along one axis or several."""

from odyssey.table.registry import lazy_module_interface

__all__, __getattr__, __dir__ = lazy_module_interface(__name__)
