"""A compiled call: a program in the place of a function, with all that the function would leave.

A program computes and writes the states; here is what else a call does to Variables: gradients are
delivered, numbers of writes go up, results are Variables or arrays as the function returns them.
What cannot be undone happens in one call of C, so that an interrupt finds all of it, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from operator import call, itemgetter, setitem
from typing import Any

import numpy as np
from numpy import empty, ndarray

from odyssey.compiler.entry import RAN, STRANGE
from odyssey.compiler.guards import Guards
from odyssey.compiler.running import Executable, UnfitError
from odyssey.compiler.timing import Profile, timed
from odyssey.compiler.trial import Trial
from odyssey.devices.commit import Plan, run_all
from odyssey.devices.guard import GUARD
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Filled, Ref
from odyssey.optim.updates import Updates
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from odyssey.table.value import (
    BEING_WRITTEN,
    Info,
    Mark,
    Symbol,
    Value,
    array_of,
    free_id,
    is_trainable,
    make_value,
    next_version,
    ticket,
)
from odyssey.tree import containers, leaves, unflatten
from odyssey.variable import Variable

__all__ = ["MISSED", "Program", "UnsuitedError"]

MISSED: Any = object()
"""What a program answers that did nothing, since something is not as it was made for."""


class UnsuitedError(OdysseyError):
    """No program can stand for a function; the message says why."""


class Program:
    """A program, what must hold for it to run, and what it leaves.

    Args:
        trial: Of a function, without an error.
        guards: What it read of Python.
        result: What a run of the function returned for such arguments.
        bare: Whether all arguments are arrays.

    Raises:
        UnsuitedError: no program can do what the function does.
    """

    def __init__(self, trial: Trial, guards: Guards, result: Any, bare: bool) -> None:
        graph = trial.graph
        self.guards = guards
        self.seconds = {"trace": trial.seconds}
        _refuse_homes(graph.states)
        try:
            self.executable = Executable(graph)
        except UnfitError as error:
            raise UnsuitedError(str(error)) from error
        self.bare = bare
        self.missed = MISSED
        self._results = _Results(self.executable, trial.result, result)
        self._rates: list[Any] = [
            (getattr(make, "__self__", None), variable, make) for variable, make in graph.made
        ]
        # Read at the first run: the trial may be older than what was assigned since.
        self._settings: list[Any] = [None for _ in self._rates]
        self._before = [s.variable for s in graph.states if s.field == "grad" and s.id >= 0]
        self._left = [
            s.variable for s in graph.states if s.field == "grad" and s.update is not None
        ]
        written = [s.variable for s in graph.states if s.field == "data" and s.update is not None]
        self._written = [v for v in written if v._info is not None]
        self._trained = [v for v in self._written if is_trainable(v)]
        self._apart = len(self.executable.module.steps) > 1
        self._leaves = bool(self._left or graph.cleared or written)
        self._long = len(self.executable.module.steps) > 2
        self._quiet = Updates().quiet
        self._calls = bool(self.executable.calls)
        own = [*guards.variables, *[state.variable for state in graph.states]]
        self._known = set(map(id, own))
        self._bind()
        self._count = len(self.executable.inputs) - len(self._before)
        self._outs = _maker_of_arrays(self.executable.outputs)

    # -------------------------------------------------------------- running

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result of a call; MISSED where nothing was done."""
        if len(arrays) != self._count or store() is not MEMORY or scopes()[0] is not None:
            return MISSED
        guards = self.guards
        if not self._quiet() or not (guards.holds() or guards.refresh()):
            return MISSED
        if self._rates:
            self._settle_rates()
        if not self._apart:  # one native call, in which no other thread runs
            return self._run(arrays)
        with GUARD:
            return self._run(arrays)

    def _settle_rates(self) -> None:
        """Read again what Python knows, such as learning rates, where it was assigned."""
        for k, (group, variable, make) in enumerate(self._rates):
            settings = group._settings
            if settings is not self._settings[k]:
                variable._array[...] = make()._array
                self._settings[k] = settings

    def run_plain(self, given: Sequence[Any]) -> Any:
        """The same of Variables, numbers and arrays that may lie in memory in any way."""
        if any(id(one) in self._known for one in given):
            return MISSED  # to the function a captured Variable and an argument are the same
        found = [array_of(one) for one in given]
        found = [np.asarray(one) if isinstance(one, np.generic) else one for one in found]
        try:
            return self.run(self.executable.plain(found))
        except UnfitError:
            return MISSED

    def profile(self, given: Sequence[Any], runs: int) -> Profile:
        """What kernels take on such arguments; nothing but time passes. See ``timing``."""
        found = [np.asarray(array_of(one)) for one in given]
        for variable, spec in zip(self._before, self.executable.inputs[len(found) :], strict=True):
            gradient = _gradient(variable)  # one that is not there takes as long
            found.append(np.zeros(spec.shape, spec.dtype) if gradient is None else gradient)
        return timed(self.executable.graph, found, runs)

    def _run(self, arrays: Sequence[Any]) -> Any:
        executable = self.executable
        if self._before:
            arrays = [*arrays, *[_gradient(v) for v in self._before]]
            if any(array is None for array in arrays):
                return MISSED
        outs = self._outs()
        answer = executable.start(*arrays, *outs)
        if answer == STRANGE:
            if any(type(array) is not ndarray for array in arrays):
                return MISSED  # of a Variable the function may return another kind
            try:
                self._bind()
                arrays = executable.plain(arrays)
            except UnfitError:
                return MISSED
            answer = executable.start(*arrays, *outs)
        if answer != RAN:
            return MISSED
        if self._apart:
            if self._long:
                try:
                    if executable.proceed() != RAN:
                        return MISSED
                except Exception:  # of a kernel: the function will raise it in its own words
                    return MISSED
            if self._leaves:
                self._commit(self._all(outs) if self._calls else outs)
            else:
                executable.rest()
        return self._results.made(self._all(outs) if self._calls else outs)

    def _all(self, outs: list[Any]) -> list[Any]:
        """The arrays of all results, those that calls gave among them."""
        written = iter(outs)
        nodes = [node for node in self.executable.plan.outputs if node is not None]
        called = self.executable.called
        return [called[n.id] if n.kind == "part" else next(written) for n in nodes]

    def _bind(self) -> None:
        """Find the states anew, and what notes the writes to leaves; see ``writing`` of values."""
        self.executable.bind()
        together: dict[int, list[Info]] = {}
        for leaf in self._written:
            together.setdefault(id(leaf._info.shared), []).append(leaf._info)
        # Numbers of writes: where they stand, and at which index or by which name.
        self._numbers: list[tuple[Any, Any, Any]] = []
        for infos in together.values():
            shared = infos[0].shared
            if len(infos) == shared[1]:
                self._numbers.append((setitem, shared, 0))
            else:
                self._numbers += [(setattr, info, "own") for info in infos]
        self._begin: Plan = [(*number, BEING_WRITTEN) for number in self._numbers]
        if self._numbers:
            self._begin.append((ticket,))
        self._begin.append((self.executable.rest,))

    def _commit(self, outs: list[Any]) -> None:
        """The last step, and what is to happen with it."""
        for leaf in self._trained:
            leaf._placed = None  # tapes that took the leaf up, but have no use of it, look again
        plan = list(self._begin)
        for put, where, at in self._numbers:
            number = where[0] if put is setitem else where.own
            plan.append((put, where, at, next_version(number)))
        if self._left:
            for variable, out in zip(self._left, outs[-len(self._left) :], strict=True):
                info = variable._info
                plan += [(setattr, info, "grad", out), (setattr, info, "loan", None)]
        for variable in self.executable.dirty:
            info = variable._info
            plan += [(setattr, info, "grad", None), (setattr, info, "loan", None)]
        run_all(starmap(call, plan))


