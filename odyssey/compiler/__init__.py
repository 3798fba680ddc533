"""``compile``: run a function as one native program.

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
from typing import Any, overload

from odyssey.compiler.compiled_function import CompiledFunction
from odyssey.compiler.lowered import Lowered
from odyssey.compiler.machine.thread_count import get_threads, number_of_threads, set_threads
from odyssey.compiler.symbolic.dims import Dim

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
) -> Any:
    """Compile ``fn``: run it as a native program, where one can do all that it does.

    A compiled function does what ``fn`` does, in values, effects and errors; sums and products may
    be added up in another order. Before it runs on arguments of new shapes, types or strings it is
    traced: array arguments become inputs of a graph, and Variables that ``fn`` captures its state.
    Python's numbers among the arguments are inputs as well, where ``fn`` only calculates with them,
    as with a rate that decays, or ``1 - b1**t``. One that something else is asked of, as by
    ``if n > 2``, ``range(n)`` or ``math.sqrt(n)``, is fixed: each value takes a program, up to 8.
    So are all where ``fn`` goes on after errors, or asks by ``is`` which object is which.
    What no graph can hold is refused then, before anything has happened. Trials leave Variables,
    generators, and the Python objects that ``fn`` reaches as they were; but what it prints or
    writes to files, it prints and writes once more. The latest 256 combinations are remembered.

    The first call runs ``fn`` itself; the second makes a program, in some tenths of a second. A
    function is run as it was written where it changes Python objects or learning rates, prints,
    calls an op that is ``ordered`` or reads what cannot be guarded, within an open tape or pause,
    and where NumPy was told to raise floating-point errors: a program raises none, and warns of
    none. A schedule steps behind the program, if nothing follows it that reads a rate, as an
    optimizer's step does, and ``fn`` does not ask where it stands.

    Args:
        fn: A function of arrays and trees of arrays. It may open tapes, sweep, and step. Without it
            the result is a decorator, as in ``@od.compile(check=True)``.
        static: Names or positions of parameters whose values decide what ``fn`` does, as
            ``("n", 1)``: each value, which must have a hash, has programs of its own. Up to 256
            values are remembered. By position and by name they mean the same.
        check: Look at each program's plan once more before it runs, and raise where the compiler
            fails, instead of running ``fn`` as it was written.
        memory_limit: Bytes that a program may take beside arguments and states; of more it is
            refused before anything runs.
        memory_budget: Bytes that it is to take at most: of what would take more, values are
            computed again where they are needed, the cheapest first, instead of being kept. Results
            are the same, bit for bit. A program that takes more even so is refused likewise.
        threads: In how many threads large loops and matrix products run; None for what
            ``set_threads`` says. Results do not depend on the number, bit for bit.
        dynamic: By name of a parameter, which of its axes vary in size from call to call, as in
            ``{"x": {0: od.Dim("batch", 1, 4096)}}``. One program then is for all sizes within the
            bounds; see ``Dim``. Of a container this is said of all arrays in it. A size that some
            other is a special case for, as 0 and 1 are, and one out of bounds have programs of
            their own, up to 8; ``explain`` says why. A new size is traced once more, and compared
            with what was compiled, which takes some milliseconds. Where there is a ``memory_limit``
            or a ``memory_budget``, each size has programs of its own.

    Returns:
        A callable. Of its methods ``lower(*args)`` gives the ``graph``, ``explain(*args)`` says
        what is done for such arguments and why, ``statistics()`` counts,
        ``estimate_memory_requirements(*args)`` gives bytes, ``clear_cache()`` forgets.

    Raises:
        DeviceMemoryError: a program takes more than ``memory_limit``, or than ``memory_budget``
            although values are computed again; the largest parts are named.
        DTypeError: a static argument has no hash, or is an array.
        SettingError: ``static`` names no parameter; ``threads`` is below 1, or above 256.
        OutOfRangeError: ``static`` has a position that no parameter has.
        TapeError: where Python asks for a value of an array argument or a captured Variable, as
            in ``if x > 0``, ``float(loss)`` and ``f"{loss:.3f}"``; where NumPy's or
            Python's random numbers are drawn.
    """
    settings: dict[str, Any] = {"check": check, "memory_limit": memory_limit, "threads": threads}
    settings |= {"memory_budget": memory_budget, "dynamic": dynamic}
    if threads is not None:
        number_of_threads("compile", threads)
    if static is not None:
        from odyssey.compiler.static_arguments import CompiledByValue  # which imports inspect

        settings["static"] = static
        return (
            partial(CompiledByValue, **settings) if fn is None else CompiledByValue(fn, **settings)
        )
    return partial(CompiledFunction, **settings) if fn is None else CompiledFunction(fn, **settings)


def __dir__() -> list[str]:
    return sorted(__all__)
