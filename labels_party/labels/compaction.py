"""Merging the runs of a batch, so that ten thousand small uploads leave some dozens of runs to look into."""

from __future__ import annotations

import logging
import math
import secrets
import tempfile
import threading
from pathlib import Path

from sqlalchemy.engine import Connection

from labels_party.labels.batches import LABELS, RUNS, Batches, Segment
from labels_party.labels.runs import merge
from labels_party.labels.upload_runs import BUFFER, merged_pieces, spilled
from labels_party.labels.vault import LabelVault
from shared.errors import LabelDPError
from shared.service.database import Database

log = logging.getLogger("label_dp.labels")
FACTOR = 8  # runs of about one size that are merged into one: a batch keeps about 8·log₈ of its uploads


class Compaction:
    """Merges on threads of its own, one at a time: whether there is something to merge depends on which uploads count,
    and who sends them must not wait longer where an upload does (see `aside.py`)."""

    def __init__(self, database: Database, batches: Batches, vault: LabelVault, spill: Path) -> None:
        self.database, self.batches, self.vault, self.spill = database, batches, vault, spill
        self._busy: dict[str, threading.Thread] = {}
        self._lock, self._turn, self._closed = threading.Lock(), threading.Lock(), threading.Event()

    def run(self, batch_id: str, seen: list[Segment]) -> None:
        """Have runs of a batch merged while there are enough of one size; does not wait for it. Digests stay the same;
        nobody else need know.

        `seen` are the runs there were before the last upload: mostly they tell that there is nothing to do.
        """
        if not any(len(found) >= FACTOR - 1 for found in _tiers(seen)):
            return
        with self._lock:
            if batch_id in self._busy or self._closed.is_set():
                return
            thread = threading.Thread(target=self._work, args=(batch_id,), name="compaction", daemon=True)
            self._busy[batch_id] = thread
            thread.start()

    def close(self) -> None:
        """Take no more, and wait for the merge in progress."""
        self._closed.set()
        self.wait()

    def wait(self) -> None:
        """Until no merge is in progress."""
        with self._lock:
            waiting = list(self._busy.values())
        for thread in waiting:
            thread.join()

    def _work(self, batch_id: str) -> None:
        try:
            with self._turn:
                while not self._closed.is_set() and (chosen := self._choose(batch_id)):
                    if not self._merge(batch_id, chosen):
                        return
        except FileNotFoundError:  # another process merged them first
            return
        except LabelDPError as error:  # the next upload tries again
            log.warning("runs of batch %s are not merged yet: %s", batch_id, error.code)
        except Exception as error:
            # neither text nor locals: they may hold ids
            log.error("merging runs: internal error of type %s", type(error).__name__)
        finally:
            with self._lock:
                del self._busy[batch_id]

    def _choose(self, batch_id: str) -> list[Segment]:
        runs = self.database.read("runs.look", lambda c: self.batches.segments(c, batch_id, RUNS, LABELS))
        return next((found for found in _tiers(runs) if len(found) >= FACTOR), [])

    def _merge(self, batch_id: str, chosen: list[Segment]) -> bool:
        key = f"{batch_id}/{LABELS}-{secrets.token_hex(8)}.run"
        runs = [self.vault.run(s.key) for s in chosen]
        rows = sum(s.rows for s in chosen)
        try:
            if rows <= BUFFER:
                self.vault.put_run(key, *merge(runs))
            else:
                with tempfile.TemporaryDirectory(prefix="merge-", dir=self.spill) as folder:
                    self.vault.put_run(key, *spilled(merged_pieces(runs), Path(folder)))
        except BaseException:
            self.vault.delete(key)
            raise
        # where this fails the commit may have gone through: what it then names stays
        merged = self.database.write("runs.merge", lambda c: self._replace(c, batch_id, chosen, key, rows))
        for unused in [s.key for s in chosen] if merged else [key]:
            self.vault.delete(unused)
        return merged

    def _replace(self, connection: Connection, batch_id: str, chosen: list[Segment], key: str, rows: int) -> bool:
        there = {s.key for s in self.batches.segments(connection, batch_id, RUNS, LABELS)}
        if not there >= {s.key for s in chosen}:
            return False
        self.batches.drop_segments(connection, batch_id, RUNS, [s.number for s in chosen])
        self.batches.add_segment(connection, batch_id, RUNS, key, rows, LABELS)
        return True


def _tiers(runs: list[Segment]) -> list[list[Segment]]:
    """Runs of about one size, the smallest first."""
    found: dict[int, list[Segment]] = {}
    for segment in runs:
        found.setdefault(int(math.log(segment.rows, FACTOR)), []).append(segment)
    return [found[tier] for tier in sorted(found)]
