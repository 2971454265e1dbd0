"""`make around`: what the capabilities around the message achieve, beside the bounds of their papers.

`make around ARGS="isotonic --quick"`; without a name all of them. Each prints its tables and keeps them, with figures,
in `tests/benchmarks/around/results` (`--quick`: fewer and smaller settings, in a folder that is not committed).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
QUICK = HERE / "work"


def names() -> list[str]:
    """Modules with a `run(out, quick)`, by name."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make around", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(names())} (default all)")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller settings")
    parser.add_argument("--out", type=Path, help="folder of the results")
    asked = parser.parse_args(arguments)
    unknown = [part for part in asked.part if part not in names()]
    if unknown:
        print(f"error: there is no part '{unknown[0]}'; there are {', '.join(names())}.", file=sys.stderr)
        return 2
    out = asked.out or (QUICK if asked.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    for part in asked.part or names():
        began = time.monotonic()
        importlib.import_module(f"tests.benchmarks.around.{part}").run(out, asked.quick)
        print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
