"""`audit`: the events of the ledger, their signed export and its verification."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from labels_party.cli.app import FilePath, Force, Json, audit, services
from shared.service.cli import emit, replacing, table


@audit.command("show")
def audit_show(
    population: Annotated[str | None, typer.Option(help="Name or id of a population.")] = None, as_json: Json = False
) -> None:
    """All events, oldest first."""
    from shared.audit.store import describe

    party = services(existing=True)

    def look(connection: Any) -> list[Any]:
        if population is None:
            return party.audit.events(connection)  # type: ignore[no-any-return]  # imported lazily
        found = party.populations.get(connection, population)
        return party.audit.events(connection, population=found.id)  # type: ignore[no-any-return]  # imported lazily

    events = party.database.read("audit.show", look)
    rows = [
        [
            str(e.sequence),
            e.time,
            e.kind,
            e.subject.population_name or "",
            e.subject.release or e.subject.batch or "",
            str(e.split.total) if e.split.total else "",
        ]
        for e in events
    ]
    columns = ["no.", "time", "event", "population", "subject", "ε"]
    emit([describe(e) for e in events], as_json, lambda: table("Audit store of the labels party", columns, rows))


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
        FilePath | None, typer.Option(help="Public key of the export's party; default this party's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every hash, link and signature."""
    from shared.audit.store import verify_export
    from shared.message.signing import VerifyingKey

    if export is None:
        party = services(existing=True)
        count, head = party.database.read("audit.verify", party.audit.verify)
    else:
        public = VerifyingKey.load(key) if key is not None else services(existing=True).key.public
        from shared.tables import read_bytes

        events = verify_export(read_bytes(export), public)
        count, head = len(events), events[-1].digest if events else ""
    emit(
        {"events": count, "head": head, "verified": True},
        as_json,
        lambda: typer.echo(f"{count} events verified, head {head}"),
    )
