"""Sampling, generation and streamed text for decoders.py
=======================================================

``sample`` draws a token from logits, ``generate`` is an iterator over the tokens that a decoder
continues a prompt with, and ``stream_text`` turns tokens into pieces of text. They work on NumPy
arrays outside of the compiled step, where a draw is no slower than a compiled
``ops.random_categorical``.
"""

import argparse
import collections
import itertools
import json
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import odyssey as od
from odyssey.errors import (
    DTypeError,
    FormatError,
    MissingFileError,
    NonFiniteError,
    OutOfRangeError,
    SettingError,
    ShapeError,
)

# ------------------------------------------------------------------ sampling


def sample(
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: od.Generator | None = None,
) -> int:
    """Draw a token by the softmax of its logit.

    Each draw takes one number from ``rng``, and tokens lie on the unit interval in their order, so
    a seed gives the same tokens in every run.

    Args:
        logits: One number for each token, (vocabulary,); ``-inf`` excludes a token.
        temperature: What logits are divided by; 0 takes the largest, and the first of equal ones.
        top_k: Draw from so many of the likeliest tokens; all by default.
        top_p: Draw from the fewest of the likeliest tokens, of those that ``top_k`` left, whose
            probabilities add up to at least this, in (0, 1].
        rng: Where the number comes from; by default the generator of the process.

    Returns:
        The index of the token.

    Raises:
        NonFiniteError: if a logit is NaN or infinite, or all are ``-inf``.
        SettingError: if an option is out of its range.

    >>> logits = np.log([0.1, 0.2, 0.7])
    >>> rng = od.Generator(0)
    >>> [sample(logits, rng=rng) for _ in range(8)]
    [0, 0, 2, 1, 2, 1, 1, 2]
    >>> sample(logits, temperature=0)
    2
    """
    scores = _check_scores(logits)
    temperature = _check_options(temperature, top_k, top_p)
    if temperature == 0:
        return int(scores.argmax())
    tokens, probabilities = _kept(scores, temperature, top_k, top_p)
    sums = np.cumsum(probabilities, dtype=np.float64)
    drawn = float(od.ops.random_uniform((), dtype=np.float64, rng=rng)) * sums[-1]
    # A product that rounds up to the whole sum would lie behind the last token.
    drawn = min(drawn, np.nextafter(sums[-1], 0.0))
    return int(tokens[np.searchsorted(sums, drawn, side="right")])


def distribution(
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """Return the probability with which ``sample`` draws each token, (vocabulary,).

    >>> distribution(np.log([0.1, 0.2, 0.7]), top_k=2).round(3)
    array([0.   , 0.222, 0.778])
    """
    scores = _check_scores(logits)
    temperature = _check_options(temperature, top_k, top_p)
    result = np.zeros(len(scores))
    if temperature == 0:
        result[scores.argmax()] = 1.0
    else:
        tokens, probabilities = _kept(scores, temperature, top_k, top_p)
        result[tokens] = probabilities / probabilities.sum(dtype=np.float64)
    return result


def _check_scores(logits: Any) -> np.ndarray:
    scores = np.asarray(logits)
    if scores.ndim != 1 or not scores.size:
        raise ShapeError(
            f"sample: logits have the shape {scores.shape}; pass one number for each token"
        )
    if scores.dtype.kind in "biu":
        scores = scores.astype(np.float64)
    elif scores.dtype.name in ("float16", "bfloat16"):
        scores = scores.astype(np.float32)
    if scores.dtype.kind != "f":
        raise DTypeError(f"sample: logits are {scores.dtype}; pass real numbers")
    largest = scores.max()  # NaN if there is one
    if not np.isfinite(largest):
        found = "NaN" if np.isnan(largest) else "+inf" if largest > 0 else "-inf alone"
        raise NonFiniteError(
            f"sample: logits hold {found}; the model has diverged, or all tokens are excluded"
        )
    return scores


def _check_options(temperature: Any, top_k: Any, top_p: Any) -> float:
    if not _is_number(temperature) or not 0 <= temperature < np.inf:
        raise SettingError(f"sample: temperature={temperature!r}; it is a number from 0 on, finite")
    if top_k is not None and (
        isinstance(top_k, bool) or not isinstance(top_k, int | np.integer) or top_k < 1
    ):
        raise SettingError(f"sample: top_k={top_k!r}; it is a positive integer, or None for all")
    if top_p is not None and (not _is_number(top_p) or not 0 < top_p <= 1):
        raise SettingError(f"sample: top_p={top_p!r}; it lies in (0, 1], or is None for all")
    return float(temperature)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)


