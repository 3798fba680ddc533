"""Linear algebra for the walks: composites by NumPy, options that mean the same, exceptions."""

import numpy as np


def by_factor(c_and_lower, b):
    c, lower = c_and_lower
    c = np.tril(c) if lower else np.triu(c)
    adjoint = np.conj(np.swapaxes(c, -1, -2))
    first, second = (c, adjoint) if lower else (adjoint, c)
    return np.linalg.solve(second, np.linalg.solve(first, b))


def block_diag(*arrays):
    blocks = [np.atleast_2d(x) for x in arrays]
    out = np.zeros(sum([x.shape for x in blocks], np.zeros(2, int)), np.result_type(*blocks))
    corner = np.zeros(2, int)
    for x in blocks:
        end = corner + x.shape
        out[corner[0] : end[0], corner[1] : end[1]] = x
        corner = end
    return out


def diag_embed(x, offset=0, axis1=-2, axis2=-1):
    n = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], n, n), x.dtype)
    for k in range(x.shape[-1]):
        out[..., k - min(offset, 0), k + max(offset, 0)] = x[..., k]
    return np.moveaxis(out, (-2, -1), (axis1, axis2))


FORMULAS = {
    "adjoint": lambda x: np.conj(np.swapaxes(x, -1, -2)) if np.iscomplexobj(x) else x.mT,
    "block_diag": block_diag,
    "cho_solve": by_factor,
    "diag_embed": diag_embed,
    "logdet": lambda a: np.log(np.linalg.slogdet(a)[0]) + np.linalg.slogdet(a)[1],
}

WHOLE, SINGLE = np.int64, np.float32
FLAGS = (1, True, np.True_)
SPELLINGS = {
    "triangular_solve": [
        ([(2, 2), (2,)], [{"trans": t} for t in (1, "T", WHOLE(1))]),
        ([(2, 2), (2,)], [{"lower": flag, "trans": "C"} for flag in FLAGS]),
    ],
    "svd_factors": [([(3, 2)], [{"full_matrices": flag} for flag in FLAGS])],
    "cholesky": [([(1, 1)], [{"upper": flag} for flag in FLAGS])],
    "euclidean_norm": [
        ([(2, 3)], [{}, *({"axis": k} for k in (None, (0, 1), [1, 0], (-1, -2)))]),
        ([(2, 3)], [{"axis": k} for k in (1, -1, (1,), WHOLE(1))]),
    ],
    "pinv": [([(3, 2)], [{"rcond": 1}, {"rtol": 1.0}, {"rcond": SINGLE(1)}])],
    "least_squares": [([(3, 2), (3,)], [{"rcond": 1}, {"rcond": SINGLE(1)}])],
    "qr_factors": [([(3, 2)], [{}, {"mode": "reduced"}])],
    "matrix_rank": [([(3, 2)], [{"tol": 1}, {"tol": 1.0, "hermitian": 0}])],
}

# Rows and composites whose corners, matrices that lack rank, are tried in tests/linalg.
ROWS = {
    *("cholesky", "cofactor_slope", "cofactors", "det", "eigvals", "euclidean_norm", "expm"),
    *(
        "inv",
        "least_squares",
        "pinv",
        "solve",
        "solve_or_nan",
        "sqrtm",
        "svdvals",
        "triangular_solve",
    ),
}
COMPOSITES = {
    *("cho_solve", "cond", "logdet", "lstsq", "matrix_norm", "matrix_power", "multi_dot", "norm"),
    *("qr", "svd", "tensorsolve", "tensorinv", "vector_norm"),
}
