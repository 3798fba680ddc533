"""Doors to transforms, Variables, tapes and NumPy's functions; and all doors together."""

import copy
import operator
import pickle
from itertools import islice

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops, optim
from odyssey.ops import COMPOSITES, OPS
from support.doors import (
    array,
    either,
    loss_doors,
    of_backward,
    of_composite,
    of_row,
    optim_doors,
    optimizer,
    setting,
    simple,
    swept,
)
from support.hostile import Point, hostile, mixed
from support.loop_doors import loop_doors
from support.parallel_doors import parallel_doors
from support.saving_doors import saving_doors

# ------------------------------------------------------------------ functions of functions


def user_pair(x, *rest):
    return ops.sum(ops.square(x)), rest


def fn(rng):
    chance = rng.random()
    if chance < 0.5:
        return lambda x, *rest: ops.sum(ops.multiply(x, x))
    if chance < 0.6:
        return user_pair
    if chance < 0.8:
        return lambda x, *rest: ops.multiply(x, 2.0)
    value = hostile(rng)
    return lambda x, *rest: value


def applied(transform):
    def call(fn, *args, **named):
        made = transform(fn, **named)
        made(*args)

    return call


def said(number):
    """Say how many threads there are, and take it back."""
    try:
        od.set_threads(number)
    finally:
        od.set_threads(None)


def autocasting(name, x):
    """The product of an array with itself in a block of autocast."""
    with od.autocast(name):
        return ops.matmul(x, ops.swapaxes(x, 0, 1))


def compiled(rng):
    """A compiled function of one op, whose options are hostile."""
    row = list(OPS.values())[rng.integers(len(OPS))]
    sample = row.samples[rng.integers(len(row.samples))] if row.samples else None
    if sample is None:
        return (lambda: None), [], {}, False
    args, options = mixed(rng, sample.arrays(rng), sample.options, row.options)
    return od.compile(lambda *given: row.call(*given, **options)), args, {}, False


def compiled_step(rng):
    return od.compile(fn(rng)) if rng.random() < 0.7 else hostile(rng)


def tuned(step, x, **named):
    """Tune for no time, since each way takes a program."""
    return od.tune(step, x, **{"seconds": 0.0} | named)


def custom(fn, forward, backward, *args):
    made = od.custom_vjp(fn)
    made.defvjp(forward, backward)
    w = Variable(np.ones(2), True)
    with GradientTape() as tape:
        y = made(w, *args)
    tape.gradient(y, w, np.ones(2))


def transform_doors():
    doors = {}
    for name in ("grad", "value_and_grad", "jacobian", "hessian"):
        doors[name] = simple(
            applied(getattr(od, name)), fn, lambda rng: rng.normal(size=3), 2.0,
            extra=["argnums", "has_aux"],
        )  # fmt: skip
    doors["vjp"] = simple(
        lambda fn, x, g, **n: od.vjp(fn, x, **n)[1](g), fn, lambda rng: rng.normal(size=3), 1.0,
        extra=["has_aux"],
    )  # fmt: skip
    vector = lambda rng: rng.normal(size=3)  # noqa: E731
    doors["jvp"] = simple(od.jvp, fn, vector, vector, extra=["has_aux"])
    doors["hvp"] = simple(od.hvp, fn, vector, vector)
    doors["vmap"] = simple(
        applied(od.vmap), fn, lambda rng: rng.normal(size=(4, 3)),
        extra=["in_axes", "out_axes", "chunk"],
    )  # fmt: skip
    doors["checkpoint"] = simple(
        lambda f, x: swept(od.checkpoint(f))(x), fn, lambda rng: either(rng), extra=[]
    )
    doors["custom_vjp"] = simple(
        custom, lambda rng: lambda x, *r: ops.multiply(x, 2.0),
        lambda rng: lambda x, *r: (x * 2.0, x),
        lambda rng: (lambda value: lambda r, g: value)(g_of(rng)),
    )  # fmt: skip
    doors["compiled op"] = compiled
    doors |= loop_doors(fn)
    doors["stop_gradient"] = simple(od.stop_gradient, either)
    doors["compile"] = simple(applied(od.compile), fn, either)
    doors["plans"] = simple(lambda f, *a: list(islice(od.plans(f, *a), 3)), compiled_step, either)
    doors["tune"] = simple(tuned, compiled_step, either, extra=["seconds"])
    doors["Plan"] = simple(
        lambda ways, text: (od.Plan(ways), od.Plan.from_json(text)),
        lambda rng: {} if rng.random() < 0.5 else hostile(rng),
        lambda rng: od.Plan().to_json() if rng.random() < 0.3 else hostile(rng),
    )
    doors["Dim"] = simple(od.Dim, lambda rng: ("n", 1, hostile(rng))[rng.integers(3)])
    doors["Spec"] = simple(
        od.Spec, lambda rng: (2, 3), lambda rng: (float, hostile(rng))[rng.integers(2)]
    )
    doors["seed"] = simple(seeded, lambda rng: (1, hostile(rng))[rng.integers(2)])
    doors["autocast"] = simple(
        autocasting, lambda rng: ("bfloat16", "tf32", None, hostile(rng))[rng.integers(4)], array
    )
    doors["set_threads"] = simple(said, lambda rng: (1, 2, None, hostile(rng))[rng.integers(4)])
    doors["lower"] = simple(lambda f, *a: od.compile(f).lower(*a), fn, either)
    doors["testing.check_gradients"] = simple(
        od.testing.check_gradients, fn, vector,
        extra=["order", "modes", "tolerance", "step", "seed", "complex_step"],
    )  # fmt: skip
    doors["op"] = simple(declared, lambda rng: rng.normal(size=2), extra=list(DECLARED))
    return doors


