"""Random key per batch, which encrypts its objects; stored in the database under the party's wrapping key.

Purging a batch erases its key: no remaining copy of its objects can be opened (crypto-shredding). Rotating the wrapping
key wraps the batch keys again in one transaction; no object is rewritten.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import Unavailable
from label_dp.store.database import Database
from label_dp.store.objects.port import DamagedObject
from labels_party.labels.key_service import KeyService
from labels_party.storage.tables import batch_keys, installation

log = logging.getLogger("label_dp.labels")
BYTES = 32
# Padding before a wrapped key gives it a page of its own, which SQLite overwrites. It moves small rows about and leaves
# copies that no deletion clears: about one short key in some thousands was found again.
PAD = bytes(4521)
HELD = 10_000  # keys in memory


class BatchKeys:
    """Keys of batches; those in use stay in the memory of the process, like the wrapping key."""

    def __init__(self, database: Database, wrapping: KeyService) -> None:
        self.database, self.wrapping = database, wrapping
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, batch: str) -> bytes:
        """Return the key of a batch. Raises FileNotFoundError if it was erased, Unavailable."""
        with self._lock:
            key = self._held.get(batch)
        if key is None:
            try:
                key = self._read(batch)
            except (Unavailable, DamagedObject):  # it was wrapped again between two reads
                key = self._read(batch)
            self._hold(batch, key)
        return key

    def draft(self, batch: str) -> None:
        """Make a key for a batch whose objects are written before the batch is in the database."""
        self._hold(batch, secrets.token_bytes(BYTES))

    def insert(self, connection: Connection, batch: str) -> None:
        """Store the key of a drafted batch, in the transaction that stores the batch. Raises Unavailable."""
        number = int(connection.execute(sa.select(installation.c.wrapping_key)).scalar_one())
        wrapped = self.wrapping.wrap(number, self._held[batch], batch)
        connection.execute(sa.insert(batch_keys).values(batch=batch, wrapped_by=number, wrapped=PAD + wrapped))

    def erase(self, connection: Connection, batch: str) -> None:
        """Erase the key in the transaction that purges or discards the batch; `Database.scrub` then clears the disk."""
        connection.execute(sa.delete(batch_keys).where(batch_keys.c.batch == batch))
        with self._lock:
            self._held.pop(batch, None)

    # --- the wrapping key ---------------------------------------------------------------------------------

    def prepare(self) -> int:
        """Make the next wrapping key without using it; return its number. Raises Unavailable."""
        number = self.database.read("wrapping.look", self._number) + 1
        try:
            self.wrapping.make(number)
        except OSError as error:
            raise Unavailable(f"The new wrapping key cannot be written ({error.strerror}).") from None
        return number

    def rotate(self) -> tuple[int, int]:
        """Wrap all batch keys under the next wrapping key and remove older ones; return its number and the count of
        batches. After a crash at any point, calling it again completes the rotation. Raises Unavailable."""
        self.clear()
        number = self.prepare()
        self.database.fault("wrapping.prepared")
        count = self.database.write("wrapping.rotate", lambda c: self._rotate(c, number))
        self.database.fault("wrapping.rotated")
        self.clear()
        return number, count

    def clear(self) -> None:
        """Remove obsolete wrapping keys. Raises Unavailable."""
        try:
            self.wrapping.forget_before(self.database.read("wrapping.look", self._number))
        except OSError as error:
            raise Unavailable(f"An old wrapping key cannot be removed ({error.strerror}); rotate again.") from None

    @staticmethod
    def _number(connection: Connection) -> int:
        return int(connection.execute(sa.select(installation.c.wrapping_key)).scalar_one())

    def _rotate(self, connection: Connection, number: int) -> int:
        if self._number(connection) != number - 1:
            raise Unavailable("Another process rotated the wrapping key meanwhile; look again.")
        rows = connection.execute(sa.select(batch_keys)).all()
        t = batch_keys
        changed = sa.update(t).where(t.c.batch == sa.bindparam("one")).values(wrapped_by=number)
        updates = []
        for row in rows:
            plain = self.wrapping.unwrap(row.wrapped_by, row.wrapped[len(PAD) :], row.batch)
            updates.append({"one": row.batch, "wrapped": PAD + self.wrapping.wrap(number, plain, row.batch)})
        if updates:
            connection.execute(changed.values(wrapped=sa.bindparam("wrapped")), updates)
        connection.execute(sa.update(installation).values(wrapping_key=number))
        return len(rows)

    # --- parts --------------------------------------------------------------------------------------------

    def _read(self, batch: str) -> bytes:
        query = sa.select(batch_keys).where(batch_keys.c.batch == batch)
        row = self.database.read("batch.key", lambda c: c.execute(query).first())
        if row is None:
            raise FileNotFoundError(f"the key of batch {batch} was erased")
        return self.wrapping.unwrap(row.wrapped_by, row.wrapped[len(PAD) :], batch)

    def _hold(self, batch: str, key: bytes) -> None:
        with self._lock:
            self._held[batch] = key
            while len(self._held) > HELD:
                self._held.popitem(last=False)
