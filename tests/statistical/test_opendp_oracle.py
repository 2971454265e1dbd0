"""OpenDP as an oracle that shares no code with the samplers here: randomized response, discrete Laplace, exponential.

Its privacy maps must give the ε that is charged, its draws must look like ours: two-sample χ² at α = 10⁻⁶ each, 2·10⁻⁵
for the file. Every comparison is shown to fail for a mechanism of a fifth more ε (exponential: of twice as much), which
chance would hide with probability below 10⁻¹¹. OpenDP has no staircase, no one-bit and no optimised channels; the noise
of priors is OpenDP's own sampler and is compared with the formula elsewhere.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from label_dp.channels.base import Channel, N
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.entropy import float_not_below
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.sampling import sample
from tests.support.cases import cases

ALPHA = 1e-6
OURS, THEIRS = 200_000, 20_000
FIFTH_MORE = {"1": "1.2", "2": "2.4", "3": "3.6"}


@pytest.fixture(scope="module", autouse=True)
def contrib() -> None:
    from opendp.mod import enable_features

    enable_features("contrib")


def loss(measurement: Any, distance: int) -> float:
    """What its privacy map says of inputs at that distance."""
    return float(measurement.map(distance))


def same_source(one: np.ndarray, two: np.ndarray) -> float:
    """p-value of χ² that two vectors of counts come from one distribution; cells of fewer than 20 in all are pooled."""
    both = one + two
    thin = both < 20
    if thin.any():
        one, two = (np.append(counts[~thin], counts[thin].sum()) for counts in (one, two))
        both = one + two
    keep = both > 0
    a, b = math.sqrt(two.sum() / one.sum()), math.sqrt(one.sum() / two.sum())
    statistic = float((((a * one - b * two)[keep]) ** 2 / both[keep]).sum())
    return float(chi2.sf(statistic, int(keep.sum()) - 1))


def channel_of(name: str, domain: str, epsilon: str, **options: Any) -> Channel:
    return MECHANISMS[name].design(Domain.parse(domain), None, Epsilon.parse(epsilon), "squared", options)


def ours(channel: Channel, position: int) -> np.ndarray:
    return np.bincount(sample(channel, np.full(OURS, position)), minlength=channel.m)


# --- privacy maps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0.05", "0.3", "1", "2.5", "6"])
@pytest.mark.parametrize("d", [2, 3, 17, 256])
def test_randomized_response_of_our_weights_has_the_charged_epsilon(epsilon: str, d: int) -> None:
    from opendp.measurements import make_randomized_response

    A, _ = rr_weights(Epsilon.parse(epsilon), d)
    theirs = loss(make_randomized_response(list(range(d)), prob=A / N), 1)
    assert theirs == pytest.approx(float(epsilon), rel=1e-12)
    a_hundredth_more, _ = rr_weights(Epsilon.round_up(Epsilon.parse(epsilon).fraction * 101 / 100), d)
    assert loss(make_randomized_response(list(range(d)), prob=a_hundredth_more / N), 1) > float(epsilon) * 1.009


@pytest.mark.parametrize("nano", [50_000_000, 123_456_789, 10**9, 3_333_333_333, 10**10])
def test_the_noise_of_priors_has_the_charged_epsilon(nano: int) -> None:
    """Replacing a label moves two counts by one each: an L1 distance of 2."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance

    scale = float_not_below(prior_module.SENSITIVITY / Epsilon(nano).fraction)
    noise = make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale)
    # their map rounds 2/scale up to the next float
    assert Fraction(loss(noise, 2)) <= Fraction(math.nextafter(float(Epsilon(nano)), math.inf))
    assert loss(noise, 2) == pytest.approx(nano / 10**9, rel=1e-12)
    assert loss(noise, 4) > nano / 10**9 * 1.9


# --- draws ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "d"), cases([("1", 2), ("2", 7), ("3", 30)], lambda case: case[1] == 7))
def test_randomized_response_is_drawn_alike(epsilon: str, d: int) -> None:
    from opendp.measurements import make_randomized_response

    own = d // 2
    share = 1 / (1 + (d - 1) * math.exp(-float(epsilon)))
    draw = make_randomized_response(list(range(d)), prob=share)
    theirs = np.bincount([draw(own) for _ in range(THEIRS)], minlength=d)
    assert same_source(ours(channel_of("rr", f"1:{d}", epsilon), own), theirs) > ALPHA
    assert same_source(ours(channel_of("rr", f"1:{d}", FIFTH_MORE[epsilon]), own), theirs) < ALPHA


@pytest.mark.parametrize(
    ("epsilon", "top", "position"), cases([("2", 8, 4), ("1", 5, 0), ("3", 12, 11)], lambda case: case[1] == 8)
)
def test_discrete_laplace_noise_clipped_to_the_domain_is_drawn_alike(epsilon: str, top: int, position: int) -> None:
    """OpenDP's noise without bounds, clipped here: clipping only moves mass to the ends."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_geometric
    from opendp.metrics import l1_distance

    space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    drawn = np.array(make_geometric(*space, scale=top / float(epsilon))([position] * THEIRS))
    theirs = np.bincount(np.clip(drawn, 0, top), minlength=top + 1)
    assert same_source(ours(channel_of("discrete-laplace", f"0:{top}", epsilon), position), theirs) > ALPHA
    sharper = channel_of("discrete-laplace", f"0:{top}", FIFTH_MORE[epsilon])
    assert same_source(ours(sharper, position), theirs) < ALPHA


@pytest.mark.extended
@pytest.mark.parametrize("tight", [False, True])
def test_the_exponential_mechanism_is_drawn_alike(tight: bool) -> None:
    """Of scores −|v − y| with Gumbel noise the highest follows e^(score/scale): scale 2Δ/ε in the paper, Δ/ε tight."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_max
    from opendp.measures import zero_concentrated_divergence
    from opendp.metrics import linf_distance

    top, epsilon, position = 6, 3.0, 5
    space = vector_domain(atom_domain(T=float, nan=False)), linf_distance(T=float)
    scale = (1 if tight else 2) * top / epsilon
    highest = make_noisy_max(*space, zero_concentrated_divergence(), scale=scale)
    scores = [-abs(float(v - position)) for v in range(top + 1)]
    theirs = np.bincount([highest(scores) for _ in range(THEIRS)], minlength=top + 1)
    right, other = (channel_of("exponential", f"0:{top}", "3", tight=flag) for flag in (tight, not tight))
    assert same_source(ours(right, position), theirs) > ALPHA
    assert same_source(ours(other, position), theirs) < ALPHA


def test_two_samples_of_one_source_are_told_apart_as_rarely_as_alpha_says() -> None:
    rng = np.random.default_rng(4)
    p = np.array([0.5, 0.3, 0.15, 0.05])
    values = [same_source(rng.multinomial(5000, p), rng.multinomial(800, p)) for _ in range(2000)]
    assert 0.03 < np.mean(np.array(values) < 0.05) < 0.07
