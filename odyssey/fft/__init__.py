"""Discrete Fourier transforms, of one axis or several."""

from odyssey.table.published import handed_on

__all__, __getattr__, __dir__ = handed_on(__name__)
