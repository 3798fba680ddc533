"""Embeddings against PyTorch."""

import numpy as np

from support.pairs import pair

F = "torch.nn.functional."
INDICES = np.array([[3, 0, 3], [1, 3, 0]])


def looked_up(torch, w, **options):
    return torch.nn.functional.embedding(torch.tensor(INDICES), w, **options)


PAIRS = [
    pair(
        F + "embedding",
        "embedding",
        (5, 4),
        ours=lambda ops, w: ops.embedding(INDICES, w),
        theirs=looked_up,
    ),
    *(
        pair(
            F + "embedding",
            "embedding",
            (5, 4),
            ours=lambda ops, w, k=k: ops.embedding(INDICES, w, padding_index=k),
            theirs=lambda torch, w, k=k: looked_up(torch, w, padding_idx=k),
        )
        for k in (3, -2)
    ),
    *(
        pair(
            F + "embedding_bag",
            "embedding_bag",
            (5, 4),
            ours=lambda ops, w, mode=mode: ops.embedding_bag(INDICES, w, mode=mode),
            theirs=lambda torch, w, mode=mode: torch.nn.functional.embedding_bag(
                torch.tensor(INDICES), w, mode=mode
            ),
        )
        for mode in ("mean", "sum")
    ),
    pair(
        F + "embedding_bag",
        "embedding_bag",
        (5, 4),
        ours=lambda ops, w: ops.embedding_bag(np.array([[3, 0, 1], [1, 4, 0]]), w, mode="max"),
        theirs=lambda torch, w: torch.nn.functional.embedding_bag(
            torch.tensor([[3, 0, 1], [1, 4, 0]]), w, mode="max"
        ),
    ),
]
