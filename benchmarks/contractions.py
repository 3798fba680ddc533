"""Times Einstein's sums beside NumPy and PyTorch, values and gradients, taking turns on one CPU.

    python benchmarks/contractions.py                 needs PyTorch
    python benchmarks/contractions.py --rounds 31 --only tucker,traces

Ten contractions that are hard for one reason or another: their order matters, an axis is in three
operands or in one only, matrices are thin, or the products are not of matrices at all. Medians of
process time, each ratio between neighbours in time; the bar is 1.0.
"""

import argparse
import os
import sys

import numpy as np

import odyssey as od
from harness.machine import ONE_THREAD, pin_to_one_cpu, set_blas_choices_aside
from harness.sampling import interleaved

try:
    import torch
except ImportError:
    torch = None

CASES = {
    "chain": ("ij,jk,kl,lm->im", [(400, 20), (20, 400), (400, 20), (20, 400)]),
    "bilinear": ("bi,oij,bj->bo", [(64, 40), (32, 40, 40), (64, 40)]),
    "four_indices": ("ea,fb,abcd,gc,hd->efgh", [(12, 12)] * 2 + [(12,) * 4] + [(12, 12)] * 2),
    "tucker": ("abc,ia,jb,kc->ijk", [(10, 10, 10), (40, 10), (40, 10), (40, 10)]),
    "outer_sums": ("ir,jr,kr->ijk", [(40, 8), (40, 8), (40, 8)]),
    "attention": ("bhqd,bhkd,bhkv->bqhv", [(4, 4, 64, 16), (4, 4, 64, 16), (4, 4, 64, 16)]),
    "shared_axis": ("ab,ac,ad->bcd", [(50, 20), (50, 20), (50, 20)]),
    "traces": ("ij,jk,ki->", [(150, 150)] * 3),
    "diagonals": ("iij,jk->ik", [(60, 60, 60), (60, 60)]),
    "network": ("abc,cde,efa,bdf->", [(16, 16, 16)] * 3 + [(16, 16, 16)]),
}
BLOCK_SECONDS = 0.02


def calls(subscripts, arrays):
    """How to compute the value, and the value with the gradients of its sum, for each library."""
    tensors = [torch.tensor(x) for x in arrays]
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
    variables = [od.Variable(x, requires_grad=True) for x in arrays]

    def torch_gradients():
        return torch.autograd.grad(torch.einsum(subscripts, *leaves).sum(), leaves)

    def our_gradients():
        with od.GradientTape() as tape:
            total = od.ops.sum(od.ops.einsum(subscripts, *variables))
        return tape.gradient(total, variables)

    return {
        "odyssey": lambda: od.ops.einsum(subscripts, *arrays),
        "numpy": lambda: np.einsum(subscripts, *arrays, optimize=True),
        "torch": lambda: torch.einsum(subscripts, *tensors),
    }, {"odyssey": our_gradients, "torch": torch_gradients}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default=",".join(CASES))
    settings = parser.parse_args()
    if torch is None:
        raise SystemExit("contractions: PyTorch is missing; install it beside odyssey")
    if not os.environ.keys() >= ONE_THREAD.keys():  # read once, where BLAS is loaded
        set_blas_choices_aside()
        os.environ.update(ONE_THREAD)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    pin_to_one_cpu()
    torch.set_num_threads(1)
    print(f"{'':14}{'value':>10}{'/ numpy':>9}{'/ torch':>9}{'gradients':>12}{'/ torch':>9}")
    for name in settings.only.split(","):
        subscripts, shapes = CASES[name]
        rng = np.random.default_rng(0)
        arrays = [rng.normal(size=shape) for shape in shapes]
        values, gradients = calls(subscripts, arrays)
        wanted = values["numpy"]()
        np.testing.assert_allclose(values["odyssey"](), wanted, atol=1e-9 * np.abs(wanted).max())
        for ours, theirs in zip(gradients["odyssey"](), gradients["torch"](), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9 * float(theirs.abs().max()))
        times = interleaved(values, settings.rounds, BLOCK_SECONDS)
        slopes = interleaved(gradients, settings.rounds, BLOCK_SECONDS)
        own, ours = times.median("odyssey") * 1e6, slopes.median("odyssey") * 1e6
        print(
            f"{name:14}{own:8.0f}us{times.ratio('odyssey', 'numpy'):9.2f}"
            f"{times.ratio('odyssey', 'torch'):9.2f}"
            f"{ours:10.0f}us{slopes.ratio('odyssey', 'torch'):9.2f}"
        )


if __name__ == "__main__":
    main()
