"""bfloat16 in compiled functions: computed natively, with the bits of eager calls."""

import re

import ml_dtypes
import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import CompileWarning, DTypeError
from support.cases import EVERY, every_row, random_like, tracked
from support.chosen import BY_ROW, ONE, ONE_DERIVED, some_rows
from support.compiled_rows import forward, outcome
from support.half_programs import MANY_STEPS, is_native

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# Where numbers end, lose digits, and are none.
NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.1, 3.39e38, -3.39e38, 300.0, 1e-40, 9.2e-41, np.inf, -np.inf]
NUMBERS = np.array([*NUMBERS, np.nan, 256.0, 257.0, 0.33325], BFLOAT16)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(BFLOAT16)


def bits(array):
    return np.asarray(array).view(np.uint16)


def assert_equal_bits(got, wanted):
    """Raise AssertionError unless two arrays are equal in dtype, shape and bits, but for NaN."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "c":
        return np.testing.assert_array_equal(got, wanted)
    wide, other = got.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(wide, other)
    some = ~np.isnan(other)
    np.testing.assert_array_equal(np.signbit(wide)[some], np.signbit(other)[some])
    return None


ARITHMETIC = {
    "sum": lambda x, y: ops.add(x, y),
    "difference": lambda x, y: ops.subtract(x, y),
    "product": lambda x, y: ops.multiply(x, y),
    "quotient": lambda x, y: ops.divide(x, y),
    "by numbers": lambda x, y: ops.subtract(ops.multiply(0.1, x), 3.3),
    "root": lambda x, y: ops.sqrt(ops.abs(x)),
    "largest": lambda x, y: ops.maximum(x, y),
    "order": lambda x, y: ops.less(x, y),
    "order by a number": lambda x, y: ops.less(x, 0.1),
    "choice": lambda x, y: ops.where(ops.greater(x, y), x, 0.1),
    "several steps": lambda x, y: ops.divide(ops.add(ops.multiply(x, 0.3), y), 7.0),
    "double precision": lambda x, y: ops.multiply(x, np.array([[0.1]])),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_each_op_is_rounded_once_as_in_an_eager_call(name):
    fn = ARITHMETIC[name]
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(NUMBERS, NUMBERS))
    compiled = od.compile(fn)
    with np.errstate(all="ignore"):
        for _ in range(3):
            got = compiled(x, y)
        assert_equal_bits(got, fn(x, y))
    assert is_native(compiled, x, y)


@pytest.mark.parametrize("name", ["sum", "difference", "product", "quotient"])
def test_arithmetic_is_that_of_float32_rounded_once(name):
    x, y = (normal(700, seed=seed) for seed in range(2))
    compiled = od.compile(ARITHMETIC[name])
    for _ in range(2):
        got = compiled(x, y)
    singles = x.astype(np.float32), y.astype(np.float32)
    np.testing.assert_array_equal(bits(got), bits(ARITHMETIC[name](*singles).astype(BFLOAT16)))


@pytest.mark.parametrize("name", MANY_STEPS)
def test_an_op_of_many_steps_is_right_to_one_rounding(name):
    fn = MANY_STEPS[name]
    compiled = od.compile(fn)
    for seed in range(3):
        x, w = normal(33, 40, seed=seed), normal(40, 7, seed=9)
        got = compiled(x, w)
        exact = fn(x.astype(np.float64), w.astype(np.float64))
        assert got.dtype == BFLOAT16
        error = np.abs(got.astype(np.float64) - exact)
        # Half a unit in the last place, and what float32 loses where terms cancel.
        assert np.all(error <= 2.0**-8 * 1.001 * np.abs(exact) + 1e-5)
    assert is_native(compiled, x, w)


def test_sums_of_bfloat16_do_not_stop_growing():
    compiled = od.compile(lambda x: (ops.sum(x), ops.sum(x, axis=0), ops.mean(x)))
    ones = np.ones((4096, 3), BFLOAT16)
    for _ in range(3):
        total, columns, mean = compiled(ones)
    assert (float(total), float(mean)) == (12288.0, 1.0)
    assert type(total) is type(ops.sum(ones)) is ml_dtypes.bfloat16
    np.testing.assert_array_equal(columns.astype(np.float64), [4096.0] * 3)
    assert is_native(compiled, ones)


MOVES = {
    "slice": lambda x: x[::2],
    "transpose": lambda x: ops.transpose(x),
    "rows": lambda x: ops.take(x, np.array([3, 0, 3]), axis=0),
    "joined": lambda x: ops.concatenate([x, x[:2]]),
    "written": lambda x: ops.setitem(x, x[:1], slice(1, 2)),
    "padded": lambda x: ops.pad(x, 1),
    "rolled": lambda x: ops.roll(x, 3),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_keep_every_bit(name):
    fn = MOVES[name]
    x = np.random.default_rng(0).integers(0, 1 << 16, (40, 30), np.uint16)
    compiled = od.compile(fn)
    for _ in range(3):
        got = compiled(x.view(BFLOAT16))
    np.testing.assert_array_equal(bits(got), fn(x))
    assert is_native(compiled, x.view(BFLOAT16))


def test_casts_between_dtypes_are_those_of_ml_dtypes():
    def casts(x, y):
        return ops.astype(x, "float32"), ops.astype(x, "int32"), ops.astype(y, "bfloat16")

    compiled = od.compile(casts)
    for seed in range(3):
        x = normal(50, seed=seed)
        y = np.random.default_rng(seed).normal(size=50)
        single, whole, half = compiled(x, y)
    np.testing.assert_array_equal(single, x.astype(np.float32))
    np.testing.assert_array_equal(whole, x.astype(np.int32))
    np.testing.assert_array_equal(bits(half), bits(y.astype(BFLOAT16)))
    assert is_native(compiled, x, y)


def test_a_number_of_each_call_is_that_of_an_eager_call():
    compiled = od.compile(lambda x, rate: ops.multiply(x, rate))
    x = normal(70)
    for rate in (0.1, 0.3, 1.0 + 2.0**-8 + 2.0**-30, 1e-9, 3.3):
        np.testing.assert_array_equal(bits(compiled(x, rate)), bits(ops.multiply(x, rate)))
    assert is_native(compiled, x, 0.5)
    # An integer that float32 holds, and one that it does not.
    for rate in (3, 1 << 24 | 1):
        np.testing.assert_array_equal(bits(compiled(x, rate)), bits(ops.multiply(x, rate)))


def test_a_scalar_of_bfloat16_is_an_argument_or_a_name():
    compiled = od.compile(lambda x, s: ops.add(ops.multiply(x, s), ml_dtypes.bfloat16(0.3)))
    x = normal(70)
    for s in (0.1, 0.2, 0.7):
        s = ml_dtypes.bfloat16(s)
        wanted = ops.add(ops.multiply(x, s), ml_dtypes.bfloat16(0.3))
        np.testing.assert_array_equal(bits(compiled(x, s)), bits(wanted))
    assert is_native(compiled, x, s)


@pytest.mark.parametrize("wider", ["int8", "int64", "float32", "complex64"])
def test_bfloat16_beside_another_dtype_is_promoted_as_in_eager_calls(wider):
    compiled = od.compile(lambda x, y: ops.multiply(x, y))
    x, y = normal(30), np.arange(30).astype(wider)
    for _ in range(3):
        got = compiled(x, y)
    assert_equal_bits(got, ops.multiply(x, y))
    assert is_native(compiled, x, y)


def test_float16_beside_bfloat16_is_refused_by_name():
    compiled = od.compile(lambda x, y: ops.multiply(x, y))
    for _ in range(3):
        with pytest.raises(DTypeError, match="float16 and bfloat16 have no common half"):
            compiled(normal(3), np.ones(3, np.float16))


def test_a_program_serves_all_sizes_of_bfloat16():
    def scores(x, w):
        return ops.softmax(ops.matmul(x, w), axis=-1)

    compiled = od.compile(scores, dynamic={"x": {0: od.Dim("n", 1, 200)}})
    w = normal(6, 5, seed=9)
    for n in (3, 8, 64, 17, 100, 1):
        x = normal(n, 6, seed=n)
        exact = scores(x.astype(np.float64), w.astype(np.float64))
        got = compiled(x, w)
        assert (got.shape, got.dtype) == ((n, 5), BFLOAT16)
        # The scores are rounded, and their differences are exponents.
        assert np.abs(got.astype(np.float64) - exact).max() <= 2.0**-5
    assert compiled.statistics().native > 0


def test_training_in_bfloat16_is_one_program():
    def training():
        w = Variable(normal(4, 3), requires_grad=True)
        optimizer = od.optim.SGD([w], 0.125, momentum=0.5)

        def step(x, y):
            with GradientTape() as tape:
                loss = od.losses.mean_squared_error(ops.tanh(x @ w), y)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return w, step

    (w, eager), (v, step) = training(), training()
    step = od.compile(step)
    losses = []
    for k in range(8):
        batch = normal(16, 4, seed=k), normal(16, 3, seed=k + 50)
        losses.append((float(eager(*batch)), float(step(*batch))))
    assert is_native(step, *batch)
    assert step.statistics().native >= 6
    assert v.dtype == BFLOAT16
    np.testing.assert_allclose(*np.transpose(losses), rtol=2.0**-6)
    np.testing.assert_allclose(
        v.numpy().astype(np.float64), w.numpy().astype(np.float64), atol=2.0**-6
    )


def test_updates_of_bfloat16_parameters_are_in_place_and_have_the_bits_of_eager_ones():
    def training():
        w = Variable(normal(50), requires_grad=True)
        optimizer = od.optim.SGD([w], 0.1)

        def step(x):
            with GradientTape() as tape:
                loss = ops.sum(ops.multiply(w, x))
            tape.backward(loss)
            optimizer.step()
            return ops.astype(w.grad, "float32")

        return w, step

    (w, eager), (v, step) = training(), training()
    step = od.compile(step)
    for k in range(6):
        x = normal(50, seed=k)
        np.testing.assert_array_equal(eager(x), step(x))
        np.testing.assert_array_equal(bits(v.numpy()), bits(w.numpy()))
    assert is_native(step, x)


def deep_step(dtype, layers=6, width=32, batch=64):
    rng = np.random.default_rng(0)
    weights = [
        Variable((rng.normal(size=(width, width)) / 4).astype(dtype), requires_grad=True)
        for _ in range(layers)
    ]

    def step(x):
        with GradientTape() as tape:
            for w in weights:
                x = ops.gelu(x @ w)
            loss = ops.mean(x * x)
        return tape.gradient(loss, weights)

    return step, rng.normal(size=(batch, width)).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16)], ids=str)
def test_values_for_a_backward_pass_wait_in_half_precision(dtype):
    arenas = []
    for each in (dtype, np.float32):
        step, x = deep_step(each)
        compiled = od.compile(step, check=True)
        for _ in range(2):
            got = compiled(x)
        if each == dtype:
            for a, b in zip(got, step(x), strict=True):
                error = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
                largest = np.abs(b.astype(np.float64)).max()
                assert error <= 4 * float(ml_dtypes.finfo(dtype).eps) * largest
        assert is_native(compiled, x)
        arenas.append(
            int(re.search(r"arena: ([\d,]+) bytes", compiled.explain(x))[1].replace(",", ""))
        )
    assert arenas[0] <= 0.75 * arenas[1]


OPTIMIZERS = {
    "SGD": lambda params: od.optim.SGD(params, 0.125, momentum=0.5),
    "Adam": lambda params: od.optim.Adam(params, 1e-2),
    "AdamW": lambda params: od.optim.AdamW(params, 1e-2),
    "RMSprop": lambda params: od.optim.RMSprop(params, 1e-2),
    "Lion": lambda params: od.optim.Lion(params, 1e-2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_an_optimizer_on_bfloat16_have_the_bits_of_eager_ones(name):
    def training():
        w = Variable(normal(6, 4), requires_grad=True)
        optimizer = OPTIMIZERS[name]([w])

        def step(x):
            with GradientTape() as tape:
                loss = ops.mean(ops.tanh(x @ w))
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

        return w, step

    (w, eager), (v, step) = training(), training()
    step = od.compile(step)
    for k in range(4):
        eager(normal(8, 6, seed=k))
        step(normal(8, 6, seed=k))
        np.testing.assert_array_equal(bits(v.numpy()), bits(w.numpy()))
    assert is_native(step, normal(8, 6))


def test_a_loop_carries_bfloat16():
    xs = normal(100, 5)
    loop = od.compile(lambda xs: od.scan(lambda c, x: (ops.tanh(c + x), c), xs[0], xs))
    for _ in range(3):
        last, rows = loop(xs)
    assert last.dtype == rows.dtype == BFLOAT16
    state = xs[0].astype(np.float32)
    for x in xs.astype(np.float32):
        state = (state + x).astype(BFLOAT16).astype(np.float32)
        state = np.tanh(state).astype(BFLOAT16).astype(np.float32)
    np.testing.assert_allclose(last.astype(np.float32), state, atol=2.0**-7)


def test_programs_of_the_two_halves_and_of_their_bits_are_different():
    compiled = od.compile(lambda x: ops.add(x, x))
    arrays = [normal(9), normal(9).astype(np.float16), bits(normal(9)), bits(normal(9)).view("i2")]
    for _ in range(3):
        for x in arrays:
            np.testing.assert_array_equal(compiled(x), ops.add(x, x))
    texts = {compiled.code(x) for x in arrays[:3]}
    assert len(texts) == 3


def test_a_row_without_native_code_is_called_by_name():
    compiled = od.compile(lambda x: ops.sort(ops.multiply(x, 2.0)))
    x = normal(200)
    for _ in range(3):
        got = compiled(x)
    wanted = np.sort(x.astype(np.float32)) * 2.0
    np.testing.assert_array_equal(got.astype(np.float32), wanted)
    assert "sort" in compiled.explain(x)
    assert not is_native(compiled, x)


# What NumPy computes of plain arrays of bfloat16 otherwise than odyssey, and in which words.
OTHERWISE = {
    "float": (lambda x: x * 0.1, "applies __mul__ with a float to a plain bfloat16"),
    "reflected": (lambda x: ops.astype(2.5 - x, "float32"), "applies __rsub__ with a float"),
    "comparison": (lambda x: x < 0.1, "applies __lt__ with a float"),
    "method": (lambda x: x.sum(), "the method sum of a plain bfloat16"),
    "function": (lambda x: np.mean(x), r"np\.mean of a plain bfloat16"),
    "ufunc": (lambda x: np.multiply(x, 0.1), r"np\.multiply of a plain bfloat16"),
    "reduction": (lambda x: np.add.reduce(x), r"np\.add"),
    "product": (lambda x: x @ x, "it returns float32, which NumPy makes of bfloat16"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_numpy_computes_otherwise_runs_as_written_with_the_reason(name):
    fn, words = OTHERWISE[name]
    compiled = od.compile(fn)
    x = np.ones(4096, BFLOAT16)
    with pytest.warns(CompileWarning, match=words):
        found = [compiled(x) for _ in range(3)]
    for one in found:
        np.testing.assert_array_equal(one, fn(x))
        assert one.dtype == fn(x).dtype


ALIKE = {
    "sum of arrays": lambda x, y: x + y,
    "integer": lambda x, y: x * 2 - y,
    "function": lambda x, y: np.exp(x),
    "order": lambda x, y: x < y,
    "moved": lambda x, y: np.concatenate([x[::-1], np.roll(y, 2)]),
    "largest": lambda x, y: x.max() + y.min(),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_numpy_computes_alike_is_native(name):
    fn = ALIKE[name]
    compiled = od.compile(fn)
    for seed in range(3):
        x, y = normal(60, seed=seed), normal(60, seed=seed + 9)
        assert_equal_bits(compiled(x, y), fn(x, y))
    assert is_native(compiled, x, y)


def test_a_plain_array_beside_a_variable_is_native():
    w = Variable(normal(4, 3))
    compiled = od.compile(lambda x: (x @ w) * 0.1)
    for seed in range(3):
        x = normal(5, 4, seed=seed)
        np.testing.assert_array_equal(bits(compiled(x).numpy()), bits(((x @ w) * 0.1).numpy()))
    assert is_native(compiled, x)


# ------------------------------------------------------------------ every row


def assert_alike(fn, calls, name):
    """Raise AssertionError where a compiled function is further than 2**-7 from the eager one."""
    compiled = od.compile(fn, warn=False)
    for args in calls:
        wanted, error = outcome(fn, args)
        got, other = outcome(compiled, args)
        assert other == error, name
        for a, b in zip(got or [], wanted or [], strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            if a.tobytes() == b.tobytes():
                continue
            wide = np.complex128 if b.dtype.kind == "c" else np.float64
            a, b = a.astype(wide), b.astype(wide)
            finite = np.isfinite(b)
            np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=name)
            largest = np.abs(b[finite]).max(initial=0.0)
            assert np.abs(a[finite] - b[finite]).max(initial=0.0) <= 2.0**-7 * largest, name


@pytest.mark.share(14)
@every_row
def test_a_row_compiled_is_the_row_in_bfloat16(row):
    name = ONE[row.name]
    assert_alike(*forward(*EVERY[name], BFLOAT16), name)


@pytest.mark.soak
@every_row
def test_every_sample_of_a_row_compiled_is_the_row_in_bfloat16(row):
    for name in BY_ROW[row.name]:
        assert_alike(*forward(*EVERY[name], BFLOAT16), name)


def slopes_of(row, sample):
    """Both first derivatives of a row, as a function of arrays, and three sets of them."""
    positions, options = tracked(row, sample), dict(sample.options)
    draws = [sample.arrays(np.random.default_rng(seed), BFLOAT16) for seed in range(3)]

    def call(operands, cotangents, directions):
        leaves = [Variable(operands[k], requires_grad=True) for k in positions]
        given = list(operands)
        for k, leaf in zip(positions, leaves, strict=True):
            given[k] = leaf
        with GradientTape(persistent=True) as tape:
            out = row.call(*given, **options)
        outs = list(out) if row.pack_results else [out]
        slopes = tape.gradient(outs, leaves, cotangents, unused="zero")
        tangents = tape.jvp(outs, leaves, directions)
        return [ops.multiply(x, 1) for x in od.tree.leaves([*slopes, tangents])]

    made = row.call(*draws[0], **options)
    outs = list(made) if row.pack_results else [made]
    calls = [
        (
            operands,
            [random_like(out, seed=10 + seed) for out in outs],
            [random_like(operands[k], seed=20 + seed) for k in positions],
        )
        for seed, operands in enumerate(draws)
    ]
    return call, calls


@pytest.mark.slow
@some_rows
def test_compiled_derivatives_of_a_row_are_its_derivatives_in_bfloat16(row):
    name = ONE_DERIVED[row.name]
    try:
        fn, calls = slopes_of(*EVERY[name])
    except DTypeError:  # no halves, as systems of linear equations
        return
    assert_alike(fn, calls, name)
