"""Decoding: tokens of random models beside the memory's speed and transformers, on one thread.

    python benchmarks/decoding.py
    python benchmarks/decoding.py --only gpt2 --count 32 --capacity 256
    python benchmarks/decoding.py --no-peers          # without torch and transformers

Ours, ``np.sum`` over as many bytes as a token reads of the weights, and transformers on torch
eager, where it is installed, take turns in one process, and a token is timed by processor time of
the thread. ``share`` is the time of the sum divided by that of the token: 1 is the speed of the
memory. ``draw`` is what sampling the token takes, with ``top_k=40``. ``ratio`` is our time divided
by that of transformers. Halves are float16 here, and bfloat16 there.
``prefill`` puts a prompt of 256 tokens. Compilation and the peak of memory are measured in
processes of their own, which begin with an empty folder of compiled programs and have loaded the
compiler.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import decoders  # noqa: E402
from generation import sample, weights_read  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import Samples, interleaved  # noqa: E402

MODELS: dict[str, tuple[Callable[[], decoders.Config], str]] = {
    "gpt2": (decoders.gpt2, "float32"),
    "gpt2-half": (decoders.gpt2, "float16"),
    "gemma3-half": (decoders.gemma3_270m, "float16"),
    "llama": (decoders.llama, "float32"),
    "tiny": (lambda: decoders.llama(vocabulary=1000, width=96, layers=4, heads=4), "float32"),
}


# ------------------------------------------------------------------ transformers


class Transformers:
    """The model of a configuration in transformers, with random weights."""

    def __init__(self, config: decoders.Config, half: bool) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, logging

        logging.set_verbosity_error()
        torch.set_num_threads(1)
        self.torch = torch
        settings = decoders.config_settings(config)
        theirs = AutoConfig.for_model(**settings)
        dtype = torch.bfloat16 if half else torch.float32
        self.model = AutoModelForCausalLM.from_config(theirs, dtype=dtype).eval()
        self.clear()

    def clear(self) -> None:
        """Forget all tokens."""
        self.cache: Any = None

    def put(self, tokens: list[int]) -> np.ndarray:
        """Put tokens behind those before, and return the logits of the next one."""
        with self.torch.inference_mode():
            out = self.model(
                input_ids=self.torch.tensor([tokens]),
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        self.cache = out.past_key_values
        logits: np.ndarray = out.logits[0, -1].float().numpy()
        return logits


class TorchByHand:
    """The prefill of our GPT-2 in torch alone, with our weights."""

    def __init__(self, decoder: decoders.Decoder) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch, self.config = torch, decoder.config
        self.w = {path: torch.from_numpy(v.data) for path, v in decoder.variables.items()}

    def put(self, tokens: list[int]) -> np.ndarray:
        """Return the logits after the last token."""
        F, w, heads = self.torch.nn.functional, self.w, self.config.heads

        def linear(x: Any, path: str) -> Any:
            return F.linear(x, w[f"{path}.weight"], w[f"{path}.bias"])

        def norm(x: Any, path: str) -> Any:
            return F.layer_norm(x, x.shape[-1:], w[f"{path}.weight"], w[f"{path}.bias"], 1e-5)

        with self.torch.inference_mode():
            at = self.torch.tensor(tokens)
            x = w["embedding.weight"][at] + w["positions.weight"][: len(tokens)]
            for k in range(self.config.layers):
                layer = f"layers.{k}"
                h = norm(x, f"{layer}.attention_norm")
                q, key, value = (
                    linear(h, f"{layer}.{part}").reshape(len(tokens), heads, -1).transpose(0, 1)
                    for part in ("query", "key", "value")
                )
                h = F.scaled_dot_product_attention(q, key, value, is_causal=True)
                h = h.transpose(0, 1).reshape(len(tokens), -1)
                x = x + linear(h, f"{layer}.output")
                h = F.gelu(
                    linear(norm(x, f"{layer}.inner_norm"), f"{layer}.up"), approximate="tanh"
                )
                x = x + linear(h, f"{layer}.down")
            last = norm(x[-1:], "norm")
            logits: np.ndarray = (last @ w["embedding.weight"].T)[0].numpy()
        return logits


# ------------------------------------------------------------------ tokens


def compare(name: str, given: argparse.Namespace) -> None:
    """Print the lines of a model."""
    make, dtype = MODELS[name]
    config = make()
    decoder = decoders.Decoder.random(config, dtype=dtype, capacity=given.capacity, trainable=False)
    theirs = Transformers(config, dtype == "float16") if given.peers else None
    size = sum(a.nbytes for a in weights_read(decoder))
    beside = np.ones(size // 4, np.float32)
    rng = np.random.default_rng(0)
    prompt = rng.integers(config.vocabulary, size=given.prompt).tolist()
    drawn = od.Generator(0)
    logits = decoder.prefill(prompt)
    if theirs is not None:
        theirs.put(prompt)
    samples = Samples(clock=time.thread_time)
    for step in range(given.count + 2):
        token = samples.timed(
            "draw", lambda logits=logits: sample(logits, temperature=0.8, top_k=40, rng=drawn)
        )
        logits = samples.timed("ours", lambda token=token: decoder.step(token))
        samples.timed("sum", beside.sum)
        if theirs is not None:
            samples.timed("theirs", lambda token=token: theirs.put([token]))
        if step == 1:  # the first make programs and fill caches
            samples.clear()
    each, bound = 1e3 * samples.median("ours"), 1e3 * samples.median("sum")
    share = samples.ratio("sum", "ours")
    line = (
        f"{name:12}{dtype:9}{size / 1e6:8.1f} MB{each:9.3f} ms{1e3 / each:9.1f}/s"
        f"{size / each / 1e6:7.1f}{size / bound / 1e6:7.1f}{share:7.2f}"
        f"{1e3 * samples.median('draw'):8.3f}"
    )
    if theirs is not None:
        line += f"{1e3 * samples.median('theirs'):10.2f} ms{samples.ratio('ours', 'theirs'):7.3f}"
    print(line, flush=True)


def prefill(given: argparse.Namespace) -> None:
    """Print the time of a prompt of 256 tokens, GPT-2 in float32."""
    config = decoders.gpt2()
    decoder = decoders.Decoder.random(config, capacity=512, trainable=False)
    tokens = np.random.default_rng(0).integers(config.vocabulary, size=256).tolist()
    calls: dict[str, Callable[[], Any]] = {"ours": lambda: decoder.prefill(tokens)}
    if given.peers:
        hand, theirs = TorchByHand(decoder), Transformers(config, half=False)
        calls |= {"torch": lambda: hand.put(tokens), "transformers": lambda: theirs.put(tokens)}

    def cleared(_: str) -> Any:
        decoder.cache.clear()
        if given.peers:
            theirs.clear()
        return nullcontext()

    logits = {}
    for name, call in calls.items():  # the first make programs
        with cleared(name):
            logits[name] = call()
    samples = interleaved(calls, given.rounds, clock=time.thread_time, repeats=1, around=cleared)
    if "torch" in logits:
        off = np.abs(logits["ours"] - logits["torch"]).max() / np.abs(logits["torch"]).max()
        assert off < 1e-4, f"logits differ from torch's by {off:.1e} of the largest"
    line = f"prefill of 256, gpt2 float32: {1e3 * samples.median('ours'):.0f} ms"
    for name in list(calls)[1:]:
        line += f", {samples.ratio('ours', name):.2f} of {name}"
    print(line, flush=True)


# ------------------------------------------------------------------ compilation and memory

CHILD = """
import json, sys, time
import numpy as np
import decoders
import odyssey as od
name, dtype = sys.argv[1:]
decoder = decoders.Decoder.random(getattr(decoders, name)(), dtype=dtype, capacity=256,
                                  trainable=False)
