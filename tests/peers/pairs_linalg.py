"""Pairs of linear algebra; factors are compared by what does not depend on phases and order."""

import numpy as np

from support.pairs import pair

EYE = 3 * np.eye(3)


def definite(ops, a):
    """Hermitian and positive definite, so that it does not matter which triangle is read."""
    return a @ ops.adjoint(a) / 4 + np.eye(3)


def definite_torch(torch, a):
    return a @ a.mH / 4 + torch.eye(3)


def svd_again(ops, a, full):
    u, s, vh = ops.svd(a, full)
    k = s.shape[-1]
    return s, ops.matmul(u[..., :k] * ops.expand_dims(ops.exp(s), -2), vh[..., :k, :])


def svd_again_torch(torch, a, full):
    u, s, vh = torch.linalg.svd(a, full_matrices=full)
    k = s.shape[-1]
    return s, (u[..., :k] * s.exp().unsqueeze(-2)) @ vh[..., :k, :]


def eig_again(ops, a):
    w, v = ops.eig(a)
    return ops.matmul(v * ops.expand_dims(ops.exp(w), -2), ops.inv(v)), ops.absolute(v)


def eig_again_torch(torch, a):
    w, v = torch.linalg.eig(a)
    return (v * w.exp().unsqueeze(-2)) @ torch.linalg.inv(v), v.abs()


SYSTEMS = [
    pair("torch.linalg.solve", "solve", (3, 3), (3,)),
    pair("torch.linalg.solve", "solve", (2, 1, 3, 3), (4, 3, 2), complex=True),
    pair("torch.linalg.inv", "inv", (2, 3, 3)),
    pair("torch.inverse", "inv", (3, 3), complex=True),
    pair("torch.linalg.inv_ex", "inv", (3, 3), theirs=lambda t, a: t.linalg.inv_ex(a)[0]),
    pair(
        "torch.linalg.solve_ex",
        "solve",
        (3, 3),
        (3,),
        theirs=lambda t, a, b: t.linalg.solve_ex(a, b)[0],
    ),
    *[
        pair(
            "torch.linalg.solve_triangular",
            "triangular_solve",
            (3, 3),
            (3, 2),
            complex=field,
            ours={"lower": not upper, "unit_diagonal": unit},
            theirs={"upper": upper, "unitriangular": unit},
        )
        for field in (False, True)
        for upper in (False, True)
        for unit in (False, True)
    ],
    *[
        pair(
            "torch.cholesky_solve",
            "cho_solve",
            (3, 3),
            (3, 2),
            complex=field,
            ours=lambda ops, c, b, lower=lower: ops.cho_solve((c + EYE, lower), b),
            theirs=lambda t, c, b, lower=lower: t.cholesky_solve(
                b,
                (c + t.tensor(EYE)).tril() if lower else (c + t.tensor(EYE)).triu(),
                upper=not lower,
            ),
        )
        for field in (False, True)
        for lower in (False, True)
    ],
    pair(
        "torch.cholesky_inverse",
        "cho_solve",
        (3, 3),
        ours=lambda ops, c: ops.cho_solve((c + EYE, True), np.eye(3)),
        theirs=lambda t, c: t.cholesky_inverse((c + t.tensor(EYE)).tril()),
    ),
    pair("torch.linalg.tensorsolve", "tensorsolve", (2, 3, 6), (2, 3)),
    pair(
        "torch.linalg.tensorsolve",
        "tensorsolve",
        (2, 2, 2, 2),
        (2, 2),
        ours={"axes": (0,)},
        theirs={"dims": (0,)},
    ),
    pair("torch.linalg.tensorinv", "tensorinv", (2, 3, 6)),
    pair("torch.linalg.tensorinv", "tensorinv", (6, 2, 3), ours={"ind": 1}, theirs={"ind": 1}),
    pair("jax.numpy.linalg.solve", "solve", (3, 3), (3, 2), complex=True),
    pair("jax.numpy.linalg.inv", "inv", (3, 3), complex=True),
    pair(
        "jax.scipy.linalg.solve_triangular",
        "triangular_solve",
        (3, 3),
        (3,),
        ours={"trans": 2},
        theirs={"trans": 2},
        complex=True,
    ),
    pair(
        "jax.scipy.linalg.cho_solve",
        "cho_solve",
        (3, 3),
        (3,),
        ours=lambda ops, c, b: ops.cho_solve((c + EYE, True), b),
        theirs=lambda jax, c, b: jax.scipy.linalg.cho_solve((c + EYE, True), b),
    ),
]

