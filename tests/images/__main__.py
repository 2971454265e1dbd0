"""`make images`: options, the steps in order, one table at the end and its place in deploy/README.md."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy.images.engine import ContainerEngine, Failed, stand_ins
from tests.images.rig import Rig
from tests.images.steps import STEPS

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- make images ARGS=--keep -->", "<!-- until here -->"
HELD = {True: "yes", False: "**no**", None: "not tried"}


def table(results: list[dict[str, Any]]) -> str:
    """Step, seconds, whether it held, and what was seen."""
    lines = ["| step | seconds | held | seen |", "|---|---|---|---|"]
    for row in results:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
        result = " ".join(row["seen"].split()).replace("|", "\\|")
        lines.append(f"| {row['step']} | {seconds} | {HELD[row['held']]} | {result} |")
    return "\n".join(lines)


def keep(page: Path, found: str) -> None:
    """Put a table in the place of the last one. Raises Failed where the page has no place for it."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise Failed(f"{page} has no lines '{BEGIN}' and '{END}'")
    page.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The options of `make images ARGS=…`."""
    made = argparse.ArgumentParser(
        "python -m tests.images", description="Build both images and play docker-compose.yml."
    )
    made.add_argument(
        "--stand-ins", type=Path, metavar="FOLDER", help="no registry: an engine and base images of its own"
    )
    made.add_argument("--clicks", type=int, default=5000, help="clicks of each demo")
    made.add_argument("--load", type=int, default=100_000, help="clicks under which memory is measured")
    made.add_argument("--cold", action="store_true", help="build the images from nothing, not from what is cached")
    made.add_argument("--keep", action="store_true", help="put the table into deploy/README.md, if every step held")
    made.add_argument("--json", action="store_true", help="print the results as one JSON document instead")
    return made


@contextlib.contextmanager
def cleared(engine: ContainerEngine) -> Iterator[None]:
    """Nothing of an earlier play before, and nothing of this one afterwards."""
    engine.compose("down", "--volumes", profile="demo")
    try:
        yield
    finally:
        with contextlib.suppress(Failed):
            engine.compose("down", "--volumes", profile="demo")


def play(rig: Rig, steps: Sequence[Callable[[Rig], str]], tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every step until one fails: its name, seconds, what was seen, and whether it held. Later ones are not tried."""
    results: list[dict[str, Any]] = []
    failed = False
    for step in steps:
        row: dict[str, Any] = {"step": (step.__doc__ or "").rstrip("."), "seconds": None, "held": None, "seen": ""}
        results.append(row)
        if failed:
            continue
        tell(row["step"])
        start = time.monotonic()
        try:
            row["seen"], row["held"] = step(rig), True
        except Failed as failure:
            row["seen"], row["held"], failed = str(failure), False, True
        row["seconds"] = round(time.monotonic() - start, 1)
    return results


def main() -> None:
    """Play the steps and print their table."""
    given = parser().parse_args()
    where = (
        stand_ins(ROOT, given.stand_ins.absolute())
        if given.stand_ins
        else contextlib.nullcontext(ContainerEngine(ROOT))
    )
    try:
        with where as engine, tempfile.TemporaryDirectory() as folder, cleared(engine):
            rig = Rig(engine, given.clicks, Path(folder), given.load, given.cold)
            results = play(rig, STEPS, lambda name: print(f"… {name}", file=sys.stderr, flush=True))
        held = all(row["held"] for row in results)
        print(json.dumps(results, ensure_ascii=False, indent=2) if given.json else "\n" + table(results))
        if given.keep and held:
            keep(ROOT / "deploy" / "README.md", table(results))
    except Failed as failure:
        sys.exit(f"error: {failure}")
    sys.exit(not held)


if __name__ == "__main__":
    main()
