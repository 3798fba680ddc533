"""Special functions, those that NumPy does not have."""

from odyssey.table.registry import lazy_module_interface

OTHERS = ("expit", "log_expit", "logsumexp")
"""Names that SciPy has in this room, of ops that live in others."""

__all__, __getattr__, __dir__ = lazy_module_interface(__name__, OTHERS)
