"""`train --model trees` of 10 million rows with 20 feature columns, from disk and in memory: time, CPU and peak."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_join import write_files
from tests.benchmarks.children import BIN, measured
from tests.benchmarks.lines import Line

ROWS = 10_000_000
LIMIT_MIB, WANTED = 3072, 1.3
# as the command, but for its estimate of the error, which from disk there is none
IN_MEMORY = """
import sys
from pathlib import Path
from features_party.bootstrap import bootstrap
from features_party.files.jobs import Files, train_files
from features_party.models import trainer
from features_party.settings import Settings
from label_dp.documents.signing import VerifyingKey
from label_dp.schemas.training import Learning

folder, home = map(Path, sys.argv[1:])
trainer._estimable = lambda *_: False
services = bootstrap(Settings(home=home, training_memory_mb=1 << 14))
key = VerifyingKey.load(folder / "labels-signing.pub")
files = Files([folder / "message.parquet"], key, folder / "features.parquet", "click_id", home / "model")
train_files(services, files, Learning(model="trees"), lambda *_: None)
"""


def lines(count: int = ROWS) -> list[Line]:
    with tempfile.TemporaryDirectory() as name:
        folder, home = Path(name), {"FEATURES_PARTY_HOME": f"{name}/home"}
        write_files(folder, count)
        command = [BIN / "features-party", "train", "--message", folder / "message.parquet", "--id-column", "click_id"]
        command += ["--labels-key", folder / "labels-signing.pub", "--features", folder / "features.parquet"]
        disk = measured([*command, "--engine", "disk", "--model", "trees", "--out", folder / "model"], home)
        memory = measured([sys.executable, "-c", IN_MEMORY, folder, folder / "memory"])
    size = f"{count / 1e6:g} million rows × 20 features"
    both = (("wall", disk.wall, memory.wall), ("CPU", disk.cpu, memory.cpu))
    return [
        *(
            Line(f"train --engine disk, {name}", ours, "s", f"in memory ({theirs:.0f} s)", ours / theirs, None, WANTED)
            for name, ours, theirs in both
        ),
        Line(
            "train --engine disk, peak",
            disk.peak,
            "MiB",
            f"in memory ({memory.peak:.0f} MiB)",
            disk.peak / memory.peak,
            wanted=LIMIT_MIB,
            note=size,
        ),
    ]
