"""About how long a training still takes, by how long it took so far."""

from __future__ import annotations

import pytest

from features_party.models.jobs import Losses
from features_party.training.progress import foretold


@pytest.mark.parametrize(
    ("spent", "share", "said"),
    [
        (1.0, 0.5, "tree 3 of 9"),  # too early to tell
        (60.0, 0.01, "tree 3 of 9"),
        (29.0, 0.25, "tree 3 of 9, about 85 s left"),
        (30.0, 0.24, "tree 3 of 9, about 2 min left"),
        (10.0, 0.2, "tree 3 of 9, about 40 s left"),
        (10.0, 0.9, "tree 3 of 9, about 5 s left"),
        (600.0, 0.05, "tree 3 of 9, about 190 min left"),
        (10.0, 1.0, "tree 3 of 9"),
    ],
)
def test_the_rest_takes_as_long_as_its_share_says(spent: float, share: float, said: str) -> None:
    heard: list[tuple[str, float]] = []
    times = iter([100.0, 100.0 + spent])
    told = foretold(lambda what, at: heard.append((what, at)), lambda: next(times))
    told("tree 3 of 9", share)
    assert heard == [(said, share)]


def test_a_curve_is_not_named_after_the_time_that_is_left() -> None:
    losses = Losses()
    for at, left in enumerate(("", ", about 5 s left", ", about 2 min left"), 1):
        losses.heard(f"fold 1 of 3, tree {at} of 9{left}")
        losses.watch(at, 9.0 - at)
    losses.heard("tree 1 of 9, about 5 s left")
    losses.watch(1, 1.0)
    assert [curve["name"] for curve in losses.as_json()] == ["fold 1 of 3", "model"]
