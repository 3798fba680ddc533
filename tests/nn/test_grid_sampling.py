"""Images read at places of a grid: maps that are known, borders, and places that are none."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

RNG = np.random.default_rng(0)
IDENTITY = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_identity_gives_the_image_and_a_reflection_its_mirror(mode, padding, align_corners):
    x = RNG.normal(size=(1, 2, 3, 4))
    options = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    for theta, wanted in ((IDENTITY, x), (-IDENTITY, x[..., ::-1, ::-1])):
        grid = ops.affine_grid(theta, x.shape, align_corners=align_corners)
        np.testing.assert_allclose(ops.grid_sample(x, grid, **options), wanted, rtol=0, atol=1e-14)


def test_a_map_to_a_larger_grid_is_the_interpolation_of_that_size():
    x = RNG.normal(size=(2, 3, 4, 5))
    for align_corners in (False, True):
        theta = np.repeat(IDENTITY, 2, axis=0)
        grid = ops.affine_grid(theta, (2, 3, 9, 7), align_corners=align_corners)
        got = ops.grid_sample(x, grid, padding_mode="border", align_corners=align_corners)
        wanted = ops.interpolate(x, size=(9, 7), mode="bilinear", align_corners=align_corners)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_what_is_outside_is_0_the_border_or_a_reflection():
    x = np.array([[[[1.0, 2.0, 4.0]]]])

    def read(at, **options):
        return ops.grid_sample(x, np.array([[[[at, 0.0]]]]), **options).item()

    # Elements lie at -2/3, 0 and 2/3.
    assert read(-4.0) == read(1e300) == read(-np.inf) == 0.0
    assert read(-1.0) == 0.5  # half between the first element and what is beside it
    assert read(4.0, padding_mode="border") == read(np.inf, padding_mode="border") == 4.0
    np.testing.assert_allclose(read(1.0 + 1 / 3, padding_mode="reflection"), 4.0, rtol=1e-14)
    np.testing.assert_allclose(read(2.0, padding_mode="reflection"), 2.0, rtol=1e-14)
    assert read(2.0, padding_mode="reflection", align_corners=True) == 2.0


def test_an_infinite_element_that_is_not_read_is_not_seen_and_a_place_that_is_nan_gives_nan():
    x = Variable(np.array([[[[1.0, 2.0, np.inf]]]]), requires_grad=True)
    grid = Variable(np.array([[[[-1 / 3, 0.0], [5.0, 0.0]]]]), requires_grad=True)
    with GradientTape() as tape:
        out = ops.grid_sample(x, grid)
    np.testing.assert_allclose(out.numpy().ravel(), [1.5, 0.0], rtol=1e-14)
    of_x, of_grid = tape.gradient(out, [x, grid], np.ones(out.shape))
    np.testing.assert_allclose(of_x.ravel(), [0.5, 0.5, 0.0], rtol=1e-14)
    # A whole step to the right, of 2/3, goes from 1 to 2; beside the image there is nothing.
    np.testing.assert_allclose(of_grid[0, 0, :, 0], [1.5, 0.0], rtol=1e-14)
    nowhere = np.array([[[[np.nan, 0.0]]]])
    assert np.isnan(ops.grid_sample(x.numpy(), nowhere)).all()
    assert ops.grid_sample(x.numpy(), nowhere, mode="nearest").item() == 0.0


def test_maps_and_images_have_gradients_to_second_order_through_both():
    x = RNG.normal(size=(1, 1, 4, 5))
    theta = IDENTITY + 0.1 * RNG.normal(size=(1, 2, 3))

    def moved(theta, x):
        return ops.grid_sample(x, ops.affine_grid(theta, (1, 1, 3, 3)), padding_mode="border")

    od.testing.check_gradients(moved, theta, x)
