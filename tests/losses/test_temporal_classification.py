"""Labels without places: posteriors, lengths, what does not fit, and the loss within graphs."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops
from odyssey.errors import OdysseyError

RNG = np.random.default_rng(0)
LABELS = np.array([[1, 2, 2], [3, 1, 3]])


def test_the_gradient_is_minus_a_posterior_which_adds_up_to_one_at_each_time_of_a_sample():
    x = Variable(RNG.normal(size=(7, 2, 4)), requires_grad=True)
    with GradientTape() as tape:
        loss = losses.ctc(x, LABELS, input_lengths=[7, 5], reduction="sum")
    shares = -tape.gradient(loss, x)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares[:5].sum(2), 1.0, rtol=1e-13)
    np.testing.assert_allclose(shares[5:, 0].sum(1), 1.0, rtol=1e-13)
    np.testing.assert_array_equal(shares[5:, 1], 0.0)


def test_of_even_chances_the_loss_counts_the_ways():
    # Of as many times as labels there is one way; of one more, either a blank comes or a repeat:
    # k + 1 places for a blank and k for a label again.
    for k in (1, 2, 3):
        labels = np.arange(1, k + 1)[None]
        for times, ways in ((k, 1), (k + 1, 2 * k + 1)):
            x = np.full((times, 1, 4), -np.log(4.0))
            wanted = times * np.log(4.0) - np.log(ways)
            np.testing.assert_allclose(losses.ctc(x, labels, reduction="sum"), wanted, rtol=1e-14)


def test_the_mean_divides_by_the_labels_of_each_sample_and_by_one_where_there_are_none():
    x = ops.log_softmax(RNG.normal(size=(6, 2, 4)))
    for lengths in ([3, 1], [2, 0]):
        each = losses.ctc(x, LABELS, target_lengths=lengths, reduction="none")
        wanted = np.mean(each / np.maximum(lengths, 1))
        np.testing.assert_allclose(
            losses.ctc(x, LABELS, target_lengths=lengths), wanted, rtol=1e-14
        )


def test_labels_that_do_not_fit_cost_infinity_or_nothing_and_have_no_gradient():
    x = Variable(RNG.normal(size=(3, 2, 4)), requires_grad=True)
    for zeroed, wanted in ((False, np.inf), (True, 0.0)):
        with GradientTape() as tape:
            # Twice the same label needs a blank between.
            each = losses.ctc(x, LABELS, reduction="none", zero_infinity=zeroed)
        assert each.numpy()[0] == wanted
        gradient = tape.gradient(each, x, np.ones(2))
        np.testing.assert_array_equal(gradient[:, 0], 0.0)
        np.testing.assert_allclose(gradient[:, 1].sum(1), -1.0, rtol=1e-13)


def test_a_long_sequence_in_single_precision_keeps_its_digits():
    logits = RNG.normal(size=(200, 2, 30))
    labels = RNG.integers(1, 30, (2, 50))

    def gradient(x):
        leaf = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            loss = losses.ctc(ops.log_softmax(leaf), labels, reduction="sum")
        return loss.numpy(), tape.gradient(loss, leaf)

    (value, slopes), (wanted, exact) = (gradient(logits.astype(t)) for t in ("f4", "f8"))
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    # 200 steps of numbers around 500, each rounded to 3e-5.
    np.testing.assert_allclose(slopes, exact, rtol=0, atol=1e-3)
    assert slopes.dtype == np.float32


def test_in_a_graph_labels_and_lengths_are_inputs_and_looked_at_when_it_runs():
    x, labels, lengths = RNG.normal(size=(6, 2, 4)), LABELS, np.array([3, 2])
    step = od.compile(lambda x, t, n: losses.ctc(x, t, target_lengths=n, reduction="none"))
    graph = step.lower(x, labels, lengths)
    for n in (lengths, np.array([1, 0])):
        wanted = losses.ctc(x, labels, target_lengths=n, reduction="none")
        np.testing.assert_allclose(graph.evaluate(x, labels, n)[0], wanted, rtol=1e-14)
    for bad, n in ((labels - 1, lengths), (labels + 1, lengths), (labels, np.array([4, 1]))):
        with pytest.raises(OdysseyError, match=r"ctc: (a label is the blank|target_lengths)"):
            graph.evaluate(x, bad, n)


@pytest.mark.parametrize("word", [np.zeros((3, 0)), np.zeros(2), "median", 1], ids=str)
def test_what_is_no_way_to_reduce_is_refused_by_name(word):
    with pytest.raises(OdysseyError, match=r"ctc: reduction=.*choose 'mean', 'sum' or 'none'"):
        losses.ctc(RNG.normal(size=(7, 2, 4)), LABELS, reduction=word)
