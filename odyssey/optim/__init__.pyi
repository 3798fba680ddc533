"""Optimizers: pure (init, update) rules over trees, and classes that apply them to Variables.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from odyssey.objective import scipy_objective
from odyssey.optim.adadelta import Adadelta, adadelta
from odyssey.optim.adafactor import Adafactor, adafactor
from odyssey.optim.adagrad import AdaGrad, adagrad
from odyssey.optim.adam import Adam, AdamW, adam, adamw
from odyssey.optim.adamax import Adamax, adamax
from odyssey.optim.clipping import clip_grad_global_norm, clip_grad_norm, clip_grad_value
from odyssey.optim.declare import rule_of
from odyssey.optim.ema import EMA
from odyssey.optim.groups import Group
from odyssey.optim.lars import LARS, lars
from odyssey.optim.lbfgs import LBFGS
from odyssey.optim.lion import Lion, lion
from odyssey.optim.loss_scaler import LossScaler
from odyssey.optim.muon import Muon, muon
from odyssey.optim.nadam import NAdam, nadam
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.plateau import ReduceLROnPlateau
from odyssey.optim.radam import RAdam, radam
from odyssey.optim.rmsprop import RMSprop, rmsprop
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
from odyssey.optim.sgd import SGD, sgd

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
    "Adadelta",
    "adadelta",
    "Adafactor",
    "adafactor",
    "AdaGrad",
    "adagrad",
    "Adam",
    "AdamW",
    "adam",
    "adamw",
    "Adamax",
    "adamax",
    "LARS",
    "lars",
    "Lion",
    "lion",
    "Muon",
    "muon",
    "NAdam",
    "nadam",
    "RAdam",
    "radam",
    "RMSprop",
    "rmsprop",
    "SGD",
    "sgd",
    "EMA",
    "LBFGS",
    "LossScaler",
    "scipy_objective",
]