def _kept(
    scores: np.ndarray, temperature: float, top_k: int | None, top_p: float | None
) -> tuple[Any, np.ndarray]:
    """Return the tokens to draw from, ascending, and numbers in proportion to their chances."""
    tokens = np.arange(len(scores))
    if top_k is not None and top_k < len(scores):
        tokens = _largest(scores, top_k)
        scores = scores[tokens]
    if not 1e-30 < temperature < 1e30:
        scores = scores.astype(np.float64)  # float32 has no such number
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((scores - scores.max()) / temperature)
    if top_p is not None and top_p < 1:
        # Less by the rounding of the sums, so that p = 0.7 keeps one token of chance 0.7 alone.
        wanted = top_p * weights.sum(dtype=np.float64) * (1 - 4 * np.finfo(weights.dtype).eps)
        count = 256
        while True:  # more and more of the likeliest, since a sort of all takes 3 ms
            count = min(count, len(weights))
            likeliest = np.sort(np.partition(weights, len(weights) - count)[-count:])[::-1]
            sums = np.cumsum(likeliest, dtype=np.float64)
            if sums[-1] >= wanted or count == len(weights):
                break
            count *= 16
        inside = _largest(weights, min(count, int(np.searchsorted(sums, wanted)) + 1))
        tokens, weights = tokens[inside], weights[inside]
    return tokens, weights


