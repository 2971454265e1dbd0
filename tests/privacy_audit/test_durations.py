"""Durations: no step that touches labels takes longer for one label than for another, as far as a test can tell.

Two label vectors are timed in pairs, in the same memory, in random order within each pair: were the durations the same
in distribution, the sign of a difference would be a coin's, whatever else the machine is doing. A signed-rank test
(Wilcoxon 1945) of them errs with probability 10⁻⁶ over all steps together. Its power is that of the control: a fifth
longer for one label (a few microseconds) is found. The two steps that write where labels say do differ by a few
nanoseconds, on quiet processors measurably: for neighbours they may by a fiftieth of the time, and vectors without a
label in common by a tenth. Smaller differences,
and such as show only over a network in millions of requests, are not excluded; neither is what a neighbour on the same
processor can measure.
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
from labels_party.mechanisms.isotonic.grid import loss_grid
from labels_party.mechanisms.isotonic.prefix import least_prefixes
from labels_party.mechanisms.isotonic.total_order import isotonic
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


def fitting(loss: str) -> Step:
    """All prefixes by the compiled forms, whatever the number of rows."""
    grid, ends = loss_grid(Domain.parse("0:1000"), loss, 128), np.arange(1, len(IDS) + 1)
    return lambda index: least_prefixes(grid, grid.prepared(index), ends, range(128), True)


STEPS: dict[str, Step] = {name: drawing(name) for name in MECHANISMS}
STEPS |= {"reading": reading, "masking": lambda index: mask(IDS, index, b"0123456789abcdef")}
STEPS |= {"histogram": lambda index: histogram(index, DOMAIN.k)}
STEPS |= {"isotonic": lambda index: isotonic(np.arange(index.size), index, DOMAIN, index.size, Epsilon.parse("0.1"))}
STEPS |= {f"isotonic, {loss}": fitting(loss) for loss in ("squared", "absolute")}
# what they write to follows the labels, and how soon a processor can write there again, by a few nanoseconds
ADDRESSED = {"histogram", "isotonic, absolute"}
ALPHA = 1e-6 / len(STEPS) / 2


def timed(step: Step, low: Index, high: Index, seed: int = 0) -> tuple[list[int], list[int]]:
    """Nanoseconds of `low`, and of `high` less these, by pair."""
    rng, index = random.Random(seed), low.copy()
    usual, differences = [], []
    for _ in range(PAIRS):
        took = {}
        for which in rng.sample((0, 1), 2):
            index[:] = high if which else low
            start = time.perf_counter_ns()
            step(index)
            took[which] = time.perf_counter_ns() - start
        usual.append(took[0])
        differences.append(took[1] - took[0])
    return usual, differences


def chance(step: Step, low: Index, high: Index, allowed: float = 0.0) -> float:
    """How probable so one-sided differences are if none is above `allowed`, a share of the usual time."""
    usual, differences = timed(step, low, high)
    beyond = np.asarray(differences, float)
    beyond -= np.sign(np.median(beyond)) * allowed * np.median(usual)
    if np.median(beyond) * np.median(differences) < 0:
        return 1.0  # within what is allowed
    return float(wilcoxon(beyond, method="approx").pvalue)


def vectors() -> tuple[Index, Index]:
    low = np.random.default_rng(1).integers(0, DOMAIN.k, len(IDS))
    low[32] = 0
    high = low.copy()
    high[32] = DOMAIN.k - 1
    return low, high


@pytest.mark.parametrize("name", STEPS)
def test_no_step_takes_longer_for_one_label_than_for_another(name: str) -> None:
    low, high = vectors()
    assert chance(STEPS[name], low, high, 0.02 if name in ADDRESSED else 0.0) > ALPHA
    # and were all of them another label at once, which tells more than neighbours would
    least, most = np.zeros_like(low), np.full_like(low, DOMAIN.k - 1)
    if name in ADDRESSED:
        usual, differences = timed(STEPS[name], least, most)
        assert abs(np.median(differences)) < 0.1 * np.median(usual)
    else:
        assert chance(STEPS[name], least, most) > ALPHA


@pytest.mark.parametrize("name", ["one-bit", "reading", "masking"])
def test_control_a_fifth_longer_for_one_label_is_found(name: str) -> None:
    step, (low, high) = STEPS[name], vectors()
    usual = min(timeit.repeat(lambda: step(low), number=1, repeat=200))

    def telling(index: Index) -> None:
        step(index)
        end = time.perf_counter() + (usual / 5 if index[32] > DOMAIN.k // 2 else 0)
        while time.perf_counter() < end:
            pass

    assert chance(telling, low, high, 0.02) < ALPHA
