"""The storm of bad labels fails where it must: controls in which a service shows a value or keeps part of an upload."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from labels_party.labels import parsing
from labels_party.labels.parsing import floats_of
from tests.support.label_storm import Storm

pytestmark = pytest.mark.extended


def _storm(folder: Path, log: pytest.LogCaptureFixture) -> Storm:
    return Storm("csv", 3, folder / "home", log)


def test_a_sound_service_passes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storm = _storm(tmp_path, caplog)
    asyncio.run(storm.run(500))
    assert storm.tried >= 500


def test_a_value_in_an_answer_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Storm._send

    async def talkative(self: Storm, body: bytes, batch: str) -> httpx.Response:
        answer = await send(self, body, batch)
        answer.headers["x-debug"] = body.decode("utf-8", "replace")
        return answer

    monkeypatch.setattr(Storm, "_send", talkative)
    with pytest.raises(AssertionError, match="the answer shows"):
        asyncio.run(_storm(tmp_path, caplog).run(500))


def test_half_an_upload_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Storm._send

    async def forgetful(self: Storm, body: bytes, batch: str) -> httpx.Response:
        answer = await send(self, body, batch)
        if answer.status_code == 422 and batch == self.batch:
            await send(self, b"example_id,label\nhalf,1\n", batch)
        return answer

    monkeypatch.setattr(Storm, "_send", forgetful)
    with pytest.raises(AssertionError, match="left something behind"):
        asyncio.run(_storm(tmp_path, caplog).run(500))


def test_a_bad_label_that_is_taken_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clipped(column: Any, domain: Any, _rule: str, field: str = "label") -> Any:
        return domain.index(floats_of(column, field))[0]

    monkeypatch.setattr(parsing, "positions_of", clipped)
    with pytest.raises(AssertionError):
        asyncio.run(_storm(tmp_path, caplog).run(500))
