"""Tables: the features of trainings."""

from __future__ import annotations

from fastapi import Response

from features_party.pages.context import Cursor, Reader, newest, services
from label_dp.pages.site import page_router

router = page_router()


@router.get("/tables")
def tables(visit: Reader, cursor: Cursor = None) -> Response:
    """List the feature tables."""
    return visit.page("tables", found=services(visit).feature_tables.list(newest(cursor)))
