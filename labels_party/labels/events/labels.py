"""Labels of a batch from its events, at the seal: those that came by calls, or those of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from sqlalchemy.engine import Connection

from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidFile, Unavailable
from label_dp.schemas.events import DataSet, EventRule
from label_dp.store.database import Database
from labels_party.labels.at_rest import event_keys
from labels_party.labels.batches import EVENTS, Batch, Segment, require_sealed
from labels_party.labels.changes import until_current
from labels_party.labels.events.bodies import EVENT, Events, stored_events
from labels_party.labels.events.files import EventFile
from labels_party.labels.events.fold import EventFold, Examples
from labels_party.labels.events.windows import EventWindows
from labels_party.labels.parsing import ID, TIME
from labels_party.labels.sorting import StoredExamples
from labels_party.labels.vault import LabelVault
from labels_party.ledger.event_rules import data_sets
from labels_party.storage.secrets import Secrets

RETRIES = 3  # a purge in between erases the key, and is then refused as such


class EventLabels:
    """Fold of the stored events of a batch. Temporary files lie encrypted below `spill`."""

    def __init__(
        self, database: Database, windows: EventWindows, vault: LabelVault, secrets_: Secrets, spill: Path
    ) -> None:
        self.database, self.windows, self.vault = database, windows, vault
        self.secrets, self.spill = secrets_, spill

    def of(self, batch: Batch, rule: EventRule, domain: Domain, examples: StoredExamples) -> StoredExamples:
        """Return the examples with the labels that the events of the batch give, read in their order of arrival.
        Raises Unavailable, FileNotFoundError if a part of them is erased meanwhile."""
        name, since = rule.data_set_id, batch.events_since or 0
        segments = self.database.read("seal.events", lambda c: self.windows.segments(c, name, since))
        records = (part for segment in segments for part in self.vault.records(segment.key, EVENT))
        return self._folded(rule, domain, examples, records, sum(segment.rows for segment in segments))

    def of_file(self, file: EventFile, rule: EventRule, domain: Domain, examples: StoredExamples) -> StoredExamples:
        """Return the examples with the labels that the events of a file give, which keep the rules of all populations.
        Raises InvalidFile, InvalidEvents, TooLarge, Unavailable, and Conflict if another rule contradicts this one."""
        records = self._records(file, rule)
        return self._folded(rule, domain, examples, records, file.rows)

    def sets_with(self, rule: EventRule) -> dict[str, DataSet]:
        """Return the data sets of all populations and of this rule. Raises Conflict if another one contradicts it."""
        rules = self.database.read("events.look", self.windows.batches.populations.event_rules)
        return data_sets([*map(EventRule.model_validate, rules), rule])

    def _records(self, file: EventFile, rule: EventRule) -> Iterator[Events]:
        name, count, sets = rule.data_set_id, 0, self.sets_with(rule)
        keys = dict.fromkeys(sets, event_keys(self.secrets, name))  # those of other data sets are not looked at
        for rows in file.events(sets.values()):
            count += len(rows)
            of_sets = stored_events(rows, sets, keys)
            if name in of_sets:
                yield of_sets[name]
        if not count:
            raise InvalidFile(f"There is no event in '{file.path}'.")

    def _folded(
        self, rule: EventRule, domain: Domain, examples: StoredExamples, events: Iterable[Events], about: int
    ) -> StoredExamples:
        n = sum(segment.rows for segment in examples.listed)
        self.spill.mkdir(parents=True, exist_ok=True, mode=0o700)
        keys = event_keys(self.secrets, rule.data_set_id)
        with closing(EventFold(rule, keys, max(n, about), self.spill)) as fold:
            try:
                for records in events:
                    fold.add(records)
                positions = fold.positions(self._listed(examples), n, domain)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise Unavailable(f"The events cannot be folded ({error.strerror}); check the disk.") from None
        return replace(examples, events=positions, event_counts=fold.counts.as_json())

    def counts(self, batch_id: str) -> dict[str, int]:
        """Return what became of the events of a sealed batch, by rule; made of raw labels, for the owner alone. Raises
        NotFound, Conflict."""

        def look(connection: Connection) -> list[Segment]:
            batch, population = self.windows.batches.get(connection, batch_id)
            if population.events is None:
                raise Conflict("Labels of this population do not come from events.")
            require_sealed(batch)
            return self.windows.batches.segments(connection, batch_id, EVENTS)

        def read() -> dict[str, int]:
            (segment,) = self.database.read("events.counts", look)
            counts: dict[str, int] = json.loads(self.vault.get_bytes(segment.key))
            return counts

        return until_current(read, RETRIES, "What became of these events is lost; see the service's log.")

    def _listed(self, examples: StoredExamples) -> Examples:
        for segment in examples.listed:
            for part in self.vault.scan(segment.key, segment.start, segment.rows):
                times = np.asarray(part.column(TIME)) if TIME in part.schema.names else None
                yield part.column(ID), times
