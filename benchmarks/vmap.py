"""``od.vmap``: gradients of each example, and everyday functions, beside JAX and torch.func.

    python benchmarks/vmap.py
    python benchmarks/vmap.py --case mlp --rounds 15

All take turns in one process, on one thread; what is shown are medians of process time in
microseconds, and odyssey's ratios to each peer, taken round by round. ``loop`` calls the function
once for each example. JAX runs under ``jit`` and may use a second thread, so ``--clock wall``
compares wall clock times, which need an idle machine. Peers that are not installed are left out.
The exit status is 1 where results differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import Clock, interleaved  # noqa: E402
from odyssey import ops  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
except ImportError:
    jax = None

RNG = np.random.default_rng(0)
Runs = dict[str, Callable[[], Any]]


def _normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def _leaves(result: Any) -> list[Any]:
    """Return the arrays of a dict, a list, a tuple or an array."""
    if isinstance(result, dict):
        return [np.asarray(result[key]) for key in sorted(result)]
    return [np.asarray(a) for a in (result if isinstance(result, (list, tuple)) else [result])]


def _runs(
    arrays: list[Any],
    in_axes: tuple[Any, ...],
    ours: Callable[..., Any],
    torchs: Callable[..., Any] | None = None,
    jaxs: Callable[..., Any] | None = None,
) -> Runs:
    """Return the runs of a function of one example: a loop, od.vmap, and the peers."""
    mapped = od.vmap(ours, in_axes)
    compiled = od.compile(mapped)
    size = next(len(a) for a, axis in zip(arrays, in_axes, strict=True) if axis == 0)

    def example(k: int) -> list[Any]:
        return [a if axis is None else a[k] for a, axis in zip(arrays, in_axes, strict=True)]

    def loop() -> Any:
        results = [_leaves(ours(*example(k))) for k in range(size)]
        return [np.stack(column) for column in zip(*results, strict=True)]

    runs: Runs = {
        "loop": loop,
        "vmap": lambda: mapped(*arrays),
        "compiled": lambda: compiled(*arrays),
    }
    if torchs is not None and torch is not None:
        tensors = torch.utils._pytree.tree_map(torch.tensor, arrays)
        their_mapped = torch.func.vmap(torchs, in_axes)
        runs["torch"] = lambda: their_mapped(*tensors)
    if jaxs is not None and jax is not None:
        on_device = jax.tree_util.tree_map(jax.numpy.asarray, arrays)
        jitted = jax.jit(jax.vmap(jaxs, in_axes))
        runs["jax"] = lambda: jax.block_until_ready(jitted(*on_device))
    return runs


# ------------------------------------------------------------------ gradients of each example


def _mlp(sizes: tuple[int, ...], batch: int) -> Runs:
    """A network of two layers; each example's gradient of the cross entropy."""
    inner, hidden, classes = sizes
    p = {
        "w0": _normal(inner, hidden) / np.float32(inner**0.5),
        "b0": np.zeros(hidden, np.float32),
        "w1": _normal(hidden, classes) / np.float32(hidden**0.5),
        "b1": np.zeros(classes, np.float32),
    }
    x, y = _normal(batch, inner), RNG.integers(0, classes, batch)

    def loss(p: Any, x: Any, y: Any) -> Any:
        z = ops.relu(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]
        return od.losses.cross_entropy(z, y)

    def torch_loss(p: Any, x: Any, y: Any) -> Any:
        z = torch.relu(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]
        return torch.nn.functional.cross_entropy(z, y)

    def jax_loss(p: Any, x: Any, y: Any) -> Any:
        z = jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]
        return jax.nn.logsumexp(z) - z[y]

    return _runs(
        [p, x, y],
        (None, 0, 0),
        od.grad(loss),
        torch and torch.func.grad(torch_loss),
        jax and jax.grad(jax_loss),
    )


