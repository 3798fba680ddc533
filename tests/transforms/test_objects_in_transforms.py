"""Models that are plain objects in transforms, tapes, optimizers, files and programs."""

import copy
import pickle
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, TapeError

X = np.array([[0.5, -1.0], [2.0, 0.25], [1.0, 1.5]])


class Layer:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.w = Variable(rng.normal(size=(2, 2)), requires_grad=True)
        self.b = Variable(rng.normal(size=2), requires_grad=True)

    def __call__(self, x):
        return ops.tanh(x @ self.w + self.b)


class Model:
    """A model with settings, constants, a table of integers, a generator and a counter."""

    def __init__(self, seed=0):
        self.layers = [Layer(seed), Layer(seed + 1)]
        self.scale, self.name, self.training = 0.5, "model", True
        self.mean, self.order = Variable(np.array([0.1, 0.2])), np.array([1, 0])
        self.rng = od.Generator(3)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return (x[:, self.order] - self.mean) * self.scale


def loss(model, x):
    return (model(x) ** 2).mean()


def dict_loss(p, x, scale=0.5):
    """The same loss of a dict of the four trained arrays, for expected values."""
    for w, b in (("w0", "b0"), ("w1", "b1")):
        x = ops.tanh(x @ p[w] + p[b])
    return (((x[:, [1, 0]] - np.array([0.1, 0.2])) * scale) ** 2).mean()


def arrays_of(model):
    first, second = model.layers
    names = "w0", "b0", "w1", "b1"
    found = first.w, first.b, second.w, second.b
    return {n: v if v is None else np.asarray(v) for n, v in zip(names, found, strict=True)}


def assert_same(model, wanted, rtol=1e-12):
    for name, value in arrays_of(model).items():
        np.testing.assert_allclose(value, wanted[name], rtol=rtol, atol=1e-15)


def test_gradients_are_attributes_of_an_object_of_the_class():
    model = Model()
    value, gradient = od.value_and_grad(loss)(model, X)
    wanted_value, wanted = od.value_and_grad(dict_loss)(arrays_of(model), X)
    np.testing.assert_allclose(value, wanted_value, rtol=1e-14)
    assert type(gradient) is Model
    assert_same(gradient, wanted)
    assert gradient.mean is None
    assert gradient.order is None
    assert gradient.name == "model"
    assert model.layers[0].w.grad is None
    assert type(model.mean) is Variable


def test_objects_of_arrays_are_differentiated_too():
    class Line:
        def __init__(self, w, b):
            self.w, self.b, self.degree = w, b, 1

    def error(line):
        return (line.w * 3.0 + line.b - 1.0) ** 2

    gradient = od.grad(error)(Line(np.array(2.0), np.array(0.5)))
    assert float(gradient.w) == 2 * 5.5 * 3
    assert float(gradient.b) == 2 * 5.5
    assert gradient.degree == 1
    hessian = od.hessian(error)(Line(np.array(2.0), np.array(0.5)))
    assert float(hessian.w.w) == 18.0
    assert float(hessian.b.w) == 6.0
    direction = Line(np.array(1.0), np.array(10.0))
    point = Line(np.array(2.0), np.array(0.5))
    assert float(od.jvp(error, (point,), (direction,))[1]) == 33.0 + 110.0


