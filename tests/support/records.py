"""Dataclasses whose constructors do more than to keep what they are given."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Degrees:
    """Converts what it is given."""

    angle: Any

    def __post_init__(self):
        self.angle = np.deg2rad(self.angle)


@dataclass
class Positive:
    """Takes nothing below zero."""

    w: Any

    def __post_init__(self):
        if np.any(np.asarray(self.w) < 0):
            raise ValueError("negative")


@dataclass(init=False)
class Own:
    """Has a constructor that knows no fields, and an attribute that is none."""

    w: Any

    def __init__(self, size):
        self.w = np.ones(size)
        self.scale = 1.0
