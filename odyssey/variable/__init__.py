"""``Variable``, and how expressions on it become ops."""

from odyssey.variable.variable import Variable, check_trainable, settled
from odyssey.variable.writing import refuse_locked

__all__ = ["Variable", "check_trainable", "refuse_locked", "settled"]
