"""Configurations of decoders: GPT-2, Gemma 3 and LLaMA, and the layout of their files
====================================================================================

``Config`` lists in what these models differ, and ``gpt2()``, ``gemma3()`` and ``llama()`` are
published sizes. ``Config.from_folder`` reads a ``config.json`` in Hugging Face's layout, and
refuses by name what ``decoders.py`` does not support. ``weights_of`` gives the shapes of all
weights, and their names in ``model.safetensors``.

>>> config = llama(vocabulary=100, width=32, layers=2, heads=4, key_heads=2)
>>> config.head_size, read_config(config_settings(config)) == config
(8, True)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import odyssey as od
from odyssey.errors import DTypeError, FormatError, MissingFileError, SettingError, ShapeError

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
        logit_cap: Logits become ``cap * tanh(logits / cap)``.
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


def check_config(config: Config) -> None:
    """Raise SettingError if sizes are no positive whole numbers, or do not fit together."""
    for name in SIZES:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SettingError(f"{name} is {value!r}; wanted a positive whole number")
    if config.heads % config.key_heads:
        raise SettingError(f"{config.heads} heads are no multiple of {config.key_heads} key heads")
    if config.ropes and config.head_size % 2:
        raise SettingError(f"heads of {config.head_size} elements; rope wants an even number")
    if len(config.windows) != config.layers or len(config.ropes) not in (0, config.layers):
        raise SettingError(
            f"{len(config.windows)} windows and {len(config.ropes)} ropes "
            f"for {config.layers} layers"
        )


SIZES = (
    *("vocabulary", "width", "inner", "layers", "heads", "key_heads", "head_size"),
    *("positions", "score_size"),
)


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
        if not isinstance(value, str) or value not in ACTIVATION_NAMES:
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
    if not isinstance(family, str) or family not in readers:
        known = ", ".join(readers)
        raise FormatError(f"{source}: model_type {family!r} is not supported; known: {known}")
    settings = Settings(values, source)
    try:
        config = readers[family](settings)
        check_config(config)
    except SettingError as error:
        raise FormatError(f"{source}: {error}") from None
    settings.refuse_rest()
    return config


def _read_gpt2(settings: Settings) -> Config:
    settings.demand("scale_attn_weights", True)
    settings.demand("scale_attn_by_inverse_layer_idx", False)
    settings.demand("add_cross_attention", False)
    positions = settings.count("n_positions", 1024)
    settings.demand("n_ctx", positions)
    width, heads = settings.count("n_embd", 768), settings.count("n_head", 12)
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
    settings.demand("attn_logit_softcapping", None)  # transformers ignores it in Gemma 3
    layers, heads = (
        settings.count("num_hidden_layers", 26),
        settings.count("num_attention_heads", 8),
    )
    window = settings.count("sliding_window", 4096)
    pattern = settings.count("sliding_window_pattern", settings.count("_sliding_window_pattern", 6))
    types = ["full_attention" if k % pattern == pattern - 1 else "sliding_attention"
             for k in range(layers)]  # fmt: skip
    types = settings.take("layer_types", types)
    if not isinstance(types, list):
        raise FormatError(f"{settings.source}: layer_types is {types!r}; wanted a list")
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
        "final_logit_softcapping": config.logit_cap,
    }


# %%
# Names of weights
# ----------------


@dataclass(frozen=True)
class Weight:
    """A weight, and the tensor of a file that it is in.

    Args:
        name: The name of the tensor.
        shape: The shape of the weight: (out, in) for products.
        transposed: Whether the tensor lies (in, out), as in GPT-2.
        third: Which third of the axis ``out``, if queries, keys and values are one tensor.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    third: int | None = None

    @property
    def source(self) -> od.TensorSource:
        """Where ``od.load_tensors`` finds the weight."""
        axis = 1 if self.transposed else 0
        split = None if self.third is None else (self.third, 3, axis)
        return od.TensorSource(self.name, split=split, transpose=self.transposed)


