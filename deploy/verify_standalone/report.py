"""A report: a page for people, and beside it the signed digest of its bytes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .document import MOST_BYTES, check_format
from .envelope import open_envelope, parse, read
from .members import count, matching, members, moment, text
from .refusal import refuse

REPORT_TYPE = "application/vnd.label-dp.report+json"
MOST_PAGE = 1 << 30
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
MEMBERS = {"format", "party", "about", "made", "bytes", "sha256", "events", "head"}


def verify_report(path: Path, key: Ed25519PublicKey, key_id: str) -> list[str]:
    """What was checked, a line each: the signature beside the page, and every byte of the page."""
    envelope = read(path.with_name(path.name + ".dsse.json"), MOST_BYTES * 3 // 2)
    report = parse(open_envelope(envelope, key, key_id, REPORT_TYPE), "the report")
    check_format(report, "label-dp-report")
    members(report, MEMBERS, "the report")
    text(report["party"], "the party")
    text(report["about"], "what the report is about")
    moment(report["made"], "the day of the report")
    size = count(report["bytes"], 1, (1 << 53) - 1, "the length of the page")
    events = count(report["events"], 0, (1 << 53) - 1, "the count of events")
    matching(report["head"], DIGEST, "the head of the audit store")
    page = read(path, MOST_PAGE)
    if len(page) != size or hashlib.sha256(page).hexdigest() != matching(report["sha256"], DIGEST, "a digest"):
        refuse("the page is not the one that was signed")
    said = [f"signature of {key_id}", f"{report['about']}, made {report['made']} by the {report['party']}"]
    return [*said, f"{size} bytes", f"made from {events} events of its audit store, head {report['head']}"]
