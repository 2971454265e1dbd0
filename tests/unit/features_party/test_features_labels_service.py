"""The client of the labels party against a scripted server: retries, resumed downloads, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from features_party.receive.labels_service import LabelsService
from features_party.receive.pull import pull
from label_dp import errors
from label_dp.client.peer import MAX_BODY_BYTES, MAX_PROBLEM_BYTES, RETRIES
from label_dp.documents.arriving import Arriving
from label_dp.documents.bundle import ENVELOPE_SUFFIX, verify
from label_dp.documents.invitation import service_url
from label_dp.documents.manifest import FileEntry, Manifest
from label_dp.documents.signed import MAX_ENVELOPE_BYTES
from tests.support.messages import Sender

IDS = [f"c{i:05d}" for i in range(5000)]
LABELS = np.arange(5000, dtype=np.float64) % 11
ENTRY = FileEntry(role="message", name="a.parquet", bytes=1, rows=1, sha256="0" * 64)


def fetch(service: LabelsService, path: Path, release: str = "rel_1") -> None:
    with Arriving(path, ENTRY) as part:
        service.download(release, part)


class Server:
    """A labels party that has one release; `trouble` may answer in its place or change its answers."""

    def __init__(self, folder: Path, parts: int = 1) -> None:
        self.sender = Sender()
        self.path = folder / ("message" if parts > 1 else "message.parquet")
        prior = np.full(11, 1 / 11)
        self.manifest: Manifest = self.sender.write(self.path, IDS, LABELS, parts=parts, prior=prior)
        self.state = "published"
        self.calls: list[httpx.Request] = []
        self.trouble: Callable[[httpx.Request, int], httpx.Response | None] = lambda _request, _count: None

    def file(self, name: str) -> bytes:
        if self.path.is_dir():
            return (self.path / name).read_bytes()
        prior = self.path.with_name("message.prior.parquet")
        return (prior if name == "prior.parquet" else self.path).read_bytes()

    def envelope(self) -> bytes:
        folder = self.path / "manifest.dsse.json"
        return (folder if self.path.is_dir() else self.path.with_name(self.path.name + ENVELOPE_SUFFIX)).read_bytes()

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request)
        odd = self.trouble(request, len(self.calls))
        if odd is not None:
            return odd
        path = request.url.path
        if path == "/v1/releases/rel_1":
            return httpx.Response(200, json={"state": self.state})
        if path == "/v1/releases/rel_1/manifest":
            return httpx.Response(200, content=self.envelope())
        if path.startswith("/v1/releases/rel_1/files/"):
            data = self.file(path.rsplit("/", 1)[1])
            start = int(request.headers.get("range", "bytes=0-")[6:-1])
            return httpx.Response(206 if start else 200, content=data[start:])
        return httpx.Response(404, json={"detail": "There is no such thing."})

    def service(self, key: str | None = "secret") -> LabelsService:
        return LabelsService("http://labels", key, transport=httpx.MockTransport(self.handle), sleep=lambda _s: None)

    def pull(self, out: Path, release: str = "rel_1", *, force: bool = False) -> Path:
        with self.service() as service:
            key = self.sender.key.public
            return pull(service, release, lambda _e: key, "features-party", out, lambda _w, _s: None, force=force).path


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "there").mkdir()
    return Server(tmp_path / "there")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "m.parquet"


def test_pull_brings_message_manifest_and_prior(server: Server, out: Path) -> None:
    server.pull(out)
    assert sorted(p.name for p in out.parent.iterdir()) == ["m.parquet", "m.parquet.dsse.json", "m.prior.parquet"]
    verified = verify(out, server.sender.key.public, "features-party")
    assert verified.prior_path is not None
    assert all(call.headers["authorization"] == "Bearer secret" for call in server.calls)
    server.pull(out)  # again is fine


def test_several_parts_become_a_folder(tmp_path: Path) -> None:
    server = Server(tmp_path / "there", parts=3)
    out = tmp_path / "here" / "m"
    server.pull(out)
    assert verify(out, server.sender.key.public, "features-party").manifest.n == 5000
    server.pull(out)


def test_a_folder_as_target_names_the_file(server: Server, tmp_path: Path) -> None:
    assert server.pull(tmp_path / "there" / "..").name == "rel_1.parquet"


def test_a_download_that_breaks_off_is_continued(server: Server, out: Path) -> None:
    class Breaking(httpx.SyncByteStream):
        def __init__(self, data: bytes) -> None:
            self.data = data

        def __iter__(self):  # type: ignore[no-untyped-def]  # httpx's protocol
            yield self.data[:100]
            raise httpx.ReadError("gone")

    def trouble(request: httpx.Request, _count: int) -> httpx.Response | None:
        if request.url.path.endswith("message.parquet") and "range" not in request.headers:
            return httpx.Response(200, stream=Breaking(server.file("message.parquet")))
        return None

    server.trouble = trouble
    server.pull(out)
    assert [c.headers["range"] for c in server.calls if "range" in c.headers] == ["bytes=100-"]
    assert verify(out, server.sender.key.public, "features-party").manifest.n == 5000


def test_trouble_that_passes_is_waited_out(server: Server, out: Path) -> None:
    def trouble(_request: httpx.Request, count: int) -> httpx.Response | None:
        if count % 3 == 1:
            raise httpx.ConnectError("refused")
        return httpx.Response(503) if count % 3 == 2 else None

    server.trouble = trouble
    server.pull(out)
    assert out.exists()


def test_trouble_that_stays_is_a_sentence(server: Server, out: Path) -> None:
    server.trouble = lambda _request, _count: httpx.Response(503)
    with pytest.raises(errors.Unavailable):
        server.pull(out)
    assert len(server.calls) == RETRIES + 1
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, errors.Unauthenticated), (404, errors.NotFound), (409, errors.Conflict), (302, errors.Refusal)],
)
def test_refusals_are_not_repeated(server: Server, out: Path, status: int, kind: type[Exception]) -> None:
    server.trouble = lambda _request, _count: httpx.Response(
        status, json={"detail": "No."}, headers={"location": "http://elsewhere/"}
    )
    with pytest.raises(kind, match=r"No\."):
        server.pull(out)
    assert len(server.calls) == 1


def test_wrong_bytes_leave_nothing(server: Server, out: Path) -> None:
    def trouble(request: httpx.Request, _count: int) -> httpx.Response | None:
        if "/files/message" not in request.url.path:
            return None
        data = bytearray(server.file("message.parquet"))
        data[50] ^= 1
        return httpx.Response(200, content=bytes(data))

    server.trouble = trouble
    with pytest.raises(errors.DigestMismatch):
        server.pull(out)
    assert list(out.parent.iterdir()) == []


def test_more_bytes_than_promised_are_cut_short(server: Server, out: Path) -> None:
    server.trouble = lambda request, _count: (
        httpx.Response(200, content=b"0" * 10_000_000) if "/files/" in request.url.path else None
    )
    with pytest.raises(errors.Unavailable, match="more bytes"):
        server.pull(out)
    assert list(out.parent.iterdir()) == []


def test_a_release_that_is_not_published_is_refused(server: Server, out: Path) -> None:
    server.state = "drawing"
    with pytest.raises(errors.Conflict, match="drawing"):
        server.pull(out)


def test_the_manifest_of_another_release_is_refused(server: Server, out: Path) -> None:
    server.trouble = lambda request, _count: (
        httpx.Response(200, json={"state": "published"})
        if request.url.path == "/v1/releases/rel_2"
        else httpx.Response(200, content=server.envelope())
    )
    with pytest.raises(errors.MalformedManifest, match="another release"):
        server.pull(out, "rel_2")


def test_what_lies_there_is_not_overwritten(server: Server, out: Path) -> None:
    out.write_bytes(b"precious")
    with pytest.raises(errors.InvalidInput, match="--force"):
        server.pull(out)
    assert out.read_bytes() == b"precious"
    server.pull(out, force=True)
    assert verify(out, server.sender.key.public, "features-party").manifest.n == 5000


def test_a_damaged_copy_is_fetched_again_and_an_intact_one_is_not(server: Server, out: Path) -> None:
    server.pull(out)
    calls = len(server.calls)
    server.pull(out)
    assert [c.url.path for c in server.calls[calls:]] == ["/v1/releases/rel_1", "/v1/releases/rel_1/manifest"]
    out.write_bytes(out.read_bytes()[:-1])
    server.pull(out)
    assert verify(out, server.sender.key.public, "features-party").manifest.n == 5000


def test_a_folder_in_the_way_is_replaced_by_force_only(tmp_path: Path) -> None:
    server, out = Server(tmp_path / "there", parts=3), tmp_path / "here" / "m"
    out.mkdir(parents=True)
    (out / "precious").touch()
    with pytest.raises(errors.InvalidInput, match="--force"):
        server.pull(out)
    server.pull(out, force=True)
    assert verify(out, server.sender.key.public, "features-party").manifest.n == 5000
    assert [p.name for p in out.parent.iterdir()] == ["m"]


def test_not_json_and_not_http_are_sentences(server: Server, out: Path) -> None:
    server.trouble = lambda _request, _count: httpx.Response(200, content=b"<html>")
    with pytest.raises(errors.Unavailable, match="not JSON"):
        server.pull(out)
    with pytest.raises(errors.InvalidInput):
        LabelsService("ftp://labels")


def test_names_are_quoted_into_the_path(server: Server, tmp_path: Path) -> None:
    with server.service() as service, pytest.raises(errors.NotFound):
        fetch(service, tmp_path / "t", "../../x?y")
    assert server.calls[-1].url.raw_path.startswith(b"/v1/releases/..%2F..%2Fx%3Fy/files/")


class Endless(httpx.SyncByteStream):
    """A body that never ends; `sent` is how much of it was taken."""

    def __init__(self) -> None:
        self.sent = 0

    def __iter__(self):  # type: ignore[no-untyped-def]  # httpx's protocol
        while self.sent < 1 << 26:
            self.sent += 1 << 16
            yield b" " * (1 << 16)


@pytest.mark.parametrize(
    ("status", "call", "limit", "kind"),
    [
        (200, lambda s, p: s.manifest("rel_1"), MAX_BODY_BYTES, errors.Unavailable),
        (200, lambda s, p: s.release_state("rel_1"), MAX_BODY_BYTES, errors.Unavailable),
        (200, lambda s, p: s.send_ids("bat_1", p), MAX_BODY_BYTES, errors.Unavailable),
        (404, lambda s, p: s.release_state("rel_1"), MAX_PROBLEM_BYTES, errors.NotFound),
        (404, lambda s, p: fetch(s, p.with_name("part")), MAX_PROBLEM_BYTES, errors.NotFound),
        (503, lambda s, p: s.release_state("rel_1"), 0, errors.Unavailable),
    ],
)
def test_an_answer_without_end_is_dropped(  # type: ignore[no-untyped-def]  # calls of different kinds
    server: Server, tmp_path: Path, status: int, call, limit: int, kind: type[Exception]
) -> None:
    body = Endless()
    server.trouble = lambda _request, _count: httpx.Response(status, stream=body)
    path = tmp_path / "file"
    path.write_bytes(b"ids")
    with server.service() as service, pytest.raises(kind) as refusal:
        call(service, path)
    assert body.sent <= limit + (1 << 16)
    assert str(refusal.value).endswith(("be.", "runs.", "404"))


def test_the_largest_signed_document_is_read(server: Server) -> None:
    assert MAX_ENVELOPE_BYTES <= MAX_BODY_BYTES
    server.trouble = lambda _request, _count: httpx.Response(200, content=b"x" * MAX_ENVELOPE_BYTES)
    with server.service() as service:
        assert len(service.manifest("rel_1")) == len(service.answer_document("ans_1")) == MAX_ENVELOPE_BYTES


def test_a_packed_answer_is_refused_before_it_is_unpacked(server: Server, tmp_path: Path) -> None:
    import gzip

    bomb = gzip.compress(b" " * 50_000_000)
    server.trouble = lambda _request, _count: httpx.Response(
        200, stream=httpx.ByteStream(bomb), headers={"Content-Encoding": "gzip"}
    )
    with server.service() as service:
        for call in (
            lambda: service.release_state("rel_1"),
            lambda: service.manifest("rel_1"),
            lambda: fetch(service, tmp_path / "t"),
        ):
            with pytest.raises(errors.Unavailable, match="encoded"):
                call()
    assert {c.headers["accept-encoding"] for c in server.calls} == {"identity"}


def test_deeply_nested_json_is_not_json(server: Server) -> None:
    server.trouble = lambda _request, _count: httpx.Response(200, content=b'{"a":' * 100_000)
    with server.service() as service, pytest.raises(errors.Unavailable, match="not JSON"):
        service.release_state("rel_1")


def test_a_refusals_text_is_short_and_printable(server: Server) -> None:
    text = "No\x1b[31m\u202e\n" + "x" * 5000
    server.trouble = lambda _request, _count: httpx.Response(409, json={"detail": text})
    with server.service() as service, pytest.raises(errors.Conflict) as refusal:
        service.release_state("rel_1")
    said = refusal.value.detail.removeprefix("The labels party answered: ")
    assert said.isprintable()
    assert len(said) == 200


def test_of_an_answer_only_what_we_know_is_passed_on(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ids").write_bytes(b"ids")
    for answer, known in (
        ({"batch": "bat_1", "examples": 3, "token": "internal"}, {"batch": "bat_1", "examples": 3}),
        ({"batch": {"a": 1}, "examples": "3"}, {}),
    ):
        server.trouble = lambda _request, _count, answer=answer: httpx.Response(200, json=answer)  # type: ignore[misc]  # bound now
        with server.service() as service:
            assert service.send_ids("bat_1", tmp_path / "ids") == known


@pytest.mark.parametrize("release", ["", ".", ".."])
def test_dots_do_not_leave_the_path(server: Server, release: str) -> None:
    with server.service() as service, pytest.raises(errors.InvalidInput):
        service.manifest(release)
    assert server.calls == []


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("http://labels:8001", "http://labels:8001"),
        ("HTTPS://Labels.Example:443/", "https://labels.example"),
        ("http://[::1]:8001/v/Labels", "http://[::1]:8001/v/Labels"),
        ("http://labels_party:80", "http://labels_party"),
    ],
)
def test_a_url_has_one_spelling(text: str, spelling: str) -> None:
    assert service_url(text) == spelling


@pytest.mark.parametrize(
    "text",
    [
        "",
        "labels",
        "ftp://x",
        "http://",
        "http:///x",
        "http://u@x",
        "http://x?",
        "http://x#",
        "http://x:0",
        "http://x:70000",
        "http://x/../y",
        "http://x/./y",
        "http://x//y",
        "http://x/%2e",
        "http://x\\y",
        "http://x y",
        "http://x\n",
        "http://ä",
    ],
)
def test_odd_urls_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInput):
        service_url(text)
