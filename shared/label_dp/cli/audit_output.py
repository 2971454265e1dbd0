"""Output of `audit show` and `audit verify` of both parties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from label_dp.audit.checks import report_lines
from label_dp.audit.events import Event
from label_dp.audit.show import NOBODY, Totals, describe, plain, sentence
from label_dp.cli.output import echo, emit, json_text, say, table


def show(
    events: Iterable[Event],
    party: str,
    *,
    as_json: bool,
    lines: bool,
    totals_only: bool,
    names: Mapping[str, str] = NOBODY,
) -> None:
    """Print `events` as sentences with the totals, as one JSON list, as one JSON object a line, or only the totals."""
    if lines:
        for event in events:
            print(json_text(describe(event, exact=True, names=names)))  # noqa: T201 - the command line's own output
        return
    if as_json and not totals_only:
        emit([describe(event, exact=True, names=names) for event in events], True, lambda: None)
        return
    totals, number = Totals(), 0
    for event in events:
        totals.add(event)
        number += 1
        if not totals_only:
            say(f"{event.sequence:>6}  {event.moment}  {event.kind:<20}  {sentence(event, names)}", indent=8)
    if as_json:
        emit(totals.as_json(), True, lambda: None)
    elif totals.batches:
        _totals_table(totals, party)
    elif not number:
        echo("No event fits.")


def _totals_table(totals: Totals, party: str) -> None:
    batches = totals.as_json()
    columns = ["population_name", "batch", "charges", "epsilon_spent", "epsilon_lifetime"]
    heads = ["population", "batch", "charges", "ε spent", "lifetime ε"]
    what = "ε"
    if any(t["delta_spent"] != "0" or t["delta_lifetime"] not in (None, "0") for t in batches):
        columns, heads = [*columns, "delta_spent", "delta_lifetime"], [*heads, "δ spent", "lifetime δ"]
        what = "ε and δ"
    rows = [[plain("" if t[column] is None else t[column]) for column in columns] for t in batches]
    table(f"{what} per example, by batch, in the audit store of the {party}", heads, rows)


def show_comparison(data: dict[str, Any], as_json: bool) -> None:
    """Print the findings, a sentence each; exit code 1 if there are any."""

    def human() -> None:
        for line in comparison_lines(data):
            say(line, indent=2)

    emit(data, as_json, human)
    if data["findings"]:
        raise SystemExit(1)


def comparison_lines(data: dict[str, Any]) -> list[str]:
    """Format a comparison for people."""
    lines = [f"{finding['kind']}: {plain(finding['sentence'])}" for finding in data["findings"]]
    if data["agrees"]:
        lines.append(f"{data['events']} events agree with the export of {data['of']}")
    return lines + [f"  note: {plain(note)}" for note in data["notes"]]


def show_report(data: dict[str, Any], as_json: bool) -> None:
    """Print a report as text or JSON."""

    def human() -> None:
        for line in report_lines(data):
            say(plain(line), indent=2)

    emit(data, as_json, human)
