"""Where tests write their fifty thousand small files: in memory, where the system has room for them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # bytes; a folder in memory may be as small as 64 MB


def scratch() -> str:
    """The folder for pytest's own, which is private and goes with the tests that passed."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return str(MEMORY) if roomy else tempfile.gettempdir()
