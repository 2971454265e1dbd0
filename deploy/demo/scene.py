"""What the acts of the story share: the clicks, the callers of both services, the folder, the names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.demo.clicks import DOMAIN, ClickLog, generate
from deploy.demo.telling import Advance, Teller
from features_party.client import FeaturesPartyClient
from labels_party.client import LabelsPartyClient
from shared.documents.bundle import VerifiedMessage, verify
from shared.documents.signing import VerifyingKey
from shared.errors import InvalidInput
from shared.privacy import Epsilon

AUDIENCE = "features-party"
ID, LABEL = "click_id", "revenue_eur"
HELD_OUT = 4  # one held-out click per this many clicks
CHUNKS = 4
PREDICT_ROWS = 50_000
TIMEOUT = httpx.Timeout(60.0, read=300.0)


@dataclass(frozen=True)
class Access:
    """Where both services are, and the keys for them."""

    labels_url: str
    features_url: str
    owner: str
    ingest: str
    reader: str | None  # of role features; None where the features party has its own configured
    trainer: str
    auditor: str
    labels_key: Path
    features_key: Path

    @classmethod
    def from_folder(cls, labels_url: str, features_url: str, folder: Path) -> Access:
        """Keys in files, as docker-compose.yml makes them. Raises InvalidInput naming the missing file."""

        def secret(name: str) -> str:
            text = (folder / name).read_text(encoding="utf-8").strip() if (folder / name).is_file() else ""
            if not text:
                raise InvalidInput(f"The key file '{folder / name}' is missing or empty; make the key again.")
            return text

        keys = (secret("owner.key"), secret("ingest.key"), None, secret("trainer.key"), secret("auditor.key"))
        secret("labels-party.pub")
        secret("features-party.pub")
        return cls(labels_url, features_url, *keys, folder / "labels-party.pub", folder / "features-party.pub")


class Scene:
    """`owner` and `backend` are the advertiser's callers, `trainer` and `auditor` the publisher's. `clicks` carry the
    labels of the story, `held_out` are later ones on which models are tested. `tag` keeps names apart where the
    services outlive the demo; empty for services of its own."""

    def __init__(
        self, teller: Teller, folder: Path, epsilon: Epsilon, access: Access, log: tuple[ClickLog, ClickLog], tag: str
    ) -> None:
        self.teller, self.folder, self.epsilon, self.access, self.tag = teller, folder, epsilon, access, tag
        self.clicks, self.held_out = log
        # proxies of the visitor's environment have no business between two local services
        self.http = http = httpx.Client(timeout=TIMEOUT, trust_env=False)
        labels, features, rows = access.labels_url, access.features_url, len(self.clicks)
        self.owner = LabelsPartyClient(labels, access.owner, http=http)
        self.backend = LabelsPartyClient(labels, access.ingest, http=http, chunk_rows=-(-rows // CHUNKS))
        self.trainer = FeaturesPartyClient(features, access.trainer, http=http)
        self.auditor = FeaturesPartyClient(features, access.auditor, http=http)

    @property
    def lifetime(self) -> str:
        """The lifetime ε per click: two releases of the size that is asked for."""
        return plain(Epsilon(self.epsilon.nano * 2))

    def name(self, base: str) -> str:
        """A population or label name of this run."""
        return f"{base}-{self.tag}" if self.tag else base

    def open(self, population: str, label: str) -> str:
        """A population with one open batch; returns the batch."""
        self.owner.create_population(
            name=population, label=label, domain=DOMAIN, lifetime_epsilon=self.lifetime, audiences=[AUDIENCE]
        )
        return str(self.owner.open_batch(population)["id"])

    def send_labels(self, batch: str, advance: Advance) -> int:
        """Every click's revenue in chunks, then the seal; returns how many labels were accepted."""
        labels = pa.table({"example_id": self.clicks.features[ID], "label": self.clicks.revenue})
        sent = self.backend.add_labels(batch, labels, progress=lambda done, _: advance(done / len(self.clicks)))
        self.owner.seal(batch)
        return sent

    def left(self, population: str) -> str:
        """ε left per click, from the ledger."""
        return plain(self.owner.budget(population)["batches"][0]["epsilon_left"])

    def fetch(self, release: str, out: Path) -> VerifiedMessage:
        """A published message with its manifest in a file of the folder, verified."""
        from features_party.labels_service import LabelsService
        from features_party.receive.pull import pull

        key = VerifyingKey.load(self.access.labels_key)
        reader = self.access.reader or self.access.owner
        # a transport of our own: proxies of the environment are for the outside world
        with LabelsService(self.access.labels_url, reader, transport=httpx.HTTPTransport()) as service:
            pull(service, release, lambda _: key, AUDIENCE, out, lambda _what, _share: None)
        return verify(out, key, AUDIENCE)

    def order(self, table: str, release: str, correction: Literal["none", "auto"]) -> str:
        """Put a training of trees alone in line, which is quick; returns its id."""
        return str(
            self.trainer.train(feature_table=table, messages=[release], model="trees", correction=correction)["id"]
        )

    def trained(self, training: str, what: str) -> tuple[str, npt.NDArray[np.float64]]:
        """The model of a training once it is done, and float64[n], its predictions for the held-out clicks."""
        with self.teller.bar(what) as advance:
            for event in self.trainer.events(training):
                advance(float(event["share"]))
            model, features = self.trainer.wait(training), self.held_out.features.drop_columns([ID])
            parts = [features.slice(start, PREDICT_ROWS) for start in range(0, len(features), PREDICT_ROWS)]
            return model, np.concatenate([self.trainer.predict(model, part.to_pylist()) for part in parts])


def simulate(clicks: int, seed: int, folder: Path, tag: str) -> tuple[ClickLog, ClickLog]:
    """Clicks of the story and later, held-out ones; both written to the folder, features and revenue apart."""
    log = generate(clicks + clicks // HELD_OUT, seed, prefix=f"clk-{tag}" if tag else "clk")
    now, later = log.take(0, clicks), log.take(clicks, len(log))
    pq.write_table(now.features, folder / "features.parquet")
    pq.write_table(pa.table({ID: now.features[ID], LABEL: now.revenue}), folder / "revenue.parquet")
    # features and truth in one file exist only because this is a simulation
    truth = later.features.append_column(LABEL, pa.array(later.labels))
    pq.write_table(truth, folder / "held-out.parquet")
    return now, later


def plain(number: Epsilon | str) -> str:
    """ε as people write it."""
    text = str(number)
    return text.rstrip("0").rstrip(".") if "." in text else text
