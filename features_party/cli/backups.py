"""`db`, `backup` and `restore`."""

from __future__ import annotations

from typing import Any

from features_party.cli.app import app
from label_dp.backup.commands import add_backup_commands, add_schema_commands


def _party(chosen: dict[str, Any] | None = None) -> Any:
    from features_party.backups import features_party

    return features_party(chosen)


add_schema_commands(app, _party)
add_backup_commands(app, "features", _party)
