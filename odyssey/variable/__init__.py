"""``Variable``, and how expressions on it become ops."""

from odyssey.variable.variable import Variable, check_trainable, lent, settled, twin_of

__all__ = ["Variable", "check_trainable", "lent", "settled", "twin_of"]