DETERMINANTS = [
    pair("torch.linalg.det", "det", (2, 3, 3)),
    pair("torch.det", "det", (3, 3), complex=True),
    pair("torch.linalg.slogdet", "slogdet", (2, 3, 3)),
    pair("torch.linalg.slogdet", "slogdet", (3, 3), complex=True),
    pair("torch.slogdet", "slogdet", (3, 3)),
    pair(
        "torch.logdet",
        "logdet",
        (3, 3),
        ours=lambda ops, a: ops.logdet(definite(ops, a)),
        theirs=lambda t, a: t.logdet(definite_torch(t, a)),
    ),
    pair("torch.logdet", "logdet", (3, 3), complex=True),
    pair("jax.numpy.linalg.det", "det", (4, 4)),
    pair("jax.numpy.linalg.slogdet", "slogdet", (4, 4)),
]

FACTORS = [
    *[
        pair(
            "torch.linalg.cholesky",
            "cholesky",
            (2, 3, 3),
            complex=field,
            ours=lambda ops, a, upper=upper: ops.cholesky(definite(ops, a), upper=upper),
            theirs=lambda t, a, upper=upper: t.linalg.cholesky(definite_torch(t, a), upper=upper),
        )
        for field in (False, True)
        for upper in (False, True)
    ],
    pair(
        "torch.linalg.cholesky_ex",
        "cholesky",
        (3, 3),
        ours=lambda ops, a: ops.cholesky(definite(ops, a)),
        theirs=lambda t, a: t.linalg.cholesky_ex(definite_torch(t, a))[0],
    ),
    *[
        pair("torch.linalg.qr", "qr", shape, complex=field)
        for shape in ((3, 3), (4, 2), (2, 4), (2, 4, 3))
        for field in (False, True)
    ],
    pair("torch.linalg.qr", "qr", (3, 3), ours={"mode": "complete"}, theirs={"mode": "complete"}),
    *[
        pair(
            "torch.linalg.lu",
            "lu",
            shape,
            complex=field,
            ours=lambda ops, a: ops.lu(a)[1:],
            theirs=lambda t, a: t.linalg.lu(a)[1:],
        )
        for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 3))
        for field in (False, True)
    ],
    pair("torch.linalg.lu", "lu", (4, 3), values_only=True),
    pair("jax.numpy.linalg.qr", "qr", (4, 3)),
    pair("jax.scipy.linalg.lu", "lu", (4, 4)),
    pair(
        "jax.numpy.linalg.cholesky",
        "cholesky",
        (3, 3),
        complex=True,
        ours=lambda ops, a: ops.cholesky(definite(ops, a)),
        theirs=lambda jax, a: jax.numpy.linalg.cholesky(a @ a.conj().T / 4 + np.eye(3)),
    ),
]

