"""An auditor of rectangles and linear models, from the owner's table and sealed labels to the answer: what many of them
on neighbouring examples, label *and* features replaced, show bounds ε from below, never above what is paid.

Each bound that must hold is wrong with probability at most ALPHA; that is how often a test here fails by chance.
What adaptive slices cost over all transcripts is checked in
`tests/unit/labels_party/companions/mechanisms/private_median/test_slice_accounting.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.domain import Domain
from label_dp.errors import EpsilonNotProved
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.companions.audit_bounds import audit
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.companions.kinds.linear_model import LinearModelKind
from labels_party.companions.kinds.own_features import Planned
from labels_party.companions.kinds.rectangle import RectangleKind
from tests.support.asked import planned as plan_of
from tests.support.asking import population as parse_population
from tests.support.jobs import job

pytestmark = pytest.mark.extended

ALPHA = 1e-6
RUNS = 400
POPULATION = parse_population("shop", "revenue", Domain.parse("0:10"), "10")
X = [{"name": "x", "range": [0, 7]}]
Example = tuple[float, float | None]  # label, feature


class Stored:
    """What is at rest: a table of features, in an order of its own, or sealed labels."""

    def __init__(self, data: list[Example]) -> None:
        self.ids = [f"c-{i}" for i in range(len(data))]
        self.data = data

    def scan(self, _key: str) -> Iterator[pa.RecordBatch]:
        table = pa.table({"example_id": self.ids, "x": pa.array([x for _, x in self.data], pa.float64())})
        yield from table.take(list(reversed(range(len(self.ids))))).to_batches()

    def chunks(self) -> Iterator[tuple[Any, Any]]:
        yield pa.array(self.ids), np.array([int(label) for label, _ in self.data], np.int64)


def answered(kind: Any, data: list[Example], planned: Planned, paid: EpsilonSplit | None = None) -> dict[str, Any]:
    """What one answer of such examples shows."""
    stored: Any = Stored(data)
    given = job(POPULATION, stored, len(data), paid or planned.split, planned.parameters, features="key")
    nothing: Any = None
    found: dict[str, Any] = kind(nothing, FeatureStore(nothing, nothing, stored)).compute(given).result
    return found


def rectangles(data: list[Example], epsilon: int) -> list[tuple[Any, ...]]:
    of, n = POPULATION.domain, len(data)
    planned = plan_of(RectangleKind, of, n, epsilon=epsilon, threshold=5, features=X, bits=3, slice=n // 2)
    runs = (answered(RectangleKind, data, planned)["sides"][0] for _ in range(RUNS))
    return [(side["first"], side["last"]) for side in runs]


def models(data: list[Example], epsilon: int) -> list[bool]:
    of, n = POPULATION.domain, len(data)
    planned = plan_of(LinearModelKind, of, n, epsilon=epsilon, features=X, rule="hardest", steps=1, minibatch=1)
    runs = (answered(LinearModelKind, data, planned) for _ in range(RUNS))
    return [float(run["constant"]) + float(run["weights"][0]["weight"]) > 0 for run in runs]


# an end of either slice hangs on the example that is replaced, and so does the gradient of a minibatch
RECTANGLES = [(9.0, 0.0), (9.0, 7.0), (9.0, 7.0), (9.0, 7.0)], [(1.0, None), (9.0, 7.0), (9.0, 7.0), (9.0, 7.0)]
MODELS = [(10.0, 7.0), (5.0, 3.5)], [(0.0, 7.0), (5.0, 3.5)]


@pytest.mark.parametrize(("draw", "pair"), [(rectangles, RECTANGLES), (models, MODELS)])
def test_answers_about_neighbours_never_prove_more_than_was_paid(draw: Any, pair: Any) -> None:
    assert audit(*(draw(data, 1) for data in pair), ALPHA) <= 1


@pytest.mark.parametrize(("draw", "pair"), [(rectangles, RECTANGLES), (models, MODELS)])
def test_control_answers_drawn_at_eight_times_their_epsilon_are_found(draw: Any, pair: Any) -> None:
    assert audit(*(draw(data, 8) for data in pair), ALPHA) > 1


def test_an_answer_that_costs_more_than_was_charged_reads_no_label() -> None:
    data, domain = RECTANGLES[0], POPULATION.domain
    wishes: list[tuple[Any, Any]] = [
        (RectangleKind, {"threshold": 5, "bits": 3, "slice": 2}),
        (LinearModelKind, {"steps": 2}),
    ]
    for kind, members in wishes:
        planned = plan_of(kind, domain, len(data), epsilon=2, features=X, **members)
        with pytest.raises(EpsilonNotProved, match="costs more than was charged"):
            answered(kind, data, planned, EpsilonSplit(ZERO, ZERO, Epsilon.parse("1.999999998")))
        assert answered(kind, data, planned, EpsilonSplit(ZERO, ZERO, Epsilon.parse(2)))