weights = sum(v.data.nbytes for v in decoder.variables.values())
double = od.compile(lambda x: x * 2)  # loads the compiler
for _ in range(3):
    double(np.ones(8))
cache = 2 * decoder.config.layers * decoder.config.key_heads * 256 * decoder.config.head_size * 4
# What has been resident until here; the peak is reset where the system can do that.
try:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
except OSError:
    pass
begin = time.process_time()
decoder.step(1)
first = time.process_time() - begin
begin = time.process_time()
decoder.step(2)
again = time.process_time() - begin
status = open("/proc/self/status").read()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps([weights, cache, peak, first - again]))
"""


def fresh_processes(name: str, dtype: str) -> None:
    """Print how long a decode program takes to compile, and the peak from then on."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(ROOT / "examples"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "ODYSSEY_CACHE": folder}
        rows = []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", CHILD, name, dtype],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            rows.append(json.loads(done.stdout))
    (weights, cache, peak, first), (_, _, _, warm) = rows
    print(
        f"{name} {dtype}: compiled in {first:.2f} s of processor time, from disk {warm:.2f} s; "
        f"peak {peak / 1e6:.0f} MB, weights and cache {(weights + cache) / 1e6:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Print a table, and lines on prefill, compilation and memory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--capacity", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7, help="of prefill")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*past_key_values", category=FutureWarning)
    if given.peers and importlib.util.find_spec("transformers") is None:
        print("transformers is not installed: ours alone")
        given.peers = False
    print(
        f"{'model':12}{'weights':9}{'read':>11}{'a token':>12}{'tokens':>11}{'GB/s':>7}{'sum':>7}"
        f"{'share':>7}{'draw':>8}" + (f"{'transf.':>13}{'ratio':>7}" if given.peers else "")
    )
    for name in MODELS:
        if given.only in name:
            compare(name, given)
            gc.collect()
    if given.only in "prefill":
        prefill(given)
    if given.only in "compile":
        for name, dtype in (("gpt2", "float32"), ("gemma3_270m", "float16")):
            fresh_processes(name, dtype)


if __name__ == "__main__":
    main()
