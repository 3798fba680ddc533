"""What a compiler may read of a row: on numbers, in other ops, or by kind; and its other kernels.

A compiler takes a row apart by one of three things. An elementwise row has a ``scalar``, its
meaning on numbers, unless a library alone has that. A row that stands for a composition has
``decomposition``, the function written with other ops. Any other row is a ``primitive``, of which
there are a few kinds; those that compile have a ``lowering``, a function that gets a builder before
the operands and options (``compiler.lowering.Lowering``). A row with a scalar may have a
``decomposition`` as well. Conditions on data that a kernel checks, such as class numbers in their
range, are in ``requires``, a list of truths in ops; where one is false, the kernel raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import CO_VARARGS
from typing import Any, NamedTuple

from odyssey.checks import flag, function, shown
from odyssey.errors import DTypeError, OdysseyError
from odyssey.table.signature import Layout, parameters_of

__all__ = ["PRIMITIVES", "Kernel", "check_meaning", "read_meaning"]

_FACTS = (
    *("scalar", "decomposition", "primitive", "lowering"),
    *("requires", "raises", "has_side_effect", "kernels"),
)

PRIMITIVES = (
    *("reduce", "product", "view", "gather", "scatter", "assemble", "scan", "decompose"),
    *("random", "call"),
)
"""The kinds of rows that are neither elementwise nor made of others.

What they do with elements: sum or search them along axes; multiply and sum them; arrange them
anew; read them, or write or add them, where indices or their order say; join arrays; take each
along an axis from those before it; take matrices apart, as LAPACK does; make random ones of the
state of a generator; call a function of a library on each, which is what an elementwise row
without a scalar does.
"""


class Kernel(NamedTuple):
    """Another way to run a row, beside the kernel that it runs when nothing else is said.

    ``row.use(kernel.run)`` makes it the row's kernel. The record says what whoever chooses must
    know, and what the tests hold it to. A kernel can be left out: the row means the same without.

    Attributes:
        name: What tells it from the row's others, in words.
        run: ``run(*arrays, *options)``, as the row's reference, and returns a new array.
        device: Where it runs: ``"cpu"`` or ``"cuda"``.
        when: ``when(*specs, *options) -> bool``: which calls it can run; None for all. It may look
            at specs only, never at data.
        error_bound: How far its results may lie from the exact ones, relative to the largest; None
            where they are as exact as the reference, up to the order of sums.
        with_residual: The same as ``run``, but returns a residual for the row's rules as well.
        pays: ``pays(*specs, *options) -> bool``: which of the calls that are large enough it wins,
            where that hangs on more than their size; None for all.
        within: ``within(*specs, *options) -> bool``: which calls a compiled function leaves to the
            row's kernel, though it could compute what the row equals: where that saves much.
        together: The name of an option in which calls may differ that have most of their work in
            common; and ``together(choices, *arrays, *other_options)``, which gives a dictionary of
            what they return.
    """

    name: str
    run: Callable[..., Any]
    device: str = "cpu"
    when: Callable[..., bool] | None = None
    error_bound: float | None = None
    with_residual: Callable[..., tuple[Any, Any] | None] | None = None
    pays: Callable[..., bool] | None = None
    within: Callable[..., bool] | None = None
    together: tuple[str, Callable[..., dict[Any, Any]]] | None = None

    def takes(self, *specs_and_options: Any) -> bool:
        """Whether it can run a call on such specs, with such options."""
        return self.when is None or self.when(*specs_and_options)

    def is_left(self, *specs_and_options: Any) -> bool:
        """Whether a compiled function leaves such a call to it."""
        if self.within is None or not self.takes(*specs_and_options):
            return False
        return self.within(*specs_and_options)


def check_meaning(who: str, given: Mapping[str, Any]) -> None:
    """Refuse what is said of a meaning in values that it cannot have."""
    for name in ("decomposition", "lowering", "requires"):
        if given[name] is not None:
            function(f"{who}: {name}", given[name])
    for name in ("raises", "has_side_effect"):
        flag(who, name, given[name])
    if given["primitive"] is not None and not isinstance(given["primitive"], str):
        raise DTypeError(
            f"{who}: primitive={shown(given['primitive'])}; pass a str, or leave it out"
        )
    kernels = given["kernels"]
    if not isinstance(kernels, (list, tuple)) or not all(type(k) is Kernel for k in kernels):
        raise DTypeError(f"{who}: kernels={shown(kernels)}; pass a list of Kernel(name, run, ...)")


def read_meaning(layout: Layout, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is declared of a row's meaning, if it fits what the row takes."""
    facts = {name: given[name] for name in _FACTS}
    names = [*layout.arrays, *layout.options]
    for what in ("scalar", "decomposition", "lowering", "requires"):
        if given[what] is not None and not _takes_all(given[what]):
            found = _names_of(given[what])[what == "lowering" :]
            if found != names:
                raise OdysseyError(
                    f"op {layout.name}: {what} takes ({', '.join(found)}); it must take the row's "
                    f"arrays and options, ({', '.join(names)})"
                )
    for kernel in given["kernels"]:
        if kernel.together is not None and kernel.together[0] not in layout.options:
            raise OdysseyError(
                f"op {layout.name}: together={kernel.together[0]!r} of a kernel; name an option of "
                "the row in which calls may differ"
            )
    primitive = given["primitive"]
    if primitive is None:
        return facts
    if primitive not in PRIMITIVES:
        raise OdysseyError(
            f"op {layout.name}: primitive={primitive!r}; choose one of {', '.join(PRIMITIVES)}"
        )
    if given["scalar"] or given["decomposition"]:
        raise OdysseyError(
            f"op {layout.name}: a row with {'scalar' if given['scalar'] else 'decomposition'} is "
            "not a primitive; drop primitive="
        )
    return facts


def _takes_all(given: Callable[..., Any]) -> bool:
    """Whether a function takes any number of operands, as one of a variadic row may."""
    return bool(getattr(getattr(given, "__code__", None), "co_flags", 0) & CO_VARARGS)


def _names_of(given: Callable[..., Any]) -> list[str]:
    code = getattr(given, "__code__", None)
    if code is None:
        return [p.name for p in parameters_of(given)]
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
