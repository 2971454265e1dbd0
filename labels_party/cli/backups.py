"""`db`, `backup` and `restore`."""

from __future__ import annotations

from typing import Any

from label_dp.backup.commands import add_backup_commands, add_schema_commands
from labels_party.cli.app import app


def _party(chosen: dict[str, Any] | None = None) -> Any:
    from labels_party.backups import labels_party

    return labels_party(chosen)


add_schema_commands(app, _party)
add_backup_commands(app, "labels", _party)
