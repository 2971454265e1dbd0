"""Views of charged work by role: the same over REST and on the pages."""

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
    """Cut times to days, as in documents, unless `caller` is the owner. The second of a scheduled seal, or of what
    follows it, tells when labels were complete."""
    if caller.role == "owner":
        return told
    days = {name: value[:10] for name, value in told.items() if isinstance(value, str) and TIME.fullmatch(value)}
    return cast("R", {**told, **days})


def shown(works: Works, described: Mapping[str, Any], caller: Principal) -> dict[str, Any]:
    """Reduce a description to what `caller` may see: audiences see no actors, and only the owner sees times of day."""
    members = {**described, **(dict.fromkeys(WHO) if caller.role == "features" else {})}
    return to_the_day(works.kinds[members["kind"]].seen(members, caller.role, caller.audience), caller)


def allowed(works: Works, connection: Connection, caller: Principal, name: str, family: Family) -> Work:
    """Return a work. Raises NotFound, for an audience also if the work is for others."""
    work = works.get(connection, name, family)
    if caller.role == "features" and caller.audience not in work.audiences:
        raise NotFound(f"There is no {family.noun} '{name}'.")
    return work
