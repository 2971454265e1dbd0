"""Variables of the environment on the way to another party: what they mean, and sentences that name a wrong one."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from label_dp.client.proxies import proxy_of, variable_for
from label_dp.client.tls import machine_authorities, trusted
from label_dp.errors import InvalidSettings

PROXY = "http://user:s3cret@proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("scheme", "host", "variables", "expected"),
    [
        ("http", "labels.example", {}, None),
        ("http", "labels.example", {"HTTP_PROXY": PROXY}, "HTTP_PROXY"),
        ("https", "labels.example", {"HTTP_PROXY": PROXY}, None),
        ("https", "labels.example", {"https_proxy": PROXY, "HTTPS_PROXY": "no"}, "https_proxy"),
        ("https", "labels.example", {"ALL_PROXY": PROXY}, "ALL_PROXY"),
        ("https", "labels.example", {"ALL_PROXY": "no", "HTTPS_PROXY": PROXY}, "HTTPS_PROXY"),
        ("https", "labels.example", {"HTTPS_PROXY": "  "}, None),
        # a caller's header `Proxy` sets HTTP_PROXY for a program that a server runs
        ("http", "labels.example", {"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, None),
        # this machine is never called through another one
        *(
            ("http", host, {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None)
            for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1", "db.localhost")
        ),
    ],
)
def test_which_variable_counts(
    monkeypatch: pytest.MonkeyPatch, scheme: str, host: str, variables: dict[str, str], expected: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert variable_for(scheme, host, 8001) == expected


@pytest.mark.parametrize(
    ("host", "entries", "passed_by"),
    [
        ("labels.example", "labels.example", True),
        ("LABELS.example", "other, labels.EXAMPLE ", True),
        ("eu.labels.example", "labels.example", True),
        ("eu.labels.example", ".labels.example", True),
        ("eu.labels.example", "*.labels.example", True),
        ("mylabels.example", "labels.example", False),
        ("labels.example", "labels.example:8001", True),
        ("labels.example", "labels.example:443", False),
        ("labels.example", "*", True),
        ("labels.example", "", False),
        ("labels.example", ",,", False),
        ("labels.example", "localhost,127.0.0.1,[::1]", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3:8001", True),
        ("fd00::5", "127.0.0.1,fd00::/8", True),
        ("[fd00::5]", "[fd00::5]", True),
        ("fd00::5", "[fd00::5]:8001", True),
        ("fe00::5", "[fd00::]/8,nonsense/99", False),
    ],
)
def test_what_no_proxy_lists(monkeypatch: pytest.MonkeyPatch, host: str, entries: str, passed_by: bool) -> None:
    monkeypatch.setenv("ALL_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", entries)
    assert (variable_for("http", host, 8001) is None) is passed_by


@pytest.mark.parametrize(
    "value",
    ["proxy.example:http", "http://", "ftp://proxy.example", "http://[::1", "http://proxy.example:999999", "://"],
)
def test_a_proxy_that_is_none_is_named_by_its_variable_alone(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(InvalidSettings, match=r"HTTPS_PROXY must name a proxy such as http://") as refusal:
        proxy_of("HTTPS_PROXY")
    assert value not in refusal.value.detail or value in "http://"


def test_a_proxy_is_read_with_its_password_and_without_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    found = proxy_of("HTTPS_PROXY")
    assert (found.url.host, found.url.port, found.auth) == ("proxy.example", 3128, ("user", "s3cret"))
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    assert proxy_of("HTTPS_PROXY").url.scheme == "http"


def test_a_socks_proxy_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:s3cret@proxy.example:1080")
    monkeypatch.setattr("label_dp.client.proxies.find_spec", lambda _name: None)
    with pytest.raises(InvalidSettings, match=r"ALL_PROXY names a SOCKS proxy.*httpx\[socks\]") as refusal:
        proxy_of("ALL_PROXY")
    assert "s3cret" not in refusal.value.detail


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("made", ["nothing", "text"])
def test_certificates_that_are_none_are_named_by_their_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, made: str
) -> None:
    path = tmp_path / "ca.pem"
    if made == "text":
        path.write_text("no certificate")
    monkeypatch.setenv(name, str(path))
    with pytest.raises(InvalidSettings, match=name):
        machine_authorities()


def test_certificates_of_the_environment_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    every = len(machine_authorities().get_ca_certs())
    one = Path(certifi.where()).read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    (tmp_path / "one.pem").write_text(one)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    assert len(machine_authorities().get_ca_certs()) == 1 < every
    assert trusted(None, None, "X") is True  # read by the first call over TLS
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    machine_authorities()
