"""The demo's folder: everything it writes lies in it, and it replaces only a folder that it made itself."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from shared.errors import InvalidInput

MARKER = ".label-dp-demo"
MARKER_TEXT = "Made by the label-DP demo, which may replace this folder. Remove this file to keep the folder.\n"


@dataclass(frozen=True)
class DemoFolder:
    """Where things lie below `path`."""

    path: Path

    @property
    def labels_home(self) -> Path:
        return self.path / "labels-party"

    @property
    def features_home(self) -> Path:
        return self.path / "features-party"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def clicks(self) -> Path:
        return self.path / "clicks"

    @property
    def comparison(self) -> Path:
        return self.path / "comparison"

    @property
    def message(self) -> Path:
        return self.path / "message.parquet"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def labels_key(self) -> Path:
        return self.path / "labels-party.pub"

    @property
    def features_key(self) -> Path:
        return self.path / "features-party.pub"

    @property
    def labels_audit(self) -> Path:
        return self.path / "labels-party-audit.dsse.json"

    @property
    def features_audit(self) -> Path:
        return self.path / "features-party-audit.dsse.json"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    def shown(self, path: Path | None = None) -> str:
        """`path` (default: the folder) as a visitor would type it: relative where that is shorter."""
        full = str((path or self.path).absolute())
        relative = os.path.relpath(full)
        return relative if len(relative) < len(full) else full

    def prepare(self) -> None:
        """An empty folder with the marker. Raises InvalidInput where something else is in the way."""
        try:
            if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
                raise InvalidInput(f"'{self.path}' exists and is not a folder; choose another --out.")
            if self.path.is_dir() and any(self.path.iterdir()):
                self._clear()
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
            for folder in (self.clicks, self.comparison):
                folder.mkdir()
        except OSError as error:
            raise InvalidInput(
                f"The folder '{self.path}' cannot be used ({error.strerror}); choose another --out."
            ) from None

    def _clear(self) -> None:
        marker = self.path / MARKER
        if (
            not marker.is_file()
            or marker.is_symlink()
            or marker.read_text(encoding="utf-8", errors="replace") != MARKER_TEXT
        ):
            raise InvalidInput(
                f"'{self.path}' exists and was not made by the demo, so it is left alone; choose another --out."
            )
        # the marker goes last: an interrupted clean-up can be repeated
        for entry in self.path.iterdir():
            if entry.name == MARKER:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
