"""Groupings of an answer with sums, for the pages of both parties: a table and a picture with intervals of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from label_dp.cli.answers import estimates
from label_dp.documents.answer import Answer
from label_dp.documents.registry import KINDS
from label_dp.documents.statement_text import number, visible
from label_dp.pages.pictures import Bar, intervals

MOST_ROWS, MOST_BARS = 100, 40
NONE = "none"  # an example without a value


@dataclass(frozen=True)
class GroupingView:
    """`rows`: values of the columns `by`, then examples, mean, sum and interval as texts; the last member says whether
    they say nothing. `more`: rows that are not shown; `note`: what the picture leaves out."""

    by: list[str]
    rows: list[tuple[list[str], list[str], bool]]
    more: int
    note: str
    picture: Markup


@dataclass(frozen=True)
class SignedResult:
    """An answer, known by the SHA-256 of its payload."""

    digest: str
    answer: Answer = field(compare=False)


@lru_cache(maxsize=16)
def groupings(result: SignedResult) -> tuple[GroupingView, ...]:
    """Return the groupings of an answer; none if its kind has none. Estimates of thousands of cells and their pictures
    take seconds, so those of the latest answers are kept."""
    answer = result.answer
    tables = KINDS[answer.kind].shown(answer).get("tables", [])
    return tuple(_grouping(place, table, answer.population.label) for place, table in enumerate(tables, 1))


def _grouping(place: int, table: Mapping[str, Any], label: str) -> GroupingView:
    by, rows = table["by"], table["rows"]
    texts = [
        (_values(row, by), [f"{row['n']:,}", *map(number, estimates(row)), _interval(row)], silent(row))
        for row in rows[:MOST_ROWS]
    ]
    note = f"The picture shows the {MOST_BARS} groups with most examples, of {len(rows):,}."
    picture = _picture(f"Grouping {place}: by {' and '.join(by)}", label, by, _largest(rows))
    return GroupingView(by, texts, max(0, len(rows) - MOST_ROWS), note if len(rows) > MOST_BARS else "", picture)


def silent(row: Mapping[str, Any]) -> bool:
    """Return whether a row says nothing."""
    return bool(row["says_nothing"])


def _values(row: Mapping[str, Any], by: Sequence[str]) -> list[str]:
    return [NONE if row[name] is None else str(row[name]) for name in by]


def _interval(row: Mapping[str, Any]) -> str:
    return f"{number(row['sum_from'])} to {number(row['sum_to'])}"


def _largest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows with most examples, in their order."""
    places = sorted(sorted(range(len(rows)), key=lambda i: -rows[i]["n"])[:MOST_BARS])
    return [rows[i] for i in places]


def _picture(name: str, label: str, by: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Markup:
    bars = [
        Bar(visible(", ".join(_values(row, by))), row["sum"], row["sum_from"], row["sum_to"], pale=silent(row))
        for row in rows
    ]
    text = "Sum of labels of each group, with the interval that holds the true sum 19 times in 20."
    if any(bar.pale for bar in bars):
        text += " An empty bar says nothing: its interval holds every sum that is possible."
    return intervals(visible(name), text, visible(f"sum of {label}"), bars)
