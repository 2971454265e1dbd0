"""Ceilings of an organisation's policy (rule 22), from audit events alone: they hold for every owner and population.

What a person is charged in a year is bounded as rule 21 bounds a body: of the batch charged its own ε, of every other
population of the body that of its largest batch, each as often as a unit may have examples (`people_rules` has the
proof). Only charges of that calendar year count (UTC), and a return gives none of the year's ε back, so that the sum
never is too low.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from label_dp.audit import rulebook as rules
from label_dp.audit.events import POLICY_PROPOSED, Event
from label_dp.audit.people_rules import Amount, PeopleRules
from label_dp.audit.rulebook import RuleBroken
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Delta, Epsilon, EpsilonSplit, PrivacyUnit, delta_string, epsilon_string
from label_dp.schemas.json_types import JsonObject

YEAR = 4  # characters of a year in a time
AGAIN = frozenset({"lost", "restored"})  # details of a charge for budget that was spent before a restore
AMOUNTS = ("epsilon_per_release", "epsilon_per_example", "epsilon_per_person_and_year", "four_eyes_above")
NAMES = {
    "epsilon_per_release": "ε of one charge",
    "epsilon_per_example": "ε of one example",
    "epsilon_per_person_and_year": "ε of one person in a year",
    "delta_per_release": "δ of one charge",
    "four_eyes_above": "a second person approves above ε",
    "mechanisms": "mechanisms",
}
MEMBERS = frozenset({*AMOUNTS, "delta_per_release", "mechanisms"})


@dataclass(frozen=True)
class Ceilings:
    """Ceilings in nano-ε and atto-δ; None: there is none. `mechanisms` names mechanisms of messages and kinds of
    answers."""

    epsilon_per_release: int | None = None
    epsilon_per_example: int | None = None
    epsilon_per_person_and_year: int | None = None
    four_eyes_above: int | None = None
    delta_per_release: int | None = None
    mechanisms: tuple[str, ...] | None = None

    @classmethod
    def read(cls, data: Any) -> Ceilings:
        """Parse `as_json`'s output. Raises InvalidEpsilon for anything else."""
        if not isinstance(data, Mapping) or data.keys() != MEMBERS:
            raise InvalidEpsilon("It does not state every ceiling.")
        nano = {name: None if data[name] is None else Epsilon.canonical(data[name]).nano for name in AMOUNTS}
        delta, names = data["delta_per_release"], data["mechanisms"]
        texts = isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)
        if names is not None and (not texts or list(names) != sorted(set(names))):
            raise InvalidEpsilon("Its mechanisms are no sorted list of names.")
        atto = None if delta is None else Delta.canonical(delta).atto
        return cls(**nano, delta_per_release=atto, mechanisms=None if names is None else tuple(names))

    def as_json(self) -> JsonObject:
        values = {name: getattr(self, name) for name in AMOUNTS}
        amounts = {name: None if nano is None else epsilon_string(nano) for name, nano in values.items()}
        atto, names = self.delta_per_release, self.mechanisms
        delta = None if atto is None else delta_string(atto)
        return {**amounts, "delta_per_release": delta, "mechanisms": None if names is None else list(names)}

    def __str__(self) -> str:
        members = {name: value for name, value in self.as_json().items() if value is not None}
        words = [f"{NAMES[name]} {', '.join(v) if isinstance(v, list) else v}" for name, v in members.items()]
        return "; ".join(words) or "no ceiling"

    def looser(self, before: Ceilings) -> list[str]:
        """Name the ceilings that are looser than those `before`."""
        numbers = (*AMOUNTS, "delta_per_release")
        pairs = {name: (getattr(before, name), getattr(self, name)) for name in numbers}
        raised = [name for name, (old, new) in pairs.items() if old is not None and (new is None or new > old)]
        within = before.mechanisms is None or set(self.mechanisms or ()) <= set(before.mechanisms)
        lifted = before.mechanisms is not None and self.mechanisms is None
        return raised if within and not lifted else [*raised, "mechanisms"]

    def refusal(self, split: EpsilonSplit, batch: int, person: int, mechanism: object, *, approved: bool) -> str | None:
        """Return why a charge is beyond a ceiling, or None. `batch` and `person`: nano-ε after it, of its batch, and of
        a person in the year."""
        limits = (
            (split.total.nano, self.epsilon_per_release, "of one charge"),
            (batch, self.epsilon_per_example, "of one example"),
            (person, self.epsilon_per_person_and_year, "of one person in a year"),
        )
        for nano, most, what in limits:
            if most is not None and nano > most:
                return f"ε {epsilon_string(nano)} {what} is beyond the policy's ceiling of {epsilon_string(most)}"
        if self.delta_per_release is not None and split.delta_atto > self.delta_per_release:
            most_delta = delta_string(self.delta_per_release)
            return f"δ {delta_string(split.delta_atto)} of one charge is beyond the policy's ceiling of {most_delta}"
        if self.mechanisms is not None and mechanism not in self.mechanisms:
            return f"the policy does not allow '{mechanism}', only {', '.join(self.mechanisms) or 'nothing'}"
        if not approved and self.second_person(split):
            return f"the policy asks for a second person's approval above ε {epsilon_string(self.four_eyes_above or 0)}"
        return None

    def second_person(self, split: EpsilonSplit) -> bool:
        """Return whether a second person approves a charge before it is made."""
        return self.four_eyes_above is not None and split.total.nano > self.four_eyes_above


