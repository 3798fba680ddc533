"""Decoders of ``examples/``: equal to transformers, to plain NumPy, and to themselves by pieces."""

import doctest
import json
import math
import signal
from dataclasses import replace

import decoder_configs
import decoders
import numpy as np
import pytest
from decoder_configs import config_settings, read_config, write_weights
from decoders import Config, Decoder, gpt2, llama
from ml_dtypes import bfloat16

import odyssey as od
from odyssey import ops
from odyssey.errors import (
    DTypeError,
    FormatError,
    MissingFileError,
    OutOfRangeError,
    SettingError,
    ShapeError,
)
from support.plain_decoder import (
    MODELS,
    Reference,
    decode,
    directional_derivative,
    loss,
    write_model,
)

REFERENCES = {name: Reference(name) for name in MODELS}
each_model = pytest.mark.parametrize("name", MODELS)
PIECES = ([14], [1] * 14, [5, 1, 1, 3, 1, 1, 2])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folder of each model, in Hugging Face's layout."""
    found = {}
    for name, reference in REFERENCES.items():
        found[name] = tmp_path_factory.mktemp(name.replace(" ", "_"))
        write_model(found[name], reference.settings, reference.weights)
    return found


@pytest.fixture
def uncompiled(monkeypatch):
    """Let decoders run op by op, which takes no time to compile."""

    def compile_nothing(fn):
        fn.precompile = lambda *args: None
        return fn

    monkeypatch.setattr(od, "compile", compile_nothing)


def in_float64(reference):
    return {name: w.astype(np.float64) for name, w in reference.weights.items()}


def distance(found, wanted):
    """Return the largest difference, in units of the largest element."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    return abs(found - wanted).max() / abs(wanted).max()


def by_file_name(decoder, values, folder):
    """Return values of all weights by the names and layout of the model's file."""
    path = folder / "values.safetensors"
    values = dict(zip(decoder.variables, map(np.asarray, values), strict=True))
    write_weights(decoder.config, values, path)
    return od.load_tensors(path)


def by_pieces(decoder, tokens, pieces):
    """Return the logits after each piece, and the positions of their last tokens."""
    decoder.cache.clear()
    found, ends = [], np.cumsum(pieces) - 1
    for count, end in zip(pieces, ends, strict=True):
        piece = tokens[end + 1 - count : end + 1]
        found.append(decoder.step(piece[0]) if count == 1 else decoder.prefill(piece))
    return np.array(found), ends


# ------------------------------------------------------------------ references


@each_model
def test_logits_states_and_loss_equal_those_of_transformers(name, folders):
    reference, decoder = REFERENCES[name], Decoder.load(folders[name])
    assert decoder.dtype == np.float32
    assert distance(decoder.logits(reference.tokens), reference.logits) < 1e-5
    states = decoder.hidden_states(reference.tokens)
    assert distance(np.stack([x.numpy() for x in states]), reference.hidden) < 1e-5
    assert float(decoder.loss(reference.tokens)) == pytest.approx(reference.loss, rel=1e-5)


@each_model
def test_gradients_of_all_weights_equal_those_of_transformers(name, folders, tmp_path):
    reference, decoder = REFERENCES[name], Decoder.load(folders[name], trainable=True)
    with od.GradientTape() as tape:
        value = decoder.loss(reference.tokens)
    gradients = by_file_name(
        decoder, tape.gradient(value, list(decoder.variables.values())), tmp_path
    )
    assert gradients.keys() == reference.gradients.keys()
    assert max(distance(gradients[n], g) for n, g in reference.gradients.items()) < 1e-5


