"""Visitors of pages by role, as callers in `api/context.py`, and members that pages share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from label_dp.pages.site import Visit, visitor
from labels_party.bootstrap import ROLES, Services
from labels_party.work.seen import to_the_day

R = TypeVar("R", bound=Mapping[str, Any])
AUDITOR, RECEIVER, OWNER = ("owner", "auditor"), ("features",), ("owner",)
APPROVER = (*AUDITOR, "approver")
DOCUMENT = (*OWNER, *RECEIVER)  # who may fetch a signed document, and so see what it says
Anybody = Annotated[Visit, visitor(*ROLES)]
Auditor = Annotated[Visit, visitor(*AUDITOR)]
Approver = Annotated[Visit, visitor(*APPROVER)]
Owner = Annotated[Visit, visitor(*OWNER)]
Receiver = Annotated[Visit, visitor(*RECEIVER)]
Viewer = Annotated[Visit, visitor(*APPROVER, *RECEIVER)]


def services(visit: Visit) -> Services:
    """Return the services of the party."""
    party: Services = visit.services
    return party


def days(rows: list[R], visit: Visit) -> list[R]:
    """Return `rows` as REST shows them to the visitor's role."""
    return [to_the_day(row, visit.caller) for row in rows]


def who(actor: str | None, name: str | None) -> str:
    """Return the display name of the actor, else its id."""
    return "" if actor is None else name or actor
