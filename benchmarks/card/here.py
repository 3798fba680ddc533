"""Prepared programs, executed on the CPU from the same text."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from card.on_card import ProgramRun, read_programs
from odyssey.compiler.cuda.cublas import GemmCall, emulate
from odyssey.compiler.cuda.host_execution import HostKernels


class HostRun(ProgramRun):
    """A program in the memory of this process; its kernels run by threads of Python."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data, np)
        kernels = [
            SimpleNamespace(name=name, parameters=(None,) * count, shared_bytes=shared)
            for name, count, shared in data["kernels"]
        ]
        program: Any = SimpleNamespace(host_text=data["host_text"], kernels=kernels)
        self._kernels = HostKernels(program) if kernels else None

    def launch(self, name: str, grid: int, block: int, addresses: list[int]) -> None:
        assert self._kernels is not None
        self._kernels.launch(name, grid, block, addresses)

    def gemm(self, call: dict[str, Any], addresses: list[int]) -> None:
        emulate(GemmCall(*call["own"]), *addresses)


def run_here(folder: str) -> int:
    """Run all programs of a folder once; return how many are wrong."""
    wrong = count = 0
    for name in ("rows", "programs"):
        for data in read_programs(Path(folder) / f"{name}.npz"):
            if data["kernels"] and not data["host_text"]:
                raise SystemExit("card: these programs have no text for the CPU; prepare --small")
            run = HostRun(data)
            run.once()
            count += 1
            for line in run.differences():
                wrong += 1
                print(line)
    print(f"{count} programs from data, {wrong} results wrong")
    return int(wrong > 0)
