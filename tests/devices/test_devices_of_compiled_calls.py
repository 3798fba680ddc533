"""Arguments and results of compiled functions on a device are what the eager function has.

The stand-in runs the text of the kernels on the CPU.
"""

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import CompileWarning
from support.standin import CUPY, DeviceArray

pytestmark = pytest.mark.usefixtures("standin")

X = np.random.default_rng(0).standard_normal((4, 3)).astype("f4")


def on(array, device="cuda"):
    return od.Variable(array, device=device)


def described(thing):
    """What a leaf is, where it lies, and its numbers."""
    if isinstance(thing, od.Variable):
        return "Variable", str(thing.device), thing.requires_grad, thing.numpy().tolist()
    if isinstance(thing, DeviceArray):
        return "array of a device", thing.device, thing.get().tolist()
    if isinstance(thing, (tuple, list)):
        return type(thing), *map(described, thing)
    return type(thing), np.asarray(thing).tolist()


def agree(function, *arguments, runs=4):
    """Call a function eagerly and compiled, compare all results, and return the statistics."""
    compiled = od.compile(function, warn=False)
    for _ in range(runs):
        one, other = [make() for make in arguments], [make() for make in arguments]
        assert described(compiled(*one)) == described(function(*other))
    return compiled.statistics()


RESULTS = {
    "there and back": lambda x: (x.to("cpu") * 2.0).to("cuda"),
    "one Variable": lambda x: x * 2.0,
    "the argument": lambda x: x,
    "its transpose": lambda x: (x * 2.0, x.T),
    "one Variable twice": lambda x: [(y := x * 2.0), (y, y.T, None, 2.5, "text")],
    "a number's name": lambda x: float(x.shape[0]),
    "reshaped": lambda x: (x * 2.0).reshape(-1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_the_kinds_of_the_eager_call(name):
    assert agree(RESULTS[name], lambda: on(X)) == (1, 3, 1)


ELSEWHERE = {
    "an array of NumPy": lambda x: (x * 2.0).numpy(),
    "a number of NumPy": lambda x: (x * 2.0, np.float32(1.5)),
    "a Variable of the CPU": lambda x: x.to("cpu") + np.ones(3, "f4"),
    "a Variable of another device": lambda x: (x * 2.0).to("cuda:1"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_results_elsewhere_lie_where_the_eager_call_leaves_them(name):
    agree(ELSEWHERE[name], lambda: on(X))


def test_a_program_of_the_cpu_returns_nothing_on_a_device():
    function = od.compile(lambda x: (x * 2.0).to("cuda"), warn=False)
    for _ in range(3):
        assert str(function(od.Variable(X)).device) == "cuda:0"
    assert "it returns a Variable on cuda:0" in str(function.explain(od.Variable(X)))


def test_a_function_that_asks_for_the_device_is_told_that_of_its_arguments():
    def function(x):
        doubled = x * 2.0
        return doubled if doubled.device == x.device == "cuda:0" else x * 3.0, x.device.platform

    assert agree(function, lambda: on(X)) == (1, 3, 1)


ARRAYS = {
    "contiguous": lambda: CUPY.asarray(X),
    "reversed": lambda: CUPY.asarray(X)[::-1, ::-2],
    "transposed": lambda: CUPY.asarray(X).T,
    "empty": lambda: CUPY.asarray(X[:0]),
    "without axes": lambda: CUPY.asarray(X[0, 0]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_the_device_are_arguments(name):
    assert agree(lambda x: (x * 2.0, od.ops.maximum(x, 0.5)), ARRAYS[name]) == (1, 3, 1)


def test_views_of_arrays_of_the_device_stay_views():
    turn = od.compile(lambda x: (x * 2.0, x.T), warn=False)
    for _ in range(3):
        x = CUPY.asarray(X)
        turned = turn(x)[1]
        x[0, 1] = 7.0
        assert turned[1, 0].item() == 7.0


def test_gradients_of_functions_are_arrays_of_the_device():
    gradient = od.grad(lambda x: (x * x * x).sum())
    assert agree(gradient, lambda: on(np.arange(3.0))) == (1, 3, 1)
    assert agree(od.grad(lambda x: gradient(x).sum()), lambda: on(np.arange(3.0))).native == 3


ARGUMENTS = {
    "a Variable": lambda: on(X),
    "an array": lambda: CUPY.asarray(X),
    "a Variable that is transposed": lambda: on(X.T).T,
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("function", [lambda x: od.ops.tanh(x), lambda x: (x * x).sum()])
def test_precompiled_programs_run_at_the_first_call(function, name):
    compiled = od.compile(function)
    compiled.precompile(ARGUMENTS[name]())
    found, expected = compiled(ARGUMENTS[name]()), function(ARGUMENTS[name]())
    assert type(found) is type(expected)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-6)
    assert compiled.statistics() == (1, 1, 0)


def numbers(thing):
    return (thing.numpy if isinstance(thing, od.Variable) else thing.get)()


def test_precompiled_training_leaves_what_eager_training_leaves():
    left = []
    for ahead in (False, True):
        w = od.Variable(X, requires_grad=True, device="cuda")
        update = od.optim.Adam([w], 0.1)

        @od.compile
        def step(x, w=w, update=update):
            with od.GradientTape() as tape:
                loss = (x * w * w).sum()
            tape.backward(loss)
            update.step()
            update.zero_grad()
            return loss

        if ahead:
            step.precompile(on(X))
        for _ in range(3):
            step(on(X))
        assert step.statistics().written == (not ahead)
        left.append(w.numpy())
    np.testing.assert_allclose(*left, rtol=1e-6)


def test_specs_stand_for_arrays_of_the_cpu():
    w = od.Variable(X, requires_grad=True, device="cuda")
    product = od.compile(lambda x: x * w)
    with pytest.raises(od.errors.CompileError, match="the array of a Spec, lies on the CPU"):
        product.precompile(od.Spec(X.shape, X.dtype))
    with pytest.raises(od.errors.CompileError, match="it returns a Variable on cpu"):
        od.compile(lambda x: x.to("cpu")).precompile(on(X))


def test_lowered_graphs_are_evaluated_on_the_cpu():
    w = od.Variable(X, requires_grad=True, device="cuda", name="w")
    lowered = od.compile(lambda x: w.assign(w - x).sum()).lower(on(X))
    total, left = lowered.evaluate(on(X))
    assert (total, left["w"].tolist()) == (0.0, np.zeros_like(X).tolist())
    np.testing.assert_array_equal(w.numpy(), X)


def test_results_share_no_memory_with_each_other_or_with_later_ones():
    double = od.compile(lambda x: (x * 2.0, x * 2.0))
    found = [double(CUPY.asarray(X)) for _ in range(5)]
    for pair in found:
        for one in pair:
            one[:] = 0.0
    np.testing.assert_array_equal(double(CUPY.asarray(X))[0].get(), X * 2.0)
    spans = {one.__cuda_array_interface__["data"][0] for pair in found for one in pair}
    assert len(spans) == 10


@pytest.mark.parametrize("numbers", [(1, 2, 2**40, 2**70, 4, -1), (1.5, 2.0, 1e30, np.inf, 4.0)])
def test_numbers_are_inputs_and_those_that_do_not_fit_run_eagerly(numbers):
    kind = np.arange(1, 4, dtype="i8" if type(numbers[0]) is int else "f4")
    scale = od.compile(lambda x, k: x * k, fullgraph=True)
    for number in numbers:
        found = expected = None
        try:
            expected = (on(kind) * number).numpy()
        except (od.errors.OdysseyError, OverflowError) as error:
            expected = type(error)
        try:
            found = scale(on(kind), number).numpy()
        except (od.errors.OdysseyError, OverflowError) as error:
            found = type(error)
        np.testing.assert_array_equal(found, expected)
    assert scale.statistics().programs == 1


KINDS = {
    "an array of NumPy": lambda x: x * 2.0 if isinstance(x, np.ndarray) else x * 3.0,
    "an array of CuPy": lambda x: x * 2.0 if isinstance(x, DeviceArray) else x * 3.0,
    "a number of NumPy": lambda x: x * 2.0 if isinstance(x.sum(), np.generic) else x * 3.0,
    "a number of CuPy": lambda x: x.sum() * (2.0 if isinstance(x.sum(), DeviceArray) else 3.0),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_branch_on_the_class_of_an_array_is_that_of_the_eager_call(name, standin):
    assert agree(KINDS[name], lambda: standin.to_device(X)).programs <= 1


def adviser(standin):
    """Functions that run eagerly, with what their warnings say of why and what to do."""
    raw, small = standin.to_device(X), od.Variable(2.0)
    large = od.Variable(np.zeros(X.size + 100), requires_grad=True)

    def write(x):
        large.assign(np.ones(large.size) * x.sum().to("cpu"))
        return x * 2.0

    return {
        "a captured array": (
            lambda x: x * raw,
            "it reaches cell raw, an array of a device, and no guard notices writes to it",
            "Make it an od.Variable, or pass it as an argument.",
        ),
        "a result of the CPU": (
            lambda x: (x * 2.0, small + 1.0),
            "it returns a value of a Variable that lies on the CPU",
            "Return it from another function, or keep that Variable on the device.",
        ),
        "a large Variable of the CPU": (
            write,
            "large lies on the CPU, and its new value is computed on the device",
            "Keep that Variable on the device.",
        ),
        "a copy by numpy": (
            lambda x: (x * 2.0).numpy(),
            "it copies a Variable to the CPU, by numpy()",
            "Return the Variable, and call numpy() outside.",
        ),
        "two devices": (
            lambda x: (x * 2.0).to("cuda:1") + od.Variable(X, device="cuda:1"),
            "its arrays lie on cuda:0 and cuda:1",
            "Copy them to one device, by .to().",
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("a captured array", "a result of the CPU", "a large Variable of the CPU"),
        *("a copy by numpy", "two devices"),
    ],
)
def test_warnings_of_eager_runs_say_what_to_do_on_a_device(name, standin):
    function, why, advice = adviser(standin)[name]
    compiled = od.compile(function)
    with pytest.warns(CompileWarning, match="runs eagerly") as caught:
        found = [compiled(on(X)) for _ in range(3)]
    assert described(found[2]) == described(function(on(X)))
    (message,) = [str(warning.message) for warning in caught]
    assert f"since {why}" in message
    assert f"). {advice} (warn=False" in message


def test_an_op_without_a_kernel_is_told_by_the_advice():
    from odyssey.compiler.fallback import FallbackReporter

    reason = "cuda: cummax (kernel 1, scan) has no CUDA kernel (on cuda:0)"
    text = str(FallbackReporter(on, False, True).error(reason))
    assert "has no CUDA kernel (on cuda:0)" in text
    assert text.endswith("). Call that op outside of the compiled function.")


def test_explain_names_the_kernel_of_the_device_for_calls():
    compiled = od.compile(lambda x: od.ops.sort(x) * 2.0)
    compiled(on(X))
    compiled(on(X))
    assert "not lowered: sort, since the device's kernel takes less time" in compiled.explain(on(X))


def test_a_device_among_attributes_is_guarded():
    class Model:
        def __init__(self, device):
            self.device = device

        def forward(self, x):
            return x * (2.0 if self.device == "cuda:0" else 3.0) + od.Variable(
                X, device=self.device
            )

    model = Model(od.devices.cuda(0))
    compiled = od.compile(model.forward, fullgraph=True)
    for _ in range(3):
        found = compiled(on(X))
    assert described(found) == described(on(X) * 2.0 + on(X))
    assert compiled.statistics() == (1, 2, 1)
    model.device = od.devices.cpu
    compiled = od.compile(model.forward)
    cpu = on(X, "cpu")
    for _ in range(3):
        found = compiled(cpu)
    assert described(found) == described(cpu * 3.0 + cpu)
    model.device = od.devices.cuda(1)
    for _ in range(3):
        found = compiled(on(X, "cuda:1"))
    assert described(found) == described(on(X, "cuda:1") * 3.0 + on(X, "cuda:1"))
    assert compiled.statistics().programs == 2
