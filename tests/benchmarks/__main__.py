"""`make bench`: every benchmark, one line a figure, each beside what it was measured against in the same run."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from pathlib import Path

from tests.benchmarks.lines import Line, read, slips, write
from tests.benchmarks.plots import draw

KEPT = Path(__file__).parent / "results" / "bench.json"
SECTIONS = {
    "solver": "Solver",
    "sampler": "Sampler",
    "command": "Command line",
    "start": "Start",
    "intake": "Labels intake",
    "events": "Conversion events",
    "calls": "Small calls",
    "join": "Join",
    "pull": "Pull",
    "privatize": "Privatize",
    "tables": "Tables",
    "training": "Training",
    "trees": "Trees from disk",
    "gpu": "The paper's network on a GPU",
    "spark": "Spark",
    "history": "History",
    "growth": "Growth",
}
SIZED = ("growth", "privatize", "events", "trees", "gpu", "spark")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help=f"the most rows of the parts {', '.join(SIZED)}, instead of 10,000,000 (a training on Spark: 1,000,000)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines to a file as well")
    parser.add_argument("--keep", action="store_true", help=f"keep them in {KEPT.relative_to(Path.cwd())}")
    parser.add_argument(
        "--compare",
        nargs="?",
        type=Path,
        const=KEPT,
        metavar="FILE",
        help="say which ratios got worse than the kept ones, or those of a file; then the exit code is 1",
    )
    asked = parser.parse_args()
    asked.only = list(SECTIONS) if asked.only is None else asked.only.split(",")
    unknown = [name for name in asked.only if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no part '{unknown[0]}'; the parts are {', '.join(SECTIONS)}")
    if asked.compare and not asked.compare.exists():
        parser.error(f"nothing was kept in {asked.compare}; `--keep` or `--json` keep the lines of a run")
    return asked


def main() -> int:
    asked = _asked()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    kept = read(asked.compare) if asked.compare else {}  # before this run replaces it
    print(f"{machine}\n")
    found: dict[str, list[Line]] = {}
    for name in asked.only:
        print(SECTIONS[name], flush=True)
        sizes = [asked.rows] if asked.rows and name in SIZED else []
        found[name] = importlib.import_module(f"tests.benchmarks.bench_{name}").lines(*sizes)
        print("\n".join(line.text() for line in found[name]) + "\n", flush=True)
    for path in [*([KEPT] if asked.keep else []), *([asked.json] if asked.json else [])]:
        write(path, found, machine)
    for name in ("growth", "history"):
        if asked.keep and name in found:
            draw[name](found[name], KEPT.parent)
    if not asked.compare:
        return 0
    worse = [f"{SECTIONS[name]}: {said}" for name in found for said in slips(found[name], kept.get(name, []))]
    print("\n".join(["Worse than what was kept:", *worse]) if worse else "No ratio is worse than what was kept.")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
