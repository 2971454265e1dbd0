"""What a soak tried and what came of it: one row per test, as a table for people and JSON for programs."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HEAD = ("test", "tried", "survived", "limit", "seconds", "seed", "day")


@dataclass
class Row:
    """`survived` of `tried` cases went as they must; `limit` says what was bounded, and what was measured."""

    test: str
    tried: int
    survived: int
    limit: str
    seconds: float
    seed: int
    day: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))

    def cells(self) -> list[str]:
        counts = [f"{self.tried:,}", f"{self.survived:,}"]
        return [self.test, *counts, self.limit, f"{self.seconds:.0f}", str(self.seed), self.day]


class Report:
    def __init__(self, seed: int, scale: float) -> None:
        self.seed, self.scale, self.rows = seed, scale, list[Row]()
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
        rows = [] if whole or not path.exists() else [Row(**row) for row in json.loads(path.read_text())["rows"]]
        run = {row.test for row in self.rows}
        rows = sorted([row for row in rows if row.test not in run] + self.rows, key=lambda row: row.test)
        data = {"python": platform.python_version(), "seconds_each": self.scale, "rows": [asdict(row) for row in rows]}
        path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        lines = ["| " + " | ".join(cells) + " |" for cells in (HEAD, ["---"] * len(HEAD), *(r.cells() for r in rows))]
        head = f"# Last soak\n\n`make soak SECONDS_EACH={self.scale:g} SEED=…` repeats it, each part with its seed.\n\n"
        (folder / "soak.md").write_text(head + "\n".join(lines) + "\n")
