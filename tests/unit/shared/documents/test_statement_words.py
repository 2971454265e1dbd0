"""Words and numbers of a statement: no bound is rounded down, and the guides show the same ones."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from label_dp.documents.statement_text import in_words, odds_factor, surest
from label_dp.privacy import Epsilon


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "0.6", "1", "1.1", "2", "3", "3.1", "8"])
def test_words_do_not_play_down_what_a_reader_may_learn(epsilon: str) -> None:
    surest = 1 / (1 + math.exp(-float(epsilon)))  # from even odds
    words = in_words(Epsilon.parse(epsilon))
    assert ("says little" in words) == (surest < 0.63)
    assert ("weak hint" in words) == (0.63 <= surest < 0.74)
    assert ("strong hint" in words) == (0.74 <= surest < 0.955)
    assert ("comes close to telling" in words) == (surest >= 0.955)


GUIDES = Path(__file__).resolve().parents[4] / "deploy/guides"


def test_the_guides_round_no_worst_case_down() -> None:
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d,.]+) \| ([\d.]+) \|$", (GUIDES / "which-release.md").read_text(), re.MULTILINE
    )
    assert [epsilon for epsilon, _, _ in rows] == ["0.1", "0.5", "1", "2", "4", "8"]
    for epsilon, factor, cases in rows:
        assert factor == odds_factor(Epsilon.parse(epsilon))
        exact = 100 / (1 + math.exp(-float(epsilon)))
        assert exact <= float(cases) < exact + 0.1
    words = " ".join((GUIDES / "officer.md").read_text().split())
    said = re.search(
        r"rounded up: ([\d.]+) at ε = 0.5, ([\d.]+) at 1, ([\d.]+) at 2, ([\d.]+) at 4, ([\d,]+) at 8", words
    )
    assert said is not None
    for epsilon, factor in zip((0.5, 1, 2, 4, 8), said.groups(), strict=True):
        assert math.exp(epsilon) <= float(factor.replace(",", "")) < 1.01 * math.exp(epsilon)


@pytest.mark.parametrize(
    "nano", [1, 100_000_000, 123_456_789, 693_147_181, 1_000_000_000, 7_999_999_999, 12_000_000_000]
)
def test_a_statement_rounds_no_worst_case_down(nano: int) -> None:
    epsilon = Epsilon(nano)
    assert float(odds_factor(epsilon).replace(",", "").replace(" × 10⁵", "e5")) >= math.exp(nano / 1e9)
    for odds in (Fraction(1), Fraction(1, 9), Fraction(1, 99)):
        factor = math.exp(nano / 1e9) * odds
        shown = surest(epsilon, odds)
        assert shown == "close to 100 %" or float(shown.removesuffix(" %")) >= 100 * factor / (1 + factor)
