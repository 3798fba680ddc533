"""Updates in place, derived from the pure rule: equal to it bit for bit, whatever comes."""

import importlib.util
import itertools
import random
from contextlib import suppress

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops, optim
from odyssey.graph.graph import Instruction, Ref, last_uses, live_instructions
from odyssey.optim.fused_step import fused_update
from odyssey.optim.inplace_codegen import compile_in_place
from odyssey.spec import Spec
from support.faults import FAULTS, RAISED
from support.optimizers import OPTIMIZERS, draw, optimizer_classes, settings_of
from support.sgd_cases import SETTINGS as SGD_SETTINGS

CASES = {name: (entry[0], entry[1], entry[3]) for name, entry in OPTIMIZERS.items()} | {
    f"sgd {name}": (optim.SGD, optim.sgd, {"learning_rate": 0.1} | settings)
    for name, settings in SGD_SETTINGS.items()
}
DTYPES = ("float16", "float32", "float64", "longdouble", "complex64", "complex128")
SHAPES = ((3,), (), (0, 3), (2, 4), (130, 130), (300, 500))

# Those that are not elementwise run as they are.
CASES = {name: case for name, case in CASES.items() if case[1](**case[2]).elementwise}

cases = pytest.mark.parametrize("case", CASES)


def flags():
    """Every class with each of its flags and shares on and off, all together."""
    for name, kind in optimizer_classes().items():
        if kind in (optim.LARS, optim.Adafactor, optim.Muon):
            continue
        choices = {}
        for setting, default in settings_of(kind).items():
            if isinstance(default, bool):
                choices[setting] = (False, True)
            elif default == 0.0 or setting == "momentum":
                choices[setting] = (0.0, 0.3)
        for values in itertools.product(*choices.values()):
            settings = dict(zip(choices, values, strict=True))
            if settings.get("nesterov") and (settings["dampening"] or not settings["momentum"]):
                continue
            if settings.get("lazy") and settings["weight_decay"]:
                continue
            yield pytest.param(kind, settings, id=f"{name} {tuple(map(float, values))}")


class Pure:
    """The same parameters, moved by the pure rule alone, one by one."""

    def __init__(self, make, params, settings):
        self.rule = make(**settings)
        self.params = [p.numpy().copy() for p in params]
        self.state = self.rule.init(self.params)

    def step(self, grads):
        for k, g in enumerate(grads):
            if g is not None:
                (p,), (s,) = self.rule.update([g], [self.state[k]], [self.params[k]])
                self.params[k], self.state[k] = np.asarray(p, self.params[k].dtype), s


def same(params, optimizer, pure):
    for p, q, s, t in zip(
        params, pure.params, optimizer.state_dict()["state"], pure.state, strict=True
    ):
        assert p.dtype == q.dtype
        np.testing.assert_array_equal(p.numpy(), q)
        if s:
            assert s.keys() == t.keys()
            for name, value in s.items():
                np.testing.assert_array_equal(value, t[name])


def gradient(rng, p):
    """A gradient of any layout; it may hold zeros of either sign."""
    g = draw(rng, p.shape, p.dtype)
    g = np.where(rng.random(p.shape) < 0.1, g.dtype.type(-0.0), g).astype(p.dtype)
    if p.ndim == 2 and rng.random() < 0.5:
        return np.asfortranarray(g)
    return np.repeat(g, 2, axis=-1)[..., ::2] if p.ndim and rng.random() < 0.5 else g


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype", DTYPES)
@cases
def test_steps_in_place_equal_the_pure_rule_bit_for_bit(case, dtype):
    kind, make, settings = CASES[case]
    rng = np.random.default_rng(4)
    shapes = SHAPES if dtype in ("float32", "complex128") else SHAPES[:-2]
    params = [Variable(draw(rng, shape, dtype), requires_grad=True) for shape in shapes]
    optimizer, pure = kind(params, **settings), Pure(make, params, settings)
    for step in range(7):
        # At first all, then without one, whose count of steps is another one from then on.
        skipped = 1 if step in (2, 3) else None
        grads = [None if k == skipped else gradient(rng, p) for k, p in enumerate(params)]
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        if step == 5:
            rate = optimizer.learning_rate / 3
            optimizer.learning_rate = rate
            pure.rule = make(**settings | {"learning_rate": rate})
        optimizer.step(allow_missing=skipped is not None)
        pure.step(grads)
        same(params, optimizer, pure)


