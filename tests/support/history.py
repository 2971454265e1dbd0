"""Batches that are sealed by their digests alone: what a seal compares, without labels and without a sort."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from label_dp.domain import Domain
from labels_party.bootstrap import Services
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import PUBLIC, RUNS, SEALED, Batch
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import Run, merge, sort_run
from tests.support.asking import population as declared


class Past:
    """The sealed batches of one label name of a party."""

    def __init__(self, services: Services, label: str) -> None:
        self.services, self.label = services, label
        wanted = declared(f"of {label}", label, Domain.parse("0:1"), "1")
        self.population = services.database.write("past", lambda c: services.populations.create(c, wanted, "test"))

    def run_of(self, ids: Iterable[str]) -> Run:
        key = digest_key(self.services.secrets, self.draft().label)
        return sort_run(*siphash128(pa.array(sorted(ids), pa.string()), key))[0]

    def draft(self, prefix: str | None = None) -> Batch:
        return self.services.batches.draft(self.population, PUBLIC, prefix)

    def seal(self, run: Run, prefix: str | None = None) -> str:
        """The id of the sealed batch. Raises OverlappingBatch."""
        s, batch = self.services, self.draft(prefix)
        sealed = s.sealer.adopted(batch, self.population, [(f"{batch.id}/none.parquet", len(run[0]))], [run], 0)
        s.sealer.record("past.seal", sealed, "test", first=lambda c: s.batches.insert(c, batch))
        return batch.id

    def runs(self, prefix: str | None = None) -> int:
        """How many runs a seal of a batch of that prefix looks into."""
        batch = self.draft(prefix)
        return len(
            self.services.database.read("past.runs", lambda c: self.services.sealer.disjoint.history.runs(c, batch))
        )

    def check(self) -> None:
        """The runs that a seal looks into hold every digest of every sealed batch, once."""
        s, batch = self.services, self.draft()
        held = s.database.read("past.runs", lambda c: s.sealer.disjoint.history.runs(c, batch))
        own = s.database.read("past.own", lambda c: s.sealer.disjoint.history.since(c, batch, 0))
        if not own:
            assert not held
            return
        seen, wanted = (
            merge([s.vault.run(key) for key in keys]) for keys in ([h.key for h in held], [o.key for _, o in own])
        )
        assert all(np.array_equal(a, b) for a, b in zip(seen, wanted, strict=True))
        assert all(o.kind == RUNS and o.of == SEALED for _, o in own)
        assert all(len(s.vault.run(h.key)[0]) == h.rows for h in held)
