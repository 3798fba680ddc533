"""Losses, and their gradients for loops without a tape.

A loss is exported by the ``__all__`` of its file, here and from ``odyssey`` itself.
"""

from odyssey.losses import classification, gradients, regression
from odyssey.losses.classification import *  # noqa: F403
from odyssey.losses.gradients import *  # noqa: F403
from odyssey.losses.regression import *  # noqa: F403

__all__: list[str] = []
__all__ += classification.__all__
__all__ += gradients.__all__
__all__ += regression.__all__
