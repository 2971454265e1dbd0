"""What a plan says of labels of two values, against formulas of their own, a simulation, and its limits."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.mechanisms.prior import estimate_prior, public_cells
from labels_party.mechanisms.rr_with_prior import rr_channel
from labels_party.message.preview import EXAMPLES, FEWEST, rates_of, worth

E = Epsilon.parse


def said(n: int, epsilon: str, *rates: str, domain: str = "binary", prior: str = "0") -> dict[str, Any]:
    chosen, whole, of_prior = Domain.parse(domain), E(epsilon), E(prior)
    channel = rr_channel(chosen, whole - of_prior)
    assert isinstance(channel, RRChannel)
    split = EpsilonSplit(ZERO, of_prior, whole - of_prior)
    return worth(channel, n, whole, split, rates_of(list(rates), 2), chosen.value(1))


def test_a_rare_conversion_at_a_small_epsilon() -> None:
    """10⁷ clicks of which 0.1 % convert, at ε = 0.5: the 10,000 conversions are worth two or three."""
    found = said(10_000_000, "0.5", "0.001")
    (row,) = found["rates"]
    q = 1 / (1 + math.exp(0.5))
    r = q + (1 - 2 * q) * 0.001
    assert found["flip_probability"] == pytest.approx(q, rel=1e-9)
    assert row["rows_without_noise"] == pytest.approx(1e7 * (1 - 2 * q) ** 2 * 0.001 * 0.999 / (r * (1 - r)), rel=1e-6)
    assert row["rarer_without_noise"] == pytest.approx(2.549, abs=1e-3)
    assert row["standard_error"] == pytest.approx(math.sqrt(r * (1 - r) / 1e7) / (1 - 2 * q), rel=1e-6)
    assert row["too_few"]
    (warning,) = found["warnings"]
    for words in (
        "ε = 0.5",
        "10,000,000 labels",
        "0.1 %",
        "2,549 labels without noise",
        "2.5 of them",
        "about 30",
        "more ε",
    ):
        assert words in warning


def test_the_share_is_the_information_that_a_row_has() -> None:
    """Fisher's information by differences of the log likelihood, over both outputs."""
    n, step = 1000, 1e-5
    for epsilon in ("0.3", "2"):
        q = 1 / (1 + math.exp(float(epsilon)))
        for p in (0.01, 0.3, 0.9):
            shares = [q + (1 - 2 * q) * (p + d) for d in (-step, 0, step)]
            slopes = [
                (math.log(f(shares[2])) - math.log(f(shares[0]))) / (2 * step) for f in (lambda r: r, lambda r: 1 - r)
            ]
            private = shares[1] * slopes[0] ** 2 + (1 - shares[1]) * slopes[1] ** 2
            (row,) = said(n, epsilon, str(p))["rates"]
            assert row["rows_without_noise"] == pytest.approx(n * private * p * (1 - p), rel=1e-4)
            assert row["rarer_without_noise"] == pytest.approx(row["rows_without_noise"] * min(p, 1 - p))


def test_the_error_of_the_rate_is_that_of_simulated_messages() -> None:
    rng, n, p = np.random.default_rng(4), 2_000, 0.1
    found = said(n, "1", str(p))
    q = found["flip_probability"]
    labels = rng.random((4_000, n)) < p
    seen = labels ^ (rng.random(labels.shape) < q)
    rates = (seen.mean(axis=1) - q) / (1 - 2 * q)
    # labels themselves vary as well, which is part of the error of a rate that is assumed
    assert rates.std() == pytest.approx(found["rates"][0]["standard_error"], rel=0.05)
    assert rates.mean() == pytest.approx(p, abs=0.002)


def test_the_error_of_a_prior_is_that_of_drawn_ones() -> None:
    n, counts = 100_000, np.array([60_000, 40_000])
    found = said(n, "1", "0.4", prior="0.01")
    assert found["prior_epsilon"] == "0.01"
    cells = public_cells(2, E("1"), n)
    drawn = [estimate_prior(counts, E("0.01"), cells)[1] for _ in range(1_000)]
    assert np.std(drawn) == pytest.approx(found["prior_standard_error"], rel=0.15)
    assert said(n, "1")["prior_epsilon"] == "0.01"  # where none is bought


def test_more_rows_and_more_epsilon_are_worth_more_and_warn_less() -> None:
    few, many, loud = said(10**4, "0.5"), said(10**7, "0.5"), said(10**4, "8")
    for small, large, clear in zip(few["rates"], many["rates"], loud["rates"], strict=True):
        assert large["rows_without_noise"] == pytest.approx(1000 * small["rows_without_noise"])
        assert small["rows_without_noise"] < clear["rows_without_noise"] < 10**4
        assert large["standard_error"] < small["standard_error"]
        assert small["too_few"] == (small["rarer_without_noise"] < FEWEST)
    assert [row["rate"] for row in few["rates"]] == list(EXAMPLES)
    assert len(few["warnings"]) == 3
    assert len(many["warnings"]) == 1
    assert len(loud["warnings"]) == 1  # ten labels in ten thousand are few without any noise


def test_an_epsilon_that_tells_nothing_has_no_error() -> None:
    channel = RRChannel(
        domain=Domain.parse("0:1"),
        boundaries=np.arange(3),
        outputs=np.array([0.0, 1.0]),
        A=1 << 63,
        B=1 << 63,
        bin_means=np.array([0.0, 1.0]),
    )
    (row,) = worth(channel, 100, E("1"), EpsilonSplit(ZERO, ZERO, E("1")), ("0.5",), Decimal(1))["rates"]
    assert (row["rows_without_noise"], row["standard_error"], row["too_few"]) == (0.0, None, True)


@pytest.mark.parametrize("text", ["0", "1", "-0.1", "1.5", "x", "", "nan", "10%"])
def test_a_rate_is_a_share(text: str) -> None:
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        rates_of([text], 2)


def test_only_two_values_have_a_rate() -> None:
    with pytest.raises(InvalidInput, match="share of one of two values"):
        rates_of(["0.1"], 3)
    assert rates_of([], 3) == EXAMPLES
    assert rates_of(["0.02"], 2) == ("0.02",)
