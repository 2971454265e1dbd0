"""Charged work as a caller of a role sees it: the same over REST and on the pages."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.engine import Connection

from label_dp.errors import NotFound
from label_dp.store.apikeys import Principal
from labels_party.work.kind import Family, Work
from labels_party.work.store import Works

TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
WHO = ("requested_by", "requested_by_name", "approved_by", "approved_by_name", "approved")


def to_the_day(told: dict[str, Any], caller: Principal) -> dict[str, Any]:
    """What is told to `caller`; to anybody but the owner every time in it by its day, as in documents. The second of a
    scheduled seal, and so of what follows it, tells when labels were complete."""
    if caller.role == "owner":
        return told
    return told | {name: value[:10] for name, value in told.items() if isinstance(value, str) and TIME.fullmatch(value)}


def shown(works: Works, described: dict[str, Any], caller: Principal) -> dict[str, Any]:
    """To an audience nothing is told of who asked and approved, and times are told to the day to all but the owner."""
    if caller.role == "features":
        described = described | dict.fromkeys(WHO)
    described = works.kinds[described["kind"]].seen(described, caller.role, caller.audience)
    return to_the_day(described, caller)


def allowed(works: Works, connection: Connection, caller: Principal, name: str, family: Family) -> Work:
    """Raises NotFound, for an audience also where it is meant for others."""
    work = works.get(connection, name, family)
    if caller.role == "features" and caller.audience not in work.audiences:
        raise NotFound(f"There is no {family.noun} '{name}'.")
    return work
