"""A labels party's whole day, recorded field by field, in a world where only labels can make a difference.

Ids, keys and clock are those of a script, and the three places that ε pays for (clipping bounds, the estimate of a
prior, the draw) are replaced by constants. What is then different between two worlds came from a label by a side door.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import logging
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from label_dp.channels.base import Channel, smallest_unsigned
from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.shapes import BINS
from label_dp.documents.kind import Facts
from label_dp.domain import Domain
from label_dp.errors import LabelDPError
from labels_party import cli
from labels_party.companions.kinds import linear_model as linear_models
from labels_party.companions.kinds import median as medians
from labels_party.companions.kinds import rectangle as rectangles
from labels_party.companions.kinds.calibration import shapes
from labels_party.companions.kinds.prediction.methods import METHODS
from labels_party.companions.mechanisms.private_median.rectangles import AxisRectangle
from labels_party.message import engine
from labels_party.storage.tables import metadata
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.labels import FakeClock, LabelsParty
from tests.support.solved_once import solved_once

VICTIM = "c-07"
IDS = [f"c-{i:02d}" for i in range(24)]
K = 11
TOOK = re.compile(r"\d+ms|'milliseconds': \d+")
TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?Z?)?")
Entry = tuple[str, str, Any]


@contextmanager
def scripted(seed: str) -> Iterator[None]:
    """Ids and keys from a counter, and a draw, a prior and clipping bounds that do not look at labels."""
    numbers = itertools.count()

    def token_bytes(n: int = 32) -> bytes:
        return hashlib.shake_256(f"{seed} {next(numbers)}".encode()).digest(n)

    def constant_draw(channel: Channel, index: Any) -> Any:
        return (np.arange(len(index)) * 7 % channel.m).astype(smallest_unsigned(channel.m))

    def constant_prior(counts: Any, *_: Any) -> Any:
        return np.arange(1.0, counts.size + 1) / np.arange(1.0, counts.size + 1).sum()

    def constant_fit(terms: shapes.Terms, x: Any, _labels: Any) -> MonotoneMap:
        return MonotoneMap(terms.x_size, np.array([x.max()], np.int64), terms.domain.values[:2])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", token_bytes)
        patch.setattr(secrets, "token_hex", lambda n=16: token_bytes(n).hex())
        patch.setattr(secrets, "token_urlsafe", lambda n=32: token_bytes(n).hex())
        patch.setattr(engine, "sample", constant_draw)
        patch.setattr(engine, "estimate_prior", constant_prior)
        for shape in (BINS, shapes.MONOTONE):
            patch.setitem(shapes.SHAPES, shape, replace(shapes.SHAPES[shape], fit=constant_fit))
        for name in medians.METHOD:
            patch.setitem(medians.METHOD, name, lambda job, k, epsilon: (1, Facts()))
        inside = AxisRectangle((1,), (5,))
        patch.setattr(rectangles, "private_rectangle", lambda points, positive, plan: inside)
        patch.setattr(linear_models, "train", lambda x, y, plan: np.full(plan.features, 0.5))
        patch.setattr(engine, "buy", lambda counts, *_: (1, counts.size // 2))
        for name, method in METHODS.items():
            patch.setitem(METHODS, name, replace(method, draw=lambda plan, fact: 0))
        yield


@dataclass
class Day:
    """One world: `label` is that of the victim (None: it is deleted again). With `sent` False the shop's batch, whose
    ids are listed, never gets one; calls about it are made about another example then. A day may end with the
    releases."""

    home: Path
    label: float | None
    sent: bool = True
    up_to_releases: bool = False
    entries: list[Entry] = field(default_factory=list)

    def note(self, where: str, what: str, value: Any) -> None:
        self.entries.append((where, what, value))

    def call(self, method: str, path: str, client: TestClient | None = None, **options: Any) -> Any:
        self.clock.move(seconds=1)
        answer = (client or self.owner).request(method, path, **options)
        where = f"{method} {path} #{len(self.entries)}"
        self.note(where, "status", answer.status_code)
        content = answer.content
        if path == "/metrics":  # when a counter was made is told by the wall clock, in more or fewer digits
            content = b"\n".join(line for line in content.splitlines() if b"_created" not in line)
        for name, value in sorted(answer.headers.items()):
            self.note(where, f"header {name}", len(content) if path == "/metrics" and "length" in name else value)
        self.note(where, "body", content)
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer

    def labels(self, ids: list[str]) -> list[float]:
        """What is sent for these ids; a label that will be deleted is sent first."""
        own = 7.0 if self.label is None else self.label
        return [own if i == VICTIM else float(int(i[2:]) % K) for i in ids]

    # --- the day ------------------------------------------------------------------------------------------

    def live(self, keys: Path) -> None:
        """Everything that an owner, a sender, a receiver and an auditor can ask for, refusals included."""
        self.clock = FakeClock()
        shutil.copytree(keys, self.home / "keys")
        log = Log(self)
        root = logging.getLogger()
        level = root.level
        root.addHandler(log)
        root.setLevel(logging.DEBUG)
        try:
            with scripted("day"), solved_once(), LabelsParty(self.home, clock=self.clock, worker=False) as party:
                self.party, self.owner = party, party.client("owner")
                self.sender, self.receiver = party.client("ingest"), party.client("features")
                self.auditor = party.client("auditor")
                for client in (self.owner, self.sender, self.receiver, self.auditor):
                    client.portal = party._clients[0].portal  # one event loop for all calls: half the time
                self.hook = self.call("POST", "/v1/webhooks", json={"url": "https://example.org/x"})["id"]
                batch = self.intake()
                self.refused_seals(batch)
                self.releases(batch)
                if self.up_to_releases:
                    return
                self.calibrations(batch)
                self.medians(batch)
                self.predictors(batch)
                self.of_features(batch)
                self.on_files()
                self.end_of(batch)
                self.left_behind()
            with scripted("commands"):
                self.commands()
        finally:
            root.removeHandler(log)
            root.setLevel(level)

    def population(self, name: str, **rules: Any) -> str:
        body = {"name": name, "label": name, "domain": "0:10", "lifetime_epsilon": "3", "missing_label": 0} | rules
        return str(self.call("POST", "/v1/populations", json=body)["id"])

    def batch(self, population: str, presence: str = "public", **schedule: Any) -> str:
        body = {"presence": presence} | schedule
        return str(self.call("POST", f"/v1/populations/{population}/batches", json=body)["id"])

    def intake(self) -> str:
        """Labels in every format, and every refusal of them that has the victim's label beside it."""
        self.shop = self.population("shop", alert_percent=[50])
        batch = self.batch(self.shop, "id-list")
        path = f"/v1/batches/{batch}/labels"
        self.call("PUT", f"/v1/batches/{batch}/examples", self.receiver, json={"example_id": IDS})
        own = VICTIM if self.sent else IDS[0]
        first, rest = [VICTIM, *IDS[:3]][not self.sent :], [i for i in IDS[3:] if i != VICTIM]
        rows: dict[str, list[Any]] = {"example_id": first, "label": self.labels(first)}
        for extra, label in (("c-20", "nan"), ("stranger", 1), (own, 3.0)):
            bad = {"example_id": [*first, extra], "label": [*rows["label"], label]}
            self.call("POST", path, self.sender, json=bad)
        self.call("POST", path, self.sender, content=_parquet(rows), headers=PARQUET)
        for again in (3.0, 9.0):  # a second label for the id, equal in one world
            for client in (self.sender, self.owner):
                self.call("POST", path, client, json={"example_id": [own], "label": [again]})
        others = {"example_id": rest[:8], "label": self.labels(rest[:8])}
        self.call("POST", path, self.sender, content=_csv(others), headers={"Content-Type": "text/csv"})
        lines = [
            json.dumps({"example_id": i, "label": y}) for i, y in zip(rest[8:], self.labels(rest[8:]), strict=True)
        ]
        self.call("POST", path, self.sender, content="\n".join(lines), headers={"Content-Type": "application/x-ndjson"})
        for label in (self.label, self.label):  # None deletes it
            self.call("POST", f"{path}?mode=upsert", self.sender, json={"example_id": [own], "label": [label]})
        self.call("PUT", f"/v1/batches/{batch}/examples", self.receiver, json={"example_id": IDS[:3]})
        self.call("GET", f"/v1/batches/{batch}")
        return batch

    def refused_seals(self, batch: str) -> None:
        strict = self.batch(self.population("strict", missing_label=None), "id-list")
        self.call("PUT", f"/v1/batches/{strict}/examples", json={"example_id": IDS})
        given = [i for i in IDS if i != "c-20"]
        self.call("POST", f"/v1/batches/{strict}/labels", json={"example_id": given, "label": self.labels(given)})
        self.call("POST", f"/v1/batches/{strict}/seal")
        self.call(
            "PATCH", f"/v1/batches/{strict}", json={"seal_at": "2030-01-01T12:00:00Z", "release": {"epsilon": "1"}}
        )
        units = self.batch(self.population("units", missing_label=None, unit_column="u", max_examples_per_unit=2))
        rows = {"example_id": IDS, "label": self.labels(IDS), "unit": ["u"] * len(IDS)}
        self.call("POST", f"/v1/batches/{units}/labels", json=rows)
        self.call("POST", f"/v1/batches/{units}/seal")
        self.call("POST", f"/v1/batches/{batch}/seal", self.receiver)
        self.decided(batch)
        for _ in range(2):
            self.call("POST", f"/v1/batches/{batch}/seal")
        late = self.batch(self.shop, seal_at="2030-01-02T00:00:00Z", release={"epsilon": "1"})
        self.call("POST", f"/v1/batches/{late}/labels", json={"example_id": [VICTIM], "label": self.labels([VICTIM])})
        self.clock.move(days=2)
        self.party.services.worker.drain()
        for waiting in (late, strict):  # `schedule_problem` says why
            self.call("GET", f"/v1/batches/{waiting}")

    def decided(self, batch: str) -> None:
        """Second labels wait for the owner, and the seal with them."""
        self.call("POST", f"/v1/batches/{batch}/seal")
        path = f"/v1/batches/{batch}/set-aside"
        for upload in self.owner.get(path).json():
            self.note(f"GET {path}", "upload", {k: v for k, v in upload.items() if k != "examples"})
            for decision in ("drop", "replace"):
                self.call("POST", f"{path}/{upload['id']}", json={"decision": decision})

    def releases(self, batch: str) -> None:
        plan = f"/v1/populations/{self.shop}/plan?epsilon=0.5&epsilon=1"
        self.call("GET", f"{plan}&batch={batch}")
        asked: list[dict[str, Any]] = [
            {"epsilon": "0.5", "mechanism": "rr-on-bins", "prior_epsilon": "0.1"},
            {"epsilon": "0.3"},
            {"epsilon": "0.7", "mechanism": "discrete-laplace", "additional_release": True},
            {"epsilon": "0.4", "prior": "latest", "additional_release": True},
            {"epsilon": "0.3", "clip_quantile": ["0.1", "0.9"], "clip_epsilon": "0.1", "additional_release": True},
            {"epsilon": "0.3", "clip_quantile": "0.9", "clip_epsilon": "0.3", "additional_release": True},
            {"epsilon": "9", "additional_release": True},
            {"epsilon": "0.1", "mechanism": "one-bit", "clip": ["8", "3"], "additional_release": True},
        ]
        for body in asked:
            answer = self.call("POST", f"/v1/batches/{batch}/releases", json=body)
            release = str(answer.get("id"))
            if not release.startswith("rel_"):
                continue
            self.call("GET", f"/v1/releases/{release}")
            self.party.services.pipeline.run(release, lambda what, share: self.note("progress", what, share))
            for client in (self.owner, self.receiver, self.auditor):
                self.call("GET", f"/v1/releases/{release}", client)
                self.call("GET", f"/v1/releases/{release}/statement", client)
            for part in ("manifest", "message", "files/prior.parquet", "files/none"):
                self.call("GET", f"/v1/releases/{release}/{part}", self.receiver)
            self.call("GET", f"/v1/releases/{release}/message", self.receiver, headers={"Range": "bytes=0-9"})
            self.call("POST", f"/v1/releases/{release}/cancel")
        self.call("GET", f"{plan}&batch={batch}&prior=latest")
        self.call("GET", f"{plan}&batch={batch}&clip_quantile=0.9&clip_epsilon=0.1")

    def calibrations(self, batch: str) -> None:
        """What is asked for by owner and audience, refusals and failures included."""
        path = f"/v1/batches/{batch}/calibrations?epsilon="
        scores = {"example_id": [*IDS, "stranger"], "score": [*range(len(IDS)), 3]}
        known = {name: values[:-1] for name, values in scores.items()}
        self.call("POST", f"{path}0.05", self.receiver, json=scores)
        self.call("PUT", f"/v1/batches/{batch}/calibration-allowance", json={"epsilon": "0.1"})
        asked: list[tuple[TestClient, str, dict[str, list[Any]]]] = [
            (self.owner, "0.05", known),
            (self.owner, "0.05&additional_release=true", scores),
            (self.owner, "0.05&additional_release=true", known),
            (self.receiver, "0.05&additional_release=true", scores),
            (self.receiver, "0.1&additional_release=true", scores),
            (self.receiver, "0.05&additional_release=true&shape=round", scores),
            (self.receiver, "0.05&additional_release=true", scores | {"score": ["x"] * len(scores["score"])}),
        ]
        for client, query, body in asked:
            answer = str(self.call("POST", path + query, client, json=body).get("id"))
            self.call("GET", f"/v1/answers/{answer}", client)
            if answer.startswith("ans_"):
                self.party.services.pipeline.run(answer)
            for reader in (self.owner, self.receiver, self.auditor):
                self.call("GET", f"/v1/answers/{answer}", reader)
                self.call("GET", f"/v1/answers/{answer}/document", reader)
        self.call("GET", f"/v1/batches/{batch}/calibration-allowance", self.receiver)

    def medians(self, batch: str) -> None:
        """By either method, and refusals: not asked for on top, no δ to spend."""
        asked = {"epsilon": "0.002", "additional_release": True}
        for body in ({"epsilon": "0.002"}, asked | {"delta": "0.000001"}, asked | {"method": "slices"}, asked):
            answer = str(self.call("POST", f"/v1/batches/{batch}/medians", json=body).get("id"))
            if answer.startswith("ans_"):
                self.party.services.pipeline.run(answer)
            for reader in (self.owner, self.receiver, self.auditor):
                self.call("GET", f"/v1/answers/{answer}", reader)
                self.call("GET", f"/v1/answers/{answer}/document", reader)

    def predictors(self, batch: str) -> None:
        """Made by every method, asked by owner and audience, beyond their cap, and retired."""
        table = {"example_id": IDS, "x": [float(i[2:]) for i in IDS], "kind": [i[-1] for i in IDS]}
        features = [{"name": "x", "range": [0, 24]}, {"name": "kind", "values": list("012345")}]
        path = f"/v1/batches/{batch}/features"
        for content, kind in (
            (_csv(table), {"Content-Type": "text/csv"}),
            (b"PAR1", PARQUET),
            (_parquet(table), PARQUET),
        ):
            self.call("PUT", path, content=content, headers=kind)
        for method in METHODS:
            body = {"batch": batch, "method": method, "epsilon": "0.01", "epsilon_cap": "0.02", "features": features}
            body |= {"threshold": 5} if METHODS[method].classifies else {}
            body |= {"features": features[:1]} if method == "walk" else {}
            for more in ({}, {"additional_release": True}, {"additional_release": True, "parts": 25}):
                predictor = str(self.call("POST", "/v1/predictors", json=body | more).get("id"))
                if not predictor.startswith("prd_"):
                    continue
                self.call("POST", f"/v1/predictors/{predictor}/predict", self.receiver, json={"query": {"x": 3}})
                self.note("predictor", "trained", self.party.services.companions.predictors.train(predictor))
                for client, x in (
                    (self.receiver, 3),
                    (self.owner, 3.0),
                    (self.receiver, "?"),
                    (self.receiver, 9),
                    (self.owner, 1),
                ):
                    self.call("POST", f"/v1/predictors/{predictor}/predict", client, json={"query": {"x": x}})
                for reader in (self.owner, self.receiver, self.auditor):
                    self.call("GET", f"/v1/predictors/{predictor}", reader)
        self.call("POST", f"/v1/predictors/{predictor}/retire")
        self.call("GET", "/v1/predictors", self.receiver)

    def of_features(self, batch: str) -> None:
        """Rectangles and linear models of the table that predictors were made of, and refusals of them."""
        one = {"epsilon": "0.002", "features": [{"name": "x", "range": [0, 24]}]}
        for kind, body in (("rectangles", one | {"threshold": 5, "slice": 2}), ("linear-models", one)):
            path, more = f"/v1/batches/{batch}/{kind}", {"additional_release": True}
            unknown = body | more | {"features": [{"name": "z", "range": [0, 1]}]}
            for asked in (body, unknown, body | more | {"epsilon": "9"}, body | more):
                self.call("POST", f"{path}/plan", json=asked)
                answer = str(self.call("POST", path, json=asked).get("id"))
                if answer.startswith("ans_"):
                    self.party.services.pipeline.run(answer)
                for reader in (self.owner, self.receiver, self.auditor):
                    self.call("GET", f"/v1/{kind}/{answer}", reader)
                    self.call("GET", f"/v1/{kind}/{answer}/document", reader)

    def on_files(self) -> None:
        """The command's way, with its summary, progress and refusals."""
        services, folder = self.party.services, self.home.parent
        path = folder / "labels.parquet"
        path.write_bytes(_parquet({"example_id": IDS, "files": self.labels(IDS)}))
        for name, more in (("files", False), ("files", False), ("files", True), ("shop", True)):
            declared = parse_population(name, "files", Domain.parse("0:10"), "2", missing_label=0)
            wanted = parse_request(services, declared, epsilon="0.5", prior="estimate", additional_release=more)
            out = folder / f"{name}-{len(self.entries)}.parquet"
            try:
                told = privatize(
                    services,
                    path,
                    declared,
                    wanted,
                    out,
                    progress=lambda what, share: self.note("privatize: progress", what, share),
                )
                self.note("privatize", "summary", str(told).replace(str(folder), ""))
            except LabelDPError as error:
                self.note("privatize", "refused", f"{error.code}: {error.detail}".replace(str(folder), ""))

    def commands(self) -> None:
        """What the command prints, on either stream, and its exit code; times of the day are the machine's."""
        table = ["--labels", "labels.parquet", "--id-column", "example_id", "--label-column", "label"]
        rules = ["--domain", "0:10", "--population", "own", "--budget", "2", "--epsilon", "0.5", "--missing-label", "0"]
        privatize_ = ["privatize", *table, *rules, "--mechanism", "rr-on-bins", "--prior-epsilon", "0.1", "--out"]
        asked = (
            [*privatize_, "a.parquet"],
            [*privatize_, "b.parquet"],
            [*privatize_, "c.parquet", "--additional-release", "--json"],
            ["inspect", "a.parquet"],
            ["plan", "--population", "own", "--epsilon", "0.5", "--n", "24"],
            ["budget"],
            ["audit", "show"],
            ["erase", "--population", "own", "--id", VICTIM],
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LABELS_PARTY_HOME", str(self.home))
            patch.chdir(self.home.parent)
            for arguments in asked:
                streams, code = (io.StringIO(), io.StringIO()), 0
                patch.setattr(sys, "argv", ["labels-party", *arguments])
                with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
                    try:
                        cli.main()
                    except SystemExit as stop:
                        code = stop.code if isinstance(stop.code, int) else 1
                said = [TIME.sub("", s.getvalue()).replace(str(self.home.parent), "") for s in streams]
                self.note(f"labels-party {arguments[0]}", "exit, output, errors", (code, *said))

    def end_of(self, batch: str) -> None:
        for ids in ([VICTIM], ["stranger"]):
            self.call("POST", f"/v1/populations/{self.shop}/erasures", json={"example_ids": ids})
        self.party.services.worker.drain()
        self.call("GET", f"/v1/populations/{self.shop}/erasures", self.auditor)
        self.call("POST", f"/v1/batches/{batch}/purge")
        self.call("POST", f"/v1/batches/{batch}/releases", json={"epsilon": "0.1", "additional_release": True})
        for path in (f"/v1/populations/{self.shop}/budget", "/v1/audit/events?limit=1000", "/v1/audit/export"):
            self.call("GET", path, self.auditor)
        for path in (f"/v1/webhooks/{self.hook}/deliveries", "/v1/releases", "/v1/populations", "/metrics", "/readyz"):
            self.call("GET", path)
        for path in ("/v1/releases", "/v1/answers"):
            self.call("GET", path, self.receiver)

    def left_behind(self) -> None:
        """Every row of the database, and every file by name and size: neither may tell one label from another."""
        for table in metadata.sorted_tables:
            rows = self.party.services.database.read("dump", lambda c, t=table: c.execute(t.select()).all())
            for row in rows:
                self.note(f"table {table.name}", "row", tuple(row))
        for path in sorted(p for p in self.home.rglob("*") if p.is_file() and ".sqlite" not in p.name):
            self.note("file", str(path.relative_to(self.home)), path.stat().st_size)


class Log(logging.Handler):
    """Every record of every logger, as text, without how long something took."""

    def __init__(self, day: Day) -> None:
        super().__init__(logging.DEBUG)
        self.day = day

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("label_dp", "labels_party", "shared", "sqlalchemy", "alembic", "uvicorn")):
            said = f"{record.getMessage()} {record.exc_info} {getattr(record, 'label_dp_fields', '')}"
            self.day.note(f"log {record.name}", record.levelname, TOOK.sub("", said))


PARQUET = {"Content-Type": "application/vnd.apache.parquet"}


def _parquet(rows: dict[str, list[Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    return sink.getvalue()


def _csv(rows: dict[str, list[Any]]) -> bytes:
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    return "\n".join(lines).encode()


def differences(one: Day, two: Day) -> list[tuple[Entry, Entry]]:
    """Entries that are not the same, in order; of days of different length also the first that is too many."""
    pairs = itertools.zip_longest(one.entries, two.entries, fillvalue=("nothing", "", None))
    return [(a, b) for a, b in pairs if a != b]
