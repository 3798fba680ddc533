"""Optimizers: pure (init, update) rules over trees, and holders that apply them to Variables."""

from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule
from odyssey.optim.sgd import SGD, sgd

__all__ = ["SGD", "Optimizer", "Rule", "sgd"]
