"""The demo as a process in an empty folder, with a home that shows whatever it writes by default."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

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
    """What a demo told and left; `pages` are those of the start page that each named key opened, by the service's URL.
    `again`: another one, played on the services of this one."""

    where: Path
    clicks: int
    done: subprocess.CompletedProcess[str]
    pages: dict[str, str]
    again: subprocess.CompletedProcess[str]

    @property
    def out(self) -> Path:
        return self.where / "demo-output"

    @property
    def results(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        return data


def played(where: Path, clicks: int) -> Told:
    """A demo that stays: `where` is its folder as the story left it; its services are then visited and play another."""
    plays = where.with_name(f"{where.name}-plays")
    plays.mkdir()
    process = start(plays, "--clicks", str(clicks), "--stay")
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while sum("paste the API key" in line for line in lines) < 2:
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()[1]
        shutil.copytree(plays, where)
        entries = [line.split() for line in lines[-2:]]
        pages = {url: _signed_in(url, (plays / key).read_text(encoding="utf-8").strip()) for _, url, *_, key in entries}
        (labels, features), keys = pages, plays / "demo-output" / "keys"
        there = ("--labels-url", labels, "--features-url", features, "--keys", str(keys), "--json")
        again = run(plays, "--clicks", "500", "--out", "again", *there)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    done = subprocess.CompletedProcess(process.args, process.returncode, "".join(lines) + out, err)
    return Told(where, clicks, done, pages, again)


def _signed_in(url: str, secret: str) -> str:
    with httpx.Client(base_url=url, follow_redirects=True, trust_env=False) as person:
        entered = person.post("/sign-in", data={"key": secret}, headers={"Origin": url.rstrip("/")})
        return person.get("/").text if entered.is_success else ""
