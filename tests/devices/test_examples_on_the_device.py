"""Examples that take ``--device``: on a device they compute what they compute on the CPU."""

import importlib.util
from pathlib import Path

import decoder_configs
import generation
import numpy as np
import pytest
from decoders import Decoder

import odyssey as od
from support.on_device import DEVICE, assert_same_on_both, host, is_on_device, on_both

pytestmark = pytest.mark.usefixtures("standin")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_digits_learn_on_the_device_what_they_learn_on_the_cpu():
    pytest.importorskip("sklearn", reason="needs the extra 'examples'")
    digits = example("03_digits_mlp")

    def program(device):
        rng = np.random.default_rng(0)
        (x, y), (test_x, _) = digits.split_digits(rng)
        params = digits.init_params(rng, device)
        optimizer = od.optim.SGD([p for layer in params for p in layer], 0.05, momentum=0.9)
        batches = digits.minibatches(rng, x[:256], y[:256], device)
        losses = digits.train_epoch(params, optimizer, batches)
        return params, np.array(losses), digits.answers(params, test_x)

    params, losses, _ = assert_same_on_both(program)
    assert all(map(is_on_device, od.tree.leaves(params)))
    assert losses[-1] < losses[0]


FAMILIES = {
    "gpt2": lambda: decoder_configs.gpt2(vocabulary=23, width=16, layers=1, heads=2, positions=32),
    "gemma3": lambda: decoder_configs.gemma3(
        vocabulary=23, width=16, layers=2, heads=2, key_heads=1, head_size=8, inner=24, window=4
    ),
    "llama": lambda: decoder_configs.llama(
        vocabulary=23, width=16, layers=2, heads=2, key_heads=1, inner=24
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_has_the_losses_and_gradients_of_the_cpu(family):
    tokens = np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 22]])

    def program(device):
        decoder = Decoder.random(FAMILIES[family](), seed=0, dtype="float64", device=device)
        with od.GradientTape() as tape:
            loss = decoder.loss(tokens)
        leaves = list(decoder.variables.values())
        return loss, decoder.hidden_states(tokens[0]), tape.gradient(loss, leaves)

    wanted, got = on_both(program)
    assert all(map(is_on_device, od.tree.leaves(got)))
    for one, other in zip(od.tree.leaves(got), od.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(host(one), host(other), rtol=1e-13, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_a_decoder_continues_a_prompt_as_on_the_cpu(family):
    found = []
    for device in ("cpu", DEVICE):
        decoder = Decoder.random(FAMILIES[family](), seed=1, capacity=16, device=device)
        logits = decoder.prefill([1, 2, 3])
        assert type(logits) is np.ndarray
        tokens = generation.generate(decoder, [4], 6, temperature=0.5, rng=od.Generator(2))
        found.append(([*tokens], logits, decoder.step(5), len(decoder)))
        assert decoder.device == device
    (told, *logits, length), (others, *own, own_length) = found
    assert (told, length) == (others, own_length)
    for one, other in zip(own, logits, strict=True):
        np.testing.assert_allclose(one, other, rtol=3e-6, atol=3e-7)


@pytest.mark.slow
def test_the_command_line_of_decoders_takes_a_device(capsys):
    arguments = ["--random", "tiny", "--count", "3", "--length", "2", "--device", DEVICE]
    generation.main(Decoder, {"tiny": FAMILIES["llama"]}, arguments)
    shown = capsys.readouterr().out
    assert "3 tokens, the first token after" in shown
    assert "ms a token" in shown
    assert "np.sum" not in shown  # reads memory of the CPU
    with pytest.raises(SystemExit, match=r"decoders\.py: .*cuda:9"):
        generation.main(Decoder, {"tiny": FAMILIES["llama"]}, [*arguments[:-1], "cuda:9"])
