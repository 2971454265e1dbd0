"""Visitors of pages, like the callers of `api/context.py`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from features_party.bootstrap import Services
from label_dp.pages.site import Visit, visitor
from label_dp.store.paging import Page

Reader = Annotated[Visit, visitor("trainer", "auditor")]
Trainer = Annotated[Visit, visitor("trainer")]
Cursor = Annotated[str | None, Query(max_length=200)]
ROWS = 50


def services(visit: Visit) -> Services:
    """Return the services of a visit."""
    ctx: Services = visit.services
    return ctx


def newest(cursor: str | None) -> Page:
    """Return a page of a list, newest first."""
    return Page(ROWS, cursor, newest=True)
