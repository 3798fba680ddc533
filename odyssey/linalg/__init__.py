"""Linear algebra: products of vectors and matrices."""

from odyssey.table.published import handed_on

__all__, __getattr__, __dir__ = handed_on(__name__)
