"""`serve --processes`: real processes over one socket. One that is killed loses no label and doubles none, another
takes its place, and what counts for privacy counts for all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.support.serving import free_port

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it looks processes up in /proc"),
]
BIN = Path(sys.executable).parent
PROCESSES, SENDERS, EACH = 2, 6, 60


class Served:
    """`serve` of a party in several processes, with a key of its own."""

    def __init__(self, party: str, role: str, home: Path) -> None:
        self.prefix, self.log = party.upper().replace("-", "_"), home.with_suffix(".log")
        self.port, self.metrics, self.probes = free_port(), free_port(), free_port()
        own = {"HOME": str(home), "METRICS_PORT": self.metrics, "PROBES_PORT": self.probes, "LOG_FORMAT": "json"}
        self.temporary = home.with_suffix(".tmp")
        self.temporary.mkdir()
        env = (
            os.environ
            | {"TMPDIR": str(self.temporary)}
            | {f"{self.prefix}_{name}": value for name, value in own.items()}
        )
        words = [BIN / party, "apikey", "create", "--role", role, "--json"]
        made = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
        self.headers = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
        words = [BIN / party, "serve", "--port", self.port, "--processes", str(PROCESSES)]
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(words, env=env, stderr=errors)
        until(lambda: self.probe("/readyz") == 200)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=self.headers, timeout=30)

    def probe(self, path: str) -> int:
        with suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=30)
            return httpx.get(f"http://127.0.0.1:{self.probes}{path}", timeout=30).status_code
        return 0

    def children(self) -> set[int]:
        """The processes that answer calls."""
        return {pid for pid in pids() if parent_of(pid) == self.process.pid and b"spawn_main" in command_of(pid)}

    def scraped(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.metrics}/metrics").text


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def parent_of(pid: int) -> int:
    with suppress(OSError):
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return 0 if state == "Z" else int(parent)
    return 0


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    party = Served("labels-party", "owner", tmp_path / "home")
    try:
        yield party
    finally:
        party.process.kill()
        party.process.wait()


def test_a_killed_process_loses_no_label_and_doubles_none(served: Served) -> None:
    with served.client() as owner:
        declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "1"}
        owner.post("/v1/populations", json=declared).raise_for_status()
        batch = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    before, killed, cut = served.children(), Event(), 0
    assert len(before) == PROCESSES

    def send(sender: int) -> int:
        """Each label until it is answered; how often the connection broke."""
        broken, client = 0, served.client()
        for number in range(EACH):
            body = {"records": [{"example_id": f"c{sender}-{number}", "label": number % 10}]}
            while True:
                try:
                    answer = client.post(
                        f"/v1/batches/{batch}/labels", json=body, headers={"Idempotency-Key": f"k{sender}-{number}"}
                    )
                    break
                except httpx.TransportError:
                    broken += 1
            assert answer.status_code == 200, answer.text
            if sender == 0 and number == EACH // 3:
                for pid in sorted(before)[:1]:
                    os.kill(pid, signal.SIGKILL)
                killed.set()
        client.close()
        return broken

    with ThreadPoolExecutor(SENDERS) as pool:
        cut = sum(pool.map(send, range(SENDERS)))
    assert killed.is_set()
    assert cut < SENDERS * EACH
    with served.client() as owner:
        sealed = owner.post(f"/v1/batches/{batch}/seal").json()
        assert (sealed["state"], sealed["examples"]) == ("sealed", SENDERS * EACH)
    until(lambda: len(served.children()) == PROCESSES)
    assert len(served.children() & before) == PROCESSES - 1


def test_a_budget_is_that_of_all_processes(served: Served) -> None:
    with served.client() as owner:
        declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "1"}
        owner.post("/v1/populations", json=declared).raise_for_status()
        batch = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
        records = [{"example_id": f"c{number}", "label": number % 10} for number in range(50)]
        owner.post(f"/v1/batches/{batch}/labels", json={"records": records}).raise_for_status()
        owner.post(f"/v1/batches/{batch}/seal").raise_for_status()

    def ask(_: int) -> int:
        with served.client() as owner:
            body = {"epsilon": "0.3", "additional_release": True}
            return owner.post(f"/v1/batches/{batch}/releases", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(ask, range(8)))
    assert statuses == [202] * 3 + [403] * 5
    with served.client() as owner:  # the worker is in the process that supervises
        until(
            lambda: {release["state"] for release in owner.get("/v1/populations/shop/releases").json()} == {"published"}
        )


@pytest.mark.parametrize(("party", "role"), [("labels-party", "owner"), ("features-party", "trainer")])
def test_metrics_and_probes_speak_for_all(party: str, role: str, tmp_path: Path) -> None:
    served = Served(party, role, tmp_path / "home")
    try:
        asked = 0
        for _ in range(40):  # each on a connection of its own, which any process may take
            with served.client() as client:
                asked += client.get("/v1/nothing").status_code == 404
        assert f'label_dp_requests_total{{method="GET",route="unknown",status="404"}} {asked}.0' in served.scraped()
        assert 'label_dp_worker_alive{worker="' in served.scraped()
        children = served.children()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in children:
                os.kill(pid, number)
            time.sleep(1.5)  # in which the one that supervises has asked one of them whether it is alive
        until(lambda: len(served.children()) == PROCESSES and served.probe("/healthz") == 200, seconds=40)
        assert not served.children() & children
        assert f'status="404"}} {asked}.0' in served.scraped()  # what the dead ones counted stays
        children = served.children()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
        assert not children & set(pids())
        assert not list(served.temporary.glob("label-dp-*"))
        assert "Traceback" not in served.log.read_text()
    finally:
        served.process.kill()
        served.process.wait()


def test_processes_end_with_the_one_that_supervises(served: Served) -> None:
    children = served.children()
    served.process.kill()
    until(lambda: not any(b"spawn_main" in command_of(pid) for pid in children))
