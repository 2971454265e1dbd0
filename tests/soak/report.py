"""What a soak tried and what came of it: one row per test, as a table for people and JSON for programs."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

HEAD = ("test", "tried", "survived", "limit", "seconds", "seed")


@dataclass
class Row:
    """`survived` of `tried` cases went as they must; `limit` says what was bounded, and what was measured."""

    test: str
    tried: int
    survived: int
    limit: str
    seconds: float
    seed: int

    def cells(self) -> list[str]:
        return [self.test, f"{self.tried:,}", f"{self.survived:,}", self.limit, f"{self.seconds:.0f}", str(self.seed)]


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
        self.rows.append(Row(name, tried, survived, limit, time.monotonic() - self._test_started, self.seed))

    def failed(self, test: str, text: str) -> None:
        first = (text.splitlines() or ["failed"])[0][:160]
        name = test.removeprefix("test_").replace("_", " ")
        if not self.rows or self.rows[-1].test != name:
            self.rows.append(Row(name, 0, 0, "", time.monotonic() - self._test_started, self.seed))
        self.rows[-1].limit += f" FAILED: {first}"

    def table(self) -> str:
        lines = [HEAD, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)

    def keep(self, folder: Path) -> None:
        """Replace the last report in `folder`."""
        folder.mkdir(exist_ok=True)
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        about = {"day": day, "seconds_each": self.scale, "seed": self.seed, "python": platform.python_version()}
        data = about | {"rows": [asdict(row) | {"seconds": round(row.seconds, 1)} for row in self.rows]}
        (folder / "soak.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        lines = [
            "| " + " | ".join(cells) + " |" for cells in (HEAD, ["---"] * len(HEAD), *(r.cells() for r in self.rows))
        ]
        head = f"# Last soak, {day}\n\n{self.scale:g} seconds each; repeat it with `make soak SEED={self.seed}`.\n\n"
        (folder / "soak.md").write_text(head + "\n".join(lines) + "\n")
