"""What is held out follows the releases of a training, not how the features were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.features_cli import Shell
from tests.support.messages import Sender, one_bit

pytestmark = pytest.mark.extended

N, EFFECTS = 4000, np.array([60.0, 0.0, 20.0, 40.0, 10.0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gain_is_that_of_features_made_with_any_seed(tmp_path: Path, seed: int) -> None:
    """The first draws of `default_rng(seed)` are a category that tells everything. The interval holds 95 %, and the
    tolerance is five of its standard errors: a hold-out by the same draws is of one category, and gains next to
    nothing."""
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 5, N)
    labels = np.clip(np.round(20 + EFFECTS[category] + 5 * rng.normal(size=N)), 0, 100)
    ids = [f"s{seed}-{at}" for at in range(N)]
    shell, sender = Shell(tmp_path), Sender()
    sender.public_key(tmp_path)
    sender.write(tmp_path / "m.parquet", ids, labels, one_bit("0:100", 8.0), epsilon="8")
    pq.write_table(pa.table({"id": ids, "c": [f"c{one}" for one in category]}), tmp_path / "f.parquet")
    given = "--message", "m.parquet", "--labels-key", "labels-signing.pub", "--features", "f.parquet", "--id-column"
    found: dict[str, Any] = shell.json("train", *given, "id", "--model", "linear", "--out", "m")
    said = found["report"]["error_estimate"]
    means = np.bincount(category, labels) / np.bincount(category)
    truth = float(np.var(labels) - np.mean((labels - means[category]) ** 2))
    assert abs(said["mse_below_constant"] - truth) < 5 * (said["high"] - said["low"]) / (2 * 1.96)
    assert truth > 400
