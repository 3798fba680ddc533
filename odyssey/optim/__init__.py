"""Optimizers: pure (init, update) rules over trees, and holders that apply them to Variables.

Beside them are schedules of the learning rate and the clipping of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odyssey.optim.adadelta import Adadelta, adadelta
from odyssey.optim.adagrad import AdaGrad, adagrad
from odyssey.optim.adam import Adam, AdamW, adam, adamw
from odyssey.optim.adamax import Adamax, adamax
from odyssey.optim.clipping import clip_grad_global_norm, clip_grad_norm, clip_grad_value
from odyssey.optim.declare import rule_of
from odyssey.optim.groups import Group
from odyssey.optim.lars import LARS, lars
from odyssey.optim.lion import Lion, lion
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.plateau import ReduceLROnPlateau
from odyssey.optim.radam import RAdam, radam
from odyssey.optim.rmsprop import RMSprop, rmsprop
from odyssey.optim.rule import Rule
from odyssey.optim.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    MultiStepLR,
    Schedule,
    StepLR,
    WarmupCosineLR,
    WarmupLR,
)
from odyssey.optim.sgd import SGD, sgd
from odyssey.table.published import load, no_attribute

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Adamax",
    "RAdam",
    "Adadelta",
    "AdaGrad",
    "RMSprop",
    "LARS",
    "Lion",
    "Optimizer",
    "Group",
    "Rule",
    "rule_of",
    "sgd",
    "adam",
    "adamw",
    "adamax",
    "radam",
    "adadelta",
    "adagrad",
    "rmsprop",
    "lars",
    "lion",
    "Schedule",
    "StepLR",
    "MultiStepLR",
    "ExponentialLR",
    "CosineAnnealingLR",
    "WarmupLR",
    "WarmupCosineLR",
    "ReduceLROnPlateau",
    "clip_grad_value",
    "clip_grad_norm",
    "clip_grad_global_norm",
    "scipy_objective",
]

if TYPE_CHECKING:
    scipy_objective: Callable[[Callable[[Any], Any], Any], Any]


def __getattr__(name: str) -> Any:
    """``scipy_objective`` stands above the tape, which optimizers do without."""
    if name != "scipy_objective":
        raise no_attribute(__name__, name)
    value = globals()[name] = load("odyssey.objective").scipy_objective
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
