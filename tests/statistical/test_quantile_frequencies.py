"""Frequencies of private quantiles against their closed form: χ² at α = 10⁻⁶ per setting, 4·10⁻⁶ for the file.

Draws come from the operating system. A wrong c, and a loss of the wrong quantile, must fail the same test. OpenDP's
quantile is an oracle that shares no code with this one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from label_dp.privacy import Epsilon
from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.quantiles import (
    EACH,
    QuantilePlan,
    histogram_quantiles,
    plan_quantiles,
    quantiles,
)
from tests.statistical.test_opendp_oracle import same_source
from tests.statistical.test_sampler_frequencies import ALPHA, p_value

pytestmark = pytest.mark.extended

DRAWS = 20_000
COUNTS = np.array([30, 0, 7, 1, 0, 0, 12, 4])
N, K = int(COUNTS.sum()), COUNTS.size
FloatArray = npt.NDArray[np.float64]


def closed_form(quantile: float, rate: float) -> FloatArray:
    """float64[K]: e^(−c · labels by which a point misses the quantile), normalised."""
    labels = np.repeat(np.arange(K), COUNTS)
    missed = [max(0.0, float(np.sum(labels < v)) - quantile * N, quantile * N - np.sum(labels <= v)) for v in range(K)]
    weights = np.exp(-rate * np.array(missed))
    return np.asarray(weights / weights.sum(), np.float64)


def plan(quantile: str, epsilon: str) -> QuantilePlan:
    return plan_quantiles([quantile], Epsilon.parse(epsilon), N, K, method=EACH)


def drawn(quantile: str, epsilon: str) -> npt.NDArray[np.int64]:
    made, stream = plan(quantile, epsilon), Keystream()
    return np.bincount([histogram_quantiles(COUNTS, made, stream)[0] for _ in range(DRAWS)], minlength=K)


@pytest.mark.parametrize(("quantile", "epsilon"), [("0.5", "0.2"), ("0.95", "1")])
def test_histograms(quantile: str, epsilon: str) -> None:
    assert p_value(drawn(quantile, epsilon), closed_form(float(quantile), float(epsilon) / 2)) > ALPHA


def test_labels_of_a_range_that_is_not_listed() -> None:
    """Each point stands for 2⁴⁰ of them; which of those is drawn has the same probability for all."""
    labels = np.repeat(np.arange(K), COUNTS) * (1 << 40) + (1 << 39)
    made, stream = plan_quantiles(["0.7"], Epsilon.parse("0.1"), N, K << 40, method=EACH), Keystream()
    found = np.array([quantiles(labels, K << 40, made, stream)[0] for _ in range(DRAWS // 4)])
    edges = np.flatnonzero(COUNTS) * (1 << 40) + (1 << 39)
    losses = [max(0.0, below - 0.7 * N, 0.7 * N - below) for below in np.append(0, np.cumsum(COUNTS[COUNTS > 0]))]
    widths = np.diff(np.concatenate([[0], edges, [K << 40]]))  # points between labels; the labels themselves are few
    weights = widths * np.exp(-0.05 * np.array(losses))
    counts = np.bincount(np.searchsorted(edges, found, side="right"), minlength=widths.size)
    assert p_value(counts, weights / weights.sum()) > ALPHA


def test_control_a_wrong_rate_and_a_wrong_quantile_are_noticed() -> None:
    counts = drawn("0.5", "0.2")
    assert p_value(counts, closed_form(0.5, 0.105 * 2)) < ALPHA
    assert p_value(counts, closed_form(0.55, 0.1)) < ALPHA


def regions(points: list[int], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many points lie below, between and above the labels."""
    return np.bincount(np.searchsorted(labels, points, side="right"), minlength=labels.size + 1)


def test_opendp_draws_the_same_at_the_same_rate() -> None:
    """Few labels in a wide range: losses differ from OpenDP's scores at the labels themselves only."""
    labels, size, scale = np.array([40, 90, 150, 160, 200, 280]), 400, 2.0
    theirs = regions(by_opendp(labels, 0.75, size, scale, 1500), labels)
    stream = Keystream()

    def ours(epsilon: str) -> npt.NDArray[np.int64]:
        made = plan_quantiles(["0.75"], Epsilon.parse(epsilon), labels.size, size)
        return regions([quantiles(labels, size, made, stream)[0] for _ in range(6000)], labels)

    assert same_source(ours("1"), theirs) > ALPHA
    assert same_source(ours("2"), theirs) < ALPHA  # the control


def by_opendp(labels: npt.NDArray[np.int64], quantile: float, size: int, scale: float, runs: int) -> list[int]:
    """The exponential mechanism of OpenDP over the candidates 0 … size − 1, as the largest score with Gumbel noise of
    that scale, for a known number of labels: c = 1/scale."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_private_quantile
    from opendp.measures import zero_concentrated_divergence
    from opendp.metrics import symmetric_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i32"), size=labels.size)
    measures = symmetric_distance(), zero_concentrated_divergence()
    draw = make_private_quantile(domain, *measures, candidates=list(range(size)), alpha=quantile, scale=scale)
    return [int(draw(labels.tolist())) for _ in range(runs)]
