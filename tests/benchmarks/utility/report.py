"""The report: what was run, the tables and the figures, in Markdown, with CSV and PNG files beside it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks.utility.cells import ROOT, Cell
from tests.benchmarks.utility.grid import COLUMNS, ROWS, unknown
from tests.benchmarks.utility.results import Results, Table

PACKAGES = ("numpy", "scipy", "xgboost-cpu", "xgboost", "lightgbm", "opendp", "torch")
COMMAND = "make tables"


def write(
    folder: Path,
    results: Results,
    tables: Sequence[Table],
    figures: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    wall: float,
    command: str,
) -> Path:
    """`figures`: (file name, caption). Tables without rows are left out. Returns the path of report.md."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = [table for table in tables if table.rows]
    for table in shown:
        table.write_csv(folder)
    parts = [head(results, wall, command), *_warned(warnings), "## Tables", *(table.markdown() for table in shown)]
    if figures:
        parts += ["## Figures", *(f"![{caption}]({name})\n\n{caption}\n" for name, caption in figures)]
    path = folder / "report.md"
    path.write_text("\n\n".join(part.strip("\n") for part in parts) + "\n")
    return path


def head(results: Results, wall: float, command: str) -> str:
    """Machine, date, versions, seeds, rows and run time."""
    settings = results.settings
    trained = [(cell, result) for cell, result in results.found.items() if cell.kind == "train" and "rows" in result]
    lines = [
        "# What privacy costs: randomizers, corrections and models\n",
        f"Made by `{command}` on {datetime.now(UTC):%Y-%m-%d} at commit {_commit()}: {_machine()}; "
        + ", ".join(_versions())
        + ".",
        f"{len(results.found):,} cells, {sum(r.get('seconds', 0) for r in results.found.values()) / 60:.0f} minutes of "
        f"one core in all; this run took {wall / 60:.1f} minutes.",
        f"Mean ± standard deviation over {settings.seeds} seeds; a seed is a random 80/20 split of its own. Draws "
        "come from the operating system's randomness. ε holds everything, the private prior included; every step is "
        "automatic. Test labels are clipped to the domain.",
    ]
    rows = []
    for data in settings.data:
        sizes = sorted({(result["rows"], result["test_rows"]) for cell, result in trained if cell.data == data})
        generated = any(not result["real"] for cell, result in trained if cell.data == data)
        if sizes:
            least, most = sizes[0][0], sizes[-1][0]
            text = f"- {data}: {least:,} training rows" if least == most else f"- {data}: {least:,} to {most:,} rows"
            text += f", up to {max(test for _, test in sizes):,} for the test"
            rows.append(text + (" **(a generated stand-in: its figures mean nothing)**" if generated else ""))
    capped = ", ".join(f"{data} {most:,}" for data, most in ROWS.items() if data in settings.data)
    if capped and not settings.quick:
        rows.append(
            f"\nThe wide grids train on at most these rows, chosen by seed: {capped}. The gap table uses all rows."
        )
    lines.append("\n".join(rows))
    if settings.quick:
        lines.append("**A quick run: few rows, one seed, small models. It shows that the path works, nothing else.**")
    if unknown(COLUMNS):
        lines.append(f"Not there in this version, and left out: {', '.join(unknown(COLUMNS))}.")
    return "\n\n".join(lines) + "\n"


def refusals(results: Results) -> list[str]:
    """One line per reason for which the service refused cells."""
    reasons: dict[str, list[str]] = {}
    for cell, result in results.found.items():
        if "refused" in result:
            reasons.setdefault(result["refused"], []).append(f"{cell.data} {cell.mechanism} at ε = {cell.epsilon}")
    return [f"refused ({', '.join(sorted(set(where))[:8])}): {reason}" for reason, where in reasons.items()]


def failures(failed: Mapping[Cell, str]) -> list[str]:
    """One line per error that broke cells."""
    errors: dict[str, list[Cell]] = {}
    for cell, error in failed.items():
        errors.setdefault(error, []).append(cell)
    return [f"{len(cells)} cells failed, {cells[0]} first: {error}" for error, cells in errors.items()]


def _warned(warnings: Sequence[str]) -> list[str]:
    return ["## Not as it should be\n\n" + "\n".join(f"- {warning}" for warning in warnings)] if warnings else []


def _commit() -> str:
    try:
        told = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(
            ["git", "diff", "--quiet", "HEAD", "--", "labels_party", "features_party", "shared"], cwd=ROOT, check=False
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip() + (" with changes" if dirty.returncode else "")


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _versions() -> list[str]:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found
