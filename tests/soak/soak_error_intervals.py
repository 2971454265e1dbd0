"""A thousand draws for each channel and data set: 95 % intervals of a final model's error hold the true one.

Rows, draw and models anew each time; the truth comes from rows that nobody trained on.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support import real_data
from tests.support.final_errors import Rows, coverage

DRAWS, TRAINED = 1000, 2000
CHANNELS = [("one-bit", "1"), ("unbiased", "2"), ("discrete-laplace", "4"), ("rr", "8")]


@pytest.mark.parametrize(("mechanism", "epsilon"), CHANNELS)
@pytest.mark.parametrize("data", ["bike", "retail"])
def test_error_intervals(data: str, mechanism: str, epsilon: str, scale: Scale, report: Report) -> None:
    rows = Rows.of(getattr(real_data, data)(0))
    even = np.full(rows.domain.k, 1.0 / rows.domain.k)
    channel = MECHANISMS[mechanism].design(rows.domain, even, Epsilon.parse(epsilon), "squared", {})
    rng, until = np.random.default_rng(scale.seed), time.monotonic() + scale.seconds
    found = coverage(rows, channel, rng, TRAINED, DRAWS, until)
    said = ", ".join(f"{name} {one.held / one.tried:.1%}" for name, one in found.items())
    tried, held = sum(one.tried for one in found.values()), sum(one.held for one in found.values())
    report.row(tried, held, f"stated 95 %, held: {said}")
    for one in found.values():
        assert one.held >= one.bound
        assert one.narrow < one.bound
