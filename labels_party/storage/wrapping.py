"""The party's wrapping keys, under which the keys of batches lie in the database: files `keys/wrapping-NUMBER.key`.

Only one of them counts, whose number the database has; it is random and nothing is derived from it, so that what was
wrapped under an older one is lost for good once its file is gone.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path

from label_dp.documents.signing import save_once
from label_dp.errors import Unavailable
from label_dp.store.folders import erase, fsync_folder

BYTES = 32
NAME = re.compile(r"wrapping-([1-9]\d{0,8})\.key")


class WrappingKeys:
    """Wrapping keys as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, number: int) -> Path:
        return self.folder / f"wrapping-{number}.key"

    def make(self, number: int) -> None:
        """Create wrapping key `number` durably. Does nothing if it exists. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            save_once(self.path(number), secrets.token_bytes(BYTES))
        fsync_folder(self.folder)

    def get(self, number: int) -> bytes:
        """Read a key. Raises Unavailable (missing or damaged)."""
        try:
            found = self.path(number).read_bytes()
        except FileNotFoundError:
            raise Unavailable(
                f"'{self.path(number)}' is missing; copy it from where the key was rotated, or restore it from the "
                "backup of this folder. Nothing was changed."
            ) from None
        if len(found) != BYTES:
            raise Unavailable(f"'{self.path(number)}' is damaged: it must hold {BYTES} bytes. Restore it.")
        return found

    def forget_before(self, number: int) -> list[int]:
        """Overwrite and remove the keys of lower numbers, under which nothing lies any more; returns theirs."""
        found = [int(m[1]) for p in self.folder.iterdir() if (m := NAME.fullmatch(p.name))]
        old = sorted(other for other in found if other < number)
        for other in old:
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                erase(self.path(other))
        if old:
            fsync_folder(self.folder)
        return old
