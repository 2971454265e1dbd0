"""Messages of different ranges of one domain, each with its own centre, in one estimate."""

from __future__ import annotations

import numpy as np
import pytest

from features_party.training.holdout import estimate_on_rows
from tests.support.messages import rr


def test_messages_of_different_ranges_are_judged_about_one_centre() -> None:
    """At ε = 30 outputs are labels, so the estimate is the error itself."""
    rng = np.random.default_rng(0)
    channels = [rr("0:10", 30.0, cuts=tuple(range(1, 11))), rr("0:4", 30.0, cuts=tuple(range(1, 5)))]
    message = rng.integers(0, 2, 500)
    bins = np.where(message == 0, rng.integers(0, 11, 500), rng.integers(0, 5, 500))
    f, labels = rng.normal(4.0, 2.0, 500), bins.astype(np.float64)
    found = estimate_on_rows(f, 5.0, channels, message, bins, np.arange(500))
    assert found.mse is not None
    assert found.mse.estimate == pytest.approx(np.mean((f - labels) ** 2))
    assert found.mse_below_constant.estimate == pytest.approx(np.mean((5.0 - labels) ** 2 - (f - labels) ** 2))
