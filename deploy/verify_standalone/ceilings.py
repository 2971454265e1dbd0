"""The ceilings of an organisation's policy, as rule 22 of the description states them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .exact import ATTO, units

Amount = Callable[..., int | None]
NUMBERS = ("epsilon_per_release", "epsilon_per_example", "epsilon_per_person_and_year", "four_eyes_above")
MEMBERS = {*NUMBERS, "delta_per_release", "mechanisms"}


class Policies:
    """Each method gives why an event breaks the rule, or None."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = dict.fromkeys(MEMBERS)
        self.proposed: dict[str, Any] = {}
        self.years: dict[tuple[str, str], dict[str, int]] = {}  # by year and population, ε by batch

    def stated(self, event: Any, amount: Amount) -> dict[str, Any] | None:
        details = event["details"]
        members, name = details.get("ceilings"), details.get("policy")
        if not (isinstance(name, str) and name and event["actor"] and isinstance(members, dict)):
            return None
        if set(members) != MEMBERS:
            return None
        values: dict[str, Any] = {}
        for member in (*NUMBERS, "delta_per_release"):
            text = members[member]
            values[member] = None if text is None else amount(text, *([ATTO] if member.startswith("delta") else []))
            if text is not None and values[member] is None:
                return None
        names = members["mechanisms"]
        if names is not None and not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
            return None
        if names is not None and names != sorted(set(names)):
            return None
        return values | {"mechanisms": names}

    def propose(self, event: Any, amount: Amount) -> str | None:
        if self.stated(event, amount) is None:
            return "it is no policy"
        self.proposed[event["details"]["policy"]] = event
        return None

    def apply(self, event: Any, amount: Amount) -> str | None:
        new = self.stated(event, amount)
        if new is None:
            return "it is no policy"
        earlier = self.proposed.pop(event["details"]["policy"], None)
        if any(self._looser(member, self.held[member], new[member]) for member in MEMBERS):
            if earlier is None or earlier["details"]["ceilings"] != event["details"]["ceilings"]:
                return "it is looser, and nobody had proposed it"
            if earlier["actor"].casefold() == event["actor"].casefold():
                return "it is looser, and one person proposed and applied it"
        if event["details"].get("proposed_by") != (None if earlier is None else earlier["actor"]):
            return "it names another proposer"
        self.held = new
        return None

    @staticmethod
    def _looser(member: str, old: Any, new: Any) -> bool:
        if old is None:
            return False
        if member == "mechanisms":
            return new is None or any(name not in old for name in new)
        return bool(new is None or new > old)

    def charge(self, event: Any, spent: int, body: dict[str, Any] | None, approved: bool) -> str | None:
        """`spent`: ε of the batch with the charge; `body`: of people, if its population is of one."""
        population, batch = event["subject"]["population"], event["subject"]["batch"]
        year, nano, details = event["time"][:4], event["epsilon_nano"]["total"], event["details"]
        of_batches = self.years.setdefault((year, population), {})
        of_batches[batch] = of_batches.get(batch, 0) + nano
        if "lost" in details or "restored" in details:
            return None
        person = 0
        for other, examples in (body["examples"] if body else {population: event["unit"]["max_examples"] or 1}).items():
            amounts = self.years.get((year, other), {})
            own = other == population and event["unit"]["column"] is None
            person += examples * (amounts[batch] if own else max(amounts.values(), default=0))
        totals = dict(zip(NUMBERS[:3], (nano, spent, person), strict=True))
        totals["delta_per_release"] = units(event["delta"], ATTO, "δ")
        for member, total in totals.items():
            if self.held[member] is not None and total > self.held[member]:
                return f"it is beyond the ceiling {member}"
        what = details.get("mechanism") if details.get("answer") is None else details["answer"]
        if self.held["mechanisms"] is not None and what not in self.held["mechanisms"]:
            return "the policy does not allow what it is for"
        above = self.held["four_eyes_above"]
        return "no second person approved it" if above is not None and nano > above and not approved else None
