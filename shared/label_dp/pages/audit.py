"""The audit pages, the same at both parties: a timeline with filters, the signed export, verification, comparison."""

# annotations are read at once here: the roles in them differ by party

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy.engine import Connection

from label_dp.actors import called
from label_dp.audit import events as kinds
from label_dp.audit.events import DAY, Event
from label_dp.audit.show import EventFilter, plain, sentence
from label_dp.audit.verification import Party, compare_with, seen_before, verify_store
from label_dp.cli.audit_group import Audited
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.pages.site import FILE_FORM, FORM, HEADERS, Visit, page_router, visitor
from label_dp.schemas.numbers import PLAIN

ROWS = 50
Text = Annotated[str, Query(max_length=64)]


def audit_router(party: Party, audited: Callable[[Any], Audited], *roles: str, exact: str | None = None) -> APIRouter:
    """`audited`: the store behind the services. `exact`: the role that sees the second of an event; others see days."""
    router = page_router()
    officer = visitor(*roles)
    happens = sorted(kinds.OF_LABELS_PARTY if party == "labels" else kinds.OF_FEATURES_PARTY)

    @router.get("/audit")
    def timeline(
        visit: Annotated[Visit, officer],
        kind: Text = "",
        batch: Text = "",
        work: Text = "",
        since: Text = "",
        population: Text = "",
        before: Annotated[int | None, Query(ge=1, lt=1 << 63), PLAIN] = None,
    ) -> Response:
        full = exact is None or visit.role == exact
        event_filter = EventFilter(
            population or None, work.strip() or None, batch.strip() or None, kind or None, since or None, full
        )
        of = audited(visit.services)

        def look(connection: Connection) -> tuple[list[Event], int, dict[str, str]]:
            found = of.store.newest(connection, before=before, limit=ROWS + 1, **event_filter.columns)
            return found, of.store.last(connection), visit.services.apikeys.names(connection)

        found, last, names = of.database.read("audit.page", look)
        # numbers and times rise together: what is older than `since` ends the list
        events = [e for e in found[:ROWS] if not since or (e.moment if full else e.time)[:DAY] >= since[:DAY]]
        more = len(found) > ROWS and len(events) == ROWS
        return visit.page(
            "audit",
            asked=event_filter,
            kinds=[(k, k.replace("-", " ")) for k in happens],
            events=[_row(e, full, names) for e in events],
            last=last,
            cursor=events[-1].sequence if more else None,
            key_label="Public key of the other party, where this one does not know it",
        )

    @router.get("/audit/export")
    def export(visit: Annotated[Visit, officer]) -> Response:
        of = audited(visit.services)
        data = of.database.read("audit.export", lambda c: of.store.export(c, of.key))
        named = {"Content-Disposition": 'attachment; filename="audit.dsse.json"'}
        return Response(data, media_type="application/json", headers=HEADERS | named)

    @router.post("/audit/verify", dependencies=[FORM])
    def verify(visit: Annotated[Visit, officer]) -> Response:
        of = audited(visit.services)

        def check(connection: Connection) -> dict[str, Any]:
            found = verify_store(connection, of.store, of.key.public)
            of.check(connection)
            return found

        try:
            said = of.database.read("audit.verify", check)
        except LabelDPError as error:
            return _result(visit, "Verification", False, str(error))
        verdict = f"{said['events']:,} events hold: every link, every sum of ε, every rule, every receipt."
        told = {"Checked": said["checked"], "Not checked": said["not_checked"]}
        return _result(visit, "Verification", True, verdict, facts=[("Head", said["head"])], lists=told)

    @router.post("/audit/compare", dependencies=[FILE_FORM])
    def compare(visit: Annotated[Visit, officer]) -> Response:
        """The file that was sent lies in a private place of the moment, for no longer than it is read."""
        if not visit.files.get("export"):
            raise InvalidInput("Choose the audit export to compare with.")
        of = audited(visit.services)

        def check(connection: Connection) -> list[Event]:
            verify_store(connection, of.store, of.key.public)
            return list(of.store.scan(connection))

        with tempfile.TemporaryDirectory() as folder:
            path = _written(Path(folder) / "export.dsse.json", visit.files["export"])
            given = visit.files.get("key")
            key = VerifyingKey.load(_written(Path(folder) / "other.pub", given)) if given else None
            own = of.key.public

            def choose(envelope: bytes) -> VerifyingKey:
                if named_key(envelope) == own.id:
                    return own
                return of.signer(envelope) if key is None else key

            heads = seen_before(of.database, of.heads)
            try:
                found = of.database.read("audit.verify", check)
                said = compare_with(path, found, own, party, choose, heads)
            except LabelDPError as error:
                return _result(visit, "Comparison", False, str(error).replace(str(path), "the export"))
        count = len(said["findings"])
        verdict = (
            f"{said['events']:,} events agree with the export of {said['of']}."
            if said["agrees"]
            else f"{count} finding{'' if count == 1 else 's'}: this store and the export of "
            f"{said['of']} do not tell one history."
        )
        told = [f"{f['kind']}: {plain(f['sentence'])}" for f in said["findings"]]
        return _result(visit, "Comparison", said["agrees"], verdict, told, [("Note", plain(n)) for n in said["notes"]])

    return router


def _row(event: Event, full: bool, names: dict[str, str]) -> dict[str, object]:
    told = sentence(event, names)
    told = told[:1].upper() + told[1:]
    who = called(event.actor, names) if event.actor else ""
    return {
        "sequence": event.sequence,
        "when": event.moment.replace("T", " ").removesuffix("Z") if full else event.time[:DAY],
        "sentence": told.removesuffix(f", by {plain(who)}.") if who else told,
        "epsilon": str(event.split.total) if event.split.total.nano else "",
        "actor": who,
    }


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _result(
    visit: Visit,
    heading: str,
    fine: bool,
    verdict: str,
    findings: list[str] | None = None,
    facts: Any = (),
    lists: dict[str, list[str]] | None = None,
) -> Response:
    """`lists`: by title, what is shown to whoever unfolds it."""
    found = {"heading": heading, "fine": fine, "verdict": verdict, "findings": findings or [], "facts": list(facts)}
    return visit.page("audit_result", **found, lists=lists or {})
