"""Decoders: GPT-2, Gemma 3 and LLaMA as configurations of one program
======================================================================

A decoder reads tokens, whole numbers, and gives scores, logits, of each next one. These three
families differ in a dozen options, which ``Config`` lists; ``hidden_states`` is the network for all
of them, for a batch to train with, a prompt, and a single token.

* ``Config.from_folder(folder)`` reads a ``config.json`` in Hugging Face's layout; ``gpt2()``,
  ``gemma3()`` and ``llama()`` are the published sizes, and smaller ones.
* ``Decoder.load(folder)`` and ``Decoder.save(folder)`` read and write weights, in
  ``model.safetensors`` or shards; ``Decoder.random(config, seed)`` draws some.
* ``decoder.prefill(tokens)`` and ``decoder.step(token)`` put tokens behind those before, and return
  the logits of the next one. Keys and values are kept in a cache, so that a token costs one pass
  over the weights. Both are compiled programs.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import odyssey as od
from odyssey import Variable, ops
from odyssey.errors import FormatError, MissingFileError, OutOfRangeError, SettingError

# %%
# Configurations
# --------------


@dataclass(frozen=True)
class Rope:
    """Frequencies of a rotary position embedding (Su et al. 2021).

    Args:
        base: Pair k of a head turns by ``base**(-2 * k / head_size)`` a position.
        factor: The frequencies are divided by this number, to reach further.
        low: Llama 3 divides only frequencies that turn less than ``low`` times in ``original``
            positions; those that turn more than ``high`` times are kept, and those between are
            interpolated. None divides all.
        high: See ``low``.
        original: See ``low``: the length that the model was trained for at first.
    """

    base: float = 10000.0
    factor: float = 1.0
    low: float | None = None
    high: float = 0.0
    original: int = 0

    def frequencies(self, head_size: int) -> np.ndarray:
        """Return the angles a position, (head_size / 2,)."""
        plain = self.base ** (-2.0 * np.arange(head_size // 2) / head_size)
        if self.low is None:
            return plain / self.factor
        turns = self.original * plain / (2 * np.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return plain * (kept + (1.0 - kept) / self.factor)


@dataclass(frozen=True)
class Config:
    """A decoder without its weights.

    Args:
        family: ``"gpt2"``, ``"gemma3_text"`` or ``"llama"``: names and layout of the files.
        vocabulary: Number of tokens.
        width: Elements of a hidden state.
        inner: Elements between the two products of a multilayer perceptron.
        layers: Number of layers.
        heads: Heads of queries.
        key_heads: Heads of keys and values, each of which serves ``heads / key_heads`` consecutive
            heads of queries.
        head_size: Elements of a head; ``heads * head_size`` need not be the width.
        positions: The longest sequence.
        eps: Added to the variance in norms.
        activation: ``"gelu_tanh"``, ``"gelu"``, ``"silu"`` or ``"relu"``.
        score_size: Products of queries and keys are divided by its root.
        ropes: Rotary embeddings by layer; () for a table of learned positions.
        windows: Most tokens that a query of a layer attends to, itself included; None for all.
        tied: Whether the logits are products with the table of the embedding.
        centered: Whether norms subtract the mean and add a bias (layer norm), or not (RMS norm).
        norm_offset: Added to the weights of norms: 1 in Gemma.
        outer_norms: Whether what a layer adds is normalized, too.
        head_norms: Whether queries and keys are normalized, each head by itself.
        scaled_embedding: Whether embeddings are multiplied by the root of the width.
        gated: Whether the perceptron has a second product, times the activation of the first.
        attention_bias: Whether products of attention have a bias.
        inner_bias: Whether products of the perceptron have one.
        score_cap: Scores of attention become ``cap * tanh(scores / cap)``.
        logit_cap: So do logits.
    """

    family: str
    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    positions: int
    eps: float
    activation: str
    score_size: int
    ropes: tuple[Rope, ...] = ()
    windows: tuple[int | None, ...] = ()
    tied: bool = True
    centered: bool = False
    norm_offset: float = 0.0
    outer_norms: bool = False
    head_norms: bool = False
    scaled_embedding: bool = False
    gated: bool = True
    attention_bias: bool = False
    inner_bias: bool = False
    score_cap: float | None = None
    logit_cap: float | None = None

    @staticmethod
    def from_folder(folder: str | Path) -> Config:
        """Return the configuration of the ``config.json`` in a folder.

        Raises:
            MissingFileError: There is no such file.
            FormatError: The file is not JSON, or has a setting that this program does not support.
        """
        path = Path(folder) / "config.json"
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise MissingFileError(f"{path}: no such file; a model is a folder with one") from None
        try:
            settings = json.loads(text)
        except ValueError as error:
            raise FormatError(f"{path}: not JSON, {error}") from error
        return read_config(settings, str(path))


def gpt2(
    *,
    vocabulary: int = 50257,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    inner: int | None = None,
    positions: int = 1024,
    tied: bool = True,
    activation: str = "gelu_tanh",
    eps: float = 1e-5,
) -> Config:
    """GPT-2 (Radford et al. 2019), by default that of 124 million weights."""
    size = _head_size(width, heads)
    return Config(
        family="gpt2",
        vocabulary=vocabulary,
        width=width,
        inner=inner or 4 * width,
        layers=layers,
        heads=heads,
        key_heads=heads,
        head_size=size,
        positions=positions,
        eps=eps,
        activation=activation,
        score_size=size,
        windows=(None,) * layers,
        tied=tied,
        centered=True,
        gated=False,
        attention_bias=True,
        inner_bias=True,
    )


def gemma3(
    *,
    vocabulary: int = 262144,
    width: int = 640,
    layers: int = 18,
    heads: int = 4,
    key_heads: int = 1,
    head_size: int = 256,
    inner: int = 2048,
    positions: int = 32768,
    window: int = 512,
    pattern: int = 6,
    tied: bool = True,
) -> Config:
    """Gemma 3 (Google 2025), by default that of 270 million weights.

    All layers but each ``pattern``-th attend to the last ``window`` tokens only.
    """
    local = [(k + 1) % pattern != 0 for k in range(layers)]
    return Config(
        family="gemma3_text",
        vocabulary=vocabulary,
        width=width,
        inner=inner,
        layers=layers,
        heads=heads,
        key_heads=key_heads,
        head_size=head_size,
        positions=positions,
        eps=1e-6,
        activation="gelu_tanh",
        score_size=head_size,
        ropes=tuple(Rope(1e4 if short else 1e6) for short in local),
        windows=tuple(window if short else None for short in local),
        tied=tied,
        norm_offset=1.0,
        outer_norms=True,
        head_norms=True,
        scaled_embedding=True,
    )


gemma3_270m = gemma3


def llama(
    *,
    vocabulary: int = 32000,
    width: int = 1024,
    layers: int = 16,
    heads: int = 16,
    key_heads: int = 4,
    head_size: int | None = None,
    inner: int | None = None,
    positions: int = 8192,
    rope: Rope = Rope(500000.0),
    tied: bool = True,
    eps: float = 1e-5,
) -> Config:
    """LLaMA's layout (Touvron et al. 2023), by default a model of 277 million weights."""
    size = head_size or _head_size(width, heads)
    return Config(
        family="llama",
        vocabulary=vocabulary,
        width=width,
        inner=inner or 4 * width,
        layers=layers,
        heads=heads,
        key_heads=key_heads,
        head_size=size,
        positions=positions,
        eps=eps,
        activation="silu",
        score_size=size,
        ropes=(rope,) * layers,
        windows=(None,) * layers,
        tied=tied,
    )


