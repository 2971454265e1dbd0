"""The table of a play, and its place in deploy/README.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deploy.images.engine import Failed

BEGIN, END = "<!-- make images ARGS=--keep -->", "<!-- until here -->"
HELD = {True: "yes", False: "**no**", None: "not tried"}


def table(results: list[dict[str, Any]]) -> str:
    """Step, seconds, whether it held, and what was seen."""
    lines = ["| step | seconds | held | seen |", "|---|---|---|---|"]
    for row in results:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
        seen = " ".join(row["seen"].split()).replace("|", "\\|")
        lines.append(f"| {row['step']} | {seconds} | {HELD[row['held']]} | {seen} |")
    return "\n".join(lines)


def keep(page: Path, found: str) -> None:
    """Put a table in the place of the last one. Raises Failed where the page has no place for it."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise Failed(f"{page} has no lines '{BEGIN}' and '{END}'")
    page.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}", encoding="utf-8")
