"""The card's intervals hold the error of the FINAL model, which saw all rows, though models of folds were judged.

Held by at least the 10⁻⁶ quantile of the binomial of a nominal 95 %: a right interval fails once in 10⁶. The control, a
quarter of the width, falls below it. `make soak PARTS=error_intervals` makes 1,000 draws for each channel and data set.
"""

from __future__ import annotations

import numpy as np
import pytest

from features_party.training.estimate import Identified, estimate
from features_party.training.intervals import Interval
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support import real_data
from tests.support.final_errors import Rows, coverage

pytestmark = pytest.mark.extended

DRAWS, TRAINED = 80, 600


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "used"), [("one-bit", "2", None), ("discrete-laplace", "8", None), ("one-bit", "4", 1)]
)
def test_intervals_hold_the_final_models_error(mechanism: str, epsilon: str, used: int | None) -> None:
    rows = Rows.of(real_data.bike(0))
    even = np.full(rows.domain.k, 1.0 / rows.domain.k)
    channel = MECHANISMS[mechanism].design(rows.domain, even, Epsilon.parse(epsilon), "squared", {})
    found = coverage(rows, channel, np.random.default_rng(8), TRAINED, DRAWS, used=used)
    assert ("mse" in found) == (mechanism != "one-bit")
    for one in found.values():
        assert one.tried == DRAWS
        assert one.held >= one.bound
        assert one.narrow < one.bound


def test_a_squared_error_is_never_below_zero() -> None:
    """Much noise and few rows: the estimate stays unbiased, its interval is cut; the gain may have either sign."""
    rng = np.random.default_rng(2)
    noise = rng.normal(0.0, 50.0, 100)
    noise -= noise.mean()
    f, known = rng.normal(size=100), Identified(0.0, noise, noise**2 - 2600.0, 0.0, "planted")
    found = estimate(f, 0.0, known, np.arange(100))
    assert found.mse is not None
    assert found.constant_mse is not None
    for said in (found.mse, found.constant_mse):
        assert said.low == 0.0
        assert said.high >= 0.0
        assert said.estimate - 1.96 * said.standard_error < 0.0
    assert found.mse_below_constant.low < 0.0
    assert Interval(-9.0, 1.0, -11.0, -7.0).of_loss == Interval(-9.0, 1.0, 0.0, 0.0)
    assert Interval(3.0, 1.0, 1.0, 5.0).of_loss == Interval(3.0, 1.0, 1.0, 5.0)
