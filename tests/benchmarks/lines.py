"""What a benchmark says: lines, each beside what it was measured against in the same run, and how two runs compare."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

WORSE = 1.15  # times worse than what was kept: machines that do other things as well differ by less


@dataclass(frozen=True)
class Line:
    """`ratio` is `figure` divided by that of `beside`, in the same unit; None where nothing does the same work.

    `more`: more is better, as of speeds; else less is, as of times and memory. `wanted` bounds the figure,
    `wanted_ratio` the ratio. `size`: the rows, or values of a domain, of a line that is one of a series of sizes.
    """

    name: str
    figure: float
    unit: str
    beside: str = ""
    ratio: float | None = None
    wanted: float | None = None
    wanted_ratio: float | None = None
    more: bool = False
    note: str = ""
    size: int | None = None

    @property
    def key(self) -> str:
        return self.name if self.size is None else f"{self.name}, {self.size:,}"

    @property
    def met(self) -> bool | None:
        """Whether every bound holds; None where there is none."""
        bounds = [(self.figure, self.wanted), (self.ratio, self.wanted_ratio)]
        judged = [(value >= bound) == self.more or value == bound for value, bound in bounds if value and bound]
        return all(judged) if judged else None

    def text(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:9.2f} × {self.beside}"
        sign = "≥" if self.more else "≤"
        bounds = [f"{sign} {self.wanted:g} {self.unit}"] if self.wanted else []
        bounds += [f"{sign} {self.wanted_ratio:g} ×"] if self.wanted_ratio else []
        wanted = f"wanted {', '.join(bounds)}: {'yes' if self.met else 'NO'}" if bounds else ""
        said = "; ".join(part for part in (ratio.strip(), wanted, self.note) if part)
        return f"  {self.key:<46}{self.figure:>10.2f} {self.unit:<10} {said}".rstrip()


def write(path: Path, found: dict[str, list[Line]], machine: str) -> None:
    """Keep the lines of a run, by section; sections that were not run stay as they were kept."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    sections = kept.get("sections", {}) | {title: [asdict(line) for line in lines] for title, lines in found.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "sections": sections}, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> dict[str, list[Line]]:
    """The lines that a run kept, by section."""
    sections = json.loads(path.read_text())["sections"]
    return {title: [Line(**line) for line in lines] for title, lines in sections.items()}


def slips(found: Iterable[Line], kept: Iterable[Line], worse: float = WORSE) -> list[str]:
    """A sentence for every ratio that is more than `worse` times as bad as the kept one of its name; and for those that
    one side lacks. Figures are not compared: they are the machine's."""
    now, before = ({line.key: line for line in lines if line.ratio is not None} for lines in (found, kept))
    said = []
    for name in now.keys() & before.keys():
        ours, theirs = now[name].ratio or 0.0, before[name].ratio or 0.0
        times = theirs / ours if now[name].more else ours / theirs
        if times > worse:
            said.append((times, f"{name}: {ours:.2f} × {now[name].beside}, was {theirs:.2f}: {times:.2f} times as bad"))
    missing = [f"{name}: in one of the two runs only" for name in sorted(now.keys() ^ before.keys())]
    return [text for _, text in sorted(said, reverse=True)] + missing
