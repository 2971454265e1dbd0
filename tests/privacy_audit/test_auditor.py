"""An auditor that knows only what comes out bounds ε from below: never above what was charged, and above it for a leak.

Label vectors that differ in one label are released many times, the prior and the bins made anew each time. All bounds
of this file that must hold are wrong together with probability at most ALPHA; that is how often it fails by chance.

What it can see, at these sizes: 100,000 draws of one channel prove more than 0.9 of an ε of 1, and a tenth too much is
found; 2400 releases with a prior of their own prove about half of what prior and labels together may leak; 46 published
releases of an ε of 0.2 prove 0.29 of a leak, as a prior without noise is. `tests/soak/soak_privacy.py` takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_dp.privacy import Epsilon
from labels_party.companions.audit_bounds import audit, epsilon_bound, lower_bound, power, upper_bound
from labels_party.mechanisms import one_bit, quantiles, sampling
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support.exact_matrix import CASES
from tests.support.pipeline_audit import by_functions, published

ALPHA = 1e-6
AUDITS = len(CASES) + 6  # as many bounds must hold
EACH = ALPHA / AUDITS
MANY, SOME, BOUGHT, FEW = 100_000, 2400, 1200, 46

# the chosen example comes first; its label is 1, or 0 in the neighbouring vector
PRIORS: list[tuple[str, list[int], dict[str, Any]]] = [
    ("2", [1], {"mechanism": "rr-on-bins", "prior": "estimate", "prior_epsilon": "1.9", "prior_method": "clip"}),
    ("2", [1, 0, 1], {"mechanism": "rr-with-prior", "prior": "estimate", "prior_epsilon": "1"}),
    (
        "2",
        [1, 0, 1],
        {"mechanism": "one-bit", "options": {"clip": "auto"}, "prior": "estimate", "prior_epsilon": "1"},
    ),
]
# a bound, a prior on the domain below it and the labels: the median lies between the chosen example's two labels
BOUNDS: list[tuple[list[int], dict[str, Any]]] = [
    ([6, *[0] * 4, *[6] * 4], {"clip_quantiles": ("0.5",), "clip_epsilon": Epsilon.parse("2"), "mechanism": "one-bit"}),
    (
        [6, *[0] * 4, *[6] * 4],
        {
            "clip_quantiles": ("0.49", "0.51"),
            "clip_epsilon": Epsilon.parse("2"),
            "mechanism": "rr-on-bins",
            "prior_epsilon": "0.2",
        },
    ),
]
PUBLISHED = {"epsilon": "0.2", "mechanism": "rr-on-bins", "prior": "estimate", "prior_epsilon": "0.1"}


def with_priors(epsilon: str, index: list[int], releases: int, request: dict[str, Any]) -> float:
    """The bound of ε for releases that estimate their prior."""
    one, two = (by_functions([y, *index[1:]], 1, 0, "0:1", releases, epsilon=epsilon, **request) for y in (index[0], 0))
    return audit(one, two, EACH)


def with_bounds(index: list[int], releases: int, request: dict[str, Any]) -> float:
    """The bound of ε for releases that buy their clipping bounds, of 2.5 in all."""
    one, two = (by_functions([y, *index[1:]], 6, 0, "0:6", releases, epsilon="2.5", **request) for y in (6, 0))
    return audit(one, two, EACH)


def of_channel(name: str, options: dict[str, Any], epsilon: str, releases: int = MANY) -> float:
    """The bound of ε for the two ends of a domain under the uniform prior."""
    prior = {"prior": "uniform"} if MECHANISMS[name].needs_prior(options) else {}
    request = {"epsilon": epsilon, "mechanism": name, "options": options} | prior
    one, two = (by_functions([y], 6, 0, "0:6", releases, **request) for y in (6, 0))
    return audit(one, two, EACH)


def of_published(home: Path, releases: int = FEW) -> float:
    """Without noise the prior's mass is a fifth or two, and one symbol each: the leak is then found every time."""
    one, two = (published(home / f"{y}", [y, 0, 0, 0, 1], 1, 0, "0:1", releases, **PUBLISHED) for y in (1, 0))
    return audit(one, two, EACH)


