"""Loss curves of trainings: heard from trees and networks, kept short, shown on the page of the training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from features_party.models.jobs import MOST_CURVES, MOST_POINTS, Losses
from features_party.training.fitting import Examples, Recipe, fit
from tests.support.features_api import Api, message_files, running
from tests.support.messages import Sender, one_bit, world
from tests.support.pages import signed_in

pytestmark = pytest.mark.extended


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    sender, sent = Sender(), world(1_000)
    with running(tmp_path, sender) as api:
        api.accept(message_files(sender, tmp_path / "sent", sent, one_bit(epsilon=3.0)))
        yield api


def examples() -> Examples:
    import pyarrow as pa

    x = np.random.default_rng(1).uniform(0, 10, 600)
    return Examples(pa.table({"x": x}), np.round(x), np.zeros(len(x)), None, unbiased=True)


def test_trees_tell_a_loss_that_falls_and_the_page_draws_it(api: Api) -> None:
    training = api.trainer.post(
        "/v1/trainings", json={"feature_table": api.table(), "messages": ["rel_1"], "model": "trees"}
    ).json()["id"]
    assert api.finished(training)["state"] == "succeeded"
    (curve,) = api.services.trainings.losses(training)
    places, losses = zip(*curve["points"], strict=True)
    assert list(places) == sorted(set(places))
    assert losses[-1] < losses[0]
    assert "losses" not in api.trainer.get(f"/v1/trainings/{training}").json()
    page = signed_in(api.trainer).get(f"/trainings/{training}").text
    assert "<svg" in page
    assert "Loss on privatized labels" in page


def test_whoever_watches_changes_no_model() -> None:
    seen: list[tuple[int, float]] = []
    watched, _ = fit(examples(), Recipe("trees", "squared"), watch=lambda *told: seen.append(told))
    alone, _ = fit(examples(), Recipe("trees", "squared"))
    assert watched.as_json() == alone.as_json()
    assert seen


def test_curves_are_few_and_short() -> None:
    losses = Losses()
    for fold in range(7):
        for tree in range(1, 1001):
            losses.heard(f"fold {fold} of 7, trees, tree {tree} of 1000")
            losses.watch(tree, 1.0 / tree)
    curves = losses.as_json()
    assert [c["name"] for c in curves] == [f"fold {fold} of 7, trees" for fold in range(3, 7)]
    assert len(curves) == MOST_CURVES
    for curve in curves:
        assert len(curve["points"]) <= MOST_POINTS
        assert curve["points"][0][0] == 1
        assert curve["points"][-1][0] > 900
    losses.heard("fold 6 of 7, trees, tree 1 of 5")
    losses.watch(1, 9.0)  # the same name again begins anew
    assert losses.as_json()[-1]["points"] == [[1, 9.0]]
