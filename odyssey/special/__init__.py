"""Special functions, those that NumPy does not have."""

from odyssey.table.published import handed_on

OTHERS = ("expit", "log_expit", "logsumexp")
"""Names that SciPy has in this room, of ops that live in others."""

__all__, __getattr__, __dir__ = handed_on(__name__, OTHERS)
