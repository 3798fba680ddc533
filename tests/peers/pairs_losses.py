"""Losses, their reductions and options; distances."""

import numpy as np

import odyssey as od
from support.pairs import pair

X = (2, 3)

SIGNS = np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
CLASSES = np.array([2, 0])
LISTS = np.array([[2, 0, -1, 1], [3, 3, -1, 0], [-1, 2, 0, 1]])
REDUCTIONS = ("mean", "sum", "none")


def losses(theirs, ours, *operands, options=({},), **more):
    """The same call of a loss, for each reduction."""

    def of_ours(settings):
        return lambda ops, *args: getattr(od.losses, ours)(*args, **settings)

    def of_theirs(settings):
        return lambda torch, *args: getattr(torch.nn.functional, theirs)(
            *[torch.tensor(x) if isinstance(x, np.ndarray) else x for x in args], **settings
        )

    return [
        pair(
            f"torch.nn.functional.{theirs}",
            f"losses.{ours}",
            *operands,
            ours=of_ours({**settings, "reduction": r}),
            theirs=of_theirs({**settings, "reduction": r}),
            **more,
        )
        for settings in options
        for r in REDUCTIONS
    ]


LOSSES = [
    *losses("mse_loss", "mean_squared_error", X, X),
    *losses("l1_loss", "mean_absolute_error", X, X),
    *losses("smooth_l1_loss", "smooth_l1", X, X, options=({}, {"beta": 0.5})),
    *losses("huber_loss", "huber", X, X, options=({}, {"delta": 0.5})),
    *losses("binary_cross_entropy", "binary_cross_entropy", X, X, low=0.1, high=0.9),
    *losses("cross_entropy", "cross_entropy", X, CLASSES, options=({}, {"label_smoothing": 0.1})),
    *losses("nll_loss", "nll", X, CLASSES),
    *losses(
        "poisson_nll_loss",
        "poisson_nll",
        X,
        X,
        low=0.2,
        high=3.0,
        options=({}, {"full": True}, {"log_input": False, "eps": 0.1}),
    ),
    *losses(
        "gaussian_nll_loss",
        "gaussian_nll",
        X,
        X,
        X,
        low=0.2,
        high=3.0,
        options=({}, {"full": True}),
    ),
    *losses("hinge_embedding_loss", "hinge_embedding", X, SIGNS, options=({}, {"margin": 0.25})),
    *losses("soft_margin_loss", "soft_margin", X, SIGNS),
    *losses("margin_ranking_loss", "margin_ranking", X, X, SIGNS, options=({}, {"margin": 0.5})),
    *losses("multi_margin_loss", "multi_margin", X, CLASSES, options=({}, {"p": 2, "margin": 0.5})),
    *[
        pair(
            "torch.nn.functional.ctc_loss",
            "losses.ctc",
            shape,
            ours=lambda ops, x, t=targets, o=options: od.losses.ctc(
                ops.log_softmax(x), np.array(t), **{k: np.array(v) for k, v in o.items()}
            ),
            theirs=lambda torch, x, t=targets, o=options: torch.nn.functional.ctc_loss(
                x.log_softmax(-1),
                torch.tensor(t),
                torch.tensor(o.get("input_lengths", [6] * 3 if x.ndim == 3 else 6)),
                torch.tensor(o["target_lengths"]),
            ),
        )
        for shape, targets, options in (
            ((6, 3, 4), [[1, 2], [2, 2], [1, 3]], {"target_lengths": [2, 2, 1]}),
            (
                (6, 3, 4),
                [1, 3, 3, 3],
                {"target_lengths": [1, 3, 0], "input_lengths": [1, 6, 4]},
            ),
            ((6, 4), [2, 1, 1], {"target_lengths": 3}),
        )
    ],
    *[
        pair(
            "torch.nn.functional.ctc_loss",
            "losses.ctc",
            (2, 2, 3),
            ours=lambda ops, x, r=r: od.losses.ctc(
                ops.log_softmax(x),
                np.array([[1, 1], [2, 1]]),
                blank=0,
                zero_infinity=True,
                reduction=r,
            ),
            theirs=lambda torch, x, r=r: torch.nn.functional.ctc_loss(
                x.log_softmax(-1),
                torch.tensor([[1, 1], [2, 1]]),
                torch.tensor([2, 2]),
                torch.tensor([2, 2]),
                blank=0,
                zero_infinity=True,
                reduction=r,
            ),
        )
        for r in REDUCTIONS
    ],
    *losses("multilabel_margin_loss", "multilabel_margin", (3, 4), LISTS),
    *losses("multilabel_soft_margin_loss", "multilabel_soft_margin", X, (SIGNS + 1) / 2),
    *losses(
        "cosine_embedding_loss",
        "cosine_embedding",
        (3, 4),
        (3, 4),
        np.array([1.0, -1.0, -1.0]),
        options=({}, {"margin": -0.5}),
    ),
    *losses(
        "triplet_margin_loss",
        "triplet_margin",
        (3, 4),
        (3, 4),
        (3, 4),
        options=({}, {"p": 3.0, "margin": 2.0}, {"swap": True, "margin": 4.0}),
    ),
    pair(
        "torch.nn.functional.binary_cross_entropy_with_logits",
        "binary_entropy_with_logits",
        X,
        X,
        theirs={"reduction": "none"},
    ),
    pair(
        "torch.nn.functional.kl_div",
        "losses.kl_divergence",
        X,
        X,
        low=0.2,
        high=0.9,
        ours=lambda ops, x, t: od.losses.kl_divergence(x, t, reduction="sum"),
        theirs={"reduction": "sum"},
    ),
    pair("torch.nn.functional.cosine_similarity", "cosine_similarity", (3, 4), (3, 4)),
    pair(
        "torch.cosine_similarity",
        "cosine_similarity",
        (3, 4),
        (4,),
        ours={"axis": 0},
        theirs={"dim": 0},
    ),
    *[
        pair(
            "torch.nn.functional.pairwise_distance",
            "pairwise_distance",
            (3, 4),
            (3, 4),
            ours={"p": p},
            theirs={"p": p},
        )
        for p in (1.0, 2.0, 3.5)
    ],
    pair(
        "torch.nn.functional.normalize",
        "divide",
        (3, 4),
        ours=lambda ops, x: ops.divide(x, ops.sqrt(ops.sum(ops.square(x), 1, keepdims=True))),
    ),
]

PAIRS = [*LOSSES]