def without_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prior_module, "discrete_laplace", lambda _scale, n: np.zeros(n, np.int64))


def with_half_the_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prior_module, "SENSITIVITY", 1)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_no_mechanism_leaks_more_than_its_epsilon(name: str, options: dict[str, Any]) -> None:
    assert of_channel(name, options, "1") < 1


@pytest.mark.parametrize(("epsilon", "index", "request_"), PRIORS)
def test_prior_bins_and_labels_together_leak_no_more_than_the_total(
    epsilon: str, index: list[int], request_: dict[str, Any]
) -> None:
    assert with_priors(epsilon, index, SOME, request_) < float(epsilon)


@pytest.mark.parametrize(("index", "request_"), BOUNDS)
def test_bounds_prior_and_labels_together_leak_no_more_than_the_total(
    index: list[int], request_: dict[str, Any]
) -> None:
    assert with_bounds(index, BOUGHT, request_) < 2.5


def test_published_releases_leak_no_more_than_was_charged(tmp_path: Path) -> None:
    assert of_published(tmp_path) < 0.2


# --- planted leaks, and the auditor itself -------------------------------------------------------------------


@pytest.mark.extended
def test_control_a_prior_without_noise_is_found_in_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_noise(monkeypatch)
    assert of_published(tmp_path) > 0.2


@pytest.mark.parametrize(("plant", "releases"), [(without_noise, 400), (with_half_the_noise, 2400)])
def test_control_a_prior_that_pays_too_little_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], releases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    epsilon, index, request = PRIORS[0]
    assert with_priors(epsilon, index, releases, request) > float(epsilon)


@pytest.mark.parametrize(("index", "request_"), BOUNDS)
def test_control_bounds_that_are_read_off_the_labels_are_found(
    index: list[int], request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quantiles with hardly any noise."""
    monkeypatch.setattr(quantiles, "rate_of", lambda *_: Fraction(10**6))
    assert with_bounds(index, BOUGHT // 2, request_) > 2.5


def test_control_a_tenth_of_epsilon_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Epsilon.exp_lower
    monkeypatch.setattr(Epsilon, "exp_lower", lambda self: right(Epsilon(self.nano * 11 // 10)))
    for name in ("one-bit", "rr-on-bins"):
        assert of_channel(name, {}, "1") > 1


def test_control_a_row_that_is_not_randomized_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = one_bit.sample_one_bit
    monkeypatch.setattr(sampling, "sample_one_bit", lambda index, *of: np.where(index == 0, 0, draw(index, *of)))
    assert of_channel("one-bit", {}, "4", 20_000) > 4


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    assert lower_bound(0, 10, 0.01) == 0.0
    assert upper_bound(10, 10, 0.01) == 1.0
    assert lower_bound(10, 10, 0.01) == pytest.approx(0.01**0.1)
    assert upper_bound(0, 10, 0.01) == pytest.approx(1 - 0.01**0.1)
    assert epsilon_bound(0, 10, 0, 10, 0.01) == 0.0
    # P[at least 7 of 20 | p] = α at the lower bound for 7 hits
    p = lower_bound(7, 20, 1e-3)
    assert sum(math.comb(20, i) * p**i * (1 - p) ** (20 - i) for i in range(7, 21)) == pytest.approx(1e-3)


def test_the_auditor_errs_no_more_often_than_it_says() -> None:
    """At an α of a tenth, 400 audits of vectors that are alike: 40 wrong ones at most on average, 75 never (10⁻⁶)."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        one, two = rng.integers(0, 5, (2, 300)).tolist()
        wrong += audit(one, two, 0.1) > 0
    assert wrong < 75


def test_the_auditor_proves_what_its_power_says() -> None:
    assert 0.9 < power(1.0, MANY, EACH) < 1
    assert of_channel("one-bit", {}, "1") > 0.9
    assert 0.25 < power(8.0, FEW, EACH) < 0.3
