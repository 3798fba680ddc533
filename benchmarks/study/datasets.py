"""Digits and diabetes of scikit-learn, also for interpreters of peers that lack it.

Whoever has scikit-learn writes the arrays to the cache folder, where others find them. The study's
own interpreter does so when it computes a reference, which comes before any system is started.
"""

import contextlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from study.contract import NotApplicable

HELD_OUT = {"digits": 360, "diabetes": 88}


class Split(NamedTuple):
    """Rows to train with, and rows that are held out."""

    x: Any
    y: Any
    test_x: Any
    test_y: Any


def digits(folder: str | Path | None = None) -> Split:
    """Return 1797 images of 8 by 8 in float32 from 0 to 1, as rows of 64, and their digits.

    Args:
        folder: Where the arrays are kept; by default `cache_folder`.
    """
    images, labels = _load("digits", folder)
    return _split("digits", (images / 16).astype(np.float32), labels.astype(np.int64))


def diabetes(folder: str | Path | None = None) -> Split:
    """Return 442 patients of ten numbers each and their progression, standardized, in float32.

    Args:
        folder: As in `digits`.
    """
    rows, target = _load("diabetes", folder)
    rows = (rows - rows.mean(0)) / rows.std(0)
    target = (target - target.mean()) / target.std()
    return _split("diabetes", rows.astype(np.float32), target.astype(np.float32)[:, None])


def _split(name: str, x: Any, y: Any) -> Split:
    order = np.random.RandomState(0).permutation(len(x))
    x, y, count = x[order], y[order], HELD_OUT[name]
    return Split(x[:-count], y[:-count], x[-count:], y[-count:])


def cache_folder() -> Path:
    """Return the folder of the arrays: ``study`` in the cache folder of odyssey."""
    named = os.environ.get("ODYSSEY_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "odyssey") / "study"


def _load(name: str, folder: str | Path | None) -> tuple[Any, Any]:
    path = (cache_folder() if folder is None else Path(folder)) / f"{name}.npz"
    with contextlib.suppress(OSError), np.load(path) as arrays:
        return arrays["x"], arrays["y"]
    try:
        from sklearn import datasets
    except ImportError as error:
        raise NotApplicable(
            f"{name}: neither scikit-learn nor {path} is there; pip install scikit-learn for the "
            "interpreter that runs the study"
        ) from error
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    # In a folder that cannot be written to nothing is kept: each process loads the data itself.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{name}-{os.getpid()}.npz")
        np.savez_compressed(temporary, x=x, y=y)
        os.replace(temporary, path)
    return x, y
