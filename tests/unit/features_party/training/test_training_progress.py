"""Whatever a progress report raises ends a training: every loop of both models reports."""

from __future__ import annotations

import itertools

import pytest

from features_party.training.learners import linear
from label_dp.domain import Domain
from tests.support.messages import world
from tests.support.training import fit

pytestmark = pytest.mark.extended

WORLD = world(500)


class Enough(Exception):
    """Somebody cancelled."""


@pytest.mark.parametrize(
    ("model", "loss", "step"),
    [
        ("ensemble", "squared", "fold 1 of 3, additive model"),
        ("ensemble", "squared", "fold 2 of 3, tree 3 of"),
        ("ensemble", "squared", "tree 3 of"),
        ("ensemble", "absolute", "effects of categories"),
        ("ensemble", "absolute", "tree 3 of"),
        ("linear", "squared", "moments"),
        ("linear", "poisson", "solving"),
    ],
)
def test_a_report_that_raises_ends_the_training(
    model: str, loss: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "CHUNK_ROWS", 100)
    seen: list[tuple[str, float]] = []

    def report(what: str, share: float) -> None:
        seen.append((what, share))
        if what.startswith(step):
            raise Enough

    with pytest.raises(Enough):
        fit(WORLD.features, WORLD.labels, domain=Domain.parse("0:10"), model=model, loss=loss, progress=report)
    assert seen[-1][0].startswith(step)


@pytest.mark.parametrize("model", ["ensemble", "linear"])
def test_shares_rise_to_one_at_most(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "CHUNK_ROWS", 100)
    shares: list[float] = []
    fit(WORLD.features, WORLD.labels, domain=Domain.parse("0:10"), model=model, progress=lambda _, s: shares.append(s))
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(shares))
    assert 0.4 < shares[-1] <= 1.0
