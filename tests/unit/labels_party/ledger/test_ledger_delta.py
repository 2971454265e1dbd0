"""δ in the rules of the ledger: exact, capped, refused as a value; and per unit."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.domain import Domain
from label_dp.errors import BudgetExceeded, InvalidInput
from label_dp.privacy import ATTO, ZERO, Epsilon, EpsilonSplit, PrivacyUnit, delta_string, parse_delta
from labels_party.ledger.populations import MAX_DELTA
from labels_party.ledger.rules import Account, Granted, judge
from tests.support.asking import population as declared

E = Epsilon.parse


def split(total: str, delta: str) -> EpsilonSplit:
    return EpsilonSplit(ZERO, ZERO, E(total), delta)


@pytest.mark.parametrize(("left", "granted"), [(0, False), (1, True)])
def test_one_atto_delta_decides(left: int, granted: bool) -> None:
    account = Account(E("2"), ZERO, 10**12, 10**12 - left)
    assert isinstance(judge(account, split("1", 1)), Granted) is granted


def test_both_sums_are_kept() -> None:
    verdict = judge(Account(E("2"), E("0.5"), 100, 30), split("1", 60))
    assert verdict == Granted(Account(E("2"), E("1.5"), 100, 90))
    assert verdict.account.left_delta == 10


def test_a_charge_without_delta_is_granted_whatever_delta_is_left() -> None:
    assert judge(Account(E("2"), ZERO, 5, 5), split("1", 0)) == Granted(Account(E("2"), E("1"), 5, 5))


def test_out_of_delta_is_a_value_with_public_figures() -> None:
    verdict = judge(Account(E("2"), ZERO, parse_delta("0.000001"), parse_delta("0.0000004")), split("1", 10**12))
    assert isinstance(verdict, BudgetExceeded)
    assert verdict.extras() == {
        "epsilon_asked": "1",
        "epsilon_spent": "0",
        "epsilon_lifetime": "2",
        "delta_asked": "0.000001",
        "delta_spent": "0.0000004",
        "delta_lifetime": "0.000001",
    }
    assert "at most 0.0000006 is left" in verdict.detail


def test_epsilon_is_refused_first() -> None:
    verdict = judge(Account(E("1"), ZERO, 1, 0), split("2", 2))
    assert isinstance(verdict, BudgetExceeded)
    assert "delta_asked" not in verdict.extras()


@given(st.lists(st.integers(1, 40), max_size=12), st.integers(0, 100))
def test_granted_deltas_never_exceed_the_lifetime(charges: list[int], lifetime: int) -> None:
    account, granted = Account(E("1000"), ZERO, lifetime, 0), 0
    for atto in charges if lifetime else []:
        verdict = judge(account, split("0.1", atto))
        if isinstance(verdict, Granted):
            account, granted = verdict.account, granted + atto
        else:
            assert granted + atto > lifetime
    assert account.spent_delta == granted <= lifetime


@pytest.mark.parametrize("delta", ["-1", delta_string(MAX_DELTA + 1), "1"])
def test_a_lifetime_delta_that_protects_nothing_is_refused(delta: str) -> None:
    with pytest.raises(InvalidInput, match="δ"):
        declared("p", "y", Domain.parse("0:3"), "1", lifetime_delta=delta)


def test_a_population_has_no_delta_unless_declared() -> None:
    plain = declared("p", "y", Domain.parse("0:3"), "1")
    assert (plain.lifetime_delta, plain.rules()["lifetime_delta"]) == (0, "0")
    assert declared("p", "y", Domain.parse("0:3"), "1", lifetime_delta="0.000000000000000003").rules()[
        "lifetime_delta"
    ] == ("0.000000000000000003")


def test_delta_per_unit_is_that_of_group_privacy() -> None:
    unit = PrivacyUnit("user", 3)
    found = unit.bound_delta(E("1"), 10**9)
    assert found is not None
    # 1 + e + e² < 3·e² = 22.167…
    assert 22_167_168_296 < found <= 22_167_168_298
    assert PrivacyUnit("user", 1).bound_delta(E("9"), 7) == 7
    assert PrivacyUnit().bound_delta(E("9"), 7) is None
    assert unit.bound_delta(E("1000"), 1) == ATTO
    assert unit.bound_delta(E("1000"), 0) == 0
    assert Fraction(unit.bound_delta(E("20"), 10**10) or 0) == ATTO
