"""Products of matrices and vectors."""

from support.pairs import pair

PAIRS = [
    pair("torch.matmul", "matmul", (2, 3, 4), (4, 5)),
    pair("torch.matmul", "matmul", (3, 4), (4,), complex=True),
    pair("jax.numpy.matmul", "matmul", (3, 4), (4, 2), complex=True),
    pair("torch.outer", "outer", (3,), (4,)),
    pair("torch.kron", "kron", (2, 3), (2, 2)),
    pair("torch.nn.functional.linear", "linear", (2, 3), (4, 3), (4,)),
    pair("torch.mm", "matmul", (2, 3), (3, 4)),
    pair("torch.bmm", "matmul", (2, 3, 4), (2, 4, 2)),
    pair("torch.mv", "matmul", (2, 3), (3,)),
    pair("torch.dot", "dot", (3,), (3,)),
    pair("torch.vdot", "vdot", (3,), (3,), complex=True),
    pair("torch.inner", "inner", (2, 3), (4, 3)),
    pair("torch.ger", "outer", (3,), (4,)),
    pair(
        "torch.addmm",
        "add",
        (2, 4),
        (2, 3),
        (3, 4),
        ours=lambda ops, c, a, b: ops.add(c, ops.matmul(a, b)),
    ),
    pair(
        "torch.addmv",
        "add",
        (2,),
        (2, 3),
        (3,),
        ours=lambda ops, c, a, b: ops.add(c, ops.matmul(a, b)),
    ),
    pair(
        "torch.addr",
        "add",
        (3, 4),
        (3,),
        (4,),
        ours=lambda ops, c, a, b: ops.add(c, ops.outer(a, b)),
    ),
    pair(
        "torch.baddbmm",
        "add",
        (2, 3, 2),
        (2, 3, 4),
        (2, 4, 2),
        ours=lambda ops, c, a, b: ops.add(c, ops.matmul(a, b)),
    ),
    pair(
        "torch.tensordot", "tensordot", (2, 3, 4), (3, 4, 5), ours={"axes": 2}, theirs={"dims": 2}
    ),
    pair(
        "torch.einsum",
        "einsum",
        (2, 3),
        (3, 4),
        (4,),
        ours=lambda ops, *x: ops.einsum("ij,jk,k->i", *x),
        theirs=lambda torch, *x: torch.einsum("ij,jk,k->i", *x),
    ),
    pair("torch.cross", "cross", (2, 3), (2, 3), theirs={"dim": -1}),
    pair(
        "torch.nn.functional.bilinear",
        "einsum",
        (5, 2),
        (5, 3),
        (4, 2, 3),
        ours=lambda ops, x, y, w: ops.einsum("bi,oij,bj->bo", x, w, y),
    ),
]
