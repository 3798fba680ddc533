"""Native code touches nothing but the buffers of its plan: each access of the table's is looked at.

And what looks is looked at: faults that are planted are found, told of by name, and do no harm.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.codegen import kernel_function, lapack, loops, matmul
from odyssey.compiler.schedule import buffer_assignment
from support.bounded import looking, within_bounds
from support.cases import EVERY, every_row
from support.chosen import BY_ROW, DERIVED, FLOATS, ONE, ONE_DERIVED, OTHERS, drawn, picked
from support.compiled_programs import run
from support.compiled_rows import check, derivatives, forward, outcome
from support.programs import seeded
from support.seeds import DERANDOMIZE

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

RNG = np.random.default_rng(0)
CALM = {
    "deadline": None,
    "derandomize": DERANDOMIZE,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow],
}


def walk(name, dtype, made=forward):
    """How many accesses of a sample's programs were looked at."""
    fn, calls = forward(*EVERY[name], dtype)
    if outcome(fn, calls[0])[1] is not None:
        return 0
    with within_bounds() as looks:
        check(*made(*EVERY[name], dtype), what=(name, dtype))
    return looks.count()


# ------------------------------------------------------------------ the table


@pytest.mark.slow
def test_one_row_in_three_keeps_within_its_buffers():
    names = [name for row, name in ONE.items() if drawn(f"bounds of {row}", 3)]
    looked = [walk(name, picked(name, FLOATS)) for name in names]
    # Some rows are called, and some have a sample of no element.
    assert sum(looks > 0 for looks in looked) > 0.6 * len(looked) > 40


@pytest.mark.slow
def test_derivatives_of_one_row_in_six_keep_within_their_buffers():
    looked = [walk(name, picked(name, FLOATS), derivatives) for name in ONE_DERIVED.values()]
    assert sum(looks > 0 for looks in looked) > 0.6 * len(looked) > 15


@pytest.mark.slow
@settings(max_examples=3, **CALM)
@given(st.integers(0, 2**16))
def test_random_steps_keep_within_their_buffers(seed):
    with within_bounds():
        run(seeded(seed, 100), seed)


@pytest.mark.soak
@settings(max_examples=150, **CALM)
@given(st.integers(0, 2**16), st.sampled_from([np.float64, np.float32]))
def test_150_random_steps_keep_within_their_buffers(seed, dtype):
    with within_bounds():
        run(seeded(seed, 200), seed, dtype=dtype)


@pytest.mark.soak
@every_row
def test_every_sample_keeps_within_its_buffers(row):
    for name in BY_ROW[row.name]:
        walk(name, picked(name, (*FLOATS, *OTHERS)))


@pytest.mark.soak
@every_row
def test_derivatives_of_every_sample_keep_within_their_buffers(row):
    for name in DERIVED[row.name]:
        walk(name, picked(name, FLOATS), derivatives)


# ------------------------------------------------------------------ programs


def model(x, w, v, labels, places):
    """What has products, sums along rows and of all, gathers, scatters, scans and parts."""
    with GradientTape() as tape:
        hidden = ops.gelu(x[:, ::-1] @ w) + ops.cumsum(x @ w, axis=1)
        chosen = ops.take(hidden, places, axis=0)
        joined = ops.concatenate([chosen, hidden[1:]], axis=0)
        loss = od.losses.cross_entropy(ops.softmax(joined, axis=-1) @ v, labels)
    return loss, tape.gradient(loss, [w, v])


def arguments(rows=37, inner=45, classes=11, dtype="float32"):
    w = Variable(RNG.normal(size=(inner, 32)).astype(dtype), requires_grad=True)
    v = Variable(RNG.normal(size=(32, classes)).astype(dtype).T.copy().T, requires_grad=True)
    places = RNG.integers(-rows, rows, 50)
    labels = RNG.integers(0, classes, 50 + rows - 1)
    return RNG.normal(size=(rows, inner)).astype(dtype), w, v, labels, places


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_model_of_all_kinds_of_kernels_keeps_within_its_buffers(dtype):
    x, w, v, labels, places = arguments(dtype=dtype)
    step = lambda x, labels, places: model(x, w, v, labels, places)  # noqa: E731
    with within_bounds() as looks:
        check(step, [(x, labels, places)] * 3)
    (program,) = looks.programs
    kinds = {kernel.kind for kernel in program.plan.fused.kernels}
    nodes = {node.kind for node in program.plan.fused.order}
    assert kinds >= {"loops", "product", "scan"}
    assert nodes >= {"map", "reduce", "gather", "scatter", "product", "scan", "join"}
    assert looks.count() > 10_000


