"""Merges of sorted runs of similar size, which leave dozens of runs instead of ten thousand."""

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
FACTOR = 8  # runs of similar size merged into one: about 8·log₈ n of n remain


class Tiers(Protocol):
    """Runs that form one set, and the rows that name them."""

    @property
    def name(self) -> str:
        """What the runs belong to, for the log; at most one merge of it at a time."""

    def key(self) -> str:
        """Return a fresh key for a merged run."""

    def runs(self, connection: Connection) -> list[Segment]:
        """List the current runs."""

    def replace(self, connection: Connection, sources: list[Segment], key: str, rows: int) -> list[str]:
        """Name the run `key` in place of the `sources`, if all of them are still there. Returns unreferenced keys;
        `[key]` if a source was already replaced."""


@dataclass(frozen=True)
class UploadTiers:
    """Runs of a batch's uploads: every digest as often as it was sent, whether or not the upload counts."""

    batches: Batches
    batch: str

    @property
    def name(self) -> str:
        return f"of batch {self.batch}"

    def key(self) -> str:
        return f"{self.batch}/{LABELS}-{secrets.token_hex(8)}.run"

    def runs(self, connection: Connection) -> list[Segment]:
        return self.batches.segments(connection, self.batch, RUNS, LABELS)

    def replace(self, connection: Connection, sources: list[Segment], key: str, rows: int) -> list[str]:
        keys = {segment.key for segment in sources}
        if not {segment.key for segment in self.runs(connection)} >= keys:
            return [key]
        self.batches.drop_segments(connection, self.batch, RUNS, [s.number for s in sources])
        self.batches.add_segment(connection, self.batch, RUNS, key, rows, LABELS)
        return sorted(keys)


class Compaction:
    """Merges on background threads, one at a time."""

    def __init__(self, database: Database, vault: LabelVault, spill: Path) -> None:
        self.database, self.vault, self.spill = database, vault, spill
        self._busy: dict[str, threading.Thread] = {}
        self._lock, self._turn, self._closed = threading.Lock(), threading.Lock(), threading.Event()

    def run(self, tiers: Tiers, before: list[Segment]) -> None:
        """Start merging runs if enough are of one size; does not wait. The digests stay the same. `before`: runs
        before the last one was added; they mostly show that there is nothing to do."""
        if not any(len(segments) >= FACTOR - 1 for segments in _by_size(before)):
            return
        with self._lock:
            if tiers.name in self._busy or self._closed.is_set():
                return
            thread = threading.Thread(target=self._work, args=(tiers,), name="compaction", daemon=True)
            self._busy[tiers.name] = thread
            thread.start()

    def close(self) -> None:
        """Accept no more, and wait for the merge in progress."""
        self._closed.set()
        self.wait()

    def wait(self) -> None:
        """Wait until no merge is in progress."""
        with self._lock:
            waiting = list(self._busy.values())
        for thread in waiting:
            thread.join()

    def _work(self, tiers: Tiers) -> None:
        try:
            with self._turn:
                while not self._closed.is_set():
                    sizes = _by_size(self.database.read("runs.look", tiers.runs))
                    segments = next((some for some in sizes if len(some) >= FACTOR), None)
                    if segments is None or not self._merge(tiers, segments):
                        return
        except FileNotFoundError:  # another process merged them first
            return
        except LabelDPError as error:  # the next one tries again
            extra = event("runs-wait", runs=tiers.name, code=error.code)
            log.warning("runs %s are not merged yet: %s", tiers.name, error.code, extra=extra)
        except Exception as error:
            # neither text nor locals: they may hold ids
            log_internal(log, "merging runs", error)
        finally:
            with self._lock:
                del self._busy[tiers.name]

    def _merge(self, tiers: Tiers, sources: list[Segment]) -> bool:
        key, rows = tiers.key(), sum(s.rows for s in sources)
        runs = [self.vault.run(s.key) for s in sources]
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
        # if this fails the commit may have gone through: the objects it names stay
        unused = self.database.write("runs.merge", lambda c: tiers.replace(c, sources, key, rows))
        for each in unused:
            self.vault.delete(each)
        return key not in unused


def _by_size(runs: list[Segment]) -> list[list[Segment]]:
    """Group runs of similar size, smallest first."""
    tiers: dict[int, list[Segment]] = {}
    for segment in runs:
        tiers.setdefault(int(math.log(max(segment.rows, 1), FACTOR)), []).append(segment)
    return [tiers[tier] for tier in sorted(tiers)]
