"""Members of messages and answers alike: format, names, audiences, the split of ε, the unit that it protects."""

from __future__ import annotations

import re
from typing import Any

from .exact import ATTO, NANO, units
from .members import DIGEST, ID, MANY, count, listed, matching, members, moment, one_of, perhaps, text
from .refusal import refuse

MOST_BYTES = 1 << 20  # of the signed document itself
MOST_OF_UNIT = 1_000_000
SPLIT = ("clip", "prior", "randomize", "total", "delta")
PER_UNIT = re.compile(r"(0|[1-9][0-9]{0,14})(\.[0-9]{0,8}[1-9])?", re.ASCII)
EVENTS = ("data_set_id", "types", "take", "example_id", "currency", "other_currency", "window_days", "mmt_only")
_NAME = r"[^.\x00-\x20]{1,60}"
EXAMPLE_ID = re.compile(
    rf"user_data\.(click_id|impression_id)|((user_data|properties)\.)?ext\.{_NAME}(\.{_NAME}){{0,3}}"
)
CURRENCY = re.compile("[A-Z]{3}")
COMMON = (
    *("format", "id", "batch", "population", "audiences", "key_id", "created", "n", "domain", "out_of_domain"),
    *("missing_label", "mechanism", "epsilon", "epsilon_spent", "epsilon_lifetime", "delta_spent", "delta_lifetime"),
    *("unit", "chain_head", "adjacency", "randomness"),
)


def check_format(document: Any, name: str) -> None:
    """Whether it is a document of format `name`/1."""
    given = document.get("format") if isinstance(document, dict) else None
    if not isinstance(given, str) or re.fullmatch(re.escape(name) + "/[1-9][0-9]{0,8}", given) is None:
        refuse(f"the document is not a {name}")
    if given != f"{name}/1":
        refuse(f"the document is no {name} of format 1: a newer verifier may read it", "version")


def check_common(d: Any, key_id: str, audience: str | None, what: str) -> None:
    """`d` has the members COMMON, and others that its kind checks."""
    matching(d["id"], ID, f"the {what}'s id")
    matching(d["batch"], ID, "the batch")
    population = members(d["population"], ("id", "name", "label", "events"), "the population")
    matching(population["id"], ID, "the population")
    text(population["name"], "the population's name")
    text(population["label"], "the label's name")
    if population["events"] is not None:
        _check_events(population["events"])
    for name in listed(d["audiences"], 1, 1000, "the list of audiences"):
        text(name, "an audience", most=200)
    if len(set(d["audiences"])) != len(d["audiences"]):
        refuse("an audience is listed twice")
    if d["key_id"] != key_id:
        refuse(f"the {what} names another signing key than the one that signed it")
    if audience is not None and audience not in d["audiences"]:
        refuse(f"the {what} is not meant for '{audience}'", "audience")
    moment(d["created"], "the day")
    count(d["n"], 1, MANY, "n")
    one_of(d["out_of_domain"], ("clip", "refuse"), "the rule for labels outside the domain")
    perhaps(d["missing_label"], "the missing label")
    text(d["randomness"], "the word on randomness", least=0, most=MOST_BYTES)
    _check_unit(d)
    if (d["chain_head"] is None) != (d["format"] == "label-dp-rehearsal/1"):
        refuse("a charged document states the head of its labels party's chain, a rehearsal none")
    check_head(d["chain_head"])


def check_head(value: Any) -> None:
    """A day and the digest of the first event of that day; or none."""
    if value is not None:
        head = members(value, ("day", "digest"), "the head of a chain")
        moment(head["day"], "the day of a head")
        matching(head["digest"], DIGEST, "the digest of a head")


def check_split(d: Any) -> tuple[list[int], str]:
    """(nano-ε of clip, prior and randomize, then atto-δ) of a message or an answer, and a line about them."""
    eps = members(d["epsilon"], SPLIT, "the ε split")
    parts = [units(eps[name], NANO, f"ε of part {name}") for name in SPLIT[:3]]
    total, spent, lifetime = _totals(d)
    if sum(parts) != total:
        refuse("the parts of ε do not add up to its total")
    if not total <= spent <= lifetime:
        refuse("its own ε ≤ ε spent ≤ lifetime ε does not hold")
    own = units(eps["delta"], ATTO, "δ")
    if not own <= units(d["delta_spent"], ATTO, "δ spent") <= units(d["delta_lifetime"], ATTO, "lifetime δ"):
        refuse("its own δ ≤ δ spent ≤ lifetime δ does not hold")
    said = f"ε {eps['total']} = clip {eps['clip']} + prior {eps['prior']} + randomize {eps['randomize']}, "
    said += f"spent {d['epsilon_spent']} of {d['epsilon_lifetime']}"
    return [*parts, own], said + (f"; δ {eps['delta']}" if own else "")


def _totals(d: Any) -> tuple[int, int, int]:
    total = units(d["epsilon"]["total"], NANO, "ε")
    return total, units(d["epsilon_spent"], NANO, "ε spent"), units(d["epsilon_lifetime"], NANO, "lifetime ε")


def _check_events(value: Any) -> None:
    """The rule by which labels were made of events."""
    rule = members(value, EVENTS, "the rule of events")
    text(rule["data_set_id"], "the data set of the events", most=200)
    if not isinstance(rule["types"], dict) or not 1 <= len(rule["types"]) <= 50:
        refuse("the types of events are not 1 to 50")
    for sign in rule["types"].values():
        one_of(sign, ("+", "-"), "the sign of a type of events")
    one_of(rule["take"], ("any", "count", "sum", "first", "last", "max"), "what is taken of events")
    matching(rule["example_id"], EXAMPLE_ID, "the member that holds the example id")
    if rule["currency"] is not None:
        matching(rule["currency"], CURRENCY, "the currency of the events")
    one_of(rule["other_currency"], ("refuse", "leave-out"), "the rule for another currency")
    if rule["window_days"] is not None:
        count(rule["window_days"], 1, 3650, "the window of the events in days")
    one_of(rule["mmt_only"], ("leave-out", "count"), "the rule for events marked mmt_only")


def _check_unit(d: Any) -> None:
    """An example; or a unit, each of whose examples may have spent as much as one of them has, up to a lifetime ε."""
    names = ("column", "max_examples", "epsilon_per_unit", "examples_beyond")
    unit = members(d["unit"], ("kind", *names), "the unit")
    if one_of(unit["kind"], ("example", "unit"), "the kind of unit") == "example":
        if any(unit[name] is not None for name in names):
            refuse("an example has no column, no number of examples and no ε of a unit")
        return
    if not isinstance(unit["column"], str):
        refuse("a unit has a column")
    most = count(unit["max_examples"], 1, MOST_OF_UNIT, "the number of examples of a unit")
    whole, _, rest = matching(unit["epsilon_per_unit"], PER_UNIT, "ε per unit").partition(".")
    each, over = divmod(int(whole + rest.ljust(9, "0")), most)
    _, spent, lifetime = _totals(d)
    if over or not spent <= each <= lifetime:
        refuse("ε per unit does not follow from what its examples may have spent")
    without = 0 if d["missing_label"] is None else d["n"]
    count(unit["examples_beyond"], 0, without, "the number of examples beyond the bound of a unit")
