"""`audit`: the append-only, hash-chained store and its signed export."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from features_party.cli.app import FilePath, Force, Json, audit, public_key, services
from shared.audit.options import Against
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
        FilePath | None,
        typer.Option(help="Public key of the export's party; default this party's own, or a pinned one."),
    ] = None,
    against: Against = None,
    as_json: Json = False,
) -> None:
    """Check every hash, link and signature and the sums of ε; say what was checked and what cannot be.

    With --against also whether this store and the export tell one history: exit code 1 where they do not.
    """
    from shared.audit.commands import compare_with, show_comparison, show_report, verify_file, verify_store
    from shared.errors import InvalidInput

    if export is not None and against is not None:
        raise InvalidInput("Give an export to verify it by itself, or --against to compare this party's store with it.")
    if export is not None:
        show_report(verify_file(export, public_key(key) or services(existing=True).home.own_key().public), as_json)
        return
    party = services(existing=True)
    own = party.home.own_key().public

    def check(connection: Any) -> tuple[Any, Any]:
        found = verify_store(connection, party.audit, own)
        return found, list(party.audit.scan(connection)) if against is not None else None

    data, events = party.database.read("audit.verify", check)
    if against is None:
        show_report(data, as_json)
        return
    given = public_key(key)

    def choose(envelope: bytes) -> Any:
        return given or party.pinned.for_envelope(envelope)

    show_comparison(compare_with(against, events, own, "features", choose), as_json)
