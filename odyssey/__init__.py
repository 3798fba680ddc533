"""odyssey: automatic differentiation on an explicit tape, with one table of ops.

>>> import odyssey as od
>>> w = od.Variable(3.0, requires_grad=True)
>>> with od.GradientTape() as tape:
...     loss = (w - 1.0) ** 2
>>> float(tape.gradient(loss, w))
4.0
"""

from odyssey import backward, errors, ops
from odyssey.ops import no_grad, op
from odyssey.tape import GradientTape, Gradients, TapeNode
from odyssey.variable import Variable

__version__ = "0.1.0"
