"""Convolutions of known networks, forward and backward, beside PyTorch eager, in float32.

    python benchmarks/convolution.py
    python benchmarks/convolution.py --layer "resnet 64" --rounds 15
    python benchmarks/convolution.py --lenet
    python benchmarks/convolution.py --small --rounds 100

Both take turns in one process, on one thread; what is shown are medians of process time in
microseconds, and their ratio, for ``conv2d`` with a bias and the gradients of image, weight and
bias. ``--lenet`` times whole training steps of LeNet. ``--small`` times 3 by 3 layers of small
images with a batch of 64, the value and both gradients, and training steps of a residual network
for digits of 8 by 8, eager and compiled: ratios of minima to PyTorch. Without PyTorch only odyssey
is timed. With ``--numpy`` it does without compiled kernels. The exit status is 1 where gradients
differ.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


class Layer(NamedTuple):
    """One convolution: images of ``size`` by ``size``, square windows."""

    name: str
    samples: int
    channels: int
    size: int
    out: int
    window: int
    stride: int = 1
    padding: int = 0
    groups: int = 1


LAYERS = (
    Layer("lenet 1, batch 32", 32, 1, 28, 6, 5, 1, 2),
    Layer("lenet 2, batch 32", 32, 6, 14, 16, 5),
    Layer("lenet 1, batch 1", 1, 1, 28, 6, 5, 1, 2),
    Layer("lenet 2, batch 1", 1, 6, 14, 16, 5),
    Layer("resnet stem", 1, 3, 112, 64, 7, 2, 3),
    Layer("resnet 64 at 56", 1, 64, 56, 64, 3, 1, 1),
    Layer("resnet 64 to 128", 1, 64, 56, 128, 3, 2, 1),
    Layer("resnet 128 at 28", 1, 128, 28, 128, 3, 1, 1),
    Layer("resnet 128 to 256", 1, 128, 28, 256, 3, 2, 1),
    Layer("resnet 256 at 14", 1, 256, 14, 256, 3, 1, 1),
    Layer("resnet 256 to 512", 1, 256, 14, 512, 3, 2, 1),
    Layer("resnet 512 at 7", 1, 512, 7, 512, 3, 1, 1),
    Layer("resnet 64 to 128, 1x1", 1, 64, 56, 128, 1, 2),
    Layer("resnet 256 to 512, 1x1", 1, 256, 14, 512, 1, 2),
    Layer("resnet 64 at 56, batch 4", 4, 64, 56, 64, 3, 1, 1),
    Layer("resnet 256 at 14, batch 8", 8, 256, 14, 256, 3, 1, 1),
    Layer("resnet 512 at 7, batch 8", 8, 512, 7, 512, 3, 1, 1),
    Layer("mobilenet stem", 1, 3, 224, 32, 3, 2, 1),
    Layer("mobilenet each of 32 at 112", 1, 32, 112, 32, 3, 1, 1, 32),
    Layer("mobilenet each of 64 to 56", 1, 64, 112, 64, 3, 2, 1, 64),
    Layer("mobilenet each of 128 at 56", 1, 128, 56, 128, 3, 1, 1, 128),
    Layer("mobilenet each of 512 at 14, batch 8", 8, 512, 14, 512, 3, 1, 1, 512),
    Layer("mobilenet each of 1024 at 7, batch 8", 8, 1024, 7, 1024, 3, 1, 1, 1024),
    Layer("mobilenet 1x1 64 to 128 at 56", 1, 64, 56, 128, 1),
    Layer("mobilenet 1x1 256 at 28", 1, 256, 28, 256, 1),
    Layer("mobilenet 1x1 512 at 14, batch 8", 8, 512, 14, 512, 1),
    Layer("vgg 3 to 64 at 32, batch 32", 32, 3, 32, 64, 3, 1, 1),
    Layer("vgg 64 at 32, batch 8", 8, 64, 32, 64, 3, 1, 1),
    Layer("vgg 128 at 16, batch 16", 16, 128, 16, 128, 3, 1, 1),
    Layer("vgg 256 at 8, batch 32", 32, 256, 8, 256, 3, 1, 1),
)


def drawn(layer: Layer) -> list[Any]:
    """Images, a weight, a bias and a cotangent."""
    rng = np.random.default_rng(0)
    count = (layer.size + 2 * layer.padding - layer.window) // layer.stride + 1
    shapes = (
        (layer.samples, layer.channels, layer.size, layer.size),
        (layer.out, layer.channels // layer.groups, layer.window, layer.window),
        (layer.out,),
        (layer.samples, layer.out, count, count),
    )
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def options_of(layer: Layer) -> dict[str, int]:
    return {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}


def ours(layer: Layer) -> Callable[[], Any]:
    *arrays, g = drawn(layer)
    sources = [od.Variable(a, requires_grad=True) for a in arrays]
    options = options_of(layer)

    def call() -> Any:
        with od.GradientTape() as tape:
            y = od.ops.conv2d(*sources, **options)
        return tape.gradient(y, sources, g)

    return call


def theirs(layer: Layer) -> Callable[[], Any]:
    *arrays, g = drawn(layer)
    sources = [torch.tensor(a, requires_grad=True) for a in arrays]
    options, seed = options_of(layer), torch.tensor(g)

    def call() -> Any:
        y = torch.nn.functional.conv2d(*sources, **options)
        return torch.autograd.grad(y, sources, seed)

    return call


# ------------------------------------------------------------------ a whole step


def lenet() -> list[Any]:
    """Parameters of LeNet for digits of 28 by 28."""
    rng = np.random.default_rng(0)
    shapes = [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    found = []
    for shape in shapes:
        scale = 1 / math.sqrt(math.prod(shape[1:]))
        found += [rng.uniform(-scale, scale, shape), np.zeros(shape[0])]
    return [p.astype(np.float32) for p in found]


def batch() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(32, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, 32)


def our_step() -> Callable[[], Any]:
    params = [od.Variable(p, requires_grad=True) for p in lenet()]
    optimizer = od.optim.SGD(params, learning_rate=0.01, momentum=0.9)
    images, classes = batch()
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = params
    ops = od.ops

    def step() -> Any:
        with od.GradientTape() as tape:
            h = ops.max_pool2d(ops.relu(ops.conv2d(images, w1, b1, padding=2)), window=2)
            h = ops.max_pool2d(ops.relu(ops.conv2d(h, w2, b2)), window=2)
            h = ops.relu(ops.linear(ops.reshape(h, (32, 400)), w3, b3))
            h = ops.relu(ops.linear(h, w4, b4))
            loss = od.losses.cross_entropy(ops.linear(h, w5, b5), classes)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return [loss.numpy()]

    return step


def their_step() -> Callable[[], Any]:
    params = [torch.tensor(p, requires_grad=True) for p in lenet()]
    optimizer = torch.optim.SGD(params, lr=0.01, momentum=0.9)
    images, classes = map(torch.tensor, batch())
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = params
    functional = torch.nn.functional

    def step() -> Any:
        h = functional.max_pool2d(functional.relu(functional.conv2d(images, w1, b1, padding=2)), 2)
        h = functional.max_pool2d(functional.relu(functional.conv2d(h, w2, b2)), 2)
        h = functional.relu(functional.linear(h.reshape(32, 400), w3, b3))
        h = functional.relu(functional.linear(h, w4, b4))
        loss = functional.cross_entropy(functional.linear(h, w5, b5), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return [loss.detach()]

    return step


# ------------------------------------------------------------------ small images

SMALL = ((64, 2), (64, 4), (32, 4), (16, 8), (64, 8), (128, 2))
"""Channels, of images and of results, and sizes of images, for a batch of 64."""


def small_layer(channels: int, size: int) -> dict[str, list[Callable[[], Any]]]:
    """For the value and both gradients the eager call, the compiled one, and PyTorch's."""
    x, weight, _, g = drawn(Layer("", 64, channels, size, channels, 3, 1, 1))
    tensors = [torch.tensor(a) for a in (g, x, weight)]
    ones, ops = [1, 1], od.ops

    def backward(*mask: bool) -> Callable[[], Any]:
        settings = (None, ones, ones, ones, False, [0, 0], 1, mask)
        return lambda: torch.ops.aten.convolution_backward(*tensors, *settings)[mask.index(True)]

    def both(fn: Callable[..., Any], *arrays: Any) -> list[Callable[[], Any]]:
        compiled = od.compile(fn)
        return [lambda: fn(*arrays), lambda: compiled(*arrays)]

    conv, sizes = torch.nn.functional.conv2d, (size, size)
    return {
        "value": [
            *both(lambda x, w: ops.conv2d(x, w, padding=1), x, weight),
            lambda: conv(*tensors[1:], padding=1),
        ],
        "image": [
            *both(lambda g, w: ops.convolution_input(g, w, sizes, padding=1), g, weight),
            backward(True, False, False),
        ],
        "weight": [
            *both(lambda g, x: ops.convolution_weight(g, x, (3, 3), padding=1), g, x),
            backward(False, True, False),
        ],
    }


