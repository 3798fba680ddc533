"""What an experiment of the study defines, and what is estimated from its records.

An experiment is a module ``study/experiments/NAME.py`` (with ``_`` for each ``-`` of the name),
which imports nothing but NumPy and the standard library at its top, so that it can be read by an
interpreter that has no peer. It is imported as ``study.experiments.NAME``; `Experiment` lists what
it defines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SYSTEMS = ("numpy", "taped", "compiled", "torch", "torch.compile", "jax", "autograd")
"""Names of systems, in the order in which they are shown."""

LIBRARIES = {
    "numpy": "numpy",
    "taped": "odyssey",
    "compiled": "odyssey",
    "torch": "torch",
    "torch.compile": "torch",
    "jax": "jax",
    "autograd": "autograd",
}
"""The library that a system needs; where no interpreter has it, the system is `absent`.

A name that is not here (such as a rule that is switched off) belongs to odyssey.
"""

Config = Mapping[str, Any]
"""One point of an experiment: JSON values by names; not ``system``, ``base`` or ``metric``."""


@dataclass(slots=True)
class Case:
    """One system at one config, built and ready.

    Args:
        step: One repetition; it has ended when it returns (JAX's results are waited for). It is
            timed in blocks, which are calibrated once, and gives the metrics ``seconds`` and
            ``cpu_seconds`` of one repetition.
        answer: Results that are compared with those of `reference` before the first sample: arrays
            of float64 by name.
        counts: What is counted and repeats exactly (nodes, kernels, bytes); or a function that
            returns it, called once, after `answer`.
        sample: Metrics of one sample by name, for a case that measures itself (peak bytes, errors,
            losses). It replaces the timing of `step`.
    """

    step: Callable[[], Any] | None = None
    answer: Callable[[], Mapping[str, NDArray[np.float64]]] | None = None
    counts: Mapping[str, float] | Callable[[], Mapping[str, float]] = field(default_factory=dict)
    sample: Callable[[], Mapping[str, float]] | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median over rounds with its 95 % interval.

    Args:
        median: Of the rounds' values.
        low: Lower end of the interval, by bootstrap over rounds.
        high: Upper end.
        rounds: Values that there were.
        noisy: Whether CPU and wall time differ by more than 20 %, or the interval is wider than
            15 % of the median.
    """

    median: float
    low: float
    high: float
    rounds: int
    noisy: bool = False

    def differs_from(self, value: float) -> bool:
        """Return whether the interval leaves `value` out; "no difference seen" otherwise."""
        return not self.low <= value <= self.high


Outcome = Literal["held", "refuted", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a hypothesis, with its numbers.

    Args:
        outcome: ``held``, ``refuted`` or ``undecided``.
        numbers: Estimates that the outcome rests on, by names that the claim may use.
        p: Probability of what was seen if there were no effect (`Records.p_value`), or None where
            the hypothesis is judged by intervals or counts alone. The p-values of an experiment
            are corrected together by Holm's method.
        note: Why a hypothesis is undecided.
    """

    outcome: Outcome
    numbers: Mapping[str, Estimate] = field(default_factory=dict)
    p: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What is expected before measuring.

    Args:
        name: A short name, unique in the experiment.
        claim: A sentence.
        refuted_by: The observation that would refute it, a sentence.
        judge: Returns the `Verdict` for the experiment's `Records`. Records that are missing
            (`study.records.MissingRecords`) make it undecided.
    """

    name: str
    claim: str
    refuted_by: str
    judge: Callable[[Any], Verdict]


class Experiment(Protocol):
    """What the module of an experiment defines.

    `PINNED`, `TIMEOUT`, `MEMORY` and `QUICK_ROUNDS` may be left out; see `optional`.
    """

    NAME: str
    """As on the command line: ``memory-ablation``."""

    QUESTION: str
    """One sentence."""

    SYSTEMS: Sequence[str]
    """Names of systems, in the order of measuring."""

    HYPOTHESES: Sequence[Hypothesis]

    FRESH: bool
    """Whether each sample needs a process of its own."""

    ROUNDS: int
    """Samples of each system at each config."""

    TOLERANCE: float | Callable[[str, dict[str, Any]], float]
    """Largest relative error of an answer, or a function of the system and the config."""

    def configs(self, quick: bool) -> list[dict[str, Any]]:
        """Return the configs; with `quick`, two sizes or so."""

    def build(self, system: str, config: dict[str, Any]) -> Case:
        """Return the case, in a process of its own; raise `NotApplicable` for no such case."""

    def reference(self, config: dict[str, Any]) -> Mapping[str, NDArray[np.float64]] | None:
        """Return what every answer should be, computed without any system, or None."""

    def pictures(self, records: Any) -> list[Any]:
        """Return the pictures (`study.drawing`) of the experiment's `Records`."""


class NotApplicable(Exception):
    """A system has no such case (a peer that cannot do it): recorded as `absent`, with its text."""


_DEFAULTS = {"PINNED": True, "TIMEOUT": 120.0, "MEMORY": 4 * 2**30, "QUICK_ROUNDS": None}


def optional(experiment: Any, name: str) -> Any:
    """Return an optional attribute of an experiment, or its default.

    * ``PINNED`` (True): the process keeps to one CPU. False for an experiment of several ranks.
    * ``TIMEOUT`` (120): seconds for building a case with its answer, and for one sample.
    * ``MEMORY`` (4 GiB): bytes of resident memory of a process, above which it is ended.
    * ``QUICK_ROUNDS`` (3, or 1 where FRESH): rounds with ``--quick``.
    """
    return getattr(experiment, name, _DEFAULTS[name])
