"""Properties of the bin solver that hold for any prior, ε and loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labels_party.mechanisms.bins import solve_bins

LOSSES = st.sampled_from(["squared", "absolute", "poisson"])


@st.composite
def instances(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    weights = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=25).filter(any))
    gaps = draw(st.lists(st.integers(1, 50), min_size=len(weights), max_size=len(weights)))
    p = np.array(weights, dtype=float)
    return p / p.sum(), np.cumsum(gaps).astype(float)


small = st.integers(1, 12 * 10**9).map(lambda nano: nano / 10**9)


@given(instances(), small, LOSSES)
@settings(max_examples=150, deadline=None)
@example((np.array([0.0, 1.0]), np.array([1.0, 2.0])), 1.0, "squared")  # nothing to lose: a gap of 1 was reported
@example((np.array([0.0, 1.0]), np.array([1.0, 2.0])), 1.0, "absolute")
@example((np.array([0.0, 1.0]), np.array([1.0, 2.0])), 1.0, "poisson")
def test_shape_order_and_range(instance: tuple[np.ndarray, np.ndarray], epsilon: float, loss: str) -> None:
    p, y = instance
    result = solve_bins(p, y, epsilon, loss)
    assert result.boundaries[0] == 0
    assert result.boundaries[-1] == y.size
    assert np.all(np.diff(result.boundaries) > 0)
    assert np.all(np.diff(result.values) > 0)
    assert result.values[0] >= y[0] - 1e-9
    assert result.values[-1] <= y[-1] + 1e-9
    assert result.gap <= 1e-6


@given(instances(), small, LOSSES)
@settings(max_examples=100, deadline=None)
def test_more_privacy_never_costs_less(instance: tuple[np.ndarray, np.ndarray], epsilon: float, loss: str) -> None:
    p, y = instance
    tight, loose = solve_bins(p, y, epsilon, loss), solve_bins(p, y, round(epsilon * 1.5, 9), loss)
    assert loose.expected_loss <= tight.expected_loss * (1 + 1e-9) + 1e-12


@given(instances(), small)
@settings(max_examples=100, deadline=None)
def test_squared_and_absolute_follow_shifts_and_scales(instance: tuple[np.ndarray, np.ndarray], epsilon: float) -> None:
    p, y = instance
    for loss, power in (("squared", 2), ("absolute", 1)):
        plain, moved = solve_bins(p, y, epsilon, loss), solve_bins(p, 4.0 * y + 1024.0, epsilon, loss)
        assert moved.expected_loss == pytest.approx(4.0**power * plain.expected_loss, rel=1e-9, abs=1e-12)


@given(instances(), small)
@settings(max_examples=100, deadline=None)
def test_mirrored_labels_cost_the_same(instance: tuple[np.ndarray, np.ndarray], epsilon: float) -> None:
    p, y = instance
    for loss in ("squared", "absolute"):
        plain, mirrored = solve_bins(p, y, epsilon, loss), solve_bins(p[::-1], -y[::-1], epsilon, loss)
        assert mirrored.expected_loss == pytest.approx(plain.expected_loss, rel=1e-9, abs=1e-12)
