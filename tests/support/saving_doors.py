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
    assert set(os.listdir(FOLDER.name)) <= {"saved.npz", "saved.safetensors"}
    od.load(path, tree)
    od.load(path)


def _loading(path, *like, **named):
    od.save(os.path.join(FOLDER.name, "saved.npz"), {"n": 1, "w": Variable([1.0, 2.0, 3.0])})
    od.load(path, *like, **named)


def _tensors(rng):
    arrays = {"w": np.ones((2, 4), np.float32), "h.0": np.arange(3), "h.1": np.ones(2, bool)}
    return arrays | {"x": hostile(rng)} if rng.random() < 0.3 else arrays


def _writing(path, *args, **named):
    try:
        od.save_tensors(path, *args, **named)
        od.load_tensors(path)
        od.list_tensors(path)
    finally:
        assert set(os.listdir(FOLDER.name)) <= {"saved.npz", "saved.safetensors"}


def _reading(path, **named):
    od.save_tensors(os.path.join(FOLDER.name, "saved.safetensors"), {"w": np.ones((2, 4)), "n": W})
    od.load_tensors(path, **named)


def _caching(shapes, capacity, n, k, v, **options):
    cache = od.Cache(shapes, capacity, **options)
    for layer in cache:
        layer.put(k=k, v=v)
    cache.prepare(n)
    cache.advance(n)
    cache.truncate(n)
    cache.load_state_dict(cache.state_dict())


LOGS = tempfile.TemporaryDirectory()
LOG = os.path.join(LOGS.name, "run.jsonl")


def _logging(path, config, step, values, **metrics):
    if isinstance(path, (str, bytes)) and path != LOG:
        path = ""  # any text is a file's name, in the folder where tests run
    before = _content(LOG)
    try:
        with od.MetricLog(path, config) as log:
            log.log(step, values, **metrics)
            assert od.MetricLog.read(path)[-1].columns
    finally:
        # Whole lines, and nothing that was there is changed.
        after = _content(LOG)
        assert after.startswith(before)
        assert not after or after.endswith(b"\n")
        assert set(os.listdir(LOGS.name)) <= {"run.jsonl"}
        if len(after) > 100_000:
            os.unlink(LOG)


def _content(path):
    if not os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()


W = Variable([1.0, 2.0])


def _names(rng):
    source = od.TensorSource("w", split=(0, 2), transpose=True)
    trees = ["w"], {"a": "w", "b": ...}, {"a": source, None: ["n"]}, {"x": [{"y": "w"}], "z": "n"}
    return trees[rng.integers(len(trees))]


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

    tensors = os.path.join(FOLDER.name, "saved.safetensors")

    def save_tensors(rng):
        args, named = mixed(rng, [tensors, _tensors(rng), {"format": "np"}], {})
        return _writing, args, named, False

    def load_tensors(rng):
        named = {"mmap": rng.random() < 0.5, "names": _names(rng), "dtype": "float16"}
        args, named = mixed(rng, [tensors], named)
        return _reading, args, named, False

    def list_tensors(rng):
        args, named = mixed(rng, [FOLDER.name], {})
        return od.list_tensors, args, named, False

    def source(rng):
        options = {"split": (0, 2), "transpose": True, "reshape": (2, -1), "apply": np.sum}
        args, named = mixed(rng, ["w"], options)
        return (
            (lambda *a, **n: _reading(tensors, names={"x": od.TensorSource(*a, **n), "r": ...})),
            (args),
            named,
            False,
        )

    def cache(rng):
        rows, options = np.ones((2, 3)), {"dtype": "float64", "layers": 2, "window": [None, 3]}
        args, options = mixed(rng, [{"k": (3,), "v": (3,)}, 4, 2, rows, rows], options)
        return _caching, args, options, False

    def log(rng):
        entries = [LOG, {"lr": 0.1}, 3, {"train/loss": W.sum()}]
        args, named = mixed(rng, entries, {"loss": np.float32(0.5)})
        return _logging, args, named, False

    return {
        "od.Cache": cache,
        "od.MetricLog": log,
        "od.save": save,
        "od.load": load,
        "od.save_tensors": save_tensors,
        "od.load_tensors": load_tensors,
        "od.list_tensors": list_tensors,
        "od.TensorSource": source,
    }
