"""Optimizers: pure (init, update) pairs over trees, and holders that apply them to Variables."""

from odyssey.optim.optimizer import Optimizer, Rule
from odyssey.optim.sgd import SGD, sgd

__all__ = ["SGD", "Optimizer", "Rule", "sgd"]
