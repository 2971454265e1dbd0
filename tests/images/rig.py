"""The rig: both parties of docker-compose.yml on an engine, asked from outside and from the demo."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.images.engine import ContainerEngine, Failed

PARTIES = {"labels-party": 8001, "features-party": 8002}
READY_SECONDS = 120.0
EXPORT = "features-party audit export --force --out ~/export > /dev/null && cat ~/export"
COMPARE = "cat > ~/theirs && labels-party audit verify --against ~/theirs --json"
LIST = """
import json, sys, urllib.request
key = open("/handover/owner.key").read().strip()
def get(path):
    asked = urllib.request.Request(sys.argv[1] + path, headers={"Authorization": "Bearer " + key})
    return json.load(urllib.request.urlopen(asked, timeout=20))
populations = [population["id"] for population in get("/v1/populations")]
print(json.dumps([release for each in populations for release in get("/v1/populations/" + each + "/releases")]))
"""


@dataclass
class Rig:
    """State of a run: its engine, its size and its folder."""

    engine: ContainerEngine
    clicks: int
    folder: Path
    load: int = 100_000  # clicks under which memory is measured
    cold: bool = False  # whether images are built from nothing

    def __post_init__(self) -> None:
        self.secrets = self.folder / "secrets"
        self.engine.environment["SECRETS"] = str(self.secrets)

    def ready(self) -> str:
        """Wait until both services are; how long each took."""
        start = time.monotonic()
        took: dict[str, float] = {}
        while len(took) < len(PARTIES):
            for party, port in PARTIES.items():
                if party not in took and answers(port):
                    took[party] = time.monotonic() - start
            if time.monotonic() - start > READY_SECONDS:
                raise Failed(f"not ready after {READY_SECONDS:g} s: {', '.join(PARTIES.keys() - took.keys())}")
            time.sleep(0.2)
        return ", ".join(f"{party} {seconds:.0f} s" for party, seconds in took.items())

    def containers(self) -> str:
        """Which containers run: others, where a command made a party anew."""
        return self.engine.compose("ps", "--quiet", *PARTIES, "labels-db", "features-db")

    def demo_words(self, clicks: int) -> list[str]:
        """The demo as the compose file plays it, on so many clicks."""
        service = json.loads(self.engine.compose("config", "--format", "json", profile="demo"))["services"]["demo"]
        return [*service["command"], f"--clicks={clicks}"]

    def play_demo(self) -> None:
        self.engine.demo(*self.demo_words(self.clicks))

    def releases(self, host: str = "labels-party") -> list[dict[str, Any]]:
        """What a labels party tells its owner."""
        found: list[dict[str, Any]] = json.loads(self.engine.demo("python", "-c", LIST, f"http://{host}:8001"))
        return found

    def states(self) -> set[str]:
        return {release["state"] for release in self.releases()}


def answers(port: int) -> bool:
    """Whether the service at a port of this machine is ready."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=5).is_success
    except httpx.HTTPError:
        return False


def same_releases(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """What two labels parties tell is the same, and something. Raises Failed."""
    if not first or first != second:
        raise Failed(f"the two tell of different releases: {first[:1]} and {second[:1]}")


def said(log: Path, words: str, running: subprocess.Popen[bytes]) -> None:
    """Wait until the demo said `words`."""
    end = time.monotonic() + 300
    while words not in log.read_text(encoding="utf-8", errors="replace"):
        if running.poll() is not None or time.monotonic() > end:
            raise Failed(f"the demo did not say '{words}': {log.read_text(encoding='utf-8', errors='replace')[-1500:]}")
        time.sleep(0.1)


def features_export(rig: Rig) -> str:
    """The features party's signed audit export."""
    return rig.engine.compose("exec", "-T", "features-party", "sh", "-c", EXPORT)


def one_history(rig: Rig) -> str:
    """audit verify --against the other party's export."""
    words = ("exec", "-T", "labels-party", "sh", "-c", COMPARE)
    reply = json.loads(rig.engine.compose(*words, given=features_export(rig).encode()))
    if reply.get("findings"):
        raise Failed(f"{reply['findings']}")
    return f"{reply.get('events', '')} events, no finding, receipts on both sides"
