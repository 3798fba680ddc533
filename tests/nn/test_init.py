"""Initial values: distributions by SciPy, fans by layout, orthogonality, refusals."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import Generator, init, ops
from odyssey.errors import DTypeError, SettingError, ShapeError

TRUNCATED = 0.8796256610342397  # standard deviation of a normal variable between -2 and 2


@pytest.mark.parametrize(
    ("low", "high"),
    [(-2.0, 2.0), (-1.0, 0.5), (0.0, np.inf), (6.0, 7.0), (-np.inf, -8.0), (9.0, np.inf)],
    ids=str,
)
def test_truncated_normal_numbers_are_quantiles_of_scipys_distribution(low, high):
    stats = pytest.importorskip("scipy.stats")
    got = init.truncated_normal(
        Generator(3), 500, np.float64, mean=1.5, std=2.0, low=low, high=high
    )
    u = ops.random_uniform(500, rng=Generator(3))
    # The upper tail is drawn by its mirror image.
    wanted = stats.truncnorm.isf(u, low, high) if low > 0 else stats.truncnorm.ppf(u, low, high)
    np.testing.assert_allclose(got, 1.5 + 2.0 * wanted, rtol=1e-9)


FANS = {
    # weights, layout: inputs and outputs of a unit
    "linear": ((20, 50), "out_in", 50, 20),
    "product": ((50, 20), "in_out", 50, 20),
    "convolution": ((20, 8, 3, 2), "out_in", 48, 120),
    "transposed": ((20, 8, 3), "in_out", 60, 24),
}


@pytest.mark.parametrize("case", FANS)
@pytest.mark.parametrize(
    ("name", "scale", "fan"),
    [
        ("he", 2.0, "in"),
        ("he", 2.0, "out"),
        ("he", 2.0, "avg"),
        ("lecun", 1.0, "in"),
        ("lecun", 1.0, "out"),
        ("glorot", 1.0, "avg"),
    ],
)
def test_weights_have_the_variance_of_their_fan(case, name, scale, fan):
    shape, layout, inputs, outputs = FANS[case]
    options = {} if name == "glorot" else {"fan": fan}
    size = {"in": inputs, "out": outputs, "avg": (inputs + outputs) / 2}[fan]
    std = math.sqrt(scale / size)
    uniform = getattr(init, f"{name}_uniform")(
        Generator(1), shape, np.float64, layout=layout, **options
    )
    u = ops.random_uniform(shape, rng=Generator(1))
    np.testing.assert_allclose(uniform, math.sqrt(3) * std * (2 * u - 1), rtol=1e-12, atol=1e-15)
    normal = getattr(init, f"{name}_normal")(
        Generator(1), shape, np.float64, layout=layout, **options
    )
    z = init.truncated_normal(Generator(1), shape, np.float64)
    np.testing.assert_allclose(normal, z * std / TRUNCATED, rtol=1e-12)
    assert np.abs(normal).max() <= 2 * std / TRUNCATED


def test_a_truncated_normal_has_the_standard_deviation_asked_for():
    x = init.he_normal(Generator(5), (100, 1000), np.float64)
    # The kurtosis of this distribution is 2.37: the error of a variance is 1.17 / sqrt(n) of it.
    assert abs(x.var() / 0.002 - 1) < 4 * 1.17 / math.sqrt(x.size)
    assert abs(x.mean()) < 4 * math.sqrt(0.002 / x.size)


def test_variance_scaling_draws_normal_numbers_too():
    x = init.variance_scaling(
        Generator(2), (3, 4), np.float64, scale=9.0, fan="out", distribution="normal"
    )
    z = ops.random_normal((3, 4), rng=Generator(2))
    np.testing.assert_allclose(x, math.sqrt(3.0) * z, rtol=1e-14)


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (4, 2, 3), (8, 2, 3), (0, 3), (1, 1)])
def test_orthogonal_matrices_have_orthonormal_rows_or_columns(shape):
    q = init.orthogonal(Generator(4), shape, np.float64, gain=2.0)
    assert q.shape == shape
    matrix = q.reshape(shape[0], math.prod(shape[1:])) / 2.0
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-14)


def test_orthogonal_matrices_are_uniformly_distributed():
    # Of rotations in the plane the angle is uniform, and a half are reflections.
    rng = Generator(6)
    found = np.array([init.orthogonal(rng, (2, 2), np.float64) for _ in range(150)])
    angles = np.arctan2(found[:, 1, 0], found[:, 0, 0])
    assert abs(np.exp(1j * angles).mean()) < 4 / math.sqrt(150)
    assert abs(np.mean(np.linalg.det(found))) < 4 / math.sqrt(150)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", init.__all__)
def test_numbers_are_drawn_in_float64_and_rounded_once(name, dtype):
    make = getattr(init, name)
    got = make(Generator(1), (6, 5), dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, make(Generator(1), (6, 5), np.float64).astype(dtype))
    assert make(Generator(1), (6, 5)).dtype == np.float32


@pytest.mark.parametrize("name", init.__all__)
def test_draws_advance_the_generator_and_come_from_the_process_by_default(name):
    make, rng = getattr(init, name), Generator(1)
    first, second = make(rng, (3, 2)), make(rng, (3, 2))
    assert (first != second).any()
    assert make(None, (3, 2)).shape == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", init.__all__)
def test_a_compiled_function_draws_the_same_numbers(name):
    make, rng = getattr(init, name), Generator(1)
    step = od.compile(lambda x: x + make(rng, (3, 2), np.float64), fullgraph=False)
    got = [step(np.zeros((3, 2))) for _ in range(3)]
    rng = Generator(1)
    for one in got:
        np.testing.assert_allclose(one, make(rng, (3, 2), np.float64), rtol=1e-14, atol=1e-15)


def test_what_cannot_be_drawn_is_refused():
    rng = Generator(1)
    for make in (init.he_normal, init.glorot_uniform, init.orthogonal):
        with pytest.raises(ShapeError, match=rf"^{make.__name__}: shape=\(3,\)"):
            make(rng, 3)
        with pytest.raises(DTypeError, match=rf"^{make.__name__}: dtype="):
            make(rng, (3, 2), np.int64)
    for options, text in (
        ({"fan": "fan_in"}, "fan='fan_in'; choose 'in', 'out', 'avg'"),
        ({"layout": "io"}, "layout='io'; choose 'out_in', 'in_out'"),
        ({"fan": ["in"]}, "fan="),
    ):
        with pytest.raises(SettingError, match=text):
            init.he_uniform(rng, (3, 2), **options)
    with pytest.raises(SettingError, match="distribution='even'"):
        init.variance_scaling(rng, (3, 2), distribution="even")
    with pytest.raises(SettingError, match=r"low=1.0 must be below high=1.0"):
        init.truncated_normal(rng, 3, low=1.0, high=1.0)
    with pytest.raises(SettingError, match=r"std=-1.0"):
        init.truncated_normal(rng, 3, std=-1.0)
    with pytest.raises(SettingError, match=r"low=nan"):
        init.truncated_normal(rng, 3, low=np.nan)
    with pytest.raises(DTypeError, match=r"pass an od\.Generator"):
        init.he_normal(np.random.default_rng(0), (3, 2))
    assert rng.state == Generator(1).state


@pytest.mark.peers
def test_fans_and_limits_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for shape, layout, *_ in (FANS["linear"], FANS["convolution"]):
        weight = torch.empty(shape, dtype=torch.float64)
        for ours, theirs in (
            (init.he_uniform, lambda w: torch.nn.init.kaiming_uniform_(w, nonlinearity="relu")),
            (init.glorot_uniform, torch.nn.init.xavier_uniform_),
        ):
            got = np.abs(ours(Generator(1), shape, np.float64, layout=layout)).max()
            wanted = float(abs(theirs(weight)).max())
            assert got == pytest.approx(wanted, rel=0.02)


@pytest.mark.peers
@pytest.mark.parametrize("name", [n for n in init.__all__ if n[:2] in ("he", "le", "gl")])
def test_deviations_and_limits_are_those_of_jax(name):
    jax = pytest.importorskip("jax")
    make = getattr(jax.nn.initializers, name)(in_axis=1, out_axis=0)
    wanted = np.asarray(make(jax.random.key(0), (200, 300)), np.float64)
    got = getattr(init, name)(Generator(1), (200, 300), np.float64)
    assert got.std() == pytest.approx(wanted.std(), rel=0.02)
    assert np.abs(got).max() == pytest.approx(np.abs(wanted).max(), rel=0.01)