def test_second_derivatives_along_an_object_are_those_of_a_dict():
    model, direction = Model(), Model(7)
    product = od.hvp(lambda m: loss(m, X), (model,), (direction,))
    wanted = od.hvp(lambda p: dict_loss(p, X), (arrays_of(model),), (arrays_of(direction),))
    assert_same(product, wanted)
    out, tangent = od.jvp(lambda m: loss(m, X), (model,), (direction,))
    wanted = od.jvp(lambda p: dict_loss(p, X), (arrays_of(model),), (arrays_of(direction),))
    np.testing.assert_allclose([out, tangent], wanted, rtol=1e-12)
    _, pullback = od.vjp(lambda m: m(X), model)
    (found,) = pullback(np.ones((3, 2)))

    def dict_model(p):
        x = ops.tanh(ops.tanh(X @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"])
        return (x[:, [1, 0]] - np.array([0.1, 0.2])) * 0.5

    assert_same(found, od.vjp(dict_model, arrays_of(model))[1](np.ones((3, 2)))[0])


def test_an_object_without_anything_to_differentiate_is_refused():
    class Settings:
        def __init__(self):
            self.order = np.arange(3)

    with pytest.raises(DTypeError, match=r"argument 0.*Settings.*nothing to differentiate"):
        od.grad(lambda s: s.order.sum())(Settings())
    with GradientTape() as tape:
        y = Variable(1.0, requires_grad=True) * 2
    with pytest.raises(TapeError, match="Settings holds no Variable with a gradient"):
        tape.gradient(y, Settings())


def test_objects_of_one_array_in_a_list_are_objects_too():
    class Table:
        def __init__(self):
            self.rows = np.arange(3)

    table, w = Table(), np.ones(3)
    gradient = od.grad(lambda p: (p[0] * p[1][0].rows).sum())([w, [table]])
    np.testing.assert_array_equal(gradient[0], [0.0, 1.0, 2.0])
    assert gradient[1][0].rows is None


def test_one_weight_at_two_attributes_is_two_leaves_of_transforms_and_one_parameter():
    class Tied:
        def __init__(self):
            self.first = self.second = Variable(np.array(3.0), requires_grad=True)

    tied = Tied()
    gradient = od.grad(lambda t: t.first * t.second * t.second)(tied)
    assert (float(gradient.first), float(gradient.second)) == (9.0, 18.0)
    with GradientTape() as tape:
        y = tied.first * tied.second * tied.second
    gradient = tape.gradient(y, tied)
    assert (float(gradient.first), float(gradient.second)) == (27.0, 27.0)
    optimizer = od.optim.SGD(tied, 0.1)
    assert len(optimizer.params) == 1


def test_a_tape_gives_gradients_of_an_object_and_none_for_its_constants():
    model = Model()
    with GradientTape() as tape:
        y = loss(model, X)
    gradient = tape.gradient(y, model)
    assert_same(gradient, od.grad(dict_loss)(arrays_of(model), X))
    assert gradient.mean is None
    with GradientTape() as tape:
        watched = tape.watch(model)
        y = loss(watched, X)
    assert watched.mean is model.mean
    assert_same(tape.gradient(y, watched), od.grad(dict_loss)(arrays_of(model), X))
    model.unused = Variable(np.ones(2), requires_grad=True)
    with GradientTape() as tape:
        y = loss(model, X)
    assert tape.gradient(y, model, unused="none").unused is None


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_optimizers_take_the_trainable_variables_of_an_object(compiled):
    model, other = Model(), Model()
    trained = [v for layer in other.layers for v in (layer.w, layer.b)]
    optimizers = od.optim.Adam(model, 0.1), od.optim.Adam(trained, 0.1)
    assert [p.shape for p in optimizers[0].params] == [(2, 2), (2,), (2, 2), (2,)]

    def step(m, optimizer):
        with GradientTape() as tape:
            y = loss(m, X)
        tape.backward(y)
        od.optim.clip_grad_global_norm(m, 0.01)
        optimizer.step()
        optimizer.zero_grad()
        return y

    run = od.compile(step) if compiled else step
    for _ in range(4):
        losses = [float(run(m, o)) for m, o in zip((model, other), optimizers, strict=True)]
        assert losses[0] == losses[1]
    assert_same(model, arrays_of(other), 0)


def test_messages_name_attributes():
    model = Model()
    optimizer = od.optim.SGD(model, 0.1)
    with pytest.raises(od.errors.MissingGradientError, match=r"\.layers\[0\]\.w"):
        optimizer.step()
    with pytest.raises(DTypeError, match=r"parameter \['m'\] is 3"):
        od.optim.SGD({"m": 3, "o": model}, 0.1)


def test_pure_rules_move_an_object_and_keep_its_constants():
    model = Model()
    rule = od.optim.sgd(0.5)
    gradient = od.grad(loss)(model, X)
    state = rule.init(model)
    moved, state = rule.update(gradient, state, model)
    assert type(moved) is Model
    assert moved.mean is model.mean
    wanted = {
        n: a - 0.5 * g
        for (n, a), g in zip(arrays_of(model).items(), arrays_of(gradient).values(), strict=True)
    }
    assert_same(moved, wanted)
    assert len(state) == 4


def test_an_average_of_an_object_is_an_object():
    model = Model()
    average = od.optim.EMA(model, 0.5)
    before = arrays_of(model)["b0"]
    model.layers[0].b.assign(before + 2.0)
    average.update()
    np.testing.assert_allclose(average.averages.layers[0].b.numpy(), before + 1.0)
    assert average.averages.mean is model.mean
    assert average.averages(X).shape == (3, 2)


def test_programs_take_and_return_objects_and_follow_their_attributes():
    model = Model()
    gradient = od.compile(od.grad(loss))
    for _ in range(3):
        found = gradient(model, X)
    assert gradient.statistics().native
    assert type(found) is Model
    assert_same(found, od.grad(dict_loss)(arrays_of(model), X))
    model.scale = 2.0
    assert_same(gradient(model, X), od.grad(dict_loss)(arrays_of(model), X, 2.0))
    model.layers[0].w.assign(model.layers[0].w * 2)
    assert_same(gradient(model, X), od.grad(dict_loss)(arrays_of(model), X, 2.0))


def test_programs_follow_attributes_that_only_the_library_reads():
    model = Model()
    decay = od.compile(lambda m: sum((leaf * leaf).sum() for leaf in od.tree.leaves(m)))
    total = lambda m: sum(float((np.asarray(v) ** 2).sum()) for v in od.tree.leaves(m))  # noqa: E731
    for _ in range(3):
        np.testing.assert_allclose(float(decay(model)), total(model), rtol=1e-12)
    assert decay.statistics().native
    for change in (
        lambda: setattr(model, "extra", Variable(np.ones(3))),
        lambda: model.layers.append(Layer(5)),
        lambda: setattr(model.layers[0], "w", Variable(np.ones((2, 2)), requires_grad=True)),
        lambda: delattr(model, "mean"),
    ):
        change()
        np.testing.assert_allclose(float(decay(model)), total(model), rtol=1e-12)


def test_locks_iterators_and_callables_beside_the_arrays_do_no_harm_to_programs():
    model = Model()
    model.lock, model.items, model.call = threading.Lock(), iter("abc"), np.tanh
    model.files, model.log = {"names": ["a"]}, []
    gradient = od.compile(od.grad(loss), fullgraph=True)
    for _ in range(3):
        found = gradient(model, X)
    assert gradient.statistics().native == 2
    assert found.lock is model.lock
    assert_same(found, od.grad(dict_loss)(arrays_of(model), X))
    model.lock = threading.Lock()
    assert gradient(model, X).lock is model.lock
    model.log.append(Variable(np.ones(2), requires_grad=True))
    np.testing.assert_array_equal(gradient(model, X).log[0], np.zeros(2))
    assert next(model.items) == "a"


def test_models_that_steps_return_are_differentiated_again():
    model, params = Model(), arrays_of(Model())
    for _ in range(3):
        gradient = od.grad(loss)(model, X)
        model = od.tree.map_tree(lambda p, g: p if g is None else p - 0.1 * g, model, gradient)
        slopes = od.grad(dict_loss)(params, X)
        params = {name: params[name] - 0.1 * slopes[name] for name in params}
        assert_same(model, params)
    hessian = od.hvp(lambda m: loss(m, X), (model,), (model,))
    assert_same(hessian, od.hvp(lambda p: dict_loss(p, X), (params,), (params,)))


def test_a_program_that_returns_a_captured_object_returns_that_object():
    model = Model()
    run = od.compile(lambda x: (model, x * 2), fullgraph=True)
    for _ in range(3):
        assert run(X)[0] is model


def test_auxiliary_results_keep_objects_that_the_function_did_not_make():
    model = Model()

    def with_model(w):
        fresh = Layer(0)
        fresh.w = w * 2
        return (w * w).sum(), (model, fresh)

    _, (same, fresh) = od.grad(with_model, has_aux=True)(np.ones(2))
    assert same is model
    np.testing.assert_array_equal(fresh.w, [2.0, 2.0])


def test_scans_carry_objects():
    class Body:
        def __init__(self, x, v):
            self.x, self.v, self.mass = x, v, 2

    def move(body, force):
        v = body.v + force / body.mass
        moved = copy.copy(body)
        moved.x, moved.v = body.x + v, v
        return moved, moved.x

    forces = np.array([2.0, 4.0, -2.0])
    start = Body(np.array(0.0), np.array(1.0))
    for run in (od.scan, od.compile(od.scan)):
        end, xs = run(move, start, forces)
        np.testing.assert_allclose(np.asarray(xs), [2.0, 6.0, 9.0])
        assert float(end.v) == 3.0
        assert type(end) is Body
        assert end.mass == 2


def test_an_object_is_saved_with_its_numbers_and_restored_in_place(tmp_path):
    path = str(tmp_path / "model.npz")
    model, like = Model(), Model(9)
    model.epoch, like.epoch, like.name = 7, 0, "other"
    model.log, like.log = [0.5, 0.25], []
    model.optimizer, like.optimizer = od.optim.Adam(model, 0.1), od.optim.Adam(like, 0.1)
    model.optimizer.learning_rate = 0.3
    draw = ops.random_uniform((2,), rng=model.rng)
    model.call, like.call = loss, dict_loss
    od.save(path, {"model": model})
    assert "['model'].layers[0].w" in od.load(path)
    weight = like.layers[0].w
    found = od.load(path, {"model": like})["model"]
    assert type(found) is Model
    assert found.layers[0].w is weight
    assert_same(found, arrays_of(model), 0)
    assert (found.epoch, found.name, found.log) == (7, "model", [0.5, 0.25])
    assert like.epoch == 0
    assert found.call is dict_loss
    assert like.optimizer.learning_rate == 0.3
    again = ops.random_uniform((2,), rng=like.rng)
    assert not np.array_equal(draw, again)
    assert np.array_equal(ops.random_uniform((2,), rng=model.rng), again)


def test_a_result_of_unflatten_is_pickled_and_copied():
    model = od.tree.map_tree(lambda leaf: leaf, Layer(0))
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again.w.numpy(), model.w.numpy())


def test_methods_of_objects_still_write_to_the_object_in_programs():
    class Trainer:
        def __init__(self):
            self.model, self.steps, self.last = Model(), 0, None

        @od.compile
        def step(self, x):
            self.steps += 1
            self.last = loss(self.model, x)
            return self.last * 2

    trainer = Trainer()
    for count in range(1, 5):
        trainer.step(X)
        assert trainer.steps == count
        np.testing.assert_allclose(
            float(trainer.last), float(dict_loss(arrays_of(trainer.model), X)), rtol=1e-12
        )


def test_checkpointed_functions_get_the_object_itself():
    model = Model()
    seen = []

    def run(m, x):
        seen.append(m is model)
        return loss(m, x)

    with GradientTape() as tape:
        y = od.checkpoint(run)(model, X)
    assert_same(tape.gradient(y, model), od.grad(dict_loss)(arrays_of(model), X))
    assert all(seen)
