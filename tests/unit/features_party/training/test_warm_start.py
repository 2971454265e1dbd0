"""A warm start looks among the choices of an earlier model alone, says so, and still asks the new labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training.learners.crossfit import ADDITIVE, FORWARD, PROCESS, FoldPlan
from features_party.training.model import TrainedModel
from features_party.training.warm import Warm
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from tests.support.training import fit

pytestmark = pytest.mark.extended

TEN = Domain.parse("0:10")
N = 4000


def day(seed: int) -> tuple[pa.Table, npt.NDArray[np.float64]]:
    """Prices of 80 values that have an effect each, and a smooth number."""
    rng = np.random.default_rng(seed)
    price, size = rng.integers(1, 81, N), rng.uniform(size=N)
    of_price = 8.0 * np.random.default_rng(77).integers(0, 2, 81)
    return pa.table({"price": price - 0.01, "size": size}), of_price[price] + 2.0 * size + rng.normal(size=N)


def trained(seed: int, **options: Any) -> tuple[TrainedModel, list[str]]:
    """The model of a day, and the steps of its training without digits."""
    steps: list[str] = []
    table, labels = day(seed)
    asked = {"noise_variance": 1.0, "domain": TEN, "unbiased": True} | options
    model = fit(table, labels, progress=lambda what, _share: steps.append(what), **asked)
    return model, steps


@pytest.fixture(scope="module")
def yesterday() -> TrainedModel:
    return trained(1)[0]


@pytest.fixture(scope="module")
def today(yesterday: TrainedModel) -> TrainedModel:
    """A model of the next day, among what yesterday's chose."""
    return trained(2, warm=warm(yesterday))[0]


def warm(model: TrainedModel, kind: str = "ensemble", loss: str = "squared") -> Warm:
    return Warm.of(model, kind, loss, ["rel_1", "rel_2"])


def names(model: TrainedModel) -> set[str]:
    return {member["name"] for member in model.body.members() if member["weight"] > 0.0}


def test_a_warm_start_adds_no_members_or_crossings_to_the_earlier_model(
    yesterday: TrainedModel, today: TrainedModel
) -> None:
    found = warm(yesterday)
    assert found.members == names(yesterday)
    assert found.crossings == {"price"}
    assert names(today) <= names(yesterday)
    assert [crossing.name for crossing in today.schema.crossings] == ["price"]
    assert any("rel_1, rel_2" in note and "depends on the messages" in note for note in today.notes)
    alone = Warm(frozenset({"trees"}), frozenset(), "note")
    model, steps = trained(2, warm=alone)
    assert names(model) == {"trees"}
    assert model.schema.crossings == ()
    assert not any("additive" in step or PROCESS in step for step in steps)


def test_new_labels_that_say_nothing_are_not_believed(yesterday: TrainedModel) -> None:
    """The earlier model's crossing and members are looked at, and found to be nothing."""
    table, _ = day(3)
    noise = np.random.default_rng(3).normal(size=N)
    model = fit(table, 5.0 + noise, noise_variance=1.0, domain=TEN, unbiased=True, warm=warm(yesterday))
    assert model.schema.crossings == ()
    assert float(np.std(model.predict(table))) < 0.1


def test_it_is_as_good_as_one_that_looked_for_itself(today: TrainedModel) -> None:
    """On the labels of a third day; chance of one draw is below 5 % here."""
    table, labels = day(4)
    errors = [float(np.mean((model.predict(table) - labels) ** 2)) for model in (trained(2)[0], today)]
    assert errors[1] < 1.05 * errors[0] < 0.2 * float(np.var(labels))


def test_what_members_stand_on_is_fitted_with_them() -> None:
    plan = FoldPlan.among(frozenset({"trees on top", "through the channel"}))
    assert all(plan.wants(group) for group in ("trees on top", FORWARD, ADDITIVE))
    assert not plan.wants(PROCESS)
    assert not plan.wants("trees")
    assert FoldPlan.among(None).wants(PROCESS)


@pytest.mark.parametrize(("kind", "loss"), [("trees", "squared"), ("ensemble", "absolute"), ("linear", "squared")])
def test_choices_of_another_kind_or_loss_are_refused(yesterday: TrainedModel, kind: str, loss: str) -> None:
    with pytest.raises(InvalidInput, match=f"This training is '{kind}' under the {loss} loss"):
        warm(yesterday, kind, loss)


def test_many_releases_are_counted(yesterday: TrainedModel) -> None:
    note = Warm.of(yesterday, "ensemble", "squared", [f"rel_{at}" for at in range(14)]).note
    assert note.endswith("rel_9 and 4 more")
