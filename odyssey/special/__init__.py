"""Special functions, those that NumPy does not have."""

from odyssey.table.published import handed_on

__all__, __getattr__, __dir__ = handed_on(__name__)
