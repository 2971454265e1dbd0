"""Ledger rules, pure: no clock, no database.

An example is in exactly one batch of a population. Batches are disjoint, so what an example has spent is what its
batch has spent (parallel composition), and releases of one batch add up (sequential composition; Dwork & Roth 2014,
theorem 3.14). A charge is allowed while the sum stays within the population's lifetime ε per example.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import BudgetExceeded, InvalidEpsilon
from shared.privacy import Epsilon, EpsilonSplit


@dataclass(frozen=True)
class Account:
    """What every example of one batch may spend over its life and has spent, exact."""

    lifetime: Epsilon
    spent: Epsilon

    @property
    def left(self) -> Epsilon:
        return self.lifetime - self.spent


@dataclass(frozen=True)
class Granted:
    account: Account


def judge(account: Account, split: EpsilonSplit) -> Granted | BudgetExceeded:
    """The account after the charge, or the refusal as a value. Deterministic and exact; refusing changes nothing."""
    if split.total.nano == 0:
        raise InvalidEpsilon("A release must be charged more than zero; ε must be greater than zero.")
    if split.delta_atto:
        raise InvalidEpsilon("This population has no δ budget; only pure ε-DP mechanisms may be charged to it.")
    if split.total > account.left:
        return BudgetExceeded(
            f"ε = {split.total} was asked for, but each example of this batch has spent {account.spent} of its "
            f"lifetime {account.lifetime}, so at most {account.left} is left. Ask for less, or use another batch.",
            asked=str(split.total),
            spent=str(account.spent),
            lifetime=str(account.lifetime),
        )
    return Granted(Account(account.lifetime, account.spent + split.total))


def reaches(account: Account, percent: int) -> bool:
    """Whether at least `percent` % of the lifetime ε is spent, exactly."""
    return 100 * account.spent.nano >= percent * account.lifetime.nano
