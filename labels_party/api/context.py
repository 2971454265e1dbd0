"""What every route needs: the services, the caller, the idempotent call."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Depends, Request

from labels_party.bootstrap import Services
from shared.service.apikeys import Principal
from shared.service.http import IdempotencyKey as IdempotencyKey
from shared.service.http import require
from shared.service.idempotency import IdempotentCall


async def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
Ctx = Annotated[Services, Depends(services)]
Owner = Annotated[Principal, require("owner")]
Ingest = Annotated[Principal, require("ingest", "owner")]
Lister = Annotated[Principal, require("owner", "features")]
Receiver = Annotated[Principal, require("features")]
Reader = Annotated[Principal, require("features", "owner")]
Viewer = Annotated[Principal, require("features", "owner", "auditor")]
Auditor = Annotated[Principal, require("auditor", "owner")]


def to_the_day(told: dict[str, Any], caller: Principal) -> dict[str, Any]:
    """What is told to `caller`; to anybody but the owner every time in it by its day, as in documents. The second of a
    scheduled seal, and so of what follows it, tells when labels were complete."""
    if caller.role == "owner":
        return told
    return told | {name: value[:10] for name, value in told.items() if isinstance(value, str) and TIME.fullmatch(value)}


def idempotent(
    ctx: Services, caller: Principal, key: str | None, path: str, body: bytes, batch: str | None = None
) -> IdempotentCall:
    """A call that is remembered under this API key with a keyed MAC of path and body, as long as `batch` lives."""
    return ctx.idempotency.call(caller.key_id, key, path, lambda: body, batch)
