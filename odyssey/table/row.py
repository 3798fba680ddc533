"""Row: the record of one op, with argument binding, saved values and errors of its calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import compress
from typing import Any

import numpy as np

from odyssey.checks import (
    STUMBLES,
    check_flag,
    error_class_of,
    format_value,
    hides_frame,
    without_own_frames,
)
from odyssey.devices.arrays import (
    ARRAY_TYPE_LISTENERS,
    ARRAYS,
    DEVICE_TYPES,
    NUMPY_SCALARS,
    conversion_error,
)
from odyssey.errors import DTypeError, OdysseyError
from odyssey.spec import spec_of
from odyssey.suggestions import keyword_hint
from odyssey.table.half_kernels import half_infer, half_kernel, half_rules, half_with_residual
from odyssey.table.protocols import Recording
from odyssey.table.samples import Reject, Sample
from odyssey.table.signature import REQUIRED, Layout, Rule, format_call

__all__ = ["IMMUTABLE_TYPES", "Row", "handle_devices", "is_profiled", "profiled"]

# Types of options that a caller may mutate while a tape keeps them, and immutable ones.
_MUTABLE_TYPES: set[type] = {list, dict, set, *ARRAYS}
ARRAY_TYPE_LISTENERS.append(
    lambda kind, joins: (_MUTABLE_TYPES.add if joins else _MUTABLE_TYPES.discard)(kind)
)
IMMUTABLE_TYPES = frozenset({int, float, bool, complex, str, type(None), slice, *NUMPY_SCALARS})

_MAX_PLANS = 64


def _copy_mutable(option: Any) -> Any:
    """Copy an option if it is mutable."""
    if type(option) is tuple:
        return tuple(map(_copy_mutable, option))
    return deepcopy(option) if type(option) in _MUTABLE_TYPES else option


_PROFILED = bool(os.environ.get("ODYSSEY_PROFILE"))


def profiled(name: str, run: Any, nothing: Any = None) -> Any:
    """Return ``run``, wrapped to record its time if the environment asks for it.

    Args:
        name: Its name in the table of ``profiling``.
        run: A function, or None.
        nothing: A sentinel that it returns if it did nothing, which counts as no call.
    """
    if run is None or not is_profiled():
        return run
    from odyssey.table.profiling import time_calls

    return time_calls(name, run, nothing)


def is_profiled() -> bool:
    """Return whether ops are timed."""
    if not _PROFILED:
        return False
    from odyssey.table.profiling import EVERY  # late: it would slow the import of the package

    return EVERY > 0


def _no_reference(*given: Any) -> Any:
    raise AssertionError("this row has no reference and no shape rule: it is not of an op")


class Row:
    """One op: its reference, its rules, its kernels, and the cases that test it.

    Nodes of other calls, such as of Python functions, have a row as well, with rules only. The
    constructor takes the arguments of ``op``, which documents them, and these:

    Args:
        layout: Names of operands, results and options.
        needs: The names of saved values that the reverse rule of each array needs.
        pullbacks: Reverse rules as called by the sweep.
        pushforwards: Forward rules as called by the sweep; None for the op itself, of a linear op.
        selection_pullbacks: Reverse rules of the selection mask, see ``selects`` of ``op``; None
            for ``pullbacks``.
        selection_pushforwards: Forward rules of it; None for ``pushforwards``.
        has_poles: True if its slopes depend on values, and so may be infinite.
        propagate_selection: Carries the selection mask through the call of a Python function.
        foreign: True if a user declared it.
        pack_results: Builds the result of a call from the results of an op with several; else None.
        result_rows: The rows of the nodes of several results.
        device_source: The kernel and the ``with_residual`` whose code runs on devices; None for
            those of the CPU, which choose no compiled loops then.
    """

    __slots__ = (
        "aliases",
        "around",
        "array_pullbacks",
        "arrays",
        "call",
        "canonical",
        "cotangents",
        "decomposition",
        "defaults",
        "device_kernels",
        "device_source",
        "doc",
        "elementwise",
        "flags",
        "for_halves",
        "foreign",
        "guess",
        "has_poles",
        "has_side_effect",
        "impure",
        "infer",
        "jvp",
        "keeps_dtype",
        "kernel",
        "kernel_listeners",
        "kernels",
        "kinks",
        "layout",
        "linear",
        "lowering",
        "module",
        "name",
        "named",
        "needs",
        "nondifferentiable",
        "numpy",
        "on_devices",
        "optional",
        "options",
        "pack_results",
        "plain_kernel",
        "positional",
        "precision",
        "prepare",
        "primitive",
        "propagate_selection",
        "pullbacks",
        "pushforwards",
        "raises",
        "rearranges",
        "reference",
        "rejects",
        "required",
        "requires",
        "result_rows",
        "results",
        "samples",
        "save_plans",
        "scalar",
        "selection_pullbacks",
        "selection_pushforwards",
        "selects",
        "small_arity",
        "takes_index",
        "ufunc",
        "unrolled_arity",
        "vjp",
        "vmap",
        "with_arity",
        "with_residual",
        "with_residuals",
    )

    call: Callable[..., Any]  # the op as users call it; set by ``declare``
    with_arity: Callable[[int], Row] | None  # of a variadic op: the row for a number of operands

    def __init__(
        self,
        layout: Layout,
        *,
        pullbacks: Sequence[Rule | None],
        pushforwards: Sequence[Rule | None] | None,
        needs: Sequence[frozenset[str]] | None = None,
        vjp: Mapping[str, Rule | None] | None = None,
        jvp: Mapping[str, Rule | None] | None = None,
        vmap: Callable[..., Any] | str | None = None,
        selection_pullbacks: Sequence[Rule | None] | None = None,
        selection_pushforwards: Sequence[Rule | None] | None = None,
        elementwise: bool = False,
        linear: bool = False,
        keeps_dtype: bool = False,
        selects: bool = False,
        rearranges: bool = False,
        has_poles: bool = False,
        propagate_selection: Callable[..., Any] | None = None,
        foreign: bool = False,
        reference: Callable[..., Any] = _no_reference,
        kernel: Callable[..., Any] = _no_reference,
        with_residual: Callable[..., tuple[Any, Any] | None] | None = None,
        infer: Callable[..., Any] = _no_reference,
        prepare: Callable[..., tuple[Any, ...]] | None = None,
        canonical: Callable[..., tuple[Any, ...]] | None = None,
        scalar: Callable[..., Any] | None = None,
        decomposition: Callable[..., Any] | None = None,
        primitive: str | None = None,
        lowering: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
        guess: Callable[..., str] | None = None,
        requires: Callable[..., Any] | None = None,
        raises: bool = False,
        has_side_effect: bool = False,
        kernels: Sequence[Any] = (),
        ufunc: np.ufunc | None = None,
        pack_results: Callable[[Any], tuple[Any, ...]] | None = None,
        result_rows: Sequence[Row] = (),
        numpy: Sequence[Any] = (),
        aliases: Sequence[str] = (),
        kinks: str = "",
        samples: Sequence[Sample] = (),
        rejects: Sequence[Reject] = (),
        precision: str = "follow",
        device_source: tuple[Any, Any] | None = None,
    ) -> None:
        count = len(layout.arrays)
        self.layout = layout
        # Copied from the layout for speed: calls read these.
        self.name = layout.name
        self.arrays, self.results, self.options = layout.arrays, layout.results, layout.options
        self.optional, self.cotangents = layout.optional, layout.cotangents
        self.defaults, self.flags = layout.defaults, layout.flags
        self.positional = layout.positional
        self.named = frozenset(layout.options)
        # Positions of options that have no default.
        self.required = tuple([k for k, v in enumerate(layout.defaults) if v is REQUIRED])
        self.doc = getattr(reference, "__doc__", None) or ""
        self.module = reference.__module__
        self.reference, self.plain_kernel = reference, kernel
        self.kernel = profiled(layout.name, kernel)
        self.with_residual = profiled(layout.name, with_residual)
        # Code for half precision, if installed: makes a kernel for halves too of one without.
        self.for_halves: dict[Any, Any] | None = None
        self.around: Callable[[Any], Any] | None = None  # wraps the kernel, as counters do
        # The kernel and the ``with_residual`` whose code runs on devices, see ``device_rows``.
        self.device_source = device_source or (kernel, with_residual)
        self.device_kernels: tuple[Any, ...] = ()  # those that run instead, see ``use_kernels``
        self.on_devices = False
        # Variants of kernels that leave a residual, by kernel.
        self.with_residuals: dict[Any, Any] = {kernel: with_residual}
        # Called with the new kernel by ``use``; fast paths hold the kernel in a closure.
        self.kernel_listeners: list[Callable[[Any], None]] = []
        self.infer, self.prepare, self.canonical = infer, prepare, canonical
        # Options of indexing ops are already copied, by ``normalize_key``.
        self.takes_index = "key" in self.options and not foreign
        self.ufunc = ufunc
        self.scalar, self.decomposition, self.primitive = scalar, decomposition, primitive
        self.lowering, self.guess, self.requires = lowering, guess, requires
        self.has_side_effect, self.kernels = has_side_effect, tuple(kernels)
        self.raises = raises
        # Dead-code elimination keeps impure calls; an op of a user may raise as well.
        self.impure = has_side_effect or raises or foreign
        self.pack_results, self.result_rows = pack_results, tuple(result_rows)
        self.elementwise, self.linear = elementwise, linear
        self.selects, self.rearranges = selects, rearranges
        self.keeps_dtype = keeps_dtype  # floating operands of one spec give a result of that spec
        self.has_poles, self.foreign = has_poles, foreign
        self.propagate_selection = propagate_selection
        self.vjp, self.jvp, self.vmap = dict(vjp or {}), dict(jvp or {}), vmap
        self.needs = tuple(needs or [frozenset()] * count)
        self.pullbacks = tuple(pullbacks)
        self.array_pullbacks = self.pullbacks  # on plain arrays; publish() puts array rules here
        self.pushforwards = (
            (self._linear_pushforward,) if pushforwards is None else tuple(pushforwards)
        )
        if selection_pullbacks is None:
            selection_pullbacks = self.pullbacks
        if selection_pushforwards is None:
            selection_pushforwards = self.pushforwards
        self.selection_pullbacks = tuple(selection_pullbacks)
        self.selection_pushforwards = tuple(selection_pushforwards)
        # Positions of arrays without a reverse rule.
        self.nondifferentiable = tuple([k for k, pull in enumerate(self.pullbacks) if pull is None])
        # The number of arrays if it is 1 or 2, else 0; negative if the op selects, which the sweep
        # must learn. ``unrolled_arity`` is 0 as well if an array is not differentiable.
        few = 0 if count > 2 or self.cotangents or propagate_selection is not None else count
        self.small_arity = -few if selects else few
        self.unrolled_arity = 0 if self.nondifferentiable else self.small_arity
        self.save_plans: dict[tuple[type, ...], tuple[list[int], list[int]]] = {}  # see keep
        self.numpy, self.aliases, self.kinks = tuple(numpy), tuple(aliases), kinks
        self.samples, self.rejects = tuple(samples), tuple(rejects)
        self.precision = precision
        self.with_arity = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def _linear_pushforward(self, t: Any, kept: Any, specs: Any) -> Any:
        """Return the tangent of a linear op: the op on the tangent."""
        first = len(self.arrays) + len(self.results)
        options = (kept or ())[first : first + len(self.options)]
        if type(t) is np.ndarray:  # binding the options again took three times as long
            return self.kernel(t, *options)
        return self.call(t, **dict(zip(self.options, options, strict=True)))

    def use(self, kernel: Callable[..., Any], around: Callable[[Any], Any] | None = None) -> None:
        """Set the kernel of this row, and what wraps it, such as a counter of its calls."""
        kernel = getattr(kernel, "without_devices", kernel)
        kernel = getattr(kernel, "without_halves", kernel)
        self.plain_kernel, self.around = kernel, around
        with_residual = None if around else self.with_residuals.get(kernel)
        if self.for_halves is not None:
            default = self.for_halves.get(kernel)  # one object, as tests compare by identity
            kernel = default or half_kernel(self, kernel)
            with_residual = with_residual and half_with_residual(self, with_residual)
        if self.on_devices:
            from odyssey.table.device_rows import device_kernel, device_with_residual

            kernel = device_kernel(self, kernel)
            with_residual = with_residual and device_with_residual(self, with_residual)
        self.kernel = profiled(self.name, around(kernel) if around else kernel)
        self.with_residual = profiled(self.name, with_residual)
        for tell in self.kernel_listeners:
            tell(self.kernel)

    def handle_halves(self) -> None:
        """Let kernels and rules compute halves by way of float32, see ``half_kernels``."""
        if self.for_halves is not None:
            return
        on_devices = self.on_devices
        self.handle_devices(False)
        self.infer = half_infer(self, self.infer)
        same = self.array_pullbacks is self.pullbacks
        self.pullbacks = half_rules(self, self.pullbacks)
        self.array_pullbacks = self.pullbacks if same else half_rules(self, self.array_pullbacks)
        self.pushforwards = half_rules(self, self.pushforwards)
        self.for_halves = {self.plain_kernel: half_kernel(self, self.plain_kernel)}
        self.use(self.plain_kernel, self.around)
        self.handle_devices(on_devices)

    def handle_devices(self, on: bool) -> None:
        """Let kernels and rules take arrays of devices, see ``device_rows``; or no longer."""
        if on is self.on_devices:
            return
        from odyssey.table.device_rows import device_rules, host_rules

        wrap = device_rules if on else host_rules
        same = self.array_pullbacks is self.pullbacks
        self.pullbacks = wrap(self, self.pullbacks)
        if not same:  # array rules hold kernels of the CPU; the rules themselves do not
            sources = host_rules(self, self.pullbacks)
            self.array_pullbacks = wrap(self, self.array_pullbacks, sources)
        else:
            self.array_pullbacks = self.pullbacks
        self.pushforwards = wrap(self, self.pushforwards)
        self.selection_pullbacks = wrap(self, self.selection_pullbacks)
        self.selection_pushforwards = wrap(self, self.selection_pushforwards)
        self.on_devices = on
        self.use(self.plain_kernel, self.around)

    # -------------------------------------------------------------- calling

    def bind_arguments(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Split the arguments of a call into operands and options."""
        __tracebackhide__ = hides_frame
        count = len(self.arrays)
        given = len(args) - count
        if given < 0 and self.optional.issuperset(self.arrays[given:]):
            args, given = (*args, *[None] * -given), 0
        if (
            given < 0
            or given > self.positional
            or (named and not self._are_free_options(named, given))
        ):
            raise DTypeError(self.signature_error(args, named))
        options = (*args[count:], *self.defaults[given:])
        if named:
            options = tuple(map(named.get, self.options, options))
        for k in self.required:
            if options[k] is REQUIRED:
                raise DTypeError(self.signature_error(args, named))
        return args[:count], self.prepare_options(
            options
        ) if self.prepare or self.flags else options

    def prepare_options(self, options: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check and convert options to the form that the kernel takes."""
        for k in self.flags:
            if options[k] is not True and options[k] is not False:
                options = self.check_flags(options)
        if self.prepare is None:
            return options
        try:
            return self.prepare(*options)
        except STUMBLES as error:
            raise self.kernel_error(error, (), options) from error

    def check_flags(self, options: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert flags among options to Python's True or False."""
        if not self.flags:
            return options
        found = list(options)
        for k in self.flags:
            found[k] = check_flag(self.name, self.options[k], options[k])
        return tuple(found)

    def _are_free_options(self, named: Mapping[str, Any], given: int) -> bool:
        """Return whether all keyword arguments are options without a positional argument."""
        return named.keys() <= (set(self.options[given:]) if given else self.named)

    def signature_error(self, args: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Return the message for arguments that do not fit the signature."""
        import inspect

        signature = inspect.signature(self.reference)
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            hint = keyword_hint(named)
            return (
                f"{self.name}: {error}{hint}; the signature is {format_call(self.name, signature)}"
            )
        raise AssertionError("the arguments fit after all")

    def save_values(
        self,
        recording: Recording,
        inputs: Sequence[Any],
        values: Sequence[Any],
        options: tuple[Any, ...],
        residual: Any = None,
    ) -> tuple[Any, ...]:
        """Return the values that a node saves: arrays and results that rules need, and options."""
        key = tuple(map(type, inputs))
        plan = self.save_plans.get(key)
        if plan is None:
            if (
                len(self.save_plans) >= _MAX_PLANS
            ):  # any subset of a hundred operands may need a gradient
                self.save_plans.clear()
            plan = self.save_plans[key] = self._save_plan([id is not None for id in inputs])
        dropped, constants = plan
        kept = [*values, *options]
        for k in dropped:
            kept[k] = None
        for k in constants:
            kept[k] = recording.keep_array(kept[k])
        if not (self.takes_index or IMMUTABLE_TYPES.issuperset(map(type, options))):
            # The caller may mutate them while the tape keeps them.
            try:
                for k, option in enumerate(options, len(values)):
                    flat = type(option) is tuple and IMMUTABLE_TYPES.issuperset(map(type, option))
                    if not flat and type(option) not in IMMUTABLE_TYPES:
                        kept[k] = _copy_mutable(option)
            except STUMBLES as error:
                raise self.kernel_error(error, values[: len(self.arrays)], options) from error
        if residual is not None:
            kept.append(residual)
        return tuple(kept)

    def _save_plan(self, tracked: list[bool]) -> tuple[list[int], list[int]]:
        """Return indices of values that a node does not save, and of saved constants."""
        wanted = frozenset().union(*compress(self.needs, tracked))
        saved = [name in wanted for name in (*self.arrays, *self.results)]
        dropped = [k for k, save in enumerate(saved) if not save]
        return dropped, [k for k, on in enumerate(tracked) if saved[k] and not on]

    def kernel_error(
        self, error: Exception, values: Sequence[Any], options: tuple[Any, ...]
    ) -> Exception:
        """Return the error for refused operands: that of the shape rule, if it raises one."""
        __tracebackhide__ = hides_frame
        for name, value in zip(self.arrays, values, strict=False):
            odd = conversion_error(self.name, name, value)
            if odd is not None:
                return odd
        # Errors of np.errstate and of users' code pass unchanged.
        theirs = self.foreign and not isinstance(error, (TypeError, ValueError, IndexError))
        if theirs or isinstance(error, FloatingPointError):
            raise error
        if isinstance(error, OdysseyError):
            raise without_own_frames(error)
        specs = [spec_of(v) if hasattr(v, "dtype") else v for v in values]
        try:
            self.infer(*specs, *options)
        except Exception as better:  # the shape rule may fail on these operands as well
            if isinstance(better, OdysseyError):
                without_own_frames(error)  # it is the cause of this one, which says more
                return without_own_frames(better)
        came = [f"{n} {format_value(s)}" for n, s in zip(self.arrays, specs, strict=False)]
        came += [f"{n}={format_value(o)}" for n, o in zip(self.options, options, strict=False)]
        return error_class_of(error)(f"{self.name}: {error}; came {', '.join(came)}")

    @property
    def requested_names(self) -> tuple[str, ...]:
        """The names that reverse rules request, in the order of arguments of ``od.backward``.

        Optional arrays are included: the gradient of an absent one is None.
        """
        order = [*self.arrays, *self.results, *self.layout.specs, *self.options]
        rules = [rule for rule in self.vjp.values() if rule]
        wanted = {name for rule in rules for name in self.layout.requested_names(rule)}
        wanted |= self.optional
        return tuple(name for name in order if name in wanted)


# All rows of the table. ``device_rows`` is imported when the first backend is installed.
_ROWS: list[Row] = []


def handle_devices(row: Row) -> None:
    """Let a row of the table take arrays of devices while a backend is installed."""
    _ROWS.append(row)
    row.handle_devices(bool(DEVICE_TYPES))


def _handle_in_all_rows(*_: Any) -> None:
    for row in list(_ROWS):
        row.handle_devices(bool(DEVICE_TYPES))


ARRAY_TYPE_LISTENERS.append(_handle_in_all_rows)