def seeded(seed):
    try:
        od.seed(seed)
    finally:
        od.seed(0)


def g_of(rng):
    return np.ones(2) if rng.random() < 0.3 else hostile(rng)


DECLARED = ("vjp", "jvp", "vmap", "elementwise", "keeps_dtype", "linear", "selects", "real",
            "ufunc", "kernel", "forward", "infer", "prepare", "canonical", "scalar", "numpy",
            "aliases", "kinks", "samples", "rejects")  # fmt: skip


def declared(x, **named):
    def twice(x, /, scale=2.0):
        return np.multiply(x, scale)

    made = od.op(**{"elementwise": True, "vjp": {"x": lambda g, scale: ops.mul(g, scale)}} | named)
    swept(made(twice))(Variable(x, True))


# ------------------------------------------------------------------ Variables and tapes


def any_value(rng):
    chance = rng.random()
    if chance < 0.5:
        return Variable(rng.normal(size=(2, 3)), True, name="w")
    if chance < 0.7:
        return Variable(rng.normal(size=(2, 3)))
    w = Variable(rng.normal(size=(2, 3)), True)
    with GradientTape(persistent=True) as tape:
        y = w * 2.0
    y_tape_alive.append(tape)
    del y_tape_alive[:-1]
    return y


y_tape_alive = []

METHODS = {
    "sum": [0], "mean": [0], "max": [0], "min": [0], "argmax": [0], "argmin": [0], "any": [0],
    "all": [0], "round": [1], "clip": [0.0, 1.0], "var": [0], "std": [0], "prod": [0],
    "cumsum": [0], "cumprod": [0], "dot": [np.ones(3)], "take": [[0]], "repeat": [2],
    "ravel": ["C"],
    "flatten": ["C"], "squeeze": [None], "swapaxes": [0, 1], "reshape": [3, 2], "transpose": [1, 0],
    "astype": [np.float32], "conj": [], "assign": [np.ones((2, 3))], "item": [], "numpy": [],
    "detach": [], "zero_grad": [], "backward": [np.ones((2, 3))], "to": ["cpu"], "__getitem__": [0],
    "__setitem__": [0, 1.0], "__format__": [".3f"], "__array__": [np.float64], "__len__": [],
    "__iter__": [], "__repr__": [], "_repr_html_": [],  "__contains__": [1.0],
    "__float__": [], "__int__": [], "__index__": [], "__complex__": [], "__bool__": [],
    "__copy__": [], "__reduce__": [], "__round__": [1], "__divmod__": [2.0],
}  # fmt: skip


def method(name, args):
    def door(rng):
        value = any_value(rng)
        if not hasattr(value, name):
            return (lambda: None), [], {}, True
        extra = ["axis", "keepdims", "ddof", "order", "mode"] if rng.random() < 0.3 else []
        given, named = mixed(rng, args, {}, extra)
        return getattr(value, name), given, named, True

    return door


OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "eq", "ne", "lt",
             "le", "gt", "ge", "and_", "or_", "xor", "iadd", "isub", "imul", "itruediv", "ipow",
             "imatmul", "ifloordiv", "imod", "getitem", "contains"]  # fmt: skip


def apply(name):
    def door(rng):
        args = [any_value(rng), hostile(rng)]
        if rng.random() < 0.4 and name not in ("getitem", "contains"):
            args.reverse()
        call = getattr(operator, name)
        return (swept(call) if rng.random() < 0.4 else call), args, {}, True

    return door


def recorded(rng):
    """A tape with something on it, its leaf, an intermediate and the output."""
    w = Variable(rng.normal(size=(2, 3)), True, name="w")
    with GradientTape(persistent=bool(rng.random() < 0.3), check=bool(rng.random() < 0.2)) as tape:
        h = w * 2.0
        y = h.sum()
    if rng.random() < 0.3:
        tape.enable()
    return tape, w, h, y


def on_tape(name, make, *extra):
    def door(rng):
        tape, w, h, y = recorded(rng)
        args, named = mixed(rng, *make(rng, w, h, y), extra)

        def call(*args, **named):
            try:
                return getattr(tape, name)(*args, **named)
            finally:
                tape.clear()

        return call, args, named, name in ("backward",)

    return door


def hooked(rng):
    tape, _, h, y = recorded(rng)
    source = hostile(rng) if rng.random() < 0.3 else h
    value = hostile(rng) if rng.random() < 0.7 else None
    call = hostile(rng) if rng.random() < 0.3 else (lambda g: value)

    def run():
        try:
            tape.on_gradient(source, call)
            tape.backward(y)
        finally:
            tape.clear()

    return run, [], {}, True


def manual(rng):
    tape, w, h, _ = recorded(rng)
    name = list(OPS)[rng.integers(len(OPS))] if rng.random() < 0.7 else "multiply"
    row = OPS[name]
    out = tape.constant(np.ones((2, 3)))
    inputs = [w, h][: len(row.arrays)] + [w] * max(len(row.arrays) - 2, 0)
    args, named = mixed(rng, [name, inputs, out], {}, (*row.options, *row.arrays, "out"))
    if rng.random() < 0.3:
        args = [args[0], [hostile(rng) for _ in row.arrays], *args[2:]]

    def call(*args, **named):
        tape.enable()
        try:
            tape.record(*args, **named)
            tape.backward(out, np.ones(out.shape))
        finally:
            tape.clear()

    return call, args, named, True


def named_reports(name, tape_name="w"):
    tape = GradientTape()
    with tape:
        w = tape.variable(np.ones(2), name)
        y = w * 2.0
    try:
        tape.to_dot(), tape.to_mermaid(), tape._repr_html_(), repr(y), y._repr_html_(), repr(w)
        tape.explain(y, w), tape.memory(), tape.nodes, tape.ids, repr(tape)
    finally:
        tape.clear()


def tape_doors():
    doors = {
        "tape.backward": on_tape("backward", lambda rng, w, h, y: ([y, None], {}), "retain"),
        "tape.gradient": on_tape(
            "gradient", lambda rng, w, h, y: ([y, [w, h]], {}), "unused", "create_graph", "grad"
        ),
        "tape.jvp": on_tape("jvp", lambda rng, w, h, y: ([y, w, np.ones((2, 3))], {}), "unused"),
        "tape.watch": on_tape("watch", lambda rng, w, h, y: ([{"w": array(rng)}], {})),
        "tape.variable": on_tape("variable", lambda rng, w, h, y: ([array(rng), "w"], {})),
        "tape.constant": on_tape("constant", lambda rng, w, h, y: ([array(rng)], {})),
        "tape.explain": on_tape("explain", lambda rng, w, h, y: ([y, w], {})),
        "tape.memory": on_tape("memory", lambda rng, w, h, y: ([], {})),
        "tape.on_gradient": hooked,
        "tape.record": manual,
        "tape.reports": simple(named_reports, "w"),
        "GradientTape": simple(GradientTape, extra=["persistent", "check"]),
        "ops.tape=": simple(ops.add, array, array, tape=lambda rng: None),
        "ops.sum.tape=": simple(ops.sum, array, tape=lambda rng: None),
    }
    names = [n for n in vars(GradientTape) if n.startswith("record_")]

    def by_name(rng):
        tape, w, h, _ = recorded(rng)
        name = names[rng.integers(len(names))]
        args, named = mixed(rng, [w, h, tape.constant(np.ones((2, 3)))], {}, ("axis", "out", "x"))

        def call(*args, **named):
            tape.enable()
            try:
                getattr(tape, name)(*args, **named)
            finally:
                tape.clear()

        return call, args, named, True

    doors["tape.record_op"] = by_name
    return doors


