"""Compiled kernels beside NumPy's, at sizes from that on at which each is chosen by itself.

    python benchmarks/kernels_by_size.py
    python benchmarks/kernels_by_size.py gelu conv --rounds 15 --dtype float64

Every op of ``odyssey.kernels.sizes`` is called on plain arrays, and recorded and swept with the
gradients of all floating operands, with its compiled kernels and without, taking turns in one
thread: medians of process time. A ratio above 1 says that the kernel loses there, and its size is
too small; the last lines list those above 1.05.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from harness.sampling import interleaved  # noqa: E402
from odyssey import GradientTape, Variable, ops  # noqa: E402
from odyssey.kernels.sizes import OPTIMIZER_STEP, SIZES  # noqa: E402

BLOCK_SECONDS = 0.01
TIMES = (1, 4, 32)  # the least size, and larger ones
LOSES = 1.05
Call = Callable[..., Any]


class Case(NamedTuple):
    """A call at a size.

    Attributes:
        name: What is shown.
        covers: The ops of the table whose kernels run in it, forward and backward; the first one's
            size is where it begins.
        made: Of a number of elements and ``draw(*shape)``, the operands and what is called.
    """

    name: str
    covers: tuple[str, ...]
    made: Callable[[int, Call], tuple[list[Any], Call]]


ELEMENTWISE = "elu erf erfc gelu hard_swish leaky_relu log_sigmoid mish selu sigmoid silu softplus"


def rows(n: int, width: int) -> tuple[int, int]:
    return max(1, -(-n // width)), width


def of_rows(width: int, call: Call) -> Callable[[int, Call], tuple[list[Any], Call]]:
    """One operand, in rows of so many."""
    return lambda n, draw: ([draw(*rows(n, width))], call)


def spots(n: int, most: int) -> Any:
    return np.random.default_rng(2).integers(0, most, n)


def behind(call: Call, *others: Any, **options: Any) -> Call:
    """A function of the first operands, with the others fixed."""
    return lambda *operands: call(*operands, *others, **options)


def elementwise() -> Iterator[Case]:
    for name in ELEMENTWISE.split():
        yield Case(name, (name,), of_rows(128, getattr(ops, name)))


def folds() -> Iterator[Case]:
    for width in (64, 4096):
        for name, axis in (("cumsum", -1), ("cumsum", 0), ("cumprod", -1), ("cumprod", 0)):
            covers = (name, "reverse_cumsum") if name == "cumsum" else (name, "linear_recurrence")
            call = partial(getattr(ops, name), axis=axis)
            yield Case(f"{name}, axis {axis}, rows of {width}", covers, of_rows(width, call))
        for axis in (None, -1, 0):
            call = partial(ops.prod, axis=axis)
            covers = ("prod", "prod_others")
            # Around 1: products that underflow take ten times as long, wherever they do so.
            made = lambda n, draw, w=width, call=call: ([1 + draw(*rows(n, w)) / 100], call)  # noqa: E731
            yield Case(f"prod, axis {axis}, rows of {width}", covers, made)
        for name in ("cummax", "cummin"):
            for axis in (-1, 0):
                covers = (f"running_arg{name[3:]}", "take_along_axis", "add_along_axis")
                call = partial(lambda x, name, axis: getattr(ops, name)(x, axis)[0], name=name)
                of = of_rows(width, partial(call, axis=axis))
                yield Case(f"{name}, axis {axis}, rows of {width}", covers, of)
        yield Case(
            f"linear_recurrence, rows of {width}",
            ("linear_recurrence",),
            lambda n, draw, w=width: (
                [draw(*rows(n, w)), 0.5 * draw(*rows(n, w))],
                ops.linear_recurrence,
            ),
        )


def picking() -> Iterator[Case]:
    for width in (1, 16, 256):
        yield Case(
            f"take, rows of {width}",
            ("add_taken",),
            lambda n, draw, w=width: (
                [draw(*rows(n, w))],
                behind(ops.take, spots(-(-n // w), -(-n // w)), axis=0),
            ),
        )
        yield Case(
            f"index, rows of {width}",
            ("add_at",),
            lambda n, draw, w=width: (
                [draw(*rows(n, w))],
                partial(ops.getitem, key=spots(-(-n // w), -(-n // w))),
            ),
        )
        yield Case(
            f"embedding, rows of {width}",
            ("embedding_pullback",),
            lambda n, draw, w=width: (
                [draw(1000, w)],
                partial(ops.embedding, spots(-(-n // w), 1000)),
            ),
        )
    for axis in (0, 1):
        yield Case(
            f"take_along_axis, axis {axis}",
            ("take_along_axis", "add_along_axis"),
            lambda n, draw, a=axis: (
                [draw(*rows(n, 64))],
                behind(
                    ops.take_along_axis,
                    spots(64 * rows(n, 64)[0], min(rows(n, 64))).reshape(-1, 64),
                    axis=a,
                ),
            ),
        )


def of_classes() -> Iterator[Case]:
    for width in (10, 128, 4096):
        for name in ("softmax", "log_softmax"):
            covers = (name, f"{name}_pullback")
            yield Case(f"{name}, rows of {width}", covers, of_rows(width, getattr(ops, name)))
        yield Case(
            f"softmax, axis 0, rows of {width}",
            ("softmax", "softmax_pullback"),
            of_rows(width, partial(ops.softmax, axis=0)),
        )
        yield Case(
            f"cross entropy, rows of {width}",
            ("softmax_cross_entropy",),
            lambda n, draw, w=width: (
                [draw(*rows(n, w))],
                behind(ops.softmax_cross_entropy, spots(rows(n, w)[0], w)),
            ),
        )


def norms() -> Iterator[Case]:
    for width in (16, 128, 4096):
        for name, weights in (("layer_norm", 2), ("rms_norm", 1)):
            yield Case(
                f"{name}, rows of {width}",
                (name, "norm_pullback", "norm_weight_pullback"),
                lambda n, draw, w=width, name=name, k=weights: (
                    [draw(*rows(n, w)), *(draw(w) for _ in range(k))],
                    getattr(ops, name),
                ),
            )
    yield Case(
        "batch_norm",
        ("layer_norm", "norm_pullback", "norm_weight_pullback"),
        lambda n, draw: (
            [draw(max(2, n // 4096), 16, 16, 16), draw(16), draw(16)],
            lambda x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
        ),
    )


def networks() -> Iterator[Case]:
    for name, window, options in (
        ("max_pool2d", 2, {}),
        ("max_pool2d", 3, {"stride": 2, "padding": 1}),
        ("avg_pool2d", 2, {}),
        ("avg_pool2d", 3, {"stride": 2, "padding": 1}),
    ):
        yield Case(
            f"{name}, windows of {window}",
            (name, f"{name[:8]}_pullback"),
            lambda n, draw, name=name, k=window, o=options: (
                [draw(max(1, n // 1024), 32, 32)],
                partial(getattr(ops, name), window=k, **o),
            ),
        )
    for size in (48, 20):
        yield Case(
            f"interpolate, to {size}",
            ("sampled",),
            lambda n, draw, k=size: (
                [draw(1, max(1, n // 1024), 32, 32)],
                partial(ops.interpolate, size=k, mode="bilinear"),
            ),
        )
    gradients = ("convolution_input", "convolution_weight")
    for side, channels in ((8, 16), (28, 6), (56, 32)):
        yield Case(
            f"conv2d, {channels} channels of {side}",
            ("conv2d", *gradients),
            lambda n, draw, s=side, c=channels: (
                [draw(max(1, n // (c * s * s)), c, s, s), draw(c, c, 3, 3), draw(c)],
                partial(ops.conv2d, padding=1),
            ),
        )
        yield Case(
            f"depthwise_conv2d, {channels} channels of {side}",
            ("depthwise_conv2d", *gradients),
            lambda n, draw, s=side, c=channels: (
                [draw(max(1, n // (c * s * s)), c, s, s), draw(c, 1, 3, 3), draw(c)],
                partial(ops.depthwise_conv2d, padding=1),
            ),
        )
    yield Case(
        "depthwise_separable_conv2d",
        ("depthwise_separable_conv2d", *gradients),
        lambda n, draw: (
            [draw(max(1, n // 3136), 16, 14, 14), draw(16, 1, 3, 3), draw(16, 16, 1, 1), draw(16)],
            partial(ops.depthwise_separable_conv2d, padding=1),
        ),
    )
    yield Case(
        "conv1d",
        ("conv1d", *gradients),
        lambda n, draw: (
            [draw(max(1, n // 1024), 8, 128), draw(8, 8, 5), draw(8)],
            partial(ops.conv1d, padding=2),
        ),
    )
    yield Case(
        "conv3d",
        ("conv3d", *gradients),
        lambda n, draw: (
            [draw(max(1, n // 2048), 4, 8, 8, 8), draw(4, 4, 3, 3, 3), draw(4)],
            partial(ops.conv3d, padding=1),
        ),
    )
    for length, width in ((64, 32), (512, 64)):
        yield Case(
            f"attention, {length} places of {width}",
            ("scaled_dot_product_attention", "attention_pullback"),
            lambda n, draw, t=length, d=width: (
                [draw(max(1, n // (t * d)), t, d) for _ in range(3)],
                ops.scaled_dot_product_attention,
            ),
        )


def cases() -> list[Case]:
    """All; together they run every kernel that has a size."""
    found = [*elementwise(), *folds(), *picking(), *of_classes(), *norms(), *networks()]
    missing = set(SIZES) - {op for case in found for op in case.covers} - {OPTIMIZER_STEP}
    assert not missing, f"no case runs the kernels of {sorted(missing)}"
    return found


def calls(case: Case, n: int, dtype: str) -> tuple[Call, Call]:
    """The call on arrays, and with its gradients."""
    rng = np.random.default_rng(1)
    operands, call = case.made(n, lambda *shape: rng.normal(size=shape).astype(dtype))
    leaves = [Variable(x, requires_grad=True) for x in operands]
    cotangent = rng.normal(size=np.shape(call(*operands))).astype(dtype)

    def both() -> None:
        with GradientTape() as tape:
            out = call(*leaves)
        tape.gradient(out, leaves, cotangent)

    return lambda: call(*operands), both


def ratio(run: Call, rounds: int) -> tuple[float, float]:
    """Microseconds with compiled kernels, and the median of the ratios to NumPy's."""
    samples = interleaved(
        {"compiled": run, "numpy": run},
        rounds,
        BLOCK_SECONDS,
        around=lambda name: ops.use_kernels("numpy") if name == "numpy" else nullcontext(),
    )
    return samples.median("compiled") * 1e6, samples.ratio("compiled", "numpy")