@each_model
def test_float64_equals_plain_numpy_with_its_derivative(name, folders, tmp_path):
    reference = REFERENCES[name]
    weights, tokens = in_float64(reference), reference.tokens[0]
    decoder = Decoder.load(folders[name], "float64", trainable=True)
    logits, states = decode(reference.settings, weights, tokens)
    assert distance(decoder.logits(tokens), logits) < 1e-13
    found = decoder.hidden_states(tokens)
    assert distance(np.stack([x.numpy() for x in found]), states) < 1e-13
    with od.GradientTape() as tape:
        value = decoder.loss(tokens)
    assert float(value) == pytest.approx(loss(reference.settings, weights, tokens), rel=1e-13)
    gradients = by_file_name(
        decoder, tape.gradient(value, list(decoder.variables.values())), tmp_path
    )
    rng = np.random.default_rng(1)
    direction = {n: rng.standard_normal(w.shape) for n, w in weights.items()}
    along = directional_derivative(reference.settings, weights, tokens, direction)
    assert sum((gradients[n] * d).sum() for n, d in direction.items()) == pytest.approx(
        along, rel=1e-11
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each_model
def test_weights_of_half_precision_are_multiplied_in_float32(name, dtype, tmp_path):
    reference = REFERENCES[name]
    kind = bfloat16 if dtype == "bfloat16" else np.float16
    half = {n: w.astype(kind) for n, w in reference.weights.items()}
    write_model(tmp_path, reference.settings, half, shards=2)
    decoder = Decoder.load(tmp_path)
    assert decoder.dtype == kind
    width = decoder.config.width
    wanted, _ = decode(
        *(reference.settings, in_float64(reference), reference.tokens[0]),
        scale=float(bfloat16(math.sqrt(width))),
    )
    assert distance(decoder.logits(reference.tokens[0]), wanted) < 1e-5
    if reference.rounded_logits is not None:
        assert distance(decoder.logits(reference.tokens), reference.rounded_logits) < 1e-5


def test_the_rounding_of_the_scale_shows_in_the_reference_of_width_40():
    reference = REFERENCES["gemma3"]
    assert distance(reference.rounded_logits, reference.logits) > 1e-3


# ------------------------------------------------------------------ prompts and tokens


@each_model
def test_tokens_pieces_and_whole_prompts_have_the_logits_of_plain_numpy(name, folders, uncompiled):
    reference = REFERENCES[name]
    tokens = reference.tokens[1]
    wanted, _ = decode(reference.settings, in_float64(reference), tokens)
    decoder = Decoder.load(folders[name], "float64", capacity=20)
    for pieces in PIECES:
        found, ends = by_pieces(decoder, tokens, pieces)
        assert len(decoder) == len(tokens)
        assert distance(found, wanted[ends]) < 1e-13


@each_model
def test_truncated_tokens_are_as_if_they_had_not_been(name, folders, uncompiled):
    reference = REFERENCES[name]
    first, other = reference.tokens
    tokens = np.concatenate([first[:12], other[3:9]])
    wanted, _ = decode(reference.settings, in_float64(reference), tokens)
    decoder = Decoder.load(folders[name], "float64", capacity=20)
    decoder.prefill(first)
    decoder.cache.truncate(12)
    found = [decoder.step(tokens[12]), decoder.prefill(tokens[13:])]
    assert distance(found, wanted[[12, 17]]) < 1e-13


def greedy_tokens(reference, begin, count):
    """Return tokens of plain NumPy, each the likeliest behind those before."""
    tokens = list(begin)
    while len(tokens) < count:
        logits, _ = decode(reference.settings, in_float64(reference), tokens)
        tokens.append(int(logits[-1].argmax()))
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gemma3", "llama"])
def test_compiled_decoding_equals_plain_numpy_with_a_program_for_each_size(name, folders):
    reference = REFERENCES[name]
    tokens = reference.tokens[1]
    wanted, _ = decode(reference.settings, in_float64(reference), tokens)
    decoder = Decoder.load(folders[name], "float64", capacity=20)
    for pieces in PIECES:
        found, ends = by_pieces(decoder, tokens, pieces)
        assert distance(found, wanted[ends]) < 1e-13
    decoder.cache.truncate(9)
    assert distance(decoder.step(tokens[9]), wanted[9]) < 1e-13

    said = [int(token) for token in tokens[:5]]
    wanted = greedy_tokens(reference, said, 17)
    decoder.cache.clear()
    logits = decoder.prefill(said)
    while len(said) < 17:
        said.append(int(logits.argmax()))
        logits = decoder.step(said[-1])
    assert said == wanted
    statistics = decoder._advance.statistics()
    assert statistics.programs == 5  # of 1, 2, 4, 8 and 16 tokens
    assert statistics.written == 0


@pytest.mark.slow
def test_a_step_and_a_loss_of_a_small_decoder_are_compiled():
    decoder = Decoder.random(TINY, capacity=12)
    wanted = decoder.logits([1]).numpy()[-1]
    assert distance(decoder.step(1), wanted) < 1e-5
    assert decoder._advance.statistics() == (1, 1, 0)
    loss_of = od.compile(decoder.loss, fullgraph=True)
    loss_of.precompile(np.arange(5))
    assert float(loss_of(np.arange(5))) == pytest.approx(float(decoder.loss(np.arange(5))))


@pytest.mark.slow
def test_prompts_beyond_the_rows_of_earlier_programs_run_programs_of_their_own():
    decoder = Decoder.random(replace(TINY, positions=256))
    tokens = np.arange(190) % 11
    wanted = decoder.logits(tokens).numpy()
    found, ends = by_pieces(decoder, tokens, [60, 16, 1, 100, 13])
    assert distance(found, wanted[ends]) < 1e-5
    assert decoder._advance.statistics() == (5, 5, 0)  # one for each size and reach


@each_model
def test_greedy_tokens_equal_those_of_plain_numpy(name, folders, uncompiled):
    reference = REFERENCES[name]
    said = [int(token) for token in reference.tokens[0][:5]]
    wanted = greedy_tokens(reference, said, 12)
    decoder = Decoder.load(folders[name], capacity=20)
    logits = decoder.prefill(said)
    while len(said) < 12:
        said.append(int(logits.argmax()))
        logits = decoder.step(said[-1])
    assert said == wanted


@pytest.mark.slow
def test_a_compiled_training_step_has_the_gradients_of_transformers(folders, tmp_path):
    reference = REFERENCES["gemma3"]
    decoder = Decoder.load(folders["gemma3"], trainable=True)
    variables = list(decoder.variables.values())

    @od.compile(fullgraph=True)
    def gradients_of(tokens):
        with od.GradientTape() as tape:
            value = decoder.loss(tokens)
        return value, tape.gradient(value, variables)

    gradients_of.precompile(reference.tokens)
    value, gradients = gradients_of(reference.tokens)
    assert float(value) == pytest.approx(reference.loss, rel=1e-5)
    gradients = by_file_name(decoder, gradients, tmp_path)
    assert max(distance(gradients[n], g) for n, g in reference.gradients.items()) < 1e-5


# ------------------------------------------------------------------ files


@each_model
def test_a_saved_decoder_has_the_tensors_and_settings_of_the_model(name, folders, tmp_path):
    reference, decoder = REFERENCES[name], Decoder.load(folders[name])
    decoder.save(tmp_path / "saved")
    tensors = od.load_tensors(tmp_path / "saved")
    assert tensors.keys() == reference.weights.keys()
    for name_, weight in reference.weights.items():
        np.testing.assert_array_equal(tensors[name_], weight)
    again = Decoder.load(tmp_path / "saved")
    assert again.config == decoder.config
    assert again.variables.keys() == decoder.variables.keys()


def test_files_of_the_first_gpt2_have_no_prefix_and_buffers_beside_weights(tmp_path, folders):
    reference = REFERENCES["gpt2"]
    weights = {n.removeprefix("transformer."): w for n, w in reference.weights.items()}
    weights["h.0.attn.bias"] = np.ones((1, 1, 32, 32), np.float32)
    weights["lm_head.weight"] = weights["wte.weight"]
    write_model(tmp_path, reference.settings, weights)
    found, wanted = Decoder.load(tmp_path), Decoder.load(folders["gpt2"])
    tokens = reference.tokens[0]
    np.testing.assert_array_equal(found.logits(tokens), wanted.logits(tokens))


def test_a_tied_head_that_differs_is_refused(tmp_path):
    reference = REFERENCES["gpt2"]
    head = 2 * reference.weights["transformer.wte.weight"]
    write_model(tmp_path, reference.settings, reference.weights | {"lm_head.weight": head})
    with pytest.raises(FormatError, match=r"lm_head\.weight differs from the embedding"):
        Decoder.load(tmp_path)


def test_missing_and_unknown_tensors_are_listed_in_one_error(tmp_path):
    reference = REFERENCES["llama"]
    weights = dict(reference.weights)
    del weights["model.layers.1.mlp.up_proj.weight"]
    weights["model.layers.1.mlp.extra.weight"] = np.ones(3, np.float32)
    write_model(tmp_path, reference.settings, weights)
    with pytest.raises(ShapeError) as raised:
        Decoder.load(tmp_path)
    assert "model.layers.1.mlp.up_proj.weight" in str(raised.value)
    assert "model.layers.1.mlp.extra.weight" in str(raised.value)


def test_tensors_of_other_shapes_than_the_settings_say_are_refused(tmp_path):
    reference = REFERENCES["llama"]
    write_model(tmp_path, reference.settings | {"intermediate_size": 29}, reference.weights)
    with pytest.raises(ShapeError, match=r"layers\.0\.gate\.weight has .*28, 20\), wanted \(29"):
        Decoder.load(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match=r"config\.json: no such file"):
        Decoder.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(REFERENCES["llama"].settings))
    with pytest.raises(MissingFileError, match=r"model\.safetensors"):
        Decoder.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        Decoder.load(tmp_path)