def _maker_of_arrays(specs: Sequence[tuple[Any, Any]]) -> Callable[[], list[Any]]:
    """A function that makes new arrays; of one, as mostly, without a loop."""
    if len(specs) == 1:
        ((shape, dtype),) = specs
        return lambda: [empty(shape, dtype)]
    return lambda: [empty(shape, dtype) for shape, dtype in specs]


def _gradient(variable: Variable) -> Any:
    """The gradient that a program adds to; None sends the call back."""
    info = variable._info
    return None if info is None else array_of(info.grad)


def _refuse_homes(states: Sequence[Any]) -> None:
    """Refuse leaves that an enabled tape made: ops on them are recorded there."""
    for state in states:
        variable = state.variable
        info = variable._info
        home = info is not None and info.home is not None and info.home()
        if home is not None and home is not False:
            raise UnsuitedError(f"{state.label} was made by a tape")
        if not isinstance(variable._recording, Mark):
            raise UnsuitedError(f"{state.label} is a result on a tape")


# ------------------------------------------------------------------ results


class _Results:
    """Makes of a program's arrays what the function returns.

    Args:
        executable: The program.
        traced: What the trial returned.
        seen: What a run returned, of which kinds are taken over.
    """

    def __init__(self, executable: Executable, traced: Any, seen: Any) -> None:
        self._tree = traced
        symbols, found = leaves(traced), leaves(seen)
        if len(symbols) != len(found):
            raise UnsuitedError("the tree that it returns changes")
        outputs = executable.graph.outputs
        place = iter(range(len(executable.plan.outputs)))
        known: dict[int, int] = {}
        self._makers: list[Callable[[Sequence[Any]], Any]] = []
        _refuse_shared([array_of(leaf) for leaf in found])
        for k, (symbol, leaf, output) in enumerate(zip(symbols, found, outputs, strict=True)):
            if not isinstance(output, (Ref, Filled)):
                self._makers.append(_constant(leaf, output))
                continue
            at = next(place)
            if symbol is leaf:  # what the function holds, and gives away itself
                self._makers.append(_itself(leaf))
                continue
            if id(symbol) in known and isinstance(symbol, (Value, Symbol)):
                raise UnsuitedError("it returns one value at two places")
            known[id(symbol)] = k
            # What the graph says, before results were copied apart.
            if executable.sources[k] < 0:
                raise UnsuitedError("it returns what it was given, or a part of it")
            self._makers.append(_maker(leaf, at))
        self._bare = len(self._makers) == 1 and leaves(traced)[0] is traced
        self._held = traced is seen  # what the function holds, and gives away itself
        if not self._held:
            _refuse_held(traced, seen)

    def made(self, outs: Sequence[Any]) -> Any:
        """The result."""
        if self._held:
            return self._tree
        if self._bare:
            return self._makers[0](outs)
        return unflatten(self._tree, [make(outs) for make in self._makers])


