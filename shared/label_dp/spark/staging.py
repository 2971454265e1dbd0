"""The folder that tasks write into: the driver makes and removes it, beside what will be published.

A task never makes it. So a task that lost (its file is in nobody's list) leaves nothing: what it wrote goes with the
folder, and what it would write afterwards has no place.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

TRIES = 200
PAUSE = 0.05


@contextlib.contextmanager
def staging(beside: Path) -> Iterator[Path]:
    """A new folder inside `beside`; it and all in it is gone after the block, also what comes while it is removed."""
    folder = beside / f"staging-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Raises OSError where files come faster than they can be removed, or cannot be."""
    for left in range(TRIES, 0, -1):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not folder.exists():
                return
        except OSError:
            if left == 1:
                raise
            time.sleep(PAUSE)
        else:
            return


def take(staged: Path, size: int, target: Path) -> None:
    """Move a file of the list to its place, without the space that it did not need. Raises OSError."""
    with staged.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())
    staged.rename(target)