def llama32_1b() -> Config:
    """LLaMA 3.2 of 1.2 billion weights."""
    rope = Rope(500000.0, factor=32.0, low=1.0, high=4.0, original=8192)
    sizes = {"vocabulary": 128256, "width": 2048, "layers": 16, "heads": 32, "key_heads": 8}
    return llama(**sizes, inner=8192, positions=131072, rope=rope)


def _head_size(width: int, heads: int) -> int:
    if width % heads:
        raise SettingError(f"width {width} is not a multiple of {heads} heads; give a head_size")
    return width // heads


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


def rotate(x: Any, positions: Any, frequencies: np.ndarray) -> Any:
    """Return heads (..., length, size) whose elements k and k + size / 2 are turned as a pair."""
    angles = ops.reshape(positions, (-1, 1)) * frequencies
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
        config: Its scale, and its cap of scores.
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
    if config.score_cap is not None:
        scores = config.score_cap * ops.tanh(scores / config.score_cap)
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
# Weights and their files
# -----------------------


@dataclass(frozen=True)
class Weight:
    """A weight in a file.

    Args:
        name: Its name there.
        shape: Its shape here.
        transposed: Whether it lies (in, out) there, as in GPT-2.
        third: Which third of its axis ``out``, if queries, keys and values are one tensor there.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    third: int | None = None

    def read(self, tensor: np.ndarray) -> np.ndarray:
        """Return the weight, given the tensor of the file."""
        if self.transposed:
            tensor = tensor.T
        if self.third is not None:
            size = self.shape[0]
            tensor = tensor[self.third * size : (self.third + 1) * size]
        return tensor

    @property
    def file_shape(self) -> tuple[int, ...]:
        """The shape of the tensor in the file."""
        out, *rest = self.shape
        shape = (out if self.third is None else 3 * out, *rest)
        return shape[::-1] if self.transposed else shape


def weights_of(config: Config) -> dict[str, Weight]:
    """Return the weights of a configuration, by their paths in ``Decoder.parameters``."""
    gpt2 = config.family == "gpt2"
    width, inner = config.width, config.inner
    wide, narrow = config.heads * config.head_size, config.key_heads * config.head_size
    norm_parts = ("weight", "bias") if config.centered else ("weight",)
    weights = {
        "embedding.weight": Weight(
            "transformer.wte.weight" if gpt2 else "model.embed_tokens.weight",
            (config.vocabulary, width),
        )
    }

    def add_norm(path: str, name: str, size: int) -> None:
        for part in norm_parts:
            weights[f"{path}.{part}"] = Weight(f"{name}.{part}", (size,))

    def add_linear(
        path: str, name: str, out: int, into: int, bias: bool, third: Any = None
    ) -> None:
        weights[f"{path}.weight"] = Weight(f"{name}.weight", (out, into), gpt2, third)
        if bias:
            weights[f"{path}.bias"] = Weight(f"{name}.bias", (out,), False, third)

    if not config.ropes:
        shape = config.positions, width
        weights["positions.weight"] = Weight("transformer.wpe.weight", shape)
    for k in range(config.layers):
        path = f"layers.{k}"
        name = f"transformer.h.{k}" if gpt2 else f"model.layers.{k}"
        bias = config.attention_bias
        add_norm(f"{path}.attention_norm", f"{name}.{'ln_1' if gpt2 else 'input_layernorm'}", width)
        for third, (part, out) in enumerate((("query", wide), ("key", narrow), ("value", narrow))):
            if gpt2:
                add_linear(f"{path}.{part}", f"{name}.attn.c_attn", out, width, bias, third)
            else:
                add_linear(f"{path}.{part}", f"{name}.self_attn.{part[0]}_proj", out, width, bias)
        output = "attn.c_proj" if gpt2 else "self_attn.o_proj"
        add_linear(f"{path}.output", f"{name}.{output}", width, wide, bias)
        if config.head_norms:
            for part in ("query", "key"):
                add_norm(
                    f"{path}.{part}_norm", f"{name}.self_attn.{part[0]}_norm", config.head_size
                )
        if gpt2:
            before = "ln_2"
        elif config.outer_norms:
            before = "pre_feedforward_layernorm"
            outer = {"attention": "post_attention_layernorm", "inner": "post_feedforward_layernorm"}
            for part, norm in outer.items():
                add_norm(f"{path}.{part}_outer_norm", f"{name}.{norm}", width)
        else:
            before = "post_attention_layernorm"
        add_norm(f"{path}.inner_norm", f"{name}.{before}", width)
        bias = config.inner_bias
        if config.gated:
            add_linear(f"{path}.gate", f"{name}.mlp.gate_proj", inner, width, bias)
        up, down = ("c_fc", "c_proj") if gpt2 else ("up_proj", "down_proj")
        add_linear(f"{path}.up", f"{name}.mlp.{up}", inner, width, bias)
        add_linear(f"{path}.down", f"{name}.mlp.{down}", width, inner, bias)
    add_norm("norm", "transformer.ln_f" if gpt2 else "model.norm", width)
    if not config.tied:
        weights["head.weight"] = Weight("lm_head.weight", (config.vocabulary, width))
    return weights


def nest(values: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of values that are given by path: ``{"layers.0.up.weight": w}``."""
    tree: dict[str, Any] = {"layers": []}
    for path, value in values.items():
        *names, last = path.split(".")
        node = tree
        if names[0] == "layers":
            number = int(names[1])
            if number == len(tree["layers"]):
                tree["layers"].append({})
            node, names = tree["layers"][number], names[2:]
        for name in names:
            node = node.setdefault(name, {})
        node[last] = value
    return tree


