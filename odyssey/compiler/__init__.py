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

from collections.abc import Callable
from functools import partial
from typing import Any, overload

from odyssey.compiler.compiled import Compiled
from odyssey.compiler.lowered import Lowered
from odyssey.compiler.threads import get_threads, number_of_threads, set_threads

__all__ = ["Compiled", "Lowered", "compile", "get_threads", "set_threads"]


@overload
def compile(
    fn: Callable[..., Any],
    *,
    check: bool = False,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Compiled: ...


@overload
def compile(
    *, check: bool = False, memory_limit: int | None = None, threads: int | None = None
) -> Callable[[Callable[..., Any]], Compiled]: ...


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    check: bool = False,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Any:
    """Compile ``fn``: run it as a native program, where one can do all that it does.

    A compiled function does what ``fn`` does, in values, effects and errors; sums and products may
    be added up in another order. Before it runs on arguments of new shapes, types or strings it is
    traced: array arguments become inputs of a graph, numbers are fixed in it, and Variables that
    ``fn`` captures are its state. What no graph can hold is refused then, before anything has
    happened. The trial leaves Variables, generators, and the Python objects that ``fn`` reaches as
    they were; but what it prints or writes to files, it prints and writes once more. The latest 256
    combinations are remembered.

    The first call runs ``fn`` itself; the second makes a program, in some tenths of a second. A
    function is run as it was written where it changes Python objects, prints, draws random numbers
    or reads what cannot be watched, within an open tape or pause, and where NumPy was told to raise
    floating-point errors: a program raises none, and warns of none.

    Args:
        fn: A function of arrays and trees of arrays. It may open tapes, sweep, and step. Without it
            the result is a decorator, as in ``@od.compile(check=True)``.
        check: Look at each program's plan once more before it runs, and raise where the compiler
            fails, instead of running ``fn`` as it was written.
        memory_limit: Bytes that a program may take beside arguments and states; of more it is
            refused before anything runs.
        threads: In how many threads large loops and matrix products run; None for what
            ``set_threads`` says. Results do not depend on the number, bit for bit.

    Returns:
        A callable. Of its methods ``lower(*args)`` gives the ``graph``, ``explain(*args)`` says
        what is done for such arguments and why, ``statistics()`` counts,
        ``estimate_memory_requirements(*args)`` gives bytes, ``clear_cache()`` forgets.

    Raises:
        DeviceMemoryError: a program takes more than ``memory_limit``; the largest parts are named.
        SettingError: ``threads`` is below 1, or above 256.
        TapeError: where Python asks for a value of an array argument or a captured Variable, as
            in ``if x > 0``, ``float(loss)`` and ``f"{loss:.3f}"``; where random numbers are drawn.
    """
    if fn is None:
        if threads is not None:
            number_of_threads("compile", threads)
        return partial(Compiled, check=check, memory_limit=memory_limit, threads=threads)
    return Compiled(fn, check, memory_limit, threads)