def _largest(x: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest elements, ascending; of equal ones the first."""
    least = np.partition(x, len(x) - count)[len(x) - count]
    found = np.flatnonzero(x >= least)
    if len(found) > count:  # equal ones
        spare = np.flatnonzero(x[found] == least)[count - len(found) :]
        found = np.delete(found, spare)
    return found


# ------------------------------------------------------------------ generation


def generate(
    decoder: Any,
    tokens: Any,
    count: int | None = None,
    *,
    stop: Collection[int] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: od.Generator | None = None,
) -> Iterator[int]:
    """Iterate over the tokens that a decoder continues its cache and a prompt with.

    The cache holds the prompt and all tokens that were yielded but the last, whenever the iterator
    rests, whatever ended it: a loop that stops, Ctrl-C, an error or ``count``. Go on with
    ``generate(decoder, [last], ...)``. If no token was yielded, the prompt is not in the cache.

    Args:
        decoder: A Decoder. Its cache may hold earlier tokens; the prompt comes behind them.
        tokens: The prompt, at least one token.
        count: How many tokens to yield at most; by default until a stop token, or until the cache
            is full, which it never is if all layers have windows.
        stop: Tokens that end the iteration; the one that did is the last to be yielded.
        temperature: As in ``sample``, with ``top_k``, ``top_p`` and ``rng``.

    Raises:
        OutOfRangeError: if the cache has no room for prompt and ``count`` tokens; the cache is
            unchanged.
    """
    prompt = np.asarray(tokens)
    if prompt.ndim != 1 or not prompt.size:
        raise ShapeError(
            f"generate: tokens have the shape {prompt.shape}; pass a list of one or more"
        )
    temperature = _check_options(temperature, top_k, top_p)
    if (
        isinstance(count, bool)
        or not isinstance(count, int | np.integer | None)
        or (count or 0) < 0
    ):
        raise SettingError(f"generate: count={count!r}; it is an integer from 0 on, or None")
    if None in decoder.config.windows:
        room = decoder.capacity - len(decoder) - len(prompt) + 1
        count = room if count is None else count
        if room < max(count, 1):
            raise OutOfRangeError(
                f"generate: {len(prompt)} tokens of a prompt and {count} more do not fit behind "
                f"the {len(decoder)} of a cache of {decoder.capacity}; make a decoder with a "
                "larger capacity, or clear or truncate the cache"
            )
    steps = itertools.count() if count is None else range(int(count))
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "rng": rng}
    return _generate(decoder, prompt, steps, frozenset(int(t) for t in stop), options)


def _generate(
    decoder: Any, prompt: np.ndarray, steps: Any, stop: frozenset[int], options: dict[str, Any]
) -> Iterator[int]:
    token = None
    for _ in steps:
        before = len(decoder)
        try:
            logits = decoder.prefill(prompt) if token is None else decoder.step(token)
            token = sample(logits, **options)
        except BaseException:
            decoder.cache.truncate(before)  # its last token was never yielded
            raise
        yield token
        if token in stop:
            return


# ------------------------------------------------------------------ text


def stream_text(tokenizer: Any, tokens: Any, *, after: Any = ()) -> Iterator[str]:
    """Yield pieces of text, which together are the text of all tokens, as they become certain.

    A character of several bytes may be spread over tokens. It is held back until its last byte is
    there; what is left at the end is shown as U+FFFD.

    Args:
        tokenizer: One of the library tokenizers, or any object with ``decode(tokens)``.
        tokens: An iterable of tokens.
        after: Tokens before the first, whose text is not yielded, such as those of a prompt.

    >>> class Utf8:
    ...     def decode(self, tokens):
    ...         return bytes(tokens).decode("utf-8", "replace")
    >>> list(stream_text(Utf8(), "né".encode()))
    ['n', 'é']
    """
    held = list(after)  # those shown last, and those that are not shown yet
    shown = len(held)
    before = text = tokenizer.decode(held)
    for token in tokens:
        held.append(token)
        # Decoded behind the tokens before it, since decoders drop the space at the start of a text.
        text = tokenizer.decode(held)
        if len(text) > len(before) and not text.endswith("\ufffd"):
            yield text[len(before) :]
            held, shown = held[shown:], len(held) - shown
            before = text = tokenizer.decode(held)
    if len(text) > len(before):
        yield text[len(before) :]


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a folder, which the library tokenizers reads.

    Raises:
        MissingFileError: if the folder has no tokenizer.json.
        FormatError: if that is not one.
        SystemExit: if the library is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise SystemExit(
            'tokenizers is not installed; pip install -e ".[examples]" installs it'
        ) from None
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; text needs the tokenizer of the model")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library has no class of its own
        raise FormatError(f"{path}: not a tokenizer, {error}") from error


def stop_tokens(folder: Path) -> set[int]:
    """Return the tokens that end a text, by the configuration files of a folder.

    Raises:
        FormatError: if a file is not JSON, or has no numbers there.
    """
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            found = settings.get("eos_token_id")
        except FileNotFoundError:
            continue
        except (ValueError, AttributeError) as error:
            raise FormatError(f"{path}: not a JSON object, {error}") from error
        if found is not None:
            tokens = found if isinstance(found, list) else [found]
            if not all(type(token) is int for token in tokens):
                raise FormatError(f"{path}: eos_token_id is {found!r}; wanted numbers of tokens")
            return set(tokens)
    return set()


# ------------------------------------------------------------------ speed


def weights_read(decoder: Any) -> list[np.ndarray]:
    """Return the weights of which a token reads all bytes: not tables of which it takes a row."""
    tables = (
        {"positions.weight"} if decoder.config.tied else {"positions.weight", "embedding.weight"}
    )
    return [v.data for path, v in decoder.variables.items() if path not in tables]


class Speed:
    """Times of tokens, beside the time in which ``np.sum`` reads as many bytes.

    Args:
        decoder: Its weights are what is read, where they lie; as integers, since a sum of
            float16 does not wait for memory.
        clock: ``time.perf_counter``, or ``time.thread_time`` on a busy machine.
    """

    def __init__(self, decoder: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        # On a card the CPU does not read them for a token.
        read = weights_read(decoder) if decoder.device == "cpu" else []
        arrays = [np.ravel(a, order="K").view(np.uint8) for a in read]
        self.bytes = sum(a.nbytes for a in arrays)
        self.words = [a[: a.size // 8 * 8].view(np.int64) for a in arrays]
        self.clock = clock
        self.tokens: list[float] = []
        self.sums: list[float] = []

    def time_tokens(self, tokens: Iterator[int], sums: int = 8) -> Iterator[int]:
        """Pass tokens on, time each, and read the weights behind some of them."""
        while True:
            begin = self.clock()
            try:
                token = next(tokens)
            except StopIteration:
                return
            self.tokens.append(self.clock() - begin)
            if self.words and len(self.sums) < sums:
                begin = self.clock()
                for words in self.words:
                    words.sum()
                self.sums.append(self.clock() - begin)
            yield token

    def __str__(self) -> str:
        first, *later = self.tokens
        text = f"first token after {first:.2f} s"
        if later:
            # The median leaves out tokens that made a program for a longer cache.
            each = statistics.median(later)
            text += f", then {1e3 * each:.2f} ms a token, {1 / each:.1f} tokens a second"
        if later and self.sums:
            bound = statistics.median(self.sums)
            text += (
                f"\na token reads {self.bytes / 1e6:.1f} MB at {self.bytes / each / 1e9:.1f} GB/s; "
                f"np.sum reads it at {self.bytes / bound / 1e9:.1f} GB/s, in {1e3 * bound:.2f} ms, "
                f"{bound / each:.2f} of the token's time"
            )
        return text


# ------------------------------------------------------------------ command line


def main(
    decoder_class: Any, presets: Mapping[str, Callable[[], Any]], arguments: list[str] | None = None
) -> None:
    """Continue a prompt by the model of a folder, or time one of random weights."""
    parser = argparse.ArgumentParser(prog="decoders.py", description="Continue a text by a model.")
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("folder", nargs="?", type=Path, help="a folder in Hugging Face's layout")
    model.add_argument("--random", choices=sorted(presets), help="random weights: no text, speed")
    parser.add_argument("--prompt", default="", help="text to continue")
    parser.add_argument("--length", type=int, default=64, help="tokens of a random prompt")
    parser.add_argument("--count", type=int, default=64, help="most tokens to generate")
    parser.add_argument("--capacity", type=int, help="tokens that the cache holds")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest")
    parser.add_argument("--top-k", type=int, help="of so many of the likeliest tokens")
    parser.add_argument("--top-p", type=float, help="of the likeliest of this probability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dtype",
        choices=("float64", "float32", "float16", "bfloat16"),
        help="of the weights; by default that of the file",
    )
    parser.add_argument("--device", default="cpu", help='"cpu", or "cuda" for a CUDA card')
    given = parser.parse_args(arguments)

    try:
        if given.random is not None:
            tokenizer, dtype = None, given.dtype or "float32"
            decoder = decoder_class.random(
                presets[given.random](),
                given.seed,
                dtype,
                capacity=given.capacity,
                trainable=False,
                device=given.device,
            )
            rng = np.random.default_rng(given.seed)
            prompt, stop = rng.integers(decoder.config.vocabulary, size=given.length).tolist(), ()
        else:
            tokenizer, stop = load_tokenizer(given.folder), stop_tokens(given.folder)
            decoder = decoder_class.load(
                given.folder, given.dtype, capacity=given.capacity, device=given.device
            )
            prompt = tokenizer.encode(given.prompt).ids or sorted(stop)[:1]
            if not prompt:
                raise SettingError("an empty prompt, and no token that ends a text; pass --prompt")
        tokens = generate(
            decoder,
            prompt,
            given.count,
            stop=stop,
            temperature=given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            rng=od.Generator(given.seed),
        )
        speed = Speed(decoder)
        timed = speed.time_tokens(tokens)
        try:
            if tokenizer is None:
                collections.deque(timed, maxlen=0)
            else:
                print(given.prompt, end="", flush=True)
                for piece in stream_text(tokenizer, timed, after=prompt):
                    print(piece, end="", flush=True)
        except KeyboardInterrupt:
            pass
    except od.errors.OdysseyError as error:
        raise SystemExit(f"decoders.py: {error}") from None
    if speed.tokens:
        print(f"\n\n{len(speed.tokens)} tokens, the {speed}")