NONE = Ceilings()


class CeilingRules:
    """Policy in force, proposals of looser ones, and what each year charged. `people` is kept by the caller."""

    def __init__(self) -> None:
        self.ceilings, self.policy = NONE, ""
        self.proposals: dict[str, Event] = {}
        self.of_year: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))

    def add(self, event: Event) -> None:
        """Take a policy that was proposed or applied."""
        (self.propose if event.kind == POLICY_PROPOSED else self.apply)(event)

    def propose(self, event: Event) -> None:
        self.ceilings_of(event)
        self.proposals[event.details["policy"]] = event

    def apply(self, event: Event) -> None:
        ceilings, proposal = self.ceilings_of(event), self.proposals.pop(event.details["policy"], None)
        proposer = None if proposal is None else proposal.actor
        if ceilings.looser(self.ceilings):
            if proposal is None or proposal.details["ceilings"] != event.details["ceilings"]:
                _refuse(event, "a looser policy is applied that nobody had proposed")
            if proposal.actor.casefold() == event.actor.casefold():
                _refuse(event, "who proposed a looser policy applied it")
        if event.details.get("proposed_by") != proposer:
            _refuse(event, "it does not say who proposed it")
        self.ceilings, self.policy = ceilings, event.details["policy"]

    def charge(self, event: Event, people: PeopleRules, spent: Amount, *, approved: bool) -> None:
        """Check a charge, which `spent` of its batch includes."""
        population, batch = str(event.subject.population), str(event.subject.batch)
        self.of_year[year_of(event)][population][batch] += event.split.total.nano
        if AGAIN & event.details.keys():
            return
        person = self.person(year_of(event), population, batch, event.unit, people)
        why = self.ceilings.refusal(event.split, spent[0], person, charged_for(event.details), approved=approved)
        if why is not None:
            _refuse(event, why)

    def person(self, year: str, population: str, batch: str, unit: PrivacyUnit, people: PeopleRules) -> int:
        """Return the nano-ε that a person of `batch` was charged at most in a year, over its body."""
        amounts, total = self.of_year[year], 0
        body = people.of.get(population)
        populations = {population: unit} if body is None else body.populations
        for name, its_unit in populations.items():
            if name == population and unit.unit_column is None:
                largest = amounts[name][batch]
            else:
                largest = max(amounts[name].values(), default=0)
            total += (its_unit.max_examples or 1) * largest
        return total

    @staticmethod
    def ceilings_of(event: Event) -> Ceilings:
        """Read the ceilings that a policy was proposed or applied with."""
        policy = event.details.get("policy")
        if not isinstance(policy, str) or not policy or not event.actor:
            _refuse(event, "it does not say which policy, or whose act it is")
        try:
            return Ceilings.read(event.details.get("ceilings"))
        except InvalidEpsilon:
            _refuse(event, "a ceiling is no canonical number or list")


def year_of(event: Event) -> str:
    """Return the UTC year of an event."""
    return event.moment[:YEAR]


def charged_for(details: Mapping[str, Any]) -> Any:
    """Return the kind of answer, or the mechanism of a message, that a charge is for."""
    return details["answer"] if details.get("answer") is not None else details.get("mechanism")


def _refuse(event: Event, why: str) -> NoReturn:
    raise RuleBroken(rules.CEILINGS, event.sequence, why)
