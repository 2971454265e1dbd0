"""Merging sorted runs of about one size, so that of ten thousand there are some dozens to look into."""

from __future__ import annotations

import logging
import math
import secrets
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy.engine import Connection

from label_dp.errors import LabelDPError
from label_dp.logs import event, log_internal
from label_dp.store.database import Database
from labels_party.labels.batches import LABELS, RUNS, Batches, Segment
from labels_party.labels.runs import merge, total
from labels_party.labels.upload_runs import BUFFER, merged_pieces, spilled
from labels_party.labels.vault import LabelVault

log = logging.getLogger("label_dp.labels")
FACTOR = 8  # runs of about one size that are merged into one: of n, about 8·log₈ n stay


class Tiers(Protocol):
    """Runs that are one set together, and the rows that name them."""

    @property
    def name(self) -> str:
        """What they are of, for the log; one merge of it at a time."""

    def key(self) -> str:
        """A fresh one, for a merged run."""

    def runs(self, connection: Connection) -> list[Segment]:
        """Those there are now."""

    def replace(self, connection: Connection, chosen: list[Segment], key: str, rows: int) -> list[str]:
        """Name the run `key` instead of those that were merged, if all of them are still there; returns the keys that
        nothing names then, `key` itself if it was too late."""


@dataclass(frozen=True)
class UploadTiers:
    """The runs of the uploads of a batch: every digest as often as it was sent, whether or not the upload counts."""

    batches: Batches
    batch: str

    @property
    def name(self) -> str:
        return f"of batch {self.batch}"

    def key(self) -> str:
        return f"{self.batch}/{LABELS}-{secrets.token_hex(8)}.run"

    def runs(self, connection: Connection) -> list[Segment]:
        return self.batches.segments(connection, self.batch, RUNS, LABELS)

    def replace(self, connection: Connection, chosen: list[Segment], key: str, rows: int) -> list[str]:
        keys = {segment.key for segment in chosen}
        if not {segment.key for segment in self.runs(connection)} >= keys:
            return [key]
        self.batches.drop_segments(connection, self.batch, RUNS, [s.number for s in chosen])
        self.batches.add_segment(connection, self.batch, RUNS, key, rows, LABELS)
        return sorted(keys)


class Compaction:
    """Merges on threads of its own, one at a time."""

    def __init__(self, database: Database, vault: LabelVault, spill: Path) -> None:
        self.database, self.vault, self.spill = database, vault, spill
        self._busy: dict[str, threading.Thread] = {}
        self._lock, self._turn, self._closed = threading.Lock(), threading.Lock(), threading.Event()

    def run(self, tiers: Tiers, seen: list[Segment]) -> None:
        """Have runs merged while there are enough of one size; does not wait for it. Digests stay the same; nobody
        else need know.

        `seen` are the runs there were before the last one came: mostly they tell that there is nothing to do.
        """
        if not any(len(segments) >= FACTOR - 1 for segments in _by_size(seen)):
            return
        with self._lock:
            if tiers.name in self._busy or self._closed.is_set():
                return
            thread = threading.Thread(target=self._work, args=(tiers,), name="compaction", daemon=True)
            self._busy[tiers.name] = thread
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

    def _work(self, tiers: Tiers) -> None:
        try:
            with self._turn:
                while not self._closed.is_set() and (segments := self._choose(tiers)):
                    if not self._merge(tiers, segments):
                        return
        except FileNotFoundError:  # another process merged them first
            return
        except LabelDPError as error:  # the next one tries again
            said = event("runs-wait", runs=tiers.name, code=error.code)
            log.warning("runs %s are not merged yet: %s", tiers.name, error.code, extra=said)
        except Exception as error:
            # neither text nor locals: they may hold ids
            log_internal(log, "merging runs", error)
        finally:
            with self._lock:
                del self._busy[tiers.name]

    def _choose(self, tiers: Tiers) -> list[Segment]:
        runs = self.database.read("runs.look", tiers.runs)
        return next((segments for segments in _by_size(runs) if len(segments) >= FACTOR), [])

    def _merge(self, tiers: Tiers, chosen: list[Segment]) -> bool:
        key, rows = tiers.key(), sum(s.rows for s in chosen)
        runs = [self.vault.run(s.key) for s in chosen]
        try:
            if rows <= BUFFER:
                self.vault.put_run(key, *merge(runs))
            else:
                with tempfile.TemporaryDirectory(prefix="merge-", dir=self.spill) as folder:
                    self.vault.put_run(key, *spilled(merged_pieces(runs), Path(folder), total(runs)))
        except BaseException:
            self.vault.delete(key)
            raise
        self.database.fault("runs.merged")
        # where this fails the commit may have gone through: what it then names stays
        unused = self.database.write("runs.merge", lambda c: tiers.replace(c, chosen, key, rows))
        for each in unused:
            self.vault.delete(each)
        return key not in unused


def _by_size(runs: list[Segment]) -> list[list[Segment]]:
    """Runs of about one size, the smallest first."""
    found: dict[int, list[Segment]] = {}
    for segment in runs:
        found.setdefault(int(math.log(max(segment.rows, 1), FACTOR)), []).append(segment)
    return [found[tier] for tier in sorted(found)]