WIDTHS = (16, 32, 64)


def residual_parameters() -> dict[str, Any]:
    """Parameters of a residual network with two blocks of each width, for digits of 8 by 8."""
    rng = np.random.default_rng(0)

    def window(out: int, channels: int, k: int) -> Any:
        return rng.normal(scale=math.sqrt(2 / (channels * k * k)), size=(out, channels, k, k))

    found = {"stem": window(16, 1, 3), "head": rng.normal(scale=0.1, size=(10, WIDTHS[-1]))}
    before = WIDTHS[0]
    for width in WIDTHS:
        for block in "01":
            name = f"{width} {block}"
            found[f"{name} first"] = window(width, before, 3)
            found[f"{name} second"] = window(width, width, 3)
            if width != before:
                found[f"{name} across"] = window(width, before, 1)
            for norm in ("first", "second"):
                found[f"{name} {norm} gain"] = np.ones(width)
                found[f"{name} {norm} shift"] = np.zeros(width)
            before = width
    return {name: value.astype(np.float32) for name, value in found.items()}


def residual_features(x: Any, p: dict[str, Any], conv: Any, norm: Any, relu: Any) -> Any:
    """Features of digits, by the functions of either library."""
    x, before = conv(x, p["stem"], 1, 1), WIDTHS[0]
    for width in WIDTHS:
        for block in "01":
            name, stride = f"{width} {block}", 1 if width == before else 2
            y = relu(norm(conv(x, p[f"{name} first"], stride, 1), f"{name} first"))
            y = norm(conv(y, p[f"{name} second"], 1, 1), f"{name} second")
            x = relu(y + (x if stride == 1 else conv(x, p[f"{name} across"], stride, 0)))
            before = width
    return x


