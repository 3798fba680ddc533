"""DataParallel in a group of one: parts and weights, sums, clipping, refusals, interrupts."""

import copy
import pickle
from contextlib import suppress
from itertools import count, pairwise

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops
from odyssey.distributed import DataParallel
from odyssey.distributed.batch_parts import part_edges
from odyssey.distributed.data_parallel import commit_quietly
from odyssey.distributed.flat_layout import BLOCK, layouts_of
from odyssey.errors import (
    DTypeError,
    MissingGradientError,
    NonFiniteError,
    OdysseyError,
    SettingError,
    ShapeError,
    TapeConsumedError,
    TapeError,
)
from support.faults import in_its_thread, interrupt


def model(dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {"w": rng.normal(size=(4, 6)), "b": np.zeros(6), "v": rng.normal(size=(6, 3))}
    return {
        name: Variable(array.astype(dtype), requires_grad=True, name=name)
        for name, array in arrays.items()
    }


def loss_of(params, x, y):
    h = ops.tanh(x @ params["w"] + params["b"])
    return losses.cross_entropy(h @ params["v"], y)


def batch_of(rows, seed=1, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 4)).astype(dtype), rng.integers(0, 3, rows)


def gradients_of(params, *part):
    return od.grad(loss_of)(params, *part)


def step(parallel, params, batch, **options):
    for part in parallel.shards(batch):
        parallel.add(gradients_of(params, *part))
    return parallel.step(**options)


def numbers(params):
    return {name: p.numpy() for name, p in params.items()}


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)


