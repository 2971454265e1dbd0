"""`audit`: the append-only, hash-chained store and its signed export."""

from __future__ import annotations

from typing import Annotated

import typer

from features_party.cli.app import FilePath, Force, Json, audit, public_key, services
from shared.service.cli import emit, replacing, writable


@audit.command("show")
def audit_show(
    population: Annotated[str | None, typer.Option(help="Only this population (its id).")] = None,
    as_json: Json = False,
) -> None:
    """All events, oldest first."""
    from features_party.cli.show import show_events
    from shared.audit.store import describe

    party = services(existing=True)
    only = {"population": population} if population is not None else {}
    events = party.database.read("audit.show", lambda c: party.audit.events(c, **only))
    emit([describe(e) for e in events], as_json, lambda: show_events(events))


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
    """Check every hash, link and signature."""
    from shared.audit.store import verify_export
    from shared.tables import read_bytes

    if export is None:
        party = services(existing=True)
        count, head = party.database.read("audit.verify", party.audit.verify)
    else:
        public = public_key(key) or services(existing=True).home.own_key().public
        events = verify_export(read_bytes(export), public)
        count, head = len(events), events[-1].digest if events else ""
    data = {"events": count, "head": head, "verified": True}
    emit(data, as_json, lambda: typer.echo(f"{count} events verified, head {head}"))
