"""Language model: a tokenizer and a decoder, trained, saved, read back, and fine-tuned
====================================================================================

All of a small language model, on a text that every machine with Python has: the standard library. A
byte-pair tokenizer (Sennrich et al. 2016) learns the text's frequent pieces, and a decoder in
LLaMA's layout, from ``decoders.py`` beside this file, learns to continue them. Model and tokenizer
are saved as Hugging Face's transformers save theirs, read back, and write text by a cache, a token
for each pass over the weights. Then the model is fine-tuned on docstrings of the package ``email``.

Loss is shown in bits for each byte of a text that training has not seen, which does not depend on
the tokenizer, and can be compared with what gzip and LZMA need.

To be seen: fewer bits than gzip needs, and cached tokens that take the same time however long the
text is. Needs tokenizers and safetensors. Takes some four minutes of processor time. An argument is
the number of training steps, and a second one a folder that keeps the model, for
``python examples/decoders.py FOLDER --prompt "class Reader"``; fewer than 500 steps read less text.
"""

import ast
import gzip
import json
import lzma
import math
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
from decoders import Decoder, llama
from generation import Speed, generate, stream_text
from tokenizers import Tokenizer
from tokenizers import decoders as text_decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

import odyssey as od

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1200
QUICK = STEPS < 500
VOCABULARY, WIDTH, LAYERS, BATCH, LENGTH, PEAK = 2048, 128, 3, 8, 128, 5e-3

# %%
# Text
# ----
# The modules that lie at the top of the standard library, and six of them to test with.

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
UNSEEN = ("heapq", "textwrap", "configparser", "dataclasses", "shutil", "tempfile")
modules = {path.stem: path.read_text(encoding="utf-8") for path in sorted(LIBRARY.glob("*.py"))}
texts = [modules.pop(name) for name in UNSEEN]
unseen = "\n".join(texts[: 2 if QUICK else 6])
train = list(modules.values())[:: 4 if QUICK else 1]
print(f"{sum(map(len, train)):,} characters to train with, {len(unseen):,} to test with")

# %%
# Tokenizer
# ---------
# It begins with the 256 bytes and merges the most frequent pair, again and again. No text is
# unknown to it.

tokenizer = Tokenizer(BPE())
tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
tokenizer.decoder = text_decoders.ByteLevel()
trainer = BpeTrainer(
    vocab_size=VOCABULARY,
    special_tokens=["<|endoftext|>"],
    initial_alphabet=ByteLevel.alphabet(),
    show_progress=False,
)
tokenizer.train_from_iterator(train, trainer)
END = tokenizer.token_to_id("<|endoftext|>")


def numbers(texts):
    """Return the tokens of texts, one behind the other, with a token before each."""
    pieces = tokenizer.encode_batch(list(texts))
    return np.array([token for piece in pieces for token in (END, *piece.ids)])


train_tokens, unseen_tokens = numbers(train), numbers([unseen])
print("|".join(tokenizer.decode([token]) for token in unseen_tokens[1:40]))

# %%
# What simpler models need
# ------------------------
# Frequencies of tokens, and compressors, in bits for each byte. LZMA that has read the training
# text finds what the unseen text repeats of it.


