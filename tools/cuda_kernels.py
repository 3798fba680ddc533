"""The table of what CUDA kernels take of a device: registers, and which compute in float64.

python -m tools.cuda_kernels              # all rows and steps: some ten minutes
python -m tools.cuda_kernels softmax W2   # these rows and steps, and the others as they are

Needs ``pip install nvidia-cuda-nvcc`` for ``ptxas``, and no device. The table is
``tests/support/cuda_kernels.txt``.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main(names: list[str]) -> int:
    """Write the table; return 1 if ptxas is missing, or a name is neither a row nor a step."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    cuda_rows: Any = importlib.import_module("support.cuda_rows")

    if cuda_rows.find_ptxas() is None:
        print("ptxas is missing: pip install nvidia-cuda-nvcc")
        return 1
    everything = [*cuda_rows.samples_by_row(), *cuda_rows.STEPS]
    unknown = sorted(set(names) - set(everything))
    if unknown:
        print(f"neither rows nor steps: {', '.join(unknown)}")
        return 1
    known = cuda_rows.read_table()[1] if cuda_rows.TABLE.exists() else {}
    lines = []
    for name in everything:
        if names and name not in names:
            lines += [x for key, x in known.items() if key.split(":")[0] == name]
        elif name in cuda_rows.STEPS:
            lines += cuda_rows.lines_of_step(name)
        else:
            lines.append(cuda_rows.lines_of_row(name))
    cuda_rows.write_table(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
