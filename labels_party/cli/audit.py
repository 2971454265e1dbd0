"""`audit`: the events of the ledger, their signed export and its verification."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from labels_party.cli.app import FilePath, Force, Json, audit, services
from shared.audit.options import Against
from shared.service.cli import emit, replacing


@audit.command("show")
def audit_show(
    population: Annotated[str | None, typer.Option(help="Name or id of a population.")] = None,
    release: Annotated[str | None, typer.Option(help="Only this release.")] = None,
    batch: Annotated[str | None, typer.Option(help="Only this batch.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind of event, such as release-charged.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from this day (or time) on, UTC.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many events.")] = None,
    totals: Annotated[bool, typer.Option("--totals", help="Only what each batch has spent.")] = False,
    lines: Annotated[bool, typer.Option("--ndjson", help="One JSON object a line, as they are read.")] = False,
    as_json: Json = False,
) -> None:
    """Events, oldest first, one sentence each; then ε by population and batch."""
    from shared.audit.commands import show
    from shared.audit.show import Wanted

    party = services(existing=True)

    def look(connection: Any) -> None:
        found = party.populations.get(connection, population).id if population is not None else None
        wanted = Wanted(found, release, batch, kind, since)
        events = wanted.select(party.audit, connection, limit=limit)
        show(events, "labels party", as_json=as_json, lines=lines, totals_only=totals)

    party.database.read("audit.show", look)


@audit.command("export")
def audit_export(
    out: Annotated[FilePath, typer.Option(help="File for the signed export.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write all events as one signed document that anybody with the public key can verify."""
    party = services(existing=True)
    data = party.database.read("audit.export", lambda c: party.audit.export(c, party.key))
    with replacing(out, force) as path:
        path.write_bytes(data)
    emit({"export": str(out), "bytes": len(data)}, as_json, lambda: typer.echo(out))


@audit.command("verify")
def audit_verify(
    export: Annotated[
        FilePath | None, typer.Argument(help="An export; without it this party's own store is verified.")
    ] = None,
    key: Annotated[
        FilePath | None,
        typer.Option(help="Public key of the export's party; default this party's own, or a registered receipt key."),
    ] = None,
    against: Against = None,
    as_json: Json = False,
) -> None:
    """Check every hash, link and signature and the sums of ε; say what was checked and what cannot be.

    With --against also whether this store and the export tell one history: exit code 1 where they do not.
    """
    from shared.audit.commands import compare_with, show_comparison, show_report, verify_file, verify_store
    from shared.errors import InvalidInput
    from shared.message.signing import VerifyingKey

    given = VerifyingKey.load(key) if key is not None else None
    if export is not None and against is not None:
        raise InvalidInput("Give an export to verify it by itself, or --against to compare this party's store with it.")
    if export is not None:
        show_report(verify_file(export, given or services(existing=True).key.public), as_json)
        return
    party = services(existing=True)
    own = party.key.public

    def check(connection: Any) -> tuple[Any, Any]:
        found = verify_store(connection, party.audit, own)
        party.receipts.check(connection)
        return found, list(party.audit.scan(connection)) if against is not None else None

    data, events = party.database.read("audit.verify", check)
    if against is None:
        show_report(data, as_json)
        return

    def choose(envelope: bytes) -> VerifyingKey:
        return given or party.receipts.signer(envelope)

    show_comparison(compare_with(against, events, own, "labels", choose), as_json)
