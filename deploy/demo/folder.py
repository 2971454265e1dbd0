"""The demo's folder: everything that it writes lies in it, and it replaces only a folder that it made itself."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from label_dp.errors import InvalidInput

MARKER = ".label-dp-demo"
MARKER_TEXT = "Made by the label-DP demo, which may replace this folder. Remove this file to keep the folder.\n"


def prepare(path: Path) -> Path:
    """An empty folder with the marker and a folder for clicks. Raises InvalidInput where something else is there."""
    marker = path / MARKER
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InvalidInput(f"'{path}' exists and is not a folder; choose another --out.")
        entries = list(path.iterdir()) if path.exists() else []
        if entries and (marker.is_symlink() or not marker.is_file() or marker.read_bytes() != MARKER_TEXT.encode()):
            raise InvalidInput(
                f"'{path}' exists and was not made by the demo, so it is left alone; choose another --out."
            )
        # the marker goes last: an interrupted clean-up can be repeated
        for entry in sorted(entries, key=lambda each: each.name == MARKER):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (path / "clicks").mkdir(parents=True)
        (path / "comparison").mkdir()
        marker.write_text(MARKER_TEXT, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"The folder '{path}' cannot be used ({error.strerror}); choose another --out.") from None
    return path


def shown(path: Path) -> str:
    """`path` as a visitor would type it: relative where that is shorter."""
    return min(str(path.absolute()), os.path.relpath(path), key=len)


def typed(*words: str | Path) -> str:
    """A command as a visitor would type it, folded at 78 columns."""
    line = ""
    for word in (shlex.quote(shown(word) if isinstance(word, Path) else word) for word in words):
        fits = len(line.rpartition("\n")[2]) + len(word) < 68
        line += word if not line else f" {word}" if fits else f" \\\n    {word}"
    return line
