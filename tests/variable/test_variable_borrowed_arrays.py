"""Arrays that a tape keeps and does not own: kept once, and writes behind its back noticed."""

import re
import weakref

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.devices.array_locks import locked_bytes
from odyssey.devices.ownership import LARGE, SMALL, digest, same_bits, sample_bytes
from odyssey.errors import MutationError

MIDDLE = 4096  # elements of float64: more than a tape copies at every use
HUGE = LARGE // 8  # elements of float64 that a tape keeps as they lie


def leaf():
    return Variable(1.5, requires_grad=True, name="w")


def kept_bytes(tape):
    """Bytes of the arrays that the nodes of a tape keep, without what these are views of."""
    arrays = {id(v): v for node in tape._recording.nodes for v in node[3] or ()}
    return sum(v.nbytes for v in arrays.values() if isinstance(v, np.ndarray) and v.base is None)


# ------------------------------------------------------------------ views


@pytest.mark.parametrize("size", [MIDDLE, HUGE], ids=["middle", "large"])
@pytest.mark.parametrize(
    "cut", [slice(1, None), slice(None, None, -1), slice(None, None, 2)], ids=["from", "back", "2"]
)
def test_a_view_that_is_used_twenty_times_is_kept_once(size, cut):
    base, w = np.arange(2.0 * size), leaf()
    with GradientTape() as tape:
        loss = 0.0
        for _ in range(20):
            loss = loss + (w * base[cut]).sum()  # a new view object every time
    assert kept_bytes(tape) <= base[cut].nbytes + 21 * SMALL
    np.testing.assert_allclose(tape.gradient(loss, w), 20 * base[cut].sum(), rtol=1e-12)


def test_a_large_view_takes_no_memory_of_its_own():
    base, w = np.ones(HUGE + 1), leaf()
    with GradientTape() as tape:
        loss = (w * base[1:]).sum()
    assert kept_bytes(tape) < SMALL
    assert tape.gradient(loss, w) == HUGE


def test_a_view_that_changed_between_two_uses_is_kept_twice():
    base, w = np.full(MIDDLE + 1, 2.0), leaf()
    with GradientTape() as tape:
        first = (w * base[1:]).sum()
        base[:] = 3.0
        loss = first + (w * base[1:]).sum()
    assert tape.gradient(loss, w) == 5 * MIDDLE


def test_a_copy_of_a_view_goes_with_the_nodes_that_keep_it():
    base, w = np.full(MIDDLE + 1, 2.0), leaf()
    with GradientTape() as tape:
        loss = (w * base[1:]).sum()
        (copy,) = [weakref.ref(r()) for r in tape._recording.copies.values()]
        assert copy() is not None
        del loss
        tape._recording.prune()
        assert copy() is None
        assert not tape._recording.copies


def test_views_of_one_place_with_other_dtypes_are_kept_apart():
    base, w = np.ones(MIDDLE), Variable(np.float32(1.5), requires_grad=True)
    with GradientTape() as tape:
        loss = (w * base[1:]).sum() + (w * base.view(np.int64)[1:]).sum() * 1e-18
    expected = base[1:].sum() + base.view(np.int64)[1:].sum(dtype=float) * 1e-18
    np.testing.assert_allclose(tape.gradient(loss, w), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, -0.0, np.inf])
def test_bits_are_compared_and_not_values(value):
    x = np.full(10, value)
    assert same_bits(x, x.copy())
    assert not same_bits(x, np.where(np.arange(10) == 7, 0.0, x))
    assert same_bits(x + 0j, x + 0j)
    assert not same_bits(np.zeros(3), -np.zeros(3))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i1", "?"])
def test_bits_are_compared_in_every_layout(dtype):
    x = np.random.default_rng(0).integers(0, 2, (7, 300, 64)).astype(dtype)
    for y in (x, x.T, x[:, ::-1], x[:, 3:9, ::2], x[:0], x[0, 0, 0:1].reshape(())):
        assert same_bits(y, y.copy())
        if y.size:
            z = y.copy()
            z.flat[y.size // 2] = 1 - z.flat[y.size // 2]
            assert not same_bits(y, z)


# ------------------------------------------------------------------ digests


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "c8", "c16", "i1", "?", "u4"])
@pytest.mark.parametrize("shape", [(5000,), (3, 2500), (1, 4999), (70, 2, 40)], ids=str)
def test_a_digest_notices_one_element_and_one_exchange_in_every_layout(dtype, shape):
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 2, shape).astype(dtype)
    for view in (whole, whole.T, whole[..., ::-1], whole[::2], whole[..., 1::3]):
        before = digest(view)
        assert digest(view) == before == digest(view.copy("K")[...])
        places = np.argwhere(view == 1)[0], np.argwhere(view == 0)[-1]
        one, other = map(tuple, places)
        view[one], view[other] = view[other], view[one]
        assert digest(view) != before
        view[one], view[other] = view[other], view[one]
        if dtype != "g":  # whose numbers are written with whatever fills their padding
            assert digest(view) == before
        view[one] = 0
        assert digest(view) != before
        view[one] = 1


