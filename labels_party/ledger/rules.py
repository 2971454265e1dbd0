"""Ledger rules (invariant derived-budget): pure functions without clock or database.

An example is in exactly one batch of a population. Batches are disjoint, so what an example has spent is what its
batch has spent (parallel composition), and releases of one batch add up (sequential composition; Dwork & Roth 2014,
theorem 3.14; δ adds up likewise, theorem 3.16). A charge is allowed while the sums stay within the population's
lifetime ε and δ per example. A population has no δ unless its owner declared one: it then takes only pure ε-DP.
"""

from __future__ import annotations

from dataclasses import dataclass

from label_dp.errors import BudgetExceeded, InvalidEpsilon
from label_dp.privacy import Epsilon, EpsilonSplit, delta_string


@dataclass(frozen=True)
class Account:
    """Lifetime and spent budget of each example of one batch, exact; δ in atto-δ."""

    lifetime: Epsilon
    spent: Epsilon
    lifetime_delta: int = 0
    spent_delta: int = 0

    @property
    def left(self) -> Epsilon:
        return self.lifetime - self.spent

    @property
    def left_delta(self) -> int:
        return self.lifetime_delta - self.spent_delta


@dataclass(frozen=True)
class Granted:
    """Account after a charge that fits."""

    account: Account


def judge(account: Account, split: EpsilonSplit) -> Granted | BudgetExceeded:
    """Return the account after the charge, or the refusal as a value. Exact and deterministic. Raises InvalidEpsilon
    (nothing to charge, or a δ without a lifetime δ)."""
    if split.total.nano == 0:
        raise InvalidEpsilon("A release must be charged more than zero; ε must be greater than zero.")
    if split.delta_atto and not account.lifetime_delta:
        raise InvalidEpsilon(
            "This population has no δ budget; only pure ε-DP mechanisms may be charged to it. Leave the δ out, or use "
            "a population that was declared with a lifetime δ."
        )
    if split.total > account.left:
        return BudgetExceeded(
            f"ε = {split.total} was asked for, but each example of this batch has spent {account.spent} of its "
            f"lifetime {account.lifetime}, so at most {account.left} is left. Ask for less, or use another batch.",
            asked=str(split.total),
            spent=str(account.spent),
            lifetime=str(account.lifetime),
        )
    if split.delta_atto > account.left_delta:
        delta, spent, life = map(delta_string, (split.delta_atto, account.spent_delta, account.lifetime_delta))
        return BudgetExceeded(
            f"δ = {delta} was asked for, but each example of this batch has spent {spent} of its lifetime δ {life}, so "
            f"at most {delta_string(account.left_delta)} is left. Ask for less, or use another batch.",
            asked=str(split.total),
            spent=str(account.spent),
            lifetime=str(account.lifetime),
            delta={"delta_asked": delta, "delta_spent": spent, "delta_lifetime": life},
        )
    spent_delta = account.spent_delta + split.delta_atto
    return Granted(Account(account.lifetime, account.spent + split.total, account.lifetime_delta, spent_delta))


def reaches(account: Account, percent: int) -> bool:
    """Return whether at least `percent` % of the lifetime ε is spent, exactly."""
    return 100 * account.spent.nano >= percent * account.lifetime.nano
