"""Transforms of functions of dataclasses whose constructors do something."""

import numpy as np
import pytest

import odyssey as od
from support.records import Degrees, Own, Positive

R = np.deg2rad(30.0)


def height(p):
    return np.sin(p.angle).sum()


def test_values_and_gradients_are_at_what_the_fields_are():
    # f = sin(30°) and f' = cos(30°), of radians
    value, gradient = od.value_and_grad(height)(Degrees(np.array([30.0])))
    np.testing.assert_allclose(value, 0.5, rtol=1e-15)
    np.testing.assert_allclose(gradient.angle, [np.cos(R)], rtol=1e-15)


def test_tangents_are_of_what_the_fields_are():
    point, tangent = Degrees(np.array([30.0])), Degrees(np.rad2deg(np.array([2.0])))
    value, slope = od.jvp(height, (point,), (tangent,))
    np.testing.assert_allclose([value, slope], [0.5, 2.0 * np.cos(R)], rtol=1e-15)


def test_gradients_may_be_what_a_constructor_refuses():
    gradient = od.grad(lambda p: -(p.w * p.w).sum())(Positive(np.array([1.0, 2.0])))
    np.testing.assert_array_equal(gradient.w, [-2.0, -4.0])


def test_a_constructor_of_its_own_and_attributes_that_are_no_fields():
    point = Own(2)
    point.scale = 3.0
    gradient = od.grad(lambda p: (p.w * p.w).sum() * p.scale)(point)
    np.testing.assert_array_equal(gradient.w, [6.0, 6.0])
    assert gradient.scale == 3.0


def turned(p, x):
    made = Degrees(0.0)
    made.angle = p.angle + x
    return made, p.angle * 2.0


def through_scan(p):
    last, seen = od.scan(turned, p, np.full(3, R))
    return np.sin(last.angle).sum() + seen.sum()


@pytest.mark.parametrize("compiled", [False, True])
def test_the_carry_of_a_scan(compiled):
    # sin(a + 3r) + 2 (a + a + r + a + 2r), where a = r = 30°
    fn = od.value_and_grad(through_scan)
    fn = od.compile(fn) if compiled else fn
    for _ in range(4):
        value, gradient = fn(Degrees(np.float64(30.0)))
        np.testing.assert_allclose(value, np.sin(4 * R) + 12.0 * R, rtol=1e-14)
        np.testing.assert_allclose(gradient.angle, np.cos(4 * R) + 6.0, rtol=1e-14)


def test_checkpoints():
    def part(p):
        made = Degrees(0.0)
        made.angle = np.sin(p.angle)
        return made

    kept = od.checkpoint(part)
    value, gradient = od.value_and_grad(lambda p: (kept(p).angle ** 2).sum())(Degrees([30.0]))
    np.testing.assert_allclose(value, 0.25, rtol=1e-14)
    np.testing.assert_allclose(gradient.angle, [2.0 * np.sin(R) * np.cos(R)], rtol=1e-14)
