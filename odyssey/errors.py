"""Errors raised on purpose; messages say who, what came, what was wanted, what to do."""

import numpy as np

__all__ = [
    "CompileError",
    "CompileWarning",
    "DTypeError",
    "DeviceError",
    "DeviceMemoryError",
    "DistributedError",
    "FileError",
    "FormatError",
    "IndependentWarning",
    "LinAlgError",
    "MissingFileError",
    "MissingGradientError",
    "MutationError",
    "NonFiniteError",
    "NotDifferentiableError",
    "OdysseyError",
    "OutOfRangeError",
    "SettingError",
    "ShapeError",
    "TapeConsumedError",
    "TapeError",
    "TapeMismatchError",
    "UnknownOpError",
    "UnreachedError",
    "UntrackedError",
    "VmapWarning",
    "WideningWarning",
]


class OdysseyError(Exception):
    """Base of every error below."""


class ShapeError(OdysseyError, ValueError):
    """Sizes or axes do not fit together."""


class OutOfRangeError(ShapeError, IndexError):
    """An index points outside of its axis."""


class SettingError(OdysseyError, ValueError):
    """A number, word or format that is out of range, or unknown, where it was given."""


class LinAlgError(OdysseyError, np.linalg.LinAlgError):
    """A matrix lacks what was asked for: an inverse, a factor, or values that were found."""


class DTypeError(OdysseyError, TypeError):
    """A type of number, or of object, that has no meaning here."""


class TapeError(OdysseyError, RuntimeError):
    """A tape was asked for something it cannot answer."""


class TapeMismatchError(TapeError):
    """Values of two recordings met in one operation."""


class TapeConsumedError(TapeError):
    """The tape's nodes were already spent by an earlier sweep."""


class UnknownOpError(TapeError, AttributeError):
    """There is no op of this name."""


class UnreachedError(TapeError, KeyError):
    """The sweep that made these gradients did not come by this Variable."""

    __str__ = Exception.__str__  # that of a KeyError would put the message in quotes


class UntrackedError(TapeError):
    """A value that depends on a trainable leaf was computed while nothing recorded."""


class MutationError(TapeError):
    """An array changed between its recording and the sweep that needs it."""


class NonFiniteError(OdysseyError, FloatingPointError):
    """The first NaN or infinity met by a tape in its careful mode; or too many skipped steps."""


class NotDifferentiableError(OdysseyError):
    """The op has no derivative with respect to this operand."""


class MissingGradientError(OdysseyError):
    """An optimizer met a parameter whose gradient was never computed."""


class CompileError(OdysseyError, RuntimeError):
    """A function that ``compile(fn, fullgraph=True)`` cannot make a program of.

    With ``copies="error"``: a function whose program would copy a captured Variable.
    """


class CompileWarning(UserWarning):
    """A compiled function runs eagerly; the message says why, where and what to do."""


class IndependentWarning(UserWarning):
    """The result of a function depends on nothing of what it is differentiated with respect to."""


class VmapWarning(UserWarning):
    """An op without a batch rule is called once for each example by ``vmap``."""


class WideningWarning(UserWarning):
    """A program of float32 inputs computes in float64 from some op on, because of a constant."""


class DeviceError(OdysseyError, RuntimeError):
    """The device is unknown, or not available on this machine."""


class DeviceMemoryError(OdysseyError, MemoryError):
    """The device has less free memory than was asked for."""


class DistributedError(OdysseyError, RuntimeError):
    """A collective of several processes did not complete; the processes can only end."""


class FileError(OdysseyError, OSError):
    """A file cannot be written or read, for a reason that the system gave."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class FormatError(OdysseyError, ValueError):
    """A file is not what was saved: cut off, damaged, edited, of another program or version."""


def __dir__() -> list[str]:
    return sorted(__all__)
