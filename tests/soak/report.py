"""What a soak tried and what came of it: one row per test, as a table for people and JSON for programs.

A second table holds the findings of hostile reviews: how each was tried, and what it gave before and after.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HEAD = ("test", "tried", "survived", "limit", "seconds", "seed", "day")
HEAD_OF_FINDINGS = ("finding", "how it was tried", "before", "after", "day")


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


@dataclass
class Finding:
    """`before` is what the review saw on the code of its day, `after` what this run saw."""

    finding: str
    tried: str
    before: str
    after: str
    day: str = field(default_factory=today)

    def cells(self) -> list[str]:
        return [self.finding, self.tried, self.before, self.after, self.day]


@dataclass
class Row:
    """`survived` of `tried` cases went as they must; `limit` says what was bounded, and what was measured."""

    test: str
    tried: int
    survived: int
    limit: str
    seconds: float
    seed: int
    day: str = field(default_factory=today)

    def cells(self) -> list[str]:
        counts = [f"{self.tried:,}", f"{self.survived:,}"]
        return [self.test, *counts, self.limit, f"{self.seconds:.0f}", str(self.seed), self.day]


class Report:
    def __init__(self, seed: int, scale: float) -> None:
        self.seed, self.scale, self.rows = seed, scale, list[Row]()
        self.findings: list[Finding] = []
        self.started = self._test_started = time.monotonic()
        self._test = ""

    def begin(self, test: str) -> None:
        self._test, self._test_started = test, time.monotonic()

    def end(self) -> None:
        self._test = ""

    def row(self, tried: int, survived: int, limit: str) -> None:
        """Say what the running test did; call it before the assertions."""
        name = self._test.removeprefix("test_").replace("_", " ")
        seconds = round(time.monotonic() - self._test_started, 1)
        self.rows.append(Row(name, tried, survived, limit, seconds, self.seed))

    def finding(self, finding: str, *, tried: str, before: str, after: str) -> None:
        """Say what a finding of a review gives today; call it before the assertions. `finding`: its number and name."""
        self.findings.append(Finding(finding, tried, before, after))

    def failed(self, test: str, text: str) -> None:
        first = (text.splitlines() or ["failed"])[0][:160]
        name = test.removeprefix("test_").replace("_", " ")
        if not self.rows or self.rows[-1].test != name:
            self.rows.append(Row(name, 0, 0, "", round(time.monotonic() - self._test_started, 1), self.seed))
        self.rows[-1].limit += f" FAILED: {first}"

    def table(self) -> str:
        lines = [HEAD, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)

    def keep(self, folder: Path, *, whole: bool) -> None:
        """Replace the last report in `folder`, or, of a run that was not `whole`, the rows of what was run."""
        folder.mkdir(exist_ok=True)
        path = folder / "soak.json"
        kept = {} if whole or not path.exists() else json.loads(path.read_text())
        run, found = {row.test for row in self.rows}, {f.finding for f in self.findings}
        rows = [row for row in (Row(**data) for data in kept.get("rows", ())) if row.test not in run] + self.rows
        findings = [f for f in (Finding(**data) for data in kept.get("findings", ())) if f.finding not in found]
        rows.sort(key=lambda row: row.test)
        findings = sorted(findings + self.findings, key=lambda f: int(f.finding.split()[0]))
        data = {
            "python": platform.python_version(),
            "seconds_each": self.scale,
            "rows": [asdict(row) for row in rows],
            "findings": [asdict(f) for f in findings],
        }
        path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        head = f"# Last soak\n\n`make soak SECONDS_EACH={self.scale:g} SEED=…` repeats it, each part with its seed.\n\n"
        text = head + _table(HEAD, rows)
        if findings:
            text += "\n## Findings of hostile reviews\n\n" + _table(HEAD_OF_FINDINGS, findings)
        (folder / "soak.md").write_text(text)


def _table(head: Sequence[str], rows: Sequence[Row] | Sequence[Finding]) -> str:
    lines = [head, ["---"] * len(head), *(row.cells() for row in rows)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
