"""Compiled call on a device: a CUDA program in the place of a function, with its side effects.

All launches of a run, and the commit of what it leaves in Python, are one call of C: a signal
handler finds all of it or nothing. A program with checks waits for their bytes within that call;
if a check failed, kernels behind it have stored nothing, nothing is committed, and the function
runs eagerly, to raise its own error.
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
from odyssey.compiler.runtime.compiled_call import (
    CompiledCall,
    ShapeSpecialization,
    current_gradient,
    left_gradients,
)
from odyssey.compiler.runtime.executable import BindingError
from odyssey.compiler.runtime.host_calls import all_outputs
from odyssey.compiler.runtime.results import NotCompilableError
from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.commit import Plan as CommitPlan
from odyssey.devices.commit import run_all
from odyssey.devices.device import Device, device_of
from odyssey.errors import SettingError
from odyssey.table.value import Value, array_of, next_version
from odyssey.tree import leaves

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
        guards, result, *rest = others
        _refuse_results_elsewhere(device, leaves(trial.full_result), leaves(result))
        super().__init__(trial, guards, result, *rest, **settings)

    def _make_executable(self, graph: Any, settings: Any) -> Any:
        try:
            made = DeviceExecutable(graph, self._device, settings["budget"], settings["ways"])
        except UnsupportedKernelError as error:
            reason = str(error).removeprefix("cuda: ")
            raise NotCompilableError(f"{reason} (on {self._device})") from None
        return made

    def _run(self, *call: Any) -> Any:
        """Run the program and commit its side effects; MISSED if nothing was committed."""
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
    ) -> Any:
        executable = self.executable
        if numbers:
            words = self.numbers.for_entry_point(numbers)
            if words is None:
                return CACHE_MISS
            numbers = words
        if self._accumulated:
            arrays = [*arrays, *map(current_gradient, self._accumulated)]
            if any(array is None for array in arrays):
                return CACHE_MISS
        behind: CommitPlan = []
        try:
            for schedule in self._deferred:
                behind += schedule.step_calls()
        except Exception:  # an eager call will raise it in its own words
            return CACHE_MISS
        if executable.prepare_run(arrays, numbers) == GUARD_FAILED:
            try:
                self._rebind()
                as_given = arrays
                arrays = executable.canonical_args(arrays)
            except BindingError:
                return CACHE_MISS
            if shape.results.keeps_layout and not all(map(is_, arrays, as_given)):
                return CACHE_MISS
            if executable.prepare_run(arrays, numbers) != RAN:
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
                if not self._launch_and_commit(outs, behind):
                    return CACHE_MISS
            except BindingError:  # of an exclusivity check: another thread came in between
                return CACHE_MISS
        return shape.results.build(outs, given)

    def _launch_and_commit(self, outs: list[Any], behind: CommitPlan) -> bool:
        """Launch the last segment and publish all side effects; return whether all checks hold."""
        executable = self.executable
        for leaf in self._trained:
            leaf._placed = None
        calls, names = executable.last_calls()
        answers: list[Any] = []
        launch: tuple[Any, ...] = answers.extend, starmap(call, calls)
        if executable.waits:
            launch = executable.run_calls, calls, names
        done, undone = self._publications(outs)
        outcomes = undone, [*done, *behind]
        # The byte of the last check is read once the launches behind it in the list are made.
        failed_or_not = map(outcomes.__getitem__, executable.check_bytes[-1:].data)
        plan = chain([*self._begin, launch], chain.from_iterable(failed_or_not))
        run_all(starmap(call, plan))
        if answers:
            executable.check_statuses(answers, names)
        return bool(executable.check_bytes[-1])

    def _publications(self, outs: list[Any]) -> tuple[CommitPlan, CommitPlan]:
        """Return the calls behind a run that succeeded, and behind one that did not."""
        done, undone = self.executable.host_updates(), []
        for put, where, at in self._numbers:
            number = where[0] if put is setitem else where.own
            done.append((put, where, at, next_version(number)))
            undone.append((put, where, at, number))
        if self._delivered:
            for variable, grad in left_gradients(self._delivered, outs):
                info = variable._info
                done += [(setattr, info, "grad", grad), (setattr, info, "loan", None)]
        for variable in self.executable.gradients_to_clear:
            info = variable._info
            done += [(setattr, info, "grad", None), (setattr, info, "loan", None)]
        return done, undone

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


def _refuse_results_elsewhere(device: Device, traced: Sequence[Any], seen: Sequence[Any]) -> None:
    """Raise NotCompilableError for a result that an eager call makes on another device."""
    for symbol, leaf in zip(traced, seen, strict=False):
        is_array = isinstance(leaf, (*ARRAY_LIKE, Value))
        if is_array and symbol is not leaf and device_of(array_of(leaf)) != device:
            raise NotCompilableError(
                f"it returns a value that lies on {device_of(array_of(leaf))}, and others of its "
                f"arrays lie on {device}"
            )
