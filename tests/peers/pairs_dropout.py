"""Dropout against PyTorch, where nothing is left to chance."""

from support.pairs import pair

F = "torch.nn.functional."
SHAPES = {"dropout": (3, 4), "dropout1d": (2, 3, 4), "dropout2d": (2, 3, 2, 2)}
SHAPES["dropout3d"] = (2, 3, 2, 1, 2)

PAIRS = [
    pair(F + name, name, shape, ours=ours, theirs=theirs)
    for name, shape in SHAPES.items()
    for ours, theirs in (
        ({"rate": 1.0}, {"p": 1.0}),
        ({"rate": 0.3, "training": False}, {"p": 0.3, "training": False}),
    )
]
