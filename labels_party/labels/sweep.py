"""Daily removal of objects that no row names, left by a crash or a commit whose reply was lost."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.store.database import Database
from labels_party.labels.vault import LabelVault
from labels_party.storage.tables import segments

DAY = 86_400.0
AT_ONCE = 500  # keys of one query


class Sweep:
    """Removal of leftovers, safe beside uploads and seals. Batches written to within a day are skipped. Old objects
    are listed before segments are read, so one named meanwhile is seen."""

    def __init__(
        self,
        database: Database,
        vault: LabelVault,
        marker: Path,
        also: Sequence[Callable[[], object]] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; `also` runs once a day as well."""
        self.database, self.vault, self.marker = database, vault, marker
        self.also, self.now = also, now

    def run(self) -> int:
        """Remove the leftovers; return their number."""
        old = self.vault.untouched(self.now() - DAY)
        removed = 0
        for start in range(0, len(old), AT_ONCE):
            part = old[start : start + AT_ONCE]

            def named(connection: Connection, part: list[str] = part) -> set[str]:
                rows = connection.execute(sa.select(segments.c.key).where(segments.c.key.in_(part)))
                return set(itertools.chain.from_iterable(rows))

            for key in set(part) - self.database.read("vault.named", named):
                self.vault.delete(key)
                removed += 1
        return removed

    def run_daily(self, stopping: Callable[[], bool] = lambda: False) -> int:
        """Call `run` at most once a day among all processes of this home, as the file `marker` records."""
        if stopping() or (self.marker.exists() and self.now() - self.marker.stat().st_mtime < DAY):
            return 0
        self.marker.touch(mode=0o600)
        os.utime(self.marker, (self.now(), self.now()))
        for sweep in self.also:
            sweep()
        return self.run()
