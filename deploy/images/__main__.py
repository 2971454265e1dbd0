"""`make images`: options, the steps in order, one table at the end."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deploy.images.engine import Engine, Failed, stand_ins
from deploy.images.rig import Rig
from deploy.images.steps import STEPS

ROOT = Path(__file__).parents[2]


def parser() -> argparse.ArgumentParser:
    """The options of `make images ARGS=…`."""
    made = argparse.ArgumentParser(
        "python -m deploy.images", description="Build both images and play docker-compose.yml."
    )
    made.add_argument(
        "--stand-ins", type=Path, metavar="FOLDER", help="no registry: an engine and base images of its own"
    )
    made.add_argument("--clicks", type=int, default=5000, help="clicks of each demo")
    made.add_argument("--json", action="store_true", help="print the results as one JSON document instead")
    return made


@contextlib.contextmanager
def cleared(engine: Engine) -> Iterator[None]:
    """Nothing of an earlier play before, and nothing of this one afterwards."""
    engine.compose("down", "--volumes", profile="demo")
    try:
        yield
    finally:
        with contextlib.suppress(Failed):
            engine.compose("down", "--volumes", profile="demo")


def play(engine: Engine, clicks: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every step until one fails: its name, seconds, what was seen, and whether it did what it has to."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, cleared(engine):
        rig = Rig(engine, clicks, Path(folder))
        for step in STEPS:
            name, start, passed = (step.__doc__ or "").rstrip("."), time.monotonic(), True
            tell(name)
            try:
                seen = step(rig)
            except Failed as failure:
                seen, passed = str(failure), False
            results.append(
                {"step": name, "seconds": round(time.monotonic() - start, 1), "seen": seen, "passed": passed}
            )
            if not passed:
                break
    return results


def main() -> None:
    given = parser().parse_args()
    where = stand_ins(ROOT, given.stand_ins.absolute()) if given.stand_ins else contextlib.nullcontext(Engine(ROOT))
    try:
        with where as engine:
            results = play(engine, given.clicks, lambda name: print(f"… {name}", file=sys.stderr, flush=True))
    except Failed as failure:
        sys.exit(f"error: {failure}")
    if given.json:
        print(json.dumps(results, ensure_ascii=False, indent=2))
    else:
        print("\n| step | seconds | seen |\n|---|---|---|")
        for row in results:
            print(f"| {row['step']} | {row['seconds']} | {'' if row['passed'] else 'FAILED: '}{row['seen']} |")
    sys.exit(not all(row["passed"] for row in results))


if __name__ == "__main__":
    main()
