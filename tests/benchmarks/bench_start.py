"""How long processes take to start: commands by the CPU seconds of the whole process, services until they are ready.

Each is a child process, and a ratio against one that imports what such a command cannot do without. Kernels and
bytecode are there beforehand, as in the image.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.benchmarks.children import BIN, measured
from tests.benchmarks.lines import Line

ROUNDS = 5
LABELS = 1_000
FLOOR = "numpy, pyarrow.parquet, sqlalchemy, duckdb"
SERVICES = {"labels-party": "LABELS_PARTY_HOME", "features-party": "FEATURES_PARTY_HOME"}
PATIENCE = 60.0
CACHED = {"PYTHONDONTWRITEBYTECODE": ""}  # an installed package has its bytecode; the first of the rounds writes it


def ready(command: str, home: Path) -> float:
    """Wall seconds until a service of an empty or a used `home` answers /readyz with 200."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    before = time.perf_counter()
    words = [BIN / command, "serve", "--port", str(port)]
    child = subprocess.Popen(
        words, stderr=subprocess.DEVNULL, env=dict(os.environ) | CACHED | {SERVICES[command]: str(home)}
    )
    try:
        while time.perf_counter() - before < PATIENCE:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                    return time.perf_counter() - before
            except urllib.error.URLError:
                assert child.poll() is None, f"{command} ended"
                time.sleep(0.005)
        raise AssertionError(f"{command} was not ready within {PATIENCE:.0f} s")
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()


def lines(rounds: int = ROUNDS) -> list[Line]:
    """The least of alternating rounds; every privatized file has an empty home of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        amounts = np.minimum(np.random.default_rng(0).lognormal(3, 1.2, LABELS), 400)
        table = pa.table({"click": [f"c{i:07d}" for i in range(LABELS)], "revenue": amounts})
        pq.write_table(table, folder / "labels.parquet")
        pyarrow.csv.write_csv(table, folder / "labels.csv")
        homes = {variable: str(folder / command) for command, variable in SERVICES.items()}
        env = CACHED | homes | {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(folder / "kernels"))}

        def privatize(kind: str, run: str) -> float:
            options = "--id-column click --label-column revenue --domain 0:400 --epsilon 1 --budget 1 --population p"
            words = [BIN / "labels-party", "privatize", "--labels", folder / f"labels.{kind}", *options.split()]
            own = env | {"LABELS_PARTY_HOME": str(folder / run)}
            return measured([*words, "--out", folder / f"{run}.parquet"], own).cpu

        privatize("parquet", "first")
        key = folder / "first" / "keys" / "signing.pub"
        commands: dict[str, list[str | Path]] = {
            "labels-party --help": [BIN / "labels-party", "--help"],
            "features-party --help": [BIN / "features-party", "--help"],
            "labels-party budget": [BIN / "labels-party", "budget"],
            "features-party verify": [BIN / "features-party", "verify", folder / "first.parquet", "--labels-key", key],
        }
        used = env | {"LABELS_PARTY_HOME": str(folder / "first")}
        cpu: dict[str, list[float]] = {}
        wall: dict[str, list[float]] = {}
        for i in range(rounds):
            cpu.setdefault("floor", []).append(measured([sys.executable, "-c", f"import {FLOOR}"]).cpu)
            for kind in ("parquet", "csv"):
                cpu.setdefault(f"privatize, {LABELS:,} labels, {kind}", []).append(privatize(kind, f"{kind}-{i}"))
            for title, words in commands.items():
                cpu.setdefault(title, []).append(measured(words, used).cpu)
            wall.setdefault("floor", []).append(measured([sys.executable, "-c", f"import {FLOOR}"]).wall)
            for command, variable in SERVICES.items():
                wall.setdefault(f"{command} serve, ready", []).append(ready(command, Path(homes[variable])))
    floor, waited = min(cpu.pop("floor")), min(wall.pop("floor"))
    beside = f"importing {FLOOR} ({floor:.2f} s of CPU, {waited:.2f} s wall)"
    found = []
    for title, taken in cpu.items():
        wanted = 1.2 if title.startswith("privatize") else None
        found.append(Line(f"{title}, CPU", min(taken), "s", beside, min(taken) / floor, wanted))
    for title, taken in wall.items():
        found.append(Line(title, min(taken), "s", beside, min(taken) / waited, wanted=1.0))
    return found
