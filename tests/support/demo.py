"""The demo as a process in an empty folder, with a home that shows whatever it writes by default."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def start(where: Path, *arguments: str) -> subprocess.Popen[str]:
    home = where / "visitor"  # whatever a service would write by default shows up here
    home.mkdir(exist_ok=True)
    strays = {"LABELS_PARTY_HOME": str(home / "mine"), "FEATURES_PARTY_NAME": "somebody-else"}
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(ROOT)} | strays
    return subprocess.Popen(
        [sys.executable, "-m", "deploy.demo", *arguments],
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = start(where, *arguments)
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@dataclass(frozen=True)
class Told:
    where: Path
    clicks: int
    done: subprocess.CompletedProcess[str]

    @property
    def out(self) -> Path:
        return self.where / "demo-output"

    @property
    def results(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        return data
