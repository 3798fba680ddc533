"""Batch norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_number, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import is_floating, result_type
from odyssey.devices.same_device import cast_beside
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, SettingError, ShapeError, TapeError
from odyssey.nn.normalization.channels import (
    by_channel,
    check_channels,
    count_channels,
    real_operands,
    refuse_lone,
)
from odyssey.nn.normalization.layer_norm import at_least_float32, batch_moments, layer_norm
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.ops.reductions.reduce import mean
from odyssey.ops.reductions.variance import var
from odyssey.ops.structure.shape import astype
from odyssey.table.declare import composite, publish
from odyssey.table.rng_replay import is_replaying
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype
from odyssey.table.store import MEMORY, refuse_locked, store
from odyssey.table.value import Value, assign_plan, is_constant


def _batch_axes(x: Any) -> tuple[int, ...]:
    """Return all axes but that of the channels."""
    return (0, *range(2, x.ndim))


def _check_running(who: str, running: Any, name: str, training: bool) -> Any:
    """Return a running statistic as an operand; in training it must be a Variable."""
    if isinstance(running, Value):
        if not is_constant(running):
            raise TapeError(
                f"{who}: {name} is {running!r}, which has a gradient; running statistics are "
                "constants, pass Variable(array)"
            )
        if training and not is_floating(running.dtype):
            raise DTypeError(
                f"{who}: {name} is of {running.dtype}, which cannot hold a mean; pass floats"
            )
        return running
    if training:
        raise DTypeError(
            f"{who}: {name} is {format_value(running)}, and is to be updated; pass a Variable, or "
            "leave running_mean and running_var out"
        )
    return as_array(who, name, running) if not hasattr(running, "dtype") else running


def _update_running(running: tuple[Any, Any], x: Any, momentum: float) -> None:
    """Move both running statistics towards those of the batch, or none of them."""
    x = at_least_float32(store().operand(x) if isinstance(x, Value) else x)
    count = x.size // x.shape[1]
    if is_replaying() or not count:  # the first run did
        return
    # The unbiased variance, as PyTorch keeps it.
    middle, spread = batch_moments(x) or (mean(x, _batch_axes(x)), var(x, _batch_axes(x)))
    news = middle, mul(spread, count / (count - 1))
    here: Any = store()
    plan: Plan = []
    with write_lock():
        wait_for_programs()
        for leaf, new in zip(running, news, strict=True):
            moved = add(mul(here.operand(leaf), 1 - momentum), mul(new, momentum))
            if here is MEMORY:
                refuse_locked("batch_norm", leaf)
                plan += assign_plan(leaf, cast_beside(moved, leaf.dtype))
            else:
                here.write(leaf, moved)
        commit(plan)


@composite(
    samples=[
        sample((3, 2), np.zeros(2), np.ones(2)),
        sample((3, 2, 4), np.array([0.5, -1.0]), np.array([2.0, 0.5]), (2,), (2,), eps=0.5),
        sample((2, 2, 2, 3), None, None, (2,), (2,), training=True),
        sample((4, 3), None, None, None, (3,), training=True),
    ],
    rejects=[
        reject((3, 2), match="running_mean and running_var"),
        reject((3, 2), np.zeros(2), match="running_mean and running_var"),
        reject((3, 2), np.zeros(3), np.ones(3), match=r"running_mean \(3,\) for x \(3, 2\)"),
        reject((3, 2), None, None, (3,), training=True, match=r"weight \(3,\) for x \(3, 2\)"),
        reject((1, 2), training=True, match="a single number in each channel"),
        reject((3,), np.zeros(3), np.ones(3), match=r"wanted is \(N, C"),
        reject(
            (3, 2),
            np.zeros(2),
            np.ones(2),
            training=True,
            error=DTypeError,
            match="pass a Variable",
        ),
        reject(
            (3, 2), None, None, training=True, momentum=2, error=SettingError, match="momentum=2"
        ),
    ],
)
def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch norm: standardize each channel by its batch in training, else by running statistics.

    In training the running statistics, if given, are moved towards those of the batch: both or,
    after an error or an interrupt, none; and only once if a checkpoint runs this again. They are
    constants, and no gradient flows into them.

    Args:
        x: Of shape (N, C, ...).
        running_mean: The mean of each channel, (C,): in training a Variable, or None.
        running_var: The variance of each channel; in training updated with the unbiased one.
        weight: A factor for each channel, or None.
        bias: A summand for each channel, or None.
        training: Use the statistics of this batch, and update the running ones.
        momentum: The weight of a batch in the running statistics, from 0 to 1.
        eps: Added to the variance, not negative.

    Returns:
        An array of the shape of ``x``.

    Raises:
        ShapeError: If an operand has not C numbers; in training also for channels of one number.
        DTypeError, TapeError: For running statistics that cannot be updated.

    >>> batch_norm(np.array([[1.0], [3.0]]), training=True, eps=0.0)
    array([[-1.],
           [ 1.]])
    """
    who = "batch_norm"
    x, weight, bias = real_operands(who, x=x, weight=weight, bias=bias)
    count_channels(who, x)
    shape = x.shape
    check_channels(
        who, shape, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    momentum = check_number(who, "momentum", momentum, "[0, 1]")
    eps = check_number(who, "eps", eps, "[0, inf)")
    absent = [running_mean is None, running_var is None]
    if any(absent) and not (all(absent) and training):
        raise ShapeError(
            f"{who}: running_mean and running_var are both needed, but for training, where both "
            "may be left out"
        )
    if not absent[0]:
        running_mean = _check_running(who, running_mean, "running_mean", training)
        running_var = _check_running(who, running_var, "running_var", training)
    if not training:
        return _normalize_by_running(x, running_mean, running_var, weight, bias, eps)
    refuse_lone(who, shape, _batch_axes(x), "in each channel")
    weight, bias = by_channel(weight, x), by_channel(bias, x)
    out = layer_norm(x, weight, bias, axis=_batch_axes(x), eps=eps)
    if not absent[0]:
        _update_running((running_mean, running_var), x, momentum)
    return out


def _normalize_by_running(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Any:
    dtype = result_type(*[floating_dtype(v.dtype) for v in (x, weight, bias) if v is not None])
    wider = result_type(dtype, np.float32)

    def channel(v: Any) -> Any:
        v = v if v.dtype == wider else astype(v, wider)
        return by_channel(v, x)

    deviation = sqrt(add(at_least_float32(var), eps))
    scale = div(1.0 if weight is None else weight, deviation)
    out = x if x.dtype == wider else astype(x, wider)
    out = mul(sub(out, channel(mean)), channel(scale))
    out = out if bias is None else add(out, channel(bias))
    return out if dtype == wider else astype(out, dtype)


publish(globals())
