"""Objects as files below a folder, durable before they count."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from label_dp.store.folders import fsync_folder
from label_dp.store.objects.port import Objects, Stored

AT_ONCE = 1 << 20  # bytes per write; other Python threads run between writes


class FolderObjects(Objects):
    """Objects in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = self.room = root

    def path(self, key: str) -> Path:
        return self.root / key

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[BinaryIO]:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with path.open("wb", buffering=AT_ONCE) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            fsync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def adopt(self, key: str, path: Path) -> None:
        """Move the file, on the same file system."""
        target = self.path(key)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.rename(target)
        try:
            fsync_folder(target.parent)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def reading(self, key: str) -> Iterator[Any]:
        import pyarrow as pa

        with pa.OSFile(str(self.path(key)), "rb") as file:
            yield file

    def mapped(self, key: str) -> mmap.mmap | bytes:
        with self.path(key).open("rb") as file:
            return mapping(file)

    def delete(self, key: str) -> None:
        self.path(key).unlink(missing_ok=True)

    def listed(self, prefix: str) -> list[Stored]:
        storeds: list[Stored] = []
        for path in (self.root / prefix).rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if path.is_file():
                    storeds.append(Stored(str(path.relative_to(self.root)), path.stat().st_mtime))
        return sorted(storeds, key=lambda stored: stored.key)


def mapping(file: BinaryIO) -> mmap.mmap | bytes:
    """Map a whole file to memory."""
    if not os.fstat(file.fileno()).st_size:
        return b""  # an empty file cannot be mapped
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