def tree_sum(parts):
    """The sum of parts as a balanced tree, written out."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return [a + b for a, b in zip(tree_sum(parts[:half]), tree_sum(parts[half:]), strict=True)]


class Negated(od.optim.Optimizer):
    """Sets each parameter to minus its gradient, in which tests read the mean gradient."""

    def __init__(self, params):
        super().__init__(params, lambda: od.optim.Rule((), lambda g, s, p: (ops.negative(g), s)))


# ------------------------------------------------------------------ parts and weights


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 12, 29])
@pytest.mark.parametrize("shards", [1, 2, 4, 8])
@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-6), (np.float64, 1e-13)])
def test_the_mean_over_parts_is_the_gradient_of_the_batch(rows, shards, dtype, bound):
    params, batch = model(dtype), batch_of(rows, dtype=dtype)
    expected = gradients_of(params, *batch)
    parallel = DataParallel(Negated(params), shards=shards)
    step(parallel, params, batch)
    for name, p in params.items():
        np.testing.assert_allclose(-p.numpy(), expected[name], rtol=0, atol=bound, err_msg=name)


def test_parts_are_the_rows_in_order_in_nearly_equal_pieces():
    parallel = DataParallel(od.optim.SGD(model(), 0.1), shards=4)
    x, y = batch_of(10)
    found = []
    for part in parallel.shards({"x": x, "rest": [y, None]}):
        assert part["rest"][1] is None
        assert np.shares_memory(part["x"], x)
        found.append((part["x"], part["rest"][0]))
        parallel.add([np.zeros((4, 6)), np.zeros(6), np.zeros((6, 3))])
    assert [len(a) for a, _ in found] == [3, 3, 2, 2]
    np.testing.assert_array_equal(np.concatenate([a for a, _ in found]), x)
    np.testing.assert_array_equal(np.concatenate([b for _, b in found]), y)


def test_parts_without_rows_are_left_out_and_change_no_bit():
    """Three parts of one row: the tree of eight has zeros in the other places."""
    params, batch = model(np.float32), batch_of(3, dtype=np.float32)
    parts = [gradients_of(params, batch[0][k : k + 1], batch[1][k : k + 1]) for k in range(3)]
    parallel = DataParallel(Negated(params), shards=8)
    assert [len(x) for x, _ in DataParallel(Negated(model()), shards=8).shards(batch)] == [1, 1, 1]
    step(parallel, params, batch)
    for name, p in params.items():
        a, b, c = (part[name] for part in parts)
        np.testing.assert_array_equal(p.numpy(), -(((a + b) + c) / np.float32(3)), err_msg=name)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1000])
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_edges_differ_by_one_row_at_most(rows, shards):
    lengths = np.diff(part_edges(rows, shards))
    assert lengths.sum() == rows
    assert len(lengths) == shards
    assert lengths.max() - lengths.min() <= 1
    assert (np.diff(lengths) <= 0).all()


def test_weights_replace_rows():
    """Means over tokens that are no padding: 3 of one part, 1 of the other."""
    w = Variable([0.0], requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=2)
    parallel.add([np.array([1.0])], weight=3)
    parallel.add([np.array([5.0])], weight=1)
    parallel.step()
    np.testing.assert_array_equal(w.numpy(), [-(3 * 1.0 + 5.0) / 4])


def test_a_part_of_weight_0_is_left_out_whatever_it_has():
    w = Variable([0.0], requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=2)
    parallel.add([np.array([np.nan])], weight=0)
    parallel.add([np.array([5.0])], weight=2)
    parallel.step()
    np.testing.assert_array_equal(w.numpy(), [-5.0])


@pytest.mark.parametrize("shards", [1, 2])
def test_weights_that_are_all_0_have_no_mean(shards):
    w = Variable([1.0], requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=shards)
    for _ in range(shards):
        parallel.add([np.array([2.0])], weight=0)
    with pytest.raises(SettingError, match="weights of all parts are 0"):
        parallel.step()
    np.testing.assert_array_equal(w.numpy(), [1.0])


# ------------------------------------------------------------------ bits


OPTIMIZERS = {
    "SGD": lambda params: od.optim.SGD(params, 0.1, momentum=0.9),
    "Adam": lambda params: od.optim.Adam(params, 0.01),
    "AdamW": lambda params: od.optim.AdamW(params, 0.01),
    "LARS": lambda params: od.optim.LARS(params, 0.1),
    "Adafactor": lambda params: od.optim.Adafactor(params, 0.1),
}


@pytest.mark.parametrize("name", ["SGD", "Adam", "LARS"])
@pytest.mark.parametrize("shards", [1, 4])
def test_bits_are_those_of_a_loop_that_adds_parts_as_a_tree(name, shards):
    params, plain = model(np.float32), model(np.float32)
    parallel = DataParallel(OPTIMIZERS[name](params), shards=shards)
    optimizer = OPTIMIZERS[name](plain)
    for k in range(4):
        batch = x, y = batch_of(16, seed=k, dtype=np.float32)
        step(parallel, params, batch)
        rows = 16 // shards
        parts = [
            list(gradients_of(plain, x[i : i + rows], y[i : i + rows]).values())
            for i in range(0, 16, rows)
        ]
        for p, g in zip(plain.values(), tree_sum(parts), strict=True):
            p.grad = g / np.float32(shards)
        optimizer.step()
    assert_equal(numbers(params), numbers(plain))


def test_a_tape_gives_the_bits_of_the_optimizer_alone_and_touches_no_grad():
    params, plain = model(np.float32), model(np.float32)
    optimizer, parallel = OPTIMIZERS["Adam"](plain), DataParallel(OPTIMIZERS["Adam"](params))
    params["w"].grad = kept = np.full((4, 6), 7.0, np.float32)
    for k in range(3):
        batch = batch_of(8, seed=k, dtype=np.float32)
        for part in parallel.shards(batch):
            with GradientTape() as tape:
                loss = loss_of(params, *part)
            parallel.backward(tape, loss)
        parallel.step()
        with GradientTape() as tape:
            loss = loss_of(plain, *batch)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert_equal(numbers(params), numbers(plain))
    np.testing.assert_array_equal(params["w"].grad, kept)
    assert params["v"].grad is None


@pytest.mark.parametrize("shards", [1, 4])
def test_compiled_gradients_are_those_of_programs_from_the_first_part_on(shards):
    """Two runs end with equal bits, one of which has made its programs long before."""
    ends = []
    for early in (False, True):
        params = model(np.float32)
        parallel = DataParallel(OPTIMIZERS["SGD"](params), shards=shards)
        compiled = od.compile(lambda x, y, params=params: gradients_of(params, x, y))
        parallel.precompile(compiled, batch_of(10, dtype=np.float32))
        if early:
            for part in parallel.shards(batch_of(10, seed=9, dtype=np.float32)):
                compiled(*part)
            parallel.zero_grad()
        for k in range(3):
            for part in parallel.shards(batch_of(10, seed=k, dtype=np.float32)):
                parallel.add(compiled(*part))
            parallel.step()
        assert compiled.statistics().written == 0
        ends.append(numbers(params))
    assert_equal(*ends)


def test_specs_stand_for_a_batch_in_precompile():
    params = model(np.float32)
    parallel = DataParallel(OPTIMIZERS["SGD"](params), shards=2)
    compiled = od.compile(lambda x, y: gradients_of(params, x, y))
    parallel.precompile(compiled, (od.Spec((7, 4), np.float32), od.Spec((7,), np.int64)))
    for part in parallel.shards(batch_of(7, dtype=np.float32)):
        parallel.add(compiled(*part))
    parallel.step()
    assert compiled.statistics().written == 0


# ------------------------------------------------------------------ accumulation


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("sizes", [(8, 8), (8, 5), (3, 8, 4)])
def test_batches_before_a_step_accumulate_by_rows(shards, sizes):
    params = model()
    batches = [batch_of(rows, seed=rows) for rows in sizes]
    together = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    expected = gradients_of(params, *together)
    parallel = DataParallel(Negated(params), shards=shards)
    for batch in batches:
        for part in parallel.shards(batch):
            parallel.add(gradients_of(params, *part))
    parallel.step()
    for name, p in params.items():
        np.testing.assert_allclose(-p.numpy(), expected[name], rtol=0, atol=1e-13, err_msg=name)


# ------------------------------------------------------------------ clipping, where, scaler


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("limit", [1e-3, 10.0, float("inf")])
def test_clip_norm_is_that_of_clip_grad_global_norm(shards, limit):
    params, plain = model(), model()
    parallel, batch = DataParallel(od.optim.SGD(params, 1.0), shards=shards), batch_of(8)
    norm = step(parallel, params, batch, clip_norm=limit)
    optimizer = od.optim.SGD(plain, 1.0)
    for name, g in gradients_of(plain, *batch).items():
        plain[name].grad = g
    expected = od.optim.clip_grad_global_norm(plain, limit)
    optimizer.step()
    np.testing.assert_allclose(norm, expected, rtol=1e-14)
    for name, p in params.items():
        np.testing.assert_allclose(p.numpy(), plain[name].numpy(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shards", [1, 2])
def test_clip_value_cuts_the_mean(shards):
    w = Variable(np.zeros(3), requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=shards)
    for _ in range(shards):
        parallel.add([np.array([3.0, -0.25, -7.0])])
    parallel.step(clip_value=0.5)
    np.testing.assert_array_equal(w.numpy(), [-0.5, 0.25, 0.5])


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_norm_that_is_not_finite_acts_as_the_library_has_it(bad):
    w = Variable(np.zeros(2), requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=2)
    for g in ([1.0, bad], [1.0, 2.0]):
        parallel.add([np.array(g)])
    parallel.step(clip_norm=1.0)
    v = Variable(np.zeros(2), requires_grad=True)
    v.grad = np.array([1.0, bad])
    with np.errstate(invalid="ignore"):
        od.optim.clip_grad_global_norm([v], 1.0)
    np.testing.assert_array_equal(w.numpy(), -v.grad)


def test_the_norm_of_large_numbers_does_not_overflow_in_float32():
    w = Variable(np.zeros(2, np.float32), requires_grad=True)
    parallel = DataParallel(Negated([w]))
    parallel.add([np.array([3e30, 4e30], np.float32)])
    assert parallel.step(clip_norm=1.0) == pytest.approx(5e30, rel=1e-6)
    np.testing.assert_allclose(w.numpy(), [-0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize("shards", [1, 2])
def test_where_false_forgets_gradients_and_changes_nothing(shards):
    params = model()
    before, batch = numbers(params), batch_of(8)
    parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=shards)
    step(parallel, params, batch, where=np.bool_(False))
    assert_equal(numbers(params), before)
    assert parallel.state_dict()["state"] == [{}, {}, {}]
    step(parallel, params, batch)
    assert [int(state["steps"]) for state in parallel.state_dict()["state"]] == [1, 1, 1]


@np.errstate(invalid="ignore")
@pytest.mark.parametrize("shards", [1, 2])
def test_a_loss_scaler_divides_skips_and_adapts(shards):
    params, plain = model(np.float32), model(np.float32)
    scaler, other = od.optim.LossScaler(2.0**10), od.optim.LossScaler(2.0**10)
    parallel = DataParallel(OPTIMIZERS["SGD"](params), shards=shards)
    optimizer = OPTIMIZERS["SGD"](plain)
    for k in range(4):
        batch = x, y = batch_of(8, seed=k, dtype=np.float32)
        if k == 2:
            x[0, 0] = np.inf
        for part in parallel.shards(batch):
            with GradientTape() as tape:
                loss = scaler.scale(loss_of(params, *part))
            parallel.backward(tape, loss)
        parallel.step(scaler=scaler)
        with GradientTape() as tape:
            loss = other.scale(loss_of(plain, x, y))
        tape.backward(loss)
        other.step(optimizer)
        optimizer.zero_grad()
        assert scaler.state_dict() == other.state_dict()
    for name, p in params.items():
        np.testing.assert_allclose(p.numpy(), plain[name].numpy(), rtol=0, atol=1e-6)


def test_a_scaler_that_skips_forever_raises_and_nothing_changes():
    w = Variable(np.zeros(1, np.float32), requires_grad=True)
    scaler, parallel = od.optim.LossScaler(), DataParallel(Negated([w]))
    for _ in range(49):
        parallel.add([np.array([np.nan], np.float32)])
        parallel.step(scaler=scaler)
    parallel.add([np.array([np.nan], np.float32)])
    before = scaler.state_dict()
    with pytest.raises(NonFiniteError, match="50 steps in a row"):
        parallel.step(scaler=scaler)
    assert scaler.state_dict() == before


# ------------------------------------------------------------------ parameters of all kinds


def test_half_precision_is_summed_in_float32_and_has_masters():
    """The sum of 2048 and 1 is 2048 in float16; four parts of 1 and 2048 have the mean 1024.5."""
    w = Variable(np.zeros(1, np.float16), requires_grad=True)
    parallel = DataParallel(od.optim.SGD([w], 1.0), shards=2)
    for g in (2048, 1):
        parallel.add([np.array([g], np.float16)])
    parallel.step()
    state = parallel.state_dict()["state"][0]
    np.testing.assert_array_equal(state["master"], np.array([-1024.5], np.float32))
    np.testing.assert_array_equal(w.numpy(), np.array([-1024.5], np.float32).astype(np.float16))


def test_complex_and_empty_parameters_step():
    z = Variable(np.array([1 + 2j, 3 - 1j]), requires_grad=True)
    e = Variable(np.zeros((0, 3)), requires_grad=True)
    n = Variable(np.array(2.0), requires_grad=True)
    parallel = DataParallel(od.optim.Adam([z, e, n], 0.5), shards=2)
    plain = [Variable(p.numpy(), requires_grad=True) for p in (z, e, n)]
    optimizer = od.optim.Adam(plain, 0.5)
    grads = [np.array([1 - 2j, 0.5j]), np.zeros((0, 3)), np.array(-3.0)]
    for _ in range(2):
        parallel.add(grads)
        parallel.add(grads)
        parallel.step()
        for p, g in zip(plain, grads, strict=True):
            p.grad = g
        optimizer.step()
    for p, q in zip((z, e, n), plain, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


def test_groups_schedules_and_settings_are_those_of_the_optimizer():
    params, plain = model(), model()

    def make(tree):
        groups = [{"params": [tree["w"]], "learning_rate": 0.5}, {"params": [tree["b"], tree["v"]]}]
        optimizer = od.optim.SGD(groups, 0.1, momentum=0.5)
        return optimizer, od.optim.StepLR(optimizer, 2)

    (first, schedule), (second, other) = make(params), make(plain)
    parallel = DataParallel(first, shards=1)
    for k in range(5):
        batch = batch_of(6, seed=k)
        for part in parallel.shards(batch):
            parallel.add(list(gradients_of(params, *part).values()))
        parallel.step()
        schedule.step()
        for name, g in gradients_of(plain, *batch).items():
            plain[name].grad = g
        second.step()
        other.step()
    assert_equal(numbers(params), numbers(plain))


@pytest.mark.parametrize("shards", [1, 2])
def test_frozen_parameters_stay_and_go_on_when_thawed(shards):
    params = model()
    parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=shards)
    step(parallel, params, batch_of(8))
    params["b"].requires_grad = False
    kept = params["b"].numpy()
    step(parallel, params, batch_of(8, seed=2))
    np.testing.assert_array_equal(params["b"].numpy(), kept)
    params["b"].requires_grad = True
    step(parallel, params, batch_of(8, seed=3))
    assert [int(state["steps"]) for state in parallel.state_dict()["state"]] == [3, 2, 3]
    assert not np.array_equal(params["b"].numpy(), kept)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_missing_gradient_is_named_and_may_be_allowed(shards):
    params = model()
    parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=shards)
    before = numbers(params)
    grads = dict(gradients_of(params, *batch_of(4)), b=None)
    for _ in range(shards):
        parallel.add(grads)
    with pytest.raises(MissingGradientError, match="parameter b has no gradient from any part"):
        parallel.step()
    assert_equal(numbers(params), before)
    parallel.step(allow_missing=True)
    np.testing.assert_array_equal(params["b"].numpy(), before["b"])
    assert not np.array_equal(params["w"].numpy(), before["w"])


def test_a_gradient_that_some_parts_lack_counts_as_zero_there():
    w = Variable([0.0], requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=4)
    for g in (None, [6.0], None, [2.0]):
        parallel.add([g if g is None else np.array(g)])
    parallel.step()
    np.testing.assert_array_equal(w.numpy(), [-2.0])


@pytest.mark.parametrize("shards", [1, 2])
def test_sparse_rows_are_made_dense(shards):
    table = Variable(np.zeros((4, 2)), requires_grad=True, sparse_grad=True)
    parallel = DataParallel(od.optim.SGD([table], 1.0), shards=shards)
    for part in parallel.shards((np.array([0, 2, 2, 3]),)):
        with GradientTape() as tape:
            loss = ops.mean(table[part[0]])
        parallel.backward(tape, loss)
    parallel.step()
    np.testing.assert_allclose(table.numpy()[:, 0], [-0.125, 0, -0.25, -0.125])


def test_sparse_rows_of_a_lazy_adam_are_refused_where_parts_are_added():
    rows = od.SparseRows([1], [[1.0, 1.0]], (4, 2))
    table = Variable(np.zeros((4, 2)), requires_grad=True, sparse_grad=True, name="table")
    parallel = DataParallel(od.optim.Adam([table], lazy=True), shards=2)
    with pytest.raises(DTypeError, match="table is sparse rows, and Adam with lazy=True"):
        parallel.add([rows])
    alone = DataParallel(od.optim.Adam([table], 0.5, lazy=True))
    alone.add([rows])
    alone.step()
    np.testing.assert_array_equal(np.flatnonzero(table.numpy()[:, 0]), [1])


def test_an_average_beside_it_follows():
    params = model()
    ema = od.optim.EMA(params, 0.5)
    parallel, before = DataParallel(od.optim.SGD(params, 0.1), shards=2), params["w"].numpy()
    step(parallel, params, batch_of(8))
    ema.update()
    np.testing.assert_allclose(ema.averages["w"].numpy(), (before + params["w"].numpy()) / 2)


def test_a_tape_notices_the_step():
    params = model()
    parallel = DataParallel(od.optim.SGD(params, 0.1), shards=2)
    with GradientTape() as tape:
        loss = loss_of(params, *batch_of(4))
    step(parallel, params, batch_of(8))
    with pytest.raises(od.errors.MutationError):
        tape.backward(loss)


# ------------------------------------------------------------------ forms of gradients


def test_gradients_come_as_a_tree_a_list_or_those_of_a_tape():
    ends = []
    for form in ("tree", "list", "tape"):
        params, batch = model(), batch_of(6)
        parallel = DataParallel(od.optim.SGD(params, 0.1))
        if form == "tape":
            with GradientTape() as tape:
                loss = loss_of(params, *batch)
            found = tape.backward(loss)
        else:
            found = gradients_of(params, *batch)
            found = found if form == "tree" else list(found.values())
        parallel.add(found)
        parallel.step()
        ends.append(numbers(params))
    assert_equal(ends[0], ends[1])
    assert_equal(ends[0], ends[2])


def test_a_dictionary_in_another_order_is_matched_by_name():
    params, batch = model(), batch_of(6)
    grads = gradients_of(params, *batch)
    parallel = DataParallel(Negated(params))
    parallel.add({name: grads[name] for name in ("v", "w", "b")})
    parallel.step()
    for name, g in grads.items():
        np.testing.assert_array_equal(params[name].numpy(), -g)


def test_gradients_of_groups_come_as_their_trees():
    params, batch = model(), batch_of(6)
    grads = gradients_of(params, *batch)
    parallel = DataParallel(
        Negated([{"params": {"v": params["v"]}}, {"params": {"w": params["w"], "b": params["b"]}}])
    )
    parallel.add([{"v": grads["v"]}, {"w": grads["w"], "b": grads["b"]}])
    parallel.step()
    for name, g in grads.items():
        np.testing.assert_array_equal(params[name].numpy(), -g)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda g: g["w"], ShapeError, "1 gradient came for 3 parameters"),
        (lambda g: [g["w"], g["b"]], ShapeError, "2 gradients came for 3 parameters"),
        (lambda g: {"w": g["w"], "b": g["b"], "x": g["v"]}, ShapeError, r"have \['x'\]"),
        (
            lambda g: dict(g, b=g["b"][:5]),
            ShapeError,
            r"gradient of b has shape \(5,\), not \(6,\)",
        ),
        (lambda g: dict(g, b=g["b"] * 1j), DTypeError, "gradient of b is of complex128"),
        (lambda g: dict(g, b="much"), DTypeError, "gradient of b is 'much'"),
        (lambda g: None, ShapeError, "1 gradient came for 3"),
        (lambda g: od.optim.SGD(model(), 1.0), DTypeError, "an optimizer came"),
    ],
    ids=["array", "few", "names", "shape", "complex", "text", "none", "optimizer"],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_gradients_that_do_not_fit_are_named_and_nothing_changes(change, error, message, shards):
    params = model()
    parallel = DataParallel(Negated(params), shards=shards)
    grads = gradients_of(params, *batch_of(4))
    with pytest.raises(error, match=message):
        parallel.add(change(grads))
    for _ in range(shards):
        parallel.add(grads)
    parallel.step()
    for name, g in grads.items():
        np.testing.assert_array_equal(params[name].numpy(), -g)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DataParallel(None), DTypeError, "None came; pass an optimizer"),
        (lambda: DataParallel(lambda g: g), DTypeError, "pass an optimizer of odyssey.optim"),
        (lambda: DataParallel(od.optim.sgd(0.1)), DTypeError, "pass an optimizer"),
        (lambda: DataParallel(od.optim.LBFGS(model())), DTypeError, "LBFGS"),
        (lambda: DataParallel(Own(model(), 0.1)), DTypeError, "Own has a step.. of its own"),
        (lambda: DataParallel(od.optim.SGD(model(), 1.0), 4), DTypeError, "group=4"),
        (lambda: DataParallel(od.optim.SGD(model(), 1.0), shards=3), SettingError, "power of two"),
        (lambda: DataParallel(od.optim.SGD(model(), 1.0), shards=0), SettingError, "at least 1"),
        (lambda: DataParallel(od.optim.SGD(model(), 1.0), shards=2.5), DTypeError, "whole number"),
        (lambda: DataParallel(od.optim.SGD(model(), 1.0), shards=2**40), SettingError, "at most"),
        (
            lambda: DataParallel(od.optim.SGD(model(), 1.0), reduction="slow"),
            SettingError,
            "choose 'ordered' or 'fast'",
        ),
        (
            lambda: DataParallel(od.optim.SGD(model(), 1.0), check_every=0),
            SettingError,
            "check_every=0",
        ),
    ],
    ids=[
        "none",
        "function",
        "rule",
        "lbfgs",
        "step",
        "group",
        "3",
        "0",
        "2.5",
        "many",
        "word",
        "every",
    ],
)
def test_arguments_that_do_not_fit_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


class Own(od.optim.SGD):
    """An optimizer whose step does more."""

    def step(self, **options):
        super().step(**options)


def test_any_number_of_shards_is_taken_in_any_order_of_sums():
    params, batch = model(), batch_of(7)
    expected = gradients_of(params, *batch)
    step(DataParallel(Negated(params), shards=3, reduction="fast"), params, batch)
    for name, p in params.items():
        np.testing.assert_allclose(-p.numpy(), expected[name], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ((np.ones((3, 2)), np.ones(4)), ShapeError, r"array \[1\] of the batch has 4 rows, and"),
        ((np.ones((3, 2)), np.float64(1.0)), DTypeError, r"array \[1\] of the batch is"),
        ((np.ones((3, 2)), np.array(1.0)), ShapeError, r"array \[1\] of the batch has no axis"),
        ((np.ones((0, 2)), np.ones(0)), ShapeError, "the batch has no rows"),
        ((), ShapeError, "the batch has no arrays"),
        ("text", DTypeError, "the batch is 'text'"),
        ([[1.0, 2.0]], DTypeError, "of the batch is 1.0"),
    ],
    ids=["rows", "number", "scalar", "empty", "nothing", "text", "lists"],
)
def test_batches_that_do_not_fit_are_named(batch, error, message):
    parallel = DataParallel(od.optim.SGD(model(), 1.0), shards=2)
    with pytest.raises(error, match=message):
        parallel.shards(batch)
    compiled = od.compile(lambda *arrays: None)
    with pytest.raises(error, match=message):
        parallel.precompile(compiled, batch)


def test_only_compiled_functions_are_precompiled():
    parallel = DataParallel(od.optim.SGD(model(), 1.0))
    with pytest.raises(DTypeError, match=r"pass what od\.compile returned"):
        parallel.precompile(loss_of, batch_of(4))


@pytest.mark.parametrize("shards", [1, 2])
def test_parts_are_counted(shards):
    params, batch = model(), batch_of(8)
    grads = gradients_of(params, *batch)
    parallel = DataParallel(Negated(params), shards=shards)
    with pytest.raises(SettingError, match="no gradients came since the last step"):
        parallel.step()
    for _ in range(shards):
        parallel.add(grads)
    with pytest.raises(SettingError, match=f"{shards} parts? of this step came already"):
        parallel.add(grads)
    parallel.step()
    with pytest.raises(SettingError, match="no gradients came since"):
        parallel.step()
    parts = parallel.shards(batch)
    with pytest.raises(SettingError, match=f"gradients of 0 of {shards} parts"):
        parallel.step()
    next(parts)
    parallel.add(grads)
    with pytest.raises(SettingError, match=r"came twice|came already"):
        parallel.add(grads)
    parallel.zero_grad()
    if shards == 2:
        with pytest.raises(SettingError, match="left for another batch"):
            next(parts)
    for part in parallel.shards(batch):
        parallel.add(gradients_of(params, *part))
    with pytest.raises(SettingError, match=f"has {shards} parts on this rank"):
        parallel.add(grads)
    parallel.step()


def test_a_batch_whose_parts_were_left_is_refused():
    params = model()
    parallel = DataParallel(od.optim.SGD(params, 0.1), shards=2)
    for part in parallel.shards(batch_of(8)):
        parallel.add(gradients_of(params, *part))
        break
    with pytest.raises(SettingError, match="gradients of 1 of 2 parts"):
        parallel.shards(batch_of(8))
    parallel.zero_grad()
    step(parallel, params, batch_of(8))


def test_weights_come_for_all_parts_or_for_none():
    params = model()
    parallel = DataParallel(od.optim.SGD(params, 0.1), shards=2)
    grads = gradients_of(params, *batch_of(4))
    parallel.add(grads, weight=2)
    with pytest.raises(SettingError, match="for all parts or for none"):
        parallel.add(grads)
    with pytest.raises(SettingError, match="weight=-1"):
        parallel.add(grads, weight=-1)
    with pytest.raises(DTypeError, match="weight='2'"):
        parallel.add(grads, weight="2")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"clip_norm": -1}, SettingError, "clip_norm=-1"),
        ({"clip_norm": 1, "clip_value": 1}, SettingError, "pass one of them"),
        ({"clip_value": "1"}, DTypeError, "clip_value='1'"),
        ({"allow_missing": "yes"}, DTypeError, "allow_missing='yes'"),
        ({"where": [True]}, DTypeError, "where="),
        ({"where": np.array([True])}, ShapeError, "where has shape"),
        ({"scaler": 2.0}, DTypeError, "scaler=2.0"),
    ],
    ids=["norm", "both", "text", "missing", "list", "axis", "scaler"],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_options_of_a_step_that_do_not_fit_are_named(options, error, message, shards):
    params, batch = model(), batch_of(8)
    before = numbers(params)
    parallel = DataParallel(od.optim.SGD(params, 0.1), shards=shards)
    with pytest.raises(error, match=message):
        step(parallel, params, batch, **options)
    assert_equal(numbers(params), before)
    parallel.step()  # the gradients are still there
    assert not np.array_equal(params["w"].numpy(), before["w"])


def test_complex_gradients_are_not_cut_by_value():
    z = Variable(np.array([1j]), requires_grad=True, name="z")
    parallel = DataParallel(od.optim.SGD([z], 0.1))
    parallel.add([np.array([1j])])
    with pytest.raises(DTypeError, match="parameter z is complex"):
        parallel.step(clip_value=1.0)


def test_a_tape_that_was_swept_is_refused_and_no_part_counts():
    params = model()
    parallel = DataParallel(od.optim.SGD(params, 0.1))
    with GradientTape() as tape:
        loss = loss_of(params, *batch_of(4))
    tape.backward(loss)
    with pytest.raises(TapeConsumedError):
        parallel.backward(tape, loss)
    with pytest.raises(DTypeError, match="pass the tape and then the loss"):
        parallel.backward(loss, tape)
    with pytest.raises(SettingError, match="no gradients came"):
        parallel.step()


def test_a_part_too_many_does_not_consume_the_tape():
    params = model()
    parallel = DataParallel(od.optim.SGD(params, 0.1))
    parallel.add(gradients_of(params, *batch_of(4)))
    with GradientTape() as tape:
        loss = loss_of(params, *batch_of(4))
    with pytest.raises(SettingError, match="came already"):
        parallel.backward(tape, loss)
    tape.gradient(loss, params)


def test_it_is_not_copied_or_pickled():
    parallel = DataParallel(od.optim.SGD(model(), 0.1))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(OdysseyError, match="not copied or pickled"):
            copied(parallel)
    assert "rank 0 of 1, 1 shards" in repr(parallel)


# ------------------------------------------------------------------ compiled functions


@pytest.mark.parametrize("method", ["shards", "add", "backward", "step", "zero_grad", "state_dict"])
def test_no_compiled_function_steps_it(method):
    params = model()
    before = numbers(params)
    parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=2)
    grads = gradients_of(params, *batch_of(4))

    @od.compile
    def train(x, y):
        if method == "backward":
            with GradientTape() as tape:
                loss = loss_of(params, x, y)
            parallel.backward(tape, loss)
        elif method in ("shards", "add"):
            getattr(parallel, method)((x, y) if method == "shards" else grads)
        else:
            getattr(parallel, method)()

    for _ in range(2):
        with pytest.raises(TapeError, match=f"DataParallel.{method}: called while a graph is"):
            train(*batch_of(8))
    step(parallel, params, batch_of(8))
    assert not np.array_equal(params["w"].numpy(), before["w"])


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_goes_between_optimizers_and_parallel_ones(name):
    params = model(np.float32)
    parallel = DataParallel(OPTIMIZERS[name](params), shards=2)
    for k in range(2):
        step(parallel, params, batch_of(8, seed=k, dtype=np.float32))
    saved = parallel.state_dict()
    plain = {n: Variable(p.numpy(), requires_grad=True) for n, p in params.items()}
    optimizer = OPTIMIZERS[name](plain)
    optimizer.load_state_dict(saved)
    again = DataParallel(optimizer, shards=2)
    step(parallel, params, batch_of(8, seed=5, dtype=np.float32))
    step(again, plain, batch_of(8, seed=5, dtype=np.float32))
    assert_equal(numbers(params), numbers(plain))
    again.load_state_dict(saved)
    assert repr(again.state_dict()) == repr(saved)
    with pytest.raises(OdysseyError, match="pass what state_dict"):
        again.load_state_dict({"state": 1})


# ------------------------------------------------------------------ interrupts


def interrupt_each_line(work, check):
    """Run ``work`` again and again, each time with an interrupt one line of the library later."""
    for n in count(1):
        state, run = work()
        with interrupt(n) as fired, suppress(KeyboardInterrupt):
            run()
        check(state)
        if not fired:
            return n
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "options"), [(1, {}), (2, {"clip_norm": 0.1})])
@in_its_thread
def test_an_interrupt_at_any_line_leaves_all_of_a_step_or_nothing(shards, options):
    grads = [gradients_of(model(), *batch_of(4, seed=k)) for k in range(shards)]

    def prepared():
        params = model()
        parallel = DataParallel(OPTIMIZERS["Adam"](params), shards=shards)
        for _ in range(2):
            for g in grads:
                parallel.add(g)
            if _ == 0:
                parallel.step(**options)
        return params, parallel

    def outcome(params, parallel):
        return repr((numbers(params), parallel.state_dict()))

    before = outcome(*prepared())
    params, parallel = prepared()
    parallel.step(**options)
    after = outcome(params, parallel)
    assert before != after
    seen = set()

    def work():
        params, parallel = prepared()
        return (params, parallel), lambda: parallel.step(**options)

    def check(state):
        params, parallel = state
        found = outcome(params, parallel)
        assert found in (before, after)
        seen.add(found)
        if found == before:  # and the step may be repeated
            parallel.step(**options)
            assert outcome(params, parallel) == after
        else:
            with pytest.raises(SettingError, match="no gradients came"):
                parallel.step(**options)

    assert interrupt_each_line(work, check) > 20
    assert seen == {before, after}


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 4])
@in_its_thread
def test_an_interrupt_at_any_line_leaves_a_part_added_or_not(shards):
    grads = [gradients_of(model(), *batch_of(4, seed=k)) for k in range(shards)]

    def work():
        params = model()
        parallel = DataParallel(Negated(params), shards=shards)
        for g in grads[:-1]:
            parallel.add(g)
        return (params, parallel), lambda: parallel.add(grads[-1])

    params, parallel = work()[0]
    parallel.add(grads[-1])
    parallel.step()
    expected = numbers(params)
    seen = set()

    def check(state):
        params, parallel = state
        try:
            parallel.add(grads[-1])
            seen.add("not added")
        except SettingError:
            seen.add("added")
        parallel.step()
        assert_equal(numbers(params), expected)

    assert interrupt_each_line(work, check) > 5
    assert seen == {"added", "not added"}


# ------------------------------------------------------------------ layout


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("complete", [False, True])
def test_pieces_of_all_ranks_are_all_elements_once(ranks, complete):
    rng = np.random.default_rng(ranks)
    shapes = [(40, 30), (0, 3), (), (7,), (600,), (13, 17)]
    params = [Variable(rng.normal(size=shape), requires_grad=True) for shape in shapes]
    params.append(Variable(rng.normal(size=5) + 0j, requires_grad=True))
    layouts = layouts_of(params, [not complete] * len(params), ranks)
    assert [layout.indices for layout in layouts] == [[0, 1, 2, 3, 4, 5], [6]]
    seen = {k: [] for k in range(len(params))}
    for layout in layouts:
        assert layout.length % (ranks * BLOCK) == 0
        for rank in range(ranks):
            for piece in layout.pieces(rank):
                assert 0 <= piece.window.start <= piece.window.stop <= layout.step
                seen[piece.k].append((piece.start, piece.stop, rank * layout.step + piece.offset))
        flat = np.zeros(layout.length)
        for k, view in layout.views(flat, params).items():
            view[...] = params[k].numpy()
        for j, k in enumerate(layout.indices):
            for start, stop, position in seen[k]:
                assert position == layout.starts[j] + start or not stop
                expected = params[k].numpy().reshape(-1).view(np.float64)[start:stop]
                np.testing.assert_array_equal(flat[position : position + stop - start], expected)
    for k, p in enumerate(params):
        edges = sorted((a, b) for a, b, _ in seen[k])
        width = p.size * (2 if p.dtype.kind == "c" else 1)
        assert edges[0][0] == 0
        assert edges[-1][1] == width
        assert all(a[1] == b[0] for a, b in pairwise(edges))
        if complete:
            assert len(edges) == 1


def test_parameters_whose_rule_sees_all_of_them_are_dealt_by_size():
    params = [Variable(np.zeros(n), requires_grad=True) for n in (100, 900, 500, 300, 700)]
    (layout,) = layouts_of(params, [False] * 5, 2)
    loads = [sum(piece.stop - piece.start for piece in layout.pieces(rank)) for rank in range(2)]
    assert sorted(loads) == [1200, 1300]


def test_sums_do_not_warn_of_what_they_overflow_to():
    w = Variable(np.zeros(1, np.float32), requires_grad=True)
    parallel = DataParallel(Negated([w]), shards=2)
    for _ in range(2):
        parallel.add([np.array([3e38], np.float32)])
    parallel.step()
    assert w.numpy() == -np.inf
    assert commit_quietly([]) is None
