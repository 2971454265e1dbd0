"""Everything that changes a labels party's ledger or its batches, as named calls with plain arguments and answers.

The same calls are made in this process and in one that is killed (`ledger_process`). Each takes an idempotency key, and
is safe to repeat with it; the answer of a repeated call is that of the first.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from label_dp.documents.bundle import Bundle, verify
from label_dp.documents.registry import trusted_answer
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from label_dp.store.idempotency import IdempotentCall
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.storage.tables import work
from tests.support.asked import calibration_wish, median_wish, release_wish
from tests.support.asking import population as parse_population
from tests.support.asking import predictor as parse_predictor

POPULATION, LIFETIME = "shop", "3"
READER = "features-party"
THRESHOLD = 2  # of predictors


def found_population(services: Services) -> None:
    """The one population of the calls."""
    s = services
    shop = parse_population(POPULATION, "revenue", Domain.parse("0:10"), LIFETIME, missing_label="0")
    s.database.write("test.population", lambda c: s.populations.create(c, shop, "test"))


class Calls:
    def __init__(self, services: Services) -> None:
        self.s = services

    def call(self, name: str, key: str, arguments: list[Any]) -> Any:
        """The answer as JSON would carry it. Raises what the services raise."""
        about = hashlib.sha256(json.dumps([name, *arguments]).encode()).hexdigest()
        once = IdempotentCall(self.s.idempotency, "test", key or None, about)
        return json.loads(json.dumps(getattr(self, name)(once, *arguments)))

    def create(self, once: IdempotentCall, presence: str) -> Any:
        s = self.s

        def make(connection: Any) -> Any:
            shop = s.populations.get(connection, POPULATION)
            return once.once(connection, lambda: (201, {"id": s.batches.create(connection, shop, presence).id}))

        return s.database.write("batch.create", make)

    def list(self, once: IdempotentCall, batch: str, ids: list[str]) -> Any:
        return self.s.intake.put_examples(batch, pa.table({"example_id": ids}), call=once)

    def ingest(self, once: IdempotentCall, batch: str, ids: list[str], label: int, mode: str) -> Any:
        table = pa.table({"example_id": ids, "label": pa.array([label] * len(ids), pa.float64())})
        return self.s.intake.add_labels(batch, table, call=once, mode=mode, owner=True)

    def seal(self, once: IdempotentCall, batch: str) -> Any:
        return self.s.sealer.seal(batch, "test", once)

    def release(self, once: IdempotentCall, batch: str, epsilon: str, additional: bool) -> Any:
        asked = release_wish(Epsilon.parse(epsilon), mechanism="rr-on-bins", additional_release=additional)
        return self.s.work.ask(self.s.message, batch, asked, "test", once)

    def median(self, once: IdempotentCall, batch: str, epsilon: str, additional: bool) -> Any:
        wish = median_wish(epsilon=epsilon, additional_release=additional)
        return self.s.work.ask(self.s.work.queued("median"), batch, wish, "test", once)

    def calibrate(self, once: IdempotentCall, batch: str, epsilon: str, additional: bool, ids: list[str]) -> Any:
        scores = pa.table({"example_id": ids, "score": [float(i) for i in range(len(ids))]})
        wish = calibration_wish(epsilon=epsilon, additional_release=additional)
        scored = self.s.companions.calibration.scored(batch, wish, lambda _fields: [scores])
        return self.s.work.ask(self.s.companions.calibration, batch, scored, "test", once)

    def features(self, once: IdempotentCall, batch: str, ids: list[str]) -> Any:
        table = pa.table({"example_id": ids, "x": [float(i % 10) for i in range(len(ids))]})
        return self.s.companions.features.put(batch, table, call=once)

    def predictor(self, once: IdempotentCall, batch: str, epsilon: str, cap: str, additional: bool) -> Any:
        asked = parse_predictor(
            method="walk",
            epsilon=epsilon,
            epsilon_cap=cap,
            features=[{"name": "x", "range": [0, 10]}],
            threshold=THRESHOLD,
            additional_release=additional,
        )
        return self.s.companions.predictors.create(batch, asked, "test", once)

    def predict(self, _once: IdempotentCall, _batch: str, predictor: str, query: int) -> Any:
        """Needs no key: a query that was answered gets its answer again."""
        found = self.s.companions.queries.predict(predictor, {"x": query}, "test")
        return 200, {"id": found.answer, "sha256": hashlib.sha256(found.envelope).hexdigest()}

    def retire(self, _once: IdempotentCall, _batch: str, predictor: str) -> Any:
        return 200, self.s.companions.predictors.retire(predictor, "test")

    def purge(self, once: IdempotentCall, batch: str) -> Any:
        return self.s.retention.purge(batch, "test", once)

    def work(self, _once: IdempotentCall) -> Any:
        """One round of the background worker."""
        return self.s.worker.drain()

    def draw(self, _once: IdempotentCall, release: str) -> Any:
        return self.s.pipeline.run(release)

    def verify(self, _once: IdempotentCall) -> Any:
        """Digest of every published release, its files checked against its manifest, and of every published answer."""
        return {release: self._verified(release) for release in self.published()} | self._answers()

    def published(self) -> list[str]:
        """Releases."""
        s = self.s
        shop = s.database.read("test.shop", lambda c: s.populations.get(c, POPULATION))
        found = s.database.read("test.releases", lambda c: s.work.of_population(c, shop.id, "release"))
        return [release.id for release in found if release.state == PUBLISHED]

    def folder(self, release: str) -> Bundle:
        """Its files as they are served, wherever they lie."""
        files = self.s.database.read("test.files", lambda c: self.s.work.files(c, release))
        places = [self.s.work.shelf.local(file) for file in files]
        if not self.s.settings.objects:
            return Bundle(places[0].parent)
        folder = self.s.home.path / "seen" / release
        folder.mkdir(parents=True, exist_ok=True)
        for file, place in zip(files, places, strict=True):
            shutil.copyfile(place, folder / file.name)
        return Bundle(folder)

    def _verified(self, release: str) -> str:
        return verify(self.folder(release).path, self.s.key.public, READER).digest

    def _answers(self) -> dict[str, str]:
        found = dict[str, str]()
        published = sa.select(work).where(work.c.state == PUBLISHED, work.c.kind != "release")
        for row in self.s.database.read("test.answers", lambda c: c.execute(published).all()):
            envelope = self.s.work.envelope(row.id)
            told, digest = trusted_answer(envelope, self.s.key.public, READER)
            stored = (row.id, row.kind, row.batch, row.sha256, row.epsilon)
            assert (told.id, told.kind, told.batch, digest, told.epsilon.as_json()) == stored
            found[row.id] = hashlib.sha256(envelope).hexdigest()
        return found
