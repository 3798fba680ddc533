"""Products of matrices and vectors."""

from support.pairs import pair

PAIRS = [
    pair("torch.matmul", "matmul", (2, 3, 4), (4, 5)),
    pair("torch.matmul", "matmul", (3, 4), (4,), complex=True),
    pair("jax.numpy.matmul", "matmul", (3, 4), (4, 2), complex=True),
    pair("torch.outer", "outer", (3,), (4,)),
    pair("torch.kron", "kron", (2, 3), (2, 2)),
    pair("torch.nn.functional.linear", "linear", (2, 3), (4, 3), (4,)),
]
