"""The demo's folder: everything that it writes lies in it, and it replaces only a folder that it made itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from shared.errors import InvalidInput

MARKER = ".label-dp-demo"
MARKER_TEXT = "Made by the label-DP demo, which may replace this folder. Remove this file to keep the folder.\n"


def prepare(path: Path) -> Path:
    """An empty folder with the marker and a folder for clicks. Raises InvalidInput where something else is there."""
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InvalidInput(f"'{path}' exists and is not a folder; choose another --out.")
        if path.is_dir() and any(path.iterdir()):
            _clear(path)
        (path / "clicks").mkdir(parents=True)
        (path / "comparison").mkdir()
        (path / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"The folder '{path}' cannot be used ({error.strerror}); choose another --out.") from None
    return path


def _clear(path: Path) -> None:
    marker = path / MARKER
    ours = marker.is_file() and not marker.is_symlink()
    if not ours or marker.read_text(encoding="utf-8", errors="replace") != MARKER_TEXT:
        raise InvalidInput(f"'{path}' exists and was not made by the demo, so it is left alone; choose another --out.")
    # the marker goes last: an interrupted clean-up can be repeated
    for entry in sorted(path.iterdir(), key=lambda each: each.name == MARKER):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def shown(path: Path) -> str:
    """`path` as a visitor would type it: relative where that is shorter."""
    return min(str(path.absolute()), os.path.relpath(path), key=len)
