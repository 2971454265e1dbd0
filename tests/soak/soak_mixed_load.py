"""Advertiser, publisher, privacy officer, broken and hostile clients at once, against one process of bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from deploy.demo.services import Service
from label_dp.audit.store import read_export
from label_dp.documents.signing import VerifyingKey
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.bad_labels import bad_rows
from tests.support.upload_formats import MEDIA, good_body

MEMORY_MB = 256  # what sorting may use
MOST_RESIDENT = 1 << 30
BUSY = {503, 408, 429}  # an honest refusal under load; everything else of 500 and above is a failure


class Load:
    def __init__(self, service: Service, keys: dict[str, str], seed: int, seconds: float) -> None:
        self.service, self.keys, self.seed = service, keys, seed
        self.end = time.monotonic() + seconds
        self.calls: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.published: dict[str, str] = {}  # release: SHA-256 of its message
        self.sealed = 0

    def client(self, role: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.keys[role]}"}
        return httpx.Client(base_url=self.service.url, headers=headers, timeout=120, trust_env=False)

    def expect(self, answer: httpx.Response, *statuses: int) -> bool:
        """Count a call; True if it was answered with one of `statuses` and not refused for being one too many."""
        self.calls[f"{answer.request.method} {answer.status_code}"] += 1
        if answer.status_code in BUSY:
            time.sleep(0.2)
            return False
        if answer.status_code not in statuses:
            self.wrong.append(
                f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:200]}"
            )
        return answer.status_code in statuses

    def running(self) -> bool:
        return time.monotonic() < self.end

    # --- who calls ------------------------------------------------------------------------------------------

    def advertiser(self, number: int) -> None:
        """Whole days: a batch of several uploads, a seal, a release; sizes from ten rows to two hundred thousand."""
        rng, day = random.Random(self.seed + number), 0
        with self.client("owner") as http:
            while self.running():
                day += 1
                opened = http.post("/v1/populations/shop/batches", json={"presence": "public"})
                if not self.expect(opened, 201):
                    continue
                batch, total = opened.json()["id"], 0
                for part in range(rng.randrange(1, 4)):
                    rows = rng.choice([10, 1000, 1000, 20_000, 200_000])
                    form = rng.choice(sorted(MEDIA))
                    ids = [f"{number}-{day}-{part}-{i}" for i in range(rows)]
                    labels = [float(rng.randrange(101)) for _ in ids]
                    headers = {"content-type": MEDIA[form], "Idempotency-Key": f"{number}-{day}-{part}"}
                    path, body = f"/v1/batches/{batch}/labels", good_body(form, ids, labels)
                    for _ in range(5):
                        if self.expect(http.post(path, content=body, headers=headers), 200):
                            total += rows
                            break
                sealed = http.post(f"/v1/batches/{batch}/seal")
                if not total or not self.expect(sealed, 200):
                    continue
                self.sealed += 1
                if sealed.json()["examples"] != total:
                    self.wrong.append(f"{total} labels were taken, {sealed.json()['examples']} sealed")
                asked = http.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"})
                if self.expect(asked, 202):
                    self.await_published(http, asked.json()["id"])

    def await_published(self, http: httpx.Client, release: str) -> None:
        patience = time.monotonic() + 120
        while time.monotonic() < patience:
            state = http.get(f"/v1/releases/{release}")
            if self.expect(state, 200) and state.json()["state"] == "published":
                (message,) = [f for f in state.json()["files"] if f["role"] == "message"]
                self.published[release] = message["sha256"]
                return
            time.sleep(0.2)
        self.wrong.append(f"release {release} was not published in two minutes")

    def hostile(self, number: int) -> None:
        """Bad rows in every format."""
        rng = random.Random(self.seed + 100 + number)
        with self.client("owner") as http:
            batch = http.post("/v1/populations/strict/batches", json={"presence": "public"}).json()["id"]
            while self.running():
                form = rng.choice(sorted(MEDIA))
                rows = rng.choice([20, 200, 2000])
                bad = bad_rows(form, [f"h{i}" for i in range(rows)], sorted(rng.sample(range(rows), 5)), rng)
                headers = {"content-type": MEDIA[form]}
                self.expect(http.post(f"/v1/batches/{batch}/labels", content=bad.body, headers=headers), 422)

    def broken(self, number: int) -> None:
        """Bodies that are announced and do not come, chunks without end, connections cut in the middle."""
        rng = random.Random(self.seed + 200 + number)
        host, _, port = self.service.url.removeprefix("http://").partition(":")
        head = f"POST /v1/batches/bat_0/labels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.keys['owner']}\r\n"
        head += "Content-Type: text/csv\r\n"
        while self.running():
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10) as raw:
                raw.settimeout(5)
                kind = rng.choice(
                    ["Content-Length: 10000000000", "Content-Length: 5000000", "Transfer-Encoding: chunked"]
                )
                raw.sendall(f"{head}{kind}\r\n\r\n".encode())
                for i in range(rng.randrange(1, 40)):
                    line = f"x{i},1\n".encode() * 5000
                    raw.sendall(b"%x\r\n%b\r\n" % (len(line), line) if kind.startswith("T") else line)
                self.calls["broken off"] += 1
            time.sleep(0.05)

    def publisher(self, number: int) -> None:
        """Fetches what is published; the bytes never change."""
        rng = random.Random(self.seed + 300 + number)
        with self.client("features") as http:
            while self.running():
                if not self.published:
                    time.sleep(0.1)
                    continue
                release, digest = rng.choice(list(self.published.items()))
                answer = http.get(f"/v1/releases/{release}/message")
                if self.expect(answer, 200) and hashlib.sha256(answer.content).hexdigest() != digest:
                    self.wrong.append(f"the message of {release} changed")

    def officer(self, number: int) -> None:
        key = VerifyingKey.load(self.service.home / "keys" / "signing.pub")
        with self.client("auditor") as http:
            while self.running():
                answer = http.get("/v1/audit/export")
                if self.expect(answer, 200):
                    read_export(answer.content, key)
                self.expect(http.get("/metrics"), 200)
                time.sleep(0.5)


def resident(pid: int) -> int:
    """Bytes of memory the process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Service, dict[str, str]]]:
    cache = Path(os.environ.get("NUMBA_CACHE_DIR", tmp_path / "kernels"))
    party = Service("labels-party", "LABELS_PARTY_", tmp_path / "lp", tmp_path / "lp.log", cache)
    party.environment |= {"POLL_SECONDS": "0.1", "MEMORY_LIMIT_MB": str(MEMORY_MB)}
    try:
        keys = {r: party.run("apikey", "create", "--role", r).strip() for r in ("owner", "features", "auditor")}
        party.launch()
        party.await_ready()
        yield party, keys
    finally:
        party.stop()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_mixed_load_in_bounded_memory(service: tuple[Service, dict[str, str]], scale: Scale, report: Report) -> None:
    party, keys = service
    load = Load(party, keys, scale.seed, scale.seconds)
    with load.client("owner") as http:
        for name, rule in (("shop", "clip"), ("strict", "refuse")):
            body = {"name": name, "label": name, "domain": "0:100", "lifetime_epsilon": "10", "out_of_domain": rule}
            assert http.post("/v1/populations", json=body).status_code == 201
    callers = [(load.advertiser, 2), (load.hostile, 2), (load.broken, 1), (load.publisher, 1), (load.officer, 1)]
    threads = [threading.Thread(target=_guarded, args=(load, c, n)) for c, many in callers for n in range(many)]
    for thread in threads:
        thread.start()
    peak, process = 0, party._process
    assert process is not None
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, resident(process.pid))
        time.sleep(0.1)
    assert process.poll() is None, "the service ended"
    tried = sum(load.calls.values())
    told = f"{load.sealed} batches, {len(load.published)} releases; peak {peak >> 20} of {MOST_RESIDENT >> 20} MiB"
    report.row(tried, tried - len(load.wrong), told)
    assert not load.wrong, load.wrong[:5]
    assert load.published
    assert peak < MOST_RESIDENT
    left = [p for p in (party.home / "spill").rglob("*") if p.is_file()]
    assert not left, left


def _guarded(load: Load, caller: Callable[[int], None], number: int) -> None:
    try:
        caller(number)
    except Exception as error:
        load.wrong.append(f"{caller.__name__}: {type(error).__name__}: {error}")
