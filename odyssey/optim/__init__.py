"""Optimizers: pure (init, update) rules over trees, and holders that apply them to Variables."""

from odyssey.optim.adam import Adam, AdamW, adam, adamw
from odyssey.optim.adaptive import AdaGrad, RMSprop, adagrad, rmsprop
from odyssey.optim.groups import Group
from odyssey.optim.large_batch import LARS, Lion, lars, lion
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule
from odyssey.optim.sgd import SGD, sgd

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "AdaGrad",
    "RMSprop",
    "LARS",
    "Lion",
    "Optimizer",
    "Group",
    "Rule",
    "sgd",
    "adam",
    "adamw",
    "adagrad",
    "rmsprop",
    "lars",
    "lion",
]
