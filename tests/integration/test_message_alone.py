"""The message alone: without the rooms of the companions and of Spark, the core makes, sends, accepts and trains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.demo import ROOT

pytestmark = pytest.mark.processes
BESIDE = ("labels_party", "features_party", "shared/label_dp")
LABELS = "import sys; from labels_party.cli import main; main()"
FEATURES = "import sys; from features_party.cli import main; main()"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product without what stands beside its core."""
    place = tmp_path_factory.mktemp("core")
    for room in BESIDE:
        leave_out = shutil.ignore_patterns("companions", "spark", "__pycache__")
        shutil.copytree(ROOT / room, place / Path(room).name, ignore=leave_out)
    return place


def run(core: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(core),
        "LABELS_PARTY_HOME": str(core / "labels-home"),
        "FEATURES_PARTY_HOME": str(core / "features-home"),
    }
    # -P and the path first: the installed product must not fill in
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(core)!r}); {program}", *arguments]
    return subprocess.run(command, cwd=core, env=environment, text=True, capture_output=True, timeout=120, check=False)


def test_a_message_goes_from_labels_to_a_model(core: Path) -> None:
    n = 2_000
    ids = [f"click-{i}" for i in range(n)]
    pq.write_table(pa.table({"id": ids, "value": [float(i % 11) for i in range(n)]}), core / "labels.parquet")
    pq.write_table(pa.table({"id": ids, "x": [float(i % 11) for i in range(n)]}), core / "features.parquet")
    privatize = run(
        core, LABELS, "privatize", "--labels", "labels.parquet", "--id-column", "id", "--label-column", "value",
        "--domain", "0:10", "--epsilon", "2", "--population", "shop", "--budget", "2", "--out", "message.parquet",
    )  # fmt: skip
    assert privatize.returncode == 0, privatize.stderr
    key = str(core / "labels-home" / "keys" / "signing.pub")
    train = run(
        core, FEATURES, "train", "--message", "message.parquet", "--labels-key", key, "--features", "features.parquet",
        "--id-column", "id", "--out", "model", "--model", "linear",
    )  # fmt: skip
    assert train.returncode == 0, train.stderr
    assert (core / "model" / "model.json").exists()
    for program in (LABELS, FEATURES):
        assert run(core, program, "audit", "verify").returncode == 0


def test_what_is_not_there_is_not_offered(core: Path) -> None:
    for program, command in ((LABELS, "calibrate"), (LABELS, "median"), (FEATURES, "ask-calibration")):
        refused = run(core, program, command)
        assert refused.returncode == 2
        assert "No such command" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr


def test_control_the_copy_is_what_runs(core: Path) -> None:
    printed = run(core, "import labels_party, label_dp, features_party; print(label_dp.__path__[0])")
    assert printed.stdout.strip() == str(core / "label_dp")