def _lenet() -> Runs:
    """LeNet for 32 digits of 28 by 28; each example's gradient of the cross entropy."""
    shapes = [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    p = []
    for shape in shapes:
        p += [_normal(*shape) / np.float32(np.prod(shape[1:]) ** 0.5), _normal(shape[0])]
    x, y = _normal(32, 1, 28, 28), RNG.integers(0, 10, 32)

    def loss(p: Any, x: Any, y: Any) -> Any:
        h = ops.relu(ops.conv2d(x[None], p[0], p[1], padding=2))
        h = ops.max_pool2d(h, window=2)
        h = ops.max_pool2d(ops.relu(ops.conv2d(h, p[2], p[3])), window=2).reshape(1, -1)
        h = ops.relu(ops.linear(h, p[4], p[5]))
        h = ops.relu(ops.linear(h, p[6], p[7]))
        return od.losses.cross_entropy(ops.linear(h, p[8], p[9]), y[None])

    def torch_loss(p: Any, x: Any, y: Any) -> Any:
        f = torch.nn.functional
        h = f.max_pool2d(f.relu(f.conv2d(x[None], p[0], p[1], padding=2)), 2)
        h = f.max_pool2d(f.relu(f.conv2d(h, p[2], p[3])), 2).reshape(1, -1)
        h = f.relu(f.linear(h, p[4], p[5]))
        h = f.relu(f.linear(h, p[6], p[7]))
        return f.cross_entropy(f.linear(h, p[8], p[9]), y[None])

    return _runs(
        [p, x, y], (None, 0, 0), od.grad(loss), torch and torch.func.grad(torch_loss), None
    )


# ------------------------------------------------------------------ everyday functions


def _solve() -> Runs:
    """The solution of a system of 8 unknowns in each of 128 examples."""
    a = _normal(128, 8, 8) + 8 * np.eye(8, dtype=np.float32)
    return _runs(
        [a, _normal(128, 8)],
        (0, 0),
        ops.solve,
        torch and (lambda a, b: torch.linalg.solve(a, b)),
        jax and (lambda a, b: jax.numpy.linalg.solve(a, b)),
    )


def _gaussian() -> Runs:
    """A Gaussian log density of 16 numbers, by Cholesky's factor, and its gradient."""
    root, points = _normal(64, 16, 16), _normal(64, 16)
    ridge = 16 * np.eye(16, dtype=np.float32)

    def density(w: Any, x: Any) -> Any:
        factor = ops.cholesky(w @ w.T + ridge)
        z = ops.triangular_solve(factor, x, lower=True)
        return ops.log(ops.diagonal(factor)).sum() + ops.square(z).sum()

    def torch_density(w: Any, x: Any) -> Any:
        factor = torch.linalg.cholesky(w @ w.T + torch.from_numpy(ridge))
        z = torch.linalg.solve_triangular(factor, x[:, None], upper=False)
        return torch.log(torch.diagonal(factor)).sum() + z.square().sum()

    def jax_density(w: Any, x: Any) -> Any:
        factor = jax.numpy.linalg.cholesky(w @ w.T + ridge)
        z = jax.scipy.linalg.solve_triangular(factor, x, lower=True)
        return jax.numpy.log(jax.numpy.diagonal(factor)).sum() + jax.numpy.square(z).sum()

    return _runs(
        [root, points],
        (0, 0),
        od.grad(density),
        torch and torch.func.grad(torch_density),
        jax and jax.grad(jax_density),
    )


def _attention() -> Runs:
    """Attention of 4 heads over 16 positions, and the gradients of each of 32 examples."""
    qkv = [_normal(32, 4, 16, 16) for _ in range(3)]

    def loss(q: Any, k: Any, v: Any) -> Any:
        return ops.square(ops.scaled_dot_product_attention(q, k, v)).sum()

    def torch_loss(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).square().sum()

    def jax_loss(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4)
        return jax.numpy.square(weights @ v).sum()

    places = (0, 1, 2)
    return _runs(
        qkv,
        (0, 0, 0),
        od.grad(loss, places),
        torch and torch.func.grad(torch_loss, places),
        jax and jax.grad(jax_loss, places),
    )


CASES: dict[str, Callable[[], Runs]] = {
    "mlp 64-32-10, batch 64": lambda: _mlp((64, 32, 10), 64),
    "mlp 784-128-10, batch 32": lambda: _mlp((784, 128, 10), 32),
    "lenet, batch 32": _lenet,
    "solve 8x8, batch 128": _solve,
    "gaussian 16, batch 64": _gaussian,
    "attention, batch 32": _attention,
}


# ------------------------------------------------------------------ measuring


def _agree(results: dict[str, Any]) -> list[str]:
    """Return the runs whose results are not those of the loop."""
    wanted = _leaves(results["loop"])
    return [
        name
        for name, result in results.items()
        if not all(
            np.allclose(a, b, rtol=1e-3, atol=1e-4)
            for a, b in zip(wanted, _leaves(result), strict=True)
        )
    ]


def _show(name: str, rounds: int, clock: Clock) -> bool:
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
    runs = CASES[name]()
    for run in runs.values():  # the second call compiles a program
        run(), run()
    different = _agree({key: run() for key, run in runs.items()})
    samples = interleaved(runs, rounds, clock=clock)
    medians = {key: 1e6 * samples.median(key) for key in runs}
    print(f"{name:<26}" + "".join(f"{key:>9}{medians[key]:>9.1f}" for key in runs))
    for mine in ("vmap", "compiled"):
        ratios = {
            peer: samples.ratio(mine, peer) for peer in ("loop", "torch", "jax") if peer in runs
        }
        figures = "".join(f"{ratio:>9.3f} of {peer:<6}" for peer, ratio in ratios.items())
        print(f"   {mine:<12}{figures}")
    if different:
        print(f"   DIFFERENT from the loop: {', '.join(different)}")
    return not different


def main() -> int:
    """Run; the exit status is 1 where results differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", help="some of the names, comma-separated (default: all)")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each peer")
    parser.add_argument("--clock", choices=("process", "wall"), default="process")
    arguments = parser.parse_args()
    asked = arguments.case.split(",") if arguments.case else [""]
    names = [name for name in CASES if any(name.startswith(word) for word in asked)]
    if torch is not None:
        torch.set_num_threads(1)
    clock = time.process_time if arguments.clock == "process" else time.perf_counter
    sound = [_show(name, arguments.rounds, clock) for name in names]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
