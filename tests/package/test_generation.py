"""Sampling, generation and streamed text of ``examples/generation.py``."""

import doctest
import importlib.util
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import odyssey as od
from examples import generation
from examples.generation import distribution, generate, sample, stream_text
from odyssey.errors import (
    DTypeError,
    FormatError,
    NonFiniteError,
    OutOfRangeError,
    SettingError,
    ShapeError,
)

CHANCES = np.array([0.05, 0.4, 0.1, 0.25, 0.2])


def test_the_docstrings_of_generation_print_what_they_show():
    done = doctest.testmod(generation)
    assert done.attempted > 5
    assert done.failed == 0


# ------------------------------------------------------------------ distributions


def by_sorting(logits, temperature=1.0, top_k=None, top_p=None):
    """Probabilities in float64, by a stable sort of all tokens."""
    order = np.argsort(-logits, kind="stable")[:top_k]
    chances = np.exp((logits[order].astype(float) - logits.max()) / temperature)
    chances /= chances.sum()
    if top_p is not None:
        before = np.concatenate([[0.0], np.cumsum(chances)[:-1]])
        order, chances = order[before < top_p], chances[before < top_p]
    result = np.zeros(len(logits))
    result[order] = chances / chances.sum()
    return result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("top_p", [None, 1e-9, 0.5, 0.95, 0.9999, 1.0])
@pytest.mark.parametrize("top_k", [None, 1, 7, 300, 5000])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_distribution_is_that_of_a_sort_of_all_tokens(temperature, top_k, top_p, dtype):
    rng = np.random.default_rng(0)
    logits = (3 * rng.standard_normal(1000)).astype(dtype)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    found, wanted = distribution(logits, **options), by_sorting(logits, **options)
    assert np.array_equal(found > 0, wanted > 0)
    np.testing.assert_allclose(found, wanted, rtol=2e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({}, CHANCES, id="softmax"),
        pytest.param({"temperature": 0.5}, CHANCES**2 / 0.275, id="squares"),
        pytest.param({"top_k": 2}, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], id="two"),
        pytest.param({"top_k": 9}, CHANCES, id="more than there are"),
        pytest.param({"top_p": 0.4}, [0, 1, 0, 0, 0], id="just the first"),
        pytest.param({"top_p": 0.41}, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], id="one more"),
        pytest.param({"top_p": 1e-12}, [0, 1, 0, 0, 0], id="never none"),
        pytest.param({"top_p": 1.0}, CHANCES, id="all"),
        # Of 0.4 and 0.25 the first has 0.615.
        pytest.param({"top_k": 2, "top_p": 0.6}, [0, 1, 0, 0, 0], id="p of what k left"),
        pytest.param({"temperature": 0}, [0, 1, 0, 0, 0], id="greedy"),
        pytest.param({"temperature": 1e-300}, [0, 1, 0, 0, 0], id="cold"),
        pytest.param({"temperature": 1e300}, [0.2] * 5, id="hot"),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_options_select_and_sharpen(options, wanted, dtype):
    tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    logits = (np.log(CHANCES) + 3.0).astype(dtype)
    if dtype == "float16" and options.get("top_p") == 0.4:
        pytest.skip("0.4 of rounded logits is on either side")
    np.testing.assert_allclose(distribution(logits, **options), wanted, atol=tolerance)


def test_logits_of_bfloat16_are_widened():
    logits = np.log(CHANCES).astype(pytest.importorskip("ml_dtypes").bfloat16)
    wanted = by_sorting(logits.astype(np.float64), temperature=0.7)
    np.testing.assert_allclose(distribution(logits, temperature=0.7), wanted, rtol=1e-6)


def test_of_equal_logits_the_first_tokens_are_kept():
    logits = np.array([0.0, 2.0, 1.0, 2.0, 1.0, 1.0])
    assert np.flatnonzero(distribution(logits, top_k=1)).tolist() == [1]
    assert np.flatnonzero(distribution(logits, top_k=4)).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(distribution(np.zeros(8), top_p=0.5)).tolist() == [0, 1, 2, 3]
    assert sample(logits, temperature=0) == 1


def test_excluded_tokens_are_never_drawn():
    logits = np.array([-np.inf, 0.0, -np.inf, 0.0])
    rng = od.Generator(0)
    assert {sample(logits, rng=rng) for _ in range(50)} == {1, 3}
    assert distribution(logits, top_k=3, temperature=1e300).tolist() == [0, 0.5, 0, 0.5]


