"""A million generated bad labels (at the default scale), each refused by row and shown nowhere."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.label_storm import Storm
from tests.support.upload_formats import MEDIA

CASES = 1_000_000 // len(MEDIA) + 1
PER_STORM = 20_000


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_bad_labels(form: str, scale: Scale, report: Report, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = time.monotonic() + scale.seconds
    tried, slowest, number = 0, 0.0, 0
    limit = "one refusal each, value nowhere, nothing stored"
    try:
        while tried < CASES and time.monotonic() < end:
            storm = Storm(form, scale.seed + number, tmp_path / f"home-{number}", caplog)
            asyncio.run(storm.run(min(PER_STORM, CASES - tried)))
            tried, slowest, number = tried + storm.tried, max(slowest, storm.slowest), number + 1
    except AssertionError:
        report.row(tried + storm.tried + 1, tried + storm.tried, f"{limit} (storm seed {scale.seed + number})")
        raise
    report.row(tried, tried, f"{limit}; slowest answer {slowest:.2f} s")
