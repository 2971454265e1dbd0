"""What every route needs: the services, the caller, the idempotent call."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from labels_party.bootstrap import Services
from labels_party.storage.idempotency import IdempotentCall
from shared.service.apikeys import Principal
from shared.service.http import require


async def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Ctx = Annotated[Services, Depends(services)]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Repeat a call safely: same key and body, same answer, one effect."),
]
Owner = Annotated[Principal, require("owner")]
Ingest = Annotated[Principal, require("ingest", "owner")]
Lister = Annotated[Principal, require("owner", "features")]
Receiver = Annotated[Principal, require("features")]
Reader = Annotated[Principal, require("features", "owner")]
Viewer = Annotated[Principal, require("features", "owner", "auditor")]
Auditor = Annotated[Principal, require("auditor", "owner")]


def actor(caller: Principal) -> str:
    return f"apikey:{caller.key_id}"


def idempotent(
    ctx: Services, caller: Principal, key: str | None, path: str, body: bytes, batch: str | None = None
) -> IdempotentCall:
    """A call that is remembered under this API key with a keyed MAC of path and body, as long as `batch` lives."""
    mac = ctx.secrets.mac("idempotency", path.encode("utf-8") + b"\0", body) if key is not None else ""
    return IdempotentCall(caller.key_id, key, mac, batch)
