"""Segments: the launches of a program between two host calls, as calls of C or as CUDA graphs.

A graph has the addresses of its recording. Arguments, results, and results of host calls lie
elsewhere in each run, so segments of a graph read and write copies of them at fixed places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from odyssey.compiler.cuda.launcher import Call, Cell, Launcher
from odyssey.devices.backends import Backend
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DeviceError, DeviceMemoryError

__all__ = ["MOST_COPIED", "CellTable", "GraphRecorder", "NamedCalls", "Segment"]

Region = tuple[str, int]
"""Kind and number of memory of a program, see ``cuda.program``."""

# A segment with more bytes of arguments and results is launched kernel by kernel.
MOST_COPIED = 16 << 20
# A program whose states get other arrays again and again is launched kernel by kernel.
_MOST_RECORDINGS = 4


class NamedCalls(NamedTuple):
    """Calls, with the name of each for messages."""

    calls: list[Call]
    names: list[str]

    def add(self, one: Call, name: str) -> None:
        """Append a call."""
        self.calls.append(one)
        self.names.append(name)


class CellTable:
    """Addresses that the calls of a program read, one for each place in a region.

    Attributes:
        touched: Regions of the cells that were returned since it was assigned.
    """

    def __init__(self) -> None:
        self._cells: dict[Region, dict[int, Cell]] = {}
        self.touched: set[Region] = set()

    def cell(self, kind: str, index: int, offset: int) -> Cell:
        """Return the cell for a place in a region."""
        self.touched.add((kind, index))
        return self._cells.setdefault((kind, index), {}).setdefault(offset, Cell())

    def freeze(self) -> None:
        """Prepare ``set_address``: all cells are known."""
        self._by_region = {key: list(cells.items()) for key, cells in self._cells.items()}

    def set_address(self, kind: str, index: int, start: int) -> None:
        """Let the cells of a region point into memory at an address."""
        for offset, cell in self._by_region.get((kind, index), ()):
            cell.value = start + offset


class Segment:
    """Launches between two host calls.

    Args:
        ready: Regions that hold their values when it begins, and not before.

    Attributes:
        body: The launches.
        touched: Regions that they read or write.
        before: Calls ahead of them that no graph holds: those that read the host's memory.
        after: Calls behind them that no graph holds.
        last_check: The number of the last check, whose byte the host reads behind it; None if it
            has no checks.
        graph: The call that launches all, once it is recorded.
    """

    def __init__(self, ready: Sequence[Region]) -> None:
        self.ready = ready
        self.body, self.before, self.after = (NamedCalls([], []) for _ in range(3))
        self.touched: set[Region] = set()
        self.last_check: int | None = None
        self.graph: Call | None = None


class GraphRecorder:
    """Segments of a program as CUDA graphs.

    Args:
        launcher: Launcher of the program.
        cells: Its addresses, to which those of the copies are added.
        segments: Its segments.
        sizes: Bytes of the regions that lie elsewhere in each run.

    Attributes:
        can_record: Whether ``record`` does something.
        arrays: The fixed places, while graphs are in use.
    """

    def __init__(
        self,
        launcher: Launcher,
        cells: CellTable,
        segments: Sequence[Segment],
        sizes: dict[Region, int],
    ) -> None:
        self._launcher, self._cells, self._segments = launcher, cells, segments
        self._recorded: list[Segment] = []
        self._fixed: dict[Region, int] = {}
        self._recordings = 0
        self.arrays: dict[Region, Any] = {}
        self._calls: dict[int, NamedCalls] = {}
        for segment in segments if launcher.has_graphs else ():
            moving = {key: sizes[key] for key in segment.touched if key in sizes}
            if segment.body.calls and sum(moving.values()) <= MOST_COPIED:
                self._recorded.append(segment)
                self._fixed |= moving
        self.can_record = bool(self._recorded)
        self._copies = {id(segment): NamedCalls([], []) for segment in segments}
        for segment in segments:
            for key in segment.ready:
                self._add_copy(self._copies[id(segment)], key, back=False)
        self._copies_back = NamedCalls([], [])
        for key in self._fixed:
            if key[0] == "output":
                self._add_copy(self._copies_back, key, back=True)

    def _add_copy(self, calls: NamedCalls, key: Region, back: bool) -> None:
        """Add the copy between the fixed place of a region and its place in a run."""
        kind, index = key
        size = self._fixed.get(key, 0)
        if size:
            fixed, own = (self._cells.cell(k, index, 0) for k in (kind, f"{kind} of a run"))
            target, source = (own, fixed) if back else (fixed, own)
            calls.add(self._launcher.copy_call(target, source, size), "copy")

    def set_address(self, kind: str, index: int, start: int) -> None:
        """Set the address, in the next run, of a region that lies elsewhere in each run."""
        if (kind, index) not in self.arrays:
            self._cells.set_address(kind, index, start)
        self._cells.set_address(f"{kind} of a run", index, start)

    def record(self, backend: Backend, device_index: int) -> None:
        """Record graphs, if the device can, and has memory for the fixed places."""
        self.can_record = False
        try:
            arrays = {key: backend.allocate(n, device_index) for key, n in self._fixed.items()}
            for key, array in arrays.items():
                self._cells.set_address(*key, backend.pointer(array) if array.size else 0)
            graphs = [self._launcher.graph_call(segment.body.calls) for segment in self._recorded]
            pairs = zip(self._recorded, graphs, strict=True)
            plan: Plan = [(setattr, segment, "graph", graph) for segment, graph in pairs]
            commit([*plan, (setattr, self, "arrays", arrays)])
        except (DeviceError, DeviceMemoryError):  # launched one by one
            return
        finally:
            self._calls.clear()
            for kind, index in () if self.arrays else self._fixed:
                own = self._cells.cell(f"{kind} of a run", index, 0)
                self._cells.set_address(kind, index, own.value or 0)
        self._recordings += 1

    @property
    def has_graphs(self) -> bool:
        """Return whether graphs are in use, with or without fixed places."""
        return any(segment.graph is not None for segment in self._recorded)

    def forget(self) -> None:
        """Drop the graphs: states lie elsewhere. A next run may record others."""
        if self.has_graphs:
            self.can_record = self._recordings < _MOST_RECORDINGS
        for segment in self._recorded:
            segment.graph = None
        self.arrays = {}
        self._calls.clear()

    def calls_of(self, segment: Segment) -> NamedCalls:
        """Return the calls of a segment in a run."""
        found = self._calls.get(id(segment))
        if found is None:
            found = self._calls[id(segment)] = self._find_calls(segment)
        return found

    def _find_calls(self, segment: Segment) -> NamedCalls:
        body = segment.body
        if segment.graph is not None:
            body = NamedCalls([segment.graph], ["graph"])
        parts = [segment.before, body, segment.after]
        if self.arrays:
            back = [self._copies_back] if segment is self._segments[-1] else []
            parts = [segment.before, self._copies[id(segment)], body, *back, segment.after]
        return NamedCalls(
            [one for part in parts for one in part.calls],
            [name for part in parts for name in part.names],
        )

    def describe_launches(self) -> str:
        """Say how segments are launched."""
        filled = [segment for segment in self._segments if segment.body.calls]
        count = sum(segment.graph is not None for segment in filled)
        if not count:
            return "launched one by one"
        graphs = "one CUDA graph" if count == 1 else f"{count} CUDA graphs"
        rest = len(filled) - count
        return f"launched as {graphs}" + (f", and {rest} segments one by one" if rest else "")
