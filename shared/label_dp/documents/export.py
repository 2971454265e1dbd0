"""Signed export of an audit store: all its events, and its time. Its reader checks the chain."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from label_dp.documents.members import Moment, Sha256, Text
from label_dp.documents.signed import Document
from label_dp.documents.signing import EXPORT_TYPE


class AuditExport(Document):
    """Export of an audit store. `count` and `head` are the number of `events` and the SHA-256 of the last one's
    canonical bytes; `made` is a UTC time, or its day."""

    FORMAT: ClassVar[str] = "label-dp-audit-export/1"
    TYPE: ClassVar[str] = EXPORT_TYPE
    NOUN: ClassVar[str] = "audit export"
    MOST_ENVELOPE: ClassVar[int] = 1 << 30

    format: Literal["label-dp-audit-export/1"] = "label-dp-audit-export/1"
    party: Text
    made: Moment
    count: int = Field(ge=0)
    head: Sha256
    events: list[dict[str, Any]]