@pytest.mark.parametrize(("kind", "settings"), list(flags()))
def test_every_flag_and_share_is_followed_bit_for_bit(kind, settings):
    rng = np.random.default_rng(9)
    settings = {"learning_rate": 0.05} | settings
    params = [Variable(draw(rng, s, np.float32), requires_grad=True) for s in ((5,), (2, 3), ())]
    optimizer = kind(params, **settings)
    pure = Pure(getattr(optim, kind.__name__.lower()), params, settings)
    for _ in range(4):
        grads = [gradient(rng, p) for p in params]
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        optimizer.step()
        pure.step(grads)
    same(params, optimizer, pure)


def test_what_is_beside_a_parameter_alone_moves_as_the_pure_rule_says():
    for shape in ((4,), (20_000,), (140_000,)):
        rng = np.random.default_rng(1)
        w = Variable(draw(rng, shape, np.float32), requires_grad=True)
        optimizer, pure = optim.Adam([w], amsgrad=True), Pure(optim.adam, [w], {"amsgrad": True})
        for _ in range(3):
            w.grad = g = gradient(rng, w)
            optimizer.step()
            pure.step([g])
        same([w], optimizer, pure)


def test_settings_that_change_between_steps_are_followed():
    rng = np.random.default_rng(5)
    params = [Variable(draw(rng, (6,), np.float64), requires_grad=True) for _ in range(2)]
    optimizer = optim.Adam(params, amsgrad=True)
    pure = Pure(optim.adam, params, optimizer.settings())
    for change in ({}, {"eps": 1e-3}, {"betas": (0.5, 0.5)}, {"weight_decay": 0.1}, {"eps": 1e-8}):
        optimizer.groups[0].change(**change)
        pure.rule = optim.adam(**optimizer.settings())
        for _ in range(2):
            grads = [gradient(rng, p) for p in params]
            for p, g in zip(params, grads, strict=True):
                p.grad = g
            optimizer.step()
            pure.step(grads)
    same(params, optimizer, pure)


# ------------------------------------------------------------------ what is derived


# NAdam moves by two quotients of one divisor, and keeps its product of momenta an element.
SCRATCH = {"nadam": 4, "nadam_decoupled": 4, "nadam_settings": 4}


@cases
def test_every_elementwise_rule_is_derived_with_two_scratch_arrays_at_most(case):
    _, make, settings = CASES[case]
    for dtype in ("float16", "float32", "float64", "longdouble"):
        program = compile_in_place(make, settings, np.dtype(dtype))
        assert program is not None
        assert program.scratch <= SCRATCH.get(case, 2)
        assert all(call.out != "g" for call in program.calls)


def test_plain_descent_needs_one_scratch_array():
    assert compile_in_place(optim.sgd, {"learning_rate": 0.1}, np.dtype("f")).scratch == 1


def test_the_arrays_of_a_step_are_those_of_the_first():
    params = [Variable(np.ones(s), requires_grad=True) for s in ((50,), (30, 10))]
    optimizer = optim.Adam(params)
    for p in params:
        p.grad = np.ones(p.shape)
    optimizer.step()
    places = [p.numpy().ctypes.data for p in params]
    (pack,) = optimizer._packs
    plan = pack._calls
    assert len(plan) > 10
    for _ in range(3):
        optimizer.step()
    assert [p.numpy().ctypes.data for p in params] == places
    assert pack._calls is plan
    optimizer.learning_rate = 0.5  # only a number changes
    optimizer.step()
    assert pack._calls is plan


def test_optimizers_with_the_same_settings_share_a_program_at_any_rate():
    def program(**settings):
        optimizer = optim.Adam([Variable(np.ones(3), requires_grad=True)], **settings)
        return optimizer.groups[0].program(np.dtype("d"))

    first = program(eps=0.5)
    assert program(eps=0.5, learning_rate=0.25) is first
    assert program(eps=0.25) is not first
    assert program(eps=0.5, betas=(0.0, 0.5)) is not program(eps=0.5, betas=(-0.0, 0.5))
    for k in range(100):
        program(eps=1.0 + k)
    assert len(optim.adam.programs) <= 64


