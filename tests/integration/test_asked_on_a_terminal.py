"""Commands that cannot be undone ask on a terminal, before they do anything."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.labels import LabelsParty

COMMANDS = [
    ("erase", "--population", "shop", "--id", "a"),
    ("purge", "bat_0"),
    ("purge", "--due"),
    ("keys", "rotate-wrapping"),
    ("keys", "rotate-signing"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("words", COMMANDS)
def test_no_is_an_answer(
    words: tuple[str, ...], lite: LabelsParty, home: object, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(lite.home))
    keys = {path: path.read_bytes() for path in (lite.home / "keys").rglob("*") if path.is_file()}
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    refused = run(*words)
    assert (refused.code, refused.out) == (1, "")
    assert "cannot be undone" in refused.err
    assert "nothing was done" in refused.err
    assert keys == {path: path.read_bytes() for path in (lite.home / "keys").rglob("*") if path.is_file()}


def test_preparing_a_key_asks_nothing_and_yes_is_an_answer_before(
    lite: LabelsParty, home: object, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(lite.home))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert run("keys", "rotate-signing", "--prepare").code == 0
    assert run("purge", "--due", "--yes").code == 0
