"""Site of the labels party: its menu and its pages."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter

from label_dp.cli.audit_group import Audited
from label_dp.pages.audit import audit_router
from label_dp.pages.signin import site_router
from label_dp.pages.site import Entry, Site
from labels_party.bootstrap import ROLES, Services
from labels_party.pages import approvals, batch, erasures, new_release, overview, plan, population, work
from labels_party.pages.context import APPROVER, AUDITOR, OWNER, RECEIVER
from labels_party.work.kind import FAMILIES

MENU = (
    Entry("/overview", "Overview", ROLES),
    Entry("/releases", "For you", RECEIVER),
    Entry("/new", "New release", OWNER),
    Entry("/given", "Who has what", APPROVER),
    Entry("/approvals", "Approvals", APPROVER),
    Entry("/erasures", "Erasures", AUDITOR),
    Entry("/plan", "Plan", APPROVER),
    Entry("/audit", "Audit", AUDITOR),
)
DONE = {
    "approved": "Approved. It is charged now, and drawn next.",
    "applied": "Applied. Every charge is held to that policy now.",
    "declined": "Declined. Nothing was charged.",
    "cancelled": "Cancelled. What was charged was returned.",
    "declared": "Declared. Its rules cannot change.",
    "discarded": "Discarded, with all its labels.",
}
OBJECTS = {"pop_": "/populations/", "bat_": "/batches/"} | {f.prefix: f"/{f.noun}s/" for f in FAMILIES}


def site(services: Services) -> Site:
    """Build the pages of the party."""
    return Site("Labels party", "labels_party.pages", MENU, services.sessions, DONE, OBJECTS, flow=services.sign_in)


def _audited(services: Services) -> Audited:
    return Audited(
        services.database,
        services.audit,
        services.heads,
        services.key,
        services.home.public_key,
        services.receipts.signer,
        check=services.receipts.check,
    )


@cache
def routers() -> tuple[APIRouter, ...]:
    """Routers of all pages, the same for every application of a process."""
    parts = (overview, population, batch, work, new_release, approvals, erasures, plan)
    return (
        site_router(*ROLES, home="/overview"),
        *(part.router for part in parts),
        audit_router("labels", _audited, *AUDITOR, exact="owner"),
    )
