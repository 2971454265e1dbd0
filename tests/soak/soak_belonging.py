"""What belongs to whom: senders learn nothing of labels, audiences nothing of each other's queries, other users of the
machine nothing of a home."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import random
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from label_dp.documents.canonical import canonical_bytes
from label_dp.store import idempotency as calls
from labels_party.bootstrap import bootstrap
from labels_party.settings import Settings
from labels_party.storage.tables import idempotency
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.ingest_worlds import IDS, Rules, differences, steps, two_worlds
from tests.support.labels import LabelsParty
from tests.support.predicting import events, made, payload, tables, with_features

AUDIENCES = ["features-party", "other"]
RULES = [Rules(*found) for found in itertools.product(("public", "id-list"), ("0", None), (False, True))]


def test_an_ingest_key_is_no_oracle(report: Report, tmp_path: Path, scale: Scale) -> None:
    """Sequences of calls to two worlds whose labelled ids differ at random."""
    rng, end = random.Random(scale.seed), time.monotonic() + scale.seconds
    asked = different = worlds_made = 0
    while time.monotonic() < end:
        one, other = ([i for i in IDS if rng.random() < share] for share in (rng.random(), rng.random()))
        with two_worlds(tmp_path / str(worlds_made), rng.choice(RULES), (one, other)) as worlds:
            count = rng.choice([5, 20, 60])
            asked += count
            different += len(differences(worlds, steps(rng, count)))
            worlds_made += 1
    report.row(asked, asked - different, f"{worlds_made:,} pairs of worlds with other labelled ids, same answers")
    report.finding(
        "5 an ingest key is an oracle",
        tried="sequences of inserts, upserts, deletions and repeats in two worlds that differ in which ids have labels",
        before="one insert of all ids was answered with the rows that have a label",
        after=f"{different} of {asked:,} answers differ over {worlds_made:,} pairs of worlds",
    )
    assert worlds_made
    assert different == 0


def test_queries_belong_to_who_asked(report: Report, tmp_path: Path, scale: Scale) -> None:
    """Two audiences ask at random; after every query each is shown exactly what it asked, and exports are searched."""
    rng, end = random.Random(scale.seed), time.monotonic() + scale.seconds / 2
    shown = wrong = 0
    with LabelsParty(tmp_path / "home", worker=False) as party:
        labels, features = tables(60)
        batch = with_features(party, labels, features, audiences=AUDIENCES, lifetime="400")
        predictor = made(party, batch, epsilon="0.01", cap="4")
        clients = {name: party.client("features", name) for name in AUDIENCES}
        asked: dict[str, set[str]] = {name: set() for name in AUDIENCES}
        while time.monotonic() < end or shown < 20:
            name = rng.choice(AUDIENCES)
            query = {"x": rng.randrange(10), "sector": rng.choice(["a", "b", "c"])}
            answer = clients[name].post(f"/v1/predictors/{predictor}/predict", json={"query": query})
            if answer.status_code == 200:
                asked[name].add(payload(answer.content)["id"])
            for other, client in clients.items():
                listed = {a["id"] for a in client.get("/v1/answers", params={"limit": 1000}).json()}
                shown += 1
                wrong += listed != asked[other]
        export = base64.b64decode(
            json.loads(party.client("auditor").get("/v1/audit/export").content)["payload"]
        ).decode()
        told = events(party, "release-charged", batch)
    guesses = (hashlib.sha256(canonical_bytes([x, s])).hexdigest() for x in range(1100) for s in range(5))
    found = sum(guess in export for guess in guesses)
    report.row(shown, shown - wrong, f"{len(told):,} queries of two audiences, each shown its own")
    report.finding(
        "7 an audience reads another's queries",
        tried="GET /v1/answers of both audiences after every query of either",
        before="every answer of a predictor was listed, and served, to every audience of its population",
        after=f"{wrong} of {shown:,} lists held an answer of somebody else's, or lacked one",
    )
    report.finding(
        "8 query codes under a plain hash",
        tried="SHA-256 of 5,500 guessed codes sought in the audit export",
        before="every query was found within seconds",
        after=f"{found} of {len(told):,} queries found",
    )
    assert (wrong, found) == (0, 0)
    assert all(len(e.details["query"]) == 64 for e in told)


def test_what_is_remembered_and_who_may_read_it(
    report: Report, tmp_path: Path, scale: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls under ever new keys, and a home that was everybody's before."""
    monkeypatch.setattr(calls, "MOST", 200)
    sent, end, home = 0, time.monotonic() + scale.seconds / 4, tmp_path / "home"
    with LabelsParty(home, worker=False) as party:
        owner = party.client()
        while time.monotonic() < end or sent < 250:
            body = {"name": f"p{sent}", "label": "r", "domain": "0:10", "lifetime_epsilon": "3"}
            made_ = owner.post("/v1/populations", json=body, headers={"Idempotency-Key": f"k{sent}"})
            assert made_.status_code == 201
            sent += 1
        count = sa.select(sa.func.count()).select_from(idempotency)
        kept = int(party.services.database.read("t", lambda c: c.execute(count).scalar_one()))
    paths = [home, *home.rglob("*")]
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)
    bootstrap(Settings(home=home)).close()
    open_ = sum(bool(p.stat().st_mode & 0o077) for p in [home, *home.rglob("*")] if p.suffix != ".pub")
    report.row(sent + len(paths), sent + len(paths) - open_ - max(0, kept - 200), "remembered calls; files of a home")
    report.finding(
        "10 records without bound, homes open to others",
        tried=f"{sent:,} calls under new Idempotency-Keys (bound: 200); a home of {len(paths)} paths made 0755, 0644",
        before="every call was kept for ever; modes stayed as they were; --api-key VALUE showed the key to other users",
        after=f"{kept} kept; {open_} paths open to others after a start; no option takes a key",
    )
    assert kept <= 200
    assert open_ == 0