# ------------------------------------------------------------------ settings

FAMILIES = {
    "gpt2": {"model_type": "gpt2"},
    "llama": {"model_type": "llama"},
    "gemma3": {"model_type": "gemma3_text"},
}
REFUSED = [
    ("gpt2", {"model_type": "bert"}, "model_type 'bert' is not supported; known: gpt2"),
    ("gpt2", {"model_type": None}, "model_type None"),
    ("gpt2", {"model_type": []}, r"model_type \[\]"),
    ("gemma3", {"model_type": "gemma3"}, "model_type 'gemma3' is not"),
    ("gpt2", {"quantization_config": {"bits": 4}}, 'quantization_config = {"bits": 4}'),
    ("llama", {"one": 1, "two": 2}, "not supported: one = 1, two = 2"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False; only True"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True"),
    ("gpt2", {"activation_function": "mish"}, "activation_function 'mish'.*known: gelu"),
    ("gpt2", {"activation_function": ["gelu"]}, "activation_function"),
    ("gpt2", {"n_embd": 30, "n_head": 4}, "width 30 is not a multiple of 4 heads"),
    ("gpt2", {"n_layer": 0}, "n_layer is 0; wanted a positive whole number"),
    ("gpt2", {"n_layer": True}, "n_layer is True"),
    ("gpt2", {"vocab_size": "many"}, "vocab_size is 'many'"),
    ("gpt2", {"tie_word_embeddings": 1}, "tie_word_embeddings is 1; wanted true or false"),
    ("gpt2", {"layer_norm_epsilon": -1.0}, "layer_norm_epsilon is -1.0; wanted a positive"),
    ("gpt2", {"layer_norm_epsilon": math.nan}, "layer_norm_epsilon is nan"),
    ("llama", {"num_attention_heads": 6, "num_key_value_heads": 4}, "no multiple of 4 key heads"),
    ("llama", {"head_dim": 7}, "heads of 7 elements; rope wants an even number"),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type 'yarn'.*llama3"),
    ("llama", {"rope_scaling": {"type": "dynamic"}}, "rope_type 'dynamic'"),
    ("llama", {"rope_scaling": "double"}, "rope_scaling is 'double'; wanted an object"),
    ("llama", {"rope_scaling": {"type": "linear"}}, "factor is None"),
    (
        "llama",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor is 0.5",
    ),
    (
        "llama",
        {
            "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            }
        },
        "low_freq_factor 4.0 is not below high_freq_factor 4.0",
    ),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ("gemma3", {"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
    ("gemma3", {"layer_types": ["chunked"] * 26}, "layer_types has 26 .*chunked"),
    ("gemma3", {"layer_types": 3}, "layer_types is 3; wanted a list"),
    ("gemma3", {"rope_parameters": {"other": {}}}, "rope_parameters of other are unknown"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [pytest.param(f, s, m, id=f"{f} {'+'.join(s)} {k}") for k, (f, s, m) in enumerate(REFUSED)],
)
def test_settings_that_are_not_supported_are_refused_by_name(family, settings, message):
    with pytest.raises(FormatError, match=message) as raised:
        read_config(FAMILIES[family] | settings, "folder/config.json")
    assert str(raised.value).startswith("folder/config.json")


@pytest.mark.parametrize("settings", [None, [], 3, "gpt2"])
def test_a_config_that_is_no_object_is_refused(settings):
    with pytest.raises(FormatError, match="wanted an object"):
        read_config(settings)


@pytest.mark.parametrize(
    ("make", "published"),
    [
        pytest.param(gpt2, {
            "model_type": "gpt2", "activation_function": "gelu_new", "attn_pdrop": 0.1,
            "architectures": ["GPT2LMHeadModel"], "bos_token_id": 50256, "eos_token_id": 50256,
            "embd_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
            "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
            "summary_proj_to_labels": True, "summary_type": "cls_index",
            "summary_use_proj": True, "task_specific_params": {"text-generation": {}},
            "vocab_size": 50257,
        }, id="gpt2"),
        pytest.param(decoders.gemma3_270m, {
            "model_type": "gemma3_text", "_sliding_window_pattern": 6, "attention_bias": False,
            "architectures": ["Gemma3ForCausalLM"], "attention_dropout": 0.0,
            "attn_logit_softcapping": None, "bos_token_id": 2, "eos_token_id": 1,
            "final_logit_softcapping": None, "head_dim": 256, "hidden_size": 640,
            "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02,
            "intermediate_size": 2048, "layer_types": (["sliding_attention"] * 5
            + ["full_attention"]) * 3, "max_position_embeddings": 32768,
            "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1,
            "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000.0, "rope_scaling": None, "rope_theta": 1000000.0,
            "sliding_window": 512, "torch_dtype": "bfloat16", "transformers_version": "4.55.0",
            "use_bidirectional_attention": False, "use_cache": True, "vocab_size": 262144,
        }, id="gemma3"),
        pytest.param(decoders.llama32_1b, {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": 64,
            "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
            "eos_token_id": [128001, 128008], "hidden_act": "silu", "hidden_size": 2048,
            "initializer_range": 0.02, "intermediate_size": 8192, "mlp_bias": False,
            "max_position_embeddings": 131072, "num_attention_heads": 32,
            "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
            "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": True,
            "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 128256,
        }, id="llama 3.2"),
    ],
)  # fmt: skip
def test_published_settings_make_the_presets(make, published):
    assert read_config(published) == make()
    assert read_config(config_settings(make())) == make()


@each_model
def test_settings_of_transformers_and_ours_make_equal_configurations(name):
    config = read_config(REFERENCES[name].settings)
    assert read_config(json.loads(json.dumps(config_settings(config)))) == config


# ------------------------------------------------------------------ what a stranger hands in

TINY = llama(vocabulary=11, width=8, layers=1, heads=2, key_heads=1, positions=16)


def check(**changes):
    return Decoder.random(replace(TINY, **changes))


def test_random_weights_follow_the_seed_and_give_even_chances():
    first, again, other = (Decoder.random(TINY, seed) for seed in (1, 1, 2))
    for path, variable in first.variables.items():
        assert variable.requires_grad
        np.testing.assert_array_equal(variable.numpy(), again.variables[path].numpy())
    assert not np.array_equal(
        first.variables["embedding.weight"].numpy(), other.variables["embedding.weight"].numpy()
    )
    tokens = np.arange(11)
    assert float(first.loss(tokens)) == pytest.approx(math.log(11), abs=0.05)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        pytest.param([3, 11], OutOfRangeError, "token 11 is not in a vocabulary of 11", id="above"),
        pytest.param([3, -1], OutOfRangeError, "token -1", id="below"),
        pytest.param([], SettingError, "at least one", id="none"),
        pytest.param(3, SettingError, r"shape \(\) .*wanted", id="number"),
        pytest.param([[1], [2, 3]], SettingError, "tokens are no array", id="ragged"),
        pytest.param([2**70], SettingError, "wanted whole numbers", id="huge"),
        pytest.param([True], SettingError, "dtype bool", id="truth values"),
        pytest.param([1.0], SettingError, "dtype float64; wanted whole numbers", id="reals"),
        pytest.param([[1, 2]], SettingError, r"shape \(1, 2\)", id="matrix"),
        pytest.param(["a"], SettingError, "wanted whole numbers", id="text"),
        pytest.param(list(range(10)), OutOfRangeError, "10 tokens behind 3, .* for 12", id="many"),
    ],
)
def test_prompts_that_do_not_fit_are_refused_and_leave_the_cache(
    tokens, error, message, uncompiled
):
    decoder = Decoder.random(TINY, capacity=12)
    decoder.prefill([1, 2, 3])
    with pytest.raises(error, match=message):
        decoder.prefill(tokens)
    assert len(decoder) == 3
    wanted = decoder.logits(np.array([1, 2, 3, 4])).numpy()[-1]
    assert distance(decoder.step(4), wanted) < 1e-5


def test_a_prompt_fills_the_cache_to_its_last_row_and_then_a_step_is_refused(uncompiled):
    decoder = Decoder.random(TINY, capacity=13)
    tokens = np.arange(13) % 11
    wanted = decoder.logits(tokens).numpy()[-1]
    assert distance(decoder.prefill(tokens), wanted) < 1e-5
    with pytest.raises(OutOfRangeError, match="1 tokens behind 13, and there is room for 13"):
        decoder.step(1)
    assert len(decoder) == 13


def test_an_interrupted_prompt_leaves_the_cache_as_it_was(uncompiled, monkeypatch):
    decoder = Decoder.random(TINY, capacity=16)
    decoder.prefill([1, 2, 3])
    run, calls = Decoder._run, []

    def interrupted(self, tokens, last):
        calls.append(len(tokens))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(self, tokens, last)

    monkeypatch.setattr(Decoder, "_run", interrupted)
    monkeypatch.setattr(decoders, "PIECE", 4)
    with pytest.raises(KeyboardInterrupt):
        decoder.prefill([4, 5, 6, 7, 8, 9])
    assert calls == [4, 2]
    assert len(decoder) == 3
    wanted = decoder.logits(np.array([1, 2, 3, 4])).numpy()[-1]
    assert distance(decoder.step(4), wanted) < 1e-5


class _Alarm(Exception):
    pass


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of Unix")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a callback
def test_interrupts_at_random_moments_leave_whole_tokens_and_whole_prompts():
    decoder = Decoder.random(replace(TINY, positions=64))
    tokens = np.arange(60) % 11
    wanted = decoder.logits(tokens).numpy()
    decoder.prefill(tokens[:5])
    decoder.step(5)
    rng, interrupts = np.random.default_rng(0), 0

    def interrupt(*_):
        raise _Alarm

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for k in range(400):
            length = len(decoder)
            if length > 50:
                decoder.cache.truncate(3 + k % 5)
                length = len(decoder)
            count = 1 if k % 3 else 7
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 4e-4))
                try:
                    piece = tokens[length : length + count]
                    found = decoder.step(int(piece[0])) if count == 1 else decoder.prefill(piece)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except _Alarm:
                interrupts += 1
                assert len(decoder) in (length, length + count)
            else:
                assert len(decoder) == length + count
                assert distance(found, wanted[length + count - 1]) < 1e-5
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 20
    length = len(decoder)
    assert distance(decoder.step(int(tokens[length])), wanted[length]) < 1e-5


