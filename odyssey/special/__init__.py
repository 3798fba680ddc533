"""Special functions that NumPy does not have, with the names of SciPy."""

from odyssey.table.registry import lazy_module_interface

OTHERS = ("expit", "log_expit", "logsumexp")
"""Names in scipy.special of ops that are defined in other packages."""

__all__, __getattr__, __dir__ = lazy_module_interface(__name__, OTHERS)
