"""Products of half precision in CUDA programs: what cuBLAS reads and writes, and the numbers."""

import ml_dtypes
import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, ops
from odyssey.compiler.cuda import lower_for_device
from support.on_device import DEVICE, assert_equal_bits, host, leaf

pytestmark = [
    pytest.mark.usefixtures("standin"),
    pytest.mark.filterwarnings("error::odyssey.errors.CompileWarning"),
]
RNG = np.random.default_rng(0)
X, W, BATCH = (RNG.standard_normal(shape) for shape in ((5, 4), (4, 3), (2, 5, 4)))
# Multiples of 1/8, whose products add up without rounding in float32, in any order.
EIGHTHS = tuple(np.round(8 * a) / 8 for a in (X, W))
HALVES = {"float16": (np.float16, "f2"), "bfloat16": (ml_dtypes.bfloat16, "f2b")}
halves = pytest.mark.parametrize("half", HALVES)


@pytest.fixture
def types(monkeypatch):
    """Types of the operands, and of the result, of all calls of cuBLAS that were made."""
    found = []
    gemm_calls = lower_for_device.gemm_calls

    def noted(*given):
        calls = gemm_calls(*given)
        found.extend(call.types for call in calls)
        return calls

    monkeypatch.setattr(lower_for_device, "gemm_calls", noted)
    return found


def assert_as_eager(function, arrays, dtype, calls=3):
    """A program gives the bits of the host's eager call: sums of a few halves are exact."""
    given = [[od.Variable(a.astype(dtype), device=d) for a in arrays] for d in ("cpu", DEVICE)]
    compiled = od.compile(function, fullgraph=True)
    for _ in range(calls):
        found = compiled(*given[1])
    pairs = zip(od.tree.leaves(found), od.tree.leaves(function(*given[0])), strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert_equal_bits(host(one).astype("f8"), host(other).astype("f8"))
    assert compiled.statistics().native == calls - 1


# By name: the function, its arguments, and of each product whether it writes halves.
CASES = {
    "product": (lambda x, w: x @ w, (X, W), [True]),
    "with a bias": (lambda x, w: ops.tanh(x @ w + 1.0), (X, W), [True]),
    "one row": (lambda x, w: x[:1] @ w, (X, W), [True]),
    "turned": (lambda x, w: w.T @ x.T, (X, W), [True]),
    "every second column": (lambda x, w: x[:, ::2] @ w[::2], (X, W), [True]),
    "batch": (lambda x, w: x @ w, (BATCH, W), [True]),
    "no rows": (lambda x, w: x[:0] @ w, (X, W), []),
    "read in float32": (
        lambda x, w: ops.astype(x, "f4") @ ops.astype(w, "f4"),
        EIGHTHS,
        [False],
    ),
    "summed": (lambda x, w: (x @ w, ops.sum(x @ w)), (X, W), [True]),
    "gradients": (
        od.grad(lambda x, w: ops.tanh(x @ w).sum(), argnums=(0, 1)),
        (X, W),
        [True, True, True],
    ),
    "gradients of a batch": (
        od.grad(lambda x, w: ops.tanh(x @ w).sum(), argnums=(0, 1)),
        (BATCH, W),
        [True, True, False],
    ),
    "attention": (
        lambda x: ops.scaled_dot_product_attention(x, x, x, causal=True),
        (BATCH[:, None],),
        [False, None],
    ),
}


@halves
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_products_of_halves_read_and_write_halves(types, half, case):
    function, arrays, written = case
    dtype, code = HALVES[half]
    assert_as_eager(function, arrays, dtype)
    by_case = {True: (code, code), False: (code, "f4"), None: ("f4", "f4")}
    assert types == [by_case[one] for one in written]


@halves
def test_a_product_of_a_half_and_a_float32_stays_one_of_float32(types, half):
    x = od.Variable(X.astype(HALVES[half][0]), device=DEVICE)
    w = od.Variable(W.astype("f4"), device=DEVICE)
    compiled = od.compile(lambda x, w: x @ w, fullgraph=True)
    for _ in range(3):
        found = compiled(x, w)
    assert types == [("f4", "f4")]
    exact = X.astype(HALVES[half][0]).astype("f8") @ W
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-5)


@halves
def test_overflow_nan_and_infinity_are_those_of_an_eager_product(types, half):
    largest = float(ml_dtypes.finfo(HALVES[half][0]).max)
    x = np.array([[largest, largest], [np.inf, 1.0], [np.nan, 0.0], [largest, -largest]])
    w = np.array([[1.0, 0.0], [1.0, 1.0]])
    with np.errstate(all="ignore"):
        assert_as_eager(lambda x, w: x @ w, (x, w), HALVES[half][0])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", [od.optim.SGD, od.optim.Adam])
def test_a_step_inside_autocast_trains_as_on_the_host(types, mode, optimizer):
    found = {}
    for device in ("cpu", DEVICE):
        starts = [W, np.zeros(3), W[:3, :2]]
        parameters = [leaf(a.astype("f4"), device) for a in starts]
        update = optimizer(parameters, 0.1)

        def step(x, parameters=parameters, update=update):
            with GradientTape() as tape, od.autocast(mode):
                hidden = ops.relu(x @ parameters[0] + parameters[1])
                loss = ((hidden @ parameters[2]) ** 2).mean()
            tape.backward(loss)
            update.step()
            update.zero_grad()
            return loss

        run = step if device == "cpu" else od.compile(step, fullgraph=True)
        x = od.Variable(X.astype("f4"), device=device)
        losses = [run(x).item() for _ in range(4)]
        found[device] = [losses, *[p.numpy() for p in parameters]]
    assert run.statistics().native == 3
    assert set(types) == {(HALVES[mode][1],) * 2}
    for one, other in zip(found["cpu"], found[DEVICE], strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=3e-7 * np.abs(one).max())
