"""Capacity and weights from how often labels come are those from the rows themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from features_party.training.fitting import judged


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("spread", [10.0, math.inf])
def test_rows_that_stand_for_several(levels: int, spread: float) -> None:
    rng = np.random.default_rng(0)
    noise = rng.choice([4.0, 9.0, 30.0][:levels], 60)
    labels, often = rng.normal(3.0, np.sqrt(noise + 2.0)), rng.integers(1, 50, 60).astype(np.float64)
    which = np.repeat(np.arange(60), often.astype(int))
    capacity, weights = judged(labels, noise, spread, often)
    whole, every = judged(labels[which], noise[which], spread)
    assert capacity.model_dump(exclude={"why"}) == pytest.approx(whole.model_dump(exclude={"why"}))
    assert (weights is None) == (every is None) == (levels == 1)
    if weights is not None and every is not None:
        assert weights[which] == pytest.approx(every)