def digits() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(64, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 64)


def our_residual_step() -> tuple[Any, ...]:
    arrays = residual_parameters()
    p = {name: od.Variable(a, requires_grad=True) for name, a in arrays.items()}
    means = {n[:-5]: od.Variable(np.zeros_like(a)) for n, a in arrays.items() if "gain" in n}
    variances = {n[:-5]: od.Variable(np.ones_like(a)) for n, a in arrays.items() if "gain" in n}
    optimizer = od.optim.SGD(list(p.values()), learning_rate=0.05, momentum=0.9)
    images, classes = digits()
    ops = od.ops

    def conv(x: Any, weight: Any, stride: int, padding: int) -> Any:
        return ops.conv2d(x, weight, stride=stride, padding=padding)

    def norm(x: Any, name: str) -> Any:
        gain, shift = p[f"{name} gain"], p[f"{name} shift"]
        return od.nn.batch_norm(x, means[name], variances[name], gain, shift, training=True)

    def step(images: Any, classes: Any) -> Any:
        with od.GradientTape() as tape:
            x = ops.mean(residual_features(images, p, conv, norm, ops.relu), axis=(2, 3))
            loss = od.losses.cross_entropy(ops.linear(x, p["head"]), classes)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, images, classes


def their_residual_step() -> Callable[[], Any]:
    arrays = residual_parameters()
    p = {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}
    means = {n[:-5]: torch.zeros(len(a)) for n, a in arrays.items() if "gain" in n}
    variances = {n[:-5]: torch.ones(len(a)) for n, a in arrays.items() if "gain" in n}
    optimizer = torch.optim.SGD(p.values(), lr=0.05, momentum=0.9)
    images, classes = map(torch.tensor, digits())
    functional = torch.nn.functional

    def conv(x: Any, weight: Any, stride: int, padding: int) -> Any:
        return functional.conv2d(x, weight, stride=stride, padding=padding)

    def norm(x: Any, name: str) -> Any:
        gain, shift = p[f"{name} gain"], p[f"{name} shift"]
        return functional.batch_norm(x, means[name], variances[name], gain, shift, training=True)

    def step() -> Any:
        x = residual_features(images, p, conv, norm, functional.relu).mean((2, 3))
        loss = functional.cross_entropy(functional.linear(x, p["head"]), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def residual_steps() -> list[Callable[[], Any]]:
    step, *batch = our_residual_step()
    other, *_ = our_residual_step()
    compiled = od.compile(other)
    return [lambda: step(*batch), lambda: compiled(*batch), their_residual_step()]


def show_small(rounds: int) -> int:
    """Print a table of small images; return 1 if results differ."""
    print(f"{'':<38}{'torch us':>12}{'eager':>12}{'compiled':>12}")
    cases = {
        f"{channels} channels, {size} by {size}, {name}": calls
        for channels, size in SMALL
        for name, calls in small_layer(channels, size).items()
    }
    failed = 0
    for name, calls in {**cases, "residual network, a training step": residual_steps()}.items():
        same = agree(calls)
        times = interleaved(dict(enumerate(calls)), rounds, 0.001)
        eager, compiled, torch_time = (1e6 * times.best(k) for k in range(3))
        failed |= not same
        print(f"{name:<38}{torch_time:>12.0f}{eager / torch_time:>12.2f}", end="")
        print(f"{compiled / torch_time:>12.2f}" + ("" if same else "  DISAGREES"), flush=True)
    return failed


# ------------------------------------------------------------------ measuring


def agree(calls: list[Callable[[], Any]]) -> bool:
    """Whether results are the same but for the rounding of single precision."""
    found = [r if isinstance(r, (list, tuple)) else [r] for r in [call() for call in calls]]
    return all(
        np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-4 * max(1.0, np.abs(np.asarray(b)).max())
        for other in found[:-1]
        for a, b in zip(other, found[-1], strict=True)
    )


def main() -> int:
    """Run; see the head of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layer", default="", help="only layers whose names have this in them")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each")
    parser.add_argument("--lenet", action="store_true", help="training steps of LeNet")
    parser.add_argument("--small", action="store_true", help="small images, and a residual network")
    parser.add_argument("--numpy", action="store_true", help="without compiled kernels")
    arguments = parser.parse_args()
    if torch is not None:
        torch.set_num_threads(1)
    if arguments.small:
        if torch is None:
            parser.error("--small needs PyTorch")
        return show_small(arguments.rounds)
    if arguments.lenet:
        cases = {"lenet, a training step": (our_step, their_step)}
    else:
        cases = {
            layer.name: (lambda k=layer: ours(k), lambda k=layer: theirs(k))
            for layer in LAYERS
            if arguments.layer in layer.name
        }
    ratios, sound = [], True
    print(f"{'':<38}{'odyssey us':>12}{'torch us':>12}{'ratio':>8}")
    with od.ops.use_kernels("numpy") if arguments.numpy else nullcontext():
        for name, makers in cases.items():
            calls = [make() for make in makers[: 1 if torch is None else 2]]
            same = agree(calls)
            samples = interleaved(dict(enumerate(calls)), arguments.rounds, 0.01)
            times = [1e6 * samples.median(k) for k in range(len(calls))]
            ratios.append(times[0] / times[-1])
            sound = sound and same
            print(f"{name:<38}" + "".join(f"{t:>12.0f}" for t in times), end="")
            print(f"{ratios[-1]:>8.2f}" + ("" if same else "  DISAGREES"), flush=True)
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    print(f"geometric mean {mean:.2f}, largest {max(ratios):.2f}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
