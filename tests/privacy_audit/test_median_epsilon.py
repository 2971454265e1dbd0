"""An auditor of medians: what many of them on neighbouring labels show bounds ε from below, never above what is paid,
and a median that draws at more than it is paid for is found.

The bound that must hold is wrong with probability at most ALPHA; that is how often this file fails by chance. δ is
checked exactly, over all noise, in `test_interval_point.py`, and what slices cost together over all transcripts in
`test_slice_accounting.py`, both of `tests/unit/labels_party/companions/mechanisms/private_median`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import EpsilonNotProved
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.companions.audit_bounds import audit
from labels_party.companions.kinds import median as medians_module
from labels_party.companions.kinds.median import SLICES, MedianKind, slices_plan
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median
from tests.support.asking import population as parse_population
from tests.support.coupling import Labels
from tests.support.jobs import job

pytestmark = pytest.mark.extended

ALPHA = 1e-6
RUNS = 1200

# the middle third of nine labels holds the replaced one, at either end of the domain
ONE, OTHER = ([0] * 4 + [end] + [7] * 4 for end in (0, 7))


def medians(labels: list[int], epsilon: int) -> list[int | None]:
    plan = MedianPlan(9, 8, Fraction(epsilon))
    points = np.array(labels, np.uint64)
    return [private_median(points, plan) for _ in range(RUNS)]


def test_medians_of_neighbours_never_prove_more_than_was_paid() -> None:
    assert audit(medians(ONE, 1), medians(OTHER, 1), ALPHA) <= 1


def test_control_a_median_drawn_at_four_times_its_epsilon_is_found() -> None:
    assert audit(medians(ONE, 4), medians(OTHER, 4), ALPHA) > 1


@pytest.mark.parametrize(("times", "more"), [(Fraction(1001, 1000), 0), (Fraction(1), 1)])
def test_a_median_that_costs_more_than_was_charged_reads_no_label(
    times: Fraction, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain, labels = Domain.parse("0:4095"), Labels((7,) * 900)
    population = parse_population("told", "label", domain, "10", lifetime_delta="0.001")
    split = EpsilonSplit(ZERO, ZERO, Epsilon.parse(1), 10**9)
    given = job(population, labels, 900, split, {"method": SLICES})
    kind = MedianKind(SigningKey.generate())
    assert kind.compute(given).result["found"] in (True, False)
    assert labels.passes == 1

    def dearer(n: int, k: int, epsilon: Epsilon, delta: int) -> MedianPlan:
        return slices_plan(n, k, Epsilon.round_up(epsilon.fraction * times), delta + more)

    monkeypatch.setattr(medians_module, "slices_plan", dearer)
    with pytest.raises(EpsilonNotProved, match="costs more than was charged"):
        kind.compute(given)
    assert labels.passes == 1
