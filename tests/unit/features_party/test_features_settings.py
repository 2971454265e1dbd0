"""Settings of the features party."""

from __future__ import annotations

from pathlib import Path

import pytest

from features_party.settings import Settings
from label_dp.errors import InvalidSettings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [n for n in os.environ if n.upper().startswith("FEATURES_PARTY_")]:
        monkeypatch.delenv(name)


def test_defaults_follow_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = Settings.load()
    assert settings.home == tmp_path / "features-party"
    assert settings.name == "features-party"
    assert (settings.host, settings.port) == ("127.0.0.1", 8002)
    assert settings.data_dir is None
    assert settings.url == f"sqlite:///{tmp_path}/features-party/features-party.sqlite"


def test_without_a_state_folder_it_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings.load().home == tmp_path / ".local" / "state" / "features-party"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEATURES_PARTY_NAME", "publisher")
    monkeypatch.setenv("FEATURES_PARTY_LABELS_URLS", '["http://labels:8001"]')
    monkeypatch.setenv("FEATURES_PARTY_LABELS_API_KEY", "lp_hidden")
    settings = Settings.load()
    assert settings.name == "publisher"
    assert settings.labels_urls == ("http://labels:8001",)
    assert "lp_hidden" not in repr(settings)


def test_an_unknown_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEATURES_PARTY_HOMES", "/tmp/x")
    with pytest.raises(InvalidSettings, match="FEATURES_PARTY_HOMES"):
        Settings.load()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "high"),
        ("PORT", "70000"),
        ("THREADS", "0"),
        ("LABELS_URLS", "http://user:pw@x"),
        ("LABELS_URLS", '["http://user:pw@x"]'),
        ("LABELS_URLS", '["http://labels:8001/?key=pw"]'),
        ("LABELS_URLS", '["labels:8001"]'),
        ("FILE_URLS", '["https://store/?key=pw"]'),
    ],
)
def test_a_bad_value_is_a_sentence_without_the_value(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"FEATURES_PARTY_{name}", value)
    with pytest.raises(InvalidSettings) as refusal:
        Settings.load()
    assert name in refusal.value.detail
    assert value not in refusal.value.detail