VALUES = [
    *[
        pair(
            "torch.linalg.svd",
            "svd",
            shape,
            complex=field,
            ours=lambda ops, a, full=full: svd_again(ops, a, full),
            theirs=lambda t, a, full=full: svd_again_torch(t, a, full),
        )
        for shape, full in (((3, 3), True), ((4, 2), False), ((2, 2, 4), False))
        for field in (False, True)
    ],
    pair("torch.linalg.svdvals", "svdvals", (2, 4, 3)),
    pair("torch.linalg.svdvals", "svdvals", (3, 4), complex=True),
    pair(
        "torch.svd",
        "svd",
        (4, 3),
        ours=lambda ops, a: ops.svd(a)[1],
        theirs=lambda t, a: t.svd(a)[1],
    ),
    *[
        pair(
            "torch.linalg.eig", "eig", (3, 3), complex=field, ours=eig_again, theirs=eig_again_torch
        )
        for field in (False, True)
    ],
    *[pair("torch.linalg.eigvals", "eigvals", (3, 3), complex=field) for field in (False, True)],
    pair(
        "torch.linalg.eigvalsh",
        "eigvalsh",
        (3, 3),
        complex=True,
        ours=lambda ops, a: ops.eigvalsh(definite(ops, a)),
        theirs=lambda t, a: t.linalg.eigvalsh(definite_torch(t, a)),
    ),
    pair(
        "torch.linalg.eigh",
        "eigh",
        (3, 3),
        ours=lambda ops, a: ops.absolute(ops.eigh(definite(ops, a))[1]),
        theirs=lambda t, a: t.linalg.eigh(definite_torch(t, a))[1].abs(),
    ),
    pair("torch.linalg.matrix_rank", "matrix_rank", (4, 3), values_only=True),
    pair("torch.linalg.cond", "cond", (4, 3)),
    pair("torch.linalg.cond", "cond", (2, 3, 3), ours={"p": -2}, theirs={"p": -2}),
    *[  # torch's own sweep of these fails
        pair(
            "torch.linalg.cond", "cond", (2, 3, 3), ours={"p": p}, theirs={"p": p}, values_only=True
        )
        for p in (1, -1, np.inf, -np.inf, "fro", "nuc")
    ],
    *[
        pair("jax.numpy.linalg.cond", "cond", (3, 3), ours={"p": p}, theirs={"p": p})
        for p in (1, -1, np.inf, -np.inf, "fro")
    ],
    pair("jax.numpy.linalg.svdvals", "svdvals", (4, 3)),
    pair("jax.numpy.linalg.eigvals", "eigvals", (3, 3)),
]

LEAST_SQUARES = [
    *[
        pair("torch.linalg.pinv", "pinv", shape, complex=field)
        for shape in ((4, 2), (2, 4), (2, 3, 3))
        for field in (False, True)
    ],
    pair("torch.pinverse", "pinv", (4, 2)),
    *[
        pair(
            "torch.linalg.lstsq",
            "lstsq",
            (4, 2),
            (4, 3),
            complex=field,
            ours=lambda ops, a, b: ops.lstsq(a, b)[0],
            theirs=lambda t, a, b: t.linalg.lstsq(a, b)[0],
        )
        for field in (False, True)
    ],
    pair(
        "torch.linalg.lstsq",
        "lstsq",
        (2, 4),
        (2, 1),
        ours=lambda ops, a, b: ops.lstsq(a, b)[0],
        theirs=lambda t, a, b: t.linalg.lstsq(a, b, driver="gelsd")[0],
    ),
    pair("jax.numpy.linalg.pinv", "pinv", (4, 2)),
]