@pytest.mark.parametrize("capacity", [0, -1, 17, 3.0, "4"])
def test_a_capacity_out_of_range_is_refused(capacity):
    with pytest.raises(SettingError, match=f"a capacity of {capacity!r} tokens; wanted 1 to 16"):
        Decoder.random(TINY, capacity=capacity)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(lambda d: d.step([1, 2]), SettingError, "2 tokens came for a step", id="two"),
        pytest.param(lambda d: d.step(1.5), SettingError, "dtype float64", id="real step"),
        pytest.param(lambda d: d.logits(np.array(3)), SettingError, "whole numbers", id="number"),
        pytest.param(
            lambda d: d.logits([]), SettingError, "wanted tokens as whole", id="no tokens"
        ),
        pytest.param(lambda d: d.loss([3]), SettingError, "a loss needs two", id="no next one"),
        pytest.param(lambda d: d.logits([11]), OutOfRangeError, "index 11", id="vocabulary"),
        pytest.param(
            lambda d: Decoder(d.config, {}), ShapeError, "embedding.weight is missing", id="none"
        ),
        pytest.param(
            lambda d: Decoder(d.config, d.variables | {"x": np.ones(1)}),
            *(ShapeError, "x is unknown"),
            id="more",
        ),
        pytest.param(
            lambda d: Decoder(d.config, {p: np.ones(v.shape, int) for p, v in d.variables.items()}),
            *(DTypeError, "weights of int64; wanted float64"),
            id="whole",
        ),
        pytest.param(
            lambda d: Decoder.random(d.config, dtype="complex64"), DTypeError, "complex64", id="z"
        ),
        pytest.param(lambda d: llama(width=10, heads=3), SettingError, "no.* multiple", id="heads"),
        pytest.param(lambda d: check(key_heads=3), SettingError, "2 heads are no", id="k"),
        pytest.param(lambda d: check(layers=2), SettingError, "1 windows and 1", id="l"),
        pytest.param(lambda d: check(inner=0), SettingError, "inner is 0", id="inner"),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, message, uncompiled):
    with pytest.raises(error, match=message):
        call(Decoder.random(TINY))


