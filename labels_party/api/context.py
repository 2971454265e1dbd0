"""Dependencies of every route: the services, the caller, the idempotent call."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from label_dp.http.route_docs import IdempotencyKey as IdempotencyKey
from label_dp.http.route_docs import require
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import IdempotentCall
from labels_party.bootstrap import Services
from labels_party.work.seen import to_the_day as to_the_day


async def services(request: Request) -> Services:
    """Return the services of the application."""
    services: Services = request.app.state.services
    return services


Ctx = Annotated[Services, Depends(services)]
Owner = Annotated[Principal, require("owner")]
Ingest = Annotated[Principal, require("ingest", "owner")]
Lister = Annotated[Principal, require("owner", "features")]
Receiver = Annotated[Principal, require("features")]
Reader = Annotated[Principal, require("features", "owner")]
Viewer = Annotated[Principal, require("features", "owner", "auditor")]
Auditor = Annotated[Principal, require("auditor", "owner")]
Approver = Annotated[Principal, require("approver", "auditor", "owner")]
WorkViewer = Annotated[Principal, require("features", "owner", "auditor", "approver")]


def idempotent(
    ctx: Services, caller: Principal, key: str | None, path: str, body: bytes, batch: str | None = None
) -> IdempotentCall:
    """A call that is remembered under this API key with a keyed MAC of path and body, as long as `batch` lives."""
    return ctx.idempotency.call(caller.key_id, key, path, lambda: body, batch)