# ------------------------------------------------------------------ draws


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="all"),
        pytest.param({"temperature": 0.6, "top_k": 4}, id="k"),
        pytest.param({"temperature": 1.4, "top_p": 0.8}, id="p"),
    ],
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options):
    count = 600
    wanted = by_sorting(np.log(CHANCES), **options)
    rng = od.Generator(12)
    drawn = [sample(np.log(CHANCES), rng=rng, **options) for _ in range(count)]
    often = np.bincount(drawn, minlength=5)
    assert not often[wanted == 0].any()
    wanted, often = count * wanted[wanted > 0], often[wanted > 0]
    # Chi squared of up to 4 degrees of freedom is above 18.5 once in a thousand times.
    assert ((often - wanted) ** 2 / wanted).sum() < 18.5


def test_a_seed_repeats_the_tokens_and_a_draw_takes_one_number():
    logits = np.random.default_rng(1).standard_normal(100)
    first, second = od.Generator(5), od.Generator(5)
    options = {"temperature": 0.9, "top_k": 50, "top_p": 0.9}
    drawn = [sample(logits, rng=first, **options) for _ in range(20)]
    assert drawn == [sample(logits, rng=second, **options) for _ in range(20)]
    assert len(set(drawn)) > 5
    assert first.state["state"]["counter"] == 20
    od.seed(5)
    assert drawn == [sample(logits, **options) for _ in range(20)]
    sample(logits, temperature=0, rng=first)
    assert first.state["state"]["counter"] == 20


@pytest.mark.parametrize(
    ("logits", "options", "error", "message"),
    [
        pytest.param([0.0, np.nan], {}, NonFiniteError, "hold NaN", id="nan"),
        pytest.param([0.0, np.nan], {"temperature": 0}, NonFiniteError, "NaN", id="nan, greedy"),
        pytest.param([np.nan, np.inf], {"top_k": 1}, NonFiniteError, "NaN", id="nan and inf"),
        pytest.param([0.0, np.inf], {}, NonFiniteError, r"\+inf", id="infinite"),
        pytest.param([-np.inf] * 3, {}, NonFiniteError, "-inf alone", id="nothing left"),
        pytest.param([], {}, ShapeError, r"shape \(0,\)", id="empty"),
        pytest.param([[0.0]], {}, ShapeError, r"shape \(1, 1\)", id="rows"),
        pytest.param(1.0, {}, ShapeError, r"shape \(\)", id="number"),
        pytest.param([1j], {}, DTypeError, "complex128", id="complex"),
        pytest.param(["a"], {}, DTypeError, "<U1", id="words"),
        pytest.param([b"a"], {}, DTypeError, "S1", id="bytes"),
        pytest.param([None], {}, DTypeError, "object", id="objects"),
        pytest.param([0.0], {"temperature": -1}, SettingError, "temperature=-1", id="below 0"),
        pytest.param([0.0], {"temperature": np.nan}, SettingError, "temperature=nan", id="nan T"),
        pytest.param([0.0], {"temperature": np.inf}, SettingError, "temperature=inf", id="inf T"),
        pytest.param([0.0], {"temperature": "1"}, SettingError, "temperature='1'", id="word T"),
        pytest.param([0.0], {"temperature": None}, SettingError, "temperature=None", id="None T"),
        pytest.param([0.0], {"top_k": 0}, SettingError, "top_k=0", id="none of them"),
        pytest.param([0.0], {"top_k": 2.0}, SettingError, "top_k=2.0", id="float k"),
        pytest.param([0.0], {"top_k": True}, SettingError, "top_k=True", id="truth k"),
        pytest.param([0.0], {"top_p": 0}, SettingError, "top_p=0", id="no mass"),
        pytest.param([0.0], {"top_p": 1.01}, SettingError, "top_p=1.01", id="above 1"),
        pytest.param([0.0], {"top_p": np.nan}, SettingError, "top_p=nan", id="nan p"),
        pytest.param([0.0], {"rng": np.random.default_rng(0)}, DTypeError, "rng is", id="NumPy's"),
    ],
)
def test_bad_logits_and_options_are_refused_by_name(logits, options, error, message):
    with pytest.raises(error, match=message):
        sample(logits, **options)


# ------------------------------------------------------------------ generation


