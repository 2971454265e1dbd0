"""Commands `db status` and `db upgrade` of both parties."""

# annotations are read at once here, as in `label_dp.cli.party_commands`

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from label_dp.cli.output import emit, say
from label_dp.cli.panels import ADMINISTRATION
from label_dp.cli.party_commands import Json

if TYPE_CHECKING:
    from label_dp.backup.port import Party


def add_schema_commands(app: typer.Typer, party: "Callable[[], Party]") -> None:
    """Give `app` the group `db`."""
    group = typer.Typer(help="The schema of the database.", no_args_is_help=True)
    app.add_typer(group, name="db", rich_help_panel=ADMINISTRATION)

    @group.command("status")
    def db_status(as_json: Json = False) -> None:
        """Revisions of the database and of this program, and what an upgrade would do; changes nothing.

        Exit code 1 where the database was written by a newer version.
        """
        of = party()
        database = of.existing()
        try:
            found = _status(of, database)
        finally:
            database.dispose()
        emit(found, as_json, lambda: _show(found))

    @group.command("upgrade")
    def db_upgrade(as_json: Json = False) -> None:
        """Bring the database to this program's revision, in one transaction; `serve` does so too when it starts.

        Make a backup with the version that wrote it first: there is no way back.
        """
        of = party()
        database = of.existing()
        try:
            before = _status(of, database)
            of.schema.prepare(database)
            found = _status(of, database) | {"applied": before["pending"]}
        finally:
            database.dispose()
        emit(found, as_json, lambda: _show(found))


def _status(of: "Party", database: Any) -> dict[str, Any]:
    from label_dp.store.migrations import current_revision

    current = current_revision(database)
    pending = [{"revision": name, "does": does} for name, does in of.schema.pending(current)]
    return {"database": current, "engine": database.dialect, "program": of.schema.head, "pending": pending}


def _show(report: dict[str, Any]) -> None:
    say(f"database ({report['engine']}) at revision {report['database'] or 'none: it is empty'}, this program at "
        f"{report['program']}")  # fmt: skip
    for what in report.get("applied", []):
        say(f"  done: {what['revision']} {what['does']}", indent=4)
    for what in report["pending"]:
        say(f"  an upgrade would do: {what['revision']} {what['does']}", indent=4)
    if not report["pending"]:
        say("nothing to upgrade")
