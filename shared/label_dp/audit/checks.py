"""Reports of `audit verify`: the checks made, and the limits of every check of a store or an export."""

from __future__ import annotations

from typing import Any

from label_dp.audit.rulebook import MATCHED, RULES

CHECKED = (
    "every event is in its canonical form and of a known format",
    "event numbers run from 1 without a gap, and each event holds the SHA-256 of the one before",
    "all events belong to one audit store",
    "the parts of every ε add up",
    *(f"rule {rule.number}: {rule.sentence}" for rule in RULES if rule != MATCHED),
    "receipts are signed with the right key, say what their events say, and link to each other",
)
CHECKED_STORE = "the columns that queries use equal the hashed events"
CHECKED_EXPORT = "the signature, and that count and head are those of the events"
NOT_CHECKED = (
    "that no events were cut off at the end: compare with an export kept elsewhere (--against)",
    "that everything that happened was recorded: whoever ran another program on the labels left no event here",
)


def report(count: int, head: str, populations: list[dict[str, Any]], *, export: bool) -> dict[str, Any]:
    """Build the report of a successful `audit verify`; `populations`: ε spent per example and per unit."""
    checked = [*CHECKED, CHECKED_EXPORT if export else CHECKED_STORE]
    members = {"events": count, "head": head, "verified": True, "populations": populations}
    return members | {"checked": checked, "not_checked": list(NOT_CHECKED)}


def report_lines(data: dict[str, Any]) -> list[str]:
    """Format a report for people."""
    lines = [f"{data['events']} events verified, head {data['head']}"]
    lines += [_spent(population) for population in data["populations"]]
    lines += [f"  checked: {what}" for what in data["checked"]]
    return lines + [f"  not checked: {what}" for what in data["not_checked"]]


def _spent(population: dict[str, Any]) -> str:
    """Format ε spent of one population, per unit first if examples are not the unit."""
    each = f"ε {population['epsilon_spent']} of {population['epsilon_lifetime']} per example"
    unit, of_unit = population["unit"], population["epsilon_per_unit"]
    amount = each if of_unit is None else f"ε {of_unit} per {unit['column']}, all its examples together ({each})"
    return f"  spent at most: {population['population_name']}: {amount}"