@pytest.mark.parametrize(
    ("size", "channels", "padding", "stride"), [(9, 3, 1, 1), (12, 5, 2, 2), (7, 1, 0, 1)]
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_convolutions_read_windows_within_their_images(size, channels, padding, stride, dtype):
    images = RNG.normal(size=(2, channels, size, size)).astype(dtype)
    w = Variable(RNG.normal(size=(4, channels, 3, 3)).astype(dtype), requires_grad=True)

    def step(images):
        with GradientTape() as tape:
            leaf = Variable(images, requires_grad=True)
            h = ops.relu(ops.conv2d(leaf, w, padding=padding, stride=stride))
            loss = (ops.max_pool2d(h, window=2) ** 2).sum()
        return tape.gradient(loss, [w, leaf])

    with within_bounds() as looks:
        compiled = od.compile(step)
        for _ in range(3):
            compiled(images)
    assert compiled.statistics().native == 2
    assert looks.count() > 100


@pytest.mark.parametrize("shapes", [((40, 50), (50, 30)), ((70, 80), (80,)), ((3, 1, 80), (80, 9))])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_of_complex_matrices_and_vectors_keep_within_them(shapes, dtype):
    x, y = (RNG.normal(size=(*shape, 2)).astype(dtype) @ [1, 1j] for shape in shapes)
    turned = np.ascontiguousarray(x.T), y

    with within_bounds() as looks:
        for step, args in (lambda x, y: x @ y, (x, y)), (lambda x, y: x.T @ y, turned):
            if step(*args).shape == (x @ y).shape:
                check(step, [args] * 3)
    assert looks.count() > 0


@pytest.mark.parametrize("layout", ["turned", "reversed", "every other"])
def test_states_that_lie_apart_in_memory_are_touched_where_they_are(layout):
    base = np.zeros((12, 18))
    shown = {"turned": base.T, "reversed": base[::-1, ::-1], "every other": base[::2, ::3]}
    v = Variable(shown[layout])

    def add(x):
        v.assign(v * 0.5 + x)
        return v.sum()

    with within_bounds() as looks:
        step, x = od.compile(add), RNG.normal(size=v.shape)
        for _ in range(4):
            step(x)
    assert step.statistics().native == 3
    assert looks.count() > 3 * v.size


def test_a_state_that_is_only_written_to_is_touched_where_it_is():
    memory = np.zeros((12, 18))
    v = Variable(memory[::-2, ::-3])
    with within_bounds() as looks:
        step = od.compile(lambda x: v.assign(x * 2.0))
        for _ in range(4):
            x = RNG.normal(size=v.shape)
            step(x)
            assert np.array_equal(v.numpy(), x * 2.0)
    assert step.statistics().native == 3
    assert looks.count() > 2 * v.size


# ------------------------------------------------------------------ planted faults


def faults(fn, *args):
    """What is found of a program's faults; it runs to its end."""
    with looking() as looks:
        compiled = od.compile(fn)
        for _ in range(3):
            compiled(*args)
        assert compiled.statistics().native, compiled.explain(*args)
    return looks.faults()


def test_an_address_beside_the_right_one_is_found(monkeypatch):
    address = kernel_function.KernelFunction.element_pointer
    monkeypatch.setattr(
        kernel_function.KernelFunction,
        "element_pointer",
        lambda self, type, pointer, terms, start: address(self, type, pointer, terms, start + 1),
    )
    x = RNG.normal(size=(4, 6))
    (fault,) = faults(lambda x: x * 2.0, x)
    assert "kernel 0, loops over (4, 6), reads 8 bytes at 192 of input n0" in fault
    assert "has the bytes from 0 to 192" in fault
    assert "map(n0" in fault


def test_a_loop_that_goes_too_far_is_found(monkeypatch):
    loop = kernel_function.KernelFunction.emit_loop
    monkeypatch.setattr(
        loops.LoopNest,
        "emit_loop",
        lambda self, length, *given: loop(
            self, length + 1 if isinstance(length, int) else length, *given
        ),
    )
    (fault,) = faults(lambda x: ops.exp(x).sum(axis=0), RNG.normal(size=(3, 5)))
    assert "kernel 0, loops over (3, 5)" in fault


def test_a_row_on_the_stack_that_is_too_short_is_found(monkeypatch):
    alloca = kernel_function.KernelFunction.alloca
    monkeypatch.setattr(
        loops.LoopNest,
        "alloca",
        lambda self, type, count=1: alloca(self, type, max(count // 2, 1)),
    )
    (fault,) = faults(lambda x: ops.softmax(x, axis=-1), RNG.normal(size=(3, 32)))
    assert "of the stack" in fault


def test_an_index_that_nobody_looks_at_is_found(monkeypatch):
    monkeypatch.setattr("odyssey.compiler.lowering.Lowering._require_within", lambda *given: None)

    def at(self, n, whole, places):
        pointer, view = self._arrays[whole.id]
        return self.element_pointer(
            n.type, pointer, list(zip(places, view.strides, strict=True)), view.offset
        )

    monkeypatch.setattr(loops.LoopNest, "_indexed_pointer", at)
    x, there, far = RNG.normal(size=9), np.array([1, 8, 0]), np.array([1, 10**9, 2])
    with looking() as looks:
        compiled = od.compile(lambda x, k: ops.take(x, k))
        for places in (there, there, there, far):
            compiled(x, places)
    (fault,) = looks.faults()
    assert f"reads 8 bytes at {8 * 10**9} of input n0" in fault


def test_a_scatter_that_goes_astray_is_found_and_writes_nowhere(monkeypatch):
    at = loops.LoopNest._indexed_pointer

    def away(self, n, whole, places):
        return (
            at(self, n, whole, places)
            if n.kind == "gather"
            else self.offset_pointer(n.type, at(self, n, whole, places), "4096")
        )

    monkeypatch.setattr(loops.LoopNest, "_indexed_pointer", away)
    x, places = RNG.normal(size=5), np.array([0, 2])
    slopes = od.grad(lambda x, k: (ops.take(x, k) ** 2).sum())
    (fault,) = faults(lambda x, k: slopes(x, k), x, places)
    assert "8 bytes at 32768 of output" in fault


@pytest.mark.parametrize("size", [4, 64])
def test_a_product_of_matrices_that_are_larger_than_they_are_is_found(monkeypatch, size):
    of = matmul.Matmul._emit_batch

    def larger(self, axis, indices, operands):
        grown = [
            (pointer, view._replace(shape=(*view.shape[:-2], *(n + 1 for n in view.shape[-2:]))))
            for pointer, view in operands
        ]
        of(self, axis, indices, grown)

    monkeypatch.setattr(matmul.Matmul, "_emit_batch", larger)
    a = RNG.normal(size=(size, size))
    (fault,) = faults(lambda a: a @ a, a)
    assert f"kernel 0, product over ({size}, {size})" in fault


@pytest.mark.parametrize("name", ["cholesky", "solve", "triangular_solve"])
def test_a_matrix_of_lapack_with_too_wide_a_step_is_found(name, monkeypatch):
    sizes = lapack.LapackCall._sizes
    monkeypatch.setattr(
        lapack.LapackCall, "_sizes", lambda self, *given: sizes(self, *(n + 1 for n in given))
    )
    fn = getattr(ops, name)
    a, b = np.eye(4) * 2, np.ones((4, 2))
    found = faults(fn, a) if name == "cholesky" else faults(fn, a, b)
    assert "lapack over (" in found[0]


def test_a_buffer_that_is_planned_too_short_is_found(monkeypatch):
    fit = buffer_assignment.assign_offsets

    def short(buffers):
        for buffer in buffers:
            buffer.bytes //= 2
        return fit(buffers)

    monkeypatch.setattr(buffer_assignment, "assign_offsets", short)
    a = RNG.normal(size=(20, 20))
    (fault,) = faults(lambda a: ops.exp(a @ a).sum(), a)
    assert "of arena n" in fault
    assert "has the bytes from 0 to 1600" in fault
