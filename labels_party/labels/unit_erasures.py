"""Erasure of a person: every example of a unit, in every batch of a population.

Examples of sealed batches are erased like others (`erasures.py`). The unit is kept as a keyed digest: the seal of any
open or later batch leaves out the labels of its examples, unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.audit.events import ERASURE_REQUESTED, Event
from label_dp.errors import Conflict, InvalidInput
from label_dp.schemas.replies import ErasureOut
from label_dp.store.apikeys import names_of
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import EXAMPLES, ID_LIST, MEMBERS, Batch, StaleBatch
from labels_party.labels.changes import until_current
from labels_party.labels.erased import run_of, text_of
from labels_party.labels.erasures import AT_ONCE, MOST_IDS, REQUESTED, RETRIES, SHOWN, Erasures
from labels_party.labels.members import Pairs, belonging, pairs_of, read
from labels_party.labels.parsing import UNIT, canonical_column
from labels_party.labels.runs import Run
from labels_party.labels.sorting import StoredExamples
from labels_party.labels.units import Units
from labels_party.ledger.people import PeopleLedger
from labels_party.ledger.populations import Population
from labels_party.storage.tables import api_keys, erased_units, erasures


@dataclass(frozen=True)
class Look:
    """Occurrences of the requested units: sealed examples (digest text, example → unit), named units, open examples."""

    order: int  # of the last sealed batch
    sealed: dict[str, str]
    known: set[str]
    open: int


class UnitErasures:
    """Erasure requests by unit."""

    def __init__(self, erasures_: Erasures, units: Units) -> None:
        self.erasures, self.units = erasures_, units
        self.database, self.batches, self.vault = erasures_.database, erasures_.batches, erasures_.vault

    def request(self, population: str, units: list[str], actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Record a request to erase all examples of `units`; return 202, the request, counts and unmatched units.

        `Erasures.finish` carries it out. Raises InvalidInput, InvalidRows, Conflict (no units, or no missing-label
        value), Unavailable.
        """
        if not 1 <= len(units) <= MOST_IDS:
            raise InvalidInput(f"Send 1 to {MOST_IDS} units at a time.")
        declared = self.erasures.population(population)
        names = dict(zip(self._texts(declared, units), units, strict=True))
        busy = "Batches of this population are sealed all the time; try again."
        return until_current(lambda: self._attempt(declared, names, actor, call), RETRIES, busy)

    def of(self, connection: Connection, population: Population, units: list[str]) -> list[dict[str, Any]]:
        """Describe the request for each of `units`: time, actor, examples, how many wait, releases not recallable.
        Units without a request are left out."""
        t, reports, names = erased_units, [], names_of(connection, api_keys)
        for name, text in zip(units, self._texts(population, units), strict=True):
            row = connection.execute(
                sa.select(t).where(t.c.population == population.id, t.c.unit_digest == text)
            ).first()
            if row is None:
                continue
            query = sa.select(erasures).where(erasures.c.population == population.id, erasures.c.unit_digest == text)
            rows = connection.execute(query).all()
            requests = [self.erasures.told(connection, one, population, names) for one in rows]
            reports.append(
                with_names({"requested_by": row.requested_by}, names)
                | {
                    "unit": name,
                    "requested": row.requested,
                    "examples": len(rows),
                    "waiting": sum(one["state"] == REQUESTED for one in requests),
                    "cannot_be_recalled": recalled(requests),
                }
            )
        return reports

    def digests(self, population: Population, units: list[str]) -> list[str]:
        """Return the stored form of units. Raises Conflict if the population has no units, InvalidRows."""
        return sorted(set(self._texts(population, units)))

    def populations(self, bodies: PeopleLedger, people: str) -> list[str]:
        """Return the ids of the populations of a body. Raises NotFound, Conflict (one of them cannot erase)."""
        declared = self.database.read("erasure.people", lambda c: bodies.populations(c, people))
        return [self.erasures.population(str(event.subject.population)).id for event in declared]

    # --- parts --------------------------------------------------------------------------------------------

    def _texts(self, population: Population, units: list[str]) -> list[str]:
        import pyarrow as pa

        if population.unit.max_examples is None:
            raise Conflict(
                f"Population '{population.name}' has no unit column, so nobody knows which examples are one person's. "
                "Name the examples by their ids."
            )
        column = canonical_column(pa.array(units, pa.string()), UNIT)
        return text_of(*self.units.digests(population, column))

    def _attempt(self, population: Population, names: dict[str, str], actor: str, call: IdempotentCall) -> Reply:
        looked = self._look(population, run_of(list(names)))

        def store(connection: Connection) -> Reply:
            return call.once(connection, lambda: (202, self._note(connection, population, names, looked, actor)))

        status, answer = self.database.write("erasure.unit", store)
        unmatched = [names[text] for text in sorted(names) if text not in looked.known][:SHOWN]
        return status, {**answer, "unmatched_units": unmatched}  # which no row keeps

    def _look(self, population: Population, queries: Run) -> Look:
        def look(connection: Connection) -> list[tuple[Batch, list[Any], StoredExamples]]:
            batches = self.batches.of_population(connection, population.id)
            parts = (self.batches.segments(connection, b.id, MEMBERS) for b in batches)
            return [(b, m, self._examples(connection, b)) for b, m in zip(batches, parts, strict=True)]

        sealed: dict[str, str] = {}
        named: set[str] = set()
        waiting = order = 0
        for batch, members, examples in self.database.read("erasure.units", look):
            if batch.seal_order is None:
                here = belonging(queries, partial(self._open, population, examples))
                waiting += len(here)
            else:
                here = belonging(queries, lambda of=members: self._sealed(of))  # type: ignore[misc]  # bound at once
                sealed |= here
                order = max(order, batch.seal_order)
            named |= set(here.values())
        return Look(order, sealed, named, waiting)

    def _examples(self, connection: Connection, batch: Batch) -> StoredExamples:
        """Return the content of an open batch; units come with the list, if there is one."""
        if batch.presence == ID_LIST:
            return StoredExamples(self.batches.segments(connection, batch.id, EXAMPLES), [])
        return StoredExamples([], self.batches.records(connection, batch.id))

    def _sealed(self, members: list[Any]) -> Iterator[Pairs]:
        for segment in members:
            yield from read(self.vault.numbers(segment.key, 4))

    def _open(self, population: Population, examples: StoredExamples) -> Iterator[Pairs]:
        source = [s for s in (examples.listed or examples.labels) if s.rows]
        rows = ((ids, units) for _, ids, units in self.units.rows(source))
        id_key = digest_key(self.erasures.secrets, population.label)
        return pairs_of(rows, id_key, self.units.key(population))

    def _note(
        self, connection: Connection, population: Population, names: dict[str, str], looked: Look, actor: str
    ) -> dict[str, Any]:
        """Record the request; `names` maps digests to units."""
        texts = sorted(names)
        if self._last(connection, population) != looked.order:
            raise StaleBatch("A batch was sealed meanwhile.")
        details = {"units": len(texts), "units_mac": self.erasures.mac(population, run_of(texts))}
        event = self.erasures.audit.append(
            connection, Event(ERASURE_REQUESTED, population.subject, actor=actor, details=details)
        )
        t = erased_units
        old = set(connection.execute(sa.select(t.c.unit_digest).where(t.c.population == population.id)).scalars())
        about = {"population": population.id, "requested": event.moment, "requested_by": actor}
        fresh = [{"unit_digest": text} | about for text in texts if text not in old]
        for start in range(0, len(fresh), AT_ONCE):
            connection.execute(sa.insert(t), fresh[start : start + AT_ONCE])
        self.erasures.add(connection, population, list(looked.sealed), event.moment, actor)
        for example, unit in looked.sealed.items():
            where = (erasures.c.population == population.id, erasures.c.id_digest == example)
            connection.execute(sa.update(erasures).where(*where).values(unit_digest=unit))
        return {
            "population": population.id,
            "units": len(texts),
            "examples": len(looked.sealed) + looked.open,
            "requested": event.moment,
            "unmatched": len(set(texts) - looked.known),
        }

    def _last(self, connection: Connection, population: Population) -> int:
        batches = self.batches.of_population(connection, population.id)
        return max((b.seal_order for b in batches if b.seal_order is not None), default=0)


def recalled(requests: list[ErasureOut]) -> list[dict[str, Any]]:
    """List each release or answer that came before one of these erasures, once, with its audiences."""
    works = {r["work"]: {**r, "audiences": e["audiences"]} for e in requests for r in e["cannot_be_recalled"]}
    return sorted(works.values(), key=lambda r: (r["published"], r["work"]))