def measured(run: Call, rounds: int) -> tuple[float, float]:
    """The same; twice, where it seems to lose."""
    found = ratio(run, rounds)
    return found if found[1] <= LOSES else min(found, ratio(run, 3 * rounds), key=lambda f: f[1])


def main() -> None:
    """Time the cases whose names begin with one of the given words, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", action="append", choices=["float32", "float64"])
    arguments = parser.parse_args()
    chosen, losing = tuple(arguments.names), []
    print(f"{'':45s}{'elements':>10s}" + f"{'us':>12s}{'ratio':>7s}" * 2)
    for case in cases():
        if chosen and not case.name.startswith(chosen):
            continue
        for dtype in arguments.dtype or ("float32", "float64"):
            for n in [math.ceil(SIZES[case.covers[0]] * k) for k in TIMES]:
                found = [measured(run, arguments.rounds) for run in calls(case, n, dtype)]
                shown = "".join(f"{us:12.1f}{share:7.2f}" for us, share in found)
                print(f"{case.name:36s}{dtype:9s}{n:10d}{shown}", flush=True)
                if max(share for _, share in found) > LOSES:
                    losing.append(f"{case.name} {dtype} {n}")
    print("\nslower than NumPy:", *losing or ["none"], sep="\n  ")


if __name__ == "__main__":
    main()
