"""Where a labels party may send us for files: a table of places."""

from __future__ import annotations

import pytest

from features_party.receive.files_url import FileRules
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