def test_lists_of_tokens_are_taken(uncompiled):
    decoder = Decoder.random(TINY)
    wanted = decoder.logits(np.array([[1, 2, 3]])).numpy()[0]
    np.testing.assert_array_equal(decoder.logits([1, 2, 3]), wanted)
    assert float(decoder.loss([1, 2, 3])) > 0
    assert distance(decoder.prefill([1, 2, 3]), wanted[-1]) < 1e-5


@pytest.mark.parametrize("module", [decoders, decoder_configs])
def test_docstrings_of_decoders_print_what_they_show(module, uncompiled):
    done = doctest.testmod(module)
    assert done.attempted
    assert not done.failed


# ------------------------------------------------------------------ traps


def neighbours(x, positions, frequencies):
    """Rotate pairs of neighbours, as in the first release of LLaMA's weights."""
    order = np.arange(x.shape[-1]).reshape(-1, 2).T.ravel()
    turned = rotate(x[..., order], positions, frequencies)
    return turned[..., np.argsort(order)]


def tiled_heads(config, q, keys, values, seen):
    """Let each head of keys serve every n-th head of queries."""
    order = np.arange(config.heads).reshape(-1, config.key_heads).T.ravel()
    mixed = attention(config, q[..., order, :, :], keys, values, seen)
    split = decoders.split_heads(mixed, config.head_size)[..., np.argsort(order), :, :]
    return ops.reshape(ops.swapaxes(split, -2, -3), mixed.shape)


