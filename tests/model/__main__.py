"""Figures of the model: `python -m tests.model` prints states, steps and processor seconds of each run, compiling
included, and what fails."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path

from tests.model.bugs import HOLE, Bug, options
from tests.model.spin import verdict


def spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def row(name: str, *macros: str, **how: bool) -> None:
    before = spent()
    with tempfile.TemporaryDirectory() as folder:
        seen = verdict(Path(folder), *macros, **how)
    print(
        f"{name:36} {seen.states:>9,} states {seen.depth:>5} steps deep {spent() - before:5.1f} s "
        f" {seen.failure or 'holds'}"
    )


row("two faults: what must hold", "-DFAULTS=2")
row("one fault: charged work ends", "-DFAULTS=1", ends=True)
row("the hole that SECURITY.md names", HOLE, "-DFAULTS=1", quick=True)
for bug in Bug:
    ends = bug.breaks == "cycle"
    row(f"bug {bug.name}", *options(bug), ends=ends, fair=ends, quick=True)
print(f"{spent():.0f} processor seconds in all")
