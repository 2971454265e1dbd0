"""10⁴ generated bad labels, ids and files over all formats: named by row, no value shown, nothing stored.

`make soak` tries a million.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.label_storm import Storm
from tests.support.upload_formats import MEDIA

pytestmark = pytest.mark.extended

CASES = 10_000 // len(MEDIA) + 1


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_generated_bad_labels_are_refused_one_by_one(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storm = Storm(form, 20, tmp_path / "home", caplog)
    asyncio.run(storm.run(CASES))
    assert storm.tried >= CASES
    assert storm.codes["invalid-rows"] > CASES // 100
    assert storm.damaged > CASES // 200
    assert 3 <= len(storm.shapes) <= 20  # the texts depend on rules and rows alone
