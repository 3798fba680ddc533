"""Compilation of functions to native programs: ``compile``.

>>> import numpy as np
>>> import odyssey as od
>>> double_sum = od.compile(lambda x: (x * 2.0).sum())
>>> print(double_sum.lower(np.zeros(3)).graph)
graph(%0: float64[3]):
  %1: float64[3] = multiply(%0, 2.0)
  %2: float64[] = sum(%1, axis=(0,), keepdims=False)
  return %2
>>> double_sum(np.array([1.0, 2.0, 3.0]))
np.float64(12.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from odyssey.compiler.compiled_function import CompiledFunction
from odyssey.compiler.lowered import Lowered
from odyssey.compiler.machine.thread_count import check_thread_count, get_threads, set_threads
from odyssey.compiler.symbolic.dims import Dim

if TYPE_CHECKING:
    from odyssey.compiler.ways.plans import Plan

__all__ = ["CompiledFunction", "Dim", "Lowered", "compile", "get_threads", "set_threads"]


@overload
def compile(
    fn: Callable[..., Any],
    *,
    static: str | int | Iterable[str | int] | None = None,
    check: bool = False,
    memory_limit: int | None = None,
    memory_budget: int | None = None,
    threads: int | None = None,
    dynamic: Mapping[str, Mapping[int, Dim]] | None = None,
    fullgraph: bool = False,
    warn: bool = True,
    plan: Plan | None = None,
    copies: Literal["allow", "error"] = "allow",
    tolerance: str | float = 0.0,
) -> CompiledFunction: ...


@overload
def compile(
    *,
    static: str | int | Iterable[str | int] | None = None,
    check: bool = False,
    memory_limit: int | None = None,
    memory_budget: int | None = None,
    threads: int | None = None,
    dynamic: Mapping[str, Mapping[int, Dim]] | None = None,
    fullgraph: bool = False,
    warn: bool = True,
    plan: Plan | None = None,
    copies: Literal["allow", "error"] = "allow",
    tolerance: str | float = 0.0,
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    static: str | int | Iterable[str | int] | None = None,
    check: bool = False,
    memory_limit: int | None = None,
    memory_budget: int | None = None,
    threads: int | None = None,
    dynamic: Mapping[str, Mapping[int, Dim]] | None = None,
    fullgraph: bool = False,
    warn: bool = True,
    plan: Plan | None = None,
    copies: Literal["allow", "error"] = "allow",
    tolerance: str | float = 0.0,
) -> Any:
    """Compile ``fn`` to a native program with its results and side effects.

    A compiled function equals ``fn`` in values, side effects and errors; sums and products may be
    reassociated. Before the first call with arguments of new shapes, types or strings, ``fn`` is
    traced: array arguments become inputs of a graph, and Variables that ``fn`` captures become its
    state. Python scalars among the arguments are inputs as well if ``fn`` only calculates with
    them, as with a decaying rate or ``1 - b1**t``. A scalar that decides anything else, as in
    ``if n > 2``, ``range(n)`` or ``math.sqrt(n)``, is fixed: each of its values takes a program, up
    to 8. All scalars are fixed if ``fn`` handles exceptions or compares objects by ``is``. What no
    graph can hold is refused at that point, before any side effect. Tracing restores Variables,
    generators and the Python objects that ``fn`` reaches; but output to the terminal or to files
    happens once more. The latest 256 signatures are cached.

    The first call runs ``fn`` eagerly; the second compiles a program, within some tenths of a
    second. A call falls back to ``fn`` if ``fn`` changes Python objects or learning rates, prints,
    calls an op with ``has_side_effect``, or reads what cannot be guarded; within an open tape or
    pause; and if NumPy was told to raise floating-point errors: a program neither raises them nor
    warns. A schedule steps after the program, provided that nothing behind it reads a rate, as an
    optimizer's step does, and that ``fn`` does not ask for its state.

    Args:
        fn: A function of arrays and trees of arrays. It may open tapes, sweep, and step. Without
            it the result is a decorator, as in ``@od.compile(check=True)``.
        static: Names or positions of parameters whose values select the program, as in
            ``("n", 1)``: each value, which must be hashable, has programs of its own. Up to 256
            values are cached. Passing by position or by keyword is equivalent.
        check: Verify each program's plan before it runs, and raise compiler errors instead of
            falling back to ``fn``. Warn of the first op where a constant turns a program of
            float32 inputs to float64.
        memory_limit: Most bytes that a program may hold beside arguments and states; a larger one
            is refused before anything runs.
        memory_budget: Most bytes that a program should hold: values are rematerialized, the
            cheapest first, until it does. Results are equal bit for bit. A program that still
            holds more is refused.
        threads: Number of threads for large loops and matrix products; None for the setting of
            ``set_threads``. Results do not depend on it, bit for bit.
        dynamic: Axes of varying size by name of a parameter, as in ``{"x": {0: od.Dim("batch", 1,
            4096)}}``. One program serves all sizes within the bounds; see ``Dim``. For a container,
            the axes are those of all arrays in it. Sizes that are special cases, such as 0 and 1,
            and sizes out of bounds have programs of their own, up to 8; ``explain`` gives the
            reason. A new size is traced, and its program text is generated and compared with the
            program's, but not compiled: once a size, this takes 5 to 30 ms, as long as a hundred
            eager steps of a small model. The latest 4,096 sizes are kept, with about 5 kB each.
            With ``memory_limit`` or ``memory_budget``, each size has a program of its own.
        fullgraph: Raise CompileError where a call would fall back to ``fn``.
        warn: Warn, once a reason, of a call that falls back to ``fn`` although arguments of its
            shapes and types came before.
        plan: Ways of works that programs do not compute as guessed; see ``od.plans`` and
            ``step.plan``. Works that a program does not have are ignored, so one plan may serve
            programs for several shapes; ``explain`` lists them.
        copies: ``"error"`` raises CompileError, before anything runs, if the program would copy a
            Variable that it captures: the message has the names, the bytes and the reasons. Rows
            that are written by an index, or by ``dynamic_update_slice``, need no copy of the
            others. ``"allow"`` copies; ``explain`` lists the copies.
        tolerance: Ways that programs may be computed in, of those that ``od.tune`` measured to be
            faster on this machine: ``"bits"`` for those that gave equal results to the bit; 0 for
            those whose error against float64 was at most four times that of the guess; a number
            also for those whose error, relative to the largest element, is at most that. With a
            memory limit, programs are computed as guessed, or by ``plan``.

    Returns:
        A callable. Its methods: ``precompile(*args)`` compiles the program for such arguments, or
        specs of them, without running ``fn``, ``lower(*args)`` returns the ``graph``,
        ``explain(*args)`` describes what a call with such arguments does and why, ``plan(*args)``
        returns the ways that differ from the guess, ``statistics()`` counts,
        ``estimate_memory_requirements(*args)`` returns bytes, ``clear_cache()`` drops programs.

    Raises:
        CompileError: ``fullgraph`` is set, and a call falls back to ``fn``; ``copies="error"`` is
            set, and a program would copy a captured Variable.
        DeviceMemoryError: a program holds more than ``memory_limit``, or than ``memory_budget`` in
            spite of rematerialization; the message names the largest buffers.
        DTypeError: a static argument is not hashable, or is an array.
        SettingError: ``static`` names no parameter; ``threads`` is below 1 or above 256;
            ``copies`` is neither ``"allow"`` nor ``"error"``; ``plan`` names a way that a work of a
            program does not have, before anything of the call that compiles the program is run.
        OutOfRangeError: ``static`` has a position without a parameter.
        TapeError: Python asks for a value of an array argument or a captured Variable, as in
            ``if x > 0``, ``float(loss)`` and ``f"{loss:.3f}"``, or draws from NumPy's or Python's
            random generators.
    """
    settings: dict[str, Any] = {"check": check, "memory_limit": memory_limit, "threads": threads}
    settings |= {"memory_budget": memory_budget, "dynamic": dynamic}
    settings |= {"fullgraph": fullgraph, "warn": warn, "copies": copies}
    if tolerance != 0.0 or type(tolerance) is not float:
        from odyssey.compiler.ways.choosing import check_tolerance

        settings["tolerance"] = check_tolerance("compile", tolerance)
    if plan is not None:
        from odyssey.compiler.ways.plans import check_plan

        settings["plan"] = check_plan("compile", plan)
    if threads is not None:
        check_thread_count("compile", threads)
    if static is not None:
        from odyssey.compiler.static_arguments import CompiledByValue  # which imports inspect

        settings["static"] = static
        return (
            partial(CompiledByValue, **settings) if fn is None else CompiledByValue(fn, **settings)
        )
    return partial(CompiledFunction, **settings) if fn is None else CompiledFunction(fn, **settings)


def __dir__() -> list[str]:
    return sorted(__all__)
