"""A features party with as many messages, trainings, models and audit events as a benchmark of its pages asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from features_party.storage.tables import audit_events, feature_tables, models, received, trainings
from tests.support.features_api import Api, message_files, running
from tests.support.messages import Sender
from tests.support.pages import Looker, signed_in

PART = 20_000


@contextmanager
def features_pages(folder: Path, many: int, events: int) -> Iterator[list[tuple[Looker, list[str]]]]:
    """Who is signed in, and the pages to ask for. One message was accepted and two models trained; the other
    rows are copies, and chains are not linked."""
    sender = Sender()
    with running(folder, sender) as api:
        api.accept(message_files(sender, folder / "message"))
        table = api.table()
        first, second = (api.trained(table) for _ in range(2))
        row = api.services.database.read("first", lambda c: c.execute(sa.select(models.c.training)).scalar())
        _copied(api, many, events)
        paths = ["/inbox", "/tables", "/trainings", f"/trainings/{row}", "/models", f"/models/{first}"]
        compare = f"/models/compare?model={first}&model={second}"
        paths += [compare, f"/models/{first}/predict"]
        yield [(signed_in(api.client("trainer")), paths), (signed_in(api.client("auditor")), ["/audit"])]


def _copied(api: Api, many: int, events: int) -> None:
    database = api.services.database

    def read(connection: sa.Connection) -> list[dict[str, Any]]:
        of = (feature_tables, trainings, models, received)
        rows = [dict(connection.execute(sa.select(t)).mappings().first() or {}) for t in of]
        event = sa.select(audit_events).where(audit_events.c.sequence == rows[-1]["event"])
        return [*rows, dict(connection.execute(event).mappings().one())]

    table, training, model, message, event = database.read("first", read)
    last = database.read("last", api.services.audit.last)
    mark = b'"sequence":%d,' % event["sequence"]

    def write(connection: sa.Connection) -> None:
        for i in range(many):
            training_id, at = f"trn_{i:024x}", last + 1 + i
            connection.execute(sa.insert(feature_tables).values(table | {"id": f"tab_{i:024x}"}))
            connection.execute(sa.insert(trainings).values(training | {"id": training_id}))
            connection.execute(sa.insert(models).values(model | {"id": f"mod_{i:024x}", "training": training_id}))
            own = {"name": f"rel_{i:024x}", "batch": f"bat_{i:024x}", "event": at, "position": i + 2}
            digests = {"digest": f"{i:064x}", "receipt": f"{i:064x}"}
            connection.execute(sa.insert(received).values(message | own | digests))

    for start in range(last + 1, last + 1 + max(events, many), PART):
        rows = [
            event | {"sequence": n, "digest": f"{n:064x}", "body": event["body"].replace(mark, b'"sequence":%d,' % n)}
            for n in range(start, min(start + PART, last + 1 + max(events, many)))
        ]
        database.write("events", lambda c, rows=rows: c.execute(sa.insert(audit_events), rows) and None)
    database.write("rows", write)
