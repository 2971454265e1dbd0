"""Commands `audit show|heads|export|verify` of both parties. Heavy parts are imported by the commands."""

# annotations are read at once here: the help in them differs by party

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.cli.numbers import whole
from label_dp.cli.output import echo, emit, table
from label_dp.cli.party_commands import Force, Json
from label_dp.store.output_files import replacing, writable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from label_dp.audit.heads import Heads
    from label_dp.audit.store import AuditStore
    from label_dp.audit.verification import Party
    from label_dp.documents.signing import SigningKey, VerifyingKey
    from label_dp.store.database import Database

Limit = typer.Option(parser=whole("--limit", 1), metavar="INTEGER", help="At most this many events.")
AgainstHelp = (
    "Compare this party's store with an export of the other party, or an older one of its own: finds a rollback, a "
    "fork, missing or altered work. After an EXPORT: that one with this one, of the same party."
)


@dataclass(frozen=True)
class Audited:
    """Audit store of a party, for its commands.

    `signer` returns the key of an export that is not signed with `key`. `population` resolves a name to its id. `check`
    raises if other data of the party does not fit its store. `names`: of its API keys.
    """

    database: "Database"
    store: "AuditStore"
    heads: "Heads"
    key: "SigningKey"
    public_key: Path
    signer: "Callable[[bytes], VerifyingKey]"
    population: "Callable[[Connection, str], str]" = lambda _, given: given
    check: "Callable[[Connection], None]" = lambda _: None
    names: "Callable[[Connection], Mapping[str, str]]" = lambda _: {}


def add_audit_commands(
    group: typer.Typer, party: "Party", audited: Callable[[], Audited], *, population: str, kind: str, key: str
) -> None:
    """Give `group` its commands; `population`, `kind` and `key` are the help of these options."""

    @group.command("show")
    def audit_show(
        population: Annotated[str | None, typer.Option(help=population)] = None,
        work: Annotated[str | None, typer.Option(help="Only this release or answer, by its id.")] = None,
        batch: Annotated[str | None, typer.Option(help="Only this batch.")] = None,
        kind: Annotated[str | None, typer.Option(help=f"Only this kind of event, such as {kind}.")] = None,
        since: Annotated[str | None, typer.Option(help="Only from this day (or time) on, UTC.")] = None,
        limit: Annotated[int | None, Limit] = None,
        totals: Annotated[bool, typer.Option("--totals", help="Only what each batch has spent.")] = False,
        lines: Annotated[bool, typer.Option("--ndjson", help="One JSON object a line, as they are read.")] = False,
        as_json: Json = False,
    ) -> None:
        """Events, oldest first, one sentence each; then ε by population and batch."""
        from label_dp.audit.show import EventFilter
        from label_dp.cli.audit_output import show

        of = audited()

        def look(connection: Any) -> None:
            found = of.population(connection, population) if population is not None else None
            events = EventFilter(found, work, batch, kind, since).select(of.store, connection, limit=limit)
            names = of.names(connection)
            show(events, f"{party} party", as_json=as_json, lines=lines, totals_only=totals, names=names)

        of.database.read("audit.show", look)

    @group.command("heads")
    def audit_heads(as_json: Json = False) -> None:
        """Digests of the other parties' chains, as they stated them day by day.

        Two receivers of one labels party compare the same day: another digest means that it shows them different
        histories, or went on from a backup.
        """
        from label_dp.audit.receipts import seen_heads

        of = audited()
        heads = of.database.read("audit.heads", lambda c: seen_heads(of.store.scan(c)))
        rows = [[str(value) for value in head.values()] for head in heads]
        emit(heads, as_json, lambda: table("Heads of other parties' chains", ["of", "day", "digest"], rows))

    @group.command("export")
    def audit_export(
        out: Annotated[Path, typer.Option(help="File for the signed export.")],
        force: Force = False,
        as_json: Json = False,
    ) -> None:
        """Write all events as one document signed with our own key; whoever has keys/signing.pub can verify it."""
        writable(out, force)
        of = audited()
        data = of.database.read("audit.export", lambda c: of.store.export(c, of.key))
        with replacing(out, force) as path:
            path.write_bytes(data)
        emit({"export": str(out), "bytes": len(data), "public_key": str(of.public_key)}, as_json, lambda: echo(out))

    @group.command("verify")
    def audit_verify(
        export: Annotated[
            Path | None,
            typer.Argument(
                help="An export, or a report (.html, .yaml); without it this party's own store is verified."
            ),
        ] = None,
        key: Annotated[Path | None, typer.Option(help=key)] = None,
        against: Annotated[Path | None, typer.Option(metavar="EXPORT", help=AgainstHelp)] = None,
        as_json: Json = False,
    ) -> None:
        """Check every hash, link and signature and the sums of ε; say what was checked and what cannot be.

        With --against also whether this store and the export tell one history, and the export goes on from what was
        seen of its party before: exit code 1 where they do not. With both, two exports of one party are compared.
        """
        from label_dp.audit.verification import compare_files, verify_file
        from label_dp.cli.audit_output import show_comparison, show_report
        from label_dp.documents.signing import VerifyingKey

        verifying_key = VerifyingKey.load(key) if key is not None else None
        if export is None:
            _verify_own(party, audited(), verifying_key, against, as_json)
            return
        # with a key nothing of this party is needed
        choose = _chooser(audited()) if verifying_key is None else lambda _: verifying_key
        page = export.with_name(export.name.removesuffix(".dsse.json"))  # of a signature: what it signs
        if page.suffix in (".html", ".yaml"):
            _show_verified(page, choose, as_json)
        elif against is None:
            show_report(verify_file(export, choose), as_json)
        else:
            show_comparison(compare_files(export, against, choose), as_json)


def _show_verified(page: Path, choose: "Callable[[bytes], VerifyingKey]", as_json: bool) -> None:
    from label_dp.documents.report import verified_report

    signed_report = verified_report(page, choose)
    members = {"report": str(page)} | signed_report.document()
    rows = [[name, f"{members[name]:,}" if isinstance(members[name], int) else str(members[name])]
            for name in ("about", "made", "party", "events", "head", "sha256")]  # fmt: skip
    emit(members, as_json, lambda: table("Verified report", ["", ""], rows))


def _chooser(of: Audited) -> "Callable[[bytes], VerifyingKey]":
    """Return our own key for documents it signed, else the one that the party knows."""
    from label_dp.documents.signing import named_key

    own = of.key.public
    return lambda envelope: own if named_key(envelope) == own.id else of.signer(envelope)


def _verify_own(party: "Party", of: Audited, key: "VerifyingKey | None", against: Path | None, as_json: bool) -> None:
    from label_dp.audit.verification import compare_with, seen_before, verify_store
    from label_dp.cli.audit_output import show_comparison, show_report

    own = of.key.public

    def check(connection: Any) -> tuple[Any, Any]:
        found = verify_store(connection, of.store, own)
        of.check(connection)
        return found, list(of.store.scan(connection)) if against is not None else None

    data, events = of.database.read("audit.verify", check)
    if against is None:
        show_report(data, as_json)
        return
    choose = _chooser(of) if key is None else lambda _: key
    heads = seen_before(of.database, of.heads)
    show_comparison(compare_with(against, events, own, party, choose, heads), as_json)
