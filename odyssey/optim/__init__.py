"""Optimizers: pure (init, update) rules over trees, and classes that apply them to Variables.

Beside them are schedules of the learning rate and the clipping of gradients. An optimizer is
exported by the ``__all__`` of its file.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from odyssey.optim.clipping import clip_grad_global_norm, clip_grad_norm, clip_grad_value
from odyssey.optim.declare import rule_of
from odyssey.optim.groups import Group
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.plateau import ReduceLROnPlateau
from odyssey.optim.rule import Rule
from odyssey.optim.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    MultiStepLR,
    OneCycleLR,
    Schedule,
    StepLR,
    WarmupCosineLR,
    WarmupLR,
)
from odyssey.table.index import OPTIMIZERS
from odyssey.table.registry import load_module, missing_attribute_error

__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "Group",
    "LambdaLR",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "ReduceLROnPlateau",
    "Rule",
    "Schedule",
    "StepLR",
    "WarmupCosineLR",
    "WarmupLR",
    "clip_grad_global_norm",
    "clip_grad_norm",
    "clip_grad_value",
    "rule_of",
]

_HOMES = {name: file for file, names in OPTIMIZERS.items() for name in names.split()}
for _name, _file in _HOMES.items():
    globals()[_name] = getattr(import_module(_file), _name)
# They load when they are first asked for; ``scipy_objective`` stands above the tape.
_LATE = {
    "EMA": "odyssey.optim.ema",
    "LBFGS": "odyssey.optim.lbfgs",
    "LossScaler": "odyssey.optim.loss_scaler",
    "scipy_objective": "odyssey.objective",
}
__all__ += [*_HOMES, *_LATE]


def __getattr__(name: str) -> Any:
    """Load what a name stands for when it is first asked for."""
    if name not in _LATE:
        raise missing_attribute_error(__name__, name)
    value = globals()[name] = getattr(load_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
