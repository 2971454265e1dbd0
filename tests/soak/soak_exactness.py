"""Whole releases of random neighbours, coupled; and every number that probabilities hang on, against exact ones."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.choice import rate_of, weights
from labels_party.mechanisms.entropy import LaplaceNoise, float_not_below
from labels_party.mechanisms.exponentials import LOGISTIC_ERROR, POWER_ERROR, U
from labels_party.mechanisms.prior import SENSITIVITY
from tests.privacy_audit.test_coupling import ALL
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.asked import release_wish
from tests.support.coupling import REFUSED, Pair, coupled
from tests.unit.labels_party.mechanisms.test_choice import within_epsilon
from tests.unit.labels_party.mechanisms.test_entropy import library_epsilon
from tests.unit.labels_party.mechanisms.test_exponentials import exact, off
from tests.unit.labels_party.mechanisms.test_exponentials import powers as powers_of


def some_domain(rng: random.Random) -> Domain:
    """2 to 30 values, sometimes 200, even or not, below and above 0."""
    k, low = rng.randrange(2, rng.choice([31, 31, 31, 200])), Decimal(rng.choice(["0", "0", "1", "-7.5", "1000000"]))
    if rng.random() < 0.6:
        step = Decimal(rng.choice(["1", "0.25", "3", "0.001"]))
        return Domain.parse(f"{low}:{low + step * (k - 1)}:{step}")
    return Domain.from_values(sorted({low + Decimal(rng.randrange(1, 1000)) / 8 for _ in range(k)}))


def some_pair(rng: random.Random) -> Pair:
    """Any mechanism, option, prior, loss, ε and bounds, on labels of which some are nearly all alike."""
    domain = some_domain(rng)
    (name, options), n = rng.choice(ALL), rng.choice([1, 2, 5, 20, 60])
    few = rng.randrange(1, domain.k + 1)
    one = [rng.randrange(few) for _ in range(n)]
    other = [*one]
    other[rng.randrange(n)] = rng.randrange(domain.k)
    epsilon = Epsilon(int(10**9 * 0.05 * 160 ** rng.random()))
    values = domain.values
    missed = MatrixLoss(values, values, (values[:, None] != values[None, :]).astype(np.float64))
    request: dict[str, Any] = {"loss": rng.choice(["squared", "squared", "absolute", "poisson", missed])}
    if rng.random() < 0.8:
        request |= {"prior": "estimate", "prior_method": rng.choice(["project", "clip"])}
        share = Epsilon(rng.randrange(1, epsilon.nano // 3))
        request["prior_epsilon"] = rng.choice(["auto", "theorem7", str(share), str(share)])
    elif rng.random() < 0.5:
        request["prior"] = "uniform"
    if rng.random() < 0.5:
        cuts = sorted(rng.sample(range(1, 100), rng.choice([1, 2])))
        request["clip_quantiles"] = tuple(f"0.{cut:02d}".rstrip("0") for cut in cuts)
        request["clip_epsilon"] = Epsilon(rng.randrange(1, epsilon.nano // 2))
    asked = release_wish(epsilon, name, options=dict(options), **request)
    return Pair(domain, tuple(one), tuple(other), asked, seed=rng.randrange(1 << 32))


def test_coupled_releases_of_random_neighbours(scale: Scale, report: Report, tmp_path: Path) -> None:
    end, rng = time.monotonic() + scale.seconds, random.Random(scale.seed)
    released, refused, wrong = dict.fromkeys((name for name, _ in ALL), 0), 0, list[str]()
    while time.monotonic() < end and not wrong:
        pair = some_pair(rng)
        try:
            found = coupled(pair, tmp_path / str(sum(released.values()) + refused))
        except InvalidInput:  # before anything is charged
            refused += 1
            continue
        if found[:1] and found[0].startswith(REFUSED):
            refused += 1
            continue
        released[pair.request.asked.mechanism] += 1
        wrong = [f"{text}: {pair}" for text in found]
    tried = sum(released.values())
    limit = (
        f"0 public bytes differ; at least {min(released.values())} pairs of each mechanism, {refused:,} refused alike"
    )
    report.row(tried, tried - bool(wrong), limit)
    report.finding(
        "15 auto, unbiased and balanced with an estimated prior are not audited",
        tried="pairs of neighbouring label vectors, released whole and coupled by what was paid for: every mechanism, "
        "prior, loss, with bounds bought and without; files, manifest, reasons and refusals compared byte for byte",
        before="no audit of whole releases",
        after=f"{tried:,} pairs, {len(wrong)} with a difference or a read that pays too little",
    )
    assert wrong == []
    assert min(released.values()) > 0


def test_numbers_that_probabilities_hang_on(scale: Scale, report: Report) -> None:
    """Powers, the logistic function, weights of choices, scales of noise: against decimals and the library's map."""
    end, rng = time.monotonic() + scale.seconds, random.Random(scale.seed)
    tried, worst, bent, apart, unproved, once = 0, Fraction(0), Fraction(0), 0, 0, 0
    while time.monotonic() < end:
        tried += 1
        rate = Fraction(rng.randrange(1, 10 ** rng.randrange(1, 18)), 10 ** rng.randrange(0, 22))
        steps = [rng.randrange(min(1 << 62, int(87 / rate) + 2)) for _ in range(8)]
        for step, found in zip(steps, powers_of(rate, np.array(steps, np.int64)).tolist(), strict=True):
            if found:
                worst = max(worst, abs(Fraction(found) / exact(rate * step) - 1))
        bent = max(bent, off([rng.uniform(-50, 50) for _ in range(8)]))
        epsilon = Fraction(rng.randrange(1, 10**10), 10**9)
        scores = [rng.randrange(1 << rng.randrange(1, 20)) for _ in range(6)]
        moved = [score + rng.randrange(-3, 4) for score in scores]
        if epsilon > Fraction(1, 1000):
            of = rate_of(epsilon, 3)
            pair = [weights(np.array(each, np.int64), of, 6) for each in (scores, moved)]
            apart += not within_epsilon(*pair, epsilon, [1] * 6)
        noise = LaplaceNoise(rng.choice([SENSITIVITY, 1, 1 << 20, 12345]), epsilon)
        unproved += library_epsilon(float(noise.scale), noise.sensitivity) > epsilon
        once += library_epsilon(float_not_below(noise.sensitivity / epsilon), noise.sensitivity) > epsilon
    fine = worst <= POWER_ERROR and bent <= LOGISTIC_ERROR and not apart and not unproved
    most, curve = float(worst / U), float(bent / U)
    report.row(tried, tried * fine, f"powers within {most:.2f} of 128 units of 2⁻⁵², logistic {curve:.2f} of 8")
    report.finding(
        "14 a float exp is assumed, the noise library's map is not asked",
        tried="random rates, scores, ε and sensitivities: powers and logistic against 60 decimals, weights of "
        "neighbours exactly, the library's own map against the charged ε",
        before=f"errors of exp assumed; for {once:,} of {tried:,} scales of today the library's map says more than ε",
        after=f"errors proved, and at most {most:.2f} of 128 and {curve:.2f} of 8 units of 2⁻⁵² seen; {apart} pairs of "
        f"weights beyond e^ε; {unproved} scales that the library does not prove, of {tried:,}",
    )
    assert fine
    assert once > 0
