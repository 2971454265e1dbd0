"""Small Parquet files that would become gigabytes, in every reader, and with bytes of them changed."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.swelling import MIB, READERS, Told, swelling, told, varied

MOST_GROWN = 512  # MiB


def test_files_that_swell(scale: Scale, report: Report, tmp_path: Path) -> None:
    rng, end, found = random.Random(scale.seed), time.monotonic() + scale.seconds, list[Told]()
    files = dict(swelling())
    small = [data for data in files.values() if len(data) < 1 << 16]
    ended: list[str] = []
    turn = 0
    while not turn or time.monotonic() < end:
        folder = tmp_path / str(turn) / "files"
        folder.mkdir(parents=True)
        chosen = files if not turn else {f"varied {i}": varied(rng.choice(small), rng) for i in range(200)}
        for name, data in chosen.items():
            (folder / f"{name}.parquet").write_bytes(data)
        for reader in READERS:
            status, several = told(folder, reader)
            found += several
            if (status, len(several)) != (0, len(chosen)):
                ended.append(f"{reader}: status {status} after {several[-1:]}")
        turn += 1
    bad = [one for one in found if one.outcome.startswith("escaped") or one.grown > MOST_GROWN]
    most = max(found, key=lambda one: one.grown)
    report.row(len(found), len(found) - len(bad) - len(ended), f"{MOST_GROWN} MiB")
    report.finding(
        "6 Parquet that swells",
        tried=f"{len(found):,} readings by {len(READERS)} readers: dictionaries, differences, levels, changed bytes",
        before="540 KB took 8.9 GB as a feature table, about 8 GB as labels; 0.8 KB of false lengths took 8 GB",
        after=f"at most {most.grown} MiB ({most.name}, a file of {most.size / MIB:.1f} MiB)",
    )
    assert not bad, bad[:5]
    assert not ended, ended[:5]
