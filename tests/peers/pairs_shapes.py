"""Shapes, places and joints."""

import numpy as np

from support.pairs import pair

X = (2, 3)
ROWS = np.array([2, 0, 1, 2])

S = (2, 3, 4)
SHAPES = [
    pair("torch.reshape", "reshape", S, ours={"shape": (4, 6)}, theirs={"shape": (4, 6)}),
    pair(
        "torch.transpose",
        "swapaxes",
        S,
        ours=lambda ops, x: ops.swapaxes(x, 0, 2),
        theirs=lambda torch, x: torch.transpose(x, 0, 2),
    ),
    *[
        pair(
            f"torch.{name}",
            "swapaxes",
            S,
            ours=lambda ops, x: ops.swapaxes(x, 0, -1),
            theirs=lambda torch, x, name=name: getattr(torch, name)(x, 0, -1),
        )
        for name in ("swapaxes", "swapdims")
    ],
    pair("torch.permute", "transpose", S, ours={"axes": (2, 0, 1)}, theirs={"dims": (2, 0, 1)}),
    *[
        pair(
            f"torch.{name}",
            "moveaxis",
            S,
            ours=lambda ops, x: ops.moveaxis(x, 0, -1),
            theirs=lambda torch, x, name=name: getattr(torch, name)(x, 0, -1),
        )
        for name in ("moveaxis", "movedim")
    ],
    pair("torch.t", "transpose", X),
    pair("torch.adjoint", "conj", X, complex=True, ours=lambda ops, z: ops.conj(ops.transpose(z))),
    *[pair(f"torch.{name}", "ravel", S) for name in ("ravel", "flatten")],
    pair(
        "torch.unflatten",
        "reshape",
        (2, 6),
        ours={"shape": (2, 2, 3)},
        theirs=lambda torch, x: torch.unflatten(x, 1, (2, 3)),
    ),
    pair("torch.squeeze", "squeeze", (2, 1, 3), ours={"axis": 1}, theirs={"dim": 1}),
    pair("torch.unsqueeze", "expand_dims", X, ours={"axis": 1}, theirs={"dim": 1}),
    pair(
        "torch.broadcast_to",
        "broadcast_to",
        (3, 1),
        ours={"shape": (2, 3, 4)},
        theirs={"size": (2, 3, 4)},
    ),
    *[
        pair(
            f"torch.{name}",
            "concatenate",
            X,
            (2, 2),
            ours=lambda ops, x, y: ops.concatenate([x, y], 1),
            theirs=lambda torch, x, y, name=name: getattr(torch, name)([x, y], 1),
        )
        for name in ("cat", "concat", "concatenate")
    ],
    pair(
        "torch.stack",
        "stack",
        X,
        X,
        ours=lambda ops, x, y: ops.stack([x, y], 1),
        theirs=lambda torch, x, y: torch.stack([x, y], 1),
    ),
    *[
        pair(
            f"torch.{name}",
            name,
            (2, 2, 2),
            (2, 2, 2),
            ours=lambda ops, x, y, name=name: getattr(ops, name)([x, y]),
            theirs=lambda torch, x, y, name=name: getattr(torch, name)([x, y]),
        )
        for name in ("vstack", "hstack", "dstack", "column_stack")
    ],
    pair(
        "torch.row_stack",
        "vstack",
        X,
        X,
        ours=lambda ops, x, y: ops.vstack([x, y]),
        theirs=lambda torch, x, y: torch.vstack([x, y]),
    ),
    pair(
        "torch.split",
        "split",
        (4, 3),
        ours=lambda ops, x: ops.split(x, 2),
        theirs={"split_size_or_sections": 2},
    ),
    pair("torch.chunk", "split", (4, 3), ours=lambda ops, x: ops.split(x, 2), theirs={"chunks": 2}),
    pair(
        "torch.tensor_split",
        "array_split",
        (5, 3),
        ours=lambda ops, x: ops.array_split(x, 2),
        theirs=lambda torch, x: torch.tensor_split(x, 2),
    ),
    *[
        pair(
            f"torch.{name}",
            name,
            (4, 4, 4),
            ours=lambda ops, x, name=name: getattr(ops, name)(x, 2),
            theirs=lambda torch, x, name=name: getattr(torch, name)(x, 2),
        )
        for name in ("hsplit", "vsplit", "dsplit")
    ],
    pair("torch.unbind", "unstack", S, ours={"axis": 1}, theirs={"dim": 1}),
    *[pair(f"torch.{name}", name, ()) for name in ("atleast_1d", "atleast_2d", "atleast_3d")],
    pair("torch.tile", "tile", X, ours={"reps": (2, 2)}, theirs={"dims": (2, 2)}),
    pair(
        "torch.repeat_interleave",
        "repeat",
        X,
        ours={"repeats": 2, "axis": 1},
        theirs={"repeats": 2, "dim": 1},
    ),
    pair("torch.flip", "flip", S, ours={"axis": (0, 2)}, theirs={"dims": (0, 2)}),
    pair("torch.fliplr", "fliplr", X),
    pair("torch.flipud", "flipud", X),
    pair("torch.rot90", "rot90", X, ours={"k": 1}, theirs={"k": 1}),
    pair("torch.roll", "roll", X, ours={"shift": 2, "axis": 1}, theirs={"shifts": 2, "dims": 1}),
    *[
        pair(f"torch.{name}", name, (3, 4), ours={"k": 1}, theirs={"diagonal": 1})
        for name in ("tril", "triu")
    ],
    pair("torch.diag", "diag", (3,), ours={"k": 1}, theirs={"diagonal": 1}),
    pair("torch.diag", "diag", (3, 3)),
    pair(
        "torch.diagonal",
        "diagonal",
        S,
        ours={"axis1": 0, "axis2": 2},
        theirs={"dim1": 0, "dim2": 2},
    ),
    pair("torch.trace", "trace", (3, 3)),
    pair(
        "torch.nn.functional.pad",
        "pad",
        X,
        ours={"pad_width": ((1, 0), (2, 1))},
        theirs={"pad": (2, 1, 1, 0)},
    ),
    *[
        pair(
            f"torch.{ours}",
            ours,
            X,
            theirs=lambda torch, x, name=ours: getattr(torch, name)(x),
            values_only=True,
        )
        for ours in ("zeros_like", "ones_like")
    ],
    pair(
        "torch.full_like",
        "full_like",
        X,
        ours=lambda ops, x: ops.full_like(x, 2.5),
        theirs=lambda torch, x: torch.full_like(x, 2.5),
        values_only=True,
    ),
    pair(
        "torch.linspace",
        "linspace",
        ours=lambda ops: ops.linspace(0.0, 1.0, 5),
        theirs=lambda torch: torch.linspace(0.0, 1.0, 5, dtype=torch.float64),
    ),
    pair(
        "torch.index_select",
        "take",
        (3, 4),
        ours=lambda ops, x: ops.take(x, ROWS, 0),
        theirs=lambda torch, x: torch.index_select(x, 0, torch.tensor(ROWS)),
    ),
    pair(
        "torch.take",
        "take",
        (3, 4),
        ours=lambda ops, x: ops.take(x, ROWS),
        theirs=lambda torch, x: torch.take(x, torch.tensor(ROWS)),
    ),
    pair(
        "torch.take_along_dim",
        "take_along_axis",
        (3, 4),
        ours=lambda ops, x: ops.take_along_axis(x, ROWS[:3, None], 1),
        theirs=lambda torch, x: torch.take_along_dim(x, torch.tensor(ROWS[:3, None]), 1),
    ),
    pair(
        "torch.narrow",
        "getitem",
        (4, 3),
        ours=lambda ops, x: x[1:3],
        theirs=lambda torch, x: torch.narrow(x, 0, 1, 2),
    ),
    pair(
        "torch.select",
        "getitem",
        (4, 3),
        ours=lambda ops, x: x[:, 1],
        theirs=lambda torch, x: torch.select(x, 1, 1),
    ),
    pair(
        "torch.nn.functional.one_hot",
        "one_hot",
        ROWS,
        ours=lambda ops, k: ops.one_hot(k, 4, dtype=np.int64),
        theirs={"num_classes": 4},
    ),
]

PAIRS = [*SHAPES]