def read_weights(config: Config, folder: Path, dtype: Any) -> dict[str, np.ndarray]:
    """Return the weights in a folder by path.

    Raises:
        FormatError: Tensors are missing, unknown or of another shape; the message has all of them.
    """
    tensors = read_tensors(folder)
    tensors = {_full_name(config, name): tensor for name, tensor in tensors.items()}
    weights = weights_of(config)
    known = {weight.name for weight in weights.values()}
    faults = [
        f"{weight.name} {'is missing' if found is None else f'has shape {found.shape}'}, "
        f"wanted {weight.file_shape}"
        for weight in {weight.name: weight for weight in weights.values()}.values()
        if (found := tensors.get(weight.name)) is None or found.shape != weight.file_shape
    ]
    for name in sorted(tensors.keys() - known):
        if config.tied and name == "lm_head.weight":
            if not np.array_equal(tensors[name], tensors[weights["embedding.weight"].name]):
                faults.append(f"{name} differs from the embedding, to which config.json ties it")
        elif not name.endswith(BUFFERS):
            faults.append(f"{name} is unknown")
    if faults:
        raise FormatError(f"{folder}: weights of {config.family} do not fit: {'; '.join(faults)}")
    found = {}
    for path, weight in weights.items():
        array = np.ascontiguousarray(cast(weight.read(tensors[weight.name]), dtype, path, folder))
        found[path] = array
    return found


BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")  # of old files


def _full_name(config: Config, name: str) -> str:
    """Return the name of a tensor with the prefix that files of GPT-2 have or lack."""
    bare = name.startswith(("wte.", "wpe.", "h.", "ln_f."))
    return f"transformer.{name}" if config.family == "gpt2" and bare else name


def cast(array: np.ndarray, dtype: Any, name: str, source: Any) -> np.ndarray:
    """Return an array of another dtype; refuse numbers that would become infinite."""
    if dtype is None or array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    finite = np.isfinite(result.astype(np.float32, copy=False)).all()
    if not finite and np.isfinite(array.astype(np.float64)).all():
        raise OutOfRangeError(
            f"{source}: {name} has {np.abs(array.astype(np.float64)).max():.3g}, "
            f"which {np.dtype(dtype).name} does not hold; load it in float32"
        )
    return result


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Return the tensors of ``model.safetensors`` in a folder, or of its shards."""
    from safetensors.numpy import load_file

    index = folder / "model.safetensors.index.json"
    if not index.exists():
        path = folder / "model.safetensors"
        if not path.exists():
            raise MissingFileError(f"{path}: no such file, nor {index.name} of shards")
        return load_file(path)
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    tensors = {}
    for shard in sorted(set(names.values())):
        tensors.update(load_file(folder / shard))
    return tensors


# %%
# Files of configurations
# -----------------------

# Settings that change nothing here: they are of training, of sampling, or of other programs.
IGNORED = {
    "_name_or_path", "architectures", "attention_dropout", "attn_pdrop", "bos_token_id",
    "cache_implementation", "dtype", "embd_pdrop", "eos_token_id", "initializer_range",
    "model_type", "pad_token_id", "reorder_and_upcast_attn", "resid_pdrop", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}


@dataclass
class Settings:
    """Settings of a file, which are taken by name; those that stay are refused.

    Args:
        values: The settings.
        source: The file, for messages.
    """

    values: dict[str, Any]
    source: str
    taken: set[str] = field(default_factory=set)

    def take(self, name: str, default: Any) -> Any:
        """Return a setting, or a default if it is absent or null."""
        self.taken.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def count(self, name: str, default: int | None = None) -> int:
        """Return a setting that is a positive whole number."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FormatError(f"{self.source}: {name} is {value!r}; wanted a positive whole number")
        return value

    def number(self, name: str, default: float | None) -> float:
        """Return a setting that is a positive number."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise FormatError(f"{self.source}: {name} is {value!r}; wanted a positive number")
        return float(value)

    def cap(self, name: str) -> float | None:
        """Return a positive number, or None."""
        return None if self.take(name, None) is None else self.number(name, None)

    def flag(self, name: str, default: bool) -> bool:
        """Return a setting that is true or false."""
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise FormatError(f"{self.source}: {name} is {value!r}; wanted true or false")
        return value

    def activation(self, name: str, default: str) -> str:
        """Return the name in ``ACTIVATIONS`` of a setting."""
        value = self.take(name, default)
        if value not in ACTIVATION_NAMES:
            known = ", ".join(ACTIVATION_NAMES)
            raise FormatError(f"{self.source}: {name} {value!r} is not supported; known: {known}")
        return ACTIVATION_NAMES[value]

    def demand(self, name: str, wanted: Any) -> None:
        """Refuse any value of a setting but one."""
        value = self.take(name, wanted)
        if value != wanted:
            raise FormatError(
                f"{self.source}: {name} is {value!r}; only {wanted!r} is supported here"
            )

    def refuse_rest(self) -> None:
        """Refuse settings that nobody has taken."""
        rest = sorted(self.values.keys() - self.taken - IGNORED)
        if rest:
            listed = ", ".join(f"{name} = {json.dumps(self.values[name])[:60]}" for name in rest)
            raise FormatError(f"{self.source}: settings that are not supported: {listed}")


def read_rope(values: dict[str, Any], base: float, source: str) -> Rope:
    """Return the rope of a setting ``rope_parameters`` or ``rope_scaling``."""
    if not isinstance(values, dict):
        raise FormatError(f"{source} is {values!r}; wanted an object")
    settings = Settings(values, source)
    kind = settings.take("rope_type", settings.take("type", "default"))
    base = settings.number("rope_theta", base)
    if kind == "default":
        rope = Rope(base)
    elif kind == "linear":
        rope = Rope(base, settings.number("factor", None))
    elif kind == "llama3":
        low, high = (settings.number(f"{n}_freq_factor", None) for n in ("low", "high"))
        original = settings.count("original_max_position_embeddings")
        if not low < high:
            raise FormatError(
                f"{source}: low_freq_factor {low} is not below high_freq_factor {high}"
            )
        rope = Rope(base, settings.number("factor", None), low, high, original)
    else:
        raise FormatError(
            f"{source}: rope_type {kind!r} is not supported; known: default, linear, llama3"
        )
    settings.demand("partial_rotary_factor", 1.0)
    settings.refuse_rest()
    return rope


def read_config(values: Any, source: str = "config.json") -> Config:
    """Return the configuration of the contents of a ``config.json``."""
    if not isinstance(values, dict):
        raise FormatError(f"{source}: wanted an object, not {type(values).__name__}")
    readers = {"gpt2": _read_gpt2, "gemma3_text": _read_gemma3, "llama": _read_llama}
    family = values.get("model_type")
    if family not in readers:
        known = ", ".join(readers)
        raise FormatError(f"{source}: model_type {family!r} is not supported; known: {known}")
    settings = Settings(values, source)
    config = readers[family](settings)
    settings.refuse_rest()
    if config.heads % config.key_heads:
        raise FormatError(
            f"{source}: {config.heads} heads are no multiple of {config.key_heads} key heads"
        )
    if config.ropes and config.head_size % 2:
        raise FormatError(f"{source}: heads of {config.head_size} elements; wanted an even number")
    return config


def _read_gpt2(settings: Settings) -> Config:
    settings.demand("scale_attn_weights", True)
    settings.demand("scale_attn_by_inverse_layer_idx", False)
    settings.demand("add_cross_attention", False)
    positions = settings.count("n_positions", 1024)
    settings.demand("n_ctx", positions)
    width, heads = settings.count("n_embd", 768), settings.count("n_head", 12)
    if width % heads:
        raise FormatError(f"{settings.source}: n_embd {width} is no multiple of n_head {heads}")
    return gpt2(
        vocabulary=settings.count("vocab_size", 50257),
        width=width,
        layers=settings.count("n_layer", 12),
        heads=heads,
        inner=settings.count("n_inner", 4 * width),
        positions=positions,
        tied=settings.flag("tie_word_embeddings", True),
        activation=settings.activation("activation_function", "gelu_new"),
        eps=settings.number("layer_norm_epsilon", 1e-5),
    )


def _read_llama(settings: Settings) -> Config:
    settings.take("pretraining_tp", 1)  # how the products of training were split
    width, heads = settings.count("hidden_size", 4096), settings.count("num_attention_heads", 32)
    layers = settings.count("num_hidden_layers", 32)
    size = settings.count("head_dim", width // heads)
    base = settings.number("rope_theta", 10000.0)
    scaling = settings.take("rope_scaling", {})
    rope = settings.take("rope_parameters", scaling)
    name = "rope_parameters" if settings.values.get("rope_parameters") else "rope_scaling"
    return Config(
        family="llama",
        vocabulary=settings.count("vocab_size", 32000),
        width=width,
        inner=settings.count("intermediate_size", 11008),
        layers=layers,
        heads=heads,
        key_heads=settings.count("num_key_value_heads", heads),
        head_size=size,
        positions=settings.count("max_position_embeddings", 2048),
        eps=settings.number("rms_norm_eps", 1e-6),
        activation=settings.activation("hidden_act", "silu"),
        score_size=size,
        ropes=(read_rope(rope, base, f"{settings.source}: {name}"),) * layers,
        windows=(None,) * layers,
        tied=settings.flag("tie_word_embeddings", False),
        attention_bias=settings.flag("attention_bias", False),
        inner_bias=settings.flag("mlp_bias", False),
    )


def _read_gemma3(settings: Settings) -> Config:
    settings.demand("use_bidirectional_attention", False)
    layers, heads = (
        settings.count("num_hidden_layers", 26),
        settings.count("num_attention_heads", 8),
    )
    window = settings.count("sliding_window", 4096)
    pattern = settings.count("sliding_window_pattern", settings.count("_sliding_window_pattern", 6))
    types = ["full_attention" if k % pattern == pattern - 1 else "sliding_attention"
             for k in range(layers)]  # fmt: skip
    types = settings.take("layer_types", types)
    unknown = sorted({str(t) for t in types} - {"full_attention", "sliding_attention"})
    if len(types) != layers or unknown:
        raise FormatError(
            f"{settings.source}: layer_types has {len(types)} entries and {unknown}; wanted "
            f"{layers}, each of them full_attention or sliding_attention"
        )
    bases = {
        "full_attention": settings.number("rope_theta", 1e6),
        "sliding_attention": settings.number("rope_local_base_freq", 1e4),
    }
    given = dict(settings.take("rope_parameters", {}))
    given.setdefault("full_attention", settings.take("rope_scaling", {}))
    ropes = {
        kind: read_rope(given.pop(kind, None) or {}, base, f"{settings.source}: rope of {kind}")
        for kind, base in bases.items()
    }
    if given:
        raise FormatError(f"{settings.source}: rope_parameters of {', '.join(given)} are unknown")
    return Config(
        family="gemma3_text",
        vocabulary=settings.count("vocab_size", 262208),
        width=settings.count("hidden_size", 2304),
        inner=settings.count("intermediate_size", 9216),
        layers=layers,
        heads=heads,
        key_heads=settings.count("num_key_value_heads", 4),
        head_size=settings.count("head_dim", 256),
        positions=settings.count("max_position_embeddings", 131072),
        eps=settings.number("rms_norm_eps", 1e-6),
        activation=settings.activation("hidden_activation", "gelu_pytorch_tanh"),
        score_size=settings.count("query_pre_attn_scalar", 256),
        ropes=tuple(ropes[kind] for kind in types),
        windows=tuple(window if kind == "sliding_attention" else None for kind in types),
        tied=settings.flag("tie_word_embeddings", True),
        norm_offset=1.0,
        outer_norms=True,
        head_norms=True,
        scaled_embedding=True,
        attention_bias=settings.flag("attention_bias", False),
        score_cap=settings.cap("attn_logit_softcapping"),
        logit_cap=settings.cap("final_logit_softcapping"),
    )


def config_settings(config: Config) -> dict[str, Any]:
    """Return the contents of a ``config.json``, which ``read_config`` reads."""
    names = {new: old for old, new in reversed(ACTIVATION_NAMES.items())}
    names["gelu_tanh"] = "gelu_new" if config.family == "gpt2" else "gelu_pytorch_tanh"
    activation = names[config.activation]
    common = {"model_type": config.family, "vocab_size": config.vocabulary,
              "tie_word_embeddings": config.tied}  # fmt: skip
    if config.family == "gpt2":
        return common | {
            "architectures": ["GPT2LMHeadModel"],
            "n_positions": config.positions,
            "n_embd": config.width,
            "n_layer": config.layers,
            "n_head": config.heads,
            "n_inner": config.inner,
            "activation_function": activation,
            "layer_norm_epsilon": config.eps,
        }
    common |= {
        "hidden_size": config.width,
        "intermediate_size": config.inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.positions,
        "rms_norm_eps": config.eps,
        "attention_bias": config.attention_bias,
    }

    def rope_settings(rope: Rope) -> dict[str, Any]:
        found: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.base}
        if rope.factor != 1.0:
            found |= {"rope_type": "linear", "factor": rope.factor}
        if rope.low is not None:
            found |= {
                "rope_type": "llama3",
                "factor": rope.factor,
                "low_freq_factor": rope.low,
                "high_freq_factor": rope.high,
                "original_max_position_embeddings": rope.original,
            }
        return found

    if config.family == "llama":
        return common | {
            "architectures": ["LlamaForCausalLM"],
            "hidden_act": activation,
            "mlp_bias": config.inner_bias,
            "rope_parameters": rope_settings(config.ropes[0]),
        }
    types = ["full_attention" if w is None else "sliding_attention" for w in config.windows]
    ropes = {kind: rope_settings(rope) for kind, rope in zip(types, config.ropes, strict=True)}
    return common | {
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_activation": activation,
        "query_pre_attn_scalar": config.score_size,
        "sliding_window": next((w for w in config.windows if w is not None), 4096),
        "layer_types": types,
        "rope_parameters": ropes,
        "attn_logit_softcapping": config.score_cap,
        "final_logit_softcapping": config.logit_cap,
    }


# %%
# A decoder with its cache
# ------------------------

PIECE = 512  # most tokens of a prompt that go through the network at once
SHORTEST = 64  # fewest rows of the cache that a program reads


class Decoder:
    """A language model: a configuration, its weights, and a cache of keys and values.

    Args:
        config: The configuration.
        weights: Arrays by path, as ``weights_of`` lists them.
        capacity: How many tokens the cache holds; by default 1024, or the most positions.
        trainable: Whether the weights have gradients.
    """

    def __init__(
        self,
        config: Config,
        weights: dict[str, np.ndarray],
        *,
        capacity: int | None = None,
        trainable: bool = False,
    ) -> None:
        if capacity is None:
            capacity = min(config.positions, 1024)
        if not 1 <= capacity <= config.positions:
            raise SettingError(
                f"Decoder: a capacity of {capacity} tokens; wanted 1 to {config.positions}, "
                f"the most positions of this {config.family}"
            )
        self.config = config
        self.capacity = capacity
        self.variables = {
            path: Variable(array, requires_grad=trainable, name=path)
            for path, array in weights.items()
        }
        self.parameters = nest(self.variables)
        dtype = np.float64 if self.dtype == np.float64 else np.float32
        self.cache = _Cache(config, capacity, dtype)
        parameters, cache = self.parameters, self.cache

        def advance(tokens: Any, count: Any, places: Any) -> Any:
            """Put ``count`` of the tokens behind those of the cache; return the next logits."""
            positions = cache.positions(tokens.shape[0])

            def attend(k: int, q: Any, key: Any, value: Any) -> Any:
                keys, values = cache.put(k, key, value, places.shape[0])
                return attention(
                    config, q, keys, values, visible(positions, places, config.windows[k])
                )

            states = hidden_states(config, parameters, tokens, positions, attend)
            cache.advance(count)
            last = ops.reshape(ops.take(states[-1], count - 1, axis=0), (1, -1))
            return logits_of(config, parameters, last)[0]

        self._advance = od.compile(advance)
        self._places = np.arange(capacity)
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
    ) -> Decoder:
        """Return a decoder with weights as before training: products keep the size of signals.

        Args:
            config: The configuration.
            seed: Of the generator.
            dtype: float32, float64, float16 or bfloat16.
            capacity: See ``Decoder``.
            trainable: Whether weights have gradients; those of half precision have none.
        """
        rng = np.random.default_rng(seed)
        dtype = od.Spec((), dtype).dtype
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
        return cls(config, weights, capacity=capacity, trainable=trainable)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        dtype: Any = None,
        *,
        capacity: int | None = None,
        trainable: bool = False,
    ) -> Decoder:
        """Return the decoder of a folder in Hugging Face's layout.

        Args:
            folder: It has ``config.json``, and ``model.safetensors`` or shards with an index.
            dtype: float32, float64, float16 or bfloat16; None for that of the file.
            capacity: See ``Decoder``.
            trainable: Whether weights have gradients.
        """
        folder = Path(folder)
        config = Config.from_folder(folder)
        dtype = None if dtype is None else od.Spec((), dtype).dtype
        weights = read_weights(config, folder, dtype)
        return cls(config, weights, capacity=capacity, trainable=trainable)

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, as Hugging Face's transformers do."""
        from safetensors.numpy import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Any] = {}
        for path, weight in weights_of(self.config).items():
            array = self.variables[path].numpy()
            if weight.third is not None:
                tensors.setdefault(weight.name, []).append(array)
            else:
                tensors[weight.name] = array.T if weight.transposed else array
        for name, arrays in tensors.items():
            if isinstance(arrays, list):
                joined = np.concatenate(arrays)
                tensors[name] = joined.T if name.endswith(".weight") else joined
        tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        settings = config_settings(self.config) | {"dtype": self.dtype.name}
        text = json.dumps(settings, indent=2) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the weights; states and logits are float64 for float64, else float32."""
        return self.variables["embedding.weight"].dtype

    # ------------------------------------------------------------------ decoding

    def __len__(self) -> int:
        """Return how many tokens the cache holds."""
        return len(self.cache)

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first ``length``."""
        self.cache.truncate(length)

    def clear(self) -> None:
        """Forget all tokens."""
        self.cache.truncate(0)

    def prefill(self, tokens: Any) -> np.ndarray:
        """Put tokens behind those before; return the logits of the next one, (vocabulary,).

        Tokens are padded to a power of two, of which the true number is kept, so that prompts of
        all lengths share a few programs. A long prompt goes in pieces.

        Raises:
            SettingError: No tokens, or more than a vector of them.
            OutOfRangeError: A token that is not in the vocabulary, or more than there is room for;
                nothing was put.
        """
        tokens = self._checked(tokens)
        logits = None
        while len(tokens):
            size = min(PIECE, 1 << (len(tokens) - 1).bit_length())
            while size > self.capacity - len(self):  # no room for padding
                size //= 2
            piece, tokens = tokens[:size], tokens[size:]
            padded = np.zeros(size, np.int64)
            padded[: len(piece)] = piece
            logits = self._run(padded, len(piece))
        assert logits is not None
        return logits

    def step(self, token: Any) -> np.ndarray:
        """Put one token behind those before; return the logits of the next one, (vocabulary,)."""
        tokens = self._checked(np.reshape(token, (1,)))
        return self._run(tokens, 1)

    def _checked(self, tokens: Any) -> np.ndarray:
        tokens = np.asarray(tokens)
        if tokens.ndim != 1 or not len(tokens) or tokens.dtype.kind not in "iu":
            raise SettingError(
                f"Decoder: tokens of shape {tokens.shape} and dtype {tokens.dtype}; "
                "wanted whole numbers, (length,), at least one"
            )
        if tokens.min() < 0 or tokens.max() >= self.config.vocabulary:
            wrong = tokens[(tokens < 0) | (tokens >= self.config.vocabulary)][0]
            raise OutOfRangeError(
                f"Decoder: token {wrong} is not in the vocabulary of {self.config.vocabulary}"
            )
        if len(self) + len(tokens) > self.capacity:
            raise OutOfRangeError(
                f"Decoder: {len(tokens)} tokens behind {len(self)}, of at most {self.capacity}; "
                "truncate, or make a decoder of a larger capacity"
            )
        return tokens.astype(np.int64)

    def _run(self, tokens: np.ndarray, count: int) -> np.ndarray:
        """Run the program for so many tokens and rows of the cache."""
        end = len(self) + len(tokens)
        reach = min(self.capacity, max(SHORTEST, 1 << (end - 1).bit_length()))
        arguments = tokens, np.array(count), self._places[:reach]
        if (len(tokens), reach) not in self._compiled:
            # Without it a first call would run op by op, with the weights cast as a whole.
            self._advance.precompile(*arguments)
            self._compiled.add((len(tokens), reach))
        return np.asarray(self._advance(*arguments))

    # ------------------------------------------------------------------ training

    def hidden_states(self, tokens: Any, parameters: Any = None) -> list[Any]:
        """Return the states after the embedding and each layer, the last one normalized.

        Args:
            tokens: (..., length); sequences from their first token on. The cache is not used.
            parameters: A tree in the place of ``self.parameters``.
        """
        parameters = self.parameters if parameters is None else parameters
        positions = np.arange(tokens.shape[-1])

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
        logits = self.logits(tokens[..., :-1], parameters)
        rows = ops.reshape(logits, (-1, self.config.vocabulary))
        return od.losses.cross_entropy(rows, tokens[..., 1:].reshape(-1))