def _refuse_held(traced: Any, seen: Any) -> None:
    """Refuse containers that are the same in each run, or at two places of a result."""
    own = {id(one) for one, _ in containers(traced) if type(one) is not tuple}
    found = [id(one) for one, _ in containers(seen) if type(one) is not tuple]
    if not own.isdisjoint(found):
        raise UnsuitedError("it returns a container that it holds")
    if len(set(found)) != len(found):
        raise UnsuitedError("it returns one container at two places")


def _refuse_shared(found: Sequence[Any]) -> None:
    """Refuse results that share memory with one another."""
    arrays = [array for array in found if type(array) is ndarray and array.size]
    for k, one in enumerate(arrays):
        for other in arrays[k + 1 :]:
            if np.may_share_memory(one, other):
                raise UnsuitedError("two of its results share memory")


def _itself(leaf: Any) -> Callable[[Sequence[Any]], Any]:
    return lambda outs: leaf


def _constant(leaf: Any, output: Any) -> Callable[[Sequence[Any]], Any]:
    plain = leaf is None or type(leaf) in (int, float, complex, bool, str)
    if not plain or type(output) is not type(leaf):
        raise UnsuitedError(f"it returns a {type(leaf).__name__}")
    return lambda outs: output  # the first run may have been given other numbers


def _as_it_is(array: Any) -> Any:
    return array


def _maker(leaf: Any, at: int) -> Callable[[Sequence[Any]], Any]:
    if isinstance(leaf, np.generic):
        return lambda outs: outs[at][()]
    if type(leaf) is ndarray:
        if leaf.base is not None and not leaf.flags.writeable:
            raise UnsuitedError("it returns an array that cannot be written to")
        return lambda outs: outs[at]
    if type(leaf) is not Variable:
        raise UnsuitedError(f"it returns a {type(leaf).__name__}")
    where, spec, info = leaf._recording, leaf._spec, leaf._info
    got = itemgetter(()) if isinstance(leaf._array, np.generic) else _as_it_is
    if is_trainable(leaf) or (info is not None and (info.name or info.grad is not None)):
        raise UnsuitedError("it returns a Variable that it made, with a name or a gradient")
    if isinstance(where, Mark):
        note = None if info is None else info.note

        def fresh(outs: Sequence[Any]) -> Any:
            told = None if note is None else Info(note=note)
            return make_value(Variable, got(outs[at]), where, free_id(), spec, told)

        return fresh
    if not where.dead:
        raise UnsuitedError("it returns a value on a tape that is still to be swept")

    def spent(outs: Sequence[Any]) -> Any:
        return make_value(Variable, got(outs[at]), where, free_id(), spec, None)

    return spent
