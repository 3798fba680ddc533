"""Alternatives: the ways of a call of a row, the guess first.

A row is ``compiled``, by its lowering, its scalar or its decomposition, or by one of several
lowerings that it names; ``called``, as an eager call runs it; or run by one of its kernels. The
guess is what its column ``guess`` says, else ``compiled``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from odyssey.checks import format_value
from odyssey.compiler.ways.works import Work
from odyssey.errors import SettingError
from odyssey.graph.subgraphs import LoopRow
from odyssey.kernels.sizes import SIZES
from odyssey.table.kernel_selection import SIZE_FACTOR, Kernel, are_kernels_compiled
from odyssey.table.row import Row

__all__ = [
    "CALLED",
    "COMPILED",
    "GENERATOR",
    "Choice",
    "Way",
    "guessed_name",
    "has_alternatives",
    "kernel_of_way",
    "version_by_name",
    "lowering_names",
    "ways",
]

COMPILED, CALLED = "compiled", "called"


class Way(NamedTuple):
    """A way to compute a work.

    Attributes:
        name: Its name, one of a few for each row.
        error_bound: Largest error relative to the largest result; None if results are as exact as
            those of the row's reference, up to the order of sums.
        modules: The modules whose code it runs.
    """

    name: str
    error_bound: float | None = None
    modules: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """A hash of the code that it runs and that generates it, without addresses."""
        return _version(self.modules)


class Choice(NamedTuple):
    """The way of a work in a program.

    Attributes:
        work: The work.
        ways: Its ways, the guess first.
        way: The name of the way that the program takes.
        origin: ``guessed``, ``pinned``, or ``measured`` with the ratio to the guess.
        call: Row, specs and options of a call of a row; None for a product.
    """

    work: Work
    ways: tuple[Way, ...]
    way: str
    origin: str
    call: tuple[Row, tuple[Any, ...], tuple[Any, ...]] | None = None


GENERATOR = "odyssey.compiler"
"""Stands for the code generator among the modules of a way."""
# Rooms of the compiler that decide what the text of a program is.
_ROOMS = (
    "lowering.py",
    "codegen",
    "ir",
    "llvm",
    "passes",
    "schedule",
    "ways/alternatives.py",
    "ways/products.py",
)


@cache
def _version(modules: tuple[str, ...]) -> str:
    digest = sha256()
    for name in modules:
        digest.update(str(name).encode())
        path = Path(getattr(sys.modules.get(name), "__file__", None) or str(name))
        paths = [path]
        if name == GENERATOR:
            rooms = [path.parent / room for room in _ROOMS]
            paths = [p for room in rooms for p in (room, *sorted(room.glob("*.py")))]
        for one in paths:
            with suppress(OSError):  # a folder, or code that is in no file
                digest.update(one.name.encode() + one.read_bytes())
    return digest.hexdigest()[:16]


def has_alternatives(row: Row) -> bool:
    """Return whether calls of a row may have several ways.

    Elementwise rows and views are parts of other kernels, and a call would only end these.
    """
    if row.elementwise or row.primitive == "view" or row.has_side_effect:
        return False
    return row.name not in _PARTS and not isinstance(row, LoopRow)


# Rows that are views, or whose elements other kernels compute where they read them.
_PARTS = frozenset({"astype", "getitem", "keep_where", "matrix_transpose", "demanded"})


def lowering_names(row: Row) -> tuple[str, ...]:
    """Return the names of the ways that compile a row."""
    return tuple(row.lowering) if isinstance(row.lowering, Mapping) else (COMPILED,)


def guessed_name(row: Row, specs: Sequence[Any], options: tuple[Any, ...]) -> str:
    """Return the name of the way that a program takes for a call unless told otherwise.

    Raises:
        SettingError: the row guesses a way that it does not have.
    """
    known = lowering_names(row)
    if row.guess is None:
        return known[0]
    name = row.guess(*specs, *options)
    if name in known or name == CALLED:
        return str(name)
    kernels = [kernel.name for kernel in row.kernels]
    if name in kernels:  # without numba, or for such a call, it may not run
        return CALLED if kernel_of_way(row, specs, options, name) is None else str(name)
    raise SettingError(
        f"op {row.name}: its guess is {format_value(name)}; return "
        f"{' or '.join(map(repr, (*known, CALLED, *kernels)))}"
    )


def ways(
    row: Row, specs: Sequence[Any], options: tuple[Any, ...], guess: str | None = None
) -> tuple[Way, ...]:
    """Return the ways of a call of a row, the guess first.

    Those that compile it are among them even if its lowering will refuse these dtypes or options;
    lowering finds that out.

    Args:
        row: The row.
        specs: Specs of the operands; a number or None stands for itself.
        options: Canonical options.
        guess: The guessed name, if it is known.
    """
    guess = guessed_name(row, specs, options) if guess is None else guess
    own = row.module
    compiled = [Way(name, None, (GENERATOR, own)) for name in lowering_names(row)]
    if not has_alternatives(row):
        return tuple(compiled[:1])
    found = [*compiled, Way(CALLED, None, (own,))]
    usual = _kernel_of_eager_call(row, specs, options)
    for kernel in _own_kernels(row):
        is_own = kernel is not usual or kernel.name == guess
        if is_own and kernel.takes(*specs, *options):
            found.append(Way(kernel.name, kernel.error_bound, (own, kernel.run.__module__)))
    return tuple(sorted(found, key=lambda way: way.name != guess))


def version_by_name(row: str, name: str) -> str | None:
    """Return the version of a way by the names of its row and its own; None if there is none.

    Args:
        row: Name of a row of the table, or the name that works of products have.
        name: Name of the way.
    """
    from odyssey.table.registry import OPS

    if row not in OPS:
        return Way(name, None, (GENERATOR,)).version if row.endswith("product") else None
    entry = OPS[row]
    if name in lowering_names(entry):
        return Way(name, None, (GENERATOR, entry.module)).version
    if name == CALLED:
        return Way(name, None, (entry.module,)).version
    modules = [one.run.__module__ for one in entry.kernels if one.name == name]
    return Way(name, None, (entry.module, modules[0])).version if modules else None


def kernel_of_way(
    row: Row, specs: Sequence[Any], options: tuple[Any, ...], name: str
) -> Kernel | None:
    """Return the kernel of this name if it supports a call, else None."""
    found = [kernel for kernel in _own_kernels(row) if kernel.name == name]
    return found[0] if found and found[0].takes(*specs, *options) else None


def _own_kernels(row: Row) -> list[Kernel]:
    """Return the kernels that can run here."""
    if not row.kernels or not are_kernels_compiled():
        return []
    return [kernel for kernel in row.kernels if kernel.device == "cpu"]


def _kernel_of_eager_call(
    row: Row, specs: Sequence[Any], options: tuple[Any, ...]
) -> Kernel | None:
    """Return the kernel that ``select_by_size`` chooses for a call; None for the row's own."""
    least = SIZES.get(row.name, math.inf)
    if max([getattr(spec, "size", 1) for spec in specs], default=0) < least * SIZE_FACTOR[0]:
        return None
    for kernel in _own_kernels(row):
        pays = kernel.pays is None or SIZE_FACTOR[0] == 0 or kernel.pays(*specs, *options)
        if pays and kernel.takes(*specs, *options):
            return kernel
    return None