def unordered_norm(config, x, layer):
    """Leave out the weights of norms of heads."""
    if x.shape[-1] == config.head_size:
        layer = {"weight": np.zeros(config.head_size)}
    return normalize(config, x, layer)


def from_the_first_query(config, q, keys, values, seen):
    """A causal mask that counts from the first query, whatever is in front of it."""
    seen = np.tril(np.ones(seen.shape, bool))
    return attention(config, q, keys, values, seen)


rotate, attention, normalize = decoders.rotate, decoders.attention, decoders.normalize
logits_of, scale, truncate = decoders.logits_of, decoders.embedding_scale, od.Cache.truncate


class _ShiftedCache(od.Cache):
    """A cache whose positions begin anew with each put."""

    @property
    def length(self):
        return 0 * super().length


def changed(**fields):
    """Change the configuration after the weights were read."""

    def mutate(monkeypatch):
        def read(folder):
            config = from_folder(folder)
            return replace(config, **{n: f(getattr(config, n)) for n, f in fields.items()})

        monkeypatch.setattr(Config, "from_folder", staticmethod(read))

    return mutate


from_folder = Config.from_folder


def patched(module, name, value):
    return lambda monkeypatch: monkeypatch.setattr(module, name, value)


def unturned(is_meant):
    """Take tensors of the file as they lie, where the shape allows it."""

    def mutate(monkeypatch):
        weights_of = decoder_configs.weights_of

        def mutated(config):
            return {
                path: replace(w, transposed=w.transposed and not is_meant(path))
                for path, w in weights_of(config).items()
            }

        monkeypatch.setattr(decoder_configs, "weights_of", mutated)

    return mutate


