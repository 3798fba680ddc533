"""Doors to saving and loading, in a folder of their own."""

import os
import tempfile

import numpy as np

import odyssey as od
from odyssey import Variable, optim
from support.hostile import hostile, mixed

FOLDER = tempfile.TemporaryDirectory()


def _tree(rng):
    w = Variable(rng.normal(size=3), True)
    parts = {"w": w, "o": optim.SGD(w, 0.1), "x": np.ones(2), "n": 1, "rng": rng}
    kept = {name: part for name, part in parts.items() if rng.random() < 0.8}
    return kept | {"h": hostile(rng)} if rng.random() < 0.5 else kept


def _saving(path, tree):
    od.save(path, tree)
    assert os.listdir(FOLDER.name) == ["saved.npz"]
    od.load(path, tree)
    od.load(path)


def _loading(path, *like, **named):
    od.save(os.path.join(FOLDER.name, "saved.npz"), {"n": 1, "w": Variable([1.0, 2.0, 3.0])})
    od.load(path, *like, **named)


def saving_doors():
    """By name, what makes a plausible call of each and makes some of its arguments hostile."""
    path = os.path.join(FOLDER.name, "saved.npz")

    def save(rng):
        args, named = mixed(rng, [path, _tree(rng)], {})
        return _saving, args, named, False

    def load(rng):
        like = {"n": 1, "w": Variable(np.zeros(3), True)}
        args, named = mixed(rng, [path, like if rng.random() < 0.5 else _tree(rng)], {})
        return _loading, args, named, False

    return {"od.save": save, "od.load": load}
