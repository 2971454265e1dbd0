"""`make coverage`: lines and branches of the product that tests run, also in processes that they start, by room.

`make coverage ARGS="tests/unit -n 0"` asks for a part; without ARGS it is every test but those that need PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PARTIES = ("labels_party", "features_party", "shared")
ALL = ("-n", "2", "--dist", "worksteal", "-m", "not torch and not mlflow")
CONFIG = f"""
[run]
branch = true
parallel = true
source = {",".join(str(ROOT / party) for party in PARTIES)}
patch = subprocess
"""


def measured(folder: Path, arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """(pytest's exit status, coverage's JSON report)."""
    config = folder / "coveragerc"
    config.write_text(CONFIG + f"data_file = {folder / 'data'}\n", encoding="utf-8")
    coverage = [sys.executable, "-m", "coverage"]
    options = [f"--cov-config={config}", "--cov", "--cov-report=", "-p", "no:cacheprovider"]
    environment = os.environ | {"COVERAGE_FILE": str(folder / "data")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(arguments or ALL)], cwd=ROOT, env=environment, check=False
    )
    report = folder / "coverage.json"
    command = [*coverage, "json", f"--rcfile={config}", "--quiet", "-o", str(report)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return ran.returncode, found


def room_of(file: str) -> str:
    """Two levels: labels_party/ledger; files that lie loose in a party are `labels_party`."""
    parts = Path(file.replace("shared/label_dp/", "shared/")).parts
    return "/".join(parts[: 2 if len(parts) > 2 else 1])


def table(report: dict[str, Any]) -> list[str]:
    """A line a room and one for all: the share of lines and of branches, and how many of each there are."""
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for file, measures in report["files"].items():
        told = measures["summary"]
        numbers = [told[n] for n in ("covered_lines", "num_statements", "covered_branches", "num_branches")]
        for name in (room_of(file), "total"):
            rooms[name] = [a + b for a, b in zip(rooms[name], numbers, strict=True)]
    lines = [f"{'room':32} {'lines':>8} {'of':>7} {'branches':>10} {'of':>7}"]
    for name in (*sorted(set(rooms) - {"total"}), "total"):
        ran, statements, taken, branches = rooms[name]
        lines.append(f"{name:32} {_share(ran, statements)} {statements:7,} {_share(taken, branches, 10)} {branches:7,}")
    return lines


def _share(part: int, whole: int, width: int = 8) -> str:
    return f"{100 * part / whole:{width - 2}.1f} %" if whole else f"{'-':>{width}}"


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        status, report = measured(Path(folder), arguments)
    print("\n".join(table(report)))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
