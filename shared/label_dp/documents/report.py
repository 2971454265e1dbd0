"""Signature beside a report: it covers the bytes of a page for people and the length of the audit store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from label_dp.documents.members import Day, Sha256, Text
from label_dp.documents.signed import Document
from label_dp.documents.signing import REPORT_TYPE, VerifyingKey
from label_dp.errors import DigestMismatch, InvalidFile


class SignedReport(Document):
    """Signed facts of a report. `about` is its subject in words; `sha256` and `bytes` are the page's; `events` and
    `head` are the number of events of the audit store and the SHA-256 of the last one."""

    FORMAT: ClassVar[str] = "label-dp-report/1"
    TYPE: ClassVar[str] = REPORT_TYPE
    NOUN: ClassVar[str] = "report"

    format: Literal["label-dp-report/1"] = "label-dp-report/1"
    party: Text
    about: Text
    made: Day
    bytes: int = Field(ge=1)
    sha256: Sha256
    events: int = Field(ge=0)
    head: Sha256


def signature_of(page: Path) -> Path:
    """Return the path of a report's signature: beside it."""
    return page.with_name(page.name + ".dsse.json")


def verified_report(page: Path, choose: Callable[[bytes], VerifyingKey]) -> SignedReport:
    """Verify signature and page of a report. `choose` returns the key for an envelope. Raises InvalidFile and
    VerificationFailed kinds."""
    try:
        envelope, data = signature_of(page).read_bytes(), page.read_bytes()
    except OSError as error:
        raise InvalidFile(
            f"The report '{page}' or its signature '{signature_of(page).name}' beside it cannot be read "
            f"({error.strerror})."
        ) from None
    signed_report, _ = SignedReport.opened(envelope, choose(envelope))
    if (len(data), hashlib.sha256(data).hexdigest()) != (signed_report.bytes, signed_report.sha256):
        raise DigestMismatch(f"The report '{page}' is not the page that was signed; ask for it again.")
    return signed_report
