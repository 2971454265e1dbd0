"""Durations: no step that touches labels takes longer for one label than for another, as far as a test can tell.

Two label vectors are timed in pairs, in the same memory, in random order within each pair: were the durations the same
in distribution, the sign of a difference would be a coin's, whatever else the machine is doing. A signed-rank test
(Wilcoxon 1945) of them errs with probability 10⁻⁶ over all steps together. Its power is that of the control: a fifth
longer for one label (a few microseconds) is found. Smaller differences, and such as show only over a network in
millions of requests, are not excluded; neither is what a neighbour on the same processor can measure.
"""

from __future__ import annotations

import random
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.stats import wilcoxon

from labels_party.labels.digests import mask
from labels_party.labels.parsing import floats_of, positions
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.prior import histogram
from labels_party.mechanisms.sampling import sample
from shared.domain import Domain
from shared.privacy import Epsilon

DOMAIN = Domain.parse("0:40")
IDS = pa.array([f"click-{i:04d}" for i in range(64)])
PAIRS = 400
Index = npt.NDArray[np.int64]
Step = Callable[[Index], Any]


def drawing(name: str) -> Step:
    prior = np.exp(-np.arange(DOMAIN.k) / 9.0)
    channel = MECHANISMS[name].design(DOMAIN, prior / prior.sum(), Epsilon.parse("1"), "squared", {})
    return lambda index: sample(channel, index)


def reading(index: Index) -> Any:
    """From an uploaded column to positions; what lies beyond the domain is clipped."""
    return positions(floats_of(pa.array(index * 2.0)), DOMAIN, "clip")


STEPS: dict[str, Step] = {name: drawing(name) for name in MECHANISMS}
STEPS |= {"reading": reading, "masking": lambda index: mask(IDS, index, b"0123456789abcdef")}
STEPS |= {"histogram": lambda index: histogram(index, DOMAIN.k)}
ALPHA = 1e-6 / len(STEPS) / 2


def chance(step: Step, low: Index, high: Index, seed: int = 0) -> float:
    """How probable so one-sided differences are if both vectors take equally long."""
    rng, index, differences = random.Random(seed), low.copy(), []
    for _ in range(PAIRS):
        took = {}
        for which in rng.sample((0, 1), 2):
            index[:] = high if which else low
            start = time.perf_counter_ns()
            step(index)
            took[which] = time.perf_counter_ns() - start
        differences.append(took[1] - took[0])
    return float(wilcoxon(differences, method="approx").pvalue)


def vectors() -> tuple[Index, Index]:
    low = np.random.default_rng(1).integers(0, DOMAIN.k, len(IDS))
    low[32] = 0
    high = low.copy()
    high[32] = DOMAIN.k - 1
    return low, high


@pytest.mark.parametrize("name", STEPS)
def test_no_step_takes_longer_for_one_label_than_for_another(name: str) -> None:
    low, high = vectors()
    assert chance(STEPS[name], low, high) > ALPHA
    # and were all of them another label at once, which tells more than neighbours would
    assert chance(STEPS[name], np.zeros_like(low), np.full_like(low, DOMAIN.k - 1)) > ALPHA


@pytest.mark.parametrize("name", ["one-bit", "reading", "masking"])
def test_control_a_fifth_longer_for_one_label_is_found(name: str) -> None:
    step, (low, high) = STEPS[name], vectors()
    usual = min(timeit.repeat(lambda: step(low), number=1, repeat=200))

    def telling(index: Index) -> None:
        step(index)
        end = time.perf_counter() + (usual / 5 if index[32] > DOMAIN.k // 2 else 0)
        while time.perf_counter() < end:
            pass

    assert chance(telling, low, high) < ALPHA
