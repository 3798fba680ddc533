"""References of decoders: small models of transformers with random weights.

    python tests/support/make_decoder_references.py

Needs torch and transformers, and writes ``tests/support/decoder_references.npz``: for each model
its ``config.json``, tokens, logits, hidden states and loss, names and shapes of its weights as in
its files, and all weights and gradients in two vectors. The tests that read it need neither.

Weights are whole numbers divided by 64, kept as int8: bfloat16, float16 and float32 hold them
exactly, so that one reference serves files of all dtypes. Norms and biases are moved off 1 and 0.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

PATH = Path(__file__).resolve().parent / "decoder_references.npz"
VOCABULARY, BATCH, LENGTH = 41, 2, 14

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # of 4 frequencies one is kept, one interpolated, and two are divided

# Windows are shorter than the tokens; heads * head size is not the width, but in GPT-2. The root of
# 40 is not exact in bfloat16, so that the rounding of Gemma's embedding scale shows.
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=32, n_embd=20, n_layer=2, n_head=2, n_inner=48
        )
    ),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=VOCABULARY,
            hidden_size=40,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            max_position_embeddings=64,
            query_pre_attn_scalar=9,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"],
            pad_token_id=None,
        )
    ),
    "gemma3 untied": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=VOCABULARY,
            hidden_size=12,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=64,
            sliding_window=3,
            layer_types=["sliding_attention"],
            tie_word_embeddings=False,
            final_logit_softcapping=3.0,
            attention_bias=True,
            pad_token_id=None,
        )
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=20,
            intermediate_size=28,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=64,
            rope_parameters=LLAMA3,
        )
    ),
    "llama tied": lambda: LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=20,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=6,
            max_position_embeddings=64,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
            hidden_act="gelu",
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
        )
    ),
}


def draw_weights(model, rng):
    """Set all weights to multiples of 1/64; return them as int8."""
    found = {}
    for name, parameter in model.named_parameters():
        norm = parameter.ndim == 1 and name.endswith(".weight")
        offset = norm and not isinstance(model, Gemma3ForCausalLM)  # Gemma's norms add 1 themselves
        values = offset + 0.25 * rng.standard_normal(tuple(parameter.shape))
        bits = np.clip(np.rint(64 * values), -127, 127).astype(np.int8)
        parameter.data = torch.from_numpy(bits.astype(np.float32) / 64)
        found[name] = bits
    model.tie_weights()
    return found


def describe(name, model, rng):
    """Return what is kept of a model."""
    weights = draw_weights(model, rng)
    kept = {
        "shapes": np.array(json.dumps({n: bits.shape for n, bits in weights.items()})),
        "weights": np.concatenate([bits.ravel() for bits in weights.values()]),
    }
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        kept["config"] = np.array((Path(folder) / "config.json").read_text(encoding="utf-8"))
    model.eval()
    tokens = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    ids = torch.from_numpy(tokens)
    out = model(ids, labels=ids, output_hidden_states=True)
    out.loss.backward()
    kept["tokens"] = tokens.astype(np.int16)
    kept["logits"] = out.logits.detach().numpy()
    kept["loss"] = np.array(out.loss.item())
    kept["hidden"] = np.stack([h.detach().numpy() for h in out.hidden_states])
    parameters = dict(model.named_parameters())
    kept["gradients"] = np.concatenate([parameters[n].grad.numpy().ravel() for n in weights])
    if name == "gemma3":
        # Weights of bfloat16: the scale is rounded to it. The rest is computed in float32, since
        # torch's bfloat16 is off by 2e-2.
        scale = model.model.embed_tokens.embed_scale
        model.model.embed_tokens.embed_scale = scale.to(torch.bfloat16).float()
        kept["logits in bfloat16"] = model(ids).logits.detach().numpy()
    return kept


def main():
    rng = np.random.default_rng(20)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    kept = {"versions": np.array(json.dumps(versions))}
    for name, make in MODELS.items():
        model = make()
        model.config._attn_implementation = "eager"
        kept |= {f"{name}/{key}": value for key, value in describe(name, model, rng).items()}
    np.savez_compressed(PATH, **kept)
    print(f"{PATH}: {PATH.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