def compressed(text):
    """Return how many bits LZMA needs for a text; its dictionary holds all of it."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 24}]
    return 8 * len(lzma.compress(text, format=lzma.FORMAT_RAW, filters=filters))


size = len(unseen.encode())
counts = np.bincount(train_tokens, minlength=VOCABULARY) + 1.0
frequency_bits = -np.log2(counts / counts.sum())[unseen_tokens[1:]].sum()
before = "\n".join(train).encode()
bits = {
    "token frequencies": frequency_bits / size,
    "gzip": 8 * len(gzip.compress(unseen.encode())) / size,
    "LZMA": compressed(unseen.encode()) / size,
    "LZMA behind the training text": (compressed(before + unseen.encode()) - compressed(before))
    / size,
}
for name, value in bits.items():
    print(f"{name:30}: {value:.3f} bits a byte")

# %%
# Training
# --------
# AdamW, with a rate that climbs for a twentieth of the steps and falls along half a cosine, no
# decay of norms, and clipped gradients. Forward pass, backward pass and update are one compiled
# program.

config = llama(
    vocabulary=VOCABULARY,
    width=WIDTH,
    layers=LAYERS,
    heads=4,
    key_heads=2,
    inner=320,
    positions=512,
)
decoder = Decoder.random(config, seed=0)


def train_decoder(decoder, tokens, steps, peak, seed=0):
    """Train a decoder on stretches from random places, and return the loss of each step."""
    leaves = list(decoder.variables.values())
    groups = [
        {"params": [leaf for leaf in leaves if leaf.ndim > 1], "weight_decay": 0.1},
        {"params": [leaf for leaf in leaves if leaf.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = od.optim.AdamW(groups, learning_rate=peak, betas=(0.9, 0.95))
    schedule = od.optim.WarmupCosineLR(optimizer, steps // 20, steps, eta_min=peak / 20)

    @od.compile(fullgraph=True)
    def training_step(stretches):
        with od.GradientTape() as tape:
            loss = decoder.loss(stretches)
        tape.backward(loss)
        od.optim.clip_grad_global_norm(leaves, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    rng = np.random.default_rng(seed)
    losses = []
    for step in range(1, steps + 1):
        starts = rng.integers(len(tokens) - LENGTH, size=BATCH)
        losses.append(float(training_step(tokens[starts[:, None] + np.arange(LENGTH + 1)])))
        schedule.step()
        if step % max(1, steps // 6) == 0:
            print(f"step {step:5}: {np.mean(losses[-50:]):.3f} nats a token")
    return losses


@od.compile
def nats_of(parameters, stretches):
    """Return the sum of losses in the second halves of stretches."""
    half = LENGTH // 2
    logits = decoder.logits(stretches[:, :-1], parameters)[:, half:]
    following = stretches[:, half + 1 :].reshape(-1)
    rows = od.ops.reshape(logits, (-1, VOCABULARY))
    return od.losses.cross_entropy(rows, following, reduction="sum")


def bits_of(parameters, tokens):
    """Return the mean bits of a token that has half a stretch or more before it."""
    half, group = LENGTH // 2, 32
    count = (len(tokens) - 1 - half) // half // group * group
    stretches = tokens[half * np.arange(count)[:, None] + np.arange(LENGTH + 1)]
    nats = sum(float(nats_of(parameters, batch)) for batch in np.split(stretches, count // group))
    return nats / math.log(2) / (count * half)


begin = time.perf_counter()
per_byte = (len(unseen_tokens) - 1) / size  # tokens a byte
untrained = bits_of(decoder.parameters, unseen_tokens) * per_byte
losses = train_decoder(decoder, train_tokens, STEPS, PEAK)
reached = bits_of(decoder.parameters, unseen_tokens) * per_byte
weights = sum(leaf.size for leaf in decoder.variables.values())
print(f"{weights:,} weights, {STEPS} steps in {time.perf_counter() - begin:.0f} s")
print(f"unseen text: {untrained:.3f} bits a byte before, {reached:.3f} after")
assert abs(untrained / per_byte - np.log2(VOCABULARY)) < 0.3
assert reached < bits["token frequencies"]
assert QUICK or reached < bits["gzip"]

# %%
# Saved, read back and decoded
# ----------------------------
# A folder in Hugging Face's layout. What is read back gives equal logits, also token by token.

with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else temporary)
    decoder.save(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    ending = json.dumps({"eos_token_id": END}) + "\n"
    (folder / "generation_config.json").write_text(ending, encoding="utf-8")
    print(*sorted(path.name for path in folder.iterdir()))
    writer = Decoder.load(folder, trainable=True)

prompt = unseen_tokens[1:41]
expected = decoder.logits(prompt).numpy()[-1]
writer.prefill(prompt[:30])
for token in prompt[30:]:
    logits = writer.step(token)
assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()


def write(decoder, begin, count, speed=None):
    """Print a text and how a decoder continues it."""
    decoder.cache.clear()
    tokens = tokenizer.encode(begin).ids
    drawn = generate(
        decoder, tokens, count, stop={END}, temperature=0.7, top_k=40, rng=od.Generator(1)
    )
    if speed is not None:
        drawn = speed.time_tokens(drawn, sums=32)
    print(begin, end="")
    for piece in stream_text(tokenizer, drawn, after=tokens):
        print(piece, end="")
    print("\n")


speed = Speed(writer, time.process_time)
write(writer, "    def __init__(self", 50 if QUICK else 300, speed)
print(f"The {speed}")

# %%
# Fine-tuned
# ----------
# On the docstrings of ``email``, but for those of two modules, with a tenth of the rate.


def docstrings(path):
    """Return the docstrings of a module."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n\n".join(text for text in found if text)