class Counting:
    """A decoder whose next token is the sum of all before, modulo 11; its cache is a list."""

    class Cache(list):
        def truncate(self, length):
            del self[length:]

    capacity = 16
    config = SimpleNamespace(windows=(4, None))
    fails_at = None  # of so many tokens the logits are NaN

    def __init__(self):
        self.cache = self.Cache()

    def __len__(self):
        return len(self.cache)

    def prefill(self, tokens):
        self.cache.extend(int(t) for t in tokens)
        if len(self) == self.fails_at:
            return np.full(11, np.nan)
        return np.eye(11)[sum(self.cache) % 11] * 50

    def step(self, token):
        return self.prefill([token])


def continued(prompt, count):
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens.append(sum(tokens) % 11)
    return tokens[len(prompt) :]


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_generated_tokens_follow_each_other(temperature):
    found = list(generate(Counting(), [1, 2], 9, temperature=temperature))
    assert found == continued([1, 2], 9)


def test_the_cache_holds_all_tokens_but_the_last_wherever_the_iterator_rests():
    decoder = Counting()
    tokens = generate(decoder, [1, 2], 9)
    assert decoder.cache == []  # nothing runs before the first is asked for
    yielded = []
    for token in tokens:
        yielded.append(token)
        assert decoder.cache == [1, 2, *yielded[:-1]]
        if len(yielded) == 4:
            break
    tokens.close()
    assert decoder.cache == [1, 2, *yielded[:-1]]
    rest = list(generate(decoder, yielded[-1:], 5))
    assert yielded + rest == continued([1, 2], 9)
    assert decoder.cache == [1, 2, *yielded, *rest[:-1]]


@pytest.mark.parametrize("fails_at", [2, 3, 7])
def test_a_token_that_cannot_be_drawn_is_not_in_the_cache(fails_at):
    decoder = Counting()
    decoder.fails_at = fails_at
    tokens = generate(decoder, [1, 2], 9)
    yielded = list(itertools.islice(tokens, fails_at - 2))
    with pytest.raises(NonFiniteError):
        next(tokens)
    assert decoder.cache == ([1, 2, *yielded][:-1] if yielded else [])


def test_a_stop_token_is_the_last_and_is_not_in_the_cache():
    decoder = Counting()
    expected = continued([1, 2], 9)
    stop = expected[3]
    until = expected[: expected.index(stop) + 1]
    assert list(generate(decoder, [1, 2], 9, stop={stop})) == until
    assert decoder.cache == [1, 2, *until[:-1]]


def test_without_a_count_tokens_come_until_the_cache_is_full():
    decoder = Counting()
    assert list(generate(decoder, [1, 2])) == continued([1, 2], 15)
    assert len(decoder.cache) == 16
    with pytest.raises(OutOfRangeError, match=r"1 tokens of a prompt and 0 more .* of 16"):
        generate(decoder, [3], 0)


def test_a_decoder_whose_layers_all_have_windows_goes_on_without_end():
    decoder = Counting()
    decoder.config = SimpleNamespace(windows=(4, 8))
    tokens = generate(decoder, [1, 2])
    assert [next(tokens) for _ in range(40)] == continued([1, 2], 40)


@pytest.mark.parametrize(
    ("tokens", "options", "error", "message"),
    [
        pytest.param([1] * 17, {}, OutOfRangeError, "17 tokens of a prompt and", id="prompt"),
        pytest.param([1] * 8, {"count": 10}, OutOfRangeError, "8 tokens .* and 10", id="count"),
        pytest.param([], {}, ShapeError, r"shape \(0,\)", id="no prompt"),
        pytest.param([[1]], {}, ShapeError, r"shape \(1, 1\)", id="batch"),
        pytest.param([1], {"count": -1}, SettingError, "count=-1", id="below 0"),
        pytest.param([1], {"count": 1.5}, SettingError, r"count=1\.5", id="fraction"),
        pytest.param([1], {"top_k": 0}, SettingError, "top_k=0", id="option"),
    ],
)
def test_what_cannot_be_generated_is_refused_before_the_cache_changes(
    tokens, options, error, message
):
    decoder = Counting()
    with pytest.raises(error, match=message):
        generate(decoder, tokens, **options)
    assert decoder.cache == []


# ------------------------------------------------------------------ text


def utf8(tokens):
    return bytes(tokens).decode("utf-8", "replace")


