"""Decoders in plain NumPy, a token and a head at a time, from files in Hugging Face's layout.

Written from the models' papers and independent of ``examples/decoders.py``: by family, without
batches, masks or reshapes. It computes in the dtype of the weights, complex128 as well, so that
derivatives along a direction follow by a complex step.
"""

import json
import math
from pathlib import Path

import numpy as np
from scipy.special import erf

__all__ = ["MODELS", "Reference", "decode", "directional_derivative", "loss", "write_model"]

PATH = Path(__file__).with_name("decoder_references.npz")
MODELS = ("gpt2", "gemma3", "gemma3 untied", "llama", "llama tied")


class Reference:
    """A small model of transformers, as ``make_decoder_references.py`` kept it.

    Args:
        name: One of ``MODELS``.
    """

    def __init__(self, name):
        with np.load(PATH) as kept:
            entries = {
                key.partition("/")[2]: kept[key] for key in kept.files if key.startswith(f"{name}/")
            }
        self.settings = json.loads(str(entries["config"]))
        shapes = json.loads(str(entries["shapes"]))
        self.weights = _cut(entries["weights"] / np.float32(64), shapes)
        self.gradients = _cut(entries["gradients"], shapes)
        self.tokens = entries["tokens"].astype(np.int64)
        self.logits, self.hidden = entries["logits"], entries["hidden"]
        self.loss = float(entries["loss"])
        self.rounded_logits = entries.get("logits in bfloat16")


def _cut(vector, shapes):
    found, begin = {}, 0
    for name, shape in shapes.items():
        end = begin + math.prod(shape)
        found[name] = vector[begin:end].reshape(shape)
        begin = end
    assert begin == len(vector)
    return found


# ------------------------------------------------------------------ files


