"""Durations: no step that touches labels takes longer for one label than for another, as far as a test can tell.

Two label vectors are timed in pairs, in the same memory, in random order within each pair: were the durations the same
in distribution, the sign of a difference would be a coin's, whatever else the machine is doing. The least of three
counts, so that what seldom happens beside them hides little. A signed-rank test (Wilcoxon 1945) of them errs with
probability 10⁻⁶ over all steps together. Its power is that of the control: a fifth longer for one label (a few
microseconds) is found by the same rule, if not at once then when the machine has calmed: what else it does hides
differences and cannot make them. The steps that write where labels say, or sort by them, do differ by a few
nanoseconds, on quiet processors measurably: for neighbours they may by a fiftieth of the time, and vectors without a
label in common by a tenth. Smaller differences, and such as show only over a network in millions of requests, are not
excluded; neither is what a neighbour on the same processor can measure.
"""

from __future__ import annotations

import io
import random
import time
import timeit
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.stats import wilcoxon

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.prediction.methods import METHODS
from labels_party.companions.mechanisms.isotonic.antichains import isotonic_poset
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans, BinnedMedians
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.fit import constrained
from labels_party.companions.mechanisms.isotonic.grid import loss_grid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.prefix import least_prefixes
from labels_party.companions.mechanisms.isotonic.shape_options import ShapeOptions
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from labels_party.companions.mechanisms.private_median.adaptive_training import TrainingPlan, train
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median
from labels_party.companions.mechanisms.private_median.rectangles import RectanglePlan, private_rectangle
from labels_party.labels.ciphered import ciphered
from labels_party.labels.parsing import positions_of
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.quantiles import EACH, histogram_quantiles, plan_quantiles
from labels_party.mechanisms.sampling import sample
from tests.support.cases import cases
from tests.support.predicting import plan_of

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
    return positions_of(pa.array(index * 2.0), DOMAIN, "clip")


def fitting(loss: str) -> Step:
    """All prefixes by the compiled forms, whatever the number of rows."""
    grid, ends = loss_grid(Domain.parse("0:1000"), loss, 128), np.arange(1, len(IDS) + 1)
    return lambda index: least_prefixes(grid, grid.prepared(index), ends, range(128), True)


def predicting(method: str) -> tuple[Step, Step]:
    """What is learned of labels, and a query of it: computed and drawn."""
    run, n = METHODS[method], len(IDS)
    plan = plan_of(method, n, "0:40", epsilon="1", **({"threshold": "20"} if METHODS[method].classifies else {}))
    codes = np.random.default_rng(2).integers(0, plan.features.levels + 1, (n, 1))
    part, query = np.arange(n) % (plan.parts or 1), np.array(plan.features.query({"x": 5}), np.int64)

    def learn(index: Index) -> Any:
        return run.learn(plan, DOMAIN, codes, index, part)

    learned: dict[bytes, Any] = {}  # what is timed begins with what was learned

    def answer(index: Index) -> Any:
        arrays = learned.get(index.tobytes())
        if arrays is None:
            arrays = learned[index.tobytes()] = learn(index)
        return run.draw(plan, run.evaluate(plan, DOMAIN, arrays, query))

    return learn, answer


def median_by_ranks(index: Index) -> Any:
    return histogram_quantiles(np.bincount(index, minlength=DOMAIN.k), RANKS)


def median_by_slices(domain_bits: int) -> Step:
    """Over labels times a large number, so that the recursion sees different prefixes."""
    plan = MedianPlan(len(IDS), DOMAIN.k << domain_bits, Fraction(1), Fraction(domain_bits > 0, 10**9))
    factor = np.uint64(1 << domain_bits)
    return lambda index: private_median(index.astype(np.uint64) * factor, plan, noise=quiet)


def quiet(_scale: Fraction, n: int) -> Index:
    """In place of OpenDP's noise, whose own draws take milliseconds and know no label."""
    return np.zeros(n, np.int64)


def rectangle(index: Index) -> Any:
    plan = RectanglePlan(len(IDS), 1, 6, 8, Fraction(1))
    return private_rectangle(PLACES, index >= 20, plan, noise=quiet)


def adaptive(index: Index) -> Any:
    plan = TrainingPlan(len(IDS), 1, 4, 12, Fraction(1))
    return train(PLACES / 32.0 - 1.0, index / 20.0 - 1.0, plan, noise=quiet)


def convex(index: Index) -> Any:
    return constrained(SCORES, index, DOMAIN, len(IDS), HARDLY, shape="convex", options=CONVEX)