@pytest.mark.parametrize("seed", range(20))
def test_streamed_text_of_any_bytes_is_the_text_of_all(seed):
    rng = np.random.default_rng(seed)
    text = "naïve 日本 🎉 x"
    whole = text.encode() * 3
    noise = bytes(rng.integers(0, 256, 40).tolist())
    tokenizer = SimpleNamespace(decode=utf8)
    pieces = list(stream_text(tokenizer, whole))
    assert pieces == list(text * 3)  # each character as soon as it is whole
    mixed = whole[: rng.integers(1, 40)] + noise + whole
    assert "".join(stream_text(tokenizer, mixed)) == utf8(mixed)


def test_streamed_text_of_a_tokenizer_keeps_spaces_and_split_characters():
    if importlib.util.find_spec("tokenizers") is None:
        pytest.skip("needs tokenizers, of the extra 'examples'")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    byte_level = Tokenizer(
        models.BPE(
            vocab={c: k for k, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]
        )
    )
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    text = " déjà vu: 日本 🎉\n\tx"
    tokens = byte_level.encode(text).ids
    assert len(tokens) == len(text.encode())
    assert list(stream_text(byte_level, tokens)) == list(text)
    # SentencePiece's decoder drops the space at the start of what it decodes.
    words = {"▁a": 0, "▁b": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4, "<unk>": 5}
    pieces = Tokenizer(models.BPE(vocab=words, merges=[], byte_fallback=True, unk_token="<unk>"))
    pieces.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    assert list(stream_text(pieces, [0, 1, 2, 3, 4, 0])) == ["a", " b", "€", " a"]
    assert list(stream_text(pieces, [1, 0], after=[0])) == [" b", " a"]
    assert "".join(stream_text(pieces, [0, 2, 3])) == pieces.decode([0, 2, 3])


# ------------------------------------------------------------------ command line


@pytest.mark.slow
def test_the_command_continues_a_prompt_by_the_model_of_a_folder(tmp_path, capsys):
    for library in ("tokenizers", "safetensors"):
        pytest.importorskip(library)
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from examples.decoders import Decoder, llama

    byte_level = Tokenizer(
        models.BPE(
            vocab={c: k for k, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]
        )
    )
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.save(str(tmp_path / "tokenizer.json"))
    config = llama(vocabulary=256, width=16, layers=1, heads=2, key_heads=1, inner=16)
    decoder = Decoder.random(config, seed=3, capacity=64)
    decoder.save(tmp_path)
    prompt = byte_level.encode("déjà").ids
    expected = byte_level.decode([*prompt, *generate(decoder, prompt, 9, temperature=0)])
    options = ["--prompt", "déjà", "--count", "9", "--temperature", "0"]
    generation.main(Decoder, {}, [str(tmp_path), *options])
    printed = capsys.readouterr().out
    assert printed.startswith(f"{expected}\n")
    assert "9 tokens, the first token after" in printed
    with pytest.raises(SystemExit, match="9000 more do not fit"):
        generation.main(Decoder, {}, [str(tmp_path), "--prompt", "x", "--count", "9000"])
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(SystemExit, match=r"tokenizer\.json: no such file"):
        generation.main(Decoder, {}, [str(tmp_path), "--prompt", "x"])


@pytest.mark.slow
def test_the_command_times_random_weights_beside_their_sum(capsys):
    from examples.decoders import PRESETS, Decoder

    generation.main(Decoder, PRESETS, ["--random", "tiny", "--count", "4", "--dtype", "float16"])
    printed = capsys.readouterr().out
    # 4 layers of 2 * 96 * 96 + 2 * 48 * 96 + 3 * 96 * 384 weights, a table of 96,000, and 9 norms.
    assert f"a token reads {2 * (4 * 138240 + 96000 + 9 * 96) / 1e6:.1f} MB" in printed


def test_stop_tokens_are_those_of_the_configuration(tmp_path):
    assert generation.stop_tokens(tmp_path) == set()
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert generation.stop_tokens(tmp_path) == {7}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 106]}')
    assert generation.stop_tokens(tmp_path) == {1, 106}
    for text in ("{", "[]", '{"eos_token_id": "</s>"}', '{"eos_token_id": [true]}'):
        (tmp_path / "generation_config.json").write_text(text)
        with pytest.raises(FormatError, match="generation_config"):
            generation.stop_tokens(tmp_path)


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FormatError, match=r"tokenizer\.json: not a tokenizer, "):
        generation.load_tokenizer(tmp_path)
