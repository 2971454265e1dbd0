"""`audit`: the append-only, hash-chained store and its signed export."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from features_party.cli.app import FilePath, Force, Json, audit, public_key, services
from shared.service.cli import emit, replacing, writable


@audit.command("show")
def audit_show(
    population: Annotated[str | None, typer.Option(help="Only this population (its id).")] = None,
    release: Annotated[str | None, typer.Option(help="Only this release.")] = None,
    batch: Annotated[str | None, typer.Option(help="Only this batch.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind of event, such as message-accepted.")] = None,
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
    wanted = Wanted(population, release, batch, kind, since)

    def look(connection: Any) -> None:
        events = wanted.select(party.audit, connection, limit=limit)
        show(events, "features party", as_json=as_json, lines=lines, totals_only=totals)

    party.database.read("audit.show", look)


@audit.command("export")
def audit_export(
    out: Annotated[FilePath, typer.Option(help="File for the signed export.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write all events as one document signed with our own key; whoever has keys/signing.pub can verify it."""
    writable(out, force)
    party = services(existing=True)
    key = party.home.own_key()
    data = party.database.read("audit.export", lambda c: party.audit.export(c, key))
    with replacing(out, force) as temporary:
        temporary.write_bytes(data)
    result = {"export": str(out), "bytes": len(data), "public_key": str(party.home.public_key)}
    emit(result, as_json, lambda: typer.echo(out))


@audit.command("verify")
def audit_verify(
    export: Annotated[
        FilePath | None, typer.Argument(help="An export; without it this party's own store is verified.")
    ] = None,
    key: Annotated[
        FilePath | None, typer.Option(help="Public key of the export's party; default this party's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every hash, link and signature and the sums of ε; say what was checked and what cannot be."""
    from shared.audit.commands import show_report, verify_file, verify_store

    if export is None:
        party = services(existing=True)
        data = party.database.read("audit.verify", lambda c: verify_store(c, party.audit))
    else:
        data = verify_file(export, public_key(key) or services(existing=True).home.own_key().public)
    show_report(data, as_json)
