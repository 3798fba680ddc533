"""Compiled call on a device: a CUDA program in the place of a function, with its side effects.

The launches of the last segment, and the commit of what a run leaves in Python, are one call of C:
a signal handler finds all of it or nothing. A program with checks waits for their bytes within that
call; if a check failed, kernels behind it have stored nothing, nothing is committed, and the
function runs eagerly, to raise its own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, starmap
from operator import call, is_, setitem
from typing import Any, NoReturn

from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.device_runtime.execution import DeviceExecutable
from odyssey.compiler.dispatch.fast_path import CACHE_MISS
from odyssey.compiler.native_dispatch.entry import GUARD_FAILED, RAN
from odyssey.compiler.runtime.compiled_call import CompiledCall, ShapeSpecialization
from odyssey.compiler.runtime.executable import BindingError
from odyssey.compiler.runtime.host_calls import all_outputs
from odyssey.compiler.runtime.results import NotCompilableError
from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.devices.backends import backend_of
from odyssey.devices.commit import Plan as CommitPlan
from odyssey.devices.commit import run_all
from odyssey.devices.device import Device
from odyssey.errors import SettingError
from odyssey.table.value import Mark, is_trainable, next_version
from odyssey.variable import Variable

__all__ = ["DeviceCall"]


class DeviceCall(CompiledCall):
    """A CUDA program with its guards, and the side effects of a call.

    Args:
        device: The device.
        trial: Trace of the function.
        *others: As for ``CompiledCall``.
        **settings: As for ``CompiledCall``.

    Raises:
        NotCompilableError: there is no program for the device.
    """

    executable: DeviceExecutable  # type: ignore[assignment]

    def __init__(self, device: Device, trial: TraceAttempt, *others: Any, **settings: Any) -> None:
        self._device = device
        super().__init__(trial, *others, **settings)

    def _make_executable(self, graph: Any, settings: Any) -> Any:
        try:
            made = DeviceExecutable(graph, self._device, settings["budget"], settings["ways"])
        except UnsupportedKernelError as error:
            reason = str(error).removeprefix("cuda: ")
            raise NotCompilableError(f"{reason} (on {self._device})") from None
        return made

    def note_variables(self, args: Sequence[Any]) -> None:
        """Let ``call_variables`` take such arguments, if these are distinct.

        Each must be a Variable that is no trainable leaf, an array of a device, or a scalar input.
        """
        count, places = len(self._receivers), self.places
        rest = args[count:]
        numbers = [k - count for k in places]
        kinds = [_kind_of(one) if k not in numbers else None for k, one in enumerate(rest)]
        plain = all(k in numbers or kind is not None for k, kind in enumerate(kinds))
        if plain and len(rest) == self._argument_count and len(set(map(id, rest))) == len(rest):
            self.variable_kinds = kinds

    def call_variables(self, args: Sequence[Any]) -> Any:
        """Run on distinct arguments, in the order of the call; CACHE_MISS if nothing ran."""
        kinds, receivers = self.variable_kinds or (), self._receivers
        if receivers:
            if not all(map(is_, args, receivers)):
                return CACHE_MISS
            args = args[len(receivers) :]
        if len(args) != len(kinds) or not self._captured_ids.isdisjoint(map(id, args)):
            return CACHE_MISS
        found = []
        for one, kind in zip(args, kinds, strict=True):
            if kind is not None and _kind_of(one) != kind:  # numbers are checked by the program
                return CACHE_MISS
            found.append(one._array if type(one) is Variable else one)
        if self._order is not None:
            return self.run(self._order(found), self._order(args))
        return self.run(found, args)

    def _run(self, *call: Any) -> Any:
        """Run the program and commit its side effects; CACHE_MISS if nothing was committed."""
        try:
            return self._run_and_commit(*call)
        finally:
            self.executable.end_run()

    def _run_and_commit(
        self,
        arrays: Sequence[Any],
        numbers: Sequence[Any],
        given: Sequence[Any],
        shape: ShapeSpecialization,
        deferred: CommitPlan,
    ) -> Any:
        executable = self.executable
        status = executable.prepare_run(arrays, numbers)
        if status == GUARD_FAILED:
            try:
                self._rebind()
                as_given = arrays
                arrays = executable.canonical_args(arrays)
            except BindingError:
                return CACHE_MISS
            if shape.results.keeps_layout and not all(map(is_, arrays, as_given)):
                return CACHE_MISS
            status = executable.prepare_run(arrays, numbers)
        if status != RAN:  # a check of what the host computes may have failed as well
            return CACHE_MISS
        outs = executable.allocate_outputs()
        executable.place_outputs(outs)
        with executable.on_device():
            executable.begin_run()
            try:
                if executable.run_middle_steps() != RAN:
                    return CACHE_MISS
            except Exception:  # of a host call: an eager call will raise it in its own words
                return CACHE_MISS
            outs = all_outputs(executable, outs) if self._calls else outs
            try:
                if not self._launch_and_commit(outs, deferred):
                    return CACHE_MISS
            except BindingError:  # of an exclusivity check: another thread came in between
                return CACHE_MISS
        return shape.results.build(outs, given)

    def _launch_and_commit(self, outs: list[Any], deferred: CommitPlan) -> bool:
        """Launch the last segment and publish all side effects; return whether all checks hold."""
        executable = self.executable
        for leaf in self._trained:
            leaf._placed = None
        failed: list[tuple[Any, str]] = []
        launches = executable.last_launches(failed)
        done, unchanged, partly = self._publications(outs)
        done += deferred
        # By the number of failed launches, and the byte of the last check. These iterators read
        # both when ``run_all`` comes to them, behind the launches.
        outcomes = {(0, 1): done, (0, 0): unchanged, (1, 0): partly, (1, 1): partly}
        outcome = zip(map(len, [failed]), executable.check_bytes[-1:].data, strict=True)
        publication = chain.from_iterable(map(outcomes.__getitem__, outcome))
        try:
            run_all(starmap(call, chain(self._begin, launches, publication)))
        except BaseException:
            if any(number != number for number in self._versions()):
                run_all(starmap(call, partly))
            raise
        executable.raise_failure(failed)
        return bool(executable.check_bytes[-1])

    def _versions(self) -> list[float]:
        """Return the versions of the states that are written; NaN while a run writes to them."""
        return [where[0] if put is setitem else where.own for put, where, _ in self._numbers]

    def _publications(self, outs: list[Any]) -> tuple[CommitPlan, CommitPlan, CommitPlan]:
        """Return what is called at the end of a run, for each of its three outcomes.

        Returns:
            The calls if it succeeded; if it stored nothing, since a check failed; and if it may
            have stored some of its values, since the device failed.
        """
        numbers, versions = self._numbers, self._versions()
        unchanged = [(*one, version) for one, version in zip(numbers, versions, strict=True)]
        new = map(next_version, versions)
        partly: CommitPlan = [(*one, version) for one, version in zip(numbers, new, strict=True)]
        done = [*self.executable.host_updates(), *partly]
        self._add_gradients(done, outs)
        return done, unchanged, partly

    def works_of(self, ways: WaysPlan) -> list[Choice]:
        """Return the works of the program, each once."""
        return self.executable.works() if ways is NO_PLAN else super().works_of(ways)

    def profile(self, given: Sequence[Any], runs: int) -> NoReturn:
        """Raise SettingError: kernels of a device have no clocks."""
        raise SettingError(
            f"profile: the program runs on {self._device}, whose kernels have no clocks here; run "
            "it under NVIDIA's nsys, or profile the function on the CPU"
        )

    def dry_run(self, given: Sequence[Any], ways: WaysPlan) -> NoReturn:
        """Raise SettingError: ways are measured on the CPU."""
        raise SettingError(
            f"tune: the program runs on {self._device}, and ways are measured on the CPU; pass "
            "arguments of the CPU"
        )


def _kind_of(argument: Any) -> Any:
    """Return what must be equal in a later call of an argument in the same place, or None.

    It is None unless the argument is a Variable that is no trainable leaf, or an array of a device.
    Shapes and dtypes are compared by the program.
    """
    if type(argument) is Variable:
        mark, info = argument._recording, argument._info
        if type(mark) is not Mark or is_trainable(argument):
            return None
        return mark, type(argument._array), None if info is None else info.name
    return type(argument) if backend_of(argument) is not None else None
