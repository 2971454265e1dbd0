"""The features party of a `World`: takes every message and trains on them, and breaks off like the labels party."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from features_party.bootstrap import Services, bootstrap
from features_party.files.jobs import Files, train_files
from features_party.settings import Settings
from label_dp.audit import events
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import LabelDPError, Unavailable
from label_dp.schemas.training import Learning
from tests.support.ledger_faults import FULL, Crash, Faults

T = TypeVar("T")
ROWS = 12  # of each batch, more than any has


class Receiving:
    def __init__(self, home: Path) -> None:
        self.home, self.faults = home, Faults()
        self.open()

    def open(self) -> None:
        self.faults.revive()
        self.services: Services = bootstrap(Settings(home=self.home), faults=self.faults)

    def close(self) -> None:
        self.services.close()

    def pull(self, folder: Path, key: VerifyingKey) -> str | None:
        """Digest of the accepted manifest, None where it broke off."""
        return self._tried(lambda: self.services.messages.accept(folder, key).digest)

    def train(self, messages: list[Path], batches: list[str], key: VerifyingKey) -> bool:
        """A linear model on everything that was published. False where it broke off; then no model stands."""
        ids = [f"{batch}-{i}" for batch in batches for i in range(ROWS)]
        features, out = self.home / "features.parquet", self.home / f"model-{self.trained()}"
        pq.write_table(pa.table({"id": ids, "x": [float(i % 5) for i in range(len(ids))]}), features)
        files = Files(messages, key, features, "id", out)
        done = self._tried(lambda: train_files(self.services, files, Learning(model="linear"), lambda *_: None))
        assert (done is not None) <= out.exists(), "a finished training left no model"
        return done is not None

    def trained(self) -> int:
        """How many trainings were accounted for."""
        return len(self.services.database.read("e", lambda c: self.services.audit.events(c, kind=events.TRAINED)))

    def accepted(self) -> list[str]:
        """Releases that were accounted for, in order."""
        s = self.services
        s.database.read("v", s.audit.verify)
        return [str(e.subject.work) for e in s.database.read("e", lambda c: s.audit.events(c, kind=events.ACCEPTED))]

    def _tried(self, move: Callable[[], T]) -> T | None:
        full = self.faults.kind == FULL
        try:
            with self.faults.disk():
                return move()
        except Crash:
            self.services.database.dispose()
            self.faults.calm()
            self.open()
        except Unavailable:
            pass
        except LabelDPError as error:
            if not full:
                raise AssertionError(f"the receiver refuses what it must take: {error}") from error
        finally:
            self.faults.calm()
        return None
