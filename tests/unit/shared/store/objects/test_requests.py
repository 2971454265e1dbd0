"""Requests to a store over HTTP: what each answer means, how often a request is sent, whose credentials sign it."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from obstore.store import AzureStore, GCSStore, S3Store

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.store.objects import address as addresses
from label_dp.store.objects import bucket as requests
from label_dp.store.objects.address import Address, bucket_of, store_of
from label_dp.store.objects.bucket import CHUNK, Bucket, StoreFailed
from label_dp.store.objects.port import StoreRefused

Answer = Callable[[str, str], tuple[int, str]]


class Server:
    """Store that answers each method and path with a status and a body, and remembers them."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _method, _path: (200, "")
        self.seen: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.seen.append(f"{self.command} {self.path}")
                status, body = outer.answer(self.command, self.path)
                self.send_response(status)
                for name, value in (("Content-Length", str(len(body))), ("ETag", '"1"')):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body.encode())

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self.handle_one
                raise AttributeError(name)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]  # who gave up hears no answer
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("b", "p", "us-east-1", f"127.0.0.1:{self.http.server_port}", "http")

    def bucket(self) -> Bucket:
        return Bucket(store_of(self.address, "SETTING"), "p")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(requests, "LONGEST_PAUSE", 0.001)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "password")
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def error(code: str) -> str:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Key>p/secret</Key></Error>"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        *((403, code, StoreFailed) for code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch")),
        *((400, code, StoreFailed) for code in ("ExpiredToken", "RequestTimeout")),
        *((status, "Unheard", StoreFailed) for status in (401, 429, 500, 502, 503, 504)),
        (404, "NoSuchBucket", StoreFailed),
        (403, "QuotaExceeded", StoreRefused),
        *((status, code, StoreRefused) for status, code in ((400, "InvalidRequest"), (413, "EntityTooLarge"))),
        (507, "", StoreRefused),
    ],
)
def test_what_an_answer_means(
    status: int,
    code: str,
    kind: type[Unavailable],
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(addresses, "REQUESTS", 1)
    server.answer = lambda _method, _path: (status, error(code) if code else "full")
    with caplog.at_level(logging.WARNING), pytest.raises(kind) as failed:
        server.bucket().send("secret", io.BytesIO(b"x"))
    assert type(failed.value) is kind
    assert len(server.seen) == (1 if kind is StoreRefused else requests.TRIES)
    assert (code or "GenericError") in caplog.text
    assert "secret" not in caplog.text + failed.value.detail


def test_a_request_is_repeated_so_often_and_no_more(server: Server) -> None:
    server.answer = lambda _method, _path: (503, error("SlowDown"))
    with pytest.raises(StoreFailed):
        server.bucket().listed("")
    assert len(server.seen) == addresses.REQUESTS * requests.TRIES


def test_a_store_that_does_not_answer_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(addresses, "RETRY_SECONDS", 0.2)
    bucket, given_up = server.bucket(), threading.Event()
    server.answer = lambda _method, _path: (200, "" if given_up.wait(20) else "late")
    begun = time.monotonic()
    with pytest.raises(StoreFailed):
        bucket.send("x", io.BytesIO(b"x"))
    assert time.monotonic() - begun < 10
    given_up.set()
    assert len(server.seen) == requests.TRIES, "no request is repeated after the time for repeats"


@pytest.mark.parametrize("failing", ["partNumber=2&", "uploadId=u1"])
def test_a_large_object_is_sent_in_parts_and_taken_back_if_one_fails(failing: str, server: Server) -> None:
    def answer(method: str, path: str) -> tuple[int, str]:
        if method == "POST" and "uploads" in path:
            return 200, "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
        wrong = method in ("PUT", "POST") and failing in path and (method == "POST" or "part" in failing)
        return (400, error("InvalidPart")) if wrong else (200, "")

    server.answer = answer
    with pytest.raises(StoreRefused):
        server.bucket().send("x", io.BytesIO(bytes(2 * CHUNK + 1)))
    parts = {int(seen.split("partNumber=")[1][0]) for seen in server.seen if "partNumber=" in seen}
    assert parts >= ({2} if "part" in failing else {1, 2, 3}), "others may be cut off when one fails"
    assert server.seen[-1] == "DELETE /b/p/x?uploadId=u1"


def test_what_is_not_there_is_no_failure(server: Server) -> None:
    server.answer = lambda _method, _path: (404, error("NoSuchKey"))
    with pytest.raises(FileNotFoundError) as missing:
        server.bucket().fetch("secret", io.BytesIO())
    assert "secret" not in str(missing.value)
    server.bucket().delete("secret")
    with pytest.raises(Unavailable, match="SETTING"):
        bucket_of(server.address, "SETTING")


def test_plain_http_is_for_those_who_ask(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.address.host}")
    with pytest.raises(StoreFailed):
        Bucket(store_of(Address("b", "p"), "SETTING"), "p").send("x", io.BytesIO(b"x"))
    assert server.seen == []


def test_the_file_of_credentials_is_read(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id=one\naws_secret_access_key=s\n[other]\naws_access_key_id=two\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    bucket = server.bucket()
    assert "X-Amz-Credential=one%2F" in bucket.signed("x")
    assert server.seen == []


def test_a_machine_without_credentials_may_have_some_later(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{server.address.host}")
    server.answer = lambda _method, _path: (404, "")
    with pytest.raises(Unavailable, match="look at its credentials"):
        server.bucket().signed("x")
    with pytest.raises(StoreFailed):
        server.bucket().send("x", io.BytesIO(b"x"))
    assert not any("/b/" in seen for seen in server.seen)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("s3://b/p?region=eu-west-1", "https://b.s3.eu-west-1.amazonaws.com/p/x"),
        ("s3://b.c/p?region=eu-west-1", "https://s3.eu-west-1.amazonaws.com/b.c/p/x"),
        ("s3://b/p?endpoint_override=h%3A9", "https://h:9/b/p/x"),
    ],
)
def test_the_url_of_an_object(text: str, host: str, server: Server) -> None:
    address = Address.parse(text, "SETTING")
    url = Bucket(store_of(address, "SETTING"), address.prefix).signed("x")
    assert url.startswith(f"{host}?")
    assert parse_qs(urlsplit(url).query)["X-Amz-Expires"] == ["600"]


def test_each_maker_has_its_store_and_none_is_called(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{server.address.host}")
    with pytest.raises(InvalidSettings, match="account"):
        store_of(Address.parse("az://c/p", "SETTING"), "SETTING")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for text, kind in (("s3://b", S3Store), ("gs://b/p", GCSStore), ("az://c/p", AzureStore)):
        assert type(store_of(Address.parse(text, "SETTING"), "SETTING")) is kind
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/nowhere/key.json")
    with pytest.raises(InvalidSettings, match="SETTING") as refused:
        store_of(Address.parse("gs://b/p", "SETTING"), "SETTING")
    assert "nowhere" not in str(refused.value)
    assert server.seen == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "find_spec", lambda _name: None)
    with pytest.raises(InvalidSettings, match="SETTING names needs obstore: pip install"):
        store_of(Address("b", "p"), "SETTING")
