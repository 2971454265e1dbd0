"""Ceilings of the organisation's policy, in words and before a charge is tried. The audit store holds each charge to
them itself (rule 22)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.engine import Connection

from label_dp.actors import ISSUED
from label_dp.audit.ceilings import NONE, YEAR, charged_for
from label_dp.audit.events import POLICY_APPLIED, Event
from label_dp.audit.judged import JudgedStore
from label_dp.audit.policies import NO_PEOPLE, policy_rules
from label_dp.audit.store import AuditStore
from label_dp.errors import BudgetExceeded, NotFound, SecondPersonNeeded
from label_dp.privacy import EpsilonSplit
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account


def second_person(audit: JudgedStore, connection: Connection, population: Population, split: EpsilonSplit) -> bool:
    """Return whether a second person must approve a charge: by the population's rules or by the policy."""
    return population.four_eyes or policy_rules(audit, connection).ceilings.second_person(split)


def loosen(audit: AuditStore, connection: Connection, name: str, actor: str, *, people: bool) -> None:
    """Apply a looser policy, by its digest, that somebody else proposed. `people`: only a subject of the issuer can.
    Raises NotFound, SecondPersonNeeded."""
    proposal = policy_rules(audit, connection).proposals.get(name)
    if proposal is None:
        raise NotFound("No such policy waits any more. Look at the policy in force.")
    if proposal.actor.casefold() == actor.casefold():
        raise SecondPersonNeeded("You proposed this policy yourself; somebody else applies it.")
    if people and not actor.startswith(ISSUED):
        raise SecondPersonNeeded(
            "This policy loosens a ceiling, and the second person is a subject of the OIDC issuer here, who signs in "
            "and applies it on the page Approvals."
        )
    details = {**proposal.details, "proposed_by": proposal.actor}
    audit.append(connection, Event(POLICY_APPLIED, actor=actor, details=details))


def judge_ceilings(
    audit: JudgedStore,
    connection: Connection,
    population: Population,
    batch: str | None,
    account: Account,
    split: EpsilonSplit,
    details: Mapping[str, Any],
    *,
    approved: bool,
) -> None:
    """Raise BudgetExceeded if a charge would be beyond a ceiling. `batch` None, with an empty `account`: of a batch
    that is not sealed yet; `approved`: a second person has agreed, or will be asked."""
    if policy_rules(audit, connection).ceilings == NONE:
        return
    people = NO_PEOPLE if population.people is None else audit.people(connection, population.people, set())
    year, of_batch = audit.now()[:YEAR], batch or ""
    rules = policy_rules(audit, connection, year, people, population.id)
    rules.of_year[year][population.id][of_batch] += split.total.nano
    person = rules.person(year, population.id, of_batch, population.unit, people)
    spent = account.spent.nano + split.total.nano
    why = rules.ceilings.refusal(split, spent, person, charged_for(details), approved=approved)
    if why is not None:
        raise BudgetExceeded(
            f"The organisation's policy refuses this charge: {why}. No owner can lift it; two people can, by "
            "'labels-party apply' of another policy.",
            asked=str(split.total),
            spent=str(account.spent),
            lifetime=str(account.lifetime),
        )
