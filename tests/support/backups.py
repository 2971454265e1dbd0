"""Backups of a party on a test's own database, and restores into a home and a database of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from label_dp.backup.restoring import RestoreRequest, restore
from label_dp.backup.taking import back_up
from labels_party.backups import labels_party
from labels_party.settings import Settings
from tests.support.labels import LabelsParty


def taken(party: LabelsParty, out: Path, **options: Any) -> dict[str, Any]:
    return back_up(labels_party(settings=party.settings), out, **options)


def keys_of(party: LabelsParty, to: Path) -> Path:
    """A copy of the private keys, as its owner keeps one elsewhere."""
    shutil.copytree(party.home / "keys", to)
    return to


def brought_back(
    backup: Path,
    home: Path,
    keys: Path,
    *against: Path,
    database_url: str | None = None,
    objects: str = "",
    **wanted: Any,
) -> dict[str, Any]:
    settings = Settings(home=home, database_url=database_url, objects=objects)  # type: ignore[arg-type]  # pydantic converts
    how = {"newest": not against} | wanted
    return restore(labels_party(settings=settings), RestoreRequest(backup, keys, against=against, **how))


def exported(party: LabelsParty, out: Path) -> Path:
    """This party's own audit export."""
    s = party.services
    out.write_bytes(s.database.read("export", lambda c: s.audit.export(c, s.key)))
    return out
