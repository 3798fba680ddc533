"""Decoders: GPT-2, Gemma 3 and LLaMA as configurations of one program
======================================================================

A decoder reads tokens, whole numbers, and gives scores, logits, of each next one. These three
families differ in a dozen options, see ``Config`` in ``decoder_configs.py``; ``hidden_states`` is
the network for all of them, for a batch to train with, a prompt, and a single token.

* ``Decoder.load(folder)`` and ``Decoder.save(folder)`` read and write Hugging Face's layout,
  ``config.json`` and ``model.safetensors`` or shards. ``Decoder.random(config, seed)`` draws
  weights; ``gpt2()``, ``gemma3()`` and ``llama()`` are configurations.
* ``decoder.prefill(tokens)`` and ``decoder.step(token)`` put tokens behind those before, and return
  the logits of the next one. An ``od.Cache`` holds keys and values, so that a token costs one pass
  over the weights. Both are compiled.
* ``decoder.logits(tokens)`` and ``decoder.loss(tokens)`` are differentiable, to train and
  fine-tune.

>>> config = llama(vocabulary=100, width=32, layers=2, heads=4, key_heads=2)
>>> decoder = Decoder.random(config, seed=0)
>>> logits = decoder.prefill([3, 1, 4, 1, 5])
>>> logits.shape, len(decoder)
((100,), 5)
>>> logits = decoder.step(int(logits.argmax()))
>>> len(decoder)
6
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import odyssey as od
from odyssey import Variable, ops
from odyssey.errors import DTypeError, OutOfRangeError, SettingError

if __package__:  # imported as examples.decoders, and its neighbour is no module of the path
    sys.path.append(str(Path(__file__).parent))
from decoder_configs import (
    FLOATS,
    Config,
    Rope,
    check_config,
    check_weights,
    config_settings,
    gemma3,
    gemma3_270m,
    gpt2,
    llama,
    llama32_1b,
    nest,
    read_weights,
    weights_of,
    write_weights,
)

__all__ = [
    "Config",
    "Decoder",
    "Rope",
    "gemma3",
    "gemma3_270m",
    "gpt2",
    "llama",
    "llama32_1b",
]

# %%
# The network
# -----------
# Weights of products lie (out, in), so that the product of one token reads them along memory.

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu_tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "gelu": lambda x: ops.gelu(x),
    "silu": ops.silu,
    "relu": ops.relu,
}


def linear(x: Any, layer: dict[str, Any]) -> Any:
    """Return ``x @ weight.T + bias``; a weight of half precision is multiplied in single."""
    x = x @ ops.matrix_transpose(layer["weight"])
    return x + layer["bias"] if "bias" in layer else x


def normalize(config: Config, x: Any, layer: dict[str, Any]) -> Any:
    """Return the layer norm or RMS norm of ``x``."""
    weight = ops.astype(layer["weight"], x.dtype)
    if config.centered:
        return ops.layer_norm(x, weight, ops.astype(layer["bias"], x.dtype), eps=config.eps)
    return ops.rms_norm(x, weight + config.norm_offset, eps=config.eps)


def place(array: np.ndarray, x: Any) -> Any:
    """Return an array on the device of ``x``."""
    there = isinstance(x, Variable) and x.device != od.devices.cpu
    return Variable(array, device=x.device) if there else array


def rotate(x: Any, positions: Any, frequencies: np.ndarray) -> Any:
    """Return heads (..., length, size) whose elements k and k + size / 2 are turned as a pair."""
    angles = ops.reshape(positions, (-1, 1)) * place(frequencies, positions)
    cos, sin = (ops.astype(fn(angles), x.dtype) for fn in (ops.cos, ops.sin))
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return ops.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def split_heads(x: Any, size: int) -> Any:
    """Return (..., heads, length, size) of (..., length, heads * size)."""
    return ops.swapaxes(ops.reshape(x, (*x.shape[:-1], -1, size)), -2, -3)


def visible(positions: Any, places: Any, window: int | None) -> Any:
    """Return which of the keys at ``places`` the queries at ``positions`` attend to."""
    ahead = ops.reshape(positions, (-1, 1)) - places
    seen = ops.greater_equal(ahead, 0)
    return seen if window is None else ops.logical_and(seen, ops.less(ahead, window))


def attention(config: Config, q: Any, keys: Any, values: Any, seen: Any) -> Any:
    """Return values averaged by weights, (..., length, heads * size).

    Args:
        config: Its scale of scores.
        q: Queries, (..., heads, length, size).
        keys: (..., key heads, other length, size).
        values: As ``keys``.
        seen: Which keys a query attends to, (length, other length).
    """
    *lead, heads, length, size = q.shape
    groups, others = keys.shape[-3:-1]
    # The queries of a group are rows of one product, so that no key is repeated.
    rows = ops.reshape(q, (*lead, groups, heads // groups * length, size))
    scores = rows @ ops.matrix_transpose(keys) * config.score_size**-0.5
    scores = ops.reshape(scores, (*lead, heads, length, others))
    weights = ops.softmax(ops.where(seen, scores, -np.inf), axis=-1)
    weights = ops.reshape(weights, (*lead, groups, heads // groups * length, others))
    mixed = ops.reshape(weights @ values, (*lead, heads, length, size))
    return ops.reshape(ops.swapaxes(mixed, -2, -3), (*lead, length, heads * size))


def embedding_scale(config: Config, dtype: Any) -> float:
    """Return the root of the width, rounded as the weights are.

    Gemma was trained with a factor of bfloat16; weights in float16 stand for such weights.
    """
    root = np.float32(math.sqrt(config.width))
    if np.dtype(dtype).itemsize == 2:
        bits = int(root.view(np.uint32))
        bits += 0x7FFF + (bits >> 16 & 1)  # to nearest even
        return float(np.uint32(bits & 0xFFFF0000).view(np.float32))
    return float(np.dtype(dtype).type(math.sqrt(config.width)))


def hidden_states(
    config: Config,
    parameters: dict[str, Any],
    tokens: Any,
    positions: Any,
    attend: Callable[[int, Any, Any, Any], Any],
) -> list[Any]:
    """Return the states after the embedding and after each layer, the last one normalized.

    Args:
        config: The configuration.
        parameters: A tree as ``Decoder.parameters``.
        tokens: Whole numbers, (..., length).
        positions: Those of the tokens in their sequence, (length,).
        attend: Called with the number of a layer, queries, keys and values by heads; returns
            averages of values, (..., length, heads * size).
    """
    table = parameters["embedding"]["weight"]
    dtype = np.float64 if table.dtype == np.float64 else np.float32
    x = ops.astype(ops.embedding(tokens, table), dtype)
    if config.scaled_embedding:
        x = x * embedding_scale(config, table.dtype)
    if not config.ropes:
        x = x + ops.astype(ops.embedding(positions, parameters["positions"]["weight"]), dtype)
    states = [x]
    for k, layer in enumerate(parameters["layers"]):
        h = normalize(config, x, layer["attention_norm"])
        q, key, value = (
            split_heads(linear(h, layer[name]), config.head_size)
            for name in ("query", "key", "value")
        )
        if config.head_norms:
            q = normalize(config, q, layer["query_norm"])
            key = normalize(config, key, layer["key_norm"])
        if config.ropes:
            frequencies = config.ropes[k].frequencies(config.head_size)
            q, key = (rotate(heads, positions, frequencies) for heads in (q, key))
        h = linear(attend(k, q, key, value), layer["output"])
        x = x + (normalize(config, h, layer["attention_outer_norm"]) if config.outer_norms else h)

        h = normalize(config, x, layer["inner_norm"])
        activation = ACTIVATIONS[config.activation]
        if config.gated:
            h = activation(linear(h, layer["gate"])) * linear(h, layer["up"])
        else:
            h = activation(linear(h, layer["up"]))
        h = linear(h, layer["down"])
        x = x + (normalize(config, h, layer["inner_outer_norm"]) if config.outer_norms else h)
        states.append(x)
    states[-1] = normalize(config, states[-1], parameters["norm"])
    return states


def logits_of(config: Config, parameters: dict[str, Any], x: Any) -> Any:
    """Return the logits of normalized states."""
    logits = linear(x, parameters["embedding" if config.tied else "head"])
    if config.logit_cap is not None:
        logits = config.logit_cap * ops.tanh(logits / config.logit_cap)
    return logits


# %%
# A decoder with its cache
# ------------------------

PIECE = 512  # most tokens of a prompt that go through the network at once


class Decoder:
    """A language model: a configuration, its weights, and a cache of keys and values.

    Args:
        config: The configuration.
        weights: Arrays by path, as ``weights_of`` lists them.
        capacity: How many tokens the cache holds; by default 1024, or the most positions.
        trainable: Whether the weights have gradients.
        device: Where weights and cache lie, ``"cpu"`` or ``"cuda"``.
    """

    def __init__(
        self,
        config: Config,
        weights: dict[str, np.ndarray],
        *,
        capacity: int | None = None,
        trainable: bool = False,
        device: str = "cpu",
    ) -> None:
        check_weights(config, weights)
        if capacity is None:
            capacity = min(config.positions, 1024)
        if not isinstance(capacity, int | np.integer) or not 1 <= capacity <= config.positions:
            raise SettingError(
                f"Decoder: a capacity of {capacity!r} tokens; wanted 1 to {config.positions}, "
                f"the most positions of this {config.family}"
            )
        self.config = config
        self.variables = {
            path: Variable(array, requires_grad=trainable, name=path, device=device)
            for path, array in weights.items()
        }
        self.parameters = nest(self.variables)
        rows = config.key_heads, config.head_size
        windows = [w and min(w, capacity) for w in config.windows]
        dtype = np.float64 if self.dtype == np.float64 else np.float32
        self.cache = od.Cache(
            {"keys": rows, "values": rows}, capacity, dtype, config.layers, windows, device=device
        )
        self.device = str(self.variables["embedding.weight"].device)
        on_cpu = self._on_cpu = self.device == "cpu"
        parameters, cache = self.parameters, self.cache

        def advance(tokens: Any, last: Any) -> Any:
            """Put tokens behind those of the cache; return the logits after one of them."""
            positions = cache.length + np.arange(tokens.shape[0])
            if not on_cpu:  # lengths of caches are numbers of the CPU
                positions = positions.to(device)

            def attend(k: int, q: Any, key: Any, value: Any) -> Any:
                keys, values, seen = cache[k].put(keys=key, values=value)
                return attention(config, q, keys, values, seen)

            states = hidden_states(config, parameters, tokens, positions, attend)
            cache.advance(tokens.shape[0])
            row = ops.reshape(ops.take(states[-1], last, axis=0), (1, -1))
            return logits_of(config, parameters, row)[0]

        self._advance = od.compile(advance)
        self._compiled: set[tuple[int, int]] = set()

    @classmethod
    def random(
        cls,
        config: Config,
        seed: int = 0,
        dtype: Any = "float32",
        *,
        capacity: int | None = None,
        trainable: bool = True,
        device: str = "cpu",
    ) -> Decoder:
        """Return a decoder with weights as before training: products keep the size of signals.

        Args:
            config: The configuration.
            seed: Of the generator.
            dtype: float32, float64, float16 or bfloat16.
            capacity: See ``Decoder``.
            trainable: Whether weights have gradients; those of half precision have none.
            device: See ``Decoder``.
        """
        check_config(config)
        rng = np.random.default_rng(seed)
        dtype = od.Spec((), dtype).dtype
        if dtype.name not in FLOATS:
            raise DTypeError(f"Decoder: dtype {dtype}; wanted {', '.join(FLOATS)}")
        weights = {}
        for path, weight in weights_of(config).items():
            if len(weight.shape) == 1:
                one = path.endswith("norm.weight")
                array = np.full(weight.shape, (1.0 - config.norm_offset) if one else 0.0, dtype)
            else:
                table = path in ("embedding.weight", "positions.weight", "head.weight")
                scale = 0.02 if table else weight.shape[1] ** -0.5
                if path.endswith(("output.weight", "down.weight")):
                    scale /= math.sqrt(2 * config.layers)
                array = rng.standard_normal(weight.shape, dtype=np.float32) * np.float32(scale)
                array = array.astype(dtype, copy=False)
            weights[path] = array
        trainable = trainable and dtype.itemsize > 2
        return cls(config, weights, capacity=capacity, trainable=trainable, device=device)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        dtype: Any = None,
        *,
        capacity: int | None = None,
        trainable: bool = False,
        device: str = "cpu",
    ) -> Decoder:
        """Return the decoder of a folder in Hugging Face's layout.

        Args:
            folder: It has ``config.json``, and ``model.safetensors`` or shards with an index.
            dtype: float32, float64, float16 or bfloat16; None for that of the file.
            capacity: See ``Decoder``.
            trainable: Whether weights have gradients.
            device: See ``Decoder``.
        """
        folder = Path(folder)
        config = Config.from_folder(folder)
        weights = read_weights(config, folder, dtype, mmap=not trainable)
        return cls(config, weights, capacity=capacity, trainable=trainable, device=device)

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, which transformers reads as well."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        values = {path: variable.numpy() for path, variable in self.variables.items()}
        write_weights(self.config, values, folder / "model.safetensors")
        text = json.dumps(config_settings(self.config) | {"dtype": self.dtype.name}, indent=2)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the weights; states and logits are float64 for float64, else float32."""
        return self.variables["embedding.weight"].dtype

    @property
    def capacity(self) -> int:
        """How many tokens the cache holds."""
        return self.cache.capacity

    # ------------------------------------------------------------------ decoding

    def __len__(self) -> int:
        """Return how many tokens are in the cache."""
        return len(self.cache)

    def prefill(self, tokens: Any) -> np.ndarray:
        """Put tokens behind those before; return the logits of the next one, (vocabulary,).

        Tokens are padded to a power of two, and the rows of the padding are dropped afterwards, so
        that prompts of all lengths share a few programs. A long prompt goes in pieces. If it fails
        or is interrupted, the cache is as before.

        Raises:
            SettingError: No tokens, or more than a vector of them.
            OutOfRangeError: A token that is not in the vocabulary, or more than there is room for.
        """
        tokens = self._checked(tokens)
        before = len(self.cache)
        try:
            while len(tokens):
                size = self._piece(len(tokens))
                piece, tokens = tokens[:size], tokens[size:]
                end = len(self.cache) + len(piece)
                padded = np.zeros(size, np.int64)
                padded[: len(piece)] = piece
                logits = self._run(padded, len(piece) - 1)
                if size > len(piece):
                    self.cache.truncate(end)
        except BaseException:
            self.cache.truncate(before)
            raise
        return logits

    def step(self, token: Any) -> np.ndarray:
        """Put one token behind those before; return the logits of the next one, (vocabulary,)."""
        if type(token) is int and 0 <= token < self.config.vocabulary and self._room():
            return self._run(np.array([token]), 0)  # 20 µs less than what follows
        return self._run(self._checked(np.reshape(token, -1), count=1), 0)

    def _room(self) -> float:
        """Return how many tokens fit behind those of the cache."""
        if None in self.config.windows:
            return self.cache.capacity - len(self.cache)
        return math.inf  # a ring

    def _piece(self, count: int) -> int:
        """Return how many tokens go through the network at once, of so many."""
        most = self._room()
        if most == math.inf:
            most = self.cache.capacity - max(self.config.windows) + 1
        size = min(PIECE, 1 << (count - 1).bit_length())
        while size > most:  # no room for padding
            size //= 2
        return size

    def _checked(self, tokens: Any, count: int | None = None) -> np.ndarray:
        try:
            tokens, vocabulary = np.asarray(tokens), self.config.vocabulary
        except ValueError as error:
            raise SettingError(f"Decoder: tokens are no array: {error}") from None
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or len(tokens) < 1:
            raise SettingError(
                f"Decoder: tokens of shape {tokens.shape} and dtype {tokens.dtype}; "
                "wanted whole numbers, (length,), at least one"
            )
        if count and len(tokens) != count:
            raise SettingError(f"Decoder: {len(tokens)} tokens came for a step; wanted one")
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            wrong = tokens[(tokens < 0) | (tokens >= vocabulary)][0]
            raise OutOfRangeError(f"Decoder: token {wrong} is not in a vocabulary of {vocabulary}")
        if len(tokens) > self._room():
            raise OutOfRangeError(
                f"Decoder: {len(tokens)} tokens behind {len(self)}, and there is room for "
                f"{self.capacity}; "
                "truncate the cache, or make a decoder of a larger capacity"
            )
        return tokens.astype(np.int64)

    def _run(self, tokens: np.ndarray, last: int) -> np.ndarray:
        arguments = tokens, np.array(last)
        if not self._on_cpu:
            arguments = tuple(Variable(array, device=self.device) for array in arguments)
        shape = len(tokens), self.cache.prepare(len(tokens))
        if shape not in self._compiled:
            # Else a first call would run op by op, with weights of half precision cast as a whole.
            self._advance.precompile(*arguments)
            self._compiled.add(shape)
        logits = self._advance(*arguments)
        return np.asarray(logits) if self._on_cpu else logits.numpy()

    # ------------------------------------------------------------------ training

    def hidden_states(self, tokens: Any, parameters: Any = None) -> list[Any]:
        """Return the states after the embedding and each layer, the last one normalized.

        Args:
            tokens: (..., length); sequences from their first token on. The cache is not used.
            parameters: A tree in the place of ``self.parameters``.
        """
        parameters = self.parameters if parameters is None else parameters
        table = parameters["embedding"]["weight"]
        tokens = token_array(tokens)
        tokens = place(tokens, table) if isinstance(tokens, np.ndarray) else tokens
        positions = place(np.arange(tokens.shape[-1]), table)

        def attend(k: int, q: Any, keys: Any, values: Any) -> Any:
            seen = visible(positions, positions, self.config.windows[k])
            return attention(self.config, q, keys, values, seen)

        return hidden_states(self.config, parameters, tokens, positions, attend)

    def logits(self, tokens: Any, parameters: Any = None) -> Any:
        """Return the logits after each token, (..., length, vocabulary), differentiable."""
        parameters = self.parameters if parameters is None else parameters
        states = self.hidden_states(tokens, parameters)
        return logits_of(self.config, parameters, states[-1])

    def loss(self, tokens: Any, parameters: Any = None) -> Any:
        """Return the mean cross entropy of each token after the first, in nats."""
        tokens = token_array(tokens, least=2)
        logits = self.logits(tokens[..., :-1], parameters)
        rows = ops.reshape(logits, (-1, self.config.vocabulary))
        following = ops.reshape(tokens[..., 1:], -1)
        if isinstance(following, np.ndarray):
            following = place(following, rows)
        return od.losses.cross_entropy(rows, following)


def token_array(tokens: Any, least: int = 1) -> Any:
    """Return tokens as an array of whole numbers, (..., length), or raise SettingError.

    Messages have no values: programs cannot depend on the text of what they compute.
    """
    if not hasattr(tokens, "shape"):
        tokens = np.asarray(tokens)
    if not tokens.shape or tokens.dtype.kind not in "iu":
        raise SettingError("Decoder: wanted tokens as whole numbers, (..., length)")
    if tokens.shape[-1] < least:
        raise SettingError("Decoder: no tokens came; a loss needs two")
    return tokens


# %%
# Command line
# ------------
# ``python examples/decoders.py FOLDER --prompt TEXT`` continues a text, and
# ``python examples/decoders.py --random gpt2`` tells how fast a model of this size is. With
# ``--device cuda`` it runs on a CUDA card.

PRESETS: dict[str, Callable[[], Config]] = {
    "gpt2": gpt2,
    "gemma3_270m": gemma3_270m,
    "llama": llama,
    "llama32_1b": llama32_1b,
    "tiny": lambda: llama(vocabulary=1000, width=96, layers=4, heads=4, key_heads=2),
}

if __name__ == "__main__":
    import generation  # examples/generation.py

    generation.main(Decoder, PRESETS)