def test_settings_that_letters_do_not_tell_apart_have_programs_of_their_own():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def __repr__(self):
            return "Scale"

    class Scaled(optim.Optimizer):
        def __init__(self, params, learning_rate=0.1, scale="none"):
            optim.Optimizer.__init__(**locals())

    @optim.rule_of(Scaled)
    def scaled(s):
        factor = s.scale.factor
        return optim.Rule((), lambda g, t, p: (ops.subtract(p, ops.multiply(factor, g)), t))

    w, v = (Variable(np.zeros(2), requires_grad=True) for _ in range(2))
    first, second = Scaled([w], scale=Scale(1.0)), Scaled([v], scale=Scale(2.0))
    w.grad = v.grad = np.ones(2)
    for _ in range(2):
        first.step()
        second.step()
    first.scale = Scale(4.0)
    first.step()
    assert (float(w[0].item()), float(v[0].item())) == (-6.0, -4.0)
    assert not scaled.programs


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "stride"), [("opcode", 499), ("line", 53), ("allocation", 1)])
def test_a_fault_while_a_rule_is_derived_leaves_a_whole_step_or_none(fault, stride):
    def start():
        optim.adam.programs.clear()
        params = [Variable(np.ones(s), requires_grad=True) for s in ((3,), (2, 2))]
        for p in params:
            p.grad = np.full(p.shape, 0.5)
        return params, optim.Adam(params, learning_rate=0.25, weight_decay=0.1)

    def look(params, optimizer):
        state = optimizer.state_dict()["state"]
        found = [p.numpy().tolist() for p in params]
        return [found, [{n: v.tolist() for n, v in s.items() if v.any()} for s in state]]

    wanted = start()
    looks = [look(*wanted)]
    for _ in range(2):
        wanted[1].step()
        looks.append(look(*wanted))
    for n in itertools.count(1, stride):
        params, optimizer = start()
        with FAULTS[fault](n) as fired, suppress(*RAISED):
            optimizer.step()
        found = look(params, optimizer)
        assert found in looks[:2], fired
        optimizer.step()
        assert look(params, optimizer) == looks[looks.index(found) + 1], fired
        if not fired:
            break
    assert n > 1


# ------------------------------------------------------------------ rules of one's own


def declared(step, slots=("a", "b"), start=0.0):
    class Own(optim.Optimizer):
        def __init__(self, params, learning_rate=0.25, power=0.5):
            optim.Optimizer.__init__(**locals())

    @optim.rule_of(Own)
    def own(s):
        return optim.Rule(slots, lambda g, state, p: step(s, g, state, p), start=start)

    return Own, own


def rate(s, p):
    return ops.astype(s.learning_rate, p.dtype)