texts = {path.stem: docstrings(path) for path in sorted((LIBRARY / "email").glob("*.py"))}
unseen_prose = texts.pop("message") + "\n\n" + texts.pop("policy")
tests = {"docstrings of email": unseen_prose, "code": unseen}


def bits_of_tests():
    """Return the bits a byte of unseen docstrings and of unseen code."""
    result = []
    for text in tests.values():
        tokens = numbers([text])
        bits = bits_of(writer.parameters, tokens)
        result.append(bits * (len(tokens) - 1) / len(text.encode()))
    return result


general = bits_of_tests()
write(writer, "Return the", 60)
train_decoder(writer, numbers(texts.values()), max(20, STEPS // 10), PEAK / 10)
tuned = bits_of_tests()
write(writer, "Return the", 60)
for name, first, second in zip(tests, general, tuned, strict=True):
    print(f"{name:20}: {first:.3f} bits a byte before fine-tuning, {second:.3f} after")
assert tuned[0] < general[0]

# %%
# Picture
# -------
# Without the cache the whole text goes through the network for each token. Time is that of the
# processor, since other programs may run. Tokens above the others made a program for a longer text.


def draw():
    """Draw the loss, and the time of a token by the length of the text."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    curve = np.array(losses) / math.log(2) * per_byte
    smooth = np.convolve(curve, np.full(20, 0.05), mode="valid")
    axes[0].plot(curve, color="0.8", linewidth=1)
    axes[0].plot(np.arange(len(smooth)) + 10, smooth, label="training, mean of 20 steps")
    axes[0].plot(STEPS, reached, "o", color="C1", label="unseen text, at the end")
    for name, value in bits.items():
        axes[0].axhline(value, color="k", linestyle=":", linewidth=1)
        axes[0].text(STEPS, value, name, ha="right", va="bottom", fontsize=8)
    axes[0].set(title="Loss", xlabel="step", ylabel="bits a byte", ylim=(1, 4))
    axes[0].legend(loc="upper right", fontsize=8)

    lengths = (32, 64, 128, 256)[: 2 if QUICK else 4]
    again = []
    for length in lengths:
        whole = od.compile(lambda tokens: decoder.logits(tokens)[-1])
        whole.precompile(unseen_tokens[:length])
        times = []
        for _ in range(7):
            begin = time.process_time()
            whole(unseen_tokens[:length])
            times.append(time.process_time() - begin)
        again.append(1e3 * np.median(times))
    cached = 1e3 * np.array(speed.tokens[1:])
    axes[1].plot(lengths, again, "o-", label="without a cache")
    axes[1].plot(np.arange(len(cached)) + 5, cached, ".", markersize=3, label="with the cache")
    bound = 1e3 * np.median(speed.sums)
    axes[1].axhline(bound, color="k", linestyle=":", linewidth=1, label="np.sum of the weights")
    axes[1].set(title="Time of a token", xlabel="length of the text", ylabel="ms of processor time")
    axes[1].set(yscale="log")
    axes[1].legend(fontsize=8)
    plt.show()


draw()
