"""The rules of the ledger, without a store: exact, deterministic, out of budget is a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.errors import BudgetExceeded, InvalidEpsilon
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.ledger.rules import Account, Granted, judge

E = Epsilon.parse


def split(total: Epsilon, prior: Epsilon = ZERO, delta: int = 0) -> EpsilonSplit:
    return EpsilonSplit(ZERO, prior, total - prior, delta)


def test_a_charge_within_the_lifetime_is_granted() -> None:
    verdict = judge(Account(E("2"), E("0.5")), split(E("1.5")))
    assert verdict == Granted(Account(E("2"), E("2")))
    assert verdict.account.left == ZERO


def test_out_of_budget_is_a_value_with_public_figures() -> None:
    account = Account(E("2"), E("0.5"))
    verdict = judge(account, split(E("1.500000001")))
    assert isinstance(verdict, BudgetExceeded)
    assert verdict.extras() == {"epsilon_asked": "1.500000001", "epsilon_spent": "0.5", "epsilon_lifetime": "2"}
    assert "at most 1.5 is left" in verdict.detail
    assert account == Account(E("2"), E("0.5"))


@pytest.mark.parametrize(("left", "granted"), [(0, False), (1, True)])
def test_one_nano_epsilon_decides(left: int, granted: bool) -> None:
    assert isinstance(judge(Account(Epsilon(10**15), Epsilon(10**15 - left)), split(Epsilon(1))), Granted) is granted


def test_every_part_of_the_split_counts() -> None:
    parts = EpsilonSplit(E("0.1"), E("0.2"), E("0.3"))
    assert judge(Account(E("0.6"), ZERO), parts) == Granted(Account(E("0.6"), E("0.6")))
    assert isinstance(judge(Account(E("0.599999999"), ZERO), parts), BudgetExceeded)


def test_a_free_release_is_refused() -> None:
    with pytest.raises(InvalidEpsilon, match="greater than zero"):
        judge(Account(E("1"), ZERO), split(ZERO))


def test_a_delta_is_refused_where_there_is_no_budget_for_it() -> None:
    with pytest.raises(InvalidEpsilon, match="δ"):
        judge(Account(E("1"), ZERO), split(E("0.1"), delta=1))


def test_ten_tenths_are_one_and_no_more() -> None:
    account = Account(E("1"), ZERO)
    for _ in range(10):
        verdict = judge(account, split(E("0.1")))
        assert isinstance(verdict, Granted)
        account = verdict.account
    assert account.left == ZERO
    assert isinstance(judge(account, split(Epsilon(1))), BudgetExceeded)


@given(st.integers(1, 10**12), st.lists(st.integers(1, 10**12), max_size=30))
def test_never_more_than_the_lifetime_and_nothing_refused_that_fits(lifetime: int, charges: list[int]) -> None:
    account, paid = Account(Epsilon(lifetime), ZERO), 0
    for nano in charges:
        verdict = judge(account, split(Epsilon(nano), Epsilon(nano // 3)))
        assert isinstance(verdict, Granted) == (paid + nano <= lifetime)
        if isinstance(verdict, Granted):
            paid += nano
            account = verdict.account
        assert account.spent.nano == paid <= lifetime
