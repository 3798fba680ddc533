"""Group norm and instance norm."""

from __future__ import annotations

from typing import Any

from odyssey.checks import check_int
from odyssey.errors import SettingError
from odyssey.nn.normalization.channels import (
    by_channel,
    check_channels,
    count_channels,
    real_operands,
    refuse_lone,
)
from odyssey.nn.normalization.layer_norm import layer_norm
from odyssey.ops.structure.shape import reshape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample


@composite(
    samples=[
        sample((2, 4, 3), groups=2),
        sample((2, 4), (4,), (4,), groups=1),
        sample((2, 6, 2, 2), (6,), None, groups=3, eps=0.5),
        sample((0, 4, 2), (4,), (4,), groups=2),
    ],
    rejects=[
        reject((2, 4, 3), groups=3, error=SettingError, match="4 channels cannot be divided"),
        reject((2, 4, 3), groups=0, error=SettingError, match="at least 1"),
        reject((2, 4, 3), (2,), groups=2, match=r"weight \(2,\) for x \(2, 4, 3\)"),
        reject((4,), groups=2, match=r"wanted is \(N, C"),
    ],
)
def group_norm(
    x: Any, weight: Any = None, bias: Any = None, *, groups: int, eps: float = 1e-5
) -> Any:
    """Group norm: standardize each group of channels, times ``weight``, plus ``bias``.

    Args:
        x: Of shape (N, C, ...).
        weight: A factor for each channel, (C,), or None.
        bias: A summand for each channel, or None.
        groups: The number of groups of consecutive channels.
        eps: Added to the variance, not negative.

    Returns:
        An array of the shape of ``x``.

    Raises:
        SettingError: If the channels cannot be divided into so many groups.

    >>> group_norm(np.array([[1.0, 3.0, 7.0, 5.0]]), groups=2, eps=0.0)
    array([[-1.,  1.,  1., -1.]])
    """
    who = "group_norm"
    x, weight, bias = real_operands(who, x=x, weight=weight, bias=bias)
    channels = count_channels(who, x)
    groups = check_int(who, "groups", groups, 1)
    if channels % groups:
        raise SettingError(
            f"{who}: groups={groups}; {channels} channels cannot be divided into so many"
        )
    shape = x.shape
    check_channels(who, shape, weight=weight, bias=bias)
    inner = (channels // groups, *shape[2:])

    def divided(v: Any) -> Any:
        return v if v is None else reshape(v, (groups, inner[0], *[1] * (x.ndim - 2)))

    parts = reshape(x, (shape[0], groups, *inner))
    axis = tuple(range(2, x.ndim + 1))
    out = layer_norm(parts, divided(weight), divided(bias), axis=axis, eps=eps)
    return reshape(out, shape)


@composite(
    samples=[
        sample((2, 3, 4)),
        sample((2, 3, 4), (3,), (3,)),
        sample((2, 2, 2, 3), None, (2,), eps=0.5),
    ],
    rejects=[
        reject((2, 3), match=r"wanted is \(N, C, L"),
        reject((2, 3, 1), match="a single number in each channel"),
        reject((2, 3, 4), (4,), match=r"weight \(4,\) for x \(2, 3, 4\)"),
    ],
)
def instance_norm(x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Instance norm: standardize each channel of each image, times ``weight``, plus ``bias``.

    Args:
        x: Of shape (N, C, L, ...).
        weight: A factor for each channel, (C,), or None.
        bias: A summand for each channel, or None.
        eps: Added to the variance, not negative.

    Returns:
        An array of the shape of ``x``.

    >>> instance_norm(np.array([[[1.0, 3.0], [9.0, 5.0]]]), eps=0.0)
    array([[[-1.,  1.],
            [ 1., -1.]]])
    """
    who = "instance_norm"
    x, weight, bias = real_operands(who, x=x, weight=weight, bias=bias)
    count_channels(who, x, 3)
    shape = x.shape
    check_channels(who, shape, weight=weight, bias=bias)
    axis = tuple(range(2, x.ndim))
    refuse_lone(who, shape, axis, "in each channel")

    weight, bias = by_channel(weight, x), by_channel(bias, x)
    return layer_norm(x, weight, bias, axis=axis, eps=eps)


publish(globals())