INFINITE = (np.inf, -np.inf)
NORMS = [
    *[
        pair(
            "torch.linalg.vector_norm",
            "vector_norm",
            (3, 4),
            complex=field,
            ours={"ord": p, "axis": 1},
            theirs={"ord": p, "dim": 1},
        )
        for p in (2, 1, 0.5, 3, -1, *INFINITE)
        for field in (False, True)
    ],
    pair(
        "torch.linalg.vector_norm",
        "vector_norm",
        (3, 4),
        ours={"ord": 0},
        theirs={"ord": 0},
        values_only=True,
    ),
    pair(
        "torch.linalg.vector_norm",
        "vector_norm",
        (2, 3, 4),
        ours={"axis": (0, 2), "keepdims": True},
        theirs={"dim": (0, 2), "keepdim": True},
    ),
    *[
        pair(
            "torch.linalg.matrix_norm",
            "matrix_norm",
            (2, 3, 4),
            complex=field,
            ours={"ord": p},
            theirs={"ord": p},
        )
        for p in (2, -2, 1, -1, *INFINITE, "fro", "nuc")
        for field in (False, True)
    ],
    pair("torch.linalg.norm", "norm", (2, 3, 4)),
    pair("torch.linalg.norm", "norm", (3, 4), ours={"ord": "nuc"}, theirs={"ord": "nuc"}),
    pair(
        "torch.linalg.norm",
        "norm",
        (2, 3, 4),
        ours={"ord": 2, "axis": (0, 2), "keepdims": True},
        theirs={"ord": 2, "dim": (0, 2), "keepdim": True},
    ),
    pair("torch.norm", "norm", (3, 4)),
    pair("torch.norm", "norm", (3, 4), ours={"ord": 3, "axis": 0}, theirs={"p": 3, "dim": 0}),
    pair("torch.dist", "norm", (3, 4), (3, 4), ours=lambda ops, a, b: ops.norm(a - b)),
    pair("jax.numpy.linalg.norm", "norm", (3, 4), ours={"ord": 2}, theirs={"ord": 2}),
    pair("jax.numpy.linalg.norm", "norm", (3, 4), ours={"axis": 1}, theirs={"axis": 1}),
]

FUNCTIONS = [
    pair("torch.linalg.matrix_exp", "expm", (2, 3, 3)),
    pair("torch.linalg.matrix_exp", "expm", (3, 3), complex=True),
    pair("torch.matrix_exp", "expm", (4, 4), low=-9.0, high=9.0),
    pair("jax.scipy.linalg.expm", "expm", (3, 3)),
    *[
        pair("torch.linalg.matrix_power", "matrix_power", (2, 3, 3), ours={"n": n}, theirs={"n": n})
        for n in (1, 2, 5, -1, -3)
    ],
    pair("torch.matrix_power", "matrix_power", (3, 3), 3, complex=True),
    pair(
        "torch.linalg.multi_dot",
        "multi_dot",
        (3,),
        (3, 5),
        (5, 2),
        (2, 4),
        ours=lambda ops, *x: ops.multi_dot(x),
        theirs=lambda t, *x: t.linalg.multi_dot(x),
    ),
]

PARTS = [
    pair("torch.block_diag", "block_diag", (2, 3), (2,), (), (1, 1)),
    pair("torch.diag_embed", "diag_embed", (2, 3)),
    pair(
        "torch.diag_embed",
        "diag_embed",
        (2, 3),
        ours={"offset": -1, "axis1": 0, "axis2": 2},
        theirs={"offset": -1, "dim1": 0, "dim2": 2},
    ),
    pair("torch.adjoint", "adjoint", (2, 3, 2), complex=True),
    pair("torch.linalg.vecdot", "vecdot", (2, 1, 3), (4, 3), complex=True),
    pair("torch.linalg.vecdot", "vecdot", (3, 2), (3, 2), ours={"axis": 0}, theirs={"dim": 0}),
    pair("torch.linalg.cross", "cross", (2, 3), (1, 3)),
    pair(
        "torch.linalg.diagonal",
        "diagonal",
        (2, 3, 4),
        theirs={"offset": 1},
        ours={"offset": 1, "axis1": -2, "axis2": -1},
    ),
    pair("torch.linalg.matmul", "matmul", (2, 3, 4), (4, 2)),
    pair("jax.scipy.linalg.block_diag", "block_diag", (2, 3), (1, 2)),
]

PAIRS = [*SYSTEMS, *DETERMINANTS, *FACTORS, *VALUES, *LEAST_SQUARES, *NORMS, *FUNCTIONS, *PARTS]
