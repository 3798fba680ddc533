"""What a compiled function tells of its programs: kernels, times, bytes, arithmetic and code."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, SettingError

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

RNG = np.random.default_rng(0)


def program(fn, *args):
    """A compiled function that has a program for these arguments."""
    compiled = od.compile(fn)
    for _ in range(3):
        compiled(*args)
    assert compiled.statistics().native, compiled.explain(*args)
    return compiled


class World:
    """A model in training, whose gradients add up over two steps each."""

    def __init__(self):
        rng = np.random.default_rng(1)
        base = rng.normal(size=(6, 8))
        self.w = Variable(base[:, ::2], requires_grad=True)  # apart in memory
        self.b = Variable(rng.normal(size=3), requires_grad=True)
        self.count = Variable(np.zeros(3))
        self.optimizer = od.optim.Adam([self.w, self.b], learning_rate=0.1)
        self.step = od.compile(self._step)
        self.gather = od.compile(self._gather)

    def _loss(self, x):
        return ((np.tanh(x @ self.w)[:, :3] + self.b) ** 2).sum()

    def _step(self, x):
        with GradientTape() as tape:
            loss = self._loss(x)
        tape.backward(loss)
        self.optimizer.step()
        self.count[1:] = self.count[:2] + 1.0
        self.optimizer.zero_grad()
        return loss

    def _gather(self, x):
        with GradientTape() as tape:
            loss = self._loss(x)
        tape.backward(loss)
        return loss

    def state(self):
        arrays = [self.w.numpy(), self.b.numpy(), self.count.numpy()]
        arrays += [np.asarray(leaf) for leaf in od.tree.leaves(self.optimizer.state_dict())]
        grads = [v.grad for v in (self.w, self.b)]
        return [a.tobytes() for a in arrays] + [
            None if g is None else np.asarray(g).tobytes() for g in grads
        ]


@pytest.mark.slow
def test_a_world_that_is_profiled_between_its_steps_is_as_one_that_is_not():
    one, other = World(), World()
    for k in range(8):
        x = np.random.default_rng(k).normal(size=(5, 6))
        for world in (one, other):
            for fn in (world.gather, world.step):
                loss = fn(x)
                if world is one:
                    before, versions = world.state(), world.w._info.version
                    if k > 3:
                        assert world.step.profile(x, runs=3).kernels
                        assert world.gather.profile(x, runs=3).kernels
                    assert world.state() == before
                    assert world.w._info.version == versions
        assert one.state() == other.state()
    assert one.step.statistics() == other.step.statistics()
    assert one.step.statistics().native > 4
    assert np.isfinite(loss.numpy())


def test_bytes_and_flops_of_a_product_are_those_of_its_matrices():
    a, b = RNG.normal(size=(7, 40)), RNG.normal(size=(40, 11))
    (kernel,) = program(lambda a, b: a @ b, a, b).profile(a, b).kernels
    assert kernel[:3] == ("product", "7x11", "matmul")
    assert kernel.flops == 2 * 7 * 40 * 11
    assert kernel.bytes == 8 * (7 * 40 + 40 * 11 + 7 * 11)


def test_bytes_and_flops_of_a_batch_that_shares_a_matrix():
    a, b = RNG.normal(size=(5, 7, 40)), RNG.normal(size=(40, 11))
    (kernel,) = program(lambda a, b: a @ b, a, b).profile(a, b).kernels
    assert kernel.flops == 5 * 2 * 7 * 40 * 11
    assert kernel.bytes == 8 * (5 * 7 * 40 + 40 * 11 + 5 * 7 * 11)


def test_what_is_fused_is_named_and_counted_once():
    x, row = RNG.normal(size=(30, 20)).astype("f4"), RNG.normal(size=20).astype("f4")
    fn = program(lambda x, row: (ops.exp(x * row) + row).sum(), x, row)
    (kernel,) = fn.profile(x, row).kernels
    assert kernel[:3] == ("loops", "30x20", "multiply, exp, add, sum")
    assert kernel.flops == 3 * 600 + 599
    assert kernel.bytes == 4 * (600 + 20 + 1)


def test_parts_that_are_read_count_alone():
    x = RNG.normal(size=(100, 50))
    (kernel,) = program(lambda x: x[:10] * 2.0, x).profile(x).kernels
    assert kernel.bytes == 8 * (500 + 500)
    places = np.arange(4)
    (kernel,) = (
        program(lambda x, k: ops.take(x, k, axis=0) * 2.0, x, places)
        .profile(x, places)
        .kernels[-1:]
    )
    assert kernel.bytes <= 8 * (200 + 200 + 2 * 4)


def test_gradients_of_weights_that_are_added_to_momentum_are_named_by_their_product():
    w = Variable(RNG.normal(size=(40, 30)), requires_grad=True)
    optimizer = od.optim.SGD([w], learning_rate=0.1, momentum=0.9)

    def step(x):
        with GradientTape() as tape:
            loss = (x @ w).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    x = RNG.normal(size=(20, 40))
    (product,) = [k for k in program(step, x).profile(x).kernels if k.kind == "product"]
    assert product.what == "matmul"
    # The product, and two steps for each element of the momentum; which is read and written.
    assert product.flops == 2 * 40 * 20 * 30 + 2 * 40 * 30
    assert product.bytes == 8 * (20 * 40 + 20 * 30 + 2 * 40 * 30)


def test_calls_of_python_are_timed_as_well():
    x = RNG.normal(size=(40, 40)) + 40 * np.eye(40)
    fn = program(lambda x: ops.pinv(x * 2.0) + 1.0, x)
    kinds = [(k.kind, k.what, k.flops) for k in fn.profile(x).kernels]
    assert kinds == [("loops", "multiply", 1600), ("call", "pinv", None), ("loops", "add", 1600)]
    assert all(k.microseconds > 0 for k in fn.profile(x).kernels if k.kind == "call")


def test_what_takes_long_is_seen_to_take_long():
    x, y = RNG.normal(size=(1 << 18,)), RNG.normal(size=(5, 3))
    fn = program(lambda x, y: (ops.exp(x).sum(), y * 2.0), x, y)
    profile = fn.profile(x, y, runs=5)
    times = {k.what: k.microseconds for k in profile.kernels}
    # A quarter of a million exponentials take more than 10 us on any machine.
    assert times["exp, sum"] > 10 * times["multiply"]
    assert sum(times.values()) <= profile.microseconds
    assert profile.runs == 5


def test_kernels_of_a_step_are_counted_over_all_steps_of_a_loop():
    x, w, h = RNG.normal(size=(50, 3, 4)), RNG.normal(size=(4, 4)), RNG.normal(size=(3, 4))

    def rolled(x, w, h):
        def step(h, row):
            h = ops.tanh(h @ w + row)
            return h, ops.pinv(h @ ops.swapaxes(h, 0, 1) + 9 * np.eye(3)).sum()

        return od.scan(step, h, x)

    profile = program(rolled, x, w, h).profile(x, w, h)
    (loop,) = profile.kernels
    ((title, kernels),) = loop.parts
    assert (loop.what, title) == ("scan", "each step")
    whats = {k.what: k for k in kernels}
    assert whats["pinv"].kind == "call"
    assert whats["pinv"].bytes == 50 * 8 * 2 * 9
    assert whats["pinv"].flops is None
    assert sum(k.flops or 0 for k in kernels) > 50 * (2 * 3 * 4 * 4 + 2 * 3 * 3 * 4)
    assert whats["pinv"].microseconds > 50 * 0.5  # NumPy's takes some microseconds
    assert sum(k.microseconds for k in kernels) <= loop.microseconds <= profile.microseconds
    assert len(str(profile).splitlines()) == 2 + 1 + 1 + len(kernels)


def test_branches_count_where_they_were_chosen():
    def turn(x):
        def body(x):
            return od.cond(x[0] > 3.0, lambda x: x * 1.5, lambda x: ops.exp(x) + 1.0, x)

        return od.while_loop(lambda x: x[0] < 100.0, body, x)

    x = np.ones(10)
    kept = program(turn, x)
    found = kept.profile(x, runs=1).kernels[-1].parts
    assert [title for title, _ in found] == ["while", "each step"]
    (branch,) = [k for k in found[1][1] if k.what == "cond"]
    parts = dict(branch.parts)
    steps, value = 0, 1.0
    while value < 100.0:
        value = value * 1.5 if value > 3.0 else np.exp(value) + 1.0
        steps += 1
    assert [k.flops for k in parts["if true"]] == [10 * (steps - 1)]
    assert [k.flops for k in parts["if false"]] == [2 * 10]
    (never,) = (
        program(lambda x: od.cond(x[0] > 3.0, ops.exp, ops.sin, x), x).profile(x).kernels[-1:]
    )
    assert [k.what for k in dict(never.parts)["if false"]] == ["sin"]
    assert dict(never.parts)["if true"] == ()


def test_what_is_set_to_0_or_copied_into_states_has_lines_of_memory():
    v = Variable(np.arange(6.0).reshape(2, 3))

    def turn(x):
        v.assign(v[:, ::-1] + x)
        leaf = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            loss = (leaf[:1] ** 2).sum()
        return tape.gradient(loss, leaf)

    x = RNG.normal(size=(2, 3))
    lines = {k.what: k for k in program(turn, x).profile(x).kernels if k.kind == "memory"}
    assert {what: k.bytes for what, k in lines.items()} == {
        "set to 0": 8 * 6,
        "copy into states": 8 * 6 * 2,
    }


def test_a_table_has_a_line_for_each_kernel():
    x = RNG.normal(size=(64, 64))
    profile = program(lambda x: ops.softmax(x @ x, axis=-1), x).profile(x)
    first, head, *lines = str(profile).splitlines()
    assert first.startswith(f"{len(profile.kernels)} kernels in ")
    assert head.split() == ["kernel", "space", "us", "share", "bytes", "flops", "GB/s", "what"]
    assert len(lines) == len(profile.kernels) == 2
    assert "matmul" in lines[0]
    assert "softmax" in lines[1]
    assert all(k.gigabytes_per_second > 0 for k in profile.kernels)


def test_an_index_out_of_range_is_refused_by_a_profile_too():
    x, places = RNG.normal(size=5), np.array([1, 4])
    fn = program(lambda x, k: ops.take(x, k) * 2.0, x, places)
    with pytest.raises(
        OdysseyError, match="profile: the program refuses the values of the arguments"
    ):
        fn.profile(x, np.array([1, 5]))


@pytest.mark.parametrize("method", ["profile", "code"])
def test_there_is_nothing_to_look_at_without_a_program(method):
    def sum_of(x):
        return x.sum()

    compiled = od.compile(sum_of)
    x = np.ones(3)
    words = f"{method}: sum_of has no program for these arguments: not called with such"
    with pytest.raises(SettingError, match=words):
        getattr(compiled, method)(x)
    compiled(x), compiled(x)
    assert getattr(compiled, method)(x)
    with pytest.raises(SettingError, match=words):
        getattr(compiled, method)(np.ones(4))
    printing = od.compile(lambda x: print(end="") or x * 2.0)
    printing(x), printing(x)
    with pytest.raises(SettingError, match="runs as plain Python"):
        getattr(printing, method)(x)


def test_settings_are_refused_by_name():
    x = np.ones(3)
    compiled = program(lambda x: x * 2.0, x)
    with pytest.raises(SettingError, match="profile: runs=0; it must be at least 1"):
        compiled.profile(x, runs=0)
    with pytest.raises(DTypeError, match=r"profile: runs=1\.5 is not a whole number"):
        compiled.profile(x, runs=1.5)
    with pytest.raises(DTypeError, match="assembly"):
        compiled.code(x, assembly="yes")


def test_code_is_a_module_that_llvm_takes_and_assembly_is_made_of_it():
    from llvmlite import binding as llvm

    x = RNG.normal(size=(64, 64))
    compiled = program(lambda x: ops.exp(x).sum(axis=0), x)
    text = compiled.code(x)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    assert "segment0" in {f.name for f in module.functions}
    assembly = compiled.code(x, assembly=True)
    assert "segment0:" in assembly
    assert "define" not in assembly
    assert "odyssey_now" not in text  # programs that are run have no clocks


def test_programs_are_told_apart_by_the_numbers_that_are_fixed_in_them():
    compiled = od.compile(lambda x, n: ops.sum(x, axis=n))
    x = RNG.normal(size=(4, 6))
    for n in (0, 1):
        for _ in range(3):
            compiled(x, n)
    assert compiled.code(x, 0) != compiled.code(x, 1)
    assert compiled.profile(x, 0).kernels[0].flops == 24 - 6
    assert compiled.profile(x, 1).kernels[0].flops == 24 - 4


def test_words_tell_whether_a_program_is_for_what_there_is_now():
    buffer = np.zeros((16, 3))
    total = od.compile(lambda k: ops.take(buffer, k, axis=0).sum())
    k = np.array([0, 1])
    for _ in range(2):
        total(k)
    assert total.explain(k).startswith("a program of")
    buffer[0] = 1.0
    said = total.explain(k)
    assert said.startswith("there is a program, but it does not fit, since elements of cell buffer")
    assert "the next call compiles another" in said
    for step in range(12):
        buffer[1] = step
        assert total(k) == 3.0 + 3.0 * step
    said, counts = total.explain(k), total.statistics()
    assert "runs as plain Python: 8 programs were compiled, and a guard fails again" in said
    assert "as arguments" in said
    total(k)
    assert total.statistics() == counts._replace(written=counts.written + 1)


def test_a_program_for_what_there_was_before_is_told_of_again():
    scale = [2.0]
    scaled = od.compile(lambda x: x * scale[0])
    for scale[0] in (2.0, 2.0, 3.0, 3.0):
        scaled(np.ones(3))
    for scale[0] in (2.0, 3.0):
        assert scaled.explain(np.ones(3)).startswith("a program of")
    assert scaled.statistics().programs == 2


def test_words_tell_of_kernels_guards_and_stages():
    scale, w = [2.0], Variable(RNG.normal(size=(8, 4)), name="w")
    x = RNG.normal(size=(5, 8))
    text = program(lambda x: ops.tanh(x @ w) * scale[0], x).explain(x)
    assert "a program of 2 kernels" in text
    assert "320" in text.split("product", 1)[1].splitlines()[0]  # 2 * 5 * 8 * 4
    assert "tanh, multiply" in text
    assert "scale[0]" in text
    for stage in ("trace", "lower", "plan", "generate", "link"):
        assert f"{stage} " in text.splitlines()[-1]


@pytest.mark.parametrize("varying", [None, {"rows": {0: od.Dim("time", 1, 64)}}], ids=str)
def test_words_tell_of_the_parts_of_loops(varying):
    w = RNG.normal(size=(4, 4))

    def fn(rows):
        last, _ = od.scan(lambda h, row: (ops.tanh(h @ w + row), h), np.zeros((2, 4)), rows)
        large = od.cond(last.sum() > 0, ops.exp, ops.sin, last)
        return od.while_loop(lambda a: ops.sum(a) < 50.0, lambda a: ops.exp2(a), large)

    compiled = od.compile(fn, dynamic=varying)
    for length in (50, 51, 50, 51):  # shorter scans are written out
        compiled(RNG.normal(size=(length, 2, 4)))
    text = compiled.explain(RNG.normal(size=(51, 2, 4)))
    found = [line.split("  ")[-1].strip() for line in text.splitlines()]
    assert "calls scan" in found
    after = {title: found[found.index(f"{title}:") + 1] for title in ("if true", "if false")}
    assert after == {"if true": "exp", "if false": "sin"}
    assert found.index("add, tanh, copy") > found.index("each step:") > found.index("calls scan")
    assert found.index("exp2") > found.index("while:") > found.index("calls while_loop")
