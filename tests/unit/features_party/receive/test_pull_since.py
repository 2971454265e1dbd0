"""The daily pull against a scripted labels party: pages, waiting, what is skipped, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from features_party.receive.labels_service import LabelsService
from features_party.receive.pull import LocalMessage
from features_party.receive.pull import pull as pull_one
from features_party.receive.pull_since import Patience, await_published, first_day, pull_since
from label_dp import errors
from label_dp.client import listings
from label_dp.documents.bundle import ENVELOPE_SUFFIX, Bundle, verify
from label_dp.documents.manifest import Manifest
from label_dp.progress import Progress
from tests.support.messages import Sender
from tests.support.scripted import page_of

DAYS = ("2026-11-01", "2026-11-02", "2026-11-02", "2026-11-05")


class Server:
    """A labels party with one release a day; those not in `published` do not show."""

    def __init__(self, folder: Path) -> None:
        self.sender, self.folder = Sender(), folder
        self.published: set[str] = set()
        self.state: dict[str, str] = {}
        self.calls: list[str] = []
        self.page: Any = None
        self.down = 0
        for number, _day in enumerate(DAYS):
            ids = [f"d{number}-{i}" for i in range(20)]
            self.sender.write(
                folder / f"rel_{number}.parquet", ids, np.arange(20.0) % 11, release=f"rel_{number}", batch=f"b{number}"
            )

    def publish(self, *numbers: int) -> None:
        self.published |= {f"rel_{n}" for n in numbers}

    def entry(self, release: str) -> dict[str, Any]:
        path = self.folder / f"{release}.parquet"
        digest = Manifest.trusted(Bundle(path).envelope(), self.sender.key.public, None)[1]
        published = DAYS[int(release[4:])]
        return {
            "id": release, "published": published, "population_name": "shop", "epsilon": "2", "manifest_sha256": digest
        }  # fmt: skip

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request.url.path)
        if self.down:
            self.down -= 1
            raise httpx.ConnectError("refused")
        path, query = request.url.path, request.url.params
        if path == "/v1/releases":
            if self.page is not None:
                return page_of(*self.page)
            known = [self.entry(r) for r in sorted(self.published)]
            found = [e for e in known if e["published"] >= query["since"] and e["id"] > query.get("cursor", "")]
            return page_of(found[:2], found[1]["id"] if found[2:] else None)
        release = path.split("/")[3]
        if release not in self.published and release not in self.state:
            return httpx.Response(404, json={"detail": "There is no such release."})
        if path.endswith("/manifest"):
            return httpx.Response(200, content=(self.folder / f"{release}.parquet{ENVELOPE_SUFFIX}").read_bytes())
        if "/files/" in path:
            return httpx.Response(200, content=(self.folder / f"{release}.parquet").read_bytes())
        state = self.state.get(release, "published")
        published = DAYS[int(release[4:])] if state == "published" else None
        return httpx.Response(200, json={"state": state, "published": published})


class Clock:
    """Seconds that pass in `sleep` only; `then` happens at a time."""

    def __init__(self) -> None:
        self.now, self.pauses, self.then = 0.0, [], {}  # type: ignore[var-annotated]  # a test's notes

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        for at in [t for t in self.then if t <= self.now]:
            self.then.pop(at)()

    def patience(self, seconds: float) -> Patience:
        return Patience(seconds, lambda: self.now, self.sleep)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "there").mkdir()
    return Server(tmp_path / "there")


def service(server: Server) -> LabelsService:
    return LabelsService("http://labels", "key", transport=httpx.MockTransport(server.handle), sleep=lambda _s: None)


def pull(server: Server, folder: Path, since: str = "2026-11-01", patience: Patience = Patience(0)) -> list[Any]:  # noqa: B008 - it is frozen
    key, name = server.sender.key.public, "features-party"
    with service(server) as labels:

        def bring(release: str, out: Path, progress: Progress) -> LocalMessage:
            return pull_one(labels, release, lambda _e: key, name, out, progress)

        return pull_since(
            labels, since, None, lambda _e: key, name, folder, patience, lambda _w, _s: None, bring=bring
        )  # fmt: skip


def test_all_pages_since_a_day_or_a_release(server: Server, tmp_path: Path) -> None:
    server.publish(0, 1, 2, 3)
    assert [f["release"] for f in pull(server, tmp_path / "a")] == ["rel_0", "rel_1", "rel_2", "rel_3"]
    assert [f["release"] for f in pull(server, tmp_path / "b", "2026-11-02")] == ["rel_1", "rel_2", "rel_3"]
    assert [f["release"] for f in pull(server, tmp_path / "c", "rel_2")] == ["rel_1", "rel_2", "rel_3"]  # of its day
    for path in (tmp_path / "a").glob("*.parquet"):
        assert verify(path, server.sender.key.public, "features-party").manifest.id == path.stem


def test_what_is_there_intact_is_skipped_and_the_rest_fetched(server: Server, tmp_path: Path) -> None:
    server.publish(0, 1)
    pull(server, tmp_path / "in")
    server.publish(2)
    damaged = tmp_path / "in" / "rel_1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    server.calls.clear()
    assert [f["fresh"] for f in pull(server, tmp_path / "in")] == [False, True, True]
    assert {c for c in server.calls if "/files/" in c} == {
        "/v1/releases/rel_1/files/message.parquet", "/v1/releases/rel_2/files/message.parquet"
    }  # fmt: skip


def test_a_message_that_does_not_fit_is_not_begun(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.publish(0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(errors.InvalidFile, match="Make room first"):
        pull(server, tmp_path / "in")
    assert not [call for call in server.calls if "/files/" in call]
    assert list((tmp_path / "in").iterdir()) == []


def test_another_file_of_that_name_is_refused(server: Server, tmp_path: Path) -> None:
    server.publish(0)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rel_0.parquet").write_bytes(b"mine")
    with pytest.raises(errors.InvalidInput, match="--force"):
        pull(server, tmp_path / "in")


def test_waiting_for_something_new(server: Server, tmp_path: Path) -> None:
    server.publish(0)
    pull(server, tmp_path / "in")
    clock = Clock()
    clock.then = {40.0: lambda: server.publish(1)}
    found = pull(server, tmp_path / "in", patience=clock.patience(600))
    assert [(f["release"], f["fresh"]) for f in found] == [("rel_0", False), ("rel_1", True)]
    assert clock.pauses[0] == 1.0
    assert clock.pauses == sorted(clock.pauses)  # they grow
    with pytest.raises(errors.Unavailable, match="Nothing new was published for us within 90 seconds"):
        pull(server, tmp_path / "in", patience=Clock().patience(90))


def test_waiting_for_a_release(server: Server) -> None:
    server.state["rel_0"] = "charged"
    clock, told = Clock(), []  # type: ignore[var-annotated]  # texts
    clock.then = {10.0: lambda: server.state.update(rel_0="drawing"), 20.0: lambda: server.state.pop("rel_0")}
    clock.then[15.0] = lambda: setattr(server, "down", 7)  # the labels party restarts meanwhile
    server.publish(0)
    with service(server) as labels:
        await_published(labels, "rel_0", clock.patience(600), lambda what, share: told.append((what, share)))
    assert any("release drawing" in what for what, _ in told)
    assert {share for _, share in told} == {0.0}  # how long it takes is not known


def test_a_release_that_failed_or_does_not_come(server: Server) -> None:
    with service(server) as labels:
        for state in ("failed", "declined", "cancelled"):
            server.state["rel_0"] = state
            with pytest.raises(errors.Conflict, match=f"is {state} and will not"):
                await_published(labels, "rel_0", Clock().patience(60), lambda _w, _s: None)
        server.state["rel_0"] = "charged"
        with pytest.raises(errors.Unavailable, match="within 60 seconds; its state is charged"):
            await_published(labels, "rel_0", Clock().patience(60), lambda _w, _s: None)
        with pytest.raises(errors.Conflict, match="not published yet"):
            first_day(labels, "rel_0")
        with pytest.raises(errors.NotFound):
            await_published(labels, "rel_9", Clock().patience(60), lambda _w, _s: None)


@pytest.mark.parametrize("id_", ["../x", "", ".hidden", "a/b", 7, None, "x" * 65])
def test_a_list_with_odd_names_is_refused(server: Server, tmp_path: Path, id_: Any) -> None:
    server.publish(0)
    server.page = [server.entry("rel_0") | {"id": id_}], None
    with pytest.raises(errors.Unavailable, match="malformed"):
        pull(server, tmp_path / "in")
    assert list((tmp_path / "in").iterdir()) == []


def test_pages_without_end_are_left(server: Server, tmp_path: Path) -> None:
    server.publish(0)
    server.page = [server.entry("rel_0")], "rel_0"
    with pytest.raises(errors.Unavailable, match="malformed"):
        pull(server, tmp_path / "in")
    assert server.calls.count("/v1/releases") == 2


def test_new_pages_without_end_are_left_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, number = server.entry("rel_0"), iter(range(1000))

    def fresh(_request: httpx.Request) -> httpx.Response:
        name = f"rel_{next(number)}"
        return page_of([entry | {"id": name}], name)

    monkeypatch.setattr(listings, "MOST_PAGES", 5)
    with (
        LabelsService("http://labels", transport=httpx.MockTransport(fresh)) as service,
        pytest.raises(errors.Unavailable, match="does not end"),
    ):
        list(service.published("2026-11-01"))
    assert next(number) == 5
