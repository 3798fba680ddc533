"""Optimizer: applies an update rule to Variables, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import setitem
from typing import Any, ClassVar, Self

import numpy as np

from odyssey.checks import STUMBLES, check_flag, check_int, check_number, few_digits, format_value
from odyssey.devices.arrays import ARRAY_LIKE, as_array
from odyssey.devices.commit import Plan, commit
from odyssey.devices.same_device import host_copy, namespace_of, place_beside
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import (
    DTypeError,
    MissingGradientError,
    OdysseyError,
    OutOfRangeError,
    ShapeError,
)
from odyssey.optim.flat_parameters import SMALL_SIZE, FlatParameters
from odyssey.optim.groups import Group, check_form, count_text, defaults_of, groups_of
from odyssey.optim.rule import MASTER, Rule, chosen_step, state_dtype
from odyssey.optim.step_runner import StepRunner
from odyssey.sparse_rows import SparseRows
from odyssey.suggestions import MISSING_NAMES, keyword_hint
from odyssey.table.scope import no_grad, run_without_casts
from odyssey.table.signature import REQUIRED
from odyssey.table.store import MEMORY, Store, numbers_of, operand_of, store
from odyssey.table.value import SharedVersion, Symbol, assign_plan, is_trainable
from odyssey.variable import Variable

__all__ = ["Optimizer"]


class Optimizer:
    """Applies a rule to Variables: ``step``, ``zero_grad``, ``state_dict``, ``load_state_dict``.

    A parameter that is frozen, its ``requires_grad`` set to False, stays where it is, whatever
    gradient it has, until it is thawed. In a compiled function the learning rates are read at
    each run; the other settings, and what is frozen, are those of the time it was traced.

    Parameters of float16 and bfloat16 have a state of float32, and in it master weights: the slot
    ``master``, a copy of the parameter that a step moves in float32, and then rounds once. So steps
    that are too small to change a half-precision number add up. A master follows a parameter that
    was assigned, element by element.

    Args:
        params: Trainable Variables, in any tree; or groups with settings of their own, a list of
            dictionaries ``{"params": tree, "learning_rate": 0.1, ...}``.
        rule: Makes the rule from the settings; if it is left out, what ``rule_of`` declared.
        settings: Numbers and flags of all groups that have none of their own. Each becomes an
            attribute: assigning it sets it in all groups.

    Attributes:
        groups: The parameter groups, whose settings are attributes too.
        params: The parameters of all groups, in order.
    """

    groups: list[Group]
    learning_rate: float

    # The function declared by ``rule_of`` that makes the rule, and intervals of some settings.
    _declared: ClassVar[Callable[..., Rule] | None] = None
    _ranges: ClassVar[dict[str, str]] = {}
    # Attributes derived from the others, which walks over reachable objects skip.
    _derived_state: ClassVar[tuple[str, ...]] = ("_packs", "_resting", "_updates")
    # Where the state lies if it is not in ``_state``, as text for messages; see ``_for_slices``.
    _state_elsewhere: str | None = None

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Refuse keywords of other libraries by our words for them."""
        hint = keyword_hint(named.keys() - set(cls.__init__.__code__.co_varnames))
        if hint:
            raise DTypeError(f"{cls.__name__}{hint.replace(';', ':', 1)}")
        return super().__new__(cls)

    def __init__(
        self, params: Any, rule: Callable[..., Rule] | None = None, **settings: Any
    ) -> None:
        rule = rule or self._declared
        if rule is None:
            raise OdysseyError(
                f"{type(self).__name__} has no rule; declare one by odyssey.optim.rule_of"
            )
        self._names = tuple(settings)
        self.groups = groups_of(type(self).__name__, params, rule, settings)
        self.params = [p for group in self.groups for p in group.params]
        self._paths = [path for group in self.groups for path in group.paths]
        self._packs: list[Any] = []  # FlatParameters and DeviceParameters
        # Parameters outside the flat arrays: all of them at first, later those that are frozen.
        self._resting = self.params
        self._updates: StepRunner | None = None
        # For each parameter its state as constant Variables, which a trace can use.
        self._state: list[dict[str, Variable]] = [{} for _ in self.params]

    # -------------------------------------------------------------- settings

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            hint = MISSING_NAMES["optimizer"].get(name)
            known = f"; {hint}" if hint else ""
            raise AttributeError(f"{type(self).__name__} has no {name!r}{known}", name=name)
        first, *others = [group.settings()[name] for group in self.groups]
        if any(other != first for other in others):
            raise OdysseyError(
                f"{name}: the groups differ, {[first, *others]}; read groups[i].{name}"
            )
        return first

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name not in self._names:
            super().__setattr__(name, value)
            return
        changes = [group.with_settings(**{name: value}) for group in self.groups]
        commit(self._settings_calls(changes))

    def _settings_calls(self, changes: list[tuple[dict[str, Any], Rule]]) -> Plan:
        """Return the calls that set settings, one pair of ``with_settings`` for each group."""
        pairs = zip(self.groups, changes, strict=True)
        return [step for group, change in pairs for step in group.adopt_calls(*change)]

    def settings(self) -> dict[str, Any]:
        """Return the settings that are the same in all groups, by name."""
        first, *others = [group.settings() for group in self.groups]
        return {n: v for n, v in first.items() if all(other[n] == v for other in others)}

    def rule(self, group: int = 0) -> Rule:
        """Return the pure rule of a group with its present settings."""
        who = f"{type(self).__name__}.rule"
        try:
            return self.groups[check_int(who, "group", group)].rule()
        except IndexError:
            raise OutOfRangeError(
                f"{who}: group={format_value(group)}; there are {len(self.groups)}"
            ) from None

    def __repr__(self) -> str:
        """The parameters, and the settings that are not at their default."""
        store().only_eagerly("it formats an optimizer as text")
        groups: list[Group] | None = vars(self).get("groups")
        if groups is None:  # under construction, or construction failed
            return f"<{type(self).__name__}, unfinished>"
        facts = [count_text(self.params, "parameter")]
        if len(groups) > 1:
            facts[0] += f" in {len(groups)} groups"
        if frozen := sum(not is_trainable(p) for p in self.params):
            facts.append(f"{frozen} frozen")
        defaults = defaults_of(type(self).__init__)
        for name in groups[0].settings():
            values = [group.settings().get(name) for group in groups]
            if any(value != defaults.get(name, REQUIRED) for value in values):
                alike = all(value == values[0] for value in values)
                facts.append(f"{name}={few_digits(values[0] if alike else values)}")
        return f"{type(self).__name__}({', '.join(facts)})"

    # -------------------------------------------------------------- stepping

    def step(self, *, allow_missing: bool = False, where: Any = True) -> None:
        """Move every parameter once along its gradient; frozen ones stay.

        A schedule knows nothing of ``where``: it counts its own steps.

        Args:
            allow_missing: Whether parameters without a gradient stay where they are.
            where: Whether to step at all, a truth value without axes. Where it is false, all
                parameters and their state stay as they are, whatever the gradients. In a compiled
                function it may be computed there; the step then selects, without a branch.

        Raises:
            MissingGradientError: naming a parameter without a gradient; nothing has moved then.
            DTypeError, ShapeError: if ``where`` is not one truth value.

        >>> import odyssey as od
        >>> w = od.Variable([3.0], requires_grad=True)
        >>> optimizer = od.optim.SGD([w], learning_rate=0.5)
        >>> w.grad = [float("inf")]
        >>> optimizer.step(where=od.ops.all(od.ops.isfinite(w.grad)))
        >>> w.numpy()
        array([3.])
        """
        if allow_missing is not False:
            allow_missing = check_flag(
                f"{type(self).__name__}.step", "allow_missing", allow_missing
            )
        refuse = None if allow_missing else self._refuse_missing
        here = store()
        if where is not True:
            where = _truth_of(f"{type(self).__name__}.step", where)
        if here is not MEMORY:
            # In memory, rules compute on arrays, which no od.autocast block casts.
            run_without_casts(self._step_in_store, here, refuse, where)
            return
        with write_lock():
            wait_for_programs()
            if where is False:
                self._find_missing(refuse)
                return
            self._step_guarded(refuse)

    def _step_guarded(
        self,
        refuse: Callable[[int], None] | None,
        collected: Plan | None = None,
        gradients: Sequence[Any] | None = None,
    ) -> None:
        """Step in memory.

        Args:
            refuse: Called with the index of a parameter that has no gradient, if not None.
            collected: To which the calls of the step are appended, for ``_run``, instead.
            gradients: One for each parameter, an array of its shape and dtype or None; by default
                ``.grad`` of each.
        """
        for p in self._resting:
            if is_trainable(p):  # new, or trainable again
                self._find_missing(refuse, gradients)
                self._flatten_params()
                break
        updates = self._updates
        if updates is None:
            updates = self._updates = StepRunner()
        quiet = updates.quiet()
        # All gradients are read, and all that may fail is computed, before a parameter changes.
        plan: Plan = []
        for pack in self._packs:
            joined = pack.gather_gradients(refuse, gradients)
            if joined is None:
                self._find_missing(refuse, gradients)
                self._flatten_params()
                pairs = [(pack, pack.gather_gradients(refuse, gradients)) for pack in self._packs]
                plan = [
                    one
                    for pack, joined in pairs
                    if joined is not None
                    for one in pack.update_calls(joined, quiet)
                ]
                break
            plan += pack.update_calls(joined, quiet)
        if collected is None:
            updates.run(self, plan)
        else:
            collected += plan

    def _run(self, plan: Plan) -> None:
        """Make the calls of steps as the last part of one."""
        if self._updates is None:
            self._updates = StepRunner()
        self._updates.run(self, plan)

    def _start(self) -> None:
        """Give every parameter its first state, as the first step does; later nothing happens."""
        with write_lock():
            wait_for_programs()
            if any(map(is_trainable, self._resting)):
                self._flatten_params()

    def _find_missing(
        self, refuse: Callable[[int], None] | None, gradients: Sequence[Any] | None = None
    ) -> None:
        """Call ``refuse`` with the index of a trainable parameter that has no gradient."""
        for k, p in enumerate(self.params):
            if is_trainable(p):
                g = p._info.grad if gradients is None else gradients[k]
                if g is None and refuse is not None:
                    refuse(k)

    def _refuse_missing(self, k: int) -> None:
        raise MissingGradientError(
            f"{type(self).__name__}.step: parameter {self._param_name(k)} has no gradient; "
            "call tape.backward(loss) first, check that the loss depends on it, or pass "
            "allow_missing=True"
        )

    def _param_name(self, k: int) -> str:
        return str(self.params[k].name or self._paths[k])

    def _refuse_state(self, what: str) -> None:
        """Raise if the state does not lie here."""
        if self._state_elsewhere is not None:
            raise OdysseyError(f"{type(self).__name__}.{what}: {self._state_elsewhere}")

    def _for_slices(
        self, params: Sequence[Sequence[Variable]], paths: Sequence[Sequence[str]]
    ) -> Self:
        """Return an optimizer of other parameters, in as many groups of these settings.

        Args:
            params: For each group its parameters; there may be none.
            paths: Their names for messages.
        """
        made = type(self).__new__(type(self))
        made._names = self._names
        made.groups = [
            Group(list(own), list(names), group._make, group._settings)
            for group, own, names in zip(self.groups, params, paths, strict=True)
        ]
        made.params = [p for group in made.groups for p in group.params]
        made._paths = [path for group in made.groups for path in group.paths]
        made._packs, made._resting, made._updates = [], made.params, None
        made._state = [{} for _ in made.params]
        return made

    def _initialize_state(self) -> None:
        """Give every parameter the initial state of its rule, where it has none."""
        started = self._started()
        SharedVersion([variable for state in started for variable in state.values()])
        self._state = started

    def _started(self) -> list[dict[str, Variable]]:
        self._refuse_state("step")
        states = iter(self._state)
        started = []
        for group in self.groups:
            for p, path in zip(group.params, group.paths, strict=True):
                new = {
                    name: Variable(value, name=f"{p.name or path or 'params'}.{name}")
                    for name, value in group.rule().init([p])[0].items()
                }
                started.append(new | next(states))
        return started

    def _flatten_params(self) -> None:
        """Move the data and state of the parameters that are not frozen into flat arrays."""
        self._initialize_state()
        owners = [group for group in self.groups for _ in group.params]
        together: dict[Any, list[int]] = {}
        resting = [p for p in self.params if not is_trainable(p)]
        for k, (p, group) in enumerate(zip(self.params, owners, strict=True)):
            if is_trainable(p):
                alone = p.size >= SMALL_SIZE or not group.rule().elementwise or p.sparse_grad
                key = (id(group), p.dtype, k if alone else None)
                if namespace_of(p) is not np:
                    key = (id(group), "device", None)
                together.setdefault(key, []).append(k)
        packs = [
            _new_pack(
                key[1] == "device",
                owners[indices[0]],
                indices,
                [self.params[k] for k in indices],
            )
            for key, indices in together.items()
        ]
        for pack in packs:
            pack.adopt_state([self._state[k] for k in pack.indices])
        # Older flat arrays have lost these parameters, and are refused from now on.
        commit([(setattr, self, "_packs", packs), (setattr, self, "_resting", resting)])

    def _step_in_store(self, here: Store, refuse: Callable[[int], None] | None, where: Any) -> None:
        """Step in a store other than memory: parameters and state are assigned as Variables."""
        grads = [p.grad if is_trainable(p) else None for p in self.params]
        for k, p in enumerate(self.params):
            if refuse is not None and grads[k] is None and is_trainable(p):
                refuse(k)
        if where is False:
            return
        states = here.call_once(self, self._started)  # a trace does not change the optimizer itself
        rules = [group.rule_in(here) for group in self.groups for _ in group.params]
        with no_grad():
            for p, g, state, rule in zip(self.params, grads, states, rules, strict=True):
                if g is None:
                    continue
                for variable in state.values():
                    here.adopt(variable)
                if type(g) is SparseRows and rule.by_rows:
                    new_p, new = rule.update_rows(g, dict(state), p, where)
                else:
                    g = g.to_dense() if type(g) is SparseRows else g
                    (new_p,), (new,) = rule.update([g], [dict(state)], [p])
                    if where is not True:
                        new_p, new = chosen_step(where, (new_p, new), (p, dict(state)))
                p.assign(new_p)
                for name, variable in state.items():
                    variable.assign(new[name])

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to None."""
        if store() is not MEMORY:
            for p in self.params:
                p.zero_grad()
            return
        with write_lock():
            wait_for_programs()
            # A copy of a frozen parameter has no info.
            for info in [p._info for p in self.params if p._info is not None]:
                info.grad = info.loan = None

    # -------------------------------------------------------------- saving

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packs": [], "_resting": self.params, "_updates": None}

    def state_dict(self) -> dict[str, Any]:
        """Return the settings, and the state of each parameter in order, as copies.

        ``"settings"`` are those that all groups share; ``"groups"`` has for each group how many
        parameters it has, and its other settings.
        """
        return self._saved(host_copy)

    def _saved(self, take: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the state dict, with arrays copied by ``take``."""
        self._refuse_state("state_dict")
        groups = self._saved_groups()
        with write_lock():
            wait_for_programs()
            state = _copied_states(self._state, take)
        return groups | {"state": state}

    def _saved_groups(self) -> dict[str, Any]:
        """Return the entries of the state dict for settings and groups."""
        shared = self.settings()
        groups = [
            {
                "count": len(group.params),
                "settings": {n: v for n, v in group.settings().items() if n not in shared},
            }
            for group in self.groups
        ]
        return {"settings": shared, "groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; the parameters must be as many and as large.

        Raises:
            ShapeError, OdysseyError: for another number, shape or setting; nothing has changed.
        """
        with write_lock():
            wait_for_programs()
            changes, plan = self._read_state(saved, host_copy)
            commit([*self._settings_calls(changes), *plan])

    def _read_state(
        self, saved: Any, take: Callable[..., Any]
    ) -> tuple[list[tuple[dict[str, Any], Rule]], Plan]:
        """Return the settings and the calls by which ``load_state_dict`` restores the state.

        Args:
            saved: The result of ``state_dict``.
            take: ``host_copy``, or ``np.asarray`` if the arrays of ``saved`` have no other owner.
        """
        self._refuse_state("load_state_dict")
        changes, rules = self._read_settings(saved)
        return changes, self._state_calls(saved["state"], rules, take)

    def _read_settings(self, saved: Any) -> tuple[list[tuple[dict[str, Any], Rule]], list[Rule]]:
        """Return the settings of a state dict that fits, and the rule of each parameter."""
        check_form(saved)
        self._refuse_other_state(saved["state"])
        counts = [entry["count"] for entry in saved["groups"]]
        if counts != [len(group.params) for group in self.groups]:
            raise ShapeError(
                f"load_state_dict: groups of {format_value(counts)} parameters came for groups of "
                f"{[len(group.params) for group in self.groups]}"
            )
        settings = [saved["settings"] | entry["settings"] for entry in saved["groups"]]
        for found in settings:
            if set(found) != set(self._names):
                raise OdysseyError(
                    f"load_state_dict: the settings are {sorted(found)}, not {sorted(self._names)}"
                )
        changes = [g.with_settings(**found) for g, found in zip(self.groups, settings, strict=True)]
        rules = [rule for g, (_, rule) in zip(self.groups, changes, strict=True) for _ in g.params]
        return changes, rules

    def _refuse_other_state(self, state: list[dict[str, Any]]) -> None:
        if len(state) != len(self.params):
            raise ShapeError(
                f"load_state_dict: state of {len(state)} parameters came for {len(self.params)}"
            )
        rules = [group.rule() for group in self.groups for _ in group.params]
        for k, (s, rule) in enumerate(zip(state, rules, strict=True)):
            for name, value in s.items():
                self._refuse_master(k, name, rule)
                value = as_array("load_state_dict", f"{name} of {self._param_name(k)}", value)
                shape = self.params[k].shape
                expected = () if name == "steps" else rule.shape_of_slot(name, shape)
                dtype = state_dtype(self.params[k].dtype)
                dtype = np.dtype(np.int64) if name == "steps" else dtype
                if not np.can_cast(_dtype_of(name, value), dtype, "same_kind"):
                    raise DTypeError(
                        f"load_state_dict: {name} of parameter {self._param_name(k)} is "
                        f"{format_value(value)}; it must be of {dtype}"
                    )
                if value.shape != expected:
                    raise ShapeError(
                        f"load_state_dict: {name} of parameter {self._param_name(k)} has shape "
                        f"{value.shape}, not {expected}"
                    )
                if name == "steps":
                    check_number("load_state_dict", "steps", value, "[0, 9e18]")

    def _refuse_master(self, k: int, name: str, rule: Rule) -> None:
        dtype = self.params[k].dtype
        if name == MASTER and name not in rule.slots_for(dtype):
            raise DTypeError(
                f"load_state_dict: the state of parameter {self._param_name(k)} has master "
                f"weights, as of half precision, and it is {dtype}; assign them to the parameter "
                f"if you like, and drop the entry {name!r}"
            )

    def _state_calls(
        self, saved: list[dict[str, Any]], rules: list[Rule], take: Callable[..., Any]
    ) -> Plan:
        """Return the calls that write into the existing arrays, which compiled steps refer to.

        Those of a device are replaced, since a write there may fail for want of memory.
        """
        plan: Plan = []
        places = zip(self.params, self._paths, self._state, saved, rules, strict=True)
        for p, path, state, values, rule in places:
            if not {"steps", *rule.slots_for(p.dtype)} <= values.keys():
                values = rule.init([p])[0] | values
            plan += [(state.pop, name, None) for name in state.keys() - values.keys()]
            for name, value in values.items():
                if name in state:
                    array = place_beside(take(value, state[name].dtype), state[name])
                    if namespace_of(array) is np:
                        plan.append((setitem, state[name]._array, ..., array))
                    else:
                        plan += assign_plan(state[name], array)
                else:
                    array = take(value, np.int64 if name == "steps" else state_dtype(p.dtype))
                    array = array if name == "steps" else place_beside(array, p)
                    new = Variable(array, name=f"{p.name or path or 'params'}.{name}")
                    plan.append((setitem, state, name, new))
        return plan


def _truth_of(who: str, flag: Any) -> Any:
    """Return a truth value as True, False or a Symbol; raise for what is none."""
    value = operand_of(flag)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    known = isinstance(value, (*ARRAY_LIKE, Symbol))
    if not known or value.dtype != np.bool_:
        raise DTypeError(
            f"{who}: where={format_value(flag)}; pass one truth value, as "
            "ops.all(ops.isfinite(norm)) is"
        )
    if value.shape:
        raise ShapeError(
            f"{who}: where has shape {value.shape}; pass one truth value: a step moves all "
            "parameters or none, see ops.all"
        )
    return value if isinstance(value, Symbol) else bool(value)


def _copied_states(
    states: list[dict[str, Variable]], take: Callable[[Any], Any]
) -> list[dict[str, Any]]:
    def own(v: Variable) -> Any:
        return take(numbers_of("an optimizer's state_dict", v))

    return [{name: own(v) for name, v in state.items()} for state in states]


def _dtype_of(name: str, value: Any) -> np.dtype[Any]:
    if isinstance(value, ARRAY_LIKE):
        return value.dtype
    try:
        return np.asarray(value).dtype
    except STUMBLES as error:
        raise DTypeError(f"load_state_dict: {name} is {format_value(value)}: {error}") from error


def _new_pack(on_device: bool, group: Group, indices: list[int], params: list[Variable]) -> Any:
    """Return FlatParameters, or DeviceParameters, which are imported at the first use."""
    if not on_device:
        return FlatParameters(group, indices, params)
    from odyssey.optim.device_parameters import DeviceParameters

    return DeviceParameters(group, indices, params)
