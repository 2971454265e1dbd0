"""Site of the features party: its menu and its pages."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter

from features_party.bootstrap import ROLES, Services
from features_party.pages import inbox, models, trainings
from label_dp.cli.audit_group import Audited
from label_dp.pages.audit import audit_router
from label_dp.pages.signin import site_router
from label_dp.pages.site import Entry, Site

AUDITOR = ("auditor",)
MENU = (
    Entry("/inbox", "Inbox", ROLES),
    Entry("/tables", "Tables", ROLES),
    Entry("/trainings", "Trainings", ROLES),
    Entry("/models", "Models", ROLES),
    Entry("/audit", "Audit", AUDITOR),
)
DONE = {
    "queued": "The training waits for its turn. This page follows it.",
    "alias-set": "The alias names this model, and no other one.",
    "alias-removed": "The alias names no model now.",
    "cancelled": "The training ends within seconds, or has ended. Nothing of it is kept.",
}


OBJECTS = {"rel_": "/messages/", "ans_": "/answers/", "ft_": "/tables/", "tr_": "/trainings/", "m_": "/models/"}


def site(services: Services) -> Site:
    """Build the site of the features party."""
    return Site("Features party", "features_party.pages", MENU, services.sessions, DONE, OBJECTS, flow=services.sign_in)


def _audited(services: Services) -> Audited:
    home = services.home
    signer = services.pinned.for_envelope
    return Audited(services.database, services.audit, services.heads, home.own_key(), home.public_key, signer)


@cache
def routers() -> tuple[APIRouter, ...]:
    """Routers of all pages, the same for every application of a process."""
    parts = (inbox, trainings, models)
    return (
        site_router(*ROLES, home="/inbox"),
        *(part.router for part in parts),
        audit_router("features", _audited, *AUDITOR),
    )
