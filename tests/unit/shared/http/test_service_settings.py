"""Settings from files and beside the variables of Kubernetes; quotas of control groups before the machine's size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from features_party.settings import Settings as FeaturesSettings
from label_dp.errors import InvalidSettings
from label_dp.http.settings import usual_memory_mb
from label_dp.quota import MEMORY_1, PERIOD_1, QUOTA_1, memory_bytes, processors
from labels_party.settings import Settings as LabelsSettings

LINKS = {
    "LABELS_PARTY_SERVICE_HOST": "10.0.0.7",
    "LABELS_PARTY_SERVICE_PORT": "8001",
    "LABELS_PARTY_SERVICE_PORT_HTTP": "8001",
    "LABELS_PARTY_PORT": "tcp://10.0.0.7:8001",
    "LABELS_PARTY_PORT_8001_TCP": "tcp://10.0.0.7:8001",
    "LABELS_PARTY_PORT_8001_TCP_PROTO": "tcp",
    "LABELS_PARTY_PORT_8001_TCP_PORT": "8001",
    "LABELS_PARTY_PORT_8001_TCP_ADDR": "10.0.0.7",
    "LABELS_PARTY_METRICS_SERVICE_HOST": "10.0.0.8",
    "LABELS_PARTY_METRICS_PORT": "tcp://10.0.0.8:9001",
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.upper().startswith(("FEATURES_PARTY_", "LABELS_PARTY_"))]:
        monkeypatch.delenv(name)


def test_what_kubernetes_sets_for_a_service_of_our_name_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LINKS.items():
        monkeypatch.setenv(name, value)
    settings = LabelsSettings.load()
    assert (settings.port, settings.metrics_port) == (8001, 0)
    monkeypatch.setenv("LABELS_PARTY_PORT", "9000")
    assert LabelsSettings.load().port == 9000


def test_an_address_for_a_port_is_refused_where_kubernetes_set_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELS_PARTY_PORT", "tcp://10.0.0.7:8001")
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_PORT"):
        LabelsSettings.load()


def test_an_unknown_setting_is_refused_beside_those_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (LINKS | {"LABELS_PARTY_HOMES": "x"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_HOMES"):
        LabelsSettings.load()


def test_a_secret_comes_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url, key = tmp_path / "url", tmp_path / "key"
    url.write_text("postgresql://party:word@db/party\n", encoding="utf-8")
    key.write_text("lp_secret", encoding="utf-8")
    monkeypatch.setenv("FEATURES_PARTY_DATABASE_URL_FILE", str(url))
    monkeypatch.setenv("FEATURES_PARTY_LABELS_API_KEY_FILE", str(key))
    settings = FeaturesSettings.load()
    assert settings.url == "postgresql://party:word@db/party"
    assert settings.labels_api_key is not None
    assert settings.labels_api_key.get_secret_value() == "lp_secret"


@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_the_end_of_a_line_is_no_part_of_a_secret(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setenv("FEATURES_PARTY_DATABASE_URL", f"postgresql://party:word@db/party{end}")
    monkeypatch.setenv("FEATURES_PARTY_LABELS_API_KEY", f"lp_secret{end}")
    settings = FeaturesSettings.load()
    assert settings.url == "postgresql://party:word@db/party"
    assert settings.labels_api_key is not None
    assert settings.labels_api_key.get_secret_value() == "lp_secret"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe\xfd"])
def test_a_file_without_a_secret_is_refused_without_a_word_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("LABELS_PARTY_DATABASE_URL_FILE", str(file))
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_DATABASE_URL_FILE"):
        LabelsSettings.load()


def test_a_secret_is_given_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABELS_PARTY_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("LABELS_PARTY_DATABASE_URL", "postgresql://party:hidden@db/party")
    with pytest.raises(InvalidSettings, match="set one of them") as refused:
        LabelsSettings.load()
    assert "hidden" not in str(refused.value)


def test_only_secrets_come_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME_FILE", "/nowhere")
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_HOME_FILE"):
        LabelsSettings.load()


# --- quotas -----------------------------------------------------------------------------------------------


def group(tmp_path: Path, **files: str) -> tuple[Path, Path]:
    """Control groups with ours two below the top; `files` by path, where two underscores stand for a slash."""
    groups, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("4:memory:/elsewhere\n0::/kube/pod\n", encoding="utf-8")
    (groups / "kube" / "pod").mkdir(parents=True)
    for name, text in files.items():
        path = groups / name.replace("__", "/").replace("_max", ".max")
        path.write_text(text, encoding="utf-8")
    return groups, own


def test_without_a_limit_it_is_the_machine(tmp_path: Path) -> None:
    found = group(tmp_path, kube__pod__cpu_max="max 100000\n", kube__pod__memory_max="max\n")
    assert processors(*found) == len(os.sched_getaffinity(0))
    assert memory_bytes(*found) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert processors(tmp_path / "none", tmp_path / "nothing") == processors(*found)


def test_the_smallest_limit_above_us_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    found = group(
        tmp_path,
        kube__pod__cpu_max="900000 100000\n",
        kube__cpu_max="350000 100000\n",
        kube__pod__memory_max="300000000\n",
        kube__memory_max="max\n",
    )
    assert processors(*found) == 3
    assert memory_bytes(*found) == 300_000_000


def test_a_part_of_a_processor_is_one(tmp_path: Path) -> None:
    assert processors(*group(tmp_path, kube__pod__cpu_max="20000 100000\n")) == 1


def test_control_groups_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    groups, own = group(tmp_path)
    for name, text in ((QUOTA_1, "200000\n"), (PERIOD_1, "100000\n"), (MEMORY_1, "400000000\n")):
        (groups / name).parent.mkdir(exist_ok=True)
        (groups / name).write_text(text, encoding="utf-8")
    assert (processors(groups, own), memory_bytes(groups, own)) == (2, 400_000_000)
    (groups / QUOTA_1).write_text("-1\n", encoding="utf-8")
    assert processors(groups, own) == 64


def test_memory_for_sorting_follows_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, wanted in ((64 << 30, 1024), (2 << 30, 512), (100 << 20, 64)):
        monkeypatch.setattr("label_dp.http.settings.memory_bytes", lambda memory=memory: memory)
        assert usual_memory_mb() == wanted
        assert LabelsSettings().memory_limit_mb == wanted


@pytest.mark.parametrize("name", ["LABELS_AUTHORITY", "LABELS_CERTIFICATE", "DATA_DIR"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_name_of_a_file_names_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"FEATURES_PARTY_{name}", value)
    settings = FeaturesSettings.load()
    assert getattr(settings, name.lower()) is None
    assert settings.labels_tls() is True
