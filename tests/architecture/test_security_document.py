"""The threat model names only checks that exist, and every file of privacy checks is named in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "SECURITY.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`(tests/[a-z_/]+\.py)`", TEXT))


def test_every_check_that_it_names_exists() -> None:
    assert len(NAMED) > 20
    missing = sorted(name for name in NAMED if not (ROOT / name).is_file())
    assert missing == []


def test_it_names_every_privacy_audit() -> None:
    audits = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/privacy_audit").glob("test_*.py")}
    assert audits
    assert audits - NAMED == set()
