"""Runtime assertions: conditions on data that a graph checks when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import is_number_dtype
from odyssey.errors import DTypeError, OdysseyError, OutOfRangeError, SettingError
from odyssey.ops.structure.batching import spread
from odyssey.spec import Spec
from odyssey.table.declare import PASS, op, publish
from odyssey.table.samples import reject, sample

_MESSAGE = "hinge: targets must be -1 or 1"


def _check_options(message: str, kind: Any) -> tuple[str, type[OdysseyError]]:
    if not (isinstance(kind, type) and issubclass(kind, OdysseyError)):
        raise DTypeError(f"demanded: kind={format_value(kind)}; pass a class of od.errors")
    return message, kind


@op(
    primitive="view",
    lowering=lambda build, x, holds, message, kind: x,
    requires=lambda x, holds, message, kind: [holds],
    prepare=_check_options,
    infer=lambda x, holds, message, kind: Spec(x.shape, x.dtype),
    vjp={"x": PASS},
    jvp={"x": PASS},
    vmap=lambda batch, x, holds, message, kind: demanded(spread(batch, 0, x), holds, message, kind),
    samples=[
        sample((2, 3), np.array([True, True]), message=_MESSAGE),
        sample((), np.array(True), message=_MESSAGE),
        sample((0, 3), np.zeros(0, bool), message=_MESSAGE, kind=OutOfRangeError),
    ],
    rejects=[
        reject(
            *((3,), np.array([True, False])),
            message=_MESSAGE,
            error=SettingError,
            match="-1 or 1",
        ),
        reject(
            *((3,), np.array([True, True])),
            message=_MESSAGE,
            kind=ValueError,
            error=DTypeError,
            match="pass a class of od.errors",
        ),
    ],
)
def demanded(x: Any, holds: Any, /, message: str, kind: type[OdysseyError] = SettingError) -> Any:
    """Return ``x`` if a condition holds everywhere; else raise ``kind`` with a message.

    >>> demanded(np.array(3), np.array(True), "demanded: a count is negative")
    np.int64(3)
    """
    if not np.all(holds):
        raise kind(message)
    values = np.array(x)
    if not is_number_dtype(values.dtype):
        raise DTypeError(f"demanded: x is {format_value(x)}; pass numbers of a dtype")
    return values[()]


publish(globals())