def mapping(name):
    def door(rng):
        tape, w, _, y = recorded(rng)
        gradients = tape.backward(y)
        tape.clear()
        call = getattr(gradients, name)
        return call, [hostile(rng)] if rng.random() < 0.8 else [w], {}, True

    return door


def variable_doors():
    doors = {
        "Variable": simple(
            Variable, array, extra=["requires_grad", "tape", "name", "dtype", "device"]
        ),
        "Variable.data=": simple(lambda v, x: setting(v, "data", x), any_value, array, writes=True),
        "Variable.grad=": simple(lambda v, x: setting(v, "grad", x), any_value, array, writes=True),
        "Variable.name=": simple(lambda v, x: setting(v, "name", x), any_value, "w"),
        "Variable.requires_grad=": simple(
            lambda v, x: setting(v, "requires_grad", x), any_value, True
        ),
        "Variable.detach_into": simple(
            lambda t: Variable(1.0, True).detach_into(t), lambda r: GradientTape()
        ),
        "copies": simple(copied, copied_of),
    }
    doors |= {f"Variable.{name}": method(name, args) for name, args in METHODS.items()}
    doors |= {f"operator.{name}": apply(name) for name in OPERATORS}
    return doors


def copied_of(rng):
    tape, w, h, y = recorded(rng)
    things = [tape, w, h, tape._recording, tape.backward(y), optimizer(rng)]
    tape.clear()
    return things[rng.integers(len(things))]


def copied(thing):
    by = [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
    if isinstance(thing, (Variable, GradientTape, optim.Optimizer, od.Gradients)):
        for way in by:
            try:
                way(thing)
            except od.errors.OdysseyError:
                continue


NUMPY = {
    "add": 2, "exp": 1, "sum": 1, "mean": 1, "concatenate": 1, "where": 3, "einsum": 2, "clip": 3,
    "reshape": 2, "transpose": 1, "var": 1, "std": 1, "max": 1, "matmul": 2, "dot": 2, "stack": 1,
    "split": 2, "take": 2, "cumsum": 1, "prod": 1, "sort": 1, "power": 2, "arctan2": 2, "pad": 2,
    "roll": 2, "tile": 2, "repeat": 2, "trace": 1, "outer": 2, "tensordot": 2, "argmax": 1,
    "linalg.norm": 1, "linalg.inv": 1, "linalg.solve": 2, "linalg.det": 1, "squeeze": 1,
}  # fmt: skip


def of_numpy(name, count):
    function = np.linalg if "." in name else np
    function = getattr(function, name.split(".")[-1])

    def door(rng):
        first = Variable(rng.normal(size=(3, 3)), True)
        args = [first, *[array(rng) for _ in range(count - 1)]]
        names = ["axis", "keepdims", "out", "where", "dtype", "initial", "ddof"]
        args, named = mixed(rng, args, {}, names if rng.random() < 0.3 else ())
        if not any(isinstance(a, Variable) for a in args):
            args[:1] = [first]
        return function, args, named, True

    return door


def all_doors():
    """Every door by name."""
    doors = {f"ops.{name}": of_row(row) for name, row in OPS.items() if row.samples}
    doors |= {f"ops.{name}": of_composite(f) for name, f in COMPOSITES.items()}
    doors |= {f"backward.{name}": of_backward(name) for name in od.backward.TABLE}
    doors |= loss_doors() | optim_doors() | transform_doors() | tape_doors() | variable_doors()
    doors |= saving_doors() | parallel_doors()
    doors |= {f"np.{name}": of_numpy(name, count) for name, count in NUMPY.items()}
    for name in ("__getitem__", "get", "__contains__"):
        doors[f"Gradients.{name}"] = mapping(name)
    doors["Point"] = simple(lambda x: od.stop_gradient(Point(x, x)), array)
    return doors
