"""What every route needs: the services, the caller, the idempotent call."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from labels_party.bootstrap import Services
from labels_party.storage.idempotency import IdempotentCall
from shared.service.apikeys import Principal
from shared.service.http import require


async def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
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
    mac = ctx.secrets.mac("idempotency", path.encode("utf-8") + b"\0", body) if key is not None else ""
    return IdempotentCall(caller.key_id, key, mac, batch)
