"""What a report of pip-audit comes to: what could not be asked about is never good news."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.locks.vulnerabilities import FOUND, NONE, NOT_ASKED, judged

CLEAN = {"name": "numpy", "version": "2.4.6", "vulns": []}
SKIPPED = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited: jinja2 (3.1.6)"}
OPEN = {"name": "h11", "version": "0.14", "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.16.0"], "aliases": []}]}
NOT_MENDED = {"name": "onnx", "version": "1", "vulns": [{"id": "PYSEC-2", "fix_versions": [], "aliases": []}]}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([CLEAN], NONE, "dev: 1 packages, no known vulnerability"),
        ([CLEAN, OPEN], FOUND, "dev: h11 0.14 has PYSEC-1; mended in 0.16.0"),
        ([NOT_MENDED], FOUND, "dev: onnx 1 has PYSEC-2; not mended yet"),
        ([CLEAN, SKIPPED], NOT_ASKED, "dev: 1 of 2 packages could not be asked about (jinja2, …)"),
        ([], NOT_ASKED, "dev: 0 of 0 packages could not be asked about"),
    ],
)
def test_a_report_comes_to(packages: list[dict[str, Any]], code: int, words: str) -> None:
    seen, said = judged("dev", {"dependencies": packages, "fixes": []})
    assert seen == code
    assert words in "\n".join(said)


def test_what_was_found_is_told_beside_what_was_not_asked() -> None:
    seen, said = judged("dev", {"dependencies": [OPEN, SKIPPED], "fixes": []})
    assert seen == NOT_ASKED
    assert any("PYSEC-1" in line for line in said)
