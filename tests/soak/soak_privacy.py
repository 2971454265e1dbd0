"""Privacy, at length: the exact matrix of every mechanism on a grid, χ² on many draws, the auditor with more releases.

Each part goes as far as its time does: the grid in an order of the seed, frequencies to 10⁸ draws of each setting (all
but the widest noise reach them in 180 seconds), their χ² at α = 10⁻⁶ corrected for the number of settings.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Epsilon
from labels_party.companions.audit_bounds import audit, power
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.sampling import sample
from tests.privacy_audit import test_auditor as quick
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.statistical.test_sampler_frequencies import ALPHA, p_value
from tests.support.exact_matrix import CASES, LINEAR_PROGRAMS, check_matrix, design, wrong_words
from tests.support.pipeline_audit import by_functions, published

SIZES = [1, 2, 3, 5, 16, 17, 64, 255, 256, 257, 1000, 4096]
MOST_LABELS = 257  # of a linear program
DRAWS = 10**8
AT_ONCE = 10**6
WORDS_UP_TO = 1000  # outputs whose words are tried


def epsilons(rng: random.Random) -> list[str]:
    """0.05 to 10, evenly by their logarithm and some with all nine decimals."""
    odd = [f"{0.05 * 200 ** rng.random():.9f}" for _ in range(12)]
    return [f"{0.05 * 200 ** (i / 11):.4g}" for i in range(12)] + odd


def priors(k: int) -> list[np.ndarray]:
    spiked = np.full(k, 1e-6)
    spiked[:: max(1, k // 3)] = 1.0
    return [np.full(k, 1.0), np.exp(-6.0 * np.arange(k) / k), spiked]


def grid(rng: random.Random) -> Iterator[tuple[str, Any, str, int, np.ndarray]]:
    cells = list(itertools.product(CASES, epsilons(rng), SIZES))
    rng.shuffle(cells)
    for (name, options), epsilon, k in cells:
        if name not in LINEAR_PROGRAMS or k <= MOST_LABELS:
            for prior in priors(k)[: None if MECHANISMS[name].needs_prior(options) else 1]:
                yield name, options, epsilon, k, prior


def test_exact_matrix_grid(scale: Scale, report: Report) -> None:
    end, tried, refused, most = time.monotonic() + scale.seconds, 0, 0, 0
    rng = random.Random(scale.seed)
    cell: Any = None
    try:
        for cell in grid(rng):
            if time.monotonic() > end:
                break
            name, options, epsilon, k, prior = cell
            domain, eps = Domain.parse(f"0:{k - 1}"), Epsilon.parse(epsilon)
            tried += 1
            try:
                channel = design(name, domain, eps, options, prior)
            except InvalidEpsilon:  # too small for so many labels: refused, not loosened
                refused += 1
                continue
            most = max(most, check_matrix(channel, eps))
            if channel.m <= WORDS_UP_TO and not (name in LINEAR_PROGRAMS and k > 24):
                assert wrong_words(channel, rng.randrange(k)) == 0
    except AssertionError:
        report.row(tried, tried - 1, f"0 ratios above e^ε; failed at {cell[:4]}")
        raise
    report.row(tried, tried, f"0 ratios above e^ε, 0 wrong words; up to {most:,} outputs, {refused:,} refused designs")


def test_frequencies_of_many_draws(scale: Scale, report: Report) -> None:
    """One setting of every mechanism and option; the control, a hundredth more ε, must be seen."""
    end, alpha = time.monotonic() + scale.seconds, ALPHA / len(CASES)
    tried, fine, least = 0, 0, 1.0
    share = scale.seconds / len(CASES)
    drawn = DRAWS
    for name, options in CASES:
        channel = design(name, Domain.parse("0:30"), Epsilon.parse("2"), options)
        counts, until = np.zeros(channel.m, np.int64), min(end, time.monotonic() + share)
        index = np.full(AT_ONCE, 11)
        while counts.sum() < DRAWS and (time.monotonic() < until or not counts.any()):
            counts += np.bincount(sample(channel, index), minlength=channel.m)
        p = p_value(counts, channel.rows(11, 12)[0]) if channel.m > 1 else 1.0
        tried, fine, least, drawn = tried + 1, fine + (p > alpha), min(least, p), min(drawn, int(counts.sum()))
    report.row(tried, fine, f"χ² at α = {alpha:.1e} each, smallest p {least:.2g}; {drawn:,} draws or more of each")
    assert fine == tried
    sharper, right = (design("rr", Domain.parse("0:30"), Epsilon.parse(e), {}) for e in ("2.02", "2"))
    assert p_value(np.bincount(sample(sharper, np.full(10 * AT_ONCE, 11))), right.rows(11, 12)[0]) < alpha


@pytest.mark.parametrize("place", range(len(quick.PRIORS)))
def test_auditor_of_priors_bins_and_labels(place: int, scale: Scale, report: Report) -> None:
    epsilon, index, request = quick.PRIORS[place]
    alpha, end = ALPHA / len(quick.PRIORS), time.monotonic() + scale.seconds
    one: list[Any] = []
    two: list[Any] = []
    while time.monotonic() < end and len(one) < 100_000:
        for found, y in ((one, 1), (two, 0)):
            found += by_functions([y, *index[1:]], 1, 0, "0:1", 1000, epsilon=epsilon, **request)
    bound = audit(one, two, alpha)
    most = power(float(epsilon), len(one), alpha)
    limit = (
        f"{request['mechanism']}: ε at least {bound:.3f} of {epsilon} charged (error {alpha:.1e}; {most:.2f} provable)"
    )
    report.row(len(one) + len(two), (bound < float(epsilon)) * (len(one) + len(two)), limit)
    assert bound < float(epsilon)


def test_auditor_of_published_releases(scale: Scale, report: Report, tmp_path: Path) -> None:
    """Where most can be proved: one example, and nearly all of ε for a prior that is nearly its label."""
    epsilon, index, request = quick.PRIORS[0]
    end, worlds = time.monotonic() + scale.seconds, 0
    one: list[Any] = []
    two: list[Any] = []
    while time.monotonic() < end:
        for found, y in ((one, 1), (two, 0)):
            home = tmp_path / f"{worlds}-{y}"
            found += published(home, [y, *index[1:]], 1, 0, "0:1", 100, epsilon=epsilon, **request)
        worlds += 1
    charged = float(epsilon)
    bound, most = audit(one, two, ALPHA), power(charged, len(one), ALPHA)
    limit = f"ε at least {bound:.3f} of {epsilon} charged (error {ALPHA:.0e}; {most:.2f} provable)"
    report.row(len(one) + len(two), (bound < charged) * (len(one) + len(two)), limit)
    assert bound < charged
