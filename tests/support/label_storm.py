"""A storm of generated bad uploads against one running application, and what every answer must be like."""

from __future__ import annotations

import logging
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from labels_party.api.app import create_app
from tests.support.bad_labels import EMPTY, Upload, bad_rows, outside
from tests.support.bad_uploads import Damaged, damaged
from tests.support.labels import LabelsParty
from tests.support.upload_formats import MEDIA, good_body

ROWS = 120
SHOWN = 20
UPLOADS_PER_ROUND = 40
REFUSALS = {"invalid-file": 422, "invalid-table": 422, "invalid-rows": 422, "invalid-request": 422, "too-large": 413}
LOGGER = "label_dp"
ODD = [-0.0, 0.0, 5e-324, 2.2e-308, 1e-300, 1.5, 99.99999999999999, 100.0, 3.0000000000000004, 1.7976931348623157e308]
UNTOLD = {"x-request-id", "date"}  # differ from call to call


def _headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in UNTOLD}


@dataclass
class Storm:
    """Bad uploads in one format, with a log of what was tried."""

    form: str
    seed: int
    home: Path
    log: pytest.LogCaptureFixture
    tried: int = 0
    taken: int = 0
    damaged: int = 0
    slowest: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    shapes: set[str] = field(default_factory=set)  # texts of refused rows without their numbers

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.form}-{self.seed}")

    async def run(self, cases: int) -> None:
        """Try that many bad labels, ids and files. Raises AssertionError at the first wrong answer."""
        with LabelsParty(self.home, worker=False) as party:
            self.party = party
            _, key = party.services.apikeys.create("owner", None)
            transport = httpx.ASGITransport(create_app(party.services), raise_app_exceptions=False)
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://labels-party", headers=headers) as http:
                self.http = http
                await self._population("shop", "refuse")
                await self._population("twin", "clip")
                self.batch, self.loose, self.twin = [await self._open(p) for p in ("shop", "shop", "twin")]
                rounds = 0
                while self.tried < cases:
                    with self.log.at_level(logging.DEBUG, logger=LOGGER):
                        await self._round([f"c{rounds}-{i}" for i in range(ROWS)])
                    rounds += 1
                await self._whole(rounds)

    async def _population(self, name: str, rule: str) -> None:
        body = {"name": name, "label": name, "domain": "0:100", "lifetime_epsilon": "1", "out_of_domain": rule}
        answer = await self.http.post("/v1/populations", json=body)
        assert answer.status_code == 201, answer.text

    async def _open(self, population: str) -> str:
        answer = await self.http.post(f"/v1/populations/{population}/batches", json={"presence": "public"})
        return str(answer.json()["id"])

    async def _send(self, body: bytes, batch: str) -> httpx.Response:
        started = time.perf_counter()
        headers = {"content-type": MEDIA[self.form]}
        answer = await self.http.post(f"/v1/batches/{batch}/labels", content=body, headers=headers)
        self.slowest = max(self.slowest, time.perf_counter() - started)
        return answer

    async def _round(self, ids: Sequence[str]) -> None:
        """Some bad uploads of the same ids, none of which leaves a trace; then good ones of them are taken."""
        before, secrets = self._state(), set()
        for number in range(UPLOADS_PER_ROUND):
            self.log.clear()
            if number % 5 == 4:
                damage = damaged(self.form, ids, self.rng)
                await self._try_damaged(damage)
                secrets.update(damage.secrets)
                continue
            many = 1 if number % 3 == 0 else self.rng.randrange(2, ROWS)
            upload = bad_rows(self.form, ids, sorted(self.rng.sample(range(ROWS), many)), self.rng)
            await self._try_rows(upload)
            secrets.update(upload.secrets)
        assert self._state() == before, "a refused upload left something behind"
        self._quiet((await self.http.get("/metrics")).text, secrets, "metrics")
        answer = await self._send(good_body(self.form, ids, [self.rng.randrange(101) for _ in ids]), self.batch)
        assert answer.json() == {"batch": self.batch, "accepted": ROWS}, answer.text
        await self._neighbours(ids, answer)

    async def _neighbours(self, ids: Sequence[str], plain: httpx.Response) -> None:
        """Any finite labels of the same ids, odd ones and clipped ones, are answered as plain ones were."""
        odd = [self.rng.choice(ODD) if self.rng.random() < 0.5 else float(outside(self.rng)) for _ in ids]
        answer = await self._send(good_body(self.form, ids, odd), self.twin)
        told = [(a.status_code, a.content, _headers(a)) for a in (plain, answer)]
        told[1] = (told[1][0], told[1][1].replace(self.twin.encode(), self.batch.encode()), told[1][2])
        assert told[0] == told[1]

    async def _try_rows(self, upload: Upload) -> None:
        answer = await self._send(upload.body, self.batch)
        problem = self._refused(answer, upload.secrets, upload.body)
        assert problem["code"] == "invalid-rows", (problem, upload)
        assert problem["rejected"] == len(upload.planted), (problem, upload)
        assert [row["row"] - 1 for row in problem["rows"]] == list(upload.planted[:SHOWN]), (problem, upload)
        for row in problem["rows"]:
            assert row["field"] == upload.field, (problem, upload)
            assert any(rule in row["rule"] for rule in (upload.rule, *EMPTY.get(upload.rule, ()))), (problem, upload)
        self.shapes.add(re.sub(r"[0-9]+", "#", problem["detail"] + problem["rows"][0]["rule"]))
        self.tried += len(upload.planted)

    async def _try_damaged(self, damage: Damaged) -> None:
        self.damaged += 1
        answer = await self._send(damage.body, self.loose)
        if answer.status_code == 200:
            assert not damage.refused, damage
            self.taken += answer.json()["accepted"]
        elif answer.status_code == 409:  # readable, and its ids were taken in an earlier round
            assert not damage.refused, damage
            assert answer.json()["code"] == "duplicate-id", answer.text
        else:
            self._refused(answer, damage.secrets, damage.body)
        self.tried += 1

    def _refused(self, answer: httpx.Response, secrets: Sequence[str], body: bytes) -> dict[str, Any]:
        problem = answer.json() if answer.headers["content-type"] == "application/problem+json" else {}
        self.codes[str(problem.get("code"))] += 1
        assert REFUSALS.get(problem.get("code", "")) == answer.status_code, (
            answer.status_code,
            answer.text,
            body[:2000],
        )
        self._quiet(answer.text + repr(answer.headers), secrets, "the answer")
        self._quiet(self.log.text, secrets, "the log")
        return dict(problem)

    @staticmethod
    def _quiet(text: str, secrets: Sequence[str] | set[str], where: str) -> None:
        shown = [secret for secret in secrets if secret in text]
        assert not shown, f"{where} shows {shown[:3]}"

    def _state(self) -> tuple[Any, ...]:
        """Everything that belongs to the batch of good rows, once the merge that good rows began is over."""
        self.party.services.intake.compaction.wait()
        database, root = self.party.services.database, self.party.home / "labels" / self.batch
        return (
            database.read(
                "look", lambda c: c.exec_driver_sql(f"SELECT * FROM segments WHERE batch = '{self.batch}'").all()
            ),
            database.read("look", lambda c: c.exec_driver_sql("SELECT count(*) FROM audit_events").all()),
            sorted((p.name, p.stat().st_size) for p in root.rglob("*") if p.is_file()),
        )

    async def _whole(self, rounds: int) -> None:
        """Exactly the rows that were said to be taken are there, nothing waits in a folder, and no ε was spent."""
        good = rounds * ROWS
        for batch, rows in ((self.batch, good), (self.twin, good), (self.loose, self.taken)):
            answer = await self.http.post(f"/v1/batches/{batch}/seal")
            if rows:
                overlap = batch == self.loose and answer.json().get("code") == "overlapping-batch"
                assert overlap or answer.json()["examples"] == rows, answer.text
            assert self.party.spent(batch) == "0"
        left = [p for room in ("spill", "labels/incoming") for p in (self.party.home / room).rglob("*") if p.is_file()]
        assert not left, left
