"""The template engine of pages and reports: everything is escaped, and what is missing is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2
from markupsafe import Markup

from label_dp.documents.statement_text import count, number, percent, visible
from label_dp.privacy import Epsilon


def engine(package: str) -> jinja2.Environment:
    """Of the templates of `package`, then of ours."""
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("label_dp.pages")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
    )
    found.filters |= FILTERS
    return found


STATES = {
    "accepted": "waits for a second person",
    "charged": "charged, waits to be drawn",
    "drawing": "is being drawn",
    "published": "published",
    "failed": "failed",
    "running": "runs",
    "succeeded": "done",
    "cancelled": "cancelled",
    "open": "open",
    "sealed": "sealed",
    "purged": "labels deleted",
}


def thousands(value: Any) -> str:
    """Format a number with separators; a dash for None."""
    return "–" if value is None else f"{value:,}"


def grouped(figure: str) -> str:
    """A figure as it was typed, its thousands apart."""
    return f"{int(figure):,}" if figure.isascii() and figure.isdigit() and len(figure) < 20 else figure


def day(value: str | None) -> Markup:
    """A day that no line end parts at its hyphens."""
    return Markup("<time>{}</time>").format(value[:10]) if value else Markup("–")


def days_of(span: dict[str, str]) -> Markup:
    """The first and the last day of something."""
    first, last = day(span["first"]), day(span["last"])
    return first if first == last else Markup("{} to {}").format(first, last)


def state(value: str) -> str:
    """Return the words of a state."""
    return STATES.get(value, value)


def share(part: str, whole: str) -> int:
    """Percent of ε from 0 to 100, rounded up, so that nothing that was spent looks like nothing."""
    of = Epsilon.parse(whole).nano
    return 0 if not of else min(100, -(-Epsilon.parse(part).nano * 100 // of))


def left(lifetime: str, spent: str) -> str:
    """Return the remaining ε, at least 0."""
    return str(Epsilon(max(0, Epsilon.parse(lifetime).nano - Epsilon.parse(spent).nano)))


def rounded(value: Any) -> str:
    """Four digits of a measure; a count as it is."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else number(float(f"{float(value):.4g}"))


def plain(value: Any) -> str:
    """A rule as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def short(value: str) -> str:
    """An id or digest for the eye; its whole stands in the title beside it."""
    return value if len(value) <= 16 else f"{value[:12]}…"


FILTERS: dict[str, Callable[..., Any]] = {
    "thousands": thousands,
    "grouped": grouped,
    "day": day,
    "days_of": days_of,
    "state": state,
    "share": share,
    "left": left,
    "short": short,
    "number": rounded,
    "count": count,
    "plain": plain,
    "percent": lambda value: percent(float(value)),
}
