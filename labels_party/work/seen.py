"""Charged work as a caller of a role sees it: the same over REST and on the pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from sqlalchemy.engine import Connection

from label_dp.errors import NotFound
from label_dp.store.apikeys import Principal
from labels_party.work.kind import Family, Work
from labels_party.work.store import Works

R = TypeVar("R", bound=Mapping[str, Any])
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
WHO = ("requested_by", "requested_by_name", "approved_by", "approved_by_name", "approved")


def to_the_day(told: R, caller: Principal) -> R:
    """What is told to `caller`; to anybody but the owner every time in it by its day, as in documents. The second of a
    scheduled seal, and so of what follows it, tells when labels were complete."""
    if caller.role == "owner":
        return told
    days = {name: value[:10] for name, value in told.items() if isinstance(value, str) and TIME.fullmatch(value)}
    return cast("R", {**told, **days})


def shown(works: Works, described: Mapping[str, Any], caller: Principal) -> dict[str, Any]:
    """To an audience nothing is told of who asked and approved, and times are told to the day to all but the owner."""
    members = {**described, **(dict.fromkeys(WHO) if caller.role == "features" else {})}
    return to_the_day(works.kinds[members["kind"]].seen(members, caller.role, caller.audience), caller)


def allowed(works: Works, connection: Connection, caller: Principal, name: str, family: Family) -> Work:
    """Raises NotFound, for an audience also where it is meant for others."""
    work = works.get(connection, name, family)
    if caller.role == "features" and caller.audience not in work.audiences:
        raise NotFound(f"There is no {family.noun} '{name}'.")
    return work