def other_third(monkeypatch):
    """Take keys for values, and values for keys."""
    weights_of = decoder_configs.weights_of
    monkeypatch.setattr(
        decoder_configs,
        "weights_of",
        lambda config: {
            path: w if w.third is None else replace(w, third=(0, 2, 1)[w.third])
            for path, w in weights_of(config).items()
        },
    )


def plain_ropes(ropes):
    return tuple(decoders.Rope(rope.base) for rope in ropes)


TRAPS = [
    ("pairs of neighbours in rope", "llama", patched(decoders, "rotate", neighbours)),
    ("rope turns backwards", "llama", patched(
        decoders, "rotate", lambda x, positions, f: rotate(x, positions, -f))),
    ("rope without llama 3's scaling", "llama", changed(ropes=plain_ropes)),
    ("rope without linear scaling", "llama tied", changed(ropes=plain_ropes)),
    ("one base of rope for all layers", "gemma3", changed(ropes=lambda r: (r[-1],) * len(r))),
    ("window too long by one", "gemma3", changed(
        windows=lambda ws: tuple(w and w + 1 for w in ws))),
    ("window too short by one", "gemma3", changed(
        windows=lambda ws: tuple(w and w - 1 for w in ws))),
    ("no window", "gemma3", changed(windows=lambda ws: (None,) * len(ws))),
    ("windows in the other layers", "gemma3", changed(windows=lambda ws: ws[::-1])),
    ("norms without their 1", "gemma3", changed(norm_offset=lambda one: 0.0)),
    ("norms with a 1 too much", "llama", changed(norm_offset=lambda zero: 1.0)),
    ("layer norm for RMS norm", "llama", patched(
        decoders, "normalize", lambda config, x, layer: normalize(config, x - ops.mean(
            x, axis=-1, keepdims=True), layer))),
    ("heads without the weights of their norms", "gemma3", patched(
        decoders, "normalize", unordered_norm)),
    ("scale of the embedding not rounded", "gemma3 in bfloat16", patched(
        decoders, "embedding_scale", lambda config, dtype: math.sqrt(config.width))),
    ("scale of the embedding rounded in float32", "gemma3", patched(
        decoders, "embedding_scale", lambda config, dtype: scale(config, bfloat16))),
    ("embedding not scaled", "gemma3", changed(scaled_embedding=lambda flag: False)),
    ("scores divided by the root of the head", "gemma3", changed(score_size=lambda n: 6)),
    ("head tied that is not", "llama", patched(
        decoders, "logits_of",
        lambda config, tree, x: logits_of(replace(config, tied=True), tree, x))),
    ("logits not capped", "gemma3 untied", changed(logit_cap=lambda cap: None)),
    ("square matrices of GPT-2 not transposed", "gpt2", unturned(
        lambda path: path.endswith("output.weight"))),
    ("keys for values", "gpt2", other_third),
    ("exact gelu for tanh", "gpt2", changed(activation=lambda name: "gelu")),
    ("exact gelu for tanh in a gate", "gemma3", changed(activation=lambda name: "gelu")),
    ("tanh for exact gelu", "llama tied", changed(activation=lambda name: "gelu_tanh")),
    ("gelu for silu", "llama", changed(activation=lambda name: "gelu")),
    ("every n-th head in a group", "llama", patched(decoders, "attention", tiled_heads)),
    ("biases left out", "llama tied", patched(
        decoders, "linear", lambda x, layer: x @ ops.matrix_transpose(layer["weight"]))),
    ("mask from the first query", "llama", patched(decoders, "attention", from_the_first_query)),
    ("positions of rope from the first query", "llama", patched(od, "Cache", _ShiftedCache)),
    ("learned positions from the first query", "gpt2", patched(od, "Cache", _ShiftedCache)),
    ("padding kept in the cache", "gpt2", patched(
        od.Cache, "truncate", lambda self, n: None if n else truncate(self, n))),
]  # fmt: skip


def faults_of(name, folder):
    """Return by how much a decoder differs from its reference: by pieces, and as a whole."""
    name, _, dtype = name.partition(" in ")
    reference = REFERENCES[name]
    decoder = Decoder.load(folder, dtype or None, capacity=20)
    wanted = reference.rounded_logits if dtype else reference.logits
    whole = distance(decoder.logits(reference.tokens), wanted)
    found, ends = by_pieces(decoder, reference.tokens[0], [6, 3, 1, 4])
    return max(whole, distance(found, wanted[0][ends]))


@pytest.mark.parametrize("name", sorted({name for _, name, _ in TRAPS}))
def test_the_comparison_that_finds_traps_passes_without_one(name, folders, uncompiled):
    assert faults_of(name, folders[name.partition(" in ")[0]]) < 1e-5


@pytest.mark.parametrize(
    ("name", "mutate"), [pytest.param(name, mutate, id=trap) for trap, name, mutate in TRAPS]
)
def test_each_trap_fails_the_comparison(name, mutate, folders, uncompiled, monkeypatch):
    mutate(monkeypatch)
    assert faults_of(name, folders[name.partition(" in ")[0]]) > 1e-4
