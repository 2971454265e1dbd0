"""Positions in a domain computed by arithmetic are those of a search among its values, for any range and number."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.domain import Domain

steps = st.sampled_from(["1", "0.1", "0.01", "0.3", "0.007", "2.5", "1000", "0.000000001"])


@st.composite
def ranges(draw: st.DrawFn) -> Domain:
    step, k = Decimal(draw(steps)), draw(st.integers(2, 5000))
    low = step * draw(st.one_of(st.integers(-10_000, 10_000), st.integers(-(2**41), 2**41)))
    return Domain.parse(f"{low:f}:{low + step * (k - 1):f}:{step:f}")


def searched(domain: Domain, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = np.searchsorted(domain.values, labels, side="right") - 1
    outside = (labels < domain.values[0]) | (labels > domain.values[-1]) | ~np.isfinite(labels)
    return np.clip(found, 0, domain.k - 1), outside


@given(ranges(), st.lists(st.floats(), max_size=30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=300)
def test_positions_are_those_of_a_search(domain: Domain, odd: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = domain.values
    at = values[rng.integers(0, domain.k, 200)]
    width = values[-1] - values[0]
    labels = np.concatenate(
        [
            at,
            np.nextafter(at, -np.inf),
            np.nextafter(at, np.inf),
            rng.uniform(values[0] - width / 4, values[-1] + width / 4, 200),
            np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 1e308, -1e308, *odd]),
        ]
    )
    index, outside = domain.index(labels)
    expected, beyond = searched(domain, labels)
    assert np.array_equal(outside, beyond)
    assert np.array_equal(index, expected)
