"""Matrices that are not finite: LAPACK may seek their singular vectors for ever."""

import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import LinAlgError

BAD = [np.inf, -np.inf, np.nan]


def spoiled(bad, *shape, dtype=np.float64):
    a = np.random.default_rng(0).normal(size=shape).astype(dtype)
    a[..., -1, 0] = bad
    return a


DOORS = {
    "svd": (lambda a: ops.svd(a), "svd_factors"),
    "thin svd": (lambda a: ops.svd(a, full_matrices=False), "svd_factors"),
    "np.linalg.svd": (lambda a: np.linalg.svd(Variable(a)), "svd_factors"),
    "pinv": (lambda a: ops.pinv(a), "pinv"),
    "lstsq": (lambda a: ops.lstsq(a, np.ones(a.shape[-2]))[0], "least_squares"),
    "compiled": (lambda a: od.compile(lambda x: ops.svd(x)[1])(a), "svd_factors"),
}

EVERY_DOOR = """
import sys
import numpy as np
sys.path.insert(0, {folder!r})
from test_matrices_not_finite import DOORS, slope_of_values, slope_of_determinant, spoiled

with np.errstate(all="ignore"):
    for shape in ((3, 3), (5, 3), (3, 5), (8, 8)):
        for dtype in (np.float32, np.float64, np.complex128):
            for bad in (np.inf, -np.inf, np.nan):
                for call in (*[call for call, _ in DOORS.values()], slope_of_values):
                    try:
                        call(spoiled(bad, *shape, dtype=dtype))
                    except np.linalg.LinAlgError:
                        pass
                    else:
                        raise AssertionError("singular vectors of a matrix that is not finite")
                if shape[0] == shape[1]:
                    slope_of_determinant(spoiled(bad, *shape, dtype=dtype))
print("came back")
"""


def slope_of_values(a):
    w = Variable(a, requires_grad=True)
    with GradientTape() as tape:
        y = ops.svdvals(w).sum()
    return tape.gradient(y, w)


def slope_of_determinant(a):
    w = Variable(a, requires_grad=True)
    with GradientTape() as tape:
        y = ops.real(ops.det(w)).sum()
    return tape.gradient(y, w)


@pytest.mark.slow
def test_whoever_asks_for_singular_vectors_of_what_is_not_finite_gets_an_answer():
    text = EVERY_DOOR.format(folder=__file__.rpartition("/")[0])
    child = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.stdout == "came back\n", child.stderr


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("door", DOORS)
def test_singular_vectors_of_what_is_not_finite_are_refused_by_name(door, bad):
    call, name = DOORS[door]
    what = "SVD did not converge, because a has elements that are not finite"
    with pytest.raises(LinAlgError, match=f"^(svd: |lstsq: )?{name}: {what}"):
        call(spoiled(bad, 2, 2))


@pytest.mark.parametrize("bad", BAD)
def test_one_such_matrix_of_many_spoils_the_gradient_of_its_own_determinant_alone(bad):
    many = np.random.default_rng(1).normal(size=(3, 4, 4))
    alone = [slope_of_determinant(a) for a in many]
    many[1, 3, 0] = bad
    with np.errstate(all="ignore"):
        found = slope_of_determinant(many)
    np.testing.assert_array_equal(found[[0, 2]], [alone[0], alone[2]])
    assert np.isnan(found[1]).all()
    w = Variable(many, requires_grad=True)
    with np.errstate(all="ignore"):
        bend = od.jvp(od.grad(lambda x: ops.det(x).sum()), (w,), (np.ones_like(many),))[1]
    assert np.isfinite(np.asarray(bend)[[0, 2]]).all()


def test_the_cofactor_of_one_element_is_one_whatever_it_is():
    for bad in BAD:
        np.testing.assert_array_equal(ops.cofactors(np.array([[bad]])), [[1.0]])


def test_of_a_hermitian_pseudo_inverse_the_unread_triangle_may_be_anything():
    a = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])
    other = a.copy()
    other[0, 2] = np.inf
    np.testing.assert_array_equal(
        ops.pinv(other, hermitian=True), np.linalg.pinv(a, hermitian=True)
    )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_length_of_complex_vectors_with_infinite_elements_is_infinite(dtype):
    x = np.array([[1, np.inf, 2j], [1, complex(0.5, -np.inf), 2], [1, 2j, 3]], dtype)
    for given in (x, x[:, ::-1], np.asfortranarray(x)):
        np.testing.assert_array_equal(od.linalg.norm(given, axis=1)[:2], np.inf)
        assert od.linalg.norm(given) == np.inf
        compiled = od.compile(lambda x: od.linalg.norm(x, axis=1))
        for _ in range(3):
            got = compiled(given)
        np.testing.assert_allclose(got, od.linalg.norm(given, axis=1), rtol=1e-6)
