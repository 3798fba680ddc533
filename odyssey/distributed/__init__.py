"""Several processes that train one model: groups of processes, and their collectives, on MPI."""

from odyssey.distributed.data_parallel import DataParallel
from odyssey.distributed.group import Group, world

__all__ = ["DataParallel", "Group", "world"]


def __dir__() -> list[str]:
    return sorted(__all__)