def write_model(folder, settings, weights, shards=1):
    """Write a folder in Hugging Face's layout, without help of the library that is tested."""
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    if shards == 1:
        _write_tensors(folder / "model.safetensors", weights)
        return
    names, index = list(weights), {}
    for k in range(shards):
        file = f"model-{k + 1:05}-of-{shards:05}.safetensors"
        part = {name: weights[name] for name in names[k::shards]}
        _write_tensors(folder / file, part)
        index |= dict.fromkeys(part, file)
    total = sum(w.nbytes for w in weights.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _write_tensors(path, weights):
    words = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    header, begin = {}, 0
    for name, array in weights.items():
        end = begin + array.nbytes
        header[name] = {
            "dtype": words[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(a).view(np.uint8).tobytes() for a in weights.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


# ------------------------------------------------------------------ arithmetic


def _mean(x):
    return x.sum() / len(x)


def _layer_norm(x, weight, bias, eps):
    centered = x - _mean(x)
    return centered / np.sqrt(_mean(centered * centered) + eps) * weight + bias


def _rms_norm(x, weight, eps):
    return x / np.sqrt(_mean(x * x) + eps) * weight


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def _silu(x):
    return x / (1 + np.exp(-x))


ACTIVATIONS = {
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu": _gelu,
    "silu": _silu,
}


def _turn(x, position, rope):
    """Return a head, turned pair by pair."""
    half = len(x) // 2
    turned = np.empty_like(x)
    for k in range(half):
        frequency = rope["rope_theta"] ** (-k / half)
        if rope["rope_type"] == "linear":
            frequency /= rope["factor"]
        if rope["rope_type"] == "llama3":
            frequency = _llama3(frequency, rope)
        c, s = math.cos(position * frequency), math.sin(position * frequency)
        turned[k] = x[k] * c - x[k + half] * s
        turned[k + half] = x[k + half] * c + x[k] * s
    return turned


def _llama3(frequency, rope):
    length = rope["original_max_position_embeddings"]
    wavelength = 2 * math.pi / frequency
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    if wavelength < length / high:
        return frequency
    if wavelength > length / low:
        return frequency / rope["factor"]
    smooth = (length / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / rope["factor"] + smooth * frequency


def _average(q, keys, values, scale, window):
    """Return values averaged by the softmax of scores, those of one query and head."""
    if window is not None:
        keys, values = keys[-window:], values[-window:]
    scores = np.array([scale * (q * key).sum() for key in keys])
    weights = np.exp(scores - scores.real.max())
    weights = weights / weights.sum()
    return sum(w * value for w, value in zip(weights, values, strict=True))


# ------------------------------------------------------------------ the models


def decode(settings, weights, tokens, scale=None):
    """Return logits and hidden states of tokens, one after another.

    Args:
        settings: The contents of ``config.json``.
        weights: Arrays by their names in the file, all of one dtype.
        tokens: Whole numbers, (length,).
        scale: Of Gemma's embedding; the root of the width by default.

    Returns:
        Logits, (length, vocabulary), and states as of transformers, (layers + 1, length, width).
    """
    step = _gpt2_token if settings["model_type"] == "gpt2" else _llama_token
    cache, logits, states = {}, [], []
    for position, token in enumerate(tokens):
        x, seen = step(settings, weights, int(token), position, cache, scale)
        states.append(seen)
        embedding = weights.get("transformer.wte.weight", weights.get("model.embed_tokens.weight"))
        head = embedding if settings["tie_word_embeddings"] else weights["lm_head.weight"]
        row = head @ x
        cap = settings.get("final_logit_softcapping")
        logits.append(row if cap is None else cap * np.tanh(row / cap))
    return np.array(logits), np.moveaxis(np.array(states), 0, 1)


def _remember(cache, layer, keys, values):
    held = cache.setdefault(layer, [([], []) for _ in keys])
    for (all_keys, all_values), key, value in zip(held, keys, values, strict=True):
        all_keys.append(key)
        all_values.append(value)
    return held


def _gpt2_token(settings, weights, token, position, cache, scale):
    width, heads = settings["n_embd"], settings["n_head"]
    size, eps = width // heads, settings["layer_norm_epsilon"]
    x = weights["transformer.wte.weight"][token] + weights["transformer.wpe.weight"][position]
    states = [x]
    for k in range(settings["n_layer"]):
        w = {
            name.removeprefix(f"transformer.h.{k}."): array
            for name, array in weights.items()
            if name.startswith(f"transformer.h.{k}.")
        }
        h = _layer_norm(x, w["ln_1.weight"], w["ln_1.bias"], eps)
        both = h @ w["attn.c_attn.weight"] + w["attn.c_attn.bias"]
        q, key, value = both[:width], both[width : 2 * width], both[2 * width :]
        q, key, value = (
            [x[i * size : (i + 1) * size] for i in range(heads)] for x in (q, key, value)
        )
        held = _remember(cache, k, key, value)
        mixed = [_average(q[i], *held[i], size**-0.5, None) for i in range(heads)]
        x = x + np.concatenate(mixed) @ w["attn.c_proj.weight"] + w["attn.c_proj.bias"]
        h = _layer_norm(x, w["ln_2.weight"], w["ln_2.bias"], eps)
        activation = ACTIVATIONS[settings["activation_function"]]
        h = activation(h @ w["mlp.c_fc.weight"] + w["mlp.c_fc.bias"])
        x = x + h @ w["mlp.c_proj.weight"] + w["mlp.c_proj.bias"]
        states.append(x)
    states[-1] = _layer_norm(
        x, weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"], eps
    )
    return states[-1], states


def _llama_token(settings, weights, token, position, cache, scale):
    gemma = settings["model_type"] == "gemma3_text"
    heads, groups = settings["num_attention_heads"], settings["num_key_value_heads"]
    size, eps = settings["head_dim"], settings["rms_norm_eps"]

    def norm(x, name):
        return _rms_norm(x, (1.0 if gemma else 0.0) + weights[name], eps)

    def product(x, name):
        x = weights[f"{name}.weight"] @ x
        return x + weights[f"{name}.bias"] if f"{name}.bias" in weights else x

    def split(x):
        return [x[i * size : (i + 1) * size] for i in range(len(x) // size)]

    x = weights["model.embed_tokens.weight"][token]
    if gemma:
        x = x * (math.sqrt(settings["hidden_size"]) if scale is None else scale)
    states = [x]
    for k in range(settings["num_hidden_layers"]):
        path = f"model.layers.{k}"
        rope, window, factor = settings["rope_parameters"], None, size**-0.5
        if gemma:
            kind = settings["layer_types"][k]
            rope, factor = rope[kind], settings["query_pre_attn_scalar"] ** -0.5
            window = settings["sliding_window"] if kind == "sliding_attention" else None
        h = norm(x, f"{path}.input_layernorm.weight")
        q, key, value = (split(product(h, f"{path}.self_attn.{n}_proj")) for n in "qkv")
        if gemma:
            q = [norm(head, f"{path}.self_attn.q_norm.weight") for head in q]
            key = [norm(head, f"{path}.self_attn.k_norm.weight") for head in key]
        q, key = ([_turn(head, position, rope) for head in x] for x in (q, key))
        held = _remember(cache, k, key, value)
        mixed = [
            _average(q[i], *held[i // (heads // groups)], factor, window) for i in range(heads)
        ]
        h = product(np.concatenate(mixed), f"{path}.self_attn.o_proj")
        after = f"{path}.post_attention_layernorm.weight"
        x = x + (norm(h, after) if gemma else h)
        h = norm(x, f"{path}.pre_feedforward_layernorm.weight" if gemma else after)
        name = settings["hidden_activation" if gemma else "hidden_act"]
        h = ACTIVATIONS[name](product(h, f"{path}.mlp.gate_proj")) * product(
            h, f"{path}.mlp.up_proj"
        )
        h = product(h, f"{path}.mlp.down_proj")
        x = x + (norm(h, f"{path}.post_feedforward_layernorm.weight") if gemma else h)
        states.append(x)
    states[-1] = norm(x, "model.norm.weight")
    return states[-1], states


def loss(settings, weights, tokens):
    """Return the mean cross entropy of each token after the first."""
    logits, _ = decode(settings, weights, tokens[:-1])
    largest = logits.real.max(axis=-1, keepdims=True)
    log_sums = np.log(np.exp(logits - largest).sum(axis=-1)) + largest[:, 0]
    return (log_sums - logits[np.arange(len(logits)), tokens[1:]]).sum() / len(logits)


def directional_derivative(settings, weights, tokens, direction):
    """Return the derivative of the loss along a direction, by a complex step: no differences."""
    moved = {name: w + 1e-30j * direction[name] for name, w in weights.items()}
    return loss(settings, moved, tokens).imag / 1e-30
