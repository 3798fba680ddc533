"""Runtime assertions: conditions on data that a graph checks when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import is_number_dtype
from odyssey.errors import DTypeError, SettingError
from odyssey.ops.structure.batching import spread
from odyssey.spec import Spec
from odyssey.table.declare import PASS, op, publish
from odyssey.table.samples import reject, sample

_MESSAGE = "hinge: targets must be -1 or 1"


@op(
    primitive="view",
    lowering=lambda build, x, holds, message: x,
    requires=lambda x, holds, message: [holds],
    infer=lambda x, holds, message: Spec(x.shape, x.dtype),
    vjp={"x": PASS},
    jvp={"x": PASS},
    vmap=lambda batch, x, holds, message: demanded(spread(batch, 0, x), holds, message),
    samples=[
        sample((2, 3), np.array([True, True]), message=_MESSAGE),
        sample((), np.array(True), message=_MESSAGE),
        sample((0, 3), np.zeros(0, bool), message=_MESSAGE),
    ],
    rejects=[
        reject((3,), np.array([True, False]), message=_MESSAGE, error=SettingError, match="-1 or 1")
    ],
)
def demanded(x: Any, holds: Any, /, message: str) -> Any:
    """Return ``x`` if a condition holds everywhere; else raise SettingError with a message."""
    if not np.all(holds):
        raise SettingError(message)
    values = np.array(x)
    if not is_number_dtype(values.dtype):
        raise DTypeError(f"demanded: x is {format_value(x)}; pass numbers of a dtype")
    return values[()]


publish(globals())
