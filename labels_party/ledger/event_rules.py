"""Rules of populations whose labels come from events, and the data sets that they name. All of it is public."""

from __future__ import annotations

from collections.abc import Iterable

from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidInput
from label_dp.schemas.events import CUSTOM_PREFIX, LONGEST_NAME, TYPES, DataSet, EventRule


def data_sets(rules: Iterable[EventRule]) -> dict[str, DataSet]:
    """Gather the rules of all populations by data set. Raises Conflict if two of one data set cannot both hold."""
    sets: dict[str, DataSet] = {}
    for rule in rules:
        strict = rule.of_values and rule.other_currency == "refuse"
        currencies = dict.fromkeys(rule.types, rule.currency or "") if strict else {}
        before = sets.get(rule.data_set_id, DataSet(rule.data_set_id, rule.example_path, {}))
        if before.example_path != rule.example_path:
            raise Conflict(
                f"Data set '{rule.data_set_id}' has its example id in {'.'.join(before.example_path)} already; name "
                "the same member, or another data set."
            )
        both = [kind for kind in currencies if before.currencies.get(kind, currencies[kind]) != currencies[kind]]
        if both:
            raise Conflict(
                f"Another population of data set '{rule.data_set_id}' refuses values of '{both[0]}' that are not in "
                f"{before.currencies[both[0]]}, and this one all that are not in {rule.currency}: no event would pass. "
                "Set other_currency to leave-out."
            )
        sets[rule.data_set_id] = DataSet(rule.data_set_id, rule.example_path, before.currencies | currencies)
    return sets


def check_rule(rule: EventRule | None, domain: Domain, missing_label: object, out_of_domain: str | None) -> None:
    """Raise InvalidInput if labels of such a population cannot come from events by this rule."""
    if rule is None:
        return
    unknown = [name for name in rule.types if name not in TYPES and not _custom(name)]
    if unknown:
        raise InvalidInput(
            f"'{unknown[0][:60]}' is no type of event: name one of the Event & Conversion API 1.0, such as purchase, "
            "or custom:NAME."
        )
    if rule.of_values and rule.currency is None:
        raise InvalidInput(f"A rule that takes the {rule.take} of values names their currency.")
    if "+" not in rule.types.values():
        raise InvalidInput("A rule of events counts at least one type with the sign '+'.")
    if domain.names:
        raise InvalidInput("Labels of a domain of names cannot come from events, which give numbers.")
    if missing_label is None:
        raise InvalidInput(
            "A population whose labels come from events needs a missing_label, such as 0: most examples have no event."
        )
    if out_of_domain == "refuse":
        raise InvalidInput(
            "Labels that come from events are clipped to the domain: a refusal would come at the seal, when no event "
            "can be corrected. Leave out_of_domain out."
        )


def _custom(name: str) -> bool:
    return name.startswith(CUSTOM_PREFIX) and 0 < len(name) - len(CUSTOM_PREFIX) <= LONGEST_NAME and name.isprintable()
