"""``custom_vjp``: functions with a user-defined backward rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MethodType
from typing import Any

from odyssey.checks import (
    check_callable,
    check_choice,
    describe_type,
    is_importable,
    user_line,
)
from odyssey.devices.arrays import ARRAY_LIKE, as_array
from odyssey.devices.half_dtypes import is_number_dtype
from odyssey.devices.ownership import is_referenced_elsewhere, is_writable
from odyssey.devices.same_device import own_copy, place_beside, zeros_beside
from odyssey.errors import DTypeError, SettingError, ShapeError, TapeError
from odyssey.graph.batch_trace import BatchedArray, BatchTrace
from odyssey.ops.reductions.reduce import sum as reduce_sum
from odyssey.ops.structure.unbroadcast import unbroadcast
from odyssey.spec import Spec, spec_of
from odyssey.table.rng_replay import RecordedRng, record_rng, replay_rng
from odyssey.table.scope import Pause, PauseBlock, innermost_scope
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import (
    CONSTANT,
    UNTRACKED,
    Symbol,
    Value,
    free_id,
    is_constant,
    is_tracked,
    make_value,
)
from odyssey.tape import GradientTape
from odyssey.tape.recording import Recording
from odyssey.tape.sweep import conj_if_complex
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.call_nodes import record_call, recording_for, split_saved, stored_array
from odyssey.transforms.per_example import PerExample
from odyssey.transforms.reverse import vjp
from odyssey.transforms.rule_arrays import (
    exclusive_leaves,
    is_floating,
    leaf_counts,
    read_only,
    residual_value,
    rule_result_array,
)
from odyssey.tree import leaves, paths, same_tree, unflatten
from odyssey.tree_objects import no_attributes
from odyssey.variable import Variable

__all__ = ["custom_vjp"]

_NO_FUNCTION: Any = object()
_WRITTEN_WITH_OPS = (
    "to differentiate {name} twice, or in forward mode, its rules are run on Variables; so write "
    "them with ops, and call {name} itself where they need what is outside of odyssey"
)


class _Decorator(type):
    """Class of a decorator that may be called with settings alone."""

    def __call__(cls, fn: Any = _NO_FUNCTION, *, vmap: str | None = None) -> Any:
        if fn is _NO_FUNCTION:
            _check_vmap(vmap)
            return partial(cls, vmap=vmap)
        return super().__call__(fn, vmap=vmap)


class custom_vjp(metaclass=_Decorator):
    """A function whose gradient is computed by a rule that is given beside it.

    For what the ops cannot say, such as a solver from another library, or what has a better
    derivative than the sweep would find. Use it as a decorator, then give the two rules:

    * ``forward(*args) -> (out, residuals)`` runs in the place of the function where a tape
      records. It is given plain arrays, and keeps what ``backward`` will need, which may be objects
      of another library. Arrays of another library that ``out`` holds become NumPy's.
    * ``backward(residuals, g) -> gradients`` is given the cotangent in the tree of ``out``, and
      returns a tuple with one gradient for each argument, in its tree; None stands for zero.
      Complex cotangents and gradients are conjugated as those of ``tape.gradient`` are.

    For second derivatives and forward mode the rules are run on Variables, and recorded. In
    ``vmap`` the function and its rules run once, on all examples, so they are written with ops.

    Args:
        fn: The function, of arrays or trees of them. Keyword arguments and defaults are put in
            their places; of a method the object is the first argument. Without it, as in
            ``@custom_vjp(vmap="loop")``, a decorator is made.
        vmap: ``"loop"`` if ``vmap`` shall call the function and its rules once for each example, on
            plain arrays: for functions that leave odyssey. None: once for all.

    Raises:
        TapeError: where it closes over a Variable whose gradient would be lost, or has no rules.
        ShapeError, DTypeError: in the sweep, where the gradients do not fit the arguments.

    >>> import odyssey as od
    >>> @custom_vjp
    ... def solve(a, b):
    ...     return np.linalg.solve(a, b)
    >>> def forward(a, b):
    ...     x = solve(a, b)
    ...     return x, (a, x)
    >>> def backward(residuals, g):
    ...     a, x = residuals
    ...     u = solve(od.ops.transpose(a), g)
    ...     return -od.ops.reshape(u, (-1, 1)) * x, u
    >>> solve.defvjp(forward, backward)
    >>> a, b = np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([1.0, 1.0])
    >>> od.grad(lambda b: solve(a, b).sum())(b)
    array([0.5 , 0.25])
    """

    def __init__(self, fn: Callable[..., Any], *, vmap: str | None = None) -> None:
        self.__wrapped__ = check_callable("custom_vjp", fn)
        self._vmap = _check_vmap(vmap)
        self._function = PerExample(fn) if vmap == "loop" else fn
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__qualname__ = getattr(fn, "__qualname__", self.__name__)
        self.__module__ = getattr(fn, "__module__", __name__)
        self.__doc__ = getattr(fn, "__doc__", None)
        self._rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Give the rules; see the class."""
        for rule in (forward, backward):
            if rule is not None:
                check_callable("defvjp", rule)
        if self._vmap == "loop" and None not in (forward, backward):
            forward, backward = PerExample(forward, is_forward=True), PerExample(backward)
        self._rules = forward, backward

    def __repr__(self) -> str:
        return f"custom_vjp({self.__name__})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a decorated function by its name, as functions are pickled."""
        return self.__qualname__ if is_importable(self) else super().__reduce_ex__(protocol)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function; where a tape records, by its rule."""
        if named or getattr(self.__wrapped__, "__defaults__", None):
            args = self._in_order(args, named)
        values = leaves(args, no_attributes)
        if store() is not MEMORY:
            values = list(store().localize(values))
            args = unflatten(args, values, no_attributes)
        recording = recording_for(self.__name__, values)
        tracked = any(is_tracked(v) for v in values)
        if recording is not None and tracked:
            if self._rules is None or None in self._rules:
                raise TapeError(
                    f"{self!r} has no rules; call {self.__name__}.defvjp(forward, backward) first"
                )
            call = _RecordedCall(self.__name__, *self._rules, args, self._outside_vmap)
            with nullcontext() if store() is MEMORY else self._names_vmap():
                return call.run_and_record(recording)
        return self._unrecorded(args, values, tracked, recording is not None)

    def _in_order(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        from inspect import signature

        try:
            bound = signature(self.__wrapped__).bind(*args, **named)
        except TypeError as error:
            raise DTypeError(f"{self!r}: {error}") from None
        bound.apply_defaults()
        if bound.kwargs:
            raise DTypeError(
                f"{self!r}: {', '.join(bound.kwargs)} can be passed by keyword only, and rules "
                "take arguments by position"
            )
        return bound.args

    def _unrecorded(self, args: Any, values: list[Any], tracked: bool, guard: bool) -> Any:
        """Call the function itself; the results are Variables if any argument is one."""
        arrays = unflatten(
            args, [v.data if isinstance(v, Variable) else v for v in values], no_attributes
        )
        if guard:
            with _refuse_captures(self.__name__):
                found = [self._call_function(arrays)]
        else:
            found = [self._call_function(arrays)]
        if not any(isinstance(value, Variable) for value in values):
            return found[0]
        mark = UNTRACKED if tracked and not isinstance(innermost_scope(), Pause) else CONSTANT
        made = [
            make_value(Variable, data, mark, free_id()) if is_floating(data) else data
            for data in exclusive_leaves(found, leaves(arrays, no_attributes))
        ]
        return unflatten(found[0], made, no_attributes)

    def _call_function(self, arrays: tuple[Any, ...]) -> Any:
        if store() is MEMORY:
            return self._function(*arrays)
        with self._names_vmap():
            outside = self._outside_vmap(arrays)
            return self._function(*arrays) if outside is None else outside()

    def _outside_vmap(self, arrays: tuple[Any, ...]) -> Callable[[], Any] | None:
        """Return the call on all examples, recorded outside of ``vmap``; None if no tape does."""
        trace = store()
        if type(trace) is not BatchTrace:
            return None
        if not trace.is_followed_outside(leaves(arrays, no_attributes)):
            return None
        return _BatchedCall(self.__name__, self._function, self._rules, arrays, trace).run

    @contextmanager
    def _names_vmap(self) -> Iterator[None]:
        """Say what to do where the function reads values that each example has its own of."""
        here = store()
        try:
            yield
        except TapeError as error:
            if type(here) is BatchTrace and self._vmap is None and str(error).startswith("vmap"):
                raise TapeError(
                    f"{self!r} runs once in vmap, on all examples, and asks for the value of one "
                    f"({user_line()}); write it with ops, or declare it by "
                    'custom_vjp(fn, vmap="loop"), which calls it and its rules for each example'
                ) from error
            raise


class _RecordedCall:
    """One recorded call: its arguments without their arrays, and its rules.

    Args:
        name: The name of the function.
        forward: Its rules.
        backward: See ``forward``.
        args: The arguments.
        outside: Returns the call that a tape outside of ``vmap`` records, from the arguments as
            arrays; or None.
    """

    def __init__(
        self,
        name: str,
        forward: Any,
        backward: Any,
        args: tuple[Any, ...],
        outside: Callable[[Any], Callable[[], Any] | None] = lambda arrays: None,
    ) -> None:
        self.name = name
        self.forward = forward
        self.backward = backward
        self.args: Any = args
        self.outside = outside
        self.paths = [
            path
            for n, arg in enumerate(args)
            for path, _ in paths(arg, f"argument {n}", rule=no_attributes)
        ]
        # Positions of the inputs among the leaves of the arguments, and their specs.
        self.inputs: list[int] = []
        self.specs: list[Spec] = []
        # The results of the two rules without arrays; specs of the recorded leaves of ``out``.
        self.out: Any = None
        self.results: dict[int, Spec] = {}
        self.others: list[Any] = []
        self.residuals: Any = None
        self.recorded_rng = RecordedRng()

    def run_and_record(self, recording: Recording) -> Any:
        """Run ``forward`` on plain arrays, and append the call to ``recording``."""
        values = leaves(self.args, no_attributes)
        ids = [
            recording.operand_id(v, self.name) if isinstance(v, Variable) else None for v in values
        ]
        self.inputs = [k for k, i in enumerate(ids) if i is not None]
        variables = [values[k] for k in self.inputs]
        self.specs = [v._spec for v in variables]
        arrays = [v.data if isinstance(v, Variable) else v for v in values]
        given = unflatten(self.args, arrays, no_attributes)
        with _refuse_captures(self.name), record_rng(self.recorded_rng):
            pair = self._check_pair(self.forward(*given))
        outside = self.outside(given)
        if outside is not None:  # there the result has the derivative of the rules as well
            with replay_rng(self.recorded_rng):
                pair = outside(), pair[1]
        made = exclusive_leaves(pair, arrays)
        out, residuals = pair
        self.results = {k: spec_of(leaf) for k, leaf in enumerate(made) if is_floating(leaf)}
        rest = [recording.keep_array(a) for k, a in enumerate(arrays) if k not in self.inputs]
        # An array of a Variable is kept as the Variable's own, with no lock or copy.
        own = {id(arrays[k]): stored_array(values[k]) for k in self.inputs}
        saved = [residual_value(leaf) for leaf in leaves(residuals, no_attributes)]
        saved = [own[id(a)] if id(a) in own else recording.keep_array(a) for a in saved]
        results = record_call(
            recording,
            self.name,
            variables,
            [made[k] for k in self.results],
            self._vjp,
            self._jvp,
            [*rest, *saved],
        )
        for k, result in zip(self.results, results, strict=True):
            made[k] = result
        self._drop_arrays(out, made, residuals, len(values))
        return unflatten(out, made, no_attributes)

    def _drop_arrays(self, out: Any, made: list[Any], residuals: Any, count: int) -> None:
        """Keep the trees without their arrays, which the tape holds."""
        self.args = unflatten(self.args, [None] * count, no_attributes)
        self.out = unflatten(out, [None] * len(made), no_attributes)
        self.residuals = unflatten(
            residuals, [None] * len(leaves(residuals, no_attributes)), no_attributes
        )

    def _check_pair(self, made: Any) -> Any:
        if not isinstance(made, tuple) or len(made) != 2:
            raise DTypeError(
                f"{self.name}: forward must return a pair (out, residuals); "
                f"it returned {describe_type(made)}"
            )
        return made

    # -------------------------------------------------------------- the rules

    def _vjp(self, parts: dict[int, Any], kept: tuple[Any, ...], chosen: Any) -> list[Any]:
        """Return the cotangents of the inputs from those of the results."""
        chosen.clear()  # the elements that a user's rule masks out are not known
        cotangents = {j: conj_if_complex(g) for j, g in parts.items()}
        if self._is_recorded(parts, kept):
            with self._hint():
                residuals = self._residuals_again(kept)
                gradients = self._gradients(residuals, cotangents)
        else:
            with _refuse_captures(self.name):
                gradients = self._gradients(self._residuals(kept), cotangents)
        return [conj_if_complex(g) for g in gradients]

    def _jvp(self, parts: dict[int, Any], kept: tuple[Any, ...], chosen: Any) -> list[Any]:
        """Return the tangents of the results from those of the inputs.

        ``backward`` is the transposed derivative, and linear. Its transpose is the derivative.
        """
        chosen.clear()
        recorded = self._is_recorded(parts, kept)
        zeros = [zeros_beside(spec, *parts.values()) for spec in self.results.values()]

        def transposed(cotangents: list[Any]) -> list[Any]:
            gradients = self._gradients(residuals, dict(enumerate(cotangents)))
            return [gradients[k] for k in parts]

        with self._hint():
            if recorded:
                residuals = self._residuals_again(kept)
                moved = vjp(transposed, zeros)[1](list(parts.values()))[0]
            else:
                with PauseBlock(is_local=True):
                    residuals = self._residuals(kept)
                    moved = vjp(transposed, zeros)[1](list(parts.values()))[0]
        return list(moved)

    def _is_recorded(self, parts: dict[int, Any], kept: tuple[Any, ...]) -> bool:
        inputs, _ = split_saved(kept, len(self.inputs))
        return any(isinstance(v, Variable) for v in (*parts.values(), *inputs))

    def _residuals(self, kept: tuple[Any, ...]) -> Any:
        _, rest = split_saved(kept, len(self.inputs))
        others = len(self.paths) - len(self.inputs)
        # Read-only, because the tape may be swept again.
        return unflatten(
            self.residuals, [read_only(value) for value in rest[others:]], no_attributes
        )

    def _residuals_again(self, kept: tuple[Any, ...]) -> Any:
        """Run ``forward`` on Variables, so that its residuals can be differentiated."""
        inputs, rest = split_saved(kept, len(self.inputs))
        by_position = dict(zip(self.inputs, inputs, strict=True))
        others = iter(rest)
        values = [
            by_position[k] if k in by_position else next(others) for k in range(len(self.paths))
        ]
        with replay_rng(self.recorded_rng):
            return self._check_pair(self.forward(*unflatten(self.args, values, no_attributes)))[1]

    @contextmanager
    def _hint(self) -> Iterator[None]:
        try:
            yield
        except (TapeError, DTypeError, TypeError) as error:
            error.add_note(_WRITTEN_WITH_OPS.format(name=self.name))
            raise

    def _gradients(self, residuals: Any, cotangents: dict[int, Any]) -> list[Any]:
        """Call ``backward``; return its checked gradients of the inputs."""
        made: list[Any] = [None] * len(leaves(self.out, no_attributes))
        for j, (position, spec) in enumerate(self.results.items()):
            g = cotangents.get(j)
            known = cotangents.values()
            made[position] = zeros_beside(spec, *known) if g is None else read_only(g)
        given = self.backward(residuals, unflatten(self.out, made, no_attributes))
        if not isinstance(given, (tuple, list)):
            raise DTypeError(
                f"{self.name}: backward must return a tuple of gradients, one for each argument; "
                f"it returned {describe_type(given)}"
            )
        if len(given) != len(self.args):
            raise ShapeError(
                f"{self.name}: backward returned {len(given)} gradients for "
                f"{len(self.args)} arguments; None stands for zero"
            )
        flat = self._in_order_of_arguments(given)
        occurrences = leaf_counts(given)
        for k in self.inputs:
            if is_referenced_elsewhere(flat, k, occurrences[id(flat[k])]) and is_writable(flat[k]):
                flat[k] = own_copy(flat[k])  # for example a workspace that all calls share
        return [
            self._check_gradient(flat[k], k, s, *cotangents.values())
            for k, s in zip(self.inputs, self.specs, strict=True)
        ]

    def _in_order_of_arguments(self, given: Any) -> list[Any]:
        """Return the gradients for the leaves of all arguments; None for zeros."""
        flat: list[Any] = []
        for n, (arg, gradient) in enumerate(zip(self.args, given, strict=True)):
            if gradient is None:
                flat.extend([None] * len(leaves(arg, no_attributes)))
            else:
                where = f"argument {n}"
                flat.extend(
                    same_tree(
                        self.name, f"gradient of {where}", arg, gradient, where, no_attributes
                    )
                )
        return flat

    def _check_gradient(self, g: Any, position: int, spec: Spec, *cotangents: Any) -> Any:
        """Return the gradient of an input as an array of its spec; raise if it does not fit.

        It lies on the device of the cotangents.
        """
        if g is None:
            return zeros_beside(spec, *cotangents)
        if not isinstance(g, (Variable, Symbol)):
            g = as_array(self.name, f"the gradient of {self.paths[position]}", g)
            g = place_beside(g, *cotangents)
        if isinstance(g, Variable) and is_constant(g):
            g = operand_of(g)
        if g.shape != spec.shape:
            raise ShapeError(
                f"{self.name}: backward returned a gradient of shape {g.shape} for "
                f"{self.paths[position]}, whose shape is {spec.shape}"
            )
        if g.dtype.kind == "b" or not is_number_dtype(g.dtype):
            raise DTypeError(
                f"{self.name}: backward returned a gradient of {g.dtype} for {self.paths[position]}"
            )
        return unbroadcast(g, spec)


class _BatchedCall(_RecordedCall):
    """One call in ``vmap``: that of a function of payloads, in the store outside.

    The function and its rules run in the batch trace, on payloads that are its values there.

    Args:
        name: The name of the function.
        function: The function.
        rules: Its rules, or None.
        args: The arguments, as arrays.
        trace: The batch trace.
    """

    def __init__(
        self, name: str, function: Any, rules: Any, args: tuple[Any, ...], trace: BatchTrace
    ) -> None:
        forward, backward = rules or (None, None)
        super().__init__(name, forward, backward, args)
        self.function, self.trace = function, trace
        values = leaves(args, no_attributes)
        self.values = values
        self.positions = [k for k, v in enumerate(values) if self._is_own(v)]
        self.has_batch = [values[k].mapped for k in self.positions]
        self.inputs = [k for k in self.positions if is_floating(values[k])]
        self.specs = [values[k].spec for k in self.inputs]
        # Whether the results have the batch, and each residual; None for other objects.
        self.is_mapped = any(self.has_batch)
        self.residuals_mapped: list[bool | None] = []

    def _is_own(self, value: Any) -> bool:
        return type(value) is BatchedArray and value.graph is self.trace

    def run(self) -> Any:
        """Call the function outside, and return its result here."""
        trace = self.trace
        outside: Any = custom_vjp(trace.entered_again(self._run_function))
        outside.__name__ = self.name
        if self.forward is not None and self.backward is not None:
            outside.defvjp(*map(trace.entered_again, (self._run_forward, self._run_backward)))
        payloads = [self.values[k].payload for k in self.positions]
        self.args = unflatten(self.args, [None] * len(self.values), no_attributes)
        for k in self.positions:  # the tape keeps them
            self.values[k] = None
        made = iter(trace.compute_outside(outside, *payloads))
        flat = [
            trace.wrap(next(made), self.is_mapped) if k in self.results else v
            for k, v in enumerate(leaves(self.out, no_attributes))
        ]
        return unflatten(self.out, flat, no_attributes)

    def _arguments(self, payloads: Sequence[Any]) -> tuple[Any, ...]:
        values = list(self.values)
        for k, payload, mapped in zip(self.positions, payloads, self.has_batch, strict=True):
            values[k] = self.trace.wrap(payload, mapped)
        made: tuple[Any, ...] = unflatten(self.args, values, no_attributes)
        return made

    def _export(self, out: Any) -> list[Any]:
        """Keep the tree of the result; return the payloads of its arrays."""
        flat = [rule_result_array(leaf) for leaf in leaves(out, no_attributes)]
        self.is_mapped = any(self.has_batch) or any(self._is_own(v) and v.mapped for v in flat)
        is_array = [isinstance(v, (*ARRAY_LIKE, Symbol)) for v in flat]
        self.results = {k: spec_of(v) for k, v in enumerate(flat) if is_array[k]}
        kept = [None if array else v for v, array in zip(flat, is_array, strict=True)]
        self.out = unflatten(out, kept, no_attributes)
        return [self.trace.payload_with(flat[k], self.is_mapped) for k in self.results]

    def _run_function(self, *payloads: Any) -> list[Any]:
        return self._export(self.function(*self._arguments(payloads)))

    def _run_forward(self, *payloads: Any) -> tuple[list[Any], list[Any]]:
        out, residuals = self._check_pair(self.forward(*self._arguments(payloads)))
        flat = [residual_value(leaf) for leaf in leaves(residuals, no_attributes)]
        self.residuals = unflatten(residuals, [None] * len(flat), no_attributes)
        self.residuals_mapped = [v.mapped if self._is_own(v) else None for v in flat]
        return self._export(out), [v.payload if self._is_own(v) else v for v in flat]

    def _run_backward(self, residuals: list[Any], gs: list[Any]) -> tuple[Any, ...]:
        trace = self.trace
        pairs = zip(residuals, self.residuals_mapped, strict=True)
        kept = [v if mapped is None else trace.wrap(v, mapped) for v, mapped in pairs]
        cotangents = {j: trace.wrap(g, self.is_mapped) for j, g in enumerate(gs) if g is not None}
        found = self._gradients(unflatten(self.residuals, kept, no_attributes), cotangents)
        by_position = dict(zip(self.inputs, found, strict=True))
        return tuple(
            [
                self._gradient_of_payload(by_position[k], mapped) if k in by_position else None
                for k, mapped in zip(self.positions, self.has_batch, strict=True)
            ]
        )

    def _gradient_of_payload(self, g: Any, mapped: bool) -> Any:
        """Return the gradient of a payload; that of one that all examples share is the sum."""
        g = self.trace.payload_with(g, self.is_mapped)
        if mapped or not self.is_mapped:
            return g
        return self.trace.compute_outside(lambda: reduce_sum(g, axis=0))


def _check_vmap(vmap: Any) -> Any:
    if vmap is not None:
        check_choice("custom_vjp", "vmap", vmap, ("loop",), SettingError)
    return vmap


def _refuse_captures(name: str) -> PauseBlock:
    """Return a block that records nothing, and refuses captured Variables that have gradients."""
    leaf, result = free_id(), recording_of(GradientTape()).new_id()

    def refuse_capture(who: str, value: Any) -> None:
        if not isinstance(value, Value) or is_constant(value):
            return
        if value._id < (leaf if value.is_leaf else result):
            raise TapeError(
                f"{name}: it closes over {value!r}, which its {who} uses and whose gradient would "
                "be lost; pass it as an argument, or close over its detach()"
            )

    return PauseBlock(refuse_capture, is_local=True)