def test_a_digest_notices_an_exchange_of_signs():
    x = np.ones(10_000)
    x[5000] = -1.0
    before = digest(x)
    x[5000], x[5001] = x[5001], x[5000]
    assert digest(x) != before


def rows_of_one():
    return np.eye(10)[np.arange(14_000) % 10]


PATTERNS = {
    "two rows that have one 1 each": (rows_of_one, lambda x: x[[1, 0]]),
    "rows in another order": (rows_of_one, lambda x: x[39::-1]),
    "signs in a pattern": (
        lambda: np.resize(np.float32([1, -1, -1, 1]), 1 << 18),
        lambda x: -x[:4],
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_digest_notices_what_moves_in_a_pattern(name):
    make, moved = PATTERNS[name]
    x = make()
    before, new = digest(x), moved(x).copy()
    assert not np.array_equal(x[: len(new)], new)
    x[: len(new)] = new
    assert digest(x) != before


def test_exchanged_labels_in_the_base_of_a_large_view_are_noticed_at_the_sweep():
    labels = rows_of_one()
    w = Variable(np.ones(labels.shape), requires_grad=True)
    with GradientTape() as tape:
        y = (w * labels[:]).sum()
    labels[[3, 4]] = labels[[4, 3]]
    with pytest.raises(MutationError, match="was written to since"):
        tape.gradient(y, w)


def test_a_digest_of_nothing_and_of_one_number_exists():
    assert digest(np.zeros(0)) == b""
    assert digest(np.zeros((0, 3)).T) == b""
    assert digest(np.array(2.0)) == np.float64(2.0).tobytes()
    assert len(digest(np.broadcast_to(np.float32(1), (1000, 1000)))) > 0


# ------------------------------------------------------------------ writes behind the tape


def by_an_older_view(a):
    view = a[...]
    return lambda: view.fill(7.0)


def by_a_memoryview(a):
    view = memoryview(a).cast("B")

    def write():
        view[:] = bytes(len(view))

    return write


def by_strides(a):
    view = np.lib.stride_tricks.as_strided(a, a.shape, a.strides)
    return lambda: view.fill(7.0)


def by_the_flag(a):
    def write():
        a.flags.writeable = True
        a[...] = 7.0

    return write


def by_a_buffer(a):
    view = np.frombuffer(memoryview(a), a.dtype)
    return lambda: view.fill(7.0)


WRITERS = [by_an_older_view, by_a_memoryview, by_strides, by_the_flag, by_a_buffer]


@pytest.mark.parametrize("writer", WRITERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("ask", ["backward", "gradient", "jvp"])
def test_an_array_that_was_overwritten_as_a_whole_is_noticed_at_the_sweep(writer, ask):
    a, w = np.arange(float(MIDDLE)), leaf()
    write = writer(a)
    with GradientTape() as tape:
        y = (w * a).sum()
    assert locked_bytes() == a.nbytes
    write()
    asked = {
        "backward": lambda: tape.backward(y),
        "gradient": lambda: tape.gradient(y, w),
        "jvp": lambda: tape.jvp(y, w, 1.0),
    }
    with pytest.raises(MutationError, match=r"multiply saved an array of shape \(4096,\)"):
        asked[ask]()
    assert len(tape) > 0
    assert w.grad is None
    tape.clear()
    assert locked_bytes() == 0


def test_a_library_that_overwrites_its_arguments_is_noticed():
    linalg = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    rng = np.random.default_rng(0)
    a = np.asfortranarray(rng.normal(size=(64, 64)) + 64 * np.eye(64))
    w = leaf()
    with GradientTape() as tape:
        y = (w * a).sum()
    linalg.lu_factor(a, overwrite_a=True, check_finite=False)
    with pytest.raises(MutationError, match="overwrites its arguments"):
        tape.gradient(y, w)


@pytest.mark.peers
def test_a_tensor_that_shares_the_memory_is_noticed():
    torch = pytest.importorskip("torch", reason="peers missing: torch")
    a, w = np.ones(MIDDLE), leaf()
    tensor = torch.from_numpy(a)
    with GradientTape() as tape:
        y = (w * a).sum()
    tensor.mul_(2.0)
    with pytest.raises(MutationError, match="multiply saved an array"):
        tape.gradient(y, w)


@pytest.mark.parametrize("how", ["all", "one", "exchange"])
def test_any_write_to_a_large_view_is_noticed(how):
    base, w = np.arange(float(HUGE + 1)), leaf()
    with GradientTape() as tape:
        y = (w * base[1:]).sum()
    if how == "all":
        base[...] = 7.0
    elif how == "one":
        base[1234] += 1e-9
    else:
        base[[10, 99]] = base[[99, 10]]
    with pytest.raises(MutationError, match="multiply saved an array"):
        tape.gradient(y, w)


def test_what_lies_beside_a_large_view_may_be_written_to():
    base, w = np.ones(2 * HUGE), leaf()
    with GradientTape() as tape:
        y = (w * base[:HUGE]).sum()
    base[HUGE:] = 5.0
    assert tape.gradient(y, w) == HUGE


def test_an_array_that_no_node_needs_any_more_may_be_overwritten():
    a, w = np.ones(MIDDLE), leaf()
    view = a[...]
    with GradientTape() as tape:
        (w * a).sum()
        y = w * w
        tape._recording.prune()
    view.fill(7.0)
    assert tape.gradient(y, w) == 3.0


@pytest.mark.filterwarnings("ignore:Setting the")
@pytest.mark.parametrize("how", ["dtype", "shape"])
def test_an_array_given_another_type_by_its_owner_keeps_what_was_recorded(how):
    a, w = np.ones(MIDDLE), leaf()
    with GradientTape() as tape:
        y = (w * a).sum()
    if how == "dtype":
        a.dtype = np.int64
    else:
        a.shape = (64, 64)
    assert tape.gradient(y, w) == MIDDLE


def test_a_few_elements_of_a_locked_array_are_compared_and_all_of_them_with_check():
    for check in (False, True):
        a, w = np.arange(float(MIDDLE)), leaf()
        view = a[...]
        with GradientTape(check=check) as tape:
            y = (w * a).sum()
        view[1] += 1.0  # not one of the elements that are compared
        if check:
            with pytest.raises(MutationError, match="saved y"):
                tape.gradient(y, w)
        else:
            tape.gradient(y, w)
    assert 24 <= len(sample_bytes(a)) // 8 <= 64


def test_a_leaf_that_was_written_to_through_its_flag_is_noticed_with_check():
    w = Variable(np.ones(MIDDLE), requires_grad=True)
    with GradientTape(check=True) as tape:
        y = (w * w).sum()
    data = w.data.base
    data[...] = 3.0
    with pytest.raises(MutationError, match="saved"):
        tape.backward(y)


def test_a_memory_map_is_kept_like_any_view(tmp_path):
    path = tmp_path / "numbers"
    np.arange(float(MIDDLE)).tofile(path)
    mapped, w = np.memmap(path, float, "r+"), leaf()
    with GradientTape() as tape:
        y = ops.sum(ops.mul(w, mapped))
    mapped[:] = 0.0
    assert tape.gradient(y, w) == np.arange(float(MIDDLE)).sum()


def test_a_write_to_the_file_of_a_large_memory_map_is_noticed(tmp_path):
    path = tmp_path / "numbers"
    np.ones(HUGE).tofile(path)
    mapped, w = np.memmap(path, float, "r"), leaf()
    with GradientTape() as tape:
        y = ops.sum(ops.mul(w, mapped))
    other = np.memmap(path, float, "r+")
    other[77] = 5.0
    other.flush()
    with pytest.raises(MutationError, match="multiply saved an array"):
        tape.gradient(y, w)


# ------------------------------------------------------------------ whose lock it is


def test_assigning_to_a_locked_array_names_the_tape_that_needs_it():
    c, w = Variable(np.ones(MIDDLE)), leaf()
    with GradientTape() as tape:
        y = (w * c).sum()
    with pytest.raises(MutationError, match=rf"needed unchanged by {re.escape(repr(tape))}; sweep"):
        c.assign(0.0)
    with GradientTape() as other:
        z = (w * c).sum()
    both = f"{re.escape(repr(tape))} and {re.escape(repr(other))}"
    with pytest.raises(MutationError, match=both):
        c.assign(0.0)
    tape.backward(y)
    with pytest.raises(MutationError, match=f"by {re.escape(repr(other))}; sweep"):
        c.assign(0.0)
    other.backward(z)
    c.assign(0.0)
    assert not c.data.any()


def test_a_constant_of_an_array_that_its_owner_froze_is_assigned_an_array_of_its_own():
    array = np.ones(3)
    array.flags.writeable = False
    v = Variable(array)
    v.assign(0.0)
    v.assign(v + 2.0)
    assert (v.numpy().tolist(), array.tolist()) == ([2.0] * 3, [1.0] * 3)


# ------------------------------------------------------------------ tables that remember


def test_rows_forget_how_operands_were_mixed():
    w = leaf()
    rng = np.random.default_rng(0)
    row = None
    for _ in range(300):
        parts = [w if on else np.ones(()) for on in rng.integers(0, 2, 20)]
        with GradientTape() as tape:
            joined = ops.stack([w, *parts])
            row = next(n[0] for n in tape._recording.nodes if n[0].name == "concatenate")
            joined.sum()
    assert len(row.save_plans) <= 64
