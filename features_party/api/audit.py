"""Audit store of this party and the keys that it trusts, for the privacy officer."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from features_party.api.context import Ctx, Reader
from label_dp.http.audit_events import add_audit_calls
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES

router, pinned_router = (JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES) for _ in range(2))
add_audit_calls(router, "auditor", own_key=lambda services: services.home.own_key())


class PinnedKeyOut(BaseModel):
    """What was not noted is null: keys that were pinned by an earlier version have their id only."""

    key_id: str
    name: str | None = Field(description="Whose it is.")
    state: Literal["pinned", "handed over", "expired", "revoked"]
    pinned: str | None = Field(description="Since when.")
    by: str | None
    origin: str | None = Field(description="Where it came from.")
    expires: str | None = Field(description="The last day (UTC) on which something new is accepted of it.")
    revoked: str | None
    handed_over: str | None = Field(description="The day on which it named its successor.")
    successor: str | None


@pinned_router.get("/pinned-keys", tags=["keys"])
def pinned_keys(ctx: Ctx, _: Reader) -> list[PinnedKeyOut]:
    """Keys that documents may be signed with. `features-party pin-key` adds one."""
    return [PinnedKeyOut.model_validate(row) for row in ctx.pinned.listed()]