class _Cache:
    """Keys and values of all layers, (key heads, capacity, size), and one length."""

    def __init__(self, config: Config, capacity: int, dtype: Any) -> None:
        shape = config.key_heads, capacity, config.head_size
        self.keys, self.values = (
            [Variable(np.zeros(shape, dtype), name=f"{n}{k}") for k in range(config.layers)]
            for n in ("keys", "values")
        )
        self.length = Variable(np.array(0), name="length")

    def __len__(self) -> int:
        return int(self.length.data)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= len(self):
            raise OutOfRangeError(f"truncate: {length} tokens of {len(self)}")
        self.length.assign(np.array(length))

    def positions(self, count: int) -> Any:
        return ops.identity(self.length) + np.arange(count)

    def put(self, k: int, key: Any, value: Any, reach: int) -> tuple[Any, Any]:
        where = ops.stack([np.array(0), ops.identity(self.length), np.array(0)])
        for buffer, rows in ((self.keys[k], key), (self.values[k], value)):
            buffer.assign(ops.dynamic_update_slice(buffer, rows, where))
        return self.keys[k][:, :reach], self.values[k][:, :reach]

    def advance(self, count: Any) -> None:
        self.length.assign(self.length + count)


# %%
# Command line
# ------------
# ``python examples/decoders.py FOLDER --prompt TEXT`` continues a text, and
# ``python examples/decoders.py --random gpt2`` tells how fast a model of this size is.

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
