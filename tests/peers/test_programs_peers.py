"""Two hundred programs of 300 ops each, over most of the table, give what JAX finds, in float64."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from test_peers_programs import table_of

from odyssey import GradientTape, Variable, ops
from support.cases import random_like
from support.peers import COMPARED, jax, report
from support.wide_jax import wide_table
from support.wide_programs import SHAPES, WIDE, long_program

pytestmark = pytest.mark.peers
FIXTURES = (jax, report)  # imported for pytest to find

PROGRAMS, CHUNKS, STEPS = 200, 100, 300
# Of the largest number among the values, or the gradients, of a program: 300 steps that each round
# to within 16 units of 2**-53 err by 5e-13 of it, and what a steep step amplifies, gradients of
# which there are as many, has two digits more.
TOLERANCE = 1e-10
STATIC = {"compress"}  # whose condition says how many elements there are


@st.composite
def programs(draw):
    """Most are of a few of the moves, so that each kind of op meets each other often."""
    moves = st.lists(st.sampled_from(WIDE), min_size=8, max_size=24, unique=True) | st.just(WIDE)
    leaves = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    return long_program(draw(moves), leaves, draw(st.integers(0, 2**32 - 1)), STEPS)


def ours(program, cotangents):
    """All values of a program, those of its steps too, and the gradients of all that have one."""
    values = [Variable(x, requires_grad=True) for x in program.leaves]
    with GradientTape() as tape:
        for step in program.steps:
            values.append(step.run(ops, values))
    places = [k for k, y in enumerate(values) if getattr(y, "requires_grad", False)]
    outputs = {k: g for k, g in cotangents.items() if k in places}
    gradients = tape.gradient(
        [values[k] for k in outputs],
        [values[k] for k in places],
        list(outputs.values()),
        unused="zero",
    )
    plain = [y.numpy() if isinstance(y, Variable) else np.asarray(y) for y in values]
    return plain, dict(zip(places, gradients, strict=True))


class ByJax:
    """Runs programs by JAX, a step at a time, and steps that are alike by one compiled function.

    JAX takes about 4 seconds for a whole program, and as long for each; so it is asked for each
    step's result and pulled back cotangents, and these are summed here.
    """

    def __init__(self, jax):
        self.jax = jax
        self.table = wide_table(jax, table_of(jax))
        self.known = {}

    def run(self, program, cotangents):
        """The same."""
        values, calls = [np.asarray(x) for x in program.leaves], []
        for step in program.steps:
            numbers, arrays, call, like = self.prepared(step, values)
            values.append(np.asarray(call(arrays, like)[0]))
            calls.append((numbers, arrays, call))
        arrived = dict(cotangents)
        for place in reversed(range(len(program.leaves), len(values))):
            numbers, arrays, call = calls[place - len(program.leaves)]
            if place not in arrived:  # on the way to integers there is no gradient
                continue
            _, pulled = call(arrays, arrived[place])
            for number, g in zip(numbers, pulled, strict=True):
                if number is not None and g.dtype == values[number].dtype:
                    arrived[number] = np.asarray(g) + arrived.get(number, 0)
        return values, arrived

    def prepared(self, step, values):
        """The numbers of what a step takes, the arrays, and a compiled function of them."""
        flat = [part for o in step.operands for part in (o if type(o) is list else [o])]
        moving = [k for k, o in enumerate(flat) if type(o) is int or self.varies(step, o)]
        numbers = [flat[k] if type(flat[k]) is int else None for k in moving]
        arrays = [values[flat[k]] if type(flat[k]) is int else flat[k] for k in moving]
        fixed = [None if k in moving else repr(o) for k, o in enumerate(flat)]
        kinds = [(x.shape, x.dtype.str) for x in arrays]
        key = repr((step.op, step.part, step.options, fixed, kinds))
        if key not in self.known:
            self.known[key] = self.compiled(step, flat, moving, arrays)
        return numbers, arrays, *self.known[key]

    def varies(self, step, operand):
        return isinstance(operand, np.ndarray) and step.op not in STATIC

    def compiled(self, step, flat, moving, arrays):
        """A function of arrays and a cotangent: the result and what it pulls back; and zeros."""
        jax = self.jax

        def call(arrays):
            given = list(flat)
            for k, x in zip(moving, arrays, strict=True):
                given[k] = x
            left, operands = iter(given), []
            for o in step.operands:
                operands.append([next(left) for _ in o] if type(o) is list else next(left))
            result = self.table[step.op](*operands, **step.options)
            return result if step.part is None else result[step.part]

        def both(arrays, cotangent):
            out, pull = jax.vjp(call, arrays)
            return out, pull(cotangent)[0]

        # Without the passes of LLVM that take longest.
        quick = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
        out = jax.eval_shape(call, arrays)
        zeros = np.zeros(out.shape, out.dtype)
        return jax.jit(both).lower(arrays, zeros).compile(compiler_options=quick), zeros


def assert_near(got, wanted, program, what):
    """Compare arrays by their places, to within a fraction of the largest number of all."""
    scale = max([1.0, *(np.abs(wanted[k]).max(initial=0.0) for k in got if k in wanted)])
    assert np.isfinite(scale), what
    for k, a in got.items():
        step = "a leaf" if k < len(program.leaves) else program.steps[k - len(program.leaves)]
        b = wanted.get(k, np.zeros_like(a))
        assert a.shape == b.shape, step
        assert a.dtype == b.dtype, step
        message = f"{what} of {step}"
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=TOLERANCE, err_msg=message)


@pytest.fixture(scope="module")
def by_jax(jax):
    return ByJax(jax)


# JAX compiles up to 300 steps a program, in some 15 seconds; a chunk stays well below the timeout.
@pytest.mark.share(25)
@pytest.mark.parametrize(
    "chunk", range(CHUNKS), ids=lambda k: f"programs from {k * PROGRAMS // CHUNKS}"
)
def test_long_programs_have_jaxs_values_and_gradients(by_jax, chunk):
    seen = []

    @seed(chunk)
    @settings(
        max_examples=PROGRAMS // CHUNKS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # a step is named; to shrink 300 takes JAX hours
    )
    @given(programs())
    def compared(program):
        assert len(program.steps) >= STEPS
        outputs = program.run(ops, program.leaves)
        cotangents = {
            k: random_like(np.asarray(y), k) for k, y in zip(program.outputs, outputs, strict=True)
        }
        # Complex cotangents and gradients of JAX are the conjugates of ours.
        turned = {k: np.conj(g) for k, g in cotangents.items()}
        mine, other = ours(program, cotangents), by_jax.run(program, turned)
        assert_near(dict(enumerate(mine[0])), dict(enumerate(other[0])), program, "the value")
        # The last step first: the first gradient that differs tells which step is to blame.
        gradients = {k: np.conj(g) for k, g in reversed(mine[1].items())}
        assert_near(gradients, other[1], program, "the gradient")
        seen.append({step.op for step in program.steps})

    compared()
    assert len(seen) >= PROGRAMS // CHUNKS
    COMPARED["jax"].update(*seen)
