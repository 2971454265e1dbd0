"""Commands `db`, `backup` and `restore` of both parties."""

# annotations are read at once here: the help in them differs by party

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.cli.output import emit, say, warn
from label_dp.cli.panels import ADMINISTRATION
from label_dp.cli.party_commands import Force, Json
from label_dp.errors import InvalidInput

if TYPE_CHECKING:
    from label_dp.backup.port import Party, Side

Passphrase = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="Private keys are in the backup, encrypted with the line in this file; without it they are not.",
    ),
]


def add_backup_commands(app: typer.Typer, side: "Side", party: "Callable[[dict[str, Any]], Party]") -> None:
    """Add the commands; `party` builds a party from the settings in a command's options."""
    prefix = f"{side.upper()}_PARTY"
    charge_lost = "Go on from an older state: what --against shows was charged since counts as spent."

    @app.command("backup", rich_help_panel=ADMINISTRATION)
    def backup(
        out: Annotated[Path, typer.Option(help="File for the backup.")],
        passphrase_file: Passphrase = None,
        force: Force = False,
        as_json: Json = False,
    ) -> None:
        """Write database and home of one moment into one file, while the service runs.

        Without --passphrase-file the private keys are not in it: keep a copy of the folder keys/ elsewhere.
        """
        from label_dp.backup.sealed_keys import read_passphrase
        from label_dp.backup.taking import back_up

        passphrase = read_passphrase(passphrase_file) if passphrase_file is not None else None
        state = back_up(party({}), out, force=force, passphrase=passphrase)
        emit(state, as_json, lambda: _show_backup(state))

    @app.command("restore", rich_help_panel=ADMINISTRATION)
    def restore(
        file: Annotated[Path, typer.Argument(metavar="BACKUP", help="File that `backup` wrote.")],
        home: Annotated[Path | None, typer.Option(help=f"Folder to be the home; default {prefix}_HOME.")] = None,
        database: Annotated[
            str | None,
            typer.Option(
                metavar="URL",
                help=f"Empty database to fill, of either engine; default {prefix}_DATABASE_URL, or SQLite in the home.",
            ),
        ] = None,
        keys: Annotated[
            Path | None, typer.Option(metavar="FOLDER", help="Copy of the home's keys/, with the private files.")
        ] = None,
        passphrase_file: Annotated[
            Path | None,
            typer.Option("--passphrase-file", metavar="FILE", help="For a backup that holds the private keys."),
        ] = None,
        against: Annotated[
            list[Path] | None,
            typer.Option(
                metavar="EXPORT",
                help="Newest audit export of this party or of the other one; repeatable. Shows what came after.",
            ),
        ] = None,
        key: Annotated[
            Path | None, typer.Option(help="Public key of the other party's export; default one that the backup knows.")
        ] = None,
        newest: Annotated[
            bool,
            typer.Option(
                "--newest", help="Nothing was charged since: your word, without an export.", hidden=side != "labels"
            ),
        ] = False,
        charge_lost: Annotated[bool, typer.Option("--charge-lost", help=charge_lost, hidden=side != "labels")] = False,
        as_json: Json = False,
    ) -> None:
        """Make an empty home, and an empty database, what they were in a backup; everything is checked first.

        Refused where something is there already, and where an export shows that the backup is older than what happened:
        ε charged since would be forgotten. Ends as audit verify does.
        """
        from label_dp.backup.restoring import RestoreRequest
        from label_dp.backup.restoring import restore as bring_back
        from label_dp.backup.sealed_keys import read_passphrase

        given = {"home": home, "database_url": _url(database, prefix)}
        of = party({name: value for name, value in given.items() if value is not None})
        passphrase = read_passphrase(passphrase_file) if passphrase_file is not None else None
        exports = tuple(against or ())
        state = bring_back(of, RestoreRequest(file, keys, passphrase, exports, charge_lost, key, newest))
        emit(state, as_json, lambda: _show_restored(state))
        if any(not comparison["agrees"] for comparison in state["against"]):
            raise SystemExit(1)


def _url(url: str | None, prefix: str) -> Any:
    """Wrap the URL. Raises InvalidInput if it has a password, which every user of the machine could read."""
    import sqlalchemy as sa
    from pydantic import SecretStr

    if url is None:
        return None
    try:
        password = sa.make_url(url).password
    except sa.exc.ArgumentError:
        password = None
    if password is not None:
        raise InvalidInput(
            f"A command line is no place for a password. Put the URL into a file that {prefix}_DATABASE_URL_FILE names."
        )
    return SecretStr(url)


def _show_backup(facts: dict[str, Any]) -> None:
    say(f"{facts['backup']}: {facts['bytes']:,} bytes, {facts['events']:,} audit events, {facts['files']:,} files, of "
        f"{facts['made']}", indent=2)  # fmt: skip
    if facts["objects"]:
        say(f"  it names {facts['objects']:,} objects of the store and holds none of them: back up the bucket too", 4)
    if facts["absent"]:
        say(f"  not there, and not needed: {facts['absent']:,} files that can be got or made again", 4)
    if not facts["keys_inside"]:
        warn(f"the private keys are not in it ({', '.join(facts['keys'])} in keys/): keep a copy of them elsewhere")


def _show_restored(facts: dict[str, Any]) -> None:
    from label_dp.audit.checks import report_lines
    from label_dp.cli.audit_output import comparison_lines

    counts = f"{facts['events']:,} audit events, {facts['files']:,} files"
    say(f"{facts['home']}: restored as of {facts['made']}, {counts}", 2)
    if facts["from_revision"] != facts["revision"]:
        say(f"  the database was brought from revision {facts['from_revision']} to {facts['revision']}", 4)
    for sentence in facts["changed"]:
        say(f"  {sentence}", indent=4)
    for line in report_lines(facts["verified"]):
        say(line, indent=2)
    for comparison in facts["against"]:
        for line in comparison_lines(comparison):
            say(line, indent=2)


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
            state = _status(of, database)
        finally:
            database.dispose()
        emit(state, as_json, lambda: _show(state))

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
            state = _status(of, database) | {"applied": before["pending"]}
        finally:
            database.dispose()
        emit(state, as_json, lambda: _show(state))


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
