"""Rows come from another program by a pipe, and leave by one, as the guide of tables says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.processes

RECIPE = Path(__file__).parents[2] / "deploy" / "guides" / "recipes" / "arrow_streams.py"
BIN = Path(sys.executable).parent
ROWS = 300


class Shell:
    """A folder with a table, and both parties' commands."""

    def __init__(self, folder: Path) -> None:
        clicks = [f"c{i:03d}" for i in range(ROWS)]
        pq.write_table(pa.table({"click_id": clicks * 2, "revenue": [1.0] * 2 * ROWS}), folder / "sales.parquet")
        self.folder = folder
        self.environment = dict(os.environ) | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "LABELS_PARTY_HOME": str(folder / "labels"),
            "FEATURES_PARTY_HOME": str(folder / "ours"),
        }

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-c", f"set -o pipefail; {command}"]
        return subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


PRIVATIZE = (
    "labels-party privatize --labels - --id-column click_id --label-column revenue --domain 0:9 --population shop "
    "--budget 1 --epsilon 1 --out day.parquet --json"
)
JOIN = (
    "features-party join --message day.parquet --labels-key labels/keys/signing.pub --features - --id-column click_id "
    "--out - --json"
)


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_an_engine_feeds_both_parties(engine: str, shell: Shell) -> None:
    rows = f"{sys.executable} -W error {RECIPE} {engine} sales.parquet"
    done = shell.run(f"{rows} | {PRIVATIZE}")
    assert done.returncode == 0, done.stderr
    assert f'"examples": {ROWS}' in done.stdout
    done = shell.run(f"{rows} | {JOIN} > labelled.arrows")
    assert done.returncode == 0, done.stderr
    assert f'"matched": {ROWS}' in done.stderr  # the pipe has rows alone
    with pa.ipc.open_stream((shell.folder / "labelled.arrows").read_bytes()) as reader:
        table = reader.read_all()
    assert table.num_rows == ROWS
    assert {"revenue", "corrected_label", "noise_variance"} <= set(table.column_names)


def test_a_killed_engine_charges_and_writes_nothing(shell: Shell) -> None:
    rows = f"{sys.executable} {RECIPE} polars sales.parquet"
    done = shell.run(f"({rows} | head -c -8) | {PRIVATIZE}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: What came to standard input is no whole Arrow IPC stream.\n"
    assert not (shell.folder / "day.parquet").exists()
    assert shell.run("labels-party populations list --json").stdout.strip() in ("[]", "")
    done = shell.run(f"{rows} | {PRIVATIZE}")  # the whole budget is there
    assert done.returncode == 0, done.stderr
    done = shell.run(f"({rows} | head -c -8) | {JOIN} | wc -c")
    assert (done.returncode, done.stdout.strip()) == (2, "0")
