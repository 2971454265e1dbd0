"""Files of charged work in an object store, for replicas that share no folder.

A draft is sent once it is complete and its row of work names it. Each file is read back and compared, so published
files can be served. The attempt is noted in the store before labels are read: a store that takes no writes fails then.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tenacity

from label_dp.errors import Unavailable
from label_dp.store.folders import sweep
from label_dp.store.objects.bucket import Bucket, StoreFailed
from label_dp.store.objects.port import CHUNK, Objects, Stored, StoreRefused
from labels_party.work.drafts import Drafts
from labels_party.work.kind import WorkFile
from labels_party.work.shelf import Shelf, place

SERVED = "served-"
PATIENCE_SECONDS, LONGEST_PAUSE = 300.0, 10.0  # retries while sending a draw


class StoreShelf(Shelf):
    """Shelf in an object store. `bucket` has the served files, `begun` a name per attempt by month, `sent` the inputs,
    `spill` local copies. `today` returns an ISO day."""

    def __init__(
        self,
        folder: Path,
        bucket: Bucket,
        begun: Bucket,
        sent: Objects,
        drafts: Drafts,
        spill: Path,
        today: Callable[[], str],
    ) -> None:
        super().__init__(folder)
        self.drafts = drafts
        self.bucket, self.noted, self.sent, self.spill, self.today = bucket, begun, sent, spill, today
        self.signed: Callable[[str], str] | None = None
        self._last: dict[str, int] = {}

    def begin(self, work_id: str, attempt: int) -> Path:
        folder = self.folder / place(work_id, attempt)
        shutil.rmtree(folder, ignore_errors=True)  # only another database can have left one
        self.noted.send(f"{self.today()[:7]}/{work_id}.{attempt}", io.BytesIO())
        return super().begin(work_id, attempt)

    def keep(self, work_id: str, attempt: int, files: list[WorkFile]) -> None:
        """Send the same bytes until the store has them: it sees them, so a further draw would need a further charge."""
        folder, there = self.folder / place(work_id, attempt), place(work_id, attempt)
        try:
            for file in files:
                with (folder / file.name).open("rb") as draft_file:
                    _patiently(partial(self.bucket.send, f"{there}/{file.name}", draft_file))
            self._forget_draft(folder)
            for file in files:
                with tempfile.TemporaryFile(dir=self.spill) as copy:
                    _patiently(partial(self.bucket.fetch, f"{there}/{file.name}", copy))
                    if _digest(copy) != file.sha256:
                        raise StoreRefused("The object store gives other bytes back than it got.")
        except (StoreFailed, FileNotFoundError):
            raise StoreRefused("The object store did not keep what was sent.") from None

    def drop(self, work_id: str, attempt: int, *, begun: bool) -> None:
        self._forget_draft(self.folder / place(work_id, attempt))
        with contextlib.suppress(Unavailable):  # then `sweep_attempts` removes it
            self._delete(self.bucket.listed(f"{place(work_id, attempt)}/"))

    def drop_others(self, work_id: str, attempt: int) -> None:
        own = f"{place(work_id, attempt)}/"
        with contextlib.suppress(Unavailable):
            self._delete([s for s in self.bucket.listed(f"{work_id}/") if not s.key.startswith(own)])

    def begun(self) -> list[str]:
        """Return work of the last month with attempts: an old copy of the database lacks the newest."""
        self._last = {}
        for month in self.noted.folders()[-1:]:
            for stored in self.noted.listed(f"{month}/"):
                work_id, _, attempt = stored.key.rpartition("/")[2].partition(".")
                self._last[work_id] = max(self._last.get(work_id, 0), int(attempt))
        return list(self._last)

    def last_attempt(self, work_id: str) -> int:
        return self._last[work_id]

    def local(self, file: WorkFile) -> Path:
        """Fetch the whole file, compare its digest, and only then store a copy."""
        path = self.spill / f"{SERVED}{file.sha256}-{file.name}"
        try:
            if path.exists() and path.stat().st_size == file.size:
                os.utime(path)
                return path
            fresh = self.spill / f".{secrets.token_hex(8)}"
            try:
                with fresh.open("xb+") as copy:
                    self.bucket.fetch(str(file.path), copy)
                    if _digest(copy) != file.sha256:
                        raise Unavailable(
                            "A published file is not in the object store as it was published. Restore it from a copy "
                            "of the store; it is never drawn again."
                        )
                    os.fsync(copy.fileno())  # later calls trust the name
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)
        except FileNotFoundError:
            raise Unavailable(
                "A published file is missing in the object store. Restore it from a copy of the store; it is never "
                "drawn again."
            ) from None
        except OSError as error:
            raise Unavailable(f"A copy of a published file cannot be kept ({error.strerror}).") from None
        return path

    def elsewhere(self, file: WorkFile) -> str | None:
        return None if self.signed is None else self.signed(str(file.path))

    def leftovers(self, before: float) -> list[str]:
        """Return old files of the bucket, and remove old drafts of this machine."""
        sweep(self.folder.glob("*/attempt-*"))
        return [stored.key for stored in self.bucket.listed("") if stored.modified < before]

    def delete(self, path: str) -> None:
        self.bucket.delete(path)

    # --- inputs -------------------------------------------------------------------------------------------

    def keep_inputs(self, name: str) -> None:
        folder = self.folder / name
        try:
            for path in folder.iterdir():
                with self.sent.writing(f"{name}/{path.name}") as out, path.open("rb") as source:
                    shutil.copyfileobj(source, out, CHUNK)
        except OSError as error:
            raise Unavailable(f"What was sent cannot be kept ({error.strerror}); nothing was charged.") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def inputs(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="inputs-", dir=self.spill) as folder:
            for stored in self.sent.listed(f"{name}/"):
                with self.sent.reading(stored.key) as source:
                    Path(folder, stored.key.rpartition("/")[2]).write_bytes(source.read())
            yield Path(folder)

    def forget_inputs(self, name: str) -> None:
        with contextlib.suppress(Unavailable):
            for stored in self.sent.listed(f"{name}/"):
                self.sent.delete(stored.key)

    def all_inputs(self) -> dict[str, float]:
        folders: dict[str, float] = {}
        for stored in self.sent.listed(""):
            name = stored.key.partition("/")[0]
            folders[name] = max(folders.get(name, 0.0), stored.modified)
        return folders

    @staticmethod
    def _forget_draft(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: another process has a draft of another attempt
            folder.parent.rmdir()

    def _delete(self, gone: list[Stored]) -> None:
        for stored in gone:
            self.bucket.delete(stored.key)


def _patiently(call: Callable[[], None]) -> None:
    """Retry if the store fails, for PATIENCE_SECONDS. Raises StoreFailed, and as `call`."""
    tries = tenacity.Retrying(
        stop=tenacity.stop_after_delay(PATIENCE_SECONDS),
        wait=tenacity.wait_random_exponential(max=LONGEST_PAUSE),
        retry=tenacity.retry_if_exception_type(StoreFailed),
        reraise=True,
    )
    tries(call)


def _digest(file: Any) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