def weights_of(config: Config) -> dict[str, Weight]:
    """Return the weights of a configuration, by their paths in ``Decoder.parameters``."""
    weights: dict[str, Weight] = {}
    gpt2 = config.family == "gpt2"
    width, inner, size = config.width, config.inner, config.head_size
    wide, narrow = config.heads * size, config.key_heads * size
    at = "transformer" if gpt2 else "model"

    def add_table(path: str, name: str, rows: int) -> None:
        weights[f"{path}.weight"] = Weight(f"{name}.weight", (rows, width))

    def add_norm(path: str, name: str, size: int = width) -> None:
        for part in ("weight", "bias") if config.centered else ("weight",):
            weights[f"{path}.{part}"] = Weight(f"{name}.{part}", (size,))

    def add_linear(
        path: str, name: str, out: int, into: int, bias: bool, third: int | None = None
    ) -> None:
        weights[f"{path}.weight"] = Weight(f"{name}.weight", (out, into), gpt2, third)
        if bias:
            weights[f"{path}.bias"] = Weight(f"{name}.bias", (out,), False, third)

    names = LAYER_NAMES[config.family]
    add_table("embedding", f"{at}.{'wte' if gpt2 else 'embed_tokens'}", config.vocabulary)
    if not config.ropes:
        add_table("positions", f"{at}.wpe", config.positions)
    for k in range(config.layers):
        path, name = f"layers.{k}", f"{at}.{'h' if gpt2 else 'layers'}.{k}"
        add_norm(f"{path}.attention_norm", f"{name}.{names['attention_norm']}")
        for third, (part, out) in enumerate((("query", wide), ("key", narrow), ("value", narrow))):
            add_linear(
                *(f"{path}.{part}", f"{name}.{names[part]}", out, width, config.attention_bias),
                third if gpt2 else None,
            )
        if config.head_norms:
            add_norm(f"{path}.query_norm", f"{name}.{names['query_norm']}", size)
            add_norm(f"{path}.key_norm", f"{name}.{names['key_norm']}", size)
        add_linear(
            f"{path}.output", f"{name}.{names['output']}", width, wide, config.attention_bias
        )
        if config.outer_norms:
            add_norm(f"{path}.attention_outer_norm", f"{name}.{names['attention_outer_norm']}")
            add_norm(f"{path}.inner_outer_norm", f"{name}.{names['inner_outer_norm']}")
        add_norm(f"{path}.inner_norm", f"{name}.{names['inner_norm']}")
        if config.gated:
            add_linear(f"{path}.gate", f"{name}.{names['gate']}", inner, width, config.inner_bias)
        add_linear(f"{path}.up", f"{name}.{names['up']}", inner, width, config.inner_bias)
        add_linear(f"{path}.down", f"{name}.{names['down']}", width, inner, config.inner_bias)
    add_norm("norm", f"{at}.{'ln_f' if gpt2 else 'norm'}")
    if not config.tied:
        add_table("head", "lm_head", config.vocabulary)
    return weights


_LLAMA_NAMES = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "inner_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
LAYER_NAMES = {
    "gpt2": {
        "attention_norm": "ln_1",
        "query": "attn.c_attn",
        "key": "attn.c_attn",
        "value": "attn.c_attn",
        "output": "attn.c_proj",
        "inner_norm": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
    "llama": _LLAMA_NAMES,
    "gemma3_text": _LLAMA_NAMES
    | {
        "query_norm": "self_attn.q_norm",
        "key_norm": "self_attn.k_norm",
        "attention_outer_norm": "post_attention_layernorm",
        "inner_norm": "pre_feedforward_layernorm",
        "inner_outer_norm": "post_feedforward_layernorm",
    },
}


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


def read_weights(config: Config, folder: Path, dtype: Any, mmap: bool) -> dict[str, np.ndarray]:
    """Return the weights in a folder by path.

    Args:
        config: The configuration.
        folder: It has ``model.safetensors``, or shards with an index.
        dtype: What they are cast to, or None.
        mmap: Whether weights that need no change stay in the file.

    Raises:
        ShapeError: Tensors are missing or unknown; the message lists them.
    """
    weights = weights_of(config)
    index = folder / "model.safetensors.index.json"
    path = index if index.exists() else folder / "model.safetensors"
    listing = od.list_tensors(path)
    bare = "wte.weight" in listing  # the first files of GPT-2 lack the prefix
    names: dict[Any, Any] = {}
    for key, weight in weights.items():
        name = weight.name.removeprefix("transformer.") if bare else weight.name
        names[key] = replace(weight, name=name).source
    unused = [name for name in listing if name.endswith(BUFFERS)]
    if config.tied and "lm_head.weight" in listing:
        names["head.weight"] = "lm_head.weight"
    found = od.load_tensors(path, names={**names, None: unused}, dtype=dtype, mmap=mmap)
    found.pop(None, None)
    head = found.pop("head.weight", None) if config.tied else None
    if head is not None and not np.array_equal(head, found["embedding.weight"]):
        raise FormatError(
            f"{folder}: lm_head.weight differs from the embedding, to which config.json ties it"
        )
    return {key: np.ascontiguousarray(array) for key, array in found.items()}


def check_weights(config: Config, values: dict[str, np.ndarray]) -> None:
    """Raise if arrays, given by path, are not the weights of a configuration."""
    check_config(config)
    wanted = weights_of(config)
    faults = [f"{key} is unknown" for key in values.keys() - wanted.keys()]
    for key, weight in wanted.items():
        if key not in values:
            faults.append(f"{key} is missing")
        elif values[key].shape != weight.shape:
            came = values[key].shape
            faults.append(f"{key} has shape {came}, wanted {weight.shape} ({weight.name})")
    if faults:
        more = f"; and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise ShapeError(f"weights do not fit the configuration: {'; '.join(faults[:8])}{more}")
    names = {array.dtype.name for array in values.values()}
    if not names <= FLOATS:
        raise DTypeError(f"weights of {', '.join(sorted(names))}; wanted {', '.join(FLOATS)}")


FLOATS = dict.fromkeys(("float64", "float32", "float16", "bfloat16")).keys()
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")  # of old files


def write_weights(config: Config, values: dict[str, np.ndarray], path: Path) -> None:
    """Write weights, given by path, to a file ``model.safetensors``."""
    tensors: dict[str, list[np.ndarray]] = {}
    transposed = set()
    for key, weight in weights_of(config).items():
        tensors.setdefault(weight.name, []).append(values[key])
        if weight.transposed:
            transposed.add(weight.name)
    joined = {name: np.concatenate(parts) for name, parts in tensors.items()}
    od.save_tensors(
        path,
        {name: array.T if name in transposed else array for name, array in joined.items()},
        {"format": "pt"},
    )