def in_a_grid(index: Index) -> Any:
    return isotonic_poset(SCORES % GRID.size, index, DOMAIN, GRID, HARDLY, values=4)


# the work follows what was drawn, which is shown anyhow; at this ε no label has a say in that
HARDLY = Epsilon.parse("0.0001")
EIGHT = (Cells.even(len(IDS), 8),)
BINS = BinnedMeans(DOMAIN, EIGHT, len(IDS), Epsilon.parse("1"))
MEDIANS = BinnedMedians(DOMAIN, EIGHT, len(IDS), HARDLY)
SCORES, GRID, CONVEX = np.arange(len(IDS)), Poset.grid(2, 3), ShapeOptions(knots=2, steps=1, values=3)


def encrypting(index: Index) -> None:
    with ciphered(io.BytesIO(), bytes(32), "bat_1/labels-1.parquet") as file:
        file.write(index.astype(np.uint32).tobytes())


PLACES = np.random.default_rng(3).integers(0, 64, (len(IDS), 1))
RANKS = plan_quantiles(["0.5"], Epsilon.parse("1"), len(IDS), DOMAIN.k, method=EACH)
STEPS: dict[str, Step] = {name: drawing(name) for name in MECHANISMS}
STEPS |= {"reading": reading, "encryption": encrypting}
STEPS |= {"histogram": lambda index: np.bincount(index, minlength=DOMAIN.k)}
OF_A_MESSAGE = set(STEPS)
STEPS |= {"isotonic": lambda index: isotonic(np.arange(index.size), index, DOMAIN, index.size, Epsilon.parse("0.1"))}
STEPS |= {f"isotonic, {loss}": fitting(loss) for loss in ("squared", "absolute")}
STEPS |= {"median by ranks": median_by_ranks, "median by slices": median_by_slices(0)}
STEPS |= {
    "calibration by bins": lambda index: BINS.sums(SCORES, index),
    "calibration by medians": lambda index: MEDIANS.fit(SCORES, index),
    "isotonic, convex": convex,
    "partial order": in_a_grid,
}
STEPS |= {"median by slices, recursive": median_by_slices(20), "rectangle": rectangle, "adaptive training": adaptive}
for method in METHODS:
    STEPS[f"{method} learns"], STEPS[f"{method} answers"] = predicting(method)
# what they write to follows the labels, and how soon a processor can write there again, by a few nanoseconds
ADDRESSED = {"histogram", "isotonic, absolute", "median by ranks", "calibration by medians"}
# and how soon what is sorted by labels is in order
ADDRESSED |= {"median by slices", "median by slices, recursive", "rectangle", "adaptive training"}
ALPHA = 1e-6 / len(STEPS) / 2


def clocked(step: Step, index: Index) -> int:
    start = time.perf_counter_ns()
    step(index)
    return time.perf_counter_ns() - start


def timed(step: Step, low: Index, high: Index, seed: int = 0) -> tuple[list[int], list[int]]:
    """Nanoseconds of `low`, and of `high` less these, by pair."""
    rng, index = random.Random(seed), low.copy()
    usual, differences = [], []
    for _ in range(PAIRS):
        took = {}
        for which in rng.sample((0, 1), 2):
            index[:] = high if which else low
            took[which] = min(clocked(step, index) for _ in range(3))  # what else the machine does seldom lasts
        usual.append(took[0])
        differences.append(took[1] - took[0])
    return usual, differences


def chance(step: Step, low: Index, high: Index, allowed: float = 0.0, seed: int = 0) -> float:
    """How probable so one-sided differences are if none is above `allowed`, a share of the usual time."""
    usual, differences = timed(step, low, high, seed)
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


@pytest.mark.parametrize("name", cases(STEPS, lambda name: name in OF_A_MESSAGE))
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


@pytest.mark.parametrize(
    "name", cases(["one-bit", "reading", "encryption", "isotonic", "rectangle"], lambda name: name in OF_A_MESSAGE)
)
def test_control_a_fifth_longer_for_one_label_is_found(name: str) -> None:
    step, (low, high) = STEPS[name], vectors()
    usual = float(np.median(timeit.repeat(lambda: step(low), number=1, repeat=200)))

    def telling(index: Index) -> None:
        step(index)
        end = time.perf_counter() + (usual / 5 if index[32] > DOMAIN.k // 2 else 0)
        while time.perf_counter() < end:
            pass

    assert any(chance(telling, low, high, 0.02, seed) < ALPHA for seed in range(30))
