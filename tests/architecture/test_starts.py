"""A command loads what it needs: the modules that a plain one must not load, looked for in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.processes

# frames, migrations, the solvers of scipy, learners, compilers and services are for others
HEAVY = {
    "pandas",
    "polars",
    "scipy",
    "xgboost",
    "numba",
    "sklearn",
    "alembic",
    "fastapi",
    "uvicorn",
    "httpx",
    "asyncpg",
    "rich",
}
# the rooms of what was not asked for
OTHERS = (
    "labels_party.companions.kinds.calibration",
    "labels_party.companions.kinds.prediction",
    "labels_party.companions.kinds.feature_store",
    "labels_party.companions.mechanisms.isotonic",
    "labels_party.companions.mechanisms.private_prediction",
    "label_dp.companions.kinds.calibration",
    "label_dp.companions.kinds.median",
    "label_dp.documents.statement",
)
RUN = """
import json, sys
from {party}.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(party: str, home: Path, *words: str | Path) -> set[str]:
    """The modules that a command has loaded when it ends; it must succeed."""
    variable = f"{party.upper()}_HOME"
    command = [sys.executable, "-c", RUN.format(party=party), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {variable: str(home)}, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def privatized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """The folder of a privatized file, and what the command loaded."""
    folder = tmp_path_factory.mktemp("privatized")
    table = pa.table({"click": [f"c{i}" for i in range(500)], "revenue": [i % 60 for i in range(500)]})
    pq.write_table(table, folder / "labels.parquet")
    files = ("--labels", folder / "labels.parquet", "--out", folder / "m.parquet")
    columns = ("--id-column", "click", "--label-column", "revenue", "--domain", "0:60")
    spent = ("--epsilon", "1", "--budget", "1", "--population", "p")
    return folder, loaded("labels_party", folder / "home", "privatize", *files, *columns, *spent)


def test_privatize_loads_nothing_heavy(privatized: tuple[Path, set[str]]) -> None:
    assert privatized[1] & HEAVY == set()
    ours = {name for name in privatized[1] if name.startswith(("labels_party", "label_dp"))}
    assert not {name for name in ours if name.startswith(OTHERS)}


def test_budget_loads_nothing_heavy(privatized: tuple[Path, set[str]]) -> None:
    assert loaded("labels_party", privatized[0] / "home", "budget") & (HEAVY | {"duckdb", "highspy"}) == set()


def test_verify_loads_nothing_heavy(privatized: tuple[Path, set[str]]) -> None:
    folder = privatized[0]
    words = ("verify", folder / "m.parquet", "--labels-key", folder / "home" / "keys" / "signing.pub")
    assert (
        loaded("features_party", folder / "features", *words) & (HEAVY | {"duckdb", "highspy", "sqlalchemy"}) == set()
    )


def test_control_what_a_command_needs_is_seen(privatized: tuple[Path, set[str]]) -> None:
    assert {"numpy", "pyarrow", "highspy", "labels_party.mechanisms.highs"} <= privatized[1]