STEPS = {
    "slots exchanged": lambda s, g, t, p: (
        ops.subtract(p, g),
        t | {"a": t["b"], "b": ops.add(t["a"], g)},
    ),
    "the gradient kept": lambda s, g, t, p: (ops.subtract(p, t["a"]), t | {"a": g, "b": t["a"]}),
    "one value in two slots": lambda s, g, t, p: (
        ops.subtract(p, g),
        t | {"a": (v := ops.multiply(g, p)), "b": v},
    ),
    "the new parameter in a slot": lambda s, g, t, p: (
        q := ops.subtract(p, ops.multiply(rate(s, p), g)),
        t | {"a": q},
    ),
    "the old parameter in a slot": lambda s, g, t, p: (
        ops.subtract(p, ops.multiply(rate(s, p), g)),
        t | {"b": p},
    ),
    "nothing changes": lambda s, g, t, p: (p, t),
    "a choice by element": lambda s, g, t, p: (
        ops.where(ops.greater(g, 0), ops.subtract(p, g), p),
        t | {"a": ops.maximum(t["a"], g)},
    ),
    "a choice by number": lambda s, g, t, p: (
        ops.where(ops.less(t["steps"], 2), ops.subtract(p, g), ops.add(p, t["a"])),
        t | {"a": ops.where(ops.equal(t["steps"], 1), 0.5, g)},
    ),
    "more than two at once": lambda s, g, t, p: (
        ops.add(
            ops.multiply(ops.add(p, g), ops.subtract(p, g)),
            ops.multiply(ops.add(t["a"], g), ops.add(ops.sqrt(ops.absolute(t["b"])), 1.0)),
        ),
        t | {"a": g, "b": ops.square(p)},
    ),
    "an op without a ufunc": lambda s, g, t, p: (ops.subtract(p, ops.tanh(ops.relu(g))), t),
    "wider than the parameter": lambda s, g, t, p: (
        ops.subtract(p, ops.multiply(np.float64(0.1), g)),
        t,
    ),
    "a power of the steps": lambda s, g, t, p: (
        ops.subtract(p, ops.multiply(ops.astype(ops.power(s.power, t["steps"]), p.dtype), g)),
        t | {"b": ops.sign(ops.add(g, t["b"]))},
    ),
    "Python's numbers asked": lambda s, g, t, p: (
        ops.subtract(p, g) if t["steps"] > 1 else ops.add(p, g),
        t,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", STEPS)
def test_whatever_a_rule_does_its_holder_does_the_same(name, dtype):
    kind, make = declared(STEPS[name])
    rng = np.random.default_rng(8)
    params = [Variable(draw(rng, s, dtype), requires_grad=True) for s in ((4,), (2, 2), ())]
    optimizer, pure = kind(params), Pure(make, params, {})
    for _ in range(4):
        grads = [gradient(rng, p) for p in params]
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        optimizer.step()
        pure.step(grads)
    for p, q in zip(params, pure.params, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.astype(dtype))


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=["number", "one", "many"])
@pytest.mark.parametrize("op", [ops.multiply, ops.hypot, ops.maximum, ops.subtract])
def test_an_array_that_a_rule_reads_from_elsewhere_may_change_between_steps(op, shape):
    mask = np.ones(shape)
    kind, _ = declared(lambda s, g, state, p: (op(p, mask), state), ())
    w = Variable(np.array([1.0, 2.0, 4.0]), requires_grad=True)
    optimizer, expected = kind([w]), w.numpy().copy()
    w.grad = np.ones(3)
    for value in (1.0, 3.0, 0.25):
        mask[...] = value
        optimizer.step()
        expected = op(expected, mask)
        assert w.numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("draws", ["array", "scalar"])
def test_noise_of_a_rule_is_drawn_anew_at_each_step(draws):
    rng = np.random.default_rng(3)

    def step(s, g, state, p):
        noise = rng.normal(size=p.shape) if draws == "array" else rng.normal()
        return ops.add(p, noise), state

    kind, _ = declared(step, ())
    w = Variable(np.zeros(3), requires_grad=True)
    optimizer, seen = kind([w]), [w.numpy().copy()]
    w.grad = np.ones(3)
    for _ in range(3):
        optimizer.step()
        seen.append(w.numpy().copy())
    moves = np.diff(seen, axis=0)
    assert len(np.unique(moves[:, 0])) == 3


def test_a_rule_that_nobody_declared_is_run_as_it_is():
    generator = random.Random(0)

    def noisy(learning_rate):
        return optim.Rule((), lambda g, s, p: (ops.add(p, generator.random()), s))

    w = Variable(np.zeros(3), requires_grad=True)
    optimizer = optim.Optimizer([w], noisy, learning_rate=0.1)
    w.grad = np.ones(3)
    seen = []
    for _ in range(3):
        optimizer.step()
        seen.append(float(w[0].item()))
    assert len(set(np.diff([0.0, *seen]))) == 3


def test_an_optimizer_without_a_rule_says_so():
    with pytest.raises(od.errors.OdysseyError, match="Optimizer has no rule; declare one"):
        optim.Optimizer([Variable(1.0, requires_grad=True)], learning_rate=0.1)


# ------------------------------------------------------------------ lifetimes


def test_lifetimes_leave_out_what_nobody_reads_and_tell_the_last_use():
    row, spec = ops.add.row, Spec((3,), np.dtype("d"))
    # The fourth call has two results, of which one is read.
    calls = [((0, 1), (2,)), ((2, 2), (3,)), ((0, 2), (4,)), ((4, 4), (5, 6)), ((6, 1), (7,))]
    graph = [
        Instruction(row, tuple(map(Ref, operands)), (), ids, (spec,) * len(ids))
        for operands, ids in calls
    ]
    live = live_instructions(graph, [7])
    assert [one.ids for one in live] == [(2,), (4,), (5, 6), (7,)]
    assert last_uses(live, [7, 0]) == {0: 4, 1: 3, 2: 1, 4: 2, 6: 3, 7: 4}


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba compiles the loops")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@cases
def test_a_compiled_step_of_a_large_pack_has_the_bits_of_numpy(case, dtype):
    cls, _, settings = CASES[case]
    rng = np.random.default_rng(0)
    start = [rng.normal(size=n).astype(dtype) for n in (40_000, 7, 20_000)]
    steps = [[rng.normal(size=p.size).astype(dtype) for p in start] for _ in range(3)]
    found = []
    for device in ("numpy", "cpu"):
        with ops.use_kernels(device):
            leaves = [Variable(p, requires_grad=True) for p in start]
            optimizer = cls(leaves, **settings)
            for gradients in steps:
                for p, g in zip(leaves, gradients, strict=True):
                    p.grad = g
                optimizer.step()
        found.append([p.numpy() for p in leaves])
    for got, wanted in zip(*found, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba compiles the loops")
@pytest.mark.parametrize(("count", "compiled"), [(20, True), (2, False)])
def test_steps_are_compiled_where_their_parameters_are_large_together(monkeypatch, count, compiled):
    made = []

    def noted(*given):
        made.append(fused_update(*given))
        return made[-1]

    monkeypatch.setattr("odyssey.optim.flat_parameters.fused_update", noted)
    leaves = [Variable(np.zeros(20_000), requires_grad=True) for _ in range(count)]
    optimizer = optim.SGD(leaves, 0.1, momentum=0.9)
    for p in leaves:
        p.grad = np.ones(p.shape)
    optimizer.step()
    assert [update is not None for update in made] == [compiled] * count
    assert all((p.numpy() == -0.1).all() for p in leaves)
