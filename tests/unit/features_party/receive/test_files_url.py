"""Where a labels party may send us for files: a table of places."""

from __future__ import annotations

import pytest

from features_party.receive.labels_service import FileRules
from label_dp import errors

HTTPS, HTTP = "https://labels.example:8001", "http://127.0.0.1:8001"
STORE = "https://bucket.s3.example/rel_1/message.parquet?X-Amz-Signature=ab%2Fcd&X-Amz-Expires=60"


@pytest.mark.parametrize(
    ("labels", "listed", "closed", "location"),
    [
        (HTTPS, (), False, STORE),
        (HTTP, (), False, STORE),
        (HTTPS, (), True, "/v1/other/file?x=1"),
        (HTTPS, (), True, "https://LABELS.example:8001/x"),
        (HTTP, (), False, "http://127.0.0.1:9000/bucket/x"),
        ("http://minio.internal:8001", (), False, "http://minio.internal:9000/x"),
        ("https://10.0.0.5", (), False, "https://10.0.0.5:9000/x"),
        (HTTPS, ("https://bucket.s3.example",), True, STORE),
        (HTTPS, ("https://10.0.0.5:9000/files",), False, "https://10.0.0.5:9000/files/x"),
        (HTTP, ("http://10.0.0.5:9000",), True, "http://10.0.0.5:9000/files/x"),
        (HTTPS, ("https://s3.example:443/b",), True, "https://s3.example/b"),
        (HTTPS, ("https://s3.example/b",), True, "https://s3.example/b/dt=2026-11-01/a%20b+c/%C3%BC@1:2//x..y"),
        (HTTPS, (), False, "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/x"),
    ],
)
def test_allowed(labels: str, listed: tuple[str, ...], closed: bool, location: str) -> None:
    own = "/".join(labels.split("/")[:3])
    assert FileRules(labels, listed, closed).allow(location) == (
        f"{own}{location}" if location.startswith("/") else location
    )


@pytest.mark.parametrize(
    ("labels", "listed", "closed", "location", "why"),
    [
        (HTTPS, (), False, "http://bucket.s3.example/x", "plain http"),
        (HTTPS, ("http://bucket.s3.example",), True, "http://bucket.s3.example/x", "plain http"),
        (HTTP, (), False, "http://bucket.s3.example/x", "plain http"),
        (HTTP, (), False, "http://169.254.169.254/latest/meta-data", "plain http"),
        (HTTPS, (), True, STORE, "FEATURES_PARTY_FILE_URLS"),
        (HTTPS, ("https://other.example",), False, STORE, "FEATURES_PARTY_FILE_URLS"),
        (HTTPS, ("https://bucket.s3.example/rel_2",), False, STORE, "FEATURES_PARTY_FILE_URLS"),
        (HTTPS, ("https://bucket.s3.example/rel",), False, STORE, "FEATURES_PARTY_FILE_URLS"),
        (HTTPS, ("https://bucket.s3.example:8443",), False, STORE, "FEATURES_PARTY_FILE_URLS"),
        (HTTPS, (), False, "https://169.254.169.254/x", "private network"),
        (HTTPS, (), False, "https://10.0.0.5/x", "private network"),
        (HTTPS, (), False, "https://[::1]/x", "private network"),
        (HTTPS, (), False, "https://[::ffff:10.0.0.5]/x", "private network"),
        (HTTPS, (), False, "https://user:pw@bucket.s3.example/x", "plain URL"),
        (HTTPS, (), False, "https://bucket.s3.example\\@evil/x", "plain URL"),
        (HTTPS, (), False, "https://bucket.s3.example/a/../b", "plain URL"),
        (HTTPS, (), False, "https://bucket.s3.example/a/%2E%2e/b", "plain URL"),
        (HTTPS, (), False, "https://bucket.s3.example/x#y", "plain URL"),
        (HTTPS, ("https://bucket.s3.example/a",), True, "https://bucket.s3.example/a/..%2Fb", "plain URL"),
        (HTTPS, ("https://bucket.s3.example/a",), True, "https://bucket.s3.example/a/x/%2e%2e%2fb", "plain URL"),
        (HTTPS, ("https://bucket.s3.example/a",), True, "https://bucket.s3.example/a/..%5Cb", "plain URL"),
        *(
            (HTTPS, ("https://bucket.s3.example/a",), True, f"https://bucket.s3.example/a/{segment}/b", "plain URL")
            for segment in (
                "..%252F",
                "..%25252F",
                "..;",
                "..;x=1",
                "%3b",
                "..%c0%af",
                "%c0%ae%c0%ae",
                "..%ef%bc%8f",
                "%EF%BC%8E%EF%BC%8E",
                "%e2%80%a5",
                "..%09",
                "%0d%0a",
                "..%00",
                "%zz",
                "%",
                "..%u2215",
                "..%e2%88%95",
                "%2e%2e",
                "x/..",
                "..//..",
            )
        ),
        (HTTPS, ("https://169.254.169.254",), True, "https://169.254.169.254/x", "no service answers"),
        *(
            (HTTPS, (), False, f"https://{host}/x", "private network")
            for host in (
                "127.1",
                "2130706433",
                "0x7f.0.0.1",
                "0x7f000001",
                "0177.0.0.1",
                "10.5",
                "192.0.0.192",
                "localhost",
                "db.localhost",
                "100.64.0.1",
                "[64:ff9b::a00:5]",
                "[64:ff9b:1::a00:5]",
                "[2002:a00:5::1]",
                "[fec0::1]",
                "[::10.0.0.5]",
                "[::ffff:0:10.0.0.5]",
                "[fd00::1]",
                "168.63.129.16",
                "[64:ff9b::7f00:1]",
            )
        ),
        (HTTPS, (), False, "https://bucket.s3.example:99999/x", "plain URL"),
        (HTTPS, (), False, "ftp://bucket.s3.example/x", "plain URL"),
        (HTTPS, (), False, "//bucket.s3.example/x", "plain URL"),
        (HTTPS, (), False, "x", "plain URL"),
        (HTTPS, (), False, "", "plain URL"),
        (HTTPS, (), False, "https://bücket.example/x", "plain URL"),
        (HTTPS, (), False, "https://bucket.s3.example/" + "x" * 8000, "plain URL"),
    ],
)
def test_refused(labels: str, listed: tuple[str, ...], closed: bool, location: str, why: str) -> None:
    with pytest.raises(errors.Refusal, match=why) as refusal:
        FileRules(labels, listed, closed).allow(location)
    assert "bucket" not in refusal.value.detail
