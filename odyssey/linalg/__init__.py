"""Linear algebra: products of vectors and matrices, eigenvalues."""

from odyssey.table.published import handed_on

__all__, __getattr__, __dir__ = handed_on(__name__)
